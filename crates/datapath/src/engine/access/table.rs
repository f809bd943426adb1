//! Address table of the access checks, which workers and the kernel program read without a lock.
//!
//! `bpf/access.h` has the same layout. An address is in a bucket of one cache line, or in one of
//! the next if that is full. The hash has a random key ([`HashKey`]), so that no peer can choose
//! addresses of one bucket. A prefix is in a short list, which is searched only for addresses that
//! share its first 16 bits. So an address that is in neither costs two bit tests.
//!
//! There is one writer. A slot is never emptied: its flags become 0, and another address may reuse
//! it. The flags are written last, so a reader sees an address with the right flags or with none.

use crate::network::Network;
use crate::sys::shared::Shared;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A cache line of the table.
pub(crate) type Line = [AtomicU64; 8];

/// No UE may send to the address.
pub(crate) const PROTECTED: u32 = 1;
/// G-PDUs from the address are permitted.
pub(crate) const RAN: u32 = 2;

// Layout in lines: `bpf/access.h`.
pub(crate) const BUCKETS: usize = 8192;
const OCCUPIED: usize = BUCKETS;
const SHARED_V4: usize = OCCUPIED + BUCKETS / BITS;
const SHARED_V6: usize = SHARED_V4 + (1 << 16) / BITS;
const PREFIX: usize = SHARED_V6 + (1 << 16) / BITS;
const COUNT: usize = PREFIX + PREFIXES;
/// Number of lines of the table. The last one has the number of prefixes and the key of the hash.
pub(crate) const LINES: usize = COUNT + 1;

/// Bits of a line.
const BITS: usize = 512;
/// Addresses in one bucket.
const SLOTS: usize = 3;
/// Upper bound of slot numbers ([`SourceEntry::Node`]).
pub(crate) const PLACES: usize = BUCKETS * SLOTS + 1;
/// Maximum number of buckets searched for an address.
const PROBES: usize = 8;
/// Maximum number of slots searched for an address.
#[cfg(test)]
pub(crate) const SEARCHED: usize = PROBES * SLOTS;
/// Maximum number of prefixes.
pub(crate) const PREFIXES: usize = 64;
/// Maximum number of addresses. All of them find a slot with 999 of 1,000 keys; with the others one
/// address does not.
pub(crate) const ADDRESSES: usize = BUCKETS;

/// An address in the form of the table: IPv4 addresses are mapped (RFC 4291 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    high: u64,
    low: u64,
}

/// The part in the lower word of the upper 96 bits of a mapped IPv4 address.
const MAPPED: u64 = 0xffff << 32;

impl Bits {
    #[inline]
    pub(crate) fn v4(address: u32) -> Self {
        Bits { high: 0, low: MAPPED | u64::from(address) }
    }

    #[inline]
    pub(crate) fn v6(address: u128) -> Self {
        Bits { high: (address >> 64) as u64, low: address as u64 }
    }

    #[inline]
    pub(crate) fn from_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Bits::v4(v4.to_bits()),
            IpAddr::V6(v6) => Bits::v6(v6.to_bits()),
        }
    }

    fn to_address(self) -> IpAddr {
        match self.is_v4() {
            true => Ipv4Addr::from_bits(self.low as u32).into(),
            false => Ipv6Addr::from_bits(u128::from(self.high) << 64 | u128::from(self.low)).into(),
        }
    }

    #[inline]
    fn is_v4(self) -> bool {
        self.high == 0 && self.low >> 32 == MAPPED >> 32
    }

    /// Returns the first line of the address family, and the bit of the first 16 address bits.
    #[inline]
    fn shared(self) -> (usize, usize) {
        match self.is_v4() {
            true => (SHARED_V4, (self.low >> 16 & 0xffff) as usize),
            false => (SHARED_V6, (self.high >> 48) as usize),
        }
    }
}

/// Key of the hash that selects the bucket of an address: two random odd numbers. The memory of the
/// table holds it for all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashKey(pub(crate) [u64; 2]);

