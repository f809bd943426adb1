//! Sessions with flow rules: their part of the table, and their special cases.

use super::packets::{packet, with_checksum};
use super::table::{FLOW, UDP, down, g_pdu, host, rules, up};
use super::*;
use crate::{Event, FlowPackets, FlowRule, FlowSessions, Marking, Quota, SessionFlows, Source, Target};
use crate::{Filter, Network};
use vireo_wire::gtpu::PduSession;

/// Numbers in [`rules`] of the session with all kinds of filters, and of the one with a framed
/// route.
pub(super) const FILTERED: u8 = 7;
pub(super) const FRAMED: u8 = 8;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ESP: u8 = 50;
const GRE: u8 = 47;
const ANY: u8 = 99;

fn rule(pdr: u16, source: Source, filters: Vec<Filter>, target: Target) -> FlowRule {
    let uplink = source != Source::DataNetwork;
    let (rates, meters) = (vec![], vec![1]);
    FlowRule { pdr, source, uplink, flows: ALL_FLOWS, filters, gate_open: true, target, rates, meters }
}

fn into(teid: u32, address: IpAddr, marked: Option<PduSession>) -> Target {
    let marking = marked.map_or(Marking::Received, Marking::Set);
    Target::Tunnel { tunnel: Tunnel { teid: Teid(teid), address }, marking }
}

fn protocol(protocol: u8) -> Filter {
    Filter { protocol: Some(protocol), ..Filter::default() }
}

fn remote(address: IpAddr, length: u8) -> Option<Network> {
    Some(Network { address, length })
}

/// Returns a filter for UDP with these ports in the data network.
fn ports(ports: &[std::ops::RangeInclusive<u16>]) -> Filter {
    Filter { remote_ports: ports.to_vec(), ..protocol(UDP) }
}

/// Returns the flow rules of [`FILTERED`] and [`FRAMED`].
pub(super) fn flows(t: &[Teid]) -> [(u8, SessionFlows); 2] {
    let from = Source::Tunnel(t[usize::from(FILTERED)]);
    // The server is the other one of two.
    let of_server = |address: &str, length| {
        let address = address.parse().expect("an address");
        Filter { remote: remote(address, length), ..ports(&[53..=53]) }
    };
    let up = |pdr, filters, target| rule(pdr, from, filters, target);
    let fast = Rate::from_kbps(100_000_000);
    let mut filtered = vec![
        up(1, vec![of_server("198.51.100.6", 31), of_server("2001:db8:6::6", 127)], Target::DataNetwork),
        FlowRule { gate_open: false, ..up(2, vec![protocol(TCP)], Target::DataNetwork) },
        up(3, vec![protocol(ICMP)], Target::Drop),
        up(4, vec![ports(&[5000..=5100, 6000..=6000])], into(0x99, GNB[1], None)),
        up(5, vec![Filter { local_ports: vec![7000..=7000], ..Filter::default() }], {
            into(0x9a, GNB[0], Some(PduSession::Uplink { qfi: 5 }))
        }),
        FlowRule { flows: 1 << 9, ..up(6, vec![ports(&[8000..=8000])], Target::DataNetwork) },
        FlowRule {
            rates: vec![(7, fast), (8, Rate::from_kbps(0))],
            ..up(7, vec![Filter { spi: Some(0x0102_0304), ..Filter::default() }], Target::DataNetwork)
        },
        up(8, vec![Filter { flow_label: Some(0xabcde), ..Filter::default() }], Target::DataNetwork),
        up(9, vec![Filter { traffic_class: Some((0x28, 0xfc)), ..Filter::default() }], Target::DataNetwork),
        FlowRule {
            uplink: false,
            ..up(17, vec![ports(&[9000..=9000])], {
                Target::Tunnel { tunnel: Tunnel { teid: Teid(0x9b), address: GNB[0] }, marking: Marking::Absent }
            })
        },
        FlowRule {
            uplink: false,
            ..up(10, vec![protocol(GRE)], into(0xbee7, GNB[0], Some(PduSession::Downlink { qfi: 9, rqi: false })))
        },
    ];
    filtered[0].rates = vec![(7, fast)];
    filtered[3].meters = vec![2, 1];
    let dn = |pdr, filters, target| rule(pdr, Source::DataNetwork, filters, target);
    let marked = |qfi, rqi| Some(PduSession::Downlink { qfi, rqi });
    filtered.extend([
        dn(11, vec![ports(&[53..=53])], into(0xd45, GNB[0], marked(1, false))),
        FlowRule {
            rates: vec![(7, fast)],
            ..dn(12, vec![ports(&[5000..=5100])], into(0xd46, GNB[1], marked(3, true)))
        },
        dn(13, vec![protocol(TCP)], into(0xd47, GNB[0], None)),
        dn(14, vec![protocol(ICMP)], Target::Drop),
        dn(15, vec![protocol(GRE)], Target::Buffer { notify: true }),
        FlowRule { gate_open: false, ..dn(16, vec![protocol(ESP)], Target::Buffer { notify: true }) },
    ]);
    let meters = vec![(1, Quota::default()), (2, Quota::default())];
    let filtered = SessionFlows { rules: filtered, meters: meters.clone(), framed: vec![] };
    let framed = SessionFlows {
        rules: vec![
            rule(1, Source::Tunnel(t[usize::from(FRAMED)]), vec![], Target::DataNetwork),
            dn(2, vec![], into(0xd48, GNB[0], marked(9, false))),
        ],
        meters,
        framed: vec![Network { address: behind(0), length: 24 }, Network { address: behind(1), length: 60 }],
    };
    [(FILTERED, filtered), (FRAMED, framed)]
}

