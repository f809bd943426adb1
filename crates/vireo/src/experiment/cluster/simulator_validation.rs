//! Whether the simulator says what three real hosts do: the same loads on both. What the simulator cannot know (how long
//! procedures take here, what waking takes, what a host does by itself, how long messages are on their way) is taken from three
//! other loads.

use super::{
    HOST_PART, HOSTS, HOT_ONE, LONGEST, NO_COPIES, QUICK_LIMIT, ReplicationMode, SEARCH_S, SEARCH_STEPS, capped, lines,
    saturation, service_requests,
};
use crate::cli::Failure;
use crate::experiment::context::{ExperimentContext, Findings, Metric, Variant, each};
use crate::experiment::steady::unix_us;
use crate::experiment::{Experiment, Run};
use crate::lab::QUOTA_PERIOD;
use crate::lab::emulator::Latency;
use vireo_core::schedule::kind::NfKind;
use vireo_simulator::analysis;
use vireo_simulator::cluster::{Cap, Procedure, Setup, Slice, Workload, simulate};
use vireo_simulator::results::plot::{Axis, Chart};
use vireo_simulator::results::{Bound, Figure, Table};
use vireo_types::Duration;

pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-agreement",
    about: "Does the simulator say what three real hosts do, at loads that it was not calibrated at?",
    paper: "",
    run: Run::Core(run),
};

/// Loads at which the simulator is judged, as parts of what the hosts do in time.
const JUDGED: [f64; 3] = [0.4, 0.75, 0.9];
/// Two that it is calibrated at, the same parts: next to nothing to do, and messages that come alone. At the third one, a part of
/// what the hosts keep up with at all, messages nearly always find others before them.
const CALIBRATED: [f64; 2] = [0.02, 0.2];
const FULL: f64 = 0.9;
/// How long each lasts, and the short form's.
const SECONDS: f64 = 8.0;
const QUICK_SECONDS: f64 = 1.0;
/// What is simulated: so long, after so long that is not counted.
const SIMULATED: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 20 });
const WARM_UP: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 2000 });
/// Latency objective of a service request, in ms (`examples/slices.toml`).
const OBJECTIVE_MS: f64 = 10.0;
/// The most of them that may be late where hosts work as they are meant to, in percent, and the rate at which it is begun to
/// look for the highest of which that is so. Beyond it hosts are kept from work by what a group may use, and what a message
/// takes is another matter: the more have piled up meanwhile, the less.
const LATE: f64 = 5.0;
const FIRST_GUESS: f64 = 500.0;
/// By how much the simulator may be wrong, in percent.
const WRONG: f64 = 15.0;
/// Messages of a service request that hosts get until the UE is answered, and what follows until it is idle again: the RAN's
/// answer, two of the UPF, and of the RAN the request to release and its answer.
const ANSWERED: u32 = 1;
const FOLLOW: u32 = 5;
/// From one of these to the next.
const BETWEEN_MS: f64 = 0.5;
/// How often a second a host does what it does by itself.
const BY_ITSELF: f64 = 100.0;
/// How often it is worked out anew how many messages wake a host, which is other than was assumed when messages take another time.
const ROUNDS: u32 = if cfg!(test) { 6 } else { 12 };

const REQUESTS: &str = "requests";

/// What hosts did, or the simulator says that they do.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Observed {
    /// Service requests that were done in a second.
    rate: f64,
    p50_ms: f64,
    mean_ms: f64,
    /// The part of them that took longer than [`OBJECTIVE_MS`], in percent.
    late: f64,
    /// The part of the processors that all hosts may use that they did use, in percent, and that of the busiest.
    cpu: f64,
    busiest: f64,
}

const TOLD: [Metric<Observed>; 6] = [
    ("procedures done (1/s)", |seen| seen.rate),
    ("median latency (ms)", |seen| seen.p50_ms),
    ("mean latency (ms)", |seen| seen.mean_ms),
    ("CPU of all hosts, of what they may use (%)", |seen| seen.cpu),
    ("CPU of the busiest host, of what it may use (%)", |seen| seen.busiest),
    ("late procedures (%)", |seen| seen.late),
];

