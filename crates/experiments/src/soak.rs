//! Long load with random worker faults: no UE is lost, and no resource use grows.

use super::context::{ExperimentContext, FIRST_GUESS, Findings};
use super::steady::{Outcome, Steady};
use super::variants::decomposed;
use crate::analysis::growth::lasting;
use crate::experiment::{Experiment, Run};
use crate::faults::{Kind, schedule};
use crate::plot::{Axis, Chart, MarkPosition};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::core::Core;
use vireo_lab::timeline::Bin;
use vireo_lab::workers::{self, ResourceUse};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "soak",
    about: "Does a core at 70% load keep every UE, and its size, while its workers are killed and stopped at random?",
    paper: "",
    informative: None,
    run: Run::EitherRat(run),
};

/// Load, as a fraction of the saturation rate.
const LOAD: f64 = 0.7;
/// Mix of procedures with weights.
const MIX: [(&str, f64); 7] = [
    ("service-request", 0.6),
    ("xn-handover", 0.1),
    ("n2-handover", 0.05),
    ("periodic-update", 0.1),
    ("mobility-update", 0.05),
    ("session", 0.05),
    ("registration-session", 0.05),
];
/// Workers killed or stopped per minute.
const FAULTS_PER_MINUTE: f64 = 6.0;
/// Growth over the run that does not count as a leak, in percent.
const GROWTH_PERCENT: f64 = 5.0;
/// Least duration of a run in seconds for growth to be significant.
const SETTLES_S: f64 = 240.0;
/// Idle time before the remaining use of the region is counted.
const QUIET: Duration = Duration::from_secs(12);
/// Metrics that are zero in an idle core. At other times they count items in transit, which do not
/// indicate growth.
const QUIET_ZERO: [&str; 2] = ["vireo_region_slots_busy", "vireo_region_packets_in_use"];
/// Interval of the checkpoints in the summary, in seconds.
const MARK_EVERY_S: f64 = 300.0;
/// Interval between samples of the core's metrics.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Name prefix of the metrics that report the use of the region.
const IN_USE: &str = "vireo_region_";

fn load(session: &ExperimentContext, rate: f64, seconds: f64) -> Steady {
    Steady {
        kinds: MIX.to_vec(),
        rate,
        seconds,
        ues: if session.quick { 600 } else { 10_000 },
        interval: Duration::from_millis(if session.quick { 100 } else { 1000 }),
        faults: Vec::new(),
        processors: Vec::new(),
        more: vec!["--seed".into(), session.seed.to_string()],
        beside: None,
    }
}

/// Resource use of the core at one time.
#[derive(Clone, Debug)]
struct Checkpoint {
    at_s: f64,
    resources: ResourceUse,
    in_use: BTreeMap<String, f64>,
}

impl Checkpoint {
    fn take(core: &Core, at_s: f64) -> Result<Self, Failure> {
        let mut in_use = core.metrics()?;
        in_use.retain(|name, _| name.starts_with(IN_USE));
        Ok(Checkpoint { at_s, resources: workers::holdings(&core.process)?, in_use })
    }

    /// Returns the checkpoint as a sentence.
    fn text(&self) -> String {
        let all: Vec<String> = self.quantities().iter().map(|(name, value)| format!("{name} {value:.1}")).collect();
        format!("{}.", all.join(", "))
    }

