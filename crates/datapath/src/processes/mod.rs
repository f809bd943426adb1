//! Data workers as processes of their own. The UPF's process owns the tables, the sockets, the rings and the TUN device;
//! the tables' arrays lie in memory that it shares with the workers' processes ([`orders`]), which decide by them as
//! threads do ([`worker`]). What a worker does not decide alone it puts on its *desk*, where a clerk of the UPF's process
//! decides by the locked tables ([`desk`], [`clerk`]).
//!
//! A worker that dies takes nothing with it but what it had in hand, a batch at most: rules, counts and words of rates
//! are in the shared memory, and what waits for it in the kernel waits in sockets and rings that the UPF's process has
//! open too. The supervisor ([`watch`]) gives its seat to a process that is ready and waits for that; that one reads on
//! where the dead one stopped. A worker that is stopped or hangs while packets wait is killed first.

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

/// By whom processes are started. They are children of the thread that calls it and end when that ends.
pub trait ProcessSpawner: Debug + Send + Sync {
    /// Starts a process with this number that calls [`work`] with its standard input, which is this.
    ///
    /// # Errors
    ///
    /// When the system does not start it.
    fn start(&self, number: u8, input: &OwnedFd) -> io::Result<Box<dyn ChildProcess>>;
}

/// A process that was started.
pub trait ChildProcess: Send + Sync {
    /// Its number.
    fn pid(&self) -> u32;
    /// Readable when it has ended.
    fn pidfd(&self) -> BorrowedFd<'_>;
    /// Kills it and waits for nothing.
    fn kill(&self);
    /// How it ended, if it has: there is nothing left of it then.
    fn reap(&mut self) -> Option<String>;
    /// Kills it and waits for its end.
    fn end(&mut self);
    /// Whether it will not be heard of again: it has had work for so long and did nothing about it. Zero = it has been
    /// heard of.
    fn is_stuck(&mut self, silent: Duration) -> bool;
}

/// Whether workers can be processes with the rest of the configuration.
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
