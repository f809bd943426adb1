//! Unanswered requests.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::pfcp::MessageType;

/// Time after its timeout for which a response to a session establishment is still processed.
const TIMED_OUT_MEMORY: Duration = Duration::from_secs(60);

/// Index of a configured UPF.
pub(super) type PeerIndex = u16;

/// UPF and sequence number of a request.
pub(super) type RequestNumber = (PeerIndex, u32);

/// Key of a request that the caller may submit again.
///
/// Keys of many UEs differ only in their upper bits. [`FxHashMap`] takes the seven bits that it
/// compares before a key from the middle of one product, which those upper bits hardly change. So
/// the hash includes both halves; without that, most comparisons of a lookup are cache misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestKey(u64);

impl Hash for RequestKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 ^ self.0 >> 32);
    }
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Request of a session.
    Session,
    /// Setup of an association.
    Setup,
    /// Check that the UPF is alive.
    Heartbeat,
    /// Release of an association.
    Release,
    /// Deletion of a session that the control plane does not know.
    CleanUp,
}

/// Data of a request for its response and its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) peer: PeerIndex,
    pub(super) sequence: u32,
    pub(super) kind: MessageType,
    pub(super) purpose: Purpose,
    /// The control plane's SEID, for a session's request.
    pub(super) seid: Seid,
    /// The key of the submitted request.
    pub(super) key: Option<u64>,
}

/// An unanswered request.
#[derive(Debug)]
pub(super) struct OpenRequest<'a> {
    /// Time of the next repeat, or of the timeout.
    pub(super) due: Instant,
    pub(super) request: Request,
    pub(super) repeats_left: u8,
    pub(super) octets: &'a [u8],
}

/// An answered request, which the caller may submit again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AnsweredRequest {
    expires_at: Instant,
    key: u64,
    number: RequestNumber,
}

/// A number that other requests must not use yet, or whose response may still arrive.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecentNumber {
    expires_at: Instant,
    number: RequestNumber,
}

/// Requests that are remembered after their end, each list by the end of its retention.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecentRequests {
    answered: Vec<AnsweredRequest>,
    spared: Vec<RecentNumber>,
    timed_out: Vec<RecentNumber>,
}

#[derive(Debug)]
struct Slot {
    request: Option<Request>,
    /// Distinguishes this request's deadline from that of an earlier request in the slot.
    generation: u32,
    repeats_left: u8,
    /// The encoded request. The slot keeps its capacity.
    octets: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    slot: u32,
    generation: u32,
}

/// Action for a request whose deadline has passed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expiry<'a> {
    /// Repeat the encoded request to this UPF.
    Repeat(PeerIndex, &'a [u8]),
    /// The request has no repeats left.
    TimedOut(Request),
}

/// Unanswered requests by slot, number and key.
///
/// All have the same T1, so the deadlines form a queue. The deadline of an answered request remains
/// in the queue, and is skipped when it is due. After the first full load nothing allocates.
#[derive(Debug)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    free: Vec<u32>,
    limit: usize,
    t1: Duration,
    due: VecDeque<Due>,
    // Only this endpoint chooses these numbers and keys, so no peer can force collisions.
    by_number: FxHashMap<RequestNumber, u32>,
    by_key: FxHashMap<RequestKey, u32>,
    /// Numbers of answered requests with keys. If `spares` is set, other requests do not use
    /// answered numbers. Numbers derive from keys then, and a UPF would take another request for a
    /// repeat.
    answered: RecentEvents<RequestKey, RequestNumber>,
    /// UPF whose answered requests nobody submits again, so that they are not remembered.
    lossless: Option<PeerIndex>,
    spares: bool,
    spared: RecentEvents<RequestNumber, ()>,
    /// Numbers of session establishments without response after all repeats. Their responses may
    /// still arrive.
    timed_out: RecentEvents<RequestNumber, ()>,
}

impl Pending {
    pub(super) fn new(limit: usize, t1: Duration, memory: Duration, spares: bool) -> Self {
        Pending {
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            t1,
            due: VecDeque::new(),
            by_number: FxHashMap::default(),
            by_key: FxHashMap::default(),
            answered: RecentEvents::new(limit, memory),
            lossless: None,
            spares,
            spared: RecentEvents::new(limit, memory),
            timed_out: RecentEvents::new(limit, TIMED_OUT_MEMORY),
        }
    }