fn behind(family: usize) -> IpAddr {
    [Ipv4Addr::new(10, 99, 1, 5).into(), Ipv6Addr::new(0x2001, 0xdb8, 0x99, 5, 0, 0, 0, 1).into()][family]
}

/// Returns an uplink packet of the session between these ports.
fn up_from(protocol: u8, [local, remote]: [u16; 2]) -> Vec<u8> {
    let payload = [local.to_be_bytes(), remote.to_be_bytes(), *b"ab"].concat();
    packet(ue(FILTERED).ipv4.expect("one").into(), SERVER[0], protocol, 64, &payload)
}

fn end_marker(teid: Teid) -> Vec<u8> {
    let mut octets = [0; vireo_wire::gtpu::SIGNALLING_OCTETS];
    vireo_wire::gtpu::end_marker(&mut octets, teid).expect("short").to_vec()
}

fn down_from(protocol: u8, remote: u16) -> Vec<u8> {
    let payload = [remote.to_be_bytes(), 4000_u16.to_be_bytes(), *b"ab"].concat();
    packet(SERVER[0], ue(FILTERED).ipv4.expect("one").into(), protocol, 64, &payload)
}

fn with(mut packet: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    changes.iter().for_each(|(at, octet)| packet[*at] = *octet);
    if packet[0] >> 4 == 4 {
        with_checksum(&mut packet);
    }
    packet
}

