//! Handling of requests from UPFs.

use super::peer::State;
use super::pending::PeerIndex;
use super::replies::RepeatCheck;
use super::{Config, Event, N4, Sink, encode};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::pfcp::*;

impl N4 {
    pub(super) fn on_request(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &Message<'_>,
        octets: &[u8],
        sink: &mut dyn Sink,
    ) {
        let kind = message.message_type();
        if kind == MessageType::HEARTBEAT_REQUEST {
            return self.on_heartbeat(now, from, message, sink);
        }
        let Some(peer) = self.peer_of(from) else {
            self.counters.unassociated += 1;
            return self.refuse_unassociated(from, message, Cause::NO_ESTABLISHED_ASSOCIATION, sink);
        };
        let taken = matches!(
            kind,
            MessageType::ASSOCIATION_SETUP_REQUEST
                | MessageType::ASSOCIATION_UPDATE_REQUEST
                | MessageType::ASSOCIATION_RELEASE_REQUEST
                | MessageType::NODE_REPORT_REQUEST
                | MessageType::SESSION_SET_DELETION_REQUEST
                | MessageType::SESSION_REPORT_REQUEST
        );
        if !taken {
            // a control plane does not support it and drops it silently (TS 29.244 7.6.5)
            self.counters.garbage += 1;
            return;
        }
        if !self.active {
            // Not for this endpoint: the UPF repeats the request to the active endpoint.
            self.counters.unassociated += 1;
            return;
        }
        match self.replies.take(now, peer, message.sequence(), kind, from) {
            RepeatCheck::New => {}
            RepeatCheck::Waiting => {
                self.counters.duplicates += 1;
                return;
            }
            RepeatCheck::Answered(octets) => {
                self.counters.duplicates += 1;
                self.counters.sent += 1;
                return sink.send(from, octets);
            }
        }
        match kind {
            MessageType::ASSOCIATION_SETUP_REQUEST => self.on_setup(now, peer, message, sink),
            _ if !self.has_association(peer) => {
                self.counters.unassociated += 1;
                self.refuse(peer, message, Cause::NO_ESTABLISHED_ASSOCIATION, sink);
            }
            MessageType::ASSOCIATION_UPDATE_REQUEST => self.on_update(now, peer, message, sink),
            MessageType::ASSOCIATION_RELEASE_REQUEST => self.on_release_request(now, peer, message, sink),
            MessageType::NODE_REPORT_REQUEST => self.on_node_report(peer, message, sink),
            MessageType::SESSION_REPORT_REQUEST => self.on_session_report(now, peer, message, octets, sink),
            _ => self.refuse(peer, message, Cause::SERVICE_NOT_SUPPORTED, sink),
        }
    }

    fn has_association(&self, peer: PeerIndex) -> bool {
        !matches!(self.peers[usize::from(peer)].state, State::Idle { .. } | State::SettingUp)
    }

    /// Answers a heartbeat, with or without an association (TS 29.244 6.2.2). An inactive endpoint
    /// does not answer: before a takeover the UPF checks whether the old endpoint is alive.
    fn on_heartbeat(&mut self, now: Instant, from: SocketAddr, message: &Message<'_>, sink: &mut dyn Sink) {
        if !self.active {
            return;
        }
        let body = HeartbeatResponse { recovery_time_stamp: self.config.recovery_time_stamp };
        self.send_unstored(from, message.sequence(), &body, sink);
        let (Some(peer), Ok(request)) = (self.peer_of(from), HeartbeatRequest::parse(message)) else { return };
        let entry = &mut self.peers[usize::from(peer)];
        // An older time stamp belongs to an overtaken request (TS 29.244 6.2.2.2). Stamps are
        // serial numbers, which wrap in 2036.
        let newer = |before: RecoveryTimeStamp| (request.recovery_time_stamp.0.wrapping_sub(before.0) as i32) > 0;
        if matches!(entry.state, State::Up { .. } | State::Lost { .. }) && entry.recovery.is_some_and(newer) {
            entry.recovery = Some(request.recovery_time_stamp);
            self.on_restart(now, peer, sink);
        }
    }

