//! Tests of the access checks, in the program and through every driver.

use super::drivers::{Rig, frames, interfaces};
use super::packets::{packet, with_checksum};
use super::processes::Tests;
use super::table::{FLOW, UDP, down, g_pdu, host, rules, up};
use super::*;
use crate::{Access, Fanout, FrameIo, Network, PeerBinding, UserPlaneConfig, XdpMode};
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

const SCTP: u8 = 132;
const ICMP: u8 = 1;

/// A RAN node without a tunnel of any session.
pub(super) const STRANGER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 0x77))];

/// Name and configuration of a driver.
type Driver = (&'static str, fn(&mut UserPlaneConfig));

/// All drivers from the RAN to the data network.
const DRIVERS: [Driver; 5] = [
    ("sockets", |_| {}),
    ("xdp", |config| config.xdp = Some(XdpConfig { interfaces: interfaces(), ..XdpConfig::default() })),
    ("af-packet", |config| config.frames = Some(frames(FrameIo::AfPacket(Fanout::Hash)))),
    ("af-xdp", |config| {
        config.workers = 1;
        config.frames = Some(frames(FrameIo::AfXdp(XdpMode::Native)));
    }),
    ("processes", |config| config.processes = Some(Arc::new(Tests))),
];

fn from_ue(n: u8, to: IpAddr, protocol: u8) -> Vec<u8> {
    let from = if to.is_ipv4() { ue(n).ipv4.expect("one").into() } else { host(n) };
    packet(from, to, protocol, 64, &[0, 0, 0x84, 0x84, 1, 2, 3, 4])
}

/// Returns packets of UEs to protected destinations. The machine's addresses are those of the
/// namespace.
pub(super) fn to_protected(t: &[Teid]) -> Vec<(&'static str, Vec<u8>, Done)> {
    let dropped = Done::Dropped(DropReason::Protected);
    let to = |address: &str, protocol| g_pdu(t[0], FLOW, &from_ue(0, address.parse().expect("an address"), protocol));
    let gate_closed = from_ue(1, UPF[0], UDP);
    let spoofed = from_ue(1, UPF[0], UDP);
    let mut options = from_ue(0, UPF[0], SCTP);
    options[0] = 0x46;
    with_checksum(&mut options);
    let last_hop = packet(ue(0).ipv4.expect("one").into(), UPF[0], UDP, 1, b"x");
    let framed = packet("10.99.1.5".parse().expect("an address"), UPF[0], UDP, 64, b"x");
    vec![
        ("to the N3 address", to("192.0.2.1", UDP), dropped),
        ("to the N3 address by SCTP", to("192.0.2.1", SCTP), dropped),
        ("to the N3 address, IPv6", to("2001:db8:3::1", UDP), dropped),
        ("to the N6 address", to("198.51.100.1", ICMP), dropped),
        ("to the N6 address, IPv6", to("2001:db8:6::1", UDP), dropped),
        ("to a RAN node", to("192.0.2.9", UDP), dropped),
        ("to a RAN node, IPv6", to("2001:db8:3::9", SCTP), dropped),
        ("to loopback", to("127.0.0.5", UDP), dropped),
        ("to loopback, IPv6", to("::1", UDP), dropped),
        ("to the broadcast address of N3", to("192.0.2.255", UDP), dropped),
        ("to all on the link", to("255.255.255.255", UDP), dropped),
        ("to a multicast group", to("224.0.0.1", UDP), dropped),
        ("to a multicast group, IPv6", to("ff05::2", UDP), dropped),
        ("to a link-local address", to("169.254.169.254", UDP), dropped),
        ("to the anycast address of N3", to("2001:db8:3::", UDP), dropped),
        ("protected before the gate", g_pdu(t[1], FLOW, &gate_closed), dropped),
        ("spoofed before protected", g_pdu(t[0], FLOW, &spoofed), Done::Dropped(DropReason::Spoofed)),
        ("protected, with options", g_pdu(t[0], FLOW, &options), dropped),
        ("protected, on the last hop", g_pdu(t[0], FLOW, &last_hop), dropped),
        ("beside the RAN node", g_pdu(t[0], FLOW, &from_ue(0, SERVER[0], SCTP)), Done::Sent),
        ("protected, of a network behind the UE", g_pdu(t[8], FLOW, &framed), Done::Dropped(DropReason::Protected)),
    ]
}

#[test]
fn protected_addresses_in_the_program() {
    in_namespace(|| {
        let next_hops = [&[][..], &SERVER];
        for next_hops in next_hops {
            let mut b = Bench::with_next_hops(&rules(), next_hops).expect("loaded");
            let t = b.teids.clone();
            for (n, flows) in super::flows::flows(&t) {
                b.set_flows(n, Some(&flows));
            }
            let mut cases = to_protected(&t);
            let rules_too: Vec<_> = cases
                .iter()
                .filter(|(name, ..)| name.starts_with("to "))
                .map(|(name, datagram, done)| (*name, in_framed_network(&t, datagram), *done))
                .collect();
            cases.extend(rules_too);
            b.check_n3(&cases);
        }
    });
}

/// Returns the same packet for the session with flow rules.
fn in_framed_network(t: &[Teid], datagram: &[u8]) -> Vec<u8> {
    let mut inner = datagram[16..].to_vec();
    match inner[0] >> 4 {
        4 => {
            inner[15] += super::flows::FRAMED;
            with_checksum(&mut inner);
        }
        _ => inner[15] += super::flows::FRAMED,
    }
    g_pdu(t[usize::from(super::flows::FRAMED)], FLOW, &inner)
}

#[test]
fn protection_holds_with_address_translation() {
    in_namespace(|| {
        let mut b = Bench::with(&rules(), &[], true).expect("loaded");
        let run = |b: &mut Bench, to: IpAddr| {
            let datagram = g_pdu(b.teids[0], FLOW, &from_ue(0, to, UDP));
            b.run(&frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &datagram))).0
        };
        // Redirected to the kernel's stack, which would deliver them locally.
        let results = [UPF[0], UPF[1], GNB[0], GNB[1], "198.51.100.1".parse().expect("one")].map(|to| run(&mut b, to));
        assert_eq!((results, run(&mut b, SERVER[0])), ([1; 5], 2));
        assert_eq!(b.counted().dropped(DropReason::Protected), 5);
    });
}

