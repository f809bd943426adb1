//! Reliable delivery of PFCP messages (TS 29.244 6.4): requests are sent again until they are answered, and a request
//! that comes again gets the answer it got before.

use super::persistence::hexadecimal;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, SocketAddr};
use vireo_types::{Duration, Instant};

/// Datagrams to send.
pub(super) type Outgoing = Vec<(SocketAddr, Vec<u8>)>;

/// Requests of our own that may be unanswered at a time.
const REQUESTS: usize = 65_536;
/// Answers that are kept for repeated requests, and their octets in all.
const RESPONSES: usize = 65_536;
const RESPONSES_OCTETS: usize = 64 << 20;
/// Requests that are sent again, and old answers that are forgotten, in one go: whoever waits for the state machine must
/// not wait for thousands.
const REPEATS: usize = 256;
const FORGOTTEN: usize = 4;
/// How long: more than a peer goes on repeating (T1 * N1 of 3 s and 3).
const KEEP: Duration = Duration::from_secs(12);

/// The requests that we have sent.
#[derive(Debug)]
pub(super) struct Requests {
    response_time: Duration,
    attempts: u8,
    next: u32,
    pending: HashMap<u32, Pending>,
    /// Deadlines in order: each wait is equally long.
    deadlines: VecDeque<(Instant, u32)>,
}

#[derive(Debug)]
struct Pending {
    to: SocketAddr,
    message: Vec<u8>,
    session: u64,
    left: u8,
}

impl Requests {
    pub(super) fn new(response_time: Duration, attempts: u8) -> Self {
        Requests {
            response_time,
            attempts: attempts.max(1),
            next: 1,
            pending: HashMap::new(),
            deadlines: VecDeque::new(),
        }
    }

    /// The next request has this number: of another life's, answers may still be on their way.
    pub(super) fn begin_at(&mut self, sequence: u32) {
        self.next = (sequence & 0xff_ffff).max(1);
    }

    /// Whether more requests may be unanswered: two, so that a session can report both kinds of things.
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() + 2 <= REQUESTS
    }

    /// The sequence number of the next request.
    pub(super) fn next_sequence(&mut self) -> u32 {
        loop {
            let sequence = self.next;
            self.next = if sequence == 0xff_ffff { 1 } else { sequence + 1 };
            if !self.pending.contains_key(&sequence) {
                return sequence;
            }
        }
    }

    /// Sends the request that `build` writes for a sequence number; `false` if too many are unanswered.
    pub(super) fn send(
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
        self.pending.insert(sequence, Pending { to, message, session, left: self.attempts - 1 });
        self.deadlines.push_back((now + self.response_time, sequence));
        true
    }

    /// The session of the request that this response answers, the first time it is answered.
    pub(super) fn answered(&mut self, from: SocketAddr, sequence: u32) -> Option<u64> {
        if self.pending.get(&sequence)?.to.ip() != from.ip() {
            return None;
        }
        self.pending.remove(&sequence).map(|pending| pending.session)
    }

    /// What was sent to these goes to another address of the same peer from now on.
    pub(super) fn readdress(&mut self, which: impl Fn(&SocketAddr) -> bool, address: IpAddr) {
        self.pending.values_mut().filter(|pending| which(&pending.to)).for_each(|pending| pending.to.set_ip(address));
    }

    /// When [`Requests::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// Sends again what is overdue, or a part of it; tells the sessions of the requests that are given up. As long as
    /// there is more, [`Requests::deadline`] has passed.
    pub(super) fn tick(&mut self, now: Instant, out: &mut Outgoing) -> Vec<u64> {
        let mut given_up = vec![];
        for _ in 0..REPEATS {
            let Some((_, sequence)) = self.deadlines.front().copied().filter(|(at, _)| *at <= now) else { break };
            self.deadlines.pop_front();
            let Some(pending) = self.pending.get_mut(&sequence) else { continue };
            if pending.left == 0 {
                given_up.push(pending.session);
                self.pending.remove(&sequence);
                continue;
            }
            pending.left -= 1;
            out.push((pending.to, pending.message.clone()));
            self.deadlines.push_back((now + self.response_time, sequence));
        }
        given_up
    }
}

/// The answers that we have given. An answer is found only by the very same request: a peer that starts anew counts
/// from the same sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Responses {
    /// The same in all lives of this program: they find what they have answered. One that does not does the request again.
    hasher: BuildHasherDefault<DefaultHasher>,
    answers: HashMap<(SocketAddr, u32), Answer>,
    order: VecDeque<(Instant, (SocketAddr, u32))>,
    /// Of all answers.
    octets: usize,
}

