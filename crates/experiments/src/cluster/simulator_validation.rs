//! Validation of the simulator against three real hosts.
//!
//! The same loads run on both. Three other loads calibrate the values that the simulator cannot
//! know: procedure time, wake-up time, background work of a host, and message transit time.

use super::placement::Readings;
use super::{
    HOST_PART, HOSTS, HOT_ONE, LONGEST, NO_COPIES, QUICK_LIMIT, REPLICAS, SEARCH_S, SEARCH_STEPS, capped, lines,
    saturation, service_requests,
};
use crate::analysis;
use crate::context::{ExperimentContext, Findings, Metric, Variant, each};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, BarSeries, Bars, Chart};
use vireo_bench::results::{Bound, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_core::schedule::kind::NfKind;
use vireo_lab::QUOTA_PERIOD;
use vireo_lab::emulator::Latency;
use vireo_simulator::cluster::{Binding, Cap, Procedure, ServingCost, Setup, Slice, Workload, simulate};
use vireo_types::Duration;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-agreement",
    about: "Does the simulator say what three real hosts do, at loads that it was not calibrated at?",
    paper: "",
    informative: None,
    run: Run::Core(run),
};

/// Loads of the validation, as fractions of the highest rate at which hosts meet the objective.
const JUDGED: [f64; 3] = [0.4, 0.75, 0.9];
/// Loads of the calibration. The first two are fractions of the same rate: a nearly idle cluster,
/// and messages that arrive alone. [`FULL`] is a fraction of the saturation rate: messages nearly
/// always find others queued.
const CALIBRATED: [f64; 2] = [0.02, 0.2];
const FULL: f64 = 0.9;
/// Duration of each load in seconds, in the full and in the short form.
const SECONDS: f64 = 8.0;
const QUICK_SECONDS: f64 = 1.0;
/// Simulated time, after a warm-up that is not counted.
const SIMULATED: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 20 });
const WARM_UP: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 2000 });
/// Latency objective of a service request, in ms (`examples/slices.toml`).
const OBJECTIVE_MS: f64 = 10.0;
/// Limit of late procedures in normal operation, in percent, and the start rate of the search for
/// the highest rate within the limit. Above it the cgroup's quota throttles hosts. The time per
/// message then depends on the queue: the longer the queue, the shorter the time.
const LATE: f64 = 5.0;
const FIRST_GUESS: f64 = 500.0;
/// Tolerated error of the simulator, in percent of the real value.
const WRONG: f64 = 15.0;
/// Least number of late procedures to which an error is relative. The standard deviation of a count
/// of 100 is 10, and below [`WRONG`]; fewer are too few to judge by themselves.
const FEW_LATE: f64 = 100.0;
/// Messages to hosts per service request: until the UE is answered, and afterwards until the UE is
/// idle again. The latter are the RAN's answer, two of the UPF, and the RAN's release request and
/// its answer.
const ANSWERED: u32 = 1;
const FOLLOW: u32 = 5;
/// Time between two of these messages, in milliseconds.
const BETWEEN_MS: f64 = 0.5;
/// Background activities of a host per second.
const BY_ITSELF: f64 = 100.0;
/// Iterations of the calibration. The number of wake-ups depends on the assumed message time, so it
/// is computed again for each new estimate.
const ROUNDS: u32 = if cfg!(test) { 6 } else { 12 };

const REQUESTS: &str = "requests";

/// Hosts without replicas, whose owners serve.
fn without_copies() -> Variant {
    NO_COPIES.variant()
}

/// Hosts with replicas, which serve procedures by the product's choice.
fn with_replicas() -> Variant {
    let base = HOT_ONE.variant();
    Variant {
        name: "hot, ack one, serve procedure",
        tables: base.tables.clone() + "\n[steering]\nserve = \"procedure\"\n",
        ..base
    }
}

/// Returns true if replicas serve procedures.
fn replicas_serve(variant: &Variant) -> bool {
    variant.tables.contains("serve = \"procedure\"")
}

/// Behaviour of hosts, measured or simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Observed {
    /// Completed service requests: number, and per second.
    count: u64,
    rate: f64,
    p50_ms: f64,
    mean_ms: f64,
    /// Requests slower than [`OBJECTIVE_MS`], in percent.
    late: f64,
    /// Used share of the processor time available to all hosts, in percent; `busiest` is that of
    /// the busiest host.
    cpu: f64,
    busiest: f64,
    /// Procedures that replicas served, in percent.
    by_replicas: f64,
}

