//! Data workers of the user plane, as processes: started and watched by the same means as the workers of a region, of
//! which they know nothing. Who takes over from one that has died is the user plane's business.

use super::process::{Process, Program};
use super::watch::is_lost;
use super::{EnlistError, ExitCause, SupervisorConfig, worker_init};
use crate::privileges::{self, Profile};
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use vireo_datapath::{ChildProcess, ProcessSpawner, WorkError};

/// A data worker's process.
struct DataWorker {
    process: Process,
    patience: SupervisorConfig,
    /// The processor's time it had had when it was first looked at for its silence.
    cpu: Option<Duration>,
    /// Why it was killed.
    why: Option<ExitCause>,
}

impl ProcessSpawner for Program {
    fn start(&self, number: u8, input: &OwnedFd) -> io::Result<Box<dyn ChildProcess>> {
        // it goes to its processor when it is told which
        let process = Process::start(self, number, input, None)?;
        Ok(Box::new(DataWorker { process, patience: SupervisorConfig::new(self.clone()), cpu: None, why: None }))
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
        let why = self.process.reap()?;
        Some(format!("{:?}", self.why.unwrap_or(why)))
    }

    fn end(&mut self) {
        self.process.end();
    }

    fn is_stuck(&mut self, silent: Duration) -> bool {
        if silent.is_zero() {
            self.cpu = None;
            return false;
        }
        self.why = self.why.or(is_lost(&self.process, silent, &mut self.cpu, &self.patience));
        self.why.is_some()
    }
}

/// Why this process is no data worker, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum DataWorkerError {
    /// Somebody else has started it.
    #[error(transparent)]
    Enlist(#[from] EnlistError),
    /// It cannot do what it is told.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The system refuses something.
    #[error("the data worker cannot be set up: {0}")]
    Io(#[from] io::Error),
}

/// Makes this process the data worker that a user plane started it as, until that tells it to stop or ends.
///
/// # Errors
///
/// When this process was started by somebody else, or what it does fails.
pub fn data_worker() -> Result<(), DataWorkerError> {
    worker_init::die_with_parent()?;
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    privileges::confine(Profile::Packets);
    Ok(vireo_datapath::work(line)?)
}
