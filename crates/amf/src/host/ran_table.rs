//! Types of the host's table of RAN nodes.

use vireo_core::placement::ran_nodes::{RanNodeEntry, RanNodeTable};
use vireo_store::region::Slot;

/// All associations and RAN nodes.
pub(super) type Nodes = RanNodeTable<Slot>;
pub(super) type Node = RanNodeEntry<Slot>;