    /// Returns the unanswered requests by deadline.
    pub(super) fn iter(&self) -> impl Iterator<Item = OpenRequest<'_>> {
        self.due.iter().filter_map(|due| {
            let slot = &self.slots[due.slot as usize];
            let request = slot.request.filter(|_| slot.generation == due.generation)?;
            Some(OpenRequest { due: due.at, request, repeats_left: slot.repeats_left, octets: &slot.octets })
        })
    }

    /// Returns the requests that are remembered after their end.
    pub(super) fn recent(&self) -> RecentRequests {
        let numbers = |recent: &RecentEvents<RequestNumber, ()>| {
            recent.iter().map(|entry| RecentNumber { expires_at: entry.expires_at, number: entry.key }).collect()
        };
        let answered = self.answered.iter().map(|RecentEntry { expires_at, key, value }| AnsweredRequest {
            expires_at,
            key: key.0,
            number: *value,
        });
        RecentRequests {
            answered: answered.collect(),
            spared: numbers(&self.spared),
            timed_out: numbers(&self.timed_out),
        }
    }

    /// Adds requests of another process, except those to UPFs without an index in `peers`.
    pub(super) fn restore(&mut self, recent: RecentRequests, peers: impl Fn(PeerIndex) -> Option<PeerIndex>) {
        let number = |(peer, sequence): RequestNumber| Some((peers(peer)?, sequence));
        for AnsweredRequest { expires_at, key, number: at } in recent.answered {
            if let Some(at) = number(at) {
                self.answered.restore(expires_at, RequestKey(key), at);
            }
        }
        for (numbers, to) in [(recent.spared, &mut self.spared), (recent.timed_out, &mut self.timed_out)] {
            for RecentNumber { expires_at, number: at } in numbers {
                if let Some(at) = number(at) {
                    to.restore(expires_at, at, ());
                }
            }
        }
    }

    /// Sets the UPF whose answered requests nobody submits again.
    pub(super) fn set_lossless(&mut self, peer: Option<PeerIndex>) {
        self.lossless = peer;
    }

    /// Returns the number of unanswered requests.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    pub(super) fn has_number(&self, peer: PeerIndex, sequence: u32) -> bool {
        self.by_number.contains_key(&(peer, sequence))
    }

    /// Returns true if a number is available for a new request.
    pub(super) fn is_free(&mut self, now: Instant, peer: PeerIndex, sequence: u32) -> bool {
        let spared = self.spares && self.spared.get(now, (peer, sequence)).is_some();
        !spared && !self.has_number(peer, sequence)
    }

    pub(super) fn has_key(&self, key: u64) -> bool {
        self.by_key.contains_key(&RequestKey(key))
    }

    /// Returns the UPF and sequence number of a recently answered request with this key.
    pub(super) fn recently_answered(&mut self, now: Instant, key: u64) -> Option<RequestNumber> {
        self.answered.get(now, RequestKey(key)).copied()
    }

    /// Records the timeout of an establishment, whose response may still arrive.
    pub(super) fn record_timeout(&mut self, now: Instant, request: &Request) {
        if request.kind == MessageType::SESSION_ESTABLISHMENT_REQUEST {
            self.timed_out.put(now, (request.peer, request.sequence), ());
        }
    }

    /// Returns true if this is the number of a timed-out establishment, and removes it.
    pub(super) fn take_timed_out(&mut self, now: Instant, peer: PeerIndex, sequence: u32) -> bool {
        self.timed_out.take(now, (peer, sequence)).is_some()
    }

    /// Registers a request. The caller must have checked that its number is free and the table is
    /// not full.
    pub(super) fn open(&mut self, now: Instant, request: Request, repeats: u8, octets: &[u8]) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { request: None, generation: 0, repeats_left: 0, octets: Vec::new() });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.request = Some(request);
        entry.generation = entry.generation.wrapping_add(1);
        entry.repeats_left = repeats;
        entry.octets.clear();
        entry.octets.extend_from_slice(octets);
        self.due.push_back(Due { at: now + self.t1, slot, generation: entry.generation });
        self.by_number.insert((request.peer, request.sequence), slot);
        if let Some(key) = request.key {
            self.by_key.insert(RequestKey(key), slot);
        }
    }

    /// Removes and returns the request that this response answers.
    pub(super) fn close(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        sequence: u32,
        response: MessageType,
    ) -> Option<Request> {
        let slot = *self.by_number.get(&(peer, sequence))?;
        let request = self.slots[slot as usize].request?;
        let answers =
            request.kind.response() == Some(response) || response == MessageType::VERSION_NOT_SUPPORTED_RESPONSE;
        if !answers {
            return None;
        }
        self.free(slot);
        if let Some(key) = request.key.filter(|_| self.lossless != Some(peer)) {
            self.answered.put(now, RequestKey(key), (peer, sequence));
            if self.spares {
                self.spared.put(now, (peer, sequence), ());
            }
        }
        Some(request)
    }

    fn free(&mut self, slot: u32) -> Option<Request> {
        let request = self.slots[slot as usize].request.take()?;
        self.by_number.remove(&(request.peer, request.sequence));
        if let Some(key) = request.key {
            self.by_key.remove(&RequestKey(key));
        }
        self.free.push(slot);
        Some(request)
    }

    /// Removes the matching requests of a UPF and calls `each` with them.
    pub(super) fn abandon(
        &mut self,
        now: Instant,
        peer: PeerIndex,
        which: impl Fn(&Request) -> bool,
        mut each: impl FnMut(Request),
    ) {
        for slot in 0..self.slots.len() as u32 {
            let hit = self.slots[slot as usize].request.is_some_and(|r| r.peer == peer && which(&r));
            if hit && let Some(request) = self.free(slot) {
                self.record_timeout(now, &request);
                each(request);
            }
        }
    }

    /// Returns the next request whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Expiry<'_>> {
        self.skip_closed();
        let due = *self.due.front().filter(|due| due.at <= now)?;
        self.due.pop_front();
        let again = self.slots[due.slot as usize].repeats_left > 0;
        if !again {
            return self.free(due.slot).map(Expiry::TimedOut);
        }
        self.due.push_back(Due { at: now + self.t1, ..due });
        let entry = &mut self.slots[due.slot as usize];
        entry.repeats_left -= 1;
        entry.request.map(|request| Expiry::Repeat(request.peer, &entry.octets[..]))
    }

    /// Returns the deadline of the next request.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        self.skip_closed();
        self.due.front().map(|due| due.at)
    }

    fn skip_closed(&mut self) {
        while let Some(due) = self.due.front() {
            let slot = &self.slots[due.slot as usize];
            if slot.request.is_some() && slot.generation == due.generation {
                break;
            }
            self.due.pop_front();
        }
    }
}

