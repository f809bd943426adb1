//! Messages between balancers and hosts, and between hosts.
//!
//! The encoding numbers the variants in their order: new ones are appended only (see [`super`]).

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use vireo_core::amf::n2::ShallowView;
use vireo_core::amf::ran::RanNode;
use vireo_core::placement::balance::HostId;
pub use vireo_core::placement::cluster::ClusterMap;
pub use vireo_core::placement::replica::{EffectAssociations, ReplicaUpdate};
use vireo_types::{AssocId, Bucket, Dnn, Instant, Ltmsi, Seid, SessionAddress, Supi};

/// Join reply of the controller to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Host ID; no other host of the cluster ever has it.
    pub host: HostId,
    /// Key from which 5G-TMSIs are derived: every host decodes those of every other.
    pub tmsi_key: [u8; 16],
    /// Pool partition of the host, and the number of partitions.
    pub part: (u16, u16),
    /// Heartbeat interval in milliseconds, and the number of missed heartbeats after which a peer
    /// is silent.
    pub heartbeat: (u32, u32),
    /// Interval of load reports in milliseconds.
    pub report: u32,
    /// Recovery Time Stamp of the cluster's N4 (TS 29.244 8.2.65), in seconds since 1900.
    pub recovery: u32,
}

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

/// Message from an owner to a replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToReplica<'a> {
    /// Sender and the epoch of its map; sent again with each new map.
    Hello {
        host: HostId,
        /// Epoch of the sender's map.
        epoch: u64,
    },
    /// State of a UE after a commit.
    #[serde(borrow)]
    Copy(ReplicaUpdate<'a>),
    /// The receiver owns the UEs of the buckets that an epoch moves to it, in the state of the
    /// previous copies. All effects of the sender for them are done.
    BucketHandoff {
        /// Number in the sequence of copies.
        number: u64,
        /// Epoch whose map moves the buckets.
        epoch: u64,
    },
    /// Asks which addresses of the sender's pool partition the receiver's UEs use.
    AddressAuditRequest {
        /// Number in the sequence of copies.
        number: u64,
        /// Epoch of the audit: no bucket migrates while it is answered.
        epoch: u64,
    },
    /// Answer to an address audit, or a part of it.
    AddressAuditReply {
        /// Number in the sequence of copies.
        number: u64,
        /// Epoch of the audit.
        epoch: u64,
        /// Number of the address table.
        table: u8,
        /// Numbers in the table that UEs use.
        numbers: Vec<u32>,
        /// True for the last part.
        last: bool,
    },
    /// The sender, which owns these buckets, has sent all their UEs. It asks which of their UEs the
    /// receiver has from other hosts.
    ReconcileRequest {
        /// Number in the sequence of copies.
        number: u64,
        buckets: Vec<Bucket>,
    },
    /// The owner does not have these UEs: the receiver's entries were never acknowledged.
    ReconcileRemove {
        /// Number in the sequence of copies.
        number: u64,
        ues: Vec<Ltmsi>,
    },
    /// All effects of the sender's copies up to a number have left.
    EffectWatermark {
        /// Number in the sequence of copies.
        number: u64,
        /// Number of the last copy whose effects have left.
        watermark: u64,
    },
}

/// Message from a replica to an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToOwner {
    /// All copies up to this number are stored.
    CopyAck { number: u64 },
    /// The sender of the copies is not the owner: its epoch is over.
    Fenced {
        /// Epoch of the receiver's map.
        epoch: u64,
    },
    /// Answer to a pending [`ToReplica::ReconcileRequest`].
    ReconcileReply {
        /// Number of the request.
        number: u64,
        /// UEs of the buckets that other hosts have sent and the requesting host has not; a part of
        /// them if there are very many.
        ues: Vec<Ltmsi>,
    },
}
