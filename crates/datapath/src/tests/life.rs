//! Tests of the attached program, its prerequisites and its routes.

use super::packets::packet;
use super::table::{FLOW, UDP, down, g_pdu, host, rules, up};
use super::*;
use crate::os_setup::forwarding::check_reverse_path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Returns the output of `ip` for an interface.
fn link(name: &str) -> String {
    let output = Command::new("ip").args(["-details", "link", "show", name]).output().expect("ip, of iproute2");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn program_is_attached_while_held() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        b.xdp.attach().expect("attached");
        assert!(link("n3").contains("prog/xdp") && link("n6").contains("prog/xdp"), "{}", link("n3"));
        let mut other = Bench::new(&rules()).expect("loaded");
        let error = other.xdp.attach().expect_err("there is a program").to_string();
        assert!(error.starts_with("another XDP program is on n3: remove it"), "{error}");
        drop(b);
        assert!(!link("n3").contains("prog/xdp") && !link("n6").contains("prog/xdp"), "{}", link("n3"));
        other.xdp.attach().expect("attached");
        ip("link set n6 down");
        ip("link set n6 up");
        assert!(link("n6").contains("prog/xdp"), "down and up again is nothing to it");
        assert_eq!(other.xdp.missing_interfaces().count(), 0);
        ip("link del n6");
        ip("link add n6 type veth peer name dn");
        assert_eq!(other.xdp.missing_interfaces().collect::<Vec<_>>(), ["n6"], "another of the same name");
    });
}

/// Copies of the links, as a forked child has before it executes its program.
#[test]
fn program_detaches_despite_link_copies() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        b.xdp.attach().expect("attached");
        let copies: Vec<_> = b.xdp.links.iter().map(|link| link.copy().expect("root")).collect();
        drop(b);
        assert!(!link("n3").contains("prog/xdp") && !link("n6").contains("prog/xdp"), "{}", link("n3"));
        drop(copies);
    });
}

#[test]
fn wrong_xdp_configuration_is_refused() {
    in_namespace(|| {
        let load = |interfaces: &[&str], pools: Vec<Pool>| {
            let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
            let config = XdpConfig { interfaces, ..XdpConfig::default() };
            let limits = Limits { records: LIMITS, ..Limits::default() };
            let loaded =
                Xdp::load(&config, XdpSetup { n3: &UPF, pools, limits, tun: "tun9", nat: false, processors: &[] });
            loaded.and_then(|(mut xdp, _)| xdp.attach()).map_err(|error| error.to_string())
        };
        let said = |result: Result<(), String>, what: &str| {
            let error = result.expect_err(what);
            assert!(error.starts_with(what), "{error}");
        };
        said(load(&[], pools()), "XDP has no interface to run on");
        said(load(&["nowhere"], pools()), "there is no interface nowhere for XDP");
        // The frames of a veth pair are then in several buffers.
        ip("link set ran mtu 9000");
        ip("link set n3 mtu 9000");
        assert_eq!(load(&["n3"], pools()), Ok(()));
        // The loopback interface has no network driver.
        said(load(&["lo"], pools()), "the driver of lo cannot run XDP natively: choose the generic mode");
        said(load(&["n3"], (0..9).flat_map(|_| pools()).collect()), "XDP takes at most 8 pools of a family");
    });
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip, of iproute2");
    assert!(status.success(), "ip {arguments}");
}