    fn on_setup(&mut self, now: Instant, peer: PeerIndex, message: &Message<'_>, sink: &mut dyn Sink) {
        let request = AssociationSetupRequest::parse(message);
        let cause = request.as_ref().map_or_else(|error| error.cause, |_| Cause::REQUEST_ACCEPTED);
        let body = AssociationSetupResponse {
            node_id: self.node_id(),
            cause,
            recovery_time_stamp: self.config.recovery_time_stamp,
            up_function_features: None,
            cp_function_features: Some(self.config.features),
            flags: None,
        };
        self.answer(peer, message, &body, sink);
        if let Ok(request) = request {
            let features = request.up_function_features.unwrap_or_default();
            // A UPF of another endpoint that itself sets up an association has lost its sessions.
            let takes_over = std::mem::take(&mut self.peers[usize::from(peer)].takes_over);
            if self.starts_over(now, peer) || takes_over {
                self.forget_sessions(peer, sink);
                self.peers[usize::from(peer)].state = State::SettingUp;
                self.peers[usize::from(peer)].recovery = None;
            }
            self.on_association_setup(now, peer, request.recovery_time_stamp, features, sink);
        }
    }

    /// Returns true if a setup request of this UPF ends an association with its sessions (TS 29.244
    /// 6.2.6). Returns false if both ends have sent requests at the same time.
    fn starts_over(&self, now: Instant, peer: PeerIndex) -> bool {
        match self.peers[usize::from(peer)].state {
            State::Up { since, .. } => now.since(since) > Duration(self.config.t1.0 * (u64::from(self.config.n1) + 1)),
            State::Lost { .. } | State::Releasing => true,
            State::Idle { .. } | State::SettingUp => false,
        }
    }

    fn on_update(&mut self, now: Instant, peer: PeerIndex, message: &Message<'_>, sink: &mut dyn Sink) {
        let request = AssociationUpdateRequest::parse(message);
        let cause = request.as_ref().map_or_else(|error| error.cause, |_| Cause::REQUEST_ACCEPTED);
        let body = AssociationUpdateResponse {
            node_id: self.node_id(),
            cause,
            up_function_features: None,
            cp_function_features: Some(self.config.features),
        };
        self.answer(peer, message, &body, sink);
        let Ok(request) = request else { return };
        let entry = &mut self.peers[usize::from(peer)];
        if let Some(features) = request.up_function_features {
            entry.features = features;
        }
        let wants_release = request.release_requested.is_some_and(|r| r.contains(AssociationReleaseRequested::SARR));
        if let (true, State::Up { release_at, .. }) = (wants_release, &mut entry.state) {
            let period = request.graceful_release_period.map_or(Some(Duration(0)), GracefulReleasePeriod::span);
            // no time limit: the UPF sends another update
            let within = period.unwrap_or(Duration(u64::MAX));
            *release_at = Some(now + within);
            sink.event(Event::UpfReleasing { upf: entry.address, within });
        }
    }

    fn on_release_request(&mut self, now: Instant, peer: PeerIndex, message: &Message<'_>, sink: &mut dyn Sink) {
        let request = AssociationReleaseRequest::parse(message);
        let cause = request.as_ref().map_or_else(|error| error.cause, |_| Cause::REQUEST_ACCEPTED);
        let body = AssociationReleaseResponse { node_id: self.node_id(), cause };
        self.answer(peer, message, &body, sink);
        if request.is_ok() {
            self.on_release(now, peer, sink);
        }
    }

