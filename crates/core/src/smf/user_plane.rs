//! User plane between RAN and UPF (TS 23.502 4.2.3 and 4.2.6): setup, release for an idle UE, new
//! setup.
//!
//! The wanted behaviour of the UPF is state. Whenever no request to the UPF is outstanding and its
//! behaviour differs, a request is sent.

use super::context::{N4State, RanState, SessionHandover, SmContext, Stage, Tunnel};
use super::interface::{N2Sm, Output};
use super::{control_plane, establish, forwarding, messages, n4, qos_change, release, relocate, up_security};
use crate::Env;
use vireo_types::Dialect;
use vireo_wire::nas::GsmCause;

/// Handles that the UE requests its user plane.
pub(super) fn activate(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if sm.stage != Stage::Established {
        return;
    }
    sm.since = env.now;
    match sm.ran {
        RanState::SettingUp if sm.deadline.is_some() => {}
        // An eNB refuses a second set-up of an E-RAB (TS 36.413 8.2.1.3).
        RanState::Up if sm.dialect == Dialect::Eps => {}
        // A separate AMF requests it only if the RAN has no user plane.
        RanState::Idle | RanState::AwaitingUpf | RanState::SettingUp | RanState::Up => set_up(sm, env, out),
        RanState::Releasing { .. } => sm.ran = RanState::Releasing { then_setup: true },
    }
}

/// Requests setup from the RAN, immediately or when the UPF has allocated its tunnel.
pub(super) fn set_up(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if sm.is_over_nas() {
        return match (sm.n4, control_plane::tunnel(sm)) {
            (N4State::Synced | N4State::Updating { .. } | N4State::Converting, Some(tunnel)) => {
                ran_is_up(sm, tunnel, out);
            }
            _ => sm.ran = RanState::AwaitingUpf,
        };
    }
    match (sm.n4, messages::ran_setup_request(sm)) {
        (N4State::Synced | N4State::Updating { .. } | N4State::Converting, Some(request)) => {
            sm.ran = RanState::SettingUp;
            sm.deadline = Some(env.now + env.config.timers.ran_response);
            out.push(request);
        }
        _ => sm.ran = RanState::AwaitingUpf,
    }
}

/// Handles that the UE is released at the RAN.
pub(super) fn deactivate(sm: &mut SmContext, out: &mut Vec<Output>) {
    match sm.stage {
        // The UE left before its answer: it will request the session again.
        Stage::Requested { .. } => release::end(sm, out),
        // A UE of EPS that has the bearer ends it at its next service request, which brings no
        // radio bearer for it (TS 24.301 5.6.1.4.1).
        Stage::Activating { .. } => release::end(sm, out),
        // The UE may have received the accept; if not, it requests again and the AMF part deletes
        // this session.
        Stage::Accepted { .. } | Stage::Established => {
            if sm.ran == (RanState::Releasing { then_setup: true }) {
                out.push(Output::DownlinkData);
            }
            let interrupts_setup = matches!(sm.ran, RanState::AwaitingUpf | RanState::SettingUp);
            sm.stage = Stage::Established;
            sm.ran = RanState::Idle;
            sm.handover.target = None;
            forwarding::end(sm);
            qos_change::interrupt(sm);
            sm.deadline = None;
            match interrupts_setup && sm.downlink.is_none() {
                // The UPF may have reported a packet, and reports no other one until it is told to
                // buffer again: the UE would not be paged.
                true => update_upf(sm, out),
                false => forward_to(sm, None, out),
            }
        }
        Stage::Releasing { .. } => sm.ran = RanState::Idle,
        Stage::Ended => {}
    }
}

/// Handles that the UPF buffers a downlink packet.
pub(super) fn downlink_data(sm: &mut SmContext, out: &mut Vec<Output>) {
    match (&sm.stage, sm.ran) {
        (Stage::Established, RanState::Idle) => out.push(Output::DownlinkData),
        // It waits until the RAN has released the tunnel that it has lost.
        (Stage::Established, RanState::Releasing { .. }) => sm.ran = RanState::Releasing { then_setup: true },
        _ => {}
    }
}

/// Handles that the RAN does not know the tunnel (TS 23.527 5.3.2). The UPF buffers, and the RAN
/// releases the rest of the session (TS 23.502 4.3.7), unless it is being assigned another tunnel.
pub(super) fn on_tunnel_loss(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if !matches!(sm.stage, Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established) {
        return;
    }
    forward_to(sm, None, out);
    if sm.ran == RanState::Up && sm.handover.target.is_none() {
        sm.stage = Stage::Established;
        release_at_ran(sm, false, env, out);
    }
}

