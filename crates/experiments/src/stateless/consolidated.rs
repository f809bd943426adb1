//! Cost of shared state in the consolidated core, alone and with replication.
//!
//! The baseline is a core whose workers keep their UEs in private memory. The others share state
//! among workers, without and with a copy of each commit at another host. All run the same hosts
//! behind the same balancer, with the same NF, in the same run.

use crate::context::{ExperimentContext, Findings, Metric, Variant, each};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use crate::variants;
use std::time::Duration;
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::core::Core;
use vireo_lab::emulator::{EmulatorOptions, EmulatorRun, Load};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "stateless-shm",
    about: "What does it cost that the consolidated core keeps its state in shared memory, alone and with one acknowledged replica?",
    paper: "",
    informative: None,
    run: Run::Core(run),
};

/// Number of hosts. Each owns UEs and, with replication, holds copies of the other's.
const HOSTS: usize = 2;
/// UEs in progress at once in the light load, in which no UE waits long for a processor.
const FEW: u32 = 4;
/// Time after the emulator's end for the remaining work, such as contexts of disconnected gNBs.
const SETTLE: Duration = Duration::from_millis(500);
/// Index of the baseline variant.
const BASELINE: usize = 0;
/// Limits of the additional cost of the other variants over the baseline, in percent.
const MARKS: [f64; 2] = [3.0, 25.0];

/// Returns the variants. Each host has one worker for everything; they differ in where contexts are
/// and where copies are held.
fn variants() -> [Variant; 3] {
    let stateful = Variant {
        about: "On each host one worker that does everything and keeps the contexts of its UEs in its own memory.",
        hosts: HOSTS,
        ..variants::stateful(1)
    };
    let shm = Variant {
        name: "shm",
        about: "The same worker, which commits each step to memory that it shares with others.",
        tables: stateful.tables.replace("\"memory\"", "\"shm\""),
        ..stateful.clone()
    };
    let replica = Variant {
        name: "shm, one replica",
        about: "As shm, and what a step has to say leaves when the other host has a copy of the commit.",
        tables: shm.tables.clone() + "\n[replication]\nmode = \"hot\"\nreplicas = 1\nack = \"one\"\n",
        ..shm.clone()
    };
    [stateful, shm, replica]
}

/// Loads of each core.
#[derive(Clone, Debug)]
struct Loads {
    /// UEs per burst. An extra first burst meets functions that have not served a UE, and does not
    /// count.
    bursts: Vec<u32>,
    /// UEs of the load with [`FEW`] in progress at once.
    few: u32,
    settle: Duration,
}

impl Loads {
    fn new(session: &ExperimentContext) -> Self {
        match session.quick {
            true => Loads { bursts: vec![20], few: 20, settle: SETTLE / 5 },
            false => Loads { bursts: (1..=10).map(|n| n * 100).collect(), few: 3000, settle: SETTLE },
        }
    }

    fn first(&self) -> u32 {
        self.bursts.first().copied().unwrap_or(1)
    }

    fn ues(&self) -> u32 {
        self.first() + self.bursts.iter().sum::<u32>() + self.few
    }
}

/// Cost of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    ues: u32,
    registration_ms: f64,
    /// Mean time of a session establishment, from the UE's request to the accept.
    establishment_ms: f64,
    release_ms: f64,
    /// CPU time of both hosts per UE: registration, establishment, release, and the work as a
    /// replica.
    hosts_us: f64,
    /// The part of `hosts_us` in threads that send and store copies.
    copies_us: f64,
    /// CPU time of the balancer, which is also the UPF.
    balancer_us: f64,
}

/// Results of one core.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pass {
    bursts: Vec<Cost>,
    few: Cost,
}

/// Passes by variant in one run. The baseline has two, before and after the others.
type Round = [Vec<Pass>; 3];

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let (variants, loads) = (variants(), Loads::new(session));
    let rounds = session.repeat("the consolidated core, by where its state is", |run| {
        let mut round = Round::default();
        for variant in order(session.quick, run) {
            session.interrupt.check()?;
            round[*variant].push(pass(session, &variants[*variant], &loads)?);
        }
        Ok(round)
    })?;
    findings(&variants, &loads, &rounds)
}

/// Returns the order of the variants: the baseline before and after the others, whose order
/// alternates between runs.
fn order(quick: bool, run: u32) -> &'static [usize] {
    match (quick, run % 2) {
        (true, _) => &[BASELINE, 1, 2],
        (false, 1) => &[BASELINE, 1, 2, BASELINE],
        (false, _) => &[BASELINE, 2, 1, BASELINE],
    }
}

