//! Rings from a worker to its host.

use super::region_layout::{HOST, RegionLayout};
use vireo_store::region::{Bell, Region, Sender};

/// Number of items per wake-up of the host while the worker has more to do.
const ITEMS_PER_WAKEUP: u32 = 8;

/// Rings that the host reads, and its bell.
pub(super) struct HostRings {
    committed: Sender,
    returned: Sender,
    bell: Bell,
    /// Number of items posted since the last wake-up of the host.
    unannounced: u32,
}

impl HostRings {
    /// Opens the rings of a worker.
    ///
    /// # Panics
    ///
    /// Panics if the region was created for fewer workers.
    pub(super) fn new(region: &Region, plan: RegionLayout, worker: u8) -> Self {
        let sender = |ring| region.sender(ring).expect("the region has rings for all its workers");
        let (committed, returned) = (sender(plan.commit_ring(worker)), sender(plan.return_ring(worker)));
        HostRings { committed, returned, bell: plan.bell(region, HOST), unannounced: 0 }
    }

    /// Posts an item of commits or of returned packets. Returns false if the ring is full, after a
    /// wake-up of the host.
    pub(super) fn try_push(&mut self, is_commit: bool, item: u64) -> bool {
        let ring = if is_commit { &mut self.committed } else { &mut self.returned };
        if ring.push(item).is_err() {
            self.bell.ring();
            return false;
        }
        self.unannounced += 1;
        if self.unannounced >= ITEMS_PER_WAKEUP {
            self.wake();
        }
        true
    }

    /// Wakes the host for posted items.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.unannounced) > 0 {
            self.bell.ring();
        }
    }
}
