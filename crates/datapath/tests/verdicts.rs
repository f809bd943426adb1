//! Tests of the verdict on every kind of packet, in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_datapath::{
    ALL_FLOWS, Action, BufferLimits, DownlinkId, DownlinkRule, DropReason, Event, Limits, Memory, Pool, Rate, Released,
    TableError, Tables, Tunnel, UplinkRule, Use,
};
use vireo_types::{Duration, Instant, SessionAddress, Teid};
use vireo_wire::gtpu::{self, ErrorIndication, MessageType, Packet, PduSession};

const UPF: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const GNB: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 2, 0, 0, 0, 0);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const RAN_TEID: Teid = Teid(0x0000_beef);
const NOW: Instant = Instant(1_000_000_000);

struct Bench {
    upf: Memory,
    teid: Teid,
    downlink: DownlinkId,
    uplink_rule: UplinkRule,
    downlink_rule: DownlinkRule,
}

fn bench() -> Bench {
    bench_with(BufferLimits { packets_per_session: 3, ..BufferLimits::default() })
}

fn bench_with(buffer: BufferLimits) -> Bench {
    let pool = Pool {
        ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
        ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
        mtu: 1400,
        dns: vec!["2001:db8::53".parse().expect("an address")],
        isolated: false,
    };
    let mut tables = Tables::new(vec![pool], Limits { records: 4, buffer, ..Limits::default() });
    let ue = SessionAddress { ipv4: Some(UE), ipv6_prefix: Some(PREFIX) };
    let uplink_rule = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::UNLIMITED };
    let downlink_rule = DownlinkRule {
        session: 7,
        pdr: 2,
        qfi: Some(9),
        rqi: false,
        gate_open: true,
        action: Action::Forward,
        tunnel: Some(Tunnel { teid: RAN_TEID, address: GNB }),
        mbr: Rate::UNLIMITED,
    };
    let teid = tables.add_uplink(None, uplink_rule).expect("room");
    let downlink = tables.add_downlink(ue, 7).expect("room");
    let mut released = Released::default();
    tables.set_downlink(downlink, downlink_rule, false, &mut released);
    assert_eq!(released.datagrams.len(), 1, "a router advertisement as the tunnel comes up");
    Bench { upf: Memory::new(tables, UPF), teid, downlink, uplink_rule, downlink_rule }
}

impl Bench {
    fn set_uplink(&mut self, change: impl FnOnce(&mut UplinkRule)) {
        change(&mut self.uplink_rule);
        let (teid, rule) = (self.teid, self.uplink_rule);
        self.upf.change(|tables, _| tables.set_uplink(teid, rule));
    }

    fn set_downlink(&mut self, change: impl FnOnce(&mut DownlinkRule)) -> Vec<(SocketAddr, Vec<u8>)> {
        change(&mut self.downlink_rule);
        let mut released = Released::default();
        self.upf.tables.set_downlink(self.downlink, self.downlink_rule, true, &mut released);
        released.datagrams
    }

    fn send_up(&mut self, packet: &[u8]) {
        let datagram = g_pdu(self.teid, Some(PduSession::Uplink { qfi: 9 }), packet);
        self.upf.receive_n3(SocketAddr::new(GNB, 40_000), &datagram, NOW);
    }

    /// Returns the only datagram sent on N3 since the last call.
    fn answer(&mut self) -> (SocketAddr, Vec<u8>) {
        assert_eq!(self.upf.n3.len(), 1, "{:?}", self.upf);
        self.upf.n3.remove(0)
    }

    fn dropped(&self, reason: DropReason, packets: u64) {
        assert_eq!(self.upf.stats.dropped(reason), packets, "{reason:?} in {:?}", self.upf.stats);
        assert_eq!(self.upf.stats.drops.iter().sum::<u64>(), packets, "only for this reason: {:?}", self.upf.stats);
        assert!(self.upf.n6.is_empty());
    }
}

fn g_pdu(teid: Teid, session: Option<PduSession>, packet: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; gtpu::G_PDU_HEADER];
    datagram.extend(packet);
    let end = datagram.len();
    let start = gtpu::prepend_g_pdu(&mut datagram, gtpu::G_PDU_HEADER, end, teid, session).expect("room");
    datagram.split_off(start)
}

