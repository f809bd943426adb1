//! Connections of the controller as a pure state machine around its decisions.
//!
//! The machine knows which member is on which connection, answers joins when the controller can
//! decide, sends heartbeats and maps, and has each map stored before it takes effect.
//! [`Controller`] decides on membership and maps.
//!
//! The machine does not open connections, encode messages, check roles, store anything or read a
//! clock. The caller is `crates/controller` in a running cluster and the fault campaign in the
//! simulator.

mod connection;
mod io;
mod join;
#[cfg(test)]
mod tests;

pub use io::{Input, Notice, Output};

use super::{ClusterMap, Controller, HostUtilisation, Member};
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::message::{PoolLoad, ToController, ToMember};
use connection::{Connection, ConnectionState};
use std::collections::{BTreeMap, BTreeSet};
use vireo_types::{Duration, Instant};

/// Maximum time for which a connection may remain without a member.
const UNIDENTIFIED_TIMEOUT: Duration = Duration::from_secs(5);
/// Reason sent to hosts whose cluster ends.
const CLUSTER_ENDS: &str = "the cluster's only balancer stops";

/// Settings of the controller's connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub heartbeat: Duration,
    /// Number of missed heartbeats after which a peer is silent.
    pub misses: u32,
    /// Interval of load reports.
    pub report: Duration,
    /// Number of pool partitions.
    pub partitions: u16,
    /// Time after a join for which a member needs no heartbeat connection.
    pub reconnect_timeout: Duration,
    /// Latency objective of each pool in microseconds.
    pub objectives: Vec<f32>,
    /// True if maps are stored before they take effect.
    pub stores: bool,
}

/// State of the controller with its connections.
#[derive(Debug)]
pub struct ControllerMachine {
    settings: Settings,
    controller: Controller,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Connection of each connected member.
    members: BTreeMap<Member, ConnectionId>,
    /// Epoch that is being stored.
    storing: Option<u64>,
    /// Epoch of the last map that was sent.
    sent_epoch: u64,
    /// Time of the last heartbeats.
    beaten_at: Instant,
}

impl ControllerMachine {
    /// Creates the machine of a controller without connections.
    pub fn new(controller: Controller, settings: Settings, now: Instant) -> Self {
        ControllerMachine {
            settings,
            controller,
            connections: BTreeMap::new(),
            members: BTreeMap::new(),
            storing: None,
            sent_epoch: 0,
            beaten_at: now,
        }
    }

    /// Handles one input. After the last one of several, the caller passes [`Input::Advance`].
    pub fn on(&mut self, input: Input, now: Instant, output: &mut dyn Output) {
        // Before the event: the controller thereby notices whether it was suspended itself.
        self.controller.begin_tick(now);
        match input {
            Input::Connected(connection) => drop(self.connections.insert(connection, Connection::new(now))),
            Input::DataReceived(connection) => self.on_data(connection, now),
            Input::Message { connection, message } => self.on_message(connection, message, now, output),
            Input::Disconnected(connection) => self.on_disconnect(connection),
            Input::Drain(host) => self.drain(host, output),
            Input::Cordon { host, is_cordoned } => {
                if self.controller.cordon(host, is_cordoned) {
                    output.notify(Notice::Cordoned { host, is_cordoned });
                }
            }
            Input::HostEnded(host) => self.controller.on_host_ended(host),
            Input::Stored(epoch) => {
                self.storing = None;
                self.controller.on_stored(epoch);
                self.send_map(output);
            }
            Input::Advance => self.advance(now, output),
            Input::Stop => {
                let hosts = self.members.iter().filter(|(member, _)| matches!(member, Member::Host(_)));
                hosts.for_each(|(_, to)| output.send(*to, &ToMember::Refused(CLUSTER_ENDS.into())));
            }
        }
    }

    /// Returns the controller's decisions.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Returns the member that has joined on a connection.
    pub fn member_of(&self, connection: ConnectionId) -> Option<Member> {
        self.connections.get(&connection)?.member()
    }

    /// Returns the number of connected members.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Returns the time of the next heartbeats.
    pub fn due(&self) -> Instant {
        self.beaten_at + self.settings.heartbeat
    }

