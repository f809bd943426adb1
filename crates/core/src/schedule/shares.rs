//! Shares of a core for NFs (seed 1).
//!
//! `P_i = SLO_min / SLO_i`, `C_i = P_i / sum P_j` over the *active* NFs, with a limit for each
//! slice. A violation raises the priority of an NF a little. If that is not enough, another NF is
//! added.

use vireo_types::Duration;

/// Increase of the priority per violation.
const BOOST: f64 = 0.01;
/// Maximum increase of the priority by violations. It equals the priority of the strictest
/// objective, so that a late NF leaves time for the others. Beyond it, only another NF helps.
const MOST_BOOST: f64 = 1.0;

/// Inputs of one NF's share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NfDemand {
    /// SLO of its slice and kind of procedure.
    pub slo: Duration,
    /// Violations since the last scaling decision.
    pub violations: u32,
    /// True if the NF has work.
    pub active: bool,
    /// Index of its slice in the limits.
    pub slice: usize,
}

impl NfDemand {
    /// Returns `P_i`, raised by violations. `least` is the strictest SLO of the active NFs.
    pub fn priority(&self, least: Duration) -> f64 {
        let ratio = least.as_micros().max(1) as f64 / self.slo.as_micros().max(1) as f64;
        ratio + (f64::from(self.violations) * BOOST).min(MOST_BOOST)
    }
}

/// Returns the shares of the NFs of one core, in the order of `claims`. An NF without work has
/// none; the others add up to one core, or to what the limits of their slices allow.
///
/// `limits` has the largest part of the core of each slice; 1.0 if absent. The others receive what
/// a limited slice may not use, in proportion.
pub fn shares(claims: &[NfDemand], limits: &[f64]) -> Vec<f64> {
    let least = claims.iter().filter(|c| c.active).map(|c| c.slo).min().unwrap_or_default();
    let mut shares: Vec<f64> = claims.iter().map(|c| if c.active { c.priority(least) } else { 0.0 }).collect();
    let slices = claims.iter().map(|c| c.slice + 1).max().unwrap_or(0);
    let limit = |slice: usize| limits.get(slice).copied().unwrap_or(1.0).clamp(0.0, 1.0);
    let mut capped = vec![false; slices];
    // Each round caps one more slice, so that there are at most as many rounds as slices.
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
    fn shares_match_paper_example() {
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
    fn limited_slice_leaves_rest_to_others() {
        let claims = [claim(5, true, 0), claim(5, true, 0), claim(5, true, 1), claim(10, true, 2)];
        let limited = shares(&claims, &[0.25]);
        assert!(close(&limited, &[0.125, 0.125, 0.5, 0.25]), "{limited:?}");
        let all = shares(&claims, &[0.1, 0.2, 0.3]);
        assert!(close(&all, &[0.05, 0.05, 0.2, 0.3]), "limits hold although a part of the core stays free: {all:?}");
    }
}
