//! Unanswered PFCP requests of a host.
//!
//! When another balancer takes over N4, the requests are sent to it again under the same keys. By
//! these the UPF recognises requests that it has executed (see [`vireo_n4`]).

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use vireo_core::placement::message::ToBalancer;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::pfcp::{Message, MessageType};

/// How long a request may be unanswered: longer than its retransmissions (T1 N1 times, TS 29.244
/// 6.4), and much shorter than the UPF remembers it.
const KEPT: Duration = Duration::from_secs(5);
/// How long a request may wait if no balancer has received it, because there is none. No UPF has
/// it, so it remains valid. Without a balancer there are no RAN nodes, so no procedure waits for
/// it.
const UNTOLD: Duration = Duration::from_secs(300);
/// Maximum number of stored requests; beyond it the oldest are dropped.
const MOST: usize = 1 << 17;
/// Message types of the requests of a session.
const KINDS: [MessageType; 3] = [
    MessageType::SESSION_ESTABLISHMENT_REQUEST,
    MessageType::SESSION_MODIFICATION_REQUEST,
    MessageType::SESSION_DELETION_REQUEST,
];

#[derive(Debug)]
struct Request {
    at: Instant,
    upf: SocketAddr,
    key: u64,
    seid: Option<Seid>,
    kind: MessageType,
    message: Vec<u8>,
    /// True if the balancer that holds N4 has received the request; `was_told`: any balancer has.
    told: bool,
    was_told: bool,
}

impl Request {
    /// Returns true if the request has expired.
    fn is_over(&self, now: Instant) -> bool {
        now.since(self.at) > if self.was_told { KEPT } else { UNTOLD }
    }
}

/// Unanswered requests in order of sending.
#[derive(Debug, Default)]
pub(super) struct PendingPfcp {
    last: u64,
    requests: BTreeMap<u64, Request>,
    /// By session and type: a session has one request in flight at a time
    /// (`vireo_core::smf::N4State`).
    by_session: FxHashMap<(Seid, MessageType), u64>,
}

impl PendingPfcp {
    /// Adds a request of the host; `told`: the balancer that holds N4 has received it. Responses
    /// are not stored: UPFs repeat their requests.
    pub(super) fn add(
        &mut self,
        now: Instant,
        (upf, key, seid): (SocketAddr, u64, Option<Seid>),
        message: &[u8],
        told: bool,
    ) {
        let Ok(kind) = Message::new(message).map(|message| message.message_type()) else { return };
        if !kind.is_request() {
            return;
        }
        self.last += 1;
        // An earlier request of the same type is this one, sent again after a host failure, or it
        // is finished.
        let before = seid.and_then(|seid| self.by_session.insert((seid, kind), self.last));
        before.into_iter().for_each(|number| drop(self.requests.remove(&number)));
        let request = Request { at: now, upf, key, seid, kind, message: message.to_vec(), told, was_told: told };
        self.requests.insert(self.last, request);
        if self.requests.len() > MOST {
            self.remove_first();
        }
    }

    /// Removes the request of a session that a response answers.
    pub(super) fn answered(&mut self, seid: Seid, message: &[u8]) {
        let answers =
            |kind: MessageType| Message::new(message).is_ok_and(|m| kind.response() == Some(m.message_type()));
        for kind in KINDS.into_iter().filter(|kind| answers(*kind)) {
            self.remove(seid, kind);
        }
    }

    /// Removes the requests of a session after a timeout.
    pub(super) fn timed_out(&mut self, seid: Seid) {
        KINDS.into_iter().for_each(|kind| self.remove(seid, kind));
    }

    /// Removes the requests to a UPF that has lost its sessions.
    pub(super) fn void(&mut self, upf: SocketAddr) {
        self.requests.retain(|_, request| request.upf != upf);
        let PendingPfcp { requests, by_session, .. } = self;
        by_session.retain(|_, number| requests.contains_key(number));
    }

    /// Marks all requests as not received by the balancer that holds N4.
    pub(super) fn mark_undelivered(&mut self) {
        self.requests.values_mut().for_each(|request| request.told = false);
    }

