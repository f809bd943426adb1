//! Random packets through the program and the reference.

use super::packets::{packet, with_checksum};
use super::*;
use crate::{Filter, FlowPackets, FlowRule, Marking, Network, Quota, SessionFlows, Source, Target};
use vireo_wire::gtpu::{self, PduSession};

/// SplitMix64: small, and the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

const SESSIONS: u8 = 12;

fn rules(r: &mut Random) -> Vec<(UplinkRule, DownlinkRule)> {
    let rules = (0..SESSIONS).map(|n| {
        let (mut up, mut down) = (uplink_rule(n), downlink_rule(n));
        let some = r.next();
        up.flows = r.pick(&[ALL_FLOWS, ALL_FLOWS, 1 << 9, some]);
        (up.gate_open, down.gate_open) = (!r.one_in(12), !r.one_in(12));
        up.forward = !r.one_in(12);
        up.mbr = r.pick(&[Rate::UNLIMITED, Rate::UNLIMITED, Rate::UNLIMITED, Rate::UNLIMITED, Rate::from_kbps(0)]);
        down.mbr = r.pick(&[Rate::UNLIMITED, Rate::UNLIMITED, Rate::UNLIMITED, Rate::UNLIMITED, Rate::from_kbps(0)]);
        down.qfi = r.pick(&[None, Some(9), Some(63), Some(0)]);
        down.rqi = r.one_in(2);
        let forward = Action::Forward;
        down.action = r.pick(&[forward, forward, forward, forward, Action::Drop, Action::Buffer { notify: true }]);
        let address = r.pick(&GNB);
        down.tunnel = (!r.one_in(8)).then_some(Tunnel { teid: Teid(r.next() as u32), address });
        match r.below(4) {
            0 => (up.ue.ipv4, _) = (None, ()),
            1 => (up.ue.ipv6_prefix, _) = (None, ()),
            _ => {}
        }
        (up, down)
    });
    rules.collect()
}

/// Returns a filter that some of the packets below match.
fn filter(r: &mut Random) -> Filter {
    let mut filter = Filter::default();
    let length = r.pick(&[0, 8, 24, 31, 32, 60, 64, 100, 127, 128]);
    let address = r.pick(&[SERVER[0], SERVER[0], SERVER[1], NOBODY[0], NOBODY[1]]);
    let from = r.next() as u16;
    let (low, high) = r.pick(&[(0, 0x7fff), (0x8000, 0xffff), (from, from.saturating_add(9_999))]);
    let port = low..=high;
    match r.below(9) {
        0 => filter.protocol = Some(r.pick(&[17, 6, 1, 58, 50])),
        1 => filter.remote = Some(Network { address, length }),
        2 => filter.remote_ports = vec![port],
        3 => filter.local_ports = vec![port, 5..=9],
        4 => filter.traffic_class = Some((r.pick(&[0x28, 0x2c, 0]), r.pick(&[0xff, 0xfc, 0]))),
        5 => filter.flow_label = Some(r.pick(&[0, 7, 0x10_0000])),
        6 => filter.spi = Some(0x0102_0304),
        7 => {
            let n = r.below(usize::from(SESSIONS)) as u8;
            filter.local = Some(Network { address: ue(n).ipv4.expect("one").into(), length: r.pick(&[30, 32]) });
        }
        _ => {
            (filter.protocol, filter.remote_ports, filter.local_ports) =
                (Some(r.pick(&[6, 17])), vec![port], vec![1..=0xfff0])
        }
    }
    filter
}

