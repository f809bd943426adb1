//! Cost of statelessness below saturation: UEs arrive at a constant rate.
//!
//! The paper's functions run on ten worker nodes, which its bursts do not saturate. Bursts on few
//! processors measure CPU time in place of waiting. Here UEs arrive at a rate that leaves half of
//! the processors idle in every mode, and all modes run in turns.

use super::bursts::{Burst, Functions, SETTLE, one};
use super::modes::{
    BINARY, DELETE_CREATE, GRPC, IMPLIED, LEAN, Mode, NON_BLOCKING, PIGGYBACK, PROCEDURAL, PROTOBUF, SHARED,
    SHARED_AMF_SMF, SHM, STATEFUL, TRANSACTIONAL,
};
use super::watch::FUNCTIONS;
use crate::context::{ExperimentContext, Findings, each};
use crate::plot::{Axis, BarSeries, Bars};
use std::collections::BTreeMap;
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::emulator::Load;

/// The first mode is the baseline. Those of the paper precede the others.
const MODES: [Mode; 14] = [
    STATEFUL,
    PROCEDURAL,
    TRANSACTIONAL,
    SHARED,
    SHARED_AMF_SMF,
    NON_BLOCKING,
    DELETE_CREATE,
    BINARY,
    PROTOBUF,
    PIGGYBACK,
    LEAN,
    IMPLIED,
    GRPC,
    SHM,
];
/// Number of modes that the paper measures.
const OF_PAPER: usize = 7;
/// Modes of the short form: all that have a mark.
const QUICK: [usize; 4] = [0, 2, 5, 7];
/// UEs per second, and UEs that arrive before the measurement.
const RATE: u32 = 50;
const WARM_UP: u32 = 50;

/// Mean times of the paper over its stateful mode, in percent. It states the gains over the
/// transactional mode (56% over stateful) relative to the shorter time.
const PAPER: [(&str, f64); 5] = [
    (PROCEDURAL.name, 3.0),
    (TRANSACTIONAL.name, 56.0),
    (SHARED.name, (1.56 / 1.10 - 1.0) * 100.0),
    (NON_BLOCKING.name, (1.56 / 1.06 - 1.0) * 100.0),
    (DELETE_CREATE.name, (1.56 / 1.025 - 1.0) * 100.0),
];
/// Time of the database with delete and create over that with update, in the paper.
const PAPER_DATABASE: f64 = 0.965;

/// Limits of the mean time of a mode over that of another one.
const MARKS: [(&str, &str, Bound); 3] = [
    (TRANSACTIONAL.name, STATEFUL.name, Bound::AtMost(2.0)),
    (BINARY.name, STATEFUL.name, Bound::AtMost(1.4)),
    (NON_BLOCKING.name, TRANSACTIONAL.name, Bound::Below(1.0)),
];
/// Messages of a function to and from the database for a transaction: a read and a write, each with
/// its answer (section 2.3).
const MESSAGES: f64 = 4.0;
/// Limit of the messages: one transaction in 100 may be repeated after a conflict.
const MESSAGES_MOST: f64 = MESSAGES * 1.01;

/// Result of one mode.
#[derive(Clone, Debug, Default)]
struct Paced {
    burst: Burst,
    /// Messages of the database per transaction, for each of [`FUNCTIONS`]; 0: there were none.
    messages: [f64; 3],
}

/// Returns the messages per transaction of each function, from its operations by transaction. The
/// first transaction of a record has nothing to read and does not count; neither do transactions
/// that the paper does not have.
fn messages(operations: &BTreeMap<String, u64>) -> [f64; 3] {
    let mut counts = [[0_u64; 2]; 3];
    for (name, count) in operations {
        let Some((transaction, operation)) = name.rsplit_once('.') else { continue };
        let (function, transaction) = transaction.split_once('.').unwrap_or(("smf", transaction));
        let first = matches!((function, transaction), ("smf", "create-sm-context") | ("upf", "pfcp-establishment"));
        let place = FUNCTIONS.iter().position(|known| *known == function);
        if let (Some(place), false) = (place, first || transaction == "other") {
            counts[place][usize::from(operation != "read")] += count;
        }
    }
    counts.map(|[reads, changes]| 2.0 * (reads + changes) as f64 / (changes.max(1)) as f64)
}

