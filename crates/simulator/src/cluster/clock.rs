//! Virtual clock: events in order of their times.
//!
//! Events of equal time come in the order of their creation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds since the simulation began.
pub(crate) type Nanos = u64;

/// Pending events.
#[derive(Debug)]
pub(crate) struct Clock<E> {
    now: Nanos,
    made: u64,
    heap: BinaryHeap<Reverse<Entry<E>>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> Clock<E> {
    pub(crate) fn new() -> Self {
        Clock { now: 0, made: 0, heap: BinaryHeap::new() }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Schedules an event at a time, at the earliest the current one.
    pub(crate) fn at(&mut self, at: Nanos, event: E) {
        self.made += 1;
        self.heap.push(Reverse(Entry { at: at.max(self.now), number: self.made, event }));
    }

    /// Schedules an event after a delay.
    pub(crate) fn after(&mut self, nanos: Nanos, event: E) {
        self.at(self.now.saturating_add(nanos), event);
    }

    /// Returns the next event before `end` and advances the clock to it.
    pub(crate) fn next_before(&mut self, end: Nanos) -> Option<E> {
        if self.heap.peek()?.0.at >= end {
            return None;
        }
        let Reverse(Entry { at, event, .. }) = self.heap.pop()?;
        self.now = at;
        Some(event)
    }
}
