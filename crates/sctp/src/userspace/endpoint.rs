//! The userspace driver's [`Endpoint`]: usrsctp on the polling thread.

use super::associations::{Associations, Phase};
use super::callbacks::Events;
use super::library::{self, MessageHeader, TICK};
use super::packets::{self, Packets};
use super::peers::{Peer, is_unicast};
use super::shared::Shared;
use super::{checksum, ffi, transport};
use crate::assocs::stream;
use crate::config::{BindError, Config, Driver};
use crate::endpoint::{Endpoint, Event, SendError};
use crate::sys::{Reactor, Ready, RecvBatch, Waker};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vireo_types::AssocId;

/// Batches read from one transport before the next transport is read.
const BATCHES: usize = 4;
/// Maximum sleep of an endpoint without associations: the library renews its cookie secret by a
/// timer.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum delay of an acknowledgement that waits to be bundled with an answer.
///
/// Other stacks wait 200 ms. This delay is too short to matter. It saves a packet each way if the
/// owner answers from another thread.
const HOLD: Duration = Duration::from_micros(300);
/// Bytes of the common header.
const HEADER: usize = 12;
/// Bytes of the smallest packet: a common header and one chunk header.
const SMALLEST: usize = HEADER + 4;
/// Chunk types (RFC 9260 3.2).
const HEARTBEAT_ACK: u8 = 5;
const COOKIE_ECHO: u8 = 10;

/// An endpoint over usrsctp.
#[derive(Debug)]
pub(crate) struct Userspace {
    shared: Arc<Shared>,
    reactor: Reactor,
    received: RecvBatch,
    packets: Packets,
    events: Events,
    associations: Associations,
    config: Config,
    driver: String,
    /// Time since which acknowledgements wait to be bundled.
    sacks_since: Option<Instant>,
    /// True if wrong checksums have been logged.
    warned: bool,
}

impl Userspace {
    pub(crate) fn bind(config: &Config, driver: String) -> Result<Box<dyn Endpoint>, BindError> {
        let reactor = Reactor::new().map_err(BindError::system("making an epoll instance"))?;
        let transports = transport::open(config)?;
        for (number, transport) in transports.iter().enumerate() {
            reactor.add(transport.fd(), number as u32).map_err(BindError::system("watching a socket"))?;
        }
        let mtu = transports.iter().map(|transport| transport.mtu(config.path_mtu)).min().unwrap_or(512);
        let waker = reactor.waker();
        let mut library = library::lock();
        let shared = library.register(|number| Shared::new(number, transports, waker))?;
        let associations = match Associations::open(&mut library, &shared, config, mtu) {
            Ok(associations) => associations,
            Err(error) => {
                library.unregister(shared.number);
                return Err(error);
            }
        };
        drop(library);
        Ok(Box::new(Self {
            shared,
            reactor,
            received: RecvBatch::new(),
            packets: Packets::new(mtu as usize + 12),
            events: Events::default(),
            associations,
            config: config.clone(),
            driver,
            sacks_since: None,
            warned: false,
        }))
    }

    fn flush(&mut self) {
        self.sacks_since = None;
        if self.packets.len() > 0 {
            self.shared.transmit(&mut self.packets);
        }
    }

    /// Sends the pending packets, unless they are only recent acknowledgements.
    ///
    /// The owner's answers may still be bundled with these. Returns how long they may wait.
    fn flush_or_hold(&mut self) -> Option<Duration> {
        if self.packets.len() > 0 && self.packets.are_sacks() {
            let left = HOLD.saturating_sub(self.sacks_since.get_or_insert_with(Instant::now).elapsed());
            if !left.is_zero() {
                return Some(left);
            }
        }
        self.flush();
        None
    }

    /// Returns true if events wait for the next poll.
    fn has_pending(&self) -> bool {
        self.associations.has_pending() || !self.events.list.is_empty()
    }

