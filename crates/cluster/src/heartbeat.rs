//! Heartbeat thread of a member, towards the controller and, for a host, the balancers.
//!
//! It has its own connections, so that no heartbeat is queued behind other messages. It runs at
//! higher priority than all other threads where permitted, so that an overloaded member, or one
//! with a limited CPU, is not declared dead. A dead or stopped member sends no heartbeats. Nor does
//! a member with a thread that has made no progress for a second, so that others take over.

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
const HUNG: Duration = Duration::from_secs(1);
/// Smallest nice value: the highest priority.
const LEAST_NICE: i32 = -20;
/// Retry interval of a lost connection.
const AGAIN: Duration = Duration::from_millis(100);
/// Time without data from the peer after which a connection is replaced.
const PATIENCE: Duration = Duration::from_secs(5);

/// Thread whose progress is watched.
#[derive(Debug)]
struct WatchedThread {
    turns: ProgressCounter,
    count: u64,
    since: Instant,
}

impl WatchedThread {
    fn new(turns: ProgressCounter, now: Instant) -> Self {
        WatchedThread { count: turns.count(), turns, since: now }
    }

    /// Returns true if the thread has made no progress for too long.
    fn hangs(&mut self, now: Instant) -> bool {
        let count = self.turns.count();
        if count != self.count {
            (self.count, self.since) = (count, now);
        }
        now.saturating_duration_since(self.since) >= HUNG
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
    audience: Arc<Mutex<HeartbeatTargets>>,
    stop: Arc<AtomicBool>,
}

impl Drop for HeartbeatHandle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl HeartbeatHandle {
    /// Starts the heartbeat of a member, sent as long as the watched threads make progress in each
    /// heartbeat interval. A host thread that may sleep longer is woken through `door`.
    pub fn start(
        me: Member,
        heartbeat: Duration,
        security: &Security,
        watched: Vec<ProgressCounter>,
        door: Option<HostSender>,
    ) -> std::io::Result<Self> {
        let pulse = HeartbeatHandle { audience: Arc::default(), stop: Arc::default() };
        let now = Instant::now();
        let mut heart = HeartbeatThread {
            me,
            security: security.clone(),
            watched: watched.into_iter().map(|turns| WatchedThread::new(turns, now)).collect(),
            door,
            audience: Arc::clone(&pulse.audience),
            ways: Vec::new(),
        };
        let stop = Arc::clone(&pulse.stop);
        // Twice the required rate: receivers check once per interval.
        let every = heartbeat / 2;
        std::thread::Builder::new().name("pulse".into()).spawn(move || {
            raise_priority();
            while !stop.load(Ordering::Relaxed) {
                heart.beat(Instant::now());
                std::thread::sleep(every);
            }
        })?;
        Ok(pulse)
    }

    /// Replaces the receivers of heartbeats.
    pub fn goes_to(&self, audience: HeartbeatTargets) {
        *self.audience.lock().unwrap_or_else(PoisonError::into_inner) = audience;
    }
}

/// Raises the priority of the calling thread, as far as permitted.
fn raise_priority() {
    let Err(real_time) = policy::real_time() else { return };
    if let Err(nice) = setpriority_process(None, LEAST_NICE) {
        tracing::info!(
            %real_time, %nice,
            "the heartbeat goes before no other thread: where there is too much to do for the processors, this member may be \
             taken for dead; give it CAP_SYS_NICE"
        );
    }
}

/// Heartbeat thread with its connections.
#[derive(Debug)]
struct HeartbeatThread {
    me: Member,
    security: Security,
    watched: Vec<WatchedThread>,
    door: Option<HostSender>,
    audience: Arc<Mutex<HeartbeatTargets>>,
    ways: Vec<HeartbeatConnection>,
}

impl HeartbeatThread {
    fn beat(&mut self, now: Instant) {
        self.look_to_whom();
        // A sleeping thread does not hang: it is woken.
        if let Some(door) = &self.door {
            door.wake();
        }
        // All watched threads: each must be checked every time.
        let hung = self.watched.iter_mut().filter_map(|watched| watched.hangs(now).then_some(())).count();
        for way in &mut self.ways {
            if let Err(error) = way.beat(now, hung == 0, &self.security, self.me) {
                tracing::debug!(to = %way.to, %error, "a connection for heartbeats");
                (way.stream, way.again) = (None, now + AGAIN);
            }
        }
    }

