//! Outputs of the table of RAN nodes.

use crate::amf::ran::ResetItem;
use crate::amf::ran::admission::Refusal;
use crate::placement::message::{AssociationOwner, RanOutput};
use std::net::SocketAddr;
use vireo_types::{AssocId, RanNodeId};

/// Action or event that the table decides. The caller executes them in order.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeOutput<U> {
    /// Output to a RAN node.
    Send(RanOutput),
    /// To the balancer of an additional association, for hosts that join later: its RAN node.
    Report(Box<AssociationOwner>),
    /// Connections by a RAN node are lost: their UEs become idle.
    Disconnect {
        node: AssocId,
        ues: Vec<U>,
        /// True if the RAN node, or another one, continues under this number: its next messages may
        /// concern the same UEs. Otherwise the caller may delay the events.
        at_once: bool,
    },
    /// The RAN node resets these connections: their UEs become idle, unless this input already
    /// resets them ([`begin_reset_of`](super::RanNodeTable::begin_reset_of)).
    Reset { node: AssocId, items: Vec<ResetItem>, input: u64 },
    /// This lifetime of a RAN node is over: first messages of UEs that it sent are void.
    Ended { node: AssocId },
    /// The association of a RAN node that was not bound before has completed NG Setup.
    Begun { assoc: AssocId },
    /// The set of RAN nodes or the configuration of one has changed.
    Changed,
    /// Event for log and metrics.
    Event(NodeEvent),
}

/// Event of a RAN node, for log and metrics. `peer` is the RAN node's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// A message of a RAN node is faulty or refused. A refused set-up has the text of what the RAN
    /// node offers.
    Fault { peer: SocketAddr, label: &'static str, offered: Option<String> },
    /// NG Setup has taken effect.
    SetUp { assoc: AssocId, peer: SocketAddr, name: String, id: RanNodeId },
    /// An NG Setup is refused.
    SetupRefused { assoc: AssocId, peer: SocketAddr, id: RanNodeId, reason: Refusal },
    /// An NG Setup waits until the RAN node with its identity answers a probe.
    SetupDeferred { assoc: AssocId, peer: SocketAddr, id: RanNodeId },
    /// An additional association is bound to its RAN node.
    Bound { assoc: AssocId, name: String },
    /// An additional association is refused.
    BindingRefused { assoc: AssocId, peer: SocketAddr, id: RanNodeId, reason: Refusal },
    /// An association is aborted: its RAN node, now at `peer`, has set up NG on another one.
    Replaced { assoc: AssocId, peer: SocketAddr },
    /// An association is aborted: its RAN node does not answer, and its identity is used elsewhere.
    Silent { assoc: AssocId, peer: SocketAddr },
    /// The RAN node has reset connections.
    Reset,
    /// The RAN node has acknowledged an AMF Configuration Update.
    Updated { assoc: AssocId, peer: SocketAddr, failed: usize },
    /// The RAN node has acknowledged an AMF Configuration Update that was not sent.
    UnsolicitedUpdate { peer: SocketAddr },
    /// An association without a RAN node is lost.
    LostUnbound { assoc: AssocId, restarted: bool },
    /// An association is lost; its RAN node has this number of others.
    LostOne { assoc: AssocId, restarted: bool, remaining: usize },
    /// The connection to the balancer of a RAN node's only association is lost.
    Unreachable { assoc: AssocId, name: String },
    /// The last association of a RAN node is lost.
    LostNode { assoc: AssocId, restarted: bool, name: String },
}
