//! Slices of the user plane, each with dedicated workers (PEPC, with state that exists once).
//!
//! A flood of packets in one slice does not take capacity from the others. The entries are common
//! to all slices. A word for each TEID index and each UE address names the worker of a user's
//! packets ([`crate::WorkerMap`]). Kernel programs steer packets to that worker
//! ([`crate::drivers::slice_steering`]).
//!
//! Migrating a user writes its words: TEIDs, addresses, rules and counters stay, and nothing waits.
//! The old worker handles packets steered by the old word just as the new one would. With more than
//! one worker all counts are atomic additions, so none is lost.

use crate::engine::worker_map::WORKERS;
use crate::start_error::StartError;
use std::path::Path;

/// Workers of one slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceWorkers {
    /// Number of worker threads.
    pub workers: usize,
    /// Processors of the workers, one each. Empty = any processor.
    pub cores: Vec<usize>,
}

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
pub(crate) fn check(slices: &[SliceWorkers], modules: usize, target: SteerTarget) -> Result<(), StartError> {
    if slices.is_empty() {
        return Ok(());
    }
    if modules > 0 {
        return Err(StartError::SlicesAndModules);
    }
    if target == SteerTarget::Any {
        return Err(StartError::SlicesDriver);
    }
    let all = placement(slices);
    if all.len() > WORKERS || slices.iter().any(|slice| slice.workers == 0) {
        return Err(StartError::SliceWorkers);
    }
    let own = processors(slices);
    let each = own.iter().enumerate().all(|(n, core)| !own[..n].contains(core)) && own.len() == all.len();
    if target == SteerTarget::Processor && !each {
        return Err(StartError::SliceProcessors);
    }
    let missing = |core: &&usize| !Path::new(&format!("/sys/devices/system/cpu/cpu{core}")).exists();
    match all.iter().flatten().find(missing) {
        Some(core) => Err(StartError::ModuleCore(*core)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_slices_are_refused() {
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
}
