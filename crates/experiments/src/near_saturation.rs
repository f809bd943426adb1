//! MMLite figure 9: handovers and service requests near one processor's saturation.

use super::context::{ExperimentContext, FIRST_GUESS, Findings, Metric, Variant, each};
use super::steady::{Outcome, Steady};
use super::variants::{decomposed, processors, unified, unified_shared};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, BarSeries, Bars, Chart};
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::emulator::Latency;
use vireo_lab::options::CpuShare;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig9",
    about: "Does decomposition keep service requests fast beside handovers, and do shares of the core decide who waits?",
    paper: "MMLite, figure 9 (1000 requests/s)",
    informative: None,
    run: Run::EitherRat(run),
};

/// Loads, as fractions of the least saturation rate of the compared cores. All of them get the same
/// rates.
const LOADS: [f64; 3] = [0.5, 0.7, 0.9];
/// Parts of a processor. A host that receives and sends takes no time of the workers, and the
/// workers are what saturates: the order of NFs decides about them alone.
const SHARE: CpuShare = CpuShare::Apart { host: 0.65, workers: 0.35 };

fn variants(cores: &[usize]) -> Vec<Variant> {
    let of = |name, about, service, handover| {
        decomposed(name, about, cores, 32, &[("all", 20), ("service-request", service), ("handover", handover)])
    };
    let all = vec![
        unified(cores),
        unified_shared(cores),
        of("decomposed", "An NF for each procedure, equal objectives and so equal shares.", 20, 20),
        of("S over H", "The service request's objective is a quarter of the handover's.", 5, 20),
        of("H over S", "The handover's objective is a quarter of the service request's.", 20, 5),
    ];
    all.into_iter().map(|variant| Variant { share: Some(SHARE), ..variant }).collect()
}

/// Indices in [`variants`].
const UNIFIED: usize = 0;
const UNIFIED_SHARED: usize = 1;
const DECOMPOSED: usize = 2;
const SERVICE_FIRST: usize = 3;
const HANDOVER_FIRST: usize = 4;

/// Values of the paper by variant: service request and handover, in milliseconds. The paper's load
/// of 1000 requests/s is near the saturation of its core.
const PAPER: [[Option<Bound>; 2]; 5] = [
    [Some(Bound::About(35.0)), Some(Bound::About(35.0))],
    [None, None],
    [Some(Bound::Below(10.0)), Some(Bound::Above(35.0))],
    [Some(Bound::Below(10.0)), None],
    [Some(Bound::About(20.0)), Some(Bound::About(20.0))],
];

fn load(session: &ExperimentContext, rate: f64, seconds: f64) -> Steady {
    Steady {
        kinds: vec![("service-request", 0.5), ("n2-handover", 0.5)],
        rate,
        seconds,
        ues: if session.quick { 400 } else { 2000 },
        interval: Duration::from_millis(100),
        faults: Vec::new(),
        processors: processors().1,
        more: Vec::new(),
        beside: None,
    }
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let (cores, _) = processors();
    let variants = variants(&cores);
    let (mut limit, mut guess) = (f64::INFINITY, FIRST_GUESS / 2.0);
    for variant in [&variants[UNIFIED], &variants[UNIFIED_SHARED], &variants[DECOMPOSED]] {
        guess = session.saturation(variant, &cores, guess, &|rate, seconds| load(session, rate, seconds))?;
        limit = limit.min(guess);
    }
    let loads: Vec<f64> = if session.quick { vec![0.9] } else { LOADS.to_vec() };
    eprintln!("experiment: saturation is {limit:.0} procedures/s; measuring at {loads:?} of it");
    let seconds = if session.quick { 3.0 } else { 10.0 };
    // Index order: run, load, variant.
    let rounds = session.repeat("five configurations", |_| {
        let one =
            |part: f64, variant: &Variant| session.on_core(variant, &cores, &load(session, limit * part, seconds));
        let line = |part: &f64| variants.iter().map(|variant| one(*part, variant)).collect();
        loads.iter().map(line).collect::<Result<Vec<Vec<Outcome>>, Failure>>()
    })?;
    findings(&variants, &loads, limit, &rounds)
}

