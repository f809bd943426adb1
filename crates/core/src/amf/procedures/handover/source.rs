//! Source node of an N2 or S1 handover (TS 23.502 4.9.1.3.3 step 14, TS 23.401 5.5.1.2.2 step 19).
//!
//! It keeps the UE's resources and forwards packets until the UPFs send to the target. Then it is
//! commanded to release the UE, and its response is awaited.

use super::smf_updates;
use super::state::SourceNode;
use crate::amf::access;
use crate::amf::context::Connection;
use crate::amf::n2::Cause;
use crate::amf::ran::{self, ResetItem};
use crate::smf::N4State;
use crate::step::{Effect, Note, StepContext};
use vireo_wire::ngap::CauseRadioNetwork as Radio;

/// Starts to wait for the UPFs; the UE is at the target.
pub(super) fn start(ctx: &mut StepContext<'_, '_>, connection: Connection) {
    // Releases a source node of an earlier handover.
    release(ctx);
    let deadline = ctx.now() + ctx.env.config.timers.ran_response;
    ctx.ue.source = Some(SourceNode { connection, commanded: false, deadline });
}

/// Releases the source node once the UPFs are known to send to the target, or the time limit has
/// passed.
pub(super) fn proceed(ctx: &mut StepContext<'_, '_>) {
    let Some(source) = ctx.ue.source else { return };
    let is_upf_updated =
        ctx.ue.sessions.iter().all(|s| !s.is_live() || !matches!(s.n4, N4State::Updating { .. } | N4State::Converting));
    if is_upf_updated && !smf_updates::is_leaving(ctx.ue) || source.deadline <= ctx.now() {
        release(ctx);
    }
}

/// Sends UE CONTEXT RELEASE COMMAND to the source node, unless it was sent before.
pub(super) fn release(ctx: &mut StepContext<'_, '_>) {
    let Some(source) = ctx.ue.source.filter(|s| !s.commanded) else { return };
    answer(ctx, |c| access::context_release_command(c, Cause::radioNetwork(Radio::successful_handover)));
    let deadline = ctx.now() + ctx.env.config.timers.ran_response;
    ctx.ue.source = Some(SourceNode { commanded: true, deadline, ..source });
}

/// Sends the source node a message about the UE.
pub(super) fn answer(ctx: &mut StepContext<'_, '_>, build: impl FnOnce(&Connection) -> Vec<u8>) {
    if let Some(SourceNode { connection, .. }) = ctx.ue.source {
        ctx.effect(Effect::Ngap { assoc: connection.assoc, pdu: build(&connection) });
    }
}

/// Ends the wait: the source node has released the UE.
pub(super) fn on_release(ctx: &mut StepContext<'_, '_>) {
    ctx.ue.source = None;
}

/// Handles a missing response: a reset of the connection makes both sides agree that it is released
/// (TS 38.413 8.7.4).
pub(super) fn on_deadline(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.source.is_some_and(|s| s.commanded && s.deadline <= ctx.now()) {
        ctx.note(Note::fault("release-timeout"));
        answer(ctx, |c| {
            let item = ResetItem { amf_id: Some(c.amf_id), ran_id: Some(c.ran_id) };
            let cause = Cause::radioNetwork(Radio::release_due_to_5gc_generated_reason);
            ran::reset_part(c.assoc.dialect(), cause, &[item])
        });
        on_release(ctx);
    }
}
