//! The crew's thread: it sleeps until a process ends, a command comes or it is time to look at the workers.

use super::process::{Process, State};
use super::weights::Weights;
use super::{Command, ExitCause, SupervisorConfig, SupervisorError, WorkerEvent};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use vireo_store::region::Region;

/// How often is looked whether a worker that was started has joined.
const JOINING: Duration = Duration::from_millis(1);
/// How long a worker may take to end by SIGTERM.
const GRACE: Duration = Duration::from_secs(1);
/// A worker that wants to run and is not let has as many times [`SupervisorConfig::stuck_after`].
const STARVED: u32 = 10;
/// The descriptor of commands, which is no worker's.
const COMMANDS: u64 = u64::MAX;

pub(super) struct SupervisorThread {
    region: Region,
    config: SupervisorConfig,
    /// The region's descriptor, which workers inherit.
    descriptor: OwnedFd,
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: mpsc::Receiver<Command>,
    waiting: Box<dyn Fn(u8) -> bool + Send>,
    notify: Box<dyn Fn(WorkerEvent) + Send>,
    weights: Weights,
    members: Vec<SupervisedWorker>,
    /// How many were started: the next one's turn for a core.
    started: usize,
    looked: Instant,
}

/// A worker.
struct SupervisedWorker {
    worker: u8,
    process: Process,
    joined: bool,
    /// What was heard of it last.
    heard: u64,
    /// How long it has had work since and was not heard of.
    silent: Duration,
    /// The processor's time it had had when it was first looked at for that.
    cpu: Option<Duration>,
    ending: Option<EndingReason>,
}

/// Why a worker is about to end.
struct EndingReason {
    why: ExitCause,
    since: Instant,
    /// It was killed, and not just asked.
    killed: bool,
    /// For how long it was silent before.
    silent: Duration,
}

impl SupervisedWorker {
    fn kill(&mut self, why: ExitCause) {
        self.process.signal(Signal::KILL);
        self.ending = Some(EndingReason { why, since: Instant::now(), killed: true, silent: self.silent });
    }
}

