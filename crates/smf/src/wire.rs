//! Parsing of AMF requests, and construction of the SMF's responses and requests.

use serde::{Deserialize, Serialize};
use vireo_core::sba::{N1N2Content, N1N2TransferResult};
use vireo_core::smf::{Input, N2Sm};
use vireo_ops::sbi::is_uri;
use vireo_ops::sbi::translate::{
    self, References, info_type, n1n2_content, parse_supi, references, supi_text, with_parts,
};
use vireo_ops::sbi::translate::{IN_IDLE_STATE, STALE};
use vireo_sbi::amf::{
    self, CreatedSmContext, N1MessageContainer, N1N2MessageTransferError, N1N2MessageTransferReqData,
    N1N2MessageTransferRspData, N2InfoContainer, N2InfoContent, N2SmInformation, TransferCause,
};
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::smf::{
    HoState, RELEASED, SM_CONTEXTS, SmContextCreateData, SmContextCreatedData, SmContextError,
    SmContextStatusNotification, SmContextUpdateData, SmContextUpdatedData, StatusInfo, UpCnxState,
};
use vireo_sbi::{ClientError, Message, Reply};
use vireo_store::records::{RecordError, StoredRecord};
use vireo_types::{Dnn, Seid, Snssai, Supi};

/// Maximum length in octets of a callback URI of the AMF.
const URI_OCTETS: usize = 512;
/// Path of the callback for undelivered messages. The SMF chooses it (TS 29.518 6.1.5.6).
const UNREACHED: &str = "/nsmf-callback/v1/unreached";

/// Nsmf_PDUSession_CreateSMContext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CreateRequest {
    pub(super) supi: Supi,
    pub(super) psi: u8,
    pub(super) snssai: Snssai,
    pub(super) dnn: Dnn,
    pub(super) n1: Vec<u8>,
    /// URI for the notification of the end.
    pub(super) status_uri: String,
    /// The AMF's session number, if the AMF stores SM contexts (piggyback).
    pub(super) piggyback: Option<u32>,
    /// Number of the UE record, if the AMF shares it.
    pub(super) record: Option<u64>,
    /// The AMF's session number, if the AMF accepts the first transfer as response.
    pub(super) implied: Option<u32>,
}

/// Parses a request to create an SM context.
///
/// # Errors
///
/// Returns an error if the request is invalid.
pub(super) fn create(message: &Message) -> Result<CreateRequest, ProblemDetails> {
    let data: SmContextCreateData = message.value().map_err(|e| ProblemDetails::unreadable(&e))?;
    let wrong = ProblemDetails::incorrect;
    let N1N2Content { n1, .. } = n1n2_content(message, &(data.n1_sm_msg, None, None))?;
    let (status_uri, piggyback) = (data.sm_context_status_uri, data.vireo_piggyback);
    if !is_uri(&status_uri) || status_uri.len() > URI_OCTETS {
        return Err(wrong("smContextStatusUri is http:// or https:// and at most 512 octets"));
    }
    if !(1..=15).contains(&data.pdu_session_id) {
        return Err(wrong("pduSessionId is 1 to 15"));
    }
    Ok(CreateRequest {
        supi: parse_supi(&data.supi)?,
        psi: data.pdu_session_id,
        snssai: data.s_nssai.slice().ok_or_else(|| wrong("the SD of sNssai is six hexadecimal digits"))?,
        dnn: data.dnn.parse().map_err(|_| wrong("the DNN is no name"))?,
        n1: n1.ok_or_else(|| wrong("an SM context is created by a 5GSM message (n1SmMsg)"))?,
        status_uri,
        piggyback,
        record: None,
        implied: data.vireo_implied,
    })
}

/// Nsmf_PDUSession_UpdateSMContext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpdateRequest {
    content: N1N2Content,
    pub(super) state: Option<UpCnxState>,
    /// State of an N2 handover.
    pub(super) handover: Option<HoState>,
}

/// State fields of a response, besides N1 and N2 content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResponseState {
    pub(super) state: Option<UpCnxState>,
    pub(super) handover: Option<HoState>,
}

impl UpdateRequest {
    /// Returns the N2 content that the RAN needs, if the session takes part in an N2 handover.
    pub(super) fn handover_content(&self) -> Option<N2Sm> {
        match self.handover? {
            HoState::Preparing => Some(N2Sm::SetupRequest),
            HoState::Prepared => Some(N2Sm::HandoverCommand),
            HoState::None | HoState::Completed | HoState::Cancelled | HoState::Other => None,
        }
    }

    /// Returns true if the RAN requests a path switch.
    pub(super) fn switches(&self) -> bool {
        matches!(self.content.n2, Some((N2Sm::PathSwitchRequest, _)))
    }

