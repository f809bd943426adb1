//! Messages from an owner to a replica.

use serde::{Deserialize, Serialize};
use vireo_types::{AssocId, Bucket, Ltmsi};

/// Associations that the effects of a UE use, each with the association ID of its RAN node. A UE
/// uses at most two RAN nodes.
pub type EffectAssociations = [Option<(AssocId, AssocId)>; 2];

/// State of one UE after a commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaUpdate<'a> {
    /// Number of the copy on this connection; it grows. The receiver acknowledges by it.
    pub number: u64,
    pub ltmsi: Ltmsi,
    /// LTMSI until this commit, if it was a different one.
    pub before: Option<Ltmsi>,
    /// Last input executed; 0 if the commit has no input of a balancer.
    pub input: u64,
    /// Layout version of the parts of the context.
    pub layout: u8,
    /// Version of the perpetual part of the context.
    pub perpetual_version: u32,
    /// Version of the ephemeral part; it grows with each commit.
    pub ephemeral_version: u32,
    /// Perpetual part; `None` if the replica has this version.
    #[serde(borrow, with = "optional_octets")]
    pub perpetual: Option<&'a [u8]>,
    /// Ephemeral part; empty: the context is deleted.
    #[serde(borrow, with = "serde_bytes")]
    pub ephemeral: &'a [u8],
    /// Effects of the commit; empty if they were executed long ago.
    #[serde(borrow, with = "serde_bytes")]
    pub outbox: &'a [u8],
    /// Associations of the effects towards the RAN. A new owner uses the same balancers when it
    /// re-executes the effects, because these know what they have sent.
    pub associations: EffectAssociations,
}

/// Request behind the last copy: the owner has sent all its UEs of these buckets. Which UEs does
/// the replica have from other hosts?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileRequest {
    /// Number of the request in the sequence of copies.
    pub number: u64,
    /// Buckets that the sender owns and of which the receiver is a replica.
    pub buckets: Vec<Bucket>,
}

mod optional_octets {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(octets: &Option<&[u8]>, to: S) -> Result<S::Ok, S::Error> {
        octets.map(serde_bytes::Bytes::new).serialize(to)
    }

    pub(super) fn deserialize<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a [u8]>, D::Error> {
        let octets: Option<&'de serde_bytes::Bytes> = Option::deserialize(from)?;
        Ok(octets.map(|octets| &octets[..]))
    }
}
