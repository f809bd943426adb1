//! MMLite figure 6: throughput of hosts by offered load.

use super::{COLD_ONE, HOSTS, HOT_ONE, NO_COPIES, PATIENCE, capped, saturation, stateful};
use crate::context::{ExperimentContext, Findings, Variant, each};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart, MarkPosition};
use crate::steady::{Outcome, Steady};
use crate::variants;
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig6",
    about: "How much do three hosts get done as the load grows, stateless with copies and without, and stateful?",
    paper: "MMLite, figure 6",
    informative: Some("The throughput at constant load is set beside the paper's; the one in bursts has a mark."),
    run: Run::EitherRat(run),
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
/// Mean loads of the bursts, as fractions of the stateful baseline's saturation rate.
const BURST_LOADS: [f64; 3] = [0.5, 0.75, 1.0];
/// Bursts: a Markov-modulated Poisson process of half the mean rate for 0.4 s on average, and of
/// three times the mean rate for 0.1 s. The paper does not state the parameters of its bursts.
const BURSTS: [&str; 2] = ["--pattern", "T3:states=0.5@0.4/3@0.1"];
/// Ratio of MMLite's throughput to that of the stateful core under bursts, in the paper.
const PAPER_BURSTS: f64 = 1.184;
/// Index in [`variants`] of the core whose ratio under bursts has a mark: as MMLite in the paper's
/// figure, it makes no copies.
const MARKED: usize = 2;

/// One run: results by variant and load.
struct Round {
    constant: Vec<Vec<Outcome>>,
    bursts: Vec<Vec<Outcome>>,
}

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

/// Returns the procedures per second that were served within 200 ms of when they were due.
fn in_time(outcome: &Outcome) -> f64 {
    outcome.result.in_time as f64 / outcome.result.steady_seconds.max(1e-6)
}

/// Returns the completed procedures per second.
fn throughput(outcome: &Outcome) -> f64 {
    outcome.result.completed as f64 / outcome.result.steady_seconds.max(1e-6)
}

fn variants() -> Vec<Variant> {
    let base = variants::unified_shared(&[]);
    let shared = Variant { hosts: HOSTS, tables: base.tables.clone() + "\n[replication]\nmode = \"none\"\n", ..base };
    [HOT_ONE, COLD_ONE, NO_COPIES].map(|copies| copies.variant()).into_iter().chain([shared, stateful()]).collect()
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let variants: Vec<Variant> = variants().into_iter().map(|variant| capped(session, variant)).collect();
    let last = variants.len() - 1;
    let limit = saturation(session, &variants[last], &load)?;
    let loads: Vec<f64> = if session.quick { vec![1.0] } else { LOADS.to_vec() };
    let seconds = if session.quick { 1.5 } else { 5.0 };
    let burst_loads: Vec<f64> = if session.quick { vec![0.75] } else { BURST_LOADS.to_vec() };
    let rounds = session.repeat("throughput by load", |_| {
        let one = |variant: &Variant, part: f64, more: &[&str]| {
            session.interrupt.check()?;
            let mut steady = load(session, limit * part, seconds);
            steady.more.extend(more.iter().copied().map(str::to_owned));
            let outcome = session.on_core(variant, &[], &steady)?;
            let (done, due) = (throughput(&outcome), limit * part);
            eprintln!("experiment: {}: {done:.0}/s of {due:.0}/s, {:.0}/s in time", variant.name, in_time(&outcome));
            Ok(outcome)
        };
        let all = |loads: &[f64], more: &[&str]| {
            let line = |variant: &Variant| loads.iter().map(|part| one(variant, *part, more)).collect();
            variants.iter().map(line).collect::<Result<Vec<Vec<Outcome>>, Failure>>()
        };
        Ok(Round { constant: all(&loads, &[])?, bursts: all(&burst_loads, &BURSTS)? })
    })?;
    findings(&variants, limit, (&loads, &burst_loads), &rounds)
}

