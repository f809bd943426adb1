//! Read access to the state of a running user plane.

use crate::drivers::xdp::KernelCounters;
use crate::engine::counters::Stats;
use crate::engine::flow_rules::FlowPackets;
use crate::engine::shared_tables::SharedTables;
use crate::engine::tables::Tables;
use crate::engine::worker_load::{WorkerCounters, WorkerLoad, read_loads};
use crate::workers::process::{TakeoverStats, Takeovers};
use std::sync::Arc;

/// Read access to the state of a running user plane.
#[derive(Clone, Debug)]
pub struct StatsHandle {
    pub(crate) tables: SharedTables,
    pub(super) counters: WorkerCounters,
    kernel: Option<KernelCounters>,
    pub(super) takeovers: Arc<Takeovers>,
}

impl StatsHandle {
    /// Creates the handle of a user plane with `workers` workers of slices.
    pub(super) fn new(tables: Tables, kernel: Option<KernelCounters>, workers: usize) -> Self {
        StatsHandle {
            tables: SharedTables::new(tables),
            counters: WorkerCounters::new(workers),
            kernel,
            takeovers: Arc::default(),
        }
    }

    /// Returns the load of the workers of slices, in their order.
    pub fn loads(&self) -> Vec<WorkerLoad> {
        match &self.kernel {
            Some(kernel) => kernel.loads(),
            None => {
                let slots = self.tables.arrays().quiescence.worker_slots.iter();
                let of_processes = slots.map(|slot| Some(slot.counters.read()));
                read_loads(&self.counters.loads, of_processes.chain(std::iter::repeat(None)))
            }
        }
    }

    /// Returns the statistics of worker process takeovers.
    pub fn takeovers(&self) -> TakeoverStats {
        self.takeovers.stats()
    }

    /// Returns the current counters.
    pub fn stats(&self) -> Stats {
        let of_processes = self.tables.arrays().quiescence.worker_slots.iter().map(|slot| slot.counters.read());
        let mut stats = of_processes.fold(self.counters.total.read(), |sum, counts| sum.plus(&counts));
        if let Some(kernel) = &self.kernel {
            kernel.add_to(&mut stats);
        }
        stats
    }

    /// Returns the packets of sessions with flow rules that the kernel program received.
    pub fn flow_packets(&self) -> FlowPackets {
        self.kernel.as_ref().map(KernelCounters::flow_packets).unwrap_or_default()
    }

    /// Calls `read` with the locked tables.
    pub fn read<R>(&self, read: impl FnOnce(&Tables) -> R) -> R {
        self.tables.read(read)
    }
}
