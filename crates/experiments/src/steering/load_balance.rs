//! MMLite figure 10: load balance and late procedures by host selection scheme.

use super::super::context::{Findings, each};
use super::ilp::optimum;
use super::outcome::{Cell, Span, Trial, cell};
use super::{
    CONSISTENT, IN_TURN, LEAST_LOADED_PROCEDURE, LEAST_LOADED_UE, MAGLEV, MMLITE, OURS, PEPC, ROUND_ROBIN,
    ROUND_ROBIN_PROCEDURE, SKEWED_UE, Scheme, WEIGHTED, comparison, mmlite, note, seeds, worth,
};
use crate::experiment::{Experiment, Run, Simulation};
use crate::plot::{Axis, BarSeries, Bars, Chart};
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_core::placement::balance::steer::Policy;
use vireo_simulator::cluster::{Binding, Comparison, Setup};
use vireo_types::Duration;

pub(crate) const A: Experiment = Experiment {
    name: "mmlite-fig10a",
    about: "How evenly does each way of choosing hosts load three of them, with UEs alike, half of them heavier, and skewed?",
    paper: "MMLite, figure 10a",
    informative: None,
    run: Run::Simulated(deviation),
};
pub(crate) const B: Experiment = Experiment {
    name: "mmlite-fig10b",
    about: "How many procedures are late by each way of choosing hosts, on three of them?",
    paper: "MMLite, figure 10b",
    informative: None,
    run: Run::Simulated(violations),
};
pub(crate) const C: Experiment = Experiment {
    name: "mmlite-fig10c",
    about: "How many procedures are late by each way of choosing hosts, the more hosts there are?",
    paper: "MMLite, figure 10c",
    informative: None,
    run: Run::Simulated(more_hosts),
};
pub(crate) const D: Experiment = Experiment {
    name: "mmlite-fig10d",
    about: "What is the choice of the host worth, and what the choice of the NF in it?",
    paper: "MMLite, figure 10d",
    informative: Some(
        "It attributes the results of mmlite-fig10a and mmlite-fig10b, which have the marks, to their parts.",
    ),
    run: Run::Simulated(ablation),
};

pub(super) const WORKLOAD: &str = include_str!("../../../simulator/workloads/mmlite-fig10.toml");
/// Number of hosts for which the workload is sized.
pub(super) const HOSTS: u16 = 3;
/// Window of the integer programme. All objectives are multiples of it.
const WINDOW: Duration = Duration(100_000);
/// Tolerated late procedures, in percent.
const MOST_LATE: f64 = 1.0;

/// All schemes, with the paper's late procedures and standard deviation under skewed load, in
/// percent.
const SCHEMES: [(Scheme, Option<(Bound, Bound)>); 11] = [
    (ROUND_ROBIN, Some((Bound::About(23.0), Bound::Above(15.0)))),
    (CONSISTENT, Some((Bound::About(23.0), Bound::Above(15.0)))),
    (MAGLEV, Some((Bound::About(23.0), Bound::Above(15.0)))),
    (PEPC, Some((Bound::About(23.0), Bound::Above(15.0)))),
    (LEAST_LOADED_UE, None),
    (SKEWED_UE, None),
    (WEIGHTED, None),
    (ROUND_ROBIN_PROCEDURE, None),
    (LEAST_LOADED_PROCEDURE, None),
    (MMLITE, Some((Bound::About(3.5), Bound::Below(4.0)))),
    (OURS, None),
];
const SOURCE: &str = "section 7.2, 18-28% for all but MMLite (3-4%)";

fn span(simulation: &Simulation) -> Span {
    if simulation.quick {
        Span { length: Duration::from_millis(500), populations: 1 }
    } else {
        Span { length: Duration::from_secs(6), populations: 3 }
    }
}

/// Returns the workload. The short form has one pattern.
fn workload(simulation: &Simulation) -> Result<Comparison, Failure> {
    let mut workload = comparison(WORKLOAD)?;
    if simulation.quick {
        workload.patterns.truncate(1);
    }
    Ok(workload)
}

