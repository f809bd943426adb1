//! MMLite figure 7: a host under load dies, hangs or is isolated.
//!
//! The faults are SIGKILL, SIGSTOP and a disconnected cable.

use super::{
    ALL_COPIES, COLD_ONE, HOSTS, HOT_ALL, HOT_ONE, HostFailureRun, NO_COPIES, ReplicationMode, SOON_S, capped,
    host_fails, service_requests,
};
use crate::context::{ExperimentContext, Findings, Variant};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, BarSeries, Bars, Chart, MarkPosition};
use crate::worker_failure::{FaultRow, cases as cases_of, each_case, timelines};
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::members::HostFault;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig7-host",
    about: "What do UEs notice when a host is killed, stops or is cut off in the middle of the load?",
    paper: "MMLite, figure 7 (host failure)",
    informative: None,
    run: Run::EitherRat(run),
};

/// Load of the full set of cases, as a fraction of the saturation rate. `OTHER_LOADS` are the loads
/// of a few further cases.
const LOAD: f64 = 0.5;
const OTHER_LOADS: [f64; 2] = [0.25, 0.8];
/// Observation times in seconds: before the fault, after it, and after it for the stateful
/// baseline. UEs that the stateful baseline loses return after 5 s or later.
const BEFORE_S: f64 = 2.0;
const AFTER_S: f64 = 3.0;
const AFTER_STATEFUL_S: f64 = 7.0;
/// Limit of the latency of any procedure, in milliseconds.
const WORST_MS: f64 = 500.0;
/// Replication modes in the plots over time; `BY_LOAD` holds those in the plots by load.
const OVER_TIME: [ReplicationMode; 4] = [NO_COPIES, COLD_ONE, HOT_ONE, HOT_ALL];
const BY_LOAD: [ReplicationMode; 2] = [COLD_ONE, HOT_ONE];
const STATEFUL: &str = "stateful";

/// One measured case.
struct Case {
    load: f64,
    fate: HostFault,
    /// Name of the variant.
    variant: &'static str,
    failed: HostFailureRun,
}

/// A case to be measured.
#[derive(Clone, Copy)]
struct Planned {
    load: f64,
    fate: HostFault,
    /// `None` stands for the stateful baseline.
    copies: Option<ReplicationMode>,
}

/// Returns the cases to be measured.
fn cases(quick: bool) -> Vec<Planned> {
    let case = |load, fate, copies| Planned { load, fate, copies };
    if quick {
        return vec![case(LOAD, HostFault::Kill, Some(HOT_ONE)), case(LOAD, HostFault::Kill, None)];
    }
    let variants: Vec<Option<ReplicationMode>> = ALL_COPIES.into_iter().map(Some).chain([None]).collect();
    let mut cases = Vec::new();
    for fate in HostFault::ALL {
        cases.extend(variants.iter().map(|copies| case(LOAD, fate, *copies)));
    }
    for load in OTHER_LOADS {
        cases.extend(BY_LOAD.map(|copies| case(load, HostFault::Kill, Some(copies))));
        cases.push(case(load, HostFault::Kill, None));
    }
    cases
}

fn variant(copies: Option<ReplicationMode>) -> Variant {
    copies.map_or_else(super::stateful, ReplicationMode::variant)
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let limit = super::saturation(session, &capped(session, HOT_ONE.variant()), &service_requests)?;
    eprintln!("experiment: saturation is {limit:.0} service requests/s");
    let all = cases(session.quick);
    let before = if session.quick { 1.0 } else { BEFORE_S };
    let rounds = session.repeat("a host fails", |_| {
        let measure = |Planned { load, fate, copies }: &Planned| {
            session.interrupt.check()?;
            let variant = capped(session, variant(*copies));
            let after = if copies.is_some() { AFTER_S } else { AFTER_STATEFUL_S };
            let after = if session.quick { SOON_S } else { after };
            let steady = service_requests(session, limit * load, before + after);
            let failed = host_fails(session, &variant, &steady, *fate, before)?;
            eprintln!(
                "experiment: host {}, {:.0}% load, {}: {} lost, {} failed, at worst {:.0} ms",
                fate.past_tense(),
                load * 100.0,
                variant.name,
                failed.lost_ues(),
                failed.failed(),
                failed.around.worst_ms
            );
            Ok(Case { load: *load, fate: *fate, variant: variant.name, failed })
        };
        all.iter().map(measure).collect::<Result<Vec<Case>, Failure>>()
    })?;
    findings(limit, &all, &rounds)
}