/// Figures reported per procedure: name, and value in milliseconds.
const TOLD: [Metric<Latency>; 3] =
    [("mean", |l| l.mean / 1e3), ("p50", |l| l.p50 as f64 / 1e3), ("p99", |l| l.p99 as f64 / 1e3)];
/// Procedures and their names in the emulator.
const PROCEDURES: [(&str, &str); 2] = [("service request", "service_request"), ("handover", "n2_handover")];

/// Compared latencies: name, variant, the variant that it must be below, and the procedure.
const MARKS: [(&str, usize, usize, usize); 4] = [
    ("service request p99, decomposed over unified", DECOMPOSED, UNIFIED, 0),
    ("service request p99, decomposed over unified, shared memory", DECOMPOSED, UNIFIED_SHARED, 0),
    ("service request p99, S over H over decomposed", SERVICE_FIRST, DECOMPOSED, 0),
    ("handover p99, H over S over decomposed", HANDOVER_FIRST, DECOMPOSED, 1),
];

type Rounds = [Vec<Vec<Outcome>>];

/// Returns the name of a figure at a load. The names of the highest load are those of the figure of
/// the paper.
fn at_load(name: &str, loads: &[f64], place: usize) -> String {
    if place + 1 == loads.len() { name.to_owned() } else { format!("{name}, {:.0}% load", loads[place] * 100.0) }
}

/// Returns a latency of a procedure in milliseconds.
fn ms(rounds: &Rounds, (load, variant): (usize, usize), procedure: usize, told: usize) -> Result<Measured, Failure> {
    let value =
        |round: &Vec<Vec<Outcome>>| (TOLD[told].1)(&round[load][variant].result.latency(PROCEDURES[procedure].1));
    each(rounds, value)
}

fn findings(variants: &[Variant], loads: &[f64], limit: f64, rounds: &Rounds) -> Result<Findings, Failure> {
    let last = loads.len() - 1;
    let mut figures = Vec::new();
    for load in (0..loads.len()).rev() {
        for (procedure, (name, _)) in PROCEDURES.iter().enumerate() {
            for (place, variant) in variants.iter().enumerate() {
                for (told, (quantity, _)) in TOLD.iter().enumerate() {
                    let name = at_load(&format!("{name} {quantity}, {}", variant.name), loads, load);
                    let mut figure = Figure::new(name, "ms", ms(rounds, (load, place), procedure, told)?);
                    if let (Some(said), "mean", true) = (PAPER[place][procedure], *quantity, load == last) {
                        figure = figure.paper(said, "figure 9, average");
                    }
                    if place != UNIFIED {
                        let baseline = ms(rounds, (load, UNIFIED), procedure, told)?;
                        figure = figure.baseline(variants[UNIFIED].name, Some(baseline));
                    }
                    figures.push(figure);
                }
            }
        }
        for (about, over, under, procedure) in MARKS {
            let p99 = |round: &Vec<Vec<Outcome>>, variant: usize| {
                round[load][variant].result.latency(PROCEDURES[procedure].1).p99 as f64
            };
            let ratio = each(rounds, |round| p99(round, over) / p99(round, under).max(1.0))?;
            figures.push(Figure::new(at_load(about, loads, load), "ratio", ratio).mark(Bound::Below(1.0)));
        }
    }
    let rates: Vec<f64> = loads.iter().map(|part| limit * part).collect();
    Ok(Findings {
        load: OfferedLoad::new("half service requests, half N2 handovers, open loop", rates, "1/s"),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![
            ("mean", bars(variants, loads, limit, rounds, 0)?),
            ("p99", bars(variants, loads, limit, rounds, 2)?),
            ("loads", by_load(variants, loads, limit, rounds)?),
        ],
        tables: vec![("latency", table(variants, loads, limit, rounds))],
        notes: vec![
            format!(
                "The core is on one processor and the emulator on the other. Of its processor the host has at most 65% and the \
                 workers have at most 35%, so that neither takes time of the other. Saturation is {limit:.0} procedures/s: the \
                 least of unified, unified with shared memory, and decomposed. The loads are parts of it: half service requests, \
                 half N2 handovers, T1, open loop."
            ),
            "The paper's times are those of its machine; what compares are the ratios of the configurations.".into(),
        ],
        broken: None,
    })
}