impl SupervisorThread {
    pub(super) fn new(
        region: Region,
        config: SupervisorConfig,
        wake: Arc<OwnedFd>,
        commands: mpsc::Receiver<Command>,
        waiting: Box<dyn Fn(u8) -> bool + Send>,
        notify: Box<dyn Fn(WorkerEvent) + Send>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake, EventData::new_u64(COMMANDS), EventFlags::IN)?;
        // The clone is not inherited by who is not meant.
        let descriptor = region.share()?.try_clone()?;
        Ok(SupervisorThread {
            region,
            config,
            descriptor,
            epoll,
            wake,
            commands,
            waiting,
            notify,
            weights: Weights::default(),
            members: Vec::new(),
            started: 0,
            looked: Instant::now(),
        })
    }

    /// Looks after the workers until it is told to stop.
    pub(super) fn run(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            events.clear();
            let timeout = self.timeout().and_then(|t| Timespec::try_from(t).ok());
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the ends of workers cannot be waited for; looking from time to time");
                    std::thread::sleep(self.closely());
                }
            }
            if events.iter().any(|e| e.data.u64() == COMMANDS) && !self.handle_command() {
                return;
            }
            self.reap();
            self.look();
        }
    }

    /// How often workers are looked at that show progress or have no work: often enough to notice one that does not
    /// after [`SupervisorConfig::stopped_after`], and no oftener, for it costs something when there is nothing to do.
    fn usual(&self) -> Duration {
        (self.config.stopped_after / 2).max(JOINING)
    }

    /// How often one is looked at that shows none.
    fn closely(&self) -> Duration {
        (self.config.stopped_after / 4).max(JOINING)
    }

    /// When there is something to look at; `None` = not before somebody calls.
    fn timeout(&self) -> Option<Duration> {
        let of = |m: &SupervisedWorker| match m.ending {
            None if !m.joined => JOINING,
            None if m.silent.is_zero() => self.usual(),
            // To the point in time, so that what is to be noticed is noticed then.
            None if m.silent < self.config.stopped_after => self.config.stopped_after - m.silent,
            _ => self.closely(),
        };
        self.members.iter().map(of).min().map(|t| t.max(Duration::from_micros(100)))
    }

    /// Does what was asked; `false` when that is the end.
    fn handle_command(&mut self) -> bool {
        let mut count = [0; 8];
        // Nothing but the wake-up is read.
        let _ = rustix::io::read(self.wake.as_fd(), &mut count);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Launch(worker) => self.launch(worker),
                Command::Dismiss(worker) => self.dismiss(worker),
                Command::Kill(worker) => {
                    if let Some(member) = self.members.iter_mut().find(|m| m.worker == worker) {
                        member.kill(ExitCause::Broken);
                    }
                }
                Command::Weigh(worker, weight) => self.weights.set(worker, weight),
                Command::Stop => {
                    for member in &mut self.members {
                        member.process.signal(Signal::KILL);
                    }
                    for member in &mut self.members {
                        member.process.end();
                    }
                    self.weights.end();
                    return false;
                }
            }
        }
        true
    }

    fn launch(&mut self, worker: u8) {
        if self.members.iter().any(|m| m.worker == worker) {
            return (self.notify)(WorkerEvent::Failed { worker, error: SupervisorError::Taken });
        }
        let cores = &self.config.cores;
        let core = self.started.checked_rem(cores.len()).map(|turn| cores[turn]);
        let started = Process::start(&self.config.program, worker, &self.descriptor, core).and_then(|mut process| {
            let data = EventData::new_u64(worker.into());
            epoll::add(&self.epoll, &process.pidfd, data, EventFlags::IN).inspect_err(|_| process.end())?;
            Ok(process)
        });
        match started {
            Ok(process) => {
                self.started += 1;
                self.weights.add(worker, process.pid());
                let (joined, silent) = (false, Duration::ZERO);
                self.members.push(SupervisedWorker {
                    worker,
                    process,
                    joined,
                    heard: 0,
                    silent,
                    cpu: None,
                    ending: None,
                });
            }
            Err(error) => (self.notify)(WorkerEvent::Failed { worker, error: error.into() }),
        }
    }

    fn dismiss(&mut self, worker: u8) {
        if let Some(member) = self.members.iter_mut().find(|m| m.worker == worker && m.ending.is_none()) {
            member.process.signal(Signal::TERM);
            let (why, since) = (ExitCause::Dismissed, Instant::now());
            member.ending = Some(EndingReason { why, since, killed: false, silent: Duration::ZERO });
        }
    }

    /// Takes leave of those that have ended.
    fn reap(&mut self) {
        let woken = Instant::now();
        let mut place = 0;
        while let Some(member) = self.members.get_mut(place) {
            match member.process.reap() {
                None => place += 1,
                Some(why) => {
                    let member = self.members.swap_remove(place);
                    self.weights.remove(member.worker);
                    let notice = self.gone(member, why, woken);
                    (self.notify)(notice);
                }
            }
        }
    }

    /// What there is to say of one that is reaped.
    fn gone(&self, member: SupervisedWorker, status: ExitCause, woken: Instant) -> WorkerEvent {
        let SupervisedWorker { worker, process, joined, ending, .. } = member;
        let pid = process.pid();
        let why = ending.as_ref().map_or(status, |e| e.why);
        let dead = match self.region.pid_of(worker) {
            // It may have joined a moment before it ended.
            Some(of) if of == pid => self.region.bury_reaped(worker, pid),
            // It has left in order.
            None if matches!(status, ExitCause::Exited(_)) => None,
            // What the region says of it, no worker writes.
            _ if joined => self.region.bury_reaped(worker, pid),
            _ => None,
        };
        if !joined && dead.is_none() {
            let error = match ending {
                Some(EndingReason { why: ExitCause::Stuck, .. }) => SupervisorError::TooSlow(self.config.joins_within),
                _ => SupervisorError::Ended(why),
            };
            return WorkerEvent::Failed { worker, error };
        }
        let noticed = ending.filter(|e| e.killed).map_or(woken.elapsed(), |e| e.silent + e.since.elapsed());
        WorkerEvent::Down { worker, pid, dead, why, noticed }
    }

    /// Looks at those that are there.
    fn look(&mut self) {
        let now = Instant::now();
        // What this thread slept more than it meant to does not count: the machine, or all of the host, stood still.
        let passed = now.duration_since(self.looked).min(self.usual());
        self.looked = now;
        for member in &mut self.members {
            match &mut member.ending {
                Some(ending) if !ending.killed && ending.since.elapsed() > GRACE => {
                    member.process.signal(Signal::KILL);
                    ending.killed = true;
                }
                Some(_) => {}
                None if !member.joined => {
                    let (worker, pid) = (member.worker, member.process.pid());
                    let took = member.process.started.elapsed();
                    if self.region.pid_of(worker) == Some(pid) {
                        member.joined = true;
                        member.heard = self.region.heard_of(worker);
                        (self.notify)(WorkerEvent::Up { worker, pid, took });
                    } else if took > self.config.joins_within {
                        member.kill(ExitCause::Stuck);
                    } else if took > self.config.stopped_after
                        && member.process.activity().is_some_and(|activity| activity.state == State::Stopped)
                    {
                        member.kill(ExitCause::Stopped);
                    }
                }
                None => {
                    let heard = self.region.heard_of(member.worker);
                    if heard == member.heard && (self.waiting)(member.worker) {
                        member.silent += passed;
                        judge(member, &self.config);
                    } else {
                        (member.heard, member.silent, member.cpu) = (heard, Duration::ZERO, None);
                    }
                }
            }
        }
    }
}

/// Whether a worker that has work and is not heard of will not be heard of again.
fn judge(member: &mut SupervisedWorker, config: &SupervisorConfig) {
    if let Some(why) = is_lost(&member.process, member.silent, &mut member.cpu, config) {
        member.kill(why);
    }
}

/// Whether a process that has work and was silent for so long will not be heard of again, and is to be killed. `cpu` is
/// the processor's time that it had had when this was asked first.
pub(super) fn is_lost(
    process: &Process,
    silent: Duration,
    cpu: &mut Option<Duration>,
    config: &SupervisorConfig,
) -> Option<ExitCause> {
    if silent < config.stopped_after {
        return None;
    }
    // If it has ended, the kernel says so in a moment.
    let activity = process.activity()?;
    let since = *cpu.get_or_insert(activity.cpu);
    if activity.state == State::Stopped {
        return Some(ExitCause::Stopped);
    }
    // One that wants the processor and has had little of it is not stuck: others are busy.
    let starved = activity.state == State::Runnable && activity.cpu.saturating_sub(since) < config.stuck_after / 4;
    let patience = if starved { config.stuck_after * STARVED } else { config.stuck_after };
    (silent >= patience).then_some(ExitCause::Stuck)
}
