//! `vireo bench host`: CPU cost and throughput of the host runtime, in two views.
//!
//! * Messages in memory: the real core and the emulator run in one process, joined by SCTP
//!   associations in memory. CPU time is counted by thread and process; UPF and emulator are
//!   separate. N4 is real: UDP over loopback with its system calls.
//! * With SCTP: core and emulator are processes in namespaces, on the same processors. CPU time is
//!   that of all of the core.
//!
//! Service requests are measured in two ways. In a closed loop a release follows each request.
//! Alone, idle UEs become connected, all at once or at a rate, and stay connected.

pub(super) mod cpu;
mod figures;
pub mod messages;
mod million;
mod sctp;
pub(super) mod variants;

use crate::results::Bound::{AtLeast, AtMost, Below};
use crate::results::{Machine, OfferedLoad};
use cpu::CpuBreakdown;
use figures::{Figure, Numbers, cost, median};
use messages::{Size, WINDOW};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use variants::{EIGHT, INLINE, POOLS, PROCESSES, SHARED, STATEFUL};
use vireo_config::Failure;
use vireo_emulator::Rats;
use vireo_lab::files::create;
use vireo_lab::options::UE_NETWORKS;
use vireo_lab::{Interrupt, Lab};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the numbers as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Repeat every measurement N times [default: 5; 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    runs: Option<u32>,
    /// Use N UEs per measurement [default: 10000; 200 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=15_000))]
    ues: Option<u32>,
    /// Run the short form (seconds): a functional check without meaningful figures
    #[arg(long)]
    quick: bool,
    /// Run only one of the two views
    #[arg(long, value_enum)]
    only: Option<View>,
    /// Also run a million UEs in one host (minutes; memory for core and emulator)
    #[arg(long)]
    million: bool,
    /// Measure gNBs and UEs of 5G (nr), or eNBs and UEs of 4G (eps)
    ///
    /// In 4G an attach with its default bearer is a registration with a session.
    #[arg(long, value_name = "RAT", default_value = "nr", value_parser = crate::rat)]
    rat: Rats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum View {
    /// Messages in memory
    Messages,
    /// SCTP, with the emulator on the same processors
    Sctp,
}

impl Args {
    fn size(&self) -> Size {
        let (ues, requests) = if self.quick { (200, 300) } else { (10_000, 40_000) };
        let (alone, burst) = if self.quick { (100, 100) } else { (4000, 15_000) };
        let burst_apart = Duration::from_secs(if self.quick { 1 } else { 4 });
        let paced_seconds = if self.quick { 0.5 } else { 2.0 };
        Size { ues: self.ues.unwrap_or(ues), requests, alone, burst, paced_seconds, burst_apart }
    }

    fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 1 } else { 5 })
    }

    fn wants(&self, view: View) -> bool {
        self.only.is_none_or(|only| only == view)
    }
}

/// One run of the first view. The baseline is measured before and after each variant that is
/// compared with it.
struct Messages {
    /// The default configuration, before and after the steps inline.
    pools: [messages::Outcome; 2],
    inline: messages::Outcome,
    baseline: [messages::Outcome; 3],
    shared: [messages::Outcome; 2],
    eight: messages::Outcome,
    processes: messages::Outcome,
    /// SUCI profiles A and B; `None` in 4G, whose UEs send their IMSI.
    concealed: Option<[CpuBreakdown; 2]>,
}

/// One run of the second view.
struct WithSctp {
    outcome: sctp::Outcome,
    memory: sctp::PerUe,
    idle: sctp::Idle,
    starts: sctp::Starts,
}

