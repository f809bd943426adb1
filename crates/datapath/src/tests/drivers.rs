//! The table of packets through every driver, on interfaces.
//!
//! A packet sent at the far end of one link must leave another as in the reference, and must be
//! counted once.

use super::packets::{Expected, Side, forwarded, frame, tunnelled, with_udp_checksum};
use super::table::{FLOW, from_the_data_network, from_the_ran, g_pdu, rules};
use super::*;
use crate::drivers::af_packet::link::Link;
use crate::{Fanout, FrameIo, FramesConfig, UserPlane, UserPlaneConfig, XdpMode};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

/// Packets whose result depends on the kernel: ICMP errors, fragments, and the way back to another
/// UE.
const KERNELS: [&str; 15] = [
    "the last hop",
    "options",
    "next hop unknown",
    "another UE",
    "too long for the link",
    "too long for it",
    "a wrong header checksum on N6",
    "the last hop, rules",
    "options, rules",
    "behind the UE",
    "behind the UE, uplink",
    "behind the UE, too long",
    "behind the UE, on the last hop",
    "behind the UE, a redirect",
    "behind the UE, not there",
];

/// Far end of a link.
pub(super) struct Far(Link);

impl Far {
    pub(super) fn open(name: &str) -> Self {
        let link = Link::open().expect("a packet socket");
        link.bind(crate::sys::netlink::index_of(name).expect("there"), libc::ETH_P_ALL as u16).expect("bound");
        Far(link)
    }

    pub(super) fn link(&self) -> &Link {
        &self.0
    }

