//! Worker on the thread of the host (`pools.worker-model = "inline"`).
//!
//! The host runs the steps itself and takes each result at once: no wake-up, and the effects are
//! not decoded again.

use super::config::WorkerConfig;
use super::host_rings::HostRings;
use super::outbox::Outbox;
use super::{NfWorker, region_layout};
use std::time::Instant;
use vireo_store::region::{Buffer, Packet, Region, Worker};

/// Results of steps for the host on the same thread.
#[derive(Debug, Default)]
pub(crate) struct StepResults {
    /// Commit records in their order, each with what it stores if the step has just run.
    pub(crate) committed: Vec<(Buffer, Option<StepRecord>)>,
    /// Packets that go back to the host.
    pub(crate) returned: Vec<Packet>,
}

/// Outbox and deadline of a commit record.
#[derive(Debug)]
pub(crate) struct StepRecord {
    pub(crate) outbox: Outbox,
    pub(crate) deadline: Option<vireo_types::Instant>,
}

/// Where a worker passes its results.
pub(super) enum Results {
    /// To another process.
    Rings(Box<HostRings>),
    /// To the host on the same thread.
    SameThread(StepResults),
}

impl Results {
    /// Passes a commit record, or a returned packet. Returns false if a ring is full.
    pub(super) fn try_push(&mut self, region: &Region, is_commit: bool, item: u64) -> bool {
        match self {
            Results::Rings(rings) => rings.try_push(is_commit, item),
            Results::SameThread(kept) => {
                match is_commit {
                    true => kept.committed.extend(region.buffer_of(item).map(|buffer| (buffer, None))),
                    false => kept.returned.push(Packet::from_item(item)),
                }
                true
            }
        }
    }

    /// Returns the results that the host takes on this thread.
    pub(super) fn on_thread(&mut self) -> Option<&mut StepResults> {
        match self {
            Results::Rings(_) => None,
            Results::SameThread(kept) => Some(kept),
        }
    }

    /// Wakes the process of the host for passed items.
    pub(super) fn wake(&mut self) {
        if let Results::Rings(rings) = self {
            rings.wake();
        }
    }
}

/// The worker of a host that runs the steps itself.
pub(crate) struct InlineWorker {
    nf: NfWorker,
    /// Emptied results, whose memory is used again.
    spare: StepResults,
}

impl std::fmt::Debug for InlineWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InlineWorker").finish_non_exhaustive()
    }
}

impl InlineWorker {
    /// Creates the worker with a configuration that is published already.
    pub(crate) fn new(region: &Region, worker: Worker, config: WorkerConfig) -> Self {
        let version = region.published_version(region_layout::BULLETIN_CONFIG);
        let results = Results::SameThread(StepResults::default());
        // The log level is that of the host, which sets it.
        let nf = NfWorker::new(region.clone(), worker, (config, version), |_| {}, results);
        InlineWorker { nf, spare: StepResults::default() }
    }

    /// Serves the NF whose turn it is. Returns false if no UE waits.
    pub(crate) fn run_once(&mut self) -> bool {
        self.nf.run_once()
    }

    /// Returns true if a UE waits.
    pub(crate) fn has_work(&self) -> bool {
        self.nf.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Returns the time at the end of the last step.
    pub(crate) fn now(&self) -> Instant {
        self.nf.pace.now
    }

    /// Prepares for work after a time without.
    pub(crate) fn wakes_up(&mut self) {
        self.nf.wakes_up();
    }

    /// Returns the results since the last call.
    pub(crate) fn take_results(&mut self) -> StepResults {
        let mut results = std::mem::take(&mut self.spare);
        self.nf.results.on_thread().into_iter().for_each(|kept| std::mem::swap(kept, &mut results));
        results
    }

    /// Takes back results that the host has emptied.
    pub(crate) fn reuse(&mut self, emptied: StepResults) {
        self.spare = emptied;
    }
}
