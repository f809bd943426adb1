//! CPU time of a procedure that a replica serves.

/// CPU time of a procedure that a replica serves, as parts of that of a procedure that the owner
/// serves.
///
/// The defaults are the limits that `vireo bench cluster` marks: 15% more CPU time in all, and 40%
/// of a procedure at the owner. A measurement within the marks costs less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServingCost {
    /// CPU time of both hosts.
    pub total: f64,
    /// CPU time of the owner, which judges and commits the proposal.
    pub owner: f64,
}

impl Default for ServingCost {
    fn default() -> Self {
        ServingCost { total: 1.15, owner: 0.4 }
    }
}

impl ServingCost {
    /// Returns the CPU time of the serving host.
    pub(super) fn serving_host(self) -> f64 {
        (self.total - self.owner).max(0.0)
    }
}
