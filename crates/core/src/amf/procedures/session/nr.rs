//! NAS transport of 5GSM messages (TS 24.501 5.4.5).

use super::UlNasTransport;
use crate::step::{Note, StepContext};
use vireo_types::Snssai;
use vireo_wire::nas::*;

/// Reads UL NAS TRANSPORT; `None` if it has no 5GSM message or no valid PDU session ID.
pub fn read(message: &NasUlNasTransport) -> Option<UlNasTransport<'_>> {
    if !message.payload_container_type.is_n1_sm() {
        return None;
    }
    let psi = message.pdu_session_id.as_ref()?.pdu_session_id();
    if !(1..=15).contains(&psi) {
        return None;
    }
    let request = message.request_type.as_ref();
    // There is no other access from which an "existing PDU session" could come: one that does not
    // exist is returned to the UE (5.4.5.2.5).
    let is_emergency = request.is_some_and(|r| r.request_type() == Some(RequestTypeValue::InitialEmergencyRequest));
    let initial = is_emergency || request.is_some_and(|r| r.is_initial());
    let snssai = message.s_nssai.as_ref().and_then(|s| s.parse());
    Some(UlNasTransport {
        psi,
        initial,
        is_emergency,
        snssai: snssai.map(|contents| Snssai::from_octets(contents.sst, contents.sd)),
        dnn: message.dnn.as_ref().and_then(|d| d.as_string()).and_then(|d| d.parse().ok()),
        n1: &message.payload_container.value,
    })
}

/// Discards the container of a service that the core does not have, and counts it by type (TS
/// 24.501 5.4.5.2.5). REGISTRATION ACCEPT offers neither SMS nor location services. CIoT user data
/// is returned to the UE (5.4.5.3.1).
pub fn discard(ctx: &mut StepContext<'_, '_>, message: &NasUlNasTransport) {
    use PayloadContainerKind as Kind;
    let word = match message.payload_container_type.kind() {
        // Without a valid PDU session identity, there is no session to which it belongs.
        Some(Kind::N1SmInformation) => "nas-transport-session",
        Some(Kind::Sms) => "nas-transport-sms",
        Some(Kind::LtePp | Kind::LocationServices) => "nas-transport-location",
        Some(Kind::CIoT) => "nas-transport-ciot",
        _ => "nas-transport-other",
    };
    ctx.note(Note::fault(word));
    if message.payload_container_type.kind() == Some(Kind::CIoT) {
        let psi = message.pdu_session_id.as_ref().map(|ie| ie.pdu_session_id());
        return_payload(ctx, (Kind::CIoT, psi), &message.payload_container.value, GmmCause::PayloadWasNotForwarded);
    }
}

/// Returns a 5GSM message that could not be forwarded to the UE, with the cause (5.4.5.3.1 h).
pub fn send_back(ctx: &mut StepContext<'_, '_>, psi: u8, n1: &[u8], cause: GmmCause) {
    return_payload(ctx, (PayloadContainerKind::N1SmInformation, Some(psi)), n1, cause);
}

fn return_payload(
    ctx: &mut StepContext<'_, '_>,
    (kind, psi): (PayloadContainerKind, Option<u8>),
    payload: &[u8],
    cause: GmmCause,
) {
    let mut message =
        NasDlNasTransport::new(NasPayloadContainerType::from_kind(kind), NasPayloadContainer::new(payload.to_vec()))
            .with_fgmm_cause(NasFGmmCause::from_cause(cause));
    if let Some(psi) = psi {
        message.set_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(psi));
    }
    ctx.send_nas(message.into());
}
