//! The drivers under test.
//!
//! Each has its own addresses, so that tests can run concurrently.

use crate::doomed::{self, Doomed};
use crate::peer::{World, brisk};
use crate::sys::{RawSocket, ip, namespace};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use vireo_sctp::memory::Network;
use vireo_sctp::{BindError, Config, Driver, Endpoint, EndpointSnapshot, adopt, bind};

/// Time within which the port of an earlier endpoint is free. A process that another test starts
/// holds the port until its program begins.
const FREED_WITHIN: Duration = Duration::from_secs(5);

pub(crate) struct Memory(Network);

pub(crate) fn memory() -> Memory {
    Memory(Network::new())
}

impl World for Memory {
    fn config(&self) -> Config {
        Config::default()
    }

    fn bind(&self, config: &Config) -> Box<dyn Endpoint> {
        self.0.bind(config).expect("bind")
    }

    fn adopt(&self, config: &Config, handover: EndpointSnapshot) -> Box<dyn Endpoint> {
        self.0.adopt(config, handover).expect("it goes on")
    }

    fn address(&self, n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, n).into()
    }

    fn silent_address(&self) -> IpAddr {
        self.0.silence(self.address(99));
        self.address(99)
    }

    fn doomed(&self, n: u8, port: u16, to: SocketAddr) -> Box<dyn Doomed + '_> {
        let config = Config { addresses: vec![self.address(n)], port, ..self.config() };
        let mut endpoint = self.bind(&config);
        endpoint.connect(to).expect("connect");
        Box::new(Crashing { network: &self.0, at: self.address(n), endpoint })
    }

    fn time_out(&self) {
        self.0.time_out();
    }
}

struct Crashing<'a> {
    network: &'a Network,
    at: IpAddr,
    endpoint: Box<dyn Endpoint>,
}

impl Doomed for Crashing<'_> {
    fn poll(&mut self) {
        self.endpoint.poll(Some(Duration::ZERO), &mut |_| ()).expect("poll");
    }

    fn kill(self: Box<Self>) {
        self.network.crash(self.at);
    }

    fn vanish(self: Box<Self>) {
        self.network.crash(self.at);
    }
}

/// A driver with a network, on loopback.
pub(crate) struct Loopback {
    driver: Driver,
    /// Prefix of the addresses; the `n`th address appends `n`.
    prefix: String,
    silent: IpAddr,
}

/// Uses 127.0.0.0/8, where every address exists without configuration.
fn loopback(driver: Driver) -> Loopback {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Loopback { driver, prefix: format!("127.77.{number}."), silent: Ipv4Addr::new(127, 77, number, 99).into() }
}

/// Creates a network namespace with ten addresses.
fn namespaced(driver: Driver, prefix: &str) -> Loopback {
    let length = if prefix.contains(':') { "128 nodad" } else { "32" };
    let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 99];
    namespace();
    ip(&numbers.map(|n| format!("address add {prefix}{n}/{length} dev lo")));
    Loopback { driver, prefix: prefix.into(), silent: format!("{prefix}99").parse().expect("an address") }
}

/// Creates a namespace as [`namespaced`] does, with a network that has no peers.
///
/// At an address of the machine the kernel would answer.
fn kernel_world(prefix: &str, own: &str, silent: &str) -> Loopback {
    let world = namespaced(Driver::Kernel, prefix);
    let address = format!("address add {own} dev silent");
    ip(&["link add silent type dummy".into(), "link set silent up".into(), address]);
    Loopback { silent: silent.parse().expect("an address"), ..world }
}

pub(crate) fn userspace_ip() -> Loopback {
    loopback(Driver::UserspaceIp)
}

pub(crate) fn userspace_udp() -> Loopback {
    loopback(Driver::UserspaceUdp)
}

pub(crate) fn kernel() -> Loopback {
    kernel_world("10.77.0.", "10.99.0.1/24", "10.99.0.99")
}

pub(crate) fn kernel_ipv6() -> Loopback {
    kernel_world("fd00::", "fd99::1/64 nodad", "fd99::99")
}

pub(crate) fn userspace_ipv6() -> Loopback {
    namespaced(Driver::UserspaceIp, "fd00::")
}

impl World for Loopback {
    fn config(&self) -> Config {
        brisk(Config { driver: self.driver, ..Config::default() })
    }

    fn bind(&self, config: &Config) -> Box<dyn Endpoint> {
        let end = Instant::now() + FREED_WITHIN;
        loop {
            match bind(config) {
                Err(BindError::PortInUse { .. }) if Instant::now() < end => std::thread::yield_now(),
                bound => return bound.expect("the suite needs root (raw sockets)"),
            }
        }
    }

    fn gives_back(&self) -> bool {
        self.driver != Driver::Kernel
    }

    fn hands_over(&self) -> bool {
        self.driver == Driver::Kernel
    }

    fn adopt(&self, config: &Config, handover: EndpointSnapshot) -> Box<dyn Endpoint> {
        adopt(config, handover).expect("it goes on")
    }

    fn address(&self, n: u8) -> IpAddr {
        format!("{}{n}", self.prefix).parse().expect("an address")
    }

    fn silent_address(&self) -> IpAddr {
        self.silent
    }

    fn doomed(&self, n: u8, port: u16, to: SocketAddr) -> Box<dyn Doomed + '_> {
        Box::new(doomed::spawn(self, n, port, to))
    }

    fn garbage(&self, to: SocketAddr, bytes: &[u8]) -> bool {
        if self.driver == Driver::UserspaceUdp {
            let socket = UdpSocket::bind((self.address(9), 0)).expect("a socket");
            socket.send_to(bytes, SocketAddr::new(to.ip(), vireo_sctp::UDP_ENCAPSULATION_PORT)).expect("send");
            return true;
        }
        let (IpAddr::V4(from), IpAddr::V4(to)) = (self.address(9), to.ip()) else { return false };
        RawSocket::new(from).send(to, bytes);
        true
    }
}
