//! Bounds of the tables.

use crate::engine::buffer::BufferLimits;
use crate::engine::locking::Locking;

/// Bounds of the tables, and how writers and readers share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of tunnels, and of UEs with an address. Default 65,536; at most 2^24.
    pub records: usize,
    /// Limits of downlink buffering.
    pub buffer: BufferLimits,
    /// Number of modules. Each has a range of our TEIDs.
    pub modules: usize,
    /// Exclusion of packets and changes.
    pub locking: Locking,
    /// Approximate number of active users whose entries lie in the hot table. 0 = no hot table.
    pub hot_users: usize,
    /// Restricts the sources of a G-PDU to its session's downlink peer and [`crate::Access::ran`].
    pub own_peer_only: bool,
    /// Tunnels of an earlier run are being restored. Until [`Tables::restored`] unknown tunnels
    /// cause no Error Indication: RAN nodes would release the sessions.
    pub restoring: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            records: 65_536,
            buffer: BufferLimits::default(),
            modules: 1,
            locking: Locking::default(),
            hot_users: 0,
            own_peer_only: false,
            restoring: false,
        }
    }
}

impl Limits {
    /// Returns the number of entries, limited to the range of indexes.
    pub(crate) fn bounded(&self) -> usize {
        self.records.min(1 << 24)
    }
}
