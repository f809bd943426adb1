//! Table of packets with their expected results.

use super::packets::{packet, with_checksum};
use super::*;
use vireo_wire::gtpu::{self, PduSession};

pub(super) const UDP: u8 = 17;

/// Returns a G-PDU to a tunnel.
pub(super) fn g_pdu(teid: Teid, flow: Option<PduSession>, inner: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; gtpu::G_PDU_HEADER];
    datagram.extend(inner);
    let end = datagram.len();
    let start = gtpu::prepend_g_pdu(&mut datagram, gtpu::G_PDU_HEADER, end, teid, flow).expect("room");
    datagram.split_off(start)
}

pub(super) const FLOW: Option<PduSession> = Some(PduSession::Uplink { qfi: 9 });

pub(super) fn up(n: u8, payload: &[u8]) -> Vec<u8> {
    packet(ue(n).ipv4.expect("one").into(), SERVER[0], UDP, 64, payload)
}

pub(super) fn host(n: u8) -> IpAddr {
    Ipv6Addr::from_bits(ue(n).ipv6_prefix.expect("one").to_bits() | 0x1234).into()
}

pub(super) fn down(n: u8, payload: &[u8]) -> Vec<u8> {
    packet(SERVER[0], ue(n).ipv4.expect("one").into(), UDP, 64, payload)
}

/// Returns the rules of the sessions:
/// - 0: plain forwarding
/// - 1: closed gates
/// - 2: drops
/// - 3: one QoS flow, no PDU Session Container, tunnel over IPv6
/// - 4: buffers, with rate 0
/// - 5: no tunnel
/// - 6: foreign TEID
/// - 7 and 8: for [`super::flows`]
pub(super) fn rules() -> Vec<(UplinkRule, DownlinkRule)> {
    let mut rules: Vec<_> = (0..9).map(|n| (uplink_rule(n), downlink_rule(n))).collect();
    (rules[1].0.gate_open, rules[1].1.gate_open) = (false, false);
    (rules[2].0.forward, rules[2].1.action) = (false, Action::Drop);
    rules[3].0.flows = 1 << 9;
    rules[3].1.qfi = None;
    rules[3].1.tunnel = Some(Tunnel { teid: Teid(7), address: GNB[1] });
    rules[4].0.mbr = Rate::from_kbps(0);
    (rules[4].1.action, rules[4].1.tunnel) = (Action::Buffer { notify: true }, None);
    rules[5].1.tunnel = None;
    rules[6].1.tunnel = Some(Tunnel { teid: Teid(8), address: GNB[1] });
    rules[6].1.rqi = true;
    rules
}

impl Bench {
    /// Sends each datagram from both gNBs, with and without padding in its frame.
    pub(super) fn check_n3(&mut self, cases: &[(&str, Vec<u8>, Done)]) {
        for (name, datagram, expected) in cases {
            for (from, padding) in [(GNB[0], 0), (GNB[0], 5), (GNB[1], 0), (GNB[1], 5)] {
                assert_eq!(self.receive_n3(from, datagram, padding), *expected, "{name}, from {from}");
            }
        }
    }
}

