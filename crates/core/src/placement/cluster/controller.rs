//! State machine of the cluster controller.
//!
//! It decides on membership, failures, cluster maps, migration and the number of serving hosts.
//! Connections, storage and time belong to the caller.

mod cordon;
mod machines;
mod rebalance;

use super::ClusterMap;
use super::discovery::Discovery;
use super::durable_state::{DurableState, RejoinInfo, Secrets};
use super::member::{Balancer, Host, Liveness, Member, MemberStage, Refusal};
use super::pool_partitions::{PartitionState, PoolPartitions, lost_partitions, partition_of};
use super::rebalancer::Rebalancer;
use super::scaling::{HostUtilisation, Scaler, ScalingDecision};
use super::settings::ControllerSettings;
use crate::placement::balance::map::{BucketMap, SliceBuckets};
use crate::placement::balance::migration::CatchUp;
use crate::placement::balance::ring::WeightedHost;
use crate::placement::balance::{BalancerId, HostId};
use cordon::Cordon;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use vireo_types::Instant;

/// State of the cluster controller.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: ControllerSettings,
    secrets: Secrets,
    /// Map that is stored and in effect.
    map: Option<ClusterMap>,
    /// Next map, while it is being stored.
    next: Option<ClusterMap>,
    hosts: BTreeMap<HostId, Host>,
    balancers: BTreeMap<BalancerId, Balancer>,
    /// Balancers in no map yet, in order of joining.
    order: Vec<BalancerId>,
    joined: u16,
    parts: PoolPartitions,
    /// Balancer ID after which the search for a free one starts.
    last_balancer: u8,
    last_tick: Instant,
    discovery: Discovery,
    /// Members that were declared dead, until the caller reads them.
    evicted: Vec<(Member, Refusal)>,
    /// Replicas that lack copies required by the map.
    catch_up: CatchUp,
    /// True if all buckets are where they belong.
    settled: bool,
    drain: Drain,
    cordon: Cordon,
    fleet_size: FleetSize,
    /// Weights of hosts by their load; `None`: all hosts have weight 1.
    rebalancer: Option<Rebalancer>,
}

/// Returns the buckets of all slices, by replicas and hosts.
fn slice_buckets(settings: &ControllerSettings, hosts: Vec<WeightedHost>) -> Vec<SliceBuckets> {
    let part = |replicas: &usize| SliceBuckets { weight: 1.0, replicas: *replicas, hosts: hosts.clone() };
    settings.replicas.iter().map(part).collect()
}

/// Hosts that leave the cluster.
#[derive(Clone, Debug, Default)]
struct Drain {
    /// Hosts that migrate their buckets.
    hosts: BTreeSet<HostId>,
    /// Hosts that have drained or were idle, until the caller reads them.
    departed: Vec<HostId>,
}

/// Number of serving hosts, and the autoscaler that changes it.
#[derive(Clone, Debug)]
struct FleetSize {
    target: usize,
    scaler: Option<Scaler>,
    /// Last decision, until the caller reads it.
    decision: Option<ScalingDecision>,
}

impl Controller {
    /// Creates the controller of a cluster that, as far as it knows, does not exist yet.
    pub fn new(settings: ControllerSettings, secrets: Secrets, now: Instant) -> Self {
        let discovery = Discovery::new(now, now + settings.discovery_time);
        let scaler = settings.scaling.map(Scaler::new);
        let target = settings.scaling.map_or(0, |scaling| scaling.least.max(settings.hosts));
        let rebalancer = settings.rebalance_pause.filter(|_| settings.migrates).map(Rebalancer::new);
        Controller {
            settings,
            secrets,
            map: None,
            next: None,
            hosts: BTreeMap::new(),
            balancers: BTreeMap::new(),
            order: Vec::new(),
            joined: 0,
            parts: PoolPartitions::default(),
            last_balancer: BalancerId::COUNT - 1,
            last_tick: now,
            discovery,
            evicted: Vec::new(),
            catch_up: CatchUp::default(),
            settled: true,
            drain: Drain::default(),
            cordon: Cordon::new(now),
            fleet_size: FleetSize { target, scaler, decision: None },
            rebalancer,
        }
    }

