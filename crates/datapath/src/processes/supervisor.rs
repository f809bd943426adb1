//! The supervisor of the workers' processes: it gives them their seats, sees when one has died or is stuck, and gives its
//! seat to one that is ready.

use super::worker_setup::{self, WorkerSetup};
use super::{ChildProcess, ProcessSpawner, PuntChannel, WorkerSlot};
use crate::counters::DropReason;
use crate::os_setup::StartError;
use crate::sockets::StatsHandle;
use crate::sys::monotonic_ns;
use crate::sys::poll::{Poller, Waker};
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

/// How often is looked whether workers do what there is to do.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process may take from its start until it sits, and to end when it is told.
const SITS_WITHIN: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How many in a row may fail to take a seat.
const ATTEMPTS: u32 = 5;

const STOP: u64 = u64::MAX;
const SPARE: u64 = u64::MAX - 1;

/// A worker's place, and all that it needs there.
pub(crate) struct WorkerPost {
    orders: Vec<u8>,
    files: Vec<OwnedFd>,
    desk: Arc<PuntChannel>,
    /// Readable when packets wait for it.
    work: Poller,
    holder: Option<StandbyWorker>,
    /// When its holder was told to sit, until it does; and since when the seat was empty.
    seating: Option<Instant>,
    empty: Instant,
    heard: (u64, u64),
    silent: Duration,
    /// How many holders have ended since somebody sat here,
    ended: u64,
    /// and how many of them in a row before they sat.
    failures: u32,
}

impl WorkerPost {
    /// A place that nobody has. `work` are those of the descriptors that packets for it wait in.
    pub(crate) fn new(
        orders: &WorkerSetup,
        files: Vec<OwnedFd>,
        work: Range<usize>,
        desk: Arc<PuntChannel>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        for file in files.get(work).unwrap_or_default() {
            poller.add(file.as_fd(), 0)?;
        }
        Ok(WorkerPost {
            orders: orders.octets()?,
            files,
            desk,
            work: poller,
            holder: None,
            seating: None,
            empty: Instant::now(),
            heard: (0, 0),
            silent: Duration::ZERO,
            ended: 0,
            failures: 0,
        })
    }

    /// Whether packets wait for the worker, and not it for its clerk.
    fn has_work(&self, seat: &WorkerSlot) -> bool {
        let mut waiting = seat.is_busy();
        // what cannot be asked has no work
        let _ = self.work.wait(Some(Duration::ZERO), |_| waiting = true);
        waiting && self.desk.is_through()
    }
}

/// A process that waits for orders or has a seat.
struct StandbyWorker {
    process: Box<dyn ChildProcess>,
    line: OwnedFd,
}

/// How often workers were taken over from.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    count: AtomicU64,
    lost: AtomicU64,
    last_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// What takeovers of data workers came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverStats {
    /// How many workers have died and were replaced.
    pub count: u64,
    /// Packets that died with them, at most.
    pub lost_at_most: u64,
    /// How long the last one's seat was empty, from when its end was seen until the next one sat.
    pub last: Duration,
    /// And the longest time.
    pub longest: Duration,
}

impl Takeovers {
    /// What they came to so far.
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

/// The workers' processes; they end when this is dropped, after the stop that they were given is rung.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    thread: Option<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
}

impl WorkerPool {
    /// Has a process take each place, and waits until all do.
    pub(crate) fn start(
        recruit: Arc<dyn ProcessSpawner>,
        posts: Vec<WorkerPost>,
        seats: Arc<Shared<WorkerSlot>>,
        view: StatsHandle,
        stop: Waker,
    ) -> Result<Self, StartError> {
        let failed = Arc::<AtomicBool>::default();
        let poller = Poller::new()?;
        poller.add(stop.as_fd(), STOP)?;
        let of_thread = Arc::clone(&failed);
        let (ready, seated) = mpsc::sync_channel(1);
        // the processes are children of this thread, and end with it
        let run = move || {
            let mut watch =
                SupervisorThread { recruit, posts, seats, view, poller, spare: None, started: 0, failed: of_thread };
            let first = watch.seat_all();
            let begins = first.is_ok();
            if ready.send(first).is_ok() && begins {
                watch.run();
            }
            watch.end();
        };
        let thread = std::thread::Builder::new().name("upf-watch".to_owned()).spawn(run)?;
        let staff = WorkerPool { thread: Some(thread), failed };
        match seated.recv() {
            Ok(Ok(())) => Ok(staff),
            Ok(Err(error)) => Err(StartError::Processes(error)),
            Err(_) => Err(StartError::Processes(io::Error::other("the supervisor has ended"))),
        }
    }

