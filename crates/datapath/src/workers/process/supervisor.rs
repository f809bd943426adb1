//! Supervisor of the worker processes.
//!
//! It assigns worker slots, detects dead and hung workers, and lets a standby worker take over
//! their slots.

use super::punt_channel::PuntChannel;
use super::setup::{self, WorkerSetup};
use super::spawner::{ChildProcess, ProcessSpawner};
use crate::engine::counters::{Counters, DropReason};
use crate::engine::worker_slot::{WorkerProgress, WorkerSlot};
use crate::start_error::StartError;
use crate::sys::clock::monotonic_ns;
use crate::sys::poll::{Poller, STOP, Waker};
use crate::sys::shared::Shared;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// Interval of the check that workers make progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum time from the start of a process until it takes its slot. [`STOP_TIMEOUT`] is the
/// maximum after a stop.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of successive processes that fail to take a slot.
const ATTEMPTS: u32 = 5;

/// Poll token of the standby worker.
const SPARE: u64 = u64::MAX - 1;

/// A worker slot with everything that its process needs.
pub(crate) struct WorkerPost {
    /// [`WorkerSetup`] in its encoded form.
    setup: Vec<u8>,
    files: Vec<OwnedFd>,
    channel: Arc<PuntChannel>,
    /// Readable when packets wait for the worker.
    work: Poller,
    holder: Option<StandbyWorker>,
    /// Time of the assignment until the process takes the slot. `empty_since` is the time at which
    /// the slot became empty.
    starting_since: Option<Instant>,
    empty_since: Instant,
    progress: WorkerProgress,
    /// Time for which the worker had work and made no progress.
    silence: Duration,
    /// Number of processes that ended since one last took the slot.
    ended: u64,
    /// Number of successive processes that ended before they took the slot.
    failures: u32,
}

impl WorkerPost {
    /// Creates an empty post. `work` is the range of descriptors in which packets for the worker
    /// wait.
    pub(crate) fn new(
        setup: &WorkerSetup,
        files: Vec<OwnedFd>,
        work: Range<usize>,
        channel: Arc<PuntChannel>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        for file in files.get(work).unwrap_or_default() {
            poller.add(file.as_fd(), 0)?;
        }
        Ok(WorkerPost {
            setup: setup.octets()?,
            files,
            channel,
            work: poller,
            holder: None,
            starting_since: None,
            empty_since: Instant::now(),
            progress: WorkerProgress::default(),
            silence: Duration::ZERO,
            ended: 0,
            failures: 0,
        })
    }

    /// Returns true if packets wait for the worker, and it does not wait for its punt handler.
    fn has_work(&self, slot: &WorkerSlot) -> bool {
        let mut waiting = slot.is_busy();
        // A descriptor without a result counts as having no work.
        let _ = self.work.wait(Some(Duration::ZERO), |_| waiting = true);
        waiting && self.channel.is_through()
    }
}

/// A process that waits for its setup or has a worker slot.
struct StandbyWorker {
    process: Box<dyn ChildProcess>,
    line: OwnedFd,
}

/// Counters of takeovers.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    count: AtomicU64,
    lost: AtomicU64,
    last_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// Statistics of data worker takeovers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverStats {
    /// Number of workers that died and were replaced.
    pub count: u64,
    /// Upper bound of the packets lost with them.
    pub lost_at_most: u64,
    /// Time that the last takeover left the slot empty, from detection until the next process took
    /// it.
    pub last: Duration,
    /// Maximum of these times since the start.
    pub longest: Duration,
}

impl Takeovers {
    /// Returns the current statistics.
    pub(crate) fn stats(&self) -> TakeoverStats {
        let time = |ns: &AtomicU64| Duration::from_nanos(ns.load(Relaxed));
        TakeoverStats {
            count: self.count.load(Relaxed),
            lost_at_most: self.lost.load(Relaxed),
            last: time(&self.last_ns),
            longest: time(&self.longest_ns),
        }
    }

    fn add(&self, ended: u64, empty: Duration) {
        let ns = empty.as_nanos() as u64;
        self.last_ns.store(ns, Relaxed);
        self.longest_ns.fetch_max(ns, Relaxed);
        self.count.fetch_add(ended, Relaxed);
    }
}

/// Records of the worker processes, which outlive them.
pub(crate) struct WorkerAccounts {
    pub(crate) slots: Arc<Shared<WorkerSlot>>,
    pub(crate) takeovers: Arc<Takeovers>,
    pub(crate) counters: Arc<Counters>,
}