    /// Creates the controller that succeeds another one, from its stored state.
    pub fn restore(settings: ControllerSettings, record: DurableState, now: Instant) -> Self {
        let mut controller = Controller::new(settings, record.secrets, now);
        controller.discovery.listen_until = None;
        if let Some(map) = record.map.filter(|map| map.buckets.is_complete()) {
            controller.follow(map, now);
            controller.adopt_points(record.points);
            controller.adopt_machines(record.machines);
        }
        controller.adopt_cordons(record.cordoned);
        controller
    }

    /// Adopts the map of a previous controller and waits for its members.
    fn follow(&mut self, map: ClusterMap, now: Instant) {
        let liveness = Liveness::new(now, false);
        self.joined = self.joined.max(map.joined);
        for (host, copies) in &map.hosts {
            self.joined = self.joined.max(host.0.saturating_add(1));
            self.hosts.entry(*host).or_insert_with(|| Host::new(*copies, MemberStage::Serving, liveness));
        }
        // In the same process as the controller, the only balancer of the map has died with it.
        for (balancer, address) in map.balancers.iter().filter(|_| !self.settings.is_embedded) {
            let new =
                || Balancer { address: *address, stage: MemberStage::Serving, liveness, silent_hosts: BTreeSet::new() };
            self.balancers.entry(*balancer).or_insert_with(new);
        }
        self.order.retain(|balancer| !map.has_balancer(*balancer));
        // The next balancer ID differs from those that members know.
        self.last_balancer = map.balancers.last().map_or(self.last_balancer, |(balancer, _)| balancer.0);
        self.discovery.reconnect_until = now + self.settings.reconnect_timeout;
        self.discovery.ends_early = true;
        self.drain.hosts = map.leaving.iter().copied().collect();
        self.recover_points(&map);
        if let Some(scaling) = &self.settings.scaling {
            self.fleet_size.target =
                map.hosts.len().saturating_sub(map.leaving.len()).clamp(scaling.least, scaling.most);
        }
        self.set_map(map);
    }

    /// Makes a map current. No owner has confirmed its replicas yet.
    fn set_map(&mut self, map: ClusterMap) {
        self.catch_up = CatchUp::new(&map.buckets, map.hosts.iter().map(|(host, _)| *host));
        self.settled = false;
        self.map = Some(map);
    }

    /// Returns the state to store.
    pub fn durable_state(&self) -> DurableState {
        self.state_with(self.map.clone())
    }

    fn state_with(&self, map: Option<ClusterMap>) -> DurableState {
        let (points, machines, cordoned) = (self.points(), self.machines(), self.cordoned().collect());
        DurableState { secrets: self.secrets, map, points, machines, cordoned }
    }

    /// Returns the secrets that hosts share.
    pub fn secrets(&self) -> Secrets {
        self.secrets
    }

    /// Returns the current map, which every member must have.
    pub fn map(&self) -> Option<&ClusterMap> {
        self.map.as_ref()
    }

    /// Returns true while members must reconnect to this controller and none is declared dead.
    pub fn is_discovering(&self) -> bool {
        self.last_tick < self.discovery.succession.until(self.discovery.reconnect_until, self.has_most_hosts())
            && !(self.discovery.ends_early && self.is_complete())
    }

    /// Returns true if most hosts of the map are connected.
    fn has_most_hosts(&self) -> bool {
        let Some(map) = &self.map else { return true };
        let here = |host: &HostId| self.hosts.get(host).is_some_and(|host| host.liveness.connected);
        map.hosts.iter().filter(|(host, _)| here(host)).count() * 2 > map.hosts.len()
    }

    /// Returns true if a member belongs to a cluster that this controller should have learned
    /// before it created another one. The controller and its members must then restart.
    pub fn must_restart(&self) -> bool {
        self.discovery.missed_cluster
    }

    /// Returns true if a member is ready; `None` if it does not exist.
    pub fn is_ready(&self, member: Member) -> Option<bool> {
        let stage = match member {
            Member::Host(host) => self.hosts.get(&host)?.stage,
            Member::Balancer(balancer) => self.balancers.get(&balancer)?.stage,
        };
        Some(stage != MemberStage::Starting)
    }

