//! State that outlives a controller, either stored or brought by rejoining members.

use super::ClusterMap;
use super::machine_label::MachineLabel;
use crate::placement::balance::HostId;
use serde::{Deserialize, Serialize};

/// Secrets that all hosts share for the lifetime of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    /// Key from which 5G-TMSIs are derived.
    pub tmsi_key: [u8; 16],
    /// Recovery Time Stamp of N4 (TS 29.244 8.2.65), in seconds since 1900.
    pub recovery: u32,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not appear in logs.
        f.debug_struct("Secrets").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

/// State that the controller stores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DurableState {
    pub secrets: Secrets,
    /// Last map, stored before it takes effect.
    pub map: Option<ClusterMap>,
    /// Number of points of each host on the ring of buckets, if hosts have different weights.
    /// Members do not know them.
    #[serde(skip)]
    pub points: Vec<(HostId, u16)>,
    /// Machines of the hosts that have a label. Members know their own only.
    #[serde(skip)]
    pub machines: Vec<(HostId, MachineLabel)>,
    /// Hosts that get no other buckets and no new UEs. Balancers know them.
    #[serde(skip)]
    pub cordoned: Vec<HostId>,
}

impl DurableState {
    /// Creates the state that members know.
    pub fn new(secrets: Secrets, map: Option<ClusterMap>) -> Self {
        DurableState { secrets, map, points: Vec::new(), machines: Vec::new(), cordoned: Vec::new() }
    }
}

/// State that a rejoining member presents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejoinInfo<Id> {
    /// Host or balancer ID of the member.
    pub id: Id,
    /// Secrets and last map that the member received.
    pub record: DurableState,
}
