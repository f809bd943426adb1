//! Supervisor thread: sleeps until an exit, a command or the next check.

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

/// Interval of the checks whether a started worker has joined.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time for a worker to exit after SIGTERM, before SIGKILL.
const TERMINATION_GRACE_TIME: Duration = Duration::from_secs(1);
/// Multiple of [`SupervisorConfig::stuck_after`] that a runnable worker without CPU has.
const STARVATION_FACTOR: u32 = 10;
/// Event id of the command descriptor, which differs from all worker numbers.
const COMMANDS: u64 = u64::MAX;

pub(super) struct SupervisorThread {
    region: Region,
    config: SupervisorConfig,
    /// Descriptor of the region, which workers inherit.
    descriptor: OwnedFd,
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: mpsc::Receiver<Command>,
    waiting: Box<dyn Fn(u8) -> bool + Send>,
    notify: Box<dyn Fn(WorkerEvent) + Send>,
    weights: Weights,
    members: Vec<SupervisedWorker>,
    /// Number of workers started so far; selects the core of the next one.
    started: usize,
    checked_at: Instant,
}

/// A worker process.
struct SupervisedWorker {
    worker: u8,
    process: Process,
    joined: bool,
    /// Value of the heartbeat at the last check.
    last_beat: u64,
    /// Time for which the worker has had work and no new heartbeat.
    silent: Duration,
    /// CPU time at the first check of its silence.
    cpu: Option<Duration>,
    ending: Option<EndingReason>,
}

/// Cause of the coming end of a worker.
struct EndingReason {
    cause: ExitCause,
    since: Instant,
    /// True if it was killed, false after SIGTERM.
    killed: bool,
    /// Time without a heartbeat before.
    silent: Duration,
}

