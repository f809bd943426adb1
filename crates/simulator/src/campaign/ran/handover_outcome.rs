//! Outcome of a handover between 4G and 5G.

use super::dialect::PreparedTarget;

/// Outcome of a handover after the preparation of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandoverOutcome {
    Arrives,
    TargetRefuses,
    SourceCancels,
    RadioLinkLost,
}

/// Handover of a UE to the other system, until the UE leaves its source.
#[derive(Debug)]
pub(super) struct Move {
    /// Number of the target.
    pub(super) to: usize,
    pub(super) outcome: HandoverOutcome,
    pub(super) prepared: Option<PreparedTarget>,
}
