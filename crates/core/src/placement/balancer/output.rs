//! Outputs of the balancer.

use super::choice_trace::TracedChoice;
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{RanOutput, ToController, ToHost};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Receiver of what the balancer machine decides. The machine calls it in the order in which the
/// outputs take effect.
pub trait Output {
    /// Returns true if a connection has room for an input. A peer that does not read has none.
    fn has_room(&self, connection: ConnectionId) -> bool;

    /// Sends a message on a connection.
    fn send(&mut self, connection: ConnectionId, message: &ToHost<'_>);

    /// Sends a message to the controller, if it is connected.
    fn send_controller(&mut self, message: &ToController);

    /// Closes a connection, which the machine has already removed.
    fn close(&mut self, connection: ConnectionId, reason: CloseReason);

    /// Executes an output of a host behind all earlier ones.
    fn execute(&mut self, host: HostId, output: RanOutput);

    /// Confirms a barrier of a host when all earlier outputs are executed
    /// ([`super::Input::BarrierReached`]).
    fn reach_barrier(&mut self, host: HostId, number: u64);

    /// Handles a change of the machine's state, for logs, metrics and the controller client.
    fn notify(&mut self, notice: Notice<'_>);
}

/// Reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The peer may not send this message in its state.
    #[error("the peer sent a message that only a host of the cluster map may send")]
    Message,
    /// The peer is in no known map and has an older one itself.
    #[error("the cluster map of the peer has the old epoch {0}")]
    OldMap(u64),
    /// The peer did not identify itself, was refused, or stays outside the map.
    #[error("the peer is no host of the cluster")]
    NoHost,
}

/// Change of the machine's state.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A host of the map is connected from now on.
    HostConnected(HostId),
    /// A map is adopted.
    MapAdopted {
        map: &'a ClusterMap,
        /// Number of hosts that the map has removed.
        removed: usize,
        /// Number of their inputs that are redelivered.
        unfinished: usize,
    },
    /// A newer map lacks this balancer.
    Fenced {
        /// Epoch of that map.
        epoch: u64,
    },
    /// UPFs, each with the state of its PFCP association, of which one has changed.
    UpfsChanged(&'a BTreeMap<SocketAddr, bool>),
    /// An effect was dropped because a dead host or the next owner has already had it sent.
    RepeatDropped,
    /// A host was chosen for a procedure of a known UE.
    ServingHostChosen {
        /// True for the owner of the UE, false for a replica.
        is_owner: bool,
        /// True if the procedure is expected to miss its objective at every host.
        violation: bool,
    },
    /// The choice of [`Notice::ServingHostChosen`] with the values that decided it.
    ChoiceTraced(&'a TracedChoice),
    /// This number of inputs was not done in time by a serving host, and goes to the owner.
    InputsRecalled(usize),
    /// Hosts and controller are silent: other balancers take over.
    Isolated,
}
