//! Isolation of slices: performance of one slice while another is flooded.
//!
//! Measures packet rate and session set-up time in three placements:
//!
//! * each slice has a worker, and the control side runs where processor time is free;
//! * each slice has a worker, and the control side runs beside that of the other slice;
//! * the same workers serve all users.

use super::context::{ExperimentContext, Findings, Metric, each};
use super::migration::{BUSY, NAMES, SLOT, config, establish, move_range, sessions, slices_of};
use super::scaleout::InterfaceMode;
use super::scaleout::network::{FIRST_UE, Network};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::process::on_processors;
use vireo_lab::upf::Upf;
use vireo_traffic::frame_loop::{Direction, FrameLoop, FrameSource, Packets};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-isolation",
    about: "Does a slice of the user plane that is flooded leave the packets of another one alone?",
    paper: "A High Performance Packet Core for Next Generation Cellular Networks (PEPC), slices",
    informative: None,
    run: Run::Core(run),
};

/// Least fraction of its rate that the other slice must keep.
const KEPT: f64 = 0.9;
/// Frames of the other slice in flight, per direction.
const FLIGHT: usize = BUSY.flight / 2;
/// Sequential session set-ups per turn.
const SET_UPS: u32 = 100;
/// Destination of the flood's packets, which the counters of the other packets do not count.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 99);
const BURST: u32 = 64;

/// Assignment of workers to users, and of the control side to processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerPlacement {
    /// A worker per slice; the control side does not share a processor with the flood, as an
    /// operator would place it.
    Placed,
    /// A worker per slice.
    Sliced,
    /// The same number of workers, shared by all users.
    Shared,
}

impl WorkerPlacement {
    const ALL: [WorkerPlacement; 3] = [WorkerPlacement::Placed, WorkerPlacement::Sliced, WorkerPlacement::Shared];

    fn name(self) -> &'static str {
        match self {
            WorkerPlacement::Placed => "slices, control side placed",
            WorkerPlacement::Sliced => "slices",
            WorkerPlacement::Shared => "shared workers",
        }
    }

    /// Returns the processors of the control side (the UPF's N4 thread and the requesting control
    /// plane); empty = all.
    fn control(self, last: usize) -> Vec<usize> {
        if self == WorkerPlacement::Placed { vec![last] } else { vec![] }
    }

    fn slices(self, processors: usize) -> String {
        match self {
            WorkerPlacement::Placed | WorkerPlacement::Sliced => slices_of(processors),
            WorkerPlacement::Shared => String::new(),
        }
    }

    fn workers(self) -> &'static str {
        match self {
            WorkerPlacement::Placed | WorkerPlacement::Sliced => "",
            WorkerPlacement::Shared => "workers = 2\n",
        }
    }
}

/// Kernel scheduling times of the threads that set up sessions, in microseconds per session.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTimes {
    /// Times of the UPF's N4 thread: running on a processor, waiting for one.
    n4: [f64; 2],
    /// Times of the control plane's thread: running, waiting.
    control: [f64; 2],
}

impl CpuTimes {
    /// Returns the times since the threads started, in microseconds.
    fn now(upf: &Upf) -> Result<Self, Failure> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", upf.process.pid()))?.flatten().map(|task| task.path());
        let is_n4 =
            |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "upf-n4");
        let n4 = tasks.into_iter().find(is_n4).ok_or_else(|| Failure("the UPF has no N4 thread".into()))?;
        Ok(CpuTimes { n4: schedstat(&n4)?, control: schedstat(Path::new("/proc/thread-self"))? })
    }

    fn since(self, before: CpuTimes, sessions: usize) -> CpuTimes {
        let each = |now: [f64; 2], before: [f64; 2]| [0, 1].map(|n| (now[n] - before[n]) / sessions as f64);
        CpuTimes { n4: each(self.n4, before.n4), control: each(self.control, before.control) }
    }
}

/// Reads the time on a processor and the time waiting for one, in microseconds.
fn schedstat(task: &Path) -> Result<[f64; 2], Failure> {
    let text = std::fs::read_to_string(task.join("schedstat"))?;
    let mut numbers = text.split_whitespace().map(|n| n.parse::<f64>().unwrap_or(0.0) / 1e3);
    Ok([numbers.next().unwrap_or(0.0), numbers.next().unwrap_or(0.0)])
}

