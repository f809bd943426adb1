//! UDP sockets with batches: `recvmmsg` and `sendmmsg`.

use super::{BATCH, check};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Requested kernel buffer in bytes for each direction. The kernel applies its limits.
const SOCKET_BUFFER: libc::c_int = 8 << 20;

/// Socket address in the kernel's form, with the size of the largest form in use.
#[derive(Clone, Copy)]
#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    fn new(address: SocketAddr) -> (Name, libc::socklen_t) {
        match address {
            SocketAddr::V4(v4) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: v4.ip().to_bits().to_be() },
                    sin_zero: [0; 8],
                };
                (Name { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (Name { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    fn address(&self) -> SocketAddr {
        // SAFETY: the family field has the same position in both forms, and identifies the form
        // that the kernel wrote.
        unsafe {
            if i32::from(self.v4.sin_family) == libc::AF_INET6 {
                let v6 = self.v6;
                let port = u16::from_be(v6.sin6_port);
                return (Ipv6Addr::from(v6.sin6_addr.s6_addr), port).into();
            }
            let v4 = self.v4;
            (Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)), u16::from_be(v4.sin_port)).into()
        }
    }
}

/// A UDP socket of one local address.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// Address that the socket is bound to.
    pub(crate) local: IpAddr,
}

impl Socket {
    /// Takes a socket that another process has bound to this address.
    pub(crate) fn from_fd(fd: OwnedFd, local: IpAddr) -> Self {
        Socket { fd, local }
    }

    /// Binds a socket. With `shared`, several sockets may have the address, and the kernel
    /// distributes datagrams by source.
    pub(crate) fn bind(local: SocketAddr, shared: bool) -> io::Result<Self> {
        let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the result is checked and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))? as i32) };
        let socket = Socket { fd, local: local.ip() };
        if shared {
            socket.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        if local.is_ipv6() {
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        // A packet that exceeds the path MTU of the tunnel is fragmented outside and not refused.
        // The MTU of the data network keeps packets small enough (TS 29.281 4.2.4).
        let (level, option, value) = match local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        };
        socket.set(level, option, value)?;
        for (forced, asked) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            if socket.set(libc::SOL_SOCKET, forced, SOCKET_BUFFER).is_err() {
                socket.set(libc::SOL_SOCKET, asked, SOCKET_BUFFER)?;
            }
        }
        let (name, length) = Name::new(local);
        // SAFETY: `name` holds an address of `length` octets.
        check(unsafe { libc::bind(socket.fd.as_raw_fd(), (&raw const name).cast(), length) })?;
        Ok(socket)
    }

    /// Sets the program that selects one of the sockets with this address for a datagram, by its
    /// position in the order of binding.
    pub(crate) fn set_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF, program.as_raw_fd())
    }

    fn set(&self, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the options used here take an int, which outlives the call.
        check(unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const value).cast(), length) })?;
        Ok(())
    }

    /// Sends one datagram.
    pub(crate) fn send_to(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let (name, length) = Name::new(to);
        // SAFETY: the datagram is readable for its length and `name` holds an address of `length`
        // octets.
        super::check_size(unsafe {
            let octets = datagram.as_ptr().cast();
            libc::sendto(self.fd.as_raw_fd(), octets, datagram.len(), 0, (&raw const name).cast(), length)
        })?;
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Message arrays of one batch, on the heap.
struct Arrays {
    headers: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
    names: [Name; BATCH],
}

impl Arrays {
    fn new() -> Box<Self> {
        // SAFETY: all three are plain data for which zeros are valid.
        Box::new(unsafe { zeroed() })
    }

    /// Points the first `count` headers to their names and vectors. Returns the first header.
    fn connect(&mut self, count: usize) -> *mut libc::mmsghdr {
        let parts = self.headers.iter_mut().zip(&mut self.vectors).zip(&mut self.names);
        for ((header, vector), name) in parts.take(count) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut *name).cast();
        }
        self.headers.as_mut_ptr()
    }
}

/// Buffers for the datagrams of one batch.
pub struct Receiver {
    arrays: Box<Arrays>,
    octets: Box<[u8]>,
    slot: usize,
}

// SAFETY: the pointers in the arrays refer to memory that the receiver itself owns, and are
// followed only during a call.
unsafe impl Send for Receiver {}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Creates buffers for datagrams of up to `slot` octets. Longer ones are discarded.
    pub fn new(slot: usize) -> Self {
        Receiver { arrays: Arrays::new(), octets: vec![0; slot * BATCH].into(), slot }
    }

    /// Receives at most one batch without blocking. Returns the number of datagrams, 0 if none is
    /// available.
    pub fn receive(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        let Arrays { headers, vectors, .. } = &mut *self.arrays;
        for ((header, vector), octets) in headers.iter_mut().zip(vectors).zip(self.octets.chunks_exact_mut(self.slot)) {
            header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
            *vector = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
        }
        let first = self.arrays.connect(BATCH);
        // SAFETY: each header points to a name and a vector in `arrays`, and the vector to a slot
        // of `octets`; none of them moves or is used otherwise during the call.
        let result = unsafe {
            let (fd, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
            libc::recvmmsg(fd, first, BATCH as u32, flags as _, std::ptr::null_mut())
        };
        match check(result) {
            Err(error) if would_block(&error) => Ok(0),
            other => other,
        }
    }

    /// Returns the source and contents of datagram `n` of the last batch. `None` if it was longer
    /// than a slot.
    #[inline]
    pub fn datagram(&self, n: usize) -> (SocketAddr, Option<&[u8]>) {
        let header = &self.arrays.headers[n];
        let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let start = n * self.slot;
        let octets = whole.then(|| &self.octets[start..start + (header.msg_len as usize).min(self.slot)]);
        (self.arrays.names[n].address(), octets)
    }
}

