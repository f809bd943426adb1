//! What an owner tells those who keep copies.

use serde::{Deserialize, Serialize};
use vireo_types::{AssocId, Ltmsi};

/// The associations by which a UE's effects go, each with the node that it is of. A UE has to do with two nodes at the most.
pub type EffectAssociations = [Option<(AssocId, AssocId)>; 2];

/// A UE as a commit has left it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaUpdate<'a> {
    /// The number of the copy on this connection's way: what was received is acknowledged by it. It grows.
    pub number: u64,
    /// The UE.
    pub ltmsi: Ltmsi,
    /// The number that it had until this commit, if that was another.
    pub before: Option<Ltmsi>,
    /// The input that was carried out last, 0 if it was none of the balancer's.
    pub input: u64,
    /// The version of the perpetual part of its context.
    pub perpetual_version: u32,
    /// That of the ephemeral part; it grows with each commit.
    pub ephemeral_version: u32,
    /// The perpetual part, unless the replica has this version.
    #[serde(borrow, with = "optional_octets")]
    pub perpetual: Option<&'a [u8]>,
    /// The ephemeral part; empty: the context is gone.
    #[serde(borrow, with = "serde_bytes")]
    pub ephemeral: &'a [u8],
    /// What the commit wants done; empty if that was done long ago.
    #[serde(borrow, with = "serde_bytes")]
    pub outbox: &'a [u8],
    /// By which associations that goes to the RAN: who has it done again asks the same balancers, which know what they have sent.
    pub ways: EffectAssociations,
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
