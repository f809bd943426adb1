//! System calls of the suite: a network namespace for a thread, and raw packets.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// Moves this thread into a new network namespace whose loopback is up.
///
/// The namespace ends with the thread and its sockets.
pub(crate) fn namespace() {
    // SAFETY: a plain system call that concerns this thread only.
    let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(made, 0, "a network namespace needs root: {}", io::Error::last_os_error());
    ip(&["link set lo up".into()]);
}

/// Runs commands of `ip` (package iproute2) in this thread's namespace.
pub(crate) fn ip(commands: &[String]) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip");
    let mut input = ip.stdin.take().expect("a pipe");
    input.write_all((commands.join("\n") + "\n").as_bytes()).expect("ip reads");
    drop(input);
    assert!(ip.wait().expect("ip").success(), "ip could not do {commands:?}");
}

/// A raw socket that sends packets of protocol 132 unchanged.
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    /// Creates a socket that sends from `source`.
    pub(crate) fn new(source: Ipv4Addr) -> Self {
        // SAFETY: no pointers are passed, and the result is checked before it is used.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_SCTP) };
        assert!(fd >= 0, "a raw socket needs root: {}", io::Error::last_os_error());
        // SAFETY: the descriptor is open and has no other owner.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let name = address(source);
        let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        // SAFETY: the descriptor is open and the name has the size that is passed.
        let bound = unsafe { libc::bind(socket.0.as_raw_fd(), (&raw const name).cast(), size) };
        assert_eq!(bound, 0, "{source}: {}", io::Error::last_os_error());
        // Before it was bound, the socket received packets of other tests.
        while socket.receive().is_some() {}
        socket
    }

    pub(crate) fn send(&self, to: Ipv4Addr, packet: &[u8]) {
        let name = address(to);
        let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let (data, length) = (packet.as_ptr().cast(), packet.len());
        // SAFETY: the descriptor is open, and data and name have the sizes that are passed.
        let sent = unsafe { libc::sendto(self.0.as_raw_fd(), data, length, 0, (&raw const name).cast(), size) };
        assert_eq!(usize::try_from(sent).ok(), Some(length), "{}", io::Error::last_os_error());
    }
}

impl RawSocket {
    /// Returns the next packet to this socket's address, without its IP header; `None` if none is
    /// pending.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; 65_536];
        let (fd, room) = (self.0.as_raw_fd(), packet.as_mut_ptr().cast());
        // SAFETY: the descriptor is open and the buffer has the size that is passed.
        let got = unsafe { libc::recv(fd, room, packet.len(), libc::MSG_DONTWAIT) };
        packet.truncate(usize::try_from(got).ok()?);
        let header = usize::from(packet.first()? & 0xf) * 4;
        Some(packet.split_off(header.min(packet.len())))
    }
}

fn address(ip: Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
        sin_zero: [0; 8],
    }
}
