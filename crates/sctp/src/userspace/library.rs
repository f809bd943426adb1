//! The single usrsctp instance of the process, behind a lock.
//!
//! Every call into usrsctp goes through [`Library`]. So it never runs on two threads at once, and
//! starts none.
//!
//! The library has one port space for the whole process. Endpoints with different addresses may
//! have the same port. So each socket gets a *virtual* port here, as each peer does
//! ([`super::peers`]). Packets are translated on their way in and out.

use super::callbacks::{self, Events, Tag};
use super::ffi;
use super::packets::Packets;
use super::shared::Shared;
use crate::config::{BindError, Config};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Maximum endpoints of a process: the library scans the list of their addresses for each packet.
pub(super) const MAX_ENDPOINTS: usize = 127;
/// Interval of the library's timers while timers are running.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// Maximum seconds of a shutdown that delivers queued data (T5, RFC 9260 9.2), for all endpoints.
const SHUTDOWN_GUARD_S: u32 = 30;
/// First virtual port; the library refuses lower ports to unprivileged processes.
const FIRST_PORT: u16 = 1024;

static LIBRARY: OnceLock<Mutex<Library>> = OnceLock::new();

/// A socket of the library. Only [`Library`], which is locked, dereferences the pointer.
#[derive(Debug)]
pub(super) struct Socket {
    raw: NonNull<ffi::socket>,
    /// Virtual port of the socket.
    pub(super) port: u16,
}

// SAFETY: the pointer is used only under the lock of `LIBRARY`, from whichever thread.
unsafe impl Send for Socket {}

/// Stream, payload protocol and `SCTP_*` flags of a message to send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageHeader {
    pub(super) stream: u16,
    pub(super) ppid: u32,
    pub(super) flags: u16,
}

impl MessageHeader {
    /// Returns the header of an empty message that only ends an association.
    pub(super) fn ending(flags: u16) -> Self {
        Self { flags, ..Self::default() }
    }
}

#[derive(Debug)]
pub(super) struct Library {
    endpoints: Vec<Option<Arc<Shared>>>,
    /// Number of endpoints whose address is registered in the library. Addresses are never
    /// unregistered.
    registered: u8,
    /// SCTP port by virtual port.
    wire_ports: Box<[u16]>,
    /// Virtual ports of closed sockets whose last packets are not collected yet.
    released: Vec<u16>,
    next_port: u16,
    last_tick: Instant,
}