/// Runs `vireo bench host`.
pub(crate) fn run(args: &Args, commit: &str) -> Result<(), Failure> {
    let mut json = args.json.as_deref().map(create).transpose()?;
    let lab = Lab::build(&UE_NETWORKS)?;
    let interrupt = Interrupt::listen()?;
    let began = load_average();
    let (paced, idle) = if args.quick { (1, 1) } else { (3, 10) };
    let (paced, idle) = (Duration::from_secs(paced), Duration::from_secs(idle));
    let bench = sctp::Bench { lab, interrupt, quick: args.quick, size: args.size(), paced, idle, rats: args.rat };
    let (mut in_memory, mut with_sctp) = (Vec::new(), Vec::new());
    for run in 1..=args.runs() {
        eprintln!("bench: run {run} of {}", args.runs());
        if args.wants(View::Messages) {
            in_memory.push(messages(&bench)?);
        }
        if args.wants(View::Sctp) {
            with_sctp.push(beside_sctp(&bench)?);
        }
    }
    let million = if args.million { Some(million::run(&bench)?) } else { None };
    let mut numbers = Numbers {
        commit: commit.to_owned(),
        machine: Machine::read(),
        load: OfferedLoad::new(
            "closed loop unless a figure names its load; UEs in progress at once",
            [WINDOW.into()],
            "UEs",
        ),
        load_average: [began, load_average()],
        quick: args.quick,
        runs: args.runs(),
        ues_per_run: bench.size.ues,
        window: WINDOW,
        rat: args.rat,
        sctp: with_sctp.first().map_or_else(String::new, |run| run.outcome.sctp.clone()),
        figures: figures(&in_memory, &with_sctp, args.rat),
        parts: parts(&in_memory),
        million,
        met: None,
        notes: Vec::new(),
    };
    if cfg!(debug_assertions) {
        numbers.notes.push("Made with a debug build: nothing can be concluded from the figures.");
    }
    numbers.judge();
    print!("{numbers}");
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &numbers)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn messages(bench: &sctp::Bench) -> Result<Messages, Failure> {
    let measure = |variant: &variants::Variant| {
        bench.interrupt.check()?;
        eprintln!("bench: messages in memory, {}", variant.name);
        messages::measure(variant, bench.size, bench.rats)
    };
    // The short form measures a baseline once, because it compares nothing.
    let again = |variant, before: messages::Outcome| if bench.quick { Ok(before) } else { measure(variant) };
    let concealed = |scenario| messages::concealed(&POOLS, scenario, bench.size.ues);
    let pools = measure(&POOLS)?;
    let inline = measure(&INLINE)?;
    let (before, first) = (measure(&STATEFUL)?, measure(&SHARED)?);
    let between = again(&STATEFUL, before)?;
    let (second, after) = (again(&SHARED, first)?, again(&STATEFUL, between)?);
    Ok(Messages {
        pools: [pools, again(&POOLS, pools)?],
        inline,
        baseline: [before, between, after],
        shared: [first, second],
        eight: measure(&EIGHT)?,
        processes: measure(&PROCESSES)?,
        concealed: match bench.rats {
            Rats::Nr => Some([concealed("profile-a")?, concealed("profile-b")?]),
            Rats::Eps | Rats::Both => None,
        },
    })
}

fn beside_sctp(bench: &sctp::Bench) -> Result<WithSctp, Failure> {
    eprintln!("bench: with SCTP: CPU, rates and latency");
    let outcome = bench.measure(&POOLS)?;
    eprintln!("bench: with SCTP: memory");
    let memory = bench.memory(&POOLS)?;
    eprintln!("bench: with SCTP: an idle core, starts of workers and NFs");
    Ok(WithSctp { outcome, memory, idle: bench.idle(&POOLS)?, starts: bench.starts()? })
}

