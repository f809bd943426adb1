//! Numbering of the addresses in a UE address pool.
//!
//! A [`Range`] maps addresses to indexes and back. It does not record which addresses are in use:
//! the host does, in memory shared with its workers.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum number of addresses of one pool. Addresses of a larger network beyond it are not used.
const LARGEST: u128 = 1 << 24;

/// Addresses of one pool by index: IPv4 addresses, or the upper 64 bits of IPv6 addresses. It does
/// not record which of them are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    first: u128,
    size: u32,
}

impl Range {
    /// Returns the addresses of an IPv4 network except the network, the gateway and the broadcast
    /// address.
    pub fn ipv4(address: Ipv4Addr, length: u8) -> Self {
        let host_bits = 32 - u32::from(length.min(32));
        let network = u128::from(u32::from(address)) >> host_bits << host_bits;
        Range::new(network + 2, (1_u128 << host_bits).saturating_sub(3))
    }

    /// Returns the /64 prefixes of an IPv6 network except the first, which is the gateway's.
    pub fn ipv6(address: Ipv6Addr, length: u8) -> Self {
        let subnet_bits = 64 - u32::from(length.min(64));
        let network = u128::from(address) >> 64 >> subnet_bits << subnet_bits;
        Range::new(network + 1, (1_u128 << subnet_bits).saturating_sub(1))
    }

    /// Returns the addresses of an IPv4 network except the last one.
    pub(crate) fn ipv4_but_last(address: Ipv4Addr, length: u8) -> Self {
        let host_bits = 32 - u32::from(length.min(32));
        let network = u128::from(u32::from(address)) >> host_bits << host_bits;
        Range::new(network, (1_u128 << host_bits) - 1)
    }

    /// Returns all /64 prefixes of an IPv6 network.
    pub(crate) fn ipv6_whole(address: Ipv6Addr, length: u8) -> Self {
        let subnet_bits = 64 - u32::from(length.min(64));
        let network = u128::from(address) >> 64 >> subnet_bits << subnet_bits;
        Range::new(network, 1_u128 << subnet_bits)
    }

    /// Returns the part of the range before another one.
    pub(crate) fn before(self, other: Option<Range>) -> Self {
        let first = other.map_or(u128::MAX, |other| other.first);
        Range::new(self.first, u128::from(self.size).min(first.saturating_sub(self.first)))
    }

    fn new(first: u128, size: u128) -> Self {
        Range { first, size: size.min(LARGEST) as u32 }
    }

    /// Returns the number of addresses or prefixes.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the address at an index, which must be below the size.
    pub fn ipv4_at(&self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from((self.first + u128::from(index)) as u32)
    }

    /// Returns the prefix at an index, which must be below the size.
    pub fn ipv6_at(&self, index: u32) -> Ipv6Addr {
        Ipv6Addr::from((self.first + u128::from(index)) << 64)
    }

    /// Returns the index of an address, if it is in the range.
    pub fn index_of_ipv4(&self, address: Ipv4Addr) -> Option<u32> {
        self.index(u32::from(address).into())
    }

    /// Returns the index of a prefix, if it is in the range.
    pub fn index_of_ipv6(&self, prefix: Ipv6Addr) -> Option<u32> {
        self.index(u128::from(prefix) >> 64)
    }

    fn index(&self, number: u128) -> Option<u32> {
        let offset = number.checked_sub(self.first).filter(|offset| *offset < self.size.into())?;
        u32::try_from(offset).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_but_three_has_a_position() {
        let range = Range::ipv4(Ipv4Addr::new(10, 45, 0, 77), 24);
        assert_eq!(range.size(), 253);
        let all: Vec<_> = (0..range.size()).map(|n| range.ipv4_at(n)).collect();
        assert_eq!((all[0], all[252]), (Ipv4Addr::new(10, 45, 0, 2), Ipv4Addr::new(10, 45, 0, 254)));
        assert!(all.iter().zip(0..).all(|(a, n)| range.index_of_ipv4(*a) == Some(n)));
        for outside in [[10, 45, 0, 1], [10, 45, 0, 255], [10, 44, 255, 255], [10, 45, 1, 2]] {
            assert_eq!(range.index_of_ipv4(outside.into()), None);
        }
    }

    #[test]
    fn prefixes_are_64_bits_long() {
        let range = Range::ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 62);
        let prefix = |n: u16| Ipv6Addr::new(0x2001, 0xdb8, 0x45, n, 0, 0, 0, 0);
        assert_eq!(range.size(), 3);
        for n in 0..3 {
            assert_eq!((range.ipv6_at(n), range.index_of_ipv6(prefix(n as u16 + 1))), (prefix(n as u16 + 1), Some(n)));
        }
        assert_eq!((range.index_of_ipv6(prefix(0)), range.index_of_ipv6(prefix(4))), (None, None));
    }

    #[test]
    fn range_ends_before_static_addresses() {
        let pool = Range::ipv4(Ipv4Addr::new(10, 45, 0, 0), 24);
        let fixed = Range::ipv4_but_last(Ipv4Addr::new(10, 45, 0, 192), 26);
        assert_eq!((pool.before(None), pool.before(Some(fixed)).size()), (pool, 190));
        assert_eq!(pool.before(Some(fixed)).index_of_ipv4([10, 45, 0, 192].into()), None);
        assert_eq!(fixed.index_of_ipv4([10, 45, 0, 192].into()), Some(0));
        assert_eq!(fixed.index_of_ipv4([10, 45, 0, 255].into()), None, "the broadcast address");
        let whole = Range::ipv4_but_last(Ipv4Addr::new(10, 45, 0, 0), 24);
        assert_eq!(pool.before(Some(whole)).size(), 0);
        let prefixes = Range::ipv6("2001:db8:45::".parse().expect("a prefix"), 62);
        let fixed = Range::ipv6_whole("2001:db8:45:2::".parse().expect("a prefix"), 63);
        assert_eq!((prefixes.before(Some(fixed)).size(), fixed.size()), (1, 2));
    }

    #[test]
    fn address_pool_size_is_bounded_by_network() {
        for length in 31..=32 {
            assert_eq!(Range::ipv4(Ipv4Addr::new(10, 45, 0, 0), length).size(), 0);
        }
        assert_eq!(Range::ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 64).size(), 0);
        assert_eq!(u128::from(Range::ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32).size()), LARGEST);
    }
}
