//! Faults of a received NGAP message, and the Error Indication that answers them (TS 38.413 clause 10, 8.7.5).

use vireo_wire::ngap::{self, Deviation, Message, *};

/// Why a message was not acted on. Carries what the answer needs; `kind` is the label of its counter.
#[derive(Clone, Debug)]
pub struct Fault {
    /// A word for the counter and the log line.
    pub kind: &'static str,
    /// The cause for the answer; `None` where the specification wants silence.
    pub cause: Option<Cause>,
    /// The UE's identifiers as received, for the answer.
    pub amf_ue_id: Option<u64>,
    /// See `amf_ue_id`.
    pub ran_ue_id: Option<u32>,
    /// Criticality Diagnostics, if the fault is of the message and not of its meaning.
    pub diagnostics: Option<CriticalityDiagnostics>,
}

impl Fault {
    /// A fault of the meaning of a sound message.
    pub fn logical(kind: &'static str, cause: Cause, amf_ue_id: Option<u64>, ran_ue_id: Option<u32>) -> Box<Self> {
        Box::new(Fault { kind, cause: Some(cause), amf_ue_id, ran_ue_id, diagnostics: None })
    }

    /// Octets that are no NGAP PDU (10.2).
    pub fn transfer_syntax() -> Box<Self> {
        Box::new(Fault {
            kind: "transfer-syntax-error",
            cause: Some(Cause::protocol(CauseProtocol::transfer_syntax_error)),
            amf_ue_id: None,
            ran_ue_id: None,
            diagnostics: None,
        })
    }

    /// A PDU that does not have what its message must have, or has what does not decode (10.3). A faulty outcome is
    /// handled locally (10.3.4.2, 10.3.5), and an Error Indication is never answered by another.
    pub fn of_message(pdu: &NGAPPDU<'_>) -> Box<Self> {
        let deviations = pdu.check().unwrap_or_default();
        let cause = deviations.iter().find_map(ngap::Deviation::cause);
        let answered = pdu.direction() == "InitiatingMessage" && pdu.kind() != NgapPduKind::Initiating_ErrorIndication;
        Box::new(Fault {
            kind: "abstract-syntax-error",
            cause: answered.then(|| Cause::protocol(cause.unwrap_or(CauseProtocol::transfer_syntax_error))),
            amf_ue_id: pdu.ie::<ie::AMF_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
            ran_ue_id: pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
            diagnostics: Some(pdu.criticality_diagnostics(&deviations)),
        })
    }

    /// A procedure that this AMF does not have: the criticality says what to do (10.3.4.1).
    pub fn unknown_procedure(pdu: &NGAPPDU<'_>) -> Box<Self> {
        let cause = match pdu.criticality() {
            Criticality::reject => Some(CauseProtocol::abstract_syntax_error_reject),
            Criticality::notify => Some(CauseProtocol::abstract_syntax_error_ignore_and_notify),
            _ => None,
        };
        let diagnostics = CriticalityDiagnostics::new(
            Some(ProcedureCode(pdu.procedure_code())),
            Some(TriggeringMessage::initiating_message),
            Some(pdu.criticality()),
            None,
            None,
        );
        Box::new(Fault {
            kind: "unknown-procedure",
            cause: cause.map(Cause::protocol),
            amf_ue_id: None,
            ran_ue_id: None,
            diagnostics: Some(diagnostics),
        })
    }

    /// Returns true if the message named a connection that the UE has not (10.6).
    pub(crate) fn is_unknown_ue(&self) -> bool {
        self.cause == Some(Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID))
    }

    /// The Error Indication, if one is due.
    pub fn answer(&self) -> Option<Vec<u8>> {
        let cause = self.cause.clone()?;
        Some(error_indication(self.amf_ue_id, self.ran_ue_id, cause, self.diagnostics.clone()))
    }
}

/// Whether a PDU has an IE that its message does not have and that its sender wants understood or the message rejected
/// (10.3.4.2).
pub(crate) fn has_unknown_to_reject(pdu: &NGAPPDU<'_>) -> bool {
    let unknown = |d: &Deviation| matches!(d, Deviation::UnexpectedIe { criticality: Criticality::reject, .. });
    pdu.check_structure().is_ok_and(|deviations| deviations.iter().any(unknown))
}

/// ERROR INDICATION (9.2.7.2).
pub fn error_indication(
    amf_ue_id: Option<u64>,
    ran_ue_id: Option<u32>,
    cause: Cause,
    diagnostics: Option<CriticalityDiagnostics>,
) -> Vec<u8> {
    let mut ies = Vec::with_capacity(4);
    // An id that is out of its range was decoded by nobody: what is here encodes.
    ies.extend(amf_ue_id.and_then(|id| build_ngap_ie!(ErrorIndication, AMF_UE_NGAP_ID(id)).ok()));
    ies.extend(ran_ue_id.and_then(|id| build_ngap_ie!(ErrorIndication, RAN_UE_NGAP_ID(id)).ok()));
    ies.extend(build_ngap_ie!(ErrorIndication, Cause(cause)).ok());
    ies.extend(diagnostics.and_then(|d| build_ngap_ie!(ErrorIndication, CriticalityDiagnostics(d)).ok()));
    let message = ErrorIndication::new(ProtocolIEContainer(ies));
    super::send::encode(NGAP_PDU::of_message(&message, ErrorIndication::CRITICALITY))
}