const TOLD: [Metric<Observed>; 6] = [
    ("procedures done (1/s)", |seen| seen.rate),
    ("median latency (ms)", |seen| seen.p50_ms),
    ("mean latency (ms)", |seen| seen.mean_ms),
    ("CPU of all hosts, of what they may use (%)", |seen| seen.cpu),
    ("CPU of the busiest host, of what it may use (%)", |seen| seen.busiest),
    ("late procedures (%)", |seen| seen.late),
];

/// Calibrated parameters of the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Calibration {
    /// Time of all messages of a procedure in busy hosts, in microseconds.
    time_us: f64,
    /// Additional time of a message that arrives at an idle host, in microseconds.
    wake_us: f64,
    /// Background use of a host, in processors.
    idle: f64,
    /// Part of a request's latency outside the hosts, in milliseconds.
    outside_ms: f64,
}

/// Results of one load on real and simulated hosts.
#[derive(Clone, Copy, Debug)]
struct Point {
    part: f64,
    real: Observed,
    simulated: Observed,
}

impl Point {
    /// Returns the error of the simulator relative to the real value, in percent; that of late
    /// procedures relative to [`FEW_LATE`] of them at least.
    fn wrong(&self, (name, value): Metric<Observed>) -> f64 {
        let (real, simulated) = (value(&self.real), value(&self.simulated));
        let few = FEW_LATE * 100.0 / self.real.count.max(1) as f64;
        let of = if name.starts_with("late") { real.max(few) } else { real };
        (simulated - real).abs() / of * 100.0
    }
}

/// Runs a load on real hosts.
fn real(session: &ExperimentContext, variant: &Variant, rate: f64, seconds: f64) -> Result<Observed, Failure> {
    session.interrupt.check()?;
    let load = service_requests(session, rate, seconds);
    let mut core = session.core(variant, load.subscribers(), &[])?;
    let mut readings = Readings::default();
    let outcome = session.steady(&mut core, &load, &mut |core, _| readings.read(core))?;
    readings.read_served(&core)?;
    core.stop()?;
    let result = &outcome.result;
    let from = result.steady_began_unix_us;
    let until = from + (result.steady_seconds * 1e6) as u64;
    let used = readings.cpu_between(from, until, variant.host_part.unwrap_or(1.0));
    if used.is_empty() {
        return Err(Failure("the load was over before the hosts' processor time was read twice".into()));
    }
    let latency = result.latency("service_request");
    Ok(Observed {
        count: latency.count,
        rate: result.completed as f64 / result.steady_seconds.max(1e-6),
        p50_ms: latency.p50 as f64 / 1e3,
        mean_ms: latency.mean / 1e3,
        late: late(&latency),
        cpu: used.iter().sum::<f64>() / used.len() as f64,
        busiest: used.iter().copied().fold(0.0, f64::max),
        by_replicas: readings.by_replicas(),
    })
}

impl Observed {
    /// Returns the CPU time of a procedure in the mean, relative to one that the owner serves.
    fn replica_factor(&self) -> f64 {
        1.0 + self.by_replicas / 100.0 * (ServingCost::default().total - 1.0)
    }
}

