//! Metrics of the cluster controller: weights of hosts and their changes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const COUNT: &str = "vireo_rebalances_total";
const WEIGHT: &str = "vireo_host_weight";

/// Weights of the hosts in the cluster map, and the number of their changes. A host that has left
/// has no series any more: host IDs are not reused, and the recorder never removes a series.
#[derive(Debug, Default)]
pub struct Rebalancing {
    count: AtomicU64,
    weights: Mutex<BTreeMap<u16, f64>>,
}

impl Rebalancing {
    /// Counts a change of weights by load: `vireo_rebalances_total`.
    pub fn rebalanced(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the weights of all hosts: `vireo_host_weight{host}`.
    pub fn set_weights(&self, weights: impl IntoIterator<Item = (u16, f64)>) {
        let mut own = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        *own = weights.into_iter().collect();
    }

    pub(super) fn render(&self, text: &mut String) {
        let count = self.count.load(Ordering::Relaxed);
        text.push_str("# HELP vireo_rebalances_total Changes of host weights by load.\n");
        // Writing to a string does not fail.
        let _ = writeln!(text, "# TYPE {COUNT} counter\n{COUNT} {count}");
        let weights = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str("# HELP vireo_host_weight Weight of a host in the placement of buckets; 1 by default.\n");
        let _ = writeln!(text, "# TYPE {WEIGHT} gauge");
        for (host, weight) in weights.iter() {
            let _ = writeln!(text, "{WEIGHT}{{host=\"{host}\"}} {weight}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departed_host_has_no_weight() {
        let rebalancing = Rebalancing::default();
        rebalancing.set_weights([(0, 1.0), (3, 0.75)]);
        rebalancing.rebalanced();
        rebalancing.set_weights([(3, 1.25), (4, 1.0)]);
        let mut text = String::new();
        rebalancing.render(&mut text);
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let weights = ["vireo_host_weight{host=\"3\"} 1.25", "vireo_host_weight{host=\"4\"} 1"];
        assert_eq!(series, ["vireo_rebalances_total 1", weights[0], weights[1]], "{text}");
    }
}
