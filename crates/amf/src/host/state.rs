//! State of the host thread, by owner.

use super::cluster::Cluster;
use super::concealed_request::ConcealedRequest;
use super::deferred_event::DeferredEvent;
use super::egress::CommitOrder;
use super::fair_queue::FairQueue;
use super::half_open::HalfOpen;
use super::host_machine::Machine;
use super::input_queues::InputQueues;
use super::keep::{Keep, Renewal, RestoringSessions};
use super::nf_scaler::NfScaler;
use super::overload::Overload;
use super::path_switch::GuessLimit;
use super::pools::{NfId, Pools};
use super::ran_table::Nodes;
use super::serving::Guests;
use super::stale::Budgets;
use super::step_metrics::{StepMetrics, Totals};
use super::subscriber_change_queue::SubscriberChanges;
use super::timers::Timers;
use super::ue_changes::UeChanges;
use super::unproved::UnprovedEvents;
use crate::smf_link::SmfLink;
use crate::worker::ids::IdAllocator;
use crate::worker::outbox::Summary;
use crate::worker::ran::NodeListEncoder;
use crate::worker::region_layout::RegionLayout;
use crate::worker::{InlineWorker, Location, WorkerConfig};
use rand::rngs::StdRng;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use vireo_cluster::{CommandSender, HostReceiver, HostSender, Input};
use vireo_core::config::CoreConfig;
use vireo_ops::config::{NF_KINDS, OverloadConfig};
use vireo_ops::evicted_claims::EvictedClaims;
use vireo_ops::shared_record::DelegatedCommit;
use vireo_ops::supervisor::Supervisor;
use vireo_store::region::{Bell, Receiver, Region, Slot, Snapshot, Worker};
use vireo_subscribers::Udm;
use vireo_types::{AssocId, Bucket, Instant, Ltmsi};

/// State of the host thread.
#[derive(Debug)]
pub struct Host {
    /// Dropped before `udm`: its threads end only when none of their answers waits for room here.
    pub(super) inputs: HostReceiver,
    pub(super) input_sender: HostSender,
    pub(super) config: Arc<CoreConfig>,
    pub(super) ues: UeStore,
    pub(super) workers: WorkerPool,
    pub(super) events: EventQueues,
    pub(super) current: CurrentInput,
    pub(super) admission: Admission,
    pub(super) nodes: Nodes,
    pub(super) stale: Budgets,
    pub(super) udm: Udm,
    pub(super) rng: StdRng,
    pub(super) statistics: Statistics,
    /// True for UPFs with a PFCP association.
    pub(super) upfs: FxHashMap<SocketAddr, bool>,
    pub(super) egress: CommandSender,
    /// Decisions as cluster member, and about subscribers. Absent only while it acts.
    pub(super) machine: Option<Box<Machine>>,
    /// Only in a cluster.
    pub(super) cluster: Option<Box<Cluster>>,
    /// Only in the AMF of SBA mode.
    pub(super) smf: Option<SmfLink>,
    pub(super) persistence: Persistence,
    /// UEs of other hosts whose procedures this host serves.
    pub(super) guests: Guests,
}

/// The rings from a worker to the host.
#[derive(Debug)]
pub(super) struct WorkerRings {
    pub(super) number: u8,
    pub(super) pid: u32,
    pub(super) committed: Receiver,
    pub(super) returned: Receiver,
    pub(super) bell: Bell,
    /// True if the worker has received work and was not woken for it yet.
    pub(super) wake_pending: bool,
}

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
    pub(super) order: CommitOrder,
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
    /// Absent if this thread runs the steps.
    pub(super) supervisor: Option<Supervisor>,
    /// Worker on this thread. Absent while it runs, and with worker processes.
    pub(super) inline: Option<Box<InlineWorker>>,
    /// Rings of the running worker processes.
    pub(super) rings: Vec<WorkerRings>,
    /// UEs that wait because the queue of their NF was full.
    pub(super) unpushed: FxHashMap<NfId, VecDeque<Slot>>,
    /// Numbers of inputs returned by workers. A repeat after a worker's death is dropped.
    pub(super) returned: VecDeque<u64>,
    pub(super) location: Location,
    /// Configuration that is published to the workers.
    pub(super) instructions: WorkerConfig,
    /// RAN nodes that are published to the workers.
    pub(super) nodes: NodeListEncoder,
    pub(super) faults: Faults,
}