    /// Handles the join request of a host.
    ///
    /// # Errors
    ///
    /// Returns an error if the host may not join; it contains the reason.
    pub fn join_host(
        &mut self,
        copies: SocketAddr,
        past: Option<RejoinInfo<HostId>>,
        now: Instant,
    ) -> Result<HostId, Refusal> {
        let own =
            past.as_ref().map(|past| (past.id, past.record.map.as_ref().is_some_and(|map| map.has_host(past.id))));
        self.learn_from_rejoin(past.map(|past| past.record), now)?;
        let (host, had) = match own {
            Some(own) => own,
            None => (self.next_host()?, false),
        };
        let liveness = Liveness::new(now, true);
        let is_in = self.latest().is_some_and(|map| map.has_host(host));
        let stage = if is_in { MemberStage::Serving } else { MemberStage::Starting };
        let others = self.has_part(partition_of(host, self.settings.max_hosts));
        let epoch = self.epoch();
        match self.hosts.get_mut(&host) {
            // An earlier controller has assigned the ID to this host, which was in no map, and this
            // controller to another one.
            Some(known) if !had && known.copies != copies => {
                return Err(Refusal::Fenced(epoch));
            }
            Some(known) => (known.copies, known.liveness) = (copies, liveness),
            // A host that was in a map without having received it has done nothing under it, and
            // joins as a new one.
            None if had && !is_in => return Err(Refusal::Fenced(self.epoch())),
            None if others && !is_in => return Err(Refusal::NoFreePartition(self.settings.max_hosts)),
            None => drop(self.hosts.insert(host, Host::new(copies, stage, liveness))),
        }
        self.joined = self.joined.max(host.0.saturating_add(1));
        Ok(host)
    }

    /// Handles the join request of a balancer, which accepts hosts at `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the balancer may not join; it contains the reason.
    pub fn join_balancer(
        &mut self,
        address: SocketAddr,
        past: Option<RejoinInfo<BalancerId>>,
        now: Instant,
    ) -> Result<BalancerId, Refusal> {
        let own =
            past.as_ref().map(|past| (past.id, past.record.map.as_ref().is_some_and(|map| map.has_balancer(past.id))));
        self.learn_from_rejoin(past.map(|past| past.record), now)?;
        let (balancer, had) = match own {
            Some((balancer, _)) if balancer.0 >= BalancerId::COUNT => return Err(Refusal::TooManyBalancers),
            Some(own) => own,
            // Other members may still use the ID of a balancer that left recently: that ID is
            // assigned last.
            None => {
                let next = (1..=BalancerId::COUNT).map(|n| BalancerId((self.last_balancer + n) % BalancerId::COUNT));
                let known = |id: &BalancerId| {
                    self.balancers.contains_key(id) || self.map.as_ref().is_some_and(|map| map.has_balancer(*id))
                };
                (next.into_iter().find(|id| !known(id)).ok_or(Refusal::TooManyBalancers)?, false)
            }
        };
        let liveness = Liveness::new(now, true);
        let is_in = self.latest().is_some_and(|map| map.has_balancer(balancer));
        let epoch = self.epoch();
        match self.balancers.get_mut(&balancer) {
            // As for hosts: the ID belongs to another balancer.
            Some(known) if !had && known.address != address => {
                return Err(Refusal::Fenced(epoch));
            }
            Some(known) => (known.address, known.liveness) = (address, liveness),
            None if had && !is_in => return Err(Refusal::Fenced(self.epoch())),
            None => {
                let stage = if is_in { MemberStage::Serving } else { MemberStage::Starting };
                self.balancers.insert(balancer, Balancer { address, stage, liveness, silent_hosts: BTreeSet::new() });
                if !is_in {
                    self.order.push(balancer);
                }
                self.last_balancer = balancer.0;
            }
        }
        Ok(balancer)
    }

