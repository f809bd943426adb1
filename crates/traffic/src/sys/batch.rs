//! Batches of datagrams (`recvmmsg`, `sendmmsg`) with their local addresses (`IP_PKTINFO`).
//!
//! The Rust module also waits for several sockets.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Maximum datagrams of one call.
pub(crate) const BATCH: usize = 32;
/// Requested kernel buffer in bytes for each direction. The kernel applies its limits.
const SOCKET_BUFFER: libc::c_int = 8 << 20;
/// Room for ancillary data in bytes, more than one `in_pktinfo` needs.
const CONTROL: usize = 64;

/// Ancillary data of one datagram, with the alignment that the kernel requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

fn set(socket: &UdpSocket, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the options used here take an int, which outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a socket with large buffers, for which the kernel fragments large datagrams. With `tells`,
/// the kernel reports the local address of each received datagram.
pub(crate) fn socket(address: SocketAddrV4, tells: bool) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    for (forced, asked) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set(&socket, libc::SOL_SOCKET, forced, SOCKET_BUFFER).is_err() {
            set(&socket, libc::SOL_SOCKET, asked, SOCKET_BUFFER)?;
        }
    }
    set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
    if tells {
        set(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    }
    Ok(socket)
}

/// Message arrays of one batch, on the heap.
struct Arrays {
    headers: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
    names: [libc::sockaddr_in; BATCH],
    controls: [Control; BATCH],
}

impl Arrays {
    fn new() -> Box<Self> {
        // SAFETY: all of them are plain data for which zeros are valid.
        Box::new(unsafe { zeroed() })
    }

    /// Points header `n` to its vector and name.
    fn connect(&mut self, n: usize) {
        let header = &mut self.headers[n].msg_hdr;
        header.msg_iov = &raw mut self.vectors[n];
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut self.names[n]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) from: SocketAddrV4,
    /// Destination address, if the socket reports it.
    pub(crate) local: Option<Ipv4Addr>,
    pub(crate) octets: &'a [u8],
}

/// Buffers for one received batch.
pub(crate) struct Inbox {
    arrays: Box<Arrays>,
    octets: Box<[u8]>,
    slot: usize,
}

impl Inbox {
    /// Creates buffers for datagrams of up to `slot` octets. Longer ones are discarded.
    pub(crate) fn new(slot: usize) -> Self {
        Inbox { arrays: Arrays::new(), octets: vec![0; slot * BATCH].into(), slot }
    }

    /// Receives at most one batch without blocking. Returns the number of datagrams.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        for (n, octets) in self.octets.chunks_exact_mut(self.slot).enumerate() {
            self.arrays.vectors[n] = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
            self.arrays.connect(n);
            let control = (&raw mut self.arrays.controls[n]).cast();
            let header = &mut self.arrays.headers[n].msg_hdr;
            (header.msg_control, header.msg_controllen) = (control, CONTROL as _);
        }
        let (fd, first) = (socket.as_raw_fd(), self.arrays.headers.as_mut_ptr());
        // SAFETY: each header points to a vector, a name and ancillary data in `arrays`, and the
        // vector to a slot of `octets`; none of them moves or is used otherwise during the call.
        let result = unsafe { libc::recvmmsg(fd, first, BATCH as u32, libc::MSG_DONTWAIT as _, std::ptr::null_mut()) };
        if result >= 0 {
            return Ok(result as usize);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => Ok(0),
            _ => Err(error),
        }
    }

    /// Returns datagram `n` of the last batch. Returns `None` if it was longer than a slot.
    pub(crate) fn datagram(&self, n: usize) -> Option<Datagram<'_>> {
        let header = &self.arrays.headers[n];
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let name = &self.arrays.names[n];
        let from =
            SocketAddrV4::new(Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr)), u16::from_be(name.sin_port));
        let start = n * self.slot;
        let octets = &self.octets[start..start + (header.msg_len as usize).min(self.slot)];
        Some(Datagram { from, local: local_address(&header.msg_hdr), octets })
    }
}

/// Returns the local address of a datagram from its ancillary data.
fn local_address(header: &libc::msghdr) -> Option<Ipv4Addr> {
    // SAFETY: the header and its ancillary data are as the kernel has written them; the macros stay
    // within its length, and this kind of data holds an in_pktinfo.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header).as_ref()?;
        if (control.cmsg_level, control.cmsg_type) != (libc::IPPROTO_IP, libc::IP_PKTINFO) {
            return None;
        }
        let info: libc::in_pktinfo = std::ptr::read_unaligned(libc::CMSG_DATA(control).cast());
        Some(Ipv4Addr::from_bits(u32::from_be(info.ipi_spec_dst.s_addr)))
    }
}

/// Datagrams of one batch that wait to be sent.
pub(crate) struct Outbox {
    arrays: Box<Arrays>,
    octets: Box<[u8]>,
    slot: usize,
    count: usize,
}

/// Result of sending a batch.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Bit n: the kernel refused datagram n.
    pub(crate) refused: u32,
    /// Error of the last refused datagram.
    pub(crate) error: Option<io::Error>,
}

impl Outbox {
    /// Creates buffers for datagrams of up to `slot` octets.
    pub(crate) fn new(slot: usize) -> Self {
        Outbox { arrays: Arrays::new(), octets: vec![0; slot * BATCH].into(), slot, count: 0 }
    }

    /// Returns the buffer of the next datagram, with its previous contents. [`BATCH`] datagrams fit
    /// before they are sent.
    pub(crate) fn next(&mut self) -> &mut [u8] {
        let start = self.count * self.slot;
        &mut self.octets[start..start + self.slot]
    }