impl HashKey {
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        HashKey([0, 1].map(|n| random.hash_one(n) | 1))
    }

    /// Stores the key in the memory of a table.
    pub(crate) fn store(self, lines: &Shared<Line>) -> Self {
        let words = &lines[COUNT][1..];
        words.iter().zip(self.0).for_each(|(word, key)| word.store(key, Release));
        self
    }

    /// Returns the key in the memory of a table. `None` = the memory is new.
    fn stored(lines: &Shared<Line>) -> Option<Self> {
        let key = [1, 2].map(|word| lines[COUNT][word].load(Acquire));
        (key != [0, 0]).then_some(HashKey(key))
    }

    /// Returns the bucket of an address. `bucket_of` of `bpf/access.h` is the same.
    #[inline]
    fn bucket(self, Bits { high, low }: Bits) -> usize {
        const LAST: u64 = 0xbf58_476d_1ce4_e5b9;
        let HashKey([first, second]) = self;
        let hash = (high.wrapping_mul(first) ^ low).wrapping_mul(second);
        ((hash ^ hash >> 32).wrapping_mul(LAST) >> (64 - BUCKETS.ilog2())) as usize
    }
}

/// Result of looking up the source of a G-PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceEntry {
    /// Neither a known address nor in a prefix.
    Unknown,
    /// In a RAN prefix.
    Prefix,
    /// Address of a RAN node, with its slot number, from 1.
    Node(u32),
}

/// The address table; see the Rust module.
#[derive(Debug)]
pub(crate) struct AddressTable {
    lines: Shared<Line>,
    key: HashKey,
}

impl AddressTable {
    /// Creates the table in memory of [`LINES`] lines, or maps one of another process.
    pub(crate) fn over(lines: Shared<Line>) -> Self {
        let key = HashKey::stored(&lines).unwrap_or_else(|| HashKey::random().store(&lines));
        AddressTable { lines, key }
    }

    /// Returns the first bucket in which an address is searched.
    #[inline]
    pub(crate) fn bucket(&self, address: Bits) -> usize {
        self.key.bucket(address)
    }

    #[inline]
    fn word(&self, line: usize, word: usize) -> Option<&AtomicU64> {
        self.lines.get(line)?.get(word)
    }

    #[inline]
    fn bit(&self, first: usize, bit: usize) -> bool {
        let word = self.word(first + bit / BITS, bit / 64 % 8);
        word.is_some_and(|word| word.load(Acquire) >> (bit % 64) & 1 == 1)
    }

    /// Returns true if no UE may send to the address.
    #[inline]
    pub(crate) fn is_protected(&self, to: Bits) -> bool {
        let (family, bit) = to.shared();
        if !self.bit(OCCUPIED, self.bucket(to)) && !self.bit(family, bit) {
            return false;
        }
        self.looks_protected(to)
    }

    #[cold]
    fn looks_protected(&self, to: Bits) -> bool {
        let exact = self.find(to).map_or(0, |(_, flags)| flags);
        (exact | self.prefix_flags(to)) & PROTECTED != 0
    }

    /// Looks up the source of a G-PDU.
    #[inline]
    pub(crate) fn source(&self, from: Bits) -> SourceEntry {
        match self.find(from) {
            Some((place, flags)) if flags & RAN != 0 => SourceEntry::Node(place),
            _ if self.is_in_ran(from) => SourceEntry::Prefix,
            _ => SourceEntry::Unknown,
        }
    }

    /// Returns true if the address is in a RAN prefix.
    #[inline]
    pub(crate) fn is_in_ran(&self, from: Bits) -> bool {
        let (family, bit) = from.shared();
        self.bit(family, bit) && self.prefix_flags(from) & RAN != 0
    }

