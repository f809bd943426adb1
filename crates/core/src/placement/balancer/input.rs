//! Inputs of the balancer.

use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{PeerEvent, ToBalancer};
use vireo_types::AssocId;

/// Event that the balancer machine handles.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A peer has connected.
    Connected(ConnectionId),
    /// Data of a peer has arrived that is not a whole message yet.
    DataReceived(ConnectionId),
    /// Message of a peer.
    Message { connection: ConnectionId, message: ToBalancer<'a> },
    /// A connection has ended.
    Disconnected(ConnectionId),
    /// Map of the controller.
    Map(Box<ClusterMap>),
    /// Hosts that receive no new UEs.
    Cordoned(Vec<HostId>),
    /// Event of the RAN or a UPF for the hosts.
    Event(PeerEvent),
    /// Connections may have room again, or inputs at serving hosts may be late: waiting inputs are
    /// delivered, and late ones recalled.
    Poll,
    /// A heartbeat interval has passed, and everything that arrived in it was handled.
    Tick {
        /// True if the controller and its machine have been silent for the failure timeout.
        controller_silent: bool,
    },
    /// All messages of a host before this barrier are executed.
    BarrierReached { host: HostId, number: u64 },
    /// All NGAP PDUs that the machine has passed on so far were sent.
    NgapSent,
    /// An NGAP PDU that does not concern a UE is about to be sent to a RAN node.
    NodeMessage { assoc: AssocId, pdu: &'a [u8] },
    /// An association is about to be aborted.
    Abort(AssocId),
    /// Another balancer takes over N4.
    N4Deactivated,
}
