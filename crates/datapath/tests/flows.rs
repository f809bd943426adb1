//! Tests of sessions with flow rules, in memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_datapath::*;
use vireo_types::{Instant, SessionAddress, Teid};
use vireo_wire::gtpu::{self, PduSession};

const UPF: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const GNB: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
const FAR_UPF: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 99, 1, 5);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const SESSION: u64 = 7;
const NOW: Instant = Instant(1_000_000_000);
const DNS: u16 = 53;
const WEB: u16 = 80;

struct Bench {
    upf: Memory,
    teid: Teid,
    downlink: DownlinkId,
    flows: SessionFlows,
}

/// Sets the checksum of an IPv4 header of 20 octets.
fn with_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let words = packet[..20].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let checksum = !(words.sum::<u32>() % 0xffff) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn udp(source: Ipv4Addr, destination: Ipv4Addr, ports: [u16; 2], octets: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&octets.to_be_bytes());
    packet.extend(source.octets());
    packet.extend(destination.octets());
    ports.iter().for_each(|port| packet.extend(port.to_be_bytes()));
    packet.resize(usize::from(octets), 0xa5);
    with_checksum(&mut packet);
    packet
}

fn up(port: u16, octets: u16) -> Vec<u8> {
    udp(UE, SERVER, [4000, port], octets)
}

fn down(port: u16, octets: u16) -> Vec<u8> {
    udp(SERVER, UE, [port, 4000], octets)
}

fn to_gnb(teid: u32, qfi: u8) -> Target {
    let tunnel = Tunnel { teid: Teid(teid), address: GNB };
    Target::Tunnel { tunnel, marking: Marking::Set(PduSession::Downlink { qfi, rqi: false }) }
}

/// Returns the rules of both directions for one kind of packets.
fn pair(pdr: u16, teid: Teid, port: Option<u16>, [up, down]: [Target; 2], meter: u32) -> [FlowRule; 2] {
    let filter = |port| Filter { protocol: Some(17), remote_ports: vec![port..=port], ..Filter::default() };
    let uplink = FlowRule {
        pdr,
        source: Source::Tunnel(teid),
        uplink: true,
        flows: ALL_FLOWS,
        filters: port.map(filter).into_iter().collect(),
        gate_open: true,
        target: up,
        rates: vec![],
        meters: vec![meter],
    };
    let downlink =
        FlowRule { pdr: pdr + 1, source: Source::DataNetwork, uplink: false, target: down, ..uplink.clone() };
    [uplink, downlink]
}

/// Creates a session with DNS in QoS flow 1 through a separate tunnel, and all other packets in
/// flow 9.
fn bench() -> Bench {
    bench_with(Limits::default())
}

fn bench_with(limits: Limits) -> Bench {
    let pool = |network: [u8; 4]| Pool { ipv4: Some((network.into(), 16)), mtu: 1400, ..Pool::default() };
    let mut tables = Tables::new(vec![pool([10, 45, 0, 0]), pool([10, 99, 0, 0])], limits);
    let ue = SessionAddress { ipv4: Some(UE), ipv6_prefix: None };
    let rule = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::UNLIMITED };
    let teid = tables.add_uplink(None, rule).expect("room");
    let downlink = tables.add_downlink(ue, SESSION).expect("room");
    let dns = pair(1, teid, Some(DNS), [Target::DataNetwork, to_gnb(0xd45, 1)], 1);
    let others = pair(3, teid, None, [Target::DataNetwork, to_gnb(0xeee, 9)], 2);
    let flows = SessionFlows {
        rules: dns.into_iter().chain(others).collect(),
        meters: vec![(1, Quota::default()), (2, Quota::default())],
        framed: vec![],
    };
    let mut bench = Bench { upf: Memory::new(tables, UPF), teid, downlink, flows };
    bench.apply();
    bench
}

impl Bench {
    fn apply(&mut self) {
        let (flows, teid, downlink) = (Some(self.flows.clone()), self.teid, self.downlink);
        self.upf.change(|tables, released| tables.set_flows(SESSION, flows, &[teid], &[downlink], released));
    }

    fn send_up(&mut self, qfi: u8, packet: &[u8]) {
        let mut datagram =
            gtpu::g_pdu_header(self.teid, PduSession::Uplink { qfi }, packet.len()).expect("short").to_vec();
        datagram.extend(packet);
        self.upf.receive_n3(SocketAddr::new(GNB, 2152), &datagram, NOW);
    }