/// Returns the results of one scheme in all runs.
fn runs(simulation: &Simulation, comparison: &Comparison, scheme: &Scheme, hosts: u16) -> Result<Vec<Cell>, Failure> {
    let setup = comparison.setup(hosts);
    let trial = Trial { scheme, setup, worth: HOSTS.into() };
    let of = |run| cell(simulation, comparison, trial, run, span(simulation));
    (0..simulation.runs).map(of).collect()
}

/// Returns the optimum of the integer programme in percent for each run, with one population per
/// pattern, and the mean number of hosts.
fn best(simulation: &Simulation, comparison: &Comparison) -> Result<(Measured, f64), Failure> {
    let length = Duration::from_millis(if simulation.quick { 500 } else { 4000 });
    let (mut late, mut hosts) = (Vec::new(), Vec::new());
    for run in 0..simulation.runs {
        let mut sum = 0.0;
        for pattern in &comparison.patterns {
            simulation.interrupt.check()?;
            let (setup, workload) = (comparison.setup(HOSTS), comparison.workload(pattern, HOSTS.into()));
            let seed = seeds(simulation, run, span(simulation).populations).next().unwrap_or_default();
            let times = (Duration(length.0 / 5), length);
            let found = optimum(setup, &workload, seed, times, WINDOW)
                .map_err(|error| Failure(format!("the optimum of {pattern}: {error}")))?;
            sum += found.violations * 100.0;
            hosts.push(found.hosts as f64);
        }
        late.push(sum / comparison.patterns.len() as f64);
    }
    let hosts = hosts.iter().sum::<f64>() / hosts.len().max(1) as f64;
    Ok((each(&late, |late| *late)?, hosts))
}

/// Plots one value by scheme as bars. The paper's values belong to the last group.
fn bars(
    (title, y): (&str, &str),
    groups: &[impl ToString],
    series: &[(&str, Vec<Measured>)],
    paper: &[(&str, Option<f64>)],
) -> Result<String, Failure> {
    let series = series.iter().map(|(name, values)| {
        let mut drawn = vec![None; values.len()];
        if let (Some(last), Some((_, value))) = (drawn.last_mut(), paper.iter().find(|(own, _)| own == name)) {
            *last = *value;
        }
        BarSeries { name: (*name).into(), paper: drawn, values: values.iter().cloned().map(Some).collect() }
    });
    let groups = groups.iter().map(ToString::to_string).collect();
    Ok(Bars { title: title.into(), groups, y: Axis::linear(y), series: series.collect() }.svg()?)
}

/// Results of a scheme in all runs, as the table names it.
struct SchemeRuns {
    scheme: &'static str,
    /// Distribution of the UEs' activity.
    ues: &'static str,
    hosts: u16,
    runs: Vec<Cell>,
}

fn table(cells: &[SchemeRuns]) -> Table {
    let mut table = Table::new(&[
        "scheme",
        "ues",
        "hosts",
        "run",
        "late_percent",
        "cpu_deviation_percent",
        "cpu_percent",
        "by_replica_percent",
    ]);
    for SchemeRuns { scheme, ues, hosts, runs } in cells {
        for (run, cell) in runs.iter().enumerate() {
            let Cell { late, deviation, cpu, by_replica } = *cell;
            let numbers =
                [f64::from(*hosts), (run + 1) as f64, late, deviation, cpu, by_replica].map(|n| n.to_string());
            table.row([(*scheme).to_owned(), (*ues).to_owned()].into_iter().chain(numbers));
        }
    }
    table
}

fn finished(simulation: &Simulation, comparison: &Comparison, schemes: &[Scheme], figures: Vec<Figure>) -> Findings {
    let what = "Workload and calibration: crates/simulator/workloads/mmlite-fig10.toml, committed before ours was run.";
    Findings {
        load: OfferedLoad::new("simulated, part of the CPU of three hosts", [comparison.load], "ratio"),
        configurations: schemes.iter().map(Scheme::configuration).collect(),
        figures,
        notes: vec![note(simulation, what), worth()],
        ..Findings::default()
    }
}

/// Activity of UEs: all alike, as the paper describes it (half of them heavier), and as it must be
/// for the paper's figures.
const UES: [&str; 3] = ["alike", "half heavier", "skewed"];