#[test]
fn gateways_are_not_tunnel_ends() {
    in_namespace(|| {
        let mut rules = rules();
        rules[0].1.tunnel = Some(Tunnel { teid: Teid(1), address: FAR_GNB[0] });
        rules[3].1.tunnel = Some(Tunnel { teid: Teid(2), address: FAR_GNB[1] });
        let mut b = Bench::new(&rules).expect("loaded");
        // First by the kernel's routes, then by the cached next hops.
        for _ in 0..2 {
            assert_eq!(b.receive_n6(&down(0, b"x"), 0), Done::Sent);
            assert_eq!(b.receive_n6(&down(3, b"x"), 0), Done::Sent);
        }
        let far = packet(ue(0).ipv4.expect("one").into(), FAR_SERVER[0], UDP, 64, b"x");
        assert_eq!(b.receive_n3(GNB[0], &g_pdu(b.teids[0], FLOW, &far), 0), Done::Sent);
        let far = packet(host(0), FAR_SERVER[1], UDP, 64, b"x");
        assert_eq!(b.receive_n3(GNB[0], &g_pdu(b.teids[0], FLOW, &far), 0), Done::Sent);
    });
}

#[test]
fn route_is_cached_briefly_and_per_size() {
    in_namespace(|| {
        let forget = || std::thread::sleep(std::time::Duration::from_millis(1_100));
        let mut b = Bench::new(&rules()).expect("loaded");
        // The cache lifetime is short. On a busy machine it may expire before the packet arrives,
        // so the check is repeated.
        let believed = (0..20).any(|_| {
            ip("link set n3 mtu 1500");
            forget();
            assert_eq!(b.receive_n6(&down(0, b"x"), 0), Done::Sent);
            ip("link set n3 mtu 1300");
            b.receive_n6(&down(0, &[7; 1300]), 0) == Done::Sent
        });
        assert!(believed, "never the old one");
        forget();
        assert_eq!(b.receive_n6(&down(0, b"x"), 0), Done::Sent);
        assert_eq!(b.receive_n6(&down(0, &[7; 1300]), 0), Done::Passed);
        ip("neigh del 192.0.2.9 dev n3");
        forget();
        assert_eq!(b.receive_n6(&down(0, b"x"), 0), Done::Passed, "nobody knows where it is");
    });
}

#[test]
fn next_hop_takes_addresses_beyond() {
    in_namespace(|| {
        let mut b = Bench::with_next_hops(&rules(), &SERVER).expect("loaded");
        let v6 = |text: &str| IpAddr::V6(text.parse().expect("an address"));
        let v4 = |text: &str| IpAddr::V4(text.parse().expect("an address"));
        let protected = Done::Dropped(DropReason::Protected);
        let cases = [
            (NOBODY[0], Done::Sent),
            (v4("8.8.8.8"), Done::Sent),
            (ue(1).ipv4.expect("one").into(), Done::Passed),
            (UPF[0], protected),
            (v4("127.0.0.1"), protected),
            (v4("0.0.0.1"), protected),
            (v4("224.0.0.5"), protected),
            (v4("255.255.255.255"), protected),
            (v4("240.0.0.1"), Done::Passed),
            (NOBODY[1], Done::Sent),
            (v6("fd00::1"), Done::Sent),
            (v6("2a00::1"), Done::Sent),
            (host(1), Done::Passed),
            (v6("::2"), Done::Passed),
            (UPF[1], protected),
            (v6("::1"), protected),
            (v6("ff05::2"), protected),
        ];
        for (to, expected) in cases {
            let from = if to.is_ipv4() { ue(0).ipv4.expect("one").into() } else { host(0) };
            let datagram = g_pdu(b.teids[0], FLOW, &packet(from, to, UDP, 64, b"x"));
            assert_eq!(b.receive_n3(GNB[0], &datagram, 0), expected, "{to}");
        }
        for (octets, expected) in [(1480, Done::Sent), (1481, Done::Passed)] {
            let datagram = g_pdu(b.teids[0], None, &up(0, &vec![7; octets]));
            assert_eq!(b.receive_n3(GNB[0], &datagram, 0), expected, "{octets}");
        }
    });
}