    /// Takes over what a joining member knows of the cluster.
    fn learn_from_rejoin(&mut self, record: Option<DurableState>, now: Instant) -> Result<(), Refusal> {
        // A member that was in no map has nothing to contribute until it is certain that no other
        // member was.
        let tells = |record: &DurableState| {
            record.map.is_some() || self.discovery.listen_until.is_none_or(|until| now >= until)
        };
        let Some(record) = record.filter(tells) else {
            return match self.discovery.listen_until {
                Some(until) if now < until => Err(Refusal::NotReady),
                _ => {
                    self.discovery.listen_until = None;
                    Ok(())
                }
            };
        };
        let learns = self.discovery.listen_until.take().is_some();
        if learns {
            self.secrets = record.secrets;
        } else if record.secrets != self.secrets {
            self.discovery.missed_cluster |= self.latest().is_none() && record.map.is_some();
            return Err(if self.discovery.missed_cluster { Refusal::UnknownCluster } else { Refusal::OtherCluster });
        }
        // A newer map than the known one was sent by a controller without a store, which this one
        // does not know.
        let known = self.latest().map_or(0, ClusterMap::epoch);
        if let Some(map) = record.map.filter(|map| map.buckets.is_complete() && map.epoch() > known) {
            let fits = map.balancers.iter().all(|(balancer, _)| balancer.0 < BalancerId::COUNT);
            let parts: BTreeSet<u16> =
                map.hosts.iter().map(|(host, _)| partition_of(*host, self.settings.max_hosts)).collect();
            if !fits || parts.len() < map.hosts.len() {
                return Err(Refusal::OtherCluster);
            }
            // Members of earlier maps that are not in this one were declared dead.
            self.next = None;
            self.hosts.retain(|host, known| known.stage != MemberStage::Serving || map.has_host(*host));
            self.follow(map, now);
            if learns || self.discovery.succession.is_on() {
                self.discovery.succession.on_map_adopted(now, self.settings.reconnect_timeout);
            }
        }
        Ok(())
    }

    /// Returns the ID of the next host: one whose pool partition may be assigned.
    fn next_host(&self) -> Result<HostId, Refusal> {
        let parts = self.settings.max_hosts;
        let mut unknown = false;
        for number in self.joined..self.joined.saturating_add(parts) {
            let part = partition_of(HostId(number), parts);
            if self.has_part(part) {
                continue;
            }
            match self.map.as_ref().filter(|_| part < self.joined) {
                // The partition was never assigned, or its host has done nothing under any map.
                None => return Ok(HostId(number)),
                Some(map) => match self.parts.state_of(part, map) {
                    PartitionState::Free => return Ok(HostId(number)),
                    PartitionState::Unknown => unknown = true,
                    PartitionState::Used => {}
                },
            }
        }
        Err(if unknown { Refusal::NotReady } else { Refusal::NoFreePartition(parts) })
    }

    /// Returns true if a host has a pool partition, or may still have it.
    fn has_part(&self, part: u16) -> bool {
        let maps = self.map.iter().chain(&self.next).flat_map(|map| &map.hosts).map(|(host, _)| host);
        self.hosts.keys().chain(maps).any(|host| partition_of(*host, self.settings.max_hosts) == part)
    }

    /// Records the pool partitions of departed hosts from which UEs of this host use addresses in
    /// an epoch.
    pub fn report_used_partitions(&mut self, host: HostId, epoch: u64, parts: impl IntoIterator<Item = u16>) {
        if self.hosts.contains_key(&host) {
            self.parts.report(host, epoch, parts);
        }
    }

    fn epoch(&self) -> u64 {
        self.latest().map_or(0, ClusterMap::epoch)
    }

    /// Returns the last map, whether it is current already or not.
    fn latest(&self) -> Option<&ClusterMap> {
        self.next.as_ref().or(self.map.as_ref())
    }

    /// Handles that a member is ready: a host has started its workers, or a balancer accepts hosts.
    pub fn on_ready(&mut self, member: Member, now: Instant) {
        let (stage, ready) = match member {
            Member::Host(host) => {
                let ready = if self.fleet_size.scaler.is_some() { MemberStage::Idle } else { MemberStage::Serving };
                (self.hosts.get_mut(&host).map(|host| &mut host.stage), ready)
            }
            Member::Balancer(balancer) => {
                (self.balancers.get_mut(&balancer).map(|balancer| &mut balancer.stage), MemberStage::Serving)
            }
        };
        if let Some(stage) = stage.filter(|stage| **stage == MemberStage::Starting) {
            *stage = ready;
        }
        self.on_message(member, now);
    }

    /// Records a message from a member.
    pub fn on_message(&mut self, member: Member, now: Instant) {
        if let Some(liveness) = self.liveness_mut(member) {
            *liveness = Liveness::new(now, true);
        }
    }

