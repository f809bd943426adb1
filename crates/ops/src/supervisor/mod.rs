//! Supervisor of a host's worker processes: starts, watches, kills and reaps them.
//!
//! [`start`] creates the only thread of the supervisor. [`join_region`] is the counterpart in the
//! worker.
//!
//! The supervisor decides nothing about slices, NFs or takeover. It reports started and reaped
//! workers by [`WorkerEvent`]. The resources of a worker may be reassigned only after its process
//! is reaped: a stopped process that wakes up must find nothing of its own left.
//!
//! Workers are children of the supervisor thread, and their death signal depends on that thread
//! (prctl(2), PR_SET_PDEATHSIG): no worker outlives the host, however it ends. Each worker has its
//! own process group, so Ctrl-C reaches only the host, which stops the workers at its end. A
//! SIGTERM to all processes at once (systemd's default; the unit should have `KillMode=mixed`) ends
//! workers early. This loses nothing: any end of a worker is an orderly one.

mod cgroup;
mod data_workers;
mod process;
mod shard;
mod watch;
mod weights;
mod worker_init;

pub use cgroup::quota;
pub use data_workers::{DataWorkerError, data_worker};
pub use process::Program;
pub use shard::{ShardProcess, shard_init};
pub use worker_init::{WorkerInitError, join_region};

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use vireo_store::region::{DeadWorker, Region};

/// Settings for starting, watching and placing workers.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// Command of the worker process.
    pub program: Program,
    /// Maximum time from the start of a worker until it has joined the region.
    pub joins_within: Duration,
    /// Time without progress after which a worker with work is checked, and killed if it is
    /// stopped.
    pub stopped_after: Duration,
    /// Time without progress after which a worker with work is killed in any case. A runnable
    /// worker that gets no CPU is not stuck: it has ten times as long.
    pub stuck_after: Duration,
    /// Processor numbers for the workers, used in turn; empty = all, and the kernel places the
    /// workers.
    pub cores: Vec<usize>,
}

impl SupervisorConfig {
    /// Returns the defaults: 10 s to join, checked after 20 ms, stuck after 500 ms, all processors.
    pub fn new(program: Program) -> Self {
        SupervisorConfig {
            program,
            joins_within: Duration::from_secs(10),
            stopped_after: Duration::from_millis(20),
            stuck_after: Duration::from_millis(500),
            cores: Vec::new(),
        }
    }
}

/// Event of a worker process.
#[derive(Debug)]
pub enum WorkerEvent {
    /// The worker has joined the region.
    Up {
        worker: u8,
        pid: u32,
        /// Time from its start until the supervisor noticed that it had joined.
        took: Duration,
    },
    /// A process that had joined was reaped and is marked dead in the region.
    Down {
        worker: u8,
        /// Process id, which may be reused.
        pid: u32,
        /// Access to the resources of the dead worker; `None` if it had left the region before. Its
        /// number is free for [`Supervisor::launch`] when they are reclaimed.
        dead: Option<DeadWorker>,
        /// Cause of its end.
        cause: ExitCause,
        /// Detection time: since the last progress of a stopped or stuck worker, else since the
        /// kernel's notification.
        noticed: Duration,
    },
    /// The worker did not start, or ended before it joined. Nothing of it is left.
    Failed { worker: u8, error: SupervisorError },
}

/// Cause of the end of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signal(i32),
    /// Killed: it had work and was stopped (SIGSTOP, a debugger).
    Stopped,
    /// Killed: it had work and made no progress.
    Stuck,
    /// The supervisor stopped it.
    Retired,
    /// Killed: it may have written values that no correct worker writes.
    Broken,
    /// Unknown, because another part of the process reaped it.
    Unknown,
}

/// Error that prevents a worker from starting.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The operating system does not start the process.
    #[error("a worker process cannot be started; see the limits on processes and memory")]
    Spawn(#[from] io::Error),
    /// It ended before it joined.
    #[error("the worker process ended before it was ready ({0:?}); its log lines say why")]
    Ended(ExitCause),
    /// It was killed because it did not join in time.
    #[error("the worker process was not ready within {0:?} and was killed; the machine may be overloaded")]
    TooSlow(Duration),
    /// A worker with this number exists.
    #[error("there is a worker of this number already")]
    NumberInUse,
}

impl SupervisorError {
    /// Returns true if something outside ended the worker, so that another one may start.
    pub fn is_kill(&self) -> bool {
        matches!(self, SupervisorError::Ended(ExitCause::Signal(_) | ExitCause::Stopped))
    }
}

/// Capacity of the command queue: more than four commands per worker.
const COMMANDS: usize = 1024;

/// Command to the supervisor thread.
#[derive(Clone, Copy, Debug)]
enum Command {
    Launch(u8),
    Retire(u8),
    Kill(u8),
    Weigh(u8, f64),
    Stop,
}

/// Handle of the supervisor. Dropping it kills all workers and waits for their ends.
#[derive(Debug)]
pub struct Supervisor {
    commands: mpsc::SyncSender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a supervisor for the workers of a region, without workers.
///
/// `waiting` returns true if a worker has work; a worker without work may sleep indefinitely.
/// `notify` receives the events. The supervisor thread calls both, and they must not block.
///
/// # Errors
///
/// Returns an error if the operating system refuses a descriptor or thread.
pub fn start(
    region: Region,
    config: SupervisorConfig,
    waiting: impl Fn(u8) -> bool + Send + 'static,
    notify: impl Fn(WorkerEvent) + Send + 'static,
) -> io::Result<Supervisor> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (commands, queue) = mpsc::sync_channel(COMMANDS);
    let mut watch =
        watch::SupervisorThread::new(region, config, wake.clone(), queue, Box::new(waiting), Box::new(notify))?;
    let thread = std::thread::Builder::new().name("supervisor".into()).spawn(move || watch.run())?;
    Ok(Supervisor { commands, wake, thread: Some(thread) })
}

impl Supervisor {
    /// Starts a worker. [`WorkerEvent::Up`] or [`WorkerEvent::Failed`] follows.
    pub fn launch(&self, worker: u8) {
        self.send(Command::Launch(worker));
    }

    /// Stops a worker by SIGTERM, and by SIGKILL if it does not exit. [`WorkerEvent::Down`] or
    /// [`WorkerEvent::Failed`] follows.
    pub fn stop_worker(&self, worker: u8) {
        self.send(Command::Retire(worker));
    }

    /// Kills a worker at once. [`WorkerEvent::Down`] or [`WorkerEvent::Failed`] follows.
    pub fn kill(&self, worker: u8) {
        self.send(Command::Kill(worker));
    }

    /// Sets the CPU weight of a worker. Only ratios between workers count; the initial weight is
    /// 1.0.
    pub fn weigh(&self, worker: u8, weight: f64) {
        self.send(Command::Weigh(worker, weight));
    }

    /// Kills all workers and waits for their ends, without events.
    pub fn stop(self) {
        drop(self);
    }

    fn send(&self, command: Command) {
        // The thread ends only by `Stop`, or by a panic that is logged; it has no workers then.
        if self.commands.send(command).is_ok() {
            // Fails only if the counter is full; then the thread is awake.
            let _ = rustix::io::write(self.wake.as_fd(), &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("supervisor of workers failed");
        }
    }
}
