//! Interface to RAN nodes of both dialects: NGAP for gNBs, S1AP for eNBs.
//!
//! The dialect of a message is that of its association ([`vireo_types::AssocId::dialect`]). The
//! rest of the core sees the same values for both.

use super::context::{Connection, UeSecurityCapability};
use super::n2::{
    self, AcceptTransport, Cause, ContextSetup, Fault, Route, SessionSetup, ShallowView, UeInformation, UeMessage,
};
use super::s1;
use crate::subscription::Ambr;
use std::num::NonZeroU16;
use vireo_types::{AmfUeNgapId, Dialect, RanUeNgapId, Snssai};

/// Returns route and kind of a message without decoding it further or copying.
///
/// # Errors
///
/// Returns a [`Fault`] if the octets are not a PDU of the dialect, or if an identifier needed for
/// the route does not decode.
pub fn peek(dialect: Dialect, octets: &[u8]) -> Result<ShallowView, Box<Fault>> {
    match dialect {
        Dialect::Nr => n2::peek(octets),
        Dialect::Eps => s1::peek(octets),
    }
}

/// Returns true if the octets are PATH SWITCH REQUEST.
pub fn is_path_switch(dialect: Dialect, octets: &[u8]) -> bool {
    match dialect {
        Dialect::Nr => n2::is_path_switch(octets),
        Dialect::Eps => s1::is_path_switch(octets),
    }
}

/// Returns the route of a message.
///
/// # Errors
///
/// As [`peek`].
pub fn route(dialect: Dialect, octets: &[u8]) -> Result<Route, Box<Fault>> {
    peek(dialect, octets).map(|view| view.route)
}

/// Decodes a UE-associated message and the identifier that the RAN node has assigned.
///
/// # Errors
///
/// Returns a [`Fault`] if the octets are not a message that a RAN node sends about a UE.
pub fn ue_message(dialect: Dialect, octets: &[u8]) -> Result<(Option<RanUeNgapId>, UeMessage), Box<Fault>> {
    match dialect {
        Dialect::Nr => n2::ue_message(octets),
        Dialect::Eps => s1::ue_message(octets),
    }
}

/// Returns the usage report of the secondary RAT in a message about something else (TS 36.413
/// 9.1.3.4, 9.1.3.6 to 9.1.3.8, 9.1.4.5, 9.1.4.7), if it has one.
pub fn usage_report(dialect: Dialect, message: &UeMessage, octets: &[u8]) -> Option<UeMessage> {
    let may_have_one = matches!(
        message,
        UeMessage::SessionModifyResponse { .. }
            | UeMessage::SessionReleaseResponse { .. }
            | UeMessage::SessionReleaseIndication { .. }
            | UeMessage::ErabModification(_)
            | UeMessage::ReleaseRequest { .. }
            | UeMessage::ReleaseComplete { .. }
    );
    if dialect == Dialect::Eps && may_have_one { s1::usage_report(octets) } else { None }
}

/// Returns the UE identifiers of core and RAN node in a message, as far as they decode.
pub fn ue_ids(dialect: Dialect, octets: &[u8]) -> (Option<u64>, Option<u32>) {
    match dialect {
        Dialect::Nr => n2::ue_ids(octets),
        Dialect::Eps => s1::ue_ids(octets),
    }
}

/// Returns the identifier of a connection as messages of the dialect encode it.
pub fn core_id(dialect: Dialect, id: AmfUeNgapId) -> u64 {
    match dialect {
        Dialect::Nr => id.get(),
        Dialect::Eps => id.mme().into(),
    }
}

/// Returns the Error Indication that answers a fault, if one is to be sent.
pub fn answer(dialect: Dialect, fault: &Fault) -> Option<Vec<u8>> {
    match dialect {
        Dialect::Nr => fault.answer(),
        Dialect::Eps => fault.cause.as_ref().map(|cause| s1::error_indication(fault, cause)),
    }
}

/// Encodes the transport of a NAS message to the UE.
pub fn downlink_nas_transport(connection: &Connection, nas: Vec<u8>) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::downlink_nas_transport(connection, nas),
        Dialect::Eps => s1::downlink_nas_transport(connection, nas),
    }
}