impl Calibration {
    /// Calibrates from the processor time that hosts used at three loads. The simulator computes
    /// the wake-ups at each load.
    fn new(variant: &Variant, [quiet, low, full]: [Observed; 3], (ues, seed): (u32, u64)) -> Result<Self, Failure> {
        let may = variant.host_part.unwrap_or(1.0) * HOSTS as f64;
        let used = |seen: &Observed| seen.cpu / 100.0 * may;
        let most = used(&full) / full.rate;
        if !(most.is_finite() && used(&full) > used(&quiet)) {
            return Err(Failure(
                "much more load took the hosts no more processor time: measure again on an idle machine".into(),
            ));
        }
        // The first estimate assumes no wake-ups.
        let mut found = Calibration { time_us: most * 1e6, wake_us: 0.0, idle: 0.0, outside_ms: 0.0 };
        for _ in 0..ROUNDS {
            let alone_us = found.time_us + found.wake_us * f64::from(ANSWERED + FOLLOW);
            found.idle = ((used(&quiet) - quiet.rate * alone_us / 1e6) / HOSTS as f64).max(0.0);
            let own = HOSTS as f64 * BY_ITSELF * found.own_us() / 1e6;
            // Used time is rate x time + wake-ups x wake. The time grows with the procedures that
            // replicas serve. Each step goes half of the way, because each value depends on the
            // other.
            let (seen, woken) = found.outcome(variant, low.rate, (ues, seed))?;
            let work = low.rate * found.time_us * seen.replica_factor() / 1e6;
            let wake = (used(&low) - own - work) / f64::max(woken, 1.0);
            found.wake_us = (found.wake_us + wake.max(0.0) * 1e6) / 2.0;
            let (seen, woken) = found.outcome(variant, full.rate, (ues, seed))?;
            let work = used(&full) - own - woken * found.wake_us / 1e6;
            let time = work / (full.rate * seen.replica_factor());
            found.time_us = (found.time_us + time.max(most / 100.0) * 1e6) / 2.0;
        }
        found.outside_ms = (low.p50_ms - found.simulated(variant, low.rate, (ues, seed))?.p50_ms).max(0.0);
        Ok(found)
    }

    /// Returns the time of one background activity in microseconds, without the wake-up.
    fn own_us(&self) -> f64 {
        (self.idle / BY_ITSELF * 1e6 - self.wake_us).max(0.0)
    }

    /// Returns the workload of the hosts: requests, their follow-up messages, and background work.
    fn workload(&self, rate: f64, ues: u32) -> Workload {
        let each_us = self.time_us / f64::from(ANSWERED + FOLLOW);
        let slice = |name: &str, rate: f64, kind: NfKind, messages: u32, slo_ms: f64| Slice {
            name: name.into(),
            rate,
            // Requests have the pattern of the real load. The other messages are not synchronised
            // with them.
            pattern: if name == REQUESTS { "T1" } else { "poisson" }.into(),
            ues,
            skew: 0.0,
            cap: None,
            heavy: None,
            procedures: vec![Procedure {
                kind,
                part: 1.0,
                time_us: each_us * f64::from(messages),
                messages,
                between_ms: BETWEEN_MS,
                slo_ms,
            }],
        };
        let objective = (OBJECTIVE_MS - self.outside_ms).max(0.01);
        let mut slices = vec![
            slice(REQUESTS, rate, NfKind::ServiceRequest, ANSWERED, objective),
            slice("what follows", rate, NfKind::StateManagement, FOLLOW, 1000.0),
        ];
        if self.own_us() > 0.0 {
            let mut own = slice("by itself", BY_ITSELF * HOSTS as f64, NfKind::StateManagement, 1, 1000.0);
            own.procedures[0].time_us = self.own_us();
            slices.push(own);
        }
        Workload { slices }
    }

    /// Simulates the load on hosts with a virtual clock.
    fn simulated(&self, variant: &Variant, rate: f64, seed: (u32, u64)) -> Result<Observed, Failure> {
        Ok(self.outcome(variant, rate, seed)?.0)
    }

    /// Simulates the load. Returns also the wake-ups of idle hosts per second.
    fn outcome(&self, variant: &Variant, rate: f64, (ues, seed): (u32, u64)) -> Result<(Observed, f64), Failure> {
        let cap = variant.host_part.map(|part| Cap { part, period: Duration(QUOTA_PERIOD.as_micros() as u64) });
        let wake = Duration(self.wake_us.round() as u64);
        let (replicas, binding) =
            if replicas_serve(variant) { (REPLICAS, Binding::Procedure) } else { (0, Binding::Bucket) };
        let setup = Setup { hosts: HOSTS as u16, cap, wake, replicas, binding, ..Setup::default() };
        let outcome = simulate(setup, &self.workload(rate, ues), seed, WARM_UP, SIMULATED)
            .map_err(|error| Failure(format!("what was measured is no workload: {error}")))?;
        let requests = outcome.pools.iter().find(|pool| pool.slice == REQUESTS);
        let requests = requests.ok_or_else(|| Failure("nothing was simulated".into()))?;
        let seconds = SIMULATED.0 as f64 / 1e6;
        let seen = Observed {
            count: requests.procedures,
            rate: (requests.procedures - requests.overdue) as f64 / seconds,
            p50_ms: requests.p50_us as f64 / 1e3 + self.outside_ms,
            mean_ms: requests.mean_us / 1e3 + self.outside_ms,
            late: requests.violations as f64 * 100.0 / requests.procedures.max(1) as f64,
            cpu: outcome.cpu.iter().sum::<f64>() * 100.0 / outcome.cpu.len().max(1) as f64,
            busiest: outcome.cpu.iter().copied().fold(0.0, f64::max) * 100.0,
            by_replicas: outcome.replica_share() * 100.0,
        };
        Ok((seen, outcome.woken as f64 / seconds))
    }
}