/// Returns datagrams from the RAN to the tunnels `t` of [`rules`].
pub(super) fn from_the_ran(t: &[Teid]) -> Vec<(&'static str, Vec<u8>, Done)> {
    let usual = up(0, b"hello");
    let good = g_pdu(t[0], FLOW, &usual);
    let with = |at: usize, octet: u8| {
        let mut datagram = good.clone();
        datagram[at] = octet;
        datagram
    };
    let inner = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut inner = usual.clone();
        change(&mut inner);
        g_pdu(t[0], FLOW, &inner)
    };
    let v6 = |from: IpAddr, to: IpAddr| g_pdu(t[0], FLOW, &packet(from, to, UDP, 64, b"six"));
    let link_local: IpAddr = "fe80::5".parse().expect("an address");
    let mut echo = [0; gtpu::SIGNALLING_OCTETS];
    let echo = gtpu::echo_request(&mut echo, 1).expect("room");
    let long = g_pdu(t[0], None, &up(0, &[7; 1480]));
    let mut container_of_8 = vec![0x34, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x85, 2, 0x10, 9, 0, 0, 0, 0, 0];
    container_of_8[4..8].copy_from_slice(&t[0].0.to_be_bytes());
    container_of_8[3] = 12 + usual.len() as u8;
    container_of_8.extend(&usual);
    vec![
        ("a usual packet", good.clone(), Done::Sent),
        ("without a container", g_pdu(t[0], None, &usual), Done::Sent),
        ("a longer container", container_of_8, Done::Sent),
        ("a sequence number instead", with(0, 0x32), Done::Dropped(DropReason::InnerMalformed)),
        ("IPv6", v6(host(0), SERVER[1]), Done::Sent),
        ("a TEID that is not ours", g_pdu(FOREIGN, FLOW, &up(6, b"x")), Done::Sent),
        ("no packet", g_pdu(t[0], FLOW, &[]), Done::Dropped(DropReason::InnerMalformed)),
        ("its flow", g_pdu(t[3], FLOW, &up(3, b"x")), Done::Sent),
        ("no flow", g_pdu(t[3], None, &up(3, b"x")), Done::Dropped(DropReason::WrongFlow)),
        (
            "a container of the other direction",
            g_pdu(t[3], Some(PduSession::Downlink { qfi: 9, rqi: false }), &up(3, b"x")),
            Done::Dropped(DropReason::WrongFlow),
        ),
        (
            "another flow",
            g_pdu(t[3], Some(PduSession::Uplink { qfi: 8 }), &up(3, b"x")),
            Done::Dropped(DropReason::WrongFlow),
        ),
        ("gate closed", g_pdu(t[1], FLOW, &up(1, b"x")), Done::Dropped(DropReason::GateClosed)),
        ("action", g_pdu(t[2], FLOW, &up(2, b"x")), Done::Dropped(DropReason::Action)),
        ("a rate of nothing", g_pdu(t[4], FLOW, &up(4, b"x")), Done::Dropped(DropReason::RateExceeded)),
        ("another's address", g_pdu(t[0], FLOW, &up(1, b"x")), Done::Dropped(DropReason::Spoofed)),
        ("another's prefix", v6(host(1), SERVER[1]), Done::Dropped(DropReason::Spoofed)),
        ("a stale TEID", g_pdu(Teid(t[0].0 + 1), FLOW, &usual), Done::Passed),
        ("no TEID", g_pdu(Teid(0), FLOW, &usual), Done::Passed),
        ("a TEID beyond the tables", g_pdu(Teid(0xffff_ff01), FLOW, &usual), Done::Passed),
        ("an echo request", echo.to_vec(), Done::Passed),
        ("another version", with(0, 0x54), Done::Dropped(DropReason::Malformed)),
        ("GTP'", with(0, 0x24), Done::Dropped(DropReason::Malformed)),
        ("a length beyond the end", with(2, 1), Done::Dropped(DropReason::Malformed)),
        ("half a header", good[..7].to_vec(), Done::Dropped(DropReason::Malformed)),
        ("optional fields cut", vec![0x34, 0xff, 0, 2, 0, 0, 0, 1, 0, 0], Done::Dropped(DropReason::Malformed)),
        ("an extension header of no length", with(12, 0), Done::Dropped(DropReason::Malformed)),
        ("an extension header beyond the end", with(12, 200), Done::Dropped(DropReason::Malformed)),
        ("a container of no known type", with(13, 0x20), Done::Dropped(DropReason::Malformed)),
        ("an extension header to be understood", with(11, 0x81), Done::Passed),
        ("one that need not be", with(11, 0x40), Done::Sent),
        ("no IP version", inner(&|p| p[0] = 0x55), Done::Dropped(DropReason::InnerMalformed)),
        ("a header of 16", inner(&|p| p[0] = 0x44), Done::Dropped(DropReason::InnerMalformed)),
        ("longer than it is", inner(&|p| p[3] += 1), Done::Dropped(DropReason::InnerMalformed)),
        ("followed by padding", inner(&|p| p.extend([0; 9])), Done::Sent),
        (
            "the last hop",
            g_pdu(t[0], FLOW, &packet(ue(0).ipv4.expect("one").into(), SERVER[0], UDP, 1, b"x")),
            Done::Passed,
        ),
        (
            "options",
            inner(&|p| {
                p[0] = 0x46;
                with_checksum(p);
            }),
            Done::Passed,
        ),
        ("a wrong header checksum", inner(&|p| p[10] ^= 1), Done::Dropped(DropReason::InnerMalformed)),
        ("a router solicitation", v6(link_local, SERVER[1]), Done::Passed),
        ("link-local", v6(host(0), link_local), Done::Passed),
        ("next hop unknown", v6(host(0), NOBODY[1]), Done::Passed),
        (
            "another UE",
            g_pdu(t[0], FLOW, &packet(ue(0).ipv4.expect("one").into(), ue(1).ipv4.expect("one").into(), UDP, 9, b"")),
            Done::Passed,
        ),
        ("as long as the link", long, Done::Sent),
        ("too long for the link", g_pdu(t[0], None, &up(0, &[7; 1481])), Done::Passed),
    ]
}

