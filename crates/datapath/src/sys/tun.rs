//! TUN device: the kernel routes packets into it and treats written packets as received.

use super::{check, check_size};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// linux/if_tun.h: `_IOR('T', 224, int)`.
const TUNSETSTEERINGEBPF: libc::c_ulong = 0x8004_54e0;

/// One queue of a TUN device. The device exists while one of its queues is open.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    /// Opens a queue of the device and creates the device with its first queue. Needs
    /// CAP_NET_ADMIN.
    pub(crate) fn open(name: &str, several_queues: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(|b| b == b'/' || b == 0 || b == b'%') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface name has 1 to 15 characters"));
        }
        let queues = if several_queues { libc::IFF_MULTI_QUEUE } else { 0 };
        // SAFETY: an ifreq is plain data for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | queues) as libc::c_short;
        // SAFETY: TUNSETIFF takes a pointer to an ifreq, which outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) })?;
        Ok(Tun(file))
    }

    /// Sets the program that selects the queue of a packet by its position in the order of opening.
    pub(crate) fn set_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let program: libc::c_int = program.as_raw_fd();
        // SAFETY: TUNSETSTEERINGEBPF takes a pointer to an int, which outlives the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), TUNSETSTEERINGEBPF, &program) })?;
        Ok(())
    }

    /// Duplicates the queue, for another thread that writes to it.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        self.0.try_clone().map(Tun)
    }

    /// Reads one packet. Returns [`io::ErrorKind::WouldBlock`] if there is none.
    #[inline]
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is writable for its length.
        check_size(unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
    }

    /// Writes one packet.
    #[inline]
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        // SAFETY: the packet is readable for its length.
        check_size(unsafe { libc::write(self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len()) })?;
        Ok(())
    }
}

impl From<OwnedFd> for Tun {
    /// Takes a queue that another process has opened.
    fn from(fd: OwnedFd) -> Self {
        Tun(fd.into())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
