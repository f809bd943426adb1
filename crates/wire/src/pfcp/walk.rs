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
        MessageType::HEARTBEAT_REQUEST => round_trip::<HeartbeatRequest>(&message),
        MessageType::HEARTBEAT_RESPONSE => round_trip::<HeartbeatResponse>(&message),
        MessageType::ASSOCIATION_SETUP_REQUEST => round_trip::<AssociationSetupRequest>(&message),
        MessageType::ASSOCIATION_SETUP_RESPONSE => round_trip::<AssociationSetupResponse>(&message),
        MessageType::ASSOCIATION_UPDATE_REQUEST => round_trip::<AssociationUpdateRequest>(&message),
        MessageType::ASSOCIATION_UPDATE_RESPONSE => round_trip::<AssociationUpdateResponse>(&message),
        MessageType::ASSOCIATION_RELEASE_REQUEST => round_trip::<AssociationReleaseRequest>(&message),
        MessageType::ASSOCIATION_RELEASE_RESPONSE => round_trip::<AssociationReleaseResponse>(&message),
        MessageType::VERSION_NOT_SUPPORTED_RESPONSE => round_trip::<VersionNotSupportedResponse>(&message),
        MessageType::NODE_REPORT_REQUEST => round_trip::<NodeReportRequest>(&message),
        MessageType::NODE_REPORT_RESPONSE => round_trip::<NodeReportResponse>(&message),
        MessageType::SESSION_SET_DELETION_REQUEST => {
            let kind = round_trip::<SessionSetDeletionRequest>(&message)?;
            let request = SessionSetDeletionRequest::parse(&message).ok()?;
            request.fq_csids.iter().for_each(|set| assert_eq!(set.names(set), set.is_sound(), "{set:?}"));
            Some(kind)
        }
        MessageType::SESSION_SET_DELETION_RESPONSE => round_trip::<SessionSetDeletionResponse>(&message),
        MessageType::SESSION_SET_MODIFICATION_RESPONSE => round_trip::<SessionSetModificationResponse>(&message),
        MessageType::PFD_MANAGEMENT_RESPONSE => round_trip::<PfdManagementResponse>(&message),
        MessageType::SESSION_ESTABLISHMENT_REQUEST => round_trip::<SessionEstablishmentRequest>(&message),
        MessageType::SESSION_ESTABLISHMENT_RESPONSE => round_trip::<SessionEstablishmentResponse>(&message),
        MessageType::SESSION_MODIFICATION_REQUEST => round_trip::<SessionModificationRequest>(&message),
        MessageType::SESSION_MODIFICATION_RESPONSE => round_trip::<SessionModificationResponse>(&message),
        MessageType::SESSION_DELETION_REQUEST => round_trip::<SessionDeletionRequest>(&message),
        MessageType::SESSION_DELETION_RESPONSE => round_trip::<SessionDeletionResponse>(&message),
        MessageType::SESSION_REPORT_REQUEST => round_trip::<SessionReportRequest>(&message),
        MessageType::SESSION_REPORT_RESPONSE => round_trip::<SessionReportResponse>(&message),
        _ => None,
    }
}

/// # Panics
///
/// If the value of a message differs after encoding and parsing. Fuzzers search for that, and no
/// input may cause it.
fn round_trip<T: Body + PartialEq + std::fmt::Debug>(message: &Message<'_>) -> Option<MessageType> {
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