/// Handles that the handover was cancelled. A tunnel that the source has lost meanwhile is then not
/// replaced.
pub(super) fn on_handover_cancel(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    forwarding::end(sm);
    let lost = sm.handover.target.take().is_some() && sm.is_up() && sm.downlink.is_none() && !relocate::is_ending(sm);
    if lost {
        release_at_ran(sm, false, env, out);
    }
}

/// Handles that the UE does not respond to paging.
pub(super) fn unreachable(sm: &mut SmContext, out: &mut Vec<Output>) {
    match sm.stage {
        // The UE learns it from the PDU session status of its next request.
        Stage::Releasing { .. } => release::end(sm, out),
        Stage::Established if sm.ran == RanState::Idle && sm.downlink.is_none() && sm.n4 == N4State::Synced => {
            sm.n4 = N4State::Updating { stale: false };
            out.push(n4::drop_buffered(sm));
        }
        _ => {}
    }
}

/// Handles an answer of the RAN.
pub(super) fn on_ran_answer(sm: &mut SmContext, kind: N2Sm, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    match (kind, sm.ran) {
        (N2Sm::SetupResponse, RanState::SettingUp) => match messages::ran_tunnel(sm, octets) {
            Some(tunnel) => ran_is_up(sm, tunnel, out),
            None => unusable_response(sm, env, out),
        },
        (N2Sm::SetupUnsuccessful, RanState::SettingUp) => {
            sm.ran = RanState::Idle;
            sm.deadline = None;
            // The RAN node cannot apply a required protection of user data (TS 33.501 6.6.1): more
            // attempts there have the same result.
            let is_unprotected = sm.dialect == Dialect::Nr && up_security::is_impossible(octets);
            // The RAN does not deliver the accept of a session that it did not set up (TS 38.413
            // 8.2.1.3).
            if sm.is_offered() {
                let cause = match is_unprotected {
                    true => GsmCause::RequestRejectedUnspecified,
                    false => GsmCause::InsufficientResources,
                };
                release::reject(sm, cause, out);
            } else if is_unprotected && sm.is_established() {
                let cause = GsmCause::RequestRejectedUnspecified.as_u8();
                release::start(sm, release::NO_PTI, cause, env, out);
            } else if sm.dialect == Dialect::Eps && sm.is_established() {
                // The UE ends a bearer without a radio bearer (TS 24.301 5.6.1.4.1).
                release::end(sm, out);
            }
        }
        (N2Sm::ReleaseResponse, RanState::Releasing { then_setup }) => {
            released_at_ran(sm, then_setup, env, out);
        }
        (N2Sm::ModifyResponse, _) if relocate::awaits_ran(sm) => relocate::on_ran_answer(sm, env),
        (N2Sm::ModifyResponse, _) => qos_change::accepted_by_ran(sm),
        (N2Sm::ModifyUnsuccessful, _) if relocate::awaits_ran(sm) => relocate::on_ran_refusal(sm, env, out),
        // The UE requests the session again.
        (N2Sm::ModifyUnsuccessful, _) if qos_change::refused_by_ran(sm, env, out) => {
            release::start(sm, release::NO_PTI, GsmCause::ReactivationRequested.as_u8(), env, out);
        }
        // Late, or of the direction towards the RAN.
        _ => {}
    }
}

/// Handles that the RAN has set the user plane up, with this tunnel.
pub(super) fn ran_is_up(sm: &mut SmContext, tunnel: Tunnel, out: &mut Vec<Output>) {
    sm.ran = RanState::Up;
    qos_change::accepted_by_ran(sm);
    if !matches!(sm.stage, Stage::Activating { .. }) {
        sm.deadline = None;
    }
    if sm.downlink == Some(tunnel) && sm.n4 == N4State::Synced {
        on_downlink_applied(sm, out);
    } else {
        forward_to(sm, Some(tunnel), out);
    }
}

/// Handles a setup without a usable tunnel: the RAN must release it again.
fn unusable_response(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if sm.is_offered() {
        return release::start(sm, release::NO_PTI, GsmCause::NetworkFailure.as_u8(), env, out);
    }
    release_at_ran(sm, false, env, out);
}

