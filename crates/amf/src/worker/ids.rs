//! Identifiers for steps, allocated from the shared region.

use super::region_layout;
use rand::RngCore;
use rand::rngs::StdRng;
use vireo_core::Identifiers;
use vireo_core::config::CoreConfig;
use vireo_core::ids::address_pool::Range;
use vireo_core::ids::tmsi::TmsiCipher;
use vireo_core::placement::balance::migration;
use vireo_store::region::{Key, NumberTable, Region, Slot};
use vireo_types::{Bucket, Dnn, Ltmsi, PduSessionType, SessionAddress, Snssai, Tmsi};
use vireo_wire::permutation::Permutation16;

/// Number of attempts to draw a free 5G-TMSI. At half occupancy all fail with probability 2^-32.
const DRAWS: usize = 32;

/// Distance between LTMSI numbers that are tried in a bucket; odd, so that it reaches all of them.
const STRIDE: u16 = 0x9e37;

/// Identifier allocator of a worker.
#[derive(Debug)]
pub(crate) struct IdAllocator {
    region: Region,
    slices: Vec<Snssai>,
    dnns: Vec<(Dnn, [Option<Range>; 2])>,
    cipher: TmsiCipher,
    /// Order in which the LTMSI numbers of a bucket are allocated. Without the key, a UE's number
    /// does not show those of the UEs before and after it.
    order: Permutation16,
    /// Pool partition of this host, and the number of partitions.
    part: (u16, u16),
    /// Numbers allocated by [`IdAllocator::fresh`] in each bucket; empty before the first.
    allocated: Vec<u16>,
    rng: StdRng,
}

/// A number of this host's partition that a UE has taken to another host.
struct LentNumber {
    /// Index of the table.
    table: u8,
    numbers: NumberTable,
    number: u32,
}

impl IdAllocator {
    /// Creates an allocator with a key for 5G-TMSIs, a pool partition and the number of partitions.
    pub(crate) fn new(region: Region, config: &CoreConfig, (key, part): (&[u8; 16], (u16, u16)), rng: StdRng) -> Self {
        IdAllocator {
            region,
            slices: config.slices.iter().map(|s| s.snssai).collect(),
            dnns: config.dnns.iter().map(|d| (d.name.clone(), d.address_ranges())).collect(),
            cipher: TmsiCipher::new(key),
            order: Permutation16::new(key),
            part,
            allocated: Vec::new(),
            rng,
        }
    }

