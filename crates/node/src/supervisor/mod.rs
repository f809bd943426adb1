//! The worker processes of a host: started, watched, ended and reaped. [`start`] makes the one thread that does it; in
//! the worker, [`enlist`] is the counterpart.
//!
//! It decides nothing about slices, NFs or who takes over: it says when a worker is up and when one is gone for good, by
//! [`WorkerEvent`]. What a worker held is another's only once its process is reaped: a stopped process that wakes must find
//! nothing of its own left (DESIGN decision 3).
//!
//! Workers are children of the crew's thread, and that is what their death signal is tied to (prctl(2),
//! PR_SET_PDEATHSIG): none outlives the host, however it ends. Each is a process group of its own, so that Ctrl-C
//! reaches the host alone, which ends them when it is done. A SIGTERM to all of them at once (systemd's default; the
//! unit should say `KillMode=mixed`) ends workers early, which loses nothing: any end of a worker is an orderly one.

mod cgroup;
mod data_workers;
mod process;
mod watch;
mod weights;
mod worker_init;

pub(crate) use cgroup::quota;
pub use data_workers::{DataWorkerError, data_worker};
pub use process::Program;
pub use worker_init::{EnlistError, join_region};

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use vireo_store::region::{DeadWorker, Region};

/// How workers are started, watched and placed.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// What is started as a worker.
    pub program: Program,
    /// How long a worker may take from its start until it has joined the region.
    pub joins_within: Duration,
    /// How long a worker that has work may show no progress before it is looked at, and killed if it is stopped.
    pub stopped_after: Duration,
    /// How long a worker that has work may show no progress before it is killed in any case. One that wants to run and
    /// is not let is not stuck: it gets ten times as long.
    pub stuck_after: Duration,
    /// The processors that workers run on, by number, dealt in turn; empty = all, and the kernel places them.
    pub cores: Vec<usize>,
}

impl SupervisorConfig {
    /// With 10 s to join, looked at after 20 ms, stuck after 500 ms, on all processors.
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

/// What became of a worker.
#[derive(Debug)]
pub enum WorkerEvent {
    /// It has joined the region.
    Up {
        /// Its number.
        worker: u8,
        /// Its process.
        pid: u32,
        /// From its start until it was seen to have joined.
        took: Duration,
    },
    /// Its process, which had joined, is gone: reaped, and buried in the region.
    Down {
        /// Its number.
        worker: u8,
        /// Its process, of which nothing is left.
        pid: u32,
        /// What leads to its estate; `None` if it had left the region before it ended, and so had nothing left. Its
        /// number is free for [`Supervisor::launch`] once this is reclaimed.
        dead: Option<DeadWorker>,
        /// How it ended.
        why: ExitCause,
        /// How long it took until here: from the last progress that was seen of a worker that was stopped or stuck, from
        /// the kernel's word otherwise.
        noticed: Duration,
    },
    /// It was not started, or ended before it joined. Nothing is left of it.
    Failed {
        /// Its number.
        worker: u8,
        /// Why.
        error: SupervisorError,
    },
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// By itself, with this exit status.
    Exited(i32),
    /// By this signal.
    Signal(i32),
    /// Killed: it had work and was stopped (SIGSTOP, a debugger).
    Stopped,
    /// Killed: it had work and did nothing about it.
    Stuck,
    /// As it was told.
    Dismissed,
    /// Killed: it may have written what no worker writes.
    Broken,
    /// Somebody else waited for it, so nobody knows.
    Unknown,
}

/// Why there is no such worker.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The system does not start it.
    #[error("a worker process cannot be started; see the limits on processes and memory")]
    Spawn(#[from] io::Error),
    /// It ended before it joined.
    #[error("the worker process ended before it was ready ({0:?}); its log lines say why")]
    Ended(ExitCause),
    /// It was killed because it did not join.
    #[error("the worker process was not ready within {0:?} and was killed; the machine may be overloaded")]
    TooSlow(Duration),
    /// There is one with this number.
    #[error("there is a worker of this number already")]
    Taken,
}

/// Commands that may wait: more than there are workers, four times over.
const COMMANDS: usize = 1024;

/// What the thread is asked.
#[derive(Clone, Copy, Debug)]
enum Command {
    Launch(u8),
    Dismiss(u8),
    Kill(u8),
    Weigh(u8, f64),
    Stop,
}

/// The workers of a host. Dropped, it kills them all and waits for their ends.
#[derive(Debug)]
pub struct Supervisor {
    commands: mpsc::SyncSender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Begins to look after the workers of a region, of which there is none yet.
///
/// `waiting` says whether a worker has work: one that has none may sleep as long as it likes. `notify` is told what
/// happens. Both are called from the crew's thread and must not block.
///
/// # Errors
///
/// When the system has no descriptor or thread left.
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
    let thread = std::thread::Builder::new().name("crew".into()).spawn(move || watch.run())?;
    Ok(Supervisor { commands, wake, thread: Some(thread) })
}

impl Supervisor {
    /// Starts a worker: [`WorkerEvent::Up`] or [`WorkerEvent::Failed`] follows.
    pub fn launch(&self, worker: u8) {
        self.tell(Command::Launch(worker));
    }

    /// Ends a worker: by SIGTERM, and SIGKILL if that does not help. [`WorkerEvent::Down`] or [`WorkerEvent::Failed`] follows.
    pub fn stop_worker(&self, worker: u8) {
        self.tell(Command::Dismiss(worker));
    }

    /// Kills a worker at once: [`WorkerEvent::Down`] or [`WorkerEvent::Failed`] follows.
    pub fn kill(&self, worker: u8) {
        self.tell(Command::Kill(worker));
    }

    /// Sets a worker's part of the processor in relation to the others': only ratios count. 1.0 to begin with.
    pub fn weigh(&self, worker: u8, weight: f64) {
        self.tell(Command::Weigh(worker, weight));
    }

    /// Kills all workers and waits for their ends, without notices.
    pub fn stop(self) {
        drop(self);
    }

    fn tell(&self, command: Command) {
        // The thread ends only by Stop, or by a panic that is logged; it has no more workers then.
        if self.commands.send(command).is_ok() {
            // Fails only if the counter is full: the thread is awake then.
            let _ = rustix::io::write(self.wake.as_fd(), &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks after the workers has failed");
        }
    }
}
