//! `vireo bench upf`: cost of packets and sessions in the user plane.
//!
//! The UPF runs in its own namespaces, its packets on one processor. The baseline is the machine's
//! best case: the same frames through programs that only move headers.
//!
//! The load runs in the kernel (`vireo_traffic::frame_loop`), so that no generator limits it.
//! Baselines are measured before and after, and the UPF has real N4 sessions.

pub mod breakdown;
pub mod compute;
pub mod drivers;
pub mod kernel;
pub mod network;
pub mod process;

use crate::results::Bound::{self, AtLeast, AtMost};
use crate::results::{Figure, Machine, Measured, OfferedLoad, Summary};
use compute::Compute;
use drivers::{BothDirections, DRIVERS, Driver};
use kernel::{Cost, Spans};
use network::Network;
use process::Upf;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use vireo_config::Failure;
use vireo_lab::Interrupt;
use vireo_lab::files::create;
use vireo_lab::process::on_processors;
use vireo_traffic::frame_loop::{Direction, FrameLoop};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the numbers as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Repeat packet measurements N times [default: 5; 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    runs: Option<u32>,
    /// Run only PART
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Run the short form (seconds, fewer sessions) without meaningful figures
    #[arg(long)]
    quick: bool,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// XDP program, session set-up and memory
    Xdp,
    /// User-space drivers
    Drivers,
    /// Packet time in user space between input and output
    Compute,
}

/// Numbers of sessions and durations of the measurements.
#[derive(Clone, Copy, Debug)]
struct Size {
    few: u32,
    many: u32,
    metered: u32,
    filtered: u32,
}

impl Args {
    fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 1 } else { 5 })
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    fn size(&self) -> Size {
        if self.quick {
            Size { few: 2_500, many: 10_000, metered: 2_500, filtered: 250 }
        } else {
            Size { few: 250_000, many: 1_000_000, metered: 250_000, filtered: 25_000 }
        }
    }

    fn spans(&self) -> Spans {
        let (warm_up, window) = if self.quick { (30, 100) } else { (150, 500) };
        Spans { warm_up: Duration::from_millis(warm_up), window: Duration::from_millis(window) }
    }
}

/// One run of the XDP part.
#[derive(Clone, Copy, Debug)]
struct Run {
    floor: [Cost; 2],
    one: Cost,
    few: Cost,
    many: Cost,
    metered: Cost,
    /// Costs with one and with many sessions that have packet filters.
    filtered: [Cost; 2],
}

/// SDF filters of a filtered session. The packets match none of them.
const FILTERS: u16 = 4;

/// Results of session set-up.
struct SetUp {
    /// Sessions per second, in set-up order.
    rates: Vec<f64>,
    /// Resident memory of the UPF per session, in bytes.
    memory: f64,
}

/// Runs `vireo bench upf`.
pub(crate) fn run(args: &Args, commit: &str) -> Result<(), Failure> {
    let mut json = args.json.as_deref().map(create).transpose()?;
    let network = Network::build()?;
    let interrupt = Interrupt::listen()?;
    let size = args.size();
    let mut figures = vec![];
    if args.wants(Part::Compute) {
        figures.extend(in_memory(&network, args, size, &interrupt)?);
    }
    if args.wants(Part::Drivers) {
        for driver in &DRIVERS {
            figures.extend(in_user_space(&network, driver, args, size, &interrupt)?);
        }
    }
    if args.wants(Part::Xdp) {
        let (runs, set_up) = in_kernel(&network, args, size, &interrupt)?;
        figures.extend(kernel_figures(&runs, size));
        figures.extend(set_up_figures(&set_up, size));
    }
    let mut summary = Summary {
        experiment: "bench upf".into(),
        about: "what packets and sessions cost the user plane".into(),
        paper: String::new(),
        commit: Some(commit.to_owned()),
        machine: Machine::read(),
        load: Some(OfferedLoad::new(
            "128-byte packets back to back",
            [1, size.few, size.many].map(f64::from),
            "sessions",
        )),
        quick: args.quick,
        runs: args.runs(),
        configurations: vec![],
        figures,
        met: None,
        informative: None,
        notes: notes(),
    };
    summary.judge(None);
    print!("{summary}");
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &summary)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn notes() -> Vec<String> {
    let mut notes = vec![
        "128-byte packets with random sessions, on one processor, the UPF's threads on the others; a packet's time is that of a whole round: through the \
         UPF and back by the load's program at the far ends. Marks are held against the median."
            .to_owned(),
    ];
    if cfg!(debug_assertions) {
        notes.push("Made with a debug build: nothing can be concluded from the figures.".to_owned());
    }
    notes
}