    /// Returns the inputs of the session, in order.
    pub(super) fn inputs(&self) -> Vec<Input<'_>> {
        let n2 = self.content.n2.as_ref().map(|(kind, octets)| Input::N2(*kind, octets));
        let n1 = self.content.n1.as_deref().map(Input::N1);
        let handover = match self.handover {
            Some(HoState::Completed) => Some(Input::HandoverComplete),
            Some(HoState::Cancelled) => Some(Input::HandoverCancelled),
            Some(HoState::None | HoState::Preparing | HoState::Prepared | HoState::Other) | None => None,
        };
        let state = match self.state {
            Some(UpCnxState::Activating) => Some(Input::Activate),
            Some(UpCnxState::Deactivated | UpCnxState::Suspended) => Some(Input::Deactivate),
            Some(UpCnxState::Activated) | None => None,
        };
        n2.into_iter().chain(n1).chain(handover).chain(state).collect()
    }
}

/// Parses a request to update an SM context.
///
/// # Errors
///
/// Returns an error if the request is invalid or has no effect.
pub(super) fn update(message: &Message) -> Result<UpdateRequest, ProblemDetails> {
    let data: SmContextUpdateData = message.value().map_err(|e| ProblemDetails::unreadable(&e))?;
    let content = n1n2_content(message, &(data.n1_sm_msg, data.n2_sm_info, data.n2_sm_info_type))?;
    // The N2 content implies the handover state.
    let handover = match content.n2 {
        Some((N2Sm::HandoverRequired, _)) => Some(HoState::Preparing),
        Some((N2Sm::HandoverRequestAcknowledge | N2Sm::HandoverAllocationUnsuccessful, _)) => Some(HoState::Prepared),
        _ => data.ho_state.filter(|state| matches!(state, HoState::Completed | HoState::Cancelled)),
    };
    let said = UpdateRequest { content, state: data.up_cnx_state, handover };
    if said.inputs().is_empty() {
        return Err(ProblemDetails::incorrect("nothing of the update is something that this SMF acts on"));
    }
    Ok(said)
}

/// Returns the reference of an SM context in URIs.
pub(super) fn reference(seid: Seid) -> String {
    format!("{:016x}", seid.0)
}

/// Parses a reference.
pub(super) fn seid_of(reference: &str) -> Option<Seid> {
    (reference.len() == 16).then(|| u64::from_str_radix(reference, 16).ok().map(Seid)).flatten()
}

/// Returns the SEID of the session in the path of an undelivered-message callback.
pub(super) fn unreached(path: &str) -> Option<Seid> {
    seid_of(path.strip_prefix(UNREACHED)?.strip_prefix('/')?)
}

/// Returns the response for a created SM context.
pub(super) fn create_reply(root: &str, seid: Seid, psi: u8, snssai: Snssai) -> Reply {
    let data = SmContextCreatedData { pdu_session_id: Some(psi), s_nssai: Some(snssai.into()) };
    let location = format!("{root}{SM_CONTEXTS}/{}", reference(seid));
    Reply { location: Some(location), ..Reply::new(201, data) }
}

/// Returns the response for a rejected SM context. `n1` has the cause for the UE.
pub(super) fn not_created(n1: Option<Vec<u8>>) -> Reply {
    let (status, cause) = refusal(n1.as_deref());
    refused(ProblemDetails::new(status, cause, ""), N1N2Content { n1, n2: None })
}

/// Returns an error response with content for UE and RAN.
fn refused(error: ProblemDetails, content: N1N2Content) -> Reply {
    let (n1_sm_msg, n2_sm_info, n2_sm_info_type) = references(&content);
    let status = error.status.unwrap_or(500);
    let error = SmContextError { error, n1_sm_msg, n2_sm_info, n2_sm_info_type };
    Reply { status, location: None, message: with_parts(Message::new(error), content) }
}

/// Returns the application error (TS 29.502 table 6.1.7.3-1) for the 5GSM cause of a PDU Session
/// Establishment Reject.
fn refusal(n1: Option<&[u8]>) -> (u16, &'static str) {
    // TS 24.501 8.3.3: discriminator, identity, PTI, message type, cause.
    let Some([0x2e, _, _, 0xc3, cause, ..]) = n1 else { return (403, "N1_SM_ERROR") };
    match cause {
        26 => (500, "INSUFFICIENT_RESOURCES_SLICE_DNN"),
        27 | 70 => (403, "DNN_NOT_SUPPORTED"),
        28 | 50 | 51 | 57 => (403, "PDUTYPE_NOT_SUPPORTED"),
        29 | 33 => (403, "SUBSCRIPTION_DENIED"),
        68 => (403, "SSC_NOT_SUPPORTED"),
        _ => (403, "N1_SM_ERROR"),
    }
}

