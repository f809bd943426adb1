//! Balancer of a cluster as a pure state machine.
//!
//! The balancer passes events of the RAN and of UPFs to hosts, and executes what hosts send to
//! these. It knows the cluster map, the connection of each host, and the inputs in flight to each
//! host.
//!
//! * **Routing.** Each input goes to the owner of its UE's bucket, or to all hosts. Inputs have
//!   numbers. An input that no host can receive waits, with all later ones.
//! * **Redelivery.** When a new map lacks a host, its unfinished inputs go to the new owners,
//!   before all later inputs.
//! * **Fencing.** Only balancers send to RAN nodes and UPFs. A host that the map lacks is fenced:
//!   the balancers drop its messages. A map that a host sends applies to the host's later messages,
//!   so the effects of a previous owner precede those of the next one.
//! * **Repeats.** An effect that a dead host has had sent is dropped when its new owner sends it.
//! * **Membership.** A host that connects receives the map, the RAN nodes, the UPFs and the recent
//!   claims. Silent and lost hosts are reported to the controller.
//!
//! [`BalancerMachine::on`] handles each input and passes results to an [`Output`]. The machine does
//! not open connections, encode messages, speak SCTP or PFCP, or read a clock. The caller is
//! `crates/balancer` in a running cluster and the fault campaign in the simulator.

mod choice_trace;
mod connection;
mod hosts;
mod input;
mod liveness;
mod messages;
mod output;
mod ran;
mod routing;
mod serving;
mod settings;
mod snapshot;
mod steering;
#[cfg(test)]
mod tests;

pub use choice_trace::{TracedCandidate, TracedChoice};
pub use input::Input;
pub use output::{CloseReason, Notice, Output};
pub use settings::{Serve, Settings};
pub use snapshot::Snapshot;

use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{Envelope, ToHost};
use crate::placement::replica::{Claims, EffectDedup};
use connection::{Connection, ConnectionState, InProgress};
use liveness::Liveness;
use ran::{PendingSetup, RanState};
use routing::InputQueue;
use serving::Serving;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use steering::Steering;
use vireo_types::{AssocId, Instant};

/// State of a balancer.
#[derive(Debug)]
pub struct BalancerMachine {
    settings: Settings,
    map: Option<ClusterMap>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Connection of each connected host of the map.
    serving: BTreeMap<HostId, ConnectionId>,
    /// Hosts of the map whose connection has ended. They are not accepted again.
    lost: BTreeMap<HostId, InProgress>,
    liveness: Liveness,
    steering: Steering,
    /// Hosts that receive no new UEs, though they do not drain.
    cordoned: Vec<HostId>,
    /// Hosts chosen for the procedures in progress.
    serving_hosts: Serving,
    ran: RanState,
    /// UPFs, each with the state of its PFCP association.
    upfs: BTreeMap<SocketAddr, bool>,
    queue: InputQueue,
    /// Effects that removed hosts have had sent.
    dedup: EffectDedup,
    /// Recent claims, of all hosts if this balancer distributes them, for hosts that join.
    claims: Claims,
}

impl BalancerMachine {
    /// Creates a balancer without hosts and without a map.
    pub fn new(settings: Settings, now: Instant) -> Self {
        BalancerMachine {
            map: None,
            connections: BTreeMap::new(),
            serving: BTreeMap::new(),
            lost: BTreeMap::new(),
            liveness: Liveness::default(),
            steering: Steering::new(&settings),
            cordoned: Vec::new(),
            serving_hosts: Serving::default(),
            ran: RanState::default(),
            upfs: settings.core.upfs.iter().map(|upf| (upf.n4, false)).collect(),
            // Larger than the numbers of an earlier process, which hosts may have seen.
            queue: InputQueue::new(now.as_micros()),
            dedup: EffectDedup::default(),
            claims: Claims::new(settings.core.timers.registration_time_limit()),
            settings,
        }
    }

