//! Index from a UE's address to its downlink entry.
//!
//! Arrays cover the pools, whose addresses this core assigns. A hash covers all other addresses.
//! The kernel program reads the same arrays.

use crate::network::Pool;
use crate::sys::shared::Shared;
use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use vireo_types::SessionAddress;

/// An IPv4 address, or the upper 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AddressKey {
    V4(u32),
    V6(u64),
}

/// Identifies a downlink entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DownlinkId(pub(crate) u32);

/// Returns the lookup keys of a UE.
pub(crate) fn address_keys(ue: SessionAddress) -> impl Iterator<Item = AddressKey> + Clone {
    let v4 = ue.ipv4.map(|v4| AddressKey::V4(v4.to_bits()));
    v4.into_iter().chain(ue.ipv6_prefix.map(|prefix| AddressKey::V6((prefix.to_bits() >> 64) as u64)))
}

/// Maximum number of addresses of one pool in arrays. A hash holds the others.
pub(crate) const LARGEST_ARRAY: u64 = 1 << 24;

/// Part of the arrays that one pool occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address of the pool.
    pub(crate) base: AddressKey,
    /// Mask of the bits that all addresses of the pool share.
    pub(crate) mask: u64,
    /// Number of addresses in the array. Smaller than the pool if the pool exceeds the allowed
    /// maximum.
    pub(crate) size: u64,
    /// Array position of the first address.
    pub(crate) start: usize,
    /// Link MTU of the pool, for packets to its UEs.
    pub(crate) mtu: u16,
}

impl Range {
    #[inline]
    pub(crate) fn entry(&self, key: AddressKey) -> Option<usize> {
        let offset = match (key, self.base) {
            (AddressKey::V4(key), AddressKey::V4(base)) => u64::from(key.checked_sub(base)?),
            (AddressKey::V6(key), AddressKey::V6(base)) => key.checked_sub(base)?,
            _ => return None,
        };
        (offset < self.size).then(|| self.start + offset as usize)
    }
}

/// Returns the array ranges of the pools, with at most `largest` addresses of each pool.
pub(crate) fn ranges(pools: &[Pool], largest: u64) -> Vec<Range> {
    let mut start = 0;
    let mut ranges = vec![];
    for pool in pools {
        let v4 = pool.ipv4.map(|(base, length)| {
            let size = 1_u64 << (32 - u32::from(length.min(32)));
            (AddressKey::V4(base.to_bits() & !(size - 1) as u32), size)
        });
        let v6 = pool.ipv6.map(|(base, length)| {
            let size = 1_u64.checked_shl(64 - u32::from(length.min(64))).unwrap_or(u64::MAX);
            (AddressKey::V6((base.to_bits() >> 64) as u64 & !(size - 1)), size)
        });
        for (base, all) in [v4, v6].into_iter().flatten() {
            let size = all.min(largest);
            ranges.push(Range { base, mask: !all.wrapping_sub(1), size, start, mtu: pool.mtu });
            start += size as usize;
        }
    }
    ranges
}

/// Returns the number of array elements of all ranges.
pub(crate) fn entries(ranges: &[Range]) -> usize {
    ranges.iter().map(|range| range.size as usize).sum()
}

/// Addresses in use that lie in arrays. Each has a number other than 0.
#[derive(Debug)]
pub(crate) struct Addresses {
    ranges: Box<[Range]>,
    entries: Shared<AtomicU32>,
}

impl Addresses {
    /// Creates an empty index. `entries` has room for [`entries`] elements.
    pub(crate) fn new(ranges: Vec<Range>, entries: Shared<AtomicU32>) -> Self {
        Addresses { ranges: ranges.into(), entries }
    }

    /// Returns the array element of an address, if the address lies in an array.
    #[inline]
    pub(crate) fn entry(&self, key: AddressKey) -> Option<&AtomicU32> {
        self.entries.get(self.ranges.iter().find_map(|range| range.entry(key))?)
    }

    /// Returns the number of an address in an array.
    #[inline]
    pub(crate) fn get(&self, key: AddressKey) -> Option<u32> {
        number(self.entry(key)?)
    }
}

/// Returns the number in an array element.
#[inline]
pub(crate) fn number(entry: &AtomicU32) -> Option<u32> {
    Some(entry.load(Acquire)).filter(|value| *value != 0)
}

/// Addresses in use that lie in no array.
#[derive(Debug, Default)]
pub(crate) struct HashedAddresses(HashMap<AddressKey, u32>);

impl HashedAddresses {
    /// Returns the number of an address in the arrays or in the hash.
    #[inline]
    pub(crate) fn get(&self, arrays: &Addresses, key: AddressKey) -> Option<u32> {
        match arrays.entry(key) {
            Some(entry) => number(entry),
            None if self.0.is_empty() => None,
            None => self.0.get(&key).copied(),
        }
    }

    pub(crate) fn set(&mut self, arrays: &Addresses, key: AddressKey, value: u32) {
        match arrays.entry(key) {
            Some(entry) => entry.store(value, Release),
            None => drop(self.0.insert(key, value)),
        }
    }

    pub(crate) fn remove(&mut self, arrays: &Addresses, key: AddressKey) {
        match arrays.entry(key) {
            Some(entry) => entry.store(0, Release),
            None => drop(self.0.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn arrays(pools: &[Pool], largest: u64) -> Addresses {
        let ranges = ranges(pools, largest);
        let entries = Shared::private(entries(&ranges));
        Addresses::new(ranges, entries)
    }

    #[test]
    fn addresses_in_and_outside_pools_are_found() {
        let pools = [Pool {
            ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
            ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 32)),
            ..Pool::default()
        }];
        let (arrays, mut others) = (arrays(&pools, 1 << 24), HashedAddresses::default());
        let inside = [Ipv4Addr::new(10, 45, 0, 0), Ipv4Addr::new(10, 45, 255, 255)];
        let outside = [Ipv4Addr::new(10, 44, 255, 255), Ipv4Addr::new(10, 46, 0, 0)];
        for (n, address) in (1_u32..).zip(inside.iter().chain(&outside)) {
            let key = AddressKey::V4(address.to_bits());
            assert_eq!(others.get(&arrays, key), None);
            others.set(&arrays, key, n);
            assert_eq!(others.get(&arrays, key), Some(n));
        }
        assert_eq!(others.0.len(), 2);
        others.remove(&arrays, AddressKey::V4(inside[0].to_bits()));
        others.remove(&arrays, AddressKey::V4(outside[0].to_bits()));
        assert_eq!((others.get(&arrays, AddressKey::V4(inside[0].to_bits())), others.0.len()), (None, 1));

        // A /32 has 2^32 prefixes: the first 2^24 are in arrays, the others in the hash.
        for key in [0x2001_0db8_0000_0000, 0x2001_0db8_00ff_ffff, 0x2001_0db8_0100_0000, 0x2001_0db8_ffff_ffff] {
            others.set(&arrays, AddressKey::V6(key), 7);
            assert_eq!(others.get(&arrays, AddressKey::V6(key)), Some(7));
        }
        assert_eq!(others.0.len(), 3);
    }

    #[test]
    fn widest_and_narrowest_pools_are_valid() {
        let v6 = |base: u64, length| Pool {
            ipv6: Some((Ipv6Addr::from_bits(u128::from(base) << 64), length)),
            ..Pool::default()
        };
        let ranges = ranges(&[v6(1 << 63, 0), v6(5, 64)], 1 << 24);
        assert_eq!((ranges[0].size, ranges[1].size, ranges[1].start), (1 << 24, 1, 1 << 24));
        assert_eq!(ranges[1].base, AddressKey::V6(5));
    }
}
