//! Result of a scheme on a workload, over all patterns and several UE populations.

use super::{Scheme, seeds};
use crate::experiment::Simulation;
use vireo_config::Failure;
use vireo_simulator::cluster::{Binding, Comparison, Setup, simulate};
use vireo_types::Duration;

/// Simulated time, after a warm-up that does not count.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) length: Duration,
    pub(super) populations: u64,
}

impl Span {
    /// Returns the warm-up: a fifth of the time, or [`SETTLES`] times as long, in
    /// which weights settle or UEs come.
    fn warm_up(self, setup: &Setup) -> Duration {
        match (setup.rebalance, setup.binding) {
            (Some(_), _) | (_, Binding::FirstMessage) => Duration(self.length.0.saturating_mul(SETTLES)),
            _ => Duration(self.length.0 / 5),
        }
    }
}

/// Warm-up of changing weights and of UEs that come, relative to the measured time.
const SETTLES: u64 = 5;

/// Means over patterns and populations of one run, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cell {
    /// Late procedures in percent.
    pub(super) late: f64,
    /// Standard deviation of the hosts' CPU use, in percent.
    pub(super) deviation: f64,
    /// CPU use of the hosts, in percent.
    pub(super) cpu: f64,
    /// Procedures that replicas served, in percent.
    pub(super) by_replica: f64,
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
    let setup = Setup { serving_cost: simulation.serving_cost, ..(trial.scheme.change)(trial.setup) };
    let (mut sum, mut count) = (Cell::default(), 0.0);
    for pattern in &comparison.patterns {
        let workload = comparison.workload(pattern, trial.worth);
        for seed in seeds(simulation, run, span.populations) {
            simulation.interrupt.check()?;
            let outcome = simulate(setup, &workload, seed, span.warm_up(&setup), span.length)
                .map_err(|error| Failure(format!("the workload: {error}")))?;
            sum.late += outcome.violations() * 100.0;
            sum.deviation += outcome.cpu_deviation() * 100.0;
            sum.cpu += outcome.cpu.iter().sum::<f64>() / outcome.cpu.len().max(1) as f64 * 100.0;
            sum.by_replica += outcome.replica_share() * 100.0;
            count += 1.0;
        }
    }
    let mean = |sum: f64| sum / count;
    Ok(Cell {
        late: mean(sum.late),
        deviation: mean(sum.deviation),
        cpu: mean(sum.cpu),
        by_replica: mean(sum.by_replica),
    })
}