/// Values of the slice without flood: before, during and after the flood.
#[derive(Clone, Copy, Debug, Default)]
struct Observation {
    /// Packets per second in both directions together.
    rates: [f64; 3],
    /// Time of a session set-up in microseconds.
    set_ups: [f64; 3],
    /// Processor and waiting times of the two set-up threads as counted by the kernel, in
    /// microseconds.
    spent: [CpuTimes; 3],
    /// Flood packets per second: sent, forwarded.
    flood: [f64; 2],
}

impl Observation {
    fn kept_rate(&self) -> f64 {
        self.rates[1] / f64::midpoint(self.rates[0], self.rates[2])
    }

    fn slower(&self) -> f64 {
        self.set_ups[1] / f64::midpoint(self.set_ups[0], self.set_ups[2])
    }
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let users = if session.quick { 2_000 } else { 20_000 };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let rounds = session.repeat("isolation", |_| {
        let measured = WorkerPlacement::ALL.map(|way| {
            let seen = measure(session, way, users, processors)?;
            let (name, kept, [sent, through]) = (way.name(), seen.kept_rate(), seen.flood);
            eprintln!("experiment: {name}: {kept:.3} kept under {sent:.0}/s, of which {through:.0}/s came through");
            eprintln!("experiment: {name}: {:.0?} us a set-up, of which {:.0?}", seen.set_ups, seen.spent);
            Ok::<_, Failure>(seen)
        });
        let [placed, sliced, shared] = measured;
        Ok([placed?, sliced?, shared?])
    })?;
    findings(&rounds, users, processors)
}

fn measure(
    session: &ExperimentContext,
    way: WorkerPlacement,
    users: u32,
    processors: usize,
) -> Result<Observation, Failure> {
    session.interrupt.check()?;
    // The control plane would run on another machine, where it does not compete with packets.
    vireo_datapath::request_short_time_slices()?;
    let network = Network::build(&session.lab, InterfaceMode::Fanout, processors.min(2))?;
    let room = users + 3 * SET_UPS;
    let toml = config(&network, (&BUSY, way.workers()), room, &way.slices(processors));
    let last = processors.min(2) - 1;
    let control = way.control(last);
    // Threads of the UPF; data workers have separate processors.
    let mut upf = Upf::start(network.upf(), &control, &toml, &session.interrupt)?;
    let teids = establish(&network, &mut upf, 0..users)?;
    let half = users / 2;
    if way != WorkerPlacement::Shared {
        move_range(half..users, NAMES[1])?;
    }
    let packets = network.packets(0, FIRST_UE, teids);
    let mut load = network.outside(|| FrameLoop::load(&network.ends[0], packets.clone()))??;
    load.run(half, users - half)?;
    for direction in [Direction::Uplink, Direction::Downlink] {
        network.outside(|| on_processors(&[last], || load.inject(direction, half, FLIGHT)))???;
    }
    let window = Duration::from_millis(if session.quick { 400 } else { 2000 });
    std::thread::sleep(window / 4);
    let mut seen = Observation::default();
    let flood = Packets { server: ELSEWHERE, ..packets };
    for turn in 0..3 {
        let first = users + turn as u32 * SET_UPS;
        let new = first..first + SET_UPS;
        let mut watched = || on_processors(&control, || watch(&network, &load, &mut upf, new.clone(), window))?;
        let result = match turn {
            1 => under_flood(&network, &load, flood.clone(), half, &mut seen.flood, watched)?,
            _ => watched()?,
        };
        (seen.rates[turn], seen.set_ups[turn], seen.spent[turn]) = (result.rate, result.set_up_us, result.spent);
    }
    load.run(0, 0)?;
    drop(load);
    upf.stop()?;
    Ok(seen)
}

/// Measurements of one slice while the other one is or is not flooded.
struct WatchResult {
    /// Packets per second of the slice that is not flooded.
    rate: f64,
    /// Time of a session set-up, in microseconds.
    set_up_us: f64,
    spent: CpuTimes,
}