fn flow_rule(r: &mut Random, n: usize, teid: Teid) -> FlowRule {
    let by_tunnel = r.one_in(2);
    let tunnel = Tunnel { teid: Teid(r.next() as u32), address: r.pick(&GNB) };
    let (flow, rqi) = (r.pick(&[0, 9, 63]), r.one_in(2));
    let down = Marking::Set(PduSession::Downlink { qfi: flow, rqi });
    let up = Marking::Set(PduSession::Uplink { qfi: flow });
    let target = match (by_tunnel, r.below(8)) {
        (_, 0) => Target::Drop,
        (true, 1) => Target::Tunnel { tunnel, marking: Marking::Received },
        (true, 2) => Target::Tunnel { tunnel, marking: r.pick(&[down, up, Marking::Absent]) },
        (true, _) => Target::DataNetwork,
        (false, 1) => Target::Buffer { notify: r.one_in(2) },
        (false, _) => Target::Tunnel { tunnel, marking: r.pick(&[down, Marking::Received]) },
    };
    let fast = Rate::from_kbps(100_000_000);
    let rates: [&[(u32, Rate)]; 5] =
        [&[], &[(1, fast)], &[(2, Rate::UNLIMITED), (1, fast)], &[(1, fast), (3, fast)], &[(4, Rate::from_kbps(0))]];
    let meters: [&[u32]; 4] = [&[], &[1], &[3, 1], &[2]];
    let some = r.next();
    FlowRule {
        pdr: n as u16,
        source: if by_tunnel { Source::Tunnel(teid) } else { Source::DataNetwork },
        uplink: by_tunnel && !r.one_in(8),
        flows: r.pick(&[ALL_FLOWS, ALL_FLOWS, 1 << 9, some]),
        filters: (0..r.below(3)).map(|_| filter(r)).collect(),
        gate_open: !r.one_in(10),
        target,
        rates: r.pick(&rates).to_vec(),
        meters: r.pick(&meters).to_vec(),
    }
}

/// Returns flow rules of a session.
fn flows(r: &mut Random, teid: Teid) -> SessionFlows {
    let mut rules: Vec<_> = (0..2 + r.below(9)).map(|n| flow_rule(r, n, teid)).collect();
    // In most cases, a last rule for packets that match no other rule.
    for by_tunnel in [false, true] {
        let last = rules.iter().rev().find(|rule| (rule.source == Source::DataNetwork) != by_tunnel).cloned();
        if let (Some(last), false) = (last, r.one_in(3)) {
            rules.push(FlowRule { filters: vec![], flows: ALL_FLOWS, gate_open: true, rates: vec![], ..last });
        }
    }
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 5, 0, 0, 0, 0).into();
    let behind =
        [Network { address: Ipv4Addr::new(10, 99, 1, 0).into(), length: 24 }, Network { address: v6, length: 64 }];
    let mut quota = || {
        let octets = Some(r.below(4_000) as u64);
        r.pick(&[
            Quota::default(),
            Quota { total: octets, ..Quota::default() },
            Quota { uplink: octets, ..Quota::default() },
        ])
    };
    let meters = (1..4).map(|urr| (urr, quota())).collect();
    SessionFlows { rules, meters, framed: if r.one_in(3) { behind.to_vec() } else { vec![] } }
}

