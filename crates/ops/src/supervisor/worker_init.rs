//! Start of a worker process: it joins the region of its supervisor.

use super::process::{HOST, NUMBER};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io;
use std::os::fd::AsFd;
use vireo_store::region::{JoinError, Region, RegionError, Worker};

/// Error that prevents a process from becoming a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerInitError {
    /// The environment does not name a worker and a host.
    #[error("this command is for workers that a running core starts; start the core with `vireo run`")]
    NotAWorker,
    /// The host has exited meanwhile.
    #[error("the host that started this worker is gone")]
    Orphan,
    /// The operating system refuses a resource.
    #[error("the worker cannot be set up")]
    Io(#[from] io::Error),
    /// The standard input is not a region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The region refuses the worker.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Makes this process the worker that its supervisor started.
///
/// Its standard input is the region, and it dies with the host. When this returns, the supervisor
/// sees it as joined. With work pending it must call [`Worker::beat`] with a new value for every
/// step.
///
/// # Errors
///
/// Returns an error if no supervisor started the process, or the region refuses it.
pub fn join_region() -> Result<Worker, WorkerInitError> {
    let worker = die_with_parent()?;
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(Region::attach(descriptor)?.join(worker)?)
}

/// Makes this process die with its parent. Returns its worker number.
pub(super) fn die_with_parent() -> Result<u8, WorkerInitError> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u32>().ok()).ok_or(WorkerInitError::NotAWorker);
    let (worker, host) = (number(NUMBER)?, number(HOST)?);
    let worker = u8::try_from(worker).map_err(|_| WorkerInitError::NotAWorker)?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // The host may have exited before the death signal was set.
    if getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) != Some(host) {
        return Err(WorkerInitError::Orphan);
    }
    Ok(worker)
}
