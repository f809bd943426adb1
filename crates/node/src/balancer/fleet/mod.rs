//! The hosts of a cluster, as a balancer sees them: who they are, which has which bucket (by the controller's map, see
//! [`vireo_core::cluster`]), what was given to each and is not known to be carried out, and what becomes of that when one is
//! in the map no longer. A balancer is all that emits towards RAN and UPFs; a host that a map is without is listened to no
//! longer, and says nothing to anybody any more.

mod member;
mod setup;
pub(super) mod snapshot;
mod steer;

use super::Command;
use crate::api::{BalancerStatus, HostStatus};
use crate::clock::clock;
use crate::cluster::{
    ClusterConfig, ControllerClient, HeartbeatHandle, HeartbeatTargets, JoinReply, LinkError, LocalMember,
    ProgressCounter, told,
};
use crate::config::{NF_KINDS, SliceRuntime};
use crate::evicted_claims::EvictedClaims;
use crate::host::Input;
use crate::metrics::{Flow, Metrics};
use member::{HostConnection, HostReport, State};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use setup::Setup;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use steer::Steering;
use vireo_core::balance::{BalancerId, HostId};
use vireo_core::cluster;
use vireo_core::config::CoreConfig;
use vireo_core::replica::{Claim, Claims, EffectDedup, InflightInputs, RecentEffects};
use vireo_fabric::frame::FrameError;
use vireo_fabric::membership::{BalancerAssignment, ToController, ToMember};
use vireo_fabric::message::{AssociationOwner, ClusterMap, ToHost};
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};
use vireo_types::{AssocId, Duration, Instant};

/// Octets that may wait for a host that does not read; beyond, the RAN is held back.
const UNSENT: usize = 8 << 20;
/// Connections whose other ends are no hosts of the map, and how long each may be that.
const STRANGERS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
/// The silences after which a host is missed, times this: so long one of a new map may take to connect.
const CONNECTS: u32 = 5;
/// NG Setup and configuration updates that are kept of a RAN node, for hosts that join later.
const SAID: usize = 32;
/// Those of a host: what it says, and its heartbeat.
const CONNECTIONS: usize = 2;
const LISTENER: u64 = 0;
const CONTROLLER: u64 = 1;

/// What is known of a RAN node: enough to tell a host that joins.
#[derive(Debug)]
struct KnownRanNode {
    peer: SocketAddr,
    /// Its NG Setup Request, and the configuration updates since.
    said: VecDeque<Vec<u8>>,
    /// If it has set NG up elsewhere: what hosts know of it by that.
    of: Option<AssociationOwner>,
}

/// What is seen of a fleet from other threads.
pub(crate) type FleetView = Arc<Mutex<FleetStatus>>;

/// What that is.
#[derive(Debug, Default)]
pub(crate) struct FleetStatus {
    /// The hosts.
    pub(crate) hosts: Vec<HostStatus>,
    /// The balancers.
    pub(crate) balancers: Vec<BalancerStatus>,
    /// The UPFs, and whether each is associated.
    pub(crate) upfs: Vec<(SocketAddr, bool)>,
}