/// Returns packets from the data network.
pub(super) fn from_the_data_network() -> Vec<(&'static str, Vec<u8>, Done)> {
    let usual = down(0, b"hello");
    let to = |n: u8| packet(SERVER[1], host(n), UDP, 64, b"six");
    let icmp = |kind: u8| packet(SERVER[0], ue(0).ipv4.expect("one").into(), 1, 64, &[kind, 0, 0, 0]);
    let mut options = usual.clone();
    options[0] = 0x46;
    with_checksum(&mut options);
    let mut wrong = usual.clone();
    wrong[11] ^= 0x80;
    let mut fragment = usual.clone();
    fragment[6] = 0x20;
    with_checksum(&mut fragment);
    let unknown = Ipv4Addr::new(10, 45, 9, 9).into();
    vec![
        ("a usual packet", usual, Done::Sent),
        ("a fragment", fragment, Done::Sent),
        ("IPv6", to(0), Done::Sent),
        ("no container, IPv6 outside", down(3, b"x"), Done::Sent),
        ("IPv6 in IPv6, reflective", to(6), Done::Sent),
        ("an odd length in IPv6", down(6, &[0xff; 1371]), Done::Sent),
        ("as long as the session's link", down(6, &[0xfe; 1380]), Done::Sent),
        ("too long for it", down(0, &[7; 1381]), Done::Passed),
        ("gate closed", down(1, b"x"), Done::Dropped(DropReason::GateClosed)),
        ("action", to(2), Done::Dropped(DropReason::Action)),
        ("to be kept", down(4, b"x"), Done::Passed),
        ("no tunnel", down(5, b"x"), Done::Dropped(DropReason::NoTunnel)),
        ("nobody's", packet(SERVER[0], unknown, UDP, 64, b"x"), Done::Passed),
        ("the last hop", packet(SERVER[0], ue(0).ipv4.expect("one").into(), UDP, 1, b"x"), Done::Passed),
        ("options", options, Done::Passed),
        ("a wrong header checksum on N6", wrong, Done::Dropped(DropReason::InnerMalformed)),
        ("ICMP echo", icmp(8), Done::Sent),
        ("ICMP redirect", icmp(5), Done::Dropped(DropReason::LinkLocal)),
    ]
}

#[test]
fn packets_from_the_ran() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        let t = b.teids.clone();
        b.check_n3(&from_the_ran(&t));
        let good = g_pdu(t[0], FLOW, &up(0, b"hello"));
        let from_a_ue = ue(5).ipv4.expect("one").into();
        assert_eq!(b.receive_n3(from_a_ue, &good, 0), Done::Dropped(DropReason::FromUe));
        assert_eq!(b.receive_n3(host(5), &good, 0), Done::Dropped(DropReason::FromUe));
    });
}

#[test]
fn packets_from_the_data_network() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        for (name, packet, expected) in &from_the_data_network() {
            for padding in [0, 3] {
                assert_eq!(b.receive_n6(packet, padding), *expected, "{name}");
            }
        }
        // Not for a UE, so the program passes them.
        let other = frame(mac(6, 7), mac(6, 1), &packet(SERVER[0], UPF[0], 6, 64, b"tcp"));
        assert_eq!(b.run(&other), (2, other.clone()));
        let arp = [&[0xff; 12][..], &[8, 6], &[0; 28]].concat();
        assert_eq!(b.run(&arp), (2, arp.clone()));
    });
}

