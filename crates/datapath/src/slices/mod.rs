//! Slices of the user plane, each with dedicated workers (seed 2, PEPC, with state that exists
//! once).
//!
//! A flood of packets in one slice does not take capacity from the others. The entries are common
//! to all slices. A word for each TEID index and each UE address names the worker of a user's
//! packets ([`WorkerMap`]). Kernel programs steer packets to that worker ([`steer`]).
//!
//! Migrating a user writes its words: TEIDs, addresses, rules and counters stay, and nothing waits.
//! The old worker handles packets steered by the old word just as the new one would. With more than
//! one worker all counts are atomic additions, so none is lost.

pub(crate) mod steer;
mod worker_map;

pub use worker_map::WorkerMap;

use crate::counters::{Stats, Volume};
use crate::os_setup::StartError;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Workers of one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceWorkers {
    /// Number of worker threads.
    pub workers: usize,
    /// Processors of the workers, one each. Empty = any processor.
    pub cores: Vec<usize>,
}

/// Maximum number of workers. The worker word is one byte.
pub const WORKERS: usize = 64;

/// Returns the processor of each worker of all slices, in order.
pub(crate) fn placement(slices: &[SliceWorkers]) -> Vec<Option<usize>> {
    slices.iter().flat_map(|slice| (0..slice.workers).map(|n| slice.cores.get(n).copied())).collect()
}

/// Target that a driver steers a user's packets to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SteerTarget {
    /// The receiving worker; no steering.
    Any,
    /// A worker thread.
    Thread,
    /// A processor, in the kernel.
    Processor,
}

/// Returns the processors of all workers, in order. Workers without a processor are skipped.
pub(crate) fn processors(slices: &[SliceWorkers]) -> Vec<usize> {
    placement(slices).into_iter().flatten().collect()
}

/// Checks the slices against the rest of the configuration.
///
/// # Errors
///
/// Returns an error if the driver, the modules, the processors or the number of workers do not
/// permit them.
pub(crate) fn check(slices: &[SliceWorkers], modules: usize, to: SteerTarget) -> Result<(), StartError> {
    if slices.is_empty() {
        return Ok(());
    }
    if modules > 0 {
        return Err(StartError::SlicesAndModules);
    }
    if to == SteerTarget::Any {
        return Err(StartError::SlicesDriver);
    }
    let all = placement(slices);
    if all.len() > WORKERS || slices.iter().any(|slice| slice.workers == 0) {
        return Err(StartError::SliceWorkers);
    }
    let own = processors(slices);
    let each = own.iter().enumerate().all(|(n, core)| !own[..n].contains(core)) && own.len() == all.len();
    if to == SteerTarget::Processor && !each {
        return Err(StartError::SliceProcessors);
    }
    let missing = |core: &&usize| !Path::new(&format!("/sys/devices/system/cpu/cpu{core}")).exists();
    match all.iter().flatten().find(missing) {
        Some(core) => Err(StartError::ModuleCore(*core)),
        None => Ok(()),
    }
}

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
pub(crate) fn read(loads: &[Load], seats: impl Iterator<Item = Option<Stats>>) -> Vec<WorkerLoad> {
    let sum = |(load, seat): (&Load, Option<Stats>)| {
        let (load, seat) = (load.read(), seat.unwrap_or_default());
        WorkerLoad {
            uplink: load.uplink.plus(seat.uplink),
            downlink: load.downlink.plus(seat.downlink),
            dropped: load.dropped + seat.drops.iter().sum::<u64>(),
        }
    };
    loads.iter().zip(seats).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slices_need_is_said() {
        let slice = |workers, cores: &[usize]| SliceWorkers { workers, cores: cores.to_vec() };
        let says = |slices: &[SliceWorkers], modules, to| {
            check(slices, modules, to).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let two = [slice(1, &[0]), slice(2, &[])];
        assert_eq!(says(&two, 0, SteerTarget::Thread), "");
        assert_eq!(says(&[], 2, SteerTarget::Any), "", "no slices, no conditions");
        assert_eq!(placement(&two), [Some(0), None, None]);
        assert!(says(&two, 2, SteerTarget::Thread).contains("modules"));
        assert!(says(&two, 0, SteerTarget::Any).contains("driver"));
        assert!(says(&[slice(0, &[])], 0, SteerTarget::Thread).contains("1 to 64"));
        assert!(says(&[slice(64, &[]), slice(1, &[])], 0, SteerTarget::Thread).contains("1 to 64"));
        assert!(says(&[slice(1, &[9999])], 0, SteerTarget::Thread).contains("no processor 9999"));
        for shared in [&two[..], &[slice(1, &[0]), slice(1, &[0])]] {
            assert!(says(shared, 0, SteerTarget::Processor).contains("processor of its own"));
        }
        assert_eq!(says(&[slice(1, &[0])], 0, SteerTarget::Processor), "");
    }

    #[test]
    fn a_load_is_a_sum() {
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