/// Returns the bars of one quantity at the highest load.
fn bars(variants: &[Variant], loads: &[f64], limit: f64, rounds: &Rounds, told: usize) -> Result<String, Failure> {
    let last = loads.len() - 1;
    let series = |procedure: usize| -> Result<BarSeries, Failure> {
        let value = |variant: usize| ms(rounds, (last, variant), procedure, told).map(Some);
        let values = (0..variants.len()).map(value).collect::<Result<_, _>>()?;
        let paper = PAPER.iter().map(|said| said[procedure].filter(|_| told == 0).map(Bound::number)).collect();
        Ok(BarSeries { name: PROCEDURES[procedure].0.into(), values, paper })
    };
    let bars = Bars {
        title: format!("Handovers and service requests together at {:.0}/s", limit * loads[last]),
        groups: variants.iter().map(|v| v.name.into()).collect(),
        y: Axis::linear(format!("latency, {} (ms)", TOLD[told].0)),
        series: vec![series(0)?, series(1)?],
    };
    Ok(bars.svg()?)
}

/// Returns the service request's 99th percentile by load.
fn by_load(variants: &[Variant], loads: &[f64], limit: f64, rounds: &Rounds) -> Result<String, Failure> {
    let mut chart = Chart::new(
        "Service requests beside handovers",
        Axis::linear("procedures per second"),
        Axis::log("latency of service requests, p99 (ms)"),
    );
    for (place, variant) in variants.iter().enumerate() {
        let point = |load: usize| Ok((limit * loads[load], ms(rounds, (load, place), 0, 2)?.median));
        chart = chart.line(variant.name, (0..loads.len()).map(point).collect::<Result<_, Failure>>()?);
    }
    Ok(chart.svg()?)
}

fn table(variants: &[Variant], loads: &[f64], limit: f64, rounds: &Rounds) -> Table {
    let mut table = Table::new(&[
        "run",
        "load_per_s",
        "configuration",
        "procedure",
        "mean_us",
        "p50_us",
        "p99_us",
        "max_us",
        "due",
        "completed",
        "core_cpu_share",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for (part, line) in loads.iter().zip(round) {
            for (variant, o) in variants.iter().zip(line) {
                for (name, key) in PROCEDURES {
                    let l = o.result.latency(key);
                    let numbers = [l.mean, l.p50 as f64, l.p99 as f64, l.max as f64];
                    let counts = [o.result.procedures as f64, o.result.completed as f64, o.core_cpu_share];
                    let numbers = numbers.iter().chain(&counts).map(ToString::to_string);
                    let head = [(run + 1).to_string(), (limit * part).to_string(), variant.name.into(), name.into()];
                    table.row(head.into_iter().chain(numbers));
                }
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Kind;
    use crate::steady::tests::outcome;

    #[test]
    fn figures_have_paper_and_baseline() {
        let of = |service, handover| outcome(&[("service_request", service), ("n2_handover", handover)], Kind::Kill);
        let line = || vec![of(30, 30), of(30, 30), of(8, 40), of(4, 50), of(20, 16)];
        let round = || vec![line(), line()];
        let found = findings(&variants(&[0]), &[0.5, 0.9], 1000.0, &[round(), round()]).unwrap();
        assert_eq!(found.figures.len(), 2 * (2 * 5 * 3 + 4));
        let figure = |name: &str| found.figures.iter().find(|f| f.name == name).unwrap();
        let decomposed = figure("service request p99, decomposed");
        assert_eq!(decomposed.ours.median, 16.0);
        assert_eq!(decomposed.baseline.as_ref().map(|b| b.value.median), Some(60.0));
        let mean = figure("handover mean, unified");
        assert_eq!(mean.paper.as_ref().map(|p| p.value), Some(Bound::About(35.0)));
        let ratio = figure("service request p99, S over H over decomposed");
        assert!(ratio.met == Some(true) && (ratio.ours.median - 0.5).abs() < 1e-9);
        let earlier = figure("service request p99, decomposed, 50% load");
        assert!(earlier.ours.median == 16.0 && earlier.paper.is_none());
        assert_eq!(found.plots.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["mean", "p99", "loads"]);
        let csv = String::from_utf8(found.tables[0].1.csv().unwrap()).unwrap();
        assert!(csv.contains("1,900,S over H,handover,55000,50000,100000,150000,1000,1000,0.9"), "{csv}");
    }
}