    /// Updates the connections. The thread that holds the lock may wait for a CPU: do not wait for
    /// it.
    fn look_to_whom(&mut self) {
        let Ok(audience) = self.audience.try_lock() else { return };
        let wanted = || {
            let controller = audience.controller.iter().map(|to| (*to, Role::Controller));
            controller.chain(audience.balancers.iter().map(|to| (*to, Role::Balancer)))
        };
        self.ways.retain(|way| wanted().any(|wanted| wanted == (way.to, way.role)));
        for (to, role) in wanted() {
            if !self.ways.iter().any(|way| (way.to, way.role) == (to, role)) {
                let now = Instant::now();
                self.ways.push(HeartbeatConnection { to, role, stream: None, again: now, heard: now });
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
    again: Instant,
    heard: Instant,
}

impl HeartbeatConnection {
    fn beat(&mut self, now: Instant, lives: bool, security: &Security, me: Member) -> Result<(), FrameError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None if now < self.again => return Ok(()),
            None => {
                self.heard = now;
                self.stream.insert(connect(self.to, self.role, security, me)?)
            }
        };
        while stream.fill()? > 0 {
            // Any message proves that the peer is alive.
            while stream.frame()?.is_some() {}
        }
        if stream.take_received() {
            self.heard = now;
        } else if now.saturating_duration_since(self.heard) > PATIENCE {
            return Err(FrameError::Refused("nothing is heard".into()));
        }
        // One waiting heartbeat suffices.
        if lives && stream.unsent() == 0 {
            match self.role {
                Role::Controller => stream.put(&ToController::Beat),
                _ => stream.put(&ToBalancer::Beat),
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
        (Role::Controller, _) => stream.put(&ToController::Pulse(me)),
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
    fn thread_hangs_after_a_second_without_turn() {
        let (turns, began) = (ProgressCounter::default(), Instant::now());
        let mut watched = WatchedThread::new(turns.clone(), began);
        let at = |millis| began + Duration::from_millis(millis);
        assert!(!watched.hangs(at(999)));
        assert!(watched.hangs(at(1000)));
        turns.turn();
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
        let audience = Arc::new(Mutex::new(HeartbeatTargets { controller: None, balancers: vec![to] }));
        let mut heart = HeartbeatThread {
            me: Member::Host(HostId(7)),
            security: Security::default(),
            watched: [&good, &bad].map(|turns| WatchedThread::new(turns.clone(), began)).into(),
            door: None,
            audience: Arc::clone(&audience),
            ways: Vec::new(),
        };
        let until = Instant::now() + Duration::from_secs(20);
        // Both connections block until both ends have greeted.
        heart.beat(at(1000));
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&Greeting::new(Role::Balancer).encode()).unwrap();
        while heart.ways[0].stream.as_ref().and_then(Stream::role).is_none() {
            assert!(Instant::now() < until);
            heart.beat(at(1001));
        }
        good.turn();
        heart.beat(at(1100));
        bad.turn();
        heart.beat(at(1200));
        // A thread that holds the lock without a CPU does not block the heartbeat.
        let held = audience.lock().unwrap();
        heart.beat(at(1300));
        drop(held);
        audience.lock().unwrap().balancers.clear();
        heart.beat(at(1400));
        assert!(heart.ways.is_empty(), "nobody is to be told any more");

        let mut inbox = FrameReader::default();
        while inbox.fill(&mut socket).is_ok() {}
        assert_eq!(inbox.raw(), Some(Greeting::new(Role::Host).encode()));
        let expected = [ToBalancer::HeartbeatOnly(HostId(7)), ToBalancer::Beat, ToBalancer::Beat];
        for said in &expected {
            let frame = inbox.frame().unwrap().expect("a frame");
            assert_eq!(decode::<ToBalancer<'_>>(frame).unwrap(), *said);
        }
        assert_eq!(inbox.frame().unwrap(), None, "no heartbeat while one of the two hung");
    }
}