fn pass(session: &ExperimentContext, variant: &Variant, loads: &Loads) -> Result<Pass, Failure> {
    let mut core = session.core(variant, loads.ues(), &[])?;
    let mut done = 0;
    let mut next = |core: &mut Core, ues: u32, window: u32| {
        session.interrupt.check()?;
        let cost = one(session, core, (done, ues), window);
        done += u64::from(ues);
        std::thread::sleep(loads.settle);
        cost
    };
    next(&mut core, loads.first(), loads.first())?;
    let few = next(&mut core, loads.few, FEW)?;
    let bursts = loads.bursts.iter().map(|ues| next(&mut core, *ues, *ues)).collect::<Result<_, Failure>>()?;
    core.stop()?;
    Ok(Pass { bursts, few })
}

/// Runs `ues` UEs starting with `first`, with `window` in progress at once.
fn one(session: &ExperimentContext, core: &mut Core, (first, ues): (u64, u32), window: u32) -> Result<Cost, Failure> {
    let options = EmulatorOptions {
        ues,
        first,
        load: Load::Window(window),
        scenario: "sessions".into(),
        limit: Duration::from_secs(120),
        more: vec!["--rounds".into(), "1".into()],
        ..EmulatorOptions::default()
    };
    let used = |core: &Core| -> Result<[Duration; 3], Failure> {
        Ok([core.cpu_by_host()?.iter().sum(), core.cpu_of_copies()?, core.process.cpu()?])
    };
    let before = used(core)?;
    let EmulatorRun { result, .. } = session.emulate(core, &options)?;
    let after = used(core)?;
    if result.succeeded != u64::from(ues) {
        return Err(Failure(format!(
            "{} of {ues} UEs succeeded: {}",
            result.succeeded,
            result.complaints().join(", ")
        )));
    }
    let per_ue = |part: usize| after[part].saturating_sub(before[part]).as_secs_f64() * 1e6 / f64::from(ues.max(1));
    let mean_ms = |procedure: &str| result.latency(procedure).mean / 1e3;
    Ok(Cost {
        ues,
        registration_ms: mean_ms("registration"),
        establishment_ms: mean_ms("session"),
        release_ms: mean_ms("session_release"),
        hosts_us: per_ue(0),
        copies_us: per_ue(1),
        balancer_us: per_ue(2),
    })
}

/// Selects the loads of a kind.
type Of = fn(&Pass) -> Vec<Cost>;

/// Both kinds of loads with their names.
const KINDS: [(&str, Of); 2] = [("bursts", |pass| pass.bursts.clone()), ("4 under way", |pass| vec![pass.few])];

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// Returns the mean of a cost over all UEs of these loads.
fn ue_cost(passes: &[Pass], loads: Of, value: fn(&Cost) -> f64) -> f64 {
    let all = passes.iter().flat_map(loads).map(|cost| (value(&cost) * f64::from(cost.ues), f64::from(cost.ues)));
    let (sum, ues) = all.fold((0.0, 0.0), |(sum, count), (value, ues)| (sum + value, count + ues));
    sum / ues
}

/// Returns the additional cost per UE of `passes` over `base`, in percent, over all loads of a
/// kind.
fn above(passes: &[Pass], base: &[Pass], loads: Of, value: fn(&Cost) -> f64) -> f64 {
    (ue_cost(passes, loads, value) / ue_cost(base, loads, value) - 1.0) * 100.0
}

/// Returns the mean of all runs between the ends of its 95% confidence interval. A single run
/// stands for itself.
fn with_interval(runs: &Measured) -> Result<Measured, Failure> {
    let (mean, half) = (runs.mean(), runs.interval());
    let values = if half.is_finite() { vec![mean - half, mean, mean + half] } else { vec![mean] };
    Measured::from_runs(values).ok_or_else(|| Failure("nothing was measured".into()))
}

