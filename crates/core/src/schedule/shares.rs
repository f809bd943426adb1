//! Which part of a core each NF has (seed 1): `P_i = SLO_min / SLO_i`, `C_i = P_i / sum P_j` over the *active* NFs, with
//! a limit for each slice. A violation raises an NF's priority a little; when that does not help, another NF does.

use vireo_types::Duration;

/// What a violation adds to a priority.
const BOOST: f64 = 0.01;
/// What all violations add to a priority at most: with as much again as the strictest objective gives, an NF that is late
/// still leaves the others something. Beyond, another NF is what helps.
const MOST_BOOST: f64 = 1.0;

/// What is known of an NF.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NfDemand {
    /// The latency objective of its (slice, procedure).
    pub slo: Duration,
    /// Violations since the last scaling.
    pub violations: u32,
    /// Whether it has work.
    pub active: bool,
    /// Its slice, as an index into the limits.
    pub slice: usize,
}

impl NfDemand {
    /// `P_i`, where `least` is the strictest objective, raised by violations.
    pub fn priority(&self, least: Duration) -> f64 {
        let ratio = least.as_micros().max(1) as f64 / self.slo.as_micros().max(1) as f64;
        ratio + (f64::from(self.violations) * BOOST).min(MOST_BOOST)
    }
}

/// The shares of NFs that have one core together, in the order of their claims: an NF without work has none, the others
/// make up one core or what the limits of their slices leave of it.
///
/// `limits`: the largest part of the core that each slice may have, 1.0 if it is not there. What a limited slice may not
/// have goes to the others in proportion.
pub fn shares(claims: &[NfDemand], limits: &[f64]) -> Vec<f64> {
    let least = claims.iter().filter(|c| c.active).map(|c| c.slo).min().unwrap_or_default();
    let mut shares: Vec<f64> = claims.iter().map(|c| if c.active { c.priority(least) } else { 0.0 }).collect();
    let slices = claims.iter().map(|c| c.slice + 1).max().unwrap_or(0);
    let limit = |slice: usize| limits.get(slice).copied().unwrap_or(1.0).clamp(0.0, 1.0);
    let mut capped = vec![false; slices];
    // Each round caps one slice more: at most as many rounds as slices.
    loop {
        let free: f64 = 1.0 - (0..slices).filter(|s| capped[*s]).map(limit).sum::<f64>();
        let open: f64 = claims.iter().zip(&shares).filter(|(c, _)| !capped[c.slice]).map(|(_, s)| s).sum();
        let of = |slice: usize, shares: &[f64]| -> f64 {
            claims.iter().zip(shares).filter(|(c, _)| c.slice == slice).map(|(_, s)| s).sum()
        };
        let over = (0..slices).find(|s| {
            let total = of(*s, &shares);
            !capped[*s] && total > 0.0 && total / open * free.max(0.0) > limit(*s) + 1e-12
        });
        match over {
            Some(slice) => {
                let total = of(slice, &shares);
                for (c, share) in claims.iter().zip(&mut shares).filter(|(c, _)| c.slice == slice) {
                    debug_assert_eq!(c.slice, slice);
                    *share *= limit(slice) / total;
                }
                capped[slice] = true;
            }
            None => {
                if open > 0.0 {
                    for (_, share) in claims.iter().zip(&mut shares).filter(|(c, _)| !capped[c.slice]) {
                        *share *= free.max(0.0) / open;
                    }
                }
                return shares;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(slo_ms: u64, active: bool, slice: usize) -> NfDemand {
        NfDemand { slo: Duration::from_millis(slo_ms), violations: 0, active, slice }
    }

    fn close(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
    }

    #[test]
    fn the_papers_example() {
        let both = shares(&[claim(5, true, 0), claim(10, true, 0)], &[]);
        assert!(close(&both, &[2.0 / 3.0, 1.0 / 3.0]), "{both:?}");
        let one = shares(&[claim(5, false, 0), claim(10, true, 0)], &[]);
        assert!(close(&one, &[0.0, 1.0]), "an idle NF leaves its part to the others: {one:?}");
        assert!(close(&shares(&[], &[]), &[]) && close(&shares(&[claim(5, false, 0)], &[]), &[0.0]));
    }

    #[test]
    fn violations_raise_a_priority() {
        let mut claims = [claim(10, true, 0), claim(10, true, 0)];
        claims[0].violations = 10;
        let shares = shares(&claims, &[]);
        assert!(close(&shares, &[1.1 / 2.1, 1.0 / 2.1]), "{shares:?}");
        claims[0].violations = 1_000_000;
        let shares = self::shares(&claims, &[]);
        assert!(close(&shares, &[2.0 / 3.0, 1.0 / 3.0]), "not without end: {shares:?}");
    }

    #[test]
    fn a_limited_slice_leaves_the_rest_to_the_others() {
        let claims = [claim(5, true, 0), claim(5, true, 0), claim(5, true, 1), claim(10, true, 2)];
        let limited = shares(&claims, &[0.25]);
        assert!(close(&limited, &[0.125, 0.125, 0.5, 0.25]), "{limited:?}");
        let all = shares(&claims, &[0.1, 0.2, 0.3]);
        assert!(close(&all, &[0.05, 0.05, 0.2, 0.3]), "limits hold although a part of the core stays free: {all:?}");
    }
}