#[test]
fn outer_fragments_and_options_are_the_kernels() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        let datagram = g_pdu(b.teids[0], FLOW, &up(0, b"x"));
        let good = tunnelled(GNB[0], UPF[0], &datagram);
        let cases: [(&str, usize, u8, u32); 7] = [
            ("nothing", 1, 0, 4),
            ("more fragments", 6, 0x20, 2),
            ("a later fragment", 7, 1, 2),
            ("options", 0, 0x46, 2),
            ("another port", 23, 0x69, 2),
            ("longer than the frame", 2, 0x40, 2),
            ("a wrong header checksum", 8, 63, 2),
        ];
        for (name, at, octet, action) in cases {
            let mut packet = good.clone();
            packet[at] = octet;
            assert_eq!(b.run(&frame(mac(3, 9), mac(3, 1), &packet)).0, action, "{name}");
        }
    });
}

#[test]
fn changing_entries_are_punted() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        let (teid, id) = (b.teids[0], b.downlinks[0]);
        let up = g_pdu(teid, FLOW, &up(0, b"x"));
        let down = down(0, b"x");
        assert_eq!((b.receive_n3(GNB[0], &up, 0), b.receive_n6(&down, 0)), (Done::Sent, Done::Sent));
        for memory in b.memories() {
            memory.tables.set_uplink(teid, uplink_rule(0));
            memory.tables.set_downlink(id, downlink_rule(0), false, &mut Default::default());
        }
        assert_eq!((b.receive_n3(GNB[0], &up, 0), b.receive_n6(&down, 0)), (Done::Passed, Done::Passed));
        b.change(|_| ());
        assert_eq!((b.receive_n3(GNB[0], &up, 0), b.receive_n6(&down, 0)), (Done::Sent, Done::Sent));
        for marked in [true, false] {
            b.change(|tables| {
                tables.point_uplink(teid, marked.then_some(0));
                tables.point_downlink(id, marked.then_some(0));
            });
            let expected = if marked { Done::Passed } else { Done::Sent };
            assert_eq!((b.receive_n3(GNB[0], &up, 0), b.receive_n6(&down, 0)), (expected, expected), "{marked}");
        }
        // A removed entry has no session, and the next session does not get packets of the last
        // one.
        for memory in b.memories() {
            memory.change(|tables, released| {
                tables.remove_uplink(teid);
                tables.remove_downlink(id, released);
            });
        }
        assert_eq!((b.receive_n3(GNB[0], &up, 0), b.receive_n6(&down, 0)), (Done::Passed, Done::Passed));
    });
}

#[test]
fn rate_is_shared_with_user_space() {
    in_namespace(|| {
        let mut rules = rules();
        let rate = Rate::from_kbps(8_000);
        (rules[0].0.mbr, rules[0].1.mbr) = (rate, rate);
        let mut b = Bench::new(&rules).expect("loaded");
        let (teid, id) = (b.teids[0], b.downlinks[0]);
        let (inner, down) = (up(0, &[0; 480]), down(0, &[0; 480]));
        let frames = [
            frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &g_pdu(teid, FLOW, &inner))),
            frame(mac(6, 7), mac(6, 1), &down),
        ];
        // 508 octets at 8 Mbit/s.
        let octets = inner.len() as u64;
        assert_eq!((octets, down.len() as u64), (500, 500));
        let span = 500_000;
        for (n, frame) in frames.iter().enumerate() {
            let word = |b: &Bench| match n {
                0 => b.behind.tables.find_uplink(teid).expect("there").state.policer.expected_ns(),
                _ => b.behind.tables.downlink(id).state.policer.expected_ns(),
            };
            let set = |b: &Bench, ns: u64| match n {
                0 => b.behind.tables.find_uplink(teid).expect("there").state.policer.set(ns),
                _ => b.behind.tables.downlink(id).state.policer.set(ns),
            };
            let now = crate::sys::clock::monotonic_ns();
            set(&b, now + 10_000_000_000);
            assert_eq!(b.run(frame).0, 1, "far ahead of its rate");
            assert_eq!(word(&b), now + 10_000_000_000);
            let near = crate::sys::clock::monotonic_ns() + 20_000_000;
            set(&b, near);
            assert_eq!(b.run(frame).0, 4, "a little ahead of it");
            // Unless the machine paused in between.
            if crate::sys::clock::monotonic_ns() < near {
                assert_eq!(word(&b), near + span);
            }
            set(&b, 0);
            assert_eq!(b.run(frame).0, 4);
            let later = crate::sys::clock::monotonic_ns();
            assert!((now + span..=later + span).contains(&word(&b)));
        }
        assert_eq!(b.counted().dropped(DropReason::RateExceeded), 2);
    });
}