/// The worker processes. They end when the value is dropped, after their stop signal.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    thread: Option<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
}

impl WorkerPool {
    /// Starts a process for each post and waits until all have taken their slots.
    ///
    /// # Errors
    ///
    /// Returns an error if a process does not start or does not take its slot.
    pub(crate) fn start(
        spawner: Arc<dyn ProcessSpawner>,
        posts: Vec<WorkerPost>,
        accounts: WorkerAccounts,
        stop: Waker,
    ) -> Result<Self, StartError> {
        let failed = Arc::<AtomicBool>::default();
        let poller = Poller::new()?;
        poller.add(stop.as_fd(), STOP)?;
        let of_thread = Arc::clone(&failed);
        let (ready, started) = mpsc::sync_channel(1);
        // The processes are children of this thread and end with it.
        let run = move || {
            let mut watch =
                SupervisorThread { spawner, posts, accounts, poller, spare: None, started: 0, failed: of_thread };
            let first = watch.fill_all_posts();
            let begins = first.is_ok();
            if ready.send(first).is_ok() && begins {
                watch.run();
            }
            watch.end();
        };
        let thread = std::thread::Builder::new().name("upf-watch".to_owned()).spawn(run)?;
        let pool = WorkerPool { thread: Some(thread), failed };
        match started.recv() {
            Ok(Ok(())) => Ok(pool),
            Ok(Err(error)) => Err(StartError::Processes(error)),
            Err(_) => Err(StartError::Processes(io::Error::other("the supervisor has ended"))),
        }
    }

    /// Returns true if a slot stays empty.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed) || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already logged it.
            let _ = thread.join();
        }
    }
}

struct SupervisorThread {
    spawner: Arc<dyn ProcessSpawner>,
    posts: Vec<WorkerPost>,
    accounts: WorkerAccounts,
    poller: Poller,
    /// Standby worker for the next empty slot.
    spare: Option<StandbyWorker>,
    started: u8,
    failed: Arc<AtomicBool>,
}

impl SupervisorThread {
    /// Starts a standby worker.
    fn start_standby(&mut self, token: u64) -> io::Result<StandbyWorker> {
        let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        self.started = self.started.wrapping_add(1);
        let mut process = self.spawner.start(self.started, &theirs)?;
        if let Err(error) = self.poller.add(process.pidfd(), token) {
            process.end();
            return Err(error);
        }
        Ok(StandbyWorker { process, line })
    }

