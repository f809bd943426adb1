//! Hot table: the two-level store of downlink entries (seed 2, PEPC).
//!
//! The *cold* table is the arrays that hold all users. The *hot* table is a dense table of the
//! users with packets, sized for the CPU caches. With many users of whom few have packets, the
//! lookup by address is the main cost. It needs one cache line in the index and another for the
//! entry.
//!
//! Uplink entries stay in the cold table: a TEID is an index, and its entry is one line in either
//! table. A hot table for them was measured, and cost more than it saved. Downlink entries move.
//! They are found by the tags of the hot table: UE addresses, four of them in half a cache line.
//!
//! Invariants:
//! - An entry is in one table at a time, with rule, counters and policer. Packets are counted
//!   there, and no value is the sum of two places.
//! - Packets of a cold user use the cold table and request its promotion. A promoted entry leaves
//!   its hot index in the cold table.
//! - The writer of the tables promotes and demotes ([`promotion`]). A slot gets another user only
//!   after the end of every batch that may have found the previous one there ([`crate::fast`],
//!   `Quiescence`).

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

/// Slots that one user may occupy. The tags of each set are in half a cache line.
const WAYS: usize = 4;
/// Capacity of the promotion queue. A user whose request is lost repeats it with its next packet.
const WISHES: usize = 2_048;
/// Marks a tag as an IPv4 address.
const V4: u64 = 1 << 32;

/// Returns the tag of an address, which is never 0. A prefix that would look like an IPv4 address
/// has none.
#[inline]
fn tag(key: AddressKey) -> Option<u64> {
    match key {
        AddressKey::V4(address) => Some(V4 | u64::from(address)),
        AddressKey::V6(prefix) => (prefix >= V4 << 1).then_some(prefix),
    }
}

/// The hot table.
#[derive(Debug)]
pub(crate) struct HotTable {
    /// Tag of the user in each slot; 0 = empty.
    tags: Shared<AtomicU64>,
    records: Shared<DownlinkEntry>,
    /// Index of each slot's entry in the cold table.
    homes: Shared<AtomicU32>,
    /// Right shift from a hash to the number of a set.
    shift: u32,
    /// Cold indexes of the users to be promoted.
    wishes: ArrayQueue<u32>,
}

impl HotTable {
    /// Creates a table for about `users` users, because some sets fill before the table does.
    /// `None` for 0.
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

    /// Returns the first slot of the set of a tag.
    #[inline]
    fn set(&self, tag: u64) -> usize {
        (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize * WAYS
    }

    /// Returns the slot of a tag.
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        let set = self.set(tag);
        let tags: &[AtomicU64; WAYS] = self.tags.get(set..)?.first_chunk()?;
        // All tags are compared: the branch predictor cannot guess which one matches.
        let found = (0..WAYS).fold(0, |found, way| found | u32::from(tags[way].load(Relaxed) == tag) << way);
        fence(Acquire);
        (found != 0).then(|| set + found.trailing_zeros() as usize)
    }

    /// Returns the entry in a slot.
    #[inline]
    fn at(&self, place: u32) -> Option<&DownlinkEntry> {
        self.records.get(place as usize)
    }

    /// Returns the current entry for a cold entry: the hot one if it is promoted.
    #[inline]
    pub(crate) fn wherever<'a>(&'a self, home: &'a DownlinkEntry) -> &'a DownlinkEntry {
        home.away().and_then(|place| self.at(place)).unwrap_or(home)
    }

    /// Publishes the tag of a slot to the workers; 0 = empty.
    fn tell(&self, place: usize, tag: u64) {
        self.tags[place].store(tag, Release);
    }

    /// Requests the promotion of a user that was found cold.
    #[inline]
    pub(crate) fn wish(&self, index: u32) {
        // A full queue is not written by every packet.
        if !self.wishes.is_full() {
            let _ = self.wishes.push(index);
        }
    }

    /// Prefetches the tags of the set of an address.
    #[inline]
    pub(crate) fn prefetch_tags(&self, key: AddressKey) {
        if let Some(tags) = tag(key).and_then(|tag| self.tags.get(self.set(tag))) {
            prefetch(tags);
        }
    }

    /// Prefetches the entry of an address. Returns false if it is not hot.
    #[inline]
    pub(crate) fn prefetch_record(&self, key: AddressKey) -> bool {
        let found = tag(key).and_then(|tag| self.records.get(self.find(tag)?));
        found.into_iter().for_each(prefetch);
        found.is_some()
    }
}

/// Result of looking up the user of a packet from N6.
pub(crate) struct HotLookup<'a> {
    pub(crate) record: &'a DownlinkEntry,
    /// Expected generation of the entry. `None` if no other user can be in the slot.
    generation: Option<u8>,
    /// Cold index, or the slot if the entry was found by its tag.
    pub(crate) number: u32,
    by_tag: bool,
    /// Hot table that the user should be promoted to.
    pub(crate) cold: Option<&'a HotTable>,
}

impl HotLookup<'_> {
    /// Returns true if an entry of this generation still belongs to the user.
    #[inline]
    pub(crate) fn is(&self, generation: u8) -> bool {
        self.generation.is_none_or(|own| own == generation)
    }

    /// Returns the ID of the entry.
    #[cold]
    pub(crate) fn id(&self, arrays: &Arrays) -> DownlinkId {
        let home = arrays.hot.as_ref().filter(|_| self.by_tag).and_then(|hot| hot.homes.get(self.number as usize));
        DownlinkId(home.map_or(self.number, |home| home.load(Relaxed)))
    }
}

impl Arrays {
    /// Looks up an address in the cold table. The entry may have been promoted.
    #[inline]
    pub(crate) fn look_up_home(&self, key: AddressKey) -> Option<HotLookup<'_>> {
        let entry = Teid(self.addresses.get(key)?);
        let (number, generation) = (entry.index(), Some(entry.generation()));
        let record = self.downlinks.get(number as usize)?;
        Some(HotLookup { record, generation, number, by_tag: false, cold: None })
    }

    /// Looks up an address in both tables. Must be called within a batch, because slots are reused
    /// after it.
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
            // It is tagged by its other address, or was promoted a moment ago.
            Some(record) => HotLookup { record, ..found },
        })
    }
}
