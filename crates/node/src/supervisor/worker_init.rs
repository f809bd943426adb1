//! The worker's side: how a process that was started by a crew becomes a worker of its region.

use super::process::{HOST, NUMBER};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io;
use std::os::fd::AsFd;
use vireo_store::region::{JoinError, Region, RegionError, Worker};

/// Why this process is no worker.
#[derive(Debug, thiserror::Error)]
pub enum EnlistError {
    /// The environment says nothing about a region.
    #[error("this command is for workers that a running core starts; start the core with `vireo run`")]
    NotAWorker,
    /// The host ended in the meantime.
    #[error("the host that started this worker is gone")]
    Orphan,
    /// The system refuses something.
    #[error("the worker cannot be set up")]
    Io(#[from] io::Error),
    /// Its standard input is no region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The region has it not.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Makes this process the worker that its crew started it as: its standard input is the region, its end follows that of
/// the host, and by the time this returns the crew sees it as up. It is watched from then on: with work waiting it must
/// [`Worker::beat`] with another value for every step.
///
/// # Errors
///
/// When this process was started by somebody else, or the region does not let it in.
pub fn join_region() -> Result<Worker, EnlistError> {
    let worker = die_with_parent()?;
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(Region::attach(descriptor)?.join(worker)?)
}

/// Makes this process end with the one that started it; gives its number.
pub(super) fn die_with_parent() -> Result<u8, EnlistError> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u32>().ok()).ok_or(EnlistError::NotAWorker);
    let (worker, host) = (number(NUMBER)?, number(HOST)?);
    let worker = u8::try_from(worker).map_err(|_| EnlistError::NotAWorker)?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // The host may have ended before this process asked to be told.
    if getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) != Some(host) {
        return Err(EnlistError::Orphan);
    }
    Ok(worker)
}