impl SupervisedWorker {
    fn kill(&mut self, cause: ExitCause) {
        self.process.signal(Signal::KILL);
        self.ending = Some(EndingReason { cause, since: Instant::now(), killed: true, silent: self.silent });
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
        // The clone is close-on-exec: only workers inherit the region.
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
            checked_at: Instant::now(),
        })
    }

    /// Watches the workers until [`Command::Stop`].
    pub(super) fn run(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            events.clear();
            let timeout = self.timeout().and_then(|t| Timespec::try_from(t).ok());
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "pidfd wait failed; polling workers");
                    std::thread::sleep(self.closely());
                }
            }
            if events.iter().any(|e| e.data.u64() == COMMANDS) && !self.handle_command() {
                return;
            }
            self.reap();
            self.check_workers();
        }
    }

    /// Returns the interval of checking workers that make progress or have no work. It is short
    /// enough to notice a stopped worker after [`SupervisorConfig::stopped_after`]. It is no
    /// shorter, because checks cost CPU time without need.
    fn usual(&self) -> Duration {
        (self.config.stopped_after / 2).max(JOIN_POLL_INTERVAL)
    }

    /// Returns the interval of checking a worker without progress.
    fn closely(&self) -> Duration {
        (self.config.stopped_after / 4).max(JOIN_POLL_INTERVAL)
    }

    /// Returns the time until the next check; `None` without workers.
    fn timeout(&self) -> Option<Duration> {
        let of = |m: &SupervisedWorker| match m.ending {
            None if !m.joined => JOIN_POLL_INTERVAL,
            None if m.silent.is_zero() => self.usual(),
            // At the exact time, so that the worker is noticed then.
            None if m.silent < self.config.stopped_after => self.config.stopped_after - m.silent,
            _ => self.closely(),
        };
        self.members.iter().map(of).min().map(|t| t.max(Duration::from_micros(100)))
    }

    /// Executes the queued commands. Returns false after `Stop`.
    fn handle_command(&mut self) -> bool {
        let mut count = [0; 8];
        // Only the wake-up is read.
        let _ = rustix::io::read(self.wake.as_fd(), &mut count);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Launch(worker) => self.launch(worker),
                Command::Retire(worker) => self.retire(worker),
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
            return (self.notify)(WorkerEvent::Failed { worker, error: SupervisorError::NumberInUse });
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
                    last_beat: 0,
                    silent,
                    cpu: None,
                    ending: None,
                });
            }
            Err(error) => (self.notify)(WorkerEvent::Failed { worker, error: error.into() }),
        }
    }

    fn retire(&mut self, worker: u8) {
        if let Some(member) = self.members.iter_mut().find(|m| m.worker == worker && m.ending.is_none()) {
            member.process.signal(Signal::TERM);
            let (cause, since) = (ExitCause::Retired, Instant::now());
            member.ending = Some(EndingReason { cause, since, killed: false, silent: Duration::ZERO });
        }
    }

    /// Reaps the workers that have ended.
    fn reap(&mut self) {
        let woken = Instant::now();
        let mut place = 0;
        while let Some(member) = self.members.get_mut(place) {
            match member.process.reap() {
                None => place += 1,
                Some(cause) => {
                    let member = self.members.swap_remove(place);
                    self.weights.remove(member.worker);
                    let notice = self.exit_event(member, cause, woken);
                    (self.notify)(notice);
                }
            }
        }
    }

    /// Returns the event of a reaped worker.
    fn exit_event(&self, member: SupervisedWorker, status: ExitCause, woken: Instant) -> WorkerEvent {
        let SupervisedWorker { worker, process, joined, ending, .. } = member;
        let pid = process.pid();
        let cause = ending.as_ref().map_or(status, |e| e.cause);
        let dead = match self.region.pid_of(worker) {
            // It may have joined just before it ended.
            Some(of) if of == pid => self.region.declare_dead_reaped(worker, pid),
            // It left the region properly.
            None if matches!(status, ExitCause::Exited(_)) => None,
            // No correct worker writes this value to the region.
            _ if joined => self.region.declare_dead_reaped(worker, pid),
            _ => None,
        };
        if !joined && dead.is_none() {
            let error = match ending {
                Some(EndingReason { cause: ExitCause::Stuck, .. }) => {
                    SupervisorError::TooSlow(self.config.joins_within)
                }
                _ => SupervisorError::Ended(cause),
            };
            return WorkerEvent::Failed { worker, error };
        }
        let noticed = ending.filter(|e| e.killed).map_or(woken.elapsed(), |e| e.silent + e.since.elapsed());
        WorkerEvent::Down { worker, pid, dead, cause, noticed }
    }

    /// Checks all workers.
    fn check_workers(&mut self) {
        let now = Instant::now();
        // Excess sleep of this thread does not count: the machine or the whole host was stopped.
        let passed = now.duration_since(self.checked_at).min(self.usual());
        self.checked_at = now;
        for member in &mut self.members {
            match &mut member.ending {
                Some(ending) if !ending.killed && ending.since.elapsed() > TERMINATION_GRACE_TIME => {
                    member.process.signal(Signal::KILL);
                    ending.killed = true;
                }
                Some(_) => {}
                None if !member.joined => {
                    let (worker, pid) = (member.worker, member.process.pid());
                    let took = member.process.started.elapsed();
                    if self.region.pid_of(worker) == Some(pid) {
                        member.joined = true;
                        member.last_beat = self.region.last_beat(worker);
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
                    let last_beat = self.region.last_beat(member.worker);
                    if last_beat == member.last_beat && (self.waiting)(member.worker) {
                        member.silent += passed;
                        judge(member, &self.config);
                    } else {
                        (member.last_beat, member.silent, member.cpu) = (last_beat, Duration::ZERO, None);
                    }
                }
            }
        }
    }
}

/// Kills a worker that has work and will not make progress.
fn judge(member: &mut SupervisedWorker, config: &SupervisorConfig) {
    if let Some(cause) = is_lost(&member.process, member.silent, &mut member.cpu, config) {
        member.kill(cause);
    }
}

/// Returns the cause for killing a process that has work and was silent for this time, or `None`.
/// `cpu` stores its CPU time at the first call.
pub(super) fn is_lost(
    process: &Process,
    silent: Duration,
    cpu: &mut Option<Duration>,
    config: &SupervisorConfig,
) -> Option<ExitCause> {
    if silent < config.stopped_after {
        return None;
    }
    // If it has ended, the kernel will report that.
    let activity = process.activity()?;
    let since = *cpu.get_or_insert(activity.cpu);
    if activity.state == State::Stopped {
        return Some(ExitCause::Stopped);
    }
    // A runnable process that got little CPU time is not stuck: other processes are busy.
    let starved = activity.state == State::Runnable && activity.cpu.saturating_sub(since) < config.stuck_after / 4;
    let patience = if starved { config.stuck_after * STARVATION_FACTOR } else { config.stuck_after };
    (silent >= patience).then_some(ExitCause::Stuck)
}
