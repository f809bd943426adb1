//! The state that all endpoints of a memory network share.

use super::endpoint::Memory;
use crate::assocs::next_id;
use crate::config::{BindError, Config};
use crate::endpoint::Endpoint;
use crate::hot_restart::EndpointSnapshot;
use crate::sys::Waker;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vireo_types::AssocId;

/// A network of memory endpoints. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct Network(Arc<Mutex<State>>);

/// An event that waits for the next poll of an endpoint.
#[derive(Debug)]
pub(super) enum QueuedEvent {
    Up { assoc: AssocId, peer: SocketAddr, outbound_streams: u16 },
    Restarted { assoc: AssocId },
    Down { assoc: AssocId, reason: &'static str },
    Message { assoc: AssocId, stream: u16, ppid: u32, data: Vec<u8> },
    Unacknowledged { assoc: AssocId, stream: u16, ppid: u32, data: Vec<u8> },
    Writable { assoc: AssocId },
    Alive { assoc: AssocId },
}

/// One side of an association.
#[derive(Debug)]
pub(super) struct AssociationSide {
    pub(super) owner: u64,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// The other side; `None` after its crash or before it answered.
    pub(super) other: Option<AssocId>,
    pub(super) outbound_streams: u16,
    pub(super) up: bool,
    pub(super) closing: bool,
    /// Bytes sent that the other side has not received yet.
    pub(super) queued: usize,
    pub(super) limit: usize,
    pub(super) full: bool,
    /// Messages sent that did not reach the other side.
    pub(super) unacknowledged: Vec<(u16, u32, Vec<u8>)>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) config: Config,
    pub(super) waker: Waker,
    pub(super) queue: VecDeque<QueuedEvent>,
    /// Message buffers for reuse.
    pub(super) spare: Vec<Vec<u8>>,
    next_port: u16,
}

impl Node {
    /// Queues an event, and returns the waker to call if the endpoint may wait.
    ///
    /// Every poll empties the queue before it waits. So only an event for an empty queue can find
    /// the endpoint waiting.
    fn push(&mut self, event: QueuedEvent) -> Option<Waker> {
        let waker = self.queue.is_empty().then(|| self.waker.clone());
        self.queue.push_back(event);
        waker
    }

    fn has(&self, at: SocketAddr) -> bool {
        self.config.port == at.port() && self.config.addresses.contains(&at.ip())
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) halves: BTreeMap<AssocId, AssociationSide>,
    next_node: u64,
    silent: BTreeSet<IpAddr>,
}

impl Network {
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an endpoint. Without an address in `config` it is at 127.0.0.1.
    pub fn bind(&self, config: &Config) -> Result<Box<dyn Endpoint>, BindError> {
        config.validate()?;
        let mut config = config.clone();
        if config.addresses.is_empty() {
            config.addresses.push(Ipv4Addr::LOCALHOST.into());
        }
        let reactor = crate::sys::Reactor::new().map_err(BindError::system("making an epoll instance"))?;
        let mut state = self.lock();
        for address in config.addresses.iter().copied().filter(|_| config.port != 0) {
            if state.nodes.values().any(|node| node.has(SocketAddr::new(address, config.port))) {
                return Err(BindError::PortInUse { address, port: config.port });
            }
        }
        let number = state.next_node;
        state.next_node += 1;
        let (waker, port) = (reactor.waker(), config.port);
        let node = Node { config, waker, queue: VecDeque::new(), spare: Vec::new(), next_port: 49_152 };
        state.nodes.insert(number, node);
        drop(state);
        Ok(Box::new(Memory::new(self.clone(), number, port, reactor)))
    }