/// Sets the checksum of an IPv4 header of 20 octets.
fn with_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let words = packet[..20].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let checksum = !(words.sum::<u32>() % 0xffff) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, payload: usize) -> Vec<u8> {
    let length = (20 + payload) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.resize(usize::from(length), 0xa5);
    with_checksum(&mut packet);
    packet
}

fn ipv6(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 1, 59, 64];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.push(1);
    packet
}

#[test]
fn packets_pass_unchanged_and_are_counted() {
    let mut b = bench();
    let up = ipv4(UE, SERVER, 100);
    b.send_up(&up);
    assert_eq!(b.upf.n6, vec![up.clone()]);
    let own = Ipv6Addr::from_bits(PREFIX.to_bits() | 0x1234);
    let up6 = ipv6(own, "2001:db8::1".parse().expect("an address"));
    b.send_up(&up6);
    assert_eq!(b.upf.n6[1], up6);

    let down = ipv4(SERVER, UE, 60);
    b.upf.receive_n6(&down, NOW);
    let (to, datagram) = b.answer();
    assert_eq!(to, SocketAddr::new(GNB, 2152));
    let packet = Packet::parse(&datagram).expect("good");
    assert_eq!((packet.kind, packet.teid), (MessageType::GPdu, RAN_TEID));
    assert_eq!(packet.pdu_session, Some(PduSession::Downlink { qfi: 9, rqi: false }));
    assert_eq!(packet.payload, down);

    let (up_volume, down_volume) = (b.upf.tables.uplink_volume(b.teid), b.upf.tables.downlink_volume(b.downlink));
    assert_eq!((up_volume.packets, up_volume.octets), (2, (up.len() + up6.len()) as u64));
    assert_eq!((down_volume.packets, down_volume.octets), (1, 80));
    assert_eq!((b.upf.stats.uplink, b.upf.stats.downlink), (up_volume, down_volume));
    assert_eq!(b.upf.stats.drops.iter().sum::<u64>(), 0);
}

#[test]
fn volume_report_names_its_session() {
    for up in [true, false] {
        let mut b = bench();
        // Watch every 256 octets.
        b.upf.tables.watch(&[b.teid], [b.downlink].into_iter(), 8);
        for _ in 0..2 {
            match up {
                true => b.send_up(&ipv4(UE, SERVER, 200)),
                false => b.upf.receive_n6(&ipv4(SERVER, UE, 200), NOW),
            }
        }
        assert!(!b.upf.events.is_empty(), "up {up}");
        assert!(b.upf.events.iter().all(|event| *event == Event::Volume { session: 7 }), "{up}: {:?}", b.upf.events);
    }
}

#[test]
fn spoofed_source_is_dropped() {
    let mut b = bench();
    b.send_up(&ipv4(Ipv4Addr::new(10, 45, 0, 3), SERVER, 10));
    b.send_up(&ipv6("2001:db8:45:3::1".parse().expect("an address"), PREFIX));
    b.dropped(DropReason::Spoofed, 2);
    assert_eq!(b.upf.tables.uplink_volume(b.teid).packets, 0);
}

#[test]
fn malformed_packets_are_dropped_others_pass() {
    let mut b = bench();
    let from = SocketAddr::new(GNB, 2152);
    b.upf.receive_n3(from, &[], NOW);
    b.upf.receive_n3(from, &[0x34, 0xff, 0xff, 0xff, 0, 0, 0, 1], NOW);
    b.upf.receive_n3(from, &[0x54; 40], NOW);
    b.dropped(DropReason::Malformed, 3);
    let mut b = bench();
    b.send_up(&[]);
    b.send_up(&ipv4(UE, SERVER, 10)[..25]);
    b.send_up(&[0x55; 60]);
    b.dropped(DropReason::InnerMalformed, 3);
    b.send_up(&ipv4(UE, SERVER, 10));
    assert_eq!(b.upf.n6.len(), 1);
}

