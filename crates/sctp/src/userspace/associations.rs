//! Sockets and associations of one endpoint, and the handling of library events.

use super::callbacks::{EventKind, Events, LibraryEvent, Tag};
use super::ffi;
use super::library::{self, Library, MessageHeader, Socket};
use super::peers::Peer;
use super::ports::{self, Lease};
use super::shared::Shared;
use crate::assocs::{AssociationMap, FastMap};
use crate::config::{BindError, Config, Driver};
use crate::endpoint::Event;
use crate::sys::socket;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use vireo_types::AssocId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Up,
    /// This side has requested a shutdown.
    Closing,
}

#[derive(Debug)]
pub(super) struct Association {
    pub(super) id: AssocId,
    /// Identifier in the library, unique within its socket.
    pub(super) raw: u32,
    pub(super) outbound_streams: u16,
    pub(super) phase: Phase,
    socket: u32,
    /// Virtual port of the peer.
    pub(super) peer: u16,
}

/// A socket of the library with its SCTP port.
#[derive(Debug)]
struct BoundSocket {
    socket: Socket,
    lease: Lease,
}

/// The socket with the endpoint's own port. Other sockets have one association each.
const MAIN: u32 = 0;
/// Time that a socket outlives its association.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Associations {
    sockets: FastMap<u32, BoundSocket>,
    /// Virtual port by SCTP port.
    ports: FastMap<u32, u16>,
    assocs: AssociationMap<Association>,
    /// Associations that must report [`Event::Writable`].
    blocked: Vec<AssocId>,
    /// Associations with an open probe.
    probed: Vec<AssocId>,
    /// Associations that this side ended, with their key in the library and the reason.
    ended: Vec<(AssocId, u64, &'static str)>,
    /// Sockets whose associations ended, with the time to close them.
    retired: VecDeque<(Instant, u32)>,
    /// Ports that the filters of the transports pass.
    filtered: Option<RangeInclusive<u16>>,
    next_socket: u32,
    next_port: u16,
    mtu: u32,
    limit: usize,
    send_buffer: u32,
}

fn key(socket: u32, raw: u32) -> u64 {
    u64::from(socket) << 32 | u64::from(raw)
}

impl Associations {
    /// Opens the main socket if the endpoint has a port.
    pub(super) fn open(library: &mut Library, shared: &Shared, config: &Config, mtu: u32) -> Result<Self, BindError> {
        let mut this = Self {
            sockets: FastMap::default(),
            ports: FastMap::default(),
            assocs: AssociationMap::default(),
            blocked: Vec::new(),
            probed: Vec::new(),
            ended: Vec::new(),
            retired: VecDeque::new(),
            filtered: None,
            next_socket: MAIN + 1,
            // The start in the dynamic range depends on the process, so that a restarted process
            // does not reuse ports of its old associations.
            next_port: 49_152 | (std::process::id() as u16).wrapping_mul(0x1f35),
            mtu,
            limit: config.max_associations,
            send_buffer: config.send_buffer,
        };
        if config.port != 0 {
            let addresses = shared.transports.iter().map(|transport| transport.local);
            let lease = ports::claim(addresses, config.port, config.driver != Driver::UserspaceUdp)?;
            this.add_socket(library, shared, config, MAIN, lease)
                .map_err(BindError::system("opening the SCTP socket"))?;
        }
        Ok(this)
    }

    fn add_socket(
        &mut self,
        library: &mut Library,
        shared: &Shared,
        config: &Config,
        number: u32,
        lease: Lease,
    ) -> io::Result<()> {
        let tag = Tag { endpoint: shared.number, socket: number };
        let socket = library.open(tag, lease.port, config, self.mtu)?;
        self.ports.insert(lease.port.into(), socket.port);
        self.sockets.insert(number, BoundSocket { socket, lease });
        self.widen_filter(shared);
        Ok(())
    }

