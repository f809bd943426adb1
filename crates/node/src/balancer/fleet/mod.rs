//! The hosts of a cluster, from a balancer's point of view.
//!
//! The fleet knows the connection of each host, the cluster map of the controller
//! ([`vireo_core::placement::cluster`]), and the inputs in flight to each host. When a new map
//! lacks a host, its unfinished inputs are redelivered to the new owners. Only balancers emit
//! messages to RAN and UPFs. So a host that the map lacks is fenced: the balancers drop its
//! messages.

mod member;
mod setup;
pub(super) mod snapshot;
mod steer;

use super::Command;
use crate::cluster::{
    ClusterConfig, ControllerClient, HeartbeatHandle, HeartbeatTargets, JoinReply, LinkError, LocalMember,
    ProgressCounter, told,
};
use crate::host::Input;
use member::{HostConnection, HostReport, State};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use setup::Setup;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use steer::Steering;
use vireo_core::config::CoreConfig;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::message::{AssociationOwner, BalancerAssignment, ToController, ToHost, ToMember};
use vireo_core::placement::replica::{Claim, Claims, EffectDedup, InflightInputs, RecentEffects};
use vireo_fabric::frame::FrameError;
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};
use vireo_ops::api::{BalancerStatus, HostStatus};
use vireo_ops::clock::clock;
use vireo_ops::config::{NF_KINDS, SliceRuntime};
use vireo_ops::evicted_claims::EvictedClaims;
use vireo_ops::metrics::{Flow, Metrics};
use vireo_types::{AssocId, Duration, Instant};

/// Maximum of unsent bytes of a host that does not read. Beyond it, the balancer stops reading from
/// the RAN.
const UNSENT: usize = 8 << 20;
/// Maximum of connections from peers that are no hosts of the map, and the maximum lifetime of
/// each.
const STRANGERS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
/// Factor of the heartbeat timeout for a host of a new map that has not connected yet.
const CONNECTS: u32 = 5;
/// Maximum of NG Setup Request and RAN Configuration Updates stored per RAN node, for hosts that
/// join later.
const SAID: usize = 32;
/// Connections of one host: data and heartbeat.
const CONNECTIONS: usize = 2;
const LISTENER: u64 = 0;
const CONTROLLER: u64 = 1;

/// State of a RAN node that hosts need when they join.
#[derive(Debug)]
struct KnownRanNode {
    peer: SocketAddr,
    /// The NG Setup Request and the RAN Configuration Updates since.
    said: VecDeque<Vec<u8>>,
    /// Set if the node has done NG Setup on another association: the owner of this association.
    of: Option<AssociationOwner>,
}

/// Status of a fleet, shared with other threads.
pub(crate) type FleetView = Arc<Mutex<FleetStatus>>;

/// The content of a [`FleetView`].
#[derive(Debug, Default)]
pub(crate) struct FleetStatus {
    pub(crate) hosts: Vec<HostStatus>,
    pub(crate) balancers: Vec<BalancerStatus>,
    /// UPFs, each with the state of its PFCP association.
    pub(crate) upfs: Vec<(SocketAddr, bool)>,
}

