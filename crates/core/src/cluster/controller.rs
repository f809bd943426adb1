//! The state machine.

use super::ClusterMap;
use super::pool_partitions::{PartitionState, PoolPartitions, lost, partition_of};
use super::record::{DurableState, RejoinInfo, Secrets};
use super::scaling::{HostUtilisation, Scaler, Scaling, ScalingDecision};
use super::succession::Succession;
use crate::balance::map::{BucketMap, SliceBuckets};
use crate::balance::migration::CatchUp;
use crate::balance::ring::WeightedHost;
use crate::balance::{BalancerId, HostId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant};

/// What a controller goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSettings {
    /// Hosts that the first map waits for.
    pub hosts: usize,
    /// Hosts at a time: each has a part of the UE addresses, which another one gets when it is gone and no UE has any of it.
    pub most_hosts: u16,
    /// Whether hosts that die lose nothing that anybody was told, as long as there are copies.
    pub lossless: bool,
    /// Of UEs whose slice is not known and of each slice: how many hosts keep copies besides the owner.
    pub replicas: Vec<usize>,
    /// Whether UEs can go from hosts that live to others: not where their contexts are in no host's shared memory.
    pub moves: bool,
    /// Buckets that go from hosts that live to others at once, of all [`crate::balance::map::BUCKETS`]: the next ones follow
    /// when all owners have what they were given.
    pub at_once: usize,
    /// How many hosts work; `None`: all that are joined.
    pub scaling: Option<Scaling>,
    /// How long a member may say nothing.
    pub silence: Duration,
    /// How long members are waited for that a controller has to find again.
    pub patience: Duration,
    /// How long a controller that knows of nothing waits for members of a cluster that there is already, before it makes
    /// another one.
    pub listens: Duration,
    /// Whether it is in one process with the only balancer: when it begins, the balancer before is dead.
    pub alone: bool,
}

/// A member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Member {
    /// A host.
    Host(HostId),
    /// A balancer.
    Balancer(BalancerId),
}

/// Why somebody does not join, or is a member no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is too early to say.
    #[error("the controller has only just started: ask again")]
    NotYet,
    /// Too many hosts.
    #[error(
        "each of the {0} parts of the UE addresses is a host's, or UEs still have addresses of it that is gone: wait for these, or \
         raise cluster.address-parts and start the cluster anew"
    )]
    Hosts(u16),
    /// Too many balancers.
    #[error("there are {} balancers, and no more can be told apart", BalancerId::COUNT)]
    Balancers,
    /// It knows of a cluster, and this controller has begun another one, in which nothing has happened.
    #[error("the controller does not know the cluster that this member is of: it starts anew, and learns it")]
    Unlearned,
    /// Of another cluster.
    #[error("it is of another cluster than this controller's: start it anew, without what it has")]
    OtherCluster,
    /// It was in a map, and is no longer.
    #[error("the cluster has gone on without it since epoch {0}: start it anew")]
    Fenced(u64),
    /// It was not heard.
    #[error("it has said nothing for too long, to the controller, a balancer or another host: others have taken over")]
    Silent,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberStage {
    /// It is not ready, and says nothing.
    Starting,
    /// It is ready, and waits until it is needed.
    Idle,
    /// It is to be in the map.
    Serving,
}

#[derive(Clone, Debug)]
struct Host {
    copies: SocketAddr,
    stage: MemberStage,
    seen: Liveness,
    /// Hosts that do not take its copies.
    unreached: BTreeSet<HostId>,
}

#[derive(Clone, Debug)]
struct Balancer {
    address: SocketAddr,
    stage: MemberStage,
    seen: Liveness,
    /// Hosts that it does not hear.
    unheard: BTreeSet<HostId>,
}

/// When a member was heard last, and whether it has a connection.
#[derive(Clone, Copy, Debug)]
struct Liveness {
    at: Instant,
    here: bool,
}

