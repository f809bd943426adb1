//! The user plane between RAN and UPF (TS 23.502 4.2.3 and 4.2.6): set up, given up for an idle UE, set up again. What
//! the UPF shall do is state; whenever nothing is outstanding with the UPF and it was told something else, it is told.

use super::context::{N4State, RanState, SmContext, Stage, Tunnel};
use super::{N2Sm, Output, establish, n2, n4, release, relocate};
use crate::Env;
use vireo_wire::nas::GsmCause;

/// The UE is back and wants its user plane.
pub(super) fn activate(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if sm.stage != Stage::Established {
        return;
    }
    sm.since = env.now;
    match sm.ran {
        RanState::Asked if sm.deadline.is_some() => {}
        RanState::Idle | RanState::Wanted | RanState::Asked | RanState::Up => set_up(sm, env, out),
        RanState::Releasing { .. } => sm.ran = RanState::Releasing { again: true },
    }
}

/// Asks the RAN for its part, now or when the UPF has given its tunnel.
pub(super) fn set_up(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    match (sm.n4, n2::setup_request(sm)) {
        (N4State::Told | N4State::Telling { .. }, Some(request)) => {
            sm.ran = RanState::Asked;
            sm.deadline = Some(env.now + env.config.timers.ran_response);
            out.push(request);
        }
        _ => sm.ran = RanState::Wanted,
    }
}

/// The UE is gone from the RAN.
pub(super) fn deactivate(sm: &mut SmContext, out: &mut Vec<Output>) {
    match sm.stage {
        // It left before its answer: it will ask again.
        Stage::Requested { .. } => release::end(sm, out),
        // The accept may have reached it; if not, it asks again and the AMF part drops this one.
        Stage::Accepted { .. } | Stage::Established => {
            if sm.ran == (RanState::Releasing { again: true }) {
                out.push(Output::DownlinkData);
            }
            sm.stage = Stage::Established;
            sm.ran = RanState::Idle;
            sm.target = None;
            sm.deadline = None;
            forward_to(sm, None, out);
        }
        Stage::Releasing { .. } => sm.ran = RanState::Idle,
        Stage::Ended => {}
    }
}

/// The UPF holds a downlink packet.
pub(super) fn downlink_data(sm: &mut SmContext, out: &mut Vec<Output>) {
    match (&sm.stage, sm.ran) {
        (Stage::Established, RanState::Idle) => out.push(Output::DownlinkData),
        // It waits until the RAN has let go of the tunnel that it has lost.
        (Stage::Established, RanState::Releasing { .. }) => sm.ran = RanState::Releasing { again: true },
        _ => {}
    }
}

/// The RAN does not know the tunnel any more (TS 23.527 5.3.2): the UPF buffers, and the RAN releases what it still has of
/// the session (TS 23.502 4.3.7), unless it is being given another tunnel.
pub(super) fn tunnel_lost(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if !matches!(sm.stage, Stage::Accepted { .. } | Stage::Established) {
        return;
    }
    forward_to(sm, None, out);
    if sm.ran == RanState::Up && sm.target.is_none() {
        sm.stage = Stage::Established;
        release_at_ran(sm, false, env, out);
    }
}

/// The handover will not take place. A tunnel that the source has lost meanwhile is not replaced then.
pub(super) fn handover_cancelled(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let lost = sm.target.take().is_some() && sm.is_up() && sm.downlink.is_none() && !relocate::is_ending(sm);
    if lost {
        release_at_ran(sm, false, env, out);
    }
}

/// The UE does not answer to paging.
pub(super) fn unreachable(sm: &mut SmContext, out: &mut Vec<Output>) {
    match sm.stage {
        // It learns of it by the PDU session status of its next request.
        Stage::Releasing { .. } => release::end(sm, out),
        Stage::Established if sm.ran == RanState::Idle && sm.downlink.is_none() && sm.n4 == N4State::Told => {
            sm.n4 = N4State::Telling { stale: false };
            out.push(n4::drop_buffered(sm));
        }
        _ => {}
    }
}

/// The RAN has answered.
pub(super) fn ran_answered(sm: &mut SmContext, kind: N2Sm, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    match (kind, sm.ran) {
        (N2Sm::SetupResponse, RanState::Asked) => match n2::setup_response(octets) {
            Some(tunnel) => ran_is_up(sm, tunnel, out),
            None => unusable_response(sm, env, out),
        },
        (N2Sm::SetupUnsuccessful, RanState::Asked) => {
            sm.ran = RanState::Idle;
            sm.deadline = None;
            // The RAN does not hand out the accept of a session that it did not set up (TS 38.413 8.2.1.3).
            if matches!(sm.stage, Stage::Accepted { .. }) {
                establish::refuse(sm, GsmCause::InsufficientResources, out);
            }
        }
        (N2Sm::ReleaseResponse, RanState::Releasing { again }) => {
            sm.ran = RanState::Idle;
            sm.deadline = None;
            if again && sm.stage == Stage::Established {
                set_up(sm, env, out);
            }
        }
        (N2Sm::ModifyResponse, _) => relocate::ran_modified(sm, env),
        (N2Sm::ModifyUnsuccessful, _) => relocate::ran_refused(sm, env, out),
        // Late, or towards the RAN.
        _ => {}
    }
}

