//! N4 endpoint of the control plane (TS 29.244 6 and 7).
//!
//! It handles associations, sequence numbers and repeats.
//!
//! [`N4`] is pure: time and datagrams are arguments, and its output goes to a [`Sink`].
//! [`Endpoint`] adds a UDP socket. The endpoint matches responses to requests. It does not
//! interpret sessions: a session's message is octets under a SEID.
//!
//! - A UPF that answers no heartbeats is *down* ([`Event::UpfDown`]). Its sessions still exist if
//!   it answers again with the same Recovery Time Stamp. With another stamp, or without the
//!   association, it has *restarted* ([`Event::UpfRestarted`]): its sessions are gone, and the
//!   endpoint sets up the association again.
//! - A request keeps its sequence number over all repeats, including those of the caller. A second
//!   [`N4::submit`] of the same key sends nothing while the first is unanswered. If the first was
//!   answered a short time ago, the second has its number, so that the UPF recognises the repeat.
//!   The UPF of the same process loses no response: unless the Node ID is shared, its answered
//!   requests are not remembered.
//! - If an establishment succeeds after its timeout, the endpoint deletes the session, which the
//!   control plane does not know.
//! - Several endpoints may share one Node ID and one Recovery Time Stamp; one of them is active
//!   ([`N4::activate`], [`N4::deactivate`]). A newly active one takes over the associations with
//!   the sessions of the UPFs (Session Retention Information, TS 29.244 7.4.4.1; TS 23.527 4.3).
//!   Requests meanwhile leave after the takeover.
//! - Queues, stored responses and the work per datagram are bounded.
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
mod user_data;

pub use config::Config;
pub use endpoint::Endpoint;
pub use event::{Counters, Event, Sink, SubmitError, SubmitResult};
pub use in_process::InProcess;
pub use snapshot::N4Snapshot;

use crate::log_limit::LogLimit;
use peer::{Peer, State};
use pending::{Expiry, PeerIndex, Pending, Purpose, Request};
use replies::Replies;
use std::net::{IpAddr, SocketAddr};
use vireo_types::Network;
use vireo_types::{Instant, Seid};
use vireo_wire::gtpu;
use vireo_wire::pfcp::{
    AssociationReleaseRequest, AssociationSetupRequest, Body, Builder, Error, HeaderError, HeartbeatRequest, Message,
    MessageType, NodeId, SessionReportResponse, SessionRetentionInformation, VersionNotSupportedResponse,
    set_f_seid_address, set_sequence, set_tunnel_address,
};

/// A session's request that leaves when the association has been taken over.
#[derive(Debug)]
struct QueuedRequest {
    peer: PeerIndex,
    key: Option<u64>,
    seid: Seid,
    message: Vec<u8>,
}

/// State of the endpoint.
#[derive(Debug)]
pub struct N4 {
    config: Config,
    peers: Vec<Peer>,
    pending: Pending,
    waiting: Vec<QueuedRequest>,
    replies: Replies,
    counters: Counters,
    lines: LogLimit<()>,
    /// Source of the last datagram from a UE.
    last_ue: Option<IpAddr>,
    /// True if this endpoint is active. At most one endpoint of a Node ID should be.
    active: bool,
    /// The latest time of any call. The time of a caller may step back, deadlines may not.
    now: Instant,
    scratch: Vec<u8>,
}

