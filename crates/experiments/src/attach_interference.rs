//! MMLite figure 2c: service request latency beside registrations (attaches).

use super::context::{ExperimentContext, FIRST_GUESS, Findings, Metric, Variant, each};
use super::steady::{OTHER_SST, Outcome, Steady};
use super::variants::{Objectives, decomposed, processors, unified};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart, MarkPosition};
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, OfferedLoad, Table};
use vireo_config::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig2c",
    about: "How much slower do service requests become as more and more UEs attach beside them?",
    paper: "MMLite, figure 2c",
    informative: None,
    run: Run::EitherRat(run),
};

/// Service request rate, as a fraction of the processor's saturation rate for service requests
/// alone.
const SERVICE: f64 = 0.4;
/// Attach rates, as fractions of the processor's saturation rate for attaches alone. The last one
/// is a storm beyond the processor's capacity.
const ATTACH: [f64; 5] = [0.0, 0.2, 0.4, 0.6, 0.8];

/// The service request comes first, with its objective and thus its share of the processor.
const OBJECTIVES: Objectives<'_> = &[
    ("service-request", 10),
    ("state-management", 10),
    ("registration", 200),
    ("session", 100),
    ("deregistration", 200),
];
/// Index of the variant in which the attaching UEs belong to another slice.
const OTHER: usize = 2;

fn variants(cores: &[usize]) -> Vec<Variant> {
    let of = |name, about| decomposed(name, about, cores, 32, OBJECTIVES);
    let mut other = of("decomposed, other slice", "The same, and the UEs that attach are of another slice.");
    other.slices.push_str(&format!("\n[slice.other]\nsnssai = {{ sst = {OTHER_SST} }}\nslo = {{ all = \"200ms\" }}\n"));
    vec![
        unified(cores),
        of("decomposed", "An NF for each procedure in shared memory; the service request's objective is the smallest."),
        other,
    ]
}

/// Returns a load of service requests mixed with attaches.
fn mixed(session: &ExperimentContext, service: f64, attach: f64, seconds: f64) -> Steady {
    let mut kinds = vec![("service-request", service), ("registration-session", attach)];
    kinds.retain(|(_, rate)| *rate > 0.0);
    load(session, kinds, seconds)
}

/// Returns a load of service requests with attaches of another slice beside it.
fn beside(session: &ExperimentContext, service: f64, attach: f64, seconds: f64) -> Steady {
    let mut steady = mixed(session, service, 0.0, seconds);
    let longer = seconds + 5.0;
    steady.beside = (attach > 0.0).then(|| Box::new(mixed(session, 0.0, attach, longer)));
    steady
}

fn load(session: &ExperimentContext, kinds: Vec<(&'static str, f64)>, seconds: f64) -> Steady {
    Steady {
        rate: kinds.iter().map(|(_, rate)| rate).sum(),
        kinds,
        seconds,
        ues: if session.quick { 400 } else { 3000 },
        interval: Duration::from_millis(100),
        faults: Vec::new(),
        processors: processors().1,
        more: Vec::new(),
        beside: None,
    }
}

/// Latency of service requests in milliseconds: mean and 99th percentile.
const TOLD: [Metric<Outcome>; 2] = [
    ("mean", |o| o.result.latency("service_request").mean / 1e3),
    ("p99", |o| o.result.latency("service_request").p99 as f64 / 1e3),
];

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let (cores, _) = processors();
    let variants = variants(&cores);
    let saturation = |load: &dyn Fn(f64, f64) -> Steady| session.saturation(&variants[0], &cores, FIRST_GUESS, load);
    let service = saturation(&|rate, s| mixed(session, rate, 0.0, s))?;
    let attach = saturation(&|rate, s| mixed(session, 0.0, rate, s))?;
    eprintln!("experiment: saturation is {service:.0} service requests/s or {attach:.0} attaches/s");
    let levels: Vec<f64> = if session.quick { vec![0.0, 0.8] } else { ATTACH.to_vec() };
    let seconds = if session.quick { 2.0 } else { 8.0 };
    // Index order: run, variant, level.
    let rounds = session.repeat("service requests beside attaches", |_| {
        let mut round = Vec::new();
        for (place, variant) in variants.iter().enumerate() {
            let mut line = Vec::new();
            for level in &levels {
                let with = if place == OTHER { beside } else { mixed };
                let steady = with(session, service * SERVICE, attach * level, seconds);
                line.push(session.on_core(variant, &cores, &steady)?);
            }
            round.push(line);
        }
        Ok(round)
    })?;
    findings(&variants, &levels, (service, attach), &rounds)
}

