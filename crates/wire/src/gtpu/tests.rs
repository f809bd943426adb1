use super::*;
use proptest::prelude::*;
use std::net::IpAddr;

/// G-PDU with a PDU Session Container from a gNB; the bytes are checked by tshark
/// (`tests/gtpu_dissected.rs`).
const UPLINK: [u8; 20] = [0x34, 0xff, 0, 12, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0x85, 1, 0x10, 9, 0, 0x45, 0, 0, 4];

fn session() -> impl Strategy<Value = PduSession> {
    prop_oneof![
        (0..64u8, any::<bool>()).prop_map(|(qfi, rqi)| PduSession::Downlink { qfi, rqi }),
        (0..64u8).prop_map(|qfi| PduSession::Uplink { qfi }),
    ]
}

#[test]
fn uplink_g_pdu_roundtrip_is_exact() {
    let packet = Packet::parse(&UPLINK).expect("a good packet");
    assert_eq!((packet.kind, packet.teid), (MessageType::GPdu, Teid(0x1234_5678)));
    assert_eq!(packet.pdu_session, Some(PduSession::Uplink { qfi: 9 }));
    assert_eq!(packet.payload, &[0x45, 0, 0, 4]);
    assert_eq!(g_pdu_header(packet.teid, PduSession::Uplink { qfi: 9 }, 4).as_ref(), UPLINK.first_chunk());
}

#[test]
fn every_cut_of_a_good_packet_is_refused() {
    for end in 0..UPLINK.len() {
        assert_eq!(Packet::parse(&UPLINK[..end]), Err(ParseError::Truncated), "{end}");
    }
}

#[test]
fn octets_after_length_are_ignored() {
    let mut long = UPLINK.to_vec();
    long.extend([1, 2, 3]);
    assert_eq!(Packet::parse(&long), Packet::parse(&UPLINK));
}

#[test]
fn extension_header_chain_is_checked() {
    let with = |at: usize, octet: u8| {
        let mut bytes = UPLINK;
        bytes[at] = octet;
        Packet::parse(&bytes).map(|p| p.payload.len())
    };
    assert_eq!(with(0, 0x24), Err(ParseError::Version));
    assert_eq!(with(0, 0x54), Err(ParseError::Version));
    assert_eq!(with(12, 0), Err(ParseError::ExtensionHeader));
    assert_eq!(with(12, 3), Err(ParseError::ExtensionHeader));
    assert_eq!(with(13, 0x20), Err(ParseError::PduSessionContainer));
    // comprehension required: RAN container; not required: UDP port (0x40), service class indicator
    // (0x20)
    assert_eq!(with(11, 0x81), Err(ParseError::Unsupported(0x81)));
    assert_eq!(with(11, 0xc0), Err(ParseError::Unsupported(0xc0)));
    assert_eq!((with(11, 0x40), with(11, 0x20)), (Ok(4), Ok(4)));
    // 4 octets that would be another extension header, of 0x45 * 4 octets
    assert_eq!(with(15, 0x40), Err(ParseError::ExtensionHeader));
    // without the E flag the Next Extension Header Type field is not evaluated
    assert_eq!(with(0, 0x32), Ok(8));
}

#[test]
fn endless_extension_chain_is_refused() {
    let mut bytes = vec![0x34, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x40];
    for _ in 0..EXTENSION_HEADERS {
        bytes.extend([1, 0, 0, 0x40]);
    }
    let set_length = |bytes: &mut Vec<u8>| {
        let length = (bytes.len() - 8) as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
    };
    set_length(&mut bytes);
    assert_eq!(Packet::parse(&bytes), Err(ParseError::TooManyExtensionHeaders));
    if let Some(last) = bytes.last_mut() {
        *last = 0;
    }
    assert_eq!(Packet::parse(&bytes).map(|p| p.payload.len()), Ok(0));
}

#[test]
fn signalling_is_read_back() {
    let mut buffer = [0; SIGNALLING_OCTETS];
    let packet = echo_request(&mut buffer, 7).map(Packet::parse);
    assert!(matches!(packet, Ok(Ok(Packet { kind: MessageType::EchoRequest, sequence: Some(7), payload: &[], .. }))));
    let packet = Packet::parse(echo_response(&mut buffer, 8).expect("room")).expect("good");
    assert_eq!((packet.kind, packet.sequence), (MessageType::EchoResponse, Some(8)));
    assert_eq!(recovery(packet.payload), Some(0));
    let packet = Packet::parse(end_marker(&mut buffer, Teid(5)).expect("room")).expect("good");
    assert_eq!((packet.kind, packet.teid, packet.payload.len()), (MessageType::EndMarker, Teid(5), 0));
    let packet = Packet::parse(extension_headers_notification(&mut buffer, 1).expect("room")).expect("good");
    assert_eq!(supported_extension_headers(packet.payload).map(Iterator::collect), Some(vec![0x85]));
    for local in ["192.0.2.1", "2001:db8::1"] {
        let peer: IpAddr = local.parse().expect("an address");
        let message = error_indication_message(&mut buffer, 1, Teid(0xdead), peer).expect("room");
        let packet = Packet::parse(message).expect("good");
        assert_eq!(packet.teid, NO_TEID);
        assert_eq!(error_indication(packet.payload), Some(ErrorIndication { teid: Teid(0xdead), peer }));
        for end in 0..packet.payload.len() {
            assert_eq!(error_indication(&packet.payload[..end]), None);
        }
    }
}

