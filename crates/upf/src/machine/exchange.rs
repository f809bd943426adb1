//! Reliable delivery of PFCP messages (TS 29.244 6.4).
//!
//! Requests are retransmitted until a response arrives. A repeated request receives the stored
//! response.

use crate::machine::element_serde::hexadecimal;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, SocketAddr};
use vireo_types::{Duration, Instant};

/// Datagrams to send, each with its destination.
pub(crate) type Outgoing = Vec<(SocketAddr, Vec<u8>)>;

/// Maximum number of unanswered requests of the UPF.
const REQUESTS: usize = 65_536;
/// Maximum number of stored responses: half of what a hash table of 2^17 buckets holds. With more,
/// the table doubles once the places of removed responses are used up, instead of clearing them.
const RESPONSES: usize = 57_344;
/// Maximum size of all stored responses, in bytes.
const RESPONSES_OCTETS: usize = 64 << 20;
/// Maximum retransmissions per call of [`Requests::tick`], and maximum expired responses that one
/// insertion removes. They bound the time for which other callers wait for the state machine.
const REPEATS: usize = 256;
const FORGOTTEN: usize = 4;
/// Lifetime of a stored response: longer than a peer retransmits (T1 * N1 of 3 s and 3).
const RESPONSE_RETENTION: Duration = Duration::from_secs(12);

/// Unanswered requests of the UPF.
#[derive(Debug)]
pub(crate) struct Requests {
    response_time: Duration,
    attempts: u8,
    next: u32,
    pending: HashMap<u32, Pending>,
    /// In ascending order, because the response time is the same for all requests.
    deadlines: VecDeque<(Instant, u32)>,
}

#[derive(Debug)]
struct Pending {
    to: SocketAddr,
    message: Vec<u8>,
    session: u64,
    attempts: u8,
}

impl Requests {
    pub(crate) fn new(response_time: Duration, attempts: u8) -> Self {
        Requests {
            response_time,
            attempts: attempts.max(1),
            next: 1,
            pending: HashMap::new(),
            deadlines: VecDeque::new(),
        }
    }

    /// Sets the sequence number of the next request. Responses to requests of a previous
    /// incarnation may still arrive.
    pub(crate) fn begin_at(&mut self, sequence: u32) {
        self.next = (sequence & 0xff_ffff).max(1);
    }

    /// Returns true if two more requests may be sent: a session may have two kinds of reports at
    /// once.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() + 2 <= REQUESTS
    }

    /// Returns the sequence number of the next request.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        loop {
            let sequence = self.next;
            self.next = if sequence == 0xff_ffff { 1 } else { sequence + 1 };
            if !self.pending.contains_key(&sequence) {
                return sequence;
            }
        }
    }

    /// Sends the request that `build` encodes for a sequence number. Returns false if too many
    /// requests are unanswered.
    pub(crate) fn send(
        &mut self,
        session: u64,
        to: SocketAddr,
        now: Instant,
        out: &mut Outgoing,
        build: impl FnOnce(u32) -> Option<Vec<u8>>,
    ) -> bool {
        if self.pending.len() >= REQUESTS {
            return false;
        }
        let sequence = self.next_sequence();
        let Some(message) = build(sequence) else {
            return false;
        };
        out.push((to, message.clone()));
        self.pending.insert(sequence, Pending { to, message, session, attempts: self.attempts - 1 });
        self.deadlines.push_back((now + self.response_time, sequence));
        true
    }

    /// Returns the session of the request that this response answers. Repeated responses return
    /// `None`.
    pub(crate) fn take_answered_session(&mut self, from: SocketAddr, sequence: u32) -> Option<u64> {
        if self.pending.get(&sequence)?.to.ip() != from.ip() {
            return None;
        }
        self.pending.remove(&sequence).map(|pending| pending.session)
    }

    /// Redirects the unanswered requests to matching addresses to another address of the same peer.
    pub(crate) fn readdress(&mut self, which: impl Fn(&SocketAddr) -> bool, address: IpAddr) {
        self.pending.values_mut().filter(|pending| which(&pending.to)).for_each(|pending| pending.to.set_ip(address));
    }

    /// Returns when [`Requests::tick`] must be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// Retransmits overdue requests, up to a limit per call. Returns the sessions whose requests
    /// have no attempts left. While overdue requests remain, [`Requests::deadline`] is in the past.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Outgoing) -> Vec<u64> {
        let mut given_up = vec![];
        for _ in 0..REPEATS {
            let Some((_, sequence)) = self.deadlines.front().copied().filter(|(at, _)| *at <= now) else { break };
            self.deadlines.pop_front();
            let Some(pending) = self.pending.get_mut(&sequence) else { continue };
            if pending.attempts == 0 {
                given_up.push(pending.session);
                self.pending.remove(&sequence);
                continue;
            }
            pending.attempts -= 1;
            out.push((pending.to, pending.message.clone()));
            self.deadlines.push_back((now + self.response_time, sequence));
        }
        given_up
    }
}