/// Returns datagrams from the RAN to these sessions.
pub(super) fn from_the_ran(t: &[Teid]) -> Vec<(&'static str, Vec<u8>, Done)> {
    let teid = t[usize::from(FILTERED)];
    let by = |inner: &[u8]| g_pdu(teid, FLOW, inner);
    let v6 = |to: IpAddr, payload: &[u8]| packet(host(FILTERED), to, UDP, 64, payload);
    let dns = up_from(UDP, [4000, 53]);
    let label = |octet| with(v6(SERVER[1], b"x"), &[(1, 0x0a), (2, 0xbc), (3, octet)]);
    let no_rule = Done::Dropped(DropReason::NoRule);
    let esp = packet(ue(FILTERED).ipv4.expect("one").into(), SERVER[0], ESP, 64, &[1, 2, 3, 4, 5]);
    let mut relayed = up_from(UDP, [4000, 6000]);
    relayed[12..16].copy_from_slice(&[10, 9, 9, 9]);
    vec![
        ("rules: a filter", by(&dns), Done::Sent),
        ("rules: without a container", g_pdu(teid, None, &dns), Done::Sent),
        ("rules: followed by padding", by(&[&dns[..], &[0; 5]].concat()), Done::Sent),
        ("rules: another's address", by(&with(dns.clone(), &[(15, 99)])), Done::Dropped(DropReason::Spoofed)),
        ("rules: another host", by(&with(dns.clone(), &[(19, 8)])), no_rule),
        ("rules: a later fragment", by(&with(dns.clone(), &[(7, 9)])), no_rule),
        ("rules: a first fragment", by(&with(dns.clone(), &[(6, 0x20)])), Done::Sent),
        ("options, rules", by(&with(dns.clone(), &[(0, 0x46)])), Done::Passed),
        ("rules: longer than it is", by(&with(dns.clone(), &[(3, 27)])), Done::Dropped(DropReason::InnerMalformed)),
        ("rules: no packet", by(&[]), Done::Dropped(DropReason::InnerMalformed)),
        ("the last hop, rules", by(&with(dns.clone(), &[(8, 1)])), Done::Passed),
        ("rules: IPv6, a prefix of 127", by(&v6(SERVER[1], &[0x0f, 0xa0, 0, 53])), Done::Sent),
        ("rules: IPv6, too short for ports", by(&v6(SERVER[1], &[0x0f, 0xa0, 0])), no_rule),
        ("rules: a closed gate", by(&up_from(TCP, [4000, 80])), Done::Dropped(DropReason::GateClosed)),
        ("rules: a rule that drops", by(&up_from(ICMP, [0x0800, 0])), Done::Dropped(DropReason::Action)),
        ("rules: to another UPF, by IPv6", by(&up_from(UDP, [4000, 5050])), Done::Sent),
        ("rules: which looks whose it is", by(&with(relayed, &[])), Done::Sent),
        ("rules: one without a container", g_pdu(teid, None, &up_from(UDP, [4000, 6000])), Done::Sent),
        (
            "rules: one with the other container",
            g_pdu(teid, Some(PduSession::Downlink { qfi: 3, rqi: true }), &up_from(UDP, [4000, 5100])),
            Done::Sent,
        ),
        ("rules: one that loses its container", by(&up_from(UDP, [9000, 4000])), Done::Sent),
        ("rules: the end marker of a relay", end_marker(teid), Done::Passed),
        ("the end marker of a session", end_marker(t[0]), Done::Passed),
        ("rules: on its last hop", by(&with(up_from(UDP, [4000, 5000]), &[(8, 1)])), Done::Sent),
        ("rules: a port between", by(&up_from(UDP, [4000, 5101])), no_rule),
        ("rules: to another UPF, marked", by(&up_from(132, [7000, 1])), Done::Sent),
        ("rules: a flow", by(&up_from(UDP, [4000, 8000])), Done::Sent),
        ("rules: no flow", g_pdu(teid, None, &up_from(UDP, [4000, 8000])), no_rule),
        ("rules: an SPI, and a rate of nothing", by(&esp), Done::Dropped(DropReason::RateExceeded)),
        ("rules: a flow label", by(&label(0xde)), Done::Sent),
        ("rules: another flow label", by(&label(0xdf)), no_rule),
        ("rules: a traffic class", by(&with(up_from(ANY, [0, 0]), &[(1, 0x2a)])), Done::Sent),
        ("rules: another", by(&with(up_from(ANY, [0, 0]), &[(1, 0x2c)])), no_rule),
        ("rules: back from another UPF", by(&up_from(GRE, [0, 0])), Done::Sent),
        ("rules: all of it", g_pdu(t[usize::from(FRAMED)], FLOW, &up(FRAMED, b"x")), Done::Sent),
        (
            "rules: neither the UE's nor from behind it",
            g_pdu(t[usize::from(FRAMED)], FLOW, &up(FILTERED, b"x")),
            Done::Passed,
        ),
        (
            "behind the UE, uplink",
            g_pdu(t[usize::from(FRAMED)], FLOW, &packet(behind(0), SERVER[0], UDP, 64, b"x")),
            Done::Sent,
        ),
        (
            "behind the UE, uplink",
            g_pdu(t[usize::from(FRAMED)], FLOW, &packet(behind(1), SERVER[1], UDP, 64, b"x")),
            Done::Sent,
        ),
        (
            "behind another UE, uplink",
            g_pdu(t[usize::from(FILTERED)], FLOW, &with(dns, &[(13, 99), (14, 1)])),
            Done::Dropped(DropReason::Spoofed),
        ),
    ]
}