    /// Whether a place stays empty.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed) || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // one that panicked has said so already
            let _ = thread.join();
        }
    }
}

struct SupervisorThread {
    recruit: Arc<dyn ProcessSpawner>,
    posts: Vec<WorkerPost>,
    seats: Arc<Shared<WorkerSlot>>,
    view: StatsHandle,
    poller: Poller,
    /// One that waits for the next seat that is empty.
    spare: Option<StandbyWorker>,
    started: u8,
    failed: Arc<AtomicBool>,
}

impl SupervisorThread {
    /// Starts a process that waits for orders.
    fn candidate(&mut self, token: u64) -> io::Result<StandbyWorker> {
        let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        self.started = self.started.wrapping_add(1);
        let mut process = self.recruit.start(self.started, &theirs)?;
        if let Err(error) = self.poller.add(process.pidfd(), token) {
            process.end();
            return Err(error);
        }
        Ok(StandbyWorker { process, line })
    }

    fn seat_all(&mut self) -> io::Result<()> {
        for number in 0..self.posts.len() {
            self.seat(number)?;
        }
        let begun = Instant::now();
        while self.posts.iter().any(|post| post.seating.is_some()) {
            std::thread::sleep(Duration::from_millis(1));
            self.look_at_seats(false);
            let ended = |post: &mut WorkerPost| post.holder.as_mut()?.process.reap();
            if let Some(why) = self.posts.iter_mut().find_map(ended) {
                return Err(io::Error::other(format!("the first one ended before it was ready ({why}); see the log")));
            }
            if begun.elapsed() > SITS_WITHIN {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "they were not ready within 10 s"));
            }
        }
        self.spare = Some(self.candidate(SPARE)?);
        Ok(())
    }

    /// Has a process take a place: the one that waits for that, else a new one.
    fn seat(&mut self, number: usize) -> io::Result<()> {
        let given = |post: &WorkerPost, candidate: &StandbyWorker| {
            let files: Vec<_> = post.files.iter().map(AsFd::as_fd).collect();
            worker_setup::send(candidate.line.as_fd(), &post.orders, &files)
        };
        let mut candidate = match self.spare.take() {
            Some(spare) => spare,
            None => self.candidate(number as u64)?,
        };
        if let Err(error) = given(&self.posts[number], &candidate) {
            // it has died meanwhile
            candidate.process.end();
            warn!("a data worker that was to take over has ended: {error}");
            candidate = self.candidate(number as u64)?;
            given(&self.posts[number], &candidate)?;
        }
        let post = &mut self.posts[number];
        (post.seating, post.silent) = (Some(Instant::now()), Duration::ZERO);
        post.holder = Some(candidate);
        Ok(())
    }

    fn run(&mut self) {
        let mut looked = Instant::now();
        loop {
            let mut stop = false;
            let soon = self.posts.iter().any(|post| post.seating.is_some());
            let timeout = if soon { Duration::from_millis(1) } else { LOOK };
            if let Err(error) = self.poller.wait(Some(timeout), |token| stop |= token == STOP) {
                error!("the data workers are not looked after any more: {error}");
                self.failed.store(true, Relaxed);
                return;
            }
            if stop {
                return;
            }
            self.reap();
            self.look_at_seats(true);
            // what this thread slept more than it meant to does not count
            let passed = looked.elapsed();
            if passed >= LOOK {
                looked = Instant::now();
                self.look_at_work(passed.min(2 * LOOK));
            }
            if self.spare.is_none() && !soon {
                self.spare =
                    self.candidate(SPARE).inspect_err(|error| warn!("no data worker in reserve: {error}")).ok();
            }
        }
    }

    /// Takes leave of those that have ended, and fills their places.
    fn reap(&mut self) {
        for number in 0..self.posts.len() {
            let post = &mut self.posts[number];
            let Some(why) = post.holder.as_mut().and_then(|holder| holder.process.reap()) else { continue };
            let sat = post.seating.is_none();
            post.holder = None;
            post.ended += 1;
            post.failures = if sat { 0 } else { post.failures + 1 };
            if sat {
                post.empty = Instant::now();
            }
            let lost = self.bury(number);
            warn!(
                "data worker {number} has ended ({why}) with at most {lost} packets in hand; the next one takes over"
            );
            let seated = match self.posts[number].failures {
                ATTEMPTS.. => Err(io::Error::other("the last ones ended before they were ready")),
                _ => self.seat(number),
            };
            if let Err(error) = seated {
                error!("nobody takes the place of data worker {number}: {error}");
                self.failed.store(true, Relaxed);
            }
        }
        if let Some(spare) = &mut self.spare
            && let Some(why) = spare.process.reap()
        {
            warn!("the data worker in reserve has ended ({why})");
            self.spare = None;
        }
    }

    /// Puts right what a worker of which nothing runs any more left. What it handed over is carried out first.
    fn bury(&mut self, number: usize) -> u64 {
        let lost = self.seats[number].bury();
        let (desk, begun) = (&self.posts[number].desk, Instant::now());
        while !desk.is_through() && begun.elapsed() < SITS_WITHIN {
            std::thread::sleep(Duration::from_micros(20));
        }
        desk.tidy();
        self.view.takeovers.lost.fetch_add(lost, Relaxed);
        self.view.counters.lose(DropReason::WorkerDied, lost);
        lost
    }

    /// Sees which seats are taken meanwhile.
    fn look_at_seats(&mut self, again: bool) {
        for (number, (post, seat)) in self.posts.iter_mut().zip(self.seats.iter()).enumerate() {
            let (Some(since), Some(holder)) = (post.seating, &post.holder) else { continue };
            if seat.pid.load(Acquire) == u64::from(holder.process.pid()) {
                post.seating = None;
                if again {
                    let sat = Duration::from_nanos(monotonic_ns().saturating_sub(seat.started_ns.load(Relaxed)));
                    let empty = post.empty.elapsed().saturating_sub(sat);
                    self.view.takeovers.add(std::mem::take(&mut post.ended), empty);
                    info!(pid = holder.process.pid(), ?empty, "data worker {number} is taken over from");
                }
            } else if since.elapsed() > SITS_WITHIN {
                holder.process.kill();
            }
        }
    }

    /// Kills those that do not do what there is to do.
    fn look_at_work(&mut self, passed: Duration) {
        for (post, seat) in self.posts.iter_mut().zip(self.seats.iter()) {
            let heard = seat.heard();
            let still = heard == post.heard && post.seating.is_none() && post.has_work(seat);
            (post.heard, post.silent) = (heard, if still { post.silent + passed } else { Duration::ZERO });
            if let Some(holder) = &mut post.holder
                && holder.process.is_stuck(post.silent)
            {
                warn!(pid = holder.process.pid(), "a data worker does nothing about its packets and is killed");
                holder.process.kill();
            }
        }
    }

    /// Waits for the ends of those that were told to stop.
    fn end(&mut self) {
        let begun = Instant::now();
        for holder in self.posts.iter_mut().filter_map(|post| post.holder.take()).chain(self.spare.take()) {
            let StandbyWorker { mut process, line } = holder;
            drop(line);
            while process.reap().is_none() {
                if begun.elapsed() > ENDS_WITHIN {
                    process.end();
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
