//! The pools that UE addresses are taken from: one bit per address, grown as far as it is used, so a /8 takes 2 MiB at
//! the most. An address that is given back is the last one to be taken again.
//!
//! Plain data: whoever shares a pool among threads or hosts guards and divides it. What is in use is not stored here
//! but in the sessions, and [`AddressPools::reserve`] brings it back after a restart.

use crate::config::DnnConfig;
use std::net::{Ipv4Addr, Ipv6Addr};
use vireo_types::{Dnn, PduSessionType, SessionAddress};

/// Addresses that one pool serves at the most; a larger network is used up to here.
const LARGEST: u128 = 1 << 24;

/// The pools of all data networks.
#[derive(Clone, Debug, Default)]
pub struct AddressPools {
    networks: Vec<Network>,
}

#[derive(Clone, Debug)]
struct Network {
    dnn: Dnn,
    ipv4: Pool,
    ipv6: Pool,
}

/// How full the pools of a data network are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// IPv4 addresses in use.
    pub ipv4_used: u32,
    /// IPv4 addresses there are.
    pub ipv4_size: u32,
    /// IPv6 prefixes in use.
    pub ipv6_used: u32,
    /// IPv6 prefixes there are.
    pub ipv6_size: u32,
}

impl AddressPools {
    /// The pools of these data networks, all free. Of an IPv4 network its own address, the first one (the gateway) and
    /// the broadcast address are left out, of an IPv6 network the first /64 (the gateway's).
    pub fn new(dnns: &[DnnConfig]) -> Self {
        let network = |config: &DnnConfig| Network {
            dnn: config.name.clone(),
            ipv4: config.ipv4_pool.map_or_else(Pool::default, |(address, length)| Pool::ipv4(address, length)),
            ipv6: config.ipv6_pool.map_or_else(Pool::default, |(address, length)| Pool::ipv6(address, length)),
        };
        AddressPools { networks: dnns.iter().map(network).collect() }
    }

    /// Takes addresses for a session of this type; `None` if one that is needed cannot be had.
    pub fn allocate(&mut self, dnn: &Dnn, kind: PduSessionType) -> Option<SessionAddress> {
        let network = self.network(dnn)?;
        let ipv4 = if kind == PduSessionType::Ipv6 { None } else { Some(network.ipv4.take()?) };
        if kind == PduSessionType::Ipv4 {
            return Some(SessionAddress { ipv4: ipv4.map(ipv4_of), ipv6_prefix: None });
        }
        let Some(prefix) = network.ipv6.take() else {
            ipv4.map(|taken| network.ipv4.give_back(taken));
            return None;
        };
        Some(SessionAddress { ipv4: ipv4.map(ipv4_of), ipv6_prefix: Some(Ipv6Addr::from(prefix << 64)) })
    }

    /// Gives a session's addresses back; `false` if one of them was not in use.
    pub fn free(&mut self, dnn: &Dnn, address: &SessionAddress) -> bool {
        self.each(dnn, address, Pool::give_back)
    }

    /// Takes these very addresses, for a session that has them already or is to have them; `false` if one of them is
    /// in use or in no pool (the other one is taken all the same).
    pub fn reserve(&mut self, dnn: &Dnn, address: &SessionAddress) -> bool {
        self.each(dnn, address, Pool::take_this)
    }

    /// How full the pools of a data network are.
    pub fn usage(&self, dnn: &Dnn) -> PoolUse {
        let found = self.networks.iter().find(|network| network.dnn == *dnn);
        found.map_or_else(PoolUse::default, |network| PoolUse {
            ipv4_used: network.ipv4.used,
            ipv4_size: network.ipv4.size,
            ipv6_used: network.ipv6.used,
            ipv6_size: network.ipv6.size,
        })
    }

    fn network(&mut self, dnn: &Dnn) -> Option<&mut Network> {
        self.networks.iter_mut().find(|network| network.dnn == *dnn)
    }

    fn each(&mut self, dnn: &Dnn, address: &SessionAddress, act: fn(&mut Pool, u128) -> bool) -> bool {
        let Some(network) = self.network(dnn) else {
            return false;
        };
        let ipv4 = address.ipv4.is_none_or(|a| act(&mut network.ipv4, u32::from(a).into()));
        let ipv6 = address.ipv6_prefix.is_none_or(|a| act(&mut network.ipv6, u128::from(a) >> 64));
        ipv4 && ipv6
    }
}

