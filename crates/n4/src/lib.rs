//! The control plane's N4 endpoint (TS 29.244 clauses 6 and 7): associations, sequence numbers and repeats.
//!
//! [`N4`] is pure: time and datagrams are arguments, what it wants goes to a [`Sink`]; [`Endpoint`] is the thin shell
//! with a UDP socket. It knows UPFs, associations and which request a response answers; it does not know sessions: a
//! session's message is octets under a SEID.
//!
//! - A UPF that does not answer heartbeats is *down* ([`Event::UpfDown`]): its sessions are still there when it answers
//!   again with the same recovery time stamp. With another one, or when it knows no association any more, it has
//!   *restarted* ([`Event::UpfRestarted`]): its sessions are gone, and an association is set up anew.
//! - A request keeps its sequence number over all repeats, also over those of the caller: a second
//!   [`N4::submit`] of the same key sends nothing while the first waits, and goes out under the first one's number if
//!   that was answered a short time ago, so that the UPF takes it for the repeat it is.
//! - A session that comes into being after its establishment was given up is ended from here: nobody else knows it.
//! - Several endpoints may have one Node ID and one recovery time stamp, of which one *holds* the associations
//!   ([`N4::hold`], [`N4::let_go`]): another one takes them over with the sessions that the UPFs have (Session Retention
//!   Information, TS 29.244 7.4.4.1; TS 23.527 4.3). Requests that come meanwhile leave when that is done.
//! - Everything is bounded: requests that wait, answers kept for repeats, and work per datagram.
#![forbid(unsafe_code)]

mod config;
mod endpoint;
mod event;
mod in_process;
pub mod log_limit;
mod peer;
mod pending;
mod replies;
mod requests;
mod responses;
mod snapshot;
#[cfg(test)]
mod tests;
pub mod udp;
pub mod ue_peers;

pub use config::Config;
pub use endpoint::Endpoint;
pub use event::{Counters, Event, Sink, SubmitError, Submitted};
pub use in_process::InProcess;
pub use snapshot::N4Snapshot;

use crate::log_limit::LogLimit;
use peer::{Peer, State};
use pending::{Expiry, PeerIndex, Pending, Purpose, Request};
use replies::Replies;
use std::net::{IpAddr, SocketAddr};
use vireo_types::Network;
use vireo_types::{Instant, Seid};
use vireo_wire::pfcp::{
    AssociationReleaseRequest, AssociationSetupRequest, Body, Builder, Error, HeaderError, HeartbeatRequest, Message,
    MessageType, NodeId, SessionReportResponse, SessionRetentionInformation, VersionNotSupportedResponse,
    set_f_seid_address, set_sequence,
};

/// A session's request that leaves when the association is taken over.
#[derive(Debug)]
struct QueuedRequest {
    peer: PeerIndex,
    key: Option<u64>,
    seid: Seid,
    message: Vec<u8>,
}

/// The endpoint's state.
#[derive(Debug)]
pub struct N4 {
    config: Config,
    peers: Vec<Peer>,
    pending: Pending,
    waiting: Vec<QueuedRequest>,
    replies: Replies,
    counters: Counters,
    lines: LogLimit<()>,
    /// The UE that the last datagram from one came from.
    last_ue: Option<IpAddr>,
    /// Whether it has associations, or wants them; another endpoint of the Node ID may.
    holds: bool,
    /// The latest time seen: what is given as time may step back, deadlines may not.
    now: Instant,
    scratch: Vec<u8>,
}

impl N4 {
    /// An endpoint without associations; the first [`N4::on_time`] begins to set them up.
    pub fn new(config: Config) -> Self {
        let first = config.first_sequence;
        let peers = config.upfs.iter().map(|address| Peer::new(*address, first, config.retry_first)).collect();
        N4 {
            peers,
            pending: Pending::new(config.outstanding, config.t1, config.reply_memory, config.shared),
            waiting: Vec::new(),
            replies: Replies::new(config.replies, config.reply_memory),
            counters: Counters::default(),
            lines: LogLimit::default(),
            last_ue: None,
            holds: true,
            now: Instant::default(),
            scratch: Vec::new(),
            config,
        }
    }

    /// What was counted since the start.
    pub fn counters(&self) -> Counters {
        Counters { outstanding: self.pending.len() as u64, ..self.counters }
    }

