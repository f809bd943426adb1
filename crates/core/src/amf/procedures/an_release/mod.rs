//! AN release (TS 23.502 4.2.6), and S1 release (TS 23.401 5.3.5).
//!
//! The UE becomes idle, and its downlink packets are buffered. No NAS message belongs to the
//! procedure; [`crate::amf::access`] has its messages to the RAN node.

use crate::amf::context::RanContext;
use crate::amf::n2::Cause;
use crate::amf::procedures::common::user_plane;
use crate::smf::Input;
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::Instant;

/// Handles UE CONTEXT RELEASE REQUEST: sends UE CONTEXT RELEASE COMMAND with the same cause.
pub fn on_request(ctx: &mut StepContext<'_, '_>, cause: Cause) {
    if !ctx.ue.connection.is_some_and(|c| matches!(c.ran, RanContext::Releasing { .. })) {
        ctx.release(cause);
    }
}

/// Handles the end of the NG or S1 connection: the RAN node has released the UE or did not respond,
/// or the association was lost.
pub fn on_release(ctx: &mut StepContext<'_, '_>) {
    let connection = ctx.ue.connection.take();
    if let Some(RanContext::Releasing { deadline }) = connection.map(|c| c.ran) {
        let since = Instant(deadline.0.saturating_sub(ctx.env.config.timers.ran_response.0));
        let answered = ctx.now() < deadline;
        ctx.note(if answered { Note::Succeeded(Kind::Release, since) } else { Note::Failed(Kind::Release, 0) });
    }
    user_plane::step_all(ctx, || Input::Deactivate);
    // The NH chain ends with the AS security context: the next one starts with a fresh KgNB (TS
    // 33.501 6.9.2.1.1).
    if let Some(security) = &mut ctx.ue.security {
        security.next_hop = None;
    }
    if ctx.ue.is_registered() {
        ctx.ue.reachability.last_node = connection.map(|c| c.assoc).filter(|_| ctx.env.config.paging.last_node_first);
        let (config, now) = (ctx.env.config, ctx.now());
        ctx.ue.begin_idle(config, now);
    }
    forget_if_empty(ctx);
}

/// Deletes a context without state worth keeping: no keys for the UE's return and no session in
/// release.
pub fn forget_if_empty(ctx: &mut StepContext<'_, '_>) {
    let ue = &ctx.ue;
    let empty = !ue.is_registered() && ue.connection.is_none() && ue.procedure.is_none() && ue.sessions.is_empty();
    let empty = empty && ue.remote_sessions.sessions.is_empty();
    if empty && ue.security.is_none() && ue.source.is_none() {
        for tmsi in [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten() {
            ctx.effect(Effect::FreeTmsi(tmsi));
        }
        ctx.effect(Effect::DeleteContext);
    }
}
