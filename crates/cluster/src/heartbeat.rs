//! Heartbeat thread of a member, towards the controller and, for a host, the balancers.
//!
//! It has its own connections, so that no heartbeat waits for other messages. It runs at higher
//! priority than all other threads where permitted, so that an overloaded member, or one with a
//! limited CPU, is not declared dead. A dead or stopped member sends no heartbeats. Nor does a
//! member with a thread that has made no progress for a second, so that others take over.

use crate::input_queue::HostSender;
use crate::progress::ProgressCounter;
use rustix::process::setpriority_process;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vireo_core::placement::cluster::Member;
use vireo_core::placement::message::{ToBalancer, ToController};
use vireo_fabric::frame::FrameError;
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};
use vireo_ops::sys::policy;

/// Time without progress after which a thread counts as hung.
const HANG_TIMEOUT: Duration = Duration::from_secs(1);
/// Smallest nice value: the highest priority.
const MIN_NICE: i32 = -20;
/// Retry interval of a lost connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time without data from the peer after which a connection is replaced.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Thread whose progress is watched.
#[derive(Debug)]
struct WatchedThread {
    progress: ProgressCounter,
    count: u64,
    since: Instant,
}

impl WatchedThread {
    fn new(progress: ProgressCounter, now: Instant) -> Self {
        WatchedThread { count: progress.count(), progress, since: now }
    }

    /// Returns true if the thread has made no progress for too long.
    fn hangs(&mut self, now: Instant) -> bool {
        let count = self.progress.count();
        if count != self.count {
            (self.count, self.since) = (count, now);
        }
        now.saturating_duration_since(self.since) >= HANG_TIMEOUT
    }
}

/// Receivers of a member's heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatTargets {
    /// Controller to which the member is connected.
    pub controller: Option<SocketAddr>,
    /// Balancers of a host; empty for a balancer.
    pub balancers: Vec<SocketAddr>,
}

/// Handle of a member's heartbeat; dropping it ends the heartbeat.
#[derive(Debug)]
pub struct HeartbeatHandle {
    targets: Arc<Mutex<HeartbeatTargets>>,
    stop: Arc<AtomicBool>,
}

impl Drop for HeartbeatHandle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl HeartbeatHandle {
    /// Starts the heartbeat of a member, sent as long as the watched threads make progress in each
    /// heartbeat interval. A host thread that may sleep longer is woken through `input_sender`.
    pub fn start(
        me: Member,
        heartbeat: Duration,
        security: &Security,
        watched: Vec<ProgressCounter>,
        input_sender: Option<HostSender>,
    ) -> std::io::Result<Self> {
        let handle = HeartbeatHandle { targets: Arc::default(), stop: Arc::default() };
        let now = Instant::now();
        let mut thread = HeartbeatThread {
            me,
            security: security.clone(),
            watched: watched.into_iter().map(|progress| WatchedThread::new(progress, now)).collect(),
            input_sender,
            targets: Arc::clone(&handle.targets),
            connections: Vec::new(),
        };
        let stop = Arc::clone(&handle.stop);
        // Twice the required rate: receivers check once per interval.
        let every = heartbeat / 2;
        std::thread::Builder::new().name("pulse".into()).spawn(move || {
            raise_priority();
            while !stop.load(Ordering::Relaxed) {
                thread.beat(Instant::now());
                std::thread::sleep(every);
            }
        })?;
        Ok(handle)
    }

    /// Replaces the receivers of heartbeats.
    pub fn set_targets(&self, targets: HeartbeatTargets) {
        *self.targets.lock().unwrap_or_else(PoisonError::into_inner) = targets;
    }
}

/// Raises the priority of the calling thread, as far as permitted.
fn raise_priority() {
    let Err(real_time) = policy::real_time() else { return };
    if let Err(nice) = setpriority_process(None, MIN_NICE) {
        tracing::info!(
            %real_time, %nice,
            "heartbeat thread without priority: under overload this member may be declared dead; grant CAP_SYS_NICE"
        );
    }
}

/// Heartbeat thread with its connections.
#[derive(Debug)]
struct HeartbeatThread {
    me: Member,
    security: Security,
    watched: Vec<WatchedThread>,
    input_sender: Option<HostSender>,
    targets: Arc<Mutex<HeartbeatTargets>>,
    connections: Vec<HeartbeatConnection>,
}

impl HeartbeatThread {
    fn beat(&mut self, now: Instant) {
        self.update_connections();
        // A sleeping thread does not hang: it is woken.
        if let Some(input_sender) = &self.input_sender {
            input_sender.wake();
        }
        // All watched threads: each must be checked every time.
        let hung = self.watched.iter_mut().filter_map(|watched| watched.hangs(now).then_some(())).count();
        for connection in &mut self.connections {
            if let Err(error) = connection.beat(now, hung == 0, &self.security, self.me) {
                tracing::debug!(to = %connection.to, %error, "a connection for heartbeats");
                (connection.stream, connection.retry_at) = (None, now + RETRY_INTERVAL);
            }
        }
    }