    /// Queues `length` octets of the next buffer. `from` is the source address, if set.
    pub(crate) fn queue(&mut self, to: SocketAddrV4, from: Option<Ipv4Addr>, length: usize) {
        let n = self.count;
        self.arrays.names[n] = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: to.ip().to_bits().to_be() },
            sin_zero: [0; 8],
        };
        self.arrays.vectors[n].iov_len = length.min(self.slot);
        let control = (&raw mut self.arrays.controls[n]).cast::<libc::cmsghdr>();
        let header = &mut self.arrays.headers[n].msg_hdr;
        (header.msg_control, header.msg_controllen) = (std::ptr::null_mut(), 0);
        if let Some(from) = from {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: from.to_bits().to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            let octets = size_of::<libc::in_pktinfo>() as u32;
            // SAFETY: the ancillary data has room for this one item, is aligned for its header, and
            // has no other user.
            unsafe {
                (*control).cmsg_level = libc::IPPROTO_IP;
                (*control).cmsg_type = libc::IP_PKTINFO;
                (*control).cmsg_len = libc::CMSG_LEN(octets) as _;
                std::ptr::write_unaligned(libc::CMSG_DATA(control).cast(), info);
                header.msg_controllen = libc::CMSG_SPACE(octets) as _;
            }
            header.msg_control = control.cast();
        }
        self.count += 1;
    }

    /// Sends the queued datagrams, and waits while the socket has no room.
    pub(crate) fn send(&mut self, socket: &UdpSocket) -> Sent {
        let count = std::mem::take(&mut self.count);
        for n in 0..count {
            self.arrays.vectors[n].iov_base = self.octets[n * self.slot..].as_mut_ptr().cast();
            self.arrays.connect(n);
        }
        let (mut result, mut done) = (Sent::default(), 0);
        while done < count {
            let first = self.arrays.headers[done..].as_mut_ptr();
            // SAFETY: each of these headers points to a vector, a name and perhaps ancillary data
            // in `arrays`, and the vector to octets of a slot, which sending only reads; none of
            // them moves during the call.
            let taken = unsafe { libc::sendmmsg(socket.as_raw_fd(), first, (count - done) as u32, 0) };
            if taken > 0 {
                done += taken as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                // The kernel refused the first remaining datagram: no route, no room, or the error
                // of an earlier one.
                result.refused |= 1 << done;
                result.error = Some(error);
                done += 1;
            }
        }
        result
    }
}

/// A set of sockets to wait for.
pub(crate) struct Poller(Vec<libc::pollfd>);

impl Poller {
    /// Creates the set.
    pub(crate) fn new<'s>(sockets: impl IntoIterator<Item = &'s UdpSocket>) -> Self {
        let of = |socket: &UdpSocket| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        Poller(sockets.into_iter().map(of).collect())
    }

    /// Waits at most `at_most` until a socket is readable. The sockets must be open.
    pub(crate) fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let time = libc::timespec {
            tv_sec: at_most.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(at_most.subsec_nanos() as i32),
        };
        // SAFETY: the array is of this length, and both outlive the call.
        let result = unsafe {
            libc::ppoll(self.0.as_mut_ptr(), self.0.len() as libc::nfds_t, &raw const time, std::ptr::null())
        };
        let error = io::Error::last_os_error();
        match result {
            0.. => Ok(()),
            _ if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }
    }

    /// Returns true if socket `n` was readable after the last wait.
    pub(crate) fn is_ready(&self, n: usize) -> bool {
        self.0[n].revents != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_leaves_from_requested_address() {
        let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let ours = socket(local, false).unwrap();
        let mirror = socket(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), true).unwrap();
        let port = mirror.local_addr().unwrap().port();
        let asked = Ipv4Addr::new(127, 0, 0, 77);
        let mut out = Outbox::new(100);
        for (n, to) in [asked, Ipv4Addr::LOCALHOST, asked].into_iter().enumerate() {
            out.next()[..3].fill(n as u8);
            out.queue(SocketAddrV4::new(to, port), None, 3);
        }
        assert_eq!(out.send(&ours).refused, 0);
        let mut waiting = Poller::new([&mirror]);
        waiting.wait(Duration::from_secs(5)).unwrap();
        assert!(waiting.is_ready(0));
        let mut inbox = Inbox::new(100);
        assert_eq!(inbox.receive(&mirror).unwrap(), 3);
        let first = inbox.datagram(0).unwrap();
        assert_eq!((first.local, first.octets), (Some(asked), &[0; 3][..]));
        assert_eq!(inbox.datagram(1).unwrap().local, Some(Ipv4Addr::LOCALHOST));
        out.next()[..2].fill(9);
        out.queue(first.from, first.local, 2);
        assert_eq!(out.send(&mirror).refused, 0);
        Poller::new([&ours]).wait(Duration::from_secs(5)).unwrap();
        assert_eq!(inbox.receive(&ours).unwrap(), 1);
        let answer = inbox.datagram(0).unwrap();
        assert_eq!((*answer.from.ip(), answer.octets), (asked, &[9; 2][..]));
    }

    #[test]
    fn refused_datagram_does_not_block_batch() {
        let ours = socket(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), false).unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut out = Outbox::new(8);
        // A loopback socket has no route to external addresses.
        out.queue("192.0.2.1:9".parse().unwrap(), None, 1);
        let std::net::SocketAddr::V4(to) = peer.local_addr().unwrap() else { panic!("IPv4") };
        out.queue(to, None, 2);
        let sent = out.send(&ours);
        assert_eq!((sent.refused, sent.error.is_some()), (1, true));
        assert_eq!(peer.recv(&mut [0; 8]).unwrap(), 2);
    }
}
