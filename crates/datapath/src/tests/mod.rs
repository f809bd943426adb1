//! Tests of all drivers against one reference, and of parts that work together.
//!
//! The same packets go through both, by BPF_PROG_TEST_RUN, in a network namespace with routes and
//! neighbours and without traffic.

mod access;
mod allocations;
mod concurrency;
mod drivers;
mod flows;
mod hot_table;
mod life;
mod packets;
mod processes;
mod random;
mod recheck;
mod slices;
mod table;

use crate::drivers::xdp::XdpSetup;
use crate::drivers::xdp::{Xdp, XdpConfig};
use crate::{
    ALL_FLOWS, Action, DownlinkId, DownlinkRule, DropReason, Limits, Locking, Memory, Pool, Rate, StartError, Stats,
    Tables, Tunnel, UplinkRule, Volume,
};
use aya::maps::{MapData, PerCpuArray};
use aya::programs::{TestRun, TestRunOptions, Xdp as Program};
use packets::{Side, forwarded, frame, tunnelled};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use vireo_types::{Instant, SessionAddress, Teid};

const UPF: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1))];
const GNB: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 9))];
const SERVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 7))];
/// Addresses without a host.
const NOBODY: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 99)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 99))];
/// Addresses behind a gateway, which is the gNB or the server above.
const FAR_GNB: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 113, 5)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x33, 0, 0, 0, 0, 5))];
const FAR_SERVER: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(203, 0, 114, 5)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x66, 0, 0, 0, 0, 5))];
/// Session with a foreign TEID.
const CHOSEN: usize = 6;
const FOREIGN: Teid = Teid(0xdead_beef);

/// Returns a MAC address of the namespace, on interface 3 or 6. Host 1 is the user plane, the
/// others are neighbours.
const fn mac(interface: u8, host: u8) -> [u8; 6] {
    [2, 0, 0, 0, interface, host]
}

/// Result of a packet, equal in the kernel program and the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// Sent, with the same octets as in the reference.
    Sent,
    /// Dropped, for the same reason as in the reference.
    Dropped(DropReason),
    /// Passed to user space, unchanged and uncounted.
    Passed,
}

struct Bench {
    xdp: Xdp,
    /// User space on the kernel's tables, for packets that the program passes.
    behind: Memory,
    /// Reference that uses only the locked tables.
    reference: Memory,
    /// References with other locking: without a lock, and with one lock for each entry.
    other_schemes: [Memory; 2],
    teids: Vec<Teid>,
    downlinks: Vec<DownlinkId>,
}

fn ue(n: u8) -> SessionAddress {
    SessionAddress {
        ipv4: Some(Ipv4Addr::new(10, 45, 0, 2 + n)),
        ipv6_prefix: Some(Ipv6Addr::new(0x2001, 0xdb8, 0x45, 2 + u16::from(n), 0, 0, 0, 0)),
    }
}

fn uplink_rule(n: u8) -> UplinkRule {
    UplinkRule { ue: ue(n), flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::UNLIMITED }
}

fn downlink_rule(n: u8) -> DownlinkRule {
    DownlinkRule {
        session: n.into(),
        pdr: 2,
        qfi: Some(9),
        rqi: false,
        gate_open: true,
        action: Action::Forward,
        tunnel: Some(Tunnel { teid: Teid(0xbee0 + u32::from(n)), address: GNB[0] }),
        mbr: Rate::UNLIMITED,
    }
}

fn pools() -> Vec<Pool> {
    vec![Pool {
        ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
        ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
        mtu: 1400,
        ..Pool::default()
    }]
}

const LIMITS: usize = 64;
const NOW: Instant = Instant(1_000_000_000_000);

impl Bench {
    /// Loads the program, with a session for each pair of rules.
    fn new(rules: &[(UplinkRule, DownlinkRule)]) -> Result<Self, StartError> {
        Bench::with_next_hops(rules, &[])
    }

    fn with_next_hops(rules: &[(UplinkRule, DownlinkRule)], next_hops: &[IpAddr]) -> Result<Self, StartError> {
        Bench::with(rules, next_hops, false)
    }

    fn with(rules: &[(UplinkRule, DownlinkRule)], next_hops: &[IpAddr], nat: bool) -> Result<Self, StartError> {
        let limits = Limits { records: LIMITS, ..Limits::default() };
        Bench::within(rules, (next_hops, nat), (pools(), limits))
    }

