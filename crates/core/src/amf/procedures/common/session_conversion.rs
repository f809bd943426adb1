//! Sessions of a UE that moves between 4G and 5G: a PDU session becomes a PDN connection, or the
//! reverse (TS 23.502 4.11.1).

use super::user_plane;
use crate::smf::{self, Input, SmContext, Stage};
use crate::step::StepContext;
use vireo_types::Dialect;

/// Converts the sessions to the dialect of the keys. Those that this dialect cannot have end; the
/// UE learns it from the session or bearer status of the accept.
pub fn convert(ctx: &mut StepContext<'_, '_>) {
    convert_if(ctx, can_move);
}

/// As [`convert`], for a UE that has arrived at the target of a handover: sessions that the target
/// has not admitted end.
pub fn convert_admitted(ctx: &mut StepContext<'_, '_>) {
    convert_if(ctx, |session, to| session.handover.target.is_some() && can_move(session, to));
}

fn convert_if(ctx: &mut StepContext<'_, '_>, can_move: impl Fn(&SmContext, Dialect) -> bool) {
    let to = ctx.ue.session_dialect();
    let pending = ctx.ue.pending.sessions;
    let mut renamed = 0;
    for at in (0..ctx.ue.sessions.len()).rev() {
        let session = &ctx.ue.sessions[at];
        if session.dialect == to {
            continue;
        }
        let (before, index, moves) = (session.id(), session.index, can_move(session, to));
        if !moves {
            user_plane::step(ctx, at, Input::ReleaseLocally);
        }
        // It may be gone.
        if ctx.ue.sessions.get(at).is_some_and(|session| session.index == index) {
            user_plane::step(ctx, at, Input::Convert(to));
            renamed |= (pending >> before & 1) << ctx.ue.sessions[at].id();
        }
    }
    if renamed != 0 || pending != 0 {
        ctx.ue.pending.sessions = renamed;
    }
}

/// Returns true if a session can be one of the other dialect: it has an identity there, and no
/// message about its end or its UPF is outstanding.
pub fn can_move(session: &SmContext, to: Dialect) -> bool {
    let is_known = match to {
        Dialect::Nr => session.psi != 0,
        Dialect::Eps => smf::ebi(session.index).is_some(),
    };
    is_known && session.stage == Stage::Established && !session.is_relocating()
}
