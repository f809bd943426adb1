//! Interface to the processes that the user plane starts and watches.

use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Starts processes. They are children of the calling thread and end with it.
pub trait ProcessSpawner: Debug + Send + Sync {
    /// Starts a process with the number `number`, which calls [`crate::run_worker`] with `input` as
    /// its standard input.
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