    /// Sends a frame as soon as there is room: earlier frames may wait for a processor.
    pub(super) fn send(&self, frame: &[u8]) {
        let end = Wall::now() + Duration::from_secs(10);
        loop {
            // SAFETY: the frame is readable for its length.
            let sent = unsafe { libc::send(self.0.as_fd().as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            let error = std::io::Error::last_os_error();
            if sent < 0 && error.kind() == std::io::ErrorKind::WouldBlock && Wall::now() < end {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            assert_eq!(usize::try_from(sent).ok(), Some(frame.len()), "{error}");
            return;
        }
    }

    /// Returns a received frame to this address.
    pub(super) fn receive(&self, to: [u8; 6]) -> Option<Vec<u8>> {
        let mut frame = vec![0; 4096];
        loop {
            // SAFETY: the frame is writable for its length.
            let length = unsafe { libc::recv(self.0.as_fd().as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
            let length = usize::try_from(length).ok()?;
            if frame.starts_with(&to) {
                frame.truncate(length);
                return Some(frame);
            }
        }
    }
}

/// Clears the fields that the kernel's sockets may choose: the UDP checksum in IPv4 and the flow
/// label in IPv6.
fn plain(mut frame: Vec<u8>) -> Vec<u8> {
    match frame.get(12..14) {
        Some([8, 0]) if frame.get(23) == Some(&17) && frame.get(36..38) == Some(&[8, 0x68]) => frame[40..42].fill(0),
        Some([0x86, 0xdd]) if frame.get(56..58) == Some(&[8, 0x68]) => frame[15..18].fill(0),
        _ => {}
    }
    frame
}

/// A running driver, and the reference with the same sessions.
pub(super) struct Rig {
    pub(super) driver: UserPlane,
    reference: Memory,
    pub(super) teids: Vec<Teid>,
    pub(super) ran: Far,
    pub(super) dn: Far,
}

impl Rig {
    pub(super) fn new(change: &dyn Fn(&mut UserPlaneConfig)) -> Self {
        offloads();
        // The MTU fits packets of the maximum length on N6 in a tunnel.
        for name in ["ran", "n3"] {
            ip(&format!("link set {name} mtu 1600"));
        }
        let mut config = one_socket();
        config.n3 = UPF.to_vec();
        config.workers = 2;
        change(&mut config);
        let limits = config.limits;
        let driver = UserPlane::start(config, Arc::new(|_| true)).expect("started");
        let mut reference = Memory::new(Tables::new(pools(), limits), UPF[0]);
        let rules = rules();
        let add = |tables: &mut Tables, released: &mut crate::Released| {
            let mut ids = vec![];
            let each = rules.iter().enumerate().map(|(n, (uplink, downlink))| {
                let given = (n == CHOSEN).then_some(FOREIGN);
                let teid = tables.add_uplink(given, *uplink).expect("room");
                let id = tables.add_downlink(uplink.ue, n as u64).expect("room");
                tables.set_downlink(id, *downlink, false, released);
                ids.push(id);
                teid
            });
            let teids = each.collect::<Vec<_>>();
            for (n, flows) in super::flows::flows(&teids) {
                let (session, n) = (n.into(), usize::from(n));
                tables.set_flows(session, Some(flows), &[teids[n]], &[ids[n]], released);
            }
            teids
        };
        driver.change(|tables, _| tables.choose_known_teids());
        reference.tables.choose_known_teids();
        let teids = driver.change(add);
        let local = crate::sys::local::addresses().expect("the machine's");
        reference.tables.set_access(crate::Access::default());
        reference.tables.set_local_addresses(&local);
        assert_eq!(reference.change(add), teids);
        let rig = Rig { driver, reference, teids, ran: Far::open("ran"), dn: Far::open("dn") };
        // Discards the router advertisements.
        std::thread::sleep(Duration::from_millis(20));
        while rig.ran.receive(mac(3, 9)).is_some() {}
        rig
    }

    /// Sends one packet through driver and reference.
    pub(super) fn run(&mut self, name: &str, side: &Side<'_>, padding: usize, done: Done) {
        let before = self.driver.stats().stats();
        let at_reference = self.reference.stats;
        self.reference.n3.clear();
        self.reference.n6.clear();
        side.put_into(&mut self.reference, NOW);
        let expected = difference(&self.reference.stats, &at_reference);
        let end = Wall::now() + Duration::from_secs(2);
        let (out, mut wire) = match side {
            Side::N3 { from, datagram } => {
                let to = UPF[usize::from(from.is_ipv6())];
                let mut packet = tunnelled(from.ip(), to, datagram);
                if to.is_ipv6() {
                    with_udp_checksum(&mut packet);
                }
                (false, frame(mac(3, 9), mac(3, 1), &packet))
            }
            Side::N6 { packet } => (true, frame(mac(6, 7), mac(6, 1), packet)),
        };
        wire.extend(std::iter::repeat_n(0, padding));
        if out {
            self.dn.send(&wire)
        } else {
            self.ran.send(&wire)
        }
        loop {
            let mut found = difference(&self.driver.stats().stats(), &before);
            // The kernel solicits neighbours and routers on the TUN device.
            let noise = &mut found.drops[DropReason::LinkLocal as usize];
            *noise = (*noise).min(expected.dropped(DropReason::LinkLocal));
            if found == expected {
                break;
            }
            assert!(Wall::now() < end, "{name}: {found:?}, not {expected:?}");
            std::thread::sleep(Duration::from_micros(200));
        }
        if done != Done::Sent {
            return;
        }
        let expected: Expected = forwarded(&self.reference, side);
        loop {
            let came = if out || !self.reference.n3.is_empty() {
                self.ran.receive(mac(3, 9))
            } else {
                self.dn.receive(mac(6, 7))
            };
            match came.map(plain) {
                Some(frame) if expected.matches(&frame) => return,
                _ => {}
            }
            assert!(Wall::now() < end, "{name}: nothing like {expected:02x?} came out");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Runs the complete table, and then compares the counters of all sessions.
    pub(super) fn table(&mut self) {
        self.packets();
        self.counts();
    }

    /// Runs the complete table.
    pub(super) fn packets(&mut self) {
        let teids = self.teids.clone();
        let of_flows = super::flows::from_the_ran(&teids).into_iter().chain(super::access::to_protected(&teids));
        for (name, datagram, done) in from_the_ran(&teids).into_iter().chain(of_flows) {
            for from in GNB.into_iter().filter(|_| !KERNELS.contains(&name)) {
                let side = Side::N3 { from: SocketAddr::new(from, 2152), datagram: &datagram };
                self.run(name, &side, 0, done);
            }
        }
        for (name, packet, done) in from_the_data_network().into_iter().chain(super::flows::from_the_data_network()) {
            if !KERNELS.contains(&name) {
                self.run(name, &Side::N6 { packet: &packet }, 3, done);
            }
        }
    }

    fn counts(&self) {
        // By then, a packet that the kernel handles too would be counted.
        std::thread::sleep(Duration::from_millis(30));
        let stats = self.driver.stats().stats();
        let expected = self.reference.stats;
        assert_eq!((stats.uplink, stats.downlink), (expected.uplink, expected.downlink));
    }
}

/// Sets the far ends up for XDP: complete checksums, and a receive path for redirected frames.
fn offloads() {
    const ETHTOOL_STXCSUM: u32 = 0x17;
    const ETHTOOL_SGRO: u32 = 0x2c;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    for (name, [command, value]) in ["n3", "n6", "ran", "dn"]
        .iter()
        .flat_map(|name| [[ETHTOOL_SGRO, 1], [ETHTOOL_STXCSUM, 0]].map(|command| (*name, command)))
    {
        let mut value = [command, value];
        // SAFETY: an ifreq is plain data for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        // SAFETY: both structures hold what these commands read and outlive the call.
        assert_eq!(unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &mut request) }, 0, "{name}");
    }
}

pub(super) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip, of iproute2");
    assert!(status.success(), "ip {arguments}");
}

/// Returns the configuration of a user plane with one address and one worker on sockets.
pub(super) fn one_socket() -> UserPlaneConfig {
    UserPlaneConfig {
        n3: vec![UPF[0]],
        tun: "vireo9".to_owned(),
        pools: pools(),
        limits: Limits { records: LIMITS, ..Limits::default() },
        workers: 1,
        nat: false,
        access: crate::Access::default(),
        host_routes: false,
        xdp: None,
        frames: None,
        slices: vec![],
        processes: None,
    }
}

/// Returns the start error of a user plane with a changed `one_socket` configuration.
pub(super) fn refusal(change: impl Fn(&mut UserPlaneConfig)) -> String {
    let mut config = one_socket();
    change(&mut config);
    UserPlane::start(config, Arc::new(|_| true)).expect_err("refused").to_string()
}

/// An interface that goes down and up again loses its neighbours, not its driver. The kernel gets
/// all frames again when the driver ends.
fn down_and_up(change: impl Fn(&mut UserPlaneConfig) + Sync) {
    in_namespace(|| {
        let mut rig = Rig::new(&change);
        let datagram = super::table::g_pdu(rig.teids[0], super::table::FLOW, &super::table::up(0, b"hello"));
        let side = Side::N3 { from: SocketAddr::new(GNB[0], 2152), datagram: &datagram };
        rig.run("before", &side, 0, Done::Sent);
        for name in ["n3", "n6"] {
            ip(&format!("link set {name} down"));
            std::thread::sleep(Duration::from_millis(20));
            ip(&format!("link set {name} up"));
        }
        ip("neigh replace 192.0.2.9 lladdr 02:00:00:00:03:09 dev n3 nud permanent");
        ip("neigh replace 198.51.100.7 lladdr 02:00:00:00:06:07 dev n6 nud permanent");
        std::thread::sleep(Duration::from_millis(400));
        rig.run("after", &side, 0, Done::Sent);
        let down = super::table::down(0, b"x");
        rig.run("after, the other way", &Side::N6 { packet: &down }, 0, Done::Sent);
        let Rig { driver, ran, .. } = rig;
        drop(driver);
        let socket = soon(|| std::net::UdpSocket::bind("192.0.2.1:2152"));
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
        ran.send(&frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &datagram)));
        assert_eq!(socket.recv(&mut [0; 2048]).expect("the kernel's again"), datagram.len());
    });
}

pub(super) fn interfaces() -> Vec<String> {
    vec!["n3".to_owned(), "n6".to_owned()]
}

pub(super) fn frames(io: FrameIo) -> FramesConfig {
    FramesConfig { interfaces: interfaces(), io, ..FramesConfig::default() }
}

fn through(change: impl Fn(&mut UserPlaneConfig) + Sync) {
    in_namespace(|| Rig::new(&change).table());
}

#[test]
fn through_sockets() {
    through(|_| {});
}

#[test]
fn through_xdp() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        through(move |config| {
            config.xdp = Some(XdpConfig { interfaces: interfaces(), mode, ..XdpConfig::default() });
        });
    }
}