    fn within(
        rules: &[(UplinkRule, DownlinkRule)],
        (next_hops, nat): (&[IpAddr], bool),
        (pools, limits): (Vec<Pool>, Limits),
    ) -> Result<Self, StartError> {
        let interfaces = vec!["n3".to_owned(), "n6".to_owned()];
        let config = XdpConfig { interfaces, next_hops: next_hops.to_vec(), ..XdpConfig::default() };
        let (xdp, kernel) =
            Xdp::load(&config, XdpSetup { n3: &UPF, pools: pools.clone(), limits, tun: "tun9", nat, processors: &[] })?;
        let memory = |locking| Memory::new(Tables::new(pools.clone(), Limits { locking, ..limits }), UPF[0]);
        let mut bench = Bench {
            xdp,
            behind: Memory::new(kernel, UPF[0]),
            reference: memory(Locking::Coarse),
            other_schemes: [Locking::Fine, Locking::SharedWriter].map(memory),
            teids: vec![],
            downlinks: vec![],
        };
        bench.change(Tables::choose_known_teids);
        for (n, (uplink, downlink)) in rules.iter().enumerate() {
            let add = |memory: &mut Memory| {
                memory.change(|tables, released| {
                    let given = (n == CHOSEN).then_some(FOREIGN);
                    let teid = tables.add_uplink(given, *uplink).expect("room");
                    let id = tables.add_downlink(uplink.ue, n as u64).expect("room");
                    tables.set_downlink(id, *downlink, false, released);
                    (teid, id)
                })
            };
            let (teid, id) = add(&mut bench.reference);
            for memory in bench.memories() {
                if memory.tables.len().0 == n {
                    assert_eq!(add(memory), (teid, id), "the tables go the same way");
                }
            }
            bench.teids.push(teid);
            bench.downlinks.push(id);
        }
        let local = crate::sys::local::addresses()?;
        bench.change(|tables| {
            tables.set_access(crate::Access::default());
            tables.set_local_addresses(&local);
        });
        bench.forget();
        Ok(bench)
    }

    /// Drops all held packets in all tables.
    fn forget_held(&mut self) {
        for memory in self.memories() {
            memory.tables.expire_held(Instant(u64::MAX));
        }
    }

    fn memories(&mut self) -> impl Iterator<Item = &mut Memory> {
        [&mut self.behind, &mut self.reference].into_iter().chain(&mut self.other_schemes)
    }

    fn forget(&mut self) {
        for memory in self.memories() {
            memory.n3.clear();
            memory.n6.clear();
            memory.events.clear();
        }
    }

    fn counted(&self) -> Stats {
        let mut stats = Stats::default();
        self.xdp.counters().add_to(&mut stats);
        stats
    }

    /// Runs the kernel program over a frame. Returns the action and the resulting frame.
    fn run(&mut self, frame: &[u8]) -> (u32, Vec<u8>) {
        let mut out = vec![0; frame.len() + 256];
        let program: &mut Program = crate::drivers::xdp::program(&mut self.xdp.bpf, "upf").expect("a program");
        let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::default() };
        let result = program.test_run(options).expect("it runs");
        out.truncate(result.data_size_out as usize);
        (result.return_value, out)
    }

    /// Processes a datagram from N3 in a frame with `padding` octets of padding.
    fn receive_n3(&mut self, from: IpAddr, datagram: &[u8], padding: usize) -> Done {
        let to = UPF[usize::from(from.is_ipv6())];
        let mut frame = frame(mac(3, 9), mac(3, 1), &tunnelled(from, to, datagram));
        frame.extend(std::iter::repeat_n(0, padding));
        let side = Side::N3 { from: SocketAddr::new(from, 2152), datagram };
        self.compare(&frame, &side)
    }

    /// Processes a packet from N6.
    fn receive_n6(&mut self, packet: &[u8], padding: usize) -> Done {
        let mut packet = packet.to_vec();
        packet.extend(std::iter::repeat_n(0, padding));
        self.compare(&frame(mac(6, 7), mac(6, 1), &packet), &Side::N6 { packet: &packet })
    }

    /// Processes the frame by the program and, as `side`, by the reference.
    fn compare(&mut self, frame: &[u8], side: &Side<'_>) -> Done {
        const DROP: u32 = 1;
        const PASS: u32 = 2;
        const REDIRECT: u32 = 4;
        let before = self.counted();
        let stats = self.reference.stats;
        self.forget();
        let (action, out) = self.run(frame);
        // The reference shares rates with the program, which uses the clock.
        let now = Instant(crate::sys::clock::monotonic_ns() / 1_000);
        side.put_into(&mut self.reference, now);
        for other in &mut self.other_schemes {
            side.put_into(other, now);
            assert_eq!((&other.n3, &other.n6), (&self.reference.n3, &self.reference.n6), "{side:?}");
            assert_eq!((&other.events, other.stats), (&self.reference.events, self.reference.stats), "{side:?}");
        }
        let counted = difference(&self.counted(), &before);
        let expected = difference(&self.reference.stats, &stats);
        let done = match action {
            PASS => {
                assert_eq!(out, frame, "what is passed is not touched");
                assert_eq!(counted, Stats::default());
                side.put_into(&mut self.behind, now);
                assert_eq!((&self.behind.n3, &self.behind.n6), (&self.reference.n3, &self.reference.n6));
                assert_eq!(self.behind.events, self.reference.events);
                Done::Passed
            }
            DROP => {
                assert_eq!(counted, expected, "{side:?}");
                let reason = DropReason::ALL.iter().find(|reason| expected.dropped(**reason) == 1);
                Done::Dropped(*reason.unwrap_or_else(|| panic!("the reference does not drop {side:?}")))
            }
            REDIRECT => {
                assert_eq!(counted, expected, "{side:?}");
                assert_eq!(self.reference.events, [], "the owner is told by user space alone");
                let expected = forwarded(&self.reference, side);
                assert!(expected.matches(&out), "{side:?}\n{out:02x?}\n{expected:02x?}");
                Done::Sent
            }
            other => panic!("the program returns {other} for {side:?}"),
        };
        self.compare_volumes();
        done
    }

    fn compare_volumes(&self) {
        let volumes = |tables: &Tables| {
            let up: Vec<Volume> = self.teids.iter().map(|teid| tables.uplink_volume(*teid)).collect();
            let down: Vec<Volume> = self.downlinks.iter().map(|id| tables.downlink_volume(*id)).collect();
            let metered = |n| (1..8).map(move |urr| tables.metered(n, urr));
            let urrs: Vec<_> = (0..self.teids.len() as u64).flat_map(metered).collect();
            (up, down, urrs)
        };
        let expected = volumes(&self.reference.tables);
        assert_eq!(volumes(&self.behind.tables), expected);
        assert!(self.other_schemes.iter().all(|other| volumes(&other.tables) == expected));
    }

    fn change(&mut self, change: impl Fn(&mut Tables)) {
        for memory in self.memories() {
            memory.change(|tables, _| change(tables));
        }
    }
}

