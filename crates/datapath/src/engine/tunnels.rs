//! Downlink entries by tunnel, for the Error Indications about a tunnel.

use crate::engine::rule::Tunnel;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// Map from tunnels to downlink entries. A tunnel maps to the last entry that got it. The map
/// stores indexes only: the tunnels are in the entries, of which there may be millions.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    entries: HashTable<u32>,
    hasher: RandomState,
}

impl Tunnels {
    /// Creates a map with capacity for `entries` entries, so that it never rehashes a million of
    /// them at once.
    pub(crate) fn new(entries: usize) -> Self {
        Tunnels { entries: HashTable::with_capacity(entries), hasher: RandomState::new() }
    }

    /// Maps `tunnel` to the entry `entry`. `of` returns the tunnel of an entry and already returns
    /// `tunnel` for this one.
    pub(crate) fn insert(&mut self, tunnel: Tunnel, entry: u32, of: impl Fn(u32) -> Option<Tunnel>) {
        let Tunnels { entries, hasher } = self;
        let hash = |entry: &u32| of(*entry).map_or(0, |tunnel| hasher.hash_one(tunnel));
        let is = |other: &u32| *other == entry || of(*other) == Some(tunnel);
        *entries.entry(hasher.hash_one(tunnel), is, hash).or_insert(entry).get_mut() = entry;
    }

    /// Removes the mapping of `tunnel` to the entry `entry`.
    pub(crate) fn remove(&mut self, tunnel: Tunnel, entry: u32) {
        if let Ok(entry) = self.entries.find_entry(self.hasher.hash_one(tunnel), |other| *other == entry) {
            entry.remove();
        }
    }

    /// Returns the entry of a tunnel.
    pub(crate) fn find(&self, tunnel: Tunnel, of: impl Fn(u32) -> Option<Tunnel>) -> Option<u32> {
        self.entries.find(self.hasher.hash_one(tunnel), |entry| of(*entry) == Some(tunnel)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use vireo_types::Teid;

    #[test]
    fn tunnel_maps_to_last_entry() {
        let tunnel = |n: u32| Tunnel { teid: Teid(n), address: Ipv4Addr::new(192, 0, 2, 1).into() };
        let mut of = vec![None; 1_000];
        let mut tunnels = Tunnels::new(10);
        for n in 0..1_000 {
            of[n as usize] = Some(tunnel(n / 2));
            tunnels.insert(tunnel(n / 2), n, |entry| of[entry as usize]);
        }
        let find = |tunnels: &Tunnels, of: &[Option<Tunnel>], n| tunnels.find(tunnel(n), |entry| of[entry as usize]);
        assert!((0..500).all(|n| find(&tunnels, &of, n) == Some(2 * n + 1)), "beyond the room that there was at first");
        // An entry that lost its tunnel to another entry has no mapping to remove.
        tunnels.remove(tunnel(7), 14);
        assert_eq!(find(&tunnels, &of, 7), Some(15));
        of[15] = Some(tunnel(9_000));
        tunnels.remove(tunnel(7), 15);
        tunnels.insert(tunnel(9_000), 15, |entry| of[entry as usize]);
        assert_eq!((find(&tunnels, &of, 7), find(&tunnels, &of, 9_000)), (None, Some(15)));
    }
}
