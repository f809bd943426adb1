//! Inputs and outputs of the controller machine.

use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::cluster::{ClusterMap, DurableState, MachineLabel, Member, Rebalance, Refusal, ScalingDecision};
use crate::placement::message::{ToController, ToMember};

/// Event that the controller machine handles.
#[derive(Clone, Debug)]
pub enum Input {
    /// A peer has connected.
    Connected(ConnectionId),
    /// Data of a peer has arrived.
    DataReceived(ConnectionId),
    /// Message of a peer whose role permits it.
    Message { connection: ConnectionId, message: ToController },
    /// A connection has ended.
    Disconnected(ConnectionId),
    /// The operator drains a host.
    Drain(HostId),
    /// The operator cordons a host, or ends its cordon.
    Cordon { host: HostId, is_cordoned: bool },
    /// The process of a host has ended, as its parent knows.
    HostEnded(HostId),
    /// The state of an epoch is stored ([`Output::store`]).
    Stored(u64),
    /// All events until now are handled: joins that wait, failures, the next map and heartbeats.
    Advance,
    /// The cluster ends with this controller.
    Stop,
}

/// Receiver of what the controller machine decides.
pub trait Output {
    /// Sends a message on a connection.
    fn send(&mut self, connection: ConnectionId, message: &ToMember);

    /// Closes a connection, which the machine has already removed, once everything is sent.
    fn close(&mut self, connection: ConnectionId);

    /// Stores a state, whose map takes effect with [`Input::Stored`]. One state is stored at a
    /// time.
    fn store(&mut self, state: DurableState);

    /// Handles a change of the machine's state, for logs and status.
    fn notify(&mut self, notice: Notice<'_>);
}

/// Change of the machine's state.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A member has joined, for the first time or again.
    Joined { connection: ConnectionId, member: Member, rejoined: bool },
    /// A peer may not join.
    JoinRefused { connection: ConnectionId, reason: Refusal },
    /// A host is on this machine.
    MachineSet { host: HostId, machine: &'a MachineLabel },
    /// A member is ready.
    Ready(Member),
    /// A member was declared dead.
    Evicted { member: Member, reason: Refusal },
    /// A peer has sent a message that its state does not allow.
    Violation { member: Option<Member>, message: &'a ToController },
    /// A host starts to drain.
    Draining(HostId),
    /// A host is cordoned, or not any more.
    Cordoned { host: HostId, is_cordoned: bool },
    /// A host has drained and may end.
    Departed(HostId),
    /// The number of serving hosts changes.
    Scaled(ScalingDecision),
    /// The weights of hosts change with the next map.
    Rebalanced(&'a Rebalance),
    /// A map has taken effect and is sent to all members. A draining host has weight 0.
    MapSent {
        map: &'a ClusterMap,
        idle: usize,
        weights: &'a [(HostId, f64)],
        /// Machines of the hosts that have a label.
        machines: &'a [(HostId, MachineLabel)],
    },
}
