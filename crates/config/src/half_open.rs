//! `[half-open]`: limits of UEs that are not authenticated yet.

use crate::problems::Problems;
use crate::values::DurationText;
use serde::{Deserialize, Serialize};
use vireo_ops::config::HalfOpenConfig;
use vireo_types::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HalfOpen {
    max_ues: usize,
    max_ues_per_address: usize,
    max_ues_per_node: usize,
    min_age: DurationText,
}

impl Default for HalfOpen {
    fn default() -> Self {
        let HalfOpenConfig { ues, ues_per_address, ues_per_node, min_age } = HalfOpenConfig::default();
        let min_age = DurationText(min_age.into());
        HalfOpen { max_ues: ues, max_ues_per_address: ues_per_address, max_ues_per_node: ues_per_node, min_age }
    }
}

impl HalfOpen {
    /// Checks the ranges.
    pub(super) fn check(self, problems: &mut Problems) -> HalfOpenConfig {
        let HalfOpen { max_ues, max_ues_per_address, max_ues_per_node, min_age: DurationText(min_age) } = self;
        for (key, limit) in [
            ("half-open.max-ues", max_ues),
            ("half-open.max-ues-per-address", max_ues_per_address),
            ("half-open.max-ues-per-node", max_ues_per_node),
        ] {
            problems.check((1..=1_000_000).contains(&limit), key, "1 to 1000000 is allowed");
        }
        let good = (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&min_age);
        problems.check(good, "half-open.min-age", "100ms to 60s is allowed");
        let (ues_per_address, ues_per_node) = (max_ues_per_address, max_ues_per_node);
        HalfOpenConfig { ues: max_ues, ues_per_address, ues_per_node, min_age: min_age.into() }
    }
}