/// RFC 791 3.2; a router drops such packets (RFC 1812 5.2.2).
#[test]
fn wrong_header_checksum_drops_packet() {
    for (at, bit) in [(8, 1), (10, 0x80), (15, 2), (19, 4)] {
        let mut b = bench();
        let [mut up, mut down] = [ipv4(UE, SERVER, 10), ipv4(SERVER, UE, 10)];
        up[at] ^= bit;
        down[at] ^= bit;
        b.send_up(&up);
        b.upf.receive_n6(&down, NOW);
        b.dropped(DropReason::InnerMalformed, 2);
        let volumes = [b.upf.tables.uplink_volume(b.teid), b.upf.tables.downlink_volume(b.downlink)];
        assert_eq!(volumes.map(|volume| volume.packets), [0, 0]);
        b.send_up(&ipv4(UE, SERVER, 10));
        assert_eq!(b.upf.n6.len(), 1);
    }
}

#[test]
fn gate_action_and_flow_are_obeyed() {
    let mut b = bench();
    b.set_uplink(|rule| rule.gate_open = false);
    b.send_up(&ipv4(UE, SERVER, 10));
    b.dropped(DropReason::GateClosed, 1);
    let mut b = bench();
    b.set_uplink(|rule| rule.forward = false);
    b.send_up(&ipv4(UE, SERVER, 10));
    b.dropped(DropReason::Action, 1);
    let mut b = bench();
    b.set_uplink(|rule| rule.flows = 1 << 5);
    b.send_up(&ipv4(UE, SERVER, 10));
    b.upf.receive_n3(SocketAddr::new(GNB, 2152), &g_pdu(b.teid, None, &ipv4(UE, SERVER, 10)), NOW);
    b.dropped(DropReason::WrongFlow, 2);
    b.set_uplink(|rule| rule.flows |= 1 << 9);
    b.send_up(&ipv4(UE, SERVER, 10));
    assert_eq!(b.upf.n6.len(), 1);

    let mut b = bench();
    b.set_downlink(|rule| rule.gate_open = false);
    b.upf.receive_n6(&ipv4(SERVER, UE, 10), NOW);
    b.dropped(DropReason::GateClosed, 1);
    let mut b = bench();
    b.set_downlink(|rule| rule.tunnel = None);
    b.upf.receive_n6(&ipv4(SERVER, UE, 10), NOW);
    b.dropped(DropReason::NoTunnel, 1);
}

#[test]
fn both_directions_are_held_to_their_rate() {
    let mut b = bench();
    b.set_uplink(|rule| rule.mbr = Rate::from_kbps(800));
    b.set_downlink(|rule| rule.mbr = Rate::from_kbps(400));
    // Each direction is offered 1,600 kbit in one second: 1,000 octets every 5 ms.
    for n in 0..200 {
        let now = NOW + Duration::from_millis(5 * n);
        let datagram = g_pdu(b.teid, None, &ipv4(UE, SERVER, 980));
        b.upf.receive_n3(SocketAddr::new(GNB, 2152), &datagram, now);
        b.upf.receive_n6(&ipv4(SERVER, UE, 980), now);
    }
    let (up, down) = (b.upf.stats.uplink.packets, b.upf.stats.downlink.packets);
    assert!((100..=107).contains(&up) && (50..=55).contains(&down), "{up} {down}");
    assert_eq!(b.upf.stats.dropped(DropReason::RateExceeded), 400 - up - down);
}

#[test]
fn flooded_session_takes_no_buffer_of_others() {
    let mut b = bench();
    let other = Ipv4Addr::new(10, 45, 0, 77);
    let ue = SessionAddress { ipv4: Some(other), ipv6_prefix: None };
    let mbr = Rate::from_kbps(800);
    let teid = b.upf.tables.add_uplink(None, UplinkRule { ue, mbr, ..b.uplink_rule }).expect("room");
    let id = b.upf.tables.add_downlink(ue, 8).expect("room");
    let tunnel = Some(Tunnel { teid: Teid(0x77), address: GNB });
    let rule = DownlinkRule { session: 8, tunnel, mbr, ..b.downlink_rule };
    b.upf.tables.set_downlink(id, rule, false, &mut Released::default());
    b.set_uplink(|rule| rule.mbr = mbr);
    b.set_downlink(|rule| rule.mbr = mbr);
    // The first session is sent 100 times its rate each way, the other exactly its rate.
    for n in 0..100 {
        let now = NOW + Duration::from_millis(10 * n);
        for _ in 0..100 {
            let flood = g_pdu(b.teid, None, &ipv4(UE, SERVER, 980));
            b.upf.receive_n3(SocketAddr::new(GNB, 2152), &flood, now);
            b.upf.receive_n6(&ipv4(SERVER, UE, 980), now);
        }
        b.upf.receive_n3(SocketAddr::new(GNB, 2152), &g_pdu(teid, None, &ipv4(other, SERVER, 980)), now);
        b.upf.receive_n6(&ipv4(SERVER, other, 980), now);
    }
    let carried = |up: Teid, down| (b.upf.tables.uplink_volume(up).packets, b.upf.tables.downlink_volume(down).packets);
    assert_eq!(carried(teid, id), (100, 100), "every packet of the one that keeps to its rate");
    let (up, down) = carried(b.teid, b.downlink);
    assert!((100..=107).contains(&up) && (100..=107).contains(&down), "{up} {down}");
}

