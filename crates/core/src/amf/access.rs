//! Interface to RAN nodes of both dialects: NGAP for gNBs, S1AP for eNBs.
//!
//! The dialect of a message is that of its association ([`vireo_types::AssocId::dialect`]). The
//! rest of the core sees the same values for both.

use super::context::{Connection, UeSecurityCapability};
use super::n2::{
    self, AcceptTransport, Cause, ContextSetup, Fault, Route, SessionSetup, ShallowView, UeInformation, UeMessage,
};
use super::s1;
use crate::schedule::kind::emm::is_service_request;
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

/// First octets of the messages to a RAN node that relay a container of another one: HANDOVER
/// REQUEST, HANDOVER COMMAND, and DOWNLINK RAN STATUS TRANSFER or MME STATUS TRANSFER (TS 38.413
/// 9.4.7, TS 36.413 9.3.7).
const fn relaying(dialect: Dialect) -> [[u8; 2]; 3] {
    match dialect {
        Dialect::Nr => [[0x00, 13], [0x20, 12], [0x00, 7]],
        Dialect::Eps => [[0x00, 1], [0x20, 0], [0x00, 25]],
    }
}

/// Returns true if the octets are a message to a RAN node whose size and number another RAN node
/// determines, because the message relays its container.
pub fn relays_container(dialect: Dialect, octets: &[u8]) -> bool {
    relaying(dialect).iter().any(|head| octets.starts_with(head))
}

/// Returns HANDOVER FAILURE in place of the target if the octets are HANDOVER REQUEST.
pub fn refuse_handover(dialect: Dialect, octets: &[u8]) -> Option<Vec<u8>> {
    let [request, ..] = relaying(dialect);
    let Ok(Route::Ue(id)) = route(dialect, octets) else { return None };
    octets.starts_with(&request).then(|| match dialect {
        Dialect::Nr => n2::handover_failure(id),
        Dialect::Eps => s1::handover_failure(id),
    })
}

/// Returns true if the octets are the first message of a UE of EPS, with SERVICE REQUEST. Its MAC
/// has 16 bits (TS 24.301 8.2.25, 9.9.3.28), that of any other message 32.
pub fn has_short_mac(dialect: Dialect, octets: &[u8]) -> bool {
    let is_it =
        |message: &UeMessage| matches!(message, UeMessage::Initial(initial) if is_service_request(&initial.nas));
    dialect == Dialect::Eps && s1::ue_message(octets).is_ok_and(|(_, message)| is_it(&message))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use vireo_wire::ngap::CauseMisc;

    #[test]
    fn container_of_other_node_is_recognized() {
        for name in ["HandoverRequest-from-eps", "HandoverCommand-to-eps"] {
            assert!(relays_container(Dialect::Nr, &golden::nr(name)), "{name}");
        }
        for name in ["HandoverRequest", "HandoverCommand", "MMEStatusTransfer"] {
            assert!(relays_container(Dialect::Eps, &golden::eps(name)), "{name}");
        }
        for name in ["HandoverPreparationFailure", "HandoverCancelAcknowledge"] {
            assert!(!relays_container(Dialect::Nr, &golden::nr(name)), "{name}");
            assert!(!relays_container(Dialect::Eps, &golden::eps(name)), "{name}");
        }
    }

    #[test]
    fn service_request_of_eps_has_short_mac() {
        let mut octets = golden::eps("InitialUEMessage-s-tmsi");
        assert!(!has_short_mac(Dialect::Eps, &octets), "ATTACH REQUEST");
        let at = octets.windows(2).position(|window| window == [0x07, 0x41]).expect("its header");
        octets[at] = 0xc7;
        assert!(has_short_mac(Dialect::Eps, &octets) && !has_short_mac(Dialect::Nr, &octets));
    }

    #[test]
    fn refused_request_gets_failure_of_target() {
        let requests = [
            (Dialect::Nr, golden::nr("HandoverRequest-from-eps"), golden::nr("HandoverCommand-to-eps")),
            (Dialect::Eps, golden::eps("HandoverRequest"), golden::eps("HandoverCommand")),
        ];
        for (dialect, request, command) in requests {
            let failure = refuse_handover(dialect, &request).expect("a failure");
            let same_ue = (route(dialect, &failure).ok(), route(dialect, &request).ok());
            assert!(same_ue.0.is_some() && same_ue.0 == same_ue.1, "{same_ue:?}");
            let (_, message) = ue_message(dialect, &failure).expect("a message of a RAN node");
            let cause = Cause::misc(CauseMisc::control_processing_overload);
            assert_eq!(message, UeMessage::HandoverFailure { cause });
            assert_eq!(refuse_handover(dialect, &command), None);
        }
    }
}
