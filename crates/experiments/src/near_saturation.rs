//! MMLite figure 9: handovers and service requests near one processor's saturation.

use super::context::{ExperimentContext, FIRST_GUESS, Findings, Metric, Variant, each};
use super::steady::{Outcome, Steady};
use super::variants::{decomposed, processors, unified};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, BarSeries, Bars};
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::emulator::Latency;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig9",
    about: "Does decomposition keep service requests fast beside handovers, and do shares of the core decide who waits?",
    paper: "MMLite, figure 9 (1000 requests/s)",
    informative: None,
    run: Run::Core(run),
};

/// Load, as a fraction of the processor's saturation rate.
const LOAD: f64 = 0.9;

fn variants(cores: &[usize]) -> Vec<Variant> {
    let of = |name, about, service, handover| {
        decomposed(name, about, cores, 32, &[("all", 20), ("service-request", service), ("handover", handover)])
    };
    vec![
        unified(cores),
        of("decomposed", "An NF for each procedure, equal objectives and so equal shares.", 20, 20),
        of("S over H", "The service request's objective is a quarter of the handover's.", 5, 20),
        of("H over S", "The handover's objective is a quarter of the service request's.", 20, 5),
    ]
}

/// Values of the paper by variant: service request and handover, in milliseconds.
const PAPER: [[Option<Bound>; 2]; 4] = [
    [Some(Bound::About(35.0)), Some(Bound::About(35.0))],
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
    let (mut limit, mut guess) = (f64::INFINITY, FIRST_GUESS);
    for variant in &variants[..2] {
        guess = session.saturation(variant, &cores, guess, &|rate, seconds| load(session, rate, seconds))?;
        limit = limit.min(guess);
    }
    let rate = limit * LOAD;
    eprintln!("experiment: saturation is {limit:.0} procedures/s; measuring at {rate:.0}/s");
    let seconds = if session.quick { 3.0 } else { 15.0 };
    let rounds = session.repeat("four configurations", |_| {
        let mut round = Vec::new();
        for variant in &variants {
            let steady = load(session, rate, seconds);
            round.push(session.on_core(variant, &cores, &steady)?);
        }
        Ok(round)
    })?;
    findings(&variants, &rounds, limit, rate)
}

/// Figures reported per procedure: name, and value in milliseconds.
const TOLD: [Metric<Latency>; 3] =
    [("mean", |l| l.mean / 1e3), ("p50", |l| l.p50 as f64 / 1e3), ("p99", |l| l.p99 as f64 / 1e3)];
/// Procedures and their names in the emulator.
const PROCEDURES: [(&str, &str); 2] = [("service request", "service_request"), ("handover", "n2_handover")];

fn findings(variants: &[Variant], rounds: &[Vec<Outcome>], limit: f64, rate: f64) -> Result<Findings, Failure> {
    let ms = |variant: usize, procedure: usize, told: usize| {
        let value = |round: &Vec<Outcome>| (TOLD[told].1)(&round[variant].result.latency(PROCEDURES[procedure].1));
        each(rounds, value)
    };
    let mut figures = Vec::new();
    for (procedure, (name, _)) in PROCEDURES.iter().enumerate() {
        for (place, variant) in variants.iter().enumerate() {
            for (told, (quantity, _)) in TOLD.iter().enumerate() {
                let mut figure =
                    Figure::new(format!("{name} {quantity}, {}", variant.name), "ms", ms(place, procedure, told)?);
                if let (Some(said), "mean") = (PAPER[place][procedure], *quantity) {
                    figure = figure.paper(said, "figure 9, average");
                }
                if place > 0 {
                    figure = figure.baseline(variants[0].name, Some(ms(0, procedure, told)?));
                }
                figures.push(figure);
            }
        }
    }
    for (about, over, under, procedure) in [
        ("service request p99, decomposed over unified", 1, 0, 0),
        ("service request p99, S over H over decomposed", 2, 1, 0),
        ("handover p99, H over S over decomposed", 3, 1, 1),
    ] {
        let p99 =
            |round: &Vec<Outcome>, variant: usize| round[variant].result.latency(PROCEDURES[procedure].1).p99 as f64;
        let ratio = each(rounds, |round| p99(round, over) / p99(round, under).max(1.0))?;
        figures.push(Figure::new(about, "ratio", ratio).mark(Bound::Below(1.0)));
    }
    let mut plots = Vec::new();
    for (told, file) in [(0, "mean"), (2, "p99")] {
        let series = |procedure: usize| -> Result<BarSeries, Failure> {
            let values = (0..variants.len()).map(|v| ms(v, procedure, told).map(Some)).collect::<Result<_, _>>()?;
            let paper = PAPER.iter().map(|said| said[procedure].filter(|_| told == 0).map(Bound::number)).collect();
            Ok(BarSeries { name: PROCEDURES[procedure].0.into(), values, paper })
        };
        let bars = Bars {
            title: format!("Handovers and service requests together at {rate:.0}/s"),
            groups: variants.iter().map(|v| v.name.into()).collect(),
            y: Axis::linear(format!("latency, {} (ms)", TOLD[told].0)),
            series: vec![series(0)?, series(1)?],
        };
        plots.push((file, bars.svg()?));
    }
    Ok(Findings {
        load: OfferedLoad::new("half service requests, half N2 handovers, open loop, 90% of saturation", [rate], "1/s"),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots,
        tables: vec![("latency", table(variants, rounds))],
        notes: vec![
            format!(
                "The core is on one processor and the emulator on the other. Saturation is {limit:.0} procedures/s, the load \
                 {rate:.0}/s: half service requests, half N2 handovers, T1, open loop."
            ),
            "The paper's times are those of its machine; what compares are the ratios of the configurations.".into(),
        ],
        broken: None,
    })
}

fn table(variants: &[Variant], rounds: &[Vec<Outcome>]) -> Table {
    let mut table = Table::new(&[
        "run",
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
        for (variant, o) in variants.iter().zip(round) {
            for (name, key) in PROCEDURES {
                let l = o.result.latency(key);
                let numbers = [l.mean, l.p50 as f64, l.p99 as f64, l.max as f64];
                let counts = [o.result.procedures as f64, o.result.completed as f64, o.core_cpu_share];
                let numbers = numbers.iter().chain(&counts).map(ToString::to_string);
                table.row([(run + 1).to_string(), variant.name.into(), name.into()].into_iter().chain(numbers));
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
        let round = || vec![of(30, 30), of(8, 40), of(4, 50), of(20, 16)];
        let found = findings(&variants(&[0]), &[round(), round()], 1000.0, 900.0).unwrap();
        assert_eq!(found.figures.len(), 2 * 4 * 3 + 3);
        let figure = |name: &str| found.figures.iter().find(|f| f.name == name).unwrap();
        let decomposed = figure("service request p99, decomposed");
        assert_eq!(decomposed.ours.median, 16.0);
        assert_eq!(decomposed.baseline.as_ref().map(|b| b.value.median), Some(60.0));
        let mean = figure("handover mean, unified");
        assert_eq!(mean.paper.as_ref().map(|p| p.value), Some(Bound::About(35.0)));
        let ratio = figure("service request p99, S over H over decomposed");
        assert!(ratio.met == Some(true) && (ratio.ours.median - 0.5).abs() < 1e-9);
        assert_eq!(found.plots.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["mean", "p99"]);
        let csv = String::from_utf8(found.tables[0].1.csv().unwrap()).unwrap();
        assert!(csv.contains("1,S over H,handover,55000,50000,100000,150000,1000,1000,0.9"), "{csv}");
    }
}
