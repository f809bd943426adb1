//! Slices of the user plane: the users of each are handled by workers of its own, so that one that is flooded takes
//! nothing from the others (the slices of seed 2, PEPC, with state that exists once).
//!
//! Records stay where they are. What is divided is who handles their packets: a word for each TEID index and each UE
//! address names a worker ([`Owners`]), and programs of the kernel hand packets to that worker ([`steer`]). Moving a user is
//! writing its words: TEIDs, addresses, rules and counters stay, and nothing waits. A packet that was steered by the
//! old word is handled by the old worker as it would be by the new one; with more than one worker all counts are taken
//! by atomic additions, so none is lost.

mod owners;
pub(crate) mod steer;

pub use owners::Owners;

use crate::counters::{Stats, Volume};
use crate::host::StartError;
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

/// Whether the slices can be had beside the rest of the configuration.
pub(crate) fn check(slices: &[SliceWorkers], modules: usize, steered: bool) -> Result<(), StartError> {
    if slices.is_empty() {
        return Ok(());
    }
    if modules > 0 {
        return Err(StartError::SlicesAndModules);
    }
    if !steered {
        return Err(StartError::SlicesDriver);
    }
    let all = placement(slices);
    if all.len() > WORKERS || slices.iter().any(|slice| slice.workers == 0) {
        return Err(StartError::SliceWorkers);
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
}

impl Load {
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
        WorkerLoad { uplink: volume(0), downlink: volume(1), dropped: self.dropped.load(Relaxed) }
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

/// All workers' loads.
pub(crate) fn read(loads: &[Load]) -> Vec<WorkerLoad> {
    loads.iter().map(Load::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slices_need_is_said() {
        let slice = |workers, cores: &[usize]| SliceWorkers { workers, cores: cores.to_vec() };
        let says = |slices: &[SliceWorkers], modules, steered| {
            check(slices, modules, steered).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let two = [slice(1, &[0]), slice(2, &[])];
        assert_eq!(says(&two, 0, true), "");
        assert_eq!(says(&[], 2, false), "", "no slices, no conditions");
        assert_eq!(placement(&two), [Some(0), None, None]);
        assert!(says(&two, 2, true).contains("modules"));
        assert!(says(&two, 0, false).contains("driver"));
        assert!(says(&[slice(0, &[])], 0, true).contains("1 to 64"));
        assert!(says(&[slice(64, &[]), slice(1, &[])], 0, true).contains("1 to 64"));
        assert!(says(&[slice(1, &[9999])], 0, true).contains("no processor 9999"));
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
