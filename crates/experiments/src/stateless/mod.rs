//! Experiments of "The Cost of Stateless Network Functions in 5G".
//!
//! AMF, SMF and UPF are separate processes with a real database. The experiments compare the ways
//! to store UE state. The measured time is that of a PDU session establishment, for 100 to 1,000
//! UEs that register at once and then establish a session.

mod bursts;
pub(super) mod consolidated;
pub(super) mod fault_injection;
mod modes;
mod noise;
mod paced;
mod watch;

use super::context::{ExperimentContext, Findings, each};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, BarSeries, Bars, Chart};
use bursts::Burst;
use modes::*;
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use watch::{FUNCTIONS, SocketSample};

pub(super) const FIG3: Experiment = Experiment {
    name: "stateless-fig3",
    about: "What does it cost that functions keep no state, for a transaction or for a procedure?",
    paper: "The Cost of Stateless Network Functions in 5G, figure 3",
    informative: Some(
        "It measures what the modes of the paper cost here; stateless-beyond and stateless-shm have the marks.",
    ),
    run: Run::Core(|session| study(session, &FIGURE_3)),
};

pub(super) const FIG4: Experiment = Experiment {
    name: "stateless-fig4",
    about: "What is saved by functions that share records, and by writes that nobody waits for?",
    paper: "The Cost of Stateless Network Functions in 5G, figure 4",
    informative: Some("It measures what the optimisations of the paper save here; no limit was set before the run."),
    run: Run::Core(|session| study(session, &FIGURE_4)),
};

pub(super) const FIG5: Experiment = Experiment {
    name: "stateless-fig5",
    about: "What does it change that records are deleted and created instead of updated?",
    paper: "The Cost of Stateless Network Functions in 5G, section 4.3.4 and figure 5",
    informative: Some("It measures what an optimisation of the paper saves here; no limit was set before the run."),
    run: Run::Core(|session| study(session, &FIGURE_5)),
};

pub(super) const BEYOND_FIGURES: Experiment = Experiment {
    name: "stateless-beyond",
    about: "What do binary records, protocol buffers, state that travels with requests, implied answers, gRPC, and shared memory cost instead?",
    paper: "The Cost of Stateless Network Functions in 5G, section 5 (proposals)",
    informative: None,
    run: Run::Core(|session| study(session, &BEYOND)),
};

pub(super) const DISTANCE_FIGURES: Experiment = Experiment {
    name: "stateless-distance",
    about: "What does it cost that the UPF is at the edge, and its database is not?",
    paper: "",
    informative: Some("The delay is an input of the experiment; no limit was set for its cost."),
    run: Run::Core(|session| study(session, &DISTANCE)),
};

pub(super) const MONGODB_FIGURES: Experiment = Experiment {
    name: "stateless-mongodb",
    about: "What does statelessness cost over MongoDB's protocol (FerretDB, with --features mongodb), and what is saved there?",
    paper: "The Cost of Stateless Network Functions in 5G, figures 3 to 5, over another database",
    informative: None,
    run: Run::Core(|session| study(session, &MONGODB)),
};

pub(super) const PACED_FIGURES: Experiment = Experiment {
    name: "stateless-load",
    about: "What does statelessness cost below saturation, in each mode, and how many database messages?",
    paper: "The Cost of Stateless Network Functions in 5G, figures 3 to 5 and section 2.3",
    informative: Some("Its marks compare the means of modes of the same run."),
    run: Run::Core(paced::run),
};

pub(super) const FIG6: Experiment = Experiment {
    name: "stateless-fig6",
    about: "How busy are AMF, SMF and UPF from moment to moment, with state and without?",
    paper: "The Cost of Stateless Network Functions in 5G, figures 6 and 7 (CPU)",
    informative: Some("It shows the course of bursts over time; a course has no limit."),
    run: Run::Core(|session| over_time(session, &BUSY)),
};