    /// Returns the slot number of an address, from 1, and its flags.
    #[inline]
    fn find(&self, address: Bits) -> Option<(u32, u32)> {
        let mut bucket = self.bucket(address);
        for _ in 0..PROBES {
            let line = self.lines.get(bucket)?;
            for slot in 0..SLOTS {
                let (high, low) = (line[2 * slot].load(Acquire), line[2 * slot + 1].load(Acquire));
                if high == address.high && low == address.low {
                    let flags = (line[6 + slot / 2].load(Acquire) >> (32 * (slot % 2))) as u32;
                    return (flags != 0).then_some(((bucket * SLOTS + slot + 1) as u32, flags));
                }
                if high | low == 0 {
                    return None;
                }
            }
            bucket = (bucket + 1) % BUCKETS;
        }
        None
    }

    #[cold]
    fn prefix_flags(&self, address: Bits) -> u32 {
        let count = self.word(COUNT, 0).map_or(0, |count| count.load(Acquire)) as usize;
        let lines = (0..count.min(PREFIXES)).filter_map(|n| self.lines.get(PREFIX + n));
        let has = |line: &&Line| {
            let [high, low, high_mask, low_mask, _, v4, ..] = line;
            v4.load(Acquire) == u64::from(address.is_v4())
                && address.high & high_mask.load(Acquire) == high.load(Acquire)
                && address.low & low_mask.load(Acquire) == low.load(Acquire)
        };
        lines.filter(has).fold(0, |flags, line| flags | line[4].load(Acquire) as u32)
    }

    /// Sets the flags of an address. 0 removes it. Returns false if no slot is free. The
    /// unspecified address is not stored: it marks free slots.
    pub(crate) fn set(&self, address: Bits, flags: u32) -> bool {
        if address.high | address.low == 0 {
            return true;
        }
        let mut free = None;
        let mut bucket = self.bucket(address);
        'search: for _ in 0..PROBES {
            let Some(line) = self.lines.get(bucket) else { return false };
            for slot in 0..SLOTS {
                let now = [2 * slot, 2 * slot + 1].map(|word| line[word].load(Relaxed));
                if now == [address.high, address.low] {
                    Self::set_flags(line, slot, flags);
                    return true;
                }
                let unused = line[6 + slot / 2].load(Relaxed) >> (32 * (slot % 2)) as u32 & 0xffff_ffff == 0;
                if unused && free.is_none() {
                    free = Some((bucket, slot));
                }
                if now == [0, 0] {
                    break 'search;
                }
            }
            bucket = (bucket + 1) % BUCKETS;
        }
        if flags == 0 {
            return true;
        }
        let Some((bucket, slot)) = free else { return false };
        let line = &self.lines[bucket];
        line[2 * slot].store(address.high, Release);
        line[2 * slot + 1].store(address.low, Release);
        Self::set_flags(line, slot, flags);
        self.mark(OCCUPIED, self.bucket(address));
        true
    }

    /// Returns the addresses in the buckets in which an address is searched.
    pub(crate) fn neighbours(&self, address: Bits) -> impl Iterator<Item = IpAddr> {
        let first = self.bucket(address);
        let lines = (0..PROBES).filter_map(move |n| self.lines.get((first + n) % BUCKETS));
        let slots = lines.flat_map(|line| (0..SLOTS).map(move |slot| (&line[2 * slot], &line[2 * slot + 1])));
        slots.map(|(high, low)| Bits { high: high.load(Relaxed), low: low.load(Relaxed) }.to_address())
    }

    fn set_flags(line: &Line, slot: usize, flags: u32) {
        let (word, shift) = (&line[6 + slot / 2], 32 * (slot % 2));
        let others = word.load(Relaxed) & !(0xffff_ffff << shift);
        word.store(others | u64::from(flags) << shift, Release);
    }

    fn mark(&self, first: usize, bit: usize) {
        if let Some(word) = self.word(first + bit / BITS, bit / 64 % 8) {
            word.store(word.load(Relaxed) | 1 << (bit % 64), Release);
        }
    }

    /// Replaces the prefixes and ignores those beyond [`PREFIXES`]. A prefix with an unchanged
    /// position stays in force throughout.
    pub(crate) fn set_prefixes(&self, prefixes: &[(Network, u32)]) {
        let mut bits = vec![0_u64; 2 * (1 << 16) / 64];
        let prefixes = &prefixes[..prefixes.len().min(PREFIXES)];
        for (n, (network, flags)) in prefixes.iter().enumerate() {
            let (value, mask) = masked(*network);
            let line = &self.lines[PREFIX + n];
            let v4 = u64::from(network.address.is_ipv4());
            let words = [value.high, value.low, mask.high, mask.low, u64::from(*flags), v4];
            if line.iter().zip(words).any(|(word, new)| word.load(Relaxed) != new) {
                line[4].store(0, Release);
                line.iter().zip(words).for_each(|(word, new)| word.store(new, Release));
            }
            let (family, first) = value.shared();
            let base = if family == SHARED_V4 { 0 } else { 1 << 16 };
            let width = 16_usize.saturating_sub(network.length.into());
            for bit in first..first + (1 << width) {
                bits[(base + bit) / 64] |= 1 << (bit % 64);
            }
        }
        // Bits are set before the count that needs them, and cleared after it.
        let all = || (SHARED_V4..PREFIX).flat_map(|line| self.lines[line].iter()).zip(&bits);
        all().for_each(|(word, bits)| word.store(word.load(Relaxed) | bits, Release));
        self.lines[COUNT][0].store(prefixes.len() as u64, Release);
        all().for_each(|(word, bits)| word.store(*bits, Release));
    }
}