/// Returns the procedures slower than the objective, in percent.
fn late(latency: &Latency) -> f64 {
    latency.over_10ms as f64 * 100.0 / latency.count.max(1) as f64
}

/// Returns the highest rate at which at most [`LATE`] percent are late. The short form does not
/// search.
fn in_time(session: &ExperimentContext, variant: &Variant) -> Result<f64, Failure> {
    if session.quick {
        return Ok(QUICK_LIMIT);
    }
    let found = analysis::saturation::search(FIRST_GUESS, SEARCH_STEPS, |rate| {
        session.interrupt.check()?;
        let outcome = session.on_core(variant, &[], &service_requests(session, rate, SEARCH_S))?;
        let late = late(&outcome.result.latency("service_request"));
        let in_time = outcome.kept_up(LONGEST) && late <= LATE;
        eprintln!("experiment: {}: {rate:.0}/s: {late:.1}% late, in time: {in_time}", variant.name);
        Ok::<_, Failure>(in_time)
    })?;
    if found <= 0.0 {
        return Err(Failure(format!("the hosts ({}) do no load in time that was tried", variant.name)));
    }
    Ok(found)
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let variants = if session.quick { vec![with_replicas()] } else { vec![without_copies(), with_replicas()] };
    let variants: Vec<Variant> = variants.into_iter().map(|variant| capped(session, variant)).collect();
    let judged = if session.quick { &JUDGED[..1] } else { &JUDGED };
    let seconds = if session.quick { QUICK_SECONDS } else { SECONDS };
    let limits = |variant| Ok([in_time(session, variant)?, saturation(session, variant, &service_requests)?]);
    let limits: Vec<[f64; 2]> = variants.iter().map(limits).collect::<Result<_, Failure>>()?;
    let ues = service_requests(session, 1.0, 1.0).ues;
    // Index order: run, variant.
    let rounds = session.repeat("real and simulated hosts", |run| {
        let seed = (ues, session.seed.wrapping_add(run.into()));
        let one = |(variant, [limit, most]): (&Variant, &[f64; 2])| {
            let real = |part: f64| real(session, variant, limit * part, seconds);
            let [quiet, low] = CALIBRATED.map(real);
            let at = [quiet?, low?, real(FULL * most / limit)?];
            let calibration = Calibration::new(variant, at, seed)?;
            eprintln!("experiment: {}: {at:?}: {calibration:?}", variant.name);
            let point = |part: &f64| {
                let real = real(*part)?;
                let simulated = calibration.simulated(variant, limit * part, seed)?;
                eprintln!("experiment: {}, {part}: {real:?}, simulated: {simulated:?}", variant.name);
                Ok(Point { part: *part, real, simulated })
            };
            Ok((calibration, judged.iter().map(point).collect::<Result<Vec<Point>, Failure>>()?))
        };
        variants.iter().zip(&limits).map(one).collect::<Result<Vec<_>, Failure>>()
    })?;
    findings(&variants, &limits, &rounds)
}

/// A calibration and its validation points.
type Line = (Calibration, Vec<Point>);