    /// Presumes a member alive that has sent nothing, because it sends no heartbeats yet.
    pub fn presume_alive(&mut self, member: Member, now: Instant) {
        if let Some(liveness) = self.liveness_mut(member) {
            liveness.presumed_at = now;
        }
    }

    fn liveness_mut(&mut self, member: Member) -> Option<&mut Liveness> {
        match member {
            Member::Host(host) => self.hosts.get_mut(&host).map(|host| &mut host.liveness),
            Member::Balancer(balancer) => self.balancers.get_mut(&balancer).map(|balancer| &mut balancer.liveness),
        }
    }

    /// Records all hosts that a balancer does not receive heartbeats from; replaces its last
    /// report.
    pub fn report_silent_hosts(&mut self, balancer: BalancerId, hosts: impl IntoIterator<Item = HostId>) {
        if let Some(balancer) = self.balancers.get_mut(&balancer) {
            balancer.silent_hosts = hosts.into_iter().collect();
        }
    }

    /// Records all hosts that do not accept a host's copies; replaces its last report.
    pub fn report_unreachable_peers(&mut self, host: HostId, hosts: impl IntoIterator<Item = HostId>, now: Instant) {
        if let Some(host) = self.hosts.get_mut(&host) {
            let first_report = |peer: HostId| (peer, host.unreached.get(&peer).copied().unwrap_or(now));
            host.unreached = hosts.into_iter().map(first_report).collect();
        }
    }

    /// Handles a report for an epoch. An owner reports that a replica has all copies. A host
    /// reports of itself that it has all handoffs and knows the RAN nodes of the map's balancers.
    pub fn on_caught_up(&mut self, owner: HostId, epoch: u64, replica: HostId) {
        self.catch_up.acknowledge(owner, epoch, replica);
    }

    /// Starts to drain a host: it migrates all its buckets and leaves. Returns false if the host is
    /// unknown or not ready.
    pub fn drain(&mut self, host: HostId) -> bool {
        match self.hosts.get(&host).map(|host| host.stage) {
            Some(MemberStage::Serving) => drop(self.drain.hosts.insert(host)),
            // An idle host has no buckets.
            Some(MemberStage::Idle) => {
                self.remove(Member::Host(host));
                self.drain.departed.push(host);
            }
            Some(MemberStage::Starting) | None => return false,
        }
        true
    }

    /// Handles the load report of a host.
    pub fn on_load_report(&mut self, host: HostId, load: HostUtilisation, now: Instant) {
        if !self.hosts.contains_key(&host) {
            return;
        }
        if let Some(scaler) = &mut self.fleet_size.scaler {
            scaler.on_load_report(host, load, now);
        }
        if let Some(rebalancer) = &mut self.rebalancer {
            rebalancer.on_load_report(host, load.cpu, now);
        }
    }

    /// Handles that balancers found no host that would meet the objective of a procedure.
    pub fn on_violations(&mut self, now: Instant) {
        self.fleet_size.scaler.iter_mut().for_each(|scaler| scaler.on_violations(now));
    }

    /// Returns the number of hosts that have joined and wait until they are needed.
    pub fn idle(&self) -> usize {
        self.hosts.values().filter(|host| host.stage == MemberStage::Idle).count()
    }

    /// Returns the wanted number of hosts including idle ones, and how many of them are missing.
    pub fn missing_hosts(&self) -> (usize, usize) {
        let Some(scaling) = &self.settings.scaling else { return (0, 0) };
        let all = (self.fleet_size.target + scaling.idle).min(usize::from(self.settings.max_hosts));
        let there = self.hosts.keys().filter(|host| !self.drain.hosts.contains(host)).count();
        (all, all.saturating_sub(there))
    }

    /// Returns true if all buckets are where they belong, with all their copies.
    pub fn is_settled(&self) -> bool {
        self.settled && self.next.is_none()
    }

    /// Returns hosts whose state other hosts have completely: their processes may end.
    pub fn take_departed(&mut self) -> Vec<HostId> {
        std::mem::take(&mut self.drain.departed)
    }

    /// Handles the loss of a member's connection: the member is dead, unless members must reconnect
    /// to this controller.
    pub fn on_disconnect(&mut self, member: Member) {
        if self.is_discovering() {
            if let Some(liveness) = self.liveness_mut(member) {
                liveness.connected = false;
            }
        } else {
            self.remove(member);
        }
    }

