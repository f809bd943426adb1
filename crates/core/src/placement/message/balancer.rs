//! Messages between balancers and hosts.

use crate::amf::n2::ShallowView;
use crate::amf::ran::RanNode;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use vireo_types::{AssocId, Bucket, Dnn, Instant, Ltmsi, Seid, SessionAddress, Supi};

/// Message from a balancer to a host. `number` identifies an input: a redelivered one is dropped if
/// it was executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToHost<'a> {
    /// The host is not in the balancer's map.
    Refused(String),
    /// Sent when there is nothing else to send.
    Heartbeat,
    /// Map by which the following messages are routed: a host with an older map adopts this one
    /// first.
    Map(Box<ClusterMap>),
    /// An association was established.
    Up {
        assoc: AssocId,
        /// Address of the RAN node.
        peer: SocketAddr,
    },
    /// An association has ended or restarted.
    Down {
        assoc: AssocId,
        /// True if the association is up again at once.
        restarted: bool,
    },
    /// NGAP message of a RAN node.
    Ngap {
        number: u64,
        assoc: AssocId,
        /// True if this host answers a non-UE message: every host receives these, one answers.
        answers: bool,
        /// For the first message of an unknown UE, the bucket by which the balancer selected this
        /// host. The UE gets an LTMSI of a bucket with the same hosts, so that a redelivered
        /// message finds it.
        bucket: Option<Bucket>,
        /// Routing information; `None` for an invalid message.
        view: Option<ShallowView>,
        /// NGAP PDU as received.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// PFCP message for a session.
    Pfcp {
        number: u64,
        upf: SocketAddr,
        seid: Seid,
        /// True if the message is a request.
        request: bool,
        /// PFCP message as received.
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// A PFCP request got no answer.
    PfcpTimeout { number: u64, seid: Seid },
    /// A PFCP association was set up or released.
    Upf {
        upf: SocketAddr,
        /// True if the association is set up.
        up: bool,
    },
    /// A UPF has lost its sessions.
    UpfLost { upf: SocketAddr },
    /// Another host has the valid context of a subscriber.
    Claimed {
        supi: Supi,
        /// UE of the valid context: a host that took over this very UE keeps it.
        ue: Ltmsi,
        /// Time of the registration; the latest claim wins.
        at: Instant,
    },
    /// All that the host sent before its [`ToBalancer::Sync`] is done, and the balancer routes all
    /// later messages by its last map.
    BarrierReply {
        /// Number of the barrier.
        number: u64,
    },
    /// Addresses of the host's pool partition are free: the UE that took them along to another host
    /// has released them.
    AddressReturned { dnn: Dnn, address: SessionAddress },
    /// RAN node of an association that is up, as reported by another host.
    Node(AssociationOwner),
    /// AMF addresses of the balancer's associations, as far as the balancer knows them.
    Endpoints(Vec<IpAddr>),
    /// Number of NGAP PDUs of this connection that were sent.
    SentCount {
        /// Running total, including dropped repeats.
        count: u64,
    },
    /// An association is about to end, and its RAN node has not acknowledged a message about a UE.
    Undelivered {
        assoc: AssocId,
        ue: Ltmsi,
        /// NGAP PDU that was not acknowledged.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// The peer of an association has answered a heartbeat that a host requested.
    Alive { assoc: AssocId },
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
    Host(HostId),
    /// Map by which the following messages are sent. A balancer with an older map adopts this one
    /// first, so that all effects of a previous owner precede those of the next one.
    Map(Box<ClusterMap>),
    /// Sent when there is nothing else to send.
    Beat,
    /// NGAP PDU to send to a RAN node.
    Ngap {
        assoc: AssocId,
        /// UE that the PDU concerns.
        ue: Option<Ltmsi>,
        /// Key of the effect, equal wherever its step is executed again; 0 = none.
        key: u64,
        /// NGAP PDU to send.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// PFCP message to send to a UPF.
    Pfcp {
        upf: SocketAddr,
        /// Key of the request.
        key: u64,
        seid: Option<Seid>,
        /// PFCP message to send.
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// Session report of a UPF for a session that no host has.
    RefuseReport {
        upf: SocketAddr,
        /// PFCP message as received.
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// Aborts an association immediately.
    Abort { assoc: AssocId },
    /// All effects of an input were sent.
    Done {
        /// Number of the input.
        number: u64,
    },
    /// This host has the valid context of a subscriber.
    Claim {
        supi: Supi,
        /// UE of the valid context.
        ue: Ltmsi,
        /// Time of the registration.
        at: Instant,
    },
    /// Load report of the host.
    Report {
        /// CPU use of the host, 0 to 1, averaged.
        cpu: f32,
        /// Pools by slice (first that of UEs whose slice is not known), in each by kind.
        pools: Vec<PoolLoad>,
    },
    /// Barrier: requests [`ToHost::BarrierReply`] when all that was sent before is done.
    Sync {
        /// Number of the barrier, which grows.
        number: u64,
    },
    /// Returns an input for a UE of another host: the balancer routes it there.
    Back {
        /// Number of the input.
        number: u64,
    },
    /// A UE has released addresses of another host's pool partition.
    Return {
        /// Host of the pool partition.
        to: HostId,
        dnn: Dnn,
        address: SessionAddress,
    },
    /// RAN node of an additional association, for hosts that join later.
    Node(AssociationOwner),
    /// This connection carries only heartbeats of a host, which has another connection.
    HeartbeatOnly(HostId),
    /// Requests a heartbeat of the peer of an association.
    Probe { assoc: AssocId },
}