/// Returns the bits of a prefix, and its mask.
fn masked(network: Network) -> (Bits, Bits) {
    let (address, length) = match network.address {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 96 + u32::from(network.length.min(32))),
        IpAddr::V6(v6) => (v6, network.length.min(128).into()),
    };
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    (Bits::v6(address.to_bits() & mask), Bits::v6(mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn table() -> AddressTable {
        AddressTable::over(Shared::private(LINES))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn network(text: &str) -> Network {
        let (address, length) = text.split_once('/').expect("a prefix");
        Network { address: ip(address), length: length.parse().expect("a length") }
    }

    #[test]
    fn addresses_and_prefixes_are_found() {
        let table = table();
        let addresses = ["192.0.2.1", "2001:db8::1", "2001:db8::", "::1", "0.0.0.1"];
        for address in addresses {
            assert!(!table.is_protected(Bits::from_address(ip(address))), "{address}");
            assert!(table.set(Bits::from_address(ip(address)), PROTECTED), "{address}");
            assert!(table.is_protected(Bits::from_address(ip(address))), "{address}");
            assert_eq!(table.source(Bits::from_address(ip(address))), SourceEntry::Unknown, "{address}");
        }
        table.set_prefixes(&[
            (network("127.0.0.0/8"), PROTECTED),
            (network("10.20.30.0/24"), RAN),
            (network("ff00::/8"), PROTECTED),
            (network("2001:db8:5::/48"), PROTECTED | RAN),
        ]);
        for address in ["127.0.0.0", "127.255.255.255", "ff02::1", "ffff::", "2001:db8:5::7"] {
            assert!(table.is_protected(Bits::from_address(ip(address))), "{address}");
        }
        for address in ["126.255.255.255", "128.0.0.0", "10.20.30.7", "2001:db8:6::7", "fe80::1", "::ff00:1"] {
            assert!(!table.is_protected(Bits::from_address(ip(address))), "{address}");
        }
        assert_eq!(table.source(Bits::from_address(ip("10.20.30.7"))), SourceEntry::Prefix);
        assert_eq!(table.source(Bits::from_address(ip("10.20.31.7"))), SourceEntry::Unknown);
        table.set_prefixes(&[(network("127.0.0.0/8"), PROTECTED)]);
        assert!(
            table.is_protected(Bits::from_address(ip("127.0.0.1")))
                && !table.is_protected(Bits::from_address(ip("ff02::1")))
        );
        table.set_prefixes(&[(network("0.0.0.0/0"), RAN), (network("::/0"), RAN)]);
        for address in ["0.0.0.0", "203.0.113.9", "255.255.255.255", "::1", "ffff::1", "2001:db8::9"] {
            assert_eq!(table.source(Bits::from_address(ip(address))), SourceEntry::Prefix, "{address}");
        }
    }

    #[test]
    fn slot_names_one_address_while_in_use() {
        let table = table();
        let (first, second) = (Bits::from_address(ip("192.0.2.1")), Bits::from_address(ip("192.0.2.2")));
        assert!(table.set(first, RAN) && table.set(second, RAN | PROTECTED));
        let (SourceEntry::Node(a), SourceEntry::Node(b)) = (table.source(first), table.source(second)) else {
            panic!("both are there")
        };
        assert!(a != b && a > 0 && b > 0 && (a.max(b) as usize) < 1 << 15);
        assert!(table.set(first, 0));
        assert_eq!((table.source(first), table.source(second)), (SourceEntry::Unknown, SourceEntry::Node(b)));
        assert!(table.set(first, RAN));
        assert_eq!(table.source(first), SourceEntry::Node(a), "its old place");
    }

    #[test]
    fn as_many_addresses_as_are_allowed_find_a_place() {
        let lines = Shared::private(LINES);
        HashKey([0x9e37_79b9_7f4a_7c15, 0x94d0_49bb_1331_11eb]).store(&lines);
        let table = AddressTable::over(lines);
        let address = |n: u32| Bits::from_address(Ipv4Addr::from_bits(0x0a00_0000 + n).into());
        assert!((0..ADDRESSES as u32).all(|n| table.set(address(n), RAN)));
        assert!((0..ADDRESSES as u32).all(|n| matches!(table.source(address(n)), SourceEntry::Node(_))));
        // All addresses are replaced by as many others, repeatedly.
        for round in 1..4 {
            for n in 0..ADDRESSES as u32 {
                assert!(table.set(address((round - 1) * 10_000 + n), 0));
                assert!(table.set(address(round * 10_000 + n), RAN), "round {round}, {n}");
            }
        }
    }

    /// Addresses of one bucket of a table are in different buckets after the next start.
    #[test]
    fn buckets_cannot_be_chosen() {
        let (known, other) = (table(), table());
        let address = |n: u32| Bits::from_address(Ipv4Addr::from_bits(0x0a00_0000 + n).into());
        let bucket = known.bucket(address(0));
        let chosen: Vec<Bits> =
            (0..).map(address).filter(|bits| known.bucket(*bits) == bucket).take(SEARCHED + 1).collect();
        let fit = |table: &AddressTable| chosen.iter().filter(|bits| table.set(**bits, RAN)).count();
        assert_eq!((fit(&known), fit(&other)), (SEARCHED, chosen.len()));
        let mapped = AddressTable::over(known.lines);
        assert_eq!((mapped.key, mapped.key == other.key), (known.key, false), "that of the memory");
    }

    proptest! {
        #[test]
        fn table_behaves_like_map(changes in proptest::collection::vec((0..200_u32, 0..4_u32, any::<bool>()), 0..400)) {
            let table = table();
            let mut map = HashMap::new();
            let address = |n: u32, v6: bool| match v6 {
                false => IpAddr::V4(Ipv4Addr::from_bits(n)),
                true => IpAddr::V6(Ipv6Addr::from_bits(u128::from(n) << 64 | u128::from(n % 3))),
            };
            for (n, flags, v6) in changes {
                prop_assert!(table.set(Bits::from_address(address(n, v6)), flags));
                map.insert((n, v6), flags);
            }
            for n in 0..200 {
                for v6 in [false, true] {
                    // The unspecified address is not stored.
                    if n == 0 && v6 {
                        continue;
                    }
                    let flags = map.get(&(n, v6)).copied().unwrap_or(0);
                    let bits = Bits::from_address(address(n, v6));
                    prop_assert_eq!(table.is_protected(bits), flags & PROTECTED != 0);
                    prop_assert_eq!(table.source(bits) != SourceEntry::Unknown, flags & RAN != 0);
                }
            }
        }
    }
}