    /// Handles that the process of a host has ended. It cannot reconnect, even while other members
    /// must.
    pub fn on_host_ended(&mut self, host: HostId) {
        self.remove(Member::Host(host));
    }

    fn remove(&mut self, member: Member) {
        match member {
            Member::Host(host) => {
                self.hosts.remove(&host);
                self.parts.forget(host);
                self.drain.hosts.remove(&host);
                self.cordon.hosts.remove(&host);
                self.fleet_size.scaler.iter_mut().for_each(|scaler| scaler.forget(host));
            }
            Member::Balancer(balancer) => {
                self.balancers.remove(&balancer);
                self.order.retain(|other| *other != balancer);
            }
        }
    }

    /// Returns true if all awaited members are connected.
    fn is_complete(&self) -> bool {
        self.hosts.values().all(|host| host.liveness.connected)
            && self.balancers.values().all(|balancer| balancer.liveness.connected)
    }

    fn all(&self) -> impl Iterator<Item = (Member, Liveness)> {
        let hosts = self.hosts.iter().map(|(id, host)| (Member::Host(*id), host.liveness));
        hosts.chain(self.balancers.iter().map(|(id, balancer)| (Member::Balancer(*id), balancer.liveness)))
    }

    /// Advances time. The caller does so before it reports later events, and at least four times
    /// per `silence`. A controller that was suspended itself grants all members a new period before
    /// it declares any dead.
    pub fn begin_tick(&mut self, now: Instant) {
        let held_up = now.since(self.last_tick).as_micros();
        self.last_tick = now;
        if held_up > self.settings.silence.as_micros() {
            self.hosts.values_mut().for_each(|host| host.liveness.presumed_at = now);
            self.balancers.values_mut().for_each(|balancer| balancer.liveness.presumed_at = now);
        }
        if held_up * 2 > self.settings.reconnect_timeout.as_micros() {
            // After such a time members may have dropped this controller: they return on
            // connections other than those that are about to end.
            self.discovery.reconnect_until = now + self.settings.reconnect_timeout;
            self.discovery.ends_early = false;
        }
    }

    /// Detects failures and plans the next map. The caller has reported all events until `now`.
    pub fn check_liveness(&mut self, now: Instant) {
        self.begin_tick(now);
        if self.is_discovering() {
            return;
        }
        self.discovery.succession.end_wait();
        self.declare_dead(now);
        self.resolve_balancer_partition();
        self.resolve_host_partition(now);
        self.scale(now);
        self.rebalance(now);
        self.plan();
    }

    /// Declares silent members dead, if other members have sent something since.
    fn declare_dead(&mut self, now: Instant) {
        let silence = self.settings.silence;
        let newest = self.all().map(|(_, liveness)| liveness.alive_at()).max().unwrap_or_default();
        let is_silent = |liveness: &Liveness| {
            let since = newest.since(liveness.alive_at());
            now.since(liveness.alive_at()) >= silence && since.as_micros() * 2 >= silence.as_micros()
        };
        let is_dead = |(member, liveness): &(Member, Liveness)| {
            // A starting member sends no heartbeats; when it dies, its connection ends.
            !liveness.connected || is_silent(liveness) && self.is_ready(*member) == Some(true)
        };
        let dead: Vec<Member> = self.all().filter(is_dead).map(|(member, _)| member).collect();
        for member in dead {
            self.evict(member);
        }
    }

    /// Resolves partitions between balancers and hosts. Evicts the balancer if it misses most hosts
    /// and there is another balancer, else the hosts.
    fn resolve_balancer_partition(&mut self) {
        let Some(map) = &self.map else { return };
        let here: BTreeSet<HostId> = self.hosts.keys().copied().filter(|host| map.has_host(*host)).collect();
        let silent = |balancer: &Balancer| balancer.silent_hosts.intersection(&here).copied().collect::<Vec<_>>();
        let missed: Vec<(BalancerId, Vec<HostId>)> =
            self.balancers.iter().map(|(id, balancer)| (*id, silent(balancer))).collect();
        for (balancer, hosts) in missed {
            let others = self.map.as_ref().is_some_and(|map| {
                map.balancers.iter().any(|(other, _)| *other != balancer && self.balancers.contains_key(other))
            });
            if hosts.len() * 2 > here.len() && others {
                self.evict(Member::Balancer(balancer));
            } else {
                hosts.into_iter().for_each(|host| self.evict(Member::Host(host)));
            }
        }
    }

