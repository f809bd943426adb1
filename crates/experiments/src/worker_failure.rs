//! MMLite figure 7: a worker dies (SIGKILL) or hangs (SIGSTOP) under load.

use super::context::{ExperimentContext, FIRST_GUESS, Findings, Variant, each};
use super::steady::{Outcome, Steady};
use super::variants::{decomposed, stateful};
use crate::experiment::{Experiment, Run};
use crate::faults::{Fault, Kind};
use crate::plot::{Axis, BarSeries, Bars, Chart, MarkPosition};
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::timeline::{EventImpact, around};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig7-nf",
    about: "What do UEs notice when a worker is killed, or stops, in the middle of the load?",
    paper: "MMLite, figure 7 (NF failure)",
    informative: None,
    run: Run::EitherRat(run),
};

/// Loads, as fractions of the saturation rate.
const LOADS: [f64; 3] = [0.2, 0.5, 0.7];
/// Worker processes of the stateful baseline, one of which dies. The paper has three hosts.
const STATEFUL_WORKERS: u32 = 3;
/// UEs retransmit a request after 1 s and register again after 5 s.
const PATIENCE: [&str; 4] = ["--retry", "1s", "--reattach", "5s"];
/// Window after the fault, in seconds. The worst latency is that of the procedures due in it,
/// however late they complete.
const SOON_S: f64 = 2.0;
/// Limit of the addition to the worst latency, in milliseconds.
const ADDED_MS: f64 = 50.0;

fn load(session: &ExperimentContext, rate: f64, seconds: f64, fault: Option<Fault>) -> Steady {
    Steady {
        kinds: vec![("service-request", 1.0)],
        rate,
        seconds,
        ues: if session.quick { 600 } else { 5000 },
        interval: Duration::from_millis(100),
        faults: fault.into_iter().collect(),
        processors: Vec::new(),
        more: PATIENCE.map(str::to_owned).to_vec(),
        beside: None,
    }
}

/// One measured case.
struct Case {
    load: f64,
    kind: Kind,
    /// Index of the variant.
    variant: usize,
    outcome: Outcome,
    around: EventImpact,
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let ours = decomposed("vireo", "NFs by slice and procedure, the contexts in shared memory.", &[], 8, &[]);
    let variants = [ours, stateful(STATEFUL_WORKERS)];
    let limit =
        session.saturation(&variants[0], &[], FIRST_GUESS, &|rate, seconds| load(session, rate, seconds, None))?;
    eprintln!("experiment: saturation is {limit:.0} service requests/s");
    let loads: Vec<f64> = if session.quick { vec![0.5] } else { LOADS.to_vec() };
    let (before, after) = if session.quick { (1.5, [2.5, 8.0]) } else { (5.0, [7.0, 12.0]) };
    let rounds = session.repeat("a worker dies or stops", |_| {
        let mut round = Vec::new();
        for load_share in &loads {
            for kind in [Kind::Kill, Kind::Stop] {
                for (variant, configuration) in variants.iter().enumerate() {
                    if session.quick && variant > 0 && kind == Kind::Stop {
                        continue;
                    }
                    let fault = Fault { at_s: before, kind, victim: 0 };
                    let steady = load(session, limit * load_share, before + after[variant], Some(fault));
                    let outcome = session.on_core(configuration, &[], &steady)?;
                    let Some((_, at_s)) = outcome.faults.first().copied() else {
                        return Err(Failure("the worker had ended before it could be killed".into()));
                    };
                    let around = effect(&outcome, at_s, after[variant]);
                    round.push(Case { load: *load_share, kind, variant, outcome, around });
                }
            }
        }
        Ok(round)
    })?;
    findings(&variants, &loads, limit, &rounds)
}

/// Returns the effect of the fault: on the procedures due soon after it, and its duration.
fn effect(outcome: &Outcome, at_s: f64, after_s: f64) -> EventImpact {
    let bins = outcome.bins("all");
    EventImpact { recovered_s: around(&bins, at_s, after_s).recovered_s, ..around(&bins, at_s, SOON_S) }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Kill => "killed",
        Kind::Stop => "stopped",
    }
}

/// Returns the lost UEs in percent.
fn lost_share(case: &Case) -> f64 {
    case.outcome.result.lost as f64 * 100.0 / case.outcome.result.ues.max(1) as f64
}

