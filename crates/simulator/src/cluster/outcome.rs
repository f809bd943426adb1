//! What a simulation comes to.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Of one pool: a slice's procedures of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct PoolOutcome {
    /// The slice.
    pub slice: String,
    /// The kind.
    pub kind: String,
    /// Procedures that ended in the time that is looked at.
    pub procedures: u64,
    /// Those that took longer than their objective.
    pub violations: u64,
    /// Microseconds in the core: mean, median, 99th percentile.
    pub mean_us: f64,
    /// See [`PoolOutcome::mean_us`].
    pub p50_us: u64,
    /// See [`PoolOutcome::mean_us`].
    pub p99_us: u64,
}

/// Of all.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// By slice and kind.
    pub pools: Vec<PoolOutcome>,
    /// The part of its cores that each host was at work, 0 to 1.
    pub cpu: Vec<f64>,
    /// How often a core that had nothing to do got some work.
    pub woken: u64,
    /// Procedures that were under way at the end.
    pub under_way: u64,
}

impl Outcome {
    /// Procedures that ended.
    pub fn procedures(&self) -> u64 {
        self.pools.iter().map(|pool| pool.procedures).sum()
    }

    /// The part of all procedures that took longer than their objective.
    pub fn violations(&self) -> f64 {
        let late: u64 = self.pools.iter().map(|pool| pool.violations).sum();
        late as f64 / self.procedures().max(1) as f64
    }

    /// The standard deviation of the hosts' CPU (of all of them, not of a sample).
    pub fn cpu_deviation(&self) -> f64 {
        let count = self.cpu.len().max(1) as f64;
        let mean = self.cpu.iter().sum::<f64>() / count;
        (self.cpu.iter().map(|cpu| (cpu - mean).powi(2)).sum::<f64>() / count).sqrt()
    }
}

/// A pool's counts as they grow.
#[derive(Clone, Debug)]
pub(super) struct PoolCounters {
    violations: u64,
    sum: f64,
    times: Histogram<u64>,
}

impl PoolCounters {
    /// Times up to an hour, to three digits.
    pub(super) fn new() -> Option<Self> {
        let times = Histogram::new_with_bounds(1, 3_600_000_000, 3).ok()?;
        Some(PoolCounters { violations: 0, sum: 0.0, times })
    }

    pub(super) fn count(&mut self, micros: f64, slo_us: f64) {
        self.violations += u64::from(micros > slo_us);
        self.sum += micros;
        self.times.saturating_record((micros.ceil() as u64).max(1));
    }

    pub(super) fn outcome(&self, slice: &str, kind: &str) -> PoolOutcome {
        let procedures = self.times.len();
        PoolOutcome {
            slice: slice.to_owned(),
            kind: kind.to_owned(),
            procedures,
            violations: self.violations,
            mean_us: self.sum / procedures.max(1) as f64,
            p50_us: self.times.value_at_quantile(0.5),
            p99_us: self.times.value_at_quantile(0.99),
        }
    }
}