#[test]
fn unknown_tunnel_gets_limited_error_indications() {
    let mut b = bench();
    let stale = Teid(b.teid.0 + 1);
    b.upf.receive_n3(SocketAddr::new(GNB, 40_000), &g_pdu(stale, None, &ipv4(UE, SERVER, 10)), NOW);
    let (to, datagram) = b.answer();
    assert_eq!(to, SocketAddr::new(GNB, 2152));
    let packet = Packet::parse(&datagram).expect("good");
    assert_eq!(packet.kind, MessageType::ErrorIndication);
    assert_eq!(gtpu::error_indication(packet.payload), Some(ErrorIndication { teid: stale, peer: UPF }));
    for _ in 0..10_000 {
        b.upf.receive_n3(SocketAddr::new(GNB, 40_000), &g_pdu(stale, None, &[]), NOW);
    }
    assert!(b.upf.n3.len() < 4_000, "{} answers at one moment", b.upf.n3.len());
    b.dropped(DropReason::UnknownTeid, 10_001);
}

#[test]
fn echo_is_answered_where_it_came_from() {
    let mut b = bench();
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    let request = gtpu::echo_request(&mut buffer, 0x4711).expect("room").to_vec();
    b.upf.receive_n3(SocketAddr::new(GNB, 40_000), &request, NOW);
    let (to, datagram) = b.answer();
    let packet = Packet::parse(&datagram).expect("good");
    assert_eq!((to, packet.kind), (SocketAddr::new(GNB, 40_000), MessageType::EchoResponse));
    assert_eq!((packet.sequence, gtpu::recovery(packet.payload)), (Some(0x4711), Some(0)));
}

/// Floods of other addresses leave the answers to a RAN node alone, and those to one that has no
/// tunnel yet.
#[test]
fn answer_limits_are_per_address() {
    let mut b = bench();
    let (known, unknown) = (IpAddr::from([192, 0, 2, 8]), IpAddr::from([203, 0, 113, 1]));
    b.upf.change(|tables, _| tables.set_peer(known, Use::Node, true));
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    let echo = gtpu::echo_request(&mut buffer, 1).expect("room").to_vec();
    let response = gtpu::echo_response(&mut buffer, 1).expect("room").to_vec();
    let stale = g_pdu(Teid(b.teid.0 + 1), None, &[]);
    let mut receive = |from: IpAddr, datagram: &[u8], times| {
        let (answers, events) = (b.upf.n3.len(), b.upf.events.len());
        (0..times).for_each(|_| b.upf.receive_n3(SocketAddr::new(from, 2152), datagram, NOW));
        b.upf.n3.len() - answers + b.upf.events.len() - events
    };
    for datagram in [&echo, &stale, &response] {
        assert!((3_000..=3_002).contains(&receive(known, datagram, 10_000)));
        assert!((375..=377).contains(&receive(unknown, datagram, 10_000)));
        assert_eq!(receive(IpAddr::from([203, 0, 113, 2]), datagram, 1), 1, "a gNB before its first tunnel");
        let many = (0..20_000_u16).map(|n| IpAddr::from([198, 18, (n >> 8) as u8, n as u8]));
        let answers: usize = many.map(|from| receive(from, datagram, 1)).sum();
        assert!((2_000..=3_002).contains(&answers), "{answers}");
        assert_eq!(receive(GNB, datagram, 100), 100, "a known gNB");
    }
}

