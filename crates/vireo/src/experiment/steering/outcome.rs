//! Result of a scheme on a workload, over all patterns and several UE populations.

use super::super::Simulation;
use super::{Scheme, seeds};
use crate::cli::Failure;
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

/// Runs a scheme on a workload sized for `worth` hosts, with the number of hosts in `setup`.
pub(super) fn cell(
    simulation: &Simulation,
    comparison: &Comparison,
    (scheme, setup, worth): (&Scheme, Setup, f64),
    run: u32,
    span: Span,
) -> Result<Cell, Failure> {
    let setup = (scheme.change)(setup);
    let (mut sum, mut count) = (Cell::default(), 0.0);
    for pattern in &comparison.patterns {
        let workload = comparison.workload(pattern, worth);
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
