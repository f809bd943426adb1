//! Quiescence: waits until each worker has ended the batch that it was in.
//!
//! A change that must follow all earlier packets uses it. A worker writes only its own word, twice
//! a batch, and waits for nothing.

use crate::engine::locking::SpinWait;
use crate::engine::worker_slot::WorkerSlot;
use crate::sys::shared::Shared;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Word of one worker, odd while it is in a batch. It has a cache line to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct BatchCounter(pub(crate) AtomicU64);

/// Words of all workers.
#[derive(Debug)]
pub(crate) struct Quiescence {
    batch_counters: Mutex<Vec<Arc<BatchCounter>>>,
    /// Slots of worker processes. A dead process does not end its batch: its supervisor does.
    pub(crate) worker_slots: Arc<Shared<WorkerSlot>>,
    /// True if the lock holder excludes all workers.
    excluded: AtomicBool,
}

impl Quiescence {
    /// Creates the set for the threads of this process and the processes with these slots.
    pub(crate) fn new(worker_slots: Shared<WorkerSlot>) -> Self {
        Quiescence {
            batch_counters: Mutex::default(),
            worker_slots: Arc::new(worker_slots),
            excluded: AtomicBool::new(false),
        }
    }

    /// Adds the word of one more worker. The word is removed when the worker drops it.
    pub(crate) fn join(&self) -> Arc<BatchCounter> {
        let counter = Arc::<BatchCounter>::default();
        let mut batch_counters = self.batch_counters.lock().unwrap_or_else(PoisonError::into_inner);
        batch_counters.retain(|counter| Arc::strong_count(counter) > 1);
        batch_counters.push(counter.clone());
        counter
    }

    /// Waits until every batch has ended that began before the caller's last write. All later
    /// classification sees that write.
    pub(crate) fn wait(&self) {
        let batch_counters = self.batch_counters.lock().unwrap_or_else(PoisonError::into_inner);
        // Either the batch sees our write, or we see that the batch has begun.
        fence(SeqCst);
        let of_threads = batch_counters.iter().map(|counter| &counter.0);
        for counter in of_threads.chain(self.worker_slots.iter().map(|slot| &slot.batch_counter)) {
            let before = counter.load(Acquire);
            let mut pause = SpinWait::default();
            while before & 1 == 1 && counter.load(Acquire) == before {
                pause.once();
            }
        }
    }

    /// Keeps all workers off the fast path until [`Quiescence::include`]. The caller must hold the
    /// lock of the tables.
    pub(crate) fn exclude(&self) {
        self.excluded.store(true, Relaxed);
        self.wait();
    }

    pub(crate) fn include(&self) {
        self.excluded.store(false, Release);
    }

    /// Returns true between [`Quiescence::exclude`] and [`Quiescence::include`].
    #[inline]
    pub(crate) fn is_excluded(&self) -> bool {
        self.excluded.load(Acquire)
    }
}
