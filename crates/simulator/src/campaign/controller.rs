//! Controller of the campaign: `core::placement::cluster` with simulated I/O.
//!
//! The controller writes its results to a store, which does not fail, before they take effect.

use super::message::Message;
use super::network::{ConnectionEnd, Due, MS, Network, Process};
use rand::Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::{self, ControllerSettings, DurableState, Member, Refusal, Secrets};
use vireo_core::placement::replica::ReplicationConfig;
use vireo_types::Duration;

/// Heartbeat interval, and the silence of a member that means death: 4 heartbeats.
pub(super) const BEAT: u64 = 50 * MS;
pub(super) const SILENCE: u64 = 4 * BEAT;
const TICK: u64 = 10 * MS;
/// Maximum number of buckets that migrate from living hosts at once. It is low, so that a rebalance
/// needs several rounds.
const AT_ONCE: usize = 1024;

/// Returns the listening address of a process: the port is its number.
pub(super) fn address(process: Process) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, process.0 as u16))
}

/// Returns the process of an address.
pub(super) fn process(address: SocketAddr) -> Process {
    Process(address.port().into())
}

#[derive(Debug)]
pub(super) struct Controller {
    pub(super) process: Process,
    state: cluster::Controller,
    settings: ControllerSettings,
    /// Last stored state, from any controller instance.
    store: Option<DurableState>,
    members: BTreeMap<ConnectionEnd, Option<Member>>,
    joins: BTreeMap<ConnectionEnd, Message>,
    writes: bool,
    told: u64,
    beaten: u64,
    /// Number of hosts that were declared dead.
    pub(super) dismissed: u64,
}

impl Controller {
    pub(super) fn new(wires: &mut Network, hosts: usize, replication: ReplicationConfig) -> Self {
        let process = wires.spawn();
        let settings = ControllerSettings {
            hosts,
            most_hosts: 32,
            lossless: replication.is_lossless([replication.replicas]),
            replicas: replication.of_slices([replication.replicas]),
            moves: true,
            at_once: AT_ONCE,
            scaling: None,
            silence: Duration(SILENCE),
            reconnect_timeout: Duration(4 * SILENCE),
            listens: Duration(0),
            alone: false,
        };
        let secrets = Secrets { tmsi_key: wires.random.random(), recovery: 1 };
        let state = cluster::Controller::new(settings.clone(), secrets, wires.time(process));
        wires.due(process, TICK, Due::Tick);
        Controller {
            process,
            state,
            settings,
            store: None,
            members: BTreeMap::new(),
            joins: BTreeMap::new(),
            writes: false,
            told: 0,
            beaten: 0,
            dismissed: 0,
        }
    }

    /// Replaces a dead controller by a new one that loads the state from the store.
    pub(super) fn restart(&mut self, wires: &mut Network) {
        let now = wires.time(self.process);
        if let Some(record) = self.store.clone() {
            self.state = cluster::Controller::restore(self.settings.clone(), record, now);
        }
        (self.writes, self.told) = (false, 0);
        self.members.clear();
        self.joins.clear();
        wires.due(self.process, TICK, Due::Tick);
    }

    /// Returns the epoch of the current map.
    pub(super) fn epoch(&self) -> u64 {
        self.state.map().map_or(0, cluster::ClusterMap::epoch)
    }

    /// Returns the hosts of the map.
    pub(super) fn hosts(&self) -> Vec<(HostId, Process)> {
        let hosts = self.state.map().into_iter().flat_map(|map| &map.hosts);
        hosts.map(|(host, address)| (*host, process(*address))).collect()
    }

    /// Returns true if all buckets are at their planned hosts and have their copies.
    pub(super) fn is_settled(&self) -> bool {
        self.state.is_settled()
    }

    /// Returns true if hosts drain.
    pub(super) fn is_draining(&self) -> bool {
        self.state.map().is_some_and(|map| !map.leaving.is_empty())
    }

    /// Starts the drain of a host.
    pub(super) fn drain(&mut self, host: HostId) {
        self.state.drain(host);
    }

    pub(super) fn on_message(&mut self, wires: &mut Network, at: ConnectionEnd, message: Message) {
        let now = wires.time(self.process);
        self.state.begin_tick(now);
        let member = self.members.entry(at).or_default();
        if let Some(member) = *member {
            self.state.on_message(member, now);
        }
        match (message, *member) {
            (join @ (Message::JoinHost(_) | Message::JoinBalancer(_)), None) => {
                self.joins.insert(at, join);
                self.join(wires, at);
            }
            (Message::Ready, Some(member)) => self.state.ready(member, now),
            (Message::Unheard(hosts), Some(Member::Balancer(balancer))) => {
                self.state.report_silent_hosts(balancer, hosts)
            }
            (Message::Unreached(hosts), Some(Member::Host(host))) => self.state.report_unreachable_peers(host, hosts),
            (Message::CaughtUp { epoch, host }, Some(Member::Host(owner))) => self.state.caught_up(owner, epoch, host),
            _ => {}
        }
        self.advance(wires);
    }

