//! Quiescence: waits until each worker has ended the batch that it was in.
//!
//! A change that must follow all earlier packets uses it. A worker writes only its own word, twice
//! a batch, and waits for nothing.

use super::{Arrays, PendingNotification};
use crate::processes::WorkerSlot;
use crate::sys::shared::Shared;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Word of one worker, odd while it is in a batch. It has a cache line to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct BatchCounter(pub(super) AtomicU64);

/// Words of all workers.
#[derive(Debug)]
pub(crate) struct Quiescence {
    turns: Mutex<Vec<Arc<BatchCounter>>>,
    /// Slots of worker processes. A dead process does not end its batch: its supervisor does.
    pub(crate) seats: Arc<Shared<WorkerSlot>>,
    /// True if the lock holder excludes all workers.
    excluded: AtomicBool,
}

/// Waiting strategy for events that take nanoseconds, unless the thread to wait for has lost its
/// processor.
#[derive(Debug, Default)]
pub(crate) struct SpinWait(u32);

impl SpinWait {
    /// Returns true if the wait is so long that the caller should sleep until it is woken.
    pub(crate) fn is_long(&self) -> bool {
        self.0 >= 100
    }

    pub(crate) fn once(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..200 => std::hint::spin_loop(),
            200..2_000 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_micros(20)),
        }
    }
}

impl Quiescence {
    /// Creates the set for the threads of this process and the processes with these slots.
    pub(crate) fn new(seats: Shared<WorkerSlot>) -> Self {
        Quiescence { turns: Mutex::default(), seats: Arc::new(seats), excluded: AtomicBool::new(false) }
    }

    /// Adds the word of one more worker. The word is removed when the worker drops it.
    pub(super) fn join(&self) -> Arc<BatchCounter> {
        let turn = Arc::<BatchCounter>::default();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|turn| Arc::strong_count(turn) > 1);
        turns.push(turn.clone());
        turn
    }

    /// Waits until every batch has ended that began before the caller's last write. All later
    /// classification sees that write.
    pub(crate) fn wait(&self) {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Either the batch sees our write, or we see that the batch has begun.
        fence(SeqCst);
        for turn in turns.iter().map(|turn| &turn.0).chain(self.seats.iter().map(|seat| &seat.batch_counter)) {
            let seen = turn.load(Acquire);
            let mut pause = SpinWait::default();
            while seen & 1 == 1 && turn.load(Acquire) == seen {
                pause.once();
            }
        }
    }

    /// Keeps all workers off the fast path until [`Quiescence::include`]. The caller must hold the
    /// lock of the tables.
    pub(super) fn exclude(&self) {
        self.excluded.store(true, Relaxed);
        self.wait();
    }

    pub(super) fn include(&self) {
        self.excluded.store(false, Release);
    }
}

/// A batch in progress on the fast path (RCU read-side section).
#[derive(Debug)]
pub(crate) struct ReadSection<'a> {
    pub(crate) arrays: &'a Arrays,
    /// Notification that must be sent before any other packet is classified.
    pub(crate) owed: Cell<Option<PendingNotification>>,
    turn: Option<&'a AtomicU64>,
}

impl<'a> ReadSection<'a> {
    /// Begins a batch. Returns `None` while workers are excluded.
    #[inline]
    pub(crate) fn begin(arrays: &'a Arrays, turn: &'a AtomicU64) -> Option<Self> {
        turn.fetch_add(1, SeqCst);
        // See [`Quiescence::wait`]. On x86-64 an atomic addition is a full fence.
        if !cfg!(target_arch = "x86_64") {
            fence(SeqCst);
        }
        std::sync::atomic::compiler_fence(SeqCst);
        let inside = ReadSection { arrays, owed: Cell::new(None), turn: Some(turn) };
        (!arrays.quiet.excluded.load(Acquire)).then_some(inside)
    }

    /// Begins a batch without a concurrent writer.
    pub(crate) fn without_writers(arrays: &'a Arrays) -> Self {
        ReadSection { arrays, owed: Cell::new(None), turn: None }
    }
}

impl Drop for ReadSection<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(turn) = self.turn {
            turn.store(turn.load(Relaxed).wrapping_add(1), Release);
        }
    }
}
