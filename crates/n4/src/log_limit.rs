//! Rate limit of log lines that peers can trigger: one per kind and peer in 60 s.

use std::net::IpAddr;
use vireo_types::{Duration, Instant};

/// Minimum time between two lines of one kind about one peer.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of (kind, peer) pairs. Lines of further pairs are counted and dropped.
const ENTRIES: usize = 64;

/// The recent lines by kind and peer.
#[derive(Debug)]
pub struct LogLimit<K> {
    entries: Vec<Entry<K>>,
    /// Lines dropped for lack of an entry; the next line reports them.
    unlisted: u64,
}

#[derive(Debug)]
struct Entry<K> {
    kind: K,
    peer: IpAddr,
    written: Instant,
    suppressed: u64,
}

impl<K> Default for LogLimit<K> {
    fn default() -> Self {
        LogLimit { entries: Vec::new(), unlisted: 0 }
    }
}

impl<K: Copy + PartialEq> LogLimit<K> {
    /// Returns the number of lines dropped before this one, or `None` if this one must be dropped
    /// too.
    pub fn admit(&mut self, kind: K, peer: IpAddr, now: Instant) -> Option<u64> {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.kind == kind && entry.peer == peer) {
            if now.since(entry.written) < INTERVAL {
                entry.suppressed += 1;
                return None;
            }
            entry.written = now;
            return Some(std::mem::take(&mut entry.suppressed) + std::mem::take(&mut self.unlisted));
        }
        if self.entries.len() >= ENTRIES {
            let unlisted = &mut self.unlisted;
            self.entries.retain(|entry| {
                let recent = now.since(entry.written) < INTERVAL;
                *unlisted += if recent { 0 } else { entry.suppressed };
                recent
            });
        }
        if self.entries.len() >= ENTRIES {
            self.unlisted += 1;
            return None;
        }
        self.entries.push(Entry { kind, peer, written: now, suppressed: 0 });
        Some(std::mem::take(&mut self.unlisted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(n).into()
    }

    #[test]
    fn lines_of_a_kind_are_limited_by_peer() {
        let mut limit = LogLimit::default();
        let at = |seconds| Instant(0) + Duration::from_secs(seconds);
        assert_eq!([limit.admit('a', peer(1), at(0)), limit.admit('a', peer(1), at(59))], [Some(0), None]);
        assert_eq!([limit.admit('b', peer(1), at(1)), limit.admit('a', peer(2), at(1))], [Some(0), Some(0)]);
        assert_eq!(limit.admit('a', peer(1), at(60)), Some(1), "the one that was left out is counted");
    }

    #[test]
    fn many_peers_write_a_bounded_number_of_lines() {
        let mut limit = LogLimit::default();
        let mut lines =
            |from: u32, now| (from..from + 1000).filter(|n| limit.admit('a', peer(*n), now).is_some()).count();
        assert_eq!([lines(0, Instant(0)), lines(5000, Instant(0) + INTERVAL)], [ENTRIES, ENTRIES]);
        assert_eq!(limit.admit('a', peer(7), Instant(0) + INTERVAL + INTERVAL), Some(1000 - 64));
    }
}
