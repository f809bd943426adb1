//! Result of a simulation.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Result of one pool: a slice's procedures of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct PoolOutcome {
    pub slice: String,
    pub kind: String,
    /// Procedures that ended in the measured time, or were late and in progress at its end.
    pub procedures: u64,
    /// Those of them that were in progress at its end.
    pub overdue: u64,
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
    /// Procedures in progress at the end that were not late yet.
    pub in_progress: u64,
    #[serde(flatten)]
    pub served: ServedCounts,
}

/// Procedures by the host that served them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedCounts {
    /// Ended procedures that the owner alone served.
    pub served_by_owner: u64,
    /// Ended procedures of which a replica served a message.
    pub served_by_replica: u64,
    /// Inputs that the balancer has recalled from serving hosts, warm-up included.
    pub recalled: u64,
    /// Choices in which no host was expected to meet the objective, warm-up included.
    pub expected_violations: u64,
}

impl ServedCounts {
    pub(super) fn count(&mut self, by_replica: bool) {
        let count = if by_replica { &mut self.served_by_replica } else { &mut self.served_by_owner };
        *count += 1;
    }
}

impl Outcome {
    /// Returns the number of procedures that ended.
    pub fn completed(&self) -> u64 {
        self.pools.iter().map(|pool| pool.procedures - pool.overdue).sum()
    }

    /// Returns the number of procedures that ended, or were late and in progress at the end.
    pub fn procedures(&self) -> u64 {
        self.pools.iter().map(|pool| pool.procedures).sum()
    }

    /// Returns the share of all procedures that took longer than their objective.
    pub fn violations(&self) -> f64 {
        let late: u64 = self.pools.iter().map(|pool| pool.violations).sum();
        late as f64 / self.procedures().max(1) as f64
    }

    /// Returns the share of all procedures of which a replica served a message.
    pub fn replica_share(&self) -> f64 {
        self.served.served_by_replica as f64 / self.procedures().max(1) as f64
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
    overdue: u64,
    sum: f64,
    times: Histogram<u64>,
}

impl PoolCounters {
    /// Creates counters for times of up to an hour, with three significant digits.
    pub(super) fn new() -> Option<Self> {
        let times = Histogram::new_with_bounds(1, 3_600_000_000, 3).ok()?;
        Some(PoolCounters { violations: 0, overdue: 0, sum: 0.0, times })
    }

    pub(super) fn count(&mut self, micros: f64, slo_us: f64) {
        self.violations += u64::from(micros > slo_us);
        self.sum += micros;
        self.times.saturating_record((micros.ceil() as u64).max(1));
    }

    /// Counts a procedure that is late and in progress.
    pub(super) fn count_overdue(&mut self, micros: f64, slo_us: f64) {
        self.count(micros, slo_us);
        self.overdue += 1;
    }

    pub(super) fn outcome(&self, slice: &str, kind: &str) -> PoolOutcome {
        let procedures = self.times.len();
        PoolOutcome {
            slice: slice.to_owned(),
            kind: kind.to_owned(),
            procedures,
            overdue: self.overdue,
            violations: self.violations,
            mean_us: self.sum / procedures.max(1) as f64,
            p50_us: self.times.value_at_quantile(0.5),
            p99_us: self.times.value_at_quantile(0.99),
        }
    }
}
