//! Counters of the kernel program, in the layout of `bpf/entry.h`.

use crate::engine::counters::{DROP_REASONS, Stats, Volume};
use crate::engine::flow_rules::FlowPackets;
use crate::engine::worker_load::WorkerLoad;
use aya::maps::{MapData, PerCpuArray};
use std::sync::Arc;
use tracing::warn;

/// Counters of the program on one processor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ProgramCounters {
    uplink: [u64; 2],
    downlink: [u64; 2],
    drops: [u64; DROP_REASONS],
    /// Packets of marked entries: classified, and passed to user space.
    pub(crate) rules: [u64; 2],
}

// SAFETY: plain integers without padding.
unsafe impl aya::Pod for ProgramCounters {}

impl ProgramCounters {
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let add = |volume: &mut Volume, [packets, octets]: [u64; 2]| {
            volume.packets += packets;
            volume.octets += octets;
        };
        add(&mut stats.uplink, self.uplink);
        add(&mut stats.downlink, self.downlink);
        stats.drops.iter_mut().zip(self.drops).for_each(|(sum, n)| *sum += n);
    }
}

/// Counters of the program on all processors.
#[derive(Clone)]
pub(crate) struct KernelCounters {
    all: Arc<PerCpuArray<MapData, ProgramCounters>>,
    /// Processors of the workers of slices.
    workers: Arc<[usize]>,
}

impl std::fmt::Debug for KernelCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelCounters").finish_non_exhaustive()
    }
}

impl KernelCounters {
    /// Adds the current counters of the program.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        match self.all.get(&0, 0) {
            Ok(processors) => processors.iter().for_each(|counted| counted.add_to(stats)),
            Err(error) => warn!("the counters of the XDP program cannot be read: {error}"),
        }
    }

    /// Returns the loads of the processors of slices.
    pub(crate) fn loads(&self) -> Vec<WorkerLoad> {
        let processors = self.all.get(&0, 0);
        let of = |processor: &usize| {
            let mut stats = Stats::default();
            if let Some(counted) = processors.as_ref().ok().and_then(|all| all.get(*processor)) {
                counted.add_to(&mut stats);
            }
            WorkerLoad { uplink: stats.uplink, downlink: stats.downlink, dropped: stats.drops.iter().sum() }
        };
        self.workers.iter().map(of).collect()
    }

    /// Returns the number of packets of marked entries.
    pub(crate) fn flow_packets(&self) -> FlowPackets {
        let mut sum = FlowPackets::default();
        for counted in self.all.get(&0, 0).iter().flat_map(|processors| processors.iter()) {
            sum.decided += counted.rules[0];
            sum.punted += counted.rules[1];
        }
        sum
    }
}

impl KernelCounters {
    pub(crate) fn new(all: PerCpuArray<MapData, ProgramCounters>, workers: &[usize]) -> Self {
        KernelCounters { all: Arc::new(all), workers: workers.into() }
    }
}
