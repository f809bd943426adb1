//! Requests received from UPFs, with their responses (TS 29.244 6.4).
//!
//! A repeat receives the same response and is not processed again.

use super::pending::PeerIndex;
use std::collections::HashMap;
use std::net::SocketAddr;
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::MessageType;

/// A received request and its response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) peer: PeerIndex,
    pub(super) sequence: u32,
    pub(super) kind: MessageType,
    /// Source of the request, and hence destination of the response (TS 29.244 6.1).
    pub(super) from: SocketAddr,
    pub(super) expires_at: Instant,
    /// The response; empty while there is none.
    pub(super) octets: Vec<u8>,
}

/// Result of looking up a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RepeatCheck<'a> {
    /// A new request, which is recorded.
    New,
    /// A repeat whose response is not available yet.
    Waiting,
    /// A repeat with the stored response.
    Answered(&'a [u8]),
}

/// Ring buffer of the last requests; a new one replaces the oldest.
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

    /// Returns all entries, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Reply> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }

    /// Looks up a request and records it.
    pub(super) fn take(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        sequence: u32,
        kind: MessageType,
        from: SocketAddr,
    ) -> RepeatCheck<'_> {
        let known = self.index.get(&(peer, sequence)).copied();
        let current = known.filter(|at| self.ring[*at].kind == kind && self.ring[*at].expires_at > now);
        if let Some(at) = current {
            let reply = &mut self.ring[at];
            reply.from = from;
            return if reply.octets.is_empty() { RepeatCheck::Waiting } else { RepeatCheck::Answered(&reply.octets) };
        }
        let expires_at = now + self.memory;
        if self.ring.len() < self.limit {
            self.ring.push(Reply { peer, sequence, kind, from, expires_at, octets: Vec::new() });
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
        (reply.peer, reply.sequence, reply.kind, reply.from, reply.expires_at) =
            (peer, sequence, kind, from, expires_at);
        reply.octets.clear();
        self.index.insert((peer, sequence), at);
        RepeatCheck::New
    }

    /// Stores the response to a request and returns its destination, or `None` if the request is
    /// not recorded.
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
