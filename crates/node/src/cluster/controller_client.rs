//! A member's connection to the controller. It never waits for it: a controller that is gone is looked for again, and
//! meanwhile the member goes on by what it was told.

use super::ClusterConfig;
use super::link::LinkError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vireo_core::balance::{BalancerId, HostId};
use vireo_core::cluster::{DurableState, RejoinInfo, Secrets};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::membership::{BalancerAssignment, ToController, ToMember};
use vireo_fabric::message::{ClusterMap, Welcome};
use vireo_fabric::stream::{self, Stream};
use vireo_fabric::{Role, Security};

/// How long a member looks for a controller at first.
const FOUND_WITHIN: Duration = Duration::from_secs(30);
/// How soon it looks again.
const AGAIN: Duration = Duration::from_millis(200);
/// How often it looks whether it may join.
const STEP: Duration = Duration::from_millis(5);
/// The silences after which a member is taken for dead, times this: so long a controller may say nothing.
pub(crate) const PATIENCE: u32 = 5;

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LocalMember {
    /// A host, which takes other hosts' copies there.
    Host(SocketAddr),
    /// A balancer, which takes hosts there.
    Balancer(SocketAddr),
}

/// What a member was told when it joined.
#[derive(Debug)]
pub(crate) enum JoinReply {
    Host(Welcome),
    Balancer(BalancerAssignment),
}

/// A connection to the controller, or none at present.
#[derive(Debug)]
pub(crate) struct ControllerClient {
    me: LocalMember,
    security: Security,
    /// Where a controller may be, and which of these is next.
    addresses: Vec<SocketAddr>,
    next: usize,
    stream: Option<Stream>,
    /// Whether the controller has said on this connection that it knows this member.
    joined: bool,
    /// Its number, once it has one.
    number: Option<u16>,
    /// What it was told.
    record: Option<DurableState>,
    /// It is ready to be in the map.
    ready: bool,
    /// What the host has said of copies in the last epoch, and whether it wants to leave: said again to the next controller.
    caught_up: BTreeSet<(u64, HostId)>,
    is_leaving: bool,
    /// What it has said last of parts of the UE addresses, for the same reason.
    parts: Option<(u64, Vec<u16>)>,
    heartbeat: Duration,
    timeout: Duration,
    heard: Instant,
    retry_at: Instant,
    /// The connection is another than when this was last asked.
    fresh: bool,
    /// Why the last connection ended.
    why: Option<FrameError>,
    /// When a controller, or the machine that it was on, has said something last.
    answered: Instant,
}

/// What another process needs to go on as the same balancer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ControllerClientSnapshot {
    /// Where it takes hosts, as others were told.
    address: SocketAddr,
    number: Option<u16>,
    record: Option<DurableState>,
    ready: bool,
    /// In milliseconds.
    heartbeat: u32,
    patience: u32,
    /// The connection, if there is one, and with whom.
    pub(crate) stream: Option<(SocketAddr, stream::StreamSnapshot)>,
}

impl ControllerClient {
    /// What another process needs to go on as the same balancer; a host is none. A connection to a controller that ends as well
    /// (it is not `apart`), or that has not joined, is made anew.
    pub(crate) fn hand_over(&self, apart: bool) -> Option<ControllerClientSnapshot> {
        let LocalMember::Balancer(address) = self.me else { return None };
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        let stream = self.stream.as_ref().filter(|_| self.joined && apart).map(Stream::carry);
        let stream = match stream {
            // Made anew, it would be taken for a balancer that is dead.
            Some(None) => return None,
            Some(stream) => self.controller().zip(stream),
            None => None,
        };
        let (number, record, ready) = (self.number, self.record.clone(), self.ready);
        let (heartbeat, patience) = (millis(self.heartbeat), millis(self.timeout));
        Some(ControllerClientSnapshot { address, number, record, ready, heartbeat, patience, stream })
    }

    /// What it was told when it joined, and the map that it goes by.
    pub(crate) fn record(&self) -> Option<&DurableState> {
        self.record.as_ref()
    }

    /// Goes on as the balancer of another process, by its connection if it had one.
    pub(crate) fn resume(
        config: &ClusterConfig,
        security: &Security,
        carried: ControllerClientSnapshot,
        socket: Option<TcpStream>,
    ) -> std::io::Result<Self> {
        let mut addresses = config.controllers();
        let (mut next, mut stream) = (0, None);
        if let (Some((controller, carried)), Some(socket)) = (carried.stream, socket) {
            next = addresses.iter().position(|address| *address == controller).unwrap_or_else(|| {
                addresses.push(controller);
                addresses.len() - 1
            });
            stream = Some(Stream::resume(socket, security, &[Role::Controller], carried)?);
        }
        let (now, millis) = (Instant::now(), |millis: u32| Duration::from_millis(millis.into()));
        Ok(ControllerClient {
            me: LocalMember::Balancer(carried.address),
            security: security.clone(),
            addresses,
            next,
            joined: stream.is_some(),
            fresh: stream.is_some(),
            stream,
            number: carried.number,
            record: carried.record,
            ready: carried.ready,
            caught_up: BTreeSet::new(),
            is_leaving: false,
            parts: None,
            heartbeat: millis(carried.heartbeat),
            timeout: millis(carried.patience),
            heard: now,
            retry_at: now,
            why: None,
            answered: now,
        })
    }