#[test]
fn unsupported_extension_header_is_answered() {
    let mut b = bench();
    let mut datagram = g_pdu(b.teid, Some(PduSession::Uplink { qfi: 9 }), &ipv4(UE, SERVER, 10));
    datagram[11] = 0x81;
    b.upf.receive_n3(SocketAddr::new(GNB, 40_000), &datagram, NOW);
    let (_, answer) = b.answer();
    assert_eq!(
        Packet::parse(&answer).map(|packet| packet.kind),
        Ok(MessageType::SupportedExtensionHeadersNotification)
    );
    b.dropped(DropReason::ExtensionHeader, 1);
}

#[test]
fn error_indication_is_reported_once_per_tunnel() {
    let mut b = bench();
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    let indication = gtpu::error_indication_message(&mut buffer, 1, RAN_TEID, GNB).expect("room").to_vec();
    let stranger = gtpu::error_indication_message(&mut buffer, 1, RAN_TEID, UPF).expect("room").to_vec();
    for datagram in [&indication, &indication, &stranger] {
        b.upf.receive_n3(SocketAddr::new(GNB, 2152), datagram, NOW);
    }
    let tunnel = Tunnel { teid: RAN_TEID, address: GNB };
    assert_eq!(b.upf.events, vec![Event::TunnelError { session: 7, tunnel }]);
    b.set_downlink(|rule| rule.tunnel = Some(Tunnel { teid: Teid(1), address: GNB }));
    b.upf.receive_n3(SocketAddr::new(GNB, 2152), &indication, NOW);
    assert_eq!(b.upf.events.len(), 1, "nothing goes into the old tunnel any more");
}

/// Any host that reaches N3 can send an Error Indication, which would end sessions of others.
#[test]
fn error_indication_counts_from_own_peer() {
    let mut b = bench();
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    let indication = gtpu::error_indication_message(&mut buffer, 1, RAN_TEID, GNB).expect("room").to_vec();
    let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8));
    b.upf.change(|tables, _| tables.set_peer(other, Use::Node, true));
    for from in [other, SERVER.into()] {
        b.upf.receive_n3(SocketAddr::new(from, 2152), &indication, NOW);
    }
    assert_eq!(b.upf.events, vec![]);
    b.dropped(DropReason::UnknownPeer, 2);
    b.upf.receive_n3(SocketAddr::new(GNB, 2152), &indication, NOW);
    assert_eq!(b.upf.events.len(), 1);
}

#[test]
fn buffered_packets_are_reported_once_in_order() {
    let mut b = bench();
    b.set_downlink(|rule| {
        rule.action = Action::Buffer { notify: true };
        rule.tunnel = None;
    });
    for payload in 1..=5 {
        b.upf.receive_n6(&ipv4(SERVER, UE, payload), NOW);
    }
    assert_eq!(b.upf.events, vec![Event::DownlinkData { session: 7, pdr: 2 }]);
    b.dropped(DropReason::BufferFull, 2);
    assert_eq!(b.upf.stats.buffered, 3);
    let tunnel = Tunnel { teid: Teid(0x77), address: GNB };
    let released = b.set_downlink(|rule| {
        rule.action = Action::Forward;
        rule.tunnel = Some(tunnel);
    });
    let packets: Vec<Packet<'_>> =
        released.iter().map(|(_, datagram)| Packet::parse(datagram).expect("good")).collect();
    assert!(packets.iter().all(|packet| packet.teid == Teid(0x77)));
    // First the router advertisement, then the packets in order.
    assert_eq!(packets[0].payload[40], 134);
    assert_eq!(packets[1..].iter().map(|p| p.payload.len()).collect::<Vec<_>>(), vec![21, 22, 23]);
    assert_eq!(b.upf.tables.buffered_octets(), 0);

    b.set_downlink(|rule| rule.action = Action::Buffer { notify: true });
    b.upf.receive_n6(&ipv4(SERVER, UE, 1), NOW);
    assert_eq!(b.upf.events.len(), 2, "each time of buffering has its report");
    assert_eq!(b.upf.tables.expire_buffers(NOW + Duration::from_secs(61)), 1);
    b.upf.receive_n6(&ipv4(SERVER, UE, 1), NOW);
    assert_eq!(b.upf.events.len(), 3, "and so has what comes after the buffer was given up");
    b.set_downlink(|rule| rule.action = Action::Drop);
    assert_eq!(b.upf.tables.buffered_octets(), 0);
}