fn findings(variants: &[Variant], limits: &[[f64; 2]], rounds: &[Vec<Line>]) -> Result<Findings, Failure> {
    let first = rounds.first().ok_or_else(|| Failure("nothing was measured".into()))?;
    let mut figures = Vec::new();
    for (place, variant) in variants.iter().enumerate() {
        for (n, point) in first[place].1.iter().enumerate() {
            for told in TOLD {
                let (what, unit) = told.0.split_once(" (").unwrap_or((told.0, ""));
                let unit = unit.trim_end_matches(')');
                let name = format!("{what}, {:.0}% load, {}", point.part * 100.0, variant.name);
                let at = |value: &dyn Fn(&Point) -> f64| each(rounds, |round| value(&round[place].1[n]));
                let simulated = at(&|point| told.1(&point.simulated))?;
                let figure = Figure::new(format!("{name}, simulated"), unit, simulated);
                figures.push(figure.baseline("real", Some(at(&|point| told.1(&point.real))?)));
                let figure = Figure::new(format!("{name}, wrong by"), "%", at(&|point| point.wrong(told))?);
                figures.push(figure.mark(Bound::AtMost(WRONG)));
            }
            if replicas_serve(variant) {
                let name = format!("served by replicas, {:.0}% load, {}, simulated", point.part * 100.0, variant.name);
                let at = |of: fn(&Point) -> Observed| each(rounds, |round| of(&round[place].1[n]).by_replicas);
                let figure = Figure::new(name, "%", at(|point| point.simulated)?);
                figures.push(figure.baseline("real", Some(at(|point| point.real)?)));
            }
        }
    }
    let misses = misses(&figures);
    let mut chart = Chart::new(
        "Real hosts and simulated ones",
        Axis::linear("load, of what the hosts do in time"),
        Axis::log("median latency (ms)"),
    );
    for (place, variant) in variants.iter().enumerate() {
        let line = |of: fn(&Point) -> Observed| -> Vec<(f64, f64)> {
            first[place].1.iter().map(|point| (point.part, of(point).p50_ms.max(1e-2))).collect()
        };
        chart = chart.line(format!("{}, real", variant.name), line(|point| point.real));
        chart = chart.line(format!("{}, simulated", variant.name), line(|point| point.simulated));
    }
    Ok(Findings {
        load: OfferedLoad::new("service requests, open loop", load_rates(limits, &first[0].1), "1/s"),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("latency", chart.svg()?), ("errors", errors(variants, rounds)?)],
        tables: vec![("points", table(variants, rounds))],
        notes: notes(variants, limits).into_iter().chain(misses).collect(),
        broken: None,
    })
}

/// Plots the errors of the simulator.
fn errors(variants: &[Variant], rounds: &[Vec<Line>]) -> Result<String, Failure> {
    let mut series = Vec::new();
    for (place, variant) in variants.iter().enumerate() {
        let count = rounds.first().map_or(0, |round| round[place].1.len());
        for n in 0..count {
            let errors = TOLD.map(|told| each(rounds, |round| round[place].1[n].wrong(told)).map(Some));
            let part = rounds[0][place].1[n].part * 100.0;
            let values: Vec<_> = errors.into_iter().collect::<Result<_, _>>()?;
            let paper = vec![None; values.len()];
            series.push(BarSeries { name: format!("{part:.0}% load, {}", variant.name), values, paper });
        }
    }
    let groups = TOLD.map(|(name, _)| name.split([',', '(']).next().unwrap_or(name).trim().to_owned());
    let title = format!("Errors of the simulator; the mark is {WRONG}%");
    Ok(Bars { title, groups: groups.into(), y: Axis::linear("error (% of the real value)"), series }.svg()?)
}

/// Returns the note that names the figures whose marks are missed.
fn misses(figures: &[Figure]) -> Option<String> {
    let marked = figures.iter().filter(|figure| figure.met.is_some()).count();
    let missed: Vec<String> = (figures.iter().filter(|figure| figure.met == Some(false)))
        .map(|figure| format!("{} ({:.0}%)", figure.name.trim_end_matches(", wrong by"), figure.ours.max))
        .collect();
    let list = missed.join("; ");
    (!missed.is_empty()).then(|| {
        format!(
            "The simulator is wrong by more than {WRONG}% in {} of {marked}, with the worst run: {list}.",
            missed.len()
        )
    })
}

/// Returns the judged loads of all variants.
fn load_rates(limits: &[[f64; 2]], points: &[Point]) -> Vec<f64> {
    limits.iter().flat_map(|[in_time, _]| points.iter().map(move |point| in_time * point.part)).collect()
}