#[test]
fn verifier_has_headroom() {
    in_namespace(|| {
        let (config, addresses) = largest();
        let all = |nat: bool, processors: &[usize]| {
            let mut config = config.clone();
            if nat {
                config.next_hops.clear();
                config.modules.iter_mut().for_each(|module| module.next_hops.clear());
            }
            let pools = (0..8_u8).map(|n| Pool {
                ipv4: Some((Ipv4Addr::new(10, n, 0, 0), 16)),
                ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 0), 48)),
                mtu: 1400,
                ..Pool::default()
            });
            let limits = Limits { records: LIMITS, modules: 8, ..Limits::default() };
            Xdp::load(
                &config,
                XdpSetup { n3: &addresses, pools: pools.collect(), limits, tun: "tun9", nat, processors },
            )
            .expect("loaded")
            .0
        };
        let small = Bench::new(&rules()).expect("loaded").xdp;
        let mut loaded = vec![
            ("as usual", small),
            ("with all that can be", all(false, &[])),
            ("with address translation", all(true, &[])),
            ("with slices", all(false, &[0])),
        ];
        super::drivers::ip("link set n3 mtu 9000");
        loaded.push(("with slices and jumbo frames", all(false, &[0])));
        for (what, mut xdp) in loaded {
            let of_slices = crate::drivers::xdp::THERE.iter().filter(|_| what.starts_with("with slices"));
            for name in crate::drivers::xdp::PROGRAMS.iter().chain(of_slices) {
                let program = crate::drivers::xdp::program(&mut xdp.bpf, name).expect("a program");
                let instructions = program.info().expect("loaded").verified_instruction_count().expect("Linux 5.16");
                eprintln!("{what}: the verifier processed {instructions} instructions of {name}");
                // The limit of the verifier is a million.
                assert!((100..100_000).contains(&instructions), "{what}, {name}: {instructions}");
            }
        }
    });
}

/// Returns the configuration with the largest constant tables of the program, because the verifier
/// follows each of their elements. Also returns the N3 addresses.
fn largest() -> (XdpConfig, Vec<IpAddr>) {
    let mut interfaces = vec!["n3".to_owned(), "n6".to_owned()];
    for pair in 0..7 {
        let names = [format!("a{pair}"), format!("b{pair}")];
        let line = format!("link add {} type veth peer name {}", names[0], names[1]);
        let status = Command::new("ip").args(line.split(' ')).status().expect("ip, of iproute2");
        assert!(status.success(), "ip {line}");
        interfaces.extend(names);
    }
    let v4 = |n: u8| IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10 + n));
    let v6 = |n: u8| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 10 + u16::from(n)));
    let modules = (0..8).map(|n| crate::Module {
        n3: if n % 2 == 0 { v4(n) } else { v6(n) },
        interfaces: interfaces[usize::from(n) * 2..][..2].to_vec(),
        next_hops: SERVER.to_vec(),
        cores: vec![],
    });
    let modules = modules.collect();
    let config = XdpConfig { interfaces, next_hops: SERVER.to_vec(), modules, ..XdpConfig::default() };
    (config, (0..8).flat_map(|n| [v4(n), v6(n)]).collect())
}

#[test]
fn watched_count_punts_packet() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        let (teid, id) = (b.teids[0], b.downlinks[0]);
        b.change(|tables| tables.watch(&[teid], std::iter::once(id), crate::watch_for(1_024, 1)));
        // Packets of 28 + 300 octets: two below 1,024, then one across it; the same for the next
        // 1,024.
        for round in [Done::Sent, Done::Sent, Done::Sent, Done::Passed, Done::Sent, Done::Sent, Done::Passed] {
            assert_eq!(b.receive_n3(GNB[0], &g_pdu(teid, FLOW, &up(0, &[7; 308])), 0), round);
            let told = b.reference.events == [crate::Event::Volume { session: 0 }];
            assert_eq!(told, round == Done::Passed);
            assert_eq!(b.receive_n6(&down(0, &[7; 308]), 0), round);
        }
    });
}
