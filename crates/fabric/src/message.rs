//! What balancers and hosts say to each other. Variants are numbered in their order: new ones are added at the end alone
//! (see [`super`]).

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use vireo_core::balance::HostId;
pub use vireo_core::cluster::ClusterMap;
use vireo_core::n2::ShallowView;
use vireo_core::ran::RanNode;
pub use vireo_core::replica::{EffectAssociations, ReplicaUpdate};
use vireo_types::{AssocId, Bucket, Dnn, Instant, Ltmsi, Seid, SessionAddress, Supi};

/// What a host is told when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its number, which no other host of the cluster's life has.
    pub host: HostId,
    /// The key of the 5G-TMSIs: every host reads every other's.
    pub tmsi_key: [u8; 16],
    /// Its part of the pools of UE addresses, and how many parts there are.
    pub part: (u16, u16),
    /// How often each side says something, in milliseconds, and after how many silences it is taken for dead.
    pub heartbeat: (u32, u32),
    /// How often it reports its load, in milliseconds.
    pub report: u32,
    /// The recovery time stamp of the cluster's N4 (TS 29.244 8.2.65): seconds since 1900.
    pub recovery: u32,
}

/// From a balancer to a host. `number` names an input: who gets it again has to do nothing if it was carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToHost<'a> {
    /// The host is not one of the balancer's map, or no longer.
    Refused(String),
    /// Nothing else to say.
    Heartbeat,
    /// What follows is given by this map: a host that has an older one adopts it first, whoever tells it first.
    Map(Box<ClusterMap>),
    /// An association came up.
    Up {
        /// Which.
        assoc: AssocId,
        /// Its peer.
        peer: SocketAddr,
    },
    /// An association is gone, or void.
    Down {
        /// Which.
        assoc: AssocId,
        /// Whether it is up again at once.
        restarted: bool,
    },
    /// An NGAP message.
    Ngap {
        /// Its number.
        number: u64,
        /// Its association.
        assoc: AssocId,
        /// Whether this host answers if the message is of the node: every host hears those, one answers.
        answers: bool,
        /// Of the first message of a UE that is not known: the bucket by which this host was chosen. The UE gets a number of
        /// one that has the same hosts, so that the message finds it if it has to be given again.
        bucket: Option<Bucket>,
        /// Where it goes; `None` for a message at fault.
        view: Option<ShallowView>,
        /// The PDU.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// A PFCP message for a session.
    Pfcp {
        /// Its number.
        number: u64,
        /// The UPF.
        upf: SocketAddr,
        /// The session.
        seid: Seid,
        /// Whether it is a request.
        request: bool,
        /// The message.
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// A PFCP request got no answer.
    PfcpTimeout {
        /// Its number.
        number: u64,
        /// The session.
        seid: Seid,
    },
    /// A UPF is associated, or is not.
    Upf {
        /// The UPF.
        upf: SocketAddr,
        /// Whether it is.
        up: bool,
    },
    /// A UPF lost its sessions.
    UpfLost {
        /// The UPF.
        upf: SocketAddr,
    },
    /// A subscriber's context is at another host now.
    Claimed {
        /// Whose.
        supi: Supi,
        /// The UE that has it: who has been handed that one has no other.
        ue: Ltmsi,
        /// When the subscriber registered there: the last one counts.
        at: Instant,
    },
    /// All that the host had said before it asked by [`ToBalancer::Sync`] is done, and what it is given from now on is by
    /// the balancer's last map.
    BarrierReply {
        /// The number of the question.
        number: u64,
    },
    /// Nobody has these addresses of the host's part of the pools any more: the UE that had taken them along to another host.
    AddressReturned {
        /// The data network.
        dnn: Dnn,
        /// The addresses.
        address: SessionAddress,
    },
    /// The node of an association that is up, as other hosts have it.
    Node(AssociationOwner),
    /// The addresses of the AMF at which the balancer's associations end, as far as it knows.
    Endpoints(Vec<IpAddr>),
    /// So many of the NGAP PDUs that the host has given on this connection were sent.
    SentCount {
        /// How many, those that were left out as repeats included.
        count: u64,
    },
    /// An association is about to end, and a message about a UE was not acknowledged by its node.
    Undelivered {
        /// The association.
        assoc: AssocId,
        /// The UE.
        ue: Ltmsi,
        /// The PDU.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// The peer of an association has answered a heartbeat that a host had asked for.
    Alive {
        /// The association.
        assoc: AssocId,
    },
}

/// Of which RAN node a further association is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationOwner {
    /// The association.
    pub assoc: AssocId,
    /// The node's number: the association on which it has set NG up, which need not be up any more.
    pub node: AssocId,
    /// What it is.
    pub record: RanNode,
}

/// How loaded a pool of NFs is: those of one slice for one kind of procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolLoad {
    /// The least `Q / C` of its NFs, averaged.
    pub backlog: f32,
    /// The parts of a core that its NFs have, in all.
    pub share: f32,
    /// How long one procedure takes, in microseconds.
    pub time_us: f32,
}