    /// Handles one input.
    pub fn on(&mut self, input: Input<'_>, now: Instant, output: &mut dyn Output) {
        match input {
            Input::Connected(connection) => drop(self.connections.insert(connection, Connection::new(now))),
            Input::DataReceived(connection) => {
                self.connections.get_mut(&connection).into_iter().for_each(|known| known.has_received = true);
            }
            Input::Message { connection, message } => self.on_message(connection, message, now, output),
            Input::Disconnected(connection) => self.on_disconnect(connection, output),
            Input::Map(map) => self.adopt(*map, now, output),
            Input::Cordoned(hosts) => self.set_cordoned(hosts),
            Input::Event(event) => {
                self.queue.waiting.push_back(Envelope::new(event));
                // Earlier ones still wait.
                if self.queue.len() == 1 {
                    self.deliver(now, output);
                }
            }
            Input::Poll => {
                self.recall_late_inputs(now, output);
                self.deliver(now, output);
            }
            Input::Tick { controller_silent } => self.on_tick(controller_silent, now, output),
            Input::BarrierReached { host, number } => self.on_barrier(host, number, output),
            Input::NgapSent => self.acknowledge_ngap(output),
            Input::NodeMessage { assoc, pdu } => self.on_node_message(assoc, pdu, output),
            Input::Abort(assoc) => self.ran.remove(assoc),
            Input::N4Deactivated => {
                self.upfs.values_mut().for_each(|up| *up = false);
                output.notify(Notice::UpfsChanged(&self.upfs));
            }
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the current map.
    pub fn map(&self) -> Option<&ClusterMap> {
        self.map.as_ref()
    }

    /// Declares that the cluster never has another balancer. Hosts then need no acknowledgements
    /// for a resend by another one.
    pub fn set_only_balancer(&mut self) {
        self.settings.has_other_balancers = false;
    }

    /// Passes each choice of a serving host on with the values that decided it
    /// ([`Notice::ChoiceTraced`]).
    pub fn trace_choices(&mut self) {
        self.steering.traces = true;
    }

    /// Returns true if the map has no other balancer.
    pub fn is_alone(&self) -> bool {
        self.map.as_ref().is_none_or(|map| map.balancers.len() <= 1)
    }

    /// Returns true if this balancer is the active N4 balancer.
    pub fn holds_n4(&self) -> bool {
        self.map.as_ref().and_then(ClusterMap::holder) == Some(self.settings.balancer)
    }

    /// Returns true if no balancer has been active on N4 before in the cluster's lifetime.
    pub fn is_first_map(&self) -> bool {
        self.map.as_ref().is_none_or(ClusterMap::is_first)
    }

    /// Returns true if this balancer is isolated: hosts and controller have been silent for the
    /// failure timeout, and their machines do not refuse connections either. Other balancers then
    /// take over, and messages of RAN nodes to this balancer are lost. An only balancer is never
    /// isolated.
    pub fn is_isolated(&self) -> bool {
        self.liveness.is_isolated
    }

    /// Returns true if new inputs wait for a map, for a host or for room. The balancer should then
    /// read nothing from RAN nodes and UPFs.
    pub fn is_congested(&self) -> bool {
        !self.queue.waiting.is_empty()
    }

    /// Returns the connected hosts of the map.
    pub fn connected_hosts(&self) -> impl Iterator<Item = HostId> {
        self.serving.keys().copied()
    }

    /// Returns the host of the map that a connection belongs to.
    pub fn host_of(&self, connection: ConnectionId) -> Option<HostId> {
        let host = self.connections.get(&connection)?.host?;
        (self.serving.get(&host) == Some(&connection)).then_some(host)
    }

    /// Returns the number of hosts of present and past maps that may be connected.
    pub fn host_count(&self) -> usize {
        let removed = |known: &&Connection| known.state == ConnectionState::Refused && known.host.is_some();
        self.serving.len() + self.connections.values().filter(removed).count()
    }

    /// Returns the UPFs, each with the state of its PFCP association.
    pub fn upfs(&self) -> impl Iterator<Item = (SocketAddr, bool)> {
        self.upfs.iter().map(|(upf, up)| (*upf, *up))
    }

    /// Returns the peer of an association, and true if the association belongs to a RAN node.
    pub fn association(&self, assoc: AssocId) -> Option<(SocketAddr, bool)> {
        self.ran.node(assoc)
    }

    /// Returns the recent claims.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Returns the recent claims, of which the caller counts evictions.
    pub fn claims_mut(&mut self) -> &mut Claims {
        &mut self.claims
    }

    fn epoch(&self) -> u64 {
        self.map.as_ref().map_or(0, ClusterMap::epoch)
    }

    /// Sends a message to a host of the map, if it is connected.
    fn send_to(&self, host: HostId, message: &ToHost<'_>, output: &mut dyn Output) {
        if let Some(connection) = self.serving.get(&host) {
            output.send(*connection, message);
        }
    }

    /// Sends a message to all connected hosts of the map except one.
    fn send_to_others(&self, except: Option<HostId>, message: &ToHost<'_>, output: &mut dyn Output) {
        for (_, connection) in self.serving.iter().filter(|(host, _)| Some(**host) != except) {
            output.send(*connection, message);
        }
    }

    /// Distributes an accepted NG Setup to the other hosts.
    fn on_node_message(&mut self, assoc: AssocId, pdu: &[u8], output: &mut dyn Output) {
        if let Some(PendingSetup { host, mut envelope }) = self.ran.on_node_message(assoc, pdu) {
            envelope.answers = false;
            self.send_to_others(Some(host), &ToHost::Event(Cow::Owned(envelope)), output);
        }
    }
}
