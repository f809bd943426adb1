//! Modification of tunnels that the RAN indicates: E-RAB modification indication (TS 36.413 8.2.4,
//! TS 23.401 5.4.7) and PDU session resource modify indication (TS 38.413 8.2.5).
//!
//! The master node of dual connectivity moves tunnels to or from a secondary node. The UE stays
//! connected by it, under the same keys.

use super::sessions::{bits, has, is_any_updating, names_twice, position};
use super::state::{Handover, XnHandover};
use super::{eps, nr};
use crate::amf::context::RanContext;
use crate::amf::n2::{Cause, ErabModification, SessionItems};
use crate::amf::procedures::common::user_plane;
use crate::smf::{self, Input, N2Sm};
use crate::step::{Note, StepContext};
use vireo_types::Dialect;
use vireo_wire::ngap::CauseRadioNetwork as Radio;

/// Handles E-RAB MODIFICATION INDICATION. A message that names an E-RAB twice, or not all E-RABs of
/// the UE, has the UE context released (8.2.4.4).
pub fn on_indication(ctx: &mut StepContext<'_, '_>, request: &ErabModification) {
    let named = bits(&request.modified) | request.unmodified;
    let is_up = |psi: u8| ctx.ue.sessions.iter().any(|s| s.id() == psi && s.is_up());
    let twice = names_twice(&request.modified) || bits(&request.modified) & request.unmodified != 0;
    let complete = ctx.ue.sessions.iter().all(|s| !s.is_up() || has(named, s.id()));
    if twice || !complete {
        ctx.note(Note::fault("erab-modification-incomplete"));
        let cause =
            if twice { Radio::multiple_PDU_session_ID_instances } else { Radio::failure_in_radio_interface_procedure };
        return ctx.release(Cause::radioNetwork(cause));
    }
    let (modified, failed): (Vec<_>, Vec<_>) = request.modified.iter().partition(|(psi, _)| is_up(*psi));
    modify(ctx, N2Sm::PathSwitchRequest, &modified, bits(failed));
}

/// Handles PDU SESSION RESOURCE MODIFY INDICATION. Sessions that it does not name stay as they are.
/// One that cannot be modified keeps its tunnel, too; so do those of a separate SMF.
pub fn indicated_by_gnb(ctx: &mut StepContext<'_, '_>, sessions: &SessionItems) {
    if names_twice(sessions) {
        ctx.note(Note::fault("session-modification-twice"));
        return ctx.release(Cause::radioNetwork(Radio::multiple_PDU_session_ID_instances));
    }
    let can = |(psi, transfer): &&(u8, Vec<u8>)| {
        ctx.ue.sessions.iter().any(|s| s.id() == *psi && s.is_live() && smf::can_modify(s, transfer))
    };
    let (modified, failed): (Vec<_>, Vec<_>) = sessions.iter().partition(can);
    modify(ctx, N2Sm::ModifyIndication, &modified, bits(failed));
}

/// Has the UPFs send to the new tunnel ends. `failed` has the other sessions that the message
/// names, one bit each.
fn modify(ctx: &mut StepContext<'_, '_>, kind: N2Sm, modified: &[&(u8, Vec<u8>)], failed: u16) {
    let is_set_up = ctx.ue.connection.is_some_and(|c| c.ran == RanContext::SetUp);
    let is_free = matches!(ctx.ue.handover, None | Some(Handover::Modifying(_) | Handover::Unconfirmed(_)));
    if !is_set_up || !is_free {
        return ctx.note(Note::fault("handover-out-of-place"));
    }
    let requested = bits(modified.iter().copied());
    // An earlier indication, if any, is void: the RAN node indicates one at a time.
    let started = ctx.received_at();
    ctx.ue.handover = Some(Handover::Modifying(XnHandover { requested, failed, mismatch: false, started }));
    for (psi, transfer) in modified {
        if let Some(at) = position(ctx, *psi) {
            user_plane::step(ctx, at, Input::N2(kind, transfer));
        }
    }
}

/// Confirms the modification once the UPFs have responded.
pub(super) fn proceed(ctx: &mut StepContext<'_, '_>) {
    let Some(Handover::Modifying(modifying)) = ctx.ue.handover else { return };
    if is_any_updating(ctx, modifying.requested) {
        return;
    }
    ctx.ue.handover = None;
    let Some(connection) = ctx.ue.connection else { return };
    let all = modifying.failed | modifying.requested;
    match connection.assoc.dialect() {
        Dialect::Nr => {
            let now = ctx.now();
            let named = ctx.ue.sessions.iter_mut().filter(|s| has(modifying.requested, s.id()));
            let modified: SessionItems = named.filter_map(|s| Some((s.id(), smf::modify_confirm(s, now)?))).collect();
            let failed = all & !bits(&modified);
            ctx.send(|c| nr::modification_confirm(c, modified, failed));
        }
        Dialect::Eps => {
            let up = ctx.ue.sessions.iter().filter(|s| has(modifying.requested, s.id()) && s.is_up());
            let modified = up.fold(0, |bits, s| bits | 1 << s.id());
            ctx.send(|c| eps::modification_confirm(c, modified, all & !modified));
        }
    }
}
