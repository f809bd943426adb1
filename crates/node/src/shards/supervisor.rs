//! Supervisor of the shards: starts, watches, kills, reaps and replaces their processes.
//!
//! Its thread is the parent of the shards, whose death signal depends on it: no shard outlives the
//! core. A shard that ends is reported to the controller at once and replaced by a new process,
//! which joins as another host. A shard that is stopped, or that the controller has declared dead,
//! is killed first.

use super::config::ShardsConfig;
use super::error::ShardError;
use super::link::{ShardEvent, ShardEventKind, ShardLink};
use super::message::{ConfigText, ShardSetup};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vireo_controller::EmbeddedController;
use vireo_core::placement::balance::HostId;
use vireo_ops::supervisor::{ExitCause, ShardProcess};
use vireo_sctp::Waker;

/// Maximum time from the start of a shard until it serves.
const READY_TIMEOUT: Duration = Duration::from_secs(40);
/// Time before a shard is replaced whose process ended before it served. It doubles each time.
const FIRST_BACK_OFF: Duration = Duration::from_millis(200);
const MAX_BACK_OFF: Duration = Duration::from_secs(10);
/// Events of all shards that wait.
const MAX_QUEUED_EVENTS: usize = 1024;

/// Stage of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Starting,
    Serving,
    /// There is no process.
    Ended,
}

/// State of a shard for other threads.
#[derive(Clone, Debug, Default)]
pub(super) struct ShardState {
    pub(super) pid: u32,
    pub(super) stage: Stage,
    pub(super) host: Option<u16>,
    /// Processes that have ended.
    pub(super) ends: u64,
    pub(super) link: Option<Arc<ShardLink>>,
}

/// State of all shards for other threads.
#[derive(Debug)]
pub(super) struct ShardStates {
    shards: Mutex<Vec<ShardState>>,
    /// Configuration that was read again since the start.
    reloaded: Mutex<Option<ConfigText>>,
}

impl ShardStates {
    pub(super) fn all(&self) -> Vec<ShardState> {
        self.lock().clone()
    }

    /// Has all shards, and those that replace them, apply a configuration.
    pub(super) fn reload(&self, config: &ConfigText) {
        *self.reloaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(config.clone());
        for link in self.all().into_iter().filter_map(|shard| shard.link) {
            link.reload(config.clone());
        }
    }

