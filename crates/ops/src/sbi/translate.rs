//! Conversion between messages of [`vireo_core::sba`] and of [`vireo_sbi`].

use crate::shared_record::DelegatedCommit;
use vireo_core::sba::{N1N2Content, N1N2TransferResult, PiggybackedSmContext};
use vireo_core::smf::N2Sm;
use vireo_sbi::amf::{self, N1N2MessageTransferRspData, TransferCause};
use vireo_sbi::common::{N2SmInfoType, ProblemDetails, RefToBinaryData};
use vireo_sbi::message::{AMF_CONTEXT, N1, N2, SM_CONTEXT};
use vireo_sbi::{Message, PartContent, Reply};
use vireo_types::Supi;
use vireo_types::limits::SM_INFORMATION_OCTETS;

/// Status of a response if the SMF has sent a later SM context than the piggybacked one (RFC 9110
/// 15.5.13).
pub const STALE: u16 = 412;
/// Cause of a transfer for the RAN alone if the UE is idle (TS 29.518 6.1.7.3).
pub const IN_IDLE_STATE: &str = "UE_IN_CM_IDLE_STATE";

/// Converts an N2 SM information type to its SBI name.
pub fn info_type(kind: N2Sm) -> N2SmInfoType {
    match kind {
        N2Sm::SetupRequest => N2SmInfoType::PduResSetupReq,
        N2Sm::SetupResponse => N2SmInfoType::PduResSetupRsp,
        N2Sm::SetupUnsuccessful => N2SmInfoType::PduResSetupFail,
        N2Sm::ReleaseCommand => N2SmInfoType::PduResRelCmd,
        N2Sm::ReleaseResponse => N2SmInfoType::PduResRelRsp,
        N2Sm::ModifyRequest => N2SmInfoType::PduResModReq,
        N2Sm::ModifyResponse => N2SmInfoType::PduResModRsp,
        N2Sm::ModifyUnsuccessful => N2SmInfoType::PduResModFail,
        N2Sm::PathSwitchRequest => N2SmInfoType::PathSwitchReq,
        N2Sm::PathSwitchSetupFailed => N2SmInfoType::PathSwitchSetupFail,
        N2Sm::HandoverRequired => N2SmInfoType::HandoverRequired,
        N2Sm::HandoverRequestAcknowledge => N2SmInfoType::HandoverReqAck,
        N2Sm::HandoverCommand => N2SmInfoType::HandoverCmd,
        N2Sm::PathSwitchAcknowledge => N2SmInfoType::PathSwitchReqAck,
        N2Sm::PathSwitchUnsuccessful => N2SmInfoType::PathSwitchReqFail,
        N2Sm::HandoverPreparationUnsuccessful => N2SmInfoType::HandoverPrepFail,
        N2Sm::HandoverAllocationUnsuccessful => N2SmInfoType::HandoverResAllocFail,
        N2Sm::Notify => N2SmInfoType::PduResNty,
        N2Sm::NotifyReleased => N2SmInfoType::PduResNtyRel,
        N2Sm::ModifyIndication => N2SmInfoType::PduResModInd,
        N2Sm::ModifyConfirm => N2SmInfoType::PduResModCfm,
    }
}

/// Converts an SBI name to its N2 SM information type.
pub fn n2_kind(kind: N2SmInfoType) -> N2Sm {
    match kind {
        N2SmInfoType::PduResSetupReq => N2Sm::SetupRequest,
        N2SmInfoType::PduResSetupRsp => N2Sm::SetupResponse,
        N2SmInfoType::PduResSetupFail => N2Sm::SetupUnsuccessful,
        N2SmInfoType::PduResRelCmd => N2Sm::ReleaseCommand,
        N2SmInfoType::PduResRelRsp => N2Sm::ReleaseResponse,
        N2SmInfoType::PduResModReq => N2Sm::ModifyRequest,
        N2SmInfoType::PduResModRsp => N2Sm::ModifyResponse,
        N2SmInfoType::PduResModFail => N2Sm::ModifyUnsuccessful,
        N2SmInfoType::PathSwitchReq => N2Sm::PathSwitchRequest,
        N2SmInfoType::PathSwitchSetupFail => N2Sm::PathSwitchSetupFailed,
        N2SmInfoType::HandoverRequired => N2Sm::HandoverRequired,
        N2SmInfoType::HandoverReqAck => N2Sm::HandoverRequestAcknowledge,
        N2SmInfoType::HandoverCmd => N2Sm::HandoverCommand,
        N2SmInfoType::PathSwitchReqAck => N2Sm::PathSwitchAcknowledge,
        N2SmInfoType::PathSwitchReqFail => N2Sm::PathSwitchUnsuccessful,
        N2SmInfoType::HandoverPrepFail => N2Sm::HandoverPreparationUnsuccessful,
        N2SmInfoType::HandoverResAllocFail => N2Sm::HandoverAllocationUnsuccessful,
        N2SmInfoType::PduResNty => N2Sm::Notify,
        N2SmInfoType::PduResNtyRel => N2Sm::NotifyReleased,
        N2SmInfoType::PduResModInd => N2Sm::ModifyIndication,
        N2SmInfoType::PduResModCfm => N2Sm::ModifyConfirm,
    }
}