/// Datagrams of one batch that wait to be sent.
pub struct Sender {
    arrays: Box<Arrays>,
    /// Length of each user packet in octets, for counting.
    octets: [usize; BATCH],
    count: usize,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Default for Sender {
    fn default() -> Self {
        Sender::new()
    }
}

// SAFETY: each call sets the pointers in the arrays before it follows them; nothing follows them
// between calls.
unsafe impl Send for Sender {}

impl Sender {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Sender { arrays: Arrays::new(), octets: [0; BATCH], count: 0 }
    }

    /// Returns the number of queued datagrams.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if no datagram is queued.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Queues a datagram with a user packet of `octets` octets. The datagram is `start..end` of the
    /// buffer that [`Sender::flush`] gets. At most [`BATCH`] fit.
    #[inline]
    pub fn queue(&mut self, to: SocketAddr, start: usize, end: usize, octets: usize) {
        let (name, length) = Name::new(to);
        let n = self.count;
        self.arrays.names[n] = name;
        self.arrays.headers[n].msg_hdr.msg_namelen = length;
        // The offset replaces the pointer until the buffer is known.
        self.arrays.vectors[n] = libc::iovec { iov_base: start as *mut _, iov_len: end - start };
        self.octets[n] = octets;
        self.count += 1;
    }

    /// Sends the queued datagrams from `buffer`. Calls `sent_packet` with the user packet length of
    /// each sent datagram. Returns the number of refused ones.
    pub fn flush(&mut self, socket: &impl AsFd, buffer: &[u8], mut sent_packet: impl FnMut(usize)) -> u64 {
        let count = std::mem::take(&mut self.count);
        for vector in &mut self.arrays.vectors[..count] {
            let start = vector.iov_base as usize;
            let datagram = &buffer[start..start + vector.iov_len];
            vector.iov_base = datagram.as_ptr().cast_mut().cast();
        }
        let first = self.arrays.connect(count);
        let (fd, mut sent, mut refused) = (socket.as_fd().as_raw_fd(), 0, 0);
        while sent < count {
            // SAFETY: `sent` is below `count`; each header points to a name and a vector in
            // `arrays`, and the vector to octets of `buffer`, which sending only reads; none of
            // them moves during the call.
            let result = unsafe { libc::sendmmsg(fd, first.add(sent), (count - sent) as u32, 0) };
            match check(result) {
                Ok(taken) if taken > 0 => {
                    self.octets[sent..sent + taken].iter().for_each(|octets| sent_packet(*octets));
                    sent += taken;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel refused the first remaining datagram: no route, no room, or the error
                // of an earlier one.
                _ => {
                    sent += 1;
                    refused += 1;
                }
            }
        }
        refused
    }
}

fn would_block(error: &io::Error) -> bool {
    // An ICMP error of an earlier datagram is not a reason to stop either.
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn across(local: &str) {
        let local: IpAddr = local.parse().expect("an address");
        let ours = Socket::bind(SocketAddr::new(local, 0), false).expect("bound");
        let peer = UdpSocket::bind(SocketAddr::new(local, 0)).expect("bound");
        let peer_address = peer.local_addr().expect("bound");
        let mut sender = Sender::new();
        let buffer: Vec<u8> = (0..100).collect();
        sender.queue(peer_address, 10, 20, 7);
        sender.queue(peer_address, 50, 55, 3);
        let mut done = vec![];
        assert_eq!(sender.flush(&ours, &buffer, |octets| done.push(octets)), 0);
        assert_eq!(done, [7, 3]);
        let mut got = [0; 200];
        let (length, from) = peer.recv_from(&mut got).expect("received");
        assert_eq!(got[..length], buffer[10..20]);
        let (length, _) = peer.recv_from(&mut got).expect("received");
        assert_eq!(got[..length], buffer[50..55]);

        let mut receiver = Receiver::new(100);
        assert_eq!(receiver.receive(&ours).expect("nothing yet"), 0);
        peer.send_to(&buffer[..100], from).expect("sent");
        peer.send_to(&[0; 101], from).expect("sent");
        peer.send_to(&[7], from).expect("sent");
        assert_eq!(receiver.receive(&ours).expect("received"), 3);
        assert_eq!(receiver.datagram(0), (peer_address, Some(&buffer[..])));
        assert_eq!(receiver.datagram(1), (peer_address, None), "longer than the slot");
        assert_eq!(receiver.datagram(2), (peer_address, Some(&[7][..])));
    }

    #[test]
    fn batches_cross_with_their_addresses() {
        across("127.0.0.1");
        // A machine without IPv6 has no ::1.
        if UdpSocket::bind("[::1]:0").is_ok() {
            across("::1");
        }
    }

    #[test]
    fn refused_datagram_does_not_delay_others() {
        let ours = Socket::bind("127.0.0.1:0".parse().expect("an address"), false).expect("bound");
        let peer = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let to = peer.local_addr().expect("bound");
        let mut sender = Sender::new();
        // A loopback socket has no route to external addresses.
        sender.queue("192.0.2.1:9".parse().expect("an address"), 0, 1, 1);
        sender.queue(to, 1, 2, 1);
        let mut done = 0;
        assert_eq!((sender.flush(&ours, &[1, 2], |_| done += 1), done), (1, 1));
        let mut got = [0; 2];
        assert_eq!(peer.recv(&mut got).expect("received"), 1);
        assert_eq!(got[0], 2);
    }
}
