//! Messages between processes: a subset of those of `node::fabric`.

use super::oracle::Counts;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::{ClusterMap, MachineLabel, RejoinInfo, Secrets};
use vireo_core::placement::message::{AssociationOwner, Receiver, ToOwner};
use vireo_core::placement::replica::Claim;
use vireo_types::{AssocId, Bucket, Ltmsi, RanUeNgapId, Seid};

/// Input that a balancer sends and stores until a host has completed it.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Ngap {
        assoc: AssocId,
        bucket: Option<Bucket>,
        answers: bool,
        pdu: Rc<[u8]>,
    },
    Pfcp {
        seid: Seid,
        is_request: bool,
        message: Rc<[u8]>,
    },
    // With several balancers:
    Up {
        assoc: AssocId,
        peer: SocketAddr,
    },
    Down(AssocId),
    Node(Box<AssociationOwner>),
    /// The connection to a balancer is lost.
    BalancerUnreachable(Rc<UnreachableBalancer>),
    /// These associations of unreachable balancers are lost.
    AssociationsLost(BTreeSet<AssocId>),
    /// Message for an association of a balancer without a connection.
    Unsent(Box<Message>),
}

/// Input as a balancer sends it.
#[derive(Clone, Debug)]
pub(super) struct NumberedInput {
    pub(super) number: u64,
    pub(super) receiver: Receiver,
    pub(super) input: Input,
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    // To the controller.
    JoinHost(Option<Box<RejoinInfo<HostId>>>),
    JoinBalancer(Option<Box<RejoinInfo<BalancerId>>>),
    Machine(MachineLabel),
    Ready,
    Beat,
    CaughtUp {
        epoch: u64,
        host: HostId,
    },
    SilentHosts(Vec<HostId>),
    UnreachablePeers(Vec<HostId>),
    /// CPU use of the host, 0 to 1.
    Report(f32),
    // From the controller.
    Welcome(HostId, Secrets),
    Assignment(BalancerId, Secrets),
    Refused,
    LeaveGranted,
    // From any process.
    Map(Rc<ClusterMap>),
    // To a host.
    Input(NumberedInput),
    BarrierReply(u64),
    SentCount(u64),
    Claimed(Claim),
    // From a host.
    Host(HostId),
    Ngap {
        assoc: AssocId,
        ue: Option<Ltmsi>,
        key: u64,
        counts: Option<Counts>,
        pdu: Rc<[u8]>,
    },
    Stale {
        assoc: AssocId,
        ran: RanUeNgapId,
        ue: Ltmsi,
        key: u64,
        pdu: Rc<[u8]>,
    },
    Pfcp {
        key: u64,
        seid: Option<Seid>,
        served_by: Option<HostId>,
        message: Rc<[u8]>,
    },
    Abort(AssocId),
    Node(Box<AssociationOwner>),
    Done(u64),
    Claim(Claim),
    Sync(u64),
    Back(u64),
    BackServed(u64),
    // Between hosts: a `core::placement::message::ToReplica`, encoded, and its answer.
    ToReplica(Rc<[u8]>),
    ToOwner(ToOwner),
}

impl Message {
    /// Returns the name of an effect; 0: it has none.
    pub(super) fn effect_key(&self) -> u64 {
        match self {
            Message::Ngap { key, .. } | Message::Stale { key, .. } | Message::Pfcp { key, .. } => *key,
            _ => 0,
        }
    }
}

/// State of an unreachable balancer that others continue.
#[derive(Clone, Debug)]
pub(super) struct UnreachableBalancer {
    pub(super) associations: BTreeSet<AssocId>,
    pub(super) unsent: Vec<Message>,
}
