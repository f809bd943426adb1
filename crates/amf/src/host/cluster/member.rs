//! State of a host as cluster member.

use crate::host::egress::EffectRoute;
use crate::worker::outbox::Outbox;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use vireo_cluster::replicator::Replicator;
use vireo_cluster::{LoadedBuckets, ReplicationConfig};
use vireo_core::placement::balance::load_table::MovingAverage;
use vireo_core::placement::message::Welcome;
use vireo_core::placement::replica::BucketOwner;
use vireo_ops::clock::clock;
use vireo_ops::metrics::process;
use vireo_ops::supervisor::quota;
use vireo_store::region::{Buffer, Slot};
use vireo_types::Instant;

/// Ownership and replication of this host's UEs.
pub(in crate::host) type Owner = BucketOwner<Slot, Pending>;

/// Configuration and connections of a cluster member.
#[derive(Debug)]
pub struct Membership {
    /// Reply of the controller to the join.
    pub welcome: Welcome,
    /// Selects the commits that are copied, and the acknowledgements that effects wait for.
    pub replication: ReplicationConfig,
    /// Number of replicas by slice; the first one is for UEs of unknown slice.
    pub replicas: Vec<usize>,
    /// Connections to other hosts, and the copies of their UEs.
    pub replicator: Replicator,
}

impl Membership {
    /// Returns the owner side of the host's replication.
    pub(in crate::host) fn owner(&self) -> Owner {
        BucketOwner::new(self.welcome.host, self.replication, self.replicas.clone())
    }
}

/// A commit record whose effects wait for acknowledgements.
#[derive(Debug)]
pub(in crate::host) struct Pending {
    pub(in crate::host) slot: Slot,
    pub(in crate::host) buffer: Buffer,
    pub(in crate::host) outbox: Outbox,
    pub(in crate::host) route: EffectRoute,
}

/// Connections of a host in its cluster, and its reports.
#[derive(Debug)]
pub(in crate::host) struct Cluster {
    pub(in crate::host) member: Membership,
    /// Commit records whose effects wait for acknowledgements.
    pub(in crate::host) awaited: FxHashSet<u64>,
    /// Buckets whose UEs are loaded from a database.
    pub(in crate::host) loading: LoadingBuckets,
    /// UEs that were entered or handed off by the current input.
    pub(in crate::host) entered: EnteredUes,
    /// True if the controller has a report of unreachable replicas.
    pub(in crate::host) complained: bool,
    pub(in crate::host) reported: Instant,
    /// Time of the last effect watermark.
    pub(in crate::host) watermark_at: Instant,
    /// CPU time of this host's processes in microseconds, and the number of processors that cgroups
    /// leave them.
    pub(in crate::host) used_us: u64,
    pub(in crate::host) quota: Option<f64>,
    pub(in crate::host) cpu: MovingAverage,
    /// Inputs of balancers since the last report, and their rate per second.
    pub(in crate::host) inputs: u32,
    pub(in crate::host) rate: MovingAverage,
    pub(in crate::host) backlogs: Vec<MovingAverage>,
}

impl Cluster {
    pub(in crate::host) fn new(member: Membership) -> Self {
        Cluster {
            member,
            awaited: FxHashSet::default(),
            loading: LoadingBuckets::default(),
            entered: EnteredUes::default(),
            complained: false,
            reported: clock(),
            watermark_at: clock(),
            used_us: process::cpu_us(),
            quota: quota(),
            cpu: MovingAverage::default(),
            inputs: 0,
            rate: MovingAverage::default(),
            backlogs: Vec::new(),
        }
    }

    /// Returns true if the effects of a record wait for acknowledgements.
    pub(in crate::host) fn awaits(&self, buffer: Buffer) -> bool {
        self.awaited.contains(&buffer.to_item())
    }

    /// Returns true if the host must process an acknowledgement, a handoff or a peer's message.
    pub(in crate::host) fn has_news(&self, owner: &Owner) -> bool {
        let replicator = &self.member.replicator;
        replicator.has_handoff()
            || replicator.has_peer_message()
            || replicator.has_due_answers()
            || owner.has_released_effects(replicator)
    }
}

/// Buckets that are being loaded.
#[derive(Debug, Default)]
pub(in crate::host) struct LoadingBuckets {
    /// Number of the barrier of a starting host. Its reply means that the host knows the RAN nodes.
    /// Until then loaded UEs wait: a UE whose RAN node is unknown would become idle.
    pub(in crate::host) barrier: Option<u64>,
    pub(in crate::host) waiting: Vec<LoadedBuckets>,
    /// The loading threads run while this exists.
    pub(in crate::host) alive: Arc<()>,
}

/// Numbers of UEs that an input of the machine has entered or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::host) struct EnteredUes {
    pub(in crate::host) taken_over: usize,
    pub(in crate::host) received: usize,
    pub(in crate::host) handed_off: usize,
}