/// From a host to a balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToBalancer<'a> {
    /// Which host it is: the first that it says.
    Host(HostId),
    /// What follows is said by this map: a balancer that has an older one adopts it first, so that all that the owner before
    /// has had sent comes before all that the next one has.
    Map(Box<ClusterMap>),
    /// Nothing else to say.
    Beat,
    /// An NGAP PDU to send.
    Ngap {
        /// The association.
        assoc: AssocId,
        /// The UE it is about.
        ue: Option<Ltmsi>,
        /// The name of the effect, the same wherever its step runs again; 0 = none.
        key: u64,
        /// The PDU.
        #[serde(borrow, with = "serde_bytes")]
        pdu: &'a [u8],
    },
    /// A PFCP message to send.
    Pfcp {
        /// The UPF.
        upf: SocketAddr,
        /// The name of the request.
        key: u64,
        /// The session.
        seid: Option<Seid>,
        /// The message.
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// A report of a UPF about a session that nobody has.
    RefuseReport {
        /// The UPF.
        upf: SocketAddr,
        /// The report.
        #[serde(borrow, with = "serde_bytes")]
        message: &'a [u8],
    },
    /// The association ends at once.
    Abort {
        /// Which.
        assoc: AssocId,
    },
    /// What an input has caused has all been said.
    Done {
        /// Its number.
        number: u64,
    },
    /// A subscriber's context is here now.
    Claim {
        /// Whose.
        supi: Supi,
        /// The UE that has it.
        ue: Ltmsi,
        /// When the subscriber registered.
        at: Instant,
    },
    /// Its load.
    Report {
        /// The part of its processors that is in use, 0 to 1, averaged.
        cpu: f32,
        /// Its pools: by slice (first that of UEs whose slice is not known), in each by kind.
        pools: Vec<PoolLoad>,
    },
    /// It asks to be told when all that it has said so far is done.
    Sync {
        /// The number of the question, which grows.
        number: u64,
    },
    /// An input for a UE of another host: it is given to that one.
    Back {
        /// Its number.
        number: u64,
    },
    /// A UE has no more use for addresses of another host's part of the pools.
    Return {
        /// That host.
        to: HostId,
        /// The data network.
        dnn: Dnn,
        /// The addresses.
        address: SessionAddress,
    },
    /// A further association is this node's: whoever joins later is told.
    Node(AssociationOwner),
    /// Nothing but heartbeats comes by this connection: those of a host, which has another one.
    HeartbeatOnly(HostId),
    /// The peer of an association is to be asked for a sign of life.
    Probe {
        /// The association.
        assoc: AssocId,
    },
}

/// From a host to one that keeps copies of its UEs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToReplica<'a> {
    /// Who it is, and of which epoch its map is; also whenever it has a new one.
    Hello {
        /// The host.
        host: HostId,
        /// The epoch.
        epoch: u64,
    },
    /// A UE as it is now.
    #[serde(borrow)]
    Copy(ReplicaUpdate<'a>),
    /// All that the sender has had sent for the UEs of the buckets that an epoch gave to the receiver is done: they are the
    /// receiver's, as the copies before this have them.
    BucketHandoff {
        /// Its number, as that of a copy.
        number: u64,
        /// The epoch.
        epoch: u64,
    },
    /// The sender asks which addresses of its part the receiver's UEs have.
    AddressAuditRequest {
        /// Its number, as that of a copy.
        number: u64,
        /// The epoch of which it asks: no UEs are on their way when that is answered.
        epoch: u64,
    },
    /// The answer, or a piece of it.
    AddressAuditReply {
        /// Its number, as that of a copy.
        number: u64,
        /// The epoch.
        epoch: u64,
        /// The table of numbers.
        table: u8,
        /// Those that UEs have.
        numbers: Vec<u32>,
        /// Nothing more follows.
        last: bool,
    },
    /// All UEs of these buckets were sent that the sender has, which is their owner: it asks which of them the receiver has of others.
    ReconcileRequest {
        /// Its number, as that of a copy.
        number: u64,
        /// The buckets.
        buckets: Vec<Bucket>,
    },
    /// Of these UEs their owner has nothing: what the receiver has of them was never acknowledged.
    ReconcileRemove {
        /// Its number, as that of a copy.
        number: u64,
        /// The UEs.
        ues: Vec<Ltmsi>,
    },
    /// All that the sender's copies up to a number want done has left.
    EffectWatermark {
        /// Its number, as that of a copy.
        number: u64,
        /// That of the copy.
        until: u64,
    },
}

/// From a host that keeps copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToOwner {
    /// All copies up to this number are kept.
    CopyAck {
        /// The number.
        number: u64,
    },
    /// The sender is not the owner of what it sent: its epoch is over.
    Fenced {
        /// The epoch that holds.
        epoch: u64,
    },
    /// The answer to [`ToReplica::ReconcileRequest`].
    ReconcileReply {
        /// The number of the question.
        number: u64,
        /// UEs of the buckets of which others have sent copies, and the asking host has not: some, if there are very many.
        ues: Vec<Ltmsi>,
    },
}
