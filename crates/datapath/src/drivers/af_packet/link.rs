//! Packet sockets that send whole Ethernet frames and bypass the queueing discipline.

use crate::sys::BATCH;
use crate::sys::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A packet socket of one interface.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl From<OwnedFd> for Link {
    /// Takes a socket that another process has opened.
    fn from(fd: OwnedFd) -> Self {
        Link(fd)
    }
}

impl Link {
    /// Opens a socket that receives nothing until it is bound to all protocols.
    pub(crate) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the result is checked and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))? as i32) };
        Ok(Link(fd))
    }

    /// Opens a socket that sends on an interface and receives nothing.
    pub(crate) fn sender(interface: u32) -> io::Result<Self> {
        let link = Link::open()?;
        link.set(libc::PACKET_QDISC_BYPASS, &1)?;
        link.bind(interface, 0)?;
        Ok(link)
    }

    /// Binds the socket to an interface and an Ethernet protocol. 0 = send only.
    pub(crate) fn bind(&self, interface: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: plain data for which zeros are valid
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as libc::sa_family_t;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = interface as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address has that length.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(())
    }

    /// Sets an option of packet sockets with a value of type `T`.
    pub(super) fn set<T>(&self, option: i32, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: `value` is readable for its length, which is that of the option's value.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, option, value, length) })?;
        Ok(())
    }

    /// Reads an option of a socket, whose value `T` is plain data.
    pub(super) fn get<T: Copy>(&self, level: i32, option: i32, value: &mut T) -> io::Result<()> {
        let mut length = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_mut(value).cast();
        // SAFETY: `value` is writable for its length.
        check(unsafe { libc::getsockopt(self.0.as_raw_fd(), level, option, value, &mut length) })?;
        Ok(())
    }

    /// Returns the number of frames dropped since the last call because the ring was full.
    pub(crate) fn take_drops(&self) -> io::Result<u32> {
        // linux/if_packet.h: `struct tpacket_stats_v3`.
        let [_packets, drops, _frozen] = {
            let mut stats = [0_u32; 3];
            self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut stats)?;
            stats
        };
        Ok(drops)
    }

    /// Duplicates the socket.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        self.0.try_clone().map(Link)
    }

    /// Returns and clears the pending error that makes the socket readable, such as an interface
    /// that went down.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let mut code = 0;
        match self.get::<libc::c_int>(libc::SOL_SOCKET, libc::SO_ERROR, &mut code) {
            Ok(()) if code == 0 => None,
            Ok(()) => Some(io::Error::from_raw_os_error(code)),
            Err(error) => Some(error),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct Raw {
    headers: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
}

/// Message arrays of one batch, on the heap.
pub(crate) struct MessageArrays(Box<Raw>);

/// Frames of one batch that wait to be sent on one interface.
pub(crate) struct Outbox<'a> {
    arrays: &'a mut MessageArrays,
    count: usize,
    frames: std::marker::PhantomData<&'a [u8]>,
}

impl MessageArrays {
    pub(crate) fn new() -> Self {
        // SAFETY: plain data for which zeros are valid.
        MessageArrays(Box::new(unsafe { zeroed() }))
    }

    /// Returns an outbox for frames that outlive it.
    pub(crate) fn outbox(&mut self) -> Outbox<'_> {
        Outbox { arrays: self, count: 0, frames: std::marker::PhantomData }
    }
}

impl<'a> Outbox<'a> {
    /// Queues a frame; at most [`BATCH`] fit.
    #[inline]
    pub(crate) fn push(&mut self, frame: &'a [u8]) {
        let Raw { headers, vectors } = &mut *self.arrays.0;
        let vector = &mut vectors[self.count];
        *vector = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        headers[self.count].msg_hdr.msg_iov = vector;
        headers[self.count].msg_hdr.msg_iovlen = 1;
        self.count += 1;
    }

    /// Sends the frames. Calls `refused` with the index of each frame that the kernel refused.
    pub(crate) fn send(self, link: &Link, mut refused: impl FnMut(usize)) {
        let first = self.arrays.0.headers.as_mut_ptr();
        let mut sent = 0;
        while sent < self.count {
            let left = (self.count - sent) as u32;
            // SAFETY: `sent` is below `count`; each header up to that points to a vector, and the
            // vector to a frame that is borrowed for the duration of this call, which sending only
            // reads.
            let result = unsafe { libc::sendmmsg(link.0.as_raw_fd(), first.add(sent), left, 0) };
            match check(result) {
                Ok(taken) if taken > 0 => sent += taken,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel refused the first remaining frame: the interface is down, or its queue
                // is full.
                _ => {
                    refused(sent);
                    sent += 1;
                }
            }
        }
    }
}
