//! Link thread of a host: connections to the controller and to all balancers.
//!
//! Messages of balancers go to the host's input queue. Messages of the host go to the balancer that
//! has their association. The loss of the controller stops nothing. The loss of a balancer ends the
//! associations that it had. If the cluster evicts this host, the host ends: other hosts own its
//! UEs.

use crate::command::{Command, CommandReceiver};
use crate::config::ClusterConfig;
use crate::controller_client::{ControllerClient, JoinReply, LocalMember};
use crate::error::LinkError;
use crate::heartbeat::{HeartbeatHandle, HeartbeatTargets};
use crate::input::Input;
use crate::input_queue::HostSender;
use crate::introductions::Introductions;
use crate::pending_pfcp::PendingPfcp;
use crate::progress::ProgressCounter;
use crate::unacked::{LostBalancer, UnackedMessage, UnackedQueue};
use crossbeam_channel::TrySendError;
use rustix::event::{PollFd, PollFlags, poll};
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_core::amf::n2;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::{ClusterMap, Member};
use vireo_core::placement::message::{AssociationOwner, ToBalancer, ToController, ToHost, ToMember, Welcome};
use vireo_core::placement::replica::REEXECUTION_WINDOW;
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};
use vireo_ops::clock::clock;
use vireo_ops::priority_boost::PriorityBoost;
use vireo_sctp::Waker;
use vireo_types::AssocId;

/// Retry interval of a lost connection to a balancer.
const AGAIN: Duration = Duration::from_millis(100);
/// Unsent bytes to a balancer above which the host must wait.
const UNSENT: usize = 4 << 20;
/// Maximum number of commands processed in one iteration.
const BATCH: usize = 1024;
/// Interval at which a full input queue of the host is tried again.
const ROOM: Duration = Duration::from_micros(100);

/// Connections of a host.
#[derive(Debug)]
pub struct Link {
    host: HostId,
    caller: ControllerClient,
    security: Security,
    balancers: BTreeMap<BalancerId, BalancerConnection>,
    /// Epoch of the last map passed to the host, and whether the host was in any map.
    epoch: u64,
    was_in: bool,
    /// Balancer that holds N4, and the PFCP requests that it has not answered.
    holder: Option<BalancerId>,
    asked: PendingPfcp,
    /// True if there may be several balancers.
    several: bool,
    /// Maps that the host has not adopted yet, and the last one that it has.
    maps: VecDeque<Box<ClusterMap>>,
    adopted: Option<Box<ClusterMap>>,
    /// Barriers by number, each with the balancers that have not answered.
    syncs: BTreeMap<u64, BTreeSet<BalancerId>>,
    /// Barriers that balancers without a connection must answer, too.
    introductions: Introductions,
    /// Time of the last message that was or may have been lost because a balancer was unavailable.
    broken: Option<Instant>,
    /// True if other hosts have all state of this host, which may end.
    left: bool,
    /// Inputs that the host has no room for. While there are any, balancers are not read.
    held: VecDeque<Input>,
    turns: ProgressCounter,
    ended: Arc<AtomicBool>,
}

/// Connection to one balancer.
#[derive(Debug)]
struct BalancerConnection {
    address: SocketAddr,
    stream: Option<Stream>,
    again: Instant,
    /// Associations of the balancer, as far as known, and their local addresses.
    up: BTreeSet<AssocId>,
    endpoints: Vec<IpAddr>,
    /// Messages that the balancer has not confirmed.
    given: UnackedQueue,
}

impl BalancerConnection {
    fn new(address: SocketAddr, again: Instant) -> Self {
        let (up, endpoints, given) = (BTreeSet::new(), Vec::new(), UnackedQueue::default());
        BalancerConnection { address, stream: None, again, up, endpoints, given }
    }

    /// Closes the connection and returns the balancer's state.
    fn end(&mut self) -> LostBalancer {
        self.stream = None;
        LostBalancer {
            associations: std::mem::take(&mut self.up),
            endpoints: std::mem::take(&mut self.endpoints),
            unsent: self.given.end(),
        }
    }
}

/// Status of a link for other threads.
#[derive(Clone, Debug)]
pub struct LinkStatus(Arc<AtomicBool>);