/// The RAN has its part, with this tunnel.
pub(super) fn ran_is_up(sm: &mut SmContext, tunnel: Tunnel, out: &mut Vec<Output>) {
    sm.ran = RanState::Up;
    sm.deadline = None;
    if sm.downlink == Some(tunnel) && sm.n4 == N4State::Told {
        settled(sm, out);
    } else {
        forward_to(sm, Some(tunnel), out);
    }
}

/// The RAN has set it up but says no tunnel that could be used: the RAN shall drop it again.
fn unusable_response(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if matches!(sm.stage, Stage::Accepted { .. }) {
        return release::start(sm, release::NO_PTI, GsmCause::NetworkFailure.as_u8(), env, out);
    }
    release_at_ran(sm, false, env, out);
}

/// Has the RAN drop its part while the UE keeps the session (TS 23.502 4.3.7).
fn release_at_ran(sm: &mut SmContext, again: bool, env: &Env<'_>, out: &mut Vec<Output>) {
    sm.ran = RanState::Releasing { again };
    sm.deadline = Some(env.now + env.config.timers.ran_response);
    out.extend(n2::release_command());
}

/// The RAN has not answered in time.
pub(super) fn ran_silent(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    sm.deadline = None;
    match (&sm.stage, sm.ran) {
        // Nobody knows whether the accept went out; a release command is right in both cases.
        (Stage::Accepted { .. }, _) => {
            release::start(sm, release::NO_PTI, GsmCause::NetworkFailure.as_u8(), env, out);
        }
        (_, RanState::Releasing { again }) => {
            sm.ran = RanState::Idle;
            if again {
                set_up(sm, env, out);
            }
        }
        // A late answer to the set-up is still taken.
        _ => {}
    }
}

/// Sets what the UPF shall forward to (`None` = buffer), and tells it as soon as nothing is outstanding with it.
pub(super) fn forward_to(sm: &mut SmContext, tunnel: Option<Tunnel>, out: &mut Vec<Output>) {
    if sm.downlink == tunnel {
        return;
    }
    sm.end_marker = sm.downlink.is_some() && tunnel.is_some();
    sm.downlink = tunnel;
    match sm.n4 {
        N4State::Told => tell(sm, out),
        N4State::Telling { .. } => sm.n4 = N4State::Telling { stale: true },
        N4State::Establishing | N4State::Deleting | N4State::Deleted => {}
    }
}

/// Tells the UPF what `downlink` says.
pub(super) fn tell(sm: &mut SmContext, out: &mut Vec<Output>) {
    sm.n4 = N4State::Telling { stale: false };
    out.push(n4::modification_request(sm));
    sm.end_marker = false;
}

/// The UPF does what it shall.
pub(super) fn settled(sm: &mut SmContext, out: &mut Vec<Output>) {
    match sm.stage {
        _ if sm.downlink.is_none() => {}
        Stage::Accepted { .. } => {
            sm.stage = Stage::Established;
            out.push(Output::Established);
        }
        Stage::Established => out.push(Output::Activated),
        Stage::Requested { .. } | Stage::Releasing { .. } | Stage::Ended => {}
    }
}

/// The UPF has forgotten the session: it is established there anew with the same addresses. The tunnel is another
/// then, so a RAN that sends to the old one drops its part and sets it up again.
pub(super) fn upf_lost(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    (sm.up_seid, sm.uplink, sm.downlink, sm.target) = (0, None, None, None);
    (sm.usage.asked, sm.usage.spent) = (false, false);
    match sm.stage {
        Stage::Requested { .. } => {}
        Stage::Accepted { .. } => {
            sm.n4 = N4State::Deleted;
            return release::start(sm, release::NO_PTI, GsmCause::ReactivationRequested.as_u8(), env, out);
        }
        Stage::Established => {
            if matches!(sm.ran, RanState::Asked | RanState::Up) {
                release_at_ran(sm, true, env, out);
            }
        }
        Stage::Releasing { .. } | Stage::Ended => {
            sm.n4 = N4State::Deleted;
            return release::finish(sm, out);
        }
    }
    sm.n4 = N4State::Establishing;
    out.push(n4::establishment_request(sm, env.config, 0));
}