fn findings(variants: &[Variant; 3], loads: &Loads, rounds: &[Round]) -> Result<Findings, Failure> {
    let mut figures = Vec::new();
    let base = variants[BASELINE].name;
    for (kind, of) in KINDS {
        for (place, variant) in variants.iter().enumerate() {
            let mut add = |what: &str, unit: &str, value: fn(&Cost) -> f64| -> Result<(), Failure> {
                let all = |round: &Round| ue_cost(&round[place], of, value);
                let name = format!("{}, {kind}: {what}", variant.name);
                figures.push(Figure::new(name, unit, each(rounds, all)?));
                Ok(())
            };
            add("registration, mean", "ms", |cost| cost.registration_ms)?;
            add("establishment, mean", "ms", |cost| cost.establishment_ms)?;
            add("release, mean", "ms", |cost| cost.release_ms)?;
            add("CPU of the hosts per UE", "us", |cost| cost.hosts_us)?;
            add("of it, threads that send and keep copies", "us", |cost| cost.copies_us)?;
            add("CPU of balancer and UPF per UE", "us", |cost| cost.balancer_us)?;
        }
        let compared: [Metric<Cost>; 2] =
            [("establishment", |cost| cost.establishment_ms), ("CPU of the hosts", |cost| cost.hosts_us)];
        for (what, value) in compared {
            if rounds.iter().all(|round| round[BASELINE].len() == 2) {
                let apart = each(rounds, |round| above(&round[BASELINE][1..], &round[BASELINE][..1], of, value))?;
                let name = format!("{base} over itself, {kind}: {what}, mean and interval");
                figures.push(Figure::new(name, "%", with_interval(&apart)?));
            }
            for ((place, variant), mark) in variants.iter().enumerate().skip(BASELINE + 1).zip(MARKS) {
                let more = each(rounds, |round| above(&round[place], &round[BASELINE], of, value))?;
                let name = format!("{} over {base}, {kind}: {what}, mean and interval", variant.name);
                figures.push(Figure::new(name, "%", with_interval(&more)?).mark(Bound::AtMost(mark)));
            }
        }
    }
    let mut chart =
        Chart::new("Where the state is", Axis::linear("simultaneous requests"), Axis::linear("mean time (ms)"));
    for (place, variant) in variants.iter().enumerate() {
        let time = |size: usize| {
            let all = |round: &Round| mean(round[place].iter().map(|pass| pass.bursts[size].establishment_ms));
            Ok((f64::from(loads.bursts[size]), each(rounds, all)?.mean()))
        };
        chart = chart.line(variant.name, (0..loads.bursts.len()).map(time).collect::<Result<_, Failure>>()?);
    }
    Ok(Findings {
        load: OfferedLoad::new(
            "UEs that register at once, and in progress at once in the light load",
            loads.bursts.iter().copied().chain([FEW]).map(f64::from),
            "UEs",
        ),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("time", chart.svg()?)],
        tables: vec![("loads", table(variants, rounds))],
        notes: notes(loads),
        broken: None,
    })
}

fn notes(loads: &Loads) -> Vec<String> {
    vec![
        format!(
            "{HOSTS} hosts behind one balancer, which is the UPF, too, in each configuration; all share the processors with the \
             emulator. UEs register, establish a session and release it: {} of them at once, or {} with {FEW} under way at once. The \
             time is the emulator's, from a UE's request to its accept.",
            loads.bursts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            loads.few
        ),
        "A burst keeps all processors busy: its time is the CPU of everybody, the emulator and the balancer among them. With few under \
         way it is what a UE waits for, which with a replica is one more way to another host and back."
            .into(),
        "With a replica each host keeps the other one's copies: CPU of the hosts is that of both parts, and of the threads of the copies \
         told apart."
            .into(),
        "What a UE takes is the mean of all UEs of a kind of load, so that of bursts the large ones count most. The hosts' work for \
         themselves meanwhile (0.5 s around each load) is among their CPU."
            .into(),
        "Mean and interval: the mean of all runs, and the ends of its 95% interval (Student's t), the upper of which has to be within the \
         mark; of one run, itself. In each run the baseline is measured before the others and after them; over itself it tells how far \
         two measurements of the same are apart."
            .into(),
    ]
}

