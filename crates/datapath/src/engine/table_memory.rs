//! Memory of the tables.

use crate::engine::access::table::{self, Line};
use crate::engine::entry::{DownlinkEntry, UplinkEntry};
use crate::engine::flow_rules::cells::Cell;
use crate::engine::index::{self, Range};
use crate::engine::worker_slot::WorkerSlot;
use crate::sys::shared::Shared;
use std::sync::atomic::AtomicU32;

/// Memory of the entries and of the address index: private, or shared with the kernel program.
#[derive(Debug)]
pub(crate) struct TableMemory {
    pub(crate) uplinks: Shared<UplinkEntry>,
    pub(crate) downlinks: Shared<DownlinkEntry>,
    pub(crate) addresses: Shared<AtomicU32>,
    /// Empty if no kernel program reads the entries.
    pub(crate) cells: Shared<Cell>,
    /// Slots of worker processes. Empty if the workers are threads.
    pub(crate) worker_slots: Shared<WorkerSlot>,
    /// Address table with [`crate::engine::access::table::LINES`] lines.
    pub(crate) access: Shared<Line>,
}

impl TableMemory {
    /// Allocates memory of this process for `entries` entries of each direction.
    pub(crate) fn private(entries: usize, ranges: &[Range]) -> Self {
        TableMemory {
            uplinks: Shared::private(entries),
            downlinks: Shared::private(entries),
            addresses: Shared::private(index::entries(ranges)),
            cells: Shared::private(0),
            worker_slots: Shared::private(0),
            access: Shared::private(table::LINES),
        }
    }
}