    /// Reads a transport and passes its packets to the library.
    fn receive(&mut self, number: u32) {
        let Some(transport) = self.shared.transports.get(number as usize) else { return };
        for _ in 0..BATCHES {
            // An error that concerns one peer (interface down, unreachable) must not end other
            // associations.
            let count = self.received.receive(transport.fd()).unwrap_or_else(|error| {
                tracing::debug!(%error, local = %transport.local, "receiving SCTP packets");
                0
            });
            let mut library = library::lock();
            let mut routes = self.shared.routes();
            for slot in 0..count {
                let Some(datagram) = self.received.get(slot) else { continue };
                let Some(incoming) = transport.parse(datagram) else { continue };
                let Some((source, destination)) = ports(incoming.packet) else { continue };
                let Some(destination) = self.associations.virtual_port(destination) else { continue };
                if !is_unicast(incoming.from.ip()) || incoming.to.is_some_and(|to| !is_unicast(to)) {
                    continue;
                }
                if !checksum::is_right(incoming.packet) {
                    warn_once(&mut self.warned, incoming.from);
                    continue;
                }
                let local = routes.local(number as u8, incoming.to);
                let peer = Peer { address: incoming.from, port: source, local };
                let tag = tag(incoming.packet);
                let Some(source) = routes.peers.enter_by_tag(peer, tag) else { continue };
                if incoming.packet[HEADER] == COOKIE_ECHO {
                    routes.peers.propose_tag(source, tag);
                }
                if routes.peers.is_probed(source) {
                    let answer = packets::chunk(incoming.packet, HEARTBEAT_ACK).unwrap_or_default();
                    routes.peers.on_heartbeat_ack(source, tag, answer);
                }
                incoming.packet[..2].copy_from_slice(&source.to_be_bytes());
                incoming.packet[2..4].copy_from_slice(&destination.to_be_bytes());
                library.input(self.shared.number, incoming.packet);
            }
            drop(routes);
            library.collect(&self.shared, &mut self.packets, &mut self.events);
            drop(library);
            if count < crate::sys::DATAGRAMS {
                break;
            }
        }
    }

    /// Waits once and handles the ready descriptors. Returns the number of events, and whether
    /// woken.
    fn poll_once(&mut self, wait: Duration, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<(usize, bool)> {
        let woken = self.reactor.wait(Some(wait))?;
        let mut count = 0;
        let ready = self.reactor.take_ready();
        for item in &ready {
            match *item {
                Ready::Own(number) => self.receive(number),
                Ready::Watched(token) => {
                    sink(Event::Readable { token });
                    count += 1;
                }
            }
        }
        self.reactor.put_back(ready);
        self.shared.take_delivered(&mut self.events);
        let mut library = library::lock();
        let now = Instant::now();
        library.tick(now);
        self.associations.close_retired(&mut library, now);
        library.collect(&self.shared, &mut self.packets, &mut self.events);
        drop(library);
        // The library lock is released while the owner handles its events, which may use another
        // endpoint.
        count += self.associations.apply(&self.shared, &self.events, sink);
        self.events.clear();
        // Collects the output of the handled events (aborts of unwanted associations).
        library::lock().collect(&self.shared, &mut self.packets, &mut self.events);
        self.shared.routes().peers.forget_passing();
        Ok((count, woken))
    }
}

/// Logs wrong checksums once.
///
/// They are noise, or the only indication why a peer gets no answer.
fn warn_once(warned: &mut bool, from: SocketAddr) {
    if !std::mem::replace(warned, true) {
        tracing::warn!(
            peer = %from.ip(),
            "dropping SCTP packets with wrong checksums; if the peer is a kernel on this machine that leaves them to its \
             interface, use `ethtool -K INTERFACE tx-checksum-sctp off`"
        );
    }
}

/// Returns the verification tag of a packet that is long enough.
fn tag(packet: &[u8]) -> u32 {
    u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]])
}

/// Returns the source and destination port of a packet; `None` if it is too short.
fn ports(packet: &[u8]) -> Option<(u16, u16)> {
    let number = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    (packet.len() >= SMALLEST).then(|| (number(0), number(2)))
}