fn notes(variants: &[Variant], limits: &[[f64; 2]]) -> Vec<String> {
    let told = |(variant, [in_time, most]): (&Variant, &[f64; 2])| {
        format!("{in_time:.0}/s ({}; at all they keep up with {most:.0}/s)", variant.name)
    };
    let limits: Vec<String> = variants.iter().zip(limits).map(told).collect();
    let cost = ServingCost::default();
    let capped = variants.iter().all(|variant| variant.host_part == Some(HOST_PART));
    let capped = if capped { " with a quarter of a processor each (cpu.max, the simulator's --cap)" } else { "" };
    vec![
        format!(
            "Three hosts{capped} behind one balancer, service requests with the releases that follow, T1, open loop; loads are \
             parts of the highest of which at most {LATE}% take longer than {OBJECTIVE_MS} ms, {}. How long a procedure takes, what \
             a message takes besides that comes to a host without work, and what a host uses by itself are by the processor time \
             at {:.0}% and {:.0}% load and at {:.0}% of what they keep up with at all; how long a request is not in the hosts is what the median at the second of these \
             has beyond the simulator's.",
            limits.join(", "),
            CALIBRATED[0] * 100.0,
            CALIBRATED[1] * 100.0,
            FULL * 100.0
        ),
        format!(
            "Late is what took longer than {OBJECTIVE_MS} ms. Errors are relative to real hosts, of late procedures to {FEW_LATE} \
             of them at least: of fewer, a difference of chance would count. The product's balancer decides in both \
             (core::placement::balancer). A procedure that a simulated replica serves costs {} times the CPU time of one that \
             the owner serves, {} of it at the owner; `vireo bench cluster` measured that (results/bench-cluster). Copies are \
             in the calibrated times. The simulator knows nothing of other processes on the machine.",
            cost.total, cost.owner
        ),
    ]
}

