//! Two levels of users (the two-level store of seed 2, PEPC): the *cold* level is the arrays that hold all of them, the
//! *hot* one a dense table for those that have packets, as large as caches are.
//!
//! What is costly of many users of whom few have packets is to find them by their addresses, which lie apart: a cache
//! line for each in the index, another for the record. A TEID is an index already, and its record one line wherever it
//! is, so that uplink records stay (a hot level of theirs was measured, and cost more than it saved). Downlink records
//! move, and are found by the tags of the hot level: UE addresses, four of them in half a cache line.
//!
//! A record is in one place at a time, with its rule, counts and word of the rate: whoever finds it counts it there, and
//! nothing is added up from two places. Packets of who is not hot go by the cold level as ever, and have the user
//! promoted; the cold level says where a record is that has moved. The owner of the tables promotes and demotes
//! ([`keeper`]). A place is not given to another user before every batch has ended that may have found the one before
//! there ([`crate::fast`], `Quiescence`).

mod promotion;
#[cfg(test)]
mod tests;

use crate::entry::DownlinkEntry;
use crate::fast::Arrays;
use crate::index::AddressKey;
use crate::sys::prefetch;
use crate::sys::shared::Shared;
use crate::tables::DownlinkId;
use crossbeam_queue::ArrayQueue;
pub(crate) use promotion::HotManager;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use vireo_types::Teid;

/// Places that a user may be in: the tags of each set are in half a cache line.
const WAYS: usize = 4;
/// Wishes that may wait; a user whose wish is not taken has it again with its next packet.
const WISHES: usize = 2_048;
/// Says that a tag is an IPv4 address.
const V4: u64 = 1 << 32;

/// What an address is found by, never 0; a prefix that would look like an IPv4 address has nothing.
#[inline]
fn tag(key: AddressKey) -> Option<u64> {
    match key {
        AddressKey::V4(address) => Some(V4 | u64::from(address)),
        AddressKey::V6(prefix) => (prefix >= V4 << 1).then_some(prefix),
    }
}

/// The hot level.
#[derive(Debug)]
pub(crate) struct HotTable {
    /// Who is in each place; 0 = nobody.
    tags: Shared<AtomicU64>,
    records: Shared<DownlinkEntry>,
    /// Their indexes in the cold level.
    homes: Shared<AtomicU32>,
    /// By how much a hash is shifted so that the number of a set is left.
    shift: u32,
    /// Indexes of who is to be promoted.
    wishes: ArrayQueue<u32>,
}

impl HotTable {
    /// Room for about so many users: some sets are full before all are. None for 0.
    pub(crate) fn new(users: usize) -> Option<Self> {
        let places = users.clamp(2 * WAYS, 1 << 24).next_power_of_two();
        let hot = || HotTable {
            tags: Shared::private(places),
            records: Shared::private(places),
            homes: Shared::private(places),
            shift: 64 - (places / WAYS).ilog2(),
            wishes: ArrayQueue::new(WISHES),
        };
        (users > 0).then(hot)
    }

    /// The first place of the set of a tag.
    #[inline]
    fn set(&self, tag: u64) -> usize {
        (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize * WAYS
    }

    /// The place of a tag.
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        let set = self.set(tag);
        let tags: &[AtomicU64; WAYS] = self.tags.get(set..)?.first_chunk()?;
        // all are compared: nobody can guess which of them it is
        let found = (0..WAYS).fold(0, |found, way| found | u32::from(tags[way].load(Relaxed) == tag) << way);
        fence(Acquire);
        (found != 0).then(|| set + found.trailing_zeros() as usize)
    }

    /// The record that is in this place.
    #[inline]
    fn at(&self, place: u32) -> Option<&DownlinkEntry> {
        self.records.get(place as usize)
    }

    /// The record of a cold one, wherever it is.
    #[inline]
    pub(crate) fn wherever<'a>(&'a self, home: &'a DownlinkEntry) -> &'a DownlinkEntry {
        home.away().and_then(|place| self.at(place)).unwrap_or(home)
    }

    /// Lets workers find who is in a place, or nobody.
    fn tell(&self, place: usize, tag: u64) {
        self.tags[place].store(tag, Release);
    }

    /// Asks for a user that was found cold.
    #[inline]
    pub(crate) fn wish(&self, index: u32) {
        // what is full is not written to by each packet
        if !self.wishes.is_full() {
            let _ = self.wishes.push(index);
        }
    }

    /// Fetches what tells whether an address is hot.
    #[inline]
    pub(crate) fn prefetch_tags(&self, key: AddressKey) {
        if let Some(tags) = tag(key).and_then(|tag| self.tags.get(self.set(tag))) {
            prefetch(tags);
        }
    }

    /// Fetches the record of an address that is hot; `false` if it is not.
    #[inline]
    pub(crate) fn prefetch_record(&self, key: AddressKey) -> bool {
        let found = tag(key).and_then(|tag| self.records.get(self.find(tag)?));
        found.into_iter().for_each(prefetch);
        found.is_some()
    }
}

/// Where a packet from N6 finds its user.
pub(crate) struct HotLookup<'a> {
    pub(crate) record: &'a DownlinkEntry,
    /// What the record's must be; `None` where nobody else can be in its place.
    generation: Option<u8>,
    /// Its index, or its place where it was found by its tag.
    pub(crate) number: u32,
    by_tag: bool,
    /// Where it would be better off.
    pub(crate) cold: Option<&'a HotTable>,
}

impl HotLookup<'_> {
    /// Whether a record of this generation is still the user's.
    #[inline]
    pub(crate) fn is(&self, generation: u8) -> bool {
        self.generation.is_none_or(|own| own == generation)
    }

    /// Which record it is.
    #[cold]
    pub(crate) fn id(&self, arrays: &Arrays) -> DownlinkId {
        let home = arrays.hot.as_ref().filter(|_| self.by_tag).and_then(|hot| hot.homes.get(self.number as usize));
        DownlinkId(home.map_or(self.number, |home| home.load(Relaxed)))
    }
}

impl Arrays {
    /// The record of an address in the cold level, though it may have moved.
    #[inline]
    pub(crate) fn look_up_home(&self, key: AddressKey) -> Option<HotLookup<'_>> {
        let entry = Teid(self.addresses.get(key)?);
        let (number, generation) = (entry.index(), Some(entry.generation()));
        let record = self.downlinks.get(number as usize)?;
        Some(HotLookup { record, generation, number, by_tag: false, cold: None })
    }

    /// The record of an address. To be used within a batch, as all that leads to a place.
    #[inline]
    pub(crate) fn look_up(&self, key: AddressKey) -> Option<HotLookup<'_>> {
        if let Some(hot) = &self.hot
            && let Some(place) = tag(key).and_then(|tag| hot.find(tag))
        {
            let record = hot.records.get(place)?;
            return Some(HotLookup { record, generation: None, number: place as u32, by_tag: true, cold: None });
        }
        let found = self.look_up_home(key)?;
        let hot = self.hot.as_ref();
        Some(match hot.and_then(|hot| hot.at(found.record.away()?)) {
            None => HotLookup { cold: hot, ..found },
            // it goes by its other address, or has only just moved
            Some(record) => HotLookup { record, ..found },
        })
    }
}
