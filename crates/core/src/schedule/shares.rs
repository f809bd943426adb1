//! Shares of a core for NFs (MMLite).
//!
//! `P_i = SLO_min / SLO_i`, `C_i = P_i / sum P_j` over the *active* NFs, with limits for each
//! slice. A violation raises the priority of an NF a little. If that is not enough, another NF is
//! added.

use vireo_types::Duration;

/// Increase of the priority per violation.
const BOOST: f64 = 0.01;
/// Maximum increase of the priority by violations. It equals the priority of the strictest
/// objective, so that a late NF leaves time for the others. Beyond it, only another NF helps.
const MAX_BOOST: f64 = 1.0;

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
        ratio + (f64::from(self.violations) * BOOST).min(MAX_BOOST)
    }
}

/// Limits of the part of a core that the NFs of a slice have together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareLimits {
    /// Lower limit while one of them has work.
    pub lower: f64,
    /// Limit that holds although a part of the core stays free.
    pub upper: f64,
}

impl Default for ShareLimits {
    fn default() -> Self {
        ShareLimits { lower: 0.0, upper: 1.0 }
    }
}

/// Returns the shares of the NFs of one core, in the order of `claims`. An NF without work has
/// none; the others add up to one core, or to what the limits of their slices allow.
///
/// `limits` has those of each slice. What a slice may not use goes to the others, and what it must
/// have comes from them, in proportion.
pub fn shares(claims: &[NfDemand], limits: &[ShareLimits]) -> Vec<f64> {
    let least = claims.iter().filter(|c| c.active).map(|c| c.slo).min().unwrap_or_default();
    let priorities: Vec<f64> = claims.iter().map(|c| if c.active { c.priority(least) } else { 0.0 }).collect();
    let mut weights = vec![0.0; claims.iter().map(|c| c.slice + 1).max().unwrap_or(0)];
    claims.iter().zip(&priorities).for_each(|(c, priority)| weights[c.slice] += priority);
    let totals = slice_shares(&weights, limits);
    let part = |(c, priority): (&NfDemand, f64)| match weights[c.slice] > 0.0 {
        true => totals[c.slice] * priority / weights[c.slice],
        false => 0.0,
    };
    claims.iter().zip(priorities).map(part).collect()
}

/// Returns the share of each slice: in proportion to its weight, within its limits.
///
/// Each round fixes the slices beyond the limit that moves more of the core, so that there are at
/// most as many rounds as slices.
fn slice_shares(weights: &[f64], limits: &[ShareLimits]) -> Vec<f64> {
    let mut fixed: Vec<Option<f64>> = weights.iter().map(|weight| (*weight <= 0.0).then_some(0.0)).collect();
    loop {
        let free = (1.0 - fixed.iter().flatten().sum::<f64>()).max(0.0);
        let open: f64 = weights.iter().zip(&fixed).filter(|(_, fixed)| fixed.is_none()).map(|(w, _)| w).sum();
        let fair = |slice: usize| weights[slice] / open * free;
        let within = |slice: usize| {
            let ShareLimits { lower, upper } = limits.get(slice).copied().unwrap_or_default();
            let upper = upper.clamp(0.0, 1.0);
            fair(slice).clamp(lower.clamp(0.0, upper), upper)
        };
        let beyond: Vec<usize> = (0..weights.len())
            .filter(|slice| fixed[*slice].is_none() && (within(*slice) - fair(*slice)).abs() > 1e-12)
            .collect();
        if beyond.is_empty() {
            return (0..weights.len()).map(|slice| fixed[slice].unwrap_or_else(|| fair(slice))).collect();
        }
        let moved: f64 = beyond.iter().map(|slice| within(*slice) - fair(*slice)).sum();
        let decided: Vec<(usize, f64)> = beyond
            .into_iter()
            .map(|slice| (slice, within(slice)))
            .filter(|(slice, share)| (share - fair(*slice)) * moved >= 0.0)
            .collect();
        decided.into_iter().for_each(|(slice, share)| fixed[slice] = Some(share));
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
        let upper = |upper: f64| ShareLimits { upper, ..ShareLimits::default() };
        let limited = shares(&claims, &[upper(0.25)]);
        assert!(close(&limited, &[0.125, 0.125, 0.5, 0.25]), "{limited:?}");
        let all = shares(&claims, &[0.1, 0.2, 0.3].map(upper));
        assert!(close(&all, &[0.05, 0.05, 0.2, 0.3]), "limits hold although a part of the core stays free: {all:?}");
    }

    #[test]
    fn slice_has_at_least_its_lower_limit() {
        let lower = |lower: f64| ShareLimits { lower, ..ShareLimits::default() };
        let claims = [claim(5, true, 0), claim(5, true, 1), claim(100, true, 2)];
        let guaranteed = shares(&claims, &[lower(0.0), lower(0.0), lower(0.2)]);
        assert!(close(&guaranteed, &[0.4, 0.4, 0.2]), "the others give in proportion: {guaranteed:?}");
        let idle = [claim(5, true, 0), claim(5, true, 1), claim(100, false, 2)];
        assert!(close(&shares(&idle, &[lower(0.0), lower(0.0), lower(0.2)]), &[0.5, 0.5, 0.0]), "not without work");
        // The upper limit of one slice and the lower limit of another.
        let limits = [ShareLimits { lower: 0.0, upper: 0.1 }, lower(0.0), lower(0.3)];
        let both = shares(&claims, &limits);
        assert!(close(&both, &[0.1, 0.6, 0.3]), "{both:?}");
        let all = shares(&claims, &[lower(0.5), lower(0.3), lower(0.2)]);
        assert!(close(&all, &[0.5, 0.3, 0.2]), "{all:?}");
    }
}
