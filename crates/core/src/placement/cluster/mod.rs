//! Cluster controller as a pure state machine: membership, cluster maps, scaling and rebalancing.
//!
//! Hosts and balancers join, send heartbeats, fall silent and leave. From that the controller makes
//! *cluster maps*, one per epoch, which contain the members and the owners of all buckets.
//!
//! A map takes effect once the controller has stored it, and is sent to no member before
//! ([`Controller::pending_state`], [`Controller::on_stored`]). If the controller dies after storing
//! it, its successor sends it. A controller without a store learns the last map from members that
//! join again (`succession`). A controller that receives no heartbeat at all considers itself
//! isolated and declares no member dead. Hosts and balancers continue without a controller.
//!
//! [`Controller`] decides; [`ControllerMachine`] handles the connections of the members around it.

mod controller;
mod discovery;
mod durable_state;
pub mod machine;
mod machine_label;
mod member;
mod pool_partitions;
mod rebalancer;
mod scaling;
mod settings;
mod succession;
#[cfg(test)]
mod tests;

pub use controller::Controller;
pub use durable_state::{DurableState, RejoinInfo, Secrets};
pub use machine::ControllerMachine;
pub use machine_label::{MachineLabel, MachineLabelError};
pub use member::{Member, Refusal};
pub use pool_partitions::partition_of;
pub use rebalancer::{Points, Rebalance, Rebalancer};
pub use scaling::{HostUtilisation, Scaling, ScalingDecision};
pub use settings::ControllerSettings;

use crate::placement::balance::map::{BucketMap, FIRST_EPOCH};
use crate::placement::balance::{BalancerId, HostId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Members and bucket placement of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterMap {
    /// Hosts, and the address at which each receives copies of other hosts.
    pub hosts: Vec<(HostId, SocketAddr)>,
    pub buckets: BucketMap,
    /// Balancers in order of joining, and the address at which each accepts hosts. The first one
    /// holds N4: only it communicates with the UPFs.
    pub balancers: Vec<(BalancerId, SocketAddr)>,
    /// Number of host IDs assigned so far; none of these is assigned again.
    pub joined: u16,
    /// Pool partitions that are never assigned again: their hosts died together with UEs, and UPFs
    /// may still have PFCP sessions of these.
    pub lost: Vec<u16>,
    /// Hosts that drain: they migrate all their buckets and receive no new UEs.
    pub leaving: Vec<HostId>,
}

impl ClusterMap {
    /// Returns the epoch of the map.
    pub fn epoch(&self) -> u64 {
        self.buckets.epoch()
    }

    /// Returns true if this is the first map of the cluster.
    pub fn is_first(&self) -> bool {
        self.epoch() == FIRST_EPOCH
    }

    /// Returns true if a host is a member.
    pub fn has_host(&self, host: HostId) -> bool {
        self.hosts.iter().any(|(own, _)| *own == host)
    }

    /// Returns true if a balancer is a member.
    pub fn has_balancer(&self, balancer: BalancerId) -> bool {
        self.balancers.iter().any(|(own, _)| *own == balancer)
    }

    /// Returns the balancer that communicates with the UPFs.
    pub fn holder(&self) -> Option<BalancerId> {
        self.balancers.first().map(|(balancer, _)| *balancer)
    }
}
