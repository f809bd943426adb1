//! Controller of the campaign: [`ControllerMachine`] with simulated I/O.
//!
//! The controller writes its results to a store, which does not fail, before they take effect.

use super::message::Message;
use super::network::{ConnectionEnd, MS, Network, Process, TimerEvent};
use rand::Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use vireo_core::placement::ConnectionId;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::machine::{self, Notice, Output};
use vireo_core::placement::cluster::{
    self, ClusterMap, ControllerMachine, ControllerSettings, DurableState, Member, Rebalance, Secrets,
};
use vireo_core::placement::message::{ToController, ToMember};
use vireo_core::placement::replica::ReplicationConfig;
use vireo_types::Duration;

/// Heartbeat interval, and the silence of a member that means death: 4 heartbeats.
pub(super) const BEAT: u64 = 50 * MS;
const MISSES: u32 = 4;
pub(super) const SILENCE: u64 = MISSES as u64 * BEAT;
const TICK: u64 = 10 * MS;
/// Maximum number of buckets that migrate from living hosts at once. It is low, so that a rebalance
/// needs several rounds.
const AT_ONCE: usize = 1024;
/// Time for which the loads of hosts must differ before their weights change. It is short, so that
/// such migrations coincide with faults.
const PAUSE: Duration = Duration::from_millis(400);
/// Number of pool partitions.
const PARTITIONS: u16 = 32;
/// Time for which a controller without state waits for members of the cluster.
const LISTENS: Duration = Duration::from_millis(600);
/// Recovery Time Stamp of N4; it does not change.
const RECOVERY: u32 = 1;

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
    machine: ControllerMachine,
    settings: ControllerSettings,
    /// Last stored state, from any controller instance.
    store: Option<DurableState>,
    ends: BTreeMap<ConnectionId, ConnectionEnd>,
    /// Number of hosts that were declared dead.
    pub(super) evicted_hosts: u64,
    /// Number of changes of the hosts' weights.
    pub(super) rebalances: u64,
    /// Balancers that were declared dead, until the simulation reads them.
    pub(super) gone_balancers: Vec<BalancerId>,
}

/// Output side of the machine.
struct ControllerOutput<'a> {
    network: &'a mut Network,
    process: Process,
    ends: &'a mut BTreeMap<ConnectionId, ConnectionEnd>,
    store: &'a mut Option<DurableState>,
    evicted_hosts: &'a mut u64,
    rebalances: &'a mut u64,
    gone_balancers: &'a mut Vec<BalancerId>,
}

impl Output for ControllerOutput<'_> {
    fn send(&mut self, connection: ConnectionId, message: &ToMember) {
        if let Some(end) = self.ends.get(&connection) {
            self.network.send(*end, for_member(message));
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        if let Some(end) = self.ends.remove(&connection) {
            self.network.close(end);
        }
    }

    fn store(&mut self, state: DurableState) {
        let epoch = state.map.as_ref().map_or(0, ClusterMap::epoch);
        // The store has it regardless of whether and when this controller receives the
        // confirmation.
        *self.store = Some(state);
        let after = self.network.random.random_range(MS..15 * MS);
        self.network.due(self.process, after, TimerEvent::Written(epoch));
    }

    fn notify(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::Evicted { member, .. } => {
                *self.evicted_hosts += u64::from(matches!(member, Member::Host(_)));
                self.network.trace(format!("{member:?} is declared dead"));
                match member {
                    Member::Host(host) => self.network.oracle.on_host_gone(host),
                    Member::Balancer(balancer) => self.gone_balancers.push(balancer),
                }
            }
            Notice::Rebalanced(Rebalance { mean, spread, weights }) => {
                *self.rebalances += 1;
                let weights: Vec<String> =
                    weights.iter().map(|(host, weight)| format!("{}: {weight:.2}", host.0)).collect();
                let weights = weights.join(", ");
                self.network.trace(format!("loads of {mean:.2} differ by {spread:.2}: weights become {weights}"));
            }
            Notice::MapSent { map, .. } => {
                let hosts: Vec<u16> = map.hosts.iter().map(|(host, _)| host.0).collect();
                self.network.trace(format!("epoch {}: hosts {hosts:?}", map.epoch()));
            }
            _ => {}
        }
    }
}