impl LinkStatus {
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Link {
    /// Finds the controller and joins; the host receives copies of other hosts at `copies`.
    pub fn join(config: &ClusterConfig, security: &Security, copies: SocketAddr) -> Result<(Self, Welcome), LinkError> {
        let (caller, told) = ControllerClient::join(config, security, LocalMember::Host(copies))?;
        let JoinReply::Host(welcome) = told else {
            return Err(LinkError::Refused("it was given the number of a balancer".into()));
        };
        let link = Link {
            host: welcome.host,
            caller,
            security: security.clone(),
            balancers: BTreeMap::new(),
            epoch: 0,
            was_in: false,
            holder: None,
            asked: PendingPfcp::default(),
            several: !config.controllers.is_empty(),
            maps: VecDeque::new(),
            adopted: None,
            syncs: BTreeMap::new(),
            introductions: Introductions::default(),
            broken: None,
            left: false,
            held: VecDeque::new(),
            turns: ProgressCounter::default(),
            ended: Arc::default(),
        };
        Ok((link, welcome))
    }

    pub fn ended(&self) -> LinkStatus {
        LinkStatus(Arc::clone(&self.ended))
    }

    /// Reports that the host is ready, and runs until the host is removed from the cluster or the
    /// replicator stops.
    pub fn run(
        mut self,
        door: &HostSender,
        commands: &CommandReceiver,
        waker: &Waker,
        copying: ProgressCounter,
    ) -> Result<(), LinkError> {
        self.caller.ready();
        let watched = vec![door.turns(), self.turns.clone(), copying];
        let (me, heartbeat) = (Member::Host(self.host), self.caller.heartbeat());
        let carried = HeartbeatHandle::start(me, heartbeat, &self.security, watched, Some(door.clone()))
            .map_err(LinkError::System)
            .and_then(|pulse| self.run_loop(door, commands, waker, &pulse));
        if let Err(error) = &carried {
            tracing::error!(%error, "this host is in its cluster no longer");
        }
        self.ended.store(true, Ordering::Relaxed);
        carried
    }

    fn run_loop(
        &mut self,
        door: &HostSender,
        commands: &CommandReceiver,
        waker: &Waker,
        pulse: &HeartbeatHandle,
    ) -> Result<(), LinkError> {
        let mut punctual = PriorityBoost::new(self.caller.heartbeat(), Instant::now());
        let mut told = HeartbeatTargets::default();
        loop {
            self.turns.turn();
            self.take(commands, door);
            let now = Instant::now();
            punctual.update(now);
            self.controller(now, door)?;
            if self.is_news_to(&told) {
                told = self.audience();
                pulse.goes_to(told.clone());
            }
            self.connect(now);
            for seid in self.asked.forget(clock()) {
                self.offer(Input::PfcpTimeout { seid, number: 0 }, door);
            }
            self.flush(door);
            if self.hear(door)? {
                door.wake();
            }
            self.sleep(commands, waker, self.caller.heartbeat())?;
        }
    }

    /// Returns the receivers of the host's heartbeats.
    fn audience(&self) -> HeartbeatTargets {
        let balancers = self.balancers.values().map(|way| way.address).collect();
        HeartbeatTargets { controller: self.caller.controller(), balancers }
    }

    fn is_news_to(&self, told: &HeartbeatTargets) -> bool {
        let balancers = self.balancers.values().map(|way| way.address);
        self.caller.controller() != told.controller || !balancers.eq(told.balancers.iter().copied())
    }

    /// Receives messages of the controller, if it is connected.
    fn controller(&mut self, now: Instant, door: &HostSender) -> Result<(), LinkError> {
        let (mut maps, mut left) = (Vec::new(), false);
        let heard = self.caller.poll(now, &mut |message| match message {
            ToMember::Map(map) => maps.push(map),
            ToMember::LeaveGranted => left = true,
            _ => {}
        });
        if left && !self.left {
            self.left = true;
            self.offer(Input::LeaveGranted, door);
            door.wake();
        }
        if let Err(error) = heard {
            // A host that has left is not a member, and ends by itself.
            return if self.left { Ok(()) } else { Err(error) };
        }
        for map in maps {
            self.on_map(map, door)?;
        }
        Ok(())
    }

    /// Adopts a map from any sender, if it is newer than the host's.
    fn on_map(&mut self, map: Box<ClusterMap>, door: &HostSender) -> Result<(), LinkError> {
        if map.epoch() <= self.epoch || !map.buckets.is_complete() {
            return Ok(());
        }
        if !map.has_host(self.host) {
            // Maps do not concern the host until it is in one.
            return if self.was_in && !self.left { Err(LinkError::Fenced(map.epoch())) } else { Ok(()) };
        }
        (self.epoch, self.was_in) = (map.epoch(), true);
        let holder = std::mem::replace(&mut self.holder, map.holder());
        self.caller.knows(&map);
        self.offer(Input::Map(map.clone()), door);
        let now = Instant::now();
        let same = |id: &BalancerId, way: &BalancerConnection| map.balancers.contains(&(*id, way.address));
        let gone: Vec<BalancerId> =
            self.balancers.iter().filter(|(id, way)| !same(id, way)).map(|(id, _)| *id).collect();
        for balancer in gone {
            if let Some(mut way) = self.balancers.remove(&balancer) {
                tracing::warn!(balancer = balancer.0, epoch = map.epoch(), "a balancer is gone");
                self.on_undelivered(true);
                self.introductions.gone(balancer);
                self.down(way.end(), door);
                self.answered(balancer, None, door);
            }
        }
        for (balancer, address) in &map.balancers {
            self.balancers.entry(*balancer).or_insert_with(|| BalancerConnection::new(*address, now));
        }
        if holder != self.holder {
            self.asked.mark_undelivered();
            // On an existing connection; a new connection starts with its map.
            self.tell_holder(&ToBalancer::Map(map.clone()));
            let count = self.ask_again();
            if count > 0 {
                tracing::warn!(count, "PFCP requests that another balancer had not answered are asked again");
            }
        }
        self.maps.push_back(map);
        self.connect(now);
        door.wake();
        Ok(())
    }

    /// Sends all unanswered requests to the balancer that holds N4, if connected; returns their
    /// number.
    fn ask_again(&mut self) -> usize {
        let way = self.holder.and_then(|holder| self.balancers.get_mut(&holder));
        let Some(stream) = way.and_then(|way| way.stream.as_mut()) else { return 0 };
        self.asked.take_for_resend(clock()).map(|request| stream.put(&request)).count()
    }

    /// Connects to balancers without a connection.
    fn connect(&mut self, now: Instant) {
        // The newest map: a balancer that has not received it adopts it, too.
        let (host, map) = (self.host, self.maps.back().or(self.adopted.as_ref()));
        let lost = self.balancers.iter_mut().filter(|(_, way)| way.stream.is_none() && now >= way.again);
        let mut holds = false;
        for (balancer, way) in lost {
            way.again = now + AGAIN;
            match Stream::connect(way.address, &self.security, Role::Host, &[Role::Balancer]) {
                Ok(mut stream) => {
                    stream.put(&ToBalancer::Host(host));
                    if let Some(map) = map {
                        stream.put(&ToBalancer::Map(map.clone()));
                    }
                    for number in self.introductions.of(*balancer) {
                        stream.put(&ToBalancer::Sync { number });
                    }
                    way.stream = Some(stream);
                    holds |= self.holder == Some(*balancer);
                }
                Err(error) => tracing::debug!(balancer = balancer.0, %error, "no connection to a balancer"),
            }
        }
        if holds {
            self.ask_again();
        }
    }

    /// Writes the host's messages to the connections, as long as these keep up. Otherwise the host
    /// waits.
    fn take(&mut self, commands: &CommandReceiver, door: &HostSender) {
        for _ in 0..BATCH {
            if self.is_behind() {
                return;
            }
            let Ok(command) = commands.queue.try_recv() else { return };
            match &command {
                Command::Ngap { .. } => self.ngap(command, door),
                Command::Pfcp { upf, key, seid, message } => {
                    let told = self.tell_holder(&ToBalancer::Pfcp { upf: *upf, key: *key, seid: *seid, message });
                    self.asked.add(clock(), (*upf, *key, *seid), message, told);
                    self.on_undelivered(!told);
                }
                Command::RefuseReport { upf, message } => {
                    // If it is lost, the UPF reports again.
                    self.tell_holder(&ToBalancer::RefuseReport { upf: *upf, message });
                }
                Command::Abort { assoc } => {
                    self.tell(assoc.balancer(), &ToBalancer::Abort { assoc: *assoc });
                }
                Command::Probe { assoc } => {
                    self.tell(assoc.balancer(), &ToBalancer::Probe { assoc: *assoc });
                }
                Command::Done { number } => {
                    self.tell(BalancerId::from_input(*number).0, &ToBalancer::Done { number: *number });
                }
                Command::Claim { supi, ue, at } => {
                    // If it is lost, the host repeats it when another balancer holds N4.
                    self.tell_holder(&ToBalancer::Claim { supi: *supi, ue: *ue, at: *at });
                }
                Command::Report { cpu, rate, pools } => {
                    self.tell_all(&ToBalancer::Report { cpu: *cpu, pools: pools.clone() });
                    self.caller.put(&ToController::Report { cpu: *cpu, rate: *rate, pools: pools.clone() });
                }
                Command::Epoch { epoch } => self.adopt(*epoch),
                Command::CaughtUp { epoch, host } => self.caller.caught_up(*epoch, *host),
                Command::Barrier { number, .. } => self.sync(*number, door),
                Command::Introduce { number } => self.introduce(*number, door),
                Command::ReturnInput { number } => {
                    self.tell(BalancerId::from_input(*number).0, &ToBalancer::Back { number: *number });
                }
                Command::ReturnAddress { to, of } => {
                    self.tell_holder(&ToBalancer::Return { to: *to, dnn: of.0.clone(), address: of.1 });
                }
                Command::Node(of) => {
                    self.tell(of.assoc.balancer(), &ToBalancer::Node(AssociationOwner::clone(of)));
                }
                Command::UnreachablePeers(hosts) => self.caller.put(&ToController::UnreachablePeers(hosts.clone())),
                Command::PoolPartitions { epoch, parts } => self.caller.parts(*epoch, parts.clone()),
                Command::Leave => self.caller.leave(),
            }
        }
    }

    /// Writes a message to a RAN node. A message about a UE without a connection is returned to the
    /// host, for another association of the RAN node.
    fn ngap(&mut self, command: Command, door: &HostSender) {
        let Command::Ngap { assoc, ue, key, pdu } = command else { return };
        let key = if ue.is_some() { key } else { 0 };
        let told = self.tell(assoc.balancer(), &ToBalancer::Ngap { assoc, ue, key, pdu: &pdu });
        self.on_undelivered(!told);
        // Without other balancers there is no other association.
        let unsent = ue.filter(|_| self.several).map(|ue| UnackedMessage { assoc, ue, key, pdu });
        match self.balancers.get_mut(&BalancerId(assoc.balancer())).filter(|_| told) {
            Some(way) => way.given.add(unsent),
            None => {
                if let Some(unsent) = unsent {
                    self.offer(Input::Unsent(Box::new(unsent)), door);
                    door.wake();
                }
            }
        }
    }

    /// Records that a message was or may have been lost.
    fn on_undelivered(&mut self, broken: bool) {
        if broken {
            self.broken = Some(Instant::now());
        }
    }

    fn is_behind(&self) -> bool {
        let mut streams = self.balancers.values().filter_map(|way| way.stream.as_ref());
        streams.any(|stream| stream.unsent() > UNSENT)
    }

    /// Sends a message to a balancer. Returns false if it is not connected: its associations are
    /// then down too.
    fn tell(&mut self, balancer: u8, message: &ToBalancer<'_>) -> bool {
        let way = self.balancers.get_mut(&BalancerId(balancer));
        let stream = way.and_then(|way| way.stream.as_mut());
        stream.map(|stream| stream.put(message)).is_some()
    }

    fn tell_holder(&mut self, message: &ToBalancer<'_>) -> bool {
        self.holder.is_some_and(|holder| self.tell(holder.0, message))
    }

    fn tell_all(&mut self, message: &ToBalancer<'_>) {
        for stream in self.balancers.values_mut().filter_map(|way| way.stream.as_mut()) {
            stream.put(message);
        }
    }

    /// Handles a barrier of the host: every connected balancer must answer.
    fn sync(&mut self, number: u64, door: &HostSender) {
        self.tell_all(&ToBalancer::Sync { number });
        let asked = self.balancers.iter().filter(|(_, way)| way.stream.is_some()).map(|(id, _)| *id);
        self.syncs.insert(number, asked.collect());
        self.answered_all(door);
    }

    /// Handles a barrier of the host to all balancers of the map: one without a connection receives
    /// it when it connects.
    fn introduce(&mut self, number: u64, door: &HostSender) {
        self.introductions.ask(number, self.balancers.keys().copied());
        self.tell_all(&ToBalancer::Sync { number });
        self.answered_all(door);
    }

    /// Records the answer of a balancer to a barrier; `None`: to all, because the balancer is gone.
    fn answered(&mut self, balancer: BalancerId, number: Option<u64>, door: &HostSender) {
        for (question, waits) in &mut self.syncs {
            if number.is_none_or(|number| number == *question) {
                waits.remove(&balancer);
            }
        }
        number.into_iter().for_each(|number| self.introductions.answered(balancer, number));
        self.answered_all(door);
    }

    fn answered_all(&mut self, door: &HostSender) {
        while let Some(first) = self.syncs.first_entry().filter(|first| first.get().is_empty()) {
            let (number, _) = first.remove_entry();
            // A lost message may be an effect that replicas know, as long as they store effects.
            let whole = self.broken.is_none_or(|broken| broken.elapsed() > Duration::from(REEXECUTION_WINDOW));
            self.offer(Input::BarrierReply { number, whole }, door);
            door.wake();
        }
        while let Some(number) = self.introductions.take_answered() {
            self.offer(Input::BarrierReply { number, whole: false }, door);
            door.wake();
        }
    }

    /// Handles that the host applies the map of an epoch to all messages from here on.
    fn adopt(&mut self, epoch: u64) {
        while self.maps.front().is_some_and(|map| map.epoch() <= epoch) {
            self.adopted = self.maps.pop_front();
        }
        if let Some(map) = self.adopted.clone() {
            self.tell_all(&ToBalancer::Map(map));
        }
    }

    fn flush(&mut self, door: &HostSender) {
        let mut lost = Vec::new();
        for (balancer, way) in &mut self.balancers {
            if let Some(Err(error)) = way.stream.as_mut().map(Stream::flush) {
                lost.push((*balancer, error));
            }
        }
        lost.into_iter().for_each(|(balancer, error)| self.lose(balancer, &error, door));
    }

    /// Handles the loss of a balancer connection. Its associations are lost, too: the balancer is
    /// dead or has dropped this host.
    fn lose(&mut self, balancer: BalancerId, why: &FrameError, door: &HostSender) {
        let Some(way) = self.balancers.get_mut(&balancer) else { return };
        if !way.up.is_empty() {
            tracing::warn!(balancer = balancer.0, %why, "the connection to a balancer is lost");
        }
        let left = way.end();
        self.broken = Some(Instant::now());
        if self.holder == Some(balancer) {
            self.asked.mark_undelivered();
        }
        self.down(left, door);
        self.answered(balancer, None, door);
    }

    fn down(&mut self, mut left: LostBalancer, door: &HostSender) {
        // Addresses that another balancer has too are not reported as gone.
        let elsewhere = |address: &IpAddr| self.balancers.values().any(|way| way.endpoints.contains(address));
        left.endpoints.retain(|address| !elsewhere(address));
        if !left.associations.is_empty() {
            self.offer(Input::BalancerGone(Box::new(left)), door);
            door.wake();
        }
    }

    fn offer(&mut self, input: Input, door: &HostSender) {
        if !self.held.is_empty() {
            self.held.push_back(input);
        } else if let Err(TrySendError::Full(input)) = door.try_put(input) {
            self.held.push_back(input);
        }
    }

    /// Passes messages of the balancers to the host. Returns true if there were any.
    fn hear(&mut self, door: &HostSender) -> Result<bool, LinkError> {
        while let Some(input) = self.held.pop_front() {
            if let Err(TrySendError::Full(input)) = door.try_put(input) {
                self.held.push_front(input);
                return Ok(true);
            }
        }
        let mut some = false;
        let balancers: Vec<BalancerId> = self.balancers.keys().copied().collect();
        for balancer in balancers {
            match self.hear_one(balancer, door) {
                Ok(heard) => some |= heard,
                Err(LinkError::Lost(why)) => {
                    self.lose(balancer, &why, door);
                    some = true;
                }
                Err(error) => return Err(error),
            }
            if !self.held.is_empty() {
                return Ok(true);
            }
        }
        Ok(some)
    }

    fn hear_one(&mut self, balancer: BalancerId, door: &HostSender) -> Result<bool, LinkError> {
        let mut some = false;
        loop {
            let Some(BalancerConnection { up, endpoints, given, stream: Some(stream), .. }) =
                self.balancers.get_mut(&balancer)
            else {
                return Ok(some);
            };
            let Some(octets) = stream.frame()? else {
                if stream.fill()? == 0 {
                    return Ok(some);
                }
                continue;
            };
            let message: ToHost<'_> = frame::decode(octets)?;
            match &message {
                ToHost::Up { assoc, .. } => drop(up.insert(*assoc)),
                ToHost::Down { assoc, restarted: false } => drop(up.remove(assoc)),
                ToHost::Pfcp { seid, request: false, message, .. } => self.asked.answered(*seid, message),
                ToHost::PfcpTimeout { seid, .. } => self.asked.timed_out(*seid),
                ToHost::UpfLost { upf } => self.asked.void(*upf),
                ToHost::Endpoints(addresses) => endpoints.clone_from(addresses),
                ToHost::SentCount { count } => given.sent(*count),
                _ => {}
            }
            let input = match message {
                ToHost::Heartbeat | ToHost::SentCount { .. } => continue,
                ToHost::Refused(why) => return Err(FrameError::Refused(why).into()),
                ToHost::Map(map) => {
                    self.on_map(map, door)?;
                    continue;
                }
                ToHost::BarrierReply { number } => {
                    self.answered(balancer, Some(number), door);
                    some = true;
                    continue;
                }
                message => input(message),
            };
            let Some(input) = input else { continue };
            some = true;
            self.offer(input, door);
            if !self.held.is_empty() {
                return Ok(true);
            }
        }
    }

    fn sleep(&mut self, commands: &CommandReceiver, waker: &Waker, wait: Duration) -> Result<(), LinkError> {
        let held = !self.held.is_empty();
        let nothing = self.is_behind() || commands.sleep();
        let mut wait = if nothing { wait } else { Duration::ZERO };
        if held {
            // The host does not signal when it has room.
            wait = wait.min(ROOM);
        }
        let interest = |wants_room: bool, reads: bool| {
            let read = if reads { PollFlags::IN } else { PollFlags::empty() };
            if wants_room { read | PollFlags::OUT } else { read }
        };
        let mut fds: SmallVec<[PollFd<'_>; 8]> = smallvec![PollFd::new(waker, PollFlags::IN)];
        let called = self.caller.fd().is_some();
        if let Some(fd) = self.caller.fd() {
            fds.push(PollFd::from_borrowed_fd(fd, interest(self.caller.wants_room(), true)));
        }
        let streams = self.balancers.values().filter_map(|way| way.stream.as_ref());
        let streams = streams.map(|stream| PollFd::from_borrowed_fd(stream.fd(), interest(stream.wants_room(), !held)));
        fds.extend(streams);
        let wait = rustix::event::Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(LinkError::System(error.into())),
        }
        commands.awake();
        let ready: SmallVec<[bool; 8]> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            waker.clear();
        }
        if called {
            self.caller.tell_readable(ready.next() == Some(true));
        }
        for stream in self.balancers.values_mut().filter_map(|way| way.stream.as_mut()) {
            stream.set_readable(ready.next() == Some(true));
        }
        Ok(())
    }
}

