//! An endpoint of a memory network.

use super::network::{Network, QueuedEvent};
use crate::assocs::stream;
use crate::endpoint::{Endpoint, Event, MAX_MESSAGE, SendError};
use crate::hot_restart::{AssociationTable, EndpointSnapshot, HandoffError};
use crate::sys::{Reactor, Ready, Waker};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use vireo_types::AssocId;

/// Maximum number of message buffers that an endpoint keeps for reuse.
const MAX_SPARE_BUFFERS: usize = 1024;

#[derive(Debug)]
pub(super) struct Memory {
    network: Network,
    number: u64,
    port: u16,
    reactor: Reactor,
    /// Events being delivered; empty between polls.
    delivering: VecDeque<QueuedEvent>,
    /// Buffers of delivered messages, for reuse by the network.
    used: Vec<Vec<u8>>,
    /// True if another endpoint owns the state: after `detach`, and for an adopted one until the
    /// first poll.
    borrowed: bool,
}

impl Memory {
    pub(super) fn new(network: Network, number: u64, port: u16, reactor: Reactor) -> Self {
        Self { network, number, port, reactor, delivering: VecDeque::new(), used: Vec::new(), borrowed: false }
    }

    /// Creates an endpoint that continues another one.
    pub(super) fn adopt(network: Network, number: u64, port: u16, reactor: Reactor) -> Self {
        let mut this = Memory::new(network, number, port, reactor);
        this.borrowed = true;
        this
    }

    /// Takes the waiting events, and notifies the senders that there is room again.
    fn take(&mut self) {
        let mut state = self.network.lock();
        let Some(node) = state.nodes.get_mut(&self.number) else { return };
        std::mem::swap(&mut node.queue, &mut self.delivering);
        let room = MAX_SPARE_BUFFERS.saturating_sub(node.spare.len());
        node.spare.extend(self.used.drain(..).take(room));
        for event in &self.delivering {
            let QueuedEvent::Message { assoc, data, .. } = event else { continue };
            let Some(other) = state.halves.get(assoc).and_then(|half| half.other) else { continue };
            let Some(half) = state.halves.get_mut(&other) else { continue };
            half.queued = half.queued.saturating_sub(data.len());
            if half.full && half.queued <= half.limit / 2 {
                half.full = false;
                state.notify(other, QueuedEvent::Writable { assoc: other });
            }
        }
        // A shutdown is complete when everything that the closing side sent has been received.
        let done = |half: &super::network::AssociationSide| half.closing && half.queued == 0;
        let closed: Vec<AssocId> = state.halves.iter().filter(|(_, half)| done(half)).map(|(id, _)| *id).collect();
        for assoc in closed {
            state.end_both(assoc, "shut down", "shut down");
        }
    }

    fn deliver(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let count = self.delivering.len();
        for event in self.delivering.drain(..) {
            match event {
                QueuedEvent::Up { assoc, peer, outbound_streams } => sink(Event::Up { assoc, peer, outbound_streams }),
                QueuedEvent::Restarted { assoc } => sink(Event::Restarted { assoc }),
                QueuedEvent::Down { assoc, reason } => sink(Event::Down { assoc, reason }),
                QueuedEvent::Unacknowledged { assoc, stream, ppid, data } => {
                    sink(Event::Unacknowledged { assoc, stream, ppid, data: &data });
                }
                QueuedEvent::Writable { assoc } => sink(Event::Writable { assoc }),
                QueuedEvent::Alive { assoc } => sink(Event::Alive { assoc }),
                QueuedEvent::Message { assoc, stream, ppid, mut data } => {
                    sink(Event::Message { assoc, stream, ppid, data: &data });
                    data.clear();
                    if self.used.len() < MAX_SPARE_BUFFERS {
                        self.used.push(data);
                    }
                }
            }
        }
        count
    }
}