/// State of the fault handling.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// The worker whose records are being read.
    pub(super) worker: Option<u8>,
    /// Number of faults handled so far.
    pub(super) handled: u64,
    /// Time of the last replacement of all workers.
    pub(super) replaced: Option<Instant>,
}

/// Events of UEs that are to be delivered.
#[derive(Debug, Default)]
pub(super) struct EventQueues {
    /// Sequence number of the last event.
    pub(super) sequence: u64,
    /// Events that wait for room, and events that steps caused for other UEs, in order of delivery.
    pub(super) deferred: VecDeque<DeferredEvent>,
    /// Inputs that are sorted by slice.
    pub(super) waiting: InputQueues<Input>,
    /// Number of deferred events by UE. No later event of these UEs may overtake them.
    pub(super) deferred_count: FxHashMap<Slot, u32>,
    pub(super) unproved: UnprovedEvents<Slot>,
    pub(super) timers: Timers,
    /// New UEs in the order of their first message.
    pub(super) young: VecDeque<(Instant, Slot, Ltmsi)>,
    /// UEs whose RAN node is gone and that are not notified yet.
    pub(super) disconnected: Vec<(AssocId, Vec<Slot>)>,
    /// UPFs that lost their sessions, and the first slot whose UE is not notified yet.
    pub(super) lost: VecDeque<(SocketAddr, u32)>,
    /// Changes of subscribers that their UEs do not have yet.
    pub(super) changes: SubscriberChanges,
}

impl EventQueues {
    /// Creates empty queues for the latency objectives of [`InputQueues::set_objectives`].
    pub(super) fn new(objectives: &[[u64; NF_KINDS]]) -> Self {
        let mut queues = EventQueues::default();
        queues.waiting.set_objectives(objectives);
        queues
    }
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

/// Admission of new procedures, new UEs, path switches, service requests of EPS and SUCIs.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) overload: Overload,
    pub(super) half_open: HalfOpen,
    pub(super) path_switches: GuessLimit,
    /// SERVICE REQUESTs of EPS with a wrong MAC.
    pub(super) short_macs: GuessLimit,
    /// SUCIs that wait for the subscriber service.
    pub(super) concealed: FairQueue<ConcealedRequest>,
}

impl Admission {
    pub(super) fn new(config: OverloadConfig) -> Self {
        let half_open = HalfOpen::new(config.half_open);
        let (path_switches, short_macs) = (GuessLimit::default(), GuessLimit::default());
        let concealed = FairQueue::new();
        Admission { overload: Overload::new(config), half_open, path_switches, short_macs, concealed }
    }
}

/// Metrics of the host, and their sources.
#[derive(Debug)]
pub(super) struct Statistics {
    pub(super) step_metrics: StepMetrics,
    pub(super) totals: Totals,
    pub(super) ue_changes: UeChanges,
    pub(super) evicted_claims: EvictedClaims,
    pub(super) started: std::time::Instant,
    /// Time of the last update of the gauges.
    pub(super) updated: Instant,
}

impl Statistics {
    pub(super) fn new(step_metrics: StepMetrics, started: std::time::Instant) -> Self {
        Statistics {
            step_metrics,
            totals: Totals::default(),
            ue_changes: UeChanges::default(),
            evicted_claims: EvictedClaims::default(),
            started,
            updated: Instant::default(),
        }
    }
}

/// Contexts that outlive this process.
#[derive(Debug, Default)]
pub(super) struct Persistence {
    /// Contexts in a shared-memory file.
    pub(super) keep: Option<Box<Keep>>,
    pub(super) restoring: RestoringSessions,
    /// Only with contexts in a database.
    pub(super) renewal: Option<Renewal>,
}