#[test]
fn configured_prefixes_are_applied() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        let network = |text: &str, length| Network { address: text.parse().expect("one"), length };
        let access = Access {
            protected: vec![network("203.0.114.0", 24), network("2001:db8:66:1::", 64)],
            ran: vec![network("192.0.2.64", 26), network("2001:db8:3::77", 128)],
            ..Access::default()
        };
        let t = b.teids.clone();
        let far = g_pdu(t[0], FLOW, &from_ue(0, FAR_SERVER[0], UDP));
        let usual = g_pdu(t[0], FLOW, &up(0, b"x"));
        assert_eq!(b.receive_n3(GNB[0], &far, 0), Done::Sent);
        assert_eq!(STRANGER.map(|from| b.receive_n3(from, &usual, 0)), [Done::Passed; 2], "not known yet");
        b.forget_held();
        b.change(|tables| tables.set_access(access.clone()));
        assert_eq!(b.receive_n3(GNB[0], &far, 0), Done::Dropped(DropReason::Protected));
        assert_eq!(STRANGER.map(|from| b.receive_n3(from, &usual, 0)), [Done::Sent; 2]);
        let to_ran = g_pdu(t[0], FLOW, &from_ue(0, "192.0.2.100".parse().expect("one"), UDP));
        assert_eq!(b.receive_n3(GNB[0], &to_ran, 0), Done::Dropped(DropReason::Protected));
        b.change(|tables| tables.set_access(Access::default()));
        assert_eq!(b.receive_n3(GNB[0], &far, 0), Done::Sent);
    });
}

/// With tunnels bound to their peers, packets of other RAN nodes are left to user space.
#[test]
fn tunnels_bound_to_their_peers() {
    in_namespace(|| {
        let limits = Limits { records: LIMITS, own_peer_only: true, ..Limits::default() };
        let mut b = Bench::within(&rules(), (&[], false), (pools(), limits)).expect("loaded");
        let (t, of) = (b.teids.clone(), PeerBinding::One(GNB[1]));
        let up0 = g_pdu(t[0], FLOW, &up(0, b"x"));
        assert_eq!(GNB.map(|from| b.receive_n3(from, &up0, 0)), [Done::Passed; 2], "bound to nobody");
        b.forget_held();
        b.change(|tables| tables.bind_uplink(t[0], Some(of)));
        assert_eq!(GNB.map(|from| b.receive_n3(from, &up0, 0)), [Done::Passed, Done::Sent]);
        b.forget_held();
        b.change(|tables| tables.bind_uplink(t[0], Some(PeerBinding::Known)));
        assert_eq!(GNB.map(|from| b.receive_n3(from, &up0, 0)), [Done::Sent; 2]);
        assert_eq!(b.receive_n3(STRANGER[0], &up0, 0), Done::Passed);
        b.forget_held();
        let ran = vec![Network { address: STRANGER[0], length: 32 }, Network { address: STRANGER[1], length: 100 }];
        b.change(|tables| tables.set_access(Access { ran: ran.clone(), ..Access::default() }));
        b.change(|tables| tables.bind_uplink(t[0], Some(of)));
        assert_eq!(b.receive_n3(STRANGER[1], &up0, 0), Done::Sent, "a prefix counts for every tunnel");
        // The binding survives a change of the rule, and ends with the tunnel.
        b.change(|tables| tables.set_uplink(t[0], uplink_rule(0)));
        assert_eq!(b.receive_n3(GNB[1], &up0, 0), Done::Sent);
    });
}

fn isolated_pools() -> Vec<Pool> {
    pools().into_iter().map(|pool| Pool { isolated: true, ..pool }).collect()
}