    fn on_node_report(&mut self, peer: PeerIndex, message: &Message<'_>, sink: &mut dyn Sink) {
        let request = NodeReportRequest::parse(message);
        let error = request.as_ref().err();
        let body = NodeReportResponse {
            node_id: self.node_id(),
            cause: error.map_or(Cause::REQUEST_ACCEPTED, |error| error.cause),
            offending_ie: error.and_then(|error| error.offending_ie).map(OffendingIe),
        };
        self.answer(peer, message, &body, sink);
        let Ok(request) = request else { return };
        let upf = self.peers[usize::from(peer)].address;
        let failed = request.path_failure.iter().flat_map(|report| &report.remote_peers).map(|peer| (peer, false));
        let works = request.path_recovery.iter().flat_map(|report| &report.remote_peers).map(|peer| (peer, true));
        for (RemoteGtpuPeer(peer), works) in failed.chain(works) {
            sink.event(Event::GtpuPath { upf, peer: *peer, works });
        }
    }

    fn on_session_report(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        message: &Message<'_>,
        octets: &[u8],
        sink: &mut dyn Sink,
    ) {
        let upf = self.peers[usize::from(peer)].address;
        let no_session = Error { cause: Cause::SESSION_CONTEXT_NOT_FOUND, offending_ie: None };
        match message.seid() {
            0 => self.refuse_report(now, upf, octets, no_session, sink),
            seid => sink.event(Event::Deliver { upf, seid: Seid(seid), request: true, message: octets }),
        }
    }

    /// Answers a node-related request and stores the response for repeats.
    fn answer<T: Body>(&mut self, peer: PeerIndex, request: &Message<'_>, body: &T, sink: &mut dyn Sink) {
        if let Some(octets) = encode(std::mem::take(&mut self.scratch), request.sequence(), body) {
            let upf = self.peers[usize::from(peer)].address;
            self.send_response(self.now, upf, &octets, sink);
            self.scratch = octets;
        }
    }

    /// Rejects a request of a UPF and stores the response for repeats.
    fn refuse(&mut self, peer: PeerIndex, request: &Message<'_>, cause: Cause, sink: &mut dyn Sink) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if refusal(&mut scratch, &self.config, request, cause) {
            self.send_response(self.now, self.peers[usize::from(peer)].address, &scratch, sink);
        }
        self.scratch = scratch;
    }

    /// Rejects a request of an address of no UPF, without storing the response.
    fn refuse_unassociated(&mut self, to: SocketAddr, request: &Message<'_>, cause: Cause, sink: &mut dyn Sink) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if refusal(&mut scratch, &self.config, request, cause) {
            self.counters.sent += 1;
            sink.send(to, &scratch);
        }
        self.scratch = scratch;
    }
}

/// Encodes the shortest response to a request: its cause, and the Node ID unless it concerns a
/// session. Returns false for requests that a control plane does not support.
fn refusal(out: &mut Vec<u8>, config: &Config, request: &Message<'_>, cause: Cause) -> bool {
    let kind = match request.message_type() {
        MessageType::ASSOCIATION_SETUP_REQUEST => MessageType::ASSOCIATION_SETUP_RESPONSE,
        MessageType::ASSOCIATION_UPDATE_REQUEST => MessageType::ASSOCIATION_UPDATE_RESPONSE,
        MessageType::ASSOCIATION_RELEASE_REQUEST => MessageType::ASSOCIATION_RELEASE_RESPONSE,
        MessageType::NODE_REPORT_REQUEST => MessageType::NODE_REPORT_RESPONSE,
        MessageType::SESSION_SET_DELETION_REQUEST => MessageType::SESSION_SET_DELETION_RESPONSE,
        MessageType::SESSION_REPORT_REQUEST => MessageType::SESSION_REPORT_RESPONSE,
        _ => return false,
    };
    out.clear();
    let mut builder = Builder::new(out, kind, kind.is_session().then_some(0), request.sequence());
    if !kind.is_session() {
        builder.put(&config.node_id);
    }
    builder.put(&cause);
    if kind == MessageType::ASSOCIATION_SETUP_RESPONSE {
        builder.put(&config.recovery_time_stamp);
    }
    builder.finish().is_ok()
}
