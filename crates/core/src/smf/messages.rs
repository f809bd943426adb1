//! Messages of a session to UE and RAN, in the dialect of the session.

use super::context::{ForwardingEnds, SmContext, Tunnel};
use super::interface::{Acknowledgement, Output};
use super::n2::HandoverRefusal;
use super::{erab, esm, n1, n2};
use crate::config::CoreConfig;
use crate::{Env, back_off};
use vireo_types::{Dialect, Duration};
use vireo_wire::nas::{GsmCause, NasGprsTimer3};

/// Builds the accept of a new session; `None` if the address does not match the session type.
pub(super) fn accept(
    sm: &SmContext,
    pti: u8,
    cause: Option<u8>,
    options: Vec<u8>,
    config: &CoreConfig,
) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n1::establishment_accept(sm, pti, cause, options, config),
        Dialect::Eps => esm::activate_request(sm, pti, cause, options),
    }
}

/// Builds the reject of a new session.
pub(super) fn reject(dialect: Dialect, psi: u8, pti: u8, cause: GsmCause) -> Option<Output> {
    match dialect {
        Dialect::Nr => n1::establishment_reject(psi, pti, cause),
        Dialect::Eps => esm::connectivity_reject(pti, cause),
    }
}

/// Builds the reject of a new session for which there are no resources (#26), with a back-off time
/// (T3396; TS 24.501 6.2.7, TS 24.301 6.3.6).
pub(super) fn congestion_reject(dialect: Dialect, psi: u8, pti: u8, env: &mut Env<'_>) -> Option<Output> {
    let random = u32::from_be_bytes(env.random());
    let seconds = back_off::seconds(env.config.timers.t3346.as_secs(), random);
    // Above 31 minutes the coding has steps of 10 minutes (TS 24.008 10.5.7.4a).
    let timer = NasGprsTimer3::from_seconds(seconds);
    let timer = timer.or_else(|_| NasGprsTimer3::from_seconds(seconds.next_multiple_of(600))).ok()?;
    match dialect {
        Dialect::Nr => n1::congestion_reject(psi, pti, timer),
        Dialect::Eps => esm::congestion_reject(pti, timer),
    }
}

/// Returns the time after which the command to release a session is sent again: T3592 or T3495.
pub(super) fn release_timer(sm: &SmContext, env: &Env<'_>) -> Duration {
    match sm.dialect {
        Dialect::Nr => env.config.timers.t3592,
        Dialect::Eps => esm::T3495,
    }
}

/// Builds the command to release a session.
pub(super) fn release_command(sm: &SmContext, pti: u8, cause: u8) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n1::release_command(sm.psi, pti, cause),
        Dialect::Eps => esm::deactivate_request(sm.id(), pti, cause),
    }
}

/// Returns the time after which the command to modify a session is sent again: T3591 or T3486.
pub(super) fn modification_timer(sm: &SmContext, env: &Env<'_>) -> Duration {
    match sm.dialect {
        Dialect::Nr => env.config.timers.t3592,
        Dialect::Eps => esm::T3486,
    }
}

/// Builds the command to modify a session to its present terms.
pub(super) fn modification_command(sm: &SmContext, config: &CoreConfig) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n1::modification_command(sm, config),
        Dialect::Eps => esm::modify_request(sm),
    }
}

/// Builds the modification of the user plane at the RAN to the present terms.
pub(super) fn ran_modify_request(sm: &SmContext) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n2::terms_request(sm),
        Dialect::Eps => erab::modify_request(sm),
    }
}

/// Builds the reject of a release that the UE requests.
pub(super) fn release_reject(sm: &SmContext, pti: u8, cause: GsmCause) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n1::release_reject(sm.psi, pti, cause),
        Dialect::Eps => esm::disconnect_reject(pti, cause),
    }
}

/// Builds the status message about an unexpected message.
pub(super) fn status(sm: &SmContext, pti: u8, cause: GsmCause) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n1::status(sm.psi, pti, cause),
        Dialect::Eps => esm::status(sm.id(), pti, cause),
    }
}