fn findings(variants: &[Variant], loads: &[f64], limit: f64, rounds: &[Vec<Case>]) -> Result<Findings, Failure> {
    let of = |load: f64, kind: Kind, variant: usize, value: &dyn Fn(&Case) -> f64| -> Option<Measured> {
        let find = |round: &Vec<Case>| {
            let case = round.iter().find(|c| c.load == load && c.kind == kind && c.variant == variant)?;
            Some(value(case))
        };
        Measured::from_runs(rounds.iter().map(find).collect::<Option<_>>()?)
    };
    let ours = |load: f64, kind: Kind, value: &dyn Fn(&Case) -> f64| {
        of(load, kind, 0, value).ok_or_else(|| Failure("nothing was measured".into()))
    };
    let mut figures = Vec::new();
    for load in loads {
        for kind in [Kind::Kill, Kind::Stop] {
            let percent = load * 100.0;
            let mut add =
                |what: &str, unit: &str, value: &dyn Fn(&Case) -> f64, paper: Option<f64>, mark: Option<f64>| {
                    let figure = Figure::new(
                        format!("{what}, worker {}, {percent:.0}% load", name(kind)),
                        unit,
                        ours(*load, kind, value)?,
                    );
                    let mut figure = figure.baseline(variants[1].name, of(*load, kind, 1, value));
                    if let Some(below) = paper {
                        figure = figure.paper(Bound::Below(below), "figure 7a, NF failure");
                    }
                    figures.push(if let Some(most) = mark { figure.mark(Bound::AtMost(most)) } else { figure });
                    Ok::<_, Failure>(())
                };
            add("lost UEs", "UEs", &|c| c.outcome.result.lost as f64, None, Some(0.0))?;
            add("failed procedures", "", &|c| c.outcome.result.failed_procedures as f64, None, Some(0.0))?;
            add("worst latency", "ms", &|c| c.around.worst_ms, Some(500.0), None)?;
            add("worst latency added", "ms", &|c| c.around.added_ms, None, Some(ADDED_MS))?;
            add("time until latency is as before", "s", &|c| c.around.recovered_s, None, None)?;
        }
    }
    let lost = each(rounds, |round| {
        round.iter().filter(|c| c.variant == 0).map(|c| c.outcome.result.lost as f64).sum::<f64>()
    })?;
    let mut notes = vec![
        format!(
            "Saturation is {limit:.0} service requests/s on all processors, the emulator's work among it. T1, open loop; latency \
             counts from when a request was due; the worst one is that of those due within {SOON_S} s after the fault. Every UE repeats a request after 1 s and registers anew after 5 s."
        ),
        format!(
            "The stateful baseline has {STATEFUL_WORKERS} workers that keep the contexts of a part of the UEs each. The paper: \
             5 s, and about 40% of the connections dropped at 50,000/s. Our baseline's new worker refuses a UE that it does not \
             know at once, so that the UE registers anew at once: it is kinder than the paper's."
        ),
    ];
    for case in rounds.iter().flatten().filter(|case| case.variant == 0) {
        let complaints = case.outcome.result.complaints();
        let when = format!("worker {}, {:.0}% load", name(case.kind), case.load * 100.0);
        notes.extend(complaints.iter().map(|what| format!("Went wrong ({when}): {what}.")));
    }
    let broken = (lost.max > 0.0).then(|| format!("{} UEs were lost when a worker ended", lost.max));
    Ok(Findings {
        load: OfferedLoad::new("service requests, open loop", loads.iter().map(|part| limit * part), "1/s"),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("latency", over_time(loads, limit, rounds)?.svg()?), ("lost", lost_bars(variants, loads, &of)?)],
        tables: vec![("timeline", timeline(variants, rounds)), ("cases", table(variants, rounds))],
        notes,
        broken,
    })
}

/// Plots the worst latency per 0.1 s, in the first run at the highest load.
fn over_time(loads: &[f64], limit: f64, rounds: &[Vec<Case>]) -> Result<Chart, Failure> {
    let load = loads.last().copied().unwrap_or_default();
    let title = format!("Worst latency around the fault, {:.0} service requests/s", limit * load);
    let mut chart =
        Chart::new(title, Axis::linear("time since the fault (s)"), Axis::log("worst latency of each 0.1 s (ms)"));
    for case in rounds.first().into_iter().flatten().filter(|case| case.load == load) {
        let at = case.outcome.faults.first().map_or(0.0, |(_, at)| *at);
        let bins = case.outcome.bins("all");
        let points = bins.iter().filter(|bin| bin.done > 0).map(|bin| (bin.at_s - at, bin.max_ms)).collect();
        let who = if case.variant == 0 { "vireo" } else { "stateful" };
        chart = chart.line(format!("{who}, {}", name(case.kind)), points);
    }
    Ok(chart
        .mark("paper, NF failure: < 0.5 s", MarkPosition::Y(500.0))
        .mark("paper, stateful: 5 s", MarkPosition::Y(5000.0)))
}

type Values<'a> = dyn Fn(f64, Kind, usize, &dyn Fn(&Case) -> f64) -> Option<Measured> + 'a;

fn lost_bars(variants: &[Variant], loads: &[f64], of: &Values<'_>) -> Result<String, Failure> {
    let series = |variant: usize, kind: Kind| BarSeries {
        name: format!("{}, {}", variants[variant].name, name(kind)),
        values: loads.iter().map(|load| of(*load, kind, variant, &lost_share)).collect(),
        paper: if variant == 1 { loads.iter().map(|_| Some(40.0)).collect() } else { Vec::new() },
    };
    let bars = Bars {
        title: "UEs that lost their registration".into(),
        groups: loads.iter().map(|load| format!("{:.0}% load", load * 100.0)).collect(),
        y: Axis::linear("UEs lost (%)"),
        series: vec![series(0, Kind::Kill), series(0, Kind::Stop), series(1, Kind::Kill), series(1, Kind::Stop)],
    };
    Ok(bars.svg()?)
}

