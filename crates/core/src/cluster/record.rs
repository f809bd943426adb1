//! What outlives a controller, where it is kept or by what members bring.

use super::ClusterMap;
use serde::{Deserialize, Serialize};

/// What all hosts of a cluster share as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    /// The key of the 5G-TMSIs.
    pub tmsi_key: [u8; 16],
    /// The recovery time stamp of its N4 (TS 29.244 8.2.65): seconds since 1900.
    pub recovery: u32,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // the key is nobody's business
        f.debug_struct("Secrets").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

/// What outlives a controller, where it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DurableState {
    /// What hosts share.
    pub secrets: Secrets,
    /// The last map.
    pub map: Option<ClusterMap>,
}

/// What a member knows that joins again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejoinInfo<Id> {
    /// Its number.
    pub id: Id,
    /// What it was told, the last map it knows included.
    pub record: DurableState,
}
