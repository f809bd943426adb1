//! Progress counters: a watched thread counts its loop iterations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Progress counter of a watched thread: it grows as long as the thread runs its loop.
#[derive(Clone, Debug, Default)]
pub struct ProgressCounter(Arc<AtomicU64>);

impl ProgressCounter {
    /// Counts one iteration. Only the watched thread calls this.
    #[inline]
    pub fn tick(&self) {
        self.0.store(self.count().wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of iterations since the start.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