/// Idle UEs whose paging a hostile RAN node ignores, and a sender on N6, fill the buffers.
#[test]
fn full_buffers_report_and_serve_others() {
    let mut b = bench_with(BufferLimits { packets_per_session: 3, octets: 300, ..BufferLimits::default() });
    let idle = DownlinkRule { action: Action::Buffer { notify: true }, tunnel: None, ..b.downlink_rule };
    b.set_downlink(|rule| *rule = idle);
    for n in 3..6 {
        let ue = SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, n)), ipv6_prefix: None };
        let id = b.upf.tables.add_downlink(ue, n.into()).expect("room");
        let rule = DownlinkRule { session: n.into(), ..idle };
        b.upf.change(|tables, released| tables.set_downlink(id, rule, false, released));
    }
    for n in [2, 2, 2, 2, 3, 4, 5, 5] {
        b.upf.receive_n6(&ipv4(SERVER, Ipv4Addr::new(10, 45, 0, n), 80), NOW);
    }
    let reported = |session| Event::DownlinkData { session, pdr: 2 };
    assert_eq!(b.upf.events, [7, 3, 4, 5].map(reported));
    // The first UE loses one packet at its limit and two to others; the last one finds no room.
    b.dropped(DropReason::BufferFull, 5);
    assert_eq!((b.upf.stats.buffered, b.upf.tables.buffered_octets()), (5, 300));
    // It is reported again after the time that packets wait.
    assert_eq!(b.upf.tables.expire_buffers(NOW + Duration::from_secs(61)), 3);
    b.upf.receive_n6(&ipv4(SERVER, Ipv4Addr::new(10, 45, 0, 5), 80), NOW);
    assert_eq!(b.upf.events[4..], [reported(5)]);
}

#[test]
fn new_tunnel_sends_end_marker_to_old() {
    let mut b = bench();
    let released = b.set_downlink(|rule| rule.tunnel = Some(Tunnel { teid: Teid(0x88), address: GNB }));
    let kinds: Vec<_> =
        released.iter().map(|(_, datagram)| Packet::parse(datagram).map(|packet| (packet.kind, packet.teid))).collect();
    assert_eq!(kinds[0], Ok((MessageType::EndMarker, RAN_TEID)));
    assert_eq!(kinds[1], Ok((MessageType::GPdu, Teid(0x88))));
}

/// Returns a Router Solicitation from fe80::5 to ff02::2, with a checksum computed by hand.
fn router_solicitation() -> Vec<u8> {
    let mut solicitation = vec![0x60, 0, 0, 0, 0, 8, 58, 255];
    solicitation.extend(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 5).octets());
    solicitation.extend(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2).octets());
    solicitation.extend([133, 0, 0x7d, 0x32, 0, 0, 0, 0]);
    solicitation
}

#[test]
fn router_solicitation_is_answered_in_tunnel() {
    let mut b = bench();
    let mut solicitation = router_solicitation();
    b.send_up(&solicitation);
    let (to, datagram) = b.answer();
    let packet = Packet::parse(&datagram).expect("good");
    assert_eq!((to.port(), packet.teid, packet.pdu_session.map(PduSession::qfi)), (2152, RAN_TEID, Some(9)));
    let advertisement = packet.payload;
    assert_eq!(advertisement[24..40], Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 5).octets());
    assert_eq!((advertisement[7], advertisement[40]), (255, 134));
    assert_eq!(advertisement[56 + 16..56 + 32], PREFIX.octets());
    assert_eq!(advertisement[88..96], [5, 1, 0, 0, 0, 0, 0x05, 0x78], "MTU 1400");
    assert_eq!(advertisement.len(), 96 + 24, "one DNS server");
    // Other link-local traffic is dropped.
    solicitation[40] = 143;
    b.send_up(&solicitation);
    b.dropped(DropReason::LinkLocal, 1);
}