    /// Returns all requests, for the balancer that holds N4.
    pub(super) fn take_for_resend(&mut self, now: Instant) -> impl Iterator<Item = ToBalancer<'_>> {
        self.requests.values_mut().map(move |request| {
            request.told = true;
            if !std::mem::replace(&mut request.was_told, true) {
                request.at = now;
            }
            let Request { upf, key, seid, message, .. } = request;
            ToBalancer::Pfcp { upf: *upf, key: *key, seid: *seid, message }
        })
    }

    /// Drops expired requests. Returns the sessions of those that no balancer has received.
    pub(super) fn forget(&mut self, now: Instant) -> Vec<Seid> {
        let mut given_up = Vec::new();
        while self.requests.first_key_value().is_some_and(|(_, request)| request.is_over(now)) {
            let gone = self.remove_first();
            given_up.extend(gone.filter(|request| !request.told).and_then(|request| request.seid));
        }
        given_up
    }

    fn remove(&mut self, seid: Seid, kind: MessageType) {
        let number = self.by_session.remove(&(seid, kind));
        number.into_iter().for_each(|number| drop(self.requests.remove(&number)));
    }

    fn remove_first(&mut self) -> Option<Request> {
        let (number, request) = self.requests.pop_first()?;
        let session = request.seid.map(|seid| (seid, request.kind));
        if let Some(session) = session.filter(|session| self.by_session.get(session) == Some(&number)) {
            self.by_session.remove(&session);
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use vireo_types::{Bucket, Ltmsi};
    use vireo_wire::pfcp::{Cause, SessionDeletionRequest, SessionDeletionResponse, SessionModificationRequest};

    const SECOND: Instant = Instant(1_000_000);

    fn upf(n: u8) -> SocketAddr {
        (Ipv4Addr::new(192, 0, 2, n), 8805).into()
    }

    fn seid(n: u32) -> Seid {
        Seid::new(Ltmsi::new(Bucket::new(7), 8), 1, n)
    }

    fn deletion() -> Vec<u8> {
        let mut octets = Vec::new();
        SessionDeletionRequest {}.emit(&mut octets, 9, 0).expect("short");
        octets
    }

    fn deleted() -> Vec<u8> {
        let mut octets = Vec::new();
        SessionDeletionResponse::new(Cause::REQUEST_ACCEPTED).emit(&mut octets, 9, 0).expect("short");
        octets
    }

    fn again(asked: &mut PendingPfcp) -> Vec<u64> {
        let key = |message| match message {
            ToBalancer::Pfcp { key, .. } => key,
            other => panic!("{other:?}"),
        };
        asked.take_for_resend(SECOND).map(key).collect()
    }

    #[test]
    fn unanswered_requests_are_repeated_in_order() {
        let mut asked = PendingPfcp::default();
        for key in [7, 3, 9, 5] {
            asked.add(SECOND, (upf(1), key, Some(seid(key as u32))), &deletion(), true);
        }
        asked.add(SECOND, (upf(1), 11, Some(seid(11))), &deleted(), true);
        asked.add(SECOND, (upf(2), 12, None), &deletion(), true);
        asked.answered(seid(3), &deletion());
        asked.answered(seid(3), &deleted());
        asked.timed_out(seid(9));
        asked.add(SECOND, (upf(1), 7, Some(seid(7))), &deletion(), true);
        assert_eq!(again(&mut asked), [5, 12, 7], "what is said again is there once");
        asked.void(upf(2));
        assert_eq!(again(&mut asked), [5, 7]);
        assert_eq!(asked.by_session.len(), 2);
    }

    #[test]
    fn response_matches_its_kind_of_request() {
        let (mut asked, mut modification) = (PendingPfcp::default(), Vec::new());
        SessionModificationRequest::default().emit(&mut modification, 9, 0).expect("short");
        asked.add(SECOND, (upf(1), 1, Some(seid(1))), &modification, true);
        asked.add(SECOND, (upf(1), 2, Some(seid(1))), &deletion(), true);
        asked.answered(seid(1), &deleted());
        assert_eq!(again(&mut asked), [1]);
    }

    #[test]
    fn requests_are_given_up_in_the_end() {
        let mut asked = PendingPfcp::default();
        asked.add(Instant(0), (upf(1), 1, Some(seid(1))), &deletion(), true);
        asked.add(Instant(1), (upf(1), 2, Some(seid(2))), &deletion(), true);
        asked.requests.get_mut(&2).expect("the second").told = false;
        asked.add(SECOND, (upf(1), 3, Some(seid(3))), &deletion(), true);
        assert_eq!(asked.forget(Instant(5_000_001)), [], "somebody was told of the first, who says what becomes of it");
        assert_eq!(asked.forget(Instant(5_000_002)), [seid(2)]);
        asked.mark_undelivered();
        assert_eq!(asked.forget(Instant(6_000_001)), [seid(3)]);
        assert_eq!((again(&mut asked).len(), asked.by_session.len()), (0, 0));
    }

    /// The only balancer is down for a minute.
    #[test]
    fn request_without_balancer_waits_for_one() {
        let mut asked = PendingPfcp::default();
        asked.add(Instant(0), (upf(1), 1, Some(seid(1))), &deletion(), true);
        asked.mark_undelivered();
        asked.add(Instant(1), (upf(1), 2, Some(seid(2))), &deletion(), false);
        let minute = Instant(60_000_000);
        assert_eq!(asked.forget(minute), [seid(1)], "a UPF may have forgotten that it has had it");
        assert_eq!(asked.take_for_resend(minute).count(), 1);
        assert_eq!(asked.forget(Instant(minute.0 + KEPT.as_micros())), []);
        assert_eq!(asked.requests.len(), 1, "it may have to be asked once more");
        asked.forget(Instant(minute.0 + KEPT.as_micros() + 1));
        assert!(asked.requests.is_empty());
        asked.add(Instant(0), (upf(1), 3, Some(seid(3))), &deletion(), false);
        assert_eq!(asked.forget(Instant(UNTOLD.as_micros() + 1)), [seid(3)]);
    }
}
