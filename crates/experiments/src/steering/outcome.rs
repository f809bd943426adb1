//! Result of a scheme on a workload, over all patterns and several UE populations.

use super::{Scheme, seeds};
use crate::experiment::Simulation;
use vireo_config::Failure;
use vireo_simulator::cluster::{Comparison, Setup, simulate};
use vireo_types::Duration;

/// Simulated time, after a warm-up of a fifth of it that does not count.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) length: Duration,
    pub(super) populations: u64,
}

impl Span {
    pub(super) fn warm_up(self) -> Duration {
        Duration(self.length.0 / 5)
    }
}

/// Means over patterns and populations of one run, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// Late procedures in percent.
    pub(super) late: f64,
    /// Standard deviation of the hosts' CPU use, in percent.
    pub(super) deviation: f64,
}

/// Scheme on a cluster, and the size of its workload.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) scheme: &'a Scheme,
    pub(super) setup: Setup,
    /// Number of hosts that the workload is sized for.
    pub(super) worth: f64,
}

/// Runs a scheme on a workload.
pub(super) fn cell(
    simulation: &Simulation,
    comparison: &Comparison,
    trial: Trial<'_>,
    run: u32,
    span: Span,
) -> Result<Cell, Failure> {
    let setup = (trial.scheme.change)(trial.setup);
    let (mut sum, mut count) = (Cell::default(), 0.0);
    for pattern in &comparison.patterns {
        let workload = comparison.workload(pattern, trial.worth);
        for seed in seeds(simulation, run, span.populations) {
            simulation.interrupt.check()?;
            let outcome = simulate(setup, &workload, seed, span.warm_up(), span.length)
                .map_err(|error| Failure(format!("the workload: {error}")))?;
            sum.late += outcome.violations() * 100.0;
            sum.deviation += outcome.cpu_deviation() * 100.0;
            count += 1.0;
        }
    }
    Ok(Cell { late: sum.late / count, deviation: sum.deviation / count })
}