#[test]
fn solicitations_are_limited_by_session() {
    let mut b = bench();
    let prefix = Ipv6Addr::from_bits(PREFIX.to_bits() + (1 << 64));
    let ue = SessionAddress { ipv4: None, ipv6_prefix: Some(prefix) };
    let other = b.upf.tables.add_uplink(None, UplinkRule { ue, ..b.uplink_rule }).expect("room");
    let id = b.upf.tables.add_downlink(ue, 8).expect("room");
    let tunnel = Some(Tunnel { teid: Teid(0x77), address: GNB });
    let rule = DownlinkRule { session: 8, tunnel, ..b.downlink_rule };
    b.upf.change(|tables, released| tables.set_downlink(id, rule, false, released));
    b.upf.n3.clear();
    for second in 0..3 {
        let now = NOW + Duration::from_secs(second);
        let flood = g_pdu(b.teid, None, &router_solicitation());
        (0..5_000).for_each(|_| b.upf.receive_n3(SocketAddr::new(GNB, 2152), &flood, now));
        b.upf.receive_n3(SocketAddr::new(GNB, 2152), &g_pdu(other, None, &router_solicitation()), now);
        let to = |teid| move |sent: &&(SocketAddr, Vec<u8>)| Packet::parse(&sent.1).is_ok_and(|p| p.teid == teid);
        let answers = [RAN_TEID, Teid(0x77)].map(|teid| b.upf.n3.iter().filter(to(teid)).count());
        assert_eq!(answers, [4, 1], "second {second}");
        b.upf.n3.clear();
    }
    b.dropped(DropReason::AnswerLimit, 3 * 4_996);
    // The count leaves the marks of reports alone.
    b.set_downlink(|rule| rule.action = Action::Buffer { notify: true });
    (0..3).for_each(|_| b.upf.receive_n6(&ipv4(SERVER, UE, 1), NOW));
    b.send_up(&router_solicitation());
    b.upf.receive_n6(&ipv4(SERVER, UE, 1), NOW);
    assert_eq!(b.upf.events.len(), 1);
}

#[test]
fn solicitation_from_any_ue_address_is_answered() {
    let mut b = bench();
    let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xffff);
    let own = Ipv6Addr::from_bits(PREFIX.to_bits() | 0x1234);
    // Neighbor Solicitation: is the router still reachable?
    let mut packet = vec![0x60, 0, 0, 0, 0, 24, 58, 255];
    packet.extend(own.octets());
    packet.extend(router.octets());
    packet.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend(router.octets());
    let words = |octets: &[u8]| -> u32 { octets.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum() };
    let sum = words(&packet[8..]) + 24 + 58;
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    b.send_up(&packet);
    let (_, datagram) = b.answer();
    let answer = Packet::parse(&datagram).expect("good").payload.to_vec();
    assert_eq!(
        (answer[40], answer[44], &answer[24..40]),
        (136, 0xe0, &own.octets()[..]),
        "router, solicited, override"
    );
    // Other packets for the link do not leave it.
    b.send_up(&ipv6(own, "ff02::fb".parse().expect("an address")));
    b.dropped(DropReason::LinkLocal, 1);
}

#[test]
fn ue_cannot_act_as_ran_node_in_tunnel() {
    let mut b = bench();
    let datagram = g_pdu(b.teid, None, &ipv4(UE, SERVER, 10));
    b.upf.receive_n3((Ipv4Addr::new(10, 45, 77, 1), 2152).into(), &datagram, NOW);
    b.upf.receive_n3((Ipv6Addr::from_bits(PREFIX.to_bits() | 7), 2152).into(), &datagram, NOW);
    b.dropped(DropReason::FromUe, 2);
    assert!(b.upf.n3.is_empty());
}

#[test]
fn active_ue_gets_prefix_before_expiry() {
    let mut b = bench();
    let heard = |b: &mut Bench, hours: u32| {
        b.upf.n3.clear();
        (0..hours * 3600).for_each(|_| b.upf.change(|tables, released| tables.advertise_again(released)));
        b.upf.n3.len()
    };
    assert_eq!(heard(&mut b, 18), 3, "three times in the lifetime of its router");
    b.set_downlink(|rule| rule.action = Action::Buffer { notify: true });
    assert_eq!(heard(&mut b, 18), 0, "an idle one is not woken");
}

#[test]
fn removed_entries_are_unknown_and_free_room() {
    let mut b = bench();
    b.upf.tables.remove_uplink(b.teid);
    b.upf.tables.remove_downlink(b.downlink, &mut Released::default());
    assert!(b.upf.tables.is_empty());
    b.upf.receive_n6(&ipv4(SERVER, UE, 10), NOW);
    b.dropped(DropReason::UnknownUe, 1);
    b.send_up(&ipv4(UE, SERVER, 10));
    assert_eq!(b.upf.stats.dropped(DropReason::UnknownTeid), 1);
    let again = b.upf.tables.add_uplink(None, b.uplink_rule).expect("room");
    assert!(again.index() == b.teid.index() && again.generation() != b.teid.generation());
    b.send_up(&ipv4(UE, SERVER, 10));
    assert_eq!(b.upf.stats.dropped(DropReason::UnknownTeid), 2, "a late packet of the old tunnel");
}