/// Releases the resources at the RAN while the UE keeps the session (TS 23.502 4.3.7). A UE of EPS
/// keeps its bearers only if it becomes idle (TS 23.401 5.3.5).
fn release_at_ran(sm: &mut SmContext, then_setup: bool, env: &Env<'_>, out: &mut Vec<Output>) {
    if sm.is_over_nas() {
        // The RAN has nothing of it.
        sm.ran = if then_setup { RanState::AwaitingUpf } else { RanState::Idle };
        return;
    }
    sm.ran = RanState::Releasing { then_setup };
    sm.deadline = Some(env.now + env.config.timers.ran_response);
    match sm.dialect {
        Dialect::Nr => out.extend(messages::ran_release_command(sm)),
        Dialect::Eps => out.push(Output::ReleaseConnection),
    }
}

/// Handles that the RAN has released its resources of the session, or of another session with its
/// ID.
fn released_at_ran(sm: &mut SmContext, then_setup: bool, env: &Env<'_>, out: &mut Vec<Output>) {
    sm.ran = RanState::Idle;
    sm.deadline = None;
    match sm.stage {
        Stage::Requested { pti, .. } if sm.n4 == N4State::Synced => establish::upf_ready(sm, pti, env, out),
        Stage::Established if then_setup => set_up(sm, env, out),
        _ => {}
    }
}

/// Handles that the RAN has not answered in time.
pub(super) fn on_ran_timeout(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    sm.deadline = None;
    match (&sm.stage, sm.ran) {
        // It is unknown whether the accept was delivered; a release command is right in both cases.
        (Stage::Accepted { .. }, _) => {
            release::start(sm, release::NO_PTI, GsmCause::NetworkFailure.as_u8(), env, out);
        }
        // A handover has delayed the release of the UE.
        (_, RanState::Releasing { then_setup }) if sm.dialect == Dialect::Eps => {
            release_at_ran(sm, then_setup, env, out);
        }
        (_, RanState::Releasing { then_setup }) => released_at_ran(sm, then_setup, env, out),
        // A late answer to the setup is still accepted.
        _ => {}
    }
}

/// Sets the tunnel that the UPF must forward to (`None` = buffer). Sends it once no request is
/// outstanding.
pub(super) fn forward_to(sm: &mut SmContext, tunnel: Option<Tunnel>, out: &mut Vec<Output>) {
    if sm.downlink == tunnel {
        return;
    }
    sm.end_marker = sm.downlink.is_some() && tunnel.is_some();
    sm.downlink = tunnel;
    update_upf(sm, out);
}

/// Sends the UPF the value of `downlink` once no request is outstanding.
fn update_upf(sm: &mut SmContext, out: &mut Vec<Output>) {
    match sm.n4 {
        N4State::Synced => send_downlink(sm, out),
        N4State::Updating { .. } => sm.n4 = N4State::Updating { stale: true },
        N4State::Establishing | N4State::Converting | N4State::Deleting | N4State::Deleted => {}
    }
}

/// Sends the UPF the value of `downlink`.
pub(super) fn send_downlink(sm: &mut SmContext, out: &mut Vec<Output>) {
    sm.n4 = N4State::Updating { stale: false };
    out.push(n4::modification_request(sm));
    sm.end_marker = false;
}

/// Handles that the UPF applies `downlink`.
pub(super) fn on_downlink_applied(sm: &mut SmContext, out: &mut Vec<Output>) {
    match sm.stage {
        _ if sm.downlink.is_none() => {}
        Stage::Accepted { .. } => {
            sm.stage = Stage::Established;
            out.push(Output::Established);
        }
        Stage::Established => out.push(Output::Activated),
        // It is established once the UE has answered, too.
        Stage::Activating { .. } => {}
        Stage::Requested { .. } | Stage::Releasing { .. } | Stage::Ended => {}
    }
}

/// Handles that the UPF has lost the session: establishes it there again with the same addresses.
/// The tunnel then differs, so a RAN node that sends to the old one releases its part and sets it
/// up again.
pub(super) fn on_upf_loss(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    (sm.pfcp.up_seid, sm.uplink, sm.downlink) = (0, None, None);
    sm.handover = SessionHandover::default();
    (sm.usage.is_requested, sm.usage.spent) = (false, false);
    qos_change::on_upf_loss(sm);
    match sm.stage {
        Stage::Requested { .. } => {}
        Stage::Accepted { .. } | Stage::Activating { .. } => {
            sm.n4 = N4State::Deleted;
            return release::start(sm, release::NO_PTI, GsmCause::ReactivationRequested.as_u8(), env, out);
        }
        Stage::Established => {
            if matches!(sm.ran, RanState::SettingUp | RanState::Up) {
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