/// Returns the response for an unknown SM context.
pub(super) fn unknown() -> Reply {
    Reply::problem(&ProblemDetails::new(404, "CONTEXT_NOT_FOUND", "there is no such SM context"))
}

/// Returns the response for a piggybacked SM context that is older than the last one sent.
pub(super) fn stale() -> Reply {
    let why = "the SMF has given a later SM context away: nothing was done";
    Reply::problem(&ProblemDetails::new(STALE, "SM_CONTEXT_STALE", why))
}

/// Returns the response to an AMF from which another AMF has taken over the UE.
pub(super) fn overtaken() -> Reply {
    let why = "the UE is another AMF's by now: nothing was done";
    Reply::problem(&ProblemDetails::new(409, "CONTEXT_TRANSFERRED", why))
}

/// Returns the response if another session occupies the SM context number for the moment.
pub(super) fn congested() -> Reply {
    Reply::problem(&ProblemDetails::new(503, "NF_CONGESTION", "this SMF has too much to do"))
}

/// Returns the path of an SM context that the AMF stores.
pub(super) fn amf_stored_path(supi: Supi, number: u32) -> String {
    amf::held_sm_context_uri(&supi_text(supi), number)
}

/// Parses the response to a request for an SM context that the AMF stores.
///
/// # Errors
///
/// Returns an error if the AMF does not answer, or with another status than 200 or 404.
pub(super) fn fetched_sm_context(result: Result<Reply, ClientError>) -> Result<Option<StoredRecord>, RecordError> {
    let down = |why: String| RecordError::Down(why);
    let reply = result.map_err(|error| down(error.to_string()))?;
    match reply.status {
        200 => {
            let carried = translate::piggybacked(&reply.message);
            let carried = carried.map_err(|problem| down(problem.detail.unwrap_or_default()))?;
            Ok(carried.map(|carried| StoredRecord {
                version: carried.version,
                octets: carried.octets,
                parts: Vec::new(),
            }))
        }
        404 => Ok(None),
        status => Err(down(format!("the AMF has answered {status} when it was asked for an SM context"))),
    }
}

/// Returns the response if the database timed out and nothing was executed.
pub(super) fn no_database() -> Reply {
    let why = "the database of SM contexts does not answer: nothing was done";
    Reply::problem(&ProblemDetails::new(500, "SYSTEM_FAILURE", why))
}

/// Returns the response for a transaction that was not stored and therefore has no effect (TS
/// 29.502 table 6.1.7.3-1, TS 29.500 table 5.2.7.2-1).
pub(super) fn not_stored(error: &RecordError, creates: bool) -> Reply {
    let why = match error {
        RecordError::Full => "there is no room for more where this SMF keeps SM contexts: nothing was done",
        RecordError::TooLarge { .. } => "the SM context would be larger than this SMF can keep: nothing was done",
        _ => return no_database(),
    };
    let cause = if creates { "INSUFFICIENT_RESOURCES_SLICE_DNN" } else { "INSUFFICIENT_RESOURCES" };
    Reply::problem(&ProblemDetails::new(500, cause, why))
}

/// Returns the response to a completed request, or the error response for a refused path switch or
/// handover.
pub(super) fn completed_reply(content: N1N2Content, ResponseState { state, mut handover }: ResponseState) -> Reply {
    if let Some((N2Sm::PathSwitchUnsuccessful, _)) = content.n2 {
        let why = "the session has no user plane that could be switched";
        return refused(ProblemDetails::new(403, "HANDOVER_RESOURCE_ALLOCATION_FAILURE", why), content);
    }
    if let Some((N2Sm::HandoverPreparationUnsuccessful, _)) = content.n2 {
        if handover == Some(HoState::Preparing) {
            let why = "the session has no user plane that could be handed over";
            return refused(ProblemDetails::new(403, "HANDOVER_RESOURCE_ALLOCATION_FAILURE", why), content);
        }
        handover = Some(HoState::None);
    }
    if (state, handover) == (None, None) && content == N1N2Content::default() {
        return Reply::done();
    }
    let (n1_sm_msg, n2_sm_info, n2_sm_info_type): References = references(&content);
    let data = SmContextUpdatedData { up_cnx_state: state, ho_state: handover, n1_sm_msg, n2_sm_info, n2_sm_info_type };
    Reply { status: 200, location: None, message: with_parts(Message::new(data), content) }
}

/// The session of an N1N2 transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferredSession {
    pub(super) seid: Seid,
    pub(super) psi: u8,
    pub(super) snssai: Snssai,
}

