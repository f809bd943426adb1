use super::*;

/// Parses a datagram completely, and encodes and parses a valid message again: the entry point of
/// fuzzers. Returns the type of a valid message.
///
/// # Panics
///
/// If a valid FQ-CSID does not match itself, which no input may cause.
pub fn walk(datagram: &[u8]) -> Option<MessageType> {
    let message = Message::new(datagram).ok()?;
    message.ies().flatten().flat_map(|ie| ie.ies()).flatten().flat_map(|ie| ie.ies()).for_each(drop);
    match message.message_type() {
        MessageType::HEARTBEAT_REQUEST => again::<HeartbeatRequest>(&message),
        MessageType::HEARTBEAT_RESPONSE => again::<HeartbeatResponse>(&message),
        MessageType::ASSOCIATION_SETUP_REQUEST => again::<AssociationSetupRequest>(&message),
        MessageType::ASSOCIATION_SETUP_RESPONSE => again::<AssociationSetupResponse>(&message),
        MessageType::ASSOCIATION_UPDATE_REQUEST => again::<AssociationUpdateRequest>(&message),
        MessageType::ASSOCIATION_UPDATE_RESPONSE => again::<AssociationUpdateResponse>(&message),
        MessageType::ASSOCIATION_RELEASE_REQUEST => again::<AssociationReleaseRequest>(&message),
        MessageType::ASSOCIATION_RELEASE_RESPONSE => again::<AssociationReleaseResponse>(&message),
        MessageType::VERSION_NOT_SUPPORTED_RESPONSE => again::<VersionNotSupportedResponse>(&message),
        MessageType::NODE_REPORT_REQUEST => again::<NodeReportRequest>(&message),
        MessageType::NODE_REPORT_RESPONSE => again::<NodeReportResponse>(&message),
        MessageType::SESSION_SET_DELETION_REQUEST => {
            let kind = again::<SessionSetDeletionRequest>(&message)?;
            let request = SessionSetDeletionRequest::parse(&message).ok()?;
            request.fq_csids.iter().for_each(|set| assert_eq!(set.names(set), set.is_sound(), "{set:?}"));
            Some(kind)
        }
        MessageType::SESSION_SET_DELETION_RESPONSE => again::<SessionSetDeletionResponse>(&message),
        MessageType::SESSION_SET_MODIFICATION_RESPONSE => again::<SessionSetModificationResponse>(&message),
        MessageType::PFD_MANAGEMENT_RESPONSE => again::<PfdManagementResponse>(&message),
        MessageType::SESSION_ESTABLISHMENT_REQUEST => again::<SessionEstablishmentRequest>(&message),
        MessageType::SESSION_ESTABLISHMENT_RESPONSE => again::<SessionEstablishmentResponse>(&message),
        MessageType::SESSION_MODIFICATION_REQUEST => again::<SessionModificationRequest>(&message),
        MessageType::SESSION_MODIFICATION_RESPONSE => again::<SessionModificationResponse>(&message),
        MessageType::SESSION_DELETION_REQUEST => again::<SessionDeletionRequest>(&message),
        MessageType::SESSION_DELETION_RESPONSE => again::<SessionDeletionResponse>(&message),
        MessageType::SESSION_REPORT_REQUEST => again::<SessionReportRequest>(&message),
        MessageType::SESSION_REPORT_RESPONSE => again::<SessionReportResponse>(&message),
        _ => None,
    }
}

/// # Panics
///
/// If the value of a message differs after encoding and parsing. Fuzzers search for that, and no
/// input may cause it.
fn again<T: Body + PartialEq + std::fmt::Debug>(message: &Message<'_>) -> Option<MessageType> {
    let value = T::parse(message).ok()?;
    let mut out = Vec::new();
    let header = message.header();
    let mut builder = Builder::new(&mut out, T::KIND, header.seid, header.sequence);
    value.write(&mut builder);
    if builder.finish().is_ok() {
        let second = Message::new(&out).map(|message| T::parse(&message));
        assert_eq!(second, Ok(Ok(value)), "a message changes when it is written again");
    }
    Some(T::KIND)
}
