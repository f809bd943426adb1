//! What other threads may touch of a userspace endpoint: the library's timers run on whichever thread polls, so the
//! packets and events they produce for this endpoint are handed over here.

use super::callbacks::{Events, LibraryEvent};
use super::packets::Packets;
use super::peers::{Peer, Peers};
use super::transport::Transport;
use crate::sys::{SendBatch, Waker};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Local addresses an endpoint speaks from (8 bits of a [`super::peers::Peer`]).
const MAX_LOCALS: usize = 256;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) number: u8,
    pub(super) transports: Vec<Transport>,
    pub(super) waker: Waker,
    routes: Mutex<Routes>,
    inbox: Mutex<Events>,
}

/// How a virtual port becomes a transport and two addresses.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) peers: Peers,
    /// For each local address: the transport, and the source to ask it for where it is bound to all addresses.
    locals: Vec<(u8, Option<IpAddr>)>,
}

impl Routes {
    pub(super) fn new(transports: u8) -> Self {
        Self { peers: Peers::default(), locals: (0..transports).map(|transport| (transport, None)).collect() }
    }

    /// The peer behind a virtual port, the transport to reach it by, and the source to ask that for.
    pub(super) fn find(&self, port: u16) -> Option<(Peer, u8, Option<IpAddr>)> {
        let peer = *self.peers.get(port)?;
        let (transport, source) = *self.locals.get(usize::from(peer.local))?;
        Some((peer, transport, source))
    }

    /// The number of a local address. When there are too many it is that of the transport, and the system chooses.
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

    /// Sends packets, in order and in batches, and empties the list. How many the kernel refused; SCTP repeats what
    /// matters.
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

    /// Sends one packet that another endpoint's thread produced.
    pub(super) fn transmit_one(&self, packet: &[u8], wire_ports: &[u16]) {
        let mut packets = Packets::new(packet.len());
        packets.push(&mut self.routes(), packet, wire_ports);
        self.transmit(&mut packets);
    }

    /// Hands over an event that another endpoint's thread produced.
    pub(super) fn deliver(&self, event: LibraryEvent, bytes: &[u8]) {
        lock(&self.inbox).copy(event, bytes);
        self.waker.wake();
    }

    /// Appends what was handed over.
    pub(super) fn take_delivered(&self, events: &mut Events) {
        let mut inbox = lock(&self.inbox);
        for event in &inbox.list {
            events.copy(*event, &inbox.bytes);
        }
        inbox.clear();
    }
}