fn table(variants: &[Variant], rounds: &[Vec<Line>]) -> Table {
    let mut table = Table::new(&[
        "run",
        "configuration",
        "time_us",
        "wake_us",
        "idle",
        "outside_ms",
        "load",
        "which",
        "done_per_s",
        "p50_ms",
        "mean_ms",
        "late_percent",
        "cpu_percent",
        "busiest_percent",
        "by_replicas_percent",
    ]);
    for (head, (calibration, points)) in lines(variants, rounds) {
        let Calibration { time_us, wake_us, idle, outside_ms } = *calibration;
        for point in points {
            for (which, seen) in [("real", point.real), ("simulated", point.simulated)] {
                let before = [time_us, wake_us, idle, outside_ms, point.part].map(|number| number.to_string());
                let after = [seen.rate, seen.p50_ms, seen.mean_ms, seen.late, seen.cpu, seen.busiest, seen.by_replicas]
                    .map(|number| number.to_string());
                table.row(head.iter().cloned().chain(before).chain([which.to_owned()]).chain(after));
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Variant {
        Variant { host_part: Some(HOST_PART), ..NO_COPIES.variant() }
    }

    fn observed(rate: f64, p50_ms: f64, cpu: f64) -> Observed {
        let count = (rate * SECONDS) as u64;
        Observed { count, rate, p50_ms, mean_ms: p50_ms, late: 0.0, cpu, busiest: cpu, by_replicas: 0.0 }
    }

    /// 100 us per procedure and 0.01 processors of background work per host: 4% of three quarters
    /// of a processor, and 0.0133% per request/s.
    #[test]
    fn calibration_predicts_fourth_load() {
        let of = |rate: f64| observed(rate, 2.0, (0.03 + rate * 100e-6) / 0.75 * 100.0);
        let calibration = Calibration::new(&hosts(), [of(60.0), of(1000.0), of(7000.0)], (2000, 1)).unwrap();
        assert!((calibration.time_us - 100.0).abs() < 3.0 && (calibration.idle - 0.01).abs() < 1e-3, "{calibration:?}");
        assert!(calibration.wake_us < 1.0 && (0.5..2.0).contains(&calibration.outside_ms), "{calibration:?}");
        let (real, simulated) = (of(2000.0), calibration.simulated(&hosts(), 2000.0, (2000, 2)).unwrap());
        assert!((simulated.rate / 2000.0 - 1.0).abs() < 0.01 && (simulated.cpu / real.cpu - 1.0).abs() < 0.03);
        let point = Point { part: 0.5, real, simulated };
        assert!(
            TOLD.iter().filter(|told| told.0.contains("all hosts")).all(|told| point.wrong(*told) < 3.0),
            "{point:?}"
        );
        // All hosts together cannot use more than three quarters of a processor.
        let full = calibration.simulated(&hosts(), 9000.0, (2000, 3)).unwrap();
        assert!(full.cpu > 98.0 && full.p50_ms > 2.0 * simulated.p50_ms && full.late > 20.0, "{full:?}");
        assert!(Calibration::new(&hosts(), [of(60.0), of(3000.0), observed(4000.0, 2.0, 1.0)], (2000, 1)).is_err());
    }

    /// Calibration from simulated hosts with wake-up costs returns their parameters.
    #[test]
    fn wake_time_is_calibrated() {
        let hosts = hosts();
        let is = Calibration { time_us: 85.0, wake_us: 110.0, idle: 0.02, outside_ms: 0.2 };
        let of = |rate: f64| is.simulated(&hosts, rate, (2000, 3)).unwrap();
        let found = Calibration::new(&hosts, [of(40.0), of(400.0), of(7000.0)], (2000, 5)).unwrap();
        assert!((found.time_us / 85.0 - 1.0).abs() < 0.3 && (found.wake_us / 110.0 - 1.0).abs() < 0.15, "{found:?}");
        let (real, simulated) = (of(1000.0), found.simulated(&hosts, 1000.0, (2000, 7)).unwrap());
        assert!((simulated.cpu / real.cpu - 1.0).abs() < 0.15, "{simulated:?} is not {real:?}");
    }

    /// 400 late procedures instead of 320 are 25% more. Of few, an error is relative to 100.
    #[test]
    fn late_procedures_have_relative_error() {
        let late = |late: f64| Observed { late, count: 10_000, ..observed(100.0, 2.0, 50.0) };
        let wrong = |real: f64, simulated: f64| {
            let point = Point { part: 0.4, real: late(real), simulated: late(simulated) };
            point.wrong(TOLD[5])
        };
        assert!((wrong(3.2, 4.0) - 25.0).abs() < 1e-9 && wrong(0.0, 0.0) == 0.0);
        assert!((wrong(0.0, 0.1) - 10.0).abs() < 1e-9 && (wrong(4.0, 1.0) - 75.0).abs() < 1e-9);
        assert!((wrong(0.2, 0.5) - 30.0).abs() < 1e-9, "20 and 50 of 10,000: 30 are 30% of 100");
    }

    /// A few UEs load hosts unevenly; replicas serve what the owner cannot.
    #[test]
    fn hosts_with_replicas_are_simulated_with_choice() {
        let calibration = Calibration { time_us: 300.0, wake_us: 0.0, idle: 0.0, outside_ms: 1.0 };
        let hosts = |variant: Variant| Variant { host_part: Some(HOST_PART), ..variant };
        let [alone, serving] = [without_copies(), with_replicas()]
            .map(|variant| calibration.simulated(&hosts(variant), 2000.0, (12, 3)).unwrap());
        assert!(serving.late < alone.late, "{alone:?} {serving:?}");
    }

    #[test]
    fn deviation_beyond_bound_is_reported() {
        let calibration = Calibration { time_us: 100.0, wake_us: 0.0, idle: 0.0, outside_ms: 1.0 };
        let point = |p50_ms: f64| Point {
            part: 0.4,
            real: observed(100.0, 2.0, 50.0),
            simulated: observed(104.0, p50_ms, 48.0),
        };
        let found = findings(&[hosts()], &[[250.0; 2]], &[vec![(calibration, vec![point(2.6)])]]).unwrap();
        let wrong = |what: &str| {
            let is_it = |figure: &&Figure| figure.name.starts_with(what) && figure.name.ends_with("wrong by");
            found.figures.iter().find(is_it).unwrap()
        };
        assert!(
            wrong("median latency").met == Some(false) && (wrong("median latency").ours.median - 30.0).abs() < 1e-6
        );
        assert!(wrong("procedures done").met == Some(true) && wrong("late").met == Some(true));
        assert!(found.plots.iter().any(|(name, svg)| *name == "errors" && svg.contains("40% load")));
        let misses = found.notes.last().expect("a note");
        assert!(misses.contains("median latency") && !misses.contains("late procedures"), "{misses}");
        assert_eq!(found.figures[0].baseline.as_ref().map(|real| real.value.median), Some(100.0));
    }
}
