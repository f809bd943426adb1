//! UEs whose registration or number of sessions has changed, for the events of the API.
//!
//! Nothing is stored while no client of the API reads events. Several changes of a UE between two
//! queries are one entry.

use crate::worker::outbox::Summary;
use rustc_hash::FxHashMap;
use vireo_ops::api::UeChange;
use vireo_store::region::Slot;
use vireo_types::{Duration, Instant};

/// Maximum number of UEs between two queries. Changes of further UEs are counted.
const MAX_CHANGED_UES: usize = 100;
/// Time after a query for which changes are stored.
const WATCH_DURATION: Duration = Duration::from_secs(5);

/// Changes since the last query.
#[derive(Debug, Default)]
pub(super) struct UeChanges {
    entries: FxHashMap<Slot, UeChange>,
    /// Changes of UEs without an entry.
    further: usize,
    watched_until: Instant,
}

impl UeChanges {
    /// Stores the change of a context; `None` = no context.
    pub(super) fn note(&mut self, slot: Slot, (before, after): (Option<Summary>, Option<Summary>), now: Instant) {
        if now >= self.watched_until {
            return;
        }
        let [before, after] = [before, after].map(Option::unwrap_or_default);
        let (registration, sessions) = (before.registered != after.registered, before.sessions != after.sessions);
        if !registration && !sessions {
            return;
        }
        if self.entries.len() >= MAX_CHANGED_UES && !self.entries.contains_key(&slot) {
            self.further += 1;
            return;
        }
        self.defer(slot, UeChange { registration, sessions });
    }

    /// Stores a taken change for the next query.
    pub(super) fn defer(&mut self, slot: Slot, change: UeChange) {
        let entry = self.entries.entry(slot).or_default();
        entry.registration |= change.registration;
        entry.sessions |= change.sessions;
    }

    /// Takes the changes in the order of slots, and the number of changes of further UEs.
    pub(super) fn take(&mut self, now: Instant) -> (Vec<(Slot, UeChange)>, usize) {
        if now >= self.watched_until {
            (self.entries, self.further) = (FxHashMap::default(), 0);
        }
        self.watched_until = now + WATCH_DURATION;
        let mut entries: Vec<_> = self.entries.drain().collect();
        entries.sort_unstable_by_key(|(slot, _)| *slot);
        (entries, std::mem::take(&mut self.further))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::region::{Region, RegionConfig};

    fn summary(registered: bool, sessions: u8) -> Option<Summary> {
        Some(Summary { registered, sessions, known: true, ..Summary::default() })
    }

    /// Returns the first slots of a region.
    fn slots(count: u32) -> Vec<Slot> {
        let region = Region::create(RegionConfig::new(count, 2, 32 << 20)).unwrap();
        (0..count).map(|number| region.slot_at(number).unwrap()).collect()
    }

    #[test]
    fn changes_are_stored_while_read() {
        let (mut changes, slots, now) = (UeChanges::default(), slots(3), Instant(10_000_000));
        let registers = (summary(false, 0), summary(true, 0));
        changes.note(slots[0], registers, now);
        assert_eq!(changes.take(now), (vec![], 0), "no client has read before");
        changes.note(slots[2], registers, now);
        changes.note(slots[0], registers, now);
        changes.note(slots[0], (summary(true, 0), summary(true, 1)), now);
        changes.note(slots[1], (summary(true, 1), summary(true, 1)), now);
        let change = |registration, sessions| UeChange { registration, sessions };
        assert_eq!(changes.take(now), (vec![(slots[0], change(true, true)), (slots[2], change(true, false))], 0));
        changes.note(slots[1], (summary(true, 1), None), now);
        assert_eq!(changes.take(now), (vec![(slots[1], change(true, true))], 0), "the context is removed");
        changes.note(slots[1], registers, now);
        assert_eq!(changes.take(now + WATCH_DURATION), (vec![], 0), "no client has read for long");
    }

    #[test]
    fn further_changes_are_counted() {
        let (mut changes, now) = (UeChanges::default(), Instant(1_000));
        let slots = slots(MAX_CHANGED_UES as u32 + 7);
        changes.take(now);
        for slot in &slots {
            changes.note(*slot, (summary(false, 0), summary(true, 0)), now);
        }
        changes.note(slots[0], (summary(true, 0), summary(true, 2)), now);
        let (entries, further) = changes.take(now);
        assert_eq!((entries.len(), further, entries[0].1.sessions), (MAX_CHANGED_UES, 7, true));
        assert_eq!(changes.take(now), (vec![], 0));
        changes.defer(slots[1], entries[1].1);
        assert_eq!(changes.take(now), (vec![entries[1]], 0));
    }
}