    /// Another endpoint of the Node ID has the associations: requests are refused, and reports too, which come again to
    /// who has them. Nothing is said to UPFs, and nobody is told of requests that wait: they are the other one's to ask.
    pub fn let_go(&mut self, now: Instant) {
        let now = self.advance(now);
        self.holds = false;
        self.waiting.clear();
        for peer in 0..self.peers.len() as PeerIndex {
            self.pending.abandon(now, peer, |_| true, |_| {});
            let entry = &mut self.peers[usize::from(peer)];
            (entry.state, entry.recovery) = (State::Idle { at: now }, None);
            (entry.takes_over, entry.is_said_up) = (false, false);
        }
    }

    /// The associations are this endpoint's from now on. What another one had, if there was one, is taken over: UPFs are asked
    /// to keep the sessions, and one that does not say that it has them has lost them ([`Event::UpfRestarted`]).
    pub fn hold(&mut self, now: Instant, takes_over: bool, sink: &mut dyn Sink) {
        let now = self.advance(now);
        if self.holds {
            return;
        }
        self.holds = true;
        for peer in 0..self.peers.len() as PeerIndex {
            let entry = &mut self.peers[usize::from(peer)];
            entry.reset_backoff(self.config.retry_first);
            entry.state = State::Idle { at: now };
            (entry.takes_over, entry.is_said_up) = (takes_over, takes_over);
            self.tend(now, peer, sink);
        }
    }

    /// The addresses of UEs.
    pub fn ue_pools(&self) -> &[Network] {
        &self.config.ue_pools
    }

    /// The UE whose datagram was ignored last, if there was one since this was asked.
    pub fn take_ue(&mut self) -> Option<IpAddr> {
        self.last_ue.take()
    }

    /// Whether the associations are this endpoint's.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Whether requests for sessions can be sent to that UPF now.
    pub fn is_up(&self, upf: SocketAddr) -> bool {
        self.peer_of(upf).is_some_and(|peer| self.peers[usize::from(peer)].state.is_up())
    }

