//! MMLite figure 6: throughput of hosts by offered load.

use super::{COLD_ONE, HOT_ONE, NO_COPIES, PATIENCE, capped, lines, saturation, stateful};
use crate::context::{ExperimentContext, Findings, Variant, each};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use crate::steady::{Outcome, Steady};
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, OfferedLoad, Table};
use vireo_config::Failure;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig6",
    about: "How much do three hosts get done as the load grows, stateless with copies and without, and stateful?",
    paper: "MMLite, figure 6",
    informative: Some("The throughput is set beside the paper's; no limit was set before the run."),
    run: Run::Core(run),
};

/// Loads, as fractions of the stateful baseline's saturation rate.
const LOADS: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 1.4, 2.0];
/// Mix of procedures with weights: few UEs attach and detach, most alternate between idle and
/// connected.
const KINDS: [(&str, f64); 4] =
    [("service-request", 0.7), ("periodic-update", 0.1), ("xn-handover", 0.1), ("registration-session", 0.1)];
/// Procedures in progress at the end count if they complete within this time.
const DRAIN: [&str; 2] = ["--timeout", "200ms"];
/// Ratio of MMLite's peak throughput to that of the stateful core, in the paper.
const PAPER: f64 = 1.16;

fn load(session: &ExperimentContext, rate: f64, seconds: f64) -> Steady {
    Steady {
        kinds: KINDS.to_vec(),
        rate,
        seconds,
        ues: if session.quick { 200 } else { 3000 },
        interval: Duration::from_millis(100),
        faults: Vec::new(),
        processors: Vec::new(),
        more: PATIENCE.into_iter().chain(DRAIN).map(str::to_owned).collect(),
        beside: None,
    }
}

/// Returns the completed procedures per second.
fn throughput(outcome: &Outcome) -> f64 {
    outcome.result.completed as f64 / outcome.result.steady_seconds.max(1e-6)
}

fn variants() -> Vec<Variant> {
    [HOT_ONE, COLD_ONE, NO_COPIES].map(|copies| copies.variant()).into_iter().chain([stateful()]).collect()
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let variants: Vec<Variant> = variants().into_iter().map(|variant| capped(session, variant)).collect();
    let last = variants.len() - 1;
    let limit = saturation(session, &variants[last], &load)?;
    let loads: Vec<f64> = if session.quick { vec![1.0] } else { LOADS.to_vec() };
    let seconds = if session.quick { 1.5 } else { 5.0 };
    // Index order: run, variant, load.
    let rounds = session.repeat("throughput by load", |_| {
        let one = |variant: &Variant, part: f64| {
            session.interrupt.check()?;
            let outcome = session.on_core(variant, &[], &load(session, limit * part, seconds))?;
            eprintln!("experiment: {}: {:.0}/s of {:.0}/s", variant.name, throughput(&outcome), limit * part);
            Ok(outcome)
        };
        let line = |variant: &Variant| loads.iter().map(|part| one(variant, *part)).collect();
        variants.iter().map(line).collect::<Result<Vec<Vec<Outcome>>, Failure>>()
    })?;
    findings(&variants, limit, &loads, &rounds)
}

fn findings(
    variants: &[Variant],
    limit: f64,
    loads: &[f64],
    rounds: &[Vec<Vec<Outcome>>],
) -> Result<Findings, Failure> {
    let last = variants.len() - 1;
    let peak = |round: &Vec<Vec<Outcome>>, variant: usize| round[variant].iter().map(throughput).fold(0.0, f64::max);
    let baseline = variants[last].name;
    let mut figures = Vec::new();
    for (place, variant) in variants.iter().enumerate() {
        let of = |variant: usize| each(rounds, |round| peak(round, variant));
        let figure = Figure::new(format!("peak throughput, {}", variant.name), "1/s", of(place)?);
        figures.push(figure.baseline(baseline, if place < last { Some(of(last)?) } else { None }));
        if place < last {
            let ratio = each(rounds, |round| peak(round, place) / peak(round, last).max(1e-6))?;
            let figure = Figure::new(format!("peak throughput, {} over {baseline}", variant.name), "ratio", ratio);
            figures.push(figure.paper(Bound::About(PAPER), "section 7.1, 16% better at peak load"));
        }
    }
    let mut chart = Chart::new(
        "Procedures done by three hosts",
        Axis::linear("procedures asked for per second"),
        Axis::linear("procedures done per second"),
    );
    for (place, variant) in variants.iter().enumerate() {
        let point = |load: usize| {
            Ok::<_, Failure>((limit * loads[load], each(rounds, |r| throughput(&r[place][load]))?.median))
        };
        chart = chart.line(variant.name, (0..loads.len()).map(point).collect::<Result<_, _>>()?);
    }
    Ok(Findings {
        load: OfferedLoad::new("mix of procedures, open loop", loads.iter().map(|part| limit * part), "1/s"),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("throughput", chart.svg()?)],
        tables: vec![("loads", table(variants, limit, loads, rounds))],
        notes: vec![
            format!(
                "Three hosts behind one balancer, which shares all processors with the user plane and the emulator{}. Of 100 \
                 procedures 70 are service requests, 10 periodic updates, 10 Xn handovers and 10 attaches (registration and \
                 session, then deregistration), T1, open loop. The loads are parts of {limit:.0}/s, what the stateful baseline \
                 keeps up with. Done is what was done until 0.2 s after the end.",
                variants[0].host_part.map_or(String::new(), |part| format!("; each host has {part} of a processor"))
            ),
            "The paper's baseline with a central store (5.6, then 5.1 of its 10 Gbit/s) is not among what is compared here."
                .to_owned(),
        ],
        broken: None,
    })
}

fn table(variants: &[Variant], limit: f64, loads: &[f64], rounds: &[Vec<Vec<Outcome>>]) -> Table {
    let mut table = Table::new(&[
        "run",
        "configuration",
        "asked_per_s",
        "done_per_s",
        "failed",
        "lost",
        "service_request_p50_us",
        "service_request_p99_us",
        "core_cpu_share",
    ]);
    for (head, line) in lines(variants, rounds) {
        for (part, outcome) in loads.iter().zip(line) {
            let (r, service) = (&outcome.result, outcome.result.latency("service_request"));
            let counts = [r.failed_procedures, r.lost, service.p50, service.p99].map(|n| n as f64);
            let first = [limit * part, throughput(outcome)];
            let numbers = [&first[..], &counts, &[outcome.core_cpu_share]].concat();
            table.row(head.iter().cloned().chain(numbers.iter().map(ToString::to_string)));
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
    fn peak_throughput_is_compared() {
        let of = |completed: u64| {
            let mut outcome = outcome(&[("service_request", 2)], Kind::Kill);
            (outcome.result.completed, outcome.result.steady_seconds) = (completed, 2.0);
            outcome
        };
        let line = |counts: [u64; 2]| counts.map(of).into_iter().collect::<Vec<_>>();
        let round = || vec![line([1000, 2400]), line([1000, 2000]), line([1000, 2200]), line([2000, 1500])];
        let found = findings(&variants(), 1000.0, &[0.5, 1.5], &[round()]).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        let ratio = figure("peak throughput, hot, ack one over stateful");
        assert!((ratio.ours.median - 1.2).abs() < 1e-6, "{ratio:?}");
        assert_eq!(figure("peak throughput, stateful").ours.median, 1000.0);
        assert_eq!(found.configurations.len(), 4);
    }
}
