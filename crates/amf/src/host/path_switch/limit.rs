//! Budgets of requests with guessed identifiers or MACs, by peer.

use rustc_hash::FxHashMap;
use std::net::IpAddr;
use vireo_types::{Duration, Instant};

/// Failures of one peer until its requests are refused. A few are normal: a UE may lose its
/// connection during the handover, or its keys.
const MAX_FAILURES: u32 = 32;
/// Time after which one failure is forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which all requests of the peer are refused then.
const REFUSAL_TIME: Duration = Duration::from_secs(60);
/// Maximum number of peers that are remembered.
const MAX_PEERS: usize = 4096;

/// Failures of one peer.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// Time up to which failures are forgotten.
    at: Instant,
    /// End of the refusal; in the past if none is in effect.
    refusal_end: Instant,
}

impl Failures {
    /// Forgets failures that are long enough ago.
    fn forget(&mut self, now: Instant) {
        let forgotten = now.since(self.at).as_micros() / FORGET_INTERVAL.as_micros();
        self.count = self.count.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX));
        self.at = if self.count == 0 { now } else { self.at + Duration(FORGET_INTERVAL.as_micros() * forgotten) };
    }
}

/// Failures of each peer, by [`vireo_types::machine_address`].
#[derive(Debug, Default)]
pub(in crate::host) struct GuessLimit(FxHashMap<Option<IpAddr>, Failures>);

impl GuessLimit {
    /// Returns true if the requests of a peer are refused at present.
    pub(in crate::host) fn refuses(&self, peer: Option<IpAddr>, now: Instant) -> bool {
        self.0.get(&peer).is_some_and(|failures| now < failures.refusal_end)
    }

    /// Counts a request that named no connection, or had a wrong MAC. Returns true if it begins a
    /// refusal.
    pub(in crate::host) fn add_failure(&mut self, peer: Option<IpAddr>, now: Instant) -> bool {
        if self.0.len() >= MAX_PEERS && !self.0.contains_key(&peer) {
            self.make_room(now);
        }
        let new = Failures { count: 0, at: now, refusal_end: Instant::default() };
        let failures = self.0.entry(peer).or_insert(new);
        failures.forget(now);
        failures.count = (failures.count + 1).min(MAX_FAILURES);
        let begins = failures.count == MAX_FAILURES && now >= failures.refusal_end;
        if begins {
            failures.refusal_end = now + REFUSAL_TIME;
        }
        begins
    }

    /// Removes peers without failures; if there are none, one with the fewest.
    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, failures| {
            failures.forget(now);
            failures.count > 0
        });
        if self.0.len() >= MAX_PEERS
            && let Some(peer) = self.0.iter().min_by_key(|(_, failures)| failures.count).map(|(peer, _)| *peer)
        {
            self.0.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(1000 + seconds)
    }

    #[test]
    fn guessing_peer_is_refused_for_a_minute() {
        let mut limit = GuessLimit::default();
        let begins: Vec<bool> = (0..MAX_FAILURES).map(|_| limit.add_failure(peer(1), at(0))).collect();
        assert_eq!(begins.iter().position(|begins| *begins), Some(MAX_FAILURES as usize - 1));
        assert!(limit.refuses(peer(1), at(0)) && limit.refuses(peer(1), at(59)) && !limit.refuses(peer(2), at(0)));
        assert!(!limit.refuses(peer(1), at(60)));
        // 12 failures are forgotten, so that the 12th begins another refusal.
        let begins: Vec<bool> = (0..20).map(|_| limit.add_failure(peer(1), at(60))).collect();
        assert_eq!(begins.iter().position(|begins| *begins), Some(11));
    }

    #[test]
    fn rare_failures_never_begin_a_refusal() {
        let mut limit = GuessLimit::default();
        for n in 0..10_000 {
            assert!(!limit.add_failure(peer(1), at(n * 5)), "{n}");
        }
        let burst = (0..MAX_FAILURES - 2).filter(|_| limit.add_failure(peer(1), at(100_000))).count();
        assert_eq!(burst, 0);
    }

    #[test]
    fn number_of_peers_is_bounded() {
        let mut limit = GuessLimit::default();
        let begins = (0..MAX_FAILURES).filter(|_| limit.add_failure(peer(0), at(0))).count();
        let others = (1..5000).filter(|number| limit.add_failure(peer(*number), at(0))).count();
        assert_eq!((begins, others), (1, 0));
        assert_eq!(limit.0.len(), MAX_PEERS);
        assert!(limit.refuses(peer(0), at(1)), "it has the most failures");
        limit.add_failure(peer(5000), at(1000));
        assert_eq!(limit.0.len(), 1);
    }
}