/// A controller.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: ControllerSettings,
    secrets: Secrets,
    /// The map that holds.
    map: Option<ClusterMap>,
    /// The next one, while it is being written.
    next: Option<ClusterMap>,
    hosts: BTreeMap<HostId, Host>,
    balancers: BTreeMap<BalancerId, Balancer>,
    /// Balancers that are in no map yet, in the order in which they have joined.
    order: Vec<BalancerId>,
    joined: u16,
    parts: PoolPartitions,
    /// The number after which a free one is looked for.
    last_balancer: u8,
    /// When it was last told the time.
    looked: Instant,
    /// Until when it is not decided who is dead: members have to find it again.
    waits: Instant,
    /// Whether it is enough that all of them are there.
    early: bool,
    /// Until when it may find that there is a cluster already; nothing was told anybody before.
    listens: Option<Instant>,
    succession: Succession,
    /// There is a cluster that it does not know.
    ignorant: bool,
    dismissed: Vec<(Member, Refusal)>,
    /// What has been decided on the number of hosts since somebody looked.
    scaled: Option<ScalingDecision>,
    /// Who has not all copies yet that the map wants.
    catch_up: CatchUp,
    /// Whether all buckets are where they are to be.
    settled: bool,
    /// Hosts that give their buckets away and leave, and those that have.
    draining: BTreeSet<HostId>,
    left: Vec<HostId>,
    /// How many hosts are to work, and by what that changes.
    wanted: usize,
    scaler: Option<Scaler>,
}