fn row<'a>(variants: &[Variant], run: usize, case: &'a Case) -> FaultRow<'a> {
    let variant = variants[case.variant].name;
    FaultRow {
        head: [(run + 1).to_string(), variant.into(), case.load.to_string(), name(case.kind).into()],
        outcome: &case.outcome,
        at_s: case.outcome.faults.first().map_or(0.0, |(_, at)| *at),
        impact: case.around,
    }
}

/// Returns the cases of all runs, each with the index of its run.
pub(super) fn each_case<C>(rounds: &[Vec<C>]) -> impl Iterator<Item = (usize, &C)> {
    rounds.iter().enumerate().flat_map(|(run, round)| round.iter().map(move |case| (run, case)))
}

fn timeline(variants: &[Variant], rounds: &[Vec<Case>]) -> Table {
    timelines(each_case(rounds).map(|(run, case)| row(variants, run, case)))
}

/// Row of a case in the tables of faults.
pub(super) struct FaultRow<'a> {
    /// Run, configuration, load and fault.
    pub(super) head: [String; 4],
    pub(super) outcome: &'a Outcome,
    /// Time of the fault in the outcome, in seconds.
    pub(super) at_s: f64,
    pub(super) impact: EventImpact,
}

/// Returns the timelines around faults.
pub(super) fn timelines<'a>(cases: impl Iterator<Item = FaultRow<'a>>) -> Table {
    let names = ["since_fault_s", "done", "failed", "p50_ms", "p99_ms", "max_ms"];
    let mut table = Table::new(&[&HEAD[..], &names].concat());
    for FaultRow { head, outcome, at_s, .. } in cases {
        for bin in outcome.bins("all") {
            let numbers = [bin.at_s - at_s, bin.done as f64, bin.failed as f64, bin.p50_ms, bin.p99_ms, bin.max_ms];
            table.row(head.iter().cloned().chain(numbers.iter().map(ToString::to_string)));
        }
    }
    table
}

fn table(variants: &[Variant], rounds: &[Vec<Case>]) -> Table {
    cases(each_case(rounds).map(|(run, case)| row(variants, run, case)))
}

/// Returns the effects of faults by run, configuration, load and fault.
pub(super) fn cases<'a>(cases: impl Iterator<Item = FaultRow<'a>>) -> Table {
    let counts = ["due", "completed", "failed", "lost", "retries"];
    let times = ["usual_ms", "worst_ms", "added_ms", "recovered_s"];
    let mut table = Table::new(&[&HEAD[..], &counts, &times].concat());
    for FaultRow { head, outcome, impact, .. } in cases {
        let r = &outcome.result;
        let counts = [r.procedures, r.completed, r.failed_procedures, r.lost, r.retries].map(|n| n.to_string());
        let times = [impact.usual_ms, impact.worst_ms, impact.added_ms, impact.recovered_s].map(|n| n.to_string());
        table.row(head.into_iter().chain(counts).chain(times));
    }
    table
}

/// Columns that identify a case.
const HEAD: [&str; 4] = ["run", "configuration", "load", "fault"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steady::tests::outcome;

    fn case(kind: Kind, variant: usize, lost: u64) -> Case {
        let mut outcome = outcome(&[("service_request", 2)], kind);
        outcome.result.lost = lost;
        outcome.timeline[11].1.max_ms = 30.0 + lost as f64 * 100.0;
        let around = effect(&outcome, 1.0, 5.0);
        Case { load: 0.5, kind, variant, outcome, around }
    }

    #[test]
    fn lost_ues_break_ours_and_not_baseline() {
        let variants = [decomposed("vireo", "", &[], 8, &[]), stateful(STATEFUL_WORKERS)];
        let round = |lost| vec![case(Kind::Kill, 0, lost), case(Kind::Kill, 1, 40), case(Kind::Stop, 0, 0)];
        let found = findings(&variants, &[0.5], 1000.0, &[round(0), round(0)]).unwrap();
        assert_eq!(found.broken, None);
        let figure = |name: &str| found.figures.iter().find(|f| f.name == name).unwrap();
        let added = figure("worst latency added, worker killed, 50% load");
        assert_eq!((added.ours.median, added.met), (28.0, Some(true)));
        assert_eq!(added.baseline.as_ref().map(|b| b.value.median), Some(4028.0));
        assert!(figure("lost UEs, worker stopped, 50% load").baseline.is_none(), "it was not measured");
        let found = findings(&variants, &[0.5], 1000.0, &[round(0), round(1)]).unwrap();
        assert!(found.broken.is_some_and(|what| what.contains("1 UEs")));
        assert!(found.figures.iter().any(|f| f.met == Some(false)));
        assert_eq!(found.plots.len(), 2);
    }
}
