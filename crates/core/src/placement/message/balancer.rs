//! Messages between balancers and hosts.

use super::{Envelope, HostNotice, RanOutput};
use crate::amf::ran::RanNode;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::replica::Claim;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;
use vireo_types::{AssocId, Dnn, SessionAddress};

/// Message from a balancer to a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToHost<'a> {
    /// The host is not in the balancer's map.
    Refused(String),
    /// Sent when there is nothing else to send.
    Heartbeat,
    /// Map by which the following messages are routed: a host with an older map adopts this one
    /// first.
    Map(Box<ClusterMap>),
    /// Event of a RAN node or UPF.
    Event(Cow<'a, Envelope>),
    /// Notice of the balancer.
    Notice(BalancerNotice),
    /// All that the host sent before its [`ToBalancer::Barrier`] is done, and the balancer routes
    /// all later messages by its last map.
    BarrierReply {
        /// Number of the barrier.
        number: u64,
    },
    /// Number of NGAP PDUs of this connection that were sent.
    SentCount {
        /// Running total, including dropped repeats.
        count: u64,
    },
}

impl ToHost<'_> {
    /// Returns true if only a host that the balancer serves receives the message.
    pub const fn is_for_served_host(&self) -> bool {
        matches!(self, ToHost::Event(_) | ToHost::Notice(_) | ToHost::BarrierReply { .. })
    }
}

/// Notice of a balancer to a host. It concerns no event of a RAN node or UPF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BalancerNotice {
    /// Another host has the valid context of a subscriber. A host that took over this very context
    /// keeps it.
    Claimed(Claim),
    /// An address of the host's pool partition is free: the UE that took it along to another host
    /// has released it.
    AddressReturned { dnn: Dnn, address: SessionAddress },
    /// RAN node of an association that is up, as reported by another host.
    RanNode(Box<AssociationOwner>),
    /// AMF addresses of the balancer's associations, as far as the balancer knows them.
    Endpoints(Vec<IpAddr>),
}

/// RAN node to which an additional association belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationOwner {
    pub assoc: AssocId,
    /// Association on which the RAN node completed NG Setup, and which identifies the RAN node. It
    /// may have ended.
    pub node: AssocId,
    /// State of the RAN node.
    pub record: RanNode,
}

/// Load report of a pool: the NFs of one slice and kind of procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolLoad {
    /// Minimum `Q / C` of its NFs, averaged.
    pub backlog: f32,
    /// Sum of the CPU core shares of its NFs.
    pub share: f32,
    /// Service time of one procedure, in microseconds.
    pub time_us: f32,
}

/// Message from a host to a balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToBalancer<'a> {
    /// ID of the sender; the first message.
    Hello(HostId),
    /// Map by which the following messages are sent. A balancer with an older map adopts this one
    /// first, so that all effects of a previous owner precede those of the next one.
    Map(Box<ClusterMap>),
    /// Sent when there is nothing else to send.
    Heartbeat,
    /// Output to a RAN node or UPF.
    Output(Cow<'a, RanOutput>),
    /// Notice of the host.
    Notice(HostNotice),
    /// Load report of the host.
    Report {
        /// CPU use of the host, 0 to 1, averaged.
        cpu: f32,
        /// Pools by slice (first that of UEs whose slice is not known), in each by kind.
        pools: Vec<PoolLoad>,
    },
    /// Barrier: requests [`ToHost::BarrierReply`] when all that was sent before is done.
    Barrier {
        /// Number of the barrier, which grows.
        number: u64,
    },
    /// This connection carries only heartbeats of a host, which has another connection.
    HeartbeatOnly(HostId),
}