    /// Returns all quantities that must not grow, with units.
    fn quantities(&self) -> Vec<(String, f64)> {
        let h = &self.resources;
        let mb = |octets: u64| octets as f64 / 1e6;
        let mut all = vec![
            ("private memory of the core's process (MB)".to_owned(), mb(h.parent_bytes)),
            // The sum over all workers would depend on how many have run NFs since they were
            // started, which is random.
            ("private memory of the largest worker (MB)".to_owned(), mb(h.largest_worker_bytes)),
            ("shared memory (MB)".to_owned(), mb(h.shared_bytes)),
            ("file descriptors of the core's process".to_owned(), h.parent_fds as f64),
            ("file descriptors of all workers".to_owned(), h.worker_fds as f64),
            ("worker processes".to_owned(), h.workers as f64),
        ];
        all.extend(self.in_use.iter().map(|(name, value)| (name.clone(), *value)));
        all
    }
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let variant = decomposed("vireo", "NFs by slice and procedure, the contexts in shared memory.", &[], 16, &[]);
    // The saturation search runs longer, because a rate that holds for a few seconds may not hold
    // for long.
    let limit = session.saturation(&variant, &[], FIRST_GUESS, &|rate, seconds| load(session, rate, seconds * 3.0))?;
    let seconds = if session.quick { 15.0 } else { session.minutes * 60.0 };
    let per_minute = if session.quick { 30.0 } else { FAULTS_PER_MINUTE };
    let mut steady = load(session, limit * LOAD, seconds);
    steady.faults = schedule(session.seed, per_minute, (seconds * 0.05, seconds * 0.97), 1.0);
    eprintln!(
        "experiment: {:.0} procedures/s for {:.1} minutes with {} faults",
        steady.rate,
        seconds / 60.0,
        steady.faults.len()
    );
    let mut core = session.core(&variant, steady.ues, &[])?;
    let mut marks: Vec<Checkpoint> = Vec::new();
    let mut sampled: Option<Instant> = None;
    let outcome = session.steady(&mut core, &steady, &mut |core, at_s| {
        if sampled.is_none_or(|at| at.elapsed() >= SAMPLE_EVERY) && at_s < seconds {
            sampled = Some(Instant::now());
            marks.push(Checkpoint::take(core, at_s)?);
        }
        Ok(())
    })?;
    // The core checks its region every few seconds.
    std::thread::sleep(QUIET);
    let quiet = Checkpoint::take(&core, seconds + QUIET.as_secs_f64())?;
    core.stop()?;
    let mut findings = findings(limit, session.seed, &steady, &outcome, &marks)?;
    findings.configurations.push(variant.configuration());
    findings.notes.push(format!("When the load is over: {}", quiet.text()));
    for name in QUIET_ZERO {
        if let Some(value) = quiet.in_use.get(name) {
            let figure = Figure::new(format!("{name} when the load is over"), "", one(*value)?);
            findings.figures.push(figure.mark(Bound::AtMost(0.0)));
        }
    }
    Ok(findings)
}

fn one(value: f64) -> Result<Measured, Failure> {
    Measured::from_runs(vec![value]).ok_or_else(|| Failure("nothing was measured".into()))
}

fn findings(
    limit: f64,
    seed: u64,
    steady: &Steady,
    outcome: &Outcome,
    marks: &[Checkpoint],
) -> Result<Findings, Failure> {
    let r = &outcome.result;
    let happened = |kind: Kind| outcome.faults.iter().filter(|(fault, _)| fault.kind == kind).count() as f64;
    let bins = outcome.bins("all");
    let worst = bins.iter().map(|bin| bin.max_ms).fold(0.0, f64::max);
    let service = r.latency("service_request");
    let violations = r.violations.values().sum::<u64>();
    let mut figures = vec![
        Figure::new("procedures done", "", one(r.completed as f64)?),
        Figure::new("workers killed", "", one(happened(Kind::Kill))?),
        Figure::new("workers stopped", "", one(happened(Kind::Stop))?),
        Figure::new("lost UEs", "UEs", one(r.lost as f64)?).mark(Bound::AtMost(0.0)),
        Figure::new("failed procedures", "", one(r.failed_procedures as f64)?).mark(Bound::AtMost(0.0)),
        Figure::new("violations of the specifications", "", one(violations as f64)?).mark(Bound::AtMost(0.0)),
        Figure::new("service request p50", "ms", one(service.p50 as f64 / 1e3)?),
        Figure::new("service request p99", "ms", one(service.p99 as f64 / 1e3)?),
        Figure::new("worst latency of any procedure", "ms", one(worst)?),
    ];
    // The first third lets pools and heaps reach their size: each kind of worker must have died
    // once.
    let settled = &marks[marks.len() / 3..];
    let mut table = Table::new(&["at_s", "quantity", "value"]);
    let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for mark in marks {
        for (name, value) in mark.quantities() {
            table.row([mark.at_s.to_string(), name, value.to_string()]);
        }
    }
    for mark in settled {
        for (name, value) in mark.quantities().into_iter().filter(|(name, _)| !QUIET_ZERO.contains(&name.as_str())) {
            lines.entry(name).or_default().push((mark.at_s, value));
        }
    }
    for (name, points) in &lines {
        let figure = Figure::new(format!("lasting growth of {name}"), "%", one(lasting(points) * 100.0)?);
        // First use of memory in a short run is not a leak.
        let settles = steady.seconds >= SETTLES_S;
        figures.push(if settles { figure.mark(Bound::AtMost(GROWTH_PERCENT)) } else { figure });
    }
    let complaints = r.complaints();
    let broken = (r.lost > 0).then(|| format!("{} UEs were lost", r.lost));
    Ok(Findings {
        load: OfferedLoad::new("mix of procedures, open loop, 70% of saturation", [steady.rate], "1/s"),
        figures,
        plots: vec![("latency", latency(&bins, outcome).svg()?), ("size", size(marks).svg()?)],
        tables: vec![("size", table), ("timeline", timeline(&bins))],
        notes: [
            format!(
                "Saturation of the mix is {limit:.0} procedures/s; {:.0}/s for {:.1} minutes with {} UEs, seed {}.",
                steady.rate,
                steady.seconds / 60.0,
                steady.ues,
                seed
            ),
            format!("The mix: {}.", MIX.map(|(name, weight)| format!("{name} {weight}")).join(", ")),
        ]
        .into_iter()
        .chain(checkpoint_notes(marks))
        .chain(complaints.iter().map(|what| format!("Went wrong: {what}.")))
        .collect(),
        broken,
        ..Findings::default()
    })
}

