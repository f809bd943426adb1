//! Handover of a PDU session (TS 23.502 4.9.1.2 and 4.9.1.3) or EPS bearer (TS 23.401 5.5.1), also
//! from one to the other (TS 23.502 4.11.1.2).
//!
//! The RAN end of N3 changes, and an end marker ends the path to the previous one.

use super::context::{N4State, RanState, SmContext, Stage};
use super::interface::{Acknowledgement, N2Sm, Output};
use super::n2::HandoverRefusal;
use super::{forwarding, messages, release, relocate, user_plane};
use crate::Env;
use vireo_types::{Dialect, Instant};
use vireo_wire::nas::GsmCause;

/// Returns true if the session has a user plane that can be handed over.
fn is_up(sm: &SmContext) -> bool {
    sm.is_up() && !sm.is_over_nas() && matches!(sm.n4, N4State::Synced | N4State::Updating { .. })
}

/// Returns true if the session has come from the other dialect, and the UPF has not answered an
/// earlier request. Its next request has the present tunnel.
fn is_converting(sm: &SmContext) -> bool {
    sm.is_up() && !sm.is_over_nas() && sm.n4 == N4State::Converting && sm.pfcp.up_seid != 0
}

/// Returns true if another tunnel end of the RAN can be taken over.
pub(super) fn can_switch(sm: &SmContext) -> bool {
    is_up(sm) || is_converting(sm)
}

/// Handles a Path Switch Request: the UE is already at another RAN node. A session that cannot be
/// switched is released.
pub(super) fn switch(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    match messages::switched_tunnel(sm, octets) {
        Some(tunnel) if can_switch(sm) => {
            sm.since = env.now;
            user_plane::forward_to(sm, Some(tunnel), out);
        }
        // It was set up before the handover; the setup response is still in transit.
        Some(tunnel) if sm.is_setting_up() => {
            sm.since = env.now;
            user_plane::ran_is_up(sm, tunnel, out);
        }
        _ => on_refused(sm, env, out),
    }
}

/// Returns the answer to the RAN's path switch request, once the UPF has been updated or nothing
/// waits for it.
pub fn path_switch_answer(sm: &mut SmContext, now: Instant) -> (N2Sm, Vec<u8>) {
    match sm.is_up() {
        true => {
            let uplink = sm.take_unconfirmed_uplink(now);
            (N2Sm::PathSwitchAcknowledge, messages::path_switch_acknowledge(sm, uplink))
        }
        false => (N2Sm::PathSwitchUnsuccessful, messages::refusal(sm, HandoverRefusal::PathSwitch)),
    }
}

/// Handles that the new RAN node does not accept the session: releases it.
pub(super) fn on_refused(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    sm.handover.target = None;
    if matches!(sm.stage, Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established) {
        // The UE's current RAN node has no resources of the session.
        sm.ran = RanState::Idle;
        release::start(sm, release::NO_PTI, GsmCause::InsufficientResources.as_u8(), env, out);
    }
}

/// Handles a Handover Required: returns the data for the target and changes nothing yet. The state
/// of an earlier handover is dropped. A separate SMF has direct forwarding only.
pub(super) fn on_required(sm: &mut SmContext, out: &mut Vec<Output>) {
    sm.handover.target = None;
    if is_up(sm) {
        out.extend(messages::ran_setup_request(sm));
    }
}

/// Handles a Handover Request Acknowledge: the target is ready; sends the command to the source.
pub(super) fn on_prepared(sm: &mut SmContext, octets: &[u8], out: &mut Vec<Output>) {
    if let (true, Some(acknowledgement)) = (is_up(sm), messages::handover_acknowledge(sm, sm.dialect, octets)) {
        sm.handover.target = Some(acknowledgement.tunnel);
        out.push(Output::N2(N2Sm::HandoverCommand, acknowledgement.command));
    }
}

/// Handles a Handover Required to a RAN node of dialect `to`, as [`on_required`]. From one system
/// to the other, packets are forwarded through the UPF only.
pub(super) fn on_move_required(sm: &mut SmContext, to: Dialect, octets: &[u8], out: &mut Vec<Output>) {
    sm.handover.target = None;
    if is_up(sm) {
        let is_direct = to == sm.dialect && messages::has_direct_path(sm, octets);
        forwarding::require(sm, is_direct);
        out.extend(messages::handover_request(sm, to));
    } else {
        forwarding::end(sm);
    }
}

/// Handles a Handover Request Acknowledge of a RAN node of dialect `to`. The data for the command
/// to the source is that of [`forwarding::handover_command`], once the UPF has answered.
pub(super) fn on_move_prepared(sm: &mut SmContext, to: Dialect, octets: &[u8]) {
    match messages::handover_acknowledge(sm, to, octets).filter(|_| is_up(sm)) {
        Some(Acknowledgement { tunnel, forwarding, command }) => {
            sm.handover.target = Some(tunnel);
            forwarding::prepare(sm, to, forwarding, command);
        }
        None => forwarding::end(sm),
    }
}

/// Handles a Handover Notify: the UE is at the target.
pub(super) fn complete(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    match sm.handover.target.take() {
        Some(tunnel) if is_up(sm) => {
            sm.since = env.now;
            forwarding::on_arrival(sm, env);
            user_plane::forward_to(sm, Some(tunnel), out);
            relocate::redirect_target(sm, tunnel, out);
        }
        _ if sm.ran == RanState::Up => on_refused(sm, env, out),
        // A request to the RAN that was pending during the handover goes to the target.
        _ => forwarding::end(sm),
    }
}
