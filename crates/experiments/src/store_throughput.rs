//! MMLite figure 6: throughput by load of shared, stateful and central cores.

use super::context::{ExperimentContext, FIRST_GUESS, Findings, Variant, each};
use super::steady::{Outcome, Steady};
use super::variants::{central, decomposed, processors, unified, unified_shared};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart, MarkPosition};
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::options::CpuShare;
use vireo_lab::redis::Redis;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig6-store",
    about: "How much does one core get done as the load grows: ours, stateful, with a central store?",
    paper: "MMLite, figure 6",
    informative: None,
    run: Run::EitherRat(run),
};

/// Loads, as fractions of the saturation rate of the shared-memory core.
const LOADS: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5];
/// Peaks of the stateful MME and of the one with a central store in the paper, in Gbit/s, and the
/// ratio of MMLite to the stateful MME (section 7.1). The paper states no peak of MMLite: "close to
/// the line rate" of 10 Gbit/s is more than this ratio gives.
const STATEFUL_PEAK: f64 = 7.2;
const CENTRAL_PEAK: f64 = 5.6;
const OVER_STATEFUL: f64 = 1.16;
/// Index in [`variants`] of the shared-memory core, with which the others are compared.
const OURS: usize = 0;
/// Indices of the stateful core and of the core with a central store.
const STATEFUL: usize = 1;
const CENTRAL: usize = 3;
/// Part of a processor of each core, and as much of the same processor for the database. The core
/// with a central store thus has as much processor time as the others, and so has the emulator.
const PART: f64 = 0.5;

fn variants(cores: &[usize]) -> [Variant; 4] {
    [
        decomposed("ours", "An NF for each procedure, contexts in shared memory.", cores, 32, &[]),
        unified(cores),
        unified_shared(cores),
        central(cores),
    ]
    .map(|variant| Variant { share: Some(CpuShare::Whole(PART)), ..variant })
}

fn load(session: &ExperimentContext, rate: f64, seconds: f64) -> Steady {
    Steady {
        kinds: vec![("service-request", 0.7), ("periodic-update", 0.2), ("registration-session", 0.1)],
        rate,
        seconds,
        ues: if session.quick { 400 } else { 4000 },
        interval: Duration::from_millis(100),
        faults: Vec::new(),
        processors: processors().1,
        more: Vec::new(),
        beside: None,
    }
}

/// Returns the procedures per second that were served within 200 ms of when they were due. A core
/// that serves a growing backlog does not count as one that does its work.
fn in_time(outcome: &Outcome) -> f64 {
    outcome.result.in_time as f64 / outcome.result.steady_seconds
}

/// Returns the procedures per second that were completed at all.
fn completed(outcome: &Outcome) -> f64 {
    outcome.result.completed as f64 / outcome.result.steady_seconds
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let (cores, _) = processors();
    let variants = variants(&cores);
    let _redis = Redis::start(&session.lab, &cores)?.limited_to(PART)?;
    let best =
        session.saturation(&variants[OURS], &cores, FIRST_GUESS, &|rate, seconds| load(session, rate, seconds))?;
    let loads: Vec<f64> = if session.quick { vec![0.25, 1.0] } else { LOADS.to_vec() };
    let seconds = if session.quick { 1.5 } else { 8.0 };
    let rounds = session.repeat("four cores by load", |_| {
        let mut round = Vec::new();
        for part in &loads {
            for variant in &variants {
                round.push(session.on_core(variant, &cores, &load(session, best * part, seconds))?);
            }
        }
        Ok(round)
    })?;
    findings(&variants, &rounds, &loads, best)
}