    fn join(&mut self, wires: &mut Network, at: ConnectionEnd) {
        let (now, from) = (wires.time(self.process), address(wires.peer(at)));
        let joined = match self.joins.get(&at) {
            Some(Message::JoinHost(past)) => {
                self.state.join_host(from, past.as_deref().cloned(), now).map(Member::Host)
            }
            Some(Message::JoinBalancer(past)) => {
                self.state.join_balancer(from, past.as_deref().cloned(), now).map(Member::Balancer)
            }
            _ => return,
        };
        let member = match joined {
            Ok(member) => member,
            Err(Refusal::NotYet) => return,
            Err(_) => {
                self.joins.remove(&at);
                wires.send(at, Message::Refused);
                return wires.close(at);
            }
        };
        self.joins.remove(&at);
        let secrets = self.state.secrets();
        wires.send(
            at,
            match member {
                Member::Host(host) => Message::Welcome(host, secrets),
                Member::Balancer(balancer) => Message::Seat(balancer, secrets),
            },
        );
        if let Some(map) = self.state.map() {
            wires.send(at, Message::Map(Rc::new(map.clone())));
        }
        // An earlier connection of the same member has ended without notice.
        let earlier = self.members.iter().find(|(_, other)| **other == Some(member)).map(|(end, _)| *end);
        if let Some(earlier) = earlier.filter(|earlier| *earlier != at) {
            self.members.remove(&earlier);
            wires.close(earlier);
        }
        self.members.insert(at, Some(member));
    }

    pub(super) fn lost(&mut self, wires: &mut Network, at: ConnectionEnd) {
        self.state.begin_tick(wires.time(self.process));
        self.joins.remove(&at);
        if let Some(Some(member)) = self.members.remove(&at) {
            self.state.on_disconnect(member);
        }
        self.advance(wires);
    }

    pub(super) fn is_due(&mut self, wires: &mut Network, what: &Due) {
        match what {
            Due::Tick => {
                self.state.begin_tick(wires.time(self.process));
                let joins: Vec<ConnectionEnd> = self.joins.keys().copied().collect();
                joins.into_iter().for_each(|at| self.join(wires, at));
                self.advance(wires);
                if wires.clock.now() >= self.beaten + BEAT {
                    self.beaten = wires.clock.now();
                    self.members.keys().for_each(|at| wires.send(*at, Message::Beat));
                }
                wires.due(self.process, TICK, Due::Tick);
            }
            Due::Written(epoch) => {
                self.writes = false;
                self.state.written(*epoch);
                self.tell(wires);
            }
            _ => {}
        }
    }

    fn advance(&mut self, wires: &mut Network) {
        self.state.check_liveness(wires.time(self.process));
        for (member, _) in self.state.take_evicted() {
            self.dismissed += u64::from(matches!(member, Member::Host(_)));
            wires.trace(format!("{member:?} is taken for dead"));
            self.parts_from(wires, member, Message::Refused);
        }
        for host in self.state.take_departed() {
            self.parts_from(wires, Member::Host(host), Message::Left);
        }
        if let Some(record) = self.state.to_write().filter(|_| !self.writes) {
            self.writes = true;
            let epoch = record.map.as_ref().map_or(0, cluster::ClusterMap::epoch);
            // The store has it regardless of whether and when this controller receives the
            // confirmation.
            self.store = Some(record);
            let after = wires.random.random_range(MS..15 * MS);
            wires.due(self.process, after, Due::Written(epoch));
        }
        self.tell(wires);
    }

    fn parts_from(&mut self, wires: &mut Network, member: Member, word: Message) {
        let at = self.members.iter().find(|(_, other)| **other == Some(member)).map(|(end, _)| *end);
        if let Some(at) = at {
            self.members.remove(&at);
            wires.send(at, word);
            wires.close(at);
        }
    }

    fn tell(&mut self, wires: &mut Network) {
        let Some(map) = self.state.map().filter(|map| map.epoch() != self.told) else { return };
        self.told = map.epoch();
        let hosts: Vec<u16> = map.hosts.iter().map(|(host, _)| host.0).collect();
        wires.trace(format!("epoch {}: hosts {hosts:?}", map.epoch()));
        let map = Rc::new(map.clone());
        let members = self.members.iter().filter(|(_, member)| member.is_some());
        members.for_each(|(at, _)| wires.send(*at, Message::Map(Rc::clone(&map))));
    }
}
