//! Data worker processes of the user plane.
//!
//! They are started and watched like the workers of a region, but do not know the region. The user
//! plane decides which data worker takes over from a dead one.

use super::process::{Process, Program};
use super::watch::is_lost;
use super::{ExitCause, SupervisorConfig, WorkerInitError, worker_init};
use crate::privileges::{self, Profile};
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use vireo_datapath::{ChildProcess, ProcessSpawner, WorkError};

/// A data worker process.
struct DataWorker {
    process: Process,
    config: SupervisorConfig,
    /// CPU time of the process at the first check of its silence.
    cpu: Option<Duration>,
    /// Reason for which it was killed.
    cause: Option<ExitCause>,
}

impl ProcessSpawner for Program {
    fn start(&self, number: u8, input: &OwnedFd) -> io::Result<Box<dyn ChildProcess>> {
        // The worker moves to its processor when it receives the number of it.
        let process = Process::start(self, number, input, None)?;
        Ok(Box::new(DataWorker { process, config: SupervisorConfig::new(self.clone()), cpu: None, cause: None }))
    }
}

impl ChildProcess for DataWorker {
    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn pidfd(&self) -> BorrowedFd<'_> {
        self.process.pidfd.as_fd()
    }

    fn kill(&self) {
        self.process.signal(Signal::KILL);
    }

    fn reap(&mut self) -> Option<String> {
        let cause = self.process.reap()?;
        Some(format!("{:?}", self.cause.unwrap_or(cause)))
    }

    fn end(&mut self) {
        self.process.end();
    }

    fn is_stuck(&mut self, silent: Duration) -> bool {
        if silent.is_zero() {
            self.cpu = None;
            return false;
        }
        self.cause = self.cause.or(is_lost(&self.process, silent, &mut self.cpu, &self.config));
        self.cause.is_some()
    }
}

/// Error that ends a data worker process.
#[derive(Debug, thiserror::Error)]
pub enum DataWorkerError {
    /// No user plane started the process.
    #[error(transparent)]
    Init(#[from] WorkerInitError),
    /// The work of the data worker failed.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The operating system refuses a resource.
    #[error("the data worker cannot be set up: {0}")]
    Io(#[from] io::Error),
}

/// Runs this process as a data worker until the user plane stops it or exits.
///
/// # Errors
///
/// Returns an error if no user plane started the process, or its work fails.
pub fn data_worker() -> Result<(), DataWorkerError> {
    worker_init::die_with_parent()?;
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    privileges::confine(Profile::Packets);
    Ok(vireo_datapath::run_worker(line)?)
}