/// Measures packets for a time, and session set-ups in the middle of it.
fn watch(
    network: &Network<'_>,
    load: &FrameLoop,
    upf: &mut Upf,
    new: Range<u32>,
    window: Duration,
) -> Result<WatchResult, Failure> {
    let all = || load.counted().map(|counted| counted.uplink + counted.downlink);
    let (began, before) = (Instant::now(), all()?);
    std::thread::sleep(window / 2);
    let (set_ups, count, spent) = (Instant::now(), new.len(), CpuTimes::now(upf)?);
    sessions(network, upf, (new, None), 1)?;
    let each = set_ups.elapsed().as_secs_f64() * 1e6 / count as f64;
    let spent = CpuTimes::now(upf)?.since(spent, count);
    while began.elapsed() < window {
        std::thread::sleep(SLOT);
    }
    let rate = (all()? - before) as f64 / began.elapsed().as_secs_f64();
    match rate > 0.0 {
        true => Ok(WatchResult { rate, set_up_us: each, spent }),
        false => Err(Failure("no packet of the slice that is not flooded comes through".into())),
    }
}

/// Runs `work` while one processor sends packets of the first slice's users as fast as it can.
fn under_flood<T>(
    network: &Network<'_>,
    load: &FrameLoop,
    packets: Packets,
    users: u32,
    flood: &mut [f64; 2],
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let stop = AtomicBool::new(false);
    let source = || -> Result<u64, Failure> {
        let send = || -> Result<u64, Failure> {
            let mut source = FrameSource::open(&network.ends[0], &packets, Direction::Uplink, users)?;
            let mut sent = 0;
            while !stop.load(Relaxed) {
                source.send(BURST)?;
                sent += u64::from(BURST);
            }
            Ok(sent)
        };
        network.outside(|| on_processors(&[0], send))??
    };
    let (began, before) = (Instant::now(), load.counted()?.unrelated);
    let (result, sent) = std::thread::scope(|scope| {
        let source = scope.spawn(source);
        let result = work();
        stop.store(true, Relaxed);
        (result, source.join())
    });
    let sent = sent.map_err(|_| Failure("the thread that floods has failed".into()))??;
    let seconds = began.elapsed().as_secs_f64();
    *flood = [sent as f64 / seconds, (load.counted()?.unrelated - before) as f64 / seconds];
    result
}

