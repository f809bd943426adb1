//! When which UE is due: deadlines live in the contexts, this only finds the near ones.

use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use vireo_types::{Duration, Instant, Ltmsi};

/// How far ahead deadlines are entered. Those beyond (an idle UE's, an hour off) are found by a sweep over the contexts
/// twice within that time, so that a UE that comes and goes leaves no entries behind.
const HORIZON: Duration = Duration::from_secs(60);

/// A queue of due times within the horizon.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Ltmsi)>>,
    /// The earliest entry of each UE; others of it are void.
    entered: FxHashMap<Ltmsi, Instant>,
    swept: Instant,
}

impl Timers {
    /// A UE has a deadline. One that is only moved further off is not entered again: the earlier entry leads on.
    pub(super) fn schedule(&mut self, ltmsi: Ltmsi, deadline: Instant, now: Instant) {
        if deadline > now + HORIZON || self.entered.get(&ltmsi).is_some_and(|at| *at <= deadline) {
            return;
        }
        self.entered.insert(ltmsi, deadline);
        self.heap.push(Reverse((deadline, ltmsi)));
    }

    /// The next UE whose entry is due; its deadline may have been moved since.
    pub(super) fn due(&mut self, now: Instant) -> Option<Ltmsi> {
        while let Some(Reverse((at, ltmsi))) = self.heap.peek().copied() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if self.entered.get(&ltmsi) == Some(&at) {
                self.entered.remove(&ltmsi);
                return Some(ltmsi);
            }
        }
        None
    }

    /// When the next entry is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether the contexts are to be swept for deadlines that have come within the horizon.
    pub(super) fn sweep_due(&mut self, now: Instant) -> bool {
        let due = now.since(self.swept) >= Duration(HORIZON.as_micros() / 2);
        if due {
            self.swept = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::Bucket;

    fn ue(n: u16) -> Ltmsi {
        Ltmsi::new(Bucket::new(0), n)
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
