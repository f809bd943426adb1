//! Who is in a cluster, decided purely: the controller as a state machine. Hosts and balancers join it, are heard, fall silent
//! and go; what comes of that are *maps*, each of an epoch, which say who there is and whose the buckets are.
//!
//! A map holds once it is written where the controller keeps it, and is told to nobody before ([`Controller::to_write`],
//! [`Controller::written`]): one that dies in between is followed by one that tells it. Where nothing is kept, members
//! bring what they were told when they join again (`succession`). A controller that hears nobody takes itself for cut off, and
//! nobody for dead; nothing stops while there is none.

mod controller;
mod pool_partitions;
mod record;
mod scaling;
mod succession;
#[cfg(test)]
mod tests;

pub use controller::{Controller, ControllerSettings, Member, Refusal};
pub use pool_partitions::partition_of;
pub use record::{DurableState, RejoinInfo, Secrets};
pub use scaling::{HostUtilisation, Scaling, ScalingDecision};

use crate::balance::map::{BucketMap, FIRST_EPOCH};
use crate::balance::{BalancerId, HostId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Who there is in an epoch, and which hosts have the buckets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterMap {
    /// The hosts, and where each takes other hosts' copies.
    pub hosts: Vec<(HostId, SocketAddr)>,
    /// Whose the buckets are.
    pub buckets: BucketMap,
    /// The balancers, and where each takes hosts, in the order in which they have joined. The first holds N4: UPFs are talked
    /// to by it alone.
    pub balancers: Vec<(BalancerId, SocketAddr)>,
    /// How many numbers hosts were given: no host gets one of these again.
    pub joined: u16,
    /// Parts of the UE addresses that no host gets again, because those that had them have died with UEs: UPFs may still have
    /// their sessions.
    pub lost: Vec<u16>,
    /// Hosts that give what they have to others and leave: no new UE is given to them.
    pub leaving: Vec<HostId>,
}

impl ClusterMap {
    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.buckets.epoch()
    }

    /// Whether there was none before in the cluster's life.
    pub fn is_first(&self) -> bool {
        self.epoch() == FIRST_EPOCH
    }

    /// Whether a host is in it.
    pub fn has_host(&self, host: HostId) -> bool {
        self.hosts.iter().any(|(own, _)| *own == host)
    }

    /// Whether a balancer is in it.
    pub fn has_balancer(&self, balancer: BalancerId) -> bool {
        self.balancers.iter().any(|(own, _)| *own == balancer)
    }

    /// The balancer that talks to the UPFs.
    pub fn holder(&self) -> Option<BalancerId> {
        self.balancers.first().map(|(balancer, _)| *balancer)
    }
}
