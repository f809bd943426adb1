//! The hot table, as workers read it.

use crate::engine::entry::DownlinkEntry;
use crate::engine::index::AddressKey;
use crate::sys::prefetch;
use crate::sys::shared::Shared;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, fence};

/// Slots that one user may occupy. The tags of each set are in half a cache line.
pub(crate) const WAYS: usize = 4;
/// Capacity of the promotion queue. A user whose request is lost repeats it with its next packet.
const REQUESTS: usize = 2_048;
/// Marks a tag as an IPv4 address.
const V4: u64 = 1 << 32;

/// Returns the tag of an address, which is never 0. A prefix that would look like an IPv4 address
/// has none.
#[inline]
pub(crate) fn tag(key: AddressKey) -> Option<u64> {
    match key {
        AddressKey::V4(address) => Some(V4 | u64::from(address)),
        AddressKey::V6(prefix) => (prefix >= V4 << 1).then_some(prefix),
    }
}

/// The hot table.
#[derive(Debug)]
pub(crate) struct HotTable {
    /// Tag of the user in each slot; 0 = empty.
    pub(crate) tags: Shared<AtomicU64>,
    pub(crate) records: Shared<DownlinkEntry>,
    /// Index of each slot's entry in the cold table.
    pub(crate) cold_indexes: Shared<AtomicU32>,
    /// Right shift from a hash to the number of a set.
    shift: u32,
    /// Cold indexes of the users to be promoted.
    pub(crate) requests: ArrayQueue<u32>,
}

impl HotTable {
    /// Creates a table for about `users` users, because some sets fill before the table does.
    /// `None` for 0.
    pub(crate) fn new(users: usize) -> Option<Self> {
        let slots = users.clamp(2 * WAYS, 1 << 24).next_power_of_two();
        let hot = || HotTable {
            tags: Shared::private(slots),
            records: Shared::private(slots),
            cold_indexes: Shared::private(slots),
            shift: 64 - (slots / WAYS).ilog2(),
            requests: ArrayQueue::new(REQUESTS),
        };
        (users > 0).then(hot)
    }

    /// Returns the first slot of the set of a tag.
    #[inline]
    pub(crate) fn set(&self, tag: u64) -> usize {
        (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize * WAYS
    }

    /// Returns the slot of a tag.
    #[inline]
    pub(crate) fn find(&self, tag: u64) -> Option<usize> {
        let set = self.set(tag);
        let tags: &[AtomicU64; WAYS] = self.tags.get(set..)?.first_chunk()?;
        // All tags are compared: the branch predictor cannot guess which one matches.
        let found = (0..WAYS).fold(0, |found, way| found | u32::from(tags[way].load(Relaxed) == tag) << way);
        fence(Acquire);
        (found != 0).then(|| set + found.trailing_zeros() as usize)
    }

    /// Returns the entry in a slot.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<&DownlinkEntry> {
        self.records.get(slot as usize)
    }

    /// Returns the current entry for a cold entry: the hot one if it is promoted.
    #[inline]
    pub(crate) fn current<'a>(&'a self, home: &'a DownlinkEntry) -> &'a DownlinkEntry {
        home.hot_index().and_then(|slot| self.at(slot)).unwrap_or(home)
    }

    /// Publishes the tag of a slot to the workers; 0 = empty.
    pub(crate) fn publish(&self, slot: usize, tag: u64) {
        self.tags[slot].store(tag, Release);
    }

    /// Requests the promotion of a user that was found cold.
    #[inline]
    pub(crate) fn request_promotion(&self, index: u32) {
        // A full queue is not written by every packet.
        if !self.requests.is_full() {
            let _ = self.requests.push(index);
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
    pub(crate) fn prefetch_entry(&self, key: AddressKey) -> bool {
        let found = tag(key).and_then(|tag| self.records.get(self.find(tag)?));
        found.into_iter().for_each(prefetch);
        found.is_some()
    }
}