fn findings(
    rounds: &[[Observation; WorkerPlacement::ALL.len()]],
    users: u32,
    processors: usize,
) -> Result<Findings, Failure> {
    let mut figures = vec![];
    let mut table =
        Table::new(&["run", "workers", "turn", "packets_per_s", "set_up_us", "flood_per_s", "through_per_s"]);
    let title = "Packets of a slice before, during and after a flood of another";
    let y = Axis::linear("million packets per second, both directions");
    let mut chart = Chart::new(title, Axis::linear("turn: before, during, after"), y);
    for (place, way) in WorkerPlacement::ALL.into_iter().enumerate() {
        let of = |value: fn(&Observation) -> f64| each(rounds, move |round: &[Observation; 3]| value(&round[place]));
        let named = |what: &str| format!("{}, {what}", way.name());
        let kept = Figure::new(named("packets under a flood, of those without"), "ratio", of(Observation::kept_rate)?);
        figures.push(if way == WorkerPlacement::Shared { kept } else { kept.mark(Bound::AtLeast(KEPT)) });
        figures.push(Figure::new(
            named("session set-up under a flood, of that without"),
            "ratio",
            of(Observation::slower)?,
        ));
        figures.push(
            Figure::new(named("session set-up under a flood"), "us", of(|seen| seen.set_ups[1])?)
                .baseline("without", Some(of(|seen| f64::midpoint(seen.set_ups[0], seen.set_ups[2]))?)),
        );
        let waits: [Metric<CpuTimes>; 2] =
            [("N4 thread", |spent| spent.n4[1]), ("control plane", |spent| spent.control[1])];
        for (who, wait) in waits {
            let under = each(rounds, move |round: &[Observation; 3]| wait(&round[place].spent[1]))?;
            let without = each(rounds, move |round: &[Observation; 3]| {
                f64::midpoint(wait(&round[place].spent[0]), wait(&round[place].spent[2]))
            })?;
            let name = named(&format!("of a set-up under a flood, the {who} waits for a processor"));
            figures.push(Figure::new(name, "us", under).baseline("without", Some(without)));
        }
        figures.push(Figure::new(named("flood that was sent"), "1/s", of(|seen| seen.flood[0])?));
        figures.push(Figure::new(named("flood that came through"), "1/s", of(|seen| seen.flood[1])?));
        let rate = |turn: usize| each(rounds, move |round: &[Observation; 3]| round[place].rates[turn]);
        let points = (0..3).map(|turn| Ok(((turn + 1) as f64, rate(turn)?.median / 1e6)));
        chart = chart.line(way.name(), points.collect::<Result<_, Failure>>()?);
    }
    for (run, round) in rounds.iter().enumerate() {
        for (way, seen) in WorkerPlacement::ALL.into_iter().zip(round) {
            for (turn, name) in ["before", "flood", "after"].into_iter().enumerate() {
                let flood = if turn == 1 { seen.flood } else { [0.0; 2] };
                let numbers = [seen.rates[turn], seen.set_ups[turn], flood[0], flood[1]].map(|n| n.to_string());
                table.row([(run + 1).to_string(), way.name().into(), name.into()].into_iter().chain(numbers));
            }
        }
    }
    let configuration = |way: WorkerPlacement| {
        Configuration {
        name: way.name().into(),
        about: match way {
            WorkerPlacement::Placed => {
                "Two slices with a worker each, on a processor each. The control side is on the second slice's processor."
            }
            WorkerPlacement::Sliced => "Two slices with a worker each, on a processor each. The control side is on both.",
            WorkerPlacement::Shared => {
                "Two workers for all users, among whom AF_PACKET divides frames by a hash of their outer addresses."
            }
        }
        .into(),
        toml: format!("{}[datapath]\ndriver = \"{}\"\n{}", way.slices(processors), BUSY.name, way.workers()),
    }
    };
    Ok(Findings {
        load: OfferedLoad::new(
            "128-byte packets in a closed loop per direction, beside a flood by one thread",
            [FLIGHT as f64],
            "frames in flight",
        ),
        configurations: WorkerPlacement::ALL.into_iter().map(configuration).collect(),
        figures,
        plots: vec![("rates", chart.svg()?)],
        tables: vec![("turns", table)],
        notes: vec![
            format!(
                "{users} users, half of them of each slice, {processors} processors. Packets of the second half go round in a \
                 closed loop ({FLIGHT} in flight in each direction) while those of the first half are sent uplink as fast as \
                 one thread can, on the first slice's processor, which receives them there too."
            ),
            "Sessions are set up one after the other meanwhile, by the same control plane and the UPF's one N4 thread. Both \
             ask for short turns of the processors. Where they are placed, the second slice's packets keep their processor \
             busy, flood or no flood. Where they are not, they have got used to the first one, nearly idle before the flood, and \
             wait there behind the flooded slice's worker and the flood itself, in soft interrupts as much as outside of them."
                .into(),
        ],
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_rate_uses_runs_around() {
        let seen = |during| Observation {
            rates: [1e6, during, 0.8e6],
            set_ups: [100.0, 110.0, 100.0],
            spent: [CpuTimes::default(); 3],
            flood: [2e6, 1e6],
        };
        assert_eq!((seen(0.9e6).kept_rate(), seen(0.9e6).slower()), (1.0, 1.1));
        let found = findings(&[[seen(0.85e6), seen(0.9e6), seen(0.3e6)]], 100, 2).unwrap();
        let marked: Vec<_> = found.figures.iter().filter(|figure| figure.mark.is_some()).collect();
        let of_slices = |figure: &&Figure| figure.name.starts_with("slices") && figure.met != Some(false);
        assert!(marked.len() == 2 && marked.iter().all(of_slices), "{marked:?}");
        let found = findings(&[[seen(0.5e6), seen(0.9e6), seen(0.3e6)]], 100, 2).unwrap();
        assert!(found.figures[0].met == Some(false));
        assert!(found.configurations[2].toml.contains("workers = 2"));
    }
}