/// A request that was answered, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answered {
    from: SocketAddr,
    sequence: u32,
    /// A hash of it.
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
    /// The answer that this request got before.
    pub(super) fn find(&self, from: SocketAddr, sequence: u32, request: &[u8], now: Instant) -> Option<&[u8]> {
        let answer = self.answers.get(&(from, sequence)).filter(|answer| now.since(answer.since) < KEEP)?;
        (answer.request == self.hasher.hash_one(request)).then_some(&answer.octets[..])
    }

    /// Keeps an answer; the oldest go when they are too many or too old.
    pub(super) fn keep(&mut self, from: SocketAddr, sequence: u32, request: &[u8], octets: Vec<u8>, now: Instant) {
        let request = self.hasher.hash_one(request);
        self.restore(Answered { from, sequence, request, octets }, now);
    }

    /// The answer that this peer's request got that had this number.
    pub(super) fn answered(&self, from: SocketAddr, sequence: u32) -> Option<Answered> {
        let Answer { request, octets, .. } = self.answers.get(&(from, sequence))?;
        Some(Answered { from, sequence, request: *request, octets: octets.clone() })
    }

    /// What this request is answered is another thing than was kept.
    pub(super) fn replace(&mut self, from: SocketAddr, sequence: u32, octets: &[u8]) {
        if let Some(answer) = self.answers.get_mut(&(from, sequence)) {
            self.octets = self.octets - answer.octets.len() + octets.len();
            answer.octets = octets.to_vec();
        }
    }

    /// Keeps an answer that was given in another life.
    pub(super) fn restore(&mut self, answered: Answered, now: Instant) {
        for n in 0.. {
            let Some((since, key)) = self.order.front().copied() else { break };
            let too_many = self.octets + answered.octets.len() > RESPONSES_OCTETS;
            let old = self.order.len() >= RESPONSES || now.since(since) >= KEEP;
            if !too_many && (n >= FORGOTTEN || !old) {
                break;
            }
            self.order.pop_front();
            // one that was replaced has an entry of its own further back
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

    /// Forgets what these peers were answered: it is of sessions that are gone, and a peer that starts anew may happen to
    /// say the same again.
    pub(super) fn forget(&mut self, which: impl Fn(&SocketAddr) -> bool) {
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
    fn a_request_is_sent_until_it_is_answered_or_given_up() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let mut requests = Requests::new(Duration::from_secs(3), 3);
        let mut out = vec![];
        for session in [10, 20] {
            assert!(requests.send(session, peer, Instant(0), &mut out, |sequence| Some(vec![sequence as u8])));
        }
        assert_eq!(requests.answered("192.0.2.2:8805".parse().expect("an address"), 1), None, "of somebody else");
        assert_eq!(requests.answered("192.0.2.1:40000".parse().expect("an address"), 1), Some(10));
        assert_eq!(requests.answered(peer, 1), None, "once");
        out.clear();
        for (at, sent, given_up) in [(2_999_999, 0, 0), (3_000_000, 1, 0), (6_000_000, 1, 0), (9_000_000, 0, 1)] {
            assert_eq!(requests.tick(Instant(at), &mut out).len(), given_up, "at {at}");
            assert_eq!(out.len(), sent, "at {at}");
            out.clear();
        }
        assert_eq!((requests.answered(peer, 2), requests.deadline()), (None, None));
    }

    #[test]
    fn a_rush_is_sent_again_little_by_little() {
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
    fn an_answer_is_kept_for_the_same_request_and_not_for_ever() {
        let peer: SocketAddr = PEER.parse().expect("an address");
        let mut responses = Responses::default();
        responses.keep(peer, 1, b"first", vec![1], Instant(0));
        let at = |seconds| Instant(0) + Duration::from_secs(seconds);
        assert_eq!(responses.find(peer, 1, b"first", at(1)), Some(&[1][..]));
        assert_eq!(responses.find(peer, 1, b"first", at(12)), None, "too old");
        assert_eq!(responses.find(peer, 1, b"other", at(1)), None);
        assert_eq!(responses.find(peer, 2, b"first", at(1)), None);
        responses.keep(peer, 1, b"other", vec![2], Instant(0) + Duration::from_secs(6));
        responses.keep(peer, 3, b"third", vec![3], Instant(0) + Duration::from_secs(13));
        assert_eq!(responses.find(peer, 1, b"other", at(13)), Some(&[2][..]), "the newer one is not too old yet");
        responses.keep(peer, 4, b"fourth", vec![4], Instant(0) + Duration::from_secs(19));
        assert_eq!((responses.find(peer, 1, b"other", at(19)), responses.answers.len()), (None, 2));
        for n in 0..RESPONSES as u32 + 10 {
            responses.keep(peer, n, b"x", vec![], Instant(0) + Duration::from_secs(20));
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
            responses.keep(peer, n % 2_500, b"x", vec![0; 60_000], Instant(u64::from(n)));
            assert_eq!(responses.octets, of_all(&responses));
        }
        assert!(responses.octets <= RESPONSES_OCTETS && responses.octets > RESPONSES_OCTETS / 2);
        assert!(responses.find(peer, 499, b"x", Instant(3_000)).is_some(), "the newest is kept");
        responses.replace(peer, 499, b"short");
        responses.forget(|from| *from == peer);
        assert_eq!((responses.octets, responses.answers.len()), (0, 0));
    }
}
