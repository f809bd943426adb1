//! Parts of a host's state.

use super::nf_scaler::NfScaler;
use super::pools::{NfId, Pools};
use super::step_metrics::{StepMetrics, Totals};
use super::{DeferredEvent, WorkerRings, egress, faults, half_open, keep, overload, timers};
use crate::worker::ids::IdAllocator;
use crate::worker::outbox::Summary;
use crate::worker::region_layout::RegionLayout;
use crate::worker::{Location, WorkerConfig};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use vireo_ops::config::OverloadConfig;
use vireo_ops::evicted_claims::EvictedClaims;
use vireo_ops::shared_record::DelegatedCommit;
use vireo_ops::supervisor::Supervisor;
use vireo_store::region::{Bell, Region, Slot, Snapshot, Worker};
use vireo_types::{Bucket, Instant, Ltmsi};

/// UEs in the state region, and their identifiers.
#[derive(Debug)]
pub(super) struct UeStore {
    pub(super) region: Region,
    /// The host's own member handle of the region.
    pub(super) own: Worker,
    pub(super) plan: RegionLayout,
    pub(super) bell: Bell,
    pub(super) ids: IdAllocator,
    /// Upper bound (exclusive) of all slots ever used. Memory beyond is never touched.
    pub(super) slots: u32,
    pub(super) order: egress::CommitOrder,
    /// `state.location = "memory"`: NF and summary of each UE whose context is in a worker's
    /// memory.
    pub(super) private: Option<FxHashMap<Slot, (NfId, Summary)>>,
    pub(super) snapshot: Snapshot,
    pub(super) scratch: Vec<u8>,
}

/// Worker processes and their NFs.
#[derive(Debug)]
pub(super) struct WorkerPool {
    pub(super) pools: Pools,
    pub(super) scaler: NfScaler,
    pub(super) supervisor: Supervisor,
    /// Rings of the running workers.
    pub(super) rings: Vec<WorkerRings>,
    /// UEs that wait because the queue of their NF was full.
    pub(super) unpushed: FxHashMap<NfId, VecDeque<Slot>>,
    /// Numbers of inputs returned by workers. A repeat after a worker's death is dropped.
    pub(super) returned: VecDeque<u64>,
    pub(super) location: Location,
    /// Configuration that is published to the workers.
    pub(super) instructions: WorkerConfig,
    pub(super) faults: faults::Faults,
}

/// Events of UEs that are to be delivered.
#[derive(Debug, Default)]
pub(super) struct EventQueues {
    /// Sequence number of the last event.
    pub(super) sequence: u64,
    /// Events that wait for room, and events that steps caused for other UEs, in order of delivery.
    pub(super) deferred: VecDeque<DeferredEvent>,
    /// Number of deferred events by UE. No later event of these UEs may overtake them.
    pub(super) deferred_count: FxHashMap<Slot, u32>,
    pub(super) timers: timers::Timers,
    /// New UEs in the order of their first message.
    pub(super) young: VecDeque<(Instant, Slot, Ltmsi)>,
    /// UPFs that lost their sessions, and the first slot whose UE is not notified yet.
    pub(super) lost: VecDeque<(SocketAddr, u32)>,
}

/// Input or commit record that is being processed.
#[derive(Debug, Default)]
pub(super) struct CurrentInput {
    pub(super) arrived: Instant,
    /// Balancer's number (0 = none), and the bucket that selected this host.
    pub(super) input: u64,
    pub(super) bucket: Option<Bucket>,
    /// Commit that requests to the SMF delegate, for the record whose effects are being emitted.
    pub(super) delegated_commit: Option<DelegatedCommit>,
}

/// Admission of new procedures and new UEs.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) overload: overload::Overload,
    pub(super) half_open: half_open::HalfOpen,
}

impl Admission {
    pub(super) fn new(config: OverloadConfig) -> Self {
        let half_open = half_open::HalfOpen::new(config.half_open);
        Admission { overload: overload::Overload::new(config), half_open }
    }
}

/// Metrics of the host, and their sources.
#[derive(Debug)]
pub(super) struct Statistics {
    pub(super) step_metrics: StepMetrics,
    pub(super) totals: Totals,
    pub(super) evicted_claims: EvictedClaims,
    pub(super) started: std::time::Instant,
}

impl Statistics {
    pub(super) fn new(step_metrics: StepMetrics, started: std::time::Instant) -> Self {
        Statistics { step_metrics, totals: Totals::default(), evicted_claims: EvictedClaims::default(), started }
    }
}

/// Contexts that outlive this process.
#[derive(Debug, Default)]
pub(super) struct Persistence {
    /// Contexts in a shared-memory file.
    pub(super) keep: Option<Box<keep::Keep>>,
    pub(super) restoring: keep::RestoringSessions,
    /// Only with contexts in a database.
    pub(super) renewal: Option<keep::Renewal>,
}
