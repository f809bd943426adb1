//! Batches of datagrams: one system call for up to [`BATCH`] of them.

use super::SockAddr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

/// Maximum number of datagrams of one system call.
pub(crate) const BATCH: usize = 32;
/// Maximum bytes of a datagram: peers on loopback or on jumbo networks may exceed the local path
/// MTU.
const ROOM: usize = 65_536;
/// Bytes that suffice for one IP_PKTINFO or IPV6_PKTINFO.
const CONTROL: usize = 64;

/// Storage for the ancillary data of one datagram, aligned for the kernel.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// A received datagram.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) data: &'a mut [u8],
    pub(crate) from: Option<SocketAddr>,
    /// Destination address, if the socket reports it.
    pub(crate) to: Option<IpAddr>,
}

/// The buffers of `recvmmsg`. Pages that no datagram has reached are never touched.
pub(crate) struct RecvBatch {
    buffers: Vec<u8>,
    names: Box<[SockAddr; BATCH]>,
    controls: Box<[Control; BATCH]>,
    vectors: Box<[libc::iovec; BATCH]>,
    headers: Box<[libc::mmsghdr; BATCH]>,
}

// SAFETY: the raw pointers in `vectors` and `headers` point into the heap blocks of the same value
// and nowhere else.
unsafe impl Send for RecvBatch {}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").finish_non_exhaustive()
    }
}

impl RecvBatch {
    pub(crate) fn new() -> Self {
        let mut batch = Self {
            buffers: vec![0; BATCH * ROOM],
            names: Box::new([SockAddr::EMPTY; BATCH]),
            controls: Box::new([Control([0; CONTROL]); BATCH]),
            vectors: Box::new([libc::iovec { iov_base: std::ptr::null_mut(), iov_len: ROOM }; BATCH]),
            headers: Box::new([EMPTY_HEADER; BATCH]),
        };
        for slot in 0..BATCH {
            batch.vectors[slot].iov_base = batch.buffers[slot * ROOM..][..ROOM].as_mut_ptr().cast();
            let header = &mut batch.headers[slot].msg_hdr;
            header.msg_name = batch.names[slot].as_mut_ptr().cast();
            header.msg_iov = &raw mut batch.vectors[slot];
            header.msg_iovlen = 1;
            header.msg_control = batch.controls[slot].0.as_mut_ptr().cast();
        }
        batch
    }

    /// Receives at most [`BATCH`] pending datagrams without waiting. [`RecvBatch::get`] returns
    /// them.
    pub(crate) fn receive(&mut self, fd: RawFd) -> io::Result<usize> {
        for header in self.headers.iter_mut() {
            header.msg_hdr.msg_namelen = size_of::<SockAddr>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL;
            header.msg_hdr.msg_flags = 0;
        }
        let headers = self.headers.as_mut_ptr();
        // SAFETY: every header points to a name, a buffer and a control block of the lengths it
        // states, owned by `self`.
        let count = unsafe { libc::recvmmsg(fd, headers, BATCH as u32, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
        if count >= 0 {
            return Ok(count as usize);
        }
        match io::Error::last_os_error() {
            error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            error => Err(error),
        }
    }

    /// Returns the flags of a slot that the last [`RecvBatch::receive`] filled.
    pub(crate) fn flags(&self, slot: usize) -> libc::c_int {
        self.headers[slot].msg_hdr.msg_flags
    }

    /// Returns ancillary data of a slot. The caller must know that it is a plain `T`.
    pub(crate) fn ancillary<T: Copy>(&self, slot: usize, level: libc::c_int, kind: libc::c_int) -> Option<T> {
        ancillary(&self.headers[slot].msg_hdr, level, kind)
    }

    /// Returns the datagram in a slot that the last [`RecvBatch::receive`] filled; `None` if
    /// truncated.
    pub(crate) fn get(&mut self, slot: usize) -> Option<Received<'_>> {
        let header = &self.headers[slot];
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let to = local_address(&header.msg_hdr);
        let data = self.buffers.get_mut(slot * ROOM..)?.get_mut(..header.msg_len as usize)?;
        Some(Received { data, from: self.names[slot].get(), to })
    }
}

/// Returns the first item of ancillary data of a kind. The caller must know that it is a `T`.
fn ancillary<T: Copy>(header: &libc::msghdr, level: libc::c_int, kind: libc::c_int) -> Option<T> {
    // SAFETY: `header` was filled by `recvmmsg` and its control block is alive; the macros stay
    // inside `msg_controllen`, an item that is shorter than a `T` is skipped, and the read is an
    // unaligned copy of plain data that the kernel wrote.
    unsafe {
        let mut item = libc::CMSG_FIRSTHDR(header);
        while !item.is_null() {
            let long = (*item).cmsg_len >= libc::CMSG_LEN(size_of::<T>() as u32) as usize;
            if ((*item).cmsg_level, (*item).cmsg_type) == (level, kind) && long {
                return Some(libc::CMSG_DATA(item).cast::<T>().read_unaligned());
            }
            item = libc::CMSG_NXTHDR(header, item);
        }
    }
    None
}

/// Returns the destination address of a datagram.
fn local_address(header: &libc::msghdr) -> Option<IpAddr> {
    if header.msg_controllen == 0 {
        return None;
    }
    let v4: Option<libc::in_pktinfo> = ancillary(header, libc::IPPROTO_IP, libc::IP_PKTINFO);
    if let Some(info) = v4 {
        return Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
    }
    let v6: Option<libc::in6_pktinfo> = ancillary(header, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
    v6.map(|info| Ipv6Addr::from(info.ipi6_addr.s6_addr).into())
}

/// The headers of `sendmmsg` for borrowed datagrams.
///
/// [`SendBatch::push`] adds datagrams. The batch is sent when it is full and by
/// [`SendBatch::finish`].
pub(crate) struct SendBatch<'a> {
    fd: RawFd,
    count: usize,
    names: [SockAddr; BATCH],
    controls: [Control; BATCH],
    vectors: [libc::iovec; BATCH],
    sources: [Option<IpAddr>; BATCH],
    data: std::marker::PhantomData<&'a [u8]>,
    refused: u64,
}

impl<'a> SendBatch<'a> {
    pub(crate) fn new(fd: RawFd) -> Self {
        Self {
            fd,
            count: 0,
            names: [SockAddr::EMPTY; BATCH],
            controls: [Control([0; CONTROL]); BATCH],
            vectors: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH],
            sources: [None; BATCH],
            data: std::marker::PhantomData,
            refused: 0,
        }
    }