/// Identity of a case: load, fault, variant name.
type Key = (f64, HostFault, &'static str);

fn find(round: &[Case], (load, fate, variant): Key) -> Option<&Case> {
    round.iter().find(|case| case.load == load && case.fate == fate && case.variant == variant)
}

/// Returns the values of a case over all rounds, if it was measured.
fn measured_over(rounds: &[Vec<Case>], key: Key, value: impl Fn(&HostFailureRun) -> f64) -> Option<Measured> {
    let values = rounds.iter().map(|round| Some(value(&find(round, key)?.failed)));
    Measured::from_runs(values.collect::<Option<_>>()?)
}

fn findings(limit: f64, all: &[Planned], rounds: &[Vec<Case>]) -> Result<Findings, Failure> {
    let mut figures = Vec::new();
    for Planned { load, fate, copies } in all {
        let Some(copies) = copies else { continue };
        let key = (*load, *fate, copies.0);
        let baseline = (*load, *fate, STATEFUL);
        let place = format!("host {}, {:.0}% load, {}", fate.past_tense(), load * 100.0, copies.0);
        let figure = |what: &str, unit: &str, value: fn(&HostFailureRun) -> f64| {
            let ours = measured_over(rounds, key, value).ok_or_else(|| Failure("nothing was measured".into()))?;
            let figure = Figure::new(format!("{what}, {place}"), unit, ours);
            Ok::<_, Failure>(figure.baseline(STATEFUL, measured_over(rounds, baseline, value)))
        };
        let mark = |figure: Figure, most: f64| if copies.is_safe() { figure.mark(Bound::AtMost(most)) } else { figure };
        figures.push(mark(figure("lost UEs", "UEs", HostFailureRun::lost_ues)?, 0.0));
        figures.push(mark(figure("failed procedures", "", HostFailureRun::failed)?, 0.0));
        let worst = figure("worst latency", "ms", |failed| failed.around.worst_ms)?;
        let worst = match copies.1 {
            "none" => worst,
            _ => worst.paper(Bound::AtMost(2500.0), "figure 7a, host failure (averages)"),
        };
        figures.push(mark(worst, WORST_MS));
    }
    let mut plots = vec![("lost", lost_by_fate(all, rounds)?)];
    for (fate, name) in [(HostFault::Kill, "killed"), (HostFault::Stop, "stopped"), (HostFault::Cut, "cut-off")] {
        if all.iter().any(|case| case.fate == fate) {
            plots.push((name, over_time(fate, limit, rounds)?));
        }
    }
    if all.iter().any(|case| case.load != LOAD) {
        plots.push(("lost-by-load", lost_by_load(limit, rounds)?));
    }
    let safe = |variant: &str| ALL_COPIES.iter().any(|copies| copies.0 == variant && copies.is_safe());
    let lost: f64 = rounds.iter().flatten().filter(|case| safe(case.variant)).map(|case| case.failed.lost_ues()).sum();
    let mut loads: Vec<f64> = all.iter().map(|case| case.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let variants = ALL_COPIES.into_iter().map(Some).chain([None]);
    let measured =
        |copies: &Option<ReplicationMode>| all.iter().any(|case| case.copies.map(|c| c.0) == copies.map(|c| c.0));
    Ok(Findings {
        load: OfferedLoad::new("service requests, open loop", loads.into_iter().map(|part| limit * part), "1/s"),
        configurations: variants.filter(measured).map(|copies| variant(copies).configuration()).collect(),
        figures,
        plots,
        tables: vec![("cases", table(rounds)), ("timeline", timeline(rounds))],
        notes: notes(limit, rounds),
        broken: (lost > 0.0).then(|| format!("{lost} UEs were lost although there were copies of them")),
    })
}

fn notes(limit: f64, rounds: &[Vec<Case>]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "Three hosts behind one balancer, each in a namespace of its own with a quarter of a processor (not in the short \
             form), which with the emulator share all processors. The load is a part of {limit:.0} service requests/s, T1, open loop; latency counts from when a request was due; the \
             worst one is that of requests due within {SOON_S} s after the fault. The host with the most UEs fails; one that was \
             stopped or cut off comes back after {} s, when its UEs are others'. Every UE repeats a request after 1 s and \
             registers anew after 5 s.",
            super::AWAY_S
        ),
        "The stateful baseline: the paper has 5 s, and about 40% of the connections dropped at 50,000/s. Here the hosts that are \
         left refuse UEs that they do not know at once, so that these register anew at once: it is kinder than the paper's."
            .to_owned(),
        format!(
            "At {:.0}% load the two hosts that are left are offered {:.0}% of what they keep up with: requests pile up there for \
             as long as the load lasts, whatever the core does about the fault, and the worst latency says how long that was.",
            OTHER_LOADS[1] * 100.0,
            OTHER_LOADS[1] * 100.0 * HOSTS as f64 / (HOSTS - 1) as f64
        ),
    ];
    for case in rounds.iter().flatten().filter(|case| case.variant != STATEFUL && case.variant != NO_COPIES.0) {
        let when = format!("host {}, {:.0}% load, {}", case.fate.past_tense(), case.load * 100.0, case.variant);
        let complaints = case.failed.outcome.result.complaints();
        notes.extend(complaints.iter().map(|what| format!("Went wrong ({when}): {what}.")));
    }
    notes
}

