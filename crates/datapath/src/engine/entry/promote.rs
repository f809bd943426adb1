//! Promotion of downlink entries to the hot table and back ([`crate::engine::hot`]), with all
//! counters.

use super::{DownlinkEntry, EntryCounters};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Flag of an entry whose contents are in the hot table. `cost` is the index hot. The sequence
/// word of the cold entry stays odd meanwhile.
const PROMOTED: u32 = 1 << 31;

impl EntryCounters {
    fn copy(&self, from: &EntryCounters) {
        self.policer.copy(&from.policer);
        let volume = from.volume();
        self.packets.store(volume.packets, Relaxed);
        self.octets.store(volume.octets, Relaxed);
    }
}

/// The caller changes rules, and no packet uses the entry during the move.
impl DownlinkEntry {
    /// Returns the index in the hot table, if the entry is promoted.
    #[inline]
    pub(crate) fn hot_index(&self) -> Option<u32> {
        (self.flags.load(Acquire) & PROMOTED != 0).then(|| self.cost.load(Relaxed) as u32)
    }

    /// Moves the contents to the hot entry `hot` with the index `index`.
    pub(crate) fn promote_to(&self, hot: &Self, index: u32) {
        self.sequence.begin_write();
        hot.sequence.begin_write();
        hot.copy(self);
        hot.sequence.end_write();
        self.cost.store(index.into(), Relaxed);
        // A reader that sees the bit also sees the index.
        self.flags.store(self.flags.load(Relaxed) | PROMOTED, Release);
    }

    /// Moves the contents back from the hot entry. The entry stays in a write section until it is
    /// settled.
    pub(crate) fn demote_from(&self, from: &Self) {
        from.sequence.begin_write();
        self.copy(from);
    }

    /// Copies all words but the sequence word.
    fn copy(&self, from: &Self) {
        let words = [(&self.teid, &from.teid), (&self.flags, &from.flags), (&self.reported, &from.reported)];
        words.into_iter().for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        self.address.iter().zip(&from.address).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        self.cost.store(from.cost.load(Relaxed), Relaxed);
        self.state.copy(&from.state);
    }
}
