//! Unanswered PFCP requests of a host.
//!
//! When another balancer takes over N4, the requests are sent to it again under the same keys. By
//! these the UPF recognises requests that it has executed (`vireo_n4`).

use crate::placement::message::RanOutput;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::pfcp::{Message, MessageType};

/// How long a request may be unanswered: longer than its retransmissions (T1 N1 times, TS 29.244
/// 6.4), and much shorter than the UPF remembers it.
const RETENTION: Duration = Duration::from_secs(5);
/// How long a request may wait if no balancer has received it, because there is none. No UPF has
/// it, so it remains valid. Without a balancer there are no RAN nodes, so no procedure waits for
/// it.
const UNDELIVERED_RETENTION: Duration = Duration::from_secs(300);
/// Maximum number of stored requests; beyond it the oldest are dropped.
const MAX_REQUESTS: usize = 1 << 17;
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
    /// True if the balancer that holds N4 has received the request.
    delivered: bool,
    /// True if any balancer has received it.
    delivered_once: bool,
}

impl Request {
    /// Returns true if the request has expired.
    fn is_over(&self, now: Instant) -> bool {
        now.since(self.at) > if self.delivered_once { RETENTION } else { UNDELIVERED_RETENTION }
    }
}

/// A request of the host.
#[derive(Clone, Copy, Debug)]
pub struct PfcpRequest<'a> {
    /// N4 address of the UPF.
    pub upf: SocketAddr,
    /// Key by which a repeat is recognised.
    pub key: u64,
    /// `None` if the context no longer has the session.
    pub seid: Option<Seid>,
    pub message: &'a [u8],
}

/// Unanswered requests in order of sending.
#[derive(Debug, Default)]
pub struct PendingPfcp {
    last: u64,
    requests: BTreeMap<u64, Request>,
    /// By session and type: a session has one request in flight at a time
    /// ([`N4State`](crate::smf::N4State)).
    by_session: FxHashMap<(Seid, MessageType), u64>,
}

impl PendingPfcp {
    /// Adds a request of the host; `delivered`: the balancer that holds N4 has received it.
    /// Responses are not stored: UPFs repeat their requests. Returns the key of the request that
    /// this one replaces.
    pub fn add(&mut self, now: Instant, request: PfcpRequest<'_>, delivered: bool) -> Option<u64> {
        let PfcpRequest { upf, key, seid, message } = request;
        let kind = Message::new(message).ok()?.message_type();
        if !kind.is_request() {
            return None;
        }
        self.last += 1;
        // An earlier request of the same type is this one, sent again after a host failure, or it
        // is finished.
        let before = seid.and_then(|seid| self.by_session.insert((seid, kind), self.last));
        let replaced = before.and_then(|number| self.requests.remove(&number));
        let request =
            Request { at: now, upf, key, seid, kind, message: message.to_vec(), delivered, delivered_once: delivered };
        self.requests.insert(self.last, request);
        if self.requests.len() > MAX_REQUESTS {
            self.remove_first();
        }
        replaced.map(|request| request.key)
    }

    /// Removes the request of a session that a response answers. Returns its key.
    pub fn on_response(&mut self, seid: Seid, message: &[u8]) -> Option<u64> {
        let answer = Message::new(message).ok()?.message_type();
        let kind = KINDS.into_iter().find(|kind| kind.response() == Some(answer))?;
        self.remove(seid, kind)
    }

    /// Removes the requests of a session after a timeout.
    pub fn on_timeout(&mut self, seid: Seid) {
        KINDS.into_iter().for_each(|kind| _ = self.remove(seid, kind));
    }

    /// Removes the requests to a UPF that has lost its sessions.
    pub fn drop_upf(&mut self, upf: SocketAddr) {
        self.requests.retain(|_, request| request.upf != upf);
        let PendingPfcp { requests, by_session, .. } = self;
        by_session.retain(|_, number| requests.contains_key(number));
    }

    /// Marks all requests as not received by the balancer that holds N4.
    pub fn mark_undelivered(&mut self) {
        self.requests.values_mut().for_each(|request| request.delivered = false);
    }

    /// Returns all requests, for the balancer that holds N4.
    pub fn take_for_resend(&mut self, now: Instant) -> impl Iterator<Item = RanOutput> {
        self.requests.values_mut().map(move |request| {
            request.delivered = true;
            if !std::mem::replace(&mut request.delivered_once, true) {
                request.at = now;
            }
            let Request { upf, key, seid, message, .. } = request;
            RanOutput::Pfcp { upf: *upf, key: *key, seid: *seid, served_by: None, message: message.clone() }
        })
    }

