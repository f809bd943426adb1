//! Limits of the choice per procedure: loads and numbers of UEs at which it is worth its cost.

use super::super::context::{Findings, each};
use super::load_balance::{HOSTS, WORKLOAD};
use super::outcome::{Cell, Span, Trial, cell};
use super::{
    CONSISTENT, LEAST_LOADED_PROCEDURE, LEAST_LOADED_UE, MMLITE, OURS, ROUND_ROBIN, ROUND_ROBIN_PROCEDURE, Scheme,
    WEIGHTED, comparison, note, worth,
};
use crate::experiment::{Experiment, Run, Simulation};
use crate::plot::{Axis, Chart};
use vireo_bench::results::{Bound, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_simulator::cluster::{Binding, Comparison, Setup};
use vireo_types::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-limits",
    about: "At which loads and with how many UEs for each host is a choice of the host for each procedure worth its cost?",
    paper: "",
    informative: None,
    run: Run::Simulated(run),
};

const SCHEMES: [Scheme; 8] =
    [ROUND_ROBIN, CONSISTENT, LEAST_LOADED_UE, WEIGHTED, ROUND_ROBIN_PROCEDURE, LEAST_LOADED_PROCEDURE, MMLITE, OURS];
/// Loads of the hosts, as parts of their capacity.
const LOADS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];
/// Load at which the replicas of a policy with little cost serve few procedures, and the limit in
/// percent.
const LOW: f64 = 0.5;
const BY_REPLICAS: f64 = 1.0;
/// Tolerated late procedures in percent, up to this load.
const LATE: f64 = 1.0;
const HIGH: f64 = 0.8;
/// Numbers of UEs for each host.
const UES: [u32; 3] = [20, 1000, 33_333];

/// Comparison at one point of a plot.
struct Point {
    /// Position in the plot.
    x: f64,
    at: String,
    comparison: Comparison,
}

fn span(simulation: &Simulation) -> Span {
    if simulation.quick {
        Span { length: Duration::from_millis(500), populations: 1 }
    } else {
        Span { length: Duration::from_secs(6), populations: 2 }
    }
}

/// Returns the results of a scheme in all runs.
fn runs(simulation: &Simulation, comparison: &Comparison, scheme: &Scheme) -> Result<Vec<Cell>, Failure> {
    let trial = Trial { scheme, setup: comparison.setup(HOSTS), worth: HOSTS.into() };
    (0..simulation.runs).map(|run| cell(simulation, comparison, trial, run, span(simulation))).collect()
}

fn is_per_procedure(scheme: &Scheme) -> bool {
    (scheme.change)(Setup::default()).binding == Binding::Procedure
}

/// Measures all schemes at the points of a plot.
fn measure_points(
    simulation: &Simulation,
    points: &[Point],
    mut chart: Chart,
    (findings, table): (&mut Findings, &mut Table),
) -> Result<String, Failure> {
    for scheme in &SCHEMES {
        eprintln!("experiment: {}, {}", scheme.name, points.first().map_or("", |point| &point.at));
        let mut line = Vec::new();
        for Point { x, at, comparison } in points {
            let runs = runs(simulation, comparison, scheme)?;
            for (run, Cell { late, by_replica, cpu, .. }) in (1_u32..).zip(&runs) {
                let numbers = [f64::from(run), *late, *by_replica, *cpu].map(|number| number.to_string());
                table.row([scheme.name.to_owned(), at.clone()].into_iter().chain(numbers));
            }
            let late = each(&runs, |cell| cell.late)?;
            line.push((*x, late.median));
            let is_ours = scheme.name == OURS.name;
            let figure = Figure::new(format!("late procedures, {at}, {}", scheme.name), "%", late);
            let marked = is_ours && comparison.load <= HIGH;
            findings.figures.push(if marked { figure.mark(Bound::AtMost(LATE)) } else { figure });
            if is_per_procedure(scheme) {
                let by_replica = each(&runs, |cell| cell.by_replica)?;
                let figure = Figure::new(format!("served by replicas, {at}, {}", scheme.name), "%", by_replica);
                let marked = is_ours && comparison.load <= LOW;
                findings.figures.push(if marked { figure.mark(Bound::Below(BY_REPLICAS)) } else { figure });
            }
        }
        chart = chart.line(scheme.name, line);
    }
    Ok(chart.svg()?)
}

fn run(simulation: &Simulation) -> Result<Findings, Failure> {
    let mut skewed = comparison(WORKLOAD)?;
    skewed.patterns.truncate(if simulation.quick { 1 } else { skewed.patterns.len() });
    let loads = if simulation.quick { &LOADS[..1] } else { &LOADS[..] };
    let ues = if simulation.quick { &UES[..1] } else { &UES[..] };
    let mut findings = Findings::default();
    let mut table = Table::new(&["scheme", "at", "run", "late_percent", "by_replica_percent", "cpu_percent"]);

    let at_load = |load: &f64| Point {
        x: *load,
        at: format!("load {load}"),
        comparison: Comparison { load: *load, ..skewed.clone() },
    };
    let points: Vec<Point> = loads.iter().map(at_load).collect();
    let chart = Chart::new("Skewed UEs by load", Axis::linear("load"), Axis::linear("late procedures (%)"));
    let plot = measure_points(simulation, &points, chart, (&mut findings, &mut table))?;
    findings.plots.push(("loads", plot));

    for (name, base) in [("ues", skewed.half_heavier()), ("ues-skewed", skewed.clone())] {
        let kind = if name == "ues" { "UEs half heavier" } else { "UEs skewed" };
        let with = |ues: &u32| Point {
            x: f64::from(*ues),
            at: format!("{ues} {kind} for each host"),
            comparison: Comparison { ues_per_host: *ues, load: HIGH, ..base.clone() },
        };
        let points: Vec<Point> = ues.iter().map(with).collect();
        let chart = Chart::new(
            format!("{kind}, load {HIGH}"),
            Axis::log("UEs for each host"),
            Axis::linear("late procedures (%)"),
        );
        let plot = measure_points(simulation, &points, chart, (&mut findings, &mut table))?;
        findings.plots.push((name, plot));
    }
    findings.load = OfferedLoad::new("simulated, part of the CPU of three hosts", loads.iter().copied(), "ratio");
    findings.configurations = SCHEMES.iter().map(Scheme::configuration).collect();
    findings.tables.push(("points", table));
    findings.notes.push(note(
        simulation,
        "Workload: crates/simulator/workloads/mmlite-fig10.toml at other loads, and at load 0.8 with other numbers of UEs.",
    ));
    findings.notes.push(worth());
    Ok(findings)
}