    fn fill_all_posts(&mut self) -> io::Result<()> {
        for number in 0..self.posts.len() {
            self.fill_post(number)?;
        }
        let begun = Instant::now();
        while self.posts.iter().any(|post| post.starting_since.is_some()) {
            std::thread::sleep(Duration::from_millis(1));
            self.check_starts(false);
            let ended = |post: &mut WorkerPost| post.holder.as_mut()?.process.reap();
            if let Some(reason) = self.posts.iter_mut().find_map(ended) {
                return Err(io::Error::other(format!(
                    "the first one ended before it was ready ({reason}); see the log"
                )));
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "they were not ready within 10 s"));
            }
        }
        self.spare = Some(self.start_standby(SPARE)?);
        Ok(())
    }

    /// Assigns a post to the standby worker, or to a new process.
    fn fill_post(&mut self, number: usize) -> io::Result<()> {
        let send_setup = |post: &WorkerPost, candidate: &StandbyWorker| {
            let files: Vec<_> = post.files.iter().map(AsFd::as_fd).collect();
            setup::send(candidate.line.as_fd(), &post.setup, &files)
        };
        let mut candidate = match self.spare.take() {
            Some(spare) => spare,
            None => self.start_standby(number as u64)?,
        };
        if let Err(error) = send_setup(&self.posts[number], &candidate) {
            // It has died since.
            candidate.process.end();
            warn!("standby data worker ended: {error}");
            candidate = self.start_standby(number as u64)?;
            send_setup(&self.posts[number], &candidate)?;
        }
        let post = &mut self.posts[number];
        (post.starting_since, post.silence) = (Some(Instant::now()), Duration::ZERO);
        post.holder = Some(candidate);
        Ok(())
    }

    fn run(&mut self) {
        let mut checked_at = Instant::now();
        loop {
            let mut stop = false;
            let soon = self.posts.iter().any(|post| post.starting_since.is_some());
            let timeout = if soon { Duration::from_millis(1) } else { CHECK_INTERVAL };
            if let Err(error) = self.poller.wait(Some(timeout), |token| stop |= token == STOP) {
                error!("data workers no longer supervised: {error}");
                self.failed.store(true, Relaxed);
                return;
            }
            if stop {
                return;
            }
            self.reap();
            self.check_starts(true);
            // Time that this thread overslept does not count.
            let passed = checked_at.elapsed();
            if passed >= CHECK_INTERVAL {
                checked_at = Instant::now();
                self.check_progress(passed.min(2 * CHECK_INTERVAL));
            }
            if self.spare.is_none() && !soon {
                self.spare =
                    self.start_standby(SPARE).inspect_err(|error| warn!("no standby data worker: {error}")).ok();
            }
        }
    }

    /// Reaps ended processes and refills their slots.
    fn reap(&mut self) {
        for number in 0..self.posts.len() {
            let post = &mut self.posts[number];
            let Some(reason) = post.holder.as_mut().and_then(|holder| holder.process.reap()) else { continue };
            let started = post.starting_since.is_none();
            post.holder = None;
            post.ended += 1;
            post.failures = if started { 0 } else { post.failures + 1 };
            if started {
                post.empty_since = Instant::now();
            }
            let lost = self.clean_up(number);
            warn!("data worker {number} ended ({reason}) with at most {lost} packets; a standby takes over");
            let filled = match self.posts[number].failures {
                ATTEMPTS.. => Err(io::Error::other("the last ones ended before they were ready")),
                _ => self.fill_post(number),
            };
            if let Err(error) = filled {
                error!("data worker {number} not replaced: {error}");
                self.failed.store(true, Relaxed);
            }
        }
        if let Some(spare) = &mut self.spare
            && let Some(reason) = spare.process.reap()
        {
            warn!("standby data worker ended ({reason})");
            self.spare = None;
        }
    }

    /// Cleans up after a dead worker: waits for its punted batch, then counts the lost packets.
    /// Returns their number.
    fn clean_up(&mut self, number: usize) -> u64 {
        let lost = self.accounts.slots[number].clean_up();
        let (channel, begun) = (&self.posts[number].channel, Instant::now());
        while !channel.is_through() && begun.elapsed() < START_TIMEOUT {
            std::thread::sleep(Duration::from_micros(20));
        }
        channel.reset();
        self.accounts.takeovers.lost.fetch_add(lost, Relaxed);
        self.accounts.counters.add_drops(DropReason::WorkerDied, lost);
        lost
    }

    /// Detects processes that have taken their slots.
    fn check_starts(&mut self, again: bool) {
        for (number, (post, slot)) in self.posts.iter_mut().zip(self.accounts.slots.iter()).enumerate() {
            let (Some(since), Some(holder)) = (post.starting_since, &post.holder) else { continue };
            if slot.pid.load(Acquire) == u64::from(holder.process.pid()) {
                post.starting_since = None;
                if again {
                    let sat = Duration::from_nanos(monotonic_ns().saturating_sub(slot.started_ns.load(Relaxed)));
                    let empty = post.empty_since.elapsed().saturating_sub(sat);
                    self.accounts.takeovers.add(std::mem::take(&mut post.ended), empty);
                    info!(pid = holder.process.pid(), ?empty, "data worker {number} replaced");
                }
            } else if since.elapsed() > START_TIMEOUT {
                holder.process.kill();
            }
        }
    }

    /// Kills workers that make no progress.
    fn check_progress(&mut self, passed: Duration) {
        for (post, slot) in self.posts.iter_mut().zip(self.accounts.slots.iter()) {
            let progress = slot.progress();
            let still = progress == post.progress && post.starting_since.is_none() && post.has_work(slot);
            (post.progress, post.silence) = (progress, if still { post.silence + passed } else { Duration::ZERO });
            if let Some(holder) = &mut post.holder
                && holder.process.is_stuck(post.silence)
            {
                warn!(pid = holder.process.pid(), "data worker hangs; killing it");
                holder.process.kill();
            }
        }
    }

    /// Waits until the stopped processes have ended.
    fn end(&mut self) {
        let begun = Instant::now();
        for holder in self.posts.iter_mut().filter_map(|post| post.holder.take()).chain(self.spare.take()) {
            let StandbyWorker { mut process, line } = holder;
            drop(line);
            while process.reap().is_none() {
                if begun.elapsed() > STOP_TIMEOUT {
                    process.end();
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
