//! Deadlines of one worker's UEs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The step timed out.
    Guard,
    /// A pause has ended.
    Pause,
    /// A new script begins.
    Resume,
    /// The echo of flow `n` may be lost.
    Echo(u8),
    /// The next echo of a moving UE is due. Steps do not end it.
    Ping,
    /// The target of a handover waits no longer for forwarded packets. Steps do not end it.
    Forwarded,
}

/// An expired deadline: UE, purpose and the UE's sequence number when the deadline was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExpiredTimer {
    at_us: u64,
    pub(super) owner: u32,
    pub(super) sequence: u32,
    pub(super) kind: Kind,
}

/// Pending deadlines. Deadlines are never cancelled: the UE's sequence number has changed when an
/// obsolete one expires. Guards have equal length and form a queue; the others form a heap.
#[derive(Debug, Default)]
pub(super) struct Timers {
    guards: VecDeque<ExpiredTimer>,
    heap: BinaryHeap<Reverse<ExpiredTimer>>,
}

impl Timers {
    pub(super) fn set(&mut self, at_us: u64, owner: u32, sequence: u32, kind: Kind) {
        let due = ExpiredTimer { at_us, owner, sequence, kind };
        match kind {
            Kind::Guard if self.guards.back().is_none_or(|last| last.at_us <= at_us) => self.guards.push_back(due),
            _ => self.heap.push(Reverse(due)),
        }
    }

    /// Removes and returns a deadline that is not later than `now_us`.
    pub(super) fn pop(&mut self, now_us: u64) -> Option<ExpiredTimer> {
        let other = self.heap.peek().map(|Reverse(due)| due.at_us);
        let guard = self.guards.front().map(|due| due.at_us);
        match (guard, other) {
            (Some(guard), other) if guard <= now_us && other.is_none_or(|other| guard <= other) => {
                self.guards.pop_front()
            }
            (_, Some(other)) if other <= now_us => self.heap.pop().map(|Reverse(due)| due),
            _ => None,
        }
    }

    /// Returns the time of the next deadline.
    pub(super) fn next(&self) -> Option<u64> {
        let other = self.heap.peek().map(|Reverse(due)| due.at_us);
        self.guards.front().map(|due| due.at_us).into_iter().chain(other).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_whatever_their_kind() {
        let mut timers = Timers::default();
        for (at, kind) in
            [(50, Kind::Guard), (20, Kind::Pause), (60, Kind::Guard), (30, Kind::Echo(1)), (40, Kind::Guard)]
        {
            timers.set(at, 1, 0, kind);
        }
        assert_eq!(timers.next(), Some(20));
        assert_eq!(timers.pop(10), None);
        let order: Vec<_> = std::iter::from_fn(|| timers.pop(55)).map(|due| due.at_us).collect();
        assert_eq!(order, [20, 30, 40, 50]);
        assert_eq!(timers.next(), Some(60));
    }
}
