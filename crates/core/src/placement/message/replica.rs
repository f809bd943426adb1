//! Messages between hosts: copies of an owner to a replica, and the replica's acknowledgements.

use crate::placement::balance::HostId;
use crate::placement::replica::{Proposal, ReplicaUpdate};
use serde::{Deserialize, Serialize};
use vireo_types::{Bucket, Ltmsi};

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
    /// Answer to a proposal of the receiver. The copy of the commit precedes it.
    ProposalAnswer {
        /// Number in the sequence of copies.
        number: u64,
        ltmsi: Ltmsi,
        /// Input that the proposal executes.
        input: u64,
        /// True if the proposal is committed.
        is_committed: bool,
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
    /// Step that the replica has run in the owner's place. It is sent again on each new connection
    /// until it is answered.
    Proposal(Box<Proposal>),
}
