//! Worker slot: state and counters of one worker process in memory shared with the UPF process.
//!
//! The next process of the slot continues from them.

use crate::engine::counters::{Counters, DROP_REASONS};
use crate::sys::shared::{Plain, Shared};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Maximum rings of a worker: one of each interface.
pub(crate) const RINGS: usize = 16;
/// Padding words to the end of a pair of cache lines.
const REST: usize = (16 - (6 + DROP_REASONS) % 16) % 16;

/// Slot of one worker. Only the worker writes it, except for the clean-up after its death.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct WorkerSlot {
    /// Odd while the worker is in a batch: see `quiescence`.
    pub(crate) batch_counter: AtomicU64,
    /// Grows with each round of the worker's loop.
    pub(crate) heartbeat: AtomicU64,
    /// Upper bound of packets received and not yet sent or dropped. Lost if the worker dies.
    pub(crate) packets_held: AtomicU64,
    /// Process ID of the worker; 0 = empty slot.
    pub(crate) pid: AtomicU64,
    /// Start time in ns of the monotonic clock, which all processes share.
    pub(crate) started_ns: AtomicU64,
    own: [AtomicU64; 11],
    /// Read positions of the rings: [`RingPosition`].
    rings: [AtomicU64; RINGS],
    /// Packets that the worker has counted.
    pub(crate) counters: Counters,
    rest: [AtomicU64; REST],
}

// SAFETY: it consists of atomic integers only, without padding: 32 words, and counters filled up to
// a multiple of 16.
unsafe impl Plain for WorkerSlot {}
const _: () = assert!(size_of::<WorkerSlot>() == 8 * (32 + 6 + DROP_REASONS + REST));

impl WorkerSlot {
    /// Returns the progress of the worker.
    pub(crate) fn progress(&self) -> WorkerProgress {
        WorkerProgress { heartbeat: self.heartbeat.load(Relaxed), batch_counter: self.batch_counter.load(Relaxed) }
    }

    /// Returns true if the worker is in a batch.
    pub(crate) fn is_busy(&self) -> bool {
        self.batch_counter.load(Relaxed) & 1 == 1
    }

    /// Cleans up after a dead process: ends its batch, so that nothing waits for it. Returns the
    /// number of packets that it held.
    pub(crate) fn clean_up(&self) -> u64 {
        if self.batch_counter.load(Acquire) & 1 == 1 {
            self.batch_counter.fetch_add(1, Release);
        }
        self.pid.store(0, Release);
        self.packets_held.swap(0, Relaxed)
    }
}

/// Progress of a worker: a changed value means that it has done something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerProgress {
    heartbeat: u64,
    batch_counter: u64,
}

/// Read position of a worker in one of its rings, stored in the slot.
#[derive(Clone, Debug)]
pub(crate) struct RingPosition {
    pub(crate) slots: Arc<Shared<WorkerSlot>>,
    pub(crate) slot: usize,
    pub(crate) ring: usize,
}

impl RingPosition {
    fn word(&self) -> Option<&AtomicU64> {
        self.slots.get(self.slot)?.rings.get(self.ring)
    }

    /// Returns the stored position; 0 = none.
    pub(crate) fn get(&self) -> u64 {
        self.word().map_or(0, |word| word.load(Relaxed))
    }

    /// Stores the position.
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
    fn clean_up_ends_batch_of_dead_worker() {
        let slots = Shared::<WorkerSlot>::private(2);
        slots[1].batch_counter.fetch_add(7, Relaxed);
        slots[1].packets_held.store(5, Relaxed);
        assert!(slots[1].is_busy());
        assert_eq!((slots[1].clean_up(), slots[1].clean_up()), (5, 0));
        assert_eq!(
            (slots[1].progress().batch_counter, slots[1].is_busy(), slots[0].progress()),
            (8, false, WorkerProgress::default())
        );
        let mark = RingPosition { slots: Arc::new(slots), slot: 1, ring: RINGS };
        mark.set(3);
        assert_eq!(mark.get(), 0, "there is no such ring");
        let mark = RingPosition { ring: 2, ..mark };
        mark.set(3);
        assert_eq!(mark.get(), 3);
    }
}
