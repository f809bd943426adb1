//! State of the owner side: watermark, outgoing buckets, RAN nodes, progress of replicas.

use super::ReplicaEntry;
use crate::placement::balance::HostId;
use crate::placement::balance::map::BucketPlacement;
use rustc_hash::FxHashMap;
use vireo_types::{Bucket, Ltmsi};

/// How a UE arrived at its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Takeover: the previous owner is dead.
    Dead,
    /// Migration: the previous owner has handed the UE off; see [`super::TakeoverSet::handed`].
    Handed(Option<HostId>),
}

/// Watermarks sent to the replicas, and the pending barrier.
#[derive(Debug, Default)]
pub(super) struct EffectWatermark {
    /// Number of the pending barrier; for each replica, the last copy whose effects had all been
    /// released when it was sent.
    pub(super) pending: Option<(u64, Vec<(HostId, u64)>)>,
    pub(super) sent: FxHashMap<HostId, u64>,
}

/// Buckets that migrate to other hosts.
#[derive(Debug)]
pub(super) struct OutgoingBuckets<S> {
    /// Placement before the migration.
    pub(super) owners: FxHashMap<Bucket, BucketPlacement>,
    /// Epoch whose map moves the buckets.
    pub(super) epoch: u64,
    pub(super) stage: MigrationStage<S>,
}

/// Stage of a migration.
#[derive(Debug)]
pub(super) enum MigrationStage<S> {
    /// The balancers may have routed inputs by the old map until they answer this barrier.
    AwaitingBarrier(u64),
    /// UEs with a procedure in progress.
    Ending(Vec<S>),
    /// No procedure is in progress and none is started. When the balancers answer this barrier,
    /// they have all effects.
    Quiesced(u64),
}

/// UE that is held back.
#[derive(Debug)]
pub(super) struct HeldBackUe {
    pub(super) ltmsi: Ltmsi,
    pub(super) entry: ReplicaEntry,
    pub(super) origin: Origin,
    /// Number of the barrier sent since the UE arrived.
    pub(super) barrier: Option<u64>,
}

/// Pending barriers and UEs that are held back.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Barriers that not all balancers have answered, each with the epoch whose balancers received
    /// it.
    pub(super) pending: Vec<(u64, u64)>,
    /// Last epoch whose balancers have all answered.
    pub(super) known: u64,
    pub(super) held_back: Vec<HeldBackUe>,
}

impl Nodes {
    /// Returns the buckets of UEs that are held back.
    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.held_back.iter().map(|ue| ue.ltmsi.bucket())
    }
}

/// Progress of a replica towards having copies of all UEs of some buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplicaProgress {
    /// The owner scans its UEs for missing copies.
    Scanning,
    /// All copies were sent, and the reconcile request with this number is pending.
    Requested(u64),
    /// The replica has everything once it has acknowledged this number.
    Sent(u64),
}
