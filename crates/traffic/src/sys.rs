//! System calls that the standard library does not provide.

pub(crate) mod batch;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns the index of an interface in the calling thread's namespace.
pub(crate) fn index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: the string ends with NUL and outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Returns the MAC address of an interface in the calling thread's namespace.
pub(crate) fn mac(name: &str) -> io::Result<[u8; 6]> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq is plain data for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    // SAFETY: the structure is complete, is what this command reads and writes, and outlives the
    // call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has written the address there.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; 6];
    mac.iter_mut().zip(address.sa_data).for_each(|(to, from)| *to = from as u8);
    Ok(mac)
}

/// A socket that sends whole frames.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    interface: i32,
}

impl PacketSocket {
    /// Opens a socket that receives nothing.
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let socket = PacketSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) }, interface: interface as i32 };
        // Frames leave through the queue of the sending processor.
        let bypass: libc::c_int = 1;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the option takes an int, which outlives the call.
        let set = unsafe {
            let (fd, value) = (socket.fd.as_raw_fd(), (&raw const bypass).cast());
            libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, value, length)
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: a sockaddr_ll is plain data for which zeros are valid.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = self.interface;
        to.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: both pointers are to memory of these lengths that outlives the call.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast::<libc::sockaddr>(),
                length,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