/// An MTU above a page: the program decides on the frames that are in one buffer, and leaves others
/// to user space.
#[test]
fn through_xdp_with_jumbo_mtu() {
    in_namespace(|| {
        let mut rig = Rig::new(&|config| {
            for name in ["ran", "n3", "dn", "n6"] {
                ip(&format!("link set {name} mtu 9000"));
            }
            config.xdp = Some(XdpConfig { interfaces: interfaces(), ..XdpConfig::default() });
        });
        rig.table();
        // The sockets receive it, and it exceeds the MTU of the UEs.
        let long = g_pdu(rig.teids[0], FLOW, &super::table::up(0, &[7; 5_000]));
        let dropped = |rig: &Rig| rig.driver.stats().stats().dropped(DropReason::Malformed);
        let before = dropped(&rig);
        rig.ran.send(&frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &long)));
        soon(|| if dropped(&rig) == before + 1 { Ok(()) } else { Err(dropped(&rig)) });
    });
}

#[test]
fn frames_survive_their_interfaces() {
    for io in [FrameIo::AfPacket(Fanout::Hash), FrameIo::AfXdp(XdpMode::Native)] {
        down_and_up(|config| {
            config.workers = 1;
            config.frames = Some(frames(io));
        });
    }
}

/// A missing prerequisite is reported, and no other driver replaces the configured one.
#[test]
fn wrong_frame_configuration_is_refused() {
    let started = |change: fn(&mut UserPlaneConfig)| {
        refusal(|config| {
            config.frames = Some(FramesConfig { interfaces: interfaces(), ..FramesConfig::default() });
            change(config);
        })
    };
    in_namespace(|| {
        let none = |config: &mut UserPlaneConfig| config.frames = Some(FramesConfig::default());
        assert!(started(none).starts_with("the driver has no interface to read frames from"));
        let nowhere = |config: &mut UserPlaneConfig| {
            config.frames = Some(FramesConfig { interfaces: vec!["nowhere".into()], ..FramesConfig::default() });
        };
        assert!(started(nowhere).starts_with("there is no interface nowhere to read frames from"));
        let loopback = |config: &mut UserPlaneConfig| {
            config.frames = Some(FramesConfig { interfaces: vec!["lo".into()], ..FramesConfig::default() });
        };
        assert!(started(loopback).starts_with("lo cannot be read frame by frame"));
        let queues = |config: &mut UserPlaneConfig| {
            config.workers = 2;
            config.frames = Some(frames(FrameIo::AfXdp(XdpMode::Native)));
        };
        assert!(started(queues).starts_with("n3 receives by 1 queues and the user plane has 2 workers"));
        let nat = |config: &mut UserPlaneConfig| config.nat = true;
        assert!(started(nat).starts_with("frames go past the kernel's address translation"));
    });
}

#[test]
fn through_af_packet() {
    for fanout in [Fanout::Hash, Fanout::Queue] {
        through(move |config| {
            config.frames = Some(frames(FrameIo::AfPacket(fanout)));
        });
    }
}

#[test]
fn through_af_xdp() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        through(move |config| {
            config.workers = 1;
            config.frames = Some(frames(FrameIo::AfXdp(mode)));
        });
    }
}

/// Retries `act`, because a child that another test has just forked holds copies of closed
/// descriptors until it executes its program.
fn soon<T, E: std::fmt::Debug>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let tried = std::iter::repeat_with(|| act().inspect_err(|_| std::thread::sleep(Duration::from_millis(20))));
    tried.take(100).find(Result::is_ok).expect("free again").expect("ok")
}