fn findings(
    variants: &[Variant],
    limit: f64,
    (loads, burst_loads): (&[f64], &[f64]),
    rounds: &[Round],
) -> Result<Findings, Failure> {
    let last = variants.len() - 1;
    let most = |line: &[Outcome], value: fn(&Outcome) -> f64| line.iter().map(value).fold(0.0, f64::max);
    let peak = |round: &Round, variant: usize| most(&round.constant[variant], throughput);
    let peak_in_bursts = |round: &Round, variant: usize| most(&round.bursts[variant], in_time);
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
    for (place, variant) in variants.iter().enumerate() {
        let of = |variant: usize| each(rounds, |round| peak_in_bursts(round, variant));
        let figure = Figure::new(format!("served in time under bursts, {}", variant.name), "1/s", of(place)?);
        figures.push(figure.baseline(baseline, if place < last { Some(of(last)?) } else { None }));
        if place < last {
            let ratio = each(rounds, |round| peak_in_bursts(round, place) / peak_in_bursts(round, last).max(1.0))?;
            let name = format!("served in time under bursts, {} over {baseline}", variant.name);
            let figure = Figure::new(name, "ratio", ratio);
            let figure = figure.paper(Bound::About(PAPER_BURSTS), "section 1, about 18.4% better under bursts");
            figures.push(if place == MARKED { figure.mark(Bound::AtLeast(1.0)) } else { figure });
        }
    }
    let offered = |loads: &[f64]| loads.iter().map(|load| limit * load).collect::<Vec<f64>>();
    let constant = plot(
        (["Procedures done by three hosts", "procedures done per second"], PAPER),
        variants,
        &offered(loads),
        |variant, load| each(rounds, |round| throughput(&round.constant[variant][load])),
    )?;
    let bursts = plot(
        (["Procedures of three hosts under bursts", "procedures served within 200 ms, per second"], PAPER_BURSTS),
        variants,
        &offered(burst_loads),
        |variant, load| each(rounds, |round| in_time(&round.bursts[variant][load])),
    )?;
    Ok(Findings {
        load: OfferedLoad::new(
            "mix of procedures, open loop, constant and then in bursts",
            loads.iter().chain(burst_loads).map(|part| limit * part),
            "1/s",
        ),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("throughput", constant), ("bursts", bursts)],
        tables: vec![("loads", table(variants, limit, (loads, burst_loads), rounds))],
        notes: vec![
            format!(
                "Three hosts behind one balancer, which shares all processors with the user plane and the emulator{}. Of 100 \
                 procedures 70 are service requests, 10 periodic updates, 10 Xn handovers and 10 attaches (registration and \
                 session, then deregistration), T1, open loop. The loads are parts of {limit:.0}/s, what the stateful baseline \
                 keeps up with. Done is what was done until 0.2 s after the end.",
                variants[0].host_part.map_or(String::new(), |part| format!("; each host has {part} of a processor"))
            ),
            format!(
                "Bursts are a Markov-modulated Poisson process ({}) with the same arrivals for each configuration. A procedure \
                 counts if it is served within 200 ms of when it was due. The paper does not state the parameters of its bursts.",
                BURSTS[1]
            ),
            "The paper's baseline with a central store (5.6, then 5.1 of its 10 Gbit/s) is in mmlite-fig6-store."
                .to_owned(),
        ],
        broken: None,
    })
}

/// Plots a quantity of each variant by the rate that is asked for, with the paper's ratio to the
/// last variant, whose peak is the scale.
fn plot(
    ([title, axis], paper): ([&str; 2], f64),
    variants: &[Variant],
    rates: &[f64],
    value: impl Fn(usize, usize) -> Result<Measured, Failure>,
) -> Result<String, Failure> {
    let mut chart = Chart::new(title, Axis::linear("procedures asked for per second"), Axis::linear(axis));
    let mut peak = 0.0;
    for (place, variant) in variants.iter().enumerate() {
        let point = |load: usize| Ok((rates[load], value(place, load)?.median));
        let points = (0..rates.len()).map(point).collect::<Result<Vec<(f64, f64)>, Failure>>()?;
        peak = points.iter().map(|(_, done)| *done).fold(0.0, f64::max);
        chart = chart.line(variant.name, points);
    }
    Ok(chart.mark(format!("paper, MMLite: {paper} of stateful"), MarkPosition::Y(peak * paper)).svg()?)
}

fn table(variants: &[Variant], limit: f64, (loads, burst_loads): (&[f64], &[f64]), rounds: &[Round]) -> Table {
    let mut table = Table::new(&[
        "run",
        "configuration",
        "pattern",
        "asked_per_s",
        "done_per_s",
        "in_time_per_s",
        "failed",
        "lost",
        "service_request_p50_us",
        "service_request_p99_us",
        "core_cpu_share",
    ]);
    type Of = fn(&Round) -> &Vec<Vec<Outcome>>;
    let kinds: [(&str, &[f64], Of); 2] =
        [("constant", loads, |round| &round.constant), ("bursts", burst_loads, |round| &round.bursts)];
    for (pattern, loads, of) in kinds {
        for (run, round) in rounds.iter().enumerate() {
            for (variant, line) in variants.iter().zip(of(round)) {
                for (part, outcome) in loads.iter().zip(line) {
                    let (r, service) = (&outcome.result, outcome.result.latency("service_request"));
                    let counts = [r.failed_procedures, r.lost, service.p50, service.p99].map(|n| n as f64);
                    let first = [limit * part, throughput(outcome), in_time(outcome)];
                    let numbers = [&first[..], &counts, &[outcome.core_cpu_share]].concat();
                    let head = [(run + 1).to_string(), variant.name.to_owned(), pattern.to_owned()];
                    table.row(head.into_iter().chain(numbers.iter().map(ToString::to_string)));
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
    fn peak_throughput_is_compared() {
        let of = |completed: u64| {
            let mut outcome = outcome(&[("service_request", 2)], Kind::Kill);
            let result = &mut outcome.result;
            (result.completed, result.in_time, result.steady_seconds) = (completed, completed / 2, 2.0);
            outcome
        };
        let line = |counts: [u64; 2]| counts.map(of).into_iter().collect::<Vec<_>>();
        let lines = || Vec::from([[1000, 2400], [1000, 2000], [1000, 2200], [1000, 2100], [2000, 1500]].map(line));
        let round = Round { constant: lines(), bursts: lines() };
        let found = findings(&variants(), 1000.0, (&[0.5, 1.5], &[0.5, 1.0]), &[round]).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        let ratio = figure("peak throughput, hot, ack one over stateful");
        assert!((ratio.ours.median - 1.2).abs() < 1e-6, "{ratio:?}");
        assert_eq!(figure("peak throughput, stateful").ours.median, 1000.0);
        let bursts = figure("served in time under bursts, no copies over stateful");
        assert!((bursts.ours.median - 1.1).abs() < 1e-6 && bursts.met == Some(true), "{bursts:?}");
        assert_eq!((found.configurations.len(), found.plots.len()), (5, 2));
    }
}
