//! State of a configuration update.

use crate::amf::context::Retry;
use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// Configuration update in progress: the command was sent (T3555, T3450).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Updating {
    pub(super) retry: Retry,
    pub(super) started: Instant,
    /// The command has a new GUTI.
    pub(super) guti: bool,
    /// The command has the allowed and the configured NSSAI.
    pub(super) allowed: bool,
    /// The command has the tracking areas, and in 5G the service area.
    pub(super) areas: bool,
}

impl Updating {
    /// Returns the time of the next timer expiry.
    pub fn deadline(&self) -> Instant {
        self.retry.deadline
    }
}
