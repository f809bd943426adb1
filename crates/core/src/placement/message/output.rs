//! Outputs of a host: to RAN nodes and UPFs, and to its cluster.

use super::{AssociationOwner, PoolLoad};
use crate::placement::balance::HostId;
use crate::placement::replica::Claim;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{AssocId, Dnn, Ltmsi, Seid, SessionAddress};

/// Output to a RAN node or UPF. The balancer in the process of the host executes it, or the
/// balancer of a cluster that receives it, without conversion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RanOutput {
    /// Sends an NGAP PDU to a RAN node.
    Ngap {
        assoc: AssocId,
        /// UE that the PDU concerns, if any. All messages of a UE use the same stream.
        ue: Option<Ltmsi>,
        /// Key of the effect, equal wherever its step is executed again; 0 = none.
        key: u64,
        /// NGAP PDU to send.
        #[serde(with = "serde_bytes")]
        pdu: Vec<u8>,
    },
    /// Sends a PFCP message to a UPF.
    Pfcp {
        upf: SocketAddr,
        /// Key of the request, equal wherever its step is executed again.
        key: u64,
        /// Session of the request; `None` if the context no longer has the session.
        seid: Option<Seid>,
        /// Host that serves the procedure in the owner's place, and gets the response.
        served_by: Option<HostId>,
        /// PFCP message to send.
        #[serde(with = "serde_bytes")]
        message: Vec<u8>,
    },
    /// Refuses a UPF's report about a session that no context has.
    RefuseReport {
        upf: SocketAddr,
        /// PFCP Session Report Request as received.
        #[serde(with = "serde_bytes")]
        message: Vec<u8>,
    },
    /// Aborts an association immediately.
    Abort { assoc: AssocId },
    /// Requests a heartbeat of the peer of an association.
    Probe { assoc: AssocId },
}

/// Output of a host to its cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterOutput {
    /// To all connected balancers: all later outputs belong to this epoch.
    Epoch { epoch: u64 },
    /// To all connected balancers: request for an answer when all earlier outputs are done.
    Barrier {
        /// Number of the barrier, which grows.
        number: u64,
    },
    /// To all balancers of the map, connected or not: request for an answer when the balancer has
    /// sent all RAN nodes that it knows.
    Introduce {
        /// Number of the barrier.
        number: u64,
    },
    /// To one balancer.
    Notice(HostNotice),
    /// To all connected balancers and the controller: load of the host.
    Report {
        /// CPU use of the host, 0 to 1, averaged.
        cpu: f32,
        /// Processed messages per second, averaged.
        rate: f32,
        /// Pools by slice (first that of UEs whose slice is not known), in each by kind.
        pools: Vec<PoolLoad>,
    },
    /// To the controller: a host has all copies that an epoch requires.
    CaughtUp {
        epoch: u64,
        /// A replica, or this host.
        host: HostId,
    },
    /// To the controller: pool partitions of former hosts from which UEs of this host have
    /// addresses.
    PoolPartitions { epoch: u64, partitions: Vec<u16> },
    /// To the controller: hosts that do not accept this host's copies.
    UnreachablePeers(Vec<HostId>),
    /// To the controller: the host wants to leave the cluster.
    Leave,
}

/// Notice of a host to one balancer. It concerns neither a RAN node nor a UPF.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HostNotice {
    /// To the balancer of an input: its result is committed and all effects were sent.
    Done {
        /// Number of the input.
        number: u64,
    },
    /// To the balancer of an input: its UE belongs to another host.
    ReturnInput {
        /// Number of the input.
        number: u64,
    },
    /// To the balancer of an input: this host does not serve it, the owner must execute it.
    ReturnServedInput {
        /// Number of the input.
        number: u64,
    },
    /// To the N4 balancer, for all other hosts: this host has the valid context of a subscriber.
    Claim(Claim),
    /// To the N4 balancer: a UE has released an address of another host's pool partition.
    ReturnAddress {
        /// Host of the pool partition.
        to: HostId,
        dnn: Dnn,
        address: SessionAddress,
    },
    /// To the balancer of an additional association, for hosts that join later: its RAN node.
    RanNode(Box<AssociationOwner>),
}

impl From<HostNotice> for ClusterOutput {
    fn from(notice: HostNotice) -> Self {
        ClusterOutput::Notice(notice)
    }
}
