//! Inputs of the host thread.

use crate::unacked::{LostBalancer, UnackedMessage};
use crossbeam_channel::Sender;
use rustc_hash::FxHashSet;
use std::net::{IpAddr, SocketAddr};
use vireo_core::amf::n2::{Fault, ShallowView};
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::message::AssociationOwner;
use vireo_core::sba::{N1N2Transfer, PiggybackedSmContext, SessionNumber, SmfRequest, SmfResponse};
use vireo_core::subscription::{AuthenticationError, AuthenticationInfo};
use vireo_ops::api::{Status, StatusFilter};
use vireo_ops::reload::Reload;
use vireo_ops::supervisor::WorkerEvent;
use vireo_ops::ue_record::UeRecord;
use vireo_types::{AssocId, Bucket, Dnn, Instant, Ltmsi, Seid, SessionAddress, Supi};

/// Input of a host: messages of the balancer, replies, worker events and commands.
#[derive(Debug)]
pub enum Input {
    /// An association came up.
    Up { assoc: AssocId, peer: SocketAddr },
    /// An association ended or its peer restarted it. All state of the association is void.
    Down {
        assoc: AssocId,
        /// True if the association is up again immediately.
        restarted: bool,
    },
    /// The peer of an association answered a liveness probe.
    Alive { assoc: AssocId },
    /// Cluster: a balancer is reachable at these AMF addresses.
    Endpoints(Vec<IpAddr>),
    /// Cluster: a balancer and its associations are lost.
    BalancerGone(Box<LostBalancer>),
    /// A message for a UE that its association did not carry: the association or its balancer is
    /// lost.
    Unsent(Box<UnackedMessage>),
    /// Cluster: an association belongs to a RAN node that was set up on another association.
    Node(Box<AssociationOwner>),
    /// An NGAP message that the balancer has classified.
    Ngap {
        assoc: AssocId,
        /// Destination and purpose of the message, or the decoding fault.
        view: Result<ShallowView, Box<Fault>>,
        pdu: Vec<u8>,
        /// Time of reception.
        at: Instant,
        /// Input number that the balancer of a cluster has assigned; 0 = none.
        number: u64,
        /// True if this host answers the message in case it concerns no UE.
        answers: bool,
        /// Unknown UE: a bucket whose owner is to create the UE.
        bucket: Option<Bucket>,
    },
    /// Authentication result of the home network for a UE.
    Authentication { ltmsi: Ltmsi, answer: Box<Result<AuthenticationInfo, AuthenticationError>> },
    /// A PFCP message for a session.
    Pfcp {
        upf: SocketAddr,
        seid: Seid,
        /// True if the message is a request and requires a response.
        request: bool,
        message: Vec<u8>,
        /// Input number as in [`Input::Ngap`].
        number: u64,
    },
    /// A PFCP request for a session received no response.
    PfcpTimeout {
        seid: Seid,
        /// Input number as in [`Input::Ngap`].
        number: u64,
    },
    /// A PFCP association with a UPF was set up or released.
    Upf {
        upf: SocketAddr,
        /// True if the PFCP association is up.
        up: bool,
    },
    /// A UPF lost its sessions.
    UpfLost { upf: SocketAddr },
    /// A reloaded configuration.
    Reload(Box<Reload>),
    /// Request for the status of the host.
    Status { filter: StatusFilter, reply: Sender<Status> },
    /// Operator command: deregister a UE.
    Deregister {
        supi: Supi,
        /// True if the UE is to register again.
        reregister: bool,
        /// Receives true if the host has the UE.
        reply: Sender<bool>,
    },
    /// Operator command: relocate the sessions of a UE to another UPF.
    Relocate {
        supi: Supi,
        /// Target of the relocation.
        upf: SocketAddr,
        /// Receives true if the host has the UE.
        reply: Sender<bool>,
    },
    /// SBA mode: the SMF's response to a request, or its failure.
    Smf {
        ltmsi: Ltmsi,
        /// Idempotency key of the request.
        key: u64,
        number: SessionNumber,
        /// The request that was sent.
        request: Box<SmfRequest>,
        answer: SmfResponse,
        /// SM context after the request, if it is piggybacked (`state.carry = "piggyback"`).
        sm_context: Option<Box<PiggybackedSmContext>>,
        /// Number of the input that this response completes; 0 unless a balancer assigned a number
        /// and the SMF commits for the AMF.
        input: u64,
    },
    /// SBA mode: an N1N2 transfer of an SMF for a UE and its RAN node.
    Transfer {
        supi: Supi,
        /// Idempotency key of the transfer; 0 = none.
        key: u64,
        transfer: Box<N1N2Transfer>,
        /// Number of the completed input as in [`Input::Smf`], if the transfer answers a request.
        input: u64,
    },
    /// SBA mode: an SMF has released an SM context.
    SmContextReleased {
        supi: Supi,
        number: SessionNumber,
        /// Token of the notification, used for the response.
        token: u64,
    },
    /// An event of a worker process.
    WorkerEvent(WorkerEvent),
    /// The resources of a dead worker and its worker number are free.
    Reclaimed { worker: u8 },
    /// Cluster: the cluster map of a new epoch.
    Map(Box<ClusterMap>),
    /// Cluster: UEs of a dead host, loaded from the database of contexts.
    DatabaseLoaded(Box<LoadedBuckets>),
    /// Cluster: a subscriber registered at another host.
    Claimed {
        supi: Supi,
        /// UE whose context is the valid one.
        ue: Ltmsi,
        /// Time of the registration.
        at: Instant,
    },
    /// Cluster: all balancers completed the commands that this host sent before a barrier.
    BarrierReply {
        /// Number of the barrier.
        number: u64,
        /// True if no recent message can have been lost: no balancer connection broke lately.
        whole: bool,
    },
    /// Cluster: a UE of another host released an address of this host's pool partition.
    Returned { of: Box<(Dnn, SessionAddress)> },
    /// Cluster: drain this host. It migrates its UEs and then exits.
    Leave,
    /// Cluster: all UEs are handed off; this host may exit.
    LeaveGranted,
    /// End of input: complete the pending work and exit.
    Stop,
}

/// UEs of a dead host that a thread has loaded from the database of contexts.
#[derive(Debug)]
pub struct LoadedBuckets {
    pub buckets: FxHashSet<Bucket>,
    pub ues: Vec<ClaimedUe>,
}

/// A UE of another host that this host has claimed.
#[derive(Debug)]
pub struct ClaimedUe {
    /// Number of the record in its collection.
    pub id: u64,
    /// Owner number before the claim.
    pub before: u64,
    /// Content of the record.
    pub stored: UeRecord,
}