/// The hosts of a cluster and the state of their connections.
#[derive(Debug)]
pub(crate) struct Fleet {
    seat: BalancerAssignment,
    caller: ControllerClient,
    /// Heartbeat thread of this balancer, which beats while `turns` advances; `None` during
    /// shutdown.
    pulse: Option<HeartbeatHandle>,
    turns: ProgressCounter,
    security: Security,
    /// The reason why the cluster has removed this balancer, if it has.
    ended: Option<LinkError>,
    slices: usize,
    /// True if the cluster may have other balancers.
    several: bool,
    /// Configured local addresses of the N2 endpoint, without unspecified ones.
    endpoints: Vec<IpAddr>,
    listener: TcpListener,
    epoll: OwnedFd,
    /// Keyed by the epoll token of the connection.
    members: BTreeMap<u64, HostConnection>,
    /// Connections of a hot restart's predecessor that have not been read yet.
    unread: Vec<u64>,
    /// Token of each connected host of the map.
    serving: FxHashMap<HostId, u64>,
    /// Hosts of the map whose connection has ended. They are not accepted again.
    lost: FxHashMap<HostId, (InflightInputs<Input>, RecentEffects)>,
    /// Number of consecutive checks without a message, for each silent host of the map.
    misses: FxHashMap<HostId, u32>,
    /// True if the last report to the controller contained silent hosts.
    complained: bool,
    cut_off: bool,
    next_token: u64,
    map: Option<ClusterMap>,
    steering: Steering,
    nodes: FxHashMap<AssocId, KnownRanNode>,
    /// Unanswered NG Setup Requests.
    setups: FxHashMap<AssocId, Setup>,
    upfs: FxHashMap<SocketAddr, bool>,
    /// Number of the last input.
    number: u64,
    /// Inputs to redeliver, which precede all new inputs.
    again: VecDeque<(u64, Input)>,
    repeats: EffectDedup,
    /// Recent claims, of all hosts if this balancer distributes them, for hosts that join.
    claims: Claims,
    forgotten: EvictedClaims,
    /// Commands of hosts that the balancer has not executed yet.
    commands: VecDeque<Command>,
    /// Time of the last check for silent hosts.
    looked: Instant,
    metrics: Arc<Metrics>,
    view: FleetView,
}

impl Fleet {
    /// Joins the cluster of the configured controller and accepts hosts at an address. `endpoints`
    /// are the N2 addresses.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no controller or it refuses this balancer.
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

    /// Creates a fleet without hosts and without a map.
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
            // Larger than the numbers of an earlier process, which hosts may have seen.
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

    /// Declares that the cluster never has another balancer. Hosts then need no acknowledgements
    /// for a resend by another one.
    pub(crate) fn is_only_balancer(&mut self) {
        self.several = false;
    }

    /// Returns the controller's reply to the join.
    pub(crate) fn assignment(&self) -> &BalancerAssignment {
        &self.seat
    }

    /// Returns the ID of this balancer.
    pub(crate) fn balancer(&self) -> BalancerId {
        self.seat.balancer
    }

    /// Returns true if this balancer is the active N4 balancer.
    pub(crate) fn holds_n4(&self) -> bool {
        self.map.as_ref().and_then(ClusterMap::holder) == Some(self.seat.balancer)
    }

    /// Returns true if no balancer has been active on N4 before in the cluster's lifetime.
    pub(crate) fn is_first_map(&self) -> bool {
        self.map.as_ref().is_none_or(|map| map.is_first())
    }

    /// Marks all UPFs as not associated, because another balancer takes over N4 and reports their
    /// state to hosts.
    pub(crate) fn forget_upfs(&mut self) {
        self.upfs.values_mut().for_each(|up| *up = false);
        self.show_upfs();
    }

    /// Returns the progress counter of this thread, for use during long operations.
    pub(crate) fn turns(&self) -> ProgressCounter {
        self.turns.clone()
    }

    /// Returns true if the map has no other balancer.
    pub(crate) fn is_alone(&self) -> bool {
        self.map.as_ref().is_none_or(|map| map.balancers.len() <= 1)
    }

    /// Takes the reason why the cluster has removed this balancer, if it has.
    pub(crate) fn take_exit_reason(&mut self) -> Option<LinkError> {
        self.ended.take()
    }

    /// Returns true if this balancer is isolated: hosts and controller have been silent for the
    /// failure timeout, and their machines do not refuse connections either. Other balancers then
    /// take over, and messages of RAN nodes to this balancer are lost. An only balancer is never
    /// isolated.
    pub(crate) fn is_isolated(&self) -> bool {
        self.cut_off
    }

    /// Returns true if the condition of [`Fleet::is_isolated`] holds at present.
    fn seems_isolated(&self) -> bool {
        let Some(map) = self.map.as_ref().filter(|_| !self.is_alone()) else { return false };
        let most = self.seat.heartbeat.1.max(1);
        let silent = |host: &HostId| {
            self.serving.contains_key(host) && self.misses.get(host).is_some_and(|misses| *misses >= most)
        };
        let silence = self.caller.heartbeat() * most;
        map.hosts.iter().all(|(host, _)| silent(host)) && self.caller.is_silent(std::time::Instant::now(), silence)
    }

