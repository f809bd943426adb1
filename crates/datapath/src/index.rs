//! From a UE's address to its downlink record: arrays over the pools, whose addresses are ours to choose (DESIGN
//! decision 8), and a hash for what lies outside them. The kernel's program reads the same arrays.

use crate::Pool;
use crate::sys::shared::Shared;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An IPv4 address, or the upper 64 bits of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    V4(u32),
    V6(u64),
}

/// A pool's part of the arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first address.
    pub(crate) base: Key,
    /// The bits that the pool's addresses share.
    pub(crate) mask: u64,
    /// How many addresses are in the array: fewer than the pool has if it is larger than what was allowed.
    pub(crate) size: u64,
    /// The entry of the first address.
    pub(crate) start: usize,
    /// Of the pool, for what is on the way to it.
    pub(crate) mtu: u16,
}

impl Range {
    #[inline]
    fn entry(&self, key: Key) -> Option<usize> {
        let offset = match (key, self.base) {
            (Key::V4(key), Key::V4(base)) => u64::from(key.checked_sub(base)?),
            (Key::V6(key), Key::V6(base)) => key.checked_sub(base)?,
            _ => return None,
        };
        (offset < self.size).then(|| self.start + offset as usize)
    }
}

/// How the pools lie in the arrays, of each pool at most `largest` addresses.
pub(crate) fn ranges(pools: &[Pool], largest: u64) -> Vec<Range> {
    let mut start = 0;
    let mut ranges = vec![];
    for pool in pools {
        let v4 = pool.ipv4.map(|(base, length)| {
            let size = 1_u64 << (32 - u32::from(length.min(32)));
            (Key::V4(base.to_bits() & !(size - 1) as u32), size)
        });
        let v6 = pool.ipv6.map(|(base, length)| {
            let size = 1_u64.checked_shl(64 - u32::from(length.min(64))).unwrap_or(u64::MAX);
            (Key::V6((base.to_bits() >> 64) as u64 & !(size - 1)), size)
        });
        for (base, all) in [v4, v6].into_iter().flatten() {
            let size = all.min(largest);
            ranges.push(Range { base, mask: !all.wrapping_sub(1), size, start, mtu: pool.mtu });
            start += size as usize;
        }
    }
    ranges
}

/// How many entries the arrays of these ranges have in all.
pub(crate) fn entries(ranges: &[Range]) -> usize {
    ranges.iter().map(|range| range.size as usize).sum()
}

/// The addresses in use, each with a number that is not 0.
#[derive(Debug)]
pub(crate) struct AddressIndex {
    ranges: Vec<Range>,
    entries: Shared<AtomicU32>,
    others: HashMap<Key, u32>,
}

impl AddressIndex {
    /// An empty index; `entries` has room for [`entries`].
    pub(crate) fn new(ranges: Vec<Range>, entries: Shared<AtomicU32>) -> Self {
        AddressIndex { ranges, entries, others: HashMap::new() }
    }

    #[inline]
    fn entry(&self, key: Key) -> Option<&AtomicU32> {
        self.entries.get(self.ranges.iter().find_map(|range| range.entry(key))?)
    }

    /// Fetches the entry of an address into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, key: Key) {
        if let Some(entry) = self.entry(key) {
            crate::sys::prefetch(entry);
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<u32> {
        match self.entry(key) {
            Some(entry) => Some(entry.load(Relaxed)).filter(|value| *value != 0),
            None if self.others.is_empty() => None,
            None => self.others.get(&key).copied(),
        }
    }

    pub(crate) fn set(&mut self, key: Key, value: u32) {
        match self.entry(key) {
            Some(entry) => entry.store(value, Relaxed),
            None => drop(self.others.insert(key, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: Key) {
        match self.entry(key) {
            Some(entry) => entry.store(0, Relaxed),
            None => drop(self.others.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn index(pools: &[Pool], largest: u64) -> AddressIndex {
        let ranges = ranges(pools, largest);
        let entries = Shared::private(entries(&ranges));
        AddressIndex::new(ranges, entries)
    }

    #[test]
    fn addresses_inside_and_outside_of_pools_are_found() {
        let pools = [Pool {
            ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
            ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 32)),
            ..Pool::default()
        }];
        let mut index = index(&pools, 1 << 24);
        let inside = [Ipv4Addr::new(10, 45, 0, 0), Ipv4Addr::new(10, 45, 255, 255)];
        let outside = [Ipv4Addr::new(10, 44, 255, 255), Ipv4Addr::new(10, 46, 0, 0)];
        for (n, address) in (1_u32..).zip(inside.iter().chain(&outside)) {
            let key = Key::V4(address.to_bits());
            assert_eq!(index.get(key), None);
            index.set(key, n);
            assert_eq!(index.get(key), Some(n));
        }
        assert_eq!(index.others.len(), 2);
        index.remove(Key::V4(inside[0].to_bits()));
        index.remove(Key::V4(outside[0].to_bits()));
        assert_eq!((index.get(Key::V4(inside[0].to_bits())), index.others.len()), (None, 1));

        // a /32 has 2^32 prefixes: the first 2^24 are in arrays, the others in the hash
        for key in [0x2001_0db8_0000_0000, 0x2001_0db8_00ff_ffff, 0x2001_0db8_0100_0000, 0x2001_0db8_ffff_ffff] {
            index.set(Key::V6(key), 7);
            assert_eq!(index.get(Key::V6(key)), Some(7));
        }
        assert_eq!(index.others.len(), 3);
    }

    #[test]
    fn the_widest_and_narrowest_pools_are_sound() {
        let v6 = |base: u64, length| Pool {
            ipv6: Some((Ipv6Addr::from_bits(u128::from(base) << 64), length)),
            ..Pool::default()
        };
        let ranges = ranges(&[v6(1 << 63, 0), v6(5, 64)], 1 << 24);
        assert_eq!((ranges[0].size, ranges[1].size, ranges[1].start), (1 << 24, 1, 1 << 24));
        assert_eq!(ranges[1].base, Key::V6(5));
    }
}
