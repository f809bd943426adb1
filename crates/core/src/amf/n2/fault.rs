//! Faults of received NGAP messages, and ERROR INDICATION (TS 38.413 10, 8.7.5).

use vireo_wire::ngap::{self, Deviation, Message, *};
use vireo_wire::s1ap;

/// Reason why a message was not processed, with the contents of the answer.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Label of the counter and the log line.
    pub kind: &'static str,
    /// Cause of the answer; `None` where the specification requires no answer.
    pub cause: Option<Cause>,
    /// AMF-UE-NGAP-ID as received, for the answer.
    pub amf_ue_id: Option<u64>,
    /// RAN-UE-NGAP-ID as received, for the answer.
    pub ran_ue_id: Option<u32>,
    /// Set if the message itself is faulty, not its meaning.
    pub diagnostics: Option<FaultDiagnostics>,
}

/// Criticality Diagnostics of a faulty message, in the protocol of the message.
#[derive(Clone, Debug)]
pub enum FaultDiagnostics {
    Ngap(CriticalityDiagnostics),
    S1ap(s1ap::CriticalityDiagnostics),
}

impl Fault {
    /// Returns the fault of a well-formed message whose meaning is wrong.
    pub fn logical(kind: &'static str, cause: Cause, amf_ue_id: Option<u64>, ran_ue_id: Option<u32>) -> Box<Self> {
        Box::new(Fault { kind, cause: Some(cause), amf_ue_id, ran_ue_id, diagnostics: None })
    }

    /// Returns the fault of octets that are not a PDU (10.2).
    pub fn transfer_syntax() -> Box<Self> {
        Box::new(Fault {
            kind: "transfer-syntax-error",
            cause: Some(Cause::protocol(CauseProtocol::transfer_syntax_error)),
            amf_ue_id: None,
            ran_ue_id: None,
            diagnostics: None,
        })
    }

    /// Returns the fault of a PDU that lacks a required IE or has one that does not decode (10.3).
    /// A faulty outcome is handled locally (10.3.4.2, 10.3.5). An Error Indication is never
    /// answered with another one.
    pub fn from_message(pdu: &NGAPPDU<'_>) -> Box<Self> {
        let deviations = pdu.check().unwrap_or_default();
        let cause = deviations.iter().find_map(ngap::Deviation::cause);
        let answered = pdu.direction() == "InitiatingMessage" && pdu.kind() != NgapPduKind::Initiating_ErrorIndication;
        Box::new(Fault {
            kind: "abstract-syntax-error",
            cause: answered.then(|| Cause::protocol(cause.unwrap_or(CauseProtocol::transfer_syntax_error))),
            amf_ue_id: pdu.ie::<ie::AMF_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
            ran_ue_id: pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
            diagnostics: Some(FaultDiagnostics::Ngap(pdu.criticality_diagnostics(&deviations))),
        })
    }

    /// Returns the fault of a request that only an AMF sends. The procedure is not compatible with
    /// the receiver, whatever its criticality (10.4).
    pub fn wrong_direction(pdu: &NGAPPDU<'_>) -> Box<Self> {
        Box::new(Fault {
            kind: "request-of-an-amf",
            cause: Some(Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state)),
            amf_ue_id: pdu.ie::<ie::AMF_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
            ran_ue_id: pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
            diagnostics: Some(FaultDiagnostics::Ngap(pdu.criticality_diagnostics(&[]))),
        })
    }

    /// Returns the fault of a procedure that this AMF does not implement.
    pub fn unknown_procedure(pdu: &NGAPPDU<'_>) -> Box<Self> {
        let diagnostics = FaultDiagnostics::Ngap(pdu.criticality_diagnostics(&[]));
        Fault::unknown(pdu.criticality() as u8, diagnostics)
    }

    /// Returns the fault of an unknown procedure of either protocol. The criticality (TS 38.413
    /// 9.4.7, TS 36.413 9.3.7) selects the answer (10.3.4.1).
    pub(crate) fn unknown(criticality: u8, diagnostics: FaultDiagnostics) -> Box<Self> {
        const REJECT: u8 = Criticality::reject as u8;
        const NOTIFY: u8 = Criticality::notify as u8;
        let cause = match criticality {
            REJECT => Some(CauseProtocol::abstract_syntax_error_reject),
            NOTIFY => Some(CauseProtocol::abstract_syntax_error_ignore_and_notify),
            _ => None,
        };
        Box::new(Fault {
            kind: "unknown-procedure",
            cause: cause.map(Cause::protocol),
            amf_ue_id: None,
            ran_ue_id: None,
            diagnostics: Some(diagnostics),
        })
    }

    /// Returns true if the message named a connection that the UE does not have (10.6).
    pub(crate) fn is_unknown_ue(&self) -> bool {
        self.cause == Some(Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID))
    }

    /// Returns the NGAP Error Indication, if one is to be sent.
    pub fn answer(&self) -> Option<Vec<u8>> {
        let cause = self.cause.clone()?;
        let diagnostics = match &self.diagnostics {
            Some(FaultDiagnostics::Ngap(diagnostics)) => Some(diagnostics.clone()),
            Some(FaultDiagnostics::S1ap(_)) | None => None,
        };
        Some(error_indication(self.amf_ue_id, self.ran_ue_id, cause, diagnostics))
    }
}

/// Returns true if the container of the IEs does not decode to its end (10.2), or if the PDU has an
/// IE of criticality reject that its message does not have (10.3.4.2), or an IE twice (10.3.6).
/// Reading the needed IEs shows none of them: an IE decodes without the IEs after it.
pub(crate) fn has_fault_to_reject(pdu: &NGAPPDU<'_>) -> bool {
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

/// Encodes ERROR INDICATION (9.2.7.2).
pub fn error_indication(
    amf_ue_id: Option<u64>,
    ran_ue_id: Option<u32>,
    cause: Cause,
    diagnostics: Option<CriticalityDiagnostics>,
) -> Vec<u8> {
    let mut ies = Vec::with_capacity(4);
    // Decoded IDs are within their range, so that they encode.
    ies.extend(amf_ue_id.and_then(|id| build_ngap_ie!(ErrorIndication, AMF_UE_NGAP_ID(id)).ok()));
    ies.extend(ran_ue_id.and_then(|id| build_ngap_ie!(ErrorIndication, RAN_UE_NGAP_ID(id)).ok()));
    ies.extend(build_ngap_ie!(ErrorIndication, Cause(cause)).ok());
    ies.extend(diagnostics.and_then(|d| build_ngap_ie!(ErrorIndication, CriticalityDiagnostics(d)).ok()));
    let message = ErrorIndication::new(ProtocolIEContainer(ies));
    super::send::encode(NGAP_PDU::of_message(&message, ErrorIndication::CRITICALITY))
}