/// Returns packets from the data network to these sessions.
pub(super) fn from_the_data_network() -> Vec<(&'static str, Vec<u8>, Done)> {
    let dns = down_from(UDP, 53);
    vec![
        ("rules: a filter", dns.clone(), Done::Sent),
        ("rules: into IPv6, reflective", down_from(UDP, 5100), Done::Sent),
        ("rules: without a container", down_from(TCP, 1), Done::Sent),
        ("rules: a later fragment", with(dns.clone(), &[(7, 9)]), Done::Dropped(DropReason::NoRule)),
        ("rules: no rule", down_from(UDP, 54), Done::Dropped(DropReason::NoRule)),
        ("rules: a rule that drops", down_from(ICMP, 0), Done::Dropped(DropReason::Action)),
        ("rules: a closed gate", down_from(ESP, 0), Done::Dropped(DropReason::GateClosed)),
        ("rules: to be kept", down_from(GRE, 0), Done::Passed),
        ("the last hop", with(dns, &[(8, 1)]), Done::Passed),
        ("rules: all of it", down(FRAMED, b"x"), Done::Sent),
        ("behind the UE", packet(SERVER[0], behind(0), UDP, 64, b"x"), Done::Sent),
        ("behind the UE", packet(SERVER[1], behind(1), UDP, 64, b"six"), Done::Sent),
        ("behind the UE, too long", packet(SERVER[0], behind(0), UDP, 64, &[7; 1381]), Done::Passed),
        ("behind the UE, on the last hop", packet(SERVER[0], behind(0), UDP, 1, b"x"), Done::Passed),
        (
            "behind the UE, a redirect",
            packet(SERVER[0], behind(0), ICMP, 64, &[5; 8]),
            Done::Dropped(DropReason::LinkLocal),
        ),
        (
            "behind the UE, not there",
            packet(SERVER[0], Ipv4Addr::new(10, 99, 2, 5).into(), UDP, 64, b"x"),
            Done::Passed,
        ),
    ]
}

fn bench() -> Bench {
    let mut b = Bench::new(&rules()).expect("loaded");
    let teids = b.teids.clone();
    flows(&teids).into_iter().for_each(|(n, flows)| b.set_flows(n, Some(&flows)));
    b
}

impl Bench {
    /// Sets or removes the flow rules of a session.
    pub(super) fn set_flows(&mut self, n: u8, flows: Option<&SessionFlows>) {
        let (teid, id) = (self.teids[usize::from(n)], self.downlinks[usize::from(n)]);
        for memory in self.memories() {
            memory.change(|tables, released| {
                tables.set_flows(n.into(), flows.cloned(), &[teid], &[id], released);
            });
        }
        self.forget();
    }
}

#[test]
fn rules_decide_in_the_kernel() {
    in_namespace(|| {
        let mut b = bench();
        let teids = b.teids.clone();
        assert_eq!(b.behind.tables.flow_sessions(), FlowSessions { all: 2, in_kernel: 2 });
        b.check_n3(&from_the_ran(&teids));
        for (name, packet, expected) in &from_the_data_network() {
            for padding in [0, 3] {
                assert_eq!(b.receive_n6(packet, padding), *expected, "{name}");
            }
        }
        let FlowPackets { decided, punted: left } = b.xdp.counters().flow_packets();
        assert!(decided > 100 && (10..40).contains(&left), "{decided} {left}");
    });
}

#[test]
fn quota_is_reported_once_and_held_in_kernel() {
    in_namespace(|| {
        let mut b = bench();
        let teids = b.teids.clone();
        let [(n, mut flows), _] = super::flows::flows(&teids);
        let dns = g_pdu(teids[usize::from(n)], FLOW, &up_from(UDP, [4000, 53]));
        let answer = down_from(UDP, 53);
        flows.meters[0].1.total = Some(52);
        for round in [Some(52), Some(104)] {
            flows.meters[0].1.total = round;
            b.set_flows(n, Some(&flows));
            assert_eq!((b.receive_n3(GNB[0], &dns, 0), b.receive_n6(&answer, 0)), (Done::Sent, Done::Sent));
            assert_eq!(b.receive_n6(&answer, 0), Done::Passed);
            assert_eq!(b.reference.events, [Event::Volume { session: n.into() }]);
            let spent = Done::Dropped(DropReason::QuotaSpent);
            assert_eq!((b.receive_n3(GNB[0], &dns, 0), b.receive_n6(&answer, 0)), (spent, spent));
        }
        // Quota of one direction.
        flows.meters[0].1 = Quota { downlink: Some(78), ..Quota::default() };
        b.set_flows(n, Some(&flows));
        assert_eq!((b.receive_n6(&answer, 0), b.receive_n6(&answer, 0)), (Done::Sent, Done::Passed));
        assert_eq!(b.receive_n3(GNB[0], &dns, 0), Done::Sent);
        assert_eq!(b.reference.tables.metered(n.into(), 1).map(|m| m.uplink.octets + m.downlink.octets), Some(26 * 6));
    });
}

