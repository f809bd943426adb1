//! Snapshot of an N4 endpoint for a hot restart.
//!
//! It contains the associations, the unanswered requests, and the sequence numbers that identify
//! repeats. UPFs notice nothing, because the new process inherits the socket.

use super::peer::{Peer, State};
use super::pending::{PeerIndex, Purpose, Request};
use super::{Config, N4, QueuedRequest};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::pfcp::{MessageType, RecoveryTimeStamp, UpFunctionFeatures};

/// State of an endpoint. UPFs are identified by their index in `peers`.
#[derive(Debug, Serialize, Deserialize)]
pub struct N4Snapshot {
    holds: bool,
    peers: Vec<PeerSnapshot>,
    requests: Vec<RequestSnapshot>,
    waiting: Vec<QueuedRequestSnapshot>,
    replies: Vec<ReplySnapshot>,
    answered: Vec<(Instant, u64, (PeerIndex, u32))>,
    spared: Vec<(Instant, (PeerIndex, u32))>,
    given_up: Vec<(Instant, (PeerIndex, u32))>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PeerSnapshot {
    address: SocketAddr,
    state: State,
    recovery: Option<u32>,
    features: u128,
    takes_over: bool,
    is_said_up: bool,
    /// Time from a failed attempt to the next one, and the next sequence number.
    next: (Duration, u32),
}

#[derive(Debug, Serialize, Deserialize)]
struct RequestSnapshot {
    due: Instant,
    peer: PeerIndex,
    sequence: u32,
    kind: u8,
    purpose: Purpose,
    seid: Seid,
    key: Option<u64>,
    repeats: u8,
    #[serde(with = "serde_bytes")]
    octets: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct QueuedRequestSnapshot {
    peer: PeerIndex,
    key: Option<u64>,
    seid: Seid,
    #[serde(with = "serde_bytes")]
    message: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ReplySnapshot {
    peer: PeerIndex,
    sequence: u32,
    kind: u8,
    from: SocketAddr,
    until: Instant,
    #[serde(with = "serde_bytes")]
    octets: Vec<u8>,
}

impl N4 {
    /// Returns a snapshot for another process.
    pub fn carry(&self) -> N4Snapshot {
        let peers = self.peers.iter().map(|peer| PeerSnapshot {
            address: peer.address,
            state: peer.state,
            recovery: peer.recovery.map(|stamp| stamp.0),
            features: peer.features.0,
            takes_over: peer.takes_over,
            is_said_up: peer.is_said_up,
            next: peer.next(),
        });
        let requests = self.pending.iter().map(|(due, request, repeats, octets)| {
            let Request { peer, sequence, kind, purpose, seid, key } = request;
            RequestSnapshot { due, peer, sequence, kind: kind.0, purpose, seid, key, repeats, octets: octets.to_vec() }
        });
        let waiting = self.waiting.iter().map(|QueuedRequest { peer, key, seid, message }| QueuedRequestSnapshot {
            peer: *peer,
            key: *key,
            seid: *seid,
            message: message.clone(),
        });
        let replies = self.replies.iter().filter(|reply| reply.until > self.now).map(|reply| ReplySnapshot {
            peer: reply.peer,
            sequence: reply.sequence,
            kind: reply.kind.0,
            from: reply.from,
            until: reply.until,
            octets: reply.octets.clone(),
        });
        let (answered, spared, given_up) = self.pending.recent();
        N4Snapshot {
            holds: self.holds,
            peers: peers.collect(),
            requests: requests.collect(),
            waiting: waiting.collect(),
            replies: replies.collect(),
            answered: answered.map(|(until, key, at)| (until, key, *at)).collect(),
            spared: spared.map(|(until, at, ())| (until, at)).collect(),
            given_up: given_up.map(|(until, at, ())| (until, at)).collect(),
        }
    }

    /// Resumes the state of another process. UPFs that are not configured are dropped with their
    /// requests, and the endpoint sets up associations with new ones.
    pub fn resume(config: Config, carried: N4Snapshot) -> Self {
        let mut n4 = N4::new(config);
        n4.holds = carried.holds;
        let at = |address: SocketAddr| n4.peers.iter().position(|peer| peer.address == address);
        let places: Vec<Option<usize>> = carried.peers.iter().map(|peer| at(peer.address)).collect();
        let place = |old: PeerIndex| places.get(usize::from(old)).copied().flatten().map(|new| new as PeerIndex);
        for (peer, place) in carried.peers.into_iter().zip(&places) {
            let Some(entry) = place.and_then(|at| n4.peers.get_mut(at)) else { continue };
            *entry = Peer::new(peer.address, peer.next.1, peer.next.0);
            (entry.state, entry.recovery) = (peer.state, peer.recovery.map(RecoveryTimeStamp));
            entry.features = UpFunctionFeatures(peer.features);
            (entry.takes_over, entry.is_said_up) = (peer.takes_over, peer.is_said_up);
        }
        let memory = n4.config.reply_memory;
        for old in carried.requests {
            let Some(peer) = place(old.peer) else { continue };
            let RequestSnapshot { due, sequence, purpose, seid, key, repeats, octets, .. } = old;
            let request = Request { peer, sequence, kind: MessageType(old.kind), purpose, seid, key };
            if !n4.pending.is_full() && !n4.pending.has_number(peer, sequence) {
                n4.pending.open(before(due, n4.config.t1), request, repeats, &octets);
            }
        }
        let waiting = carried.waiting.into_iter().filter_map(|old| {
            let QueuedRequestSnapshot { key, seid, message, .. } = old;
            Some(QueuedRequest { peer: place(old.peer)?, key, seid, message })
        });
        n4.waiting = waiting.collect();
        for old in carried.replies {
            if let Some(peer) = place(old.peer) {
                let (kind, taken) = (MessageType(old.kind), before(old.until, memory));
                n4.replies.take(taken, peer, old.sequence, kind, old.from);
                if let (Some(response), false) = (kind.response(), old.octets.is_empty()) {
                    n4.replies.answer(peer, old.sequence, response, &old.octets);
                }
            }
        }
        let number = |(peer, sequence): (PeerIndex, u32)| Some((place(peer)?, sequence));
        n4.pending.remember(
            carried.answered.into_iter().filter_map(|(until, key, at)| Some((until, key, number(at)?))),
            carried.spared.into_iter().filter_map(|(until, at)| Some((until, number(at)?))),
            carried.given_up.into_iter().filter_map(|(until, at)| Some((until, number(at)?))),
        );
        n4
    }
}

/// Returns `until` minus `span`.
pub(super) fn before(until: Instant, span: Duration) -> Instant {
    Instant(until.0.saturating_sub(span.0))
}