impl Endpoint for Memory {
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut total = 0;
        self.borrowed = false;
        loop {
            self.take();
            let pending = !self.delivering.is_empty();
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let woken = self.reactor.wait(if pending { Some(Duration::ZERO) } else { rest })?;
            let ready = self.reactor.take_ready();
            for item in &ready {
                if let Ready::Watched(token) = *item {
                    sink(Event::Readable { token });
                    total += 1;
                }
            }
            self.reactor.put_back(ready);
            total += self.deliver(sink);
            if woken {
                // The wake-up may be for events of the network.
                self.take();
                total += self.deliver(sink);
            }
            if total > 0 || woken || rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(total);
            }
        }
    }

    fn send(&mut self, assoc: AssocId, wanted: u16, ppid: u32, data: &[u8]) -> Result<(), SendError> {
        if data.is_empty() || data.len() > MAX_MESSAGE {
            return Err(SendError::Io(io::ErrorKind::InvalidInput.into()));
        }
        let mut state = self.network.lock();
        let half =
            state.halves.get_mut(&assoc).filter(|half| half.owner == self.number).ok_or(SendError::NoAssociation)?;
        if !half.up || half.closing {
            return Err(SendError::NoAssociation);
        }
        if half.queued + data.len() > half.limit {
            half.full = true;
            return Err(SendError::Full);
        }
        half.queued += data.len();
        let stream = stream(wanted, half.outbound_streams);
        let Some(half) = state.halves.get(&assoc) else { return Err(SendError::NoAssociation) };
        let other = half.other.filter(|_| state.reaches(half));
        if other.is_none()
            && let Some(half) = state.halves.get_mut(&assoc)
        {
            half.unacknowledged.push((stream, ppid, data.to_vec()));
        }
        if let Some(other) = other {
            let owner = state.halves.get(&other).map(|half| half.owner);
            let spare = owner.and_then(|owner| state.nodes.get_mut(&owner)?.spare.pop());
            let mut copy = spare.unwrap_or_default();
            copy.extend_from_slice(data);
            let waker = state.queue(other, QueuedEvent::Message { assoc: other, stream, ppid, data: copy });
            // Waking is a system call, and the other side may need the network.
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        Ok(())
    }

    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId> {
        self.network.lock().connect(self.number, peer)
    }

    fn shutdown(&mut self, assoc: AssocId) {
        let mut state = self.network.lock();
        let Some(half) = state.halves.get_mut(&assoc).filter(|half| half.owner == self.number) else { return };
        half.closing = true;
        if half.queued == 0 {
            state.end_both(assoc, "shut down", "shut down");
        }
    }

    fn abort(&mut self, assoc: AssocId) {
        let mut state = self.network.lock();
        if state.halves.get(&assoc).is_some_and(|half| half.owner == self.number) {
            state.end_both(assoc, "aborted by this side", "aborted by the peer");
        }
    }

    fn probe(&mut self, assoc: AssocId) {
        let mut state = self.network.lock();
        let half = state.halves.get(&assoc).filter(|half| half.owner == self.number && half.up);
        let answers = half.is_some_and(|half| state.reaches(half));
        let is_answer = |event: &QueuedEvent| matches!(event, QueuedEvent::Alive { assoc: of } if *of == assoc);
        let answered = state.nodes.get(&self.number).is_some_and(|node| node.queue.iter().any(is_answer));
        if answers && !answered {
            state.notify(assoc, QueuedEvent::Alive { assoc });
        }
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

    fn driver(&self) -> &str {
        "memory (for tests)"
    }

    fn port(&self) -> u16 {
        self.port
    }

    /// Hands off the descriptor of the waker. All other state is in the network.
    fn snapshot(&self) -> Result<EndpointSnapshot, HandoffError> {
        Ok(EndpointSnapshot::new(self.reactor.waker().share()?, AssociationTable::default()))
    }

    fn detach(mut self: Box<Self>) {
        self.borrowed = true;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let mut state = self.network.lock();
        let mine = |half: &super::network::AssociationSide| half.owner == self.number;
        let own: Vec<AssocId> = state.halves.iter().filter(|(_, half)| mine(half)).map(|(id, _)| *id).collect();
        for assoc in own {
            state.end_both(assoc, "aborted by this side", "aborted by the peer");
        }
        state.nodes.remove(&self.number);
    }
}
