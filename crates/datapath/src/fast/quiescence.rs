//! Who decides on packets right now: a change that must come after all that was decided before it waits until each
//! worker has ended the batch that it was in. A worker writes one word of its own for that, twice a batch, and waits for
//! nobody.

use super::{Arrays, PendingNotification};
use crate::processes::WorkerSlot;
use crate::sys::shared::Shared;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// A worker's word: odd while it is in a batch. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct BatchCounter(pub(super) AtomicU64);

/// The words of all workers.
#[derive(Debug)]
pub(crate) struct Quiescence {
    turns: Mutex<Vec<Arc<BatchCounter>>>,
    /// Those of workers that are processes of their own. One that has died does not end its batch: whoever buries it does.
    pub(crate) seats: Arc<Shared<WorkerSlot>>,
    /// Somebody has all packets to himself, by the lock of the tables.
    excluded: AtomicBool,
}

/// How somebody waits for what takes nanoseconds, unless its thread has lost the processor.
#[derive(Debug, Default)]
pub(crate) struct SpinWait(u32);

impl SpinWait {
    /// Whether it has taken so long that whoever can should sleep until it is told.
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
    /// Of threads of this process, and of processes that have these seats.
    pub(crate) fn new(seats: Shared<WorkerSlot>) -> Self {
        Quiescence { turns: Mutex::default(), seats: Arc::new(seats), excluded: AtomicBool::new(false) }
    }

    /// The word of one more worker, for as long as it keeps it.
    pub(super) fn join(&self) -> Arc<BatchCounter> {
        let turn = Arc::<BatchCounter>::default();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|turn| Arc::strong_count(turn) > 1);
        turns.push(turn.clone());
        turn
    }

    /// Waits until every batch has ended that was begun before what the caller has written last, so that whatever is
    /// decided from now on has seen that.
    pub(crate) fn wait(&self) {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // either the batch sees what we have written, or we see that it has begun
        fence(SeqCst);
        for turn in turns.iter().map(|turn| &turn.0).chain(self.seats.iter().map(|seat| &seat.batch_counter)) {
            let seen = turn.load(Acquire);
            let mut pause = SpinWait::default();
            while seen & 1 == 1 && turn.load(Acquire) == seen {
                pause.once();
            }
        }
    }

    /// Keeps all workers from deciding without the lock of the tables, which the caller holds, until [`Quiescence::include`].
    pub(super) fn exclude(&self) {
        self.excluded.store(true, Relaxed);
        self.wait();
    }

    pub(super) fn include(&self) {
        self.excluded.store(false, Release);
    }
}

/// A batch that is being decided on without a lock.
#[derive(Debug)]
pub(crate) struct ReadSection<'a> {
    pub(crate) arrays: &'a Arrays,
    /// What the owner must be told before anything else is decided on.
    pub(crate) owed: Cell<Option<PendingNotification>>,
    turn: Option<&'a AtomicU64>,
}

impl<'a> ReadSection<'a> {
    /// Begins a batch; `None` where somebody has all packets to himself.
    #[inline]
    pub(crate) fn begin(arrays: &'a Arrays, turn: &'a AtomicU64) -> Option<Self> {
        turn.fetch_add(1, SeqCst);
        // see `wait`; on this processor an addition that no other may see halfway is a fence
        if !cfg!(target_arch = "x86_64") {
            fence(SeqCst);
        }
        std::sync::atomic::compiler_fence(SeqCst);
        let inside = ReadSection { arrays, owed: Cell::new(None), turn: Some(turn) };
        (!arrays.quiet.excluded.load(Acquire)).then_some(inside)
    }

    /// The same where nobody changes anything meanwhile.
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