impl Controller {
    pub(super) fn new(network: &mut Network, hosts: usize, replication: ReplicationConfig, rebalances: bool) -> Self {
        let process = network.spawn();
        let settings = ControllerSettings {
            hosts,
            max_hosts: PARTITIONS,
            lossless: replication.is_lossless([replication.replicas]),
            replicas: replication.replicas_by_slice([replication.replicas]),
            migrates: true,
            max_migrating_buckets: AT_ONCE,
            scaling: None,
            rebalance_pause: rebalances.then_some(PAUSE),
            silence: Duration(SILENCE),
            reconnect_timeout: Duration(4 * SILENCE),
            discovery_time: Duration(0),
            is_embedded: false,
        };
        let machine = new_machine(network, process, settings.clone(), None);
        network.due(process, TICK, TimerEvent::Tick);
        Controller {
            process,
            machine,
            settings,
            store: None,
            ends: BTreeMap::new(),
            evicted_hosts: 0,
            rebalances: 0,
            gone_balancers: Vec::new(),
        }
    }

    /// Replaces a dead controller by a new one, which loads the state from the store. Without the
    /// store it learns the cluster from members.
    pub(super) fn restart(&mut self, network: &mut Network, has_store: bool) {
        let mut settings = self.settings.clone();
        if !has_store {
            (self.store, settings.discovery_time) = (None, LISTENS);
        }
        self.machine = new_machine(network, self.process, settings, self.store.clone());
        self.ends.clear();
        network.due(self.process, TICK, TimerEvent::Tick);
    }

    fn map(&self) -> Option<&ClusterMap> {
        self.machine.controller().map()
    }

    /// Returns the epoch of the current map.
    pub(super) fn epoch(&self) -> u64 {
        self.map().map_or(0, ClusterMap::epoch)
    }

    /// Returns the hosts of the map.
    pub(super) fn hosts(&self) -> Vec<(HostId, Process)> {
        let hosts = self.map().into_iter().flat_map(|map| &map.hosts);
        hosts.map(|(host, address)| (*host, process(*address))).collect()
    }

    /// Returns the processes of the balancers of the map.
    pub(super) fn balancers(&self) -> Vec<Process> {
        let balancers = self.map().into_iter().flat_map(|map| &map.balancers);
        balancers.map(|(_, address)| process(*address)).collect()
    }

    /// Returns true if all buckets are at their planned hosts and have their copies.
    pub(super) fn is_settled(&self) -> bool {
        self.machine.controller().is_settled()
    }

    /// Returns true if hosts drain.
    pub(super) fn is_draining(&self) -> bool {
        self.map().is_some_and(|map| !map.leaving.is_empty())
    }

    /// Starts the drain of a host.
    pub(super) fn drain(&mut self, network: &mut Network, host: HostId) {
        self.on(network, machine::Input::Drain(host));
    }

    fn on(&mut self, network: &mut Network, input: machine::Input) {
        let now = network.time(self.process);
        let (process, ends, store) = (self.process, &mut self.ends, &mut self.store);
        let (evicted_hosts, rebalances) = (&mut self.evicted_hosts, &mut self.rebalances);
        let gone_balancers = &mut self.gone_balancers;
        let mut network = ControllerOutput { network, process, ends, store, evicted_hosts, rebalances, gone_balancers };
        self.machine.on(input, now, &mut network);
    }

