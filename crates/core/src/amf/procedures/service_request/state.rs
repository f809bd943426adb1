//! State of a service request.

use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// Contents of SERVICE REQUEST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Sessions with uplink data, one bit each.
    pub uplink_data: u16,
    /// Sessions that the UE has, one bit each; `None` if the IE is absent.
    pub session_status: Option<u16>,
}

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
