//! E-RAB modification indication of an eNB (TS 36.413 8.2.4, TS 23.401 5.4.7).
//!
//! The master eNB of EN-DC moves tunnels to or from a secondary node. The UE stays connected by it,
//! under the same keys.

use super::eps;
use super::sessions::{bits, has, is_any_updating, position};
use super::state::{Handover, XnHandover};
use crate::amf::context::RanContext;
use crate::amf::n2::{Cause, ErabModification};
use crate::amf::procedures::common::user_plane;
use crate::smf::{Input, N2Sm};
use crate::step::{Note, StepContext};
use vireo_wire::ngap::CauseRadioNetwork as Radio;

/// Handles E-RAB MODIFICATION INDICATION. A message that names an E-RAB twice, or not all E-RABs of
/// the UE, has the UE context released (8.2.4.4).
pub fn indicated(ctx: &mut StepContext<'_, '_>, request: &ErabModification) {
    let named = bits(&request.modified) | request.unmodified;
    let is_up = |psi: u8| ctx.ue.sessions.iter().any(|s| s.id() == psi && s.is_up());
    let twice = eps::names_twice(&request.modified) || bits(&request.modified) & request.unmodified != 0;
    let complete = ctx.ue.sessions.iter().all(|s| !s.is_up() || has(named, s.id()));
    if twice || !complete {
        ctx.note(Note::fault("erab-modification-incomplete"));
        let cause =
            if twice { Radio::multiple_PDU_session_ID_instances } else { Radio::failure_in_radio_interface_procedure };
        return ctx.release(Cause::radioNetwork(cause));
    }
    let is_set_up = ctx.ue.connection.is_some_and(|c| c.ran == RanContext::SetUp);
    let is_free = matches!(ctx.ue.handover, None | Some(Handover::Modifying(_) | Handover::Unconfirmed(_)));
    if !is_set_up || !is_free {
        return ctx.note(Note::fault("handover-out-of-place"));
    }
    let (modified, failed): (Vec<_>, Vec<_>) = request.modified.iter().partition(|(psi, _)| is_up(*psi));
    let requested = modified.iter().fold(0, |bits, (psi, _)| bits | 1 << psi);
    let failed = failed.iter().filter(|(psi, _)| *psi < 16).fold(0, |bits, (psi, _)| bits | 1 << psi);
    // An earlier indication, if any, is void: the eNB indicates one at a time.
    let started = ctx.received_at();
    ctx.ue.handover = Some(Handover::Modifying(XnHandover { requested, failed, mismatch: false, started }));
    for (psi, transfer) in modified {
        if let Some(at) = position(ctx, *psi) {
            user_plane::step(ctx, at, Input::N2(N2Sm::PathSwitchRequest, transfer));
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
    let up = ctx.ue.sessions.iter().filter(|s| has(modifying.requested, s.id()) && s.is_up());
    let modified = up.fold(0, |bits, s| bits | 1 << s.id());
    let failed = modifying.failed | modifying.requested & !modified;
    ctx.send(|c| eps::modification_confirm(c, modified, failed));
}