#[test]
fn watched_meter_punts_packet() {
    in_namespace(|| {
        let mut b = bench();
        let teid = b.teids[usize::from(FILTERED)];
        b.change(|tables| tables.watch_meters(FILTERED.into(), 7));
        let dns = g_pdu(teid, FLOW, &up_from(UDP, [4000, 53]));
        // Packets of 26 octets each: the fifth passes 128, the tenth 256.
        for n in 1..=10 {
            let expected = if n % 5 == 0 { Done::Passed } else { Done::Sent };
            assert_eq!(b.receive_n3(GNB[0], &dns, 0), expected, "{n}");
            assert_eq!(b.reference.events.len(), usize::from(n % 5 == 0));
        }
    });
}

#[test]
fn rules_beyond_program_are_punted_and_counted() {
    in_namespace(|| {
        let mut b = bench();
        let teids = b.teids.clone();
        let [(n, flows), _] = super::flows::flows(&teids);
        let dns = g_pdu(teids[usize::from(n)], FLOW, &up_from(UDP, [4000, 53]));
        let mut long = flows.clone();
        long.rules[1].filters = (0..64).map(protocol).collect();
        let mut counted = flows.clone();
        counted.rules[0].meters = (1..6).collect();
        counted.meters = (1..6).map(|urr| (urr, Quota::default())).collect();
        let mut rated = flows.clone();
        rated.rules[0].rates = (1..4).map(|qer| (qer, Rate::from_kbps(100_000_000))).collect();
        for complex in [long, counted, rated] {
            b.set_flows(n, Some(&complex));
            assert_eq!(b.behind.tables.flow_sessions(), FlowSessions { all: 2, in_kernel: 1 });
            let FlowPackets { punted, .. } = b.xdp.counters().flow_packets();
            assert_eq!(b.receive_n3(GNB[0], &dns, 0), Done::Passed);
            assert_eq!(b.xdp.counters().flow_packets().punted, punted + 1);
            b.set_flows(n, Some(&flows));
            assert_eq!((b.behind.tables.flow_sessions().in_kernel, b.receive_n3(GNB[0], &dns, 0)), (2, Done::Sent));
        }
    });
}

#[test]
fn refused_rules_are_offloaded_later() {
    in_namespace(|| {
        let mut b = bench();
        let teids = b.teids.clone();
        let [(n, flows), _] = super::flows::flows(&teids);
        let dns = g_pdu(teids[usize::from(n)], FLOW, &up_from(UDP, [4000, 53]));
        // A new rule list each time, so that cells are freed and not yet reusable.
        let mut changed = flows.clone();
        for pdr in 0..100 {
            changed.rules[0].pdr = pdr;
            b.set_flows(n, Some(&changed));
        }
        assert_eq!(b.behind.tables.flow_sessions().in_kernel, 1);
        assert_eq!(b.receive_n3(GNB[0], &dns, 0), Done::Passed);
        b.change(Tables::maintain_cells);
        assert_eq!(b.behind.tables.flow_sessions().in_kernel, 1, "a program may still read them");
        b.change(Tables::maintain_cells);
        assert_eq!(b.behind.tables.flow_sessions().in_kernel, 2);
        assert_eq!(b.receive_n3(GNB[0], &dns, 0), Done::Sent);
        // Without flow rules, the session uses its entries again.
        b.set_flows(n, None);
        assert_eq!(b.receive_n3(GNB[0], &dns, 0), Done::Sent);
        assert_eq!(b.behind.tables.flow_sessions(), FlowSessions { all: 1, in_kernel: 1 });
    });
}