/// The hosts.
#[derive(Debug)]
pub(crate) struct Fleet {
    seat: BalancerAssignment,
    caller: ControllerClient,
    /// Its own heartbeat, as long as it takes turns; `None` when it ends.
    pulse: Option<HeartbeatHandle>,
    turns: ProgressCounter,
    security: Security,
    /// Why the cluster goes on without this balancer, if it does.
    ended: Option<LinkError>,
    slices: usize,
    /// Whether there may be other balancers.
    several: bool,
    /// Where RAN nodes' associations with this balancer end, as far as that is configured.
    endpoints: Vec<IpAddr>,
    listener: TcpListener,
    epoll: OwnedFd,
    /// By the tokens of their connections.
    members: BTreeMap<u64, HostConnection>,
    /// Those of another process that this one has not read since.
    unread: Vec<u64>,
    /// The connection of each host of the map that has one.
    serving: FxHashMap<HostId, u64>,
    /// Hosts of the map whose connection has ended: they do not come back to this balancer.
    lost: FxHashMap<HostId, (InflightInputs<Input>, RecentEffects)>,
    /// Looks in a row at which a host of the map had said nothing, of those of which that is so.
    misses: FxHashMap<HostId, u32>,
    /// Whether the controller was told lately that hosts are not heard.
    complained: bool,
    cut_off: bool,
    next_token: u64,
    map: Option<ClusterMap>,
    steering: Steering,
    nodes: FxHashMap<AssocId, KnownRanNode>,
    /// NG Setups that are not answered.
    setups: FxHashMap<AssocId, Setup>,
    upfs: FxHashMap<SocketAddr, bool>,
    /// The number of the last input.
    number: u64,
    /// Inputs of hosts that died, which go before all others.
    again: VecDeque<(u64, Input)>,
    repeats: EffectDedup,
    /// What hosts have claimed lately, of all if this balancer passes claims on: for those that join.
    claims: Claims,
    forgotten: EvictedClaims,
    /// What hosts want sent, until the balancer takes it.
    commands: VecDeque<Command>,
    /// When it was last looked who has said nothing.
    looked: Instant,
    metrics: Arc<Metrics>,
    view: FleetView,
}

impl Fleet {
    /// Takes hosts at an address, and joins the cluster whose controller the configuration names. RAN nodes have their
    /// associations with `endpoints`.
    ///
    /// # Errors
    ///
    /// When there is none, or it does not want this balancer.
    pub(crate) fn join(
        listener: TcpListener,
        (config, security, endpoints): (&ClusterConfig, &Security, &[IpAddr]),
        core: &CoreConfig,
        slices: &[SliceRuntime],
        metrics: Arc<Metrics>,
    ) -> Result<Self, LinkError> {
        let address = listener.local_addr().map_err(LinkError::System)?;
        let (caller, told) = ControllerClient::join(config, security, LocalMember::Balancer(address))?;
        let JoinReply::Balancer(seat) = told else {
            return Err(LinkError::Refused("it was given the number of a host".into()));
        };
        Fleet::new(listener, (caller, seat), (config, security, endpoints), core, slices, metrics)
    }