    /// Returns the allocator of a step over the UE of a slot.
    pub(crate) fn for_step(&mut self, slot: Slot) -> StepIds<'_> {
        StepIds { allocator: self, slot, needs_owner: false }
    }

    /// Returns the slice of a bucket: buckets are assigned to slice 0 and the slices in turn.
    fn owner(&self, bucket: Bucket) -> usize {
        usize::from(bucket.get()) % self.owners()
    }

    /// Returns the number of slices including slice 0.
    fn owners(&self) -> usize {
        self.slices.len() + 1
    }

    /// Allocates an unused LTMSI in an own bucket of a slice. A number is reused only after all
    /// others, so that a late message for a removed UE does not reach its successor.
    fn draw(&self, owner: usize) -> Option<Ltmsi> {
        let owners = self.owners() as u64;
        // In the last column some slices may have no bucket.
        let buckets = u64::from(Bucket::COUNT) / owners;
        let next = self.region.shared_word(region_layout::ltmsi_word(owner));
        let first = u64::from(self.first_number()) * buckets;
        // The buckets of the slice take turns, so that each fills evenly.
        for _ in 0..=u16::MAX {
            let n = (first + next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) % (buckets << 16);
            let bucket = Bucket::new((owner as u64 + n % buckets * owners) as u16);
            if !region_layout::is_own(&self.region, bucket) {
                continue;
            }
            let ltmsi = self.at(bucket, (n / buckets) as u16);
            if self.region.slot_of(ltmsi).is_none() {
                return Some(ltmsi);
            }
        }
        None
    }

    /// Returns an LTMSI by its position in the order of a bucket's numbers.
    fn at(&self, bucket: Bucket, position: u16) -> Ltmsi {
        Ltmsi::new(bucket, self.order.seal(bucket.get(), position))
    }

    /// Returns the first position of LTMSI numbers. It differs between hosts: a new owner does not
    /// reuse numbers that the previous one allocated recently.
    fn first_number(&self) -> u16 {
        ((u32::from(self.part.0) << 16) / u32::from(self.part.1.max(1))) as u16
    }

    /// Allocates an LTMSI of slice 0 for a new UE. Prefers the column of `by`, the bucket that
    /// routed the message to this host. A redelivered message then reaches the host of the UE.
    pub(crate) fn fresh(&mut self, by: Option<Bucket>) -> Option<Ltmsi> {
        let bucket = by.and_then(|bucket| migration::in_column(bucket, 0, self.owners()));
        let own = bucket.filter(|bucket| region_layout::is_own(&self.region, *bucket));
        own.and_then(|bucket| self.next_of(bucket)).or_else(|| self.draw(0))
    }

    /// Allocates the next unused LTMSI of a bucket.
    fn next_of(&mut self, bucket: Bucket) -> Option<Ltmsi> {
        self.allocated.resize(Bucket::COUNT.into(), 0);
        let first = self.first_number();
        let at = usize::from(bucket.get());
        for _ in 0..=u16::MAX {
            self.allocated[at] = self.allocated[at].wrapping_add(1);
            let ltmsi = self.at(bucket, first.wrapping_add(self.allocated[at]));
            if self.region.slot_of(ltmsi).is_none() {
                return Some(ltmsi);
            }
        }
        None
    }

    /// Returns the bucket encoded in a 5G-TMSI.
    pub(crate) fn bucket_of(&self, tmsi: Tmsi) -> Bucket {
        self.cipher.bucket(tmsi)
    }

    /// Returns the slice of an LTMSI: 0 = unknown, else 1 + its position in the configuration.
    pub(crate) fn slice_of(&self, ltmsi: Ltmsi) -> usize {
        self.owner(ltmsi.bucket())
    }

    fn table(&self, dnn: &Dnn) -> Option<(u8, &[Option<Range>; 2])> {
        let at = self.dnns.iter().position(|(name, _)| name == dnn)?;
        Some((u8::try_from(at * 2).ok()?, &self.dnns[at].1))
    }

    /// Allocates the addresses of a session: all of them or none.
    fn take(&self, slot: Slot, dnn: &Dnn, kind: PduSessionType) -> Option<SessionAddress> {
        let (table, ranges) = self.table(dnn)?;
        let numbers = |n: u8| self.region.numbers(table + n);
        let take = |numbers: NumberTable| {
            let part = self.range_of(&numbers, self.part.0);
            numbers.take_in(slot, part)
        };
        let ipv4 = match (kind, ranges[0]) {
            (PduSessionType::Ipv6, _) => None,
            (_, range) => Some((range?, take(numbers(0)?)?)),
        };
        let mut address = SessionAddress { ipv4: ipv4.map(|(range, number)| range.ipv4_at(number)), ipv6_prefix: None };
        if kind != PduSessionType::Ipv4 {
            let prefix = ranges[1].and_then(|range| Some(range.ipv6_at(take(numbers(1)?)?)));
            if prefix.is_none() {
                ipv4.and_then(|(_, number)| Some(numbers(0)?.free(number, slot)));
                return None;
            }
            address.ipv6_prefix = prefix;
        }
        Some(address)
    }

    /// Returns true if other hosts allocate identifiers too.
    pub(crate) fn shares(&self) -> bool {
        self.part.1 > 1
    }

    /// Reserves the addresses of a session that came with its UE from another host.
    pub(crate) fn adopt(&self, slot: Slot, dnn: &Dnn, address: &SessionAddress) {
        for (numbers, number) in self.numbers_of(dnn, address) {
            if !numbers.reserve(number, slot) {
                tracing::error!(?address, "bug: address of a UE in use by another UE after a takeover");
            }
        }
        self.region.clear_notes(slot);
    }

    /// Returns the pool partitions of a session's addresses.
    pub(crate) fn parts_of(&self, dnn: &Dnn, address: &SessionAddress) -> impl Iterator<Item = u16> {
        self.numbers_of(dnn, address).map(|(numbers, number)| self.part_of(&numbers, number))
    }

    /// Returns the tables and numbers of a session's addresses.
    fn numbers_of(&self, dnn: &Dnn, address: &SessionAddress) -> impl Iterator<Item = (NumberTable, u32)> {
        let at = self.table(dnn).map(|(table, ranges)| {
            let v4 = address.ipv4.and_then(|a| ranges[0]?.index_of_ipv4(a));
            let v6 = address.ipv6_prefix.and_then(|a| ranges[1]?.index_of_ipv6(a));
            [(table, v4), (table + 1, v6)]
        });
        at.into_iter().flatten().filter_map(|(table, number)| Some((self.region.numbers(table)?, number?)))
    }

    /// Frees a session's addresses. Returns the partition of addresses that another host lent.
    pub(crate) fn free_address(&self, slot: Slot, dnn: &Dnn, address: &SessionAddress) -> Option<u16> {
        let mut lender = None;
        for (numbers, number) in self.numbers_of(dnn, address) {
            numbers.free(number, slot);
            lender = Some(self.part_of(&numbers, number)).filter(|part| *part != self.part.0);
        }
        lender
    }

    /// Returns the pool partition of a number.
    fn part_of(&self, numbers: &NumberTable, number: u32) -> u16 {
        let parts = u64::from(self.part.1.max(1));
        // The last partition that begins at or before the number, as `range_of` divides the pool.
        let begun = ((u64::from(number) + 1) * parts).div_ceil(u64::from(numbers.size().max(1)));
        begun.saturating_sub(1) as u16
    }

    /// Returns the numbers of a pool partition.
    fn range_of(&self, numbers: &NumberTable, part: u16) -> std::ops::Range<u32> {
        let (size, parts) = (u64::from(numbers.size()), u64::from(self.part.1.max(1)));
        let at = |part: u64| (size * part / parts) as u32;
        at(part.into())..at(u64::from(part) + 1)
    }

    /// Returns all tables of numbers.
    fn tables(&self) -> impl Iterator<Item = (u8, NumberTable)> {
        (0..self.dnns.len() as u8 * 2).filter_map(|table| Some((table, self.region.numbers(table)?)))
    }

    /// Returns the numbers of another host's partition that local UEs use, in pieces per table.
    pub(crate) fn foreign_numbers(&self, part: u16, piece: usize) -> Vec<(u8, Vec<u32>)> {
        let mut pieces = Vec::new();
        for (table, numbers) in self.tables().filter(|(_, numbers)| numbers.used() > 0) {
            let is_held = |number: &u32| numbers.owner(*number).is_some() && !numbers.is_lent(*number);
            let held: Vec<u32> = self.range_of(&numbers, part).filter(is_held).collect();
            pieces.extend(held.chunks(piece).map(|piece| (table, piece.to_vec())));
        }
        pieces
    }

    /// Returns true if local UEs use numbers of a partition.
    pub(crate) fn has_of(&self, part: u16) -> bool {
        let used = self.tables().filter(|(_, numbers)| numbers.used() > 0);
        used.into_iter().any(|(_, numbers)| {
            let mut part = self.range_of(&numbers, part);
            part.any(|number| numbers.owner(number).is_some() && !numbers.is_lent(number))
        })
    }

    /// Returns the numbers of this host's partition that UEs have taken to other hosts.
    fn lent(&self) -> impl Iterator<Item = LentNumber> {
        let used = self.tables().filter(|(_, numbers)| numbers.used() > 0);
        used.flat_map(|(table, numbers)| {
            let part = self.range_of(&numbers, self.part.0);
            part.filter(|number| numbers.is_lent(*number))
                .map(|number| LentNumber { table, numbers: numbers.clone(), number })
                .collect::<Vec<_>>()
        })
    }

    /// Returns true if any number is lent.
    pub(crate) fn lends(&self) -> bool {
        self.lent().next().is_some()
    }

    /// Frees all lent numbers except those in use by other hosts. Returns how many it freed.
    pub(crate) fn returned_but(&self, is_in_use: impl Fn((u8, u32)) -> bool) -> usize {
        let free = self.lent().filter(|lent| !is_in_use((lent.table, lent.number)));
        free.filter(|lent| lent.numbers.unlend(lent.number)).count()
    }

    /// Lends the addresses of a UE that migrates: they are not allocated while it has them.
    pub(crate) fn lend(&self, slot: Slot, dnn: &Dnn, address: &SessionAddress) {
        for (numbers, number) in self.numbers_of(dnn, address) {
            if self.part_of(&numbers, number) == self.part.0 {
                numbers.lend(number, slot);
            } else {
                numbers.free(number, slot);
            }
        }
    }

    /// Frees lent addresses that a UE of another host has released.
    pub(crate) fn free_returned(&self, dnn: &Dnn, address: &SessionAddress) {
        for (numbers, number) in self.numbers_of(dnn, address) {
            numbers.unlend(number);
        }
    }

    /// Frees numbers that a worker allocated for the UE before it died without a commit.
    /// `is_committed` returns true if the committed record has the number.
    pub(crate) fn free_uncommitted_numbers(&self, slot: Slot, is_committed: impl Fn(&Dnn, u32, bool) -> bool) {
        let noted = self.region.noted_numbers(slot);
        if noted == [None; 2] {
            return;
        }
        for (table, number) in noted.into_iter().flatten() {
            let Some((dnn, _)) = self.dnns.get(usize::from(table) / 2) else { continue };
            let Some(numbers) = self.region.numbers(table) else { continue };
            if !is_committed(dnn, number, table % 2 == 1) {
                // Only if the UE still owns it: the note may come from an attempt that was too
                // late.
                numbers.free(number, slot);
            }
        }
        self.region.clear_notes(slot);
    }

    /// Frees all addresses of these UEs.
    pub(crate) fn free_all(&self, of: impl Fn(Slot) -> bool) {
        for table in 0..self.dnns.len() as u8 * 2 {
            let Some(numbers) = self.region.numbers(table).filter(|numbers| numbers.used() > 0) else { continue };
            for number in 0..numbers.size() {
                if let Some(owner) = numbers.owner(number).filter(|owner| of(*owner)) {
                    numbers.free(number, owner);
                }
            }
        }
    }

    /// Returns true if a session has a number of a data network's table.
    pub(crate) fn has_number(&self, dnn: &Dnn, number: u32, ipv6: bool, address: &SessionAddress) -> bool {
        let Some((_, ranges)) = self.table(dnn) else { return false };
        let index = if ipv6 {
            address.ipv6_prefix.and_then(|a| ranges[1]?.index_of_ipv6(a))
        } else {
            address.ipv4.and_then(|a| ranges[0]?.index_of_ipv4(a))
        };
        index == Some(number)
    }
}

