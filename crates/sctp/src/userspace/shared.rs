//! The part of a userspace endpoint that other threads access.
//!
//! The library's timers run on any polling thread. Packets and events that they produce for this
//! endpoint are passed to it here.

use super::callbacks::{Events, LibraryEvent};
use super::packets::Packets;
use super::peers::{Peer, Peers};
use super::transport::Transport;
use crate::sys::{SendBatch, Waker};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of local addresses of an endpoint (8 bits of a [`super::peers::Peer`]).
const MAX_LOCALS: usize = 256;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) number: u8,
    pub(super) transports: Vec<Transport>,
    pub(super) waker: Waker,
    routes: Mutex<Routes>,
    inbox: Mutex<Events>,
}

/// Maps a virtual port to a transport and two addresses.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) peers: Peers,
    /// For each local address: the transport, and the source address if the transport is bound to
    /// all.
    locals: Vec<(u8, Option<IpAddr>)>,
}

/// Path of packets to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) peer: Peer,
    pub(super) transport: u8,
    /// Source address to request; `None` if the transport is bound to one address.
    pub(super) source: Option<IpAddr>,
}

impl Routes {
    pub(super) fn new(transports: u8) -> Self {
        Self { peers: Peers::default(), locals: (0..transports).map(|transport| (transport, None)).collect() }
    }

    /// Returns the route to the peer of a virtual port.
    pub(super) fn find(&self, port: u16) -> Option<Route> {
        let peer = *self.peers.get(port)?;
        let (transport, source) = *self.locals.get(usize::from(peer.local))?;
        Some(Route { peer, transport, source })
    }

    /// Returns the number of a local address.
    ///
    /// If there are too many, it is the number of the transport, and the system chooses the source
    /// address.
    pub(super) fn local(&mut self, transport: u8, to: Option<IpAddr>) -> u8 {
        let Some(to) = to else { return transport };
        let wanted = (transport, Some(to));
        if let Some(found) = self.locals.iter().position(|local| *local == wanted) {
            return found as u8;
        }
        if self.locals.len() == MAX_LOCALS {
            return transport;
        }
        self.locals.push(wanted);
        (self.locals.len() - 1) as u8
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(number: u8, transports: Vec<Transport>, waker: Waker) -> Self {
        let routes = Routes::new(transports.len() as u8);
        Self { number, transports, waker, routes: Mutex::new(routes), inbox: Mutex::default() }
    }

    pub(super) fn routes(&self) -> MutexGuard<'_, Routes> {
        lock(&self.routes)
    }

    /// Sends packets in order and in batches, and empties the list.
    ///
    /// Returns how many packets the kernel refused. SCTP retransmits what matters.
    pub(super) fn transmit(&self, packets: &mut Packets) -> u64 {
        let mut refused = 0;
        packets.seal();
        for same in packets.by_transport() {
            let Some(transport) = same.first().and_then(|first| self.transports.get(usize::from(first.transport)))
            else {
                continue;
            };
            let mut batch = SendBatch::new(transport.fd());
            for outgoing in same {
                batch.push(packets.bytes(outgoing), outgoing.to, outgoing.source);
            }
            refused += batch.finish();
        }
        packets.clear();
        refused
    }

    /// Sends one packet that the thread of another endpoint produced.
    pub(super) fn transmit_one(&self, packet: &[u8], wire_ports: &[u16]) {
        let mut packets = Packets::new(packet.len());
        packets.push(&mut self.routes(), packet, wire_ports);
        self.transmit(&mut packets);
    }

    /// Queues an event that the thread of another endpoint produced.
    pub(super) fn deliver(&self, event: LibraryEvent, bytes: &[u8]) {
        lock(&self.inbox).copy(event, bytes);
        self.waker.wake();
    }

    /// Appends the queued events to `events`.
    pub(super) fn take_delivered(&self, events: &mut Events) {
        let mut inbox = lock(&self.inbox);
        for event in &inbox.list {
            events.copy(*event, &inbox.bytes);
        }
        inbox.clear();
    }
}