#[test]
fn rule_rate_is_shared_with_user_space() {
    in_namespace(|| {
        let mut b = bench();
        let teids = b.teids.clone();
        let [(n, mut flows), _] = super::flows::flows(&teids);
        flows.rules.iter_mut().filter(|rule| matches!(rule.pdr, 1 | 4)).for_each(|rule| {
            rule.rates = vec![(7, Rate::from_kbps(8))];
        });
        b.set_flows(n, Some(&flows));
        let frame = |port| {
            let datagram = g_pdu(teids[usize::from(n)], FLOW, &up_from(UDP, [4000, port]));
            super::frame(mac(3, 9), mac(3, 1), &packets::tunnelled(GNB[0], UPF[0], &datagram))
        };
        // 26 octets at 8 kbit/s take 26 ms, and the tolerance is 3 s: two rules share it, and user
        // space does too.
        let start = crate::sys::clock::monotonic_ns();
        let kernel = |b: &mut Bench, port| (0..60).filter(|_| b.run(&frame(port)).0 == 4).count();
        let (first, second) = (kernel(&mut b, 53), kernel(&mut b, 6000));
        let now = Instant(crate::sys::clock::monotonic_ns() / 1_000);
        b.forget();
        let datagram = g_pdu(teids[usize::from(n)], FLOW, &up_from(UDP, [4000, 53]));
        for _ in 0..60 {
            b.behind.receive_n3(SocketAddr::new(GNB[0], 2152), &datagram, now);
        }
        let third = b.behind.n6.len();
        let refilled = (crate::sys::clock::monotonic_ns() - start) / 26_000_000 + 1;
        let passed = (first + second + third) as u64;
        assert_eq!(first, 60);
        assert!((115..=117 + refilled).contains(&passed), "{first} {second} {third}");
        assert!(b.counted().dropped(DropReason::RateExceeded) + b.behind.stats.dropped(DropReason::RateExceeded) > 55);
    });
}

#[test]
fn framed_route_points_to_ue_while_set() {
    in_namespace(|| {
        let mut b = bench();
        let teids = b.teids.clone();
        let [(other, mut rules), (n, flows)] = super::flows::flows(&teids);
        let down = packet(SERVER[0], behind(0), UDP, 64, b"x");
        let ip = |arguments: &str| {
            let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip, of iproute2");
            assert!(status.success(), "ip {arguments}");
        };
        assert_eq!(b.receive_n6(&down, 0), Done::Sent);
        ip("route add 10.99.1.0/24 dev n6");
        assert_eq!(b.receive_n6(&down, 0), Done::Passed, "it is not for us");
        ip("route del 10.99.1.0/24 dev n6");
        assert_eq!(b.receive_n6(&down, 0), Done::Sent);
        // If two UEs have a route, the first one gets its packets, then the other. A longer prefix
        // precedes.
        rules.framed = vec![Network { address: behind(0), length: 24 }];
        b.set_flows(other, Some(&rules));
        assert_eq!(b.receive_n6(&down, 0), Done::Sent);
        b.set_flows(n, None);
        assert_eq!(b.receive_n6(&down, 0), Done::Dropped(DropReason::NoRule));
        let mut longer = flows.clone();
        longer.framed = vec![Network { address: behind(0), length: 30 }];
        b.set_flows(n, Some(&longer));
        assert_eq!(b.receive_n6(&down, 0), Done::Sent);
        b.set_flows(other, None);
        b.set_flows(n, None);
        assert_eq!(b.receive_n6(&down, 0), Done::Passed);
    });
}

/// As in [`super::life`]: the program applies one list or the other, though their cells are reused
/// at once.
#[test]
fn packet_uses_one_rule_list() {
    in_namespace(|| {
        let mut b = bench();
        let (teid, id) = (b.teids[usize::from(FILTERED)], b.downlinks[usize::from(FILTERED)]);
        let with = |n: u8| {
            let (number, marked) = (u32::from(n) * 0x0101_0101, Some(PduSession::Downlink { qfi: n, rqi: false }));
            let dn = |filters, target| rule(1, Source::DataNetwork, filters, target);
            let rules = vec![
                dn(vec![protocol(TCP)], Target::Drop),
                dn(vec![ports(&[u16::from(n)..=53])], into(number, GNB[0], marked)),
            ];
            Some(SessionFlows { rules, meters: vec![(1, Quota::default())], framed: vec![] })
        };
        let frame = super::frame(mac(6, 7), mac(6, 1), &down_from(UDP, 53));
        super::life::meets_one(&mut b, &frame, |tables, n| {
            tables.set_flows(FILTERED.into(), with(n), &[teid], &[id], &mut Default::default());
            tables.maintain_cells();
        });
    });
}