#[test]
fn nat_leaves_uplink_packets_to_stack() {
    in_namespace(|| {
        let refused = |next_hops: &[IpAddr]| Bench::with(&rules(), next_hops, true).err().expect("refused").to_string();
        assert!(refused(&SERVER).contains("remove the next hops of XDP"));
        let filter = |value: &str| {
            std::fs::write("/proc/sys/net/ipv4/conf/n3/rp_filter", value).expect("written");
            check_reverse_path(&["n3".to_owned(), "n6".to_owned()])
        };
        let error = filter("1").expect_err("refused").to_string();
        assert!(error.contains("run `sysctl -w net.ipv4.conf.n3.rp_filter=2`"), "{error}");
        assert!(filter("2").is_ok());

        let mut b = Bench::with(&rules(), &[], true).expect("loaded");
        let v6 = packet(host(0), NOBODY[1], UDP, 64, b"x");
        // The kernel's stack resolves their next hops later.
        let cases = [
            (up(0, b"x"), 0),
            (up(0, &[7; 300]), 9),
            (packet(ue(0).ipv4.expect("one").into(), NOBODY[0], UDP, 64, b"x"), 0),
            (v6, 3),
        ];
        for (n, (inner, padding)) in cases.iter().enumerate() {
            let mut received =
                frame(mac(3, 9), mac(3, 1), &packets::tunnelled(GNB[0], UPF[0], &g_pdu(b.teids[0], FLOW, inner)));
            received.extend(std::iter::repeat_n(0, *padding));
            let (action, out) = b.run(&received);
            assert_eq!((action, &out), (2, &frame(mac(3, 9), mac(3, 1), inner)), "the hop is the kernel's to count");
            assert_eq!(
                (b.counted().uplink.packets, b.behind.tables.uplink_volume(b.teids[0]).packets),
                (n as u64 + 1, n as u64 + 1)
            );
        }
        // Packets are refused as without address translation.
        let spoofed =
            frame(mac(3, 9), mac(3, 1), &packets::tunnelled(GNB[0], UPF[0], &g_pdu(b.teids[0], FLOW, &up(1, b"x"))));
        assert_eq!(b.run(&spoofed).0, 1);
        assert_eq!(b.counted().dropped(DropReason::Spoofed), 1);
    });
}

/// Ends the work of another thread when it is dropped, also by a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs the program over a downlink frame while `change` sets one rule after another for its
/// session. Rule `n` has QoS flow `n` and a TEID of four octets `n`. Each sent frame must match one
/// rule.
pub(super) fn meets_one(b: &mut Bench, frame: &[u8], mut change: impl FnMut(&mut Tables, u8) + Send) {
    const RUNS: u32 = 20_000;
    let mut tables = std::mem::replace(&mut b.behind.tables, Tables::new(vec![], Limits::default()));
    change(&mut tables, 1);
    tables.settle();
    let ended = AtomicBool::new(false);
    let (mut left, mut passed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0_u8;
            while !ended.load(Relaxed) {
                n = n % 50 + 1;
                change(&mut tables, n);
                tables.settle();
                (0..u32::from(n) * 4).for_each(|_| std::hint::spin_loop());
            }
        });
        let _end = End(&ended);
        for _ in 0..RUNS {
            match b.run(frame) {
                (2, _) => passed += 1,
                (4, out) => {
                    left += 1;
                    let (teid, qfi) = (&out[46..50], out[56]);
                    assert!(teid.iter().all(|octet| *octet == qfi), "{out:02x?}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
    eprintln!("{left} left, {passed} passed");
    assert!(left > 0 && left + passed == RUNS);
}

/// A frame is written by one rule or another, never by both, regardless of the rate of changes.
#[test]
fn packet_uses_one_rule() {
    in_namespace(|| {
        let mut b = Bench::new(&rules()).expect("loaded");
        let id = b.downlinks[0];
        let with = |n: u8| DownlinkRule {
            qfi: Some(n),
            tunnel: Some(Tunnel { teid: Teid(u32::from(n) * 0x0101_0101), address: GNB[0] }),
            ..downlink_rule(0)
        };
        let frame = frame(mac(6, 7), mac(6, 1), &down(0, b"x"));
        meets_one(&mut b, &frame, |tables, n| tables.set_downlink(id, with(n), false, &mut Default::default()));
    });
}
