//! Entries in write sections of the change in progress.

use std::collections::HashSet;

/// An entry in a write section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UnsettledEntry {
    Uplink(u32),
    Downlink(u32),
}

/// Write sections of the change in progress.
#[derive(Debug, Default)]
pub(super) struct WriteSections {
    /// Entries whose write section ends with the change. May contain repeats.
    pub(super) changed: Vec<UnsettledEntry>,
    /// Changed entries that no packet uses until the end of the change.
    pub(super) paused: HashSet<UnsettledEntry>,
}