impl Controller {
    /// The controller of a cluster that there is not yet, as far as it knows.
    pub fn new(settings: ControllerSettings, secrets: Secrets, now: Instant) -> Self {
        let listens = Some(now + settings.listens);
        let scaler = settings.scaling.map(Scaler::new);
        let wanted = settings.scaling.map_or(0, |scaling| scaling.least.max(settings.hosts));
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
            looked: now,
            waits: now,
            early: true,
            listens,
            succession: Succession::default(),
            ignorant: false,
            dismissed: Vec::new(),
            scaled: None,
            catch_up: CatchUp::default(),
            settled: true,
            draining: BTreeSet::new(),
            left: Vec::new(),
            wanted,
            scaler,
        }
    }

    /// One that follows another, which has left a record.
    pub fn restore(settings: ControllerSettings, record: DurableState, now: Instant) -> Self {
        let mut controller = Controller::new(settings, record.secrets, now);
        controller.listens = None;
        if let Some(map) = record.map.filter(|map| map.buckets.is_complete()) {
            controller.follow(map, now);
        }
        controller
    }

    /// Goes on from a map of a controller before: its members are waited for.
    fn follow(&mut self, map: ClusterMap, now: Instant) {
        let seen = Liveness { at: now, here: false };
        self.joined = self.joined.max(map.joined);
        for (host, copies) in &map.hosts {
            self.joined = self.joined.max(host.0.saturating_add(1));
            let new = || Host { copies: *copies, stage: MemberStage::Serving, seen, unreached: BTreeSet::new() };
            self.hosts.entry(*host).or_insert_with(new);
        }
        // The only balancer of the map, if that is another process, has died with its controller.
        for (balancer, address) in map.balancers.iter().filter(|_| !self.settings.alone) {
            let new = || Balancer { address: *address, stage: MemberStage::Serving, seen, unheard: BTreeSet::new() };
            self.balancers.entry(*balancer).or_insert_with(new);
        }
        self.order.retain(|balancer| !map.has_balancer(*balancer));
        // The next number is another one than those that members know.
        self.last_balancer = map.balancers.last().map_or(self.last_balancer, |(balancer, _)| balancer.0);
        self.waits = now + self.settings.patience;
        self.early = true;
        self.draining = map.leaving.iter().copied().collect();
        if let Some(scaling) = &self.settings.scaling {
            self.wanted = map.hosts.len().saturating_sub(map.leaving.len()).clamp(scaling.least, scaling.most);
        }
        self.hold(map);
    }

    /// From here on a map holds: who is to have copies by it has said nothing yet.
    fn hold(&mut self, map: ClusterMap) {
        self.catch_up = CatchUp::of(&map.buckets, map.hosts.iter().map(|(host, _)| *host));
        self.settled = false;
        self.map = Some(map);
    }

    /// What outlives it.
    pub fn record(&self) -> DurableState {
        DurableState { secrets: self.secrets, map: self.map.clone() }
    }

    /// What hosts share.
    pub fn secrets(&self) -> Secrets {
        self.secrets
    }

    /// The map that holds: every member is to have it.
    pub fn map(&self) -> Option<&ClusterMap> {
        self.map.as_ref()
    }

    /// Whether members have to find this controller, and nobody is taken for dead.
    pub fn is_discovering(&self) -> bool {
        self.looked < self.succession.until(self.waits, self.has_most_hosts()) && !(self.early && self.is_complete())
    }

    /// Whether most hosts of the map are there.
    fn has_most_hosts(&self) -> bool {
        let Some(map) = &self.map else { return true };
        let here = |host: &HostId| self.hosts.get(host).is_some_and(|host| host.seen.here);
        map.hosts.iter().filter(|(host, _)| here(host)).count() * 2 > map.hosts.len()
    }

    /// Returns true if a member knows of a cluster that this controller should have learned before it began another one: it is to
    /// be started anew, and its members too.
    pub fn is_ignorant(&self) -> bool {
        self.ignorant
    }

    /// Whether a member is ready; `None` if there is no such member.
    pub fn is_ready(&self, member: Member) -> Option<bool> {
        let stage = match member {
            Member::Host(host) => self.hosts.get(&host)?.stage,
            Member::Balancer(balancer) => self.balancers.get(&balancer)?.stage,
        };
        Some(stage != MemberStage::Starting)
    }

    /// A host wants to join.
    ///
    /// # Errors
    ///
    /// Why it may not.
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
        let seen = Liveness { at: now, here: true };
        let is_in = self.latest().is_some_and(|map| map.has_host(host));
        let stage = if is_in { MemberStage::Serving } else { MemberStage::Starting };
        let others = self.has_part(partition_of(host, self.settings.most_hosts));
        match self.hosts.get_mut(&host) {
            Some(known) => (known.copies, known.seen) = (copies, seen),
            // One that was in a map without having been told has done nothing by it, and begins anew.
            None if had && !is_in => return Err(Refusal::Fenced(self.epoch())),
            None if others && !is_in => return Err(Refusal::Hosts(self.settings.most_hosts)),
            None => drop(self.hosts.insert(host, Host { copies, stage, seen, unreached: BTreeSet::new() })),
        }
        self.joined = self.joined.max(host.0.saturating_add(1));
        Ok(host)
    }

    /// A balancer wants to join; it takes hosts at `address`.
    ///
    /// # Errors
    ///
    /// Why it may not.
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
            Some((balancer, _)) if balancer.0 >= BalancerId::COUNT => return Err(Refusal::Balancers),
            Some(own) => own,
            // One that has gone lately is perhaps still spoken of: its number comes last.
            None => {
                let next = (1..=BalancerId::COUNT).map(|n| BalancerId((self.last_balancer + n) % BalancerId::COUNT));
                let known = |id: &BalancerId| {
                    self.balancers.contains_key(id) || self.map.as_ref().is_some_and(|map| map.has_balancer(*id))
                };
                (next.into_iter().find(|id| !known(id)).ok_or(Refusal::Balancers)?, false)
            }
        };
        let seen = Liveness { at: now, here: true };
        let is_in = self.latest().is_some_and(|map| map.has_balancer(balancer));
        match self.balancers.get_mut(&balancer) {
            Some(known) => (known.address, known.seen) = (address, seen),
            None if had && !is_in => return Err(Refusal::Fenced(self.epoch())),
            None => {
                let stage = if is_in { MemberStage::Serving } else { MemberStage::Starting };
                self.balancers.insert(balancer, Balancer { address, stage, seen, unheard: BTreeSet::new() });
                if !is_in {
                    self.order.push(balancer);
                }
                self.last_balancer = balancer.0;
            }
        }
        Ok(balancer)
    }

    /// Takes what somebody who joins knows of the cluster.
    fn learn_from_rejoin(&mut self, record: Option<DurableState>, now: Instant) -> Result<(), Refusal> {
        // Who was in no map has nothing to tell before it is clear that nobody has.
        let tells = |record: &DurableState| record.map.is_some() || self.listens.is_none_or(|until| now >= until);
        let Some(record) = record.filter(tells) else {
            return match self.listens {
                Some(until) if now < until => Err(Refusal::NotYet),
                _ => {
                    self.listens = None;
                    Ok(())
                }
            };
        };
        let learns = self.listens.take().is_some();
        if learns {
            self.secrets = record.secrets;
        } else if record.secrets != self.secrets {
            self.ignorant |= self.latest().is_none() && record.map.is_some();
            return Err(if self.ignorant { Refusal::Unlearned } else { Refusal::OtherCluster });
        }
        // Newer than what is known here is what a controller without a memory has said and this one does not know.
        let known = self.latest().map_or(0, ClusterMap::epoch);
        if let Some(map) = record.map.filter(|map| map.buckets.is_complete() && map.epoch() > known) {
            let fits = map.balancers.iter().all(|(balancer, _)| balancer.0 < BalancerId::COUNT);
            let parts: BTreeSet<u16> =
                map.hosts.iter().map(|(host, _)| partition_of(*host, self.settings.most_hosts)).collect();
            if !fits || parts.len() < map.hosts.len() {
                return Err(Refusal::OtherCluster);
            }
            // Who was in the map before and is not in this one was taken for dead.
            self.next = None;
            self.hosts.retain(|host, known| known.stage != MemberStage::Serving || map.has_host(*host));
            self.follow(map, now);
            if learns || self.succession.is_on() {
                self.succession.learned(now, self.settings.patience);
            }
        }
        Ok(())
    }

    /// The number of the next host: one whose part of the addresses may be given.
    fn next_host(&self) -> Result<HostId, Refusal> {
        let parts = self.settings.most_hosts;
        let mut unknown = false;
        for number in self.joined..self.joined.saturating_add(parts) {
            let part = partition_of(HostId(number), parts);
            if self.has_part(part) {
                continue;
            }
            match self.map.as_ref().filter(|_| part < self.joined) {
                // Nobody has had it, or nobody has done anything by a map.
                None => return Ok(HostId(number)),
                Some(map) => match self.parts.look(part, map) {
                    PartitionState::Free => return Ok(HostId(number)),
                    PartitionState::Unknown => unknown = true,
                    PartitionState::Used => {}
                },
            }
        }
        Err(if unknown { Refusal::NotYet } else { Refusal::Hosts(parts) })
    }

    /// Whether a host has a part, or may still have.
    fn has_part(&self, part: u16) -> bool {
        let maps = self.map.iter().chain(&self.next).flat_map(|map| &map.hosts).map(|(host, _)| host);
        self.hosts.keys().chain(maps).any(|host| partition_of(*host, self.settings.most_hosts) == part)
    }

    /// A host says of which parts of the addresses, whose hosts are gone, its UEs have some in an epoch.
    pub fn report_used_partitions(&mut self, host: HostId, epoch: u64, parts: impl IntoIterator<Item = u16>) {
        if self.hosts.contains_key(&host) {
            self.parts.said(host, epoch, parts);
        }
    }

    fn epoch(&self) -> u64 {
        self.latest().map_or(0, ClusterMap::epoch)
    }

    /// The last map, whether it holds already or not.
    fn latest(&self) -> Option<&ClusterMap> {
        self.next.as_ref().or(self.map.as_ref())
    }

    /// A member is ready: a host has started its workers, a balancer takes hosts.
    pub fn ready(&mut self, member: Member, now: Instant) {
        let (stage, ready) = match member {
            Member::Host(host) => {
                let ready = if self.scaler.is_some() { MemberStage::Idle } else { MemberStage::Serving };
                (self.hosts.get_mut(&host).map(|host| &mut host.stage), ready)
            }
            Member::Balancer(balancer) => {
                (self.balancers.get_mut(&balancer).map(|balancer| &mut balancer.stage), MemberStage::Serving)
            }
        };
        if let Some(stage) = stage.filter(|stage| **stage == MemberStage::Starting) {
            *stage = ready;
        }
        self.heard(member, now);
    }

    /// Somebody has said something.
    pub fn heard(&mut self, member: Member, now: Instant) {
        if let Some(seen) = self.seen(member) {
            *seen = Liveness { at: now, here: true };
        }
    }

    fn seen(&mut self, member: Member) -> Option<&mut Liveness> {
        match member {
            Member::Host(host) => self.hosts.get_mut(&host).map(|host| &mut host.seen),
            Member::Balancer(balancer) => self.balancers.get_mut(&balancer).map(|balancer| &mut balancer.seen),
        }
    }

    /// A balancer says which hosts it does not hear: all of them, each time.
    pub fn report_silent_hosts(&mut self, balancer: BalancerId, hosts: impl IntoIterator<Item = HostId>) {
        if let Some(balancer) = self.balancers.get_mut(&balancer) {
            balancer.unheard = hosts.into_iter().collect();
        }
    }

    /// A host says which hosts do not take its copies: all of them, each time.
    pub fn report_unreachable_peers(&mut self, host: HostId, hosts: impl IntoIterator<Item = HostId>) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.unreached = hosts.into_iter().collect();
        }
    }

    /// An owner has said of an epoch that a replica has all of its copies, or a host of itself that it has all that was handed over
    /// to it and knows the RAN nodes of the map's balancers.
    pub fn caught_up(&mut self, owner: HostId, epoch: u64, replica: HostId) {
        self.catch_up.acknowledge(owner, epoch, replica);
    }

    /// A host is to give all that it has to others and to leave. Whether there is such a host.
    pub fn drain(&mut self, host: HostId) -> bool {
        match self.hosts.get(&host).map(|host| host.stage) {
            Some(MemberStage::Serving) => drop(self.draining.insert(host)),
            // It has nothing.
            Some(MemberStage::Idle) => {
                self.remove(Member::Host(host));
                self.left.push(host);
            }
            Some(MemberStage::Starting) | None => return false,
        }
        true
    }

    /// A host has said how loaded it is.
    pub fn reported(&mut self, host: HostId, load: HostUtilisation, now: Instant) {
        if let Some(scaler) = self.scaler.as_mut().filter(|_| self.hosts.contains_key(&host)) {
            scaler.reported(host, load, now);
        }
    }

    /// Hosts that are joined and wait until they are needed.
    pub fn idle(&self) -> usize {
        self.hosts.values().filter(|host| host.stage == MemberStage::Idle).count()
    }

    /// How many hosts there are to be in all, those that wait included, and how many of these are missing.
    pub fn missing_hosts(&self) -> (usize, usize) {
        let Some(scaling) = &self.settings.scaling else { return (0, 0) };
        let all = (self.wanted + scaling.idle).min(usize::from(self.settings.most_hosts));
        let there = self.hosts.keys().filter(|host| !self.draining.contains(host)).count();
        (all, all.saturating_sub(there))
    }

    /// Whether all buckets are where they are to be, with all their copies.
    pub fn is_settled(&self) -> bool {
        self.settled && self.next.is_none()
    }

    /// Hosts that have nothing any more that others have not: they may end.
    pub fn take_departed(&mut self) -> Vec<HostId> {
        std::mem::take(&mut self.left)
    }

    /// A member's connection is over: it is dead, unless members have to find this controller.
    pub fn lost(&mut self, member: Member) {
        if self.is_discovering() {
            if let Some(seen) = self.seen(member) {
                seen.here = false;
            }
        } else {
            self.remove(member);
        }
    }

    fn remove(&mut self, member: Member) {
        match member {
            Member::Host(host) => {
                self.hosts.remove(&host);
                self.parts.forget(host);
                self.draining.remove(&host);
                self.scaler.iter_mut().for_each(|scaler| scaler.forget(host));
            }
            Member::Balancer(balancer) => {
                self.balancers.remove(&balancer);
                self.order.retain(|other| *other != balancer);
            }
        }
    }

    /// Whether all that are waited for are there.
    fn is_complete(&self) -> bool {
        self.hosts.values().all(|host| host.seen.here) && self.balancers.values().all(|balancer| balancer.seen.here)
    }

    fn all(&self) -> impl Iterator<Item = (Member, Liveness)> {
        let hosts = self.hosts.iter().map(|(id, host)| (Member::Host(*id), host.seen));
        hosts.chain(self.balancers.iter().map(|(id, balancer)| (Member::Balancer(*id), balancer.seen)))
    }

    /// Time passes: to be told before anything that has happened since, at least each quarter of the silence that members
    /// are granted. A controller that was held up itself asks who is there before it takes anybody for dead.
    pub fn begin_tick(&mut self, now: Instant) {
        let held_up = now.since(self.looked).as_micros();
        self.looked = now;
        if held_up > self.settings.silence.as_micros() {
            self.hosts.values_mut().for_each(|host| host.seen.at = now);
            self.balancers.values_mut().for_each(|balancer| balancer.seen.at = now);
        }
        if held_up * 2 > self.settings.patience.as_micros() {
            // So long that members may have given it up: they come back by other connections than those that end now.
            self.waits = now + self.settings.patience;
            self.early = false;
        }
    }

    /// All that had happened until `now` was told: who is dead, and what follows.
    pub fn check_liveness(&mut self, now: Instant) {
        self.begin_tick(now);
        if self.is_discovering() {
            return;
        }
        self.succession.is_over();
        self.declare_dead(now);
        self.resolve_balancer_partition();
        self.resolve_host_partition();
        self.scale(now);
        self.plan();
    }

    /// Who has fallen silent is dead, if others were heard since.
    fn declare_dead(&mut self, now: Instant) {
        let silence = self.settings.silence;
        let newest = self.all().map(|(_, seen)| seen.at).max().unwrap_or_default();
        let is_silent = |seen: &Liveness| {
            let since = newest.since(seen.at);
            now.since(seen.at) >= silence && since.as_micros() * 2 >= silence.as_micros()
        };
        let is_dead = |(member, seen): &(Member, Liveness)| {
            // One that starts says nothing; when it dies, its connection ends.
            !seen.here || is_silent(seen) && self.is_ready(*member) == Some(true)
        };
        let dead: Vec<Member> = self.all().filter(is_dead).map(|(member, _)| member).collect();
        for member in dead {
            self.evict(member);
        }
    }

    /// Who is in the way where a balancer and a host do not hear each other: the balancer if it misses most hosts and there
    /// is another, else the host.
    fn resolve_balancer_partition(&mut self) {
        let Some(map) = &self.map else { return };
        let here: BTreeSet<HostId> = self.hosts.keys().copied().filter(|host| map.has_host(*host)).collect();
        let unheard = |balancer: &Balancer| balancer.unheard.intersection(&here).copied().collect::<Vec<_>>();
        let missed: Vec<(BalancerId, Vec<HostId>)> =
            self.balancers.iter().map(|(id, balancer)| (*id, unheard(balancer))).collect();
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

    /// Of hosts that do not take each other's copies, so that what their UEs want waits, one is in the way: the one of most such
    /// pairs, else the youngest. Its UEs are where their copies are.
    fn resolve_host_partition(&mut self) {
        loop {
            let Some(map) = &self.map else { return };
            let here = |host: &HostId| map.has_host(*host) && self.hosts.contains_key(host);
            let mut pairs: BTreeMap<HostId, usize> = BTreeMap::new();
            for (host, entry) in self.hosts.iter().filter(|(host, _)| here(host)) {
                for other in entry.unreached.iter().filter(|other| here(other) && *other != host) {
                    *pairs.entry(*host).or_default() += 1;
                    *pairs.entry(*other).or_default() += 1;
                }
            }
            let Some((host, _)) = pairs.into_iter().max_by_key(|(host, count)| (*count, *host)) else { return };
            self.evict(Member::Host(host));
        }
    }

    fn evict(&mut self, member: Member) {
        self.remove(member);
        self.dismissed.push((member, Refusal::Silent));
    }

    /// Lets as many hosts work as are wanted, and looks whether that is to be another number.
    fn scale(&mut self, now: Instant) {
        let Some(scaler) = self.scaler.as_mut() else { return };
        let works = |(id, host): (&HostId, &Host)| {
            (host.stage == MemberStage::Serving && !self.draining.contains(id)).then_some(*id)
        };
        let working: Vec<HostId> = self.hosts.iter().filter_map(works).collect();
        if self.next.is_some() || !self.settled || self.map.is_none() {
            scaler.reset_hysteresis();
        } else {
            let step = scaler.decide(&working, now);
            match step {
                Some(ScalingDecision::ScaleOut) => self.wanted = working.len() + 1,
                Some(ScalingDecision::ScaleIn(host)) => {
                    self.wanted = working.len() - 1;
                    self.draining.insert(host);
                }
                None => {}
            }
            self.scaled = step.or(self.scaled);
        }
        let missing = self.wanted.saturating_sub(working.len());
        let idle = self.hosts.values_mut().filter(|host| host.stage == MemberStage::Idle && host.seen.here);
        idle.take(missing).for_each(|host| host.stage = MemberStage::Serving);
    }

    /// Makes the next map if it is to be another.
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
        let leaving: Vec<HostId> = self.draining.iter().copied().filter(|host| self.hosts.contains_key(host)).collect();
        let same = |map: &ClusterMap| map.hosts == hosts && map.balancers == balancers && map.leaving == leaving;
        let same = self.map.as_ref().is_some_and(same);
        // Without hosts or balancers the map stays: whoever is in it and comes back goes on.
        if few || hosts.is_empty() || balancers.is_empty() {
            return;
        }
        let weight = |host: &HostId| if leaving.contains(host) { 0.0 } else { 1.0 };
        let weighted: Vec<WeightedHost> =
            hosts.iter().map(|(host, _)| WeightedHost { host: *host, weight: weight(host) }).collect();
        let part = |replicas: &usize| SliceBuckets { weight: 1.0, replicas: *replicas, hosts: weighted.clone() };
        let parts: Vec<SliceBuckets> = self.settings.replicas.iter().map(part).collect();
        let buckets = match &self.map {
            None => Some(BucketMap::first(&parts)),
            Some(map) if !same => Some(map.buckets.next(&parts)),
            Some(_) if self.settled || !self.catch_up.is_complete() => return,
            Some(_) if !self.settings.moves => None,
            // A step further towards where buckets are to be: all have the copies that the last one wants.
            Some(map) => {
                let switch = || map.buckets.switch(&parts, self.settings.at_once);
                map.buckets.prepare(&parts).or_else(switch)
            }
        };
        match buckets {
            Some(buckets) => {
                let ids: Vec<HostId> = hosts.iter().map(|(host, _)| *host).collect();
                let buckets = self.succession.next(buckets);
                let lost = self.map.as_ref().map_or_else(Vec::new, |map| lost(map, &ids, &self.settings, self.settled));
                self.next = Some(ClusterMap { hosts, buckets, balancers, joined: self.joined, lost, leaving });
            }
            None => self.on_migration_complete(leaving.len() == hosts.len() || !self.settings.moves),
        }
    }

    /// All buckets are where they are to be: who is to leave and has nothing may end, or all may if nobody else can have theirs.
    fn on_migration_complete(&mut self, all: bool) {
        self.settled = true;
        let Some(map) = &self.map else { return };
        let done: Vec<HostId> = self.draining.iter().copied().filter(|host| all || !map.buckets.has(*host)).collect();
        for host in done {
            self.remove(Member::Host(host));
            self.left.push(host);
        }
    }

    /// What is to be written before it holds, if something is.
    pub fn to_write(&self) -> Option<DurableState> {
        let map = Some(self.next.clone()?);
        Some(DurableState { secrets: self.secrets, map })
    }

    /// The record of an epoch is written: its map holds. Whether it is the one that is waited for.
    pub fn written(&mut self, epoch: u64) -> bool {
        let written = self.next.take_if(|next| next.epoch() == epoch);
        if let Some(map) = written {
            self.order.retain(|balancer| !map.has_balancer(*balancer));
            self.hold(map);
            return true;
        }
        false
    }

    /// Who is to be sent away, and why.
    pub fn take_evicted(&mut self) -> Vec<(Member, Refusal)> {
        std::mem::take(&mut self.dismissed)
    }

    /// What has been decided on the number of hosts since it was last asked: it is not asked for less often than looked.
    pub fn take_scaled(&mut self) -> Option<ScalingDecision> {
        self.scaled.take()
    }
}
