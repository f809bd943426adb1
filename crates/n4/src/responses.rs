//! Handling of responses and timeouts.

use super::peer::State;
use super::pending::{PeerIndex, Purpose, Request};
use super::{Event, N4, QueuedRequest, Sink};
use std::net::SocketAddr;
use vireo_types::{Instant, Seid};
use vireo_wire::pfcp::{
    AsRspFlags, AssociationSetupResponse, Cause, HeartbeatResponse, Message, MessageType, RecoveryTimeStamp,
    SessionDeletionRequest, SessionEstablishmentResponse, UpFunctionFeatures,
};

impl N4 {
    pub(super) fn on_response(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: &Message<'_>,
        octets: &[u8],
        sink: &mut dyn Sink,
    ) {
        let Some(peer) = self.peer_of(from) else {
            self.counters.unassociated += 1;
            return;
        };
        let Some(request) = self.pending.close(now, peer, message.sequence(), message.message_type()) else {
            self.counters.unexpected += 1;
            return self.on_late_response(now, peer, message, sink);
        };
        if message.message_type() == MessageType::VERSION_NOT_SUPPORTED_RESPONSE {
            // TS 29.244 7.6.2: this UPF supports no common version
            return self.on_timeout(now, request, sink);
        }
        match request.purpose {
            Purpose::Session => self.on_session_response(now, request, message, octets, sink),
            Purpose::Setup => match AssociationSetupResponse::parse(message) {
                Ok(response) if response.cause.is_accepted() => {
                    let features = response.up_function_features.unwrap_or_default();
                    let retained = response.flags.is_some_and(|flags| flags.contains(AsRspFlags::PSREI));
                    let takes_over = std::mem::take(&mut self.peers[usize::from(peer)].takes_over);
                    if takes_over && !retained {
                        self.forget_sessions(peer, sink);
                    }
                    self.on_association_setup(now, peer, response.recovery_time_stamp, features, sink);
                }
                Ok(response) => self.on_setup_failure(now, peer, Some(response.cause), sink),
                Err(error) => self.on_setup_failure(now, peer, Some(error.cause), sink),
            },
            Purpose::Heartbeat => match HeartbeatResponse::parse(message) {
                Ok(response) => self.on_heartbeat_response(now, peer, response.recovery_time_stamp, sink),
                Err(_) => self.on_timeout(now, request, sink),
            },
            Purpose::Release => self.on_release(now, peer, sink),
            Purpose::CleanUp => {}
        }
    }

    /// Deletes a session whose establishment succeeded after its timeout. The control plane does
    /// not know the session, which would occupy its address and tunnel forever.
    fn on_late_response(&mut self, now: Instant, peer: PeerIndex, message: &Message<'_>, sink: &mut dyn Sink) {
        let sequence = message.sequence();
        if message.message_type() != MessageType::SESSION_ESTABLISHMENT_RESPONSE
            // The active endpoint has repeated the request.
            || !self.active
            || !self.pending.take_timed_out(now, peer, sequence)
            || self.pending.is_full()
        {
            return;
        }
        let Ok(SessionEstablishmentResponse { up_f_seid: Some(session), .. }) =
            SessionEstablishmentResponse::parse(message)
        else {
            return;
        };
        let mut octets = Vec::new();
        if SessionDeletionRequest::default().emit(&mut octets, session.seid, 0).is_ok() {
            let (kind, purpose) = (MessageType::SESSION_DELETION_REQUEST, Purpose::CleanUp);
            let sequence = self.next_sequence(peer);
            let request = Request { peer, sequence, kind, purpose, seid: Seid::default(), key: None };
            self.request(request, self.config.n1, &mut octets, sink);
        }
    }

    fn on_session_response(
        &mut self,
        now: Instant,
        request: Request,
        message: &Message<'_>,
        octets: &[u8],
        sink: &mut dyn Sink,
    ) {
        let upf = self.peers[usize::from(request.peer)].address;
        sink.event(Event::Deliver { upf, seid: request.seid, request: false, message: octets });
        let forgotten = message.get() == Ok(Some(Cause::NO_ESTABLISHED_ASSOCIATION));
        if forgotten && self.peers[usize::from(request.peer)].state.is_up() {
            self.on_restart(now, request.peer, sink);
        }
    }

    /// Handles a request without response after all repeats.
    pub(super) fn on_timeout(&mut self, now: Instant, request: Request, sink: &mut dyn Sink) {
        self.counters.timeouts += 1;
        let peer = &mut self.peers[usize::from(request.peer)];
        match request.purpose {
            Purpose::Session => {
                self.pending.record_timeout(now, &request);
                sink.event(Event::Timeout { upf: peer.address, seid: request.seid, key: request.key });
            }
            Purpose::Setup => self.on_setup_failure(now, request.peer, None, sink),
            Purpose::Heartbeat => self.on_heartbeat_timeout(now, request.peer, sink),
            Purpose::Release => self.on_release(now, request.peer, sink),
            Purpose::CleanUp => {}
        }
    }

    fn on_setup_failure(&mut self, now: Instant, peer: PeerIndex, cause: Option<Cause>, sink: &mut dyn Sink) {
        let entry = &mut self.peers[usize::from(peer)];
        if entry.state == State::SettingUp {
            let retry_in = entry.back_off(self.config.retry_longest);
            entry.state = State::Idle { at: now + retry_in };
            let upf = entry.address;
            sink.event(Event::SetupFailed { upf, cause, retry_in });
            if std::mem::take(&mut entry.reported_up) {
                sink.event(Event::UpfDown { upf, sessions_kept: true });
            }
            self.abandon_sessions(peer, sink);
        }
    }