/// Describes the checkpoints at the beginning, at intervals and at the end.
fn checkpoint_notes(marks: &[Checkpoint]) -> Vec<String> {
    let mut next_s = 0.0;
    let mut lines = Vec::new();
    for (index, mark) in marks.iter().enumerate() {
        if mark.at_s >= next_s || index + 1 == marks.len() {
            lines.push(format!("After {:.1} minutes: {}", mark.at_s / 60.0, mark.text()));
            next_s = (mark.at_s / MARK_EVERY_S).floor() * MARK_EVERY_S + MARK_EVERY_S;
        }
    }
    lines
}

fn latency(bins: &[Bin], outcome: &Outcome) -> Chart {
    let line =
        |value: fn(&Bin) -> f64| bins.iter().filter(|b| b.done > 0).map(|b| (b.at_s, value(b))).collect::<Vec<_>>();
    let mut chart = Chart::new(
        "Latency while workers are killed and stopped",
        Axis::linear("time (s)"),
        Axis::log("latency of all procedures (ms)"),
    )
    .line("largest", line(|b| b.max_ms))
    .line("p99", line(|b| b.p99_ms))
    .line("p50", line(|b| b.p50_ms));
    for (kind, name) in [(Kind::Kill, "worker killed"), (Kind::Stop, "worker stopped")] {
        if let Some((_, at)) = outcome.faults.iter().find(|(fault, _)| fault.kind == kind) {
            chart = chart.mark(format!("the first {name}"), MarkPosition::X(*at));
        }
    }
    chart
}

fn size(marks: &[Checkpoint]) -> Chart {
    let line =
        |value: fn(&ResourceUse) -> u64| marks.iter().map(|m| (m.at_s, value(&m.resources) as f64 / 1e6)).collect();
    Chart::new("What the core holds", Axis::linear("time (s)"), Axis::log("resident memory (MB)"))
        .line("core's process, private", line(|h| h.parent_bytes))
        .line("the largest worker, private", line(|h| h.largest_worker_bytes))
        .line("shared", line(|h| h.shared_bytes))
}

fn timeline(bins: &[Bin]) -> Table {
    let mut table = Table::new(&["at_s", "done", "failed", "p50_ms", "p99_ms", "max_ms"]);
    for b in bins {
        table.row([b.at_s, b.done as f64, b.failed as f64, b.p50_ms, b.p99_ms, b.max_ms]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steady::tests::outcome;

    fn mark(at_s: f64, parent_bytes: u64) -> Checkpoint {
        let resources = ResourceUse {
            workers: 4,
            parent_bytes,
            largest_worker_bytes: 1 << 20,
            parent_fds: 20,
            ..ResourceUse::default()
        };
        Checkpoint {
            at_s,
            resources,
            in_use: BTreeMap::from([
                ("vireo_region_buffers_in_use".into(), 3.0),
                ("vireo_region_packets_in_use".into(), at_s),
            ]),
        }
    }

    #[test]
    fn leak_and_lost_ue_are_reported() {
        let outcome = |lost| {
            let mut outcome = outcome(&[("service_request", 2)], Kind::Stop);
            outcome.result.lost = lost;
            outcome
        };
        let steady = Steady {
            kinds: MIX.to_vec(),
            rate: 700.0,
            seconds: 600.0,
            ues: 100,
            interval: Duration::from_secs(1),
            faults: Vec::new(),
            processors: Vec::new(),
            more: Vec::new(),
            beside: None,
        };
        let of = |leak: u64, lost: u64| {
            let marks: Vec<Checkpoint> = (0..60).map(|n| mark(n as f64, (50 << 20) + n * leak)).collect();
            super::findings(1000.0, 1, &steady, &outcome(lost), &marks).unwrap()
        };
        let good = of(0, 0);
        assert!(good.broken.is_none() && good.figures.iter().all(|f| f.met != Some(false)), "{:?}", good.figures);
        assert!(good.figures.iter().any(|f| f.name == "lasting growth of vireo_region_buffers_in_use"));
        assert!(good.figures.iter().all(|f| f.name != "lasting growth of vireo_region_packets_in_use"));
        let bad = of(1 << 17, 3);
        assert_eq!(bad.broken.as_deref(), Some("3 UEs were lost"));
        let missed: Vec<&str> = bad.figures.iter().filter(|f| f.met == Some(false)).map(|f| f.name.as_str()).collect();
        assert_eq!(missed, ["lost UEs", "lasting growth of private memory of the core's process (MB)"]);
    }
}
