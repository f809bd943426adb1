//! A one-to-many SCTP socket of the kernel behind safe functions.

use super::ffi;
use crate::config::{BindError, Config};
use crate::endpoint::MAX_MESSAGE;
use crate::sys::{SockAddr, check, socket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A socket bound to a port.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

/// Returns an error if the kernel has no SCTP. The check loads the module if possible and
/// permitted.
pub(super) fn available() -> io::Result<()> {
    socket::open(Ipv4Addr::UNSPECIFIED.into(), libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP).map(drop)
}

fn millis(duration: Duration) -> u32 {
    duration.as_millis().min(u128::from(u32::MAX)) as u32
}

impl Socket {
    /// Opens a socket on the configured addresses and `port` (0: a free one), and listens if
    /// configured.
    pub(super) fn open(config: &Config, port: u16) -> Result<Self, BindError> {
        let any_v6 = config.addresses.is_empty() || config.addresses.iter().any(IpAddr::is_ipv6);
        let v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        let kind = libc::SOCK_SEQPACKET;
        // Without IPv6 in the system, "every address" means every IPv4 address.
        let opened =
            match socket::open(if any_v6 { v6 } else { Ipv4Addr::UNSPECIFIED.into() }, kind, libc::IPPROTO_SCTP) {
                Err(_) if config.addresses.is_empty() => {
                    socket::open(Ipv4Addr::UNSPECIFIED.into(), kind, libc::IPPROTO_SCTP).map(|fd| (fd, false))
                }
                other => other.map(|fd| (fd, any_v6)),
            };
        let (fd, v6_socket) = opened.map_err(BindError::NoKernelSctp)?;
        let this = Self(fd);
        this.set_options(config, v6_socket).map_err(BindError::system("setting up the SCTP socket"))?;
        let any = if v6_socket { v6 } else { Ipv4Addr::UNSPECIFIED.into() };
        let addresses = if config.addresses.is_empty() { &[any][..] } else { &config.addresses };
        this.bind(addresses, port)?;
        if config.listen {
            // SAFETY: the descriptor is open.
            let listening = check(unsafe { libc::listen(this.0.as_raw_fd(), 128) });
            listening.map_err(BindError::system(
                "listening for SCTP (if it is not implemented, set the sysctl net.sctp.cookie_hmac_alg to none)",
            ))?;
        }
        Ok(this)
    }

    fn set_options(&self, config: &Config, v6: bool) -> io::Result<()> {
        let set = |option, value: &i32| socket::set(&self.0, libc::IPPROTO_SCTP, option, value);
        set(ffi::SCTP_NODELAY, &1)?;
        set(ffi::SCTP_FRAGMENT_INTERLEAVE, &0)?;
        set(ffi::SCTP_RECVRCVINFO, &1)?;
        if v6 {
            set(ffi::SCTP_I_WANT_MAPPED_V4_ADDR, &0)?;
        }
        self.set(ffi::SCTP_EVENTS, &ffi::EventSubscribe { data_io: 0, association: 1 })?;
        self.set(ffi::SCTP_DELAYED_SACK, &ffi::SackInfo { assoc_id: 0, delay: 0, freq: 1 })?;
        let init = ffi::InitMsg {
            num_ostreams: config.outbound_streams,
            max_instreams: config.inbound_streams,
            max_attempts: config.init_retries,
            max_init_timeo: millis(config.rto_max).min(u32::from(u16::MAX)) as u16,
        };
        self.set(ffi::SCTP_INITMSG, &init)?;
        let rto = ffi::RtoInfo {
            assoc_id: 0,
            initial: millis(config.rto_initial),
            max: millis(config.rto_max),
            min: millis(config.rto_min),
        };
        self.set(ffi::SCTP_RTOINFO, &rto)?;
        self.set(ffi::SCTP_ASSOCINFO, &ffi::AssocParams { asocmaxrxt: config.retries, ..Default::default() })?;
        let heartbeat = if config.heartbeat.is_zero() { ffi::SPP_HB_DISABLE } else { ffi::SPP_HB_ENABLE };
        let path = ffi::PaddrParams {
            assoc_id: 0,
            address: [0; 32],
            hbinterval: millis(config.heartbeat),
            pathmaxrxt: config.retries,
            pathmtu: 0,
            sackdelay: 0,
            flags: heartbeat,
            ipv6_flowlabel: 0,
            dscp: 0,
        };
        self.set(ffi::SCTP_PEER_ADDR_PARAMS, &path)?;
        // All associations share the socket's buffers; the endpoint enforces the limit of each
        // association.
        socket::set_buffers(
            &self.0,
            (config.send_buffer.max(MAX_MESSAGE as u32) as i32).saturating_mul(8).min(1 << 28),
        );
        Ok(())
    }

    fn set<T: Copy>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        socket::set(&self.0, libc::IPPROTO_SCTP, option, value)
    }

    fn bind(&self, addresses: &[IpAddr], port: u16) -> Result<(), BindError> {
        let refused = |address: IpAddr| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::AddrInUse => BindError::PortInUse { address, port },
                io::ErrorKind::AddrNotAvailable => BindError::NoSuchAddress(address),
                io::ErrorKind::PermissionDenied => {
                    BindError::System { operation: "binding an SCTP port below 1024", error }
                }
                _ => BindError::System { operation: "binding the SCTP socket", error },
            }
        };
        let Some((first, rest)) = addresses.split_first() else { return Ok(()) };
        socket::bind(&self.0, SocketAddr::new(*first, port)).map_err(refused(*first))?;
        let own = socket::name(&self.0).map_err(BindError::system("reading the SCTP port"))?;
        for address in rest {
            let name = SockAddr::new(SocketAddr::new(*address, own.map_or(port, |own| own.port())));
            let (fd, sctp, add) = (self.0.as_raw_fd(), libc::IPPROTO_SCTP, ffi::SCTP_SOCKOPT_BINDX_ADD);
            // SAFETY: the descriptor is open and the name has the length that is passed.
            let added = check(unsafe { libc::setsockopt(fd, sctp, add, name.as_ptr().cast(), name.len()) });
            added.map_err(refused(*address))?;
        }
        Ok(())
    }

    /// Wraps a socket that another process has opened.
    pub(super) fn adopt(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Duplicates the descriptor for another process.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Returns the bound port.
    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(socket::name(&self.0)?.map_or(0, |own| own.port()))
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Starts an association and returns its kernel identifier.
    pub(super) fn connect(&self, peer: SocketAddr) -> io::Result<i32> {
        let name = SockAddr::new(peer);
        let mut param = ffi::GetAddrsOld { assoc_id: 0, addr_num: name.len() as i32, addrs: name.as_ptr() };
        let mut size = size_of::<ffi::GetAddrsOld>() as libc::socklen_t;
        let (fd, option) = (self.0.as_raw_fd(), ffi::SCTP_SOCKOPT_CONNECTX3);
        let value = (&raw mut param).cast();
        // SAFETY: the descriptor is open, and the parameter and the name it points to have the
        // sizes that are passed.
        match check(unsafe { libc::getsockopt(fd, libc::IPPROTO_SCTP, option, value, &raw mut size) }) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(param.assoc_id),
        }
    }

    /// Queues a message, or (with SCTP_EOF or SCTP_ABORT and no data) ends an association.
    pub(super) fn send(&self, info: ffi::SndInfo, data: &[u8]) -> io::Result<()> {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut control = Control([0; 64]);
        let mut vector = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        let mut header = libc::msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: &raw mut vector,
            msg_iovlen: usize::from(!data.is_empty()),
            msg_control: control.0.as_mut_ptr().cast(),
            msg_controllen: control.0.len(),
            msg_flags: 0,
        };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the control block is aligned and larger than the one item that is put into it;
        // everything the header points to outlives the call, which only reads.
        let sent = unsafe {
            let item = libc::CMSG_FIRSTHDR(&raw const header);
            (*item).cmsg_level = libc::IPPROTO_SCTP;
            (*item).cmsg_type = ffi::SCTP_SNDINFO;
            (*item).cmsg_len = libc::CMSG_LEN(size_of::<ffi::SndInfo>() as u32) as usize;
            libc::CMSG_DATA(item).cast::<ffi::SndInfo>().write_unaligned(info);
            header.msg_controllen = libc::CMSG_SPACE(size_of::<ffi::SndInfo>() as u32) as usize;
            libc::sendmsg(self.0.as_raw_fd(), &raw const header, flags)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the DATA chunks of an association that are unsent or unacknowledged; `None` if it
    /// ended.
    pub(super) fn outstanding(&self, assoc: i32) -> Option<usize> {
        let mut status = ffi::Status {
            assoc_id: assoc,
            state: 0,
            rwnd: 0,
            unackdata: 0,
            penddata: 0,
            instrms: 0,
            outstrms: 0,
            fragmentation_point: 0,
            primary: [0; 38],
        };
        let mut size = size_of::<ffi::Status>() as libc::socklen_t;
        let (fd, value) = (self.0.as_raw_fd(), (&raw mut status).cast());
        // SAFETY: the descriptor is open and the value has the size that is passed.
        let got = unsafe { libc::getsockopt(fd, libc::IPPROTO_SCTP, ffi::SCTP_STATUS, value, &raw mut size) };
        (got == 0).then(|| usize::from(status.unackdata) + usize::from(status.penddata))
    }

    /// Returns the number of packets that an association has received; `None` if it ended.
    pub(super) fn packets(&self, assoc: i32) -> Option<u64> {
        let mut stats =
            ffi::AssocStats { assoc_id: assoc, address: [0; 16], before: [0; 4], packets: 0, after: [0; 10] };
        let mut size = size_of::<ffi::AssocStats>() as libc::socklen_t;
        let (fd, value) = (self.0.as_raw_fd(), (&raw mut stats).cast());
        // SAFETY: the descriptor is open and the value has the size that is passed.
        let got = unsafe { libc::getsockopt(fd, libc::IPPROTO_SCTP, ffi::SCTP_GET_ASSOC_STATS, value, &raw mut size) };
        (got == 0).then_some(stats.packets)
    }

    /// Sends a heartbeat on every path of an association.
    pub(super) fn heartbeat(&self, assoc: i32) -> io::Result<()> {
        let path = ffi::PaddrParams {
            assoc_id: assoc,
            // Unspecified address: all paths of the association.
            address: [0; 32],
            hbinterval: 0,
            pathmaxrxt: 0,
            pathmtu: 0,
            sackdelay: 0,
            flags: ffi::SPP_HB_DEMAND,
            ipv6_flowlabel: 0,
            dscp: 0,
        };
        self.set(ffi::SCTP_PEER_ADDR_PARAMS, &path)
    }

    /// Returns true if the socket accepts another message at present.
    pub(super) fn is_writable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one structure is passed, and its number is one.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        ready == 1 && poll.revents & libc::POLLOUT != 0
    }

    /// Makes closing the socket abort the remaining associations.
    pub(super) fn abort_on_close(&self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let _ = socket::set(&self.0, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    }
}
