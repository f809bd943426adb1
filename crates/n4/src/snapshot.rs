//! Snapshot of an N4 endpoint for a hot restart.
//!
//! It contains the associations, the unanswered requests, and the sequence numbers that identify
//! repeats. UPFs notice nothing, because the new process inherits the socket.

use super::peer::{Peer, State};
use super::pending::{OpenRequest, PeerIndex, Purpose, RecentRequests, Request, before};
use super::{Config, N4, QueuedRequest};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::pfcp::{MessageType, RecoveryTimeStamp, UpFunctionFeatures};

/// State of an endpoint. UPFs are identified by their index in `peers`.
#[derive(Debug, Serialize, Deserialize)]
pub struct N4Snapshot {
    active: bool,
    peers: Vec<PeerSnapshot>,
    requests: Vec<RequestSnapshot>,
    waiting: Vec<QueuedRequestSnapshot>,
    replies: Vec<ReplySnapshot>,
    recent: RecentRequests,
}

#[derive(Debug, Serialize, Deserialize)]
struct PeerSnapshot {
    address: SocketAddr,
    state: State,
    recovery: Option<u32>,
    features: u128,
    takes_over: bool,
    reported_up: bool,
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
    expires_at: Instant,
    #[serde(with = "serde_bytes")]
    octets: Vec<u8>,
}

impl N4 {
    /// Returns a snapshot for another process.
    pub fn snapshot(&self) -> N4Snapshot {
        let peers = self.peers.iter().map(|peer| PeerSnapshot {
            address: peer.address,
            state: peer.state,
            recovery: peer.recovery.map(|stamp| stamp.0),
            features: peer.features.0,
            takes_over: peer.takes_over,
            reported_up: peer.reported_up,
            next: peer.next(),
        });
        let requests = self.pending.iter().map(|open| {
            let OpenRequest { due, request, repeats_left: repeats, octets } = open;
            let Request { peer, sequence, kind, purpose, seid, key } = request;
            RequestSnapshot { due, peer, sequence, kind: kind.0, purpose, seid, key, repeats, octets: octets.to_vec() }
        });
        let waiting = self.waiting.iter().map(|QueuedRequest { peer, key, seid, message }| QueuedRequestSnapshot {
            peer: *peer,
            key: *key,
            seid: *seid,
            message: message.clone(),
        });
        let replies = self.replies.iter().filter(|reply| reply.expires_at > self.now).map(|reply| ReplySnapshot {
            peer: reply.peer,
            sequence: reply.sequence,
            kind: reply.kind.0,
            from: reply.from,
            expires_at: reply.expires_at,
            octets: reply.octets.clone(),
        });
        N4Snapshot {
            active: self.active,
            peers: peers.collect(),
            requests: requests.collect(),
            waiting: waiting.collect(),
            replies: replies.collect(),
            recent: self.pending.recent(),
        }
    }

    /// Resumes the state of another process. UPFs that are not configured are dropped with their
    /// requests, and the endpoint sets up associations with new ones.
    pub fn resume(config: Config, snapshot: N4Snapshot) -> Self {
        let mut n4 = N4::new(config);
        n4.active = snapshot.active;
        let at = |address: SocketAddr| n4.peers.iter().position(|peer| peer.address == address);
        let indexes: Vec<Option<usize>> = snapshot.peers.iter().map(|peer| at(peer.address)).collect();
        let index = |old: PeerIndex| indexes.get(usize::from(old)).copied().flatten().map(|new| new as PeerIndex);
        for (peer, index) in snapshot.peers.into_iter().zip(&indexes) {
            let Some(entry) = index.and_then(|at| n4.peers.get_mut(at)) else { continue };
            *entry = Peer::new(peer.address, peer.next.1, peer.next.0);
            (entry.state, entry.recovery) = (peer.state, peer.recovery.map(RecoveryTimeStamp));
            entry.features = UpFunctionFeatures(peer.features);
            (entry.takes_over, entry.reported_up) = (peer.takes_over, peer.reported_up);
        }
        let memory = n4.config.reply_memory;
        for old in snapshot.requests {
            let Some(peer) = index(old.peer) else { continue };
            let RequestSnapshot { due, sequence, purpose, seid, key, repeats, octets, .. } = old;
            let request = Request { peer, sequence, kind: MessageType(old.kind), purpose, seid, key };
            if !n4.pending.is_full() && !n4.pending.has_number(peer, sequence) {
                n4.pending.open(before(due, n4.config.t1), request, repeats, &octets);
            }
        }
        let waiting = snapshot.waiting.into_iter().filter_map(|old| {
            let QueuedRequestSnapshot { key, seid, message, .. } = old;
            Some(QueuedRequest { peer: index(old.peer)?, key, seid, message })
        });
        n4.waiting = waiting.collect();
        for old in snapshot.replies {
            if let Some(peer) = index(old.peer) {
                let (kind, taken) = (MessageType(old.kind), before(old.expires_at, memory));
                n4.replies.take(taken, peer, old.sequence, kind, old.from);
                if let (Some(response), false) = (kind.response(), old.octets.is_empty()) {
                    n4.replies.answer(peer, old.sequence, response, &old.octets);
                }
            }
        }
        n4.pending.restore(snapshot.recent, index);
        n4
    }
}