fn findings(
    variants: &[Variant],
    levels: &[f64],
    (service, attach): (f64, f64),
    rounds: &[Vec<Vec<Outcome>>],
) -> Result<Findings, Failure> {
    let last = levels.len() - 1;
    let mut figures = Vec::new();
    let mut plots = Vec::new();
    for (told, value) in TOLD {
        let at = |variant: usize, level: usize| each(rounds, |round| value(&round[variant][level]));
        let added = |variant: usize| {
            each(rounds, |round| {
                let (alone, beside) = (value(&round[variant][0]), value(&round[variant][last]));
                (beside / alone.max(1e-6) - 1.0) * 100.0
            })
        };
        for (place, variant) in variants.iter().enumerate() {
            for (level, what) in [(0, "alone"), (last, "beside attaches")] {
                let figure =
                    Figure::new(format!("service request {told} {what}, {}", variant.name), "ms", at(place, level)?);
                figures.push(figure.baseline(variants[0].name, if place > 0 { Some(at(0, level)?) } else { None }));
            }
            let name = format!("added to the service request's {told} by attaches, {}", variant.name);
            let mut figure = Figure::new(name, "%", added(place)?);
            if place == 0 {
                figure = figure.paper(Bound::Above(50.0), "figure 2c, stateful MME");
            } else {
                figure = figure.baseline(variants[0].name, Some(added(0)?));
            }
            figures.push(figure);
            if place > 0 {
                let ratio = each(rounds, |round| {
                    let of = |variant: usize| value(&round[variant][last]) / value(&round[variant][0]).max(1e-6);
                    of(place) / of(0).max(1e-6)
                })?;
                let name = format!("slowed down by attaches ({told}), {} over unified", variant.name);
                figures.push(Figure::new(name, "ratio", ratio).mark(Bound::Below(1.0)));
            }
        }
        let title = format!("Service requests at {:.0}/s beside attaches", service * SERVICE);
        let mut chart =
            Chart::new(title, Axis::linear("attaches per second"), Axis::log(format!("latency, {told} (ms)")));
        for (place, variant) in variants.iter().enumerate() {
            let point = |level: usize| Ok::<_, Failure>((attach * levels[level], at(place, level)?.median));
            chart = chart.line(variant.name, (0..levels.len()).map(point).collect::<Result<_, _>>()?);
        }
        let paper = at(0, 0)?.median * 1.5;
        plots.push((told, chart.mark("paper, stateful: above +50%", MarkPosition::Y(paper)).svg()?));
    }
    Ok(Findings {
        load: OfferedLoad::new(
            "service requests, and each rate of attaches beside them, open loop",
            [service * SERVICE].into_iter().chain(levels.iter().map(|level| attach * level)),
            "1/s",
        ),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots,
        tables: vec![("latency", table(variants, levels, attach, rounds))],
        notes: vec![format!(
            "The core is on one processor and the emulator on the other. Alone the unified core does {service:.0} service \
             requests/s or {attach:.0} attaches (registration and session, then deregistration) per second; {:.0}% of \
             the former run beside up to {:.0}% of the latter, T1, open loop: the last load is a storm, more than either \
             core can do. UEs of another slice have an emulator of their own, with a larger nice value: it must not hold \
             the measured one up.",
            SERVICE * 100.0,
            levels[last] * 100.0
        )],
        broken: None,
    })
}

fn table(variants: &[Variant], levels: &[f64], attach: f64, rounds: &[Vec<Vec<Outcome>>]) -> Table {
    let mut table = Table::new(&[
        "run",
        "configuration",
        "attaches_per_s",
        "mean_us",
        "p50_us",
        "p99_us",
        "max_us",
        "due",
        "completed",
        "beside_completed",
        "core_cpu_share",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for (variant, line) in variants.iter().zip(round) {
            for (level, o) in levels.iter().zip(line) {
                let l = o.result.latency("service_request");
                let (due, completed) = (o.result.procedures as f64, o.result.completed as f64);
                let beside = o.beside.as_ref().map_or(0.0, |beside| beside.completed as f64);
                let latency = [l.mean, l.p50 as f64, l.p99 as f64, l.max as f64];
                let numbers = [&[level * attach][..], &latency, &[due, completed, beside, o.core_cpu_share]].concat();
                let numbers = numbers.iter().map(ToString::to_string);
                table.row([(run + 1).to_string(), variant.name.into()].into_iter().chain(numbers));
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
    fn attach_interference_is_in_percent() {
        let of = |ms| outcome(&[("service_request", ms)], Kind::Kill);
        let round = || vec![vec![of(10), of(12), of(20)], vec![of(10), of(10), of(11)], vec![of(10), of(10), of(10)]];
        let found = findings(&variants(&[0]), &[0.0, 0.25, 0.5], (1000.0, 200.0), &[round(), round()]).unwrap();
        let figure = |name: &str| found.figures.iter().find(|f| f.name == name).unwrap();
        let unified = figure("added to the service request's p99 by attaches, unified");
        assert!((unified.ours.median - 100.0).abs() < 1e-6);
        let ours = figure("added to the service request's p99 by attaches, decomposed");
        assert!((ours.ours.median - 10.0).abs() < 1e-6, "{ours:?}");
        let ratio = figure("slowed down by attaches (p99), decomposed over unified");
        assert!(ratio.met == Some(true) && (ratio.ours.median - 0.55).abs() < 1e-6, "{ratio:?}");
        assert_eq!(found.plots.len(), 2);
    }
}