/// What the simulator is told.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Calibration {
    /// What all messages of a procedure take in hosts that are at work, in microseconds.
    time_us: f64,
    /// What one takes besides that comes to a host without work.
    wake_us: f64,
    /// What a host uses by itself, in processors.
    idle: f64,
    /// How long a request is not in the hosts, in milliseconds.
    outside_ms: f64,
}

/// One load on both.
#[derive(Clone, Copy, Debug)]
struct Point {
    part: f64,
    real: Observed,
    simulated: Observed,
}

impl Point {
    /// By how many percent the simulator is wrong; of late procedures, which may be none, by how many of a hundred procedures.
    fn wrong(&self, (name, value): Metric<Observed>) -> f64 {
        let (real, simulated) = (value(&self.real), value(&self.simulated));
        if name.starts_with("late") { (simulated - real).abs() } else { (simulated / real - 1.0).abs() * 100.0 }
    }
}

/// A load on real hosts.
fn real(session: &ExperimentContext, variant: &Variant, rate: f64, seconds: f64) -> Result<Observed, Failure> {
    session.interrupt.check()?;
    let load = service_requests(session, rate, seconds);
    let mut core = session.core(variant, load.subscribers(), &[])?;
    let mut samples: Vec<(u64, Vec<f64>)> = Vec::new();
    let outcome = session.steady(&mut core, &load, &mut |core, _| {
        samples.push((unix_us(), core.cpu_by_host()?.iter().map(std::time::Duration::as_secs_f64).collect()));
        Ok(())
    })?;
    core.stop()?;
    let result = &outcome.result;
    let began = result.steady_began_unix_us;
    let within = began..=began + (result.steady_seconds * 1e6) as u64;
    let mut samples = samples.into_iter().filter(|(at, _)| within.contains(at));
    let used = match (samples.next(), samples.next_back()) {
        (Some((first, before)), Some((last, after))) => {
            let seconds = (last - first) as f64 / 1e6;
            before.iter().zip(&after).map(|(before, after)| (after - before) / seconds).collect::<Vec<f64>>()
        }
        _ => return Err(Failure("the load was over before the hosts' processor time was read twice".into())),
    };
    let may = variant.host_part.unwrap_or(1.0);
    let latency = result.latency("service_request");
    Ok(Observed {
        rate: result.completed as f64 / result.steady_seconds.max(1e-6),
        p50_ms: latency.p50 as f64 / 1e3,
        mean_ms: latency.mean / 1e3,
        late: late(&latency),
        cpu: used.iter().sum::<f64>() * 100.0 / (may * used.len().max(1) as f64),
        busiest: used.iter().copied().fold(0.0, f64::max) * 100.0 / may,
    })
}

impl Calibration {
    /// By what hosts did at three loads: of each it is known what processor time they used, and the simulator says how often they
    /// were woken.
    fn new(variant: &Variant, [quiet, low, full]: [Observed; 3], (ues, seed): (u32, u64)) -> Result<Self, Failure> {
        let may = variant.host_part.unwrap_or(1.0) * HOSTS as f64;
        let used = |seen: &Observed| seen.cpu / 100.0 * may;
        let most = used(&full) / full.rate;
        if !(most.is_finite() && used(&full) > used(&quiet)) {
            return Err(Failure(
                "much more load took the hosts no more processor time: measure again on an idle machine".into(),
            ));
        }
        // As if none were woken.
        let mut found = Calibration { time_us: most * 1e6, wake_us: 0.0, idle: 0.0, outside_ms: 0.0 };
        for _ in 0..ROUNDS {
            let alone_us = found.time_us + found.wake_us * f64::from(ANSWERED + FOLLOW);
            found.idle = ((used(&quiet) - quiet.rate * alone_us / 1e6) / HOSTS as f64).max(0.0);
            let own = HOSTS as f64 * BY_ITSELF * found.own_us() / 1e6;
            let woken = |found: &Calibration, seen: &Observed| -> Result<f64, Failure> {
                Ok(found.outcome(variant, seen.rate, (ues, seed))?.1)
            };
            // What was used is rate x time + woken x wake. Half of the way each time: what is found of one changes the other.
            let wake = (used(&low) - own - low.rate * found.time_us / 1e6) / f64::max(woken(&found, &low)?, 1.0);
            found.wake_us = (found.wake_us + wake.max(0.0) * 1e6) / 2.0;
            let time = (used(&full) - own - woken(&found, &full)? * found.wake_us / 1e6) / full.rate;
            found.time_us = (found.time_us + time.max(most / 100.0) * 1e6) / 2.0;
        }
        found.outside_ms = (low.p50_ms - found.simulated(variant, low.rate, (ues, seed))?.p50_ms).max(0.0);
        Ok(found)
    }