/// Converts a balancer message to an input of the host, if it is one.
pub fn input(message: ToHost<'_>) -> Option<Input> {
    Some(match message {
        ToHost::Refused(_)
        | ToHost::Heartbeat
        | ToHost::Map(_)
        | ToHost::BarrierReply { .. }
        | ToHost::SentCount { .. } => {
            return None;
        }
        ToHost::Ngap { number, assoc, answers, bucket, view, pdu } => {
            // An invalid message is decoded again: the answer contains the error.
            let view = view.map_or_else(|| n2::peek(pdu), Ok);
            Input::Ngap { assoc, view, pdu: pdu.to_vec(), at: clock(), number, answers, bucket }
        }
        ToHost::Pfcp { number, upf, seid, request, message } => {
            Input::Pfcp { upf, seid, request, message: message.to_vec(), number }
        }
        ToHost::PfcpTimeout { number, seid } => Input::PfcpTimeout { seid, number },
        ToHost::Upf { upf, up } => Input::Upf { upf, up },
        ToHost::UpfLost { upf } => Input::UpfLost { upf },
        ToHost::Claimed { supi, ue, at } => Input::Claimed { supi, ue, at },
        ToHost::Up { assoc, peer } => Input::Up { assoc, peer },
        ToHost::Down { assoc, restarted } => Input::Down { assoc, restarted },
        ToHost::Alive { assoc } => Input::Alive { assoc },
        ToHost::AddressReturned { dnn, address } => Input::Returned { of: Box::new((dnn, address)) },
        ToHost::Node(of) => Input::Node(Box::new(of)),
        ToHost::Endpoints(addresses) => Input::Endpoints(addresses),
        ToHost::Undelivered { assoc, ue, pdu } => {
            Input::Unsent(Box::new(UnackedMessage { assoc, ue, key: 0, pdu: pdu.to_vec() }))
        }
    })
}