    /// Finds a controller and joins.
    pub(crate) fn join(
        config: &ClusterConfig,
        security: &Security,
        mut me: LocalMember,
    ) -> Result<(Self, JoinReply), LinkError> {
        let addresses = config.controllers();
        let own = own_address(&addresses, &me);
        if let LocalMember::Host(address) | LocalMember::Balancer(address) = &mut me
            && address.ip().is_unspecified()
            && let Some(own) = own
        {
            address.set_ip(own);
        }
        let now = Instant::now();
        let mut caller = ControllerClient {
            me,
            security: security.clone(),
            addresses,
            next: 0,
            stream: None,
            joined: false,
            number: None,
            record: None,
            ready: false,
            caught_up: BTreeSet::new(),
            is_leaving: false,
            parts: None,
            heartbeat: config.heartbeat,
            timeout: config.heartbeat * config.misses * PATIENCE,
            heard: now,
            retry_at: now,
            fresh: false,
            why: None,
            answered: now,
        };
        let until = now + FOUND_WITHIN;
        loop {
            let mut told = None;
            caller.poll(Instant::now(), &mut |message| match message {
                ToMember::Welcome(welcome) => told = Some(JoinReply::Host(welcome)),
                ToMember::Assignment(seat) => told = Some(JoinReply::Balancer(seat)),
                _ => {}
            })?;
            if let Some(told) = told {
                return Ok((caller, told));
            }
            caller.is_partitioned()?;
            if Instant::now() > until {
                let address = caller.addresses[0];
                let why = caller.why.take().unwrap_or(FrameError::Io(std::io::ErrorKind::TimedOut.into()));
                return Err(LinkError::Nobody { address, why });
            }
            std::thread::sleep(STEP);
        }
    }

    /// Looks whether a controller would never talk to this member. Of several each is asked before.
    fn is_partitioned(&mut self) -> Result<(), LinkError> {
        let asked = self.next >= self.addresses.len();
        let Some(why) = self.why.take_if(|why| asked && why.stays()) else { return Ok(()) };
        // The one before the next.
        let address = self.addresses[(self.next - 1) % self.addresses.len()];
        Err(LinkError::Apart { address, why })
    }

