//! Ports for the processes of tests.
#![allow(dead_code, reason = "no test needs all of it")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports from here on; they end before those that the kernel gives to outgoing connections
/// (`ip_local_port_range`), which other processes of a test would take at any time.
const FIRST: u16 = 10_000;
/// Number of ports of one process, and number of processes with different ports.
const PORTS: u16 = 400;
const PROCESSES: u16 = 55;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Returns a port that is free for UDP and TCP, and that this function has not returned before in
/// this process.
pub(crate) fn free_port() -> u16 {
    let own = FIRST + (process::id() % u32::from(PROCESSES)) as u16 * PORTS;
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(next < PORTS, "the tests of a process need more than {PORTS} ports");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, own + next));
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return address.port();
        }
    }
}

/// Returns an address of the loopback interface with a free port.
pub(crate) fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}