    /// Resolves partitions between hosts that do not accept each other's copies and thus block
    /// effects. Evicts the host in most such pairs, then one that sends nothing to this controller
    /// either (it may be presumed alive), else the one with the highest ID. Its UEs continue at
    /// their replicas.
    ///
    /// A pair of which neither host misses another peer does not tell which of the two is cut off.
    /// Half of `silence` later it is known: the cut-off one misses further peers or is silent here,
    /// even if its last heartbeats come late. Effects of the pair's UEs wait that long, which is
    /// within [`REEXECUTION_WINDOW`](crate::placement::replica::REEXECUTION_WINDOW).
    fn resolve_host_partition(&mut self, now: Instant) {
        let half_silence = self.settings.silence.as_micros() / 2;
        let has_passed = |since: Instant| now.since(since).as_micros() >= half_silence;
        loop {
            let pairs = self.unreachable_pairs();
            let mut counts: BTreeMap<HostId, usize> = BTreeMap::new();
            for host in pairs.keys().flat_map(|(one, other)| [one, other]) {
                *counts.entry(*host).or_default() += 1;
            }
            let is_ripe = |host: &HostId| {
                pairs.iter().any(|((one, other), since)| (one == host || other == host) && has_passed(*since))
            };
            let is_silent = |host: &HostId| has_passed(self.hosts[host].liveness.at);
            let evicted = counts
                .iter()
                .filter(|(host, count)| **count > 1 || is_ripe(host))
                .max_by_key(|(host, count)| (**count, is_silent(host), **host));
            let Some((host, _)) = evicted else { return };
            self.evict(Member::Host(*host));
        }
    }

    /// Returns the pairs of serving hosts of which one does not accept the other's copies, and the
    /// first report of each.
    fn unreachable_pairs(&self) -> BTreeMap<(HostId, HostId), Instant> {
        let Some(map) = &self.map else { return BTreeMap::new() };
        let here = |host: &HostId| map.has_host(*host) && self.hosts.contains_key(host);
        let mut pairs = BTreeMap::new();
        for (host, entry) in self.hosts.iter().filter(|(host, _)| here(host)) {
            for (other, since) in entry.unreached.iter().filter(|(other, _)| here(other) && *other != host) {
                let first = pairs.entry((*host.min(other), *host.max(other))).or_insert(*since);
                *first = (*first).min(*since);
            }
        }
        pairs
    }

    fn evict(&mut self, member: Member) {
        self.remove(member);
        self.evicted.push((member, Refusal::Silent));
    }

    /// Activates as many hosts as are wanted, and decides whether that number changes.
    fn scale(&mut self, now: Instant) {
        let Some(scaler) = self.fleet_size.scaler.as_mut() else { return };
        let works = |(id, host): (&HostId, &Host)| {
            (host.stage == MemberStage::Serving && !self.drain.hosts.contains(id)).then_some(*id)
        };
        let working: Vec<HostId> = self.hosts.iter().filter_map(works).collect();
        if self.next.is_some() || !self.settled || self.map.is_none() {
            scaler.reset_hysteresis();
        } else {
            let step = scaler.decide(&working, now);
            match step {
                Some(ScalingDecision::ScaleOut) => self.fleet_size.target = working.len() + 1,
                Some(ScalingDecision::ScaleIn(host)) => {
                    self.fleet_size.target = working.len() - 1;
                    self.drain.hosts.insert(host);
                }
                None => {}
            }
            self.fleet_size.decision = step.or(self.fleet_size.decision);
        }
        let missing = self.fleet_size.target.saturating_sub(working.len());
        let cordoned = &self.cordon.hosts;
        let is_idle = |id: &HostId, host: &Host| {
            host.stage == MemberStage::Idle && host.liveness.connected && !cordoned.contains(id)
        };
        let idle = self.hosts.iter_mut().filter(|(id, host)| is_idle(id, host));
        idle.take(missing).for_each(|(_, host)| host.stage = MemberStage::Serving);
    }

