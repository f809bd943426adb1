//! Count and log of subscriber claims evicted before their expiry.
//!
//! The claims are those of `core::placement::replica::Claims`.

use crate::metrics::Metrics;
use vireo_core::placement::replica::Claims;
use vireo_types::{Duration, Instant};

/// Minimum interval of the log lines.
const SAID: Duration = Duration::from_secs(60);

/// Evicted claims that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct EvictedClaims {
    /// Time of the last log line.
    said: Option<Instant>,
    count: u64,
}

impl EvictedClaims {
    /// Counts new evictions. Returns true if it logged them.
    pub(crate) fn look(&mut self, claims: &mut Claims, metrics: &Metrics, now: Instant) -> bool {
        let count = claims.forgotten_early();
        metrics.claims_forgotten(count);
        self.count += count;
        let says = self.count > 0 && self.said.is_none_or(|said| now.since(said) >= SAID);
        if says {
            self.said = Some(now);
            let count = std::mem::take(&mut self.count);
            tracing::warn!(
                count,
                "more subscribers register than whose last host can be known: of one who registers at another host while hosts fail \
                 both contexts may stay (see vireo_subscriber_claims_evicted_total)"
            );
        }
        says
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::placement::replica::Claim;
    use vireo_types::{Ltmsi, Supi};

    #[test]
    fn what_is_forgotten_is_counted_and_said_once_a_minute() {
        let (mut claims, metrics, mut forgotten) = (Claims::default(), Metrics::new(), EvictedClaims::default());
        let counted = || metrics.render().lines().any(|line| line == "vireo_subscriber_claims_evicted_total 7");
        let begin = Instant(1_000_000);
        let mut number = 999_700_000_000_000_u64;
        let mut hear = |claims: &mut Claims, count: u64, at: Instant| {
            for _ in 0..count {
                number += 1;
                let supi = Supi::from_digits(&number.to_string()).unwrap();
                assert!(claims.on_remote_claim(Claim { supi, ue: Ltmsi::from_raw(1), at }, at));
            }
        };
        hear(&mut claims, 1 << 18, begin);
        assert!(!forgotten.look(&mut claims, &metrics, begin), "there is room for these");
        for (count, after, said) in [(4, 1, true), (2, 2, false), (0, 3, false), (1, 4, false)] {
            hear(&mut claims, count, begin + Duration::from_secs(after));
            assert_eq!(forgotten.look(&mut claims, &metrics, begin + Duration::from_secs(after)), said);
        }
        assert!(counted(), "{}", metrics.render());
        assert!(
            forgotten.look(&mut claims, &metrics, begin + SAID + Duration::from_secs(1)),
            "what was not said before"
        );
        // Most claims have expired.
        let later = begin + Duration::from_secs(130);
        hear(&mut claims, 1, later);
        let says = forgotten.look(&mut claims, &metrics, later);
        assert!(!says && counted(), "{says} {}", metrics.render());
        hear(&mut claims, 1 << 18, later);
        assert!(forgotten.look(&mut claims, &metrics, later), "a minute later again");
    }
}
