//! Offline optimum of the load balancing by integer programming.
//!
//! The programme knows all arrivals in advance. It finds the fewest hosts, and the placement of
//! procedures with the fewest late ones. As in the paper it is offline and not a policy.
//!
//! Time is divided into windows. The work that begins in a window is placed in fractions of a
//! procedure; only the use of a host is an integer. A host processes its work in the order of
//! deadlines, and late procedures cost no work. Each simplification can only improve the optimum.

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, microlp, variable};
use vireo_simulator::cluster::{Arrival, Setup, Workload, WorkloadError, trace};
use vireo_types::Duration;

/// Result of the optimisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Optimum {
    /// Number of hosts in use.
    pub(crate) hosts: usize,
    /// Share of late procedures, 0 to 1.
    pub(crate) violations: f64,
}

/// Reason for which there is no optimum.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptimumError {
    /// The workload is inconsistent.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The solver failed.
    #[error("the integer programme was not solved: {0}")]
    Solver(#[from] good_lp::ResolutionError),
}

/// Work that begins in each window, by objective.
struct Demand {
    /// Windows until it is late.
    due: usize,
    /// Seconds of work of each window.
    work: Vec<f64>,
    /// Procedures per second of work.
    per_s: f64,
}

/// Returns the optimum for the input of [`vireo_simulator::cluster::simulate`]. Objectives should
/// be multiples of the window length.
pub(crate) fn optimum(
    setup: Setup,
    workload: &Workload,
    seed: u64,
    (warm_up, length): (Duration, Duration),
    window: Duration,
) -> Result<Optimum, OptimumError> {
    let arrivals = trace(setup, workload, seed, warm_up, length)?;
    let window_s = window.0 as f64 / 1e6;
    let windows = (length.0 / window.0.max(1)).max(1) as usize;
    solve(&demands(&arrivals, window_s, windows), setup.hosts.into(), setup.cores as f64 * window_s, arrivals.len())
}

fn demands(arrivals: &[Arrival], window_s: f64, windows: usize) -> Vec<Demand> {
    let mut demands: Vec<Demand> = Vec::new();
    let mut counts: Vec<f64> = Vec::new();
    for arrival in arrivals {
        let due = (arrival.slo_s / window_s).round().max(1.0) as usize;
        let at = demands.iter().position(|demand| demand.due == due).unwrap_or_else(|| {
            demands.push(Demand { due, work: vec![0.0; windows], per_s: 0.0 });
            counts.push(0.0);
            demands.len() - 1
        });
        demands[at].work[((arrival.at_s / window_s) as usize).min(windows - 1)] += arrival.work_s;
        counts[at] += 1.0;
    }
    for (demand, count) in demands.iter_mut().zip(counts) {
        demand.per_s = count / demand.work.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    }
    demands
}

/// Solves the programme. `room` is a host's capacity in a window, in seconds of work.
fn solve(demands: &[Demand], hosts: usize, room: f64, procedures: usize) -> Result<Optimum, OptimumError> {
    let windows = demands.first().map_or(0, |demand| demand.work.len());
    let mut all = ProblemVariables::new();
    let used: Vec<Variable> = (0..hosts).map(|_| all.add(variable().binary())).collect();
    let mut constraints = Vec::new();
    let mut on_time: Expression = 0.into();
    // Completed work of each host and window.
    let mut done: Vec<Vec<Expression>> = vec![vec![0.into(); windows]; hosts];
    let mut placed: Vec<Vec<Vec<Variable>>> = Vec::new();
    for demand in demands {
        let mut of = vec![Vec::new(); hosts];
        for (host, own) in of.iter_mut().enumerate() {
            let mut backlog: Expression = 0.into();
            for done in &mut done[host] {
                let [given, does] = [(); 2].map(|()| all.add(variable().min(0.0)));
                own.push(given);
                *done += does;
                on_time += given * demand.per_s;
                let left = all.add(variable().min(0.0));
                constraints.push(constraint!(left == backlog + given - does));
                // Remaining work is younger than its objective.
                let young: Expression = own.iter().rev().take(demand.due).sum();
                constraints.push(constraint!(left <= young));
                backlog = left.into();
            }
        }
        for (window, work) in demand.work.iter().enumerate() {
            let given: Expression = of.iter().map(|own| own[window]).sum();
            constraints.push(constraint!(given <= *work));
        }
        placed.push(of);
    }
    for (host, windows) in done.into_iter().enumerate() {
        constraints.extend(windows.into_iter().map(|work| constraint!(work <= room * used[host])));
    }
    // Hosts are equal: the used ones come first.
    constraints.extend(used.windows(2).map(|pair| constraint!(pair[1] <= pair[0])));
    // One late procedure in a thousand is worth a host.
    let price = procedures as f64 / 1000.0;
    let in_use: Expression = used.iter().map(|used| *used * price).sum();
    let mut model = all.maximise(on_time.clone() - in_use).using(microlp);
    for constraint in constraints {
        model = model.with(constraint);
    }
    let solution = model.solve()?;
    let hosts = used.iter().filter(|used| solution.value(**used) > 0.5).count();
    let late = 1.0 - solution.eval(&on_time) / procedures.max(1) as f64;
    Ok(Optimum { hosts, violations: late.max(0.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Solves ten windows in which each of three hosts completes 1.
    fn optimum_of(work: [f64; 10], due: usize) -> Optimum {
        let demand = Demand { due, work: work.into(), per_s: 100.0 };
        let procedures = (work.iter().sum::<f64>() * 100.0) as usize;
        solve(&[demand], 3, 1.0, procedures).expect("an optimum")
    }

    #[test]
    fn optimum_uses_fewest_hosts() {
        assert_eq!(optimum_of([0.9; 10], 1), Optimum { hosts: 1, violations: 0.0 });
        let two = optimum_of([1.9; 10], 1);
        assert!(two.hosts == 2 && two.violations < 1e-6, "{two:?}");
    }

    #[test]
    fn surge_is_late_beyond_objective() {
        let surge = |due| optimum_of([0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], due);
        // In its own window and one more, three hosts complete 6 of 9.
        let late = surge(1);
        assert!((late.violations - 1.0 / 3.0).abs() < 1e-6, "{late:?}");
        let all = surge(2);
        assert!(all.violations < 1e-6 && all.hosts == 3, "{all:?}");
    }

    #[test]
    fn excess_work_is_late() {
        let late = optimum_of([4.0; 10], 1).violations;
        // 40 arrived; 30 are complete, and the last 4 are not due yet.
        assert!((late - 6.0 / 40.0).abs() < 1e-6, "{late}");
    }
}