    /// Continues an endpoint of this network that was handed off; `config` is that of its binding.
    pub fn adopt(&self, config: &Config, handover: EndpointSnapshot) -> Result<Box<dyn Endpoint>, BindError> {
        let waker = Waker::adopt(handover.socket);
        let reactor = crate::sys::Reactor::with(waker).map_err(BindError::system("making an epoll instance"))?;
        let address = config.addresses.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into());
        let (at, state) = (SocketAddr::new(address, config.port), self.lock());
        let number = state.nodes.iter().find(|(_, node)| node.has(at)).map(|(number, _)| *number);
        drop(state);
        let number = number.ok_or(BindError::NoSuchAddress(address))?;
        Ok(Box::new(Memory::adopt(self.clone(), number, config.port, reactor)))
    }

    /// Isolates `address`: it neither sends nor receives.
    ///
    /// Its associations stay, and their sent messages accumulate, until [`Network::time_out`].
    pub fn silence(&self, address: IpAddr) {
        self.lock().silent.insert(address);
    }

    /// Ends [`Network::silence`] for associations that start afterwards.
    pub fn unsilence(&self, address: IpAddr) {
        self.lock().silent.remove(&address);
    }

    /// Ends every association with a silent or crashed side, as after all retransmissions.
    pub fn time_out(&self) {
        let mut state = self.lock();
        let silent =
            |half: &AssociationSide| state.silent.contains(&half.local.ip()) || state.silent.contains(&half.peer.ip());
        let gone = |half: &AssociationSide| half.other.is_none() || silent(half);
        let lost: Vec<AssocId> = state.halves.iter().filter(|(_, half)| gone(half)).map(|(id, _)| *id).collect();
        for assoc in lost {
            let up = state.halves.get(&assoc).is_some_and(|half| half.up);
            state.end(assoc, if up { "the peer stopped answering" } else { "no answer from the peer" });
        }
    }

    /// Simulates the crash of the process at `address`: its endpoints vanish without informing
    /// their peers.
    ///
    /// A new endpoint at the same address and port restarts the associations (RFC 9260 5.2.4).
    pub fn crash(&self, address: IpAddr) {
        let mut state = self.lock();
        let at = |node: &Node| node.config.addresses.contains(&address);
        let numbers: Vec<u64> = state.nodes.iter().filter(|(_, node)| at(node)).map(|(number, _)| *number).collect();
        for number in numbers {
            state.nodes.remove(&number);
            let own: Vec<AssocId> =
                state.halves.iter().filter(|(_, half)| half.owner == number).map(|(id, _)| *id).collect();
            for assoc in own {
                let other = state.halves.remove(&assoc).and_then(|half| half.other);
                if let Some(other) = other.and_then(|other| state.halves.get_mut(&other)) {
                    other.other = None;
                }
            }
        }
    }

    /// Ends an association at both sides, as when the path is cut for longer than the
    /// retransmissions.
    pub fn fail(&self, assoc: AssocId) {
        let mut state = self.lock();
        let other = state.halves.get(&assoc).and_then(|half| half.other);
        for assoc in [Some(assoc), other].into_iter().flatten() {
            state.end(assoc, "the peer stopped answering");
        }
    }
}

impl State {
    /// Queues an event for the owner of an association and wakes it.
    pub(super) fn notify(&mut self, assoc: AssocId, event: QueuedEvent) {
        if let Some(waker) = self.queue(assoc, event) {
            waker.wake();
        }
    }

    /// Queues an event for the owner of an association, and returns the waker to call.
    ///
    /// The caller should release the lock of the network before it wakes the owner.
    pub(super) fn queue(&mut self, assoc: AssocId, event: QueuedEvent) -> Option<Waker> {
        let owner = self.halves.get(&assoc)?.owner;
        self.nodes.get_mut(&owner)?.push(event)
    }

    /// Ends one side of an association.
    pub(super) fn end(&mut self, assoc: AssocId, reason: &'static str) {
        let unacknowledged = self.halves.get_mut(&assoc).map(|half| std::mem::take(&mut half.unacknowledged));
        for (stream, ppid, data) in unacknowledged.into_iter().flatten() {
            self.notify(assoc, QueuedEvent::Unacknowledged { assoc, stream, ppid, data });
        }
        self.notify(assoc, QueuedEvent::Down { assoc, reason });
        if let Some(half) = self.halves.remove(&assoc)
            && let Some(other) = half.other.and_then(|other| self.halves.get_mut(&other))
        {
            other.other = None;
        }
    }

