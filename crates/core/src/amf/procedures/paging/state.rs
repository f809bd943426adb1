//! State of paging.

use crate::amf::context::Retry;
use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// Paging in progress (T3513).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paging {
    pub(super) retry: Retry,
    pub(super) started: Instant,
}

impl Paging {
    /// Returns the time of the next timer expiry.
    pub fn deadline(&self) -> Instant {
        self.retry.deadline
    }
}