/// Processor that handles the packets.
const PROCESSOR: usize = 0;

/// Returns the processors of the UPF's other threads: not the one of the packets, if there is
/// another. Otherwise the UPF's maintenance of a million sessions, once per second, would take time
/// from the packets in some windows.
fn beside() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if all > 1 { (1..all).collect() } else { vec![PROCESSOR] }
}

/// Measures T_c with one worker, with one of several workers, and with tables outside huge pages.
fn in_memory(network: &Network, args: &Args, size: Size, interrupt: &Interrupt) -> Result<Vec<Figure>, Failure> {
    let mut figures = vec![];
    let few = size.few;
    let rows = [
        (1, "", false, false),
        (few, "", false, false),
        (few, ", one of several workers", true, false),
        (few, ", without huge pages", false, true),
    ];
    for (sessions, what, several, ordinary) in rows {
        rustix::thread::disable_transparent_huge_pages(ordinary)?;
        let mut compute = Compute::new(network, sessions)?;
        compute.one_of_several(several);
        for (way, direction) in [("uplink", Direction::Uplink), ("downlink", Direction::Downlink)] {
            interrupt.check()?;
            let mut run = || on_processors(&[PROCESSOR], || compute.nanoseconds(direction, args.spans().window))?;
            // The first run has cold caches and does not count.
            run()?;
            let runs = (0..args.runs()).map(|_| run()).collect::<Result<Vec<f64>, Failure>>()?;
            let mark = (sessions == few && what.is_empty()).then_some(AtMost(35.0));
            let plural = if sessions == 1 { "" } else { "s" };
            figures.extend(figure(format!("T_c, {way}, {sessions} session{plural}{what}"), "ns", runs, mark));
        }
    }
    rustix::thread::disable_transparent_huge_pages(false)?;
    Ok(figures)
}

/// Compares a user-space driver with the bare driver.
fn in_user_space(
    network: &Network,
    driver: &Driver,
    args: &Args,
    size: Size,
    interrupt: &Interrupt,
) -> Result<Vec<Figure>, Failure> {
    // Each run sets up its sessions again.
    let count = args.runs().min(3);
    let mut runs = vec![];
    for run in 1..=count {
        eprintln!("bench: {}, run {run} of {count}", driver.name);
        runs.push(driver.run(network, size.few, (PROCESSOR, &beside()), args.spans(), interrupt)?);
    }
    Ok(driver_figures(driver.name, &runs, size))
}

fn driver_figures(name: &str, runs: &[drivers::Run], size: Size) -> Vec<Figure> {
    type DirectionPart = fn(&BothDirections) -> kernel::Round;
    let ways: [(&str, DirectionPart); 2] = [("uplink", |both| both.uplink), ("downlink", |both| both.downlink)];
    let mut figures = vec![];
    for (way, part) in ways {
        let mut put = |what: String, unit, of: &dyn Fn(&drivers::Run) -> f64, mark| {
            figures.extend(figure(format!("{name}, {way}, {what}"), unit, runs.iter().map(of).collect(), mark));
        };
        let floor = |run: &drivers::Run| f64::midpoint(part(&run.bare[0]).nanoseconds, part(&run.bare[1]).nanoseconds);
        let cpu =
            |run: &drivers::Run| f64::midpoint(part(&run.bare[0]).cpu_nanoseconds, part(&run.bare[1]).cpu_nanoseconds);
        put("bare forwarder".into(), "ns", &floor, None);
        put("bare forwarder, CPU".into(), "ns", &cpu, None);
        for (n, sessions) in [(0, "1 session".to_owned()), (1, format!("{} sessions", size.few))] {
            put(sessions.clone(), "ns", &|run| part(&run.ours[n]).nanoseconds, None);
            put(format!("{sessions}, CPU"), "ns", &|run| part(&run.ours[n]).cpu_nanoseconds, None);
            let ratio = |run: &drivers::Run| part(&run.ours[n]).nanoseconds / floor(run);
            put(format!("{sessions}, of the bare forwarder"), "ratio", &ratio, Some(AtMost(1.15)));
        }
    }
    figures
}