    /// Ends both sides, unless the other one is unreachable.
    pub(super) fn end_both(&mut self, assoc: AssocId, here: &'static str, there: &'static str) {
        let Some(half) = self.halves.get(&assoc) else { return };
        let heard = !self.silent.contains(&half.peer.ip()) && !self.silent.contains(&half.local.ip());
        let other = half.other.filter(|_| heard);
        if let Some(other) = other {
            self.end(other, there);
        }
        self.end(assoc, here);
    }

    pub(super) fn connect(&mut self, number: u64, peer: SocketAddr) -> io::Result<AssocId> {
        let Some(node) = self.nodes.get_mut(&number) else { return Err(io::ErrorKind::NotConnected.into()) };
        let ip = *node.config.addresses.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut port = node.config.port;
        if port == 0 {
            port = node.next_port;
            node.next_port = node.next_port.checked_add(1).unwrap_or(49_152);
        }
        let (local, config) = (SocketAddr::new(ip, port), node.config.clone());
        let mine = self.halves.values().filter(|half| half.owner == number);
        if mine.clone().any(|half| half.local == local && half.peer == peer) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if mine.count() >= config.max_associations {
            return Err(io::Error::other("the endpoint has all the associations it may have"));
        }
        let assoc = next_id();
        self.halves.insert(assoc, half(number, local, peer, &config));
        if !self.silent.contains(&ip) && !self.silent.contains(&peer.ip()) {
            self.answer(assoc, local, peer, &config);
        }
        Ok(assoc)
    }

    /// Handles an INIT at the peer.
    fn answer(&mut self, assoc: AssocId, local: SocketAddr, peer: SocketAddr, config: &Config) {
        let found = self.nodes.iter().find(|(_, node)| node.has(peer) && node.config.listen);
        let Some((number, theirs)) = found.map(|(number, node)| (*number, node.config.clone())) else {
            return self.end(assoc, "refused by the peer");
        };
        let orphan = |half: &AssociationSide| half.local == peer && half.peer == local && half.other.is_none();
        let known = self.halves.iter().find(|(_, half)| half.owner == number && orphan(half)).map(|(id, _)| *id);
        if known.is_none()
            && self.halves.values().filter(|half| half.owner == number).count() >= theirs.max_associations
        {
            return self.end(assoc, "aborted by the peer");
        }
        let other = known.unwrap_or_else(next_id);
        if known.is_none() {
            self.halves.insert(other, half(number, peer, local, &theirs));
        }
        let outbound_streams = config.outbound_streams.min(theirs.inbound_streams);
        let their_streams = theirs.outbound_streams.min(config.inbound_streams);
        for (one, two, streams) in [(assoc, other, outbound_streams), (other, assoc, their_streams)] {
            if let Some(half) = self.halves.get_mut(&one) {
                (half.other, half.up, half.queued, half.outbound_streams) = (Some(two), true, 0, streams);
                half.unacknowledged.clear();
            }
        }
        let up = QueuedEvent::Up { assoc: other, peer: local, outbound_streams: their_streams };
        self.notify(other, if known.is_some() { QueuedEvent::Restarted { assoc: other } } else { up });
        self.notify(assoc, QueuedEvent::Up { assoc, peer, outbound_streams });
    }

    /// Returns true if messages of this side arrive.
    pub(super) fn reaches(&self, half: &AssociationSide) -> bool {
        half.other.is_some() && !self.silent.contains(&half.local.ip()) && !self.silent.contains(&half.peer.ip())
    }
}

fn half(owner: u64, local: SocketAddr, peer: SocketAddr, config: &Config) -> AssociationSide {
    AssociationSide {
        owner,
        local,
        peer,
        other: None,
        outbound_streams: config.outbound_streams,
        up: false,
        closing: false,
        queued: 0,
        limit: config.send_buffer as usize,
        full: false,
        unacknowledged: Vec::new(),
    }
}