    fn reloaded(&self) -> Option<ConfigText> {
        self.reloaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ShardState>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Running supervisor. Dropping it kills all shards and waits for their ends.
#[derive(Debug)]
pub(super) struct ShardSupervisor {
    pub(super) states: Arc<ShardStates>,
    stop: Sender<()>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl ShardSupervisor {
    /// Starts all shards, and returns when all serve.
    pub(super) fn start(
        config: ShardsConfig,
        setup: ShardSetup,
        controller: Arc<EmbeddedController>,
    ) -> Result<Self, ShardError> {
        let shards = Mutex::new(vec![ShardState::default(); config.count.into()]);
        let states = Arc::new(ShardStates { shards, reloaded: Mutex::default() });
        let (stop, stopped) = bounded(1);
        let (ready, is_ready) = bounded(1);
        let waker = Waker::new()?;
        let (event_sender, events) = bounded(MAX_QUEUED_EVENTS);
        let mut run = SupervisorThread {
            shards: (0..config.count).map(|_| SupervisedShard::default()).collect(),
            config,
            setup,
            controller,
            states: Arc::clone(&states),
            stopped,
            waker: waker.clone(),
            event_sender,
            events,
            ready: Some(ready),
            checked_at: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("shards".into()).spawn(move || run.run())?;
        let supervisor = ShardSupervisor { states, stop, waker, thread: Some(thread) };
        // The thread ends only after it has sent its result.
        is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("their supervisor has ended").into()))?;
        Ok(supervisor)
    }

    /// Returns true if the supervisor has ended by itself.
    pub(super) fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for ShardSupervisor {
    fn drop(&mut self) {
        let _ = self.stop.try_send(());
        self.waker.wake();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("supervisor of shards failed");
        }
    }
}

/// A shard, as its supervisor knows it.
#[derive(Debug, Default)]
struct SupervisedShard {
    process: Option<RunningShard>,
    /// Time before the next start.
    back_off: Duration,
    /// Time of the next start, if there is no process.
    start_at: Option<Instant>,
}

#[derive(Debug)]
struct RunningShard {
    process: ShardProcess,
    started: Instant,
    host: Option<u16>,
    /// True if the host was in a map.
    was_member: bool,
    /// Reason of its coming end.
    why: Option<String>,
    killed: bool,
}

impl RunningShard {
    fn kill(&mut self, why: &str) {
        if !self.killed {
            self.process.kill();
            self.killed = true;
            self.why.get_or_insert_with(|| why.to_owned());
        }
    }
}

#[derive(Debug)]
struct SupervisorThread {
    config: ShardsConfig,
    setup: ShardSetup,
    controller: Arc<EmbeddedController>,
    states: Arc<ShardStates>,
    shards: Vec<SupervisedShard>,
    stopped: Receiver<()>,
    waker: Waker,
    event_sender: Sender<ShardEvent>,
    events: Receiver<ShardEvent>,
    /// Receiver of the result of the start, until there is one.
    ready: Option<Sender<Result<(), ShardError>>>,
    checked_at: Instant,
}

impl SupervisorThread {
    fn run(&mut self) {
        let result = (0..self.shards.len()).try_for_each(|shard| self.launch(shard));
        if let Err(error) = result {
            return self.fail(error);
        }
        loop {
            self.wait();
            if matches!(self.stopped.try_recv(), Ok(()) | Err(TryRecvError::Disconnected)) {
                return self.end_all();
            }
            self.handle_events();
            if let Err(error) = self.reap() {
                return self.fail(error);
            }
            if self.checked_at.elapsed() >= self.config.stopped_after {
                self.checked_at = Instant::now();
                self.check();
            }
            self.relaunch();
        }
    }

    /// Ends a start that has failed: nothing of it is left.
    fn fail(&mut self, error: ShardError) {
        self.end_all();
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Err(error));
        }
    }

    fn end_all(&mut self) {
        let mut running: Vec<_> = self.shards.iter_mut().filter_map(|shard| shard.process.as_mut()).collect();
        running.iter().for_each(|shard| shard.process.kill());
        running.iter_mut().for_each(|shard| shard.process.end());
    }

    fn launch(&mut self, shard: usize) -> Result<(), ShardError> {
        let number = u8::try_from(shard).unwrap_or(u8::MAX);
        let cores = &self.config.cores;
        let core = shard.checked_rem(cores.len()).map(|turn| cores[turn]);
        let (mut process, stream) = ShardProcess::start(&self.config.program, number, core)?;
        let pid = process.pid();
        let link = ShardLink::start(stream, (shard, pid), self.event_sender.clone(), self.waker.clone());
        let link = link.and_then(|link| link.send(&self.setup).map(|()| Arc::new(link)));
        let link = link.inspect_err(|_| process.end())?;
        let (started, host, was_member, why) = (Instant::now(), None, false, None);
        let running = RunningShard { process, started, host, was_member, why, killed: false };
        (self.shards[shard].process, self.shards[shard].start_at) = (Some(running), None);
        let mut states = self.states.lock();
        let ends = states[shard].ends;
        states[shard] = ShardState { pid, stage: Stage::Starting, host, ends, link: Some(link) };
        Ok(())
    }

