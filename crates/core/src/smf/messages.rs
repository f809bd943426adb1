//! Messages of a session to UE and RAN, in the dialect of the session.

use super::context::{SmContext, Tunnel};
use super::interface::Output;
use super::n2::HandoverRefusal;
use super::{erab, esm, n1, n2};
use crate::config::CoreConfig;
use vireo_types::Dialect;
use vireo_wire::nas::GsmCause;

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

/// Builds the command to release a session.
pub(super) fn release_command(sm: &SmContext, pti: u8, cause: u8) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n1::release_command(sm.psi, pti, cause),
        Dialect::Eps => esm::deactivate_request(sm.id(), pti, cause),
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

/// Builds the set-up of the user plane at the RAN. `None` before the UPF has allocated its tunnel.
pub(super) fn ran_setup_request(sm: &SmContext) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n2::setup_request(sm),
        Dialect::Eps => erab::setup_request(sm),
    }
}

/// Builds the release of the user plane at the RAN.
pub(super) fn ran_release_command(sm: &SmContext) -> Option<Output> {
    match sm.dialect {
        Dialect::Nr => n2::release_command(),
        Dialect::Eps => erab::release_command(),
    }
}

/// Returns the RAN end of the tunnel from the response to a set-up; `None` if there is no usable
/// one.
pub(super) fn ran_tunnel(sm: &SmContext, octets: &[u8]) -> Option<Tunnel> {
    match sm.dialect {
        Dialect::Nr => n2::setup_response(octets),
        Dialect::Eps => erab::ErabTunnel::decode(octets),
    }
}

/// Returns the RAN end of the tunnel from the request of a path switch; `None` if there is no
/// usable one.
pub(super) fn switched_tunnel(sm: &SmContext, octets: &[u8]) -> Option<Tunnel> {
    match sm.dialect {
        Dialect::Nr => n2::path_switch_request(octets),
        Dialect::Eps => erab::ErabTunnel::decode(octets),
    }
}

/// Returns the answer to a path switch; `uplink` has the UPF end of the tunnel if it is new.
pub(super) fn path_switch_acknowledge(sm: &SmContext, uplink: Option<Tunnel>) -> Vec<u8> {
    match sm.dialect {
        Dialect::Nr => n2::path_switch_acknowledge(uplink),
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

/// Returns the target's end of the tunnel, and the data for the command to the source.
pub(super) fn handover_acknowledge(sm: &SmContext, octets: &[u8]) -> Option<(Tunnel, Vec<u8>)> {
    match sm.dialect {
        Dialect::Nr => n2::handover_acknowledge(octets),
        Dialect::Eps => erab::handover_acknowledge(octets),
    }
}
