//! NG Setups that wait until the RAN node with their identity answers a probe.

use vireo_types::{AssocId, GnbId, Instant};

/// A deferred NG Setup.
#[derive(Debug)]
pub(super) struct Contest {
    /// The association that sent the NG Setup.
    pub(super) assoc: AssocId,
    pub(super) id: GnbId,
    pub(super) pdu: Vec<u8>,
    /// The RAN node that has the identity.
    pub(super) node: AssocId,
    /// Times of the next probe and of the decision.
    pub(super) next: Instant,
    pub(super) deadline: Instant,
}

/// All deferred NG Setups, at most one per association.
#[derive(Debug, Default)]
pub(in crate::host) struct Contests(pub(super) Vec<Contest>);

impl Contests {
    /// Returns the time of the next probe or decision.
    pub(in crate::host) fn due(&self) -> Option<Instant> {
        self.0.iter().map(|contest| contest.next.min(contest.deadline)).min()
    }
}