    /// Sends a session's request; its sequence number is overwritten. A response instead of a request (of a session
    /// report) is sent as [`N4::send_response`] does.
    ///
    /// `key` is the caller's name for the request, the same when it is submitted again after a crash. `seid` is the
    /// session's in the control plane, under which the response or [`Event::Timeout`] comes.
    pub fn submit(
        &mut self,
        now: Instant,
        upf: SocketAddr,
        key: Option<u64>,
        seid: Seid,
        message: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Submitted, SubmitError> {
        let now = self.advance(now);
        let kind = Message::new(message).map_err(SubmitError::Malformed)?.message_type();
        if kind.is_response() {
            self.send_response(now, upf, message, sink);
            return Ok(Submitted::Sent);
        }
        let peer = self.peer_of(upf).ok_or(SubmitError::UnknownUpf(upf))?;
        if key.is_some_and(|key| self.pending.has_key(key)) {
            self.counters.resubmitted += 1;
            return Ok(Submitted::Waiting);
        }
        let entry = &self.peers[usize::from(peer)];
        let full = self.pending.is_full() || self.waiting.len() >= self.config.outstanding;
        if entry.is_taken_over() && !full {
            self.waiting.push(QueuedRequest { peer, key, seid, message: message.to_vec() });
            return Ok(Submitted::Waiting);
        }
        if !entry.state.is_up() {
            return Err(if full { SubmitError::Full } else { SubmitError::NoAssociation(upf) });
        }
        let before = key.and_then(|key| self.pending.answered(now, key));
        let sequence = before.filter(|(at, n)| *at == peer && !self.pending.has_number(peer, *n)).map(|(_, n)| n);
        let named = key.filter(|_| self.config.shared).map(sequence_of);
        let named = named.filter(|sequence| self.pending.is_free(now, peer, *sequence));
        let sequence = match sequence.or(named) {
            _ if self.pending.is_full() => return Err(SubmitError::Full),
            Some(sequence) => sequence,
            None => self.next_sequence(peer),
        };
        let mut octets = std::mem::take(&mut self.scratch);
        octets.clear();
        octets.extend_from_slice(message);
        if kind == MessageType::SESSION_ESTABLISHMENT_REQUEST {
            // Whoever wrote it may not know by which endpoint it leaves. One without an F-SEID is the UPF's to refuse.
            set_f_seid_address(&mut octets, self.config.address);
        }
        let request = Request { peer, sequence, kind, purpose: Purpose::Session, seid, key };
        self.request(request, self.config.n1, &mut octets, sink);
        self.scratch = octets;
        Ok(Submitted::Sent)
    }

    /// Sends the response to a UPF's request and keeps it for repeats of that. It goes to where the request came from;
    /// `upf` is the address of the configuration.
    pub fn send_response(&mut self, now: Instant, upf: SocketAddr, message: &[u8], sink: &mut dyn Sink) {
        self.advance(now);
        let to = match (self.peer_of(upf), Message::new(message)) {
            (Some(peer), Ok(view)) => {
                self.replies.answer(peer, view.sequence(), view.message_type(), message).unwrap_or(upf)
            }
            _ => upf,
        };
        self.counters.sent += 1;
        sink.send(to, message);
    }

    /// Answers a session report that the caller has no use for, such as one for a session it does not know.
    pub fn refuse_report(&mut self, now: Instant, upf: SocketAddr, report: &[u8], error: Error, sink: &mut dyn Sink) {
        let mut octets = Vec::new();
        let sequence = Message::new(report).map(|report| report.sequence());
        if let Ok(sequence) = sequence
            && SessionReportResponse::from(error).emit(&mut octets, 0, sequence).is_ok()
        {
            self.send_response(now, upf, &octets, sink);
        }
    }

    /// Reads datagrams of these networks alone from now on; of any if there are none.
    pub fn set_allow(&mut self, allow: Vec<vireo_types::Network>) {
        self.config.allow = allow;
    }

    /// Takes a datagram.
    pub fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8], sink: &mut dyn Sink) {
        let now = self.advance(now);
        self.counters.received += 1;
        if self.config.ue_pools.iter().any(|pool| pool.contains(from.ip().to_canonical())) {
            self.counters.from_ues += 1;
            self.last_ue = Some(from.ip());
            return;
        }
        if !self.config.allow.is_empty() && !self.config.allow.iter().any(|network| network.contains(from.ip())) {
            return self.turn_away(now, from);
        }
        match Message::new(datagram) {
            Ok(message) if message.message_type().is_response() => {
                self.on_response(now, from, &message, datagram, sink)
            }
            Ok(message) if message.message_type().is_request() => self.on_request(now, from, &message, datagram, sink),
            Err(HeaderError::Version { kind, sequence, .. })
                if MessageType(kind) != MessageType::VERSION_NOT_SUPPORTED_RESPONSE =>
            {
                self.counters.garbage += 1;
                self.answer_unkept(from, sequence, &VersionNotSupportedResponse {}, sink);
            }
            _ => self.counters.garbage += 1,
        }
    }

    /// Drops a datagram of an address that may not send any.
    fn turn_away(&mut self, now: Instant, from: SocketAddr) {
        self.counters.unlisted += 1;
        if let Some(left_out) = self.lines.admit((), from.ip(), now) {
            tracing::warn!(peer = %from, left_out, "PFCP from an address that is not in n4.allow");
        }
    }

    /// Does what is due and says when to come again; `None` if there is nothing to wait for.
    pub fn on_time(&mut self, now: Instant, sink: &mut dyn Sink) -> Option<Instant> {
        let now = self.advance(now);
        while let Some(expiry) = self.pending.expire(now) {
            match expiry {
                Expiry::Again(peer, octets) => {
                    self.counters.repeated += 1;
                    self.counters.sent += 1;
                    sink.send(self.peers[usize::from(peer)].address, octets);
                }
                Expiry::Over(request) => self.on_timeout(now, request, sink),
            }
        }
        for peer in 0..self.peers.len() as PeerIndex {
            self.tend(now, peer, sink);
        }
        let peers = self.peers.iter().filter(|_| self.holds).filter_map(|peer| peer.state.due()).min();
        peers.into_iter().chain(self.pending.next_deadline()).min()
    }

    /// Whether an answer to [`N4::release_all`] is still awaited.
    pub fn is_releasing(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.state, State::Releasing))
    }

    /// Tells every UPF that the associations end; [`N4::is_releasing`] until they have answered or are given up.
    pub fn release_all(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.advance(now);
        for peer in 0..self.peers.len() as PeerIndex {
            if self.peers[usize::from(peer)].state.is_up() {
                self.ask_release(peer, sink);
            }
        }
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// The UPF of that address. Its requests may come from another port than the one it listens on (TS 29.244 6.1).
    fn peer_of(&self, address: SocketAddr) -> Option<PeerIndex> {
        let exact = self.peers.iter().position(|peer| peer.address == address);
        let at = exact.or_else(|| {
            let mut same = self.peers.iter().enumerate().filter(|(_, peer)| peer.address.ip() == address.ip());
            same.next().filter(|_| same.next().is_none()).map(|(at, _)| at)
        });
        at.map(|at| at as PeerIndex)
    }

    fn next_sequence(&mut self, peer: PeerIndex) -> u32 {
        loop {
            let sequence = self.peers[usize::from(peer)].next_sequence();
            if self.pending.is_free(self.now, peer, sequence) {
                return sequence;
            }
        }
    }

    /// Sends a request and waits for its response.
    fn request(&mut self, request: Request, repeats: u8, octets: &mut [u8], sink: &mut dyn Sink) {
        set_sequence(octets, request.sequence);
        self.pending.open(self.now, request, repeats, octets);
        self.counters.sent += 1;
        sink.send(self.peers[usize::from(request.peer)].address, octets);
    }

    /// Sends a request between nodes.
    fn request_node<T: Body>(&mut self, peer: PeerIndex, purpose: Purpose, repeats: u8, body: &T, sink: &mut dyn Sink) {
        let sequence = self.next_sequence(peer);
        let request = Request { peer, sequence, kind: T::KIND, purpose, seid: Seid::default(), key: None };
        if let Some(mut octets) = encode(std::mem::take(&mut self.scratch), sequence, body) {
            self.request(request, repeats, &mut octets, sink);
            self.scratch = octets;
        }
    }

    /// Sends a response between nodes that needs not be kept: it is the same at each repeat.
    fn answer_unkept<T: Body>(&mut self, to: SocketAddr, sequence: u32, body: &T, sink: &mut dyn Sink) {
        if let Some(octets) = encode(std::mem::take(&mut self.scratch), sequence, body) {
            self.counters.sent += 1;
            sink.send(to, &octets);
            self.scratch = octets;
        }
    }

    /// The address of its F-SEIDs.
    fn address(&self) -> std::net::IpAddr {
        self.config.address
    }

    fn node_id(&self) -> NodeId {
        self.config.node_id.clone()
    }

    /// Does what is due for one UPF.
    fn tend(&mut self, now: Instant, peer: PeerIndex, sink: &mut dyn Sink) {
        if !self.holds {
            return;
        }
        let state = &mut self.peers[usize::from(peer)].state;
        if state.due().is_none_or(|due| due > now) {
            return;
        }
        match state {
            State::Idle { .. } => {
                *state = State::Asking;
                self.ask_setup(peer, sink);
            }
            State::Up { release_at: Some(at), .. } if *at <= now => self.ask_release(peer, sink),
            State::Up { heartbeat_at: at, .. } | State::Lost { heartbeat_at: at } => {
                *at = None;
                let body = HeartbeatRequest { recovery_time_stamp: self.config.recovery_time_stamp };
                self.request_node(peer, Purpose::Heartbeat, self.config.heartbeat_n1, &body, sink);
            }
            State::Asking | State::Releasing => {}
        }
    }

    fn ask_setup(&mut self, peer: PeerIndex, sink: &mut dyn Sink) {
        let body = AssociationSetupRequest {
            node_id: self.node_id(),
            recovery_time_stamp: self.config.recovery_time_stamp,
            up_function_features: None,
            cp_function_features: Some(self.config.features),
            // All of them: every endpoint has the same.
            session_retention: self.peers[usize::from(peer)].takes_over.then(SessionRetentionInformation::default),
        };
        self.request_node(peer, Purpose::Setup, self.config.n1, &body, sink);
    }

    fn ask_release(&mut self, peer: PeerIndex, sink: &mut dyn Sink) {
        self.peers[usize::from(peer)].state = State::Releasing;
        let body = AssociationReleaseRequest { node_id: self.node_id() };
        self.request_node(peer, Purpose::Release, self.config.n1, &body, sink);
    }
}

/// The sequence number of a request's name: the names of one UE's requests differ in their low bits alone.
fn sequence_of(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// Encodes a message between nodes, which is always short, into a buffer.
fn encode<T: Body>(mut buffer: Vec<u8>, sequence: u32, body: &T) -> Option<Vec<u8>> {
    buffer.clear();
    let mut builder = Builder::new(&mut buffer, T::KIND, None, sequence);
    body.write(&mut builder);
    builder.finish().ok().map(|()| buffer)
}
