//! A shard: a host process that `vireo run` starts.
//!
//! It is started and ends like a worker. Its standard input is a socket, over which parent and
//! shard exchange the messages of `vireo_node::shards`.

use super::process::{Process, Program};
use super::{ExitCause, WorkerInitError, worker_init};
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A running shard process. The thread that starts it must outlive it.
#[derive(Debug)]
pub struct ShardProcess(Process);

impl ShardProcess {
    /// Starts a shard. Returns it with the parent's end of its socket.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses the process or a descriptor.
    pub fn start(program: &Program, shard: u8, core: Option<usize>) -> io::Result<(Self, UnixStream)> {
        let (own, theirs) = UnixStream::pair()?;
        let process = Process::start(program, shard, &OwnedFd::from(theirs), core)?;
        Ok((ShardProcess(process), own))
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Returns the descriptor that becomes readable when the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.0.pidfd.as_fd()
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&self) {
        self.0.signal(Signal::KILL);
    }

    /// Reaps the process if it has ended, and returns the cause.
    pub fn reap(&mut self) -> Option<ExitCause> {
        self.0.reap()
    }

    /// Kills the process and waits for its end.
    pub fn end(&mut self) {
        self.0.end();
    }

    /// Returns true if a signal or a tracer has stopped the process.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

/// Makes this process die with its parent. Returns the number of the shard and its socket.
///
/// # Errors
///
/// Returns an error if no core started the process.
pub fn shard_init() -> Result<(u8, UnixStream), WorkerInitError> {
    let shard = worker_init::die_with_parent()?;
    Ok((shard, UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?)))
}