/// Name and function that extracts the value.
type Named<A, B> = (&'static str, fn(&A) -> B);

/// Returns each figure with its mark (issue "The host", Numbers).
fn figures(in_memory: &[Messages], with_sctp: &[WithSctp], rats: Rats) -> Vec<Figure> {
    let m = |value: &dyn Fn(&Messages) -> f64| -> Vec<f64> { in_memory.iter().map(value).collect() };
    let s = |value: &dyn Fn(&WithSctp) -> f64| -> Vec<f64> { with_sctp.iter().map(value).collect() };
    let new = |name: &str, unit| Figure::new(name, unit);
    let mut all = vec![
        new("CPU per registration + session, SUCI null", "us")
            .messages(m(&|r| r.pools[0].registration.core()), Some(AtMost(100.0)))
            .with_sctp(s(&|r| r.outcome.registration), Some(AtMost(200.0))),
        new("registrations + sessions", "1/s")
            .messages(m(&|r| r.pools[0].registrations_per_s), None)
            .with_sctp(s(&|r| r.outcome.registrations_per_s), Some(AtLeast(3000.0))),
        new("CPU per service request with its N4 exchange", "us")
            .messages(m(&|r| r.pools[0].service.core()), Some(AtMost(25.0))),
        new("CPU per service request alone, paced", "us")
            .messages(m(&|r| r.pools[0].paced.core()), None)
            .with_sctp(s(&|r| r.outcome.paced), None),
        new("CPU per service request and release", "us")
            .messages(m(&|r| r.pools[0].cycle.core()), None)
            .with_sctp(s(&|r| r.outcome.cycle), None),
        new("service requests in a closed loop, each with a release", "1/s")
            .messages(m(&|r| r.pools[0].cycles_per_s), None)
            .with_sctp(s(&|r| r.outcome.cycles_per_s), Some(AtLeast(15_000.0))),
        new("service request at 70% of it, p50", "us").with_sctp(s(&|r| r.outcome.service_p50_us), None),
        new("service request at 70% of it, p99", "us").with_sctp(s(&|r| r.outcome.service_p99_us), Some(Below(1000.0))),
        new("service request alone at 50% of it, p50", "us").messages(m(&|r| r.pools[0].service_p50_us), None),
        new("service request alone at 50% of it, p99", "us").messages(m(&|r| r.pools[0].service_p99_us), None),
    ];
    for (place, profile) in ["A", "B"].into_iter().enumerate().filter(|_| rats == Rats::Nr) {
        let of = |r: &Messages| r.concealed.map_or(f64::NAN, |profiles| profiles[place].core());
        let name = format!("CPU per registration + session, SUCI profile {profile}");
        all.insert(1 + place, Figure::new(name, "us").messages(m(&of), None));
    }
    all.extend(inline_figures(in_memory));
    let ways: [Named<Messages, messages::Outcome>; 4] = [
        (STATEFUL.name, |r| r.baseline[1]),
        (SHARED.name, |r| r.shared[0]),
        (EIGHT.name, |r| r.eight),
        (PROCESSES.name, |r| r.processes),
    ];
    for (name, of) in ways {
        let cpu = |what: &str| Figure::new(format!("CPU per {what}, {name}"), "us");
        all.push(cpu("registration + session").messages(m(&|r| of(r).registration.core()), None));
        all.push(cpu("service request").messages(m(&|r| of(r).service.core()), None));
        all.push(cpu("service request and release").messages(m(&|r| of(r).cycle.core()), None));
        let rate = Figure::new(format!("service requests in a closed loop, {name}"), "1/s");
        all.push(rate.messages(m(&|r| of(r).cycles_per_s), None));
    }
    let procedures: [Named<messages::Outcome, CpuBreakdown>; 3] = [
        ("registration + session", |o| o.registration),
        ("service request", |o| o.service),
        ("service request and release", |o| o.cycle),
    ];
    for (name, of) in procedures {
        let figure = Figure::new(format!("cost of commits to shared memory, {name}"), "%");
        let core = |outcome: &messages::Outcome| of(outcome).core();
        let runs = m(&|r| cost(&r.baseline.each_ref().map(core), &r.shared.each_ref().map(core)));
        all.push(figure.messages(runs, Some(AtMost(10.0))));
        let figure = Figure::new(format!("8 NFs in a worker against a process for each, {name}"), "%");
        all.push(figure.messages(m(&|r| (core(&r.eight) / core(&r.processes) - 1.0) * 100.0), None));
    }
    let memory = if rats == Rats::Nr { 2500.0 } else { 3000.0 };
    let worst = |times: &[f64]| times.iter().copied().fold(f64::NAN, f64::max);
    all.extend([
        new("memory per registered UE with session", "octets").with_sctp(s(&|r| r.memory.all()), Some(AtMost(memory))),
        new("of it in the shared region", "octets").with_sctp(s(&|r| r.memory.shared), None),
        new("of it in the core's own process, with UPF and subscribers", "octets")
            .with_sctp(s(&|r| r.memory.parent), None),
        new("of it in workers", "octets").with_sctp(s(&|r| r.memory.workers), None),
        new("CPU of an idle core", "%").with_sctp(s(&|r| r.idle.cpu_percent), Some(Below(2.0))),
        new("service request that wakes the core, p50", "us").with_sctp(s(&|r| r.idle.wake_p50_us), None),
        new("service request that wakes the core, p99", "us").with_sctp(s(&|r| r.idle.wake_p99_us), None),
        new("an idle NF is in use after, worst", "ms").with_sctp(s(&|r| worst(&r.starts.nfs)), Some(Below(5.0))),
        new("a worker process is ready after, worst", "ms").with_sctp(s(&|r| worst(&r.starts.workers)), None),
    ]);
    all
}

/// Returns the figures of steps on the thread of the host.
fn inline_figures(in_memory: &[Messages]) -> Vec<Figure> {
    let m = |value: &dyn Fn(&Messages) -> f64| -> Vec<f64> { in_memory.iter().map(value).collect() };
    let mut all = vec![
        Figure::new("CPU per registration + session, inline", "us")
            .messages(m(&|r| r.inline.registration.core()), Some(AtMost(80.0))),
        Figure::new("registrations + sessions, inline", "1/s").messages(m(&|r| r.inline.registrations_per_s), None),
        Figure::new("CPU per service request with its N4 exchange, inline", "us")
            .messages(m(&|r| r.inline.service.core()), Some(AtMost(20.0))),
        Figure::new("service requests per second of the core's CPU, inline", "1/s")
            .messages(m(&|r| 1e6 / r.inline.service.core()), Some(AtLeast(50_000.0))),
        Figure::new("CPU per service request alone, paced, inline", "us").messages(m(&|r| r.inline.paced.core()), None),
        Figure::new("service requests in a closed loop, each with a release, inline", "1/s")
            .messages(m(&|r| r.inline.cycles_per_s), None),
        Figure::new("CPU of a service request, inline over worker processes", "%")
            .messages(m(&|r| cost(&r.pools.map(|p| p.service.core()), &[r.inline.service.core()])), None),
    ];
    // With worker processes, most of the CPU time at a low rate is the time to wake them.
    let marks = [400.0, 200.0];
    for (place, (rate, mark)) in messages::RATES.into_iter().zip(marks).enumerate() {
        let of = |what: &str| Figure::new(format!("CPU per registration + session at {rate}/s{what}"), "us");
        all.push(of("").messages(m(&|r| r.pools[0].registration_at[place].core()), None));
        all.push(of(", inline").messages(m(&|r| r.inline.registration_at[place].core()), Some(AtMost(mark))));
    }
    all
}

/// Returns the median CPU time by part of the core.
fn parts(in_memory: &[Messages]) -> BTreeMap<&'static str, CpuBreakdown> {
    let of = |cpu: fn(&Messages) -> CpuBreakdown| median(&in_memory.iter().map(cpu).collect::<Vec<_>>());
    if in_memory.is_empty() {
        return BTreeMap::new();
    }
    BTreeMap::from([
        ("registration + session, inline", of(|r| r.inline.registration)),
        ("service request, inline", of(|r| r.inline.service)),
        ("service request and release, inline", of(|r| r.inline.cycle)),
        ("registration + session", of(|r| r.pools[0].registration)),
        ("service request", of(|r| r.pools[0].service)),
        ("service request alone, paced", of(|r| r.pools[0].paced)),
        ("service request and release", of(|r| r.pools[0].cycle)),
        ("registration + session, unified, stateful", of(|r| r.baseline[1].registration)),
        ("service request, unified, stateful", of(|r| r.baseline[1].service)),
        ("registration + session, unified, shared memory", of(|r| r.shared[0].registration)),
        ("service request, unified, shared memory", of(|r| r.shared[0].service)),
    ])
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_can_be_chosen() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let parse = |line: &[&str]| Line::try_parse_from([&["host"], line].concat()).unwrap().args;
        let all = parse(&[]);
        assert!(all.wants(View::Messages) && all.wants(View::Sctp) && !all.million);
        assert_eq!((all.runs(), all.size().ues), (5, 10_000));
        let quick = parse(&["--quick", "--only", "messages", "--ues", "100"]);
        assert!(quick.wants(View::Messages) && !quick.wants(View::Sctp));
        assert_eq!((quick.runs(), quick.size().ues), (1, 100));
    }

    #[test]
    fn unmeasured_view_has_no_figures() {
        let idle = sctp::Idle { cpu_percent: 0.5, wake_p50_us: 90.0, wake_p99_us: 400.0 };
        let outcome = sctp::Outcome {
            sctp: String::new(),
            registration: 210.0,
            registrations_per_s: 3100.0,
            cycle: 80.0,
            cycles_per_s: 16_000.0,
            paced: 40.0,
            service_p50_us: 200.0,
            service_p99_us: 900.0,
        };
        let starts = sctp::Starts { workers: vec![3.0, 7.0], nfs: Vec::new() };
        let memory = sctp::PerUe { shared: 3000.0, parent: 500.0, workers: 0.0 };
        let all = figures(&[], &[WithSctp { outcome, memory, idle, starts }], Rats::Nr);
        let find = |name: &str| all.iter().find(|figure| figure.name.starts_with(name)).unwrap();
        let registration = find("CPU per registration + session, SUCI null");
        assert!(registration.messages.is_none() && registration.with_sctp.as_ref().unwrap().met == Some(false));
        assert_eq!(find("a worker process").with_sctp.as_ref().unwrap().ours.median, 7.0);
        assert!(find("an idle NF").with_sctp.is_none(), "none was started");
        assert!(find("cost of commits").messages.is_none());
        assert!(parts(&[]).is_empty());
    }
}
