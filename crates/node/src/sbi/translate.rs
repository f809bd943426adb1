//! Conversion between messages of [`vireo_core::sba`] and of [`vireo_sbi`].

use vireo_core::sba::{N1N2Content, PiggybackedSmContext};
use vireo_core::smf::N2Sm;
use vireo_ops::shared_record::DelegatedCommit;
use vireo_sbi::common::{N2SmInfoType, ProblemDetails, RefToBinaryData};
use vireo_sbi::message::{AMF_CONTEXT, N1, N2, SM_CONTEXT};
use vireo_sbi::{Message, PartContent, Reply};
use vireo_types::Supi;
use vireo_types::limits::SM_INFORMATION_OCTETS;

/// Converts an N2 SM information type to its SBI name.
pub(super) fn info_type(kind: N2Sm) -> N2SmInfoType {
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
    }
}

/// Converts an SBI name to its N2 SM information type.
pub(super) fn n2_of(kind: N2SmInfoType) -> N2Sm {
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
    }
}

/// References of the JSON body to the N1 part and the N2 part, and the type of the latter.
pub(super) type References = (Option<RefToBinaryData>, Option<RefToBinaryData>, Option<N2SmInfoType>);

/// Returns the references for the given content.
pub(super) fn references(told: &N1N2Content) -> References {
    let of = |id: &str| RefToBinaryData { content_id: id.to_owned() };
    let kind = told.n2.as_ref().map(|(kind, _)| info_type(*kind));
    (told.n1.as_ref().map(|_| of(N1)), told.n2.as_ref().map(|_| of(N2)), kind)
}

/// Adds the binary parts that [`references`] names.
pub(super) fn with_parts(mut message: Message, told: N1N2Content) -> Message {
    if let Some(n1) = told.n1 {
        message = message.with(N1, PartContent::Nas, n1);
    }
    if let Some((_, n2)) = told.n2 {
        message = message.with(N2, PartContent::Ngap, n2);
    }
    message
}

/// Extracts the N1 and N2 content that the references name.
///
/// # Errors
///
/// Returns an error if a part is missing, has an unknown type, or is too large.
pub(super) fn n1n2_content(message: &Message, (n1, n2, kind): &References) -> Result<N1N2Content, ProblemDetails> {
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
            let kind = kind.map(n2_of);
            let kind = kind.ok_or_else(|| ProblemDetails::incorrect("an N2 part is of no kind that is known"))?;
            Some((kind, part(reference, PartContent::Ngap)?))
        }
    };
    Ok(N1N2Content { n1, n2 })
}

/// Adds a piggybacked SM context.
pub(super) fn with_carried(message: Message, carried: Option<&PiggybackedSmContext>) -> Message {
    match carried {
        None => message,
        Some(carried) => message.with(SM_CONTEXT, PartContent::SmContext, carried.encode()),
    }
}

/// Adds the AMF part that the SMF must commit.
pub(super) fn with_travels(message: Message, travels: Option<&DelegatedCommit>) -> Message {
    match travels {
        None => message,
        Some(travels) => message.with(AMF_CONTEXT, PartContent::AmfContext, travels.encode()),
    }
}

/// Returns the AMF part that the SMF must commit, if the message has one.
///
/// # Errors
///
/// Returns an error if the part is invalid.
pub(super) fn travels(message: &Message) -> Result<Option<DelegatedCommit>, ProblemDetails> {
    let part = message.parts.iter().find(|part| part.content == PartContent::AmfContext);
    part.map(|part| DelegatedCommit::decode(&part.octets).ok_or_else(strange_part)).transpose()
}

/// Returns the problem of an invalid AMF part.
pub(super) fn strange_part() -> ProblemDetails {
    ProblemDetails::incorrect("what is to be committed of the AMF is too short, too long, or of another release")
}