/// Plots the worst latency per 0.1 s in the first round.
fn over_time(fate: HostFault, limit: f64, rounds: &[Vec<Case>]) -> Result<String, Failure> {
    let title =
        format!("Worst latency around a host that is {}, {:.0} service requests/s", fate.past_tense(), limit * LOAD);
    let mut chart =
        Chart::new(title, Axis::linear("time since the fault (s)"), Axis::log("worst latency of each 0.1 s (ms)"));
    for variant in [STATEFUL].into_iter().chain(OVER_TIME.map(|copies| copies.0)) {
        if let Some(case) = rounds.first().and_then(|round| find(round, (LOAD, fate, variant))) {
            chart = chart.line(variant, case.failed.worst_over_time());
        }
    }
    let chart = chart.mark("paper, host failure: up to 2.5 s", MarkPosition::Y(2500.0));
    Ok(chart.mark("paper, stateful: 5 s", MarkPosition::Y(5000.0)).svg()?)
}

fn lost_by_fate(all: &[Planned], rounds: &[Vec<Case>]) -> Result<String, Failure> {
    let fates: Vec<HostFault> =
        HostFault::ALL.into_iter().filter(|fate| all.iter().any(|case| case.fate == *fate)).collect();
    let series = |variant: &'static str| BarSeries {
        name: variant.to_owned(),
        values: fates
            .iter()
            .map(|fate| measured_over(rounds, (LOAD, *fate, variant), HostFailureRun::lost_share))
            .collect(),
        paper: Vec::new(),
    };
    let bars = Bars {
        title: format!("UEs that lost their registration, {:.0}% load", LOAD * 100.0),
        groups: fates.iter().map(|fate| format!("host {}", fate.past_tense())).collect(),
        y: Axis::linear("UEs lost (%)"),
        series: ALL_COPIES.map(|copies| copies.0).into_iter().chain([STATEFUL]).map(series).collect(),
    };
    Ok(bars.svg()?)
}

fn lost_by_load(limit: f64, rounds: &[Vec<Case>]) -> Result<String, Failure> {
    let mut loads = [&OTHER_LOADS[..], &[LOAD]].concat();
    loads.sort_by(f64::total_cmp);
    let series = |variant: &'static str| BarSeries {
        name: variant.to_owned(),
        values: loads
            .iter()
            .map(|load| measured_over(rounds, (*load, HostFault::Kill, variant), HostFailureRun::lost_share))
            .collect(),
        paper: if variant == STATEFUL { loads.iter().map(|_| Some(40.0)).collect() } else { Vec::new() },
    };
    let bars = Bars {
        title: "UEs that lost their registration when a host was killed".into(),
        groups: loads.iter().map(|load| format!("{:.0}/s", load * limit)).collect(),
        y: Axis::linear("UEs lost (%)"),
        series: BY_LOAD.map(|copies| copies.0).into_iter().chain([STATEFUL]).map(series).collect(),
    };
    Ok(bars.svg()?)
}

fn row(run: usize, case: &Case) -> FaultRow<'_> {
    FaultRow {
        head: [(run + 1).to_string(), case.variant.into(), case.load.to_string(), case.fate.past_tense().into()],
        outcome: &case.failed.outcome,
        at_s: case.failed.at_s,
        impact: case.failed.around,
    }
}

fn timeline(rounds: &[Vec<Case>]) -> Table {
    timelines(each_case(rounds).map(|(run, case)| row(run, case)))
}

fn table(rounds: &[Vec<Case>]) -> Table {
    cases_of(each_case(rounds).map(|(run, case)| row(run, case)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::failed;

    fn rounds(all: &[Planned], worst_ms: f64, lost: u64) -> Vec<Vec<Case>> {
        let case = |Planned { load, fate, copies }: &Planned| Case {
            load: *load,
            fate: *fate,
            variant: copies.map_or(STATEFUL, |copies| copies.0),
            failed: match copies {
                Some(copies) if copies.is_safe() => failed(worst_ms, lost),
                Some(_) => failed(1200.0, 3),
                None => failed(5100.0, 30),
            },
        };
        vec![all.iter().map(case).collect()]
    }

    #[test]
    fn lost_ues_despite_copies_break_experiment() {
        let all = cases(false);
        assert_eq!(all.len(), 3 * 8 + 2 * 3);
        let found = findings(1000.0, &all, &rounds(&all, 300.0, 0)).unwrap();
        assert_eq!(found.broken, None);
        assert!(found.figures.iter().all(|figure| figure.met != Some(false)));
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        let worst = figure("worst latency, host cut off, 50% load, hot, ack one");
        assert_eq!((worst.ours.median, worst.mark), (300.0, Some(Bound::AtMost(WORST_MS))));
        assert_eq!(worst.baseline.as_ref().map(|b| b.value.median), Some(5100.0));
        assert!(figure("lost UEs, host killed, 50% load, cold, ack one").mark.is_none());
        assert_eq!((found.plots.len(), found.configurations.len()), (5, 8));
        let found = findings(1000.0, &all, &rounds(&all, 700.0, 1)).unwrap();
        assert!(found.broken.is_some_and(|what| what.contains("8 UEs")), "two ways, three fates and two loads more");
        assert!(found.figures.iter().any(|figure| figure.met == Some(false)));
    }

    #[test]
    fn short_form_has_figures() {
        let all = cases(true);
        let found = findings(200.0, &all, &rounds(&all, 10.0, 0)).unwrap();
        assert_eq!((found.figures.len(), found.plots.len(), found.configurations.len()), (3, 2, 2));
    }
}