impl N4 {
    /// Creates an active endpoint without associations. The first [`N4::on_time`] starts to set
    /// them up.
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
            active: true,
            now: Instant::default(),
            scratch: Vec::new(),
            config,
        }
    }

    /// Declares that no response of this UPF is lost, so that the caller submits no request again
    /// that was answered.
    fn set_lossless(&mut self, upf: SocketAddr) {
        let peer = self.peers.iter().position(|peer| peer.address == upf);
        self.pending.set_lossless(peer.map(|peer| peer as PeerIndex));
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> Counters {
        Counters { outstanding: self.pending.len() as u64, ..self.counters }
    }

    /// Deactivates the endpoint: another one of the Node ID has the associations.
    ///
    /// It then refuses requests of the caller and drops reports, which UPFs retransmit to the
    /// active endpoint. It sends nothing to UPFs and raises no timeouts: the other endpoint repeats
    /// the pending requests.
    pub fn deactivate(&mut self, now: Instant) {
        let now = self.advance(now);
        self.active = false;
        self.waiting.clear();
        for peer in 0..self.peers.len() as PeerIndex {
            self.pending.abandon(now, peer, |_| true, |_| {});
            let entry = &mut self.peers[usize::from(peer)];
            (entry.state, entry.recovery) = (State::Idle { at: now }, None);
            (entry.takes_over, entry.reported_up) = (false, false);
        }
    }

    /// Activates the endpoint. With `takes_over` it asks the UPFs to retain the sessions of the
    /// previously active endpoint. A UPF that does not confirm them has lost them
    /// ([`Event::UpfRestarted`]).
    pub fn activate(&mut self, now: Instant, takes_over: bool, sink: &mut dyn Sink) {
        let now = self.advance(now);
        if self.active {
            return;
        }
        self.active = true;
        for peer in 0..self.peers.len() as PeerIndex {
            let entry = &mut self.peers[usize::from(peer)];
            entry.reset_backoff(self.config.retry_first);
            entry.state = State::Idle { at: now };
            (entry.takes_over, entry.reported_up) = (takes_over, takes_over);
            self.tend(now, peer, sink);
        }
    }

    /// Returns the address pools of UEs.
    pub fn ue_pools(&self) -> &[Network] {
        &self.config.ue_pools
    }

    /// Returns true if user data are sent over NAS.
    pub fn has_user_data(&self) -> bool {
        self.config.user_data
    }

    /// Returns the source of the last ignored datagram from a UE since the last call.
    pub fn take_ue(&mut self) -> Option<IpAddr> {
        self.last_ue.take()
    }

    /// Returns true if the endpoint is active.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Returns true if the UPF accepts session requests.
    pub fn is_up(&self, upf: SocketAddr) -> bool {
        self.peer_of(upf).is_some_and(|peer| self.peers[usize::from(peer)].state.is_up())
    }

    /// Sends a session's request, with a new sequence number. A response to a session report is
    /// sent as by [`N4::send_response`].
    ///
    /// `key` identifies the request for the caller, and is the same if the request is submitted
    /// again after a crash. `seid` is the control plane's SEID, which the response or
    /// [`Event::Timeout`] carries.
    ///
    /// # Errors
    ///
    /// Returns an error if the UPF is unknown or has no association, if too many requests are
    /// unanswered, or if `message` is not PFCP.
    pub fn submit(
        &mut self,
        now: Instant,
        upf: SocketAddr,
        key: Option<u64>,
        seid: Seid,
        message: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<SubmitResult, SubmitError> {
        let now = self.advance(now);
        let kind = Message::new(message).map_err(SubmitError::Malformed)?.message_type();
        if kind.is_response() {
            self.send_response(now, upf, message, sink);
            return Ok(SubmitResult::Sent);
        }
        let peer = self.peer_of(upf).ok_or(SubmitError::UnknownUpf(upf))?;
        if key.is_some_and(|key| self.pending.has_key(key)) {
            self.counters.resubmitted += 1;
            return Ok(SubmitResult::Waiting);
        }
        let entry = &self.peers[usize::from(peer)];
        let full = self.pending.is_full() || self.waiting.len() >= self.config.outstanding;
        if entry.is_taken_over() && !full {
            self.waiting.push(QueuedRequest { peer, key, seid, message: message.to_vec() });
            return Ok(SubmitResult::Waiting);
        }
        if !entry.state.is_up() {
            return Err(if full { SubmitError::Full } else { SubmitError::NoAssociation(upf) });
        }
        let before = key.and_then(|key| self.pending.recently_answered(now, key));
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
            // The author of the message may not know which endpoint sends it. The UPF rejects a
            // message without F-SEID.
            set_f_seid_address(&mut octets, self.config.address);
        }
        if let (true, IpAddr::V4(address)) = (self.config.user_data, self.config.address) {
            set_tunnel_address(&mut octets, address);
        }
        let request = Request { peer, sequence, kind, purpose: Purpose::Session, seid, key };
        self.request(request, self.config.n1, &mut octets, sink);
        self.scratch = octets;
        Ok(SubmitResult::Sent)
    }

    /// Sends the response to a UPF's request, and stores it for repeats. The destination is the
    /// source of the request; `upf` is the configured address.
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

    /// Rejects a session report that the caller cannot process, for example one for an unknown
    /// session.
    pub fn refuse_report(&mut self, now: Instant, upf: SocketAddr, report: &[u8], error: Error, sink: &mut dyn Sink) {
        if gtpu::is_g_pdu(report) {
            return;
        }
        let mut octets = Vec::new();
        let sequence = Message::new(report).map(|report| report.sequence());
        if let Ok(sequence) = sequence
            && SessionReportResponse::from(error).emit(&mut octets, 0, sequence).is_ok()
        {
            self.send_response(now, upf, &octets, sink);
        }
    }

    /// Sets the permitted source networks; empty permits all.
    pub fn set_allow(&mut self, allow: Vec<vireo_types::Network>) {
        self.config.allow = allow;
    }

    /// Processes a datagram.
    pub fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8], sink: &mut dyn Sink) {
        let now = self.advance(now);
        self.counters.received += 1;
        if self.config.ue_pools.iter().any(|pool| pool.contains(from.ip().to_canonical())) {
            self.counters.from_ues += 1;
            self.last_ue = Some(from.ip());
            return;
        }
        if !self.config.allow.is_empty() && !self.config.allow.iter().any(|network| network.contains(from.ip())) {
            return self.drop_unlisted(now, from);
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
                self.send_unstored(from, sequence, &VersionNotSupportedResponse {}, sink);
            }
            _ => self.counters.garbage += 1,
        }
    }

    /// Drops a datagram from an address that is not permitted.
    fn drop_unlisted(&mut self, now: Instant, from: SocketAddr) {
        self.counters.unlisted += 1;
        if let Some(suppressed) = self.lines.admit((), from.ip(), now) {
            tracing::warn!(peer = %from, suppressed, "PFCP from an address that is not in n4.allow");
        }
    }

    /// Runs all due actions. Returns when it must be called again; `None` if nothing is pending.
    pub fn on_time(&mut self, now: Instant, sink: &mut dyn Sink) -> Option<Instant> {
        let now = self.advance(now);
        while let Some(expiry) = self.pending.expire(now) {
            match expiry {
                Expiry::Repeat(peer, octets) => {
                    self.counters.repeated += 1;
                    self.counters.sent += 1;
                    sink.send(self.peers[usize::from(peer)].address, octets);
                }
                Expiry::TimedOut(request) => self.on_timeout(now, request, sink),
            }
        }
        for peer in 0..self.peers.len() as PeerIndex {
            self.tend(now, peer, sink);
        }
        let peers = self.peers.iter().filter(|_| self.active).filter_map(|peer| peer.state.due()).min();
        peers.into_iter().chain(self.pending.next_deadline()).min()
    }

    /// Returns true if a release by [`N4::release_all`] is unanswered.
    pub fn is_releasing(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.state, State::Releasing))
    }

    /// Requests the release of all associations. [`N4::is_releasing`] returns true until the UPFs
    /// have answered or the attempts are exhausted.
    pub fn release_all(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.advance(now);
        for peer in 0..self.peers.len() as PeerIndex {
            if self.peers[usize::from(peer)].state.is_up() {
                self.request_release(peer, sink);
            }
        }
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// Returns the UPF with this address. The source port of its requests may differ from its PFCP
    /// port (TS 29.244 6.1).
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

    /// Sends a request and registers it as unanswered.
    fn request(&mut self, request: Request, repeats: u8, octets: &mut [u8], sink: &mut dyn Sink) {
        set_sequence(octets, request.sequence);
        self.pending.open(self.now, request, repeats, octets);
        self.counters.sent += 1;
        sink.send(self.peers[usize::from(request.peer)].address, octets);
    }

    /// Sends a node-related request.
    fn request_node<T: Body>(&mut self, peer: PeerIndex, purpose: Purpose, repeats: u8, body: &T, sink: &mut dyn Sink) {
        let sequence = self.next_sequence(peer);
        let request = Request { peer, sequence, kind: T::KIND, purpose, seid: Seid::default(), key: None };
        if let Some(mut octets) = encode(std::mem::take(&mut self.scratch), sequence, body) {
            self.request(request, repeats, &mut octets, sink);
            self.scratch = octets;
        }
    }

    /// Sends a node-related response that is not stored, because it is the same for each repeat.
    fn send_unstored<T: Body>(&mut self, to: SocketAddr, sequence: u32, body: &T, sink: &mut dyn Sink) {
        if let Some(octets) = encode(std::mem::take(&mut self.scratch), sequence, body) {
            self.counters.sent += 1;
            sink.send(to, &octets);
            self.scratch = octets;
        }
    }

    /// Returns the address for F-SEIDs.
    fn address(&self) -> std::net::IpAddr {
        self.config.address
    }

    fn node_id(&self) -> NodeId {
        self.config.node_id.clone()
    }

    /// Runs the due actions for one UPF.
    fn tend(&mut self, now: Instant, peer: PeerIndex, sink: &mut dyn Sink) {
        if !self.active {
            return;
        }
        let state = &mut self.peers[usize::from(peer)].state;
        if state.due().is_none_or(|due| due > now) {
            return;
        }
        match state {
            State::Idle { .. } => {
                *state = State::SettingUp;
                self.request_setup(peer, sink);
            }
            State::Up { release_at: Some(at), .. } if *at <= now => self.request_release(peer, sink),
            State::Up { heartbeat_at: at, .. } | State::Lost { heartbeat_at: at } => {
                *at = None;
                let body = HeartbeatRequest { recovery_time_stamp: self.config.recovery_time_stamp };
                self.request_node(peer, Purpose::Heartbeat, self.config.heartbeat_n1, &body, sink);
            }
            State::SettingUp | State::Releasing => {}
        }
    }

    fn request_setup(&mut self, peer: PeerIndex, sink: &mut dyn Sink) {
        let body = AssociationSetupRequest {
            node_id: self.node_id(),
            recovery_time_stamp: self.config.recovery_time_stamp,
            up_function_features: None,
            cp_function_features: Some(self.config.features),
            // All sessions: every endpoint has the same ones.
            session_retention: self.peers[usize::from(peer)].takes_over.then(SessionRetentionInformation::default),
        };
        self.request_node(peer, Purpose::Setup, self.config.n1, &body, sink);
    }

    fn request_release(&mut self, peer: PeerIndex, sink: &mut dyn Sink) {
        self.peers[usize::from(peer)].state = State::Releasing;
        let body = AssociationReleaseRequest { node_id: self.node_id() };
        self.request_node(peer, Purpose::Release, self.config.n1, &body, sink);
    }
}

/// Derives a sequence number from a key. Keys of one UE differ only in their low bits.
fn sequence_of(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// Encodes a node-related message, which is always short, into a buffer.
fn encode<T: Body>(mut buffer: Vec<u8>, sequence: u32, body: &T) -> Option<Vec<u8>> {
    buffer.clear();
    let mut builder = Builder::new(&mut buffer, T::KIND, None, sequence);
    body.write(&mut builder);
    builder.finish().ok().map(|()| buffer)
}