/// Adds a piggybacked SM context to a response. A 204 response becomes 200, because it then has a
/// body.
pub(super) fn reply_with_carried(mut reply: Reply, carried: Option<&PiggybackedSmContext>) -> Reply {
    if carried.is_some() && reply.status == 204 {
        reply.status = 200;
    }
    reply.message = with_carried(reply.message, carried);
    reply
}

/// Returns the piggybacked SM context of a message, if it has one.
///
/// # Errors
///
/// Returns an error if the part is invalid.
pub(super) fn carried(message: &Message) -> Result<Option<PiggybackedSmContext>, ProblemDetails> {
    let octets = message.sm_context();
    octets
        .map(|octets| {
            PiggybackedSmContext::decode(octets)
                .ok_or_else(|| ProblemDetails::incorrect("the SM context is too short or too long"))
        })
        .transpose()
}

/// Formats a SUPI for URIs and JSON.
pub(super) fn supi_text(supi: Supi) -> String {
    format!("imsi-{}", supi.reveal())
}

/// Parses a SUPI. Only SUPIs that are IMSIs are supported.
///
/// # Errors
///
/// Returns an error if the text is not `imsi-` and 6 to 15 digits.
pub(super) fn supi_of(text: &str) -> Result<Supi, ProblemDetails> {
    let digits = text.strip_prefix("imsi-").and_then(|digits| Supi::from_digits(digits).ok());
    digits.ok_or_else(|| ProblemDetails::incorrect("the SUPI is not imsi- and 6 to 15 digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_comes_back_and_what_is_missing_is_said() {
        let said = N1N2Content { n1: Some(vec![0x2e, 1]), n2: Some((N2Sm::SetupRequest, vec![7])) };
        let names = references(&said);
        let message = with_parts(Message::default(), said.clone());
        assert_eq!(n1n2_content(&message, &names), Ok(said));
        assert_eq!(n1n2_content(&message, &(None, None, None)), Ok(N1N2Content::default()));
        assert!(n1n2_content(&Message::default(), &names).is_err(), "no part");
        let (n1, n2, _) = names;
        assert!(n1n2_content(&message, &(n1, n2, None)).is_err(), "no kind");
        let says = |octets| {
            let said = N1N2Content { n1: Some(vec![0x2e; octets]), n2: None };
            n1n2_content(&with_parts(Message::default(), said.clone()), &references(&said)).is_ok()
        };
        assert!(says(SM_INFORMATION_OCTETS) && !says(SM_INFORMATION_OCTETS + 1), "too large");
    }

    #[test]
    fn an_sm_context_travels_beside_what_is_told() {
        let state = PiggybackedSmContext { version: 7, octets: vec![1, 2] };
        let said = N1N2Content { n1: Some(vec![0x2e, 1]), n2: None };
        let message = with_carried(with_parts(Message::default(), said.clone()), Some(&state));
        assert_eq!(
            (carried(&message), n1n2_content(&message, &references(&said))),
            (Ok(Some(state.clone())), Ok(said))
        );
        let reply = reply_with_carried(Reply::done(), Some(&state));
        assert_eq!((reply.status, carried(&reply.message)), (200, Ok(Some(state))));
        assert_eq!(reply_with_carried(Reply::done(), None), Reply::done());
        for octets in [vec![], vec![0, 0, 0, 1], vec![0; 5 + vireo_core::sba::CARRIED_OCTETS]] {
            assert!(carried(&Message::default().with("x", PartContent::SmContext, octets)).is_err());
        }
    }

    #[test]
    fn every_transfer_has_a_name_of_its_own() {
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
        ];
        assert!(all.into_iter().all(|kind| n2_of(info_type(kind)) == kind));
    }

    #[test]
    fn only_an_imsi_is_a_supi_here() {
        assert_eq!(supi_of("imsi-999700000000001").map(supi_text), Ok("imsi-999700000000001".into()));
        for wrong in ["999700000000001", "nai-a@b", "imsi-", "imsi-99970000000000x"] {
            assert!(supi_of(wrong).is_err(), "{wrong}");
        }
    }
}