fn ipv4_of(number: u128) -> Ipv4Addr {
    Ipv4Addr::from(number as u32)
}

/// The numbers of a pool, without saying which of them are in use: IPv4 addresses, or the upper halves of IPv6 ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    first: u128,
    size: u32,
}

impl Range {
    /// The addresses of an IPv4 network without its own, the gateway's and the broadcast address.
    pub fn ipv4(address: Ipv4Addr, length: u8) -> Self {
        let host_bits = 32 - u32::from(length.min(32));
        let network = u128::from(u32::from(address)) >> host_bits << host_bits;
        Range::new(network + 2, (1_u128 << host_bits).saturating_sub(3))
    }

    /// The /64 prefixes of an IPv6 network without the first, the gateway's.
    pub fn ipv6(address: Ipv6Addr, length: u8) -> Self {
        let subnet_bits = 64 - u32::from(length.min(64));
        let network = u128::from(address) >> 64 >> subnet_bits << subnet_bits;
        Range::new(network + 1, (1_u128 << subnet_bits).saturating_sub(1))
    }

    fn new(first: u128, size: u128) -> Self {
        Range { first, size: size.min(LARGEST) as u32 }
    }

    /// How many there are.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The address at a position, which is below the size.
    pub fn ipv4_at(&self, index: u32) -> Ipv4Addr {
        ipv4_of(self.first + u128::from(index))
    }

    /// The prefix at a position, which is below the size.
    pub fn ipv6_at(&self, index: u32) -> Ipv6Addr {
        Ipv6Addr::from((self.first + u128::from(index)) << 64)
    }

    /// The position of an address, if it is in the range.
    pub fn index_of_ipv4(&self, address: Ipv4Addr) -> Option<u32> {
        self.index(u32::from(address).into())
    }

    /// The position of a prefix, if it is in the range.
    pub fn index_of_ipv6(&self, prefix: Ipv6Addr) -> Option<u32> {
        self.index(u128::from(prefix) >> 64)
    }

    fn index(&self, number: u128) -> Option<u32> {
        let offset = number.checked_sub(self.first).filter(|offset| *offset < self.size.into())?;
        u32::try_from(offset).ok()
    }
}

/// Consecutive numbers (IPv4 addresses, or the upper halves of IPv6 ones) that are free or in use.
#[derive(Clone, Debug, Default)]
struct Pool {
    /// The first number.
    first: u128,
    /// How many there are.
    size: u32,
    /// How many are in use.
    used: u32,
    /// Where the search for a free one begins: after the one taken last.
    cursor: u32,
    bits: Bitmap,
}

impl Pool {
    fn ipv4(address: Ipv4Addr, length: u8) -> Self {
        Pool::of(Range::ipv4(address, length))
    }

    fn ipv6(address: Ipv6Addr, length: u8) -> Self {
        Pool::of(Range::ipv6(address, length))
    }

    fn of(range: Range) -> Self {
        Pool { first: range.first, size: range.size, ..Pool::default() }
    }

    fn take(&mut self) -> Option<u128> {
        if self.used == self.size {
            return None;
        }
        let ahead = self.bits.first_clear(self.cursor);
        let index = if ahead < self.size { ahead } else { self.bits.first_clear(0) };
        self.bits.set(index);
        self.used += 1;
        self.cursor = if index + 1 < self.size { index + 1 } else { 0 };
        Some(self.first + u128::from(index))
    }

    fn take_this(&mut self, number: u128) -> bool {
        let free = self.index(number).filter(|index| !self.bits.get(*index));
        if let Some(index) = free {
            self.bits.set(index);
            self.used += 1;
        }
        free.is_some()
    }

    fn give_back(&mut self, number: u128) -> bool {
        let used = self.index(number).filter(|index| self.bits.get(*index));
        if let Some(index) = used {
            self.bits.clear(index);
            self.used -= 1;
        }
        used.is_some()
    }

    fn index(&self, number: u128) -> Option<u32> {
        Range { first: self.first, size: self.size }.index(number)
    }
}

/// Bits in words of 64; above them one bit per word that is full, twice, so that a clear bit is found in three steps
/// and a short scan. What lies beyond the words is clear.
#[derive(Clone, Debug, Default)]
struct Bitmap {
    levels: [Vec<u64>; 3],
}