    /// What a host does by itself each time, besides waking for it.
    fn own_us(&self) -> f64 {
        (self.idle / BY_ITSELF * 1e6 - self.wake_us).max(0.0)
    }

    /// What comes to the hosts: requests, what follows them, and what hosts do by themselves.
    fn workload(&self, rate: f64, ues: u32) -> Workload {
        let each_us = self.time_us / f64::from(ANSWERED + FOLLOW);
        let slice = |name: &str, rate: f64, kind: NfKind, messages: u32, slo_ms: f64| Slice {
            name: name.into(),
            rate,
            // As the load has them; what else comes does not come at the same moments.
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

    /// The load on hosts of a virtual clock.
    fn simulated(&self, variant: &Variant, rate: f64, seed: (u32, u64)) -> Result<Observed, Failure> {
        Ok(self.outcome(variant, rate, seed)?.0)
    }

    /// The same, with how often a second a host without work got some.
    fn outcome(&self, variant: &Variant, rate: f64, (ues, seed): (u32, u64)) -> Result<(Observed, f64), Failure> {
        let cap = variant.host_part.map(|part| Cap { part, period: Duration(QUOTA_PERIOD.as_micros() as u64) });
        let wake = Duration(self.wake_us.round() as u64);
        // Of UEs that are known, each message goes to the owner of the bucket.
        let setup = Setup { hosts: HOSTS as u16, cap, wake, replicas: 0, ..Setup::default() };
        let outcome = simulate(setup, &self.workload(rate, ues), seed, WARM_UP, SIMULATED)
            .map_err(|error| Failure(format!("what was measured is no workload: {error}")))?;
        let requests = outcome.pools.iter().find(|pool| pool.slice == REQUESTS);
        let requests = requests.ok_or_else(|| Failure("nothing was simulated".into()))?;
        let seconds = SIMULATED.0 as f64 / 1e6;
        let seen = Observed {
            rate: requests.procedures as f64 / seconds,
            p50_ms: requests.p50_us as f64 / 1e3 + self.outside_ms,
            mean_ms: requests.mean_us / 1e3 + self.outside_ms,
            late: requests.violations as f64 * 100.0 / requests.procedures.max(1) as f64,
            cpu: outcome.cpu.iter().sum::<f64>() * 100.0 / outcome.cpu.len().max(1) as f64,
            busiest: outcome.cpu.iter().copied().fold(0.0, f64::max) * 100.0,
        };
        Ok((seen, outcome.woken as f64 / seconds))
    }
}

/// The part of procedures that took longer than the objective, in percent.
fn late(latency: &Latency) -> f64 {
    latency.over_10ms as f64 * 100.0 / latency.count.max(1) as f64
}

/// The highest rate of which hosts do nearly all in time; in the short form nobody searches.
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
    let copies: &[ReplicationMode] = if session.quick { &[NO_COPIES] } else { &[NO_COPIES, HOT_ONE] };
    let variants: Vec<Variant> = copies.iter().map(|copies| capped(session, copies.variant())).collect();
    let judged = if session.quick { &JUDGED[..1] } else { &JUDGED };
    let seconds = if session.quick { QUICK_SECONDS } else { SECONDS };
    let limits = |variant| Ok([in_time(session, variant)?, saturation(session, variant, &service_requests)?]);
    let limits: Vec<[f64; 2]> = variants.iter().map(limits).collect::<Result<_, Failure>>()?;
    let ues = service_requests(session, 1.0, 1.0).ues;
    // By run, by variant.
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

/// A calibration, and what came of it.
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
        }
    }
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
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("latency", chart.svg()?)],
        tables: vec![("points", table(variants, rounds))],
        notes: notes(variants, limits),
        broken: None,
    })
}

