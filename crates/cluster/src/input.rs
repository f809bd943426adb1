//! Inputs of the host thread.

use crate::unacked::{UnackedMessage, UnreachableBalancer};
use crossbeam_channel::Sender;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::message::{BalancerNotice, Envelope};
use vireo_core::sba::SmfEvent;
use vireo_core::subscription::{AuthenticationError, AuthenticationVector, Subscription};
use vireo_ops::api::{Status, StatusFilter, UePage, UeQuery};
use vireo_ops::reload::Reload;
use vireo_ops::supervisor::WorkerEvent;
use vireo_ops::ue_record::UeRecord;
use vireo_types::{AssocId, Bucket, DeregistrationCause, Instant, Ltmsi, Supi};

/// Input of a host: messages of the balancer, replies, worker events and commands.
#[derive(Debug)]
pub enum Input {
    /// An event of a RAN node or UPF.
    Peer { envelope: Envelope, at: Instant },
    /// Cluster: a notice of a balancer.
    Notice(BalancerNotice),
    /// Cluster: the connection to a balancer is lost.
    BalancerUnreachable(Box<UnreachableBalancer>),
    /// Cluster: these associations of unreachable balancers are lost.
    AssociationsLost(BTreeSet<AssocId>),
    /// Cluster: a message for a UE that its association did not carry, because the balancer of the
    /// association is unreachable.
    Unsent(Box<UnackedMessage>),
    /// Authentication result of the home network for a UE.
    Authentication { ltmsi: Ltmsi, answer: Box<Result<AuthenticationVector, AuthenticationError>> },
    /// Records of these subscribers have changed; `None` = of any.
    SubscribersChanged(Option<Vec<Supi>>),
    /// Present subscription of a subscriber whose record has changed; `None` if it was removed.
    SubscriberRecord {
        supi: Supi,
        /// True if its UE may have been informed before.
        is_repeated: bool,
        subscription: Box<Result<Option<Subscription>, AuthenticationError>>,
    },
    /// A reloaded configuration.
    Reload(Box<Reload>),
    /// Request for the status of the host.
    Status { filter: StatusFilter, reply: Sender<Status> },
    /// Request for a page of UEs.
    Ues { query: UeQuery, reply: Sender<UePage> },
    /// Operator command: deregister a UE.
    Deregister {
        supi: Supi,
        /// True if the UE is to register again.
        reregister: bool,
        cause: Option<DeregistrationCause>,
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
    /// Operator command: request the cell of a UE from its RAN node.
    Locate {
        supi: Supi,
        /// Receives true if the host has the UE.
        reply: Sender<bool>,
    },
    /// SBA mode: an event of an SMF.
    Smf(SmfEvent),
    /// An event of a worker process.
    WorkerEvent(WorkerEvent),
    /// The resources of a dead worker and its worker number are free.
    Reclaimed { worker: u8 },
    /// Cluster: the cluster map of a new epoch.
    Map(Box<ClusterMap>),
    /// Cluster: UEs of a dead host, loaded from the database of contexts.
    DatabaseLoaded(Box<LoadedBuckets>),
    /// Cluster: all balancers completed the commands that this host sent before a barrier.
    BarrierReply {
        /// Number of the barrier.
        number: u64,
        /// True if no recent message can have been lost: no balancer connection broke lately.
        whole: bool,
    },
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
