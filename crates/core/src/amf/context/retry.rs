//! Retransmission timer of a NAS message.

use serde::{Deserialize, Serialize};
use vireo_types::{Duration, Instant};

/// Retransmission timer as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Time of the next retransmission.
    pub deadline: Instant,
    /// Number of retransmissions so far.
    pub repeats: u8,
}

impl Retry {
    /// Starts the timer with the first transmission at `now`.
    pub fn start(now: Instant, period: Duration) -> Self {
        Retry { deadline: now + period, repeats: 0 }
    }

    /// Returns the timer of the next transmission; `None` after `limit` retransmissions.
    pub fn next(self, now: Instant, period: Duration, limit: u8) -> Option<Self> {
        (self.repeats < limit).then(|| Retry { deadline: now + period, repeats: self.repeats + 1 })
    }
}
