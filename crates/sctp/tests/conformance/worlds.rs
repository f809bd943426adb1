//! The drivers under test. Each world has addresses of its own, so that all tests may run at once.

use crate::doomed::{self, Doomed};
use crate::peer::{World, short};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use vireo_sctp::memory::Network;
use vireo_sctp::{Config, Driver, Endpoint, bind};

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
        self.0.give_up();
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
}

/// A driver with a wire, on loopback.
pub(crate) struct Loopback {
    driver: Driver,
    number: u8,
    v6: bool,
}

fn loopback(driver: Driver, v6: bool) -> Loopback {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    Loopback { driver, number: NEXT.fetch_add(1, Ordering::Relaxed), v6 }
}

pub(crate) fn userspace_ip() -> Loopback {
    loopback(Driver::UserspaceIp, false)
}

pub(crate) fn userspace_udp() -> Loopback {
    loopback(Driver::UserspaceUdp, false)
}

pub(crate) fn userspace_ipv6() -> Loopback {
    namespace();
    loopback(Driver::UserspaceIp, true)
}

/// Moves this thread into a network namespace of its own, with addresses fd00::1 to fd00::9. The namespace goes when
/// the thread and its sockets do.
fn namespace() {
    // SAFETY: a plain system call that concerns this thread only.
    let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(made, 0, "a network namespace needs root: {}", std::io::Error::last_os_error());
    let script =
        "ip link set lo up && for n in 1 2 3 4 5 6 7 8 9 99; do ip address add fd00::$n/128 dev lo nodad; done";
    let status = std::process::Command::new("sh").args(["-c", script]).status().expect("sh");
    assert!(status.success(), "ip (package iproute2) could not set up the namespace");
}

impl World for Loopback {
    fn config(&self) -> Config {
        short(Config { driver: self.driver, ..Config::default() })
    }

    fn bind(&self, config: &Config) -> Box<dyn Endpoint> {
        bind(config).expect("the suite needs root (raw sockets)")
    }

    fn address(&self, n: u8) -> IpAddr {
        if self.v6 {
            return format!("fd00::{n}").parse().expect("an address");
        }
        Ipv4Addr::new(127, 77, self.number, n).into()
    }

    fn silent_address(&self) -> IpAddr {
        self.address(99)
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
        false
    }
}