fn in_kernel(network: &Network, args: &Args, size: Size, interrupt: &Interrupt) -> Result<(Vec<Run>, SetUp), Failure> {
    let sessions = size.many + size.metered;
    let filtered = sessions..sessions + size.filtered;
    let mut upf = Upf::start(network, &beside(), filtered.end, &process::xdp(network), interrupt)?;
    let mut rates = vec![];
    eprintln!("bench: {} sessions through N4", size.many);
    for block in 0..size.many / size.few {
        interrupt.check()?;
        let block = block * size.few..(block + 1) * size.few;
        rates.push(on_processors(&[PROCESSOR], || upf.establish(block, false))??);
    }
    let memory = upf.memory()? as f64 / f64::from(size.many);
    upf.establish(size.many..sessions, true)?;
    upf.establish_filtered(filtered, true, FILTERS)?;
    let teids = upf.teids.take().ok_or_else(|| Failure("the UPF has no sessions".into()))?;
    let packets = network.packets(teids);
    let mut load = network.outside(|| FrameLoop::load(&network.ours, packets.clone()))??;
    let mut bare_load = network.outside(|| FrameLoop::load(&network.bare, packets.clone()))??;
    let _bare = FrameLoop::bare(&network.bare, packets)?;
    let mut runs = vec![];
    for run in 1..=args.runs() {
        interrupt.check()?;
        eprintln!("bench: packets, run {run} of {}", args.runs());
        let mut ours = |sessions| kernel::both(network, &mut load, sessions, PROCESSOR, args.spans());
        let mut floor = || kernel::both(network, &mut bare_load, (0, 1), PROCESSOR, args.spans());
        let before = floor()?;
        let one = ours((0, 1))?;
        let few = ours((0, size.few))?;
        let many = ours((0, size.many))?;
        let metered = ours((size.many, size.metered))?;
        let filtered = [ours((sessions, 1))?, ours((sessions, size.filtered))?];
        runs.push(Run { floor: [before, floor()?], one, few, many, metered, filtered });
    }
    drop((load, bare_load));
    upf.stop()?;
    Ok((runs, SetUp { rates, memory }))
}

/// Returns a figure whose median is compared with the mark.
fn figure(name: String, unit: &str, runs: Vec<f64>, mark: Option<Bound>) -> Option<Figure> {
    let measured = Measured::from_runs(runs)?;
    let median = Measured { min: measured.median, max: measured.median, ..measured.clone() };
    let met = mark.map(|mark| mark.holds(&median));
    Some(Figure { mark, met, ..Figure::new(name, unit, measured) })
}

fn kernel_figures(runs: &[Run], size: Size) -> Vec<Figure> {
    type Of = fn(&Run) -> Cost;
    type Part = fn(Cost) -> f64;
    let few = format!("{} sessions", size.few);
    let many = format!("{} sessions", size.many);
    let rules = format!("QER, URR and {FILTERS} SDF filters");
    let rows: [(String, Of, Option<f64>); 6] = [
        ("1 session".into(), |run| run.one, Some(1.35)),
        (few.clone(), |run| run.few, Some(1.9)),
        (many, |run| run.many, Some(2.5)),
        (format!("{few} with QER and URR"), |run| run.metered, None),
        (format!("1 session with {rules}"), |run| run.filtered[0], None),
        (format!("{} sessions with {rules}", size.filtered), |run| run.filtered[1], None),
    ];
    let ways: [(&str, Part); 2] = [("uplink", |cost| cost.uplink), ("downlink", |cost| cost.downlink)];
    let mut figures = vec![];
    for (way, part) in ways {
        let all = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
        let floor = all(&|run| f64::midpoint(part(run.floor[0]), part(run.floor[1])));
        figures.push(figure(format!("XDP, {way}, bare redirect"), "ns", floor, None));
        for (name, of, _) in &rows {
            figures.push(figure(format!("XDP, {way}, {name}"), "ns", all(&|run| part(of(run))), None));
        }
        for (name, of, mark) in &rows {
            let ratio = all(&|run| part(of(run).over(run.floor[0], run.floor[1])));
            figures.push(figure(format!("XDP, {way}, {name}, of the floor"), "ratio", ratio, mark.map(AtMost)));
        }
        let cost = all(&|run| (part(run.metered) / part(run.few) - 1.0) * 100.0);
        figures.push(figure(format!("XDP, {way}, cost of QER and URR"), "%", cost, Some(AtMost(20.0))));
    }
    figures.into_iter().flatten().collect()
}

