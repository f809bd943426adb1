//! The words of one worker that is a process of its own, in memory that it shares with the UPF's process: what it is
//! doing, and what it has counted. Whoever takes the seat over goes on from them.

use crate::counters::{Counters, DROP_REASONS};
use crate::sys::shared::{Plain, Shared};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Rings that a worker may have: one of each interface.
pub(crate) const RINGS: usize = 16;
/// Words to the end of a cache line's pair.
const REST: usize = (16 - (6 + DROP_REASONS) % 16) % 16;

/// A worker's seat. The worker alone writes, but for what is put right when it has died.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct WorkerSlot {
    /// Odd while it is in a batch: see `fast::quiescence`.
    pub(crate) batch_counter: AtomicU64,
    /// Grows with each round of its loop.
    pub(crate) heartbeat: AtomicU64,
    /// Packets that it has taken from the kernel and not let go, at most.
    pub(crate) packets_held: AtomicU64,
    /// The process that sits here; 0 = none does.
    pub(crate) pid: AtomicU64,
    /// Since when, in ns of the clock that all processes share.
    pub(crate) started_ns: AtomicU64,
    own: [AtomicU64; 11],
    /// How far its rings are read: [`RingPosition`].
    rings: [AtomicU64; RINGS],
    /// What it has counted.
    pub(crate) counters: Counters,
    rest: [AtomicU64; REST],
}

// SAFETY: atomic integers are all of it, without padding: 32 words, and counters filled up to a multiple of 16
unsafe impl Plain for WorkerSlot {}
const _: () = assert!(size_of::<WorkerSlot>() == 8 * (32 + 6 + DROP_REASONS + REST));

impl WorkerSlot {
    /// What it is heard by: another value means that it has done something.
    pub(crate) fn heard(&self) -> (u64, u64) {
        (self.heartbeat.load(Relaxed), self.batch_counter.load(Relaxed))
    }

    /// Whether it is in a batch.
    pub(crate) fn is_busy(&self) -> bool {
        self.batch_counter.load(Relaxed) & 1 == 1
    }

    /// Puts right what a process that is gone for good left: nobody waits for its batch any more. Gives how many packets
    /// it had in hand.
    pub(crate) fn bury(&self) -> u64 {
        if self.batch_counter.load(Acquire) & 1 == 1 {
            self.batch_counter.fetch_add(1, Release);
        }
        self.pid.store(0, Release);
        self.packets_held.swap(0, Relaxed)
    }
}

/// Where a worker notes how far it has read one of its rings.
#[derive(Clone, Debug)]
pub(crate) struct RingPosition {
    pub(crate) seats: Arc<Shared<WorkerSlot>>,
    pub(crate) seat: usize,
    pub(crate) ring: usize,
}

impl RingPosition {
    fn word(&self) -> Option<&AtomicU64> {
        self.seats.get(self.seat)?.rings.get(self.ring)
    }

    /// What was noted last; 0 = nothing.
    pub(crate) fn get(&self) -> u64 {
        self.word().map_or(0, |word| word.load(Relaxed))
    }

    /// Notes it.
    pub(crate) fn set(&self, value: u64) {
        if let Some(word) = self.word() {
            word.store(value, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_worker_that_is_buried() {
        let seats = Shared::<WorkerSlot>::private(2);
        seats[1].batch_counter.fetch_add(7, Relaxed);
        seats[1].packets_held.store(5, Relaxed);
        assert!(seats[1].is_busy());
        assert_eq!((seats[1].bury(), seats[1].bury()), (5, 0));
        assert_eq!((seats[1].heard(), seats[1].is_busy(), seats[0].heard()), ((0, 8), false, (0, 0)));
        let mark = RingPosition { seats: Arc::new(seats), seat: 1, ring: RINGS };
        mark.set(3);
        assert_eq!(mark.get(), 0, "there is no such ring");
        let mark = RingPosition { ring: 2, ..mark };
        mark.set(3);
        assert_eq!(mark.get(), 3);
    }
}