    /// Widens the transports' filters to all ports from the lowest to the highest in use.
    ///
    /// The filters are never narrowed. Packets for ports that are not in use are dropped later.
    fn widen_filter(&mut self, shared: &Shared) {
        let used = || self.sockets.values().map(|bound| bound.lease.port);
        let ports = used().min().unwrap_or(0)..=used().max().unwrap_or(0);
        let known =
            self.filtered.clone().is_some_and(|known| known.contains(ports.start()) && known.contains(ports.end()));
        if !known {
            shared.transports.iter().for_each(|transport| transport.filter(ports.clone()));
            self.filtered = Some(ports);
        }
    }

    /// Returns the virtual port for an SCTP port of this endpoint.
    pub(super) fn virtual_port(&self, port: u16) -> Option<u16> {
        self.ports.get(&u32::from(port)).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.assocs.len() == 0
    }

    /// Returns true if there are events that do not need a packet.
    pub(super) fn has_pending(&self) -> bool {
        !self.ended.is_empty()
    }

    pub(super) fn get(&self, id: AssocId) -> Option<(&Association, &Socket)> {
        let assoc = self.assocs.get(id)?;
        Some((assoc, &self.sockets.get(&assoc.socket)?.socket))
    }

    /// Stores that the buffer of an association was full.
    pub(super) fn block(&mut self, id: AssocId) {
        if !self.blocked.contains(&id) {
            self.blocked.push(id);
        }
    }

    pub(super) fn connect(
        &mut self,
        library: &mut Library,
        shared: &Shared,
        config: &Config,
        remote: SocketAddr,
        port: u16,
    ) -> io::Result<AssocId> {
        if self.assocs.len() >= self.limit {
            return Err(io::Error::other("the endpoint has all the associations it may have"));
        }
        let transport = shared.transports.iter().position(|transport| transport.local.is_ipv4() == remote.is_ipv4());
        let transport = transport.ok_or(io::ErrorKind::AddrNotAvailable)?;
        // On a wildcard address, answers must arrive at the source address that is used.
        let any = shared.transports.get(transport).is_some_and(|transport| transport.local.is_unspecified());
        let source = any.then(|| socket::source_for(remote)).transpose()?;
        let mut routes = shared.routes();
        let peer = Peer { address: remote, port, local: routes.local(transport as u8, source) };
        let peer = routes.peers.enter(peer).ok_or(io::ErrorKind::AddrInUse)?;
        drop(routes);
        let number = if config.port == 0 { self.add_dynamic(library, shared, config)? } else { MAIN };
        let Some(bound) = self.sockets.get(&number) else { return Err(io::ErrorKind::NotConnected.into()) };
        let raw = match library.connect(&bound.socket, shared.number, peer) {
            Ok(raw) => raw,
            Err(error) => {
                self.retire_socket(number);
                return Err(error);
            }
        };
        let (outbound_streams, phase) = (config.outbound_streams, Phase::Connecting);
        let assoc = Association { id: AssocId(0), raw, outbound_streams, phase, socket: number, peer };
        Ok(self.insert(shared, assoc))
    }

    /// Opens a socket with a port of its own.
    fn add_dynamic(&mut self, library: &mut Library, shared: &Shared, config: &Config) -> io::Result<u32> {
        let ports = &self.ports;
        let shared_ports = config.driver != Driver::UserspaceUdp;
        let used = |port: u16| ports.contains_key(&u32::from(port));
        let lease = ports::claim_dynamic(&mut self.next_port, shared_ports, used)?;
        let number = self.next_socket;
        self.next_socket = self.next_socket.checked_add(1).unwrap_or(MAIN + 1);
        self.add_socket(library, shared, config, number, lease)?;
        Ok(number)
    }

    /// Adds an association, whose `id` is assigned here.
    fn insert(&mut self, shared: &Shared, assoc: Association) -> AssocId {
        shared.routes().peers.pin(assoc.peer);
        let id = self.assocs.insert(key(assoc.socket, assoc.raw), assoc);
        if let Some(assoc) = self.assocs.get_mut(id) {
            assoc.id = id;
        }
        id
    }

    /// Removes an association, and its socket if it has one of its own.
    fn remove(&mut self, shared: &Shared, id: AssocId) {
        if let Some(assoc) = self.assocs.remove(id) {
            shared.routes().peers.unpin(assoc.peer);
            self.blocked.retain(|blocked| *blocked != id);
            self.probed.retain(|probed| *probed != id);
            self.retire_socket(assoc.socket);
        }
    }