    /// Waits for the end of a process, an event, or the next check.
    fn wait(&mut self) {
        let now = Instant::now();
        let next = self.shards.iter().filter_map(|shard| shard.start_at).min();
        let check = self.config.stopped_after;
        let wait = next.map_or(check, |at| at.saturating_duration_since(now).min(check));
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.min(Duration::from_millis(999)).subsec_nanos().into() };
        let running = self.shards.iter().filter_map(|shard| shard.process.as_ref());
        let mut fds = vec![PollFd::new(&self.waker, PollFlags::IN)];
        fds.extend(running.map(|shard| PollFd::from_borrowed_fd(shard.process.pidfd(), PollFlags::IN)));
        if let Err(error) = poll(&mut fds, Some(&timeout))
            && error != rustix::io::Errno::INTR
        {
            tracing::error!(%error, "pidfd wait failed; polling shards");
            std::thread::sleep(wait);
        }
        if fds[0].revents().contains(PollFlags::IN) {
            self.waker.clear();
        }
    }

    fn handle_events(&mut self) {
        while let Ok(ShardEvent { shard, pid, kind }) = self.events.try_recv() {
            let supervised = &mut self.shards[shard];
            // An event of a process that was reaped meanwhile.
            let Some(running) = supervised.process.as_mut().filter(|running| running.process.pid() == pid) else {
                continue;
            };
            match kind {
                ShardEventKind::Ready { host } => {
                    tracing::info!(shard, pid, host, took = ?running.started.elapsed(), "shard serves");
                    running.host = Some(host);
                    supervised.back_off = Duration::ZERO;
                    let link = {
                        let mut states = self.states.lock();
                        (states[shard].stage, states[shard].host) = (Stage::Serving, Some(host));
                        states[shard].link.clone()
                    };
                    if let (Some(link), Some(config)) = (link, self.states.reloaded()) {
                        link.reload(config);
                    }
                }
                ShardEventKind::Failed(why) => running.why = Some(why),
            }
        }
        let serves = |shard: &SupervisedShard| shard.process.as_ref().is_some_and(|shard| shard.host.is_some());
        if self.ready.is_some() && self.shards.iter().all(serves) {
            self.ready.take().into_iter().for_each(|ready| drop(ready.send(Ok(()))));
        }
    }

    /// Reaps ended shards and plans their successors. Fails if not all shards have served yet.
    fn reap(&mut self) -> Result<(), ShardError> {
        for shard in 0..self.shards.len() {
            let supervised = &mut self.shards[shard];
            let Some(running) = &mut supervised.process else { continue };
            let Some(cause) = running.process.reap() else { continue };
            if let Some(host) = running.host {
                self.controller.on_host_ended(host);
            }
            let (pid, host, why) = (running.process.pid(), running.host, running.why.take());
            supervised.process = None;
            if self.ready.is_some() {
                // The last message may have arrived with the end.
                let failed = self.events.try_iter().find_map(|event| match event.kind {
                    ShardEventKind::Failed(why) if event.pid == pid => Some(why),
                    _ => None,
                });
                let why = why.or(failed).unwrap_or_else(|| format!("it has ended ({cause:?}); its log lines say why"));
                return Err(ShardError::Start { shard, why });
            }
            let (stage, reason) = (Stage::Ended, why.unwrap_or_else(|| describe(cause)));
            tracing::warn!(shard, pid, host, reason, "shard ended; other shards take over its UEs, starting a new one");
            let mut states = self.states.lock();
            let ends = states[shard].ends + 1;
            states[shard] = ShardState { pid: 0, stage, host: None, ends, link: None };
            supervised.start_at = Some(Instant::now() + supervised.back_off);
            supervised.back_off = (supervised.back_off * 2).clamp(FIRST_BACK_OFF, MAX_BACK_OFF);
        }
        Ok(())
    }

    /// Kills shards that serve no UE any more.
    fn check(&mut self) {
        let map = self.controller.view().map;
        for supervised in &mut self.shards {
            let Some(running) = &mut supervised.process else { continue };
            if running.process.is_stopped() {
                running.kill("it was stopped");
            }
            match running.host {
                Some(host) => {
                    let is_member = map.as_ref().is_some_and(|map| map.has_host(HostId(host)));
                    if running.was_member && !is_member {
                        running.kill("it was declared dead");
                    }
                    running.was_member |= is_member;
                }
                None if running.started.elapsed() > READY_TIMEOUT => running.kill("it did not become ready"),
                None => {}
            }
        }
    }

    fn relaunch(&mut self) {
        let now = Instant::now();
        for shard in 0..self.shards.len() {
            if self.shards[shard].start_at.is_some_and(|at| now >= at)
                && let Err(error) = self.launch(shard)
            {
                tracing::error!(shard, %error, "shard does not start; retrying");
                self.shards[shard].start_at = Some(now + MAX_BACK_OFF);
            }
        }
    }
}

fn describe(cause: ExitCause) -> String {
    match cause {
        ExitCause::Exited(code) => format!("exit code {code}"),
        ExitCause::Signal(signal) => format!("signal {signal}"),
        other => format!("{other:?}"),
    }
}
