//! Members of a cluster, and why a member is refused.

use super::machine_label::MachineLabel;
use crate::placement::balance::{BalancerId, HostId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use vireo_types::Instant;

/// Host or balancer of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Member {
    Host(HostId),
    Balancer(BalancerId),
}

/// Reason to refuse a join or to evict a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The controller cannot decide yet.
    #[error("the controller has just started and has no cluster map yet; retry")]
    NotReady,
    /// All pool partitions are assigned or still in use.
    #[error(
        "all {0} pool partitions are in use, by hosts or by UEs of departed hosts; wait for these UEs, or raise \
         cluster.address-parts and restart the cluster"
    )]
    NoFreePartition(u16),
    /// All balancer IDs are in use.
    #[error("the cluster has {} balancers, the maximum; stop one of them first", BalancerId::COUNT)]
    TooManyBalancers,
    /// The member knows a cluster, and this controller has created another one that has no map yet.
    #[error("the controller does not know the cluster of this member yet; it restarts and learns it from the members")]
    UnknownCluster,
    /// The member belongs to another cluster.
    #[error("this member belongs to another cluster; restart it without its state")]
    OtherCluster,
    /// The member was in a map and was removed from it.
    #[error("the cluster map lacks this member since epoch {0}; restart it")]
    Fenced(u64),
    /// The member was silent and was declared dead.
    #[error("this member was silent towards the controller, a balancer or a host, and was declared dead; restart it")]
    Silent,
}

/// Stage of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberStage {
    /// The member is not ready and sends no heartbeats.
    Starting,
    /// The member is ready and waits until it is needed.
    Idle,
    /// The member belongs in the map.
    Serving,
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) copies: SocketAddr,
    pub(super) stage: MemberStage,
    pub(super) liveness: Liveness,
    /// Hosts that do not accept this host's copies, and since when this host has reported that.
    pub(super) unreached: BTreeMap<HostId, Instant>,
    /// Machine of the host; `None`: it shares its machine with no host.
    pub(super) machine: Option<MachineLabel>,
}

impl Host {
    pub(super) fn new(copies: SocketAddr, stage: MemberStage, liveness: Liveness) -> Self {
        Host { copies, stage, liveness, unreached: BTreeMap::new(), machine: None }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Balancer {
    pub(super) address: SocketAddr,
    pub(super) stage: MemberStage,
    pub(super) liveness: Liveness,
    /// Hosts that this balancer receives nothing from.
    pub(super) silent_hosts: BTreeSet<HostId>,
}

/// Signs of life of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    /// Time of its last message.
    pub(super) at: Instant,
    /// Time at which it was last presumed alive without a message, for its heartbeats were not due.
    pub(super) presumed_at: Instant,
    pub(super) connected: bool,
}

impl Liveness {
    pub(super) fn new(now: Instant, connected: bool) -> Self {
        Liveness { at: now, presumed_at: now, connected }
    }

    /// Returns the time from which its silence counts.
    pub(super) fn alive_at(&self) -> Instant {
        self.at.max(self.presumed_at)
    }
}