#[test]
fn ues_kept_apart_in_the_program() {
    in_namespace(|| {
        let limits = Limits { records: LIMITS, ..Limits::default() };
        for nat in [false, true] {
            let mut b = Bench::within(&rules(), (&[], nat), (isolated_pools(), limits)).expect("loaded");
            let between = [ue(1).ipv4.expect("one").into(), host(1)];
            for to in between {
                let datagram = g_pdu(b.teids[0], FLOW, &from_ue(0, to, UDP));
                assert_eq!(b.receive_n3(GNB[0], &datagram, 0), Done::Passed, "user space drops it");
            }
            assert_eq!(b.behind.stats.dropped(DropReason::UeToUe), 2);
            assert!(b.behind.n6.is_empty());
        }
    });
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Wall::now() + Duration::from_secs(5);
    while !is_so() {
        assert!(Wall::now() < end, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// With isolated UEs, packets between them do not reach the kernel.
#[test]
fn ues_kept_apart_by_every_driver() {
    for (name, change) in DRIVERS {
        in_namespace(|| {
            let rig = Rig::new(&|config| {
                change(config);
                config.pools = isolated_pools();
            });
            send_between_ues(&rig);
            let stats = || rig.driver.stats().stats();
            wait_for(name, || stats().dropped(DropReason::UeToUe) == 1);
            assert_eq!((stats().uplink.packets, stats().downlink.packets), (0, 0), "{name}");
        });
    }
}

/// Sends a packet of one UE to another.
fn send_between_ues(rig: &Rig) {
    let to = packet(ue(0).ipv4.expect("one").into(), ue(3).ipv4.expect("one").into(), UDP, 64, b"hello");
    let datagram = g_pdu(rig.teids[0], FLOW, &to);
    rig.ran.send(&frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &datagram)));
}

/// After an Xn handover the target sends before N4 names it. Its packets are held, and leave in
/// order before later ones.
#[test]
fn unknown_ran_node_waits_for_path_switch() {
    for (name, change) in DRIVERS {
        in_namespace(|| {
            let rig = Rig::new(&change);
            super::drivers::ip("neigh add 192.0.2.77 lladdr 02:00:00:00:03:09 dev n3 nud permanent");
            let send = |n: u8| {
                let datagram = g_pdu(rig.teids[0], FLOW, &up(0, &[n; 5]));
                rig.ran.send(&frame(mac(3, 9), mac(3, 1), &tunnelled(STRANGER[0], UPF[0], &datagram)));
            };
            (0..5).for_each(send);
            let held =
                || rig.driver.stats().read(|tables| tables.access.held_datagrams.lock().expect("whole").packets());
            wait_for(name, || held() == 5);
            assert_eq!(rig.dn.receive(mac(6, 7)), None, "{name}");
            // The path switch.
            let tunnel = Some(Tunnel { teid: Teid(0x77), address: STRANGER[0] });
            let rule = DownlinkRule { tunnel, ..downlink_rule(0) };
            let id = rig.driver.stats().read(|tables| tables.find_downlink_of(ue(0))).expect("there");
            rig.driver.change(|tables, released| tables.set_downlink(id, rule, false, released));
            (5..8).for_each(send);
            let mut came = vec![];
            wait_for(name, || {
                came.extend(rig.dn.receive(mac(6, 7)).map(|frame| frame[14 + 20]));
                came.len() == 8
            });
            assert_eq!(came, (0..8).collect::<Vec<u8>>(), "{name}: in order, each once");
            assert_eq!(held(), 0);
            // Downlink packets use the new tunnel.
            rig.dn.send(&frame(mac(6, 7), mac(6, 1), &down(0, b"x")));
            wait_for(name, || rig.ran.receive(mac(3, 9)).is_some_and(|frame| frame[30..34] == [192, 0, 2, 77]));
            // By default UEs reach each other, through the kernel and back.
            let downlink = || rig.driver.stats().stats().downlink.packets;
            wait_for(name, || downlink() == 1);
            send_between_ues(&rig);
            wait_for(name, || downlink() == 2);
        });
    }
}

/// Packets from an address that is never named are dropped.
#[test]
fn packets_of_unknown_address_are_dropped_late() {
    in_namespace(|| {
        let rig = Rig::new(&|_| {});
        let frames = [g_pdu(rig.teids[0], FLOW, &up(0, b"x")), g_pdu(rig.teids[0], FLOW, &up(1, b"x"))]
            .map(|datagram| frame(mac(3, 9), mac(3, 1), &tunnelled(STRANGER[0], UPF[0], &datagram)));
        frames.iter().for_each(|frame| rig.ran.send(frame));
        let dropped = || rig.driver.stats().stats().dropped(DropReason::UnknownPeer);
        wait_for("the one that is not the UE's", || dropped() == 1);
        let held = || rig.driver.stats().read(|tables| tables.access.held_datagrams.lock().expect("whole").packets());
        wait_for("the other", || held() == 1);
        wait_for("its end", || {
            rig.driver.upkeep();
            dropped() == 2
        });
        assert_eq!((held(), rig.driver.stats().stats().uplink.packets), (0, 0));
    });
}
