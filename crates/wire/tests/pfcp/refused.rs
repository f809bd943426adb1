//! Rejected messages, with the cause and the offending element.

use crate::samples;
use vireo_wire::pfcp::*;

fn establishment(change: impl FnOnce(&mut SessionEstablishmentRequest)) -> Result<SessionEstablishmentRequest, Error> {
    let mut request = samples::establishment();
    change(&mut request);
    let mut octets = Vec::new();
    request.emit(&mut octets, 0, 1).expect("fits");
    SessionEstablishmentRequest::parse(&Message::new(&octets).expect("sound header"))
}

fn body(kind: MessageType, elements: &[(u16, &[u8])]) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut builder = Builder::new(&mut octets, kind, kind.is_session().then_some(1), 1);
    for (id, content) in elements {
        builder.put_raw(*id, content);
    }
    builder.finish().expect("fits");
    octets
}

#[test]
fn missing_elements_are_named() {
    assert!(establishment(|_| {}).is_ok());
    assert_eq!(establishment(|r| r.create_pdrs.clear()), Err(Error::missing(1)));
    assert_eq!(establishment(|r| r.create_fars.clear()), Err(Error::missing(3)));
    let heartbeat = body(MessageType::HEARTBEAT_REQUEST, &[]);
    let message = Message::new(&heartbeat).expect("sound header");
    assert_eq!(HeartbeatRequest::parse(&message), Err(Error::missing(96)));
    // a mandatory member of a group: the precedence of the PDR
    let pdr: &[u8] = &[0, 56, 0, 2, 0, 1, 0, 2, 0, 5, 0, 20, 0, 1, 0];
    assert_eq!(CreatePdr::decode(pdr), Err(Error::missing(29)));
    // an accepted session without the UPF's F-SEID
    let response = body(MessageType::SESSION_ESTABLISHMENT_RESPONSE, &[(60, &[0, 192, 0, 2, 2]), (19, &[1])]);
    let message = Message::new(&response).expect("sound header");
    assert_eq!(SessionEstablishmentResponse::parse(&message), Err(Error::conditional_missing(57)));
}

#[test]
fn unsound_elements_are_named() {
    let parse = |elements: &[(u16, &[u8])]| {
        let octets = body(MessageType::SESSION_REPORT_REQUEST, elements);
        SessionReportRequest::parse(&Message::new(&octets).expect("sound header")).map(|_| ())
    };
    assert_eq!(parse(&[(39, &[])]), Err(Error::length(39)));
    assert_eq!(parse(&[(39, &[1])]), Err(Error::conditional_missing(83)));
    // the PDR ID of the downlink data report is one octet short
    assert_eq!(parse(&[(39, &[1]), (83, &[0, 56, 0, 1, 7])]), Err(Error::length(56)));
    // an F-TEID without an address, and a truncated one
    assert_eq!(parse(&[(39, &[4]), (99, &[0, 21, 0, 5, 0, 1, 2, 3, 4])]), Err(Error::incorrect(21)));
    assert_eq!(parse(&[(39, &[4]), (99, &[0, 21, 0, 5, 1, 1, 2, 3, 4])]), Err(Error::length(21)));
    // a member that exceeds its group
    assert_eq!(parse(&[(39, &[1]), (83, &[0, 56, 0, 9, 0, 1])]), Err(Error::length(56)));
    // an outer header of both GTP-U and plain UDP
    assert_eq!(OuterHeaderCreation::decode(&[0x05, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]), Err(Error::incorrect(84)));
}

#[test]
fn unknown_elements_are_skipped() {
    let octets = body(
        MessageType::HEARTBEAT_REQUEST,
        &[(0x8001, &[0x28, 0xaf, 1]), (999, b"?"), (96, &[0, 0, 0, 7, 0xff]), (96, &[0, 0, 0, 8])],
    );
    let message = Message::new(&octets).expect("sound header");
    let vendor = message.ies().next().expect("one").expect("sound");
    assert_eq!((vendor.enterprise, vendor.value), (Some(0x28af), &[1][..]));
    // the first of repeated elements counts, and a surplus octet is no error
    assert_eq!(HeartbeatRequest::parse(&message).map(|r| r.recovery_time_stamp), Ok(RecoveryTimeStamp(7)));
}

#[test]
fn headers_are_checked_before_anything_else() {
    let good = body(MessageType::HEARTBEAT_REQUEST, &[(96, &[0, 0, 0, 7])]);
    for length in 0..8 {
        assert_eq!(Message::new(&good[..length]).err(), Some(HeaderError::Short(length)));
    }
    assert_eq!(Message::new(&good[..12]).err(), Some(HeaderError::Length { declared: 12, present: 8 }));
    let mut other = good.clone();
    other[0] = 2 << 5;
    assert_eq!(Message::new(&other).err(), Some(HeaderError::Version { version: 2, kind: 1, sequence: 1 }));
    // the SEID flag makes the header longer than the message
    other[0] = 1 << 5 | 1;
    assert!(Message::new(&other[..15]).is_err());
    // a following message is ignored
    let mut two = good.clone();
    two.extend(&good);
    assert_eq!(Message::new(&two).map(|m| m.ies().count()), Ok(1));
    // a length shorter than the header
    let mut short = good;
    short[3] = 3;
    assert_eq!(Message::new(&short).err(), Some(HeaderError::Length { declared: 3, present: 12 }));
}

#[test]
fn oversized_message_is_taken_back() {
    let mut request = samples::modification();
    let filter = SdfFilter::new(&"x".repeat(30_000));
    request.create_pdrs = vec![samples::downlink_pdr(); 3];
    request.create_pdrs.iter_mut().for_each(|pdr| pdr.pdi.sdf_filters = vec![filter.clone()]);
    let mut octets = vec![7];
    assert!(request.emit(&mut octets, 1, 1).is_err());
    assert_eq!(octets, [7]);
    request.create_pdrs.truncate(2);
    assert_eq!(request.emit(&mut octets, 1, 1), Ok(()));
    assert_eq!(Message::new(&octets[1..]).map(|m| SessionModificationRequest::parse(&m)), Ok(Ok(request)));
}

#[test]
fn numbers_of_an_encoded_message_can_be_replaced() {
    let mut session = Vec::new();
    SessionDeletionRequest::default().emit(&mut session, 1, 2).expect("fits");
    assert!(set_sequence(&mut session, 0xff00_0003) && set_seid(&mut session, 4));
    let message = Message::new(&session).expect("sound");
    assert_eq!((message.seid(), message.sequence()), (4, 3));
    let mut node = body(MessageType::HEARTBEAT_REQUEST, &[(96, &[0, 0, 0, 7])]);
    assert!(set_sequence(&mut node, 5) && !set_seid(&mut node, 6));
    assert_eq!(Message::new(&node).map(|m| m.sequence()), Ok(5));
    assert!(!set_sequence(&mut [0x20, 1], 1) && !set_sequence(&mut [], 1));
}
