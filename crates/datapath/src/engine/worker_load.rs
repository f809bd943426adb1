//! Load of each worker, and the counters of all workers of this process.

use crate::engine::counters::{Counters, Stats, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Load of one worker in separate cache lines. The worker writes it after each batch.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Load {
    packets: [AtomicU64; 2],
    octets: [AtomicU64; 2],
    dropped: AtomicU64,
    /// Dropped by the kernel. Not written by the worker.
    no_room: AtomicU64,
}

impl Load {
    /// Counts frames that the kernel dropped because the ring was full.
    pub(crate) fn no_room(&self, frames: u64) {
        self.no_room.fetch_add(frames, Relaxed);
    }

    /// Adds a batch. Only the worker calls it.
    pub(crate) fn add(&self, stats: &Stats) {
        let add = |sum: &AtomicU64, n: u64| sum.store(sum.load(Relaxed).wrapping_add(n), Relaxed);
        for (n, volume) in [stats.uplink, stats.downlink].iter().enumerate() {
            add(&self.packets[n], volume.packets);
            add(&self.octets[n], volume.octets);
        }
        add(&self.dropped, stats.drops.iter().sum());
    }

    fn read(&self) -> WorkerLoad {
        let volume = |n: usize| Volume { packets: self.packets[n].load(Relaxed), octets: self.octets[n].load(Relaxed) };
        WorkerLoad {
            uplink: volume(0),
            downlink: volume(1),
            dropped: self.dropped.load(Relaxed) + self.no_room.load(Relaxed),
        }
    }
}

/// Packets that a worker has handled since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Forwarded from the RAN to the data network.
    pub uplink: Volume,
    /// Forwarded from the data network to the RAN.
    pub downlink: Volume,
    /// Dropped for any reason.
    pub dropped: u64,
}

/// Returns the loads of all workers, including the counters of worker processes.
pub(crate) fn read_loads(loads: &[Load], of_processes: impl Iterator<Item = Option<Stats>>) -> Vec<WorkerLoad> {
    let sum = |(load, process): (&Load, Option<Stats>)| {
        let (load, process) = (load.read(), process.unwrap_or_default());
        WorkerLoad {
            uplink: load.uplink.plus(process.uplink),
            downlink: load.downlink.plus(process.downlink),
            dropped: load.dropped + process.drops.iter().sum::<u64>(),
        }
    };
    loads.iter().zip(of_processes).map(sum).collect()
}

/// Counters that the workers of this process share. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCounters {
    pub(crate) total: Arc<Counters>,
    /// Loads of the workers of slices, in their order.
    pub(crate) loads: Arc<[Load]>,
}

impl WorkerCounters {
    /// Creates counters with loads for `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        WorkerCounters { total: Arc::default(), loads: (0..workers).map(|_| Load::default()).collect() }
    }

    /// Adds the counts of a worker, and its load if it has a number.
    pub(crate) fn flush(&self, worker: Option<usize>, stats: &mut Stats) {
        if let Some(load) = worker.and_then(|number| self.loads.get(number)) {
            load.add(stats);
        }
        self.total.flush(stats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_adds_up() {
        let load = Load::default();
        let mut stats = Stats::default();
        stats.uplink.add(100);
        stats.drops[3] = 2;
        load.add(&stats);
        load.add(&stats);
        let sum = load.read();
        assert_eq!((sum.uplink, sum.downlink), (Volume { packets: 2, octets: 200 }, Volume::default()));
        assert_eq!(sum.dropped, 4);
    }
}
