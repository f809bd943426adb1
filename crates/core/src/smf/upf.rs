//! Messages of the UPF about a session: answers to requests, and reports (TS 29.244 7.5).

use super::context::{N4State, RanState, SmContext, Stage};
use super::interface::Output;
use super::n4::{self, Answer, Report};
use super::{charging, convert, establish, forwarding, qos_change, release, relocate, user_plane};
use crate::Env;
use vireo_wire::nas::GsmCause;

pub(super) fn on_message(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    let converts = sm.n4 == N4State::Converting;
    sm.n4 = convert::outstanding(sm);
    let outstanding = sm.n4;
    on_session_message(sm, (octets, converts), env, out);
    if converts {
        convert::proceed(sm, outstanding, env, out);
    }
}

/// Handles a message of the UPF. If the session `converts`, its next request is the conversion.
fn on_session_message(sm: &mut SmContext, (octets, converts): (&[u8], bool), env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(answer) = n4::decode_for(octets, sm.pfcp.cp_seid) else {
        return;
    };
    charging::add(sm, octets, env, out);
    match (answer, sm.n4) {
        (Answer::Established(Ok(up)), N4State::Establishing) => {
            (sm.pfcp.up_seid, sm.uplink) = (up.seid, up.tunnel);
            sm.n4 = N4State::Synced;
            on_established(sm, env, out);
        }
        (Answer::Established(Err(cause)), N4State::Establishing) => {
            on_establishment_failure(sm, cause.gsm_cause(), env, out)
        }
        (Answer::Modified(Ok(ends)), N4State::Updating { stale }) => {
            sm.n4 = N4State::Synced;
            let is_forwarding = forwarding::on_upf_answer(sm, Some(ends));
            let is_requested = std::mem::take(&mut sm.usage.is_requested);
            let is_rate = qos_change::on_upf_answer(sm);
            match sm.stage {
                Stage::Releasing { .. } | Stage::Ended => release::delete(sm, out),
                _ if is_requested => relocate::on_usage_report(sm, env, out),
                _ if stale || converts || is_forwarding || is_rate => {}
                _ => user_plane::on_downlink_applied(sm, out),
            }
            if stale
                && !converts
                && sm.n4 == N4State::Synced
                && !matches!(sm.stage, Stage::Releasing { .. } | Stage::Ended)
            {
                user_plane::send_downlink(sm, out);
            }
        }
        (Answer::Modified(Err(cause)), N4State::Updating { stale }) => {
            if cause.is_session_lost() {
                return user_plane::on_upf_loss(sm, env, out);
            }
            sm.n4 = N4State::Synced;
            if forwarding::on_upf_answer(sm, None) {
                return on_forwarding_refusal(sm, stale && !converts, out);
            }
            release_session(sm, GsmCause::NetworkFailure, env, out);
        }
        (Answer::Deleted, N4State::Deleting) => on_deleted(sm, out),
        (Answer::Report(report), _) => on_session_report(sm, &report, env, out),
        // Late, or an answer to another request than the outstanding one.
        _ => {}
    }
}

/// Handles that the UPF did not answer.
pub(super) fn on_timeout(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    match convert::outstanding(sm) {
        N4State::Establishing => on_establishment_failure(sm, GsmCause::NetworkFailure, env, out),
        N4State::Updating { stale } => {
            let converts = sm.n4 == N4State::Converting;
            sm.n4 = N4State::Synced;
            if !converts && forwarding::on_upf_answer(sm, None) {
                return on_forwarding_refusal(sm, stale, out);
            }
            release_session(sm, GsmCause::ReactivationRequested, env, out);
        }
        N4State::Deleting => on_deleted(sm, out),
        N4State::Synced | N4State::Deleted | N4State::Converting => {}
    }
}

/// Handles that the UPF does not forward packets of the source of a handover: the session continues
/// without. `stale`: `downlink` has changed since the request.
fn on_forwarding_refusal(sm: &mut SmContext, stale: bool, out: &mut Vec<Output>) {
    match sm.stage {
        Stage::Releasing { .. } | Stage::Ended => release::delete(sm, out),
        _ if stale => user_plane::send_downlink(sm, out),
        _ => {}
    }
}

fn on_established(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    match sm.stage {
        // Without a tunnel the UPF is unusable.
        _ if sm.uplink.is_none() => release_session(sm, GsmCause::NetworkFailure, env, out),
        Stage::Requested { pti, .. } => establish::upf_ready(sm, pti, env, out),
        Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established => {
            if sm.ran == RanState::AwaitingUpf {
                user_plane::set_up(sm, env, out);
            }
        }
        Stage::Releasing { .. } | Stage::Ended => release::delete(sm, out),
    }
}

fn on_establishment_failure(sm: &mut SmContext, cause: GsmCause, env: &Env<'_>, out: &mut Vec<Output>) {
    sm.n4 = N4State::Deleted;
    match sm.stage {
        Stage::Requested { .. } => release::reject(sm, cause, out),
        // The UPF was to establish the session again. The UE must request it itself, and may get
        // another UPF.
        Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established => {
            release_session(sm, GsmCause::ReactivationRequested, env, out)
        }
        Stage::Releasing { .. } | Stage::Ended => release::finish(sm, out),
    }
}

/// Releases a session that cannot continue with this UPF.
fn release_session(sm: &mut SmContext, cause: GsmCause, env: &Env<'_>, out: &mut Vec<Output>) {
    match sm.stage {
        Stage::Requested { .. } | Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established => {
            release::start(sm, release::NO_PTI, cause.as_u8(), env, out);
        }
        Stage::Releasing { .. } | Stage::Ended => release::delete(sm, out),
    }
}

fn on_deleted(sm: &mut SmContext, out: &mut Vec<Output>) {
    sm.n4 = N4State::Deleted;
    release::finish(sm, out);
}

/// Handles a Session Report Request (TS 29.244 7.5.8).
fn on_session_report(sm: &mut SmContext, report: &Report, env: &Env<'_>, out: &mut Vec<Output>) {
    out.push(n4::report_response(sm, report.sequence));
    if report.downlink_data {
        user_plane::downlink_data(sm, out);
        relocate::on_downlink_data(sm);
    }
    if report.error_indication.is_some() && report.error_indication == sm.downlink {
        user_plane::on_tunnel_loss(sm, env, out);
    }
}
