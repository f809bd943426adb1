//! The session's part in a handover (TS 23.502 4.9.1.2 and 4.9.1.3): the RAN's end of N3 becomes another one, and the
//! path to the one before is ended with an end marker.

use super::context::{N4State, RanState, SmContext, Stage};
use super::n2::{self, HandoverRefusal};
use super::{N2Sm, Output, release, relocate, user_plane};
use crate::Env;
use vireo_types::Instant;
use vireo_wire::nas::GsmCause;

/// Whether the session has a user plane that can be handed over.
fn is_up(sm: &SmContext) -> bool {
    sm.is_up() && matches!(sm.n4, N4State::Told | N4State::Telling { .. })
}

/// Path Switch Request: the UE is at another RAN node already. One that cannot be switched is lost.
pub(super) fn switch(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    match n2::path_switch_request(octets) {
        Some(tunnel) if is_up(sm) => {
            sm.since = env.now;
            user_plane::forward_to(sm, Some(tunnel), out);
        }
        // It was set up before the UE went; only the answer that says so is still on its way.
        Some(tunnel) if sm.is_asked() => {
            sm.since = env.now;
            user_plane::ran_is_up(sm, tunnel, out);
        }
        _ => lost(sm, env, out),
    }
}

/// What the RAN is told of a session that it has asked to be switched, when the UPF has been told or nobody waits for that any more.
pub fn switched(sm: &mut SmContext, now: Instant) -> (N2Sm, Vec<u8>) {
    match sm.is_up() {
        true => (N2Sm::PathSwitchAcknowledge, n2::path_switch_acknowledge(sm.take_untold_uplink(now))),
        false => (N2Sm::PathSwitchUnsuccessful, n2::refusal(HandoverRefusal::PathSwitch)),
    }
}

/// The new RAN node does not take the session over: it ends.
pub(super) fn lost(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    sm.target = None;
    if matches!(sm.stage, Stage::Accepted { .. } | Stage::Established) {
        // There is nothing of it at the RAN node that the UE is at now.
        sm.ran = RanState::Idle;
        release::start(sm, release::NO_PTI, GsmCause::InsufficientResources.as_u8(), env, out);
    }
}

/// Handover Required: the target is told what it needs, and nothing changes yet. What a handover before has left is of no use.
pub(super) fn required(sm: &mut SmContext, out: &mut Vec<Output>) {
    sm.target = None;
    if is_up(sm) {
        out.extend(n2::setup_request(sm));
    }
}

/// Handover Request Acknowledge: the target is ready; the source is told.
pub(super) fn prepared(sm: &mut SmContext, octets: &[u8], out: &mut Vec<Output>) {
    if let (true, Some((tunnel, command))) = (is_up(sm), n2::handover_acknowledge(octets)) {
        sm.target = Some(tunnel);
        out.push(Output::N2(N2Sm::HandoverCommand, command));
    }
}

/// Handover Notify: the UE is there.
pub(super) fn complete(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    match sm.target.take() {
        Some(tunnel) if is_up(sm) => {
            sm.since = env.now;
            user_plane::forward_to(sm, Some(tunnel), out);
            relocate::handed_over(sm, tunnel, out);
        }
        _ if sm.ran == RanState::Up => lost(sm, env, out),
        // What was asked of the RAN while the UE was on its way is asked of the target.
        _ => {}
    }
}