fn set_up_figures(set_up: &SetUp, size: Size) -> Vec<Figure> {
    let last = set_up.rates.last().zip(set_up.rates.first()).map(|(last, first)| last / first);
    let figures = [
        figure(
            format!("PFCP, sessions set up, blocks of {}", size.few),
            "1/s",
            set_up.rates.clone(),
            Some(AtLeast(20_000.0)),
        ),
        figure(
            "PFCP, the last block's rate of the first's".into(),
            "ratio",
            last.into_iter().collect(),
            Some(AtLeast(0.9)),
        ),
        figure(format!("memory per session, of {}", size.many), "octets", vec![set_up.memory], Some(AtMost(2048.0))),
    ];
    figures.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_ratio_uses_bare_runs_around() {
        let both = |ns: f64| {
            let round = |ns| kernel::Round { nanoseconds: ns, cpu_nanoseconds: ns / 2.0, in_flight: 1 };
            BothDirections { uplink: round(ns), downlink: round(2.0 * ns) }
        };
        let run = drivers::Run { bare: [both(900.0), both(1100.0)], ours: [both(1000.0), both(1200.0)] };
        let size = Size { few: 250_000, many: 0, metered: 0, filtered: 1 };
        let figures = driver_figures("sockets", &[run], size);
        let find = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        let one = find("sockets, uplink, 1 session, of the bare forwarder");
        assert!(one.met == Some(true) && (one.ours.median - 1.0).abs() < 1e-9, "{one:?}");
        let many = find("sockets, downlink, 250000 sessions, of the bare forwarder");
        assert!(many.met == Some(false) && (many.ours.median - 1.2).abs() < 1e-9, "{many:?}");
        assert_eq!(find("sockets, downlink, bare forwarder, CPU").ours.median, 1000.0);
    }

    #[test]
    fn ratio_uses_floor_around_and_median_decides() {
        let cost = |up: f64| Cost { uplink: up, downlink: 2.0 * up };
        let run = |one: f64| Run {
            floor: [cost(90.0), cost(110.0)],
            one: cost(one),
            few: cost(150.0),
            many: cost(300.0),
            metered: cost(165.0),
            filtered: [cost(200.0), cost(210.0)],
        };
        let size = Size { few: 250_000, many: 1_000_000, metered: 250_000, filtered: 25_000 };
        let figures = kernel_figures(&[run(120.0), run(130.0), run(190.0)], size);
        let find = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        let one = find("XDP, uplink, 1 session, of the floor");
        assert!(one.met == Some(true) && (one.ours.median - 1.3).abs() < 1e-9, "one bad run of three: {one:?}");
        assert_eq!(find("XDP, downlink, 1000000 sessions, of the floor").met, Some(false), "three times the floor");
        assert!((find("XDP, uplink, cost of QER and URR").ours.median - 10.0).abs() < 1e-9);
        let set_up = SetUp { rates: vec![100_000.0, 80_000.0], memory: 1456.0 };
        let figures = set_up_figures(&set_up, size);
        assert_eq!(figures.iter().map(|figure| figure.met).collect::<Vec<_>>(), [true, false, true].map(Some));
    }
}