/// Reports the figures of each activity of UEs.
fn by_activity(
    simulation: &Simulation,
    value: fn(&Cell) -> f64,
    (what, y): (&str, &str),
    figure: impl Fn(Figure, &Scheme, Option<(Bound, Bound)>, bool) -> Figure,
) -> Result<Findings, Failure> {
    let skewed = workload(simulation)?;
    let (mut figures, mut cells, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for (scheme, paper) in &SCHEMES {
        eprintln!("experiment: {}", scheme.name);
        let mut values = Vec::new();
        for (ues, comparison) in UES.into_iter().zip([skewed.uniform(), skewed.half_heavier(), skewed.clone()]) {
            let runs = runs(simulation, &comparison, scheme, HOSTS)?;
            let measured = each(&runs, value)?;
            let name = format!("{what}, UEs {ues}, {}", scheme.name);
            figures.push(figure(Figure::new(name, "%", measured.clone()), scheme, *paper, ues == "skewed"));
            if *ues == *"skewed" && (scheme.change)(Setup::default()).binding == Binding::Procedure {
                let by_replica = each(&runs, |cell| cell.by_replica)?;
                figures.push(Figure::new(format!("served by replicas, UEs {ues}, {}", scheme.name), "%", by_replica));
            }
            cells.push(SchemeRuns { scheme: scheme.name, ues, hosts: HOSTS, runs });
            values.push(measured);
        }
        series.push((scheme.name, values));
    }
    let mut findings = finished(simulation, &skewed, &SCHEMES.map(|(scheme, _)| scheme), figures);
    let groups = UES.map(|ues| format!("UEs {ues}"));
    let paper = |value: fn(&(Bound, Bound)) -> f64| {
        SCHEMES.map(|(scheme, paper)| (scheme.name, paper.map(|paper| value(&paper))))
    };
    let paper = if what.starts_with("late") {
        paper(|(late, _)| late.number())
    } else {
        paper(|(_, deviation)| deviation.number())
    };
    findings.plots.push(("schemes", bars((what, y), &groups, &series, &paper)?));
    findings.tables.push(("runs", table(&cells)));
    Ok(findings)
}

fn deviation(simulation: &Simulation) -> Result<Findings, Failure> {
    let what = ("standard deviation of hosts' CPU", "standard deviation of CPU (%)");
    by_activity(
        simulation,
        |cell| cell.deviation,
        what,
        |mut figure, scheme, paper, skewed| {
            if let Some((_, deviation)) = paper.filter(|_| skewed) {
                figure = figure.paper(deviation, "figure 10a");
            }
            let ours = scheme.name == OURS.name && skewed;
            if ours { figure.mark(Bound::AtMost(4.0)) } else { figure }
        },
    )
}

fn violations(simulation: &Simulation) -> Result<Findings, Failure> {
    let (best, hosts) = best(simulation, &workload(simulation)?)?;
    let optimum = best.clone();
    let mut findings = by_activity(
        simulation,
        |cell| cell.late,
        ("late procedures", "late procedures (%)"),
        |mut figure, scheme, paper, skewed| {
            if let Some((late, _)) = paper.filter(|_| skewed) {
                figure = figure.paper(late, SOURCE);
            }
            if skewed {
                figure = figure.baseline("integer programme", Some(optimum.clone()));
            }
            if scheme.name == OURS.name && skewed { figure.mark(Bound::AtMost(MOST_LATE)) } else { figure }
        },
    )?;
    findings.figures.push(Figure::new("late procedures, UEs skewed, integer programme", "%", best));
    findings.notes.push(format!(
        "The integer programme knows all arrivals, and needs {hosts:.2} hosts in the mean; it is solved for one population of \
         each run, and a choice of hosts costs it nothing."
    ));
    Ok(findings)
}

fn more_hosts(simulation: &Simulation) -> Result<Findings, Failure> {
    let comparison = workload(simulation)?;
    let (best, _) = best(simulation, &comparison)?;
    let sizes: &[u16] = if simulation.quick { &[3, 4] } else { &[3, 4, 5, 6, 8, 12] };
    let (mut figures, mut cells) = (Vec::new(), Vec::new());
    let mut chart =
        Chart::new("The same load on more hosts", Axis::linear("hosts"), Axis::linear("late procedures (%)"));
    for (scheme, _) in &SCHEMES {
        let mut line = Vec::new();
        for hosts in sizes {
            let runs = runs(simulation, &comparison, scheme, *hosts)?;
            let measured = each(&runs, |cell| cell.late)?;
            line.push((f64::from(*hosts), measured.median));
            let figure = Figure::new(format!("late procedures on {hosts} hosts, {}", scheme.name), "%", measured)
                .baseline("integer programme on 3", Some(best.clone()));
            figures.push(if scheme.name == OURS.name { figure.mark(Bound::AtMost(MOST_LATE)) } else { figure });
            cells.push(SchemeRuns { scheme: scheme.name, ues: "skewed", hosts: *hosts, runs });
        }
        chart = chart.line(scheme.name, line);
    }
    let mut findings = finished(simulation, &comparison, &SCHEMES.map(|(scheme, _)| scheme), figures);
    findings.plots.push(("hosts", chart.line("integer programme", vec![(3.0, best.median)]).svg()?));
    findings.tables.push(("runs", table(&cells)));
    findings
        .notes
        .push("The load stays what three hosts have; more hosts cannot make the integer programme worse.".into());
    Ok(findings)
}

/// Schemes with parts of MMLite replaced by round robin, with the paper's values.
const ABLATION: [(Scheme, Option<f64>); 7] = [
    (Scheme { name: "MMLite: both", about: "Algorithms 1 and 2.", change: mmlite }, Some(4.25)),
    (
        Scheme {
            name: "MMLite: hosts in turn",
            about: "Procedures to owner and replicas in turn, NFs by Algorithm 2.",
            change: |setup| Setup { inter: Policy::RoundRobin, ..mmlite(setup) },
        },
        Some(9.92),
    ),
    (
        Scheme {
            name: "MMLite: NFs in turn",
            about: "Hosts by Algorithm 1, NFs in turn.",
            change: |setup| Setup { intra: IN_TURN, ..mmlite(setup) },
        },
        Some(16.35),
    ),
    (OURS, None),
    (
        Scheme {
            name: "ours: hosts in turn",
            about: "UEs stay at hosts in turn, NFs as ours.",
            change: |setup| Setup { inter: Policy::RoundRobin, binding: Binding::Ue, ..setup },
        },
        None,
    ),
    (
        Scheme {
            name: "ours: NFs in turn",
            about: "Hosts as ours.",
            change: |setup| Setup { intra: IN_TURN, ..setup },
        },
        None,
    ),
    (ROUND_ROBIN, None),
];

fn ablation(simulation: &Simulation) -> Result<Findings, Failure> {
    let comparison = workload(simulation)?;
    let (mut figures, mut cells, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for (scheme, paper) in &ABLATION {
        let runs = runs(simulation, &comparison, scheme, HOSTS)?;
        let (late, deviation) = (each(&runs, |cell| cell.late)?, each(&runs, |cell| cell.deviation)?);
        let figure = Figure::new(format!("late procedures, {}", scheme.name), "%", late.clone());
        figures.push(match paper {
            Some(late) => figure.paper(Bound::About(*late), "figure 10d"),
            None => figure,
        });
        figures.push(Figure::new(format!("standard deviation of hosts' CPU, {}", scheme.name), "%", deviation.clone()));
        series.push((scheme.name, vec![deviation, late]));
        cells.push(SchemeRuns { scheme: scheme.name, ues: "skewed", hosts: HOSTS, runs });
    }
    let mut findings = finished(simulation, &comparison, &ABLATION.map(|(scheme, _)| scheme), figures);
    let groups = ["standard deviation of CPU", "late procedures"];
    let paper = ABLATION.map(|(scheme, late)| (scheme.name, late));
    findings.plots.push(("parts", bars(("Hosts and NFs chosen or in turn", "%"), &groups, &series, &paper)?));
    findings.tables.push(("runs", table(&cells)));
    Ok(findings)
}