/// Builds the set-up of the user plane at the RAN. `None` before the UPF has allocated its tunnel,
/// and for a session that has none there.
pub(super) fn ran_setup_request(sm: &SmContext) -> Option<Output> {
    if sm.is_over_nas() {
        return None;
    }
    match sm.dialect {
        Dialect::Nr => n2::setup_request(sm),
        Dialect::Eps => erab::setup_request(sm),
    }
}

/// Builds the release of the user plane at the RAN, if the session has one there.
pub(super) fn ran_release_command(sm: &SmContext) -> Option<Output> {
    if sm.is_over_nas() {
        return None;
    }
    match sm.dialect {
        Dialect::Nr => n2::release_command(),
        Dialect::Eps => erab::release_command(),
    }
}

/// Returns the RAN end of the tunnel from the response to a set-up; `None` if there is no usable
/// one.
pub(super) fn ran_tunnel(sm: &SmContext, octets: &[u8]) -> Option<Tunnel> {
    let end = match sm.dialect {
        Dialect::Nr => n2::setup_response(sm, octets),
        Dialect::Eps => erab::ErabTunnel::decode(octets),
    };
    end.filter(|end| sm.may_be_at_ran(end))
}

/// Returns the RAN end of the tunnel from the request of a path switch; `None` if there is no
/// usable one.
pub(super) fn switched_tunnel(sm: &SmContext, octets: &[u8]) -> Option<Tunnel> {
    let end = match sm.dialect {
        Dialect::Nr => n2::path_switch_request(sm, octets),
        Dialect::Eps => erab::ErabTunnel::decode(octets),
    };
    end.filter(|end| sm.may_be_at_ran(end))
}

/// Returns the answer to a path switch; `uplink` has the UPF end of the tunnel if it is new.
pub(super) fn path_switch_acknowledge(sm: &SmContext, uplink: Option<Tunnel>) -> Vec<u8> {
    match sm.dialect {
        Dialect::Nr => n2::path_switch_acknowledge(sm, uplink),
        Dialect::Eps => erab::path_switch_acknowledge(uplink),
    }
}

/// Returns the refusal of a session in a handover. EPS has none: the message has a cause.
pub(super) fn refusal(sm: &SmContext, refusal: HandoverRefusal) -> Vec<u8> {
    match sm.dialect {
        Dialect::Nr => n2::refusal(refusal),
        Dialect::Eps => Vec::new(),
    }
}

/// Builds the set-up of the user plane at the target of a handover.
pub(super) fn handover_request(sm: &SmContext, to: Dialect) -> Option<Output> {
    match to {
        Dialect::Nr if sm.dialect == Dialect::Eps => n2::move_request(sm),
        Dialect::Nr => n2::setup_request(sm),
        Dialect::Eps => erab::setup_request(sm),
    }
}

/// Returns true if the source has a direct path to the target for forwarded packets.
pub(super) fn has_direct_path(sm: &SmContext, required: &[u8]) -> bool {
    match sm.dialect {
        Dialect::Nr => n2::has_direct_path(required),
        Dialect::Eps => erab::has_direct_path(required),
    }
}

/// Returns the data for the command to a source of this dialect, with the UPF's tunnel ends for
/// forwarded packets.
pub(crate) fn command_with_forwarding(source: Dialect, ends: ForwardingEnds) -> Vec<u8> {
    match source {
        Dialect::Nr => n2::command_with_forwarding(ends),
        Dialect::Eps => erab::command_with_forwarding(ends),
    }
}

/// Returns the data for the command to the source if no packets are forwarded.
pub(super) fn command_without_forwarding(source: Dialect) -> Vec<u8> {
    match source {
        Dialect::Nr => n2::command_without_forwarding(),
        Dialect::Eps => erab::command_without_forwarding(),
    }
}

/// Decodes the acknowledgement of a target of this dialect.
pub(super) fn handover_acknowledge(sm: &SmContext, target: Dialect, octets: &[u8]) -> Option<Acknowledgement> {
    let acknowledgement = match target {
        Dialect::Nr => n2::handover_acknowledge(sm, octets),
        Dialect::Eps => erab::handover_acknowledge(octets),
    };
    acknowledgement.filter(|acknowledgement| sm.may_be_at_ran(&acknowledgement.tunnel))
}