fn measure(session: &ExperimentContext, mode: &Mode, ues: u32) -> Result<Paced, Failure> {
    session.interrupt.check()?;
    let mut functions = Functions::start(session, mode, WARM_UP + ues)?;
    let load = Load::Rate(RATE);
    one(session, &mut functions, (0, WARM_UP), load, None)?;
    std::thread::sleep(SETTLE);
    let before = functions.core.state_operations()?;
    let burst = one(session, &mut functions, (WARM_UP.into(), ues), load, None)?;
    std::thread::sleep(SETTLE);
    let mut operations = functions.core.state_operations()?;
    for (name, count) in &mut operations {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    functions.core.stop()?;
    eprintln!("experiment: {}: {:.2} ms", mode.name, burst.mean_ms);
    Ok(Paced { burst, messages: messages(&operations) })
}

pub(super) fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let (ues, places): (u32, Vec<usize>) =
        if session.quick { (40, QUICK.to_vec()) } else { (400, (0..MODES.len()).collect()) };
    let modes: Vec<&Mode> = places.iter().map(|place| &MODES[*place]).collect();
    let rounds = session.repeat("modes below saturation", |run| {
        // The order alternates: a slow time of the machine does not always meet the same modes.
        let mut order: Vec<usize> = (0..modes.len()).collect();
        if run % 2 == 0 {
            order.reverse();
        }
        let mut round = vec![Paced::default(); modes.len()];
        for place in order {
            round[place] = measure(session, modes[place], ues)?;
        }
        Ok(round)
    })?;
    findings(&modes, ues, &rounds)
}

/// Returns the mean time of a mode over that of another one, for each run.
fn over(modes: &[&Mode], rounds: &[Vec<Paced>], mine: &str, other: &str) -> Result<Measured, Failure> {
    let place = |name: &str| modes.iter().position(|mode| mode.name == name);
    let (Some(mine), Some(other)) = (place(mine), place(other)) else {
        return Err(Failure(format!("bug: {mine} or {other} was not measured")));
    };
    each(rounds, |round| round[mine].burst.mean_ms / round[other].burst.mean_ms)
}

