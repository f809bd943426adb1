//! NAS transport of 5GSM messages (TS 24.501 5.4.5).

use super::UlNasTransport;
use crate::step::StepContext;
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
    // An "existing PDU session" that does not exist is created: there is no other access to
    // transfer it from.
    let initial = request.is_some_and(|r| r.is_initial());
    let snssai = message.s_nssai.as_ref().and_then(|s| s.parse());
    Some(UlNasTransport {
        psi,
        initial,
        is_emergency: false,
        snssai: snssai.map(|contents| Snssai::from_octets(contents.sst, contents.sd)),
        dnn: message.dnn.as_ref().and_then(|d| d.as_string()).and_then(|d| d.parse().ok()),
        n1: &message.payload_container.value,
    })
}

/// Returns a 5GSM message that could not be forwarded to the UE, with the cause (5.4.5.3.1 h).
pub fn send_back(ctx: &mut StepContext<'_, '_>, psi: u8, n1: &[u8], cause: GmmCause) {
    let message = NasDlNasTransport::new(
        NasPayloadContainerType::from_kind(PayloadContainerKind::N1SmInformation),
        NasPayloadContainer::new(n1.to_vec()),
    )
    .with_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(psi))
    .with_fgmm_cause(NasFGmmCause::from_cause(cause));
    ctx.send_nas(message.into());
}
