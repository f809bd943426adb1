//! Release of a PDU session or of a default bearer.
//!
//! It consists of command and complete with the UE, release at the RAN, and deletion at the UPF (TS
//! 24.501 6.3.3, 6.4.3; TS 23.502 4.3.4; TS 24.301 6.4.4, 6.5.2). UPF and UE are informed in the
//! same step; the address is free when both have finished.

use super::context::{N4State, RanState, SmContext, Stage};
use super::interface::Output;
use super::{messages, n4};
use crate::Env;
use vireo_wire::nas::GsmCause;

/// PTI of procedures that the network starts (TS 24.501 9.6).
pub(super) const NO_PTI: u8 = 0;

/// Releases a session by PDU SESSION RELEASE COMMAND, or DEACTIVATE EPS BEARER CONTEXT REQUEST,
/// with this cause. A session that the UE has not received yet is rejected with the cause instead.
/// Does nothing if the session is being released already.
pub(super) fn start(sm: &mut SmContext, pti: u8, cause: u8, env: &Env<'_>, out: &mut Vec<Output>) {
    match sm.stage {
        Stage::Requested { .. } => {
            let cause = GsmCause::from_u8(cause).unwrap_or(GsmCause::RequestRejectedUnspecified);
            reject(sm, cause, out);
        }
        Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established => {
            sm.stage = Stage::Releasing { pti, cause, repeats: 0 };
            sm.deadline = Some(env.now + messages::release_timer(sm, env));
            out.extend(messages::release_command(sm, pti, cause));
            match sm.ran {
                RanState::SettingUp | RanState::Up => out.extend(messages::ran_release_command(sm)),
                RanState::Idle | RanState::AwaitingUpf | RanState::Releasing { .. } => {}
            }
            sm.ran = RanState::Idle;
            delete(sm, out);
        }
        Stage::Releasing { .. } | Stage::Ended => {}
    }
}

/// Refuses the session: sends a reject to the UE, and a deletion to the UPF if it has the session.
pub(super) fn reject(sm: &mut SmContext, cause: GsmCause, out: &mut Vec<Output>) {
    if let Stage::Requested { pti, .. } | Stage::Accepted { pti } | Stage::Activating { pti, .. } = sm.stage {
        out.extend(messages::reject(sm.dialect, sm.psi, pti, cause));
    }
    end(sm, out);
}

/// Releases a session without a message to UE and RAN. The RAN releases the UE, or has nothing of
/// the session.
pub(super) fn end(sm: &mut SmContext, out: &mut Vec<Output>) {
    sm.stage = Stage::Ended;
    sm.ran = RanState::Idle;
    sm.deadline = None;
    delete(sm, out);
    finish(sm, out);
}

/// Releases a session that the UE does not have. The RAN releases it, too: it would refuse another
/// session with this ID (TS 38.413 8.2.1.4, TS 36.413 8.2.1.3).
pub(super) fn end_at_ran(sm: &mut SmContext, out: &mut Vec<Output>) {
    if sm.is_live() && matches!(sm.ran, RanState::SettingUp | RanState::Up) {
        out.extend(messages::ran_release_command(sm));
    }
    end(sm, out);
}

/// Deletes the session at the UPF, once no other request is outstanding there.
pub(super) fn delete(sm: &mut SmContext, out: &mut Vec<Output>) {
    if sm.n4 == N4State::Synced {
        sm.n4 = N4State::Deleting;
        out.push(n4::deletion_request(sm));
    }
}

/// Outputs the end of the session once both the UE and the UPF have released it.
pub(super) fn finish(sm: &SmContext, out: &mut Vec<Output>) {
    if sm.stage == Stage::Ended && sm.n4 == N4State::Deleted && !sm.is_relocating() {
        out.push(Output::FreeAddress(Box::new(sm.terms.dnn.clone()), sm.address));
        out.push(Output::Released);
    }
}

/// Handles a release request of the UE.
pub(super) fn on_request(sm: &mut SmContext, pti: u8, env: &Env<'_>, out: &mut Vec<Output>) {
    match sm.stage {
        Stage::Requested { .. } => {
            out.extend(messages::status(sm, pti, GsmCause::MessageTypeNotCompatibleWithTheProtocolState));
        }
        Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established => {
            start(sm, pti, GsmCause::RegularDeactivation.as_u8(), env, out);
        }
        // The UE has not received the command and repeats its request (T3582).
        Stage::Releasing { pti: running, cause, .. } if running == pti => {
            out.extend(messages::release_command(sm, pti, cause));
        }
        // Both sides release at once: the network's procedure continues (TS 24.501 6.4.3.6).
        Stage::Releasing { .. } => {}
        Stage::Ended => out.extend(messages::release_reject(sm, pti, GsmCause::InvalidPduSessionIdentity)),
    }
}

/// Handles that the UE has released the session.
pub(super) fn on_complete(sm: &mut SmContext, pti: u8, out: &mut Vec<Output>) {
    match sm.stage {
        Stage::Releasing { pti: running, .. } if running == pti => end(sm, out),
        _ => out.extend(messages::status(sm, pti, GsmCause::PtiMismatch)),
    }
}

/// Handles that the UE is reachable again: resends the command, which it may not have received.
pub(super) fn resend_release_command(sm: &SmContext, out: &mut Vec<Output>) {
    if let Stage::Releasing { pti, cause, .. } = sm.stage {
        out.extend(messages::release_command(sm, pti, cause));
    }
}

/// Handles the expiry of T3592: resends the command, up to the maximum number of retransmissions
/// (TS 24.501 6.3.3.5).
pub(super) fn on_t3592_expiry(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Stage::Releasing { pti, cause, repeats } = &mut sm.stage else {
        return;
    };
    if *repeats >= env.config.timers.retransmissions {
        return end(sm, out);
    }
    *repeats += 1;
    let (pti, cause) = (*pti, *cause);
    sm.deadline = Some(env.now + messages::release_timer(sm, env));
    out.extend(messages::release_command(sm, pti, cause));
}
