//! Read section: a batch that a worker classifies without the lock of the tables.

use crate::engine::arrays::Arrays;
use crate::engine::event::PendingNotification;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// A batch in progress on the fast path (RCU read-side section).
#[derive(Debug)]
pub(crate) struct ReadSection<'a> {
    pub(crate) arrays: &'a Arrays,
    /// Notification that must be sent before any other packet is classified.
    pub(crate) pending: Cell<Option<PendingNotification>>,
    batch_counter: Option<&'a AtomicU64>,
}

impl<'a> ReadSection<'a> {
    /// Begins a batch. Returns `None` while workers are excluded.
    #[inline]
    pub(crate) fn begin(arrays: &'a Arrays, batch_counter: &'a AtomicU64) -> Option<Self> {
        batch_counter.fetch_add(1, SeqCst);
        // See [`crate::engine::quiescence::Quiescence::wait`]. On x86-64 an atomic addition is a
        // full fence.
        if !cfg!(target_arch = "x86_64") {
            fence(SeqCst);
        }
        std::sync::atomic::compiler_fence(SeqCst);
        let section = ReadSection { arrays, pending: Cell::new(None), batch_counter: Some(batch_counter) };
        (!arrays.quiescence.is_excluded()).then_some(section)
    }

    /// Begins a batch without a concurrent writer.
    pub(crate) fn without_writers(arrays: &'a Arrays) -> Self {
        ReadSection { arrays, pending: Cell::new(None), batch_counter: None }
    }
}

impl Drop for ReadSection<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(counter) = self.batch_counter {
            counter.store(counter.load(Relaxed).wrapping_add(1), Release);
        }
    }
}
