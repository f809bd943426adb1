//! Promotion of downlink entries to the hot table and back ([`crate::hot`]), with all counters.

use super::{DownlinkEntry, EntryCounters};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Flag of an entry whose contents are in the hot table. `cost` is the index there. The sequence
/// word of the cold entry stays odd meanwhile.
const AWAY: u32 = 1 << 31;

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
    pub(crate) fn away(&self) -> Option<u32> {
        (self.flags.load(Acquire) & AWAY != 0).then(|| self.cost.load(Relaxed) as u32)
    }

    /// Moves the contents to the hot entry `there` with the index `place`.
    pub(crate) fn leave(&self, there: &Self, place: u32) {
        self.sequence.open();
        there.sequence.open();
        there.copy(self);
        there.sequence.settle();
        self.cost.store(place.into(), Relaxed);
        // A reader that sees the bit also sees the index.
        self.flags.store(self.flags.load(Relaxed) | AWAY, Release);
    }

    /// Moves the contents back from the hot entry. The entry stays in a write section until it is
    /// settled.
    pub(crate) fn come_back(&self, from: &Self) {
        from.sequence.open();
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