    /// Makes the next map if anything changes.
    fn plan(&mut self) {
        if self.next.is_some() {
            return;
        }
        let serving = self.hosts.iter().filter(|(_, host)| host.stage == MemberStage::Serving);
        let hosts: Vec<(HostId, SocketAddr)> = serving.map(|(id, host)| (*id, host.copies)).collect();
        let few = self.map.is_none() && hosts.len() < self.settings.hosts;
        let ready = |id: &BalancerId| self.balancers.get(id).filter(|balancer| balancer.stage == MemberStage::Serving);
        let address = |id: &BalancerId| Some((*id, ready(id)?.address));
        let before = self.map.iter().flat_map(|map| &map.balancers).map(|(id, _)| id);
        let balancers: Vec<(BalancerId, SocketAddr)> = before.chain(&self.order).filter_map(address).collect();
        let leaving: Vec<HostId> =
            self.drain.hosts.iter().copied().filter(|host| self.hosts.contains_key(host)).collect();
        let same = |map: &ClusterMap| map.hosts == hosts && map.balancers == balancers && map.leaving == leaving;
        let same = self.map.as_ref().is_some_and(same) && !self.cordon.is_changed;
        // Without hosts or balancers the map stays: members that reconnect continue with it.
        if few || hosts.is_empty() || balancers.is_empty() {
            return;
        }
        let ids: BTreeSet<HostId> = hosts.iter().map(|(host, _)| *host).collect();
        self.rebalancer.iter_mut().for_each(|rebalancer| rebalancer.set_hosts(&ids));
        let weighted = self.weighted_hosts(hosts.iter().map(|(host, _)| *host), &leaving);
        let parts = slice_buckets(&self.settings, weighted);
        let buckets = match &self.map {
            None => Some(BucketMap::first(&parts)),
            Some(map) if !same => Some(map.buckets.next(&parts)),
            Some(_) if self.settled || !self.catch_up.is_complete() => return,
            Some(_) if !self.settings.migrates => None,
            // Next step of a migration: all hosts have the copies that the last one requires.
            Some(map) => {
                let switch = || map.buckets.switch(&parts, self.settings.max_migrating_buckets);
                map.buckets.prepare(&parts).or_else(switch)
            }
        };
        match buckets {
            Some(buckets) => {
                let buckets = self.discovery.succession.next(buckets);
                self.cordon.is_changed = false;
                let lost = self
                    .map
                    .as_ref()
                    .map_or_else(Vec::new, |map| lost_partitions(map, &ids, &self.settings, self.settled));
                self.next = Some(ClusterMap { hosts, buckets, balancers, joined: self.joined, lost, leaving });
            }
            None => self.on_migration_complete(leaving.len() == hosts.len() || !self.settings.migrates),
        }
    }

    /// Handles that all buckets are where they belong. Draining hosts without buckets may end; all
    /// may if `all` is set, as no other host can receive their buckets.
    fn on_migration_complete(&mut self, all: bool) {
        self.settled = true;
        let Some(map) = &self.map else { return };
        let done: Vec<HostId> =
            self.drain.hosts.iter().copied().filter(|host| all || !map.buckets.has(*host)).collect();
        for host in done {
            self.remove(Member::Host(host));
            self.drain.departed.push(host);
        }
    }

    /// Returns the state that must be stored before it takes effect, if any.
    pub fn pending_state(&self) -> Option<DurableState> {
        Some(self.state_with(Some(self.next.clone()?)))
    }

    /// Handles that the state of an epoch is stored: its map takes effect. Returns false if the
    /// epoch is not the awaited one.
    pub fn on_stored(&mut self, epoch: u64) -> bool {
        let written = self.next.take_if(|next| next.epoch() == epoch);
        if let Some(map) = written {
            self.order.retain(|balancer| !map.has_balancer(*balancer));
            self.set_map(map);
            return true;
        }
        false
    }

    /// Drains the evicted members with the reasons.
    pub fn take_evicted(&mut self) -> Vec<(Member, Refusal)> {
        std::mem::take(&mut self.evicted)
    }

    /// Returns and clears the last scaling decision.
    pub fn take_scaling_decision(&mut self) -> Option<ScalingDecision> {
        self.fleet_size.decision.take()
    }
}