    pub(super) fn on_message(&mut self, network: &mut Network, at: ConnectionEnd, message: Message) {
        let connection = ConnectionId(at.connection as u64);
        if self.ends.insert(connection, at).is_none() {
            self.on(network, machine::Input::Connected(connection));
        }
        self.on(network, machine::Input::DataReceived(connection));
        let is_join = matches!(message, Message::JoinHost(_) | Message::JoinBalancer(_));
        // Real members send nothing else before the join is answered.
        let message = from_member(message, address(network.peer(at)));
        if let Some(message) = message.filter(|_| is_join || self.machine.member_of(connection).is_some()) {
            self.on(network, machine::Input::Message { connection, message });
        }
        self.on(network, machine::Input::Advance);
    }

    pub(super) fn on_disconnect(&mut self, network: &mut Network, at: ConnectionEnd) {
        let connection = ConnectionId(at.connection as u64);
        if self.ends.remove(&connection).is_some() {
            self.on(network, machine::Input::Disconnected(connection));
        }
        self.on(network, machine::Input::Advance);
    }

    pub(super) fn on_timer(&mut self, network: &mut Network, due: &TimerEvent) {
        match due {
            TimerEvent::Tick => {
                self.on(network, machine::Input::Advance);
                network.due(self.process, TICK, TimerEvent::Tick);
            }
            TimerEvent::Written(epoch) => self.on(network, machine::Input::Stored(*epoch)),
            _ => {}
        }
    }
}

/// Creates the machine of a controller that starts, with the state of the store if there is any.
fn new_machine(
    network: &mut Network,
    process: Process,
    settings: ControllerSettings,
    state: Option<DurableState>,
) -> ControllerMachine {
    let now = network.time(process);
    let connections = machine::Settings {
        heartbeat: Duration(BEAT),
        misses: MISSES,
        report: Duration(BEAT),
        partitions: PARTITIONS,
        reconnect_timeout: settings.reconnect_timeout,
        objectives: Vec::new(),
        stores: true,
    };
    let controller = match state {
        Some(state) => cluster::Controller::restore(settings, state, now),
        None => {
            let secrets = Secrets { tmsi_key: network.random.random(), recovery: RECOVERY };
            cluster::Controller::new(settings, secrets, now)
        }
    };
    ControllerMachine::new(controller, connections, now)
}

fn for_member(message: &ToMember) -> Message {
    match message {
        ToMember::Welcome(welcome) => {
            let secrets = Secrets { tmsi_key: welcome.tmsi_key, recovery: welcome.recovery };
            Message::Welcome(welcome.host, secrets)
        }
        ToMember::Assignment(assignment) => {
            let secrets = Secrets { tmsi_key: assignment.tmsi_key, recovery: assignment.recovery };
            Message::Assignment(assignment.balancer, secrets)
        }
        ToMember::Refused(_) => Message::Refused,
        // The campaign cordons no host.
        ToMember::Heartbeat | ToMember::Cordoned(_) => Message::Beat,
        ToMember::Map(map) => Message::Map(Rc::new((**map).clone())),
        ToMember::LeaveGranted => Message::LeaveGranted,
    }
}

/// Converts a message of a member at an address; `None` if it is not for a controller.
fn from_member(message: Message, address: SocketAddr) -> Option<ToController> {
    Some(match message {
        Message::JoinHost(past) => ToController::JoinHost { copies: address, past },
        Message::JoinBalancer(past) => ToController::JoinBalancer { address, past },
        Message::Machine(machine) => ToController::Machine(machine),
        Message::Ready => ToController::Ready,
        Message::Beat => ToController::Heartbeat,
        Message::CaughtUp { epoch, host } => ToController::CaughtUp { epoch, host },
        Message::SilentHosts(hosts) => ToController::SilentHosts(hosts),
        Message::UnreachablePeers(hosts) => ToController::UnreachablePeers(hosts),
        Message::Report(cpu) => ToController::Report { cpu, rate: 0.0, pools: Vec::new() },
        _ => return None,
    })
}