    /// Adds a datagram, sent from `source` if it is given, else from the socket's address.
    pub(crate) fn push(&mut self, data: &'a [u8], to: SocketAddr, source: Option<IpAddr>) {
        if self.count == BATCH {
            self.flush();
        }
        let slot = self.count;
        self.names[slot] = SockAddr::new(to);
        self.vectors[slot] = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        self.sources[slot] = source;
        self.count += 1;
    }

    /// Sends the remaining datagrams and returns how many the kernel refused.
    ///
    /// A count suffices for a protocol with retransmissions.
    pub(crate) fn finish(mut self) -> u64 {
        self.flush();
        self.refused
    }

    /// Sends the added datagrams. A datagram that the kernel refuses is counted and skipped.
    fn flush(&mut self) {
        let mut headers = [EMPTY_HEADER; BATCH];
        for (slot, header) in headers[..self.count].iter_mut().enumerate() {
            let header = &mut header.msg_hdr;
            header.msg_name = self.names[slot].as_mut_ptr().cast();
            header.msg_namelen = self.names[slot].len();
            header.msg_iov = &raw mut self.vectors[slot];
            header.msg_iovlen = 1;
            if let Some(source) = self.sources[slot] {
                set_source(header, &mut self.controls[slot], source);
            }
        }
        let mut sent = 0;
        while sent < self.count {
            let rest = &mut headers[sent..self.count];
            // SAFETY: every header points to a name, a buffer and perhaps a control block that
            // `self` or the data it borrows keeps alive; `sendmmsg` only reads the data.
            match unsafe { libc::sendmmsg(self.fd, rest.as_mut_ptr(), rest.len() as u32, libc::MSG_DONTWAIT) } {
                count if count > 0 => sent += count as usize,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    self.refused += 1;
                    sent += 1;
                }
            }
        }
        self.count = 0;
    }
}

/// Requests a source address by IP_PKTINFO or IPV6_PKTINFO.
fn set_source(header: &mut libc::msghdr, control: &mut Control, source: IpAddr) {
    // SAFETY: the control block is aligned and larger than the space either form needs (40 bytes at
    // most), and stays where it is until the call that reads it.
    unsafe {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL;
        let item = libc::CMSG_FIRSTHDR(header);
        match source {
            IpAddr::V4(source) => {
                (*item).cmsg_level = libc::IPPROTO_IP;
                (*item).cmsg_type = libc::IP_PKTINFO;
                (*item).cmsg_len = libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as u32) as usize;
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                libc::CMSG_DATA(item).cast::<libc::in_pktinfo>().write_unaligned(info);
                header.msg_controllen = libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as u32) as usize;
            }
            IpAddr::V6(source) => {
                (*item).cmsg_level = libc::IPPROTO_IPV6;
                (*item).cmsg_type = libc::IPV6_PKTINFO;
                (*item).cmsg_len = libc::CMSG_LEN(size_of::<libc::in6_pktinfo>() as u32) as usize;
                let address = libc::in6_addr { s6_addr: source.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                libc::CMSG_DATA(item).cast::<libc::in6_pktinfo>().write_unaligned(info);
                header.msg_controllen = libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) as usize;
            }
        }
    }
}

const EMPTY_HEADER: libc::mmsghdr = libc::mmsghdr {
    msg_hdr: libc::msghdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: std::ptr::null_mut(),
        msg_iovlen: 0,
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    },
    msg_len: 0,
};
