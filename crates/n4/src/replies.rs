//! Requests of UPFs that were taken, and what was answered: a repeat gets the same answer and is not taken twice
//! (TS 29.244 6.4).

use super::pending::PeerIndex;
use std::collections::HashMap;
use std::net::SocketAddr;
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::MessageType;

/// A request that was taken, and its response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) peer: PeerIndex,
    pub(super) sequence: u32,
    pub(super) kind: MessageType,
    /// Where the request came from, and so where the response goes (TS 29.244 6.1).
    pub(super) from: SocketAddr,
    pub(super) until: Instant,
    /// The response; empty until there is one.
    pub(super) octets: Vec<u8>,
}

/// Whether a request was seen before.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RepeatCheck<'a> {
    /// No: it is remembered from now on.
    New,
    /// Yes, and the answer is still being worked out.
    Waiting,
    /// Yes, and this was the answer.
    Answered(&'a [u8]),
}

/// The last requests in a ring: a new one takes the place of the oldest.
#[derive(Debug)]
pub(super) struct Replies {
    ring: Vec<Reply>,
    next: usize,
    limit: usize,
    memory: Duration,
    index: HashMap<(PeerIndex, u32), usize>,
}

impl Replies {
    pub(super) fn new(limit: usize, memory: Duration) -> Self {
        Replies { ring: Vec::new(), next: 0, limit: limit.max(1), memory, index: HashMap::new() }
    }

    /// All, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Reply> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }

    /// Looks a request up and remembers it.
    pub(super) fn take(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        sequence: u32,
        kind: MessageType,
        from: SocketAddr,
    ) -> RepeatCheck<'_> {
        let known = self.index.get(&(peer, sequence)).copied();
        let current = known.filter(|at| self.ring[*at].kind == kind && self.ring[*at].until > now);
        if let Some(at) = current {
            let reply = &mut self.ring[at];
            reply.from = from;
            return if reply.octets.is_empty() { RepeatCheck::Waiting } else { RepeatCheck::Answered(&reply.octets) };
        }
        let until = now + self.memory;
        if self.ring.len() < self.limit {
            self.ring.push(Reply { peer, sequence, kind, from, until, octets: Vec::new() });
            self.index.insert((peer, sequence), self.ring.len() - 1);
            return RepeatCheck::New;
        }
        let at = self.next;
        self.next = (at + 1) % self.limit;
        let reply = &mut self.ring[at];
        let old = (reply.peer, reply.sequence);
        if self.index.get(&old) == Some(&at) {
            self.index.remove(&old);
        }
        (reply.peer, reply.sequence, reply.kind, reply.from, reply.until) = (peer, sequence, kind, from, until);
        reply.octets.clear();
        self.index.insert((peer, sequence), at);
        RepeatCheck::New
    }

    /// Keeps the response of a request and says where it goes; `None` if the request is not remembered.
    pub(super) fn answer(
        &mut self,
        peer: PeerIndex,
        sequence: u32,
        response: MessageType,
        octets: &[u8],
    ) -> Option<SocketAddr> {
        let reply = &mut self.ring[*self.index.get(&(peer, sequence))?];
        if reply.kind.response() != Some(response) {
            return None;
        }
        reply.octets.clear();
        reply.octets.extend_from_slice(octets);
        Some(reply.from)
    }
}