    /// Counts received data as a sign of life of its member.
    fn on_data(&mut self, connection: ConnectionId, now: Instant) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        // Heartbeats count only for connected members.
        let heartbeat = known.heartbeat_member().filter(|member| self.members.contains_key(member));
        if heartbeat.is_some() {
            known.since = now;
        }
        if let Some(member) = known.member().or(heartbeat) {
            self.controller.on_message(member, now);
        }
    }

    fn on_message(&mut self, connection: ConnectionId, message: ToController, now: Instant, output: &mut dyn Output) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        match (message, &mut known.state) {
            (_, ConnectionState::Departed) => {}
            (
                request @ (ToController::JoinHost { .. } | ToController::JoinBalancer { .. }),
                ConnectionState::Unidentified { join },
            ) => {
                *join = Some(request);
                self.join(connection, now, output);
            }
            (ToController::HeartbeatOnly(member), state @ ConnectionState::Unidentified { join: None }) => {
                *state = ConnectionState::HeartbeatOnly(member);
            }
            (ToController::Heartbeat, ConnectionState::Member(_) | ConnectionState::HeartbeatOnly(_)) => {}
            (message, ConnectionState::Member(member)) => {
                let member = *member;
                if message == ToController::Ready {
                    known.since = now;
                }
                if !self.on_report(member, &message, now, output) {
                    self.on_violation(connection, &message, output);
                }
            }
            (message, _) => self.on_violation(connection, &message, output),
        }
    }

    /// Handles a report of a member. Returns false if the member may not send it.
    fn on_report(&mut self, member: Member, message: &ToController, now: Instant, output: &mut dyn Output) -> bool {
        match (message, member) {
            (ToController::Ready, member) => {
                if self.controller.is_ready(member) == Some(false) {
                    output.notify(Notice::Ready(member));
                }
                self.controller.on_ready(member, now);
            }
            (ToController::SilentHosts(hosts), Member::Balancer(balancer)) => {
                self.controller.report_silent_hosts(balancer, hosts.iter().copied());
            }
            (ToController::CaughtUp { epoch, host }, Member::Host(owner)) => {
                self.controller.on_caught_up(owner, *epoch, *host);
            }
            (ToController::UnreachablePeers(hosts), Member::Host(host)) => {
                self.controller.report_unreachable_peers(host, hosts.iter().copied(), now);
            }
            (ToController::PoolPartitions { epoch, parts }, Member::Host(host)) => {
                self.controller.report_used_partitions(host, *epoch, parts.iter().copied());
            }
            (ToController::Leave, Member::Host(host)) => self.drain(host, output),
            (ToController::Report { cpu, rate, pools }, Member::Host(host)) => {
                let late = is_late(pools, &self.settings.objectives);
                self.controller.on_load_report(host, HostUtilisation { cpu: *cpu, late, rate: *rate }, now);
            }
            (ToController::Machine(machine), Member::Host(host)) => {
                if self.controller.set_machine(host, machine.clone()) {
                    output.notify(Notice::MachineSet { host, machine });
                }
            }
            (ToController::Violations(_), Member::Balancer(_)) => self.controller.on_violations(now),
            (ToController::Cordoned(hosts), Member::Balancer(_)) => self.controller.report_cordoned(hosts, now),
            _ => return false,
        }
        true
    }

    fn on_violation(&mut self, connection: ConnectionId, message: &ToController, output: &mut dyn Output) {
        let member = self.connections.get(&connection).and_then(Connection::member);
        output.notify(Notice::Violation { member, message });
        output.close(connection);
        self.on_disconnect(connection);
    }

    /// Handles the end of a connection.
    fn on_disconnect(&mut self, connection: ConnectionId) {
        let Some(member) = self.connections.remove(&connection).and_then(|known| known.member()) else { return };
        // The member may already have another connection.
        if self.members.get(&member) == Some(&connection) {
            self.members.remove(&member);
            self.controller.on_disconnect(member);
        }
    }

    /// Closes a connection that is no member's.
    fn close(&mut self, connection: ConnectionId, output: &mut dyn Output) {
        if self.connections.remove(&connection).is_some() {
            output.close(connection);
        }
    }

    fn drain(&mut self, host: HostId, output: &mut dyn Output) {
        if self.controller.drain(host) {
            output.notify(Notice::Draining(host));
        }
    }

    fn advance(&mut self, now: Instant, output: &mut dyn Output) {
        self.join_pending(now, output);
        self.controller.check_liveness(now);
        if let Some(decision) = self.controller.take_scaling_decision() {
            output.notify(Notice::Scaled(decision));
        }
        if let Some(rebalance) = self.controller.take_rebalanced() {
            output.notify(Notice::Rebalanced(&rebalance));
        }
        self.evict(output);
        self.release_drained_hosts(now, output);
        self.store(output);
        self.send_map(output);
        if now >= self.due() {
            self.beaten_at = now;
            self.beat(now, output);
        }
    }

    /// Evicts members that were declared dead.
    fn evict(&mut self, output: &mut dyn Output) {
        for (member, reason) in self.controller.take_evicted() {
            output.notify(Notice::Evicted { member, reason });
            if let Some(connection) = self.members.remove(&member) {
                output.send(connection, &ToMember::Refused(reason.to_string()));
                self.close(connection, output);
            }
        }
    }

    /// Lets drained hosts end.
    fn release_drained_hosts(&mut self, now: Instant, output: &mut dyn Output) {
        for host in self.controller.take_departed() {
            output.notify(Notice::Departed(host));
            let Some(connection) = self.members.remove(&Member::Host(host)) else { continue };
            if let Some(known) = self.connections.get_mut(&connection) {
                output.send(connection, &ToMember::LeaveGranted);
                // The host closes this connection itself.
                *known = Connection { state: ConnectionState::Departed, since: now };
            }
        }
    }

    /// Has the next map stored, if there is one and none is being stored.
    fn store(&mut self, output: &mut dyn Output) {
        if self.storing.is_some() {
            return;
        }
        let Some(state) = self.controller.pending_state() else { return };
        let epoch = state.map.as_ref().map_or(0, ClusterMap::epoch);
        if self.settings.stores {
            self.storing = Some(epoch);
            output.store(state);
        } else {
            self.controller.on_stored(epoch);
        }
    }

    /// Sends the current map if it was not sent. It may be one that a member has brought.
    fn send_map(&mut self, output: &mut dyn Output) {
        let Some(map) = self.controller.map().filter(|map| map.epoch() != self.sent_epoch) else { return };
        self.sent_epoch = map.epoch();
        let (idle, weights, machines) = (self.controller.idle(), self.controller.weights(), self.controller.machines());
        output.notify(Notice::MapSent { map, idle, weights: &weights, machines: &machines });
        let message = ToMember::Map(Box::new(map.clone()));
        self.members.values().for_each(|connection| output.send(*connection, &message));
    }

    /// Sends heartbeats and closes overdue connections.
    fn beat(&mut self, now: Instant, output: &mut dyn Output) {
        // A member that just became ready is presumed alive until its heartbeat is due.
        let beating: BTreeSet<Member> = self.connections.values().filter_map(Connection::heartbeat_member).collect();
        let is_new = |known: &&Connection| now.since(known.since) < self.settings.reconnect_timeout;
        for member in self.connections.values().filter(is_new).filter_map(Connection::member) {
            if !beating.contains(&member) {
                self.controller.presume_alive(member, now);
            }
        }
        // Repeated, so that a balancer that was restarted has it, too.
        let cordoned = self.controller.cordoned_for_balancers().map(ToMember::Cordoned);
        let mut overdue = Vec::new();
        for (connection, known) in &self.connections {
            let heartbeat = known.heartbeat_member().filter(|member| self.members.contains_key(member));
            match known.member().or(heartbeat) {
                Some(_) => {
                    let is_balancer = matches!(known.member(), Some(Member::Balancer(_)));
                    let message = cordoned.as_ref().filter(|_| is_balancer);
                    output.send(*connection, message.unwrap_or(&ToMember::Heartbeat));
                }
                None if now.since(known.since) > UNIDENTIFIED_TIMEOUT => overdue.push(*connection),
                None => {}
            }
        }
        overdue.into_iter().for_each(|connection| self.close(connection, output));
    }
}

/// Returns true if a procedure that starts at this time would be late at a host: `(Q / C + 1) T_t`
/// of a pool exceeds its objective (MMLite, Algorithm 1).
fn is_late(pools: &[PoolLoad], objectives: &[f32]) -> bool {
    // A pool without NFs has no work.
    let works = |load: &PoolLoad| load.share > 0.0;
    let late = |(load, objective): (&PoolLoad, &f32)| works(load) && (load.backlog + 1.0) * load.time_us > *objective;
    pools.iter().zip(objectives).any(late)
}