pub(super) const FIG7: Experiment = Experiment {
    name: "stateless-fig7",
    about: "How much waits at AMF, SMF and UPF from moment to moment, with state and without?",
    paper: "The Cost of Stateless Network Functions in 5G, figures 6 and 7 (queue length)",
    informative: Some("It shows the course of bursts over time; a course has no limit."),
    run: Run::Core(|session| over_time(session, &WAITING)),
};

/// Numbers of UEs, as in the paper.
const HUNDREDS: &[u32] = &[100, 200, 300, 400, 500, 600, 700, 800, 900, 1000];

/// Limit of a cost that counts as halved, in percent.
const HALF: f64 = 50.0;

/// Comparison of modes.
#[derive(Debug)]
struct Study {
    title: &'static str,
    /// The first mode is the baseline of the others.
    modes: &'static [Mode],
    /// Values of the paper for each of the others: change of the time in percent, as mean over all
    /// sizes and as maximum.
    paper: &'static [Option<(f64, f64)>],
    /// True if the paper's value is the gain of the others, divided by their time.
    gains: bool,
    source: &'static str,
    /// Numbers of UEs that establish a session at once.
    sizes: &'static [u32],
    /// Names of two modes. The additional cost of the second over the baseline must be at most half
    /// of the first's.
    halves: Option<[&'static str; 2]>,
}

static FIGURE_3: Study = Study {
    title: "Statelessness",
    modes: &[STATEFUL, PROCEDURAL, TRANSACTIONAL],
    paper: &[Some((3.0, 10.0)), Some((56.0, 71.0))],
    gains: false,
    source: "section 4.3.1",
    sizes: HUNDREDS,
    halves: None,
};

/// Each mode gains over the first one. The paper divides the gain by the remaining time.
static FIGURE_4: Study = Study {
    title: "Shared records, and writes that nobody waits for",
    modes: &[TRANSACTIONAL, SHARED, SHARED_AMF_SMF, NON_BLOCKING],
    paper: &[Some((10.0, 21.0)), None, Some((6.0, 17.0))],
    gains: true,
    source: "sections 4.3.2 and 4.3.3",
    sizes: HUNDREDS,
    halves: None,
};

/// The paper divides the gain by the remaining time, as in [`FIGURE_4`].
static FIGURE_5: Study = Study {
    title: "Update, or delete and create",
    modes: &[TRANSACTIONAL, DELETE_CREATE],
    paper: &[Some((2.5, 12.0))],
    gains: true,
    source: "section 4.3.4",
    sizes: HUNDREDS,
    halves: None,
};

/// Proposals of the paper, and modes of Vireo.
static BEYOND: Study = Study {
    title: "Beyond the paper",
    modes: &[STATEFUL, TRANSACTIONAL, BINARY, PROTOBUF, PIGGYBACK, LEAN, IMPLIED, GRPC, SHM],
    paper: &[Some((56.0, 71.0)), None, None, None, None, None, None, None],
    gains: false,
    source: "section 4.3.1",
    sizes: HUNDREDS,
    halves: Some([TRANSACTIONAL.name, LEAN.name]),
};

/// In the paper the UPF is at the edge and the database in the cloud.
static DISTANCE: Study = Study {
    title: "A UPF that is far from its database",
    modes: &[TRANSACTIONAL, NEAR_EDGE, FAR_EDGE],
    paper: &[None, None],
    gains: false,
    source: "",
    sizes: HUNDREDS,
    halves: None,
};

/// Small sizes only: FerretDB handles about 700 operations per second.
static MONGODB: Study = Study {
    title: "MongoDB's protocol",
    modes: &[STATEFUL, TRANSACTIONAL_MONGODB, DELETE_CREATE_MONGODB, LEAN_MONGODB],
    paper: &[Some((56.0, 71.0)), None, None],
    gains: false,
    source: "section 4.3.1",
    sizes: &[10, 20, 30],
    halves: Some([TRANSACTIONAL_MONGODB.name, LEAN_MONGODB.name]),
};

fn study(session: &ExperimentContext, study: &Study) -> Result<Findings, Failure> {
    let sizes = if session.quick { &[20, 40] } else { study.sizes };
    let rounds = session.repeat(study.title, |_| bursts::round(session, study.modes, sizes, false))?;
    findings(study, sizes, &rounds)
}

/// Returns the value of a mode's warm bursts by size, for each run.
fn by_size(
    rounds: &[Vec<Vec<Burst>>],
    (mode, place): (usize, usize),
    value: impl Fn(&Burst) -> f64,
) -> Result<Measured, Failure> {
    let of =
        |round: &Vec<Vec<Burst>>| round[mode].iter().filter(|burst| !burst.cold).nth(place).map_or(f64::NAN, &value);
    Measured::each(rounds, of).ok_or_else(|| Failure("nothing was measured".into()))
}

/// Returns `value` for each run, applied to the pairs of mean times of the warm bursts: the mode's
/// and the compared mode's, by size.
fn compared(
    rounds: &[Vec<Vec<Burst>>],
    (mode, over): (usize, usize),
    value: impl Fn(&mut dyn Iterator<Item = (f64, f64)>) -> f64,
) -> Result<Measured, Failure> {
    let of = |round: &Vec<Vec<Burst>>| {
        let warm = |mode: usize| round[mode].iter().filter(|burst| !burst.cold).map(|burst| burst.mean_ms);
        value(&mut warm(mode).zip(warm(over)))
    };
    Measured::each(rounds, of).ok_or_else(|| Failure("nothing was measured".into()))
}

/// Returns the additional time of the first over the second, in percent of the second.
fn change((mine, other): (f64, f64)) -> f64 {
    (mine / other - 1.0) * 100.0
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// Returns the time of the database in a mode over that in the first one.
fn database_time(rounds: &[Vec<Vec<Burst>>], mode: usize) -> Result<Figure, Failure> {
    let waited = |round: &[Vec<Burst>], mode: usize| {
        mean(round[mode].iter().filter(|burst| !burst.cold).map(|burst| burst.waited_us))
    };
    Ok(paced::database_time(each(rounds, |round| waited(round, mode) / waited(round, 0))?))
}

fn findings(study: &Study, sizes: &[u32], rounds: &[Vec<Vec<Burst>>]) -> Result<Findings, Failure> {
    let mut figures = Vec::new();
    let base = study.modes[0].name;
    for (mode, of) in study.modes.iter().enumerate() {
        let each = |value: fn(&Burst) -> f64| {
            let all = |round: &Vec<Vec<Burst>>| mean(round[mode].iter().filter(|burst| !burst.cold).map(value));
            Measured::each(rounds, all).ok_or_else(|| Failure("nothing was measured".into()))
        };
        let mut add = |name: &str, unit: &str, value: fn(&Burst) -> f64| {
            each(value).map(|measured| figures.push(Figure::new(format!("{}: {name}", of.name), unit, measured)))
        };
        add("establishment, mean of all sizes", "ms", |b| b.mean_ms)?;
        add("release, mean of all sizes", "ms", |b| b.release_ms)?;
        add("CPU of the AMF per UE", "us", |b| b.cpu_us[0])?;
        add("CPU of the SMF per UE", "us", |b| b.cpu_us[1])?;
        add("CPU of the UPF per UE", "us", |b| b.cpu_us[2])?;
        add("the same work, before each burst", "ms", |b| b.same_work_ms)?;
        add("processors' time that the hypervisor gave to others", "%", |b| b.stolen)?;
        if of.database == Some(Server::Redis) {
            add("commands of the database per UE", "", |b| b.commands)?;
            add("octets to and from the database per UE", "B", |b| b.octets)?;
            add("CPU of the database per UE", "us", |b| b.database_us)?;
        }
        if of.database.is_some() {
            add("time of the database per UE", "us", |b| b.waited_us)?;
        }
        if mode == 0 {
            continue;
        }
        if (base, of.name) == (TRANSACTIONAL.name, DELETE_CREATE.name) {
            figures.push(database_time(rounds, mode)?);
        }
        let paper = study.paper[mode - 1];
        let over = |mine: usize, other: usize| -> Result<[Measured; 2], Failure> {
            let largest = |pairs: &mut dyn Iterator<Item = (f64, f64)>| pairs.map(change).fold(f64::MIN, f64::max);
            Ok([
                compared(rounds, (mine, other), |pairs| mean(pairs.map(change)))?,
                compared(rounds, (mine, other), largest)?,
            ])
        };
        // A cost is divided by the baseline's time, a gain by the mode's time.
        for (names, measured, told) in
            [((of.name, base), over(mode, 0)?, !study.gains), ((base, of.name), over(0, mode)?, study.gains)]
        {
            let paper = paper.filter(|_| told).map(|(mean, most)| [mean, most]);
            for (place, (what, measured)) in ["mean of all sizes", "most"].into_iter().zip(measured).enumerate() {
                let figure = Figure::new(format!("{} over {}, {what}", names.0, names.1), "%", measured);
                figures.push(match paper {
                    Some(paper) => figure.paper(Bound::About(paper[place]), study.source),
                    None => figure,
                });
            }
        }
    }
    if let Some(halves) = study.halves {
        let place = |name| study.modes.iter().position(|mode| mode.name == name).unwrap_or_default();
        let costs = |mode| compared(rounds, (place(mode), 0), |pairs| mean(pairs.map(change)));
        let [whole, half] = [costs(halves[0])?, costs(halves[1])?];
        let parts = half.runs.iter().zip(&whole.runs).map(|(half, whole)| half / whole * 100.0);
        if let Some(part) = Measured::from_runs(parts.collect()) {
            let name = format!("what {} costs over {base}, of what {} does", halves[1], halves[0]);
            figures.push(Figure::new(name, "%", part).mark(Bound::AtMost(HALF)));
        }
    }
    let mut chart = Chart::new(study.title, Axis::linear("simultaneous requests"), Axis::linear("mean time (ms)"));
    let mut summary = Table::new(&["mode", "requests", "mean_ms", "half_width_95_ms"]);
    for (mode, of) in study.modes.iter().enumerate() {
        let mut line = Vec::new();
        for (place, size) in sizes.iter().enumerate() {
            let measured = by_size(rounds, (mode, place), |burst| burst.mean_ms)?;
            let cells = [of.name.to_owned(), size.to_string(), measured.mean().to_string()];
            summary.row(cells.into_iter().chain([measured.interval().to_string()]));
            line.push((f64::from(*size), measured));
        }
        let points: Vec<_> = line.iter().map(|(size, measured)| (*size, measured)).collect();
        chart = chart.line_with_intervals(of.name, &points);
    }
    Ok(Findings {
        load: OfferedLoad::new("UEs that register at once", sizes.iter().copied().map(f64::from), "UEs"),
        configurations: study.modes.iter().map(Mode::configuration).collect(),
        figures,
        plots: vec![("time", chart.svg()?), ("change", change_plot(study, rounds)?)],
        tables: vec![("bursts", bursts::table(study.modes, rounds)), ("intervals", summary)],
        notes: vec![
            format!(
                "{} are processes of their own with the emulator and the database on this machine's processors; the time is the \
                 emulator's, from a UE's request to its accept. Database: {}.",
                FUNCTIONS.map(str::to_uppercase).join(", "),
                match study.modes.iter().find_map(|mode| mode.database) {
                    Some(Server::Mongodb) => "FerretDB 1.24 on PostgreSQL 15 (MongoDB's protocol), without fsync",
                    _ => "redis-server, nothing on disk",
                }
            ),
            "CPU and what the database says are per UE: registration, establishment and release.".into(),
            "Where the same work, or the CPU of the database for as many commands, takes longer in a run, the machine was slower then."
                .into(),
        ],
        broken: None,
    })
}

/// Plots the change of the time by each mode beside the paper's: mean and maximum of all sizes.
fn change_plot(study: &Study, rounds: &[Vec<Vec<Burst>>]) -> Result<String, Failure> {
    let base = study.modes[0].name;
    let pair = |mode: usize| if study.gains { (0, mode) } else { (mode, 0) };
    let others = 1..study.modes.len();
    let series = |name: &str, of: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64, paper: fn((f64, f64)) -> f64| {
        let value = |mode: usize| compared(rounds, pair(mode), |pairs| of(&mut pairs.map(change))).map(Some);
        let values = others.clone().map(value).collect::<Result<_, Failure>>()?;
        let paper = study.paper.iter().map(|said| said.map(paper)).collect();
        Ok::<_, Failure>(BarSeries { name: name.into(), values, paper })
    };
    let axis = if study.gains { format!("{base} over it (%)") } else { format!("over {base} (%)") };
    let bars = Bars {
        title: format!("{}: change of the time", study.title),
        groups: study.modes[1..].iter().map(|mode| mode.name.into()).collect(),
        y: Axis::linear(axis),
        series: vec![
            series("mean of all sizes", &|all| mean(all), |said| said.0)?,
            series("most", &|all| all.fold(f64::MIN, f64::max), |said| said.1)?,
        ],
    };
    Ok(bars.svg_with_intervals()?)
}

/// Quantity of the functions that is plotted over time.
struct BurstTimeline {
    unit: &'static str,
    axis: &'static str,
    value: fn(&SocketSample, usize) -> f64,
    /// Returns the figures of a mode for which the paper states a direction.
    compared: Comparison,
}

type Comparison = fn(&[Vec<Vec<Burst>>], usize) -> Result<Vec<Figure>, Failure>;

const BUSY: BurstTimeline = BurstTimeline {
    unit: "%",
    axis: "CPU (% of a processor)",
    value: |moment, place| moment.cpu[place] * 100.0,
    compared: cpu_over_stateful,
};
const WAITING: BurstTimeline = BurstTimeline {
    unit: "B",
    axis: "waiting in sockets (octets)",
    value: |moment, place| moment.waiting[place] as f64,
    compared: order_of_queues,
};

/// Modes with plots over time: those of the paper's figure 6, and the procedural one.
const COURSES: &[Mode] = &[STATEFUL, PROCEDURAL, TRANSACTIONAL, NON_BLOCKING, SHARED_AMF_SMF];

/// Returns the course of a quantity in a mode's bursts: seconds, and the value.
fn timeline(round: &[Vec<Burst>], mode: usize, value: impl Fn(&SocketSample) -> f64) -> Vec<(f64, f64)> {
    let moments = round[mode].iter().flat_map(|burst| &burst.moments);
    moments.map(|moment| (moment.at_s, value(moment))).collect()
}

/// Returns the mean CPU use of each function over that of the stateful one, the first mode.
fn cpu_over_stateful(rounds: &[Vec<Vec<Burst>>], mode: usize) -> Result<Vec<Figure>, Failure> {
    let source = "section 4.3.5, figure 6: CPU use falls as the cost rises";
    let figure = |place: usize| {
        let cpu = |round: &[Vec<Burst>], mode| mean(timeline(round, mode, |m| m.cpu[place]).into_iter().map(|s| s.1));
        let ratio = each(rounds, |round| cpu(round, mode) / cpu(round, 0))?;
        let (own, base, function) = (COURSES[mode].name, COURSES[0].name, FUNCTIONS[place].to_uppercase());
        let figure = Figure::new(format!("{own} over {base}: mean CPU of the {function}"), "ratio", ratio);
        Ok(figure.paper(Bound::Below(1.0), source))
    };
    if mode == 0 { Ok(Vec::new()) } else { (0..FUNCTIONS.len()).map(figure).collect() }
}

/// Returns the times between the longest queues of each function and the next one of the chain.
fn order_of_queues(rounds: &[Vec<Vec<Burst>>], mode: usize) -> Result<Vec<Figure>, Failure> {
    let source = "section 4.3.5, figure 7: queues grow at the AMF first, then at SMF and UPF";
    let longest = |round: &[Vec<Burst>], place: usize| {
        let samples = timeline(round, mode, |moment| moment.waiting[place] as f64);
        samples.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0.0, |(at_s, _)| at_s)
    };
    let figure = |next: usize| {
        let apart = each(rounds, |round| (longest(round, next) - longest(round, next - 1)) * 1e3)?;
        let [function, before] = [next, next - 1].map(|place| FUNCTIONS[place].to_uppercase());
        let name = format!("{}: longest queue of the {function} after that of the {before}", COURSES[mode].name);
        Ok(Figure::new(name, "ms", apart).paper(Bound::Above(0.0), source))
    };
    (1..FUNCTIONS.len()).map(figure).collect()
}

fn over_time(session: &ExperimentContext, course: &BurstTimeline) -> Result<Findings, Failure> {
    let sizes = if session.quick { [40] } else { [1000] };
    let rounds = session.repeat("one burst", |_| bursts::round(session, COURSES, &sizes, true))?;
    let mut figures = Vec::new();
    let mut plots = Vec::new();
    for (mode, of) in COURSES.iter().enumerate() {
        let mut chart = Chart::new(of.name, Axis::linear("time (s)"), Axis::linear(course.axis));
        for (place, function) in FUNCTIONS.iter().enumerate() {
            let seen = |round: &Vec<Vec<Burst>>| timeline(round, mode, |moment| (course.value)(moment, place));
            let most = |round: &Vec<Vec<Burst>>| seen(round).iter().map(|(_, value)| *value).fold(f64::NAN, f64::max);
            let all = |round: &Vec<Vec<Burst>>| mean(seen(round).iter().map(|(_, value)| *value));
            let name = |what: &str| format!("{}: {}, {what}", of.name, function.to_uppercase());
            let measured = |value: Option<Measured>| value.ok_or_else(|| Failure("nothing was seen".into()));
            figures.push(Figure::new(name("most"), course.unit, measured(Measured::each(&rounds, most))?));
            figures.push(Figure::new(name("mean"), course.unit, measured(Measured::each(&rounds, all))?));
            chart = chart.line(function.to_uppercase(), rounds.first().map(seen).unwrap_or_default());
        }
        figures.extend((course.compared)(&rounds, mode)?);
        plots.push((of.name, chart.svg()?));
    }
    Ok(Findings {
        load: OfferedLoad::new("UEs that register at once", sizes.map(f64::from), "UEs"),
        configurations: COURSES.iter().map(Mode::configuration).collect(),
        figures,
        plots,
        tables: vec![("moments", bursts::moments(COURSES, &rounds)), ("bursts", bursts::table(COURSES, &rounds))],
        notes: vec![
            format!("{} UEs register at once, establish a session and release it. The plot is of the first run.", sizes[0]),
            "Looked at every 10 ms. What waits is what the kernel has for a function's sockets: TCP, UDP, and SCTP's raw ones.".into(),
        ],
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a burst whose AMF, SMF and UPF use that much CPU, and whose queues are longest at
    /// those times.
    fn burst(cpu: f64, longest_at: [f64; 3]) -> Burst {
        let moment = |at_s: f64| SocketSample {
            at_s,
            cpu: [cpu; 3],
            waiting: longest_at.map(|longest| if longest == at_s { 9 } else { 1 }),
        };
        Burst { moments: [0.1, 0.2, 0.4].map(moment).into(), ..Burst::default() }
    }

    #[test]
    fn courses_are_compared_with_paper() {
        let rounds = [COURSES.iter().map(|_| vec![burst(0.5, [0.1, 0.2, 0.4])]).collect::<Vec<_>>()];
        let queues = order_of_queues(&rounds, 2).unwrap();
        assert_eq!(queues.iter().map(|figure| figure.ours.median.round()).collect::<Vec<_>>(), [100.0, 200.0]);
        assert!(queues.iter().all(|figure| figure.paper.is_some()), "{queues:?}");
        let cpu = cpu_over_stateful(&rounds, 2).unwrap();
        assert_eq!((cpu.len(), cpu[0].ours.median, cpu_over_stateful(&rounds, 0).unwrap().len()), (3, 1.0, 0));
    }
}