    /// Does what is due, and gives what the controller says to `news`: of that, nothing is to be answered.
    pub(crate) fn poll(&mut self, now: Instant, news: &mut dyn FnMut(ToMember)) -> Result<(), LinkError> {
        if self.stream.is_none() && now >= self.retry_at {
            self.call(now);
        }
        match self.carry(now, news) {
            Ok(()) => Ok(()),
            Err(LinkError::Lost(why)) => {
                self.hang_up(now, why);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn call(&mut self, now: Instant) {
        self.retry_at = now + AGAIN;
        let address = self.addresses[self.next % self.addresses.len()];
        let role = match self.me {
            LocalMember::Host(_) => Role::Host,
            LocalMember::Balancer(_) => Role::Balancer,
        };
        let mut stream = match Stream::connect(address, &self.security, role, &[Role::Controller]) {
            Ok(stream) => stream,
            Err(error) => return self.hang_up(now, error.into()),
        };
        let record = self.record.as_ref();
        let past = self.number.zip(record).map(|(number, record)| (number, record.clone()));
        let join = match self.me {
            LocalMember::Host(copies) => {
                let past = past.map(|(number, record)| Box::new(RejoinInfo { id: HostId(number), record }));
                ToController::Host { copies, past }
            }
            LocalMember::Balancer(address) => {
                let past = past.map(|(number, record)| Box::new(RejoinInfo { id: BalancerId(number as u8), record }));
                ToController::Balancer { address, past }
            }
        };
        stream.put(&join);
        (self.stream, self.joined, self.fresh) = (Some(stream), false, true);
        self.heard = now;
    }

    /// The connection is over: the next address is tried soon.
    fn hang_up(&mut self, now: Instant, why: FrameError) {
        if self.joined {
            tracing::warn!(%why, "the controller is gone: nothing stops, and it is looked for");
        }
        if why.is_an_answer() {
            self.answered = now;
        }
        (self.stream, self.joined, self.why) = (None, false, Some(why));
        self.next = self.next.wrapping_add(1);
        self.retry_at = self.retry_at.max(now + AGAIN / 4);
    }

    fn carry(&mut self, now: Instant, news: &mut dyn FnMut(ToMember)) -> Result<(), LinkError> {
        if self.stream.is_none() {
            return Ok(());
        }
        while self.receive(news)? {}
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.flush()?;
        if stream.was_heard() {
            self.heard = now;
            // Before it has greeted it has not.
            self.answered = if self.joined { now } else { self.answered };
        } else if now.duration_since(self.heard) > self.timeout {
            let silent = format!("it has said nothing for {:?}", self.timeout);
            return Err(FrameError::Refused(silent).into());
        }
        Ok(())
    }

    /// Takes a piece of what the controller says; whether there was one.
    fn receive(&mut self, news: &mut dyn FnMut(ToMember)) -> Result<bool, LinkError> {
        loop {
            let Some(stream) = &mut self.stream else { return Ok(false) };
            let Some(octets) = stream.frame()? else { return Ok(stream.fill()? > 0) };
            let message: ToMember = frame::decode(octets).map_err(LinkError::Lost)?;
            match &message {
                ToMember::Beat => continue,
                ToMember::Refused(why) => return Err(LinkError::Refused(why.clone())),
                ToMember::Welcome(welcome) => {
                    let secrets = Secrets { tmsi_key: welcome.tmsi_key, recovery: welcome.recovery };
                    self.welcome(welcome.host.0, secrets, welcome.heartbeat)?;
                }
                ToMember::Assignment(seat) => {
                    let secrets = Secrets { tmsi_key: seat.tmsi_key, recovery: seat.recovery };
                    self.welcome(seat.balancer.0.into(), secrets, seat.heartbeat)?;
                }
                ToMember::Map(_) | ToMember::LeaveGranted => {}
            }
            news(message);
        }
    }

    fn welcome(&mut self, number: u16, secrets: Secrets, heartbeat: (u32, u32)) -> Result<(), LinkError> {
        if self.number.is_some_and(|own| own != number) {
            return Err(LinkError::Refused(format!("the controller calls it {number}, which is not its number")));
        }
        if self.record.is_some() {
            tracing::info!("a controller is there again");
        }
        self.number = Some(number);
        self.record.get_or_insert(DurableState { secrets, map: None });
        self.heartbeat = Duration::from_millis(heartbeat.0.max(1).into());
        self.timeout = self.heartbeat * heartbeat.1.max(1) * PATIENCE;
        self.joined = true;
        if self.ready {
            self.put(&ToController::Ready);
        }
        for (epoch, host) in self.caught_up.clone() {
            self.put(&ToController::CaughtUp { epoch, host });
        }
        if let Some((epoch, parts)) = self.parts.clone() {
            self.put(&ToController::PoolPartitions { epoch, parts });
        }
        if self.is_leaving {
            self.put(&ToController::Leave);
        }
        Ok(())
    }

    /// It is ready to be in the map, and is heard from here on.
    pub(crate) fn ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            self.put(&ToController::Ready);
        }
    }

    /// Another host has all copies of this one's UEs that an epoch wants it to have.
    pub(crate) fn caught_up(&mut self, epoch: u64, host: HostId) {
        self.caught_up.retain(|(known, _)| *known >= epoch);
        self.caught_up.insert((epoch, host));
        self.put(&ToController::CaughtUp { epoch, host });
    }

    /// The host's UEs have addresses of these parts whose hosts are gone.
    pub(crate) fn parts(&mut self, epoch: u64, parts: Vec<u16>) {
        self.parts = Some((epoch, parts.clone()));
        self.put(&ToController::PoolPartitions { epoch, parts });
    }

    /// The host wants to leave.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        self.put(&ToController::Leave);
    }

    /// The controller that this member has joined by the connection that there is.
    pub(crate) fn controller(&self) -> Option<SocketAddr> {
        self.joined.then(|| self.addresses[self.next % self.addresses.len()])
    }

    /// This map is what the member goes by.
    pub(crate) fn knows(&mut self, map: &ClusterMap) {
        if let Some(record) = &mut self.record {
            record.map = Some(map.clone());
        }
    }

    /// Puts something into the connection, if there is one.
    pub(crate) fn put(&mut self, message: &ToController) {
        if let Some(stream) = self.stream.as_mut().filter(|_| self.joined) {
            stream.put(message);
        }
    }

    /// What becomes readable when the controller has said something.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(Stream::fd)
    }

    /// Whether the controller has said something, of who is told.
    pub(crate) fn tell_readable(&mut self, readable: bool) {
        self.stream.iter_mut().for_each(|stream| stream.tell_readable(readable));
    }

    /// Whether something would be sent if there were room.
    pub(crate) fn wants_room(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::wants_room)
    }

    /// Whether the connection is another than when this was last asked.
    pub(crate) fn is_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// Whether nothing has come from where controllers are for so long, not even that there is none.
    pub(crate) fn is_silent(&self, now: Instant, span: Duration) -> bool {
        // Without a connection it is only asked from time to time.
        let asked = if self.joined { Duration::ZERO } else { AGAIN * 2 };
        now.duration_since(self.answered) >= span + asked
    }

    /// From now on a controller is looked for there.
    #[cfg(test)]
    pub(crate) fn look_at(&mut self, address: SocketAddr) {
        self.addresses = vec![address];
    }

    /// How often each side says something.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.heartbeat
    }
}

/// This machine's address on the way to the controller: what others are told where a member listens on all.
fn own_address(controllers: &[SocketAddr], me: &LocalMember) -> Option<std::net::IpAddr> {
    let any: SocketAddr = match me {
        LocalMember::Host(address) | LocalMember::Balancer(address) if address.is_ipv4() => {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        }
        _ => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Nothing is sent: the route is looked up.
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(controllers.first()?).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