/// References of the JSON body to the N1 part and the N2 part, and the type of the latter.
pub type References = (Option<RefToBinaryData>, Option<RefToBinaryData>, Option<N2SmInfoType>);

/// Returns the references for the given content.
pub fn references(content: &N1N2Content) -> References {
    let of = |id: &str| RefToBinaryData { content_id: id.to_owned() };
    let kind = content.n2.as_ref().map(|(kind, _)| info_type(*kind));
    (content.n1.as_ref().map(|_| of(N1)), content.n2.as_ref().map(|_| of(N2)), kind)
}

/// Adds the binary parts that [`references`] names.
pub fn with_parts(mut message: Message, content: N1N2Content) -> Message {
    if let Some(n1) = content.n1 {
        message = message.with(N1, PartContent::Nas, n1);
    }
    if let Some((_, n2)) = content.n2 {
        message = message.with(N2, PartContent::Ngap, n2);
    }
    message
}

/// Extracts the N1 and N2 content that the references name.
///
/// # Errors
///
/// Returns an error if a part is missing, has an unknown type, or is too large.
pub fn n1n2_content(message: &Message, (n1, n2, kind): &References) -> Result<N1N2Content, ProblemDetails> {
    let part = |reference: &RefToBinaryData, content| {
        let found = message.part(reference, content).map(<[u8]>::to_vec);
        let found =
            found.ok_or_else(|| ProblemDetails::incorrect(&format!("there is no part {:?}", reference.content_id)))?;
        match found.len() > SM_INFORMATION_OCTETS {
            true => Err(ProblemDetails::incorrect(&format!("a part has more than {SM_INFORMATION_OCTETS} octets"))),
            false => Ok(found),
        }
    };
    let n1 = n1.as_ref().map(|reference| part(reference, PartContent::Nas)).transpose()?;
    let n2 = match n2 {
        None => None,
        Some(reference) => {
            let kind = kind.map(n2_kind);
            let kind = kind.ok_or_else(|| ProblemDetails::incorrect("an N2 part is of no kind that is known"))?;
            Some((kind, part(reference, PartContent::Ngap)?))
        }
    };
    Ok(N1N2Content { n1, n2 })
}

/// Adds a piggybacked SM context.
pub fn with_piggyback(message: Message, sm_context: Option<&PiggybackedSmContext>) -> Message {
    match sm_context {
        None => message,
        Some(sm_context) => message.with(SM_CONTEXT, PartContent::SmContext, sm_context.encode()),
    }
}

/// Adds the AMF part that the SMF must commit.
pub fn with_delegated_commit(message: Message, commit: Option<&DelegatedCommit>) -> Message {
    match commit {
        None => message,
        Some(commit) => message.with(AMF_CONTEXT, PartContent::AmfContext, commit.encode()),
    }
}

/// Returns the AMF part that the SMF must commit, if the message has one.
///
/// # Errors
///
/// Returns an error if the part is invalid.
pub fn delegated_commit(message: &Message) -> Result<Option<DelegatedCommit>, ProblemDetails> {
    let part = message.parts.iter().find(|part| part.content == PartContent::AmfContext);
    part.map(|part| DelegatedCommit::decode(&part.octets).ok_or_else(invalid_part)).transpose()
}

/// Returns the problem of an invalid AMF part.
pub fn invalid_part() -> ProblemDetails {
    ProblemDetails::incorrect("what is to be committed of the AMF is too short, too long, or of another release")
}

/// Adds a piggybacked SM context to a response. A 204 response becomes 200, because it then has a
/// body.
pub fn reply_with_piggyback(mut reply: Reply, sm_context: Option<&PiggybackedSmContext>) -> Reply {
    if sm_context.is_some() && reply.status == 204 {
        reply.status = 200;
    }
    reply.message = with_piggyback(reply.message, sm_context);
    reply
}

/// Returns the piggybacked SM context of a message, if it has one.
///
/// # Errors
///
/// Returns an error if the part is invalid.
pub fn piggybacked(message: &Message) -> Result<Option<PiggybackedSmContext>, ProblemDetails> {
    let octets = message.sm_context();
    octets
        .map(|octets| {
            PiggybackedSmContext::decode(octets)
                .ok_or_else(|| ProblemDetails::incorrect("the SM context is too short or too long"))
        })
        .transpose()
}

/// Formats a SUPI for URIs and JSON.
pub fn supi_text(supi: Supi) -> String {
    format!("imsi-{}", supi.reveal())
}

/// Parses a SUPI. Only SUPIs that are IMSIs are supported.
///
/// # Errors
///
/// Returns an error if the text is not `imsi-` and 6 to 15 digits.
pub fn parse_supi(text: &str) -> Result<Supi, ProblemDetails> {
    let digits = text.strip_prefix("imsi-").and_then(|digits| Supi::from_digits(digits).ok());
    digits.ok_or_else(|| ProblemDetails::incorrect("the SUPI is not imsi- and 6 to 15 digits"))
}