    /// Returns the datagrams sent on N3 since the last call: address, tunnel, flow and packet.
    fn tunnelled(&mut self) -> Vec<(IpAddr, u32, Option<u8>, Vec<u8>)> {
        let sent = std::mem::take(&mut self.upf.n3);
        let read = |(to, datagram): &(SocketAddr, Vec<u8>)| {
            let packet = gtpu::Packet::parse(datagram).expect("sound");
            (to.ip(), packet.teid.0, packet.pdu_session.map(PduSession::qfi), packet.payload.to_vec())
        };
        sent.iter().map(read).collect()
    }

    fn octets(&self, urr: u32) -> (u64, u64) {
        let metered = self.upf.tables.metered(SESSION, urr).expect("a meter");
        (metered.uplink.octets, metered.downlink.octets)
    }
}

#[test]
fn first_matching_rule_applies() {
    let mut b = bench();
    b.send_up(9, &up(DNS, 60));
    b.send_up(9, &up(WEB, 100));
    assert_eq!(b.upf.n6, [up(DNS, 60), up(WEB, 100)]);
    for port in [DNS, WEB] {
        b.upf.receive_n6(&down(port, 80), NOW);
    }
    let expected = [(GNB, 0xd45, Some(1), down(DNS, 80)), (GNB, 0xeee, Some(9), down(WEB, 80))];
    assert_eq!(b.tunnelled(), expected);
    assert_eq!((b.octets(1), b.octets(2)), ((60, 80), (100, 80)));
    // Flow rules also restrict the UE to its address.
    b.send_up(9, &udp(BEHIND, SERVER, [4000, WEB], 60));
    assert_eq!(b.upf.stats.dropped(DropReason::Spoofed), 1);
    // Without the last rules, only DNS matches; counters stay.
    b.flows.rules.truncate(2);
    b.apply();
    b.send_up(9, &up(WEB, 100));
    b.upf.receive_n6(&down(WEB, 100), NOW);
    assert_eq!((b.upf.stats.dropped(DropReason::NoRule), b.octets(1)), (2, (60, 80)));
}

#[test]
fn flows_gates_and_shared_rates_hold() {
    let mut b = bench();
    b.flows.rules[0].flows = 1 << 5;
    b.flows.rules[2].flows = 1 << 9;
    b.flows.rules[2].gate_open = false;
    b.apply();
    b.send_up(5, &up(DNS, 60));
    b.send_up(9, &up(DNS, 60));
    b.send_up(8, &up(DNS, 60));
    assert_eq!((b.upf.n6.len(), b.octets(1), b.octets(2)), (1, (60, 0), (0, 0)));
    assert_eq!((b.upf.stats.dropped(DropReason::GateClosed), b.upf.stats.dropped(DropReason::NoRule)), (1, 1));
    // Two rules with one QER share its rate.
    for rule in &mut b.flows.rules {
        rule.rates = vec![(4, Rate::from_kbps(80))];
    }
    b.apply();
    for n in 0..100 {
        b.upf.receive_n6(&down(if n % 2 == 0 { DNS } else { WEB }, 1000), NOW);
    }
    let sent = b.tunnelled();
    assert!((2..=5).contains(&sent.len()), "{} passed", sent.len());
    assert!(sent.iter().any(|(_, teid, ..)| *teid == 0xd45) && sent.iter().any(|(_, teid, ..)| *teid == 0xeee));
}

#[test]
fn spent_quota_stops_its_packets_only() {
    let mut b = bench();
    b.flows.meters[1].1 = Quota { total: Some(250), ..Quota::default() };
    b.apply();
    for _ in 0..5 {
        b.send_up(9, &up(WEB, 100));
        b.send_up(9, &up(DNS, 60));
    }
    assert_eq!((b.octets(1), b.octets(2)), ((300, 0), (300, 0)));
    b.upf.receive_n6(&down(WEB, 60), NOW);
    assert_eq!((b.upf.stats.dropped(DropReason::QuotaSpent), b.tunnelled()), (3, vec![]));
    // A larger quota permits packets again.
    b.flows.meters[1].1 = Quota { total: Some(1000), downlink: Some(100), ..Quota::default() };
    b.apply();
    for _ in 0..3 {
        b.upf.receive_n6(&down(WEB, 60), NOW);
    }
    b.send_up(9, &up(WEB, 100));
    assert_eq!(b.octets(2), (400, 120));
}