/// Responses of the UPF. Only the identical request finds its response, because a restarted peer
/// reuses sequence numbers.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    /// The same in all incarnations of this program, so that stored hashes match. A mismatch
    /// executes the request again.
    hasher: BuildHasherDefault<DefaultHasher>,
    answers: HashMap<(SocketAddr, u32), Answer>,
    order: VecDeque<(Instant, (SocketAddr, u32))>,
    /// Size of all responses, in bytes.
    octets: usize,
}

/// An answered request and its response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answered {
    from: SocketAddr,
    sequence: u32,
    /// Hash of the request.
    request: u64,
    #[serde(with = "hexadecimal")]
    octets: Vec<u8>,
}

#[derive(Debug)]
struct Answer {
    since: Instant,
    request: u64,
    octets: Vec<u8>,
}

impl Responses {
    /// Returns the response that the identical request has received within [`RESPONSE_RETENTION`].
    pub(crate) fn find(&self, from: SocketAddr, sequence: u32, request: &[u8], now: Instant) -> Option<&[u8]> {
        let answer =
            self.answers.get(&(from, sequence)).filter(|answer| now.since(answer.since) < RESPONSE_RETENTION)?;
        (answer.request == self.hasher.hash_one(request)).then_some(&answer.octets[..])
    }

    /// Stores a response. Responses that exceed the bounds in number, size or age are removed,
    /// oldest first.
    pub(crate) fn store(&mut self, from: SocketAddr, sequence: u32, request: &[u8], octets: Vec<u8>, now: Instant) {
        let request = self.hasher.hash_one(request);
        self.restore(Answered { from, sequence, request, octets }, now);
    }

    /// Returns the stored response to this peer's request with this sequence number.
    pub(crate) fn stored_response(&self, from: SocketAddr, sequence: u32) -> Option<Answered> {
        let Answer { request, octets, .. } = self.answers.get(&(from, sequence))?;
        Some(Answered { from, sequence, request: *request, octets: octets.clone() })
    }

    /// Replaces the stored response to a request.
    pub(crate) fn replace(&mut self, from: SocketAddr, sequence: u32, octets: &[u8]) {
        if let Some(answer) = self.answers.get_mut(&(from, sequence)) {
            self.octets = self.octets - answer.octets.len() + octets.len();
            answer.octets = octets.to_vec();
        }
    }

    /// Stores a response of a previous incarnation.
    pub(crate) fn restore(&mut self, answered: Answered, now: Instant) {
        for n in 0.. {
            let Some((since, key)) = self.order.front().copied() else { break };
            let too_many = self.octets + answered.octets.len() > RESPONSES_OCTETS;
            let old = self.order.len() >= RESPONSES || now.since(since) >= RESPONSE_RETENTION;
            if !too_many && (n >= FORGOTTEN || !old) {
                break;
            }
            self.order.pop_front();
            // a replaced response has another, later element of `order`
            if self.answers.get(&key).is_some_and(|answer| answer.since == since) {
                self.remove(key);
            }
        }
        let Answered { from, sequence, request, octets } = answered;
        let key = (from, sequence);
        self.remove(key);
        self.octets += octets.len();
        self.answers.insert(key, Answer { since: now, request, octets });
        self.order.push_back((now, key));
    }

    fn remove(&mut self, key: (SocketAddr, u32)) {
        if let Some(answer) = self.answers.remove(&key) {
            self.octets -= answer.octets.len();
        }
    }

