//! Budget of what a RAN node is sent for other RAN nodes.

use vireo_types::Instant;

/// Octets that a RAN node is sent for others: sustained rate per second, and burst. A message has
/// some hundred, and a RAN node sends one for each neighbour that it finds.
const PER_SECOND: u64 = 256 << 10;
const BURST: u64 = 1 << 20;

/// Octets that a RAN node may be sent for others now. Without a limit, one RAN node could send
/// another one more than it can read, and thereby end its association.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelayBudget {
    remaining: u64,
    /// Time of the last update of `remaining`.
    at: Instant,
}

impl Default for RelayBudget {
    fn default() -> Self {
        RelayBudget { remaining: BURST, at: Instant::default() }
    }
}

impl RelayBudget {
    /// Returns true if the RAN node may be sent this number of octets.
    pub(super) fn spend(&mut self, octets: usize, now: Instant) -> bool {
        let earned = now.since(self.at).as_micros().saturating_mul(PER_SECOND) / 1_000_000;
        if earned > 0 {
            (self.remaining, self.at) = (self.remaining.saturating_add(earned).min(BURST), now);
        }
        let Some(remaining) = self.remaining.checked_sub(octets as u64) else { return false };
        self.remaining = remaining;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_earned_again() {
        let (mut budget, start) = (RelayBudget::default(), Instant(7_000_000));
        let sent = |budget: &mut RelayBudget, now| (0..100).filter(|_| budget.spend(64 << 10, now)).count();
        assert_eq!(sent(&mut budget, start), 16);
        assert_eq!(sent(&mut budget, Instant(start.0 + 1_000_000)), 4);
        // Continuous messages earn the rate per second.
        let steps = (1..=1_000_000).map(|n| Instant(start.0 + 1_000_000 + 2 * n));
        let octets: usize = steps.filter(|now| budget.spend(1 << 10, *now)).count() << 10;
        assert!((400 << 10..=512 << 10).contains(&octets), "{octets}");
        assert_eq!(sent(&mut budget, Instant(start.0 + 100_000_000)), 16);
    }
}