/// The identifier allocator of one step.
#[derive(Debug)]
pub(crate) struct StepIds<'a> {
    allocator: &'a mut IdAllocator,
    slot: Slot,
    /// True if the step needs an identifier that only the owner of the UE can allocate.
    needs_owner: bool,
}

impl StepIds<'_> {
    /// Returns true if only the owner of the UE can run the step.
    pub(crate) fn needs_owner(&self) -> bool {
        self.needs_owner
    }

    /// Returns true if this host does not own the UE, and records that the step needs the owner.
    fn check_needs_owner(&mut self) -> bool {
        let is_guest = self.allocator.region.is_guest(self.slot);
        self.needs_owner |= is_guest;
        is_guest
    }
}

impl Identifiers for StepIds<'_> {
    fn tmsi(&mut self, ltmsi: Ltmsi) -> Option<Tmsi> {
        for _ in 0..DRAWS {
            let random = self.allocator.rng.next_u32();
            // Two workers may draw the same one of 2^20 at the same time. The second UE is not
            // found by it and identifies itself.
            if let Some(tmsi) = self.allocator.cipher.seal(ltmsi.bucket(), random)
                && self.allocator.region.lookup(Key::Tmsi, u64::from(tmsi.0)).is_none()
            {
                return Some(tmsi);
            }
        }
        None
    }

    fn rekey(&mut self, current: Ltmsi, slice: Snssai) -> Option<Ltmsi> {
        let home = 1 + self.allocator.slices.iter().position(|s| *s == slice)?;
        if self.allocator.owner(current.bucket()) == home {
            return None;
        }
        if self.check_needs_owner() {
            return None;
        }
        // In the same column: the UE keeps its hosts for ever.
        let bucket = migration::in_column(current.bucket(), home, self.allocator.owners())?;
        // Numbers of slice 0 are reused after all others, and so are these. If one is used, a
        // distant one is tried.
        let number = |n: u16| current.number().wrapping_add(n.wrapping_mul(STRIDE));
        let ltmsis = (0..=u16::MAX).map(|n| Ltmsi::new(bucket, number(n)));
        let ltmsi = ltmsis.into_iter().find(|ltmsi| self.allocator.region.slot_of(*ltmsi).is_none())?;
        self.allocator.region.alias(self.slot, ltmsi).ok()?;
        Some(ltmsi)
    }

    fn address(&mut self, dnn: &Dnn, kind: PduSessionType) -> Option<SessionAddress> {
        if self.check_needs_owner() {
            return None;
        }
        self.allocator.take(self.slot, dnn, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rustc_hash::FxHashSet;
    use vireo_store::region::RegionConfig;

    /// One of two hosts, with an address table and a slot.
    fn allocator(part: u16) -> (IdAllocator, Slot) {
        let range = Range::ipv4([10, 45, 0, 0].into(), 24);
        let mut config = RegionConfig::new(4, 1, 32 << 20);
        config.tables[0] = range.size();
        let region = Region::create(config).unwrap();
        let slot = region.slot_at(1_u32).unwrap();
        let allocator = IdAllocator {
            region,
            slices: Vec::new(),
            dnns: vec![("internet".parse().unwrap(), [Some(range), None])],
            cipher: TmsiCipher::new(&[0; 16]),
            order: Permutation16::new(&[0; 16]),
            part: (part, 2),
            allocated: Vec::new(),
            rng: StdRng::seed_from_u64(1),
        };
        (allocator, slot)
    }

    /// A RAN node that knows the LTMSI of a UE cannot name those of others.
    #[test]
    fn ltmsi_numbers_show_no_order() {
        let (mut ids, _) = allocator(0);
        let bucket = Bucket::new(0);
        let numbers: Vec<u16> = (0..1000).map(|_| ids.next_of(bucket).expect("a free number").number()).collect();
        assert_eq!(numbers.iter().collect::<FxHashSet<_>>().len(), numbers.len(), "no number twice");
        let near = numbers.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1024).count();
        assert!(near < 100, "{near} of 1000 are near the previous one");
        // Another host begins elsewhere in the same order.
        let (mut other, _) = allocator(1);
        assert!((0..1000).all(|_| !numbers.contains(&other.next_of(bucket).expect("a free number").number())));
    }

    #[test]
    fn lent_address_returns_when_unused() {
        let ((here, slot), (there, other)) = (allocator(0), allocator(1));
        let dnn: Dnn = "internet".parse().unwrap();
        let [one, two] = [(), ()].map(|()| {
            let address = here.take(slot, &dnn, PduSessionType::Ipv4).unwrap();
            here.region.clear_notes(slot);
            address
        });
        assert!(!here.lends() && here.has_of(0) && !here.has_of(1) && !there.has_of(0));
        for address in [&one, &two] {
            here.lend(slot, &dnn, address);
            there.adopt(other, &dnn, address);
        }
        assert!(here.lends() && !here.has_of(0) && there.has_of(0) && !there.lends());
        assert!(here.foreign_numbers(0, 8).is_empty() && there.foreign_numbers(1, 8).is_empty());
        let pieces = there.foreign_numbers(0, 1);
        assert_eq!(pieces.len(), 2, "one in a piece");
        let held = |allocator: &IdAllocator| -> FxHashSet<(u8, u32)> {
            let pieces = allocator.foreign_numbers(0, 8);
            pieces.into_iter().flat_map(|(table, all)| all.into_iter().map(move |number| (table, number))).collect()
        };
        assert_eq!((here.returned_but(|number| held(&there).contains(&number)), held(&there).len()), (0, 2));
        // The report of the freed address is lost; the UE still has the other one.
        assert_eq!(there.free_address(other, &dnn, &one), Some(0), "of the other's part");
        assert_eq!(here.returned_but(|number| held(&there).contains(&number)), 1);
        here.free_returned(&dnn, &one);
        assert!(here.lends(), "it has come back already");
        assert_eq!(there.free_address(other, &dnn, &two), Some(0));
        here.free_returned(&dnn, &two);
        assert!(!here.lends() && !there.has_of(0));
        assert_eq!(here.region.numbers(0).unwrap().used(), 0);
    }
}