/// Recent events: at most `limit` entries, of the last `memory`.
#[derive(Debug)]
struct RecentEvents<K, V> {
    limit: usize,
    memory: Duration,
    values: FxHashMap<K, V>,
    order: VecDeque<(Instant, K)>,
}

/// An entry of [`RecentEvents`].
struct RecentEntry<'a, K, V> {
    expires_at: Instant,
    key: K,
    value: &'a V,
}

impl<K: Copy + Eq + Hash, V> RecentEvents<K, V> {
    fn new(limit: usize, memory: Duration) -> Self {
        RecentEvents { limit, memory, values: FxHashMap::default(), order: VecDeque::new() }
    }

    fn put(&mut self, now: Instant, key: K, value: V) {
        self.forget(now);
        if self.order.len() >= self.limit
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
        if self.values.insert(key, value).is_none() {
            self.order.push_back((now + self.memory, key));
        }
    }

    /// Returns all entries in insertion order.
    fn iter(&self) -> impl Iterator<Item = RecentEntry<'_, K, V>> {
        self.order.iter().filter_map(|(expires_at, key)| {
            Some(RecentEntry { expires_at: *expires_at, key: *key, value: self.values.get(key)? })
        })
    }

    /// Adds an entry with the end of its retention. Calls must be ordered by that time.
    fn restore(&mut self, expires_at: Instant, key: K, value: V) {
        self.put(before(expires_at, self.memory), key, value);
    }

    fn get(&mut self, now: Instant, key: K) -> Option<&V> {
        self.forget(now);
        self.values.get(&key)
    }

    fn take(&mut self, now: Instant, key: K) -> Option<V> {
        self.forget(now);
        self.values.remove(&key)
    }

    fn forget(&mut self, now: Instant) {
        while let Some((_, key)) = self.order.front().filter(|(expires_at, _)| *expires_at <= now) {
            self.values.remove(key);
            self.order.pop_front();
        }
    }
}

/// Returns the time at which something that expires then was recorded.
pub(super) fn before(expires_at: Instant, span: Duration) -> Instant {
    Instant(expires_at.0.saturating_sub(span.0))
}
