//! Procedures per second of a machine with many cores, by a model with the balancer's threads.

pub(crate) mod costs;
pub(crate) mod model;

use crate::context::Findings;
use crate::experiment::{Experiment, Run, Simulation};
use crate::plot::{Axis, Chart};
use costs::Costs;
use model::divide;
use vireo_bench::results::{Configuration, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "host-capacity",
    about: "How many procedures would machines with 16 and 64 cores serve, with one balancer thread and with more?",
    paper: "",
    informative: Some("It computes a model from recorded CPU times, and measures nothing."),
    run: Run::Simulated(|_: &Simulation| findings(&Costs::read(RECORDED)?)),
};

/// Cores of the machines that the page shows.
pub(crate) const CORES: [u32; 3] = [4, 16, 64];
/// Record that the program contains.
pub(crate) const RECORDED: &[u8] = include_bytes!("../../../../results/bench-host/summary.json");

fn findings(costs: &Costs) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let mut table = Table::new(&["path", "balancer_threads", "cores", "cores_used", "procedures_per_s"]);
    let mut chart = Chart::new("Model of a machine", Axis::log("cores"), Axis::log("procedures per second"));
    for path in &costs.paths {
        for (most, with) in [(1, "one balancer thread"), (u32::MAX, "as many balancer threads as it needs")] {
            let mut line = Vec::new();
            for cores in 2..=CORES[CORES.len() - 1] {
                let Some(division) = divide(&path.stages, cores, most) else { continue };
                line.push((f64::from(cores), division.rate));
                let numbers = [division.threads[0], cores, division.cores()].map(|n| n.to_string());
                table.row([path.name.to_owned()].into_iter().chain(numbers).chain([division.rate.to_string()]));
                if CORES.contains(&cores) {
                    let value = |name: &str, unit: &str, value: f64| {
                        let measured = Measured::from_runs(vec![value]).ok_or_else(|| Failure("no cost".into()))?;
                        Ok::<_, Failure>(Figure::new(
                            format!("{name}, {cores} cores, {}, {with}", path.name),
                            unit,
                            measured,
                        ))
                    };
                    findings.figures.push(value("procedures", "1/s", division.rate)?);
                    findings.figures.push(value("balancer threads", "", division.threads[0].into())?);
                    findings.figures.push(value("cores in use", "", division.cores().into())?);
                }
            }
            chart = chart.line(format!("{}, {with}", path.name), line);
        }
    }
    let configuration =
        |path: &costs::Path| Configuration { name: path.name.into(), about: path.about.into(), toml: path.toml.into() };
    findings.configurations = costs.paths.iter().map(configuration).collect();
    findings.load = OfferedLoad::new("model, cores of the machine", CORES.map(f64::from), "cores");
    findings.plots.push(("cores", chart.svg()?));
    findings.tables.push(("cores", table));
    findings.notes.push(
        "Computed from results/bench-host: CPU time of a service request with its release in balancer, host and workers, and \
         what SCTP adds, all of it to the balancer. docs/evaluation/capacity.md has the assumptions."
            .into(),
    );
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_balancer_threads_use_more_cores() {
        let costs = Costs::read(RECORDED).unwrap();
        for path in &costs.paths {
            let [one, all] = [1, u32::MAX].map(|most| divide(&path.stages, 64, most).unwrap());
            assert!(one.rate < all.rate && one.cores() < 64 && all.cores() == 64, "{path:?}: {one:?} {all:?}");
        }
    }

    #[test]
    fn summary_has_figures_of_each_machine() {
        let found = findings(&Costs::read(RECORDED).unwrap()).unwrap();
        assert!(found.figures.iter().any(|figure| figure.name.starts_with("procedures, 64 cores")));
        assert_eq!(found.plots.len(), 1);
    }
}