    /// Schedules the closing of a socket whose association ended.
    ///
    /// Until then the library still answers a peer if the last packet of either side was lost.
    fn retire_socket(&mut self, number: u32) {
        if number != MAIN {
            self.retired.push_back((Instant::now() + LINGER, number));
        }
    }

    /// Closes the sockets that are due.
    pub(super) fn close_retired(&mut self, library: &mut Library, now: Instant) {
        while let Some((_, number)) = self.retired.pop_front_if(|(due, _)| *due <= now) {
            if let Some(bound) = self.sockets.remove(&number) {
                self.ports.remove(&u32::from(bound.lease.port));
                library.close(bound.socket);
            }
        }
    }

    pub(super) fn shutdown(&mut self, library: &mut Library, id: AssocId) {
        let Some(assoc) = self.assocs.get_mut(id) else { return };
        let (raw, socket) = (assoc.raw, assoc.socket);
        assoc.phase = Phase::Closing;
        if let Some(bound) = self.sockets.get(&socket) {
            // It fails only when the association is already ending, which an event reports.
            let _ = library.send(&bound.socket, raw, MessageHeader::ending(ffi::SCTP_EOF), &[]);
        }
    }

    /// Starts a probe: sends a heartbeat and watches for the answer.
    pub(super) fn probe(&mut self, library: &mut Library, shared: &Shared, id: AssocId) {
        let Some((assoc, socket)) = self.get(id).filter(|(assoc, _)| assoc.phase == Phase::Up) else { return };
        shared.routes().peers.probe(assoc.peer);
        if library.heartbeat(socket, shared.number, assoc.peer).is_ok() && !self.probed.contains(&id) {
            self.probed.push(id);
        }
    }

    /// Returns the associations whose peers have answered a probe.
    fn alive(&mut self, shared: &Shared) -> Vec<AssocId> {
        let mut alive = Vec::new();
        if self.probed.is_empty() {
            return alive;
        }
        let (assocs, mut routes) = (&self.assocs, shared.routes());
        self.probed.retain(|id| {
            let answered = assocs.get(*id).is_some_and(|assoc| routes.peers.take_answer(assoc.peer));
            alive.extend(answered.then_some(*id));
            !answered
        });
        alive
    }

    pub(super) fn abort(&mut self, library: &mut Library, shared: &Shared, id: AssocId, reason: &'static str) {
        let Some(assoc) = self.assocs.get(id) else { return };
        let key = key(assoc.socket, assoc.raw);
        self.abort_raw(library, assoc.socket, assoc.raw);
        self.remove(shared, id);
        self.ended.push((id, key, reason));
    }

    fn abort_raw(&self, library: &mut Library, socket: u32, raw: u32) {
        if let Some(bound) = self.sockets.get(&socket) {
            let _ = library.send(&bound.socket, raw, MessageHeader::ending(ffi::SCTP_ABORT), &[]);
        }
    }

    /// Closes every socket. Its associations are aborted.
    pub(super) fn close(&mut self, library: &mut Library) {
        for (_, bound) in self.sockets.drain() {
            library.close(bound.socket);
        }
    }