/// Locks the library, and starts it on the first call.
pub(super) fn lock() -> MutexGuard<'static, Library> {
    LIBRARY.get_or_init(|| Mutex::new(Library::start())).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    fn start() -> Self {
        // SAFETY: called once, by OnceLock; the callbacks are functions that live for ever, and a
        // null debug function is allowed. CRC32c is "offloaded" to `Library::collect` and `input`.
        // Extensions that N2 does not need are off, so that no peer reaches their code.
        unsafe {
            ffi::usrsctp_init_nothreads(0, callbacks::output, None);
            ffi::usrsctp_enable_crc32c_offload();
            ffi::usrsctp_sysctl_set_sctp_ecn_enable(0);
            ffi::usrsctp_sysctl_set_sctp_asconf_enable(0);
            ffi::usrsctp_sysctl_set_sctp_auto_asconf(0);
            ffi::usrsctp_sysctl_set_sctp_auth_enable(0);
            ffi::usrsctp_sysctl_set_sctp_reconfig_enable(0);
            ffi::usrsctp_sysctl_set_sctp_nrsack_enable(0);
            ffi::usrsctp_sysctl_set_sctp_pktdrop_enable(0);
            ffi::usrsctp_sysctl_set_sctp_pr_enable(0);
            // Only the congestion window limits a flight (RFC 9260 clause 6.1 D merely recommends
            // Max.Burst). In this library, Max.Burst also cuts the window to 4 packets beyond the
            // flight. Then the backlog of a millisecond took several to drain.
            ffi::usrsctp_sysctl_set_sctp_max_burst_default(0);
            ffi::usrsctp_sysctl_set_sctp_shutdown_guard_time_default(SHUTDOWN_GUARD_S);
        }
        Self {
            endpoints: vec![None; MAX_ENDPOINTS + 1],
            registered: 0,
            wire_ports: vec![0; 1 << 16].into(),
            released: Vec::new(),
            next_port: FIRST_PORT,
            last_tick: Instant::now(),
        }
    }

    /// Registers an endpoint, created by `make` with its number.
    pub(super) fn register(&mut self, make: impl FnOnce(u8) -> Shared) -> Result<Arc<Shared>, BindError> {
        let free = (1..=MAX_ENDPOINTS).find(|number| self.endpoints[*number].is_none());
        let number = free.ok_or(BindError::TooManyEndpoints(MAX_ENDPOINTS))?;
        let number = number as u8;
        while self.registered < number {
            self.registered += 1;
            // SAFETY: the library is started and locked, and never follows the address.
            unsafe { ffi::usrsctp_register_address(callbacks::address(self.registered)) };
        }
        let shared = Arc::new(make(number));
        self.endpoints[usize::from(number)] = Some(shared.clone());
        Ok(shared)
    }

    /// Removes an endpoint.
    pub(super) fn unregister(&mut self, number: u8) {
        self.endpoints[usize::from(number)] = None;
    }

    /// Opens a one-to-many socket for SCTP port `wire_port`, with the options of `config`.
    pub(super) fn open(&mut self, tag: Tag, wire_port: u16, config: &Config, mtu: u32) -> io::Result<Socket> {
        let (family, kind) = (c_int::from(ffi::AF_CONN), libc::SOCK_SEQPACKET);
        let (receive, ulp) = (Some(callbacks::receive as ffi::Receive), tag.to_ptr());
        // SAFETY: the library is started and locked; the callback lives for ever; the tag is never
        // followed.
        let raw = unsafe { ffi::usrsctp_socket(family, kind, libc::IPPROTO_SCTP, receive, None, 0, ulp) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let mut socket = Socket { raw, port: 0 };
        match self.set_up(&mut socket, config, mtu) {
            Ok(()) => {
                self.wire_ports[usize::from(socket.port)] = wire_port;
                Ok(socket)
            }
            Err(error) => {
                self.close(socket);
                Err(error)
            }
        }
    }

    fn set_up(&mut self, socket: &mut Socket, config: &Config, mtu: u32) -> io::Result<()> {
        // SAFETY: the socket is open and the library is locked.
        unsafe { ffi::usrsctp_set_non_blocking(socket.raw.as_ptr(), 1) };
        super::options::set(socket, config, mtu)?;
        self.bind(socket)?;
        if config.listen {
            // SAFETY: the socket is open and the library is locked.
            result(unsafe { ffi::usrsctp_listen(socket.raw.as_ptr(), 128) })?;
        }
        Ok(())
    }

    /// Binds to the next free virtual port.
    fn bind(&mut self, socket: &mut Socket) -> io::Result<()> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in FIRST_PORT..=u16::MAX {
            let port = self.next_port;
            self.next_port = if port == u16::MAX { FIRST_PORT } else { port + 1 };
            if self.wire_ports[usize::from(port)] != 0 {
                continue;
            }
            let name = conn(0, port);
            // SAFETY: the socket is open, the name outlives the call, and the library is locked.
            let bound = unsafe { ffi::usrsctp_bind(socket.raw.as_ptr(), &raw const name, NAME) };
            match result(bound) {
                Ok(()) => {
                    socket.port = port;
                    return Ok(());
                }
                // The library may not have released the port of a closed socket yet.
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Starts an association with the peer of a virtual port, and returns its number in the
    /// library.
    pub(super) fn connect(&mut self, socket: &Socket, endpoint: u8, port: u16) -> io::Result<u32> {
        let name = conn(endpoint, port);
        // SAFETY: the socket is open, the name outlives the call, and the library is locked.
        let connected = result(unsafe { ffi::usrsctp_connect(socket.raw.as_ptr(), &raw const name, NAME) });
        match connected {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        // SAFETY: as above.
        match unsafe { ffi::usrsctp_getassocid(socket.raw.as_ptr(), &raw const name) } {
            0 => Err(io::ErrorKind::NotConnected.into()),
            assoc => Ok(assoc),
        }
    }

    /// Queues a message, or (with SCTP_EOF or SCTP_ABORT and no data) ends an association.
    pub(super) fn send(&mut self, socket: &Socket, assoc: u32, header: MessageHeader, data: &[u8]) -> io::Result<()> {
        let MessageHeader { stream, ppid, flags } = header;
        let mut info = ffi::sctp_sndinfo { sid: stream, flags, ppid: ppid.to_be(), context: 0, assoc_id: assoc };
        let (bytes, none) = (data.as_ptr().cast::<c_void>(), std::ptr::null_mut());
        let size = size_of::<ffi::sctp_sndinfo>() as libc::socklen_t;
        let (raw, info, kind) = (socket.raw.as_ptr(), &raw mut info, ffi::SCTP_SENDV_SNDINFO);
        // SAFETY: the socket is open, data and info outlive the call, and the library is locked.
        if unsafe { ffi::usrsctp_sendv(raw, bytes, data.len(), none, 0, info, size, kind, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sends a heartbeat to the peer of a virtual port.
    pub(super) fn heartbeat(&mut self, socket: &Socket, endpoint: u8, port: u16) -> io::Result<()> {
        let name = conn(endpoint, port);
        let mut address = [0; 126];
        address[..2].copy_from_slice(&name.port.to_ne_bytes());
        // After the padding that aligns the pointer.
        address[6..14].copy_from_slice(&name.addr.addr().to_ne_bytes());
        let path = ffi::sctp_paddrparams {
            family: name.family,
            address,
            assoc_id: 0,
            hbinterval: 0,
            pathmtu: 0,
            flags: ffi::SPP_HB_DEMAND,
            ipv6_flowlabel: 0,
            pathmaxrxt: 0,
            dscp: 0,
        };
        set_option(socket, libc::IPPROTO_SCTP, ffi::SCTP_PEER_ADDR_PARAMS, &path)
    }

    /// Passes a packet to the library. Its checksum must be verified and its ports be virtual.
    pub(super) fn input(&mut self, endpoint: u8, packet: &[u8]) {
        let address = callbacks::address(endpoint);
        // SAFETY: the packet is copied by the library, which is locked and bounds its reads by the
        // length.
        unsafe { ffi::usrsctp_conninput(address, packet.as_ptr().cast(), packet.len(), 0) };
    }

    /// Returns the bytes that an association has queued; `None` if it ended.
    pub(super) fn queued_bytes(&mut self, socket: &Socket, assoc: u32) -> Option<u32> {
        let mut stat = ffi::sctp_sockstat { assoc_id: assoc, total_sndbuf: 0, total_recv_buf: 0 };
        let mut size = size_of::<ffi::sctp_sockstat>() as libc::socklen_t;
        let (raw, option) = (socket.raw.as_ptr(), ffi::SCTP_GET_SNDBUF_USE);
        let value = (&raw mut stat).cast();
        // SAFETY: the socket is open, the value has the size that is passed, and the library is
        // locked.
        let got = unsafe { ffi::usrsctp_getsockopt(raw, libc::IPPROTO_SCTP, option, value, &raw mut size) };
        (got == 0).then_some(stat.total_sndbuf)
    }

    /// Closes a socket and aborts its associations.
    pub(super) fn close(&mut self, socket: Socket) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
        // SAFETY: the socket is open, this is the last use of the pointer, and the library is
        // locked.
        unsafe { ffi::usrsctp_close(socket.raw.as_ptr()) };
        self.released.push(socket.port);
    }

    /// Runs the timers that are due.
    pub(super) fn tick(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.last_tick);
        if elapsed >= TICK {
            let millis = elapsed.as_millis().min(u128::from(u32::MAX)) as u32;
            self.last_tick += Duration::from_millis(millis.into());
            // SAFETY: the library is started and locked.
            unsafe { ffi::usrsctp_handle_timers(millis) };
        }
    }

    /// Collects the packets and events that calls have produced since the last collection.
    ///
    /// Those of endpoint `mine` go to the two buffers. Those of other endpoints (timers run on any
    /// polling thread) go directly to them.
    pub(super) fn collect(&mut self, mine: &Shared, packets: &mut Packets, events: &mut Events) {
        callbacks::with_produced(|produced| {
            if !produced.packets.is_empty() {
                let mut routes = mine.routes();
                for (endpoint, range) in &produced.packets {
                    let packet = &produced.bytes[range.clone()];
                    if *endpoint == mine.number {
                        packets.push(&mut routes, packet, &self.wire_ports);
                    } else if let Some(Some(other)) = self.endpoints.get(usize::from(*endpoint)) {
                        other.transmit_one(packet, &self.wire_ports);
                    }
                }
            }
            for event in &produced.events.list {
                if event.tag.endpoint == mine.number {
                    events.copy(*event, &produced.events.bytes);
                } else if let Some(Some(other)) = self.endpoints.get(usize::from(event.tag.endpoint)) {
                    other.deliver(*event, &produced.events.bytes);
                }
            }
            produced.clear();
        });
        for port in self.released.drain(..) {
            self.wire_ports[usize::from(port)] = 0;
        }
    }
}

const NAME: libc::socklen_t = size_of::<ffi::sockaddr_conn>() as libc::socklen_t;

/// Returns the name of a peer; if `endpoint` is 0, of any peer.
fn conn(endpoint: u8, port: u16) -> ffi::sockaddr_conn {
    ffi::sockaddr_conn { family: ffi::AF_CONN, port: port.to_be(), addr: callbacks::address(endpoint) }
}

/// Converts the result of a call that returns -1 and sets `errno`.
fn result(value: c_int) -> io::Result<()> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets a socket option; `value` must be the structure of that option.
pub(super) fn set_option<T>(socket: &Socket, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let (raw, size) = (socket.raw.as_ptr(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the socket is open, the value has the size that is passed, and the caller holds the
    // library: sockets are reachable only through it.
    result(unsafe { ffi::usrsctp_setsockopt(raw, level, option, (&raw const *value).cast(), size) })
}
