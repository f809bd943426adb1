//! What other threads may touch of a userspace endpoint: the library's timers run on whichever thread polls, so the
//! packets and events they produce for this endpoint are handed over here.

use super::callbacks::{Events, Happening};
use super::checksum;
use super::peers::Peers;
use super::transport::Transport;
use crate::sys::{SendBatch, Waker};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
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

/// Packets that are ready to be sent, in order.
#[derive(Debug, Default)]
pub(super) struct Packets {
    list: Vec<Outgoing>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Outgoing {
    transport: u8,
    to: SocketAddr,
    source: Option<IpAddr>,
    packet: Range<usize>,
}

impl Packets {
    /// Adds a packet of the library: with the ports of the wire, and its checksum. One whose peer is not known any
    /// more is dropped.
    pub(super) fn push(&mut self, routes: &mut Routes, packet: &[u8], wire_ports: &[u16]) {
        let Some(&[a, b, c, d]) = packet.first_chunk() else { return };
        let Some(peer) = routes.peers.get(u16::from_be_bytes([c, d])) else { return };
        let Some((transport, source)) = routes.locals.get(usize::from(peer.local)) else { return };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        let end = self.bytes.len();
        let packet = &mut self.bytes[start..];
        packet[..2].copy_from_slice(&wire_ports[usize::from(u16::from_be_bytes([a, b]))].to_be_bytes());
        packet[2..4].copy_from_slice(&peer.port.to_be_bytes());
        checksum::write(packet);
        self.list.push(Outgoing { transport: *transport, to: peer.address, source: *source, packet: start..end });
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        // One storm must not keep its memory for ever.
        self.bytes.shrink_to(1 << 20);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(number: u8, transports: Vec<Transport>, waker: Waker) -> Self {
        let locals = (0..transports.len()).map(|transport| (transport as u8, None)).collect();
        let routes = Routes { peers: Peers::default(), locals };
        Self { number, transports, waker, routes: Mutex::new(routes), inbox: Mutex::default() }
    }

    pub(super) fn routes(&self) -> MutexGuard<'_, Routes> {
        lock(&self.routes)
    }

    /// Sends packets, in order and in batches. How many the kernel refused; SCTP repeats what matters.
    pub(super) fn transmit(&self, packets: &Packets) -> u64 {
        let mut refused = 0;
        for same in packets.list.chunk_by(|a, b| a.transport == b.transport) {
            let Some(transport) = same.first().and_then(|first| self.transports.get(usize::from(first.transport)))
            else {
                continue;
            };
            let mut batch = SendBatch::new(transport.fd());
            for outgoing in same {
                batch.push(&packets.bytes[outgoing.packet.clone()], outgoing.to, outgoing.source);
            }
            refused += batch.finish();
        }
        refused
    }

    /// Sends one packet that another endpoint's thread produced.
    pub(super) fn transmit_one(&self, packet: &[u8], wire_ports: &[u16]) {
        let mut packets = Packets::default();
        packets.push(&mut self.routes(), packet, wire_ports);
        self.transmit(&packets);
    }

    /// Hands over an event that another endpoint's thread produced.
    pub(super) fn deliver(&self, event: Happening, bytes: &[u8]) {
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