fn notes(variants: &[Variant], limits: &[[f64; 2]]) -> Vec<String> {
    let told = |(variant, [in_time, most]): (&Variant, &[f64; 2])| {
        format!("{in_time:.0}/s ({}; at all they keep up with {most:.0}/s)", variant.name)
    };
    let limits: Vec<String> = variants.iter().zip(limits).map(told).collect();
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
            "Late is what took longer than {OBJECTIVE_MS} ms; of that the difference is in procedures of a hundred, of all else in \
             percent of what real hosts do. The simulator knows nothing of copies, and of who else is on the machine's \
             processors."
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
    ]);
    for (head, (calibration, points)) in lines(variants, rounds) {
        let Calibration { time_us, wake_us, idle, outside_ms } = *calibration;
        for point in points {
            for (which, seen) in [("real", point.real), ("simulated", point.simulated)] {
                let before = [time_us, wake_us, idle, outside_ms, point.part].map(|number| number.to_string());
                let after = [seen.rate, seen.p50_ms, seen.mean_ms, seen.late, seen.cpu, seen.busiest]
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

    fn seen(rate: f64, p50_ms: f64, cpu: f64) -> Observed {
        Observed { rate, p50_ms, mean_ms: p50_ms, late: 0.0, cpu, busiest: cpu }
    }

    /// 100 us a procedure, and a hundredth of a processor for each host by itself: of three quarters 4% and 0.0133% for each.
    #[test]
    fn what_three_loads_took_says_what_a_fourth_one_takes() {
        let of = |rate: f64| seen(rate, 2.0, (0.03 + rate * 100e-6) / 0.75 * 100.0);
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
        // More than three quarters of a processor is not to be had.
        let full = calibration.simulated(&hosts(), 9000.0, (2000, 3)).unwrap();
        assert!(full.cpu > 98.0 && full.p50_ms > 2.0 * simulated.p50_ms && full.late > 20.0, "{full:?}");
        assert!(Calibration::new(&hosts(), [of(60.0), of(3000.0), seen(4000.0, 2.0, 1.0)], (2000, 1)).is_err());
    }

    /// Hosts that are woken are found out to be, by what they use: what the simulator says of such hosts leads back to them.
    #[test]
    fn what_waking_takes_is_found_out() {
        let hosts = hosts();
        let is = Calibration { time_us: 85.0, wake_us: 110.0, idle: 0.02, outside_ms: 0.2 };
        let of = |rate: f64| is.simulated(&hosts, rate, (2000, 3)).unwrap();
        let found = Calibration::new(&hosts, [of(40.0), of(400.0), of(7000.0)], (2000, 5)).unwrap();
        assert!((found.time_us / 85.0 - 1.0).abs() < 0.3 && (found.wake_us / 110.0 - 1.0).abs() < 0.15, "{found:?}");
        let (real, simulated) = (of(1000.0), found.simulated(&hosts, 1000.0, (2000, 7)).unwrap());
        assert!((simulated.cpu / real.cpu - 1.0).abs() < 0.15, "{simulated:?} is not {real:?}");
    }

    #[test]
    fn what_is_wrong_by_more_than_it_may_is_told() {
        let calibration = Calibration { time_us: 100.0, wake_us: 0.0, idle: 0.0, outside_ms: 1.0 };
        let point =
            |p50_ms: f64| Point { part: 0.4, real: seen(100.0, 2.0, 50.0), simulated: seen(104.0, p50_ms, 48.0) };
        let found = findings(&[hosts()], &[[250.0; 2]], &[vec![(calibration, vec![point(2.6)])]]).unwrap();
        let wrong = |what: &str| {
            let is_it = |figure: &&Figure| figure.name.starts_with(what) && figure.name.ends_with("wrong by");
            found.figures.iter().find(is_it).unwrap()
        };
        assert!(!wrong("median latency").met && (wrong("median latency").ours.median - 30.0).abs() < 1e-6);
        assert!(wrong("procedures done").met && wrong("late").met);
        assert_eq!(found.figures[0].baseline.as_ref().map(|real| real.value.median), Some(100.0));
    }
}
