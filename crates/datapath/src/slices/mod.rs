//! Slices of the user plane: the users of each are handled by workers of its own, so that one that is flooded takes
//! nothing from the others (the slices of seed 2, PEPC, with state that exists once).
//!
//! Records stay where they are. What is divided is who handles their packets: a word for each TEID index and each UE
//! address names a worker ([`WorkerMap`]), and programs of the kernel hand packets to that worker ([`steer`]). Moving a user is
//! writing its words: TEIDs, addresses, rules and counters stay, and nothing waits. A packet that was steered by the
//! old word is handled by the old worker as it would be by the new one; with more than one worker all counts are taken
//! by atomic additions, so none is lost.

pub(crate) mod steer;
mod worker_map;

pub use worker_map::WorkerMap;

use crate::counters::{Stats, Volume};
use crate::os_setup::StartError;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one slice has for its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceWorkers {
    /// Threads.
    pub workers: usize,
    /// Their processors, one each; empty = any.
    pub cores: Vec<usize>,
}

/// Workers that there may be: an owner word is an octet.
pub const WORKERS: usize = 64;

/// The processor of each worker of all slices, in order.
pub(crate) fn placement(slices: &[SliceWorkers]) -> Vec<Option<usize>> {
    slices.iter().flat_map(|slice| (0..slice.workers).map(|n| slice.cores.get(n).copied())).collect()
}

/// What a driver hands a user's packets to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SteerTarget {
    /// To whom they come to.
    Any,
    /// A thread.
    Thread,
    /// A processor, in the kernel.
    Processor,
}

/// The processors of all workers, in order; fewer if one has none.
pub(crate) fn processors(slices: &[SliceWorkers]) -> Vec<usize> {
    placement(slices).into_iter().flatten().collect()
}

/// Whether the slices can be had beside the rest of the configuration.
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

/// What a worker has forwarded, in lines of its own: it writes them after each batch.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Load {
    packets: [AtomicU64; 2],
    octets: [AtomicU64; 2],
    dropped: AtomicU64,
    /// Of the kernel; somebody else writes it.
    no_room: AtomicU64,
}

impl Load {
    /// Counts frames that there was no room for.
    pub(crate) fn no_room(&self, frames: u64) {
        self.no_room.fetch_add(frames, Relaxed);
    }

    /// Adds a batch. The worker alone writes.
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

/// What a worker has handled since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Forwarded from the RAN to the data network.
    pub uplink: Volume,
    /// Forwarded from the data network to the RAN.
    pub downlink: Volume,
    /// Dropped, for whatever reason.
    pub dropped: u64,
}

/// All workers' loads, with what workers that are processes have counted themselves.
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