    /// Sends the queued requests after a takeover of the association.
    fn send_waiting(&mut self, now: Instant, peer: PeerIndex, sink: &mut dyn Sink) {
        let upf = self.peers[usize::from(peer)].address;
        for QueuedRequest { key, seid, message, .. } in
            self.waiting.extract_if(.., |waiting| waiting.peer == peer).collect::<Vec<_>>()
        {
            if self.submit(now, upf, key, seid, &message, sink).is_err() {
                self.counters.timeouts += 1;
                sink.event(Event::Timeout { upf, seid, key });
            }
        }
    }

    /// Handles a successful association setup with a UPF that has this Recovery Time Stamp.
    pub(super) fn on_association_setup(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        recovery: RecoveryTimeStamp,
        features: UpFunctionFeatures,
        sink: &mut dyn Sink,
    ) {
        let index = usize::from(peer);
        if self.peers[index].recovery.is_some_and(|before| before != recovery) {
            self.forget_sessions(peer, sink);
            // the association that is reported below is a new one
            self.peers[index].state = State::SettingUp;
        }
        let entry = &mut self.peers[index];
        entry.recovery = Some(recovery);
        entry.features = features;
        entry.reset_backoff(self.config.retry_first);
        if !entry.state.is_up() {
            let heartbeat_at = Some(now + self.config.heartbeat_interval);
            entry.state = State::Up { since: now, heartbeat_at, release_at: None };
            entry.reported_up = true;
            sink.event(Event::UpfUp { upf: entry.address, features });
        }
        self.send_waiting(now, peer, sink);
    }

    /// Handles a Heartbeat Response.
    fn on_heartbeat_response(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        recovery: RecoveryTimeStamp,
        sink: &mut dyn Sink,
    ) {
        let entry = &mut self.peers[usize::from(peer)];
        let next = Some(now + self.config.heartbeat_interval);
        if !matches!(entry.state, State::Up { .. } | State::Lost { .. }) {
            return;
        }
        if entry.recovery.is_some_and(|before| before != recovery) {
            entry.recovery = Some(recovery);
            return self.on_restart(now, peer, sink);
        }
        match &mut entry.state {
            State::Up { heartbeat_at, .. } => *heartbeat_at = next,
            state => {
                *state = State::Up { since: now, heartbeat_at: next, release_at: None };
                entry.reported_up = true;
                entry.reset_backoff(self.config.retry_first);
                sink.event(Event::UpfUp { upf: entry.address, features: entry.features });
            }
        }
    }

    /// Handles an unanswered heartbeat.
    fn on_heartbeat_timeout(&mut self, now: Instant, peer: PeerIndex, sink: &mut dyn Sink) {
        let entry = &mut self.peers[usize::from(peer)];
        match entry.state {
            State::Up { .. } => {
                let heartbeat_at = Some(now + entry.back_off(self.config.retry_longest));
                (entry.state, entry.reported_up) = (State::Lost { heartbeat_at }, false);
                sink.event(Event::UpfDown { upf: entry.address, sessions_kept: true });
                self.abandon_sessions(peer, sink);
            }
            State::Lost { .. } => {
                let heartbeat_at = Some(now + entry.back_off(self.config.retry_longest));
                entry.state = State::Lost { heartbeat_at };
            }
            State::Idle { .. } | State::SettingUp | State::Releasing => {}
        }
    }

    /// Handles the loss of the UPF's sessions and association. A new association is set up at once.
    pub(super) fn on_restart(&mut self, now: Instant, peer: PeerIndex, sink: &mut dyn Sink) {
        self.forget_sessions(peer, sink);
        self.pending.abandon(now, peer, |request| request.purpose != Purpose::Session, |_| {});
        self.peers[usize::from(peer)].state = State::Idle { at: now };
        self.tend(now, peer, sink);
    }

    /// Handles the release of the association by either side.
    pub(super) fn on_release(&mut self, now: Instant, peer: PeerIndex, sink: &mut dyn Sink) {
        self.pending.abandon(now, peer, |request| request.purpose != Purpose::Session, |_| {});
        let entry = &mut self.peers[usize::from(peer)];
        (entry.state, entry.reported_up) = (State::Idle { at: now + self.config.retry_longest }, false);
        sink.event(Event::UpfDown { upf: entry.address, sessions_kept: false });
        self.abandon_sessions(peer, sink);
    }

    pub(super) fn forget_sessions(&mut self, peer: PeerIndex, sink: &mut dyn Sink) {
        sink.event(Event::UpfRestarted { upf: self.peers[usize::from(peer)].address });
        self.abandon_sessions(peer, sink);
    }

    fn abandon_sessions(&mut self, peer: PeerIndex, sink: &mut dyn Sink) {
        let upf = self.peers[usize::from(peer)].address;
        let now = self.now;
        let timeouts = &mut self.counters.timeouts;
        for QueuedRequest { seid, key, .. } in self.waiting.extract_if(.., |waiting| waiting.peer == peer) {
            *timeouts += 1;
            sink.event(Event::Timeout { upf, seid, key });
        }
        self.pending.abandon(
            now,
            peer,
            |request| request.purpose == Purpose::Session,
            |request| {
                *timeouts += 1;
                sink.event(Event::Timeout { upf, seid: request.seid, key: request.key });
            },
        );
    }
}