    /// Stops the heartbeats, before the balancer ends.
    pub(crate) fn stop_heartbeats(&mut self) {
        self.pulse = None;
    }

    /// Returns the descriptor that becomes readable when [`Fleet::pump`] has work.
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Returns the status that is shared with other threads.
    pub(crate) fn view(&self) -> FleetView {
        Arc::clone(&self.view)
    }

    /// Returns the maximum interval between two calls of [`Fleet::pump`].
    pub(crate) fn heartbeat(&self) -> std::time::Duration {
        self.caller.heartbeat()
    }

    /// Returns the latest time of the next call of [`Fleet::pump`].
    pub(crate) fn due(&self) -> Instant {
        self.looked + Duration::from(self.caller.heartbeat())
    }

    /// Acknowledges all NGAP PDUs of hosts as sent.
    pub(crate) fn acknowledge_sent(&mut self) {
        let told = |member: &&mut HostConnection| self.several && member.given > member.told;
        for member in self.members.values_mut().filter(told) {
            member.told = member.given;
            member.stream.put(&ToHost::SentCount { count: member.given });
        }
    }

    /// Returns the next command of a host.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Processes messages of hosts and controller, sends pending data, and checks for silent hosts.
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
                    self.members.get_mut(&token).into_iter().for_each(|member| member.stream.set_readable(true));
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
            self.forgotten.update(&mut self.claims, &self.metrics, now);
        }
        self.replay_inputs();
        self.flush();
    }

    /// Processes messages of the controller.
    fn controller(&mut self) {
        // The fleet handles messages from here on; before, the client only joined.
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
            // Without epoll, the connection is still read at each heartbeat.
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

    /// Processes messages of one connection.
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
                // The following messages apply to the new map. If it lacks the host, they are
                // dropped.
                (None, None, Some(map)) => self.adopt(*map),
                (None, None, None) => return,
            }
        }
    }

    /// Stores the RAN node of an additional association. A host that joins later may not receive
    /// that node's NG Setup.
    fn bound(&mut self, of: AssociationOwner) {
        if let Some(node) = self.nodes.get_mut(&of.assoc) {
            node.of = Some(of);
        }
    }

    /// Handles the host ID that a new connection sends.
    fn on_host_hello(&mut self, token: u64, host: HostId) {
        let Some(member) = self.members.get_mut(&token).filter(|member| member.host.is_none()) else { return };
        if self.lost.contains_key(&host) || self.serving.contains_key(&host) {
            // Inputs of the other connection may not have arrived.
            member.stream.put(&ToHost::Refused("it was connected before: the controller decides who goes".into()));
            member.state = State::Refused;
            return;
        }
        member.host = Some(host);
        // A host that no known map contains waits until it or the controller sends a newer map.
        if self.map.as_ref().is_some_and(|map| map.has_host(host)) {
            self.welcome_host(token);
        }
    }

    /// Marks a connection as a host's heartbeat connection.
    fn on_heartbeat_connection(&mut self, token: u64, host: HostId) {
        if let Some(member) = self.members.get_mut(&token).filter(|member| member.host.is_none()) {
            (member.host, member.state) = (Some(host), State::Pulse);
        }
    }

    /// Starts to serve a host of the map: sends the map, RAN nodes, UPFs and recent claims.
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
                let view = vireo_core::amf::n2::peek(pdu).ok();
                member.stream.put(&ToHost::Ngap { number: 0, assoc: *assoc, answers: false, bucket: None, view, pdu });
            }
        }
        // A balancer that is not active on N4 has no associated UPFs.
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

    /// Removes a connection. If it was a host's, reports it to the controller; the host's buckets
    /// have no owner until the next map.
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

    /// Adopts the map of a new epoch. Fences hosts that it lacks, and queues their unfinished
    /// inputs for redelivery.
    fn adopt(&mut self, map: ClusterMap) {
        let old = self.map.as_ref();
        if !map.buckets.is_complete() || old.is_some_and(|old| old.epoch() >= map.epoch()) {
            return;
        }
        if !map.has_balancer(self.seat.balancer) {
            // Maps are ignored until one contains this balancer.
            if old.is_some() {
                self.ended = Some(LinkError::Fenced(map.epoch()));
            }
            return;
        }
        let (epoch, now) = (map.epoch(), clock());
        let gone: Vec<HostId> =
            old.iter().flat_map(|old| &old.hosts).map(|(host, _)| *host).filter(|host| !map.has_host(*host)).collect();
        let mut unfinished = Vec::new();
        // A drained host has finished all inputs of its UEs.
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
        // The messages that follow apply to the new map.
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
        // Unfinished inputs precede all later ones.
        for again in unfinished.into_iter().rev() {
            self.again.push_front(again);
        }
        self.setups_again();
        self.replay_inputs();
    }

    /// Steers new UEs to the hosts that are not being drained; to all if there are no others.
    fn steer_by(&mut self, map: &ClusterMap) {
        let (leave, stay): (Vec<_>, Vec<_>) =
            map.hosts.iter().map(|(host, _)| *host).partition(|host| map.leaving.contains(host));
        self.steering.hosts(if stay.is_empty() { leave } else { stay });
    }

    /// Fences a host that the next map lacks. Returns its inputs in flight and its recent effects.
    ///
    /// The host may be alive. Until other hosts have the map, they accept its copies. So its
    /// connection stays open: otherwise the host would take this balancer for dead and end its UEs'
    /// procedures.
    fn cut_off(&mut self, host: HostId, map: &ClusterMap) -> (InflightInputs<Input>, RecentEffects) {
        self.misses.remove(&host);
        let before = self.lost.remove(&host);
        let token = self.serving.remove(&host);
        let Some(member) = token.and_then(|token| self.members.get_mut(&token)) else {
            return before.unwrap_or_default();
        };
        // A live host learns from the map that it has been removed.
        member.stream.put(&ToHost::Map(Box::new(map.clone())));
        (member.state, member.since) = (State::Refused, clock());
        (std::mem::take(&mut member.flying), std::mem::take(&mut member.emitted))
    }

    fn show(&self, map: &ClusterMap) {
        let (hosts, balancers) = told(map);
        // The lock is never poisoned: no code under it panics.
        if let Ok(mut view) = self.view.lock() {
            (view.hosts, view.balancers) = (hosts, balancers);
        }
    }

    fn show_upfs(&self) {
        if let Ok(mut view) = self.view.lock() {
            view.upfs = self.upfs.iter().map(|(upf, up)| (*upf, *up)).collect();
        }
    }

    /// Counts missed heartbeats of hosts and closes overdue unidentified connections.
    ///
    /// A balancer that was itself delayed calls it once, after it has read all messages, so that
    /// its delay counts against no host.
    fn check_silent_hosts(&mut self, now: Instant) {
        let mut late = Vec::new();
        let pulses = self.members.values_mut().filter(|member| member.state == State::Pulse);
        let beats = pulses.filter_map(|member| member.host.filter(|_| member.stream.take_received()));
        let beats: BTreeSet<HostId> = beats.collect();
        for (token, member) in &mut self.members {
            member.stream.put(&ToHost::Heartbeat);
            let heard = member.stream.take_received() || member.host.is_some_and(|host| beats.contains(&host));
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

    /// Reports the silent hosts of the map to the controller. Sends an empty report once after a
    /// non-empty one.
    fn report_silent_hosts(&mut self) {
        let most = self.seat.heartbeat.1.max(1);
        // A host that is new in the map, or whose heartbeat connection is missing, may need longer
        // to connect.
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

    /// Confirms a barrier to a host: all its preceding commands are executed.
    pub(crate) fn synced(&mut self, host: HostId, number: u64) {
        if self.serving.contains_key(&host) {
            return self.tell(host, &ToHost::BarrierReply { number });
        }
        // A drained host that has left the map since, and exits after the confirmation.
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

    /// Sends pending data to hosts.
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

/// Returns the number of pools in a host's report: one per kind of procedure, for each slice and
/// for UEs of unknown slice.
pub(crate) const fn pools(slices: usize) -> usize {
    (slices + 1) * NF_KINDS
}
