//! Budgets of UE Context Release Commands by RAN node.

use rustc_hash::FxHashMap;
use vireo_types::{AssocId, Instant};

/// Commands to one RAN node: sustained rate per second, and burst. All UEs of a large cell return
/// within seconds.
const PER_SECOND: u64 = 1000;

/// Budget of each RAN node.
#[derive(Debug, Default)]
pub(in crate::host) struct Budgets(FxHashMap<AssocId, Budget>);

/// Number of commands that a RAN node may be sent now.
#[derive(Clone, Copy, Debug)]
struct Budget {
    remaining: u64,
    /// Time of the last update of `remaining`.
    at: Instant,
}

impl Budgets {
    /// Returns true if the RAN node may be sent one more command.
    pub(super) fn spend(&mut self, node: AssocId, now: Instant) -> bool {
        let Budget { remaining, at } = self.0.entry(node).or_insert(Budget { remaining: PER_SECOND, at: now });
        let earned = now.since(*at).as_micros() / (1_000_000 / PER_SECOND);
        if earned > 0 {
            (*remaining, *at) = ((*remaining + earned).min(PER_SECOND), now);
        }
        let may = *remaining > 0;
        *remaining = remaining.saturating_sub(1);
        may
    }

    /// Removes RAN nodes that are gone.
    pub(in crate::host) fn retain(&mut self, is_there: impl Fn(AssocId) -> bool) {
        self.0.retain(|node, _| is_there(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_limits_one_node_and_not_others() {
        let (mut budgets, mut now) = (Budgets::default(), Instant(7));
        let sent = |budgets: &mut Budgets, node: u32, now: Instant| {
            (0..3 * PER_SECOND).filter(|_| budgets.spend(AssocId(node), now)).count() as u64
        };
        assert_eq!(sent(&mut budgets, 1, now), PER_SECOND);
        assert_eq!(sent(&mut budgets, 2, now), PER_SECOND);
        now = Instant(now.0 + 10_500);
        assert_eq!(sent(&mut budgets, 1, now), 10);
        // Continuous requests earn the rate per second.
        let earned = (1..=1000).filter(|n| budgets.spend(AssocId(1), Instant(now.0 + n * 1000))).count();
        assert_eq!(earned, 1000);
        budgets.retain(|node| node == AssocId(1));
        assert_eq!(budgets.0.len(), 1);
    }
}