    /// Drops expired requests. Returns the sessions of those that no balancer has received.
    pub fn expire(&mut self, now: Instant) -> Vec<Seid> {
        let mut expired = Vec::new();
        while self.requests.first_key_value().is_some_and(|(_, request)| request.is_over(now)) {
            let removed = self.remove_first();
            expired.extend(removed.filter(|request| !request.delivered).and_then(|request| request.seid));
        }
        expired
    }

    fn remove(&mut self, seid: Seid, kind: MessageType) -> Option<u64> {
        let number = self.by_session.remove(&(seid, kind))?;
        self.requests.remove(&number).map(|request| request.key)
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

    fn resend(pending: &mut PendingPfcp) -> Vec<u64> {
        let key = |message| match message {
            RanOutput::Pfcp { key, .. } => key,
            other => panic!("{other:?}"),
        };
        pending.take_for_resend(SECOND).map(key).collect()
    }

    #[test]
    fn unanswered_requests_are_repeated_in_order() {
        let mut pending = PendingPfcp::default();
        for key in [7, 3, 9, 5] {
            pending.add(
                SECOND,
                PfcpRequest { upf: upf(1), key, seid: Some(seid(key as u32)), message: &deletion() },
                true,
            );
        }
        pending.add(SECOND, PfcpRequest { upf: upf(1), key: 11, seid: Some(seid(11)), message: &deleted() }, true);
        pending.add(SECOND, PfcpRequest { upf: upf(2), key: 12, seid: None, message: &deletion() }, true);
        pending.on_response(seid(3), &deletion());
        pending.on_response(seid(3), &deleted());
        pending.on_timeout(seid(9));
        pending.add(SECOND, PfcpRequest { upf: upf(1), key: 7, seid: Some(seid(7)), message: &deletion() }, true);
        assert_eq!(resend(&mut pending), [5, 12, 7], "what is said again is there once");
        pending.drop_upf(upf(2));
        assert_eq!(resend(&mut pending), [5, 7]);
        assert_eq!(pending.by_session.len(), 2);
    }

    #[test]
    fn response_matches_its_kind_of_request() {
        let (mut pending, mut modification) = (PendingPfcp::default(), Vec::new());
        SessionModificationRequest::default().emit(&mut modification, 9, 0).expect("short");
        pending.add(SECOND, PfcpRequest { upf: upf(1), key: 1, seid: Some(seid(1)), message: &modification }, true);
        pending.add(SECOND, PfcpRequest { upf: upf(1), key: 2, seid: Some(seid(1)), message: &deletion() }, true);
        pending.on_response(seid(1), &deleted());
        assert_eq!(resend(&mut pending), [1]);
    }

    #[test]
    fn unanswered_requests_expire() {
        let mut pending = PendingPfcp::default();
        pending.add(Instant(0), PfcpRequest { upf: upf(1), key: 1, seid: Some(seid(1)), message: &deletion() }, true);
        pending.add(Instant(1), PfcpRequest { upf: upf(1), key: 2, seid: Some(seid(2)), message: &deletion() }, true);
        pending.requests.get_mut(&2).expect("the second").delivered = false;
        pending.add(SECOND, PfcpRequest { upf: upf(1), key: 3, seid: Some(seid(3)), message: &deletion() }, true);
        assert_eq!(
            pending.expire(Instant(5_000_001)),
            [],
            "somebody was told of the first, who says what becomes of it"
        );
        assert_eq!(pending.expire(Instant(5_000_002)), [seid(2)]);
        pending.mark_undelivered();
        assert_eq!(pending.expire(Instant(6_000_001)), [seid(3)]);
        assert_eq!((resend(&mut pending).len(), pending.by_session.len()), (0, 0));
    }

    /// The only balancer is down for a minute.
    #[test]
    fn request_without_balancer_waits_for_one() {
        let mut pending = PendingPfcp::default();
        pending.add(Instant(0), PfcpRequest { upf: upf(1), key: 1, seid: Some(seid(1)), message: &deletion() }, true);
        pending.mark_undelivered();
        pending.add(Instant(1), PfcpRequest { upf: upf(1), key: 2, seid: Some(seid(2)), message: &deletion() }, false);
        let minute = Instant(60_000_000);
        assert_eq!(pending.expire(minute), [seid(1)], "a UPF may have forgotten that it has had it");
        assert_eq!(pending.take_for_resend(minute).count(), 1);
        assert_eq!(pending.expire(Instant(minute.0 + RETENTION.as_micros())), []);
        assert_eq!(pending.requests.len(), 1, "it may have to be asked once more");
        pending.expire(Instant(minute.0 + RETENTION.as_micros() + 1));
        assert!(pending.requests.is_empty());
        pending.add(Instant(0), PfcpRequest { upf: upf(1), key: 3, seid: Some(seid(3)), message: &deletion() }, false);
        assert_eq!(pending.expire(Instant(UNDELIVERED_RETENTION.as_micros() + 1)), [seid(3)]);
    }
}
