//! Result of a simulation.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Result of one pool: a slice's procedures of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct PoolOutcome {
    pub slice: String,
    pub kind: String,
    /// Procedures that ended in the measured time.
    pub procedures: u64,
    /// Procedures that took longer than their objective.
    pub violations: u64,
    /// Mean time in the core, in microseconds.
    pub mean_us: f64,
    /// Median time in the core, in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the time in the core, in microseconds.
    pub p99_us: u64,
}

/// Result of all pools and hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Results by slice and kind.
    pub pools: Vec<PoolOutcome>,
    /// Busy share of each host's cores, 0 to 1.
    pub cpu: Vec<f64>,
    /// Number of times that an idle core received work.
    pub woken: u64,
    /// Procedures in progress at the end.
    pub under_way: u64,
}

impl Outcome {
    /// Returns the number of procedures that ended.
    pub fn procedures(&self) -> u64 {
        self.pools.iter().map(|pool| pool.procedures).sum()
    }

    /// Returns the share of all procedures that took longer than their objective.
    pub fn violations(&self) -> f64 {
        let late: u64 = self.pools.iter().map(|pool| pool.violations).sum();
        late as f64 / self.procedures().max(1) as f64
    }

    /// Returns the standard deviation of the hosts' CPU (population, not sample).
    pub fn cpu_deviation(&self) -> f64 {
        let count = self.cpu.len().max(1) as f64;
        let mean = self.cpu.iter().sum::<f64>() / count;
        (self.cpu.iter().map(|cpu| (cpu - mean).powi(2)).sum::<f64>() / count).sqrt()
    }
}

/// Counters of a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolCounters {
    violations: u64,
    sum: f64,
    times: Histogram<u64>,
}

impl PoolCounters {
    /// Creates counters for times of up to an hour, with three significant digits.
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