    /// Updates the connections. The thread that holds the lock may wait for a CPU: do not wait for
    /// it.
    fn update_connections(&mut self) {
        let Ok(targets) = self.targets.try_lock() else { return };
        let expected = || {
            let controller = targets.controller.iter().map(|to| (*to, Role::Controller));
            controller.chain(targets.balancers.iter().map(|to| (*to, Role::Balancer)))
        };
        self.connections.retain(|connection| expected().any(|expected| expected == (connection.to, connection.role)));
        for (to, role) in expected() {
            if !self.connections.iter().any(|connection| (connection.to, connection.role) == (to, role)) {
                let now = Instant::now();
                self.connections.push(HeartbeatConnection { to, role, stream: None, retry_at: now, last_heard: now });
            }
        }
    }
}

/// Connection to one receiver of heartbeats.
#[derive(Debug)]
struct HeartbeatConnection {
    to: SocketAddr,
    role: Role,
    stream: Option<Stream>,
    retry_at: Instant,
    last_heard: Instant,
}

impl HeartbeatConnection {
    fn beat(&mut self, now: Instant, is_alive: bool, security: &Security, me: Member) -> Result<(), FrameError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None if now < self.retry_at => return Ok(()),
            None => {
                self.last_heard = now;
                self.stream.insert(connect(self.to, self.role, security, me)?)
            }
        };
        while stream.fill()? > 0 {
            // Any message proves that the peer is alive.
            while stream.frame()?.is_some() {}
        }
        if stream.take_received() {
            self.last_heard = now;
        } else if now.saturating_duration_since(self.last_heard) > SILENCE_TIMEOUT {
            return Err(FrameError::Refused("nothing is heard".into()));
        }
        // One waiting heartbeat suffices.
        if is_alive && stream.unsent() == 0 {
            match self.role {
                Role::Controller => stream.put(&ToController::Heartbeat),
                _ => stream.put(&ToBalancer::Heartbeat),
            };
        }
        stream.flush()
    }
}

fn connect(to: SocketAddr, role: Role, security: &Security, me: Member) -> std::io::Result<Stream> {
    let own = match me {
        Member::Host(_) => Role::Host,
        Member::Balancer(_) => Role::Balancer,
    };
    let mut stream = match role {
        Role::Controller => Stream::connect(to, security, own, &[Role::Controller])?,
        _ => Stream::connect(to, security, own, &[Role::Balancer])?,
    };
    match (role, me) {
        (Role::Controller, _) => stream.put(&ToController::HeartbeatOnly(me)),
        (_, Member::Host(host)) => stream.put(&ToBalancer::HeartbeatOnly(host)),
        // Balancers do not send to each other.
        (_, Member::Balancer(_)) => 0,
    };
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use vireo_core::placement::balance::HostId;
    use vireo_fabric::frame::decode;
    use vireo_fabric::{FrameReader, Greeting};

    #[test]
    fn thread_hangs_after_a_second_without_progress() {
        let (progress, began) = (ProgressCounter::default(), Instant::now());
        let mut watched = WatchedThread::new(progress.clone(), began);
        let at = |millis| began + Duration::from_millis(millis);
        assert!(!watched.hangs(at(999)));
        assert!(watched.hangs(at(1000)));
        progress.tick();
        assert!(!watched.hangs(at(1010)));
        assert!(!watched.hangs(at(2000)));
        assert!(watched.hangs(at(2010)));
    }

    #[test]
    fn heartbeats_stop_while_a_thread_hangs() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let (good, bad, began) = (ProgressCounter::default(), ProgressCounter::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        let targets = Arc::new(Mutex::new(HeartbeatTargets { controller: None, balancers: vec![to] }));
        let mut thread = HeartbeatThread {
            me: Member::Host(HostId(7)),
            security: Security::default(),
            watched: [&good, &bad].map(|progress| WatchedThread::new(progress.clone(), began)).into(),
            input_sender: None,
            targets: Arc::clone(&targets),
            connections: Vec::new(),
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        // Both connections block until both ends have greeted.
        thread.beat(at(1000));
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&Greeting::new(Role::Balancer).encode()).unwrap();
        while thread.connections[0].stream.as_ref().and_then(Stream::role).is_none() {
            assert!(Instant::now() < deadline);
            thread.beat(at(1001));
        }
        good.tick();
        thread.beat(at(1100));
        bad.tick();
        thread.beat(at(1200));
        // A thread that holds the lock without a CPU does not block the heartbeat.
        let guard = targets.lock().unwrap();
        thread.beat(at(1300));
        drop(guard);
        targets.lock().unwrap().balancers.clear();
        thread.beat(at(1400));
        assert!(thread.connections.is_empty(), "nobody is to be told any more");

        let mut inbox = FrameReader::default();
        while inbox.fill(&mut socket).is_ok() {}
        assert_eq!(inbox.raw(), Some(Greeting::new(Role::Host).encode()));
        let expected = [ToBalancer::HeartbeatOnly(HostId(7)), ToBalancer::Heartbeat, ToBalancer::Heartbeat];
        for message in &expected {
            let frame = inbox.frame().unwrap().expect("a frame");
            assert_eq!(decode::<ToBalancer<'_>>(frame).unwrap(), *message);
        }
        assert_eq!(inbox.frame().unwrap(), None, "no heartbeat while one of the two hung");
    }
}
