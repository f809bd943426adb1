use super::*;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration as Span;
use vireo_types::{Ltmsi, Network, Teid};
use vireo_wire::gtpu::{PORT, Packet, plain_g_pdu_header};
use vireo_wire::pfcp::*;

/// Address of the endpoint, that of the UPF's tunnels, and that of a UE.
const OWN: Ipv4Addr = Ipv4Addr::new(127, 0, 17, 1);
const UPF: Ipv4Addr = Ipv4Addr::new(127, 0, 17, 2);
const UE: Ipv4Addr = Ipv4Addr::new(127, 0, 45, 1);

fn g_pdu(teid: Teid, packet: &[u8]) -> Vec<u8> {
    [&plain_g_pdu_header(teid, packet.len()).expect("it fits")[..], packet].concat()
}

fn endpoint() -> Endpoint {
    let upf = SocketAddr::new(UPF.into(), 8805);
    let ue_pools = vec![Network::new(UE.into(), 24)];
    let config = Config { user_data: true, ue_pools, ..Config::new(OWN.into(), vec![upf], RecoveryTimeStamp(1), 0) };
    Endpoint::bind(SocketAddr::new(OWN.into(), 0), config, None).expect("loopback")
}

/// G-PDUs of the UPF name a session, and those of sessions leave unchanged. Datagrams of UEs and
/// other messages are not passed on; an Echo Request is answered.
#[test]
fn packets_pass_in_both_directions() {
    let mut endpoint = endpoint();
    assert_eq!(endpoint.fds().count(), 2);
    let [upf, ue] = [UPF, UE].map(|address| UdpSocket::bind((address, 0)).expect("loopback"));
    upf.set_read_timeout(Some(Span::from_secs(5))).expect("a timeout");
    let session = Seid::new(Ltmsi::from_raw(0x0abc_def1), 10, 77);
    let teid = session.control_plane_teid().expect("a TEID");
    let to = SocketAddr::new(OWN.into(), PORT);
    ue.send_to(&g_pdu(teid, b"of a UE"), to).expect("sent");
    upf.send_to(b"\x30\xff\x00\x09", to).expect("sent");
    upf.send_to(&g_pdu(Teid(0x10), b"no session"), to).expect("sent");
    upf.send_to(b"\x32\x01\x00\x04\x00\x00\x00\x00\x12\x34\x00\x00", to).expect("sent");
    upf.send_to(&g_pdu(teid, b"packet"), to).expect("sent");
    let mut seen = Vec::new();
    let deadline = std::time::Instant::now() + Span::from_secs(5);
    while seen.is_empty() && std::time::Instant::now() < deadline {
        let mut on_event = |event: Event<'_>| {
            if let Event::UserData { from, seid, message } = event {
                seen.push((from, seid, Packet::parse(message).expect("a G-PDU").payload.to_vec()));
            }
        };
        endpoint.poll(Instant(1), &mut on_event).expect("good sockets");
    }
    let from = upf.local_addr().expect("bound");
    assert_eq!(seen, [(from, Seid::new(session.ltmsi(), 10, 0), b"packet".to_vec())]);
    let mut buffer = [0; 100];
    let (length, _) = upf.recv_from(&mut buffer).expect("an answer");
    assert_eq!((buffer[1], &buffer[8..10], length), (2, &[0x12, 0x34][..], 14), "Echo Response");

    let packet = g_pdu(Teid(5), b"from the UE");
    assert_eq!(endpoint.submit(Instant(2), from, Some(1), seid(1), &packet, &mut |_| {}), Ok(SubmitResult::Sent));
    endpoint.flush();
    let (length, source) = upf.recv_from(&mut buffer).expect("a packet");
    assert_eq!((&buffer[..length], source), (&packet[..], to));
}

/// The tunnel of a session over NAS ends at the endpoint that sends the message; others stay.
#[test]
fn tunnel_gets_address_of_endpoint() {
    for (address, expected) in [(Ipv4Addr::UNSPECIFIED, OWN), (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 9))]
    {
        let mut message = Vec::new();
        let mut builder = Builder::new(&mut message, MessageType::SESSION_MODIFICATION_REQUEST, Some(9), 0);
        builder.group(UpdateFar::ID, |rule| {
            rule.put(&FarId(2)).put(&ApplyAction::FORW).group(UpdateForwardingParameters::ID, |where_to| {
                where_to.put(&DestinationInterface::ACCESS).put(&OuterHeaderCreation::gtpu(Teid(7), address.into()));
            });
        });
        builder.finish().expect("it fits");
        assert_eq!(set_tunnel_address(&mut message, OWN), address.is_unspecified());
        let expected = [&[0, 84, 0, 10, 1, 0, 0, 0, 0, 7][..], &expected.octets()].concat();
        assert!(message.windows(expected.len()).any(|octets| octets == expected), "{message:02x?}");
        for end in 0..message.len() {
            set_tunnel_address(&mut message[..end].to_vec(), OWN);
        }
    }
}