/// Encodes the transport of the accept of an update. A gNB learns with it the allowed NSSAI (TS
/// 38.413 8.6.2.2), an eNB the restrictions of the UE, and what it needs for EN-DC (TS 23.401
/// 5.3.3.1).
pub fn accept_transport(connection: &Connection, nas: Vec<u8>, content: AcceptTransport<'_>) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::downlink_nas_with_information(connection, nas, &UeInformation::default(), content.allowed),
        Dialect::Eps => s1::accept_transport(connection, nas, content),
    }
}

/// Encodes the transport of a NAS message, and the mobility restrictions, the priority for
/// frequencies and the allowed NSSAI (unless empty), which replace those that the RAN node has. An
/// eNB has no slices.
pub fn downlink_nas_with_information(
    connection: &Connection,
    nas: Vec<u8>,
    information: &UeInformation,
    allowed: &[Snssai],
) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::downlink_nas_with_information(connection, nas, information, allowed),
        Dialect::Eps => {
            let content = AcceptTransport { information, nr_algorithms: None, radio_capability: &[], allowed: &[] };
            s1::accept_transport(connection, nas, content)
        }
    }
}

/// Encodes the release of a connection.
pub fn context_release_command(connection: &Connection, cause: Cause) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::context_release_command(connection, cause),
        Dialect::Eps => s1::context_release_command(connection, &cause),
    }
}

/// Encodes the release of a connection that a RAN node has and the core does not have.
pub fn stale_release_command(dialect: Dialect, amf_id: AmfUeNgapId, ran_id: RanUeNgapId) -> Vec<u8> {
    match dialect {
        Dialect::Nr => n2::stale_release_command(amf_id, ran_id),
        Dialect::Eps => s1::stale_release_command(amf_id, ran_id),
    }
}

/// Encodes the set-up of the UE context in the RAN.
pub fn context_setup_request(connection: &Connection, setup: ContextSetup<'_>) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::context_setup_request(connection, setup),
        Dialect::Eps => s1::context_setup_request(connection, setup),
    }
}

/// Encodes the set-up of one session or bearer.
pub fn session_setup_request(connection: &Connection, ambr: Ambr, session: SessionSetup) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::session_setup_request(connection, ambr, session),
        Dialect::Eps => s1::session_setup_request(connection, ambr, session),
    }
}

/// Encodes the modification of one session or bearer.
pub fn session_modify_request(
    connection: &Connection,
    psi: u8,
    (ambr, nas): (Ambr, Option<Vec<u8>>),
    transfer: Vec<u8>,
) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::session_modify_request(connection, psi, nas, transfer),
        Dialect::Eps => s1::session_modify_request(connection, psi, (ambr, nas), &transfer),
    }
}

/// Encodes another UE-AMBR.
pub fn context_modification_request(connection: &Connection, ambr: Ambr) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::context_modification_request(connection, ambr),
        Dialect::Eps => s1::context_modification_request(connection, ambr),
    }
}

/// Encodes the change of the key of the RAN node.
pub fn key_renewal_request(connection: &Connection, key: [u8; 32], capability: UeSecurityCapability) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::key_renewal_request(connection, key, capability),
        Dialect::Eps => s1::key_renewal_request(connection, key, capability),
    }
}

/// Encodes another Index to RAT/Frequency Selection Priority.
pub fn rfsp_modification_request(connection: &Connection, rfsp: NonZeroU16) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::rfsp_modification_request(connection, rfsp),
        Dialect::Eps => s1::rfsp_modification_request(connection, rfsp),
    }
}

/// Encodes the request to report the cell of the UE once, if `is_direct`, or each other cell.
pub fn location_reporting_control(connection: &Connection, is_direct: bool) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::location_reporting_control(connection, is_direct),
        Dialect::Eps => s1::location_reporting_control(connection, is_direct),
    }
}

/// Encodes the release of one session or bearer.
pub fn session_release_command(
    connection: &Connection,
    psi: u8,
    (ambr, nas): (Ambr, Option<Vec<u8>>),
    transfer: Vec<u8>,
) -> Vec<u8> {
    match connection.assoc.dialect() {
        Dialect::Nr => n2::session_release_command(connection, psi, nas, transfer),
        Dialect::Eps => s1::session_release_command(connection, psi, (ambr, nas)),
    }
}