fn findings(variants: &[Variant; 4], rounds: &[Vec<Outcome>], loads: &[f64], best: f64) -> Result<Findings, Failure> {
    let at = |load: usize, variant: usize| load * variants.len() + variant;
    let peak = |round: &Vec<Outcome>, variant: usize| {
        (0..loads.len()).map(|load| in_time(&round[at(load, variant)])).fold(0.0, f64::max)
    };
    let last = |round: &Vec<Outcome>, variant: usize| in_time(&round[at(loads.len() - 1, variant)]);
    let mut figures = Vec::new();
    for (place, variant) in variants.iter().enumerate() {
        let name = |what: &str| format!("{what}, {}", variant.name);
        figures.push(Figure::new(name("procedures at the best"), "1/s", each(rounds, |r| peak(r, place))?));
        let held = each(rounds, |r| last(r, place) / peak(r, place).max(1.0))?;
        figures.push(Figure::new(name("of it left at the highest load"), "ratio", held));
    }
    for (place, variant) in variants.iter().enumerate().skip(OURS + 1) {
        let ratio = each(rounds, |r| peak(r, OURS) / peak(r, place).max(1.0))?;
        let figure = Figure::new(format!("ours over {}, at the best", variant.name), "ratio", ratio);
        let about = |paper: f64| Bound::About((paper * 100.0).round() / 100.0);
        let figure = match place {
            STATEFUL => figure.paper(about(OVER_STATEFUL), "section 7.1, 16% better at peak load"),
            CENTRAL => figure.paper(
                about(OVER_STATEFUL * STATEFUL_PEAK / CENTRAL_PEAK),
                "section 7.1, 16% above 7.2 Gbit/s, over 5.6 Gbit/s",
            ),
            _ => figure,
        };
        figures.push(figure.mark(Bound::Above(1.0)));
    }
    let mut table = Table::new(&[
        "run",
        "configuration",
        "load_per_s",
        "in_time_per_s",
        "completed_per_s",
        "p50_us",
        "p99_us",
        "core_cpu_share",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for (load, part) in loads.iter().enumerate() {
            for (place, variant) in variants.iter().enumerate() {
                let outcome = &round[at(load, place)];
                let l = outcome.result.latency("service_request");
                let latency = [l.p50 as f64, l.p99 as f64];
                let numbers =
                    [&[best * part, in_time(outcome), completed(outcome)][..], &latency, &[outcome.core_cpu_share]];
                let numbers = numbers.concat();
                let numbers = numbers.iter().map(ToString::to_string);
                table.row([(run + 1).to_string(), variant.name.into()].into_iter().chain(numbers));
            }
        }
    }
    let title = "What goes through by load";
    let mut chart =
        Chart::new(title, Axis::linear("procedures per second, due"), Axis::linear("served within 200 ms, per second"));
    for (place, variant) in variants.iter().enumerate() {
        let point = |load: usize| Ok((best * loads[load], each(rounds, |r| in_time(&r[at(load, place)]))?.median));
        chart = chart.line(variant.name, (0..loads.len()).map(point).collect::<Result<_, Failure>>()?);
    }
    // The paper's peaks, on the scale on which its stateful peak is ours.
    let stateful = each(rounds, |r| peak(r, STATEFUL))?.median;
    for (name, over) in [("paper, MMLite", OVER_STATEFUL), ("paper, central store", CENTRAL_PEAK / STATEFUL_PEAK)] {
        chart = chart.mark(format!("{name}: {over:.2} of stateful"), MarkPosition::Y(stateful * over));
    }
    Ok(Findings {
        load: OfferedLoad::new(
            "70% service requests, 20% periodic updates, 10% registrations with session, open loop",
            loads.iter().map(|part| best * part),
            "1/s",
        ),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("throughput", chart.svg()?)],
        tables: vec![("points", table)],
        notes: vec![
            format!(
                "Each core has at most {PART} of one processor, and the database as much of it; the emulator is on the other \
                 processor. The load is a mix of service requests, periodic updates and registrations with session, T1, open \
                 loop. A procedure counts if it is served within 200 ms of when it was due. The database is Redis, over TCP \
                 on the same machine, which keeps nothing on disk. The core with a central store loads and commits up to 32 \
                 waiting UEs in one round trip."
            ),
            "The paper's figures are Gbit/s of a 10 Gbit/s line; its central store is RAMCloud, some 5 us away. What \
             compares are ratios."
                .into(),
        ],
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Kind;
    use crate::steady::tests::outcome;

    #[test]
    fn peaks_are_compared() {
        let of = |completed: u64| {
            let mut outcome = outcome(&[("service_request", 5)], Kind::Kill);
            (outcome.result.in_time, outcome.result.steady_seconds) = (completed, 1.0);
            outcome
        };
        let round = vec![of(100), of(100), of(100), of(100), of(400), of(200), of(250), of(50)];
        let found = findings(&variants(&[0]), &[round], &[0.25, 1.0], 400.0).unwrap();
        let figure = |name: &str| found.figures.iter().find(|f| f.name == name).unwrap().ours.median;
        assert_eq!(figure("ours over unified, at the best"), 2.0);
        assert_eq!(figure("ours over central, at the best"), 4.0);
        assert_eq!(figure("of it left at the highest load, central"), 0.5);
        let csv = String::from_utf8(found.tables[0].1.csv().unwrap()).unwrap();
        assert!(csv.contains("1,central,400,50,1000,5000,10000,0.9"), "{csv}");
    }
}