fn findings(modes: &[&Mode], ues: u32, rounds: &[Vec<Paced>]) -> Result<Findings, Failure> {
    let mut figures = Vec::new();
    let base = STATEFUL.name;
    for (place, mode) in modes.iter().enumerate() {
        let mut add = |name: &str, unit: &str, value: &dyn Fn(&Paced) -> f64| {
            let measured = each(rounds, |round| value(&round[place]))?;
            figures.push(Figure::new(format!("{}: {name}", mode.name), unit, measured));
            Ok::<_, Failure>(())
        };
        add("establishment, mean", "ms", &|paced| paced.burst.mean_ms)?;
        add("establishment, p99", "ms", &|paced| paced.burst.p99_ms)?;
        for (place, function) in FUNCTIONS.iter().enumerate() {
            let name = format!("CPU of the {} per UE", function.to_uppercase());
            add(&name, "us", &|paced| paced.burst.cpu_us[place])?;
        }
        if mode.database.is_some() {
            add("commands of the database per UE", "", &|paced| paced.burst.commands)?;
            add("time of the database per UE", "us", &|paced| paced.burst.waited_us)?;
        }
        if place > 0 {
            let change = Measured::each(&over(modes, rounds, mode.name, base)?.runs, |ratio| (ratio - 1.0) * 100.0);
            let change = change.ok_or_else(|| Failure("nothing was measured".into()))?;
            let interval = change.interval();
            let figure = Figure::new(format!("{} over {base}, mean", mode.name), "%", change);
            let paper = PAPER.iter().find(|(name, _)| *name == mode.name);
            figures.push(match paper {
                Some((_, percent)) => figure.paper(Bound::About(percent.round()), "sections 4.3.1 to 4.3.4"),
                None => figure,
            });
            if interval.is_finite() {
                let name = format!("{} over {base}, half width of the 95% interval", mode.name);
                figures.push(Figure::new(name, "%", each(&[interval], |value| *value)?));
            }
        }
    }
    for (mine, other, mark) in MARKS {
        let figure =
            Figure::new(format!("{mine} over {other}, ratio of means"), "ratio", over(modes, rounds, mine, other)?);
        figures.push(figure.mark(mark));
    }
    figures.extend(message_figures(modes, rounds)?);
    if let (Some(update), Some(create)) = (place_of(modes, &TRANSACTIONAL), place_of(modes, &DELETE_CREATE)) {
        let ratio = each(rounds, |round| round[create].burst.waited_us / round[update].burst.waited_us)?;
        figures.push(database_time(ratio));
    }
    let mut plots = vec![("paper", plot(&modes[..modes.len().min(OF_PAPER)], modes, rounds)?)];
    if modes.len() > OF_PAPER {
        plots.push(("beyond", plot(&modes[OF_PAPER..], modes, rounds)?));
    }
    Ok(Findings {
        load: OfferedLoad::new("UEs that register and establish a session, open loop", [f64::from(RATE)], "1/s"),
        configurations: modes.iter().map(|mode| mode.configuration()).collect(),
        figures,
        plots,
        tables: vec![("modes", table(modes, rounds))],
        notes: vec![
            format!(
                "{ues} UEs register at a rate of {RATE}/s, establish a session and release it; the processors are not saturated. \
                 AMF, SMF and UPF are processes of their own with the emulator and the database (redis-server, nothing on \
                 disk) on this machine's processors. The time is the emulator's, from a UE's request to its accept."
            ),
            "The paper states the gains of sharing (10%), of non-blocking writes (6%) and of delete-create (2.5%) over its \
             transactional mode, relative to the shorter time. Its values over stateful derive from them and from the 56%."
                .into(),
            "Messages of the database are requests and answers of reads and writes that a function counts for a transaction of \
             an existing record. 4n is the paper's number for a chain of n functions."
                .into(),
        ],
        broken: None,
    })
}

/// Returns the figure of the database's time with delete and create over that with update.
pub(super) fn database_time(ratio: Measured) -> Figure {
    let figure = Figure::new("delete-create over transactional, time of the database", "ratio", ratio);
    figure.paper(Bound::About(PAPER_DATABASE), "section 4.3.4 and figure 5")
}

fn place_of(modes: &[&Mode], mode: &Mode) -> Option<usize> {
    modes.iter().position(|other| other.name == mode.name)
}

/// Returns the messages of the transactional mode by function, and of a chain of all functions.
fn message_figures(modes: &[&Mode], rounds: &[Vec<Paced>]) -> Result<Vec<Figure>, Failure> {
    let Some(mode) = place_of(modes, &TRANSACTIONAL) else { return Ok(Vec::new()) };
    let source = "section 2.3: 4n messages for a chain of n functions";
    let mut figures = Vec::new();
    for (place, function) in FUNCTIONS.iter().enumerate() {
        let name = format!("transactional: messages of the database per transaction, {}", function.to_uppercase());
        let figure = Figure::new(name, "", each(rounds, |round| round[mode].messages[place])?);
        figures.push(figure.paper(Bound::About(MESSAGES), source).mark(Bound::AtMost(MESSAGES_MOST)));
    }
    let chain = each(rounds, |round| round[mode].messages.iter().sum())?;
    let n = FUNCTIONS.len() as f64;
    let figure = Figure::new("transactional: messages of the database for AMF, SMF and UPF", "", chain);
    figures.push(figure.paper(Bound::About(MESSAGES * n), source).mark(Bound::AtMost(MESSAGES_MOST * n)));
    Ok(figures)
}