/// Returns the table of all measurements.
fn table(variants: &[Variant; 3], rounds: &[Round]) -> Table {
    let mut table = Table::new(&[
        "run",
        "configuration",
        "pass",
        "load",
        "ues",
        "registration_mean_ms",
        "establishment_mean_ms",
        "release_mean_ms",
        "hosts_cpu_us",
        "copies_cpu_us",
        "balancer_cpu_us",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for (variant, passes) in variants.iter().zip(round) {
            for (number, pass) in passes.iter().enumerate() {
                for (kind, cost) in
                    KINDS.iter().flat_map(|(kind, of)| of(pass).into_iter().map(move |cost| (kind, cost)))
                {
                    let head = [(run + 1).to_string(), variant.name.into(), (number + 1).to_string(), (*kind).into()];
                    let Cost { ues, registration_ms, establishment_ms, release_ms, .. } = cost;
                    let times = [registration_ms, establishment_ms, release_ms];
                    let values = times.into_iter().chain([cost.hosts_us, cost.copies_us, cost.balancer_us]);
                    let cells = std::iter::once(ues.to_string()).chain(values.map(|value| value.to_string()));
                    table.row(head.into_iter().chain(cells));
                }
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_config::Config;
    use vireo_core::placement::replica::{Ack, Mode};
    use vireo_lab::options::CoreOptions;
    use vireo_lab::provision::config;
    use vireo_ops::config::StateLocation;

    #[test]
    fn configurations_differ_in_state_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let read = |variant: &Variant| {
            let (slices, tables) = (variant.slices.clone(), variant.tables.clone());
            let options = CoreOptions { slices, tables, hosts: variant.hosts, ..CoreOptions::default() };
            std::fs::write(&path, config(&options)).unwrap();
            Config::load(Some(&path)).unwrap_or_else(|e| panic!("{}: {e}", variant.name))
        };
        let [stateful, shm, replica] = variants().map(|variant| read(&variant));
        assert_eq!((stateful.state.location, shm.state.location), (StateLocation::Memory, StateLocation::Shm));
        assert_eq!(replica.state.location, StateLocation::Shm);
        assert!([&stateful, &shm].iter().all(|config| config.cluster.replication.mode == Mode::None));
        let copies = replica.cluster.replication;
        assert_eq!((copies.mode, copies.replicas, copies.ack), (Mode::Hot, 1, Ack::One));
        assert!(
            [&stateful, &shm, &replica].iter().all(|c| (usize::from(c.cluster.hosts), c.pools.workers) == (HOSTS, 1))
        );
    }

    /// Returns a pass with all times multiplied by `times`.
    fn pass(times: f64) -> Pass {
        let cost = |ues: u32| Cost {
            ues,
            establishment_ms: f64::from(ues) * times,
            hosts_us: 500.0 * times,
            copies_us: 100.0,
            ..Cost::default()
        };
        Pass { bursts: vec![cost(100), cost(200)], few: cost(4) }
    }

    #[test]
    fn comparison_is_per_run_and_interval_decides() {
        let loads = Loads { bursts: vec![100, 200], few: 4, settle: SETTLE };
        // A machine with half the speed in the second run changes nothing.
        let round = |speed: f64, shm: f64| -> Round {
            [vec![pass(0.9 * speed), pass(1.1 * speed)], vec![pass(shm * speed)], vec![pass(1.2 * speed)]]
        };
        let found = findings(&variants(), &loads, &[round(1.0, 1.02), round(2.0, 1.02)]).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        for kind in ["bursts", "4 under way"] {
            let shm = figure(&format!("shm over stateful, {kind}: establishment, mean and interval"));
            assert!((shm.ours.median - 2.0).abs() < 1e-6 && shm.met == Some(true), "{shm:?}");
            let replica =
                figure(&format!("shm, one replica over stateful, {kind}: CPU of the hosts, mean and interval"));
            assert!((replica.ours.median - 20.0).abs() < 1e-6 && replica.met == Some(true), "{replica:?}");
            let apart = figure(&format!("stateful over itself, {kind}: establishment, mean and interval"));
            assert!((apart.ours.median - 22.2).abs() < 0.1 && apart.mark.is_none(), "{apart:?}");
        }
        assert!((figure("stateful, bursts: CPU of the hosts per UE").ours.median - 750.0).abs() < 1e-6);
        // The mean is within the mark, but the interval is not.
        let found = findings(&variants(), &loads, &[round(1.0, 1.0), round(1.0, 1.05)]).unwrap();
        let shm = found.figures.iter().find(|figure| figure.name.starts_with("shm over stateful, bursts")).unwrap();
        assert!((shm.ours.median - 2.5).abs() < 1e-6 && shm.met == Some(false), "{shm:?}");
        assert_eq!(String::from_utf8(found.tables[0].1.csv().unwrap()).unwrap().lines().count(), 1 + 2 * 4 * 3);
    }

    #[test]
    fn of_one_run_there_is_no_interval() {
        let loads = Loads { bursts: vec![100, 200], few: 4, settle: SETTLE };
        let round: Round = [vec![pass(1.0)], vec![pass(1.0)], vec![pass(1.3)]];
        let found = findings(&variants(), &loads, &[round]).unwrap();
        assert!(found.figures.iter().all(|figure| !figure.name.contains("itself")));
        let missed: Vec<_> =
            found.figures.iter().filter(|figure| figure.met == Some(false)).map(|figure| &figure.ours.runs).collect();
        assert_eq!(missed.len(), 4, "both quantities of both loads");
        assert!(missed.iter().all(|runs| runs.len() == 1 && (runs[0] - 30.0).abs() < 1e-6), "{missed:?}");
    }
}
