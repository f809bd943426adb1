//! Environment of a worker thread.

use crate::engine::batch::{PuntBatch, WorkerEnv};
use crate::engine::counters::Stats;
use crate::engine::shared_tables::Reader;
use crate::engine::worker_load::WorkerCounters;

/// Environment of a worker thread, which locks the tables itself.
pub(crate) struct ThreadEnv {
    pub(crate) counters: WorkerCounters,
    pub(crate) reader: Reader,
    /// Number among the workers of slices, if any.
    pub(crate) number: Option<usize>,
    /// True if a single worker runs the fast path with non-atomic counters. That worker then waits
    /// while this one classifies.
    pub(crate) beside_one: bool,
}

impl WorkerEnv for ThreadEnv {
    #[inline]
    fn decide(&self, batch: &mut impl PuntBatch) {
        match self.beside_one {
            false => self.reader.decide(batch),
            true => self.reader.decide_alone(batch),
        }
    }

    fn flush(&self, stats: &mut Stats) {
        self.counters.flush(self.number, stats);
    }

    #[inline]
    fn announce_packets(&self, _: usize) {}
}