/// Plots the additional time of some modes over the stateful one, with 95% intervals.
fn plot(some: &[&Mode], modes: &[&Mode], rounds: &[Vec<Paced>]) -> Result<String, Failure> {
    let shown: Vec<&&Mode> = some.iter().filter(|mode| mode.name != STATEFUL.name).collect();
    let value = |mode: &&&Mode| {
        let ratio = over(modes, rounds, mode.name, STATEFUL.name)?;
        Ok(Measured::each(&ratio.runs, |ratio| (ratio - 1.0) * 100.0))
    };
    let paper = |mode: &&&Mode| PAPER.iter().find(|(name, _)| *name == mode.name).map(|(_, percent)| *percent);
    let bars = Bars {
        title: format!("Session establishment at {RATE} UEs/s"),
        groups: shown.iter().map(|mode| mode.name.to_owned()).collect(),
        y: Axis::linear("mean time over stateful (%)"),
        series: vec![BarSeries {
            name: "ours, mean and 95% interval".into(),
            values: shown.iter().map(value).collect::<Result<_, Failure>>()?,
            paper: shown.iter().map(paper).collect(),
        }],
    };
    Ok(bars.svg_with_intervals()?)
}

fn table(modes: &[&Mode], rounds: &[Vec<Paced>]) -> Table {
    let mut table = Table::new(&[
        "run",
        "mode",
        "mean_ms",
        "p50_ms",
        "p99_ms",
        "release_mean_ms",
        "amf_cpu_us",
        "smf_cpu_us",
        "upf_cpu_us",
        "database_commands",
        "database_octets",
        "database_cpu_us",
        "database_time_us",
        "amf_messages",
        "smf_messages",
        "upf_messages",
        "same_work_ms",
        "stolen_percent",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for (mode, Paced { burst: b, messages }) in modes.iter().zip(round) {
            let ([amf, smf, upf], [of_amf, of_smf, of_upf]) = (b.cpu_us, *messages);
            let times = [b.mean_ms, b.p50_ms, b.p99_ms, b.release_ms, amf, smf, upf];
            let database = [b.commands, b.octets, b.database_us, b.waited_us, of_amf, of_smf, of_upf];
            let values = times.into_iter().chain(database).chain([b.same_work_ms, b.stolen]);
            let head = [(run + 1).to_string(), mode.name.into()];
            table.row(head.into_iter().chain(values.map(|value| value.to_string())));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_count_reads_and_changes() {
        let operations = [
            ("create-sm-context.write", 9),
            ("update-sm-context.read", 10),
            ("update-sm-context.write", 10),
            ("pfcp-deletion.read", 5),
            ("pfcp-deletion.remove", 5),
            ("amf.n1n2-transfer.read", 12),
            ("amf.n1n2-transfer.write", 8),
            ("amf.other.read", 99),
            ("upf.pfcp-establishment.write", 7),
        ];
        let operations = operations.map(|(name, count)| (name.to_owned(), count)).into();
        assert_eq!(messages(&operations), [5.0, 4.0, 0.0]);
    }

    #[test]
    fn marks_compare_means_of_same_run() {
        let modes: Vec<&Mode> = MODES.iter().collect();
        let paced = |place: usize| Paced {
            burst: Burst { mean_ms: 10.0 + place as f64, waited_us: 100.0, ..Burst::default() },
            messages: [4.0; 3],
        };
        let round = || (0..MODES.len()).map(paced).collect::<Vec<_>>();
        let found = findings(&modes, 400, &[round(), round()]).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        let ratio = figure("transactional over stateful, ratio of means");
        assert_eq!((ratio.ours.median, ratio.met), (1.2, Some(true)));
        assert_eq!(figure("transactional: messages of the database for AMF, SMF and UPF").met, Some(true));
        let slower = figure("non-blocking over transactional, ratio of means");
        assert!(slower.met == Some(false), "{slower:?}");
        assert_eq!(figure("shared over stateful, mean").paper.as_ref().unwrap().value, Bound::About(42.0));
        assert_eq!((found.plots.len(), found.configurations.len()), (2, 14));
    }
}