#[test]
fn tables_refuse_what_they_cannot_hold() {
    let mut b = bench();
    let ue = SessionAddress { ipv4: Some(UE), ipv6_prefix: None };
    assert_eq!(b.upf.tables.add_downlink(ue, 8), Err(TableError::AddressInUse));
    assert_eq!(b.upf.tables.add_downlink(SessionAddress::default(), 8), Err(TableError::AddressInUse));
    let foreign = Teid(0x1234_5678);
    assert_eq!(b.upf.tables.add_uplink(Some(foreign), b.uplink_rule), Ok(foreign));
    for taken in [foreign, b.teid, Teid(0)] {
        assert_eq!(b.upf.tables.add_uplink(Some(taken), b.uplink_rule), Err(TableError::TeidInUse));
    }
    let packet = g_pdu(foreign, None, &ipv4(UE, SERVER, 10));
    b.upf.receive_n3(SocketAddr::new(GNB, 2152), &packet, NOW);
    assert_eq!(b.upf.n6.len(), 1);
    // A foreign TEID with index 3 is not assigned to another tunnel.
    assert_eq!(b.upf.tables.add_uplink(Some(Teid(0x301)), b.uplink_rule), Ok(Teid(0x301)));
    for _ in 0..2_000 {
        let own = b.upf.tables.add_uplink(None, b.uplink_rule).expect("the fourth");
        assert!(own.index() == 3 && own != Teid(0x301));
        b.upf.tables.remove_uplink(own);
    }
    assert!(b.upf.tables.add_uplink(None, b.uplink_rule).is_ok());
    assert_eq!(b.upf.tables.add_uplink(None, b.uplink_rule), Err(TableError::Full));
}

#[test]
fn lean_session_packets_are_not_counted() {
    let mut b = bench();
    let ue = SessionAddress { ipv4: Some(UE), ipv6_prefix: None };
    b.set_uplink(|rule| rule.ue = ue);
    let (teid, downlink) = (b.teid, b.downlink);
    let lean = |b: &mut Bench, lean| b.upf.change(|tables, _| tables.set_lean(&[teid], [downlink].into_iter(), lean));
    let carried = |b: &Bench| {
        let tables = &b.upf.tables;
        (tables.uplink_volume(teid).packets, tables.downlink_volume(downlink).packets)
    };
    let (up, down) = (ipv4(UE, SERVER, 40), ipv4(SERVER, UE, 50));
    for (round, counted) in [(false, 1), (true, 1), (false, 2)] {
        lean(&mut b, round);
        b.send_up(&up);
        assert_eq!(b.upf.n6.pop().as_deref(), Some(&up[..]));
        b.upf.receive_n6(&down, NOW);
        let (to, datagram) = b.answer();
        let packet = Packet::parse(&datagram).expect("a G-PDU");
        assert_eq!((to, packet.teid, packet.payload), (SocketAddr::new(GNB, gtpu::PORT), RAN_TEID, &down[..]));
        assert_eq!(packet.pdu_session, Some(PduSession::Downlink { qfi: 9, rqi: false }));
        assert_eq!(carried(&b), (counted, counted), "lean: {round}");
    }
    lean(&mut b, true);
    b.send_up(&ipv4(SERVER, UE, 40));
    assert_eq!((b.upf.stats.dropped(DropReason::Spoofed), b.upf.n6.len()), (1, 0));
    // A packet of a lean entry that needs the slow path still takes it.
    b.set_downlink(|rule| rule.action = Action::Buffer { notify: true });
    b.upf.receive_n6(&down, NOW);
    assert_eq!(b.upf.events.pop(), Some(Event::DownlinkData { session: 7, pdr: 2 }));
    b.set_uplink(|rule| rule.gate_open = false);
    b.send_up(&up);
    assert_eq!(b.upf.stats.dropped(DropReason::GateClosed), 1);
}