    /// Converts events of the library to events of the endpoint, and returns their number.
    ///
    /// The caller must not hold the library lock, because `sink` is code of the owner.
    pub(super) fn apply(&mut self, shared: &Shared, events: &Events, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut count = 0;
        let mut counted = |event: Event<'_>| {
            count += 1;
            sink(event);
        };
        for event in &events.list {
            self.apply_one(shared, event, &events.bytes, &mut counted);
        }
        for (assoc, _, reason) in self.ended.drain(..) {
            counted(Event::Down { assoc, reason });
        }
        for assoc in self.alive(shared) {
            counted(Event::Alive { assoc });
        }
        for assoc in self.unblock() {
            counted(Event::Writable { assoc });
        }
        count
    }

    /// Returns the associations that were full and accept messages again.
    fn unblock(&mut self) -> Vec<AssocId> {
        let mut free = Vec::new();
        if self.blocked.is_empty() {
            return free;
        }
        let mut library = library::lock();
        let (low, assocs, sockets) = (self.send_buffer / 2, &self.assocs, &self.sockets);
        self.blocked.retain(|id| {
            let bound = assocs.get(*id).and_then(|assoc| Some((assoc, sockets.get(&assoc.socket)?)));
            let queued = bound.and_then(|(assoc, bound)| library.queued_bytes(&bound.socket, assoc.raw));
            if queued.is_some_and(|queued| queued <= low) {
                free.push(*id);
            }
            queued.is_some_and(|queued| queued > low)
        });
        free
    }

    fn apply_one(&mut self, shared: &Shared, event: &LibraryEvent, bytes: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
        let LibraryEvent { tag: Tag { socket, .. }, assoc: raw, kind } = *event;
        let key = key(socket, raw);
        let known = self.assocs.id(key);
        match (kind, known) {
            (EventKind::Unacknowledged { stream, ppid, start, end }, known) => {
                let ended = || self.ended.iter().find(|(_, of, _)| *of == key).map(|(assoc, ..)| *assoc);
                if let Some(assoc) = known.or_else(ended) {
                    let data = bytes.get(start..end).unwrap_or_default();
                    sink(Event::Unacknowledged { assoc, stream, ppid, data });
                }
            }
            (EventKind::Message { stream, ppid, start, end }, Some(assoc)) => {
                let data = bytes.get(start..end).unwrap_or_default();
                sink(Event::Message { assoc, stream, ppid, data });
            }
            (EventKind::TooLong, Some(assoc)) => {
                self.abort(&mut library::lock(), shared, assoc, "the peer sent a message that is too long");
            }
            (EventKind::Change { state: ffi::SCTP_COMM_UP, outbound_streams, port, .. }, known) => {
                self.came_up(shared, (socket, raw), (port, outbound_streams), known, sink);
            }
            (EventKind::Change { state: ffi::SCTP_RESTART, outbound_streams, port, .. }, Some(assoc)) => {
                shared.routes().peers.came_up(port);
                if let Some(state) = self.assocs.get_mut(assoc) {
                    state.outbound_streams = outbound_streams;
                }
                sink(Event::Restarted { assoc });
            }
            (EventKind::Change { state, aborted, .. }, Some(assoc)) => {
                let Some(reason) = reason(state, aborted) else { return };
                self.remove(shared, assoc);
                sink(Event::Down { assoc, reason });
            }
            // An event of an association that was aborted locally or never accepted.
            (_, None) => {}
        }
    }

    fn came_up(
        &mut self,
        shared: &Shared,
        (socket, raw): (u32, u32),
        (port, outbound_streams): (u16, u16),
        known: Option<AssocId>,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let peer = shared.routes().peers.get(port).copied();
        let full = known.is_none() && self.assocs.len() >= self.limit;
        if full {
            tracing::warn!(limit = self.limit, "an SCTP association is refused: there are too many");
        }
        let Some(peer) = peer.filter(|_| !full) else {
            return self.abort_raw(&mut library::lock(), socket, raw);
        };
        let assoc = known.unwrap_or_else(|| {
            let id = AssocId(0);
            self.insert(shared, Association { id, raw, outbound_streams, phase: Phase::Up, socket, peer: port })
        });
        if let Some(state) = self.assocs.get_mut(assoc) {
            state.outbound_streams = outbound_streams;
            if state.phase == Phase::Connecting {
                state.phase = Phase::Up;
            }
        }
        shared.routes().peers.came_up(port);
        sink(Event::Up { assoc, peer: peer.name(), outbound_streams });
    }
}

/// Returns the reason that an association ended; `None` if it did not end.
fn reason(state: u16, aborted: bool) -> Option<&'static str> {
    match (state, aborted) {
        (ffi::SCTP_SHUTDOWN_COMP, _) => Some("shut down"),
        (ffi::SCTP_COMM_LOST, true) => Some("aborted by the peer"),
        (ffi::SCTP_COMM_LOST, false) => Some("the peer stopped answering"),
        (ffi::SCTP_CANT_STR_ASSOC, true) => Some("refused by the peer"),
        (ffi::SCTP_CANT_STR_ASSOC, false) => Some("no answer from the peer"),
        _ => None,
    }
}
