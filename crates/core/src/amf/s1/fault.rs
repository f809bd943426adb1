//! Faults of received S1AP messages, and ERROR INDICATION (TS 36.413 10, 8.8).

use super::{cause_to, encode};
use crate::amf::n2::{Cause, Fault, FaultDiagnostics};
use vireo_wire::ngap::CauseProtocol as Protocol;
use vireo_wire::s1ap::{Message, *};

/// Returns the fault of a PDU that lacks a required IE or has one that does not decode (10.3). A
/// faulty outcome is handled locally (10.3.4.2, 10.3.5). An Error Indication is never answered with
/// another one.
pub(crate) fn from_message(pdu: &S1APPDU<'_>) -> Box<Fault> {
    let deviations = pdu.check().unwrap_or_default();
    let cause = deviations.iter().find_map(Deviation::cause);
    let answered = pdu.direction() == "InitiatingMessage" && pdu.kind() != S1apPduKind::Initiating_ErrorIndication;
    let cause = cause.map_or(Cause::protocol(Protocol::transfer_syntax_error), |cause| {
        super::cause_of(&vireo_wire::s1ap::Cause::protocol(cause))
    });
    Box::new(Fault {
        kind: "abstract-syntax-error",
        cause: answered.then_some(cause),
        amf_ue_id: pdu.ie::<ie::MME_UE_S1AP_ID>().and_then(Result::ok).map(|id| id.0.into()),
        ran_ue_id: pdu.ie::<ie::eNB_UE_S1AP_ID>().and_then(Result::ok).map(|id| id.0),
        diagnostics: Some(FaultDiagnostics::S1ap(pdu.criticality_diagnostics(&deviations))),
    })
}

/// Returns the fault of a procedure that this MME does not implement.
pub(crate) fn unknown_procedure(pdu: &S1APPDU<'_>) -> Box<Fault> {
    let diagnostics = FaultDiagnostics::S1ap(pdu.criticality_diagnostics(&[]));
    Fault::unknown(pdu.criticality() as u8, diagnostics)
}

/// Returns the fault of a request that only an MME sends. The procedure is not compatible with the
/// receiver, whatever its criticality (10.4).
pub(crate) fn wrong_direction(pdu: &S1APPDU<'_>) -> Box<Fault> {
    Box::new(Fault {
        kind: "request-of-an-mme",
        cause: Some(Cause::protocol(Protocol::message_not_compatible_with_receiver_state)),
        amf_ue_id: pdu.ie::<ie::MME_UE_S1AP_ID>().and_then(Result::ok).map(|id| id.0.into()),
        ran_ue_id: pdu.ie::<ie::eNB_UE_S1AP_ID>().and_then(Result::ok).map(|id| id.0),
        diagnostics: Some(FaultDiagnostics::S1ap(pdu.criticality_diagnostics(&[]))),
    })
}

/// Returns true if the container of the IEs does not decode to its end (10.2), or if the PDU has an
/// IE of criticality reject that its message does not have (10.3.4.2), or an IE twice (10.3.6).
pub(crate) fn has_fault_to_reject(pdu: &S1APPDU<'_>) -> bool {
    let rejects = |deviation: &Deviation| match deviation {
        Deviation::UnexpectedIe { criticality, .. } => *criticality == Criticality::reject,
        Deviation::RepeatedIe { .. } => true,
        _ => false,
    };
    match pdu.check_structure() {
        Ok(deviations) => deviations.iter().any(rejects),
        Err(_) => true,
    }
}

/// Encodes ERROR INDICATION (9.1.8.3).
pub fn error_indication(fault: &Fault, cause: &Cause) -> Vec<u8> {
    let mut ies = Vec::with_capacity(4);
    let mme_id = fault.amf_ue_id.and_then(|id| u32::try_from(id).ok());
    // Decoded IDs are within their range, so that they encode.
    ies.extend(mme_id.and_then(|id| build_s1ap_ie!(ErrorIndication, MME_UE_S1AP_ID(id)).ok()));
    ies.extend(fault.ran_ue_id.and_then(|id| build_s1ap_ie!(ErrorIndication, eNB_UE_S1AP_ID(id)).ok()));
    ies.extend(build_s1ap_ie!(ErrorIndication, Cause(cause_to(cause))).ok());
    if let Some(FaultDiagnostics::S1ap(diagnostics)) = &fault.diagnostics {
        ies.extend(build_s1ap_ie!(ErrorIndication, CriticalityDiagnostics(diagnostics.clone())).ok());
    }
    let message = ErrorIndication::new(ProtocolIEContainer(ies));
    encode(S1AP_PDU::of_message(&message, ErrorIndication::CRITICALITY))
}
