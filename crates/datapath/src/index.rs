//! From a UE's address to its downlink record: arrays over the pools, whose addresses are ours to choose (DESIGN
//! decision 8), and a hash for what lies outside them.

use crate::Pool;
use std::collections::HashMap;

const PAGE: u64 = 4096;
/// Addresses of one pool that are kept in arrays; beyond these they go to the hash.
const LARGEST: u64 = 1 << 24;
const NONE: u32 = u32::MAX;

/// A sparse array: pages come as they are first written.
#[derive(Debug)]
struct Range {
    base: u64,
    size: u64,
    pages: Vec<Option<Box<[u32]>>>,
}

impl Range {
    fn new(base: u64, size: u64) -> Self {
        let size = size.min(LARGEST);
        Range { base, size, pages: (0..size.div_ceil(PAGE)).map(|_| None).collect() }
    }

    fn offset(&self, key: u64) -> Option<u64> {
        key.checked_sub(self.base).filter(|offset| *offset < self.size)
    }

    fn get(&self, offset: u64) -> u32 {
        match &self.pages[(offset / PAGE) as usize] {
            Some(page) => page[(offset % PAGE) as usize],
            None => NONE,
        }
    }

    fn set(&mut self, offset: u64, value: u32) {
        let page = self.pages[(offset / PAGE) as usize].get_or_insert_with(|| vec![NONE; PAGE as usize].into());
        page[(offset % PAGE) as usize] = value;
    }
}

/// One family's addresses: IPv4 as 32 bits, IPv6 as the upper 64 bits, the prefix.
#[derive(Debug, Default)]
pub(crate) struct AddressIndex {
    ranges: Vec<Range>,
    others: HashMap<u64, u32>,
}

impl AddressIndex {
    pub(crate) fn ipv4(pools: &[Pool]) -> Self {
        let pools = pools.iter().filter_map(|pool| pool.ipv4);
        let ranges = pools.map(|(base, length)| range(u64::from(base.to_bits()), length.min(32), 32));
        AddressIndex { ranges: ranges.collect(), others: HashMap::new() }
    }

    pub(crate) fn ipv6(pools: &[Pool]) -> Self {
        let pools = pools.iter().filter_map(|pool| pool.ipv6);
        let ranges = pools.map(|(base, length)| range((base.to_bits() >> 64) as u64, length.min(64), 64));
        AddressIndex { ranges: ranges.collect(), others: HashMap::new() }
    }

    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        for range in &self.ranges {
            if let Some(offset) = range.offset(key) {
                return Some(range.get(offset)).filter(|value| *value != NONE);
            }
        }
        if self.others.is_empty() { None } else { self.others.get(&key).copied() }
    }

    pub(crate) fn set(&mut self, key: u64, value: u32) {
        match self.ranges.iter_mut().find_map(|range| range.offset(key).map(|offset| (range, offset))) {
            Some((range, offset)) => range.set(offset, value),
            None => drop(self.others.insert(key, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: u64) {
        match self.ranges.iter_mut().find_map(|range| range.offset(key).map(|offset| (range, offset))) {
            Some((range, offset)) => range.set(offset, NONE),
            None => drop(self.others.remove(&key)),
        }
    }
}

/// The range of a prefix of `length` bits within addresses of `width` bits; host bits of `base` are ignored.
fn range(base: u64, length: u8, width: u8) -> Range {
    let host_bits = u32::from(width - length);
    let size = 1_u64.checked_shl(host_bits).unwrap_or(u64::MAX);
    Range::new(base & !(size - 1), size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn addresses_inside_and_outside_of_pools_are_found() {
        let pools = [Pool {
            ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
            ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 32)),
            ..Pool::default()
        }];
        let mut v4 = AddressIndex::ipv4(&pools);
        let inside = [Ipv4Addr::new(10, 45, 0, 0), Ipv4Addr::new(10, 45, 255, 255)];
        let outside = [Ipv4Addr::new(10, 44, 255, 255), Ipv4Addr::new(10, 46, 0, 0)];
        for (n, address) in (0_u32..).zip(inside.iter().chain(&outside)) {
            let key = u64::from(address.to_bits());
            assert_eq!(v4.get(key), None);
            v4.set(key, n);
            assert_eq!(v4.get(key), Some(n));
        }
        assert_eq!(v4.others.len(), 2);
        v4.remove(u64::from(inside[0].to_bits()));
        v4.remove(u64::from(outside[0].to_bits()));
        assert_eq!((v4.get(u64::from(inside[0].to_bits())), v4.others.len()), (None, 1));

        // a /32 has 2^32 prefixes: the first 2^24 are in arrays, the others in the hash
        let mut v6 = AddressIndex::ipv6(&pools);
        for key in [0x2001_0db8_0000_0000, 0x2001_0db8_00ff_ffff, 0x2001_0db8_0100_0000, 0x2001_0db8_ffff_ffff] {
            v6.set(key, 7);
            assert_eq!(v6.get(key), Some(7));
        }
        assert_eq!(v6.others.len(), 2);
    }

    #[test]
    fn the_widest_and_narrowest_pools_are_sound() {
        assert_eq!(range(1 << 63, 0, 64).size, LARGEST);
        assert_eq!((range(5, 64, 64).base, range(5, 64, 64).size), (5, 1));
    }
}
