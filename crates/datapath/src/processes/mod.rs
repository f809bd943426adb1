//! Data workers as processes.
//!
//! The UPF process owns the tables, the sockets, the rings and the TUN device. It shares the memory
//! of the entries with the worker processes ([`worker_setup`]), which run the fast path on it as
//! threads do ([`worker`]). A worker punts all other packets through its punt channel. A punt
//! handler in the UPF process classifies them by the locked tables ([`punt_channel`],
//! [`punt_handler`]).
//!
//! When a worker dies, at most the packets that it held are lost, which is one batch. Rules,
//! counters and policers are in the shared memory. Waiting packets stay in sockets and rings, which
//! the UPF process has open too. The supervisor ([`supervisor`]) assigns the worker slot to a
//! standby worker, which continues reading where the dead one stopped. A worker that is stopped or
//! hangs while packets wait is killed first.

mod punt_channel;
mod punt_handler;
mod supervisor;
mod worker;
mod worker_setup;
mod worker_slot;

pub(crate) use punt_channel::{PuntChannel, PuntedPacket};
pub(crate) use punt_handler::PuntHandler;
pub use supervisor::TakeoverStats;
pub(crate) use supervisor::{Takeovers, WorkerPool, WorkerPost};
pub use worker::{WorkError, work};
pub(crate) use worker_setup::{FrameSetup, TableFds, WorkerSetup, tables};
pub(crate) use worker_slot::{RingPosition, WorkerSlot};

use crate::fast::Locking;
use crate::frames::FrameIo;
use crate::os_setup::StartError;
use crate::sockets::SocketsConfig;
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Starts processes. They are children of the calling thread and end with it.
pub trait ProcessSpawner: Debug + Send + Sync {
    /// Starts a process with the number `number`, which calls [`work`] with `input` as its standard
    /// input.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not start it.
    fn start(&self, number: u8, input: &OwnedFd) -> io::Result<Box<dyn ChildProcess>>;
}

/// A started process.
pub trait ChildProcess: Send + Sync {
    /// Returns the process ID.
    fn pid(&self) -> u32;
    /// Returns a descriptor that becomes readable when the process ends.
    fn pidfd(&self) -> BorrowedFd<'_>;
    /// Kills the process without waiting.
    fn kill(&self);
    /// Returns how the process ended, if it has, and reaps it.
    fn reap(&mut self) -> Option<String>;
    /// Kills the process and waits for its end.
    fn end(&mut self);
    /// Returns true if the process must be considered hung: it had work for `silent` without making
    /// progress. `silent` = 0 means that it made progress.
    fn is_stuck(&mut self, silent: Duration) -> bool;
}

/// Checks that the rest of the configuration permits worker processes.
///
/// # Errors
///
/// Returns an error that names the conflicting setting.
pub(crate) fn check(config: &SocketsConfig) -> Result<(), StartError> {
    if config.processes.is_none() {
        return Ok(());
    }
    if config.xdp.is_some() {
        return Err(StartError::ProcessesOfXdp);
    }
    if config.frames.as_ref().is_some_and(|frames| matches!(frames.io, FrameIo::AfXdp(_))) {
        return Err(StartError::ProcessesOfAfXdp);
    }
    if config.limits.locking != Locking::Fine {
        return Err(StartError::ProcessesLocking);
    }
    if config.limits.hot_users > 0 {
        return Err(StartError::ProcessesHot);
    }
    Ok(())
}