/// Returns an inner packet between a UE and a host, usually a valid one.
fn inner(r: &mut Random, uplink: bool) -> Vec<u8> {
    let v6 = usize::from(r.one_in(2));
    let n = r.below(usize::from(SESSIONS) + 1) as u8;
    let ue = match v6 {
        0 => IpAddr::from(Ipv4Addr::new(10, 45, 0, 2 + n)),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0x45, 2 + u16::from(n), 0, 0, 0, r.next() as u16).into(),
    };
    let ue = match r.one_in(10) {
        true => [IpAddr::from([10, 99, 1, 5]), Ipv6Addr::new(0x2001, 0xdb8, 0x99, 5, 0, 0, 0, 1).into()][v6],
        false => ue,
    };
    let other = match (v6, r.below(12)) {
        (1, 0) => r.pick(&["fe80::1", "ff02::2", "ff05::2", "::", "febf::1", "fec0::1"]).parse().expect("an address"),
        (_, 1) => NOBODY[v6],
        (_, 2) => r.pick(&[UPF[v6], GNB[v6]]),
        _ => SERVER[v6],
    };
    let (from, to) = if uplink { (ue, other) } else { (other, ue) };
    let (from, to) = if r.one_in(12) { (to, from) } else { (from, to) };
    let payload: Vec<u8> = (0..r.pick(&[0, 1, 8, 64, 100, 333, 500, 900, 1300, 1340, 1379, 1380, 1381, 1473]))
        .map(|_| r.next() as u8)
        .collect();
    let extension = r.pick(&[0, 43, 44, 60]);
    let protocol = r.pick(&[17, 17, 17, 17, 6, 6, 6, 1, 58, 59, 50, 50, extension]);
    let hops = r.pick(&[64, 64, 64, 64, 64, 255, 2, 1, 0]);
    let mut packet = packet(from, to, protocol, hops, &payload);
    let octets = packet.len();
    match r.below(24) {
        0 => packet[0] = r.next() as u8,
        1 => packet[2] = r.next() as u8 & 7,
        2 => packet[5] = packet[5].wrapping_add(1),
        3 => packet.truncate(r.below(octets)),
        4 => packet.extend([0; 7]),
        5 => packet[r.below(octets.min(20))] = r.next() as u8,
        6..10 if v6 == 0 => packet[1] = r.pick(&[0x28, 0x2c, 0x2a]),
        6..8 => packet[3] = 7,
        8..10 => (packet[0], packet[1]) = (0x62, 0x80),
        10 if v6 == 0 => packet[6] = 0x20,
        11 if v6 == 0 => packet[7] = 3,
        12 => packet.splice(octets - payload.len()..octets, [1, 2, 3, 4]).for_each(drop),
        _ => {}
    }
    if packet.len() >= 20 && packet[0] >> 4 == 4 {
        with_checksum(&mut packet);
        if r.one_in(16) {
            packet[11] ^= 1;
        }
    }
    packet
}

fn datagram(r: &mut Random, teids: &[Teid]) -> Vec<u8> {
    let teid = match r.below(16) {
        0 => Teid(r.next() as u32),
        1 => Teid(r.pick(teids).0 ^ 1),
        2 => Teid(r.below(4) as u32),
        _ => r.pick(teids),
    };
    // Usually a packet of the tunnel's session.
    let mut inner = inner(r, true);
    if let (Some(n), false) = (teids.iter().position(|t| *t == teid), r.one_in(8)) {
        let n = n as u8 + 2;
        match inner.first().map(|first| first >> 4) {
            Some(4) if inner.len() >= 20 => {
                inner[15] = n;
                with_checksum(&mut inner);
            }
            Some(6) if inner.len() >= 40 && inner[8] == 0x20 => inner[15] = n,
            _ => {}
        }
    }
    let mut flags = r.pick(&[0x30, 0x34, 0x34, 0x34, 0x32, 0x36, 0x37, 0x31]);
    let mut body = vec![];
    if flags & 7 != 0 {
        body.extend([r.next() as u8, r.next() as u8, 0]);
        let count = if flags & 4 != 0 { r.pick(&[0, 1, 1, 1, 1, 1, 1, 2, 3, 4, 9]) } else { 0 };
        for _ in 0..count {
            let units = r.pick(&[1, 1, 1, 2, 5]);
            body.push(r.pick(&[0x85, 0x85, 0x85, 0x85, 0x85, 0x85, 0x40, 0x20, 0xc0]));
            body.push(if r.one_in(40) { r.next() as u8 } else { units });
            body.push(r.pick(&[0x10, 0x10, 0x10, 0x10, 0x00, 0x20]));
            let any = r.next() as u8;
            body.push(r.pick(&[9, 9, 63, any]));
            body.extend(std::iter::repeat_n(0xee, usize::from(units) * 4 - 4));
        }
        body.push(0);
    }
    body.extend(&inner);
    if r.one_in(40) {
        flags = r.next() as u8;
    }
    let kind = if r.one_in(30) { r.pick(&[1, 2, 26, 31, 254, 77]) } else { 255 };
    let mut length = body.len() as u16;
    if r.one_in(30) {
        length = length.wrapping_add(r.pick(&[1, 7, u16::MAX, u16::MAX - 9]));
    }
    let mut datagram = vec![flags, kind];
    datagram.extend(length.to_be_bytes());
    datagram.extend(teid.0.to_be_bytes());
    datagram.extend(body);
    if r.one_in(30) {
        datagram.truncate(r.below(datagram.len()));
    }
    datagram
}

