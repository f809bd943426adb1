//! AN release (TS 23.502 4.2.6): the UE goes idle, its downlink packets are buffered. The dialect of it is NGAP's alone
//! and is in `n2`.

use crate::context::RanContext;
use crate::n2::Cause;
use crate::procedures::common::user_plane;
use crate::session::Input;
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::Instant;

/// UE CONTEXT RELEASE REQUEST of the RAN: the command follows, with its cause.
pub fn requested(turn: &mut StepContext<'_, '_>, cause: Cause) {
    if !turn.ue.connection.is_some_and(|c| matches!(c.ran, RanContext::Releasing { .. })) {
        turn.release(cause);
    }
}

/// The RAN has released the UE, or the association, or did not answer: there is no NG connection any more.
pub fn released(turn: &mut StepContext<'_, '_>) {
    let connection = turn.ue.connection.take();
    if let Some(RanContext::Releasing { deadline }) = connection.map(|c| c.ran) {
        let since = Instant(deadline.0.saturating_sub(turn.env.config.timers.ran_response.0));
        let answered = turn.now() < deadline;
        turn.note(if answered { Note::Succeeded(Kind::Release, since) } else { Note::Failed(Kind::Release, 0) });
    }
    user_plane::step_all(turn, || Input::Deactivate);
    // The chain of next hops ends with the AS security context: the next one begins with a fresh KgNB (TS 33.501 6.9.2.1.1).
    if let Some(security) = &mut turn.ue.security {
        security.next_hop = None;
    }
    let timers = turn.env.config.timers;
    if turn.ue.is_registered() {
        // The mobile reachable timer (5.3.7).
        turn.ue.expires =
            (timers.t3512.as_micros() > 0).then(|| turn.now() + timers.t3512 + timers.implicit_deregistration);
    }
    forget_if_empty(turn);
}

/// A context that says nothing goes: no keys to come back with, no session that is still ending.
pub fn forget_if_empty(turn: &mut StepContext<'_, '_>) {
    let ue = &turn.ue;
    let empty = !ue.is_registered() && ue.connection.is_none() && ue.procedure.is_none() && ue.sessions.is_empty();
    let empty = empty && ue.chain.sessions.is_empty();
    if empty && ue.security.is_none() && ue.source.is_none() {
        for tmsi in [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten() {
            turn.effect(Effect::FreeTmsi(tmsi));
        }
        turn.effect(Effect::Forget);
    }
}