fn difference(after: &Stats, before: &Stats) -> Stats {
    let volume = |a: Volume, b: Volume| Volume { packets: a.packets - b.packets, octets: a.octets - b.octets };
    let mut drops = after.drops;
    drops.iter_mut().zip(before.drops).for_each(|(n, before)| *n -= before);
    Stats {
        uplink: volume(after.uplink, before.uplink),
        downlink: volume(after.downlink, before.downlink),
        buffered: after.buffered - before.buffered,
        answers: after.answers - before.answers,
        drops,
    }
}

const NETWORK: &str = "
    link add n3 address 02:00:00:00:03:01 type veth peer name ran
    link add n6 address 02:00:00:00:06:01 type veth peer name dn
    address add 192.0.2.1/24 dev n3
    address add 198.51.100.1/24 dev n6
    link set lo up
    link set n3 up
    link set n6 up
    link set ran up
    link set dn up
    neigh add 192.0.2.9 lladdr 02:00:00:00:03:09 dev n3 nud permanent
    neigh add 198.51.100.7 lladdr 02:00:00:00:06:07 dev n6 nud permanent
    address add 2001:db8:3::1/64 dev n3 nodad
    address add 2001:db8:6::1/64 dev n6 nodad
    neigh add 2001:db8:3::9 lladdr 02:00:00:00:03:09 dev n3 nud permanent
    neigh add 2001:db8:6::7 lladdr 02:00:00:00:06:07 dev n6 nud permanent
    link add tun9 type veth peer name tun8
    link set tun9 up
    link set tun8 up
    route add 10.99.0.0/16 dev tun9
    route add 2001:db8:99::/48 dev tun9
    route add 203.0.113.0/24 via 192.0.2.9
    route add 203.0.114.0/24 via 198.51.100.7
    route add 2001:db8:33::/48 via 2001:db8:3::9
    route add 2001:db8:66::/48 via 2001:db8:6::7";

/// Runs `test` in a network namespace that ends with it. Skips the test without root privileges.
/// Only one test runs at a time: the children that start `ip` hold descriptors that other tests
/// have closed, and some tests measure time.
fn in_namespace(test: impl FnOnce() + Send) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: takes no pointers.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    let inside = || {
        // SAFETY: takes no pointers; the thread is our own.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", std::io::Error::last_os_error());
        for file in ["/proc/sys/net/ipv4/conf/all/forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"] {
            std::fs::write(file, "1").expect(file);
        }
        for line in NETWORK.lines().filter(|line| !line.is_empty()) {
            let status = Command::new("ip").args(line.split_whitespace()).status().expect("ip, of iproute2");
            assert!(status.success(), "ip {line}");
        }
        test();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(inside).join() {
            std::panic::resume_unwind(panic);
        }
    });
}