#[test]
fn random_packets_fare_the_same_in_the_kernel() {
    in_namespace(|| {
        // A constant seed: another one every day would find more, but would be another test every
        // day.
        let mut r = Random(20_241_001);
        let (mut left, mut dropped, mut passed) = (0, 0, 0);
        let mut by_rules = [0; 2];
        for _ in 0..20 {
            let rules = rules(&mut r);
            let mut b = Bench::new(&rules).expect("loaded");
            let teids = b.teids.clone();
            for n in 0..teids.len() {
                let watch = if r.one_in(6) { r.pick(&[8, 10]) } else { 0 };
                let (teid, id) = (b.teids[n], b.downlinks[n]);
                let lean = r.one_in(3);
                b.change(|tables| {
                    tables.watch(&[teid], std::iter::once(id), watch);
                    tables.set_lean(&[teid], std::iter::once(id), lean);
                });
            }
            for n in 0..650 {
                // Some sessions get flow rules, which change and disappear during the run.
                if n % 50 == 0 {
                    let session = 2 * r.below(usize::from(SESSIONS) / 2) as u8;
                    let teid = teids[usize::from(session)];
                    let rules = (!r.one_in(8)).then(|| flows(&mut r, teid));
                    b.set_flows(session, rules.as_ref());
                    let watch = if r.one_in(3) { r.pick(&[8, 10]) } else { 0 };
                    b.change(|tables| tables.watch_meters(session.into(), watch));
                    b.change(Tables::maintain_cells);
                }
                let padding = r.pick(&[0, 0, 1, 40]);
                let done = if r.one_in(2) {
                    let from = if r.one_in(20) { r.pick(&super::access::STRANGER) } else { r.pick(&GNB) };
                    let datagram = datagram(&mut r, &teids);
                    assert!(datagram.len() >= 8 || gtpu::Packet::parse(&datagram).is_err());
                    b.receive_n3(from, &datagram, padding)
                } else {
                    let packet = inner(&mut r, false);
                    // The program and the reference receive different input unless this is a valid
                    // IP packet for a UE.
                    if !is_for_a_ue(&packet) {
                        continue;
                    }
                    b.receive_n6(&packet, padding)
                };
                match done {
                    Done::Sent => left += 1,
                    Done::Dropped(_) => dropped += 1,
                    Done::Passed => passed += 1,
                }
            }
            let FlowPackets { decided, punted: left } = b.xdp.counters().flow_packets();
            by_rules = [by_rules[0] + decided, by_rules[1] + left];
        }
        eprintln!("{left} left, {dropped} were dropped, {passed} passed; by rules {by_rules:?}");
        assert!(by_rules[0] > 1_000 && by_rules[1] > 200, "{by_rules:?}");
        assert!(left > 1_000 && dropped > 1_000 && passed > 1_000);
    });
}

/// Returns true if a router would send the packet to a UE.
fn is_for_a_ue(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => [Some(&[10, 45][..]), Some(&[10, 99])].contains(&packet.get(16..18)),
        Some(6) => {
            let networks = [Some(&[0x20, 1, 0xd, 0xb8, 0, 0x45][..]), Some(&[0x20, 1, 0xd, 0xb8, 0, 0x99])];
            networks.contains(&packet.get(24..30))
        }
        _ => false,
    }
}
