//! Downlink records that move to another place of their kind and back ([`crate::hot`]), with all that they have counted.

use super::{DownlinkEntry, EntryCounters};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Set in the flags of a record that is elsewhere: `cost` is where. Its sequence word stays odd meanwhile.
const AWAY: u32 = 1 << 31;

impl EntryCounters {
    fn copy(&self, from: &EntryCounters) {
        self.policer.copy(&from.policer);
        let volume = from.volume();
        self.packets.store(volume.packets, Relaxed);
        self.octets.store(volume.octets, Relaxed);
    }
}

/// Whoever moves a record changes rules, and no packet goes by it meanwhile.
impl DownlinkEntry {
    /// Where it is, if not here.
    #[inline]
    pub(crate) fn away(&self) -> Option<u32> {
        (self.flags.load(Acquire) & AWAY != 0).then(|| self.cost.load(Relaxed) as u32)
    }

    /// Moves from here to this place, of that number.
    pub(crate) fn leave(&self, there: &Self, place: u32) {
        self.sequence.open();
        there.sequence.open();
        there.copy(self);
        there.sequence.settle();
        self.cost.store(place.into(), Relaxed);
        // the place is there for whoever sees the bit
        self.flags.store(self.flags.load(Relaxed) | AWAY, Release);
    }

    /// Comes back to here from where it was, open until it is settled.
    pub(crate) fn come_back(&self, from: &Self) {
        from.sequence.open();
        self.copy(from);
    }

    /// Takes over all but the sequence word.
    fn copy(&self, from: &Self) {
        let words = [(&self.teid, &from.teid), (&self.flags, &from.flags), (&self.reported, &from.reported)];
        words.into_iter().for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        self.address.iter().zip(&from.address).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        self.cost.store(from.cost.load(Relaxed), Relaxed);
        self.state.copy(&from.state);
    }
}
