//! The heartbeat of a member: a thread that says to the controller, and in a host to the balancers, that the member is there.
//! It has connections of its own, so that no heartbeat is queued behind what the member sends, and goes before all other
//! threads where that is permitted, so that a member which has too much to do, or whose processor is limited, is not taken
//! for dead. A member that is dead or stopped says nothing; one of whose threads has not taken a turn for a second neither, so
//! that others get what it has.

use crate::host::HostSender;
use crate::sys::policy;
use rustix::process::setpriority_process;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vireo_core::cluster::Member;
use vireo_fabric::frame::FrameError;
use vireo_fabric::membership::ToController;
use vireo_fabric::message::ToBalancer;
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};

/// How long a thread may be at one thing before it counts as hung.
const HUNG: Duration = Duration::from_secs(1);
/// The smallest nice value.
const LEAST_NICE: i32 = -20;
/// How soon a lost connection is made again.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the other end of a connection may say nothing before another one is made.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a thread shows that it does not hang: it grows as long as the thread takes turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressCounter(Arc<AtomicU64>);

impl ProgressCounter {
    /// The thread takes a turn. Only that thread calls this.
    #[inline]
    pub(crate) fn turn(&self) {
        self.0.store(self.count().wrapping_add(1), Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A thread that is watched.
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

    /// Whether it has not taken a turn for too long.
    fn hangs(&mut self, now: Instant) -> bool {
        let count = self.turns.count();
        if count != self.count {
            (self.count, self.since) = (count, now);
        }
        now.saturating_duration_since(self.since) >= HUNG
    }
}

/// To whom heartbeats go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeartbeatTargets {
    /// The controller with which the member has a connection.
    pub(crate) controller: Option<SocketAddr>,
    /// A host's balancers.
    pub(crate) balancers: Vec<SocketAddr>,
}

/// A member's heartbeat, which ends with this.
#[derive(Debug)]
pub(crate) struct HeartbeatHandle {
    audience: Arc<Mutex<HeartbeatTargets>>,
    stop: Arc<AtomicBool>,
}

impl Drop for HeartbeatHandle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl HeartbeatHandle {
    /// Starts it for a member, as long as threads take turns, within each heartbeat at the latest: one that may sleep longer is
    /// rung at its door.
    pub(crate) fn start(
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
        // Twice as often as it has to be: who listens looks once in each heartbeat.
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

    /// From now on heartbeats go there.
    pub(crate) fn goes_to(&self, audience: HeartbeatTargets) {
        *self.audience.lock().unwrap_or_else(PoisonError::into_inner) = audience;
    }
}

/// Has the calling thread go before others, as far as that is permitted.
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

/// The thread.
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
        // One that sleeps does not hang: it is asked.
        if let Some(door) = &self.door {
            door.wake();
        }
        // All of them: each is looked at each time.
        let hung = self.watched.iter_mut().filter_map(|watched| watched.hangs(now).then_some(())).count();
        for way in &mut self.ways {
            if let Err(error) = way.beat(now, hung == 0, &self.security, self.me) {
                tracing::debug!(to = %way.to, %error, "a connection for heartbeats");
                (way.stream, way.again) = (None, now + AGAIN);
            }
        }
    }

    /// Whoever says to whom may have to wait for a processor: it is not waited for.
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

/// The way to one that listens.
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
            // Whatever it is: that the other end is there is all that is asked.
            while stream.frame()?.is_some() {}
        }
        if stream.was_heard() {
            self.heard = now;
        } else if now.saturating_duration_since(self.heard) > PATIENCE {
            return Err(FrameError::Refused("nothing is heard".into()));
        }
        // One that waits is as good as two.
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
        // Balancers say nothing to each other.
        (_, Member::Balancer(_)) => 0,
    };
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use vireo_core::balance::HostId;
    use vireo_fabric::frame::decode;
    use vireo_fabric::{FrameReader, Greeting};

    #[test]
    fn a_thread_hangs_when_it_has_not_taken_a_turn_for_a_second_and_does_not_when_it_takes_one_again() {
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
    fn heartbeats_say_whose_they_are_and_stop_while_one_of_the_threads_hangs() {
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
        // Both hang until the two ends have greeted.
        heart.beat(at(1000));
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&Greeting::of(Role::Balancer).encode()).unwrap();
        while heart.ways[0].stream.as_ref().and_then(Stream::role).is_none() {
            assert!(Instant::now() < until);
            heart.beat(at(1001));
        }
        good.turn();
        heart.beat(at(1100));
        bad.turn();
        heart.beat(at(1200));
        // Somebody who has the lock, and no processor, is not waited for.
        let held = audience.lock().unwrap();
        heart.beat(at(1300));
        drop(held);
        audience.lock().unwrap().balancers.clear();
        heart.beat(at(1400));
        assert!(heart.ways.is_empty(), "nobody is to be told any more");

        let mut inbox = FrameReader::default();
        while inbox.fill(&mut socket).is_ok() {}
        assert_eq!(inbox.raw(), Some(Greeting::of(Role::Host).encode()));
        let expected = [ToBalancer::HeartbeatOnly(HostId(7)), ToBalancer::Beat, ToBalancer::Beat];
        for said in &expected {
            let frame = inbox.frame().unwrap().expect("a frame");
            assert_eq!(decode::<ToBalancer<'_>>(frame).unwrap(), *said);
        }
        assert_eq!(inbox.frame().unwrap(), None, "no heartbeat while one of the two hung");
    }
}
