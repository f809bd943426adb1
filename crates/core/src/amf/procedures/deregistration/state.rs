//! State of a deregistration by the network.

use crate::amf::context::Retry;
use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// Deregistration by the network in progress: DEREGISTRATION REQUEST was sent (T3522).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregistering {
    pub(super) retry: Retry,
    pub(super) started: Instant,
    pub(super) reregister: bool,
    pub(super) cause: Option<u8>,
}

impl Deregistering {
    /// Returns true if the UE is to register or attach again.
    pub fn requests_registration(&self) -> bool {
        self.reregister
    }

    /// Returns the time of the next timer expiry.
    pub fn deadline(&self) -> Instant {
        self.retry.deadline
    }
}