/// Returns the request for an N1N2 transfer.
pub(super) fn transfer(root: &str, session: TransferredSession, content: N1N2Content) -> Message {
    let TransferredSession { seid, psi, snssai } = session;
    let (n1, n2, _) = references(&content);
    let ngap_ie_type = content.n2.as_ref().map(|(kind, _)| info_type(*kind));
    let n2 = n2.map(|ngap_data| N2InfoContainer {
        n2_information_class: amf::SM.into(),
        sm_info: Some(N2SmInformation {
            pdu_session_id: psi,
            n2_info_content: Some(N2InfoContent { ngap_ie_type, ngap_data }),
            s_nssai: Some(snssai.into()),
        }),
    });
    let n1 = n1.map(|n1_message_content| N1MessageContainer { n1_message_class: amf::SM.into(), n1_message_content });
    let request = N1N2MessageTransferReqData {
        n1_message_container: n1,
        n2_info_container: n2,
        pdu_session_id: Some(psi),
        failure_uri: Some(format!("{root}{UNREACHED}/{}", reference(seid))),
        vireo_created: None,
    };
    with_parts(Message::new(request), content)
}

/// Adds the announcement of a new SM context to a transfer.
pub(super) fn with_created(mut message: Message, created: CreatedSmContext) -> Message {
    if let Ok(request) = message.value::<N1N2MessageTransferReqData>() {
        message.body = Message::new(N1N2MessageTransferReqData { vireo_created: Some(created), ..request }).body;
    }
    message
}

/// Returns the path of transfers for a UE.
pub(super) fn transfer_path(supi: Supi) -> String {
    amf::message_transfer_uri(&supi_text(supi))
}

/// Converts the response to a transfer.
pub(super) fn transfer_result(result: Result<Reply, ClientError>) -> N1N2TransferResult {
    match result {
        Err(error) => {
            tracing::warn!(%error, "the AMF does not answer");
            N1N2TransferResult::Unreachable
        }
        Ok(reply) if reply.is_success() => {
            let cause = reply.message.value::<N1N2MessageTransferRspData>().map(|answer| answer.cause);
            match cause {
                Ok(TransferCause::AttemptingToReachUe) => N1N2TransferResult::Attempting,
                _ => N1N2TransferResult::Initiated,
            }
        }
        Ok(reply) if reply.status == 404 => N1N2TransferResult::Unknown,
        Ok(reply) if is_idle(&reply) => N1N2TransferResult::Idle,
        Ok(_) => N1N2TransferResult::Unreachable,
    }
}

fn is_idle(reply: &Reply) -> bool {
    let error = reply.message.value().map(|answer: N1N2MessageTransferError| answer.error);
    let error = error.or_else(|_| reply.message.value::<ProblemDetails>());
    reply.status == 409 && error.is_ok_and(|error| error.cause.as_deref() == Some(IN_IDLE_STATE))
}

/// Returns the notification that the SM context is released.
pub(super) fn released() -> Message {
    Message::new(SmContextStatusNotification { status_info: StatusInfo { resource_status: RELEASED.into() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_seids() {
        let seid = Seid(0x0123_4567_89ab_cdef);
        assert_eq!(seid_of(&reference(seid)), Some(seid));
        assert_eq!(unreached(&format!("{UNREACHED}/{}", reference(seid))), Some(seid));
        for wrong in ["", "0", "0123456789abcdeg", "00123456789abcdef", "+123456789abcdef"] {
            assert!(seid_of(wrong).is_none() || wrong.starts_with('+'), "{wrong}");
        }
    }

    #[test]
    fn transfer_has_message_and_failure_uri() {
        let content = N1N2Content { n1: Some(vec![0x2e]), n2: Some((N2Sm::SetupRequest, vec![1])) };
        let slice = Snssai { sst: 1, sd: None };
        let message = transfer("http://s", TransferredSession { seid: Seid(5), psi: 3, snssai: slice }, content);
        let data: N1N2MessageTransferReqData = message.value().unwrap();
        assert_eq!(data.failure_uri.as_deref(), Some("http://s/nsmf-callback/v1/unreached/0000000000000005"));
        assert_eq!((data.pdu_session_id, message.parts.len()), (Some(3), 2));
    }

    #[test]
    fn refusals_have_application_errors() {
        let reject = |cause| refusal(Some(&[0x2e, 1, 1, 0xc3, cause]));
        assert_eq!(reject(26), (500, "INSUFFICIENT_RESOURCES_SLICE_DNN"));
        assert_eq!(reject(27), (403, "DNN_NOT_SUPPORTED"));
        assert_eq!(reject(50), (403, "PDUTYPE_NOT_SUPPORTED"));
        assert_eq!(refusal(None), (403, "N1_SM_ERROR"));
        let reply = not_created(Some(vec![0x2e, 1, 1, 0xc3, 26]));
        let error: SmContextError = reply.message.value().unwrap();
        assert_eq!((reply.status, error.n1_sm_msg.is_some(), reply.message.parts.len()), (500, true, 1));
    }
}