const WORD: u32 = 64;

impl Bitmap {
    fn get(&self, index: u32) -> bool {
        self.levels[0].get((index / WORD) as usize).is_some_and(|word| word >> (index % WORD) & 1 != 0)
    }

    fn set(&mut self, mut index: u32) {
        for words in &mut self.levels {
            let at = (index / WORD) as usize;
            if at >= words.len() {
                words.resize(at + 1, 0);
            }
            words[at] |= 1 << (index % WORD);
            if words[at] != u64::MAX {
                return;
            }
            index /= WORD;
        }
    }

    fn clear(&mut self, mut index: u32) {
        for words in &mut self.levels {
            if let Some(word) = words.get_mut((index / WORD) as usize) {
                *word &= !(1 << (index % WORD));
            }
            index /= WORD;
        }
    }

    /// The first clear bit from `from` on.
    fn first_clear(&self, from: u32) -> u32 {
        self.first_clear_at(0, from)
    }

    fn first_clear_at(&self, level: usize, from: u32) -> u32 {
        let Some(words) = self.levels.get(level) else {
            // Above the last level: the words of the last one are looked at one by one.
            let scanned = self.levels[level - 1].iter().skip(from as usize).take_while(|word| **word == u64::MAX);
            return from + scanned.count() as u32;
        };
        let at = from / WORD;
        let clear_in = |at: u32, from: u32| {
            let word = words.get(at as usize).copied().unwrap_or(0);
            let clear = !word & (u64::MAX << from);
            (clear != 0).then(|| at * WORD + clear.trailing_zeros())
        };
        clear_in(at, from % WORD).unwrap_or_else(|| {
            let next = self.first_clear_at(level + 1, at + 1);
            clear_in(next, 0).unwrap_or(next * WORD)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn pools(ipv4: Option<(&str, u8)>, ipv6: Option<(&str, u8)>) -> (AddressPools, Dnn) {
        let name: Dnn = "internet".parse().expect("a DNN");
        let config = DnnConfig {
            name: name.clone(),
            slices: Vec::new(),
            types: Vec::new(),
            ipv4_pool: ipv4.map(|(a, length)| (a.parse().expect("an address"), length)),
            ipv6_pool: ipv6.map(|(a, length)| (a.parse().expect("an address"), length)),
            dns: Vec::new(),
            mtu: 1400,
        };
        (AddressPools::new(&[config]), name)
    }

    fn v4(address: &str) -> SessionAddress {
        SessionAddress { ipv4: Some(address.parse().expect("an address")), ipv6_prefix: None }
    }

    #[test]
    fn every_address_but_three_is_given_once_and_then_no_more() {
        let (mut pools, dnn) = pools(Some(("10.45.0.77", 24)), None);
        let given: Vec<_> = std::iter::from_fn(|| pools.allocate(&dnn, PduSessionType::Ipv4)).collect();
        let distinct: HashSet<_> = given.iter().collect();
        assert_eq!((given.len(), distinct.len()), (253, 253));
        assert_eq!((given[0], given[252]), (v4("10.45.0.2"), v4("10.45.0.254")));
        assert_eq!(pools.usage(&dnn), PoolUse { ipv4_used: 253, ipv4_size: 253, ipv6_used: 0, ipv6_size: 0 });
        assert!(pools.free(&dnn, &given[100]) && !pools.free(&dnn, &given[100]));
        assert_eq!(pools.allocate(&dnn, PduSessionType::Ipv4), Some(given[100]));
        assert_eq!(pools.allocate(&dnn, PduSessionType::Ipv4), None);
    }

    #[test]
    fn a_freed_address_is_the_last_to_come_back() {
        let (mut pools, dnn) = pools(Some(("10.45.0.0", 28)), None);
        let first = pools.allocate(&dnn, PduSessionType::Ipv4).expect("a free pool");
        pools.free(&dnn, &first);
        let next: Vec<_> = (0..13).map(|_| pools.allocate(&dnn, PduSessionType::Ipv4)).collect();
        assert_eq!(next.iter().position(|a| *a == Some(first)), Some(12));
    }

    #[test]
    fn prefixes_are_64_bits_long_and_both_kinds_come_together_or_not_at_all() {
        let (mut pools, dnn) = pools(Some(("10.45.0.0", 24)), Some(("2001:db8:45::", 62)));
        let prefix = |n: u16| Some(Ipv6Addr::new(0x2001, 0xdb8, 0x45, n, 0, 0, 0, 0));
        for n in 1..=3 {
            let given = pools.allocate(&dnn, PduSessionType::Ipv4v6).expect("a prefix is left");
            assert_eq!((given.ipv4.is_some(), given.ipv6_prefix), (true, prefix(n)));
        }
        assert_eq!(pools.allocate(&dnn, PduSessionType::Ipv4v6), None);
        assert_eq!(pools.allocate(&dnn, PduSessionType::Ipv6), None);
        assert_eq!(pools.usage(&dnn).ipv4_used, 3, "the IPv4 address of the refused one is free again");
        assert!(pools.free(&dnn, &SessionAddress { ipv4: None, ipv6_prefix: prefix(2) }));
        let again = pools.allocate(&dnn, PduSessionType::Ipv6).expect("one was freed");
        assert_eq!((again.ipv4, again.ipv6_prefix), (None, prefix(2)));
    }

    #[test]
    fn what_sessions_have_is_reserved_after_a_restart() {
        let (mut pools, dnn) = pools(Some(("10.45.0.0", 29)), None);
        assert!(pools.reserve(&dnn, &v4("10.45.0.3")) && !pools.reserve(&dnn, &v4("10.45.0.3")));
        for outside in ["10.45.0.0", "10.45.0.1", "10.45.0.7", "10.45.0.8", "10.44.255.255"] {
            assert!(!pools.reserve(&dnn, &v4(outside)), "{outside}");
        }
        let rest: Vec<_> = std::iter::from_fn(|| pools.allocate(&dnn, PduSessionType::Ipv4)).collect();
        assert_eq!(rest, ["10.45.0.2", "10.45.0.4", "10.45.0.5", "10.45.0.6"].map(v4));
    }

    #[test]
    fn no_pool_and_pools_too_small_give_nothing() {
        for length in 31..=32 {
            let (mut pools, dnn) = pools(Some(("10.45.0.0", length)), Some(("2001:db8::", 64)));
            assert_eq!(pools.allocate(&dnn, PduSessionType::Ipv4), None);
            assert_eq!(pools.allocate(&dnn, PduSessionType::Ipv6), None);
        }
        let (mut pools, dnn) = pools(None, None);
        assert_eq!(pools.allocate(&dnn, PduSessionType::Ipv4v6), None);
        assert_eq!(pools.allocate(&"other".parse().expect("a DNN"), PduSessionType::Ipv4), None);
    }

    #[test]
    fn a_whole_class_a_network_is_served_within_two_and_a_bit_mebibytes() {
        let mut pool = Pool::ipv4(Ipv4Addr::new(10, 0, 0, 0), 8);
        assert!((0..pool.size).all(|n| pool.take() == Some(0x0a00_0002 + u128::from(n))));
        assert_eq!(pool.take(), None);
        let words: usize = pool.bits.levels.iter().map(Vec::len).sum();
        assert!(words * 8 < 2_200_000, "{words} words");
        // The only free one is found wherever the search begins.
        for number in [0x0aff_fffe, 0x0a00_0002, 0x0a7f_1234] {
            assert!(pool.give_back(number));
            assert_eq!(pool.take(), Some(number));
        }
    }

    proptest! {
        #[test]
        fn a_pool_agrees_with_a_set(size in 1..400_u32, acts in prop::collection::vec((0..3_u8, 0..420_u32), 0..900)) {
            let mut pool = Pool::of(Range::new(1000, size.into()));
            let mut model = HashSet::new();
            for (act, n) in acts {
                let number = 1000 + u128::from(n);
                match act {
                    0 => match pool.take() {
                        Some(taken) => prop_assert!((1000..1000 + u128::from(size)).contains(&taken) && model.insert(taken)),
                        None => prop_assert_eq!(model.len(), size as usize),
                    },
                    1 => prop_assert_eq!(pool.give_back(number), model.remove(&number)),
                    _ => prop_assert_eq!(pool.take_this(number), n < size && model.insert(number)),
                }
                prop_assert_eq!(pool.used as usize, model.len());
            }
        }
    }
}
