//! State of the overload control.

use rustc_hash::FxHashMap;
use vireo_core::schedule::shed::{OverloadAction, OverloadLevel};
use vireo_ops::config::OverloadConfig;
use vireo_types::{AssocId, Duration};

/// State of the overload control.
#[derive(Debug)]
pub(in crate::host) struct Overload {
    pub(super) config: OverloadConfig,
    pub(in crate::host) level: OverloadLevel,
    /// Action requested from all RAN nodes.
    pub(super) requested: Option<OverloadAction>,
    /// RAN nodes with a request of their own: their new UEs wait too long.
    pub(super) crowded: FxHashMap<AssocId, OverloadAction>,
    /// Number of rejected first messages.
    pub(in crate::host) refused: u64,
}

impl Overload {
    pub(in crate::host) fn new(config: OverloadConfig) -> Self {
        Overload { config, level: OverloadLevel::Normal, requested: None, crowded: FxHashMap::default(), refused: 0 }
    }

    /// Returns true if the fill level must be checked again soon.
    pub(in crate::host) fn is_on(&self) -> bool {
        self.requested.is_some() || self.level != OverloadLevel::Normal || !self.crowded.is_empty()
    }

    /// Returns a waiting time as a fraction of `overload.wait`.
    pub(in crate::host) fn part_of_wait(&self, wait: Duration) -> f64 {
        wait.as_micros() as f64 / self.config.wait.as_micros().max(1) as f64
    }

    /// Returns the fraction of `overload.wait` at which registrations are rejected.
    pub(in crate::host) fn registrations(&self) -> f64 {
        self.config.registrations
    }
}
