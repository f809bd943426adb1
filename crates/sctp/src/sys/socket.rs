//! Creation of sockets and their options.

use super::{SockAddr, address, check};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a non-blocking socket for the family of `ip`.
pub(crate) fn open(ip: IpAddr, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed; the result is checked and owned at once.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(address::family(ip), kind, protocol))?)) }
}

/// Binds to an address.
pub(crate) fn bind(fd: &OwnedFd, to: SocketAddr) -> io::Result<()> {
    let name = SockAddr::new(to);
    // SAFETY: the descriptor is open and the name has the length that is passed.
    check(unsafe { libc::bind(fd.as_raw_fd(), name.as_ptr(), name.len()) })?;
    Ok(())
}

/// Maximum number of datagrams that [`discard`] drops.
const MAX_DISCARDED_DATAGRAMS: usize = 1 << 16;

/// Drops the packets that a raw socket received before it was bound.
///
/// An unbound raw socket receives the packets of every address.
pub(crate) fn discard(fd: &OwnedFd) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the descriptor is open, and nothing is written where there is no room
    let more = || unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 0, flags) } >= 0;
    (0..MAX_DISCARDED_DATAGRAMS).take_while(|_| more()).for_each(drop);
}

/// Sets an option whose value is the plain structure `T`.
pub(crate) fn set<T: Copy>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, size) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the descriptor is open and the value has the size that is passed.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, size) })?;
    Ok(())
}

/// Sets the largest permitted buffers up to `bytes`, above the system's limit if privileged.
pub(crate) fn set_buffers(fd: &OwnedFd, bytes: i32) {
    for (forced, asked) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set(fd, libc::SOL_SOCKET, forced, &bytes).is_err() {
            let _ = set(fd, libc::SOL_SOCKET, asked, &bytes);
        }
    }
}

/// Installs a filter that passes only packets with a destination port in a range.
///
/// The filter checks bytes 2 and 3 of the payload (the destination port of SCTP). `ip_header` tells
/// whether the socket sees the IPv4 header before them.
pub(crate) fn filter_ports(fd: &OwnedFd, ip_header: bool, ports: std::ops::RangeInclusive<u16>) -> io::Result<()> {
    let code = |class: u32, value: u32| libc::sock_filter { code: class as u16, jt: 0, jf: 0, k: value };
    let jump = |class: u32, value: u16, jt: u8, jf: u8| libc::sock_filter { jt, jf, ..code(class, value.into()) };
    let x_is_header_length = if ip_header {
        code(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0)
    } else {
        code(libc::BPF_LDX | libc::BPF_IMM, 0)
    };
    let mut program = [
        x_is_header_length,
        code(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 2),
        jump(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, *ports.start(), 0, 2),
        jump(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, *ports.end(), 1, 0),
        code(libc::BPF_RET | libc::BPF_K, u32::MAX),
        code(libc::BPF_RET | libc::BPF_K, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (level, option, value) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const filter).cast());
    // SAFETY: the descriptor is open, and the kernel copies the program, whose length is passed
    // with it.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, size) })?;
    Ok(())
}

/// Binds a name in the network namespace that only one socket can have, until it is closed.
pub(crate) fn claim_name(name: &str) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed; the result is checked and owned at once.
    let fd =
        unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?) };
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    // A leading zero byte makes the name abstract: it belongs to the namespace, not to a file.
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let used = name.len().min(address.sun_path.len() - 1);
    let length = (std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + used) as libc::socklen_t;
    // SAFETY: the descriptor is open and the address has at least the length that is passed.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(fd)
}

/// Returns the address that a socket is bound to.
pub(crate) fn name(fd: &OwnedFd) -> io::Result<Option<SocketAddr>> {
    let mut name = SockAddr::EMPTY;
    let mut length = size_of::<SockAddr>() as libc::socklen_t;
    // SAFETY: the descriptor is open and the name has the length that is passed.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), name.as_mut_ptr(), &raw mut length) })?;
    Ok(name.get())
}

/// Returns the source address that this machine uses for packets to `to`.
pub(crate) fn source_for(to: SocketAddr) -> io::Result<IpAddr> {
    let fd = open(to.ip(), libc::SOCK_DGRAM, 0)?;
    let mut to = to;
    // Connecting a UDP socket sends nothing, but needs a port.
    to.set_port(9);
    let to = SockAddr::new(to);
    // SAFETY: the descriptor is open and the name has the length that is passed.
    check(unsafe { libc::connect(fd.as_raw_fd(), to.as_ptr(), to.len()) })?;
    name(&fd)?.map(|own| own.ip()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn raw_socket_has_no_packets_before_bind() {
        let (at, other) = (Ipv4Addr::new(127, 78, 40, 1), Ipv4Addr::new(127, 78, 40, 2));
        let raw = || open(at.into(), libc::SOCK_RAW, libc::IPPROTO_SCTP).expect("root");
        let socket = raw();
        let name = SockAddr::new((other, 0).into());
        // SAFETY: the descriptor is open, data and name have the lengths that are passed
        let sent =
            unsafe { libc::sendto(raw().as_raw_fd(), [0_u8; 12].as_ptr().cast(), 12, 0, name.as_ptr(), name.len()) };
        assert_eq!(sent, 12, "{}", io::Error::last_os_error());
        bind(&socket, (at, 0).into()).expect("of the loopback");
        let waits = || {
            // SAFETY: the descriptor is open, and nothing is written where there is no room
            unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT | libc::MSG_PEEK) >= 0 }
        };
        assert!(waits(), "what is for the other address");
        discard(&socket);
        assert!(!waits());
    }
}
