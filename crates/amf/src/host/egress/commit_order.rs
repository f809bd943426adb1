//! Order in which the commit records of a UE are emitted.

use vireo_store::Version;
use vireo_store::region::{Buffer, Slot, next_version};

/// Order in which commit records are emitted. The records of a UE come from several workers, each
/// with its own ring, and the host may read the later one first.
#[derive(Debug, Default)]
pub(in crate::host) struct CommitOrder {
    /// Version of the last emitted record by slot, or of the removal of its context.
    last: Vec<Version>,
    /// Records read before their predecessors.
    pub(super) early: Vec<Buffer>,
}

impl CommitOrder {
    pub(in crate::host) fn last(&mut self, slot: Slot) -> &mut Version {
        let at = slot.number() as usize;
        if at >= self.last.len() {
            self.last.resize(at + 1, 0);
        }
        &mut self.last[at]
    }

    /// Returns the version of the last emitted record of a slot.
    pub(in crate::host) fn last_of(&self, slot: Slot) -> Version {
        self.last.get(slot.number() as usize).copied().unwrap_or_default()
    }

    /// Returns true if all records before this version were emitted.
    pub(in crate::host) fn is_next(&mut self, slot: Slot, version: Version) -> bool {
        next_version(*self.last(slot)) == version
    }
}
