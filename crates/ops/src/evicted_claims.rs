//! Count and log of subscriber claims evicted before their expiry.
//!
//! The claims are those of `core::placement::replica::Claims`.

use crate::metrics::Metrics;
use vireo_core::placement::replica::Claims;
use vireo_types::{Duration, Instant};

/// Minimum interval of the log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Evicted claims that are not logged yet.
#[derive(Debug, Default)]
pub struct EvictedClaims {
    /// Time of the last log line.
    logged_at: Option<Instant>,
    count: u64,
}

impl EvictedClaims {
    /// Counts new evictions. Returns true if it logged them.
    pub fn update(&mut self, claims: &mut Claims, metrics: &Metrics, now: Instant) -> bool {
        let count = claims.take_evicted();
        metrics.claims_evicted(count);
        self.count += count;
        let logs = self.count > 0 && self.logged_at.is_none_or(|logged_at| now.since(logged_at) >= LOG_INTERVAL);
        if logs {
            self.logged_at = Some(now);
            let count = std::mem::take(&mut self.count);
            tracing::warn!(
                count,
                "subscriber claims evicted before expiry: a subscriber that registers at another host during a host \
                 failure may keep both contexts (see vireo_subscriber_claims_evicted_total)"
            );
        }
        logs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::placement::replica::Claim;
    use vireo_types::{Ltmsi, Supi};

    #[test]
    fn evicted_claims_are_counted_and_logged_seldom() {
        let (mut claims, metrics, mut evicted) = (Claims::default(), Metrics::new(), EvictedClaims::default());
        let counted = || metrics.render().lines().any(|line| line == "vireo_subscriber_claims_evicted_total 7");
        let begin = Instant(1_000_000);
        let mut number = 999_700_000_000_000_u64;
        let mut receive = |claims: &mut Claims, count: u64, at: Instant| {
            for _ in 0..count {
                number += 1;
                let supi = Supi::from_digits(&number.to_string()).unwrap();
                assert!(claims.on_remote_claim(Claim { supi, ue: Ltmsi::from_raw(1), at }, at));
            }
        };
        receive(&mut claims, 1 << 18, begin);
        assert!(!evicted.update(&mut claims, &metrics, begin), "there is room for these");
        for (count, after, logged_at) in [(4, 1, true), (2, 2, false), (0, 3, false), (1, 4, false)] {
            receive(&mut claims, count, begin + Duration::from_secs(after));
            assert_eq!(evicted.update(&mut claims, &metrics, begin + Duration::from_secs(after)), logged_at);
        }
        assert!(counted(), "{}", metrics.render());
        assert!(
            evicted.update(&mut claims, &metrics, begin + LOG_INTERVAL + Duration::from_secs(1)),
            "what was not logged_at before"
        );
        // Most claims have expired.
        let later = begin + Duration::from_secs(130);
        receive(&mut claims, 1, later);
        let logs = evicted.update(&mut claims, &metrics, later);
        assert!(!logs && counted(), "{logs} {}", metrics.render());
        receive(&mut claims, 1 << 18, later);
        assert!(evicted.update(&mut claims, &metrics, later), "a minute later again");
    }
}