#[test]
fn buffered_packets_leave_by_new_rules() {
    let mut b = bench();
    for rule in b.flows.rules.iter_mut().filter(|rule| !rule.uplink) {
        rule.target = Target::Buffer { notify: true };
    }
    b.apply();
    for port in [DNS, WEB, DNS] {
        b.upf.receive_n6(&down(port, 80), NOW);
    }
    assert_eq!(b.upf.events, [Event::DownlinkData { session: SESSION, pdr: 2 }]);
    b.flows.rules[1].target = to_gnb(0xd45, 1);
    b.apply();
    assert_eq!(b.tunnelled().iter().map(|(_, teid, ..)| *teid).collect::<Vec<_>>(), [0xd45, 0xd45]);
    assert_eq!(b.upf.tables.buffered_octets(), 80);
    b.flows.rules[3].target = to_gnb(0xeee, 9);
    b.apply();
    assert_eq!(b.tunnelled(), [(GNB, 0xeee, Some(9), down(WEB, 80))]);
    assert_eq!(b.upf.tables.buffered_octets(), 0);
}

#[test]
fn packet_without_room_is_reported() {
    let buffer = BufferLimits { octets: 100, ..BufferLimits::default() };
    let mut b = bench_with(Limits { buffer, ..Limits::default() });
    b.flows.rules[3].target = Target::Buffer { notify: true };
    b.apply();
    for octets in [120, 120, 80] {
        b.upf.receive_n6(&down(WEB, octets), NOW);
    }
    assert_eq!(b.upf.events, [Event::DownlinkData { session: SESSION, pdr: 4 }]);
    assert_eq!((b.upf.stats.dropped(DropReason::BufferFull), b.upf.stats.buffered), (2, 1));
}

#[test]
fn packets_are_relayed_to_and_from_other_upf() {
    let mut b = bench();
    let tunnel = Tunnel { teid: Teid(0x99), address: FAR_UPF };
    b.flows.rules[2].target = Target::Tunnel { tunnel, marking: Marking::Received };
    b.apply();
    // The far UPF checks the source of the packets.
    b.send_up(9, &udp(BEHIND, SERVER, [1, WEB], 60));
    assert_eq!(b.tunnelled(), [(FAR_UPF, 0x99, Some(9), udp(BEHIND, SERVER, [1, WEB], 60))]);
    assert!(b.upf.n6.is_empty() && b.upf.stats.uplink.packets == 1);
    let back = FlowRule { uplink: false, target: to_gnb(0xeee, 9), ..b.flows.rules[2].clone() };
    b.flows.rules = vec![back];
    b.apply();
    b.send_up(9, &down(WEB, 60));
    assert_eq!((b.tunnelled(), b.octets(2).1), (vec![(GNB, 0xeee, Some(9), down(WEB, 60))], 60));
}

#[test]
fn framed_network_belongs_to_ue() {
    let mut b = bench();
    b.upf.receive_n6(&udp(SERVER, BEHIND, [WEB, 4000], 60), NOW);
    assert_eq!(b.upf.stats.dropped(DropReason::UnknownUe), 1);
    b.flows.framed = vec![Network { address: Ipv4Addr::new(10, 99, 1, 0).into(), length: 24 }];
    b.apply();
    b.upf.receive_n6(&udp(SERVER, BEHIND, [WEB, 4000], 60), NOW);
    b.send_up(9, &udp(BEHIND, SERVER, [4000, WEB], 60));
    assert_eq!((b.tunnelled().len(), b.upf.n6.len()), (1, 1));
    // The entries alone apply again, and the framed route is removed.
    let (teid, downlink) = (b.teid, b.downlink);
    b.upf.change(|tables, released| tables.set_flows(SESSION, None, &[teid], &[downlink], released));
    b.send_up(9, &up(WEB, 60));
    b.send_up(9, &udp(BEHIND, SERVER, [4000, WEB], 60));
    b.upf.receive_n6(&udp(SERVER, BEHIND, [WEB, 4000], 60), NOW);
    assert_eq!((b.upf.n6.len(), b.upf.stats.dropped(DropReason::Spoofed)), (2, 1));
    assert_eq!((b.upf.stats.dropped(DropReason::UnknownUe), b.upf.tables.metered(SESSION, 1)), (2, None));
}