    /// One without hosts and without a map.
    fn new(
        listener: TcpListener,
        (caller, seat): (ControllerClient, BalancerAssignment),
        (config, security, endpoints): (&ClusterConfig, &Security, &[IpAddr]),
        core: &CoreConfig,
        slices: &[SliceRuntime],
        metrics: Arc<Metrics>,
    ) -> Result<Self, LinkError> {
        listener.set_nonblocking(true).map_err(LinkError::System)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| LinkError::System(error.into()))?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)
            .map_err(|error| LinkError::System(error.into()))?;
        let (now, turns) = (clock(), ProgressCounter::default());
        let me = cluster::Member::Balancer(seat.balancer);
        let pulse = HeartbeatHandle::start(me, caller.heartbeat(), security, vec![turns.clone()], None);
        let fleet = Fleet {
            steering: Steering::new(config.inter, core.clone(), slices, &seat.tmsi_key, config.report),
            caller,
            pulse: Some(pulse.map_err(LinkError::System)?),
            turns,
            security: security.clone(),
            ended: None,
            slices: slices.len(),
            several: true,
            endpoints: endpoints.iter().copied().filter(|address| !address.is_unspecified()).collect(),
            listener,
            epoll,
            members: BTreeMap::new(),
            unread: Vec::new(),
            serving: FxHashMap::default(),
            lost: FxHashMap::default(),
            misses: FxHashMap::default(),
            complained: false,
            cut_off: false,
            next_token: CONTROLLER + 1,
            map: None,
            nodes: FxHashMap::default(),
            setups: FxHashMap::default(),
            upfs: core.upfs.iter().map(|upf| (upf.n4, false)).collect(),
            // Beyond those of a life before, which hosts may know to be carried out.
            number: now.as_micros(),
            again: VecDeque::new(),
            repeats: EffectDedup::default(),
            claims: Claims::new(core.timers.registration_given_up()),
            forgotten: EvictedClaims::default(),
            commands: VecDeque::new(),
            looked: now,
            metrics,
            view: FleetView::default(),
            seat,
        };
        fleet.show_upfs();
        Ok(fleet)
    }

    /// There is no other balancer, and never will be: hosts have no use for what they might have to send by another.
    pub(crate) fn is_only_balancer(&mut self) {
        self.several = false;
    }

    /// What it was told when it joined.
    pub(crate) fn assignment(&self) -> &BalancerAssignment {
        &self.seat
    }

    /// Its number.
    pub(crate) fn balancer(&self) -> BalancerId {
        self.seat.balancer
    }

    /// Whether it is this balancer that talks to the UPFs.
    pub(crate) fn holds_n4(&self) -> bool {
        self.map.as_ref().and_then(ClusterMap::holder) == Some(self.seat.balancer)
    }

    /// Whether nobody has talked to them before in the cluster's life.
    pub(crate) fn is_first_map(&self) -> bool {
        self.map.as_ref().is_none_or(|map| map.is_first())
    }

    /// Another balancer talks to them from now on, and tells hosts of them.
    pub(crate) fn forget_upfs(&mut self) {
        self.upfs.values_mut().for_each(|up| *up = false);
        self.show_upfs();
    }

    /// The thread takes a turn, however long it is at one thing.
    pub(crate) fn turns(&self) -> ProgressCounter {
        self.turns.clone()
    }

    /// Whether there is no other that would.
    pub(crate) fn is_alone(&self) -> bool {
        self.map.as_ref().is_none_or(|map| map.balancers.len() <= 1)
    }

    /// Why the cluster goes on without this balancer, if it does.
    pub(crate) fn take_exit_reason(&mut self) -> Option<LinkError> {
        self.ended.take()
    }

    /// Whether nothing has come for as long as makes others take it for dead, from hosts or the controller, not even from
    /// their machines that they are not there. Then others have gone on without it, or will: what RAN nodes say to it is lost.
    /// Without another balancer it stays where it is.
    pub(crate) fn is_isolated(&self) -> bool {
        self.cut_off
    }

    /// Whether that is so by now.
    fn seems_isolated(&self) -> bool {
        let Some(map) = self.map.as_ref().filter(|_| !self.is_alone()) else { return false };
        let most = self.seat.heartbeat.1.max(1);
        let silent = |host: &HostId| {
            self.serving.contains_key(host) && self.misses.get(host).is_some_and(|misses| *misses >= most)
        };
        let silence = self.caller.heartbeat() * most;
        map.hosts.iter().all(|(host, _)| silent(host)) && self.caller.is_silent(std::time::Instant::now(), silence)
    }

    /// It is about to end: nothing is said in its name any more.
    pub(crate) fn stop_heartbeats(&mut self) {
        self.pulse = None;
    }

    /// What becomes readable when there is something for [`Fleet::pump`].
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// What is seen of it from other threads.
    pub(crate) fn view(&self) -> FleetView {
        Arc::clone(&self.view)
    }

    /// How often it has to be called at the least.
    pub(crate) fn heartbeat(&self) -> std::time::Duration {
        self.caller.heartbeat()
    }

    /// Until when [`Fleet::pump`] need not be called.
    pub(crate) fn due(&self) -> Instant {
        self.looked + Duration::from(self.caller.heartbeat())
    }

    /// All that hosts have given has left: they are told.
    pub(crate) fn acknowledge_sent(&mut self) {
        let told = |member: &&mut HostConnection| self.several && member.given > member.told;
        for member in self.members.values_mut().filter(told) {
            member.told = member.given;
            member.stream.put(&ToHost::SentCount { count: member.given });
        }
    }

    /// What hosts want sent, one after the other.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Takes what hosts and the controller have said, sends what waits for them, and looks who has said nothing.
    pub(crate) fn pump(&mut self) {
        self.turns.turn();
        let mut events =
            [const { epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) } }; 32];
        let nothing = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&nothing)) {
            Ok(ready) => ready,
            Err(error) => {
                tracing::error!(%error, "the connections of the hosts are not heard");
                0
            }
        };
        let now = clock();
        let mut calls = now >= self.due();
        std::mem::take(&mut self.unread).into_iter().for_each(|token| self.read(token));
        for event in &events[..ready] {
            match event.data.u64() {
                LISTENER => self.accept(),
                CONTROLLER => {
                    self.caller.tell_readable(true);
                    calls = true;
                }
                token => {
                    self.members.get_mut(&token).into_iter().for_each(|member| member.stream.tell_readable(true));
                    self.read(token);
                }
            }
        }
        if calls {
            self.controller();
        }
        if now >= self.due() {
            self.looked = now;
            self.check_silent_hosts(now);
            self.repeats.forget(now);
            self.forgotten.look(&mut self.claims, &self.metrics, now);
        }
        self.replay_inputs();
        self.flush();
    }

    /// Hears the controller, if there is one.
    fn controller(&mut self) {
        // Here it is heard; before, it only started.
        self.caller.ready();
        let mut maps = Vec::new();
        let heard = self.caller.poll(std::time::Instant::now(), &mut |message| {
            if let ToMember::Map(map) = message {
                maps.push(map);
            }
        });
        if self.caller.is_fresh()
            && let Some(fd) = self.caller.fd()
            && let Err(error) =
                epoll::add(&self.epoll, fd, epoll::EventData::new_u64(CONTROLLER), epoll::EventFlags::IN)
        {
            // It is heard at each heartbeat, then.
            tracing::warn!(%error, "the connection to the controller");
        }
        if let Some(pulse) = &self.pulse {
            pulse.goes_to(HeartbeatTargets { controller: self.caller.controller(), balancers: Vec::new() });
        }
        maps.into_iter().for_each(|map| self.adopt(*map));
        if let Err(error) = heard {
            self.ended = Some(error);
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, peer)) = self.listener.accept() {
            let over = |member: &&HostConnection| member.state == State::Refused && member.host.is_some();
            let hosts = self.serving.len() + self.members.values().filter(over).count();
            if self.members.len() >= STRANGERS + hosts * CONNECTIONS {
                tracing::warn!(%peer, "too many connections to the fabric are of no host of the cluster");
                continue;
            }
            let token = self.next_token;
            let stream = Stream::accepted(socket, &self.security, Role::Balancer, &[Role::Host]);
            let member = stream.and_then(|stream| {
                epoll::add(&self.epoll, stream.fd(), epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
                Ok(HostConnection::new(stream, clock()))
            });
            match member {
                Ok(member) => drop(self.members.insert(token, member)),
                Err(error) => tracing::warn!(%peer, %error, "a connection to the fabric"),
            }
            self.next_token += 1;
        }
    }

    /// Takes what one host has said.
    fn read(&mut self, token: u64) {
        loop {
            let epoch = self.map.as_ref().map_or(0, ClusterMap::epoch);
            let Some(member) = self.members.get_mut(&token) else { return };
            let mut said = HostReport::default();
            let heard = member.read(&mut said, epoch, &self.repeats, &mut self.commands);
            let host = member.host;
            if let Some(host) = host {
                self.steering.ended(host, member.flying.ended());
            }
            if said.repeats > 0 {
                self.metrics.messages(Flow::Repeats, said.repeats);
            }
            if let (Some(host), Some((cpu, pools))) = (host, said.report) {
                self.steering.report(host, cpu, &pools);
            }
            for claim @ Claim { supi, ue, at } in said.claims {
                self.claims.on_remote_claim(claim, clock());
                self.everyone_but(host, &ToHost::Claimed { supi, ue, at });
            }
            for (to, dnn, address) in said.returns {
                self.tell(to, &ToHost::AddressReturned { dnn, address });
            }
            self.again.extend(said.back);
            said.nodes.into_iter().for_each(|of| self.bound(of));
            if let Err(error) = heard {
                return self.on_disconnect(token, &error);
            }
            match (said.host, said.pulse, said.map) {
                (Some(host), ..) => self.on_host_hello(token, host),
                (None, Some(host), _) => self.on_heartbeat_connection(token, host),
                // What follows is said by it: whoever is not in it has said all that it has to say.
                (None, None, Some(map)) => self.adopt(*map),
                (None, None, None) => return,
            }
        }
    }

    /// An association is of a node that hosts know: one that joins later may never hear of that node's NG Setup.
    fn bound(&mut self, of: AssociationOwner) {
        if let Some(node) = self.nodes.get_mut(&of.assoc) {
            node.of = Some(of);
        }
    }

    /// Somebody says which host it is.
    fn on_host_hello(&mut self, token: u64, host: HostId) {
        let Some(member) = self.members.get_mut(&token).filter(|member| member.host.is_none()) else { return };
        if self.lost.contains_key(&host) || self.serving.contains_key(&host) {
            // What was given by the other connection is not known to have arrived.
            member.stream.put(&ToHost::Refused("it was connected before: the controller decides who goes".into()));
            member.state = State::Refused;
            return;
        }
        member.host = Some(host);
        // One that is in none that is known here says by which map it comes.
        if self.map.as_ref().is_some_and(|map| map.has_host(host)) {
            self.welcome_host(token);
        }
    }

    /// Somebody says that this is the heartbeat of a host.
    fn on_heartbeat_connection(&mut self, token: u64, host: HostId) {
        if let Some(member) = self.members.get_mut(&token).filter(|member| member.host.is_none()) {
            (member.host, member.state) = (Some(host), State::Pulse);
        }
    }

    /// A host of the map has connected: it is told what there is.
    fn welcome_host(&mut self, token: u64) {
        let Some(member) = self.members.get_mut(&token).filter(|member| member.state == State::Stranger) else {
            return;
        };
        let Some(host) = member.host else { return };
        member.state = State::Serving;
        if let Some(map) = &self.map {
            member.stream.put(&ToHost::Map(Box::new(map.clone())));
        }
        if !self.endpoints.is_empty() {
            member.stream.put(&ToHost::Endpoints(self.endpoints.clone()));
        }
        for (assoc, node) in &self.nodes {
            member.stream.put(&ToHost::Up { assoc: *assoc, peer: node.peer });
            if let Some(of) = &node.of {
                member.stream.put(&ToHost::Node(of.clone()));
            }
            for pdu in &node.said {
                let view = vireo_core::n2::peek(pdu).ok();
                member.stream.put(&ToHost::Ngap { number: 0, assoc: *assoc, answers: false, bucket: None, view, pdu });
            }
        }
        // Who does not talk to them knows of none.
        for (upf, _) in self.upfs.iter().filter(|(_, up)| **up) {
            member.stream.put(&ToHost::Upf { upf: *upf, up: true });
        }
        for Claim { supi, ue, at } in self.claims.recent(clock()) {
            member.stream.put(&ToHost::Claimed { supi, ue, at });
        }
        self.serving.insert(host, token);
        self.misses.remove(&host);
        tracing::info!(host = host.0, hosts = self.serving.len(), "a host is connected");
    }

    /// A connection is over. If it was a host's, the controller is told; until its map says who has the host's buckets,
    /// nobody has.
    fn on_disconnect(&mut self, token: u64, why: &FrameError) {
        let Some(member) = self.members.remove(&token) else { return };
        let _ = epoll::delete(&self.epoll, member.stream.fd());
        let Some(host) = member.host.filter(|host| self.serving.get(host) == Some(&token)) else {
            return tracing::debug!(%why, "a connection to the fabric ended");
        };
        self.serving.remove(&host);
        tracing::warn!(host = host.0, %why, hosts = self.serving.len(), "the connection of a host is over");
        self.lost.insert(host, (member.flying, member.emitted));
        self.report_silent_hosts();
    }

    /// The next epoch. Hosts that are not in it are cut off for good; what they had sent is known, and what they were not
    /// done with goes to others.
    fn adopt(&mut self, map: ClusterMap) {
        let old = self.map.as_ref();
        if !map.buckets.is_complete() || old.is_some_and(|old| old.epoch() >= map.epoch()) {
            return;
        }
        if !map.has_balancer(self.seat.balancer) {
            // Until it is in one, maps are not its affair.
            if old.is_some() {
                self.ended = Some(LinkError::Fenced(map.epoch()));
            }
            return;
        }
        let (epoch, now) = (map.epoch(), clock());
        let gone: Vec<HostId> =
            old.iter().flat_map(|old| &old.hosts).map(|(host, _)| *host).filter(|host| !map.has_host(*host)).collect();
        let mut unfinished = Vec::new();
        // One that has left in good order has ended all that it was given and had UEs for.
        let owned = |host: HostId| old.is_some_and(|old| old.buckets.buckets_owned_by(host).next().is_some());
        let owned: Vec<bool> = gone.iter().map(|host| owned(*host)).collect();
        for (host, owned) in gone.iter().zip(owned) {
            let (flying, emitted) = self.cut_off(*host, &map);
            self.repeats.add(emitted, now);
            unfinished.extend(flying.into_unfinished(now).into_iter().filter(|_| owned));
            self.steering.forget(*host);
        }
        unfinished.sort_by_key(|(number, _)| *number);
        self.steer_by(&map);
        self.show(&map);
        self.caller.knows(&map);
        tracing::info!(epoch, hosts = map.hosts.len(), gone = gone.len(), again = unfinished.len(), "a new epoch");
        // What follows is given by it.
        let message = ToHost::Map(Box::new(map));
        self.everyone_but(None, &message);
        if let ToHost::Map(map) = message {
            self.map = Some(*map);
        }
        let new = |member: &HostConnection| {
            member.state == State::Stranger
                && member.host.is_some_and(|host| self.map.as_ref().is_some_and(|map| map.has_host(host)))
        };
        let new: Vec<u64> = self.members.iter().filter(|(_, member)| new(member)).map(|(token, _)| *token).collect();
        new.into_iter().for_each(|token| self.welcome_host(token));
        // What they were given before what comes now.
        for again in unfinished.into_iter().rev() {
            self.again.push_front(again);
        }
        self.setups_again();
        self.replay_inputs();
    }

    /// UEs that are not known go to those that stay, if there are some.
    fn steer_by(&mut self, map: &ClusterMap) {
        let (leave, stay): (Vec<_>, Vec<_>) =
            map.hosts.iter().map(|(host, _)| *host).partition(|host| map.leaving.contains(host));
        self.steering.hosts(if stay.is_empty() { leave } else { stay });
    }

    /// A host that is not in the next map has said all that it has to say; what it had. It may be alive, and others take its
    /// copies until they have that map too: it must not believe that this balancer is gone, and end what its UEs do.
    fn cut_off(&mut self, host: HostId, map: &ClusterMap) -> (InflightInputs<Input>, RecentEffects) {
        self.misses.remove(&host);
        let before = self.lost.remove(&host);
        let token = self.serving.remove(&host);
        let Some(member) = token.and_then(|token| self.members.get_mut(&token)) else {
            return before.unwrap_or_default();
        };
        // One that lives learns by it that it is over.
        member.stream.put(&ToHost::Map(Box::new(map.clone())));
        (member.state, member.since) = (State::Refused, clock());
        (std::mem::take(&mut member.flying), std::mem::take(&mut member.emitted))
    }

    fn show(&self, map: &ClusterMap) {
        let (hosts, balancers) = told(map);
        // Poisoned by nobody: what is done under the lock does not panic.
        if let Ok(mut view) = self.view.lock() {
            (view.hosts, view.balancers) = (hosts, balancers);
        }
    }

    fn show_upfs(&self) {
        if let Ok(mut view) = self.view.lock() {
            view.upfs = self.upfs.iter().map(|(upf, up)| (*upf, *up)).collect();
        }
    }

    /// Which hosts of the map have said nothing since this was asked last. A balancer that was held up itself asks once, after
    /// it has heard all, so that nobody pays for it.
    fn check_silent_hosts(&mut self, now: Instant) {
        let mut late = Vec::new();
        let pulses = self.members.values_mut().filter(|member| member.state == State::Pulse);
        let beats = pulses.filter_map(|member| member.host.filter(|_| member.stream.was_heard()));
        let beats: BTreeSet<HostId> = beats.collect();
        for (token, member) in &mut self.members {
            member.stream.put(&ToHost::Heartbeat);
            let heard = member.stream.was_heard() || member.host.is_some_and(|host| beats.contains(&host));
            match (member.state, member.host) {
                (State::Pulse, Some(host)) if self.serving.contains_key(&host) => member.since = now,
                (State::Serving, Some(host)) if !heard => *self.misses.entry(host).or_default() += 1,
                (State::Serving, Some(host)) => drop(self.misses.remove(&host)),
                _ if now.since(member.since) > PATIENCE => late.push(*token),
                _ => {}
            }
        }
        for token in late {
            self.on_disconnect(token, &FrameError::Refused("it is no host of the cluster".into()));
        }
        let Some(map) = &self.map else { return };
        for (host, _) in map.hosts.iter().filter(|(host, _)| !self.serving.contains_key(host)) {
            *self.misses.entry(*host).or_default() += 1;
        }
        let cut_off = self.seems_isolated();
        if cut_off && !self.cut_off {
            tracing::error!("neither hosts nor the controller are heard: RAN nodes are let go to other balancers");
        }
        self.cut_off = cut_off;
        self.report_silent_hosts();
    }

    /// Tells the controller which hosts of the map are not heard, and that all are again.
    fn report_silent_hosts(&mut self) {
        let most = self.seat.heartbeat.1.max(1);
        // One that has only just come into the map, or whose heartbeat is to come, may need longer to connect.
        let pulses = self.members.values().filter(|member| member.state == State::Pulse);
        let beating: BTreeSet<HostId> = pulses.filter_map(|member| member.host).collect();
        let is_there = |host: &HostId| self.serving.contains_key(host) && beating.contains(host);
        let most = |host: &HostId| if is_there(host) { most } else { most * CONNECTS };
        let silent = self.misses.iter().filter(|(host, misses)| **misses >= most(host));
        let mut unheard: Vec<HostId> = silent.map(|(host, _)| *host).chain(self.lost.keys().copied()).collect();
        unheard.sort_unstable();
        unheard.dedup();
        let complains = !unheard.is_empty();
        if complains || self.complained {
            self.caller.put(&ToController::SilentHosts(unheard));
            self.complained = complains;
        }
    }

    /// Tells whoever has asked that all that it had said before is done.
    pub(crate) fn synced(&mut self, host: HostId, number: u64) {
        if self.serving.contains_key(&host) {
            return self.tell(host, &ToHost::BarrierReply { number });
        }
        // One that has left in good order since, which ends by that.
        let has_left = |member: &&mut HostConnection| member.host == Some(host) && member.state == State::Refused;
        if let Some(member) = self.members.values_mut().find(has_left) {
            member.stream.put(&ToHost::BarrierReply { number });
        }
    }

    fn tell(&mut self, host: HostId, message: &ToHost<'_>) {
        if let Some(member) = self.serving.get(&host).and_then(|token| self.members.get_mut(token)) {
            member.stream.put(message);
        }
    }

    fn everyone_but(&mut self, but: Option<HostId>, message: &ToHost<'_>) {
        for (host, token) in &self.serving {
            if let Some(member) = self.members.get_mut(token).filter(|_| Some(*host) != but) {
                member.stream.put(message);
            }
        }
    }

    /// Sends what waits for hosts.
    pub(crate) fn flush(&mut self) {
        let mut gone = Vec::new();
        for (token, member) in &mut self.members {
            if let Err(error) = member.stream.flush_at(&self.epoll, *token) {
                gone.push((*token, error));
            }
        }
        for (token, error) in gone {
            self.on_disconnect(token, &error);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

/// Pools that hosts report: each slice's, and that of UEs whose slice is not known, for each kind of procedure.
pub(crate) const fn pools(slices: usize) -> usize {
    (slices + 1) * NF_KINDS
}