    /// Removes the responses to matching peers. Their sessions are gone, and a restarted peer may
    /// send an identical request.
    pub(crate) fn forget(&mut self, which: impl Fn(&SocketAddr) -> bool) {
        let octets = &mut self.octets;
        self.answers.retain(|(from, _), answer| {
            let gone = which(from);
            *octets -= if gone { answer.octets.len() } else { 0 };
            !gone
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "192.0.2.1:8805";

    #[test]
    fn full_table_of_responses_does_not_grow() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let mut responses = Responses::default();
        for sequence in 0..16 * RESPONSES {
            responses.store(peer, sequence as u32, b"", vec![], Instant(0));
            assert!(responses.answers.capacity() <= 2 * RESPONSES, "after {sequence}");
        }
    }

    #[test]
    fn request_is_repeated_until_answered_or_expired() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let mut requests = Requests::new(Duration::from_secs(3), 3);
        let mut out = vec![];
        for session in [10, 20] {
            assert!(requests.send(session, peer, Instant(0), &mut out, |sequence| Some(vec![sequence as u8])));
        }
        assert_eq!(
            requests.take_answered_session("192.0.2.2:8805".parse().expect("an address"), 1),
            None,
            "of somebody else"
        );
        assert_eq!(requests.take_answered_session("192.0.2.1:40000".parse().expect("an address"), 1), Some(10));
        assert_eq!(requests.take_answered_session(peer, 1), None, "once");
        out.clear();
        for (at, sent, given_up) in [(2_999_999, 0, 0), (3_000_000, 1, 0), (6_000_000, 1, 0), (9_000_000, 0, 1)] {
            assert_eq!(requests.tick(Instant(at), &mut out).len(), given_up, "at {at}");
            assert_eq!(out.len(), sent, "at {at}");
            out.clear();
        }
        assert_eq!((requests.take_answered_session(peer, 2), requests.deadline()), (None, None));
    }

    #[test]
    fn burst_is_retransmitted_in_portions() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let mut requests = Requests::new(Duration::from_secs(3), 2);
        let mut out = vec![];
        for session in 0..600 {
            assert!(requests.send(session, peer, Instant(0), &mut out, |_| Some(vec![])));
        }
        let late = Instant(0) + Duration::from_secs(3);
        let mut turn = || {
            out.clear();
            requests.tick(late, &mut out);
            (out.len(), requests.deadline().is_some_and(|deadline| deadline <= late))
        };
        assert_eq!([turn(), turn(), turn()], [(256, true), (256, true), (88, false)]);
    }

    #[test]
    fn response_is_stored_for_repeats_and_expires() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let mut responses = Responses::default();
        responses.store(peer, 1, b"first", vec![1], Instant(0));
        let at = |seconds| Instant(0) + Duration::from_secs(seconds);
        assert_eq!(responses.find(peer, 1, b"first", at(1)), Some(&[1][..]));
        assert_eq!(responses.find(peer, 1, b"first", at(12)), None, "too old");
        assert_eq!(responses.find(peer, 1, b"other", at(1)), None);
        assert_eq!(responses.find(peer, 2, b"first", at(1)), None);
        responses.store(peer, 1, b"other", vec![2], Instant(0) + Duration::from_secs(6));
        responses.store(peer, 3, b"third", vec![3], Instant(0) + Duration::from_secs(13));
        assert_eq!(responses.find(peer, 1, b"other", at(13)), Some(&[2][..]), "the newer one is not too old yet");
        responses.store(peer, 4, b"fourth", vec![4], Instant(0) + Duration::from_secs(19));
        assert_eq!((responses.find(peer, 1, b"other", at(19)), responses.answers.len()), (None, 2));
        for n in 0..RESPONSES as u32 + 10 {
            responses.store(peer, n, b"x", vec![], Instant(0) + Duration::from_secs(20));
        }
        assert!(responses.answers.len() <= RESPONSES && responses.order.len() <= RESPONSES);
    }

    #[test]
    fn answers_have_a_bound_in_octets() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let mut responses = Responses::default();
        let of_all =
            |responses: &Responses| responses.answers.values().map(|answer| answer.octets.len()).sum::<usize>();
        for n in 0..3_000 {
            responses.store(peer, n % 2_500, b"x", vec![0; 60_000], Instant(u64::from(n)));
            assert_eq!(responses.octets, of_all(&responses));
        }
        assert!(responses.octets <= RESPONSES_OCTETS && responses.octets > RESPONSES_OCTETS / 2);
        assert!(responses.find(peer, 499, b"x", Instant(3_000)).is_some(), "the newest is kept");
        responses.replace(peer, 499, b"short");
        responses.forget(|from| *from == peer);
        assert_eq!((responses.octets, responses.answers.len()), (0, 0));
    }
}