/// Returns the URI of a message that waits for paging.
pub fn message_uri(own: &str, supi: Supi, token: u64) -> String {
    format!("{own}{}/{token}", amf::message_transfer_uri(&supi_text(supi)))
}

/// Converts the result of a transfer to its response. `own` is the root of the AMF's URIs.
pub fn transfer_reply(own: &str, (supi, token): (Supi, u64), result: N1N2TransferResult) -> Reply {
    let error = |status, cause: &str, detail: &str| {
        let error = ProblemDetails::new(status, cause, detail);
        Reply::new(status, amf::N1N2MessageTransferError { error })
    };
    match result {
        N1N2TransferResult::Initiated => {
            Reply::new(200, N1N2MessageTransferRspData { cause: TransferCause::Initiated })
        }
        N1N2TransferResult::Attempting => {
            let answer = N1N2MessageTransferRspData { cause: TransferCause::AttemptingToReachUe };
            Reply { location: Some(message_uri(own, supi, token)), ..Reply::new(202, answer) }
        }
        N1N2TransferResult::Idle => error(409, IN_IDLE_STATE, "the RAN has nothing of the session"),
        N1N2TransferResult::Unreachable => error(504, "UE_NOT_REACHABLE", "the UE was not heard of for too long"),
        N1N2TransferResult::Unknown => Reply::new(404, amf::N1N2MessageTransferError { error: unknown_ue() }),
    }
}

/// Returns the problem of a UE or session that this AMF does not have.
pub fn unknown_ue() -> ProblemDetails {
    ProblemDetails::new(404, "CONTEXT_NOT_FOUND", "there is no such UE, or it has no such session")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_parsed_and_missing_part_named() {
        let sent = N1N2Content { n1: Some(vec![0x2e, 1]), n2: Some((N2Sm::SetupRequest, vec![7])) };
        let names = references(&sent);
        let message = with_parts(Message::default(), sent.clone());
        assert_eq!(n1n2_content(&message, &names), Ok(sent));
        assert_eq!(n1n2_content(&message, &(None, None, None)), Ok(N1N2Content::default()));
        assert!(n1n2_content(&Message::default(), &names).is_err(), "no part");
        let (n1, n2, _) = names;
        assert!(n1n2_content(&message, &(n1, n2, None)).is_err(), "no kind");
        let is_accepted = |octets| {
            let sent = N1N2Content { n1: Some(vec![0x2e; octets]), n2: None };
            n1n2_content(&with_parts(Message::default(), sent.clone()), &references(&sent)).is_ok()
        };
        assert!(is_accepted(SM_INFORMATION_OCTETS) && !is_accepted(SM_INFORMATION_OCTETS + 1), "too large");
    }

    #[test]
    fn sm_context_is_piggybacked_beside_content() {
        let state = PiggybackedSmContext { version: 7, octets: vec![1, 2] };
        let sent = N1N2Content { n1: Some(vec![0x2e, 1]), n2: None };
        let message = with_piggyback(with_parts(Message::default(), sent.clone()), Some(&state));
        assert_eq!(
            (piggybacked(&message), n1n2_content(&message, &references(&sent))),
            (Ok(Some(state.clone())), Ok(sent))
        );
        let reply = reply_with_piggyback(Reply::done(), Some(&state));
        assert_eq!((reply.status, piggybacked(&reply.message)), (200, Ok(Some(state))));
        assert_eq!(reply_with_piggyback(Reply::done(), None), Reply::done());
        for octets in [vec![], vec![0, 0, 0, 1], vec![0; 5 + vireo_core::sba::MAX_SM_CONTEXT_OCTETS]] {
            assert!(piggybacked(&Message::default().with("x", PartContent::SmContext, octets)).is_err());
        }
    }

    #[test]
    fn n2_types_have_distinct_names() {
        use N2Sm::*;
        let all = [
            SetupRequest,
            SetupResponse,
            SetupUnsuccessful,
            ReleaseCommand,
            ReleaseResponse,
            PathSwitchRequest,
            PathSwitchSetupFailed,
            HandoverRequired,
            HandoverRequestAcknowledge,
            HandoverCommand,
            ModifyRequest,
            ModifyResponse,
            ModifyUnsuccessful,
            PathSwitchAcknowledge,
            PathSwitchUnsuccessful,
            HandoverPreparationUnsuccessful,
            HandoverAllocationUnsuccessful,
            Notify,
            NotifyReleased,
            ModifyIndication,
            ModifyConfirm,
        ];
        assert!(all.into_iter().all(|kind| n2_kind(info_type(kind)) == kind));
    }

    #[test]
    fn supi_must_be_an_imsi() {
        assert_eq!(parse_supi("imsi-999700000000001").map(supi_text), Ok("imsi-999700000000001".into()));
        for wrong in ["999700000000001", "nai-a@b", "imsi-", "imsi-99970000000000x"] {
            assert!(parse_supi(wrong).is_err(), "{wrong}");
        }
    }
}
