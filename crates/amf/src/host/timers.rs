//! Queue of near deadlines. The deadlines themselves are stored in the UE contexts.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use vireo_store::region::Slot;
use vireo_types::{Duration, Instant};

/// Deadlines within this time are scheduled. A sweep over the contexts finds later ones (an idle
/// UE's, an hour ahead) twice within that time. A short-lived UE thus leaves no entries behind.
const SCHEDULE_HORIZON: Duration = Duration::from_secs(60);
/// Minimum number of slots per sweep.
const SWEPT_AT_ONCE: u32 = 256;

/// A queue of due times within the horizon.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Slot)>>,
    /// The earliest entry of each UE; its other entries are void.
    entered: FxHashMap<Slot, Instant>,
    swept: Instant,
    /// First slot of the next sweep.
    cursor: u32,
}

impl Timers {
    /// Schedules the deadline of a UE. A deadline that only moved later is not added again: the
    /// earlier entry leads to a check.
    pub(super) fn schedule(&mut self, slot: Slot, deadline: Instant, now: Instant) {
        if deadline > now + SCHEDULE_HORIZON || self.entered.get(&slot).is_some_and(|at| *at <= deadline) {
            return;
        }
        self.entered.insert(slot, deadline);
        self.heap.push(Reverse((deadline, slot)));
    }

    /// Returns the next UE with a due entry. Its deadline may have moved since.
    pub(super) fn due(&mut self, now: Instant) -> Option<Slot> {
        while let Some(Reverse((at, slot))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if self.entered.get(&slot) == Some(&at) {
                self.entered.remove(&slot);
                return Some(slot);
            }
        }
        None
    }

    /// Returns the due time of the next entry.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns the first slot and the number of slots to sweep. All `count` slots are swept within
    /// half the horizon.
    pub(super) fn sweep(&mut self, now: Instant, count: u32) -> Option<(u32, u32)> {
        let half = SCHEDULE_HORIZON.as_micros() / 2;
        let passed = now.since(self.swept).as_micros().min(half);
        let due = (u64::from(count) * passed).div_ceil(half) as u32;
        // Small batches delay nothing else; single slots are not worth a call.
        if due < SWEPT_AT_ONCE.min(count) || count == 0 {
            return None;
        }
        let due = due.min(SWEPT_AT_ONCE.max(count / 256));
        let from = self.cursor;
        let end = from.saturating_add(due).min(count);
        self.cursor = if end == count { 0 } else { end };
        self.swept =
            if passed == half { now } else { self.swept + Duration(u64::from(due) * half / u64::from(count.max(1))) };
        Some((from, end - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::region::{Region, RegionConfig};

    fn ue(n: u32) -> Slot {
        let region = Region::create(RegionConfig::new(8, 1, 32 << 20)).expect("a region");
        region.slot_at(n).expect("a slot")
    }

    #[test]
    fn sweep_covers_all_slots_in_half_the_horizon() {
        for (slots, step) in [(1, 1_000_000), (100_000, 100_000), (1_000_000, 500_000)] {
            let mut timers = Timers::default();
            let (mut now, mut seen) = (Instant(1_000_000_000), 0);
            timers.sweep(now, slots);
            for _ in 0..(30_000_000 / step) {
                now = Instant(now.0 + step);
                while let Some((from, count)) = timers.sweep(now, slots) {
                    assert!(count > 0 && from + count <= slots);
                    seen += count;
                }
            }
            assert!(seen >= slots - slots / 64, "{seen} of {slots}");
        }
    }

    #[test]
    fn each_ue_is_due_once_at_its_earliest_entry() {
        let (mut timers, start) = (Timers::default(), Instant(0));
        timers.schedule(ue(1), Instant(5_000_000), start);
        timers.schedule(ue(1), Instant(9_000_000), start);
        timers.schedule(ue(1), Instant(2_000_000), start);
        timers.schedule(ue(2), Instant(3_000_000), start);
        timers.schedule(ue(3), Instant(61_000_000), start);
        assert_eq!(timers.next(), Some(Instant(2_000_000)));
        assert_eq!(timers.due(Instant(1_999_999)), None);
        assert_eq!(timers.due(Instant(10_000_000)), Some(ue(1)));
        assert_eq!(timers.due(Instant(10_000_000)), Some(ue(2)));
        assert_eq!(timers.due(Instant(100_000_000)), None, "no entry of UE 1 is left, UE 3 is beyond the horizon");
    }
}
