//! State of a service request.

use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// Accepted service request; the response of the RAN is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRequestPending {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
}

impl ServiceRequestPending {
    /// Returns the time at which the service request fails.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}