impl Endpoint for Userspace {
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut total = 0;
        loop {
            let hold = self.flush_or_hold();
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let most = if self.associations.is_empty() { IDLE } else { TICK };
            let pending = total > 0 || self.has_pending();
            let wait = if pending { Duration::ZERO } else { rest.map_or(most, |rest| rest.min(most)) };
            let wait = hold.map_or(wait, |hold| hold.min(wait));
            let (count, woken) = self.poll_once(wait, sink)?;
            total += count;
            if total > 0 || woken || rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(total);
            }
        }
    }

    fn send_pending(&mut self) {
        self.flush_or_hold();
    }

    fn send(&mut self, assoc: AssocId, wanted: u16, ppid: u32, data: &[u8]) -> Result<(), SendError> {
        if data.is_empty() || data.len() > crate::MAX_MESSAGE {
            return Err(SendError::Io(io::ErrorKind::InvalidInput.into()));
        }
        let Some((assoc, socket)) = self.associations.get(assoc) else { return Err(SendError::NoAssociation) };
        if assoc.phase != Phase::Up {
            return Err(SendError::NoAssociation);
        }
        let flags = if self.config.sack_immediately { ffi::SCTP_SACK_IMMEDIATELY } else { 0 };
        let stream = stream(wanted, assoc.outbound_streams);
        let mut library = library::lock();
        let sent = library.send(socket, assoc.raw, MessageHeader { stream, ppid, flags }, data);
        library.collect(&self.shared, &mut self.packets, &mut self.events);
        drop(library);
        match sent {
            Ok(()) => {
                if self.packets.len() >= crate::sys::DATAGRAMS {
                    self.flush();
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let id = assoc.id;
                self.associations.block(id);
                Err(SendError::Full)
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTCONN | libc::EPIPE | libc::ECONNRESET) => Err(SendError::NoAssociation),
                _ => Err(error.into()),
            },
        }
    }

    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId> {
        let udp = self.config.driver == Driver::UserspaceUdp;
        let mut remote = peer;
        remote.set_port(if udp { self.config.udp_remote_port } else { 0 });
        let mut library = library::lock();
        let connected = self.associations.connect(&mut library, &self.shared, &self.config, remote, peer.port());
        library.collect(&self.shared, &mut self.packets, &mut self.events);
        drop(library);
        self.flush();
        connected
    }

    fn shutdown(&mut self, assoc: AssocId) {
        let mut library = library::lock();
        self.associations.shutdown(&mut library, assoc);
        library.collect(&self.shared, &mut self.packets, &mut self.events);
        drop(library);
        self.flush();
    }

    fn abort(&mut self, assoc: AssocId) {
        let mut library = library::lock();
        self.associations.abort(&mut library, &self.shared, assoc, "aborted by this side");
        library.collect(&self.shared, &mut self.packets, &mut self.events);
        drop(library);
        self.flush();
    }

    fn probe(&mut self, assoc: AssocId) {
        let mut library = library::lock();
        self.associations.probe(&mut library, &self.shared, assoc);
        library.collect(&self.shared, &mut self.packets, &mut self.events);
        drop(library);
        self.flush();
    }

    fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        self.reactor.watch(fd, token)
    }

    fn waker(&self) -> Waker {
        self.reactor.waker()
    }

    fn descriptor(&self) -> RawFd {
        self.reactor.fd()
    }

    fn poll_within(&self) -> Option<Duration> {
        if self.has_pending() {
            return Some(Duration::ZERO);
        }
        let held = self.sacks_since.map(|_| HOLD);
        Some(held.unwrap_or(if self.associations.is_empty() { IDLE } else { TICK }))
    }

    fn driver(&self) -> &str {
        &self.driver
    }

    fn parses_packets(&self) -> bool {
        true
    }

    fn port(&self) -> u16 {
        self.config.port
    }

    fn detach(self: Box<Self>) {
        // Nothing of the endpoint can be handed off, so it ends.
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        let mut library = library::lock();
        self.associations.close(&mut library);
        library.collect(&self.shared, &mut self.packets, &mut self.events);
        library.unregister(self.shared.number);
        drop(library);
        self.flush();
    }
}
