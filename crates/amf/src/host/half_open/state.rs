//! State of the half-open UEs, and of new UEs that wait.

use super::table::HalfOpenTable;
use crate::host::fair_queue::FairQueue;
use crate::host::origin::origin;
use crate::host::ran_table::Nodes;
use crate::worker::outbox::Summary;
use vireo_core::amf::n2::ShallowView;
use vireo_ops::clock::clock;
use vireo_ops::config::HalfOpenConfig;
use vireo_store::region::Slot;
use vireo_types::{AssocId, Bucket, Duration, Instant};

/// Maximum number of first steps of new UEs in the queues of NFs.
const STEPS: usize = 64;
/// A first step that takes longer delays no other new UE, for example because its worker died.
const FIRST_STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// The half-open UEs of a host.
#[derive(Debug)]
pub(in crate::host) struct HalfOpen {
    pub(super) table: HalfOpenTable,
    /// New UEs that wait for their first step.
    pub(super) waiting: FairQueue<Newcomer>,
    pub(super) first_steps: FirstSteps,
    /// Numbers of evicted UEs, and of UEs rejected for lack of room, since the last log line.
    pub(super) evicted: u64,
    pub(super) refused: u64,
    pub(super) logged: Instant,
    /// Time of the last count of a full region.
    pub(super) recounted: Instant,
}

impl HalfOpen {
    pub(in crate::host) fn new(config: HalfOpenConfig) -> Self {
        let (table, waiting, first_steps) = (HalfOpenTable::new(config), FairQueue::new(), FirstSteps::default());
        let (logged, recounted) = (Instant::default(), Instant::default());
        HalfOpen { table, waiting, first_steps, evicted: 0, refused: 0, logged, recounted }
    }

    /// Removes a UE whose context is gone.
    pub(in crate::host) fn remove(&mut self, slot: Slot) {
        self.table.remove(slot);
    }

    /// Applies a commit of a UE.
    pub(in crate::host) fn on_commit(
        &mut self,
        nodes: &Nodes,
        slot: Slot,
        before: Option<Summary>,
        after: Option<Summary>,
    ) {
        match after {
            Some(after) if after.known => {
                if before.is_none_or(|before| !before.known) {
                    self.table.remove(slot);
                }
            }
            Some(after) => {
                if let Some((node, _)) = after.connection {
                    self.table.enter(slot, origin(nodes, node), clock());
                }
            }
            None => self.table.remove(slot),
        }
    }
}

/// A new UE that waits.
#[derive(Debug)]
pub(in crate::host) struct Newcomer {
    pub(super) by: AssocId,
    pub(super) node: AssocId,
    pub(super) view: ShallowView,
    pub(super) pdu: Vec<u8>,
    /// Balancer's number of the input; 0 = none.
    pub(super) number: u64,
    pub(super) bucket: Option<Bucket>,
    pub(super) at: Instant,
}

/// First steps that are queued at NFs.
#[derive(Debug, Default)]
pub(super) struct FirstSteps(Vec<(Instant, Slot)>);

impl FirstSteps {
    pub(super) fn push(&mut self, slot: Slot, now: Instant) {
        self.0.push((now, slot));
    }

    /// Returns true if another first step may be queued. `is_done` returns true if the UE of a slot
    /// has no pending event.
    pub(super) fn has_room(&mut self, now: Instant, is_done: impl Fn(Slot) -> bool) -> bool {
        if self.0.len() >= STEPS {
            self.0.retain(|(at, slot)| now.since(*at) < FIRST_STEP_TIMEOUT && !is_done(*slot));
        }
        self.0.len() < STEPS
    }
}