#[test]
fn oversized_packet_is_refused() {
    let mut buffer = [0; 32];
    let session = PduSession::Downlink { qfi: 1, rqi: false };
    assert_eq!(prepend_g_pdu(&mut buffer, 15, 20, Teid(1), Some(session)), Err(EmitError::Room));
    assert_eq!(prepend_g_pdu(&mut buffer, 40, 50, Teid(1), Some(session)), Err(EmitError::Room));
    assert_eq!(prepend_g_pdu(&mut buffer, 20, 16, Teid(1), None), Err(EmitError::Room));
    assert_eq!(g_pdu_header(Teid(1), session, 65_535 - 8).map(|h| h[2..4].to_vec()), Some(vec![0xff, 0xff]));
    assert_eq!(g_pdu_header(Teid(1), session, 65_535 - 7), None);
    assert_eq!(echo_response(&mut buffer[..13], 1), Err(EmitError::Room));
}

proptest! {
    #[test]
    fn g_pdus_round_trip(teid: u32, session in proptest::option::of(session()), payload: Vec<u8>) {
        let mut buffer = vec![0; G_PDU_HEADER];
        buffer.extend(&payload);
        let end = buffer.len();
        let start = prepend_g_pdu(&mut buffer, G_PDU_HEADER, end, Teid(teid), session).expect("room");
        let packet = Packet::parse(&buffer[start..]).expect("good");
        prop_assert_eq!((packet.kind, packet.teid, packet.pdu_session), (MessageType::GPdu, Teid(teid), session));
        prop_assert_eq!(packet.payload, &payload[..]);
    }

    #[test]
    fn fast_read_equals_checked_read(
        teid: u32, session in session(), payload: Vec<u8>, changes: Vec<(u8, u8)>, cut in 0..4_usize,
    ) {
        let mut data = g_pdu_header(Teid(teid), session, payload.len()).expect("short").to_vec();
        data.extend(&payload);
        prop_assert_eq!(Packet::usual(&data), Packet::parse(&data).ok());
        for (at, octet) in changes {
            data[usize::from(at) % G_PDU_HEADER] = octet;
        }
        data.truncate(data.len() - cut);
        if let Some(packet) = Packet::usual(&data) {
            prop_assert_eq!(Packet::parse(&data), Ok(packet));
        }
    }

    #[test]
    fn random_bytes_do_no_harm(mut data: Vec<u8>, valid_start: bool) {
        if valid_start && !data.is_empty() {
            data[0] = 0x34;
        }
        walk(&data);
    }

    #[test]
    fn written_packet_is_read_by_independent_codec(teid: u32, session in session(), payload: Vec<u8>) {
        let mut bytes = g_pdu_header(Teid(teid), session, payload.len()).expect("short").to_vec();
        bytes.extend(&payload);
        let packet = oxirush_gtp_u::Packet::decode(&bytes).expect("good for the oracle");
        prop_assert_eq!((packet.teid, packet.qfi()), (teid, Some(session.qfi())));
        prop_assert_eq!(&packet.payload[..], &payload[..]);
        let down = matches!(
            packet.pdu_session_container(),
            Some(oxirush_gtp_u::PduSessionContainer::Downlink(information))
                if PduSession::Downlink { qfi: information.qfi, rqi: information.rqi } == session
        );
        prop_assert_eq!(down, matches!(session, PduSession::Downlink { .. }));
    }

    #[test]
    fn random_bytes_agree_with_independent_codec(mut data: Vec<u8>) {
        // if both accept the message, they read the same
        if let [flags, kind, high, low, ..] = &mut data[..] {
            *flags = 0x30 | *flags & 7;
            *kind = 0xff;
            [*high, *low] = [0, 0];
            let length = (data.len().saturating_sub(8)) as u16;
            data[2..4].copy_from_slice(&length.to_be_bytes());
        }
        if let (Ok(ours), Ok(theirs)) = (Packet::parse(&data), oxirush_gtp_u::Packet::decode(&data)) {
            prop_assert_eq!((ours.teid.0, ours.sequence), (theirs.teid, theirs.sequence));
            prop_assert_eq!(ours.payload, &theirs.payload[..]);
        }
    }
}
