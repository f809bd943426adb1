//! `--cluster`: a cluster goes through what can befall it while its UEs are busy, one event after the other, and no UE may be
//! lost. An event begins when the one before is over and there are copies of every UE again.

use super::Args;
use super::cluster::Replication;
use crate::cli::Failure;
use crate::lab::core::{Core, CoreOptions, UE_NETWORKS};
use crate::lab::emulator::{self, EmulatorOptions, EmulatorResult, Load};
use crate::lab::members::Fate;
use crate::lab::{Interrupt, Lab, create, fabric};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use vireo_simulator::analysis::timeline::Bin;

/// Hosts that it begins with.
const HOSTS: usize = 3;
/// What happens, in this order.
const EVENTS: [Event; 6] =
    [Event::Fail(Fate::Kill), Event::Add, Event::Fail(Fate::Stop), Event::Add, Event::Fail(Fate::Cut), Event::Add];
/// How long UEs are busy before the first event and after the last one.
const MARGIN: Duration = Duration::from_secs(2);
/// The least time between events.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest that an event may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How often is looked how far an event is, and how often whether there are copies of all UEs.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// In the laboratory's own `/tmp`.
const TIMELINE: &str = "/tmp/timeline.csv";
const LOG: &str = "/tmp/core.log";

/// Something that happens to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The host with the most UEs fails. It is over when others have them and the host has ended.
    Fail(Fate),
    /// A host joins. It is over when the map has it.
    Add,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Fail(Fate::Kill) => "a host is killed",
            Event::Fail(Fate::Stop) => "a host is stopped, and wakes",
            Event::Fail(Fate::Cut) => "a host is cut off, and joined again",
            Event::Add => "a host is added",
        })
    }
}

/// An event that is under way or over.
#[derive(Clone, Copy, Debug)]
struct Happening {
    event: Event,
    host: usize,
    /// UEs that the host had.
    ues: usize,
    began: Instant,
    began_unix_us: u64,
    /// How long it took until the map was as it should be.
    took: Option<Duration>,
}

/// What happens, and how far that is.
#[derive(Debug)]
struct Script {
    ues: usize,
    to_come: VecDeque<Event>,
    now: Option<Happening>,
    over: Vec<Happening>,
    /// When it is looked again.
    look: Instant,
    /// Since when there are copies of all UEs.
    whole: Option<Instant>,
}

impl Script {
    fn new(ues: usize) -> Self {
        Script { ues, to_come: EVENTS.into(), now: None, over: Vec::new(), look: Instant::now(), whole: None }
    }

    /// Carries it on, if there is something to be done.
    fn work(&mut self, lab: &Lab, core: &mut Core) -> Result<(), Failure> {
        let now = Instant::now();
        if now < self.look {
            return Ok(());
        }
        if let Some(happening) = self.now {
            self.look = now + LOOK_EVERY;
            return self.go_on(core, happening);
        }
        let Some(event) = self.to_come.front().copied() else { return Ok(()) };
        self.look = now + COUNT_EVERY;
        if core.registered()? < self.ues || core.copies()? < self.ues {
            self.whole = None;
            return Ok(());
        }
        let pause = if self.over.is_empty() { MARGIN } else { PAUSE };
        if now.duration_since(*self.whole.get_or_insert(now)) < pause {
            return Ok(());
        }
        self.whole = None;
        self.to_come.pop_front();
        let mut began = Instant::now();
        let (host, ues) = match event {
            Event::Fail(_) => {
                let host = core.busiest_host()?;
                (host, core.registered_by_host()?[host])
            }
            Event::Add => (core.add_host(lab)?, 0),
        };
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began_unix_us = unix.as_micros() as u64;
        if let Event::Fail(fate) = event {
            began = Instant::now();
            core.fail_host(host, fate)?;
        }
        eprintln!("demo: {event} ({ues} UEs)");
        self.now = Some(Happening { event, host, ues, began, began_unix_us, took: None });
        Ok(())
    }

    /// Looks how far an event is.
    fn go_on(&mut self, core: &mut Core, mut happening: Happening) -> Result<(), Failure> {
        let Happening { event, host, began, .. } = happening;
        if began.elapsed() > LIMIT {
            return Err(Failure(format!("{event}, and it is not over after {LIMIT:?}")));
        }
        let fails = matches!(event, Event::Fail(_));
        if happening.took.is_none() {
            let in_the_map = core.host_status(host)?.is_some();
            if in_the_map == fails {
                return Ok(());
            }
            happening.took = Some(began.elapsed());
            self.now = Some(happening);
            core.recover_host(host)?;
        }
        // Whoever comes back finds that others have its UEs, and ends.
        if !fails || core.has_host_ended(host)? {
            self.over.push(happening);
            self.now = None;
        }
        Ok(())
    }
}

/// What an event came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Told {
    event: String,
    /// Since the load began, in seconds.
    at_s: f64,
    /// UEs of the host at that time.
    ues: usize,
    /// How long it took until the map was as it should be, in milliseconds.
    took_ms: f64,
    /// The longest that a UE waited whose request was due between this event and the next, in milliseconds.
    worst_ms: f64,
}

/// What the run came to. The names of the JSON are a contract.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Report {
    /// UEs asked for, and those that registered with a session.
    ues: u64,
    succeeded: u64,
    /// Service requests that were due, that came to their end, and that did not.
    procedures: u64,
    completed: u64,
    failed_procedures: u64,
    /// Requests that UEs repeated because there was no answer.
    retries: u64,
    /// UEs that had to register again.
    lost: u64,
    /// What the core did against the specifications.
    violations: u64,
    /// Half of all service requests took less, and one in a hundred took more, in milliseconds.
    p50_ms: f64,
    p99_ms: f64,
    events: Vec<Told>,
}

impl Report {
    fn new(result: &EmulatorResult, timeline: &[(String, Bin)], over: &[Happening]) -> Self {
        let at_s = |happening: &Happening| (happening.began_unix_us as f64 - result.steady_began_unix_us as f64) / 1e6;
        let ends = over.iter().skip(1).map(at_s).chain([f64::INFINITY]);
        let told = over.iter().zip(ends).map(|(happening, end)| {
            let begin = at_s(happening);
            let due =
                timeline.iter().filter(|(name, bin)| name == "all" && bin.at_s > begin - WIDTH_S && bin.at_s < end);
            Told {
                event: happening.event.to_string(),
                at_s: begin,
                ues: happening.ues,
                took_ms: happening.took.unwrap_or_default().as_secs_f64() * 1e3,
                worst_ms: due.map(|(_, bin)| bin.max_ms).fold(0.0, f64::max),
            }
        });
        let latency = result.latency("service_request");
        Report {
            ues: result.ues,
            succeeded: result.succeeded,
            procedures: result.procedures,
            completed: result.completed,
            failed_procedures: result.failed_procedures,
            retries: result.retries,
            lost: result.lost,
            violations: result.violations.values().sum(),
            p50_ms: latency.p50 as f64 / 1e3,
            p99_ms: latency.p99 as f64 / 1e3,
            events: told.collect(),
        }
    }

    /// Whether nobody has noticed more than that it took longer.
    fn complete(&self) -> bool {
        let good = self.succeeded == self.ues && self.completed == self.procedures && self.procedures > 0;
        good && self.failed_procedures == 0
            && self.lost == 0
            && self.violations == 0
            && self.events.len() == EVENTS.len()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:<36} {:>7} {:>6} {:>9} {:>12}", "event", "at", "UEs", "map after", "worst wait")?;
        for Told { event, at_s, ues, took_ms, worst_ms } in &self.events {
            writeln!(f, "  {event:<36} {at_s:>5.1} s {ues:>6} {took_ms:>6.0} ms {worst_ms:>9.0} ms")?;
        }
        writeln!(f, "  UEs {}, with a session {}", self.ues, self.succeeded)?;
        writeln!(
            f,
            "  service requests {}: {} done (p50 {:.1} ms, p99 {:.1} ms), {} failed, {} repeated",
            self.procedures, self.completed, self.p50_ms, self.p99_ms, self.failed_procedures, self.retries
        )?;
        write!(f, "  lost: {}", self.lost)
    }
}

/// The length of a piece of the timeline.
const WIDTH_S: f64 = 0.1;

/// Does what `vireo demo --cluster` was asked.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.replication == Replication::None {
        return Err(Failure(
            "--cluster needs copies of UEs (--replication hot or cold): without them UEs are lost".into(),
        ));
    }
    // Before the namespaces: afterwards `/tmp` is another one, and a wrong path should not cost a run.
    let mut json = args.json.as_deref().map(create).transpose()?;
    let log = args.core_log.as_deref().map(create).transpose()?;
    let lab = Lab::build(&UE_NETWORKS)?;
    let interrupt = Interrupt::listen()?;
    let log = log.map_or_else(|| create(Path::new(LOG)), Ok)?;
    let options = CoreOptions {
        subscribers: args.ues.into(),
        hosts: HOSTS,
        apart: true,
        tables: super::cluster::tables(HOSTS, args.replication),
        ..CoreOptions::default()
    };
    let mut core = Core::start(&lab, &options, log, &interrupt)?;
    core.wait_for_upfs(&interrupt)?;
    eprintln!(
        "demo: a balancer, {HOSTS} hosts and a UPF are ready; {} UEs on {} gNBs register, then {} service requests a second",
        args.ues, args.gnbs, args.rate
    );
    let mut script = Script::new(args.ues as usize);
    let emulated =
        emulator::run_with(&lab, &mut core, &emulator_options(args), &interrupt, &mut |core| script.work(&lab, core))?;
    core.stop()?;
    if let Some(event) = script.now.map(|now| now.event).or(script.to_come.front().copied()) {
        let why = "give it more time (--event-time), or fewer UEs";
        return Err(Failure(format!("the UEs were done before this was over: {event}; {why}")));
    }
    let timeline = emulator::read_timeline(&std::fs::read_to_string(TIMELINE)?)?;
    let report = Report::new(&emulated.result, &timeline, &script.over);
    println!("{report}");
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &report)?;
        file.write_all(b"\n")?;
    }
    if report.complete() {
        return Ok(());
    }
    for complaint in emulated.result.complaints() {
        eprintln!("demo: {complaint}");
    }
    Err(Failure("not every UE was served: see the table".into()))
}

fn emulator_options(args: &Args) -> EmulatorOptions {
    let lasts = args.event_time * EVENTS.len() as u32 + MARGIN * 2;
    let (duration, width) = (format!("{}ms", lasts.as_millis()), format!("{}ms", WIDTH_S * 1e3));
    let load = ["--load", "service-request=1", "--duration", &duration];
    let words = [&load[..], &["--timeline", TIMELINE, "--timeline-interval", &width]].concat();
    EmulatorOptions {
        core: vec![fabric::n2(0)],
        gnbs: args.gnbs,
        ues: args.ues,
        load: Load::Rate(args.rate),
        more: words.into_iter().map(str::to_owned).collect(),
        // Far more than it takes: only to end a run in which somebody waits for ever.
        limit: lasts + Duration::from_secs(120) + Duration::from_millis(20) * args.ues,
        ..EmulatorOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> EmulatorResult {
        EmulatorResult {
            ues: 20,
            succeeded: 20,
            procedures: 100,
            completed: 100,
            steady_began_unix_us: 1_000_000,
            ..EmulatorResult::default()
        }
    }

    fn over() -> Vec<Happening> {
        let happening = |(n, event): (u64, &Event)| Happening {
            event: *event,
            host: n as usize,
            ues: 7,
            began: Instant::now(),
            began_unix_us: 3_000_000 + n * 1_000_000,
            took: Some(Duration::from_millis(250)),
        };
        (0..).zip(&EVENTS).map(happening).collect()
    }

    #[test]
    fn each_event_is_told_with_the_waits_after_it() {
        let bin = |at_s: f64, max_ms: f64| ("all".to_owned(), Bin { at_s, done: 5, max_ms, ..Bin::default() });
        let timeline = [bin(1.5, 900.0), bin(2.0, 210.0), bin(2.5, 9.0), bin(3.2, 30.0), bin(99.0, 60.0)];
        let report = Report::new(&result(), &timeline, &over());
        let worst: Vec<f64> = report.events.iter().map(|told| told.worst_ms).collect();
        assert_eq!(worst, [210.0, 30.0, 0.0, 0.0, 0.0, 60.0]);
        assert_eq!((report.events[1].at_s, report.events[0].took_ms), (3.0, 250.0));
        let text = report.to_string();
        assert!(text.ends_with("  lost: 0") && text.contains("a host is cut off, and joined again"), "{text}");
    }

    #[test]
    fn whoever_is_lost_or_not_served_spoils_it() {
        let good = Report::new(&result(), &[], &over());
        assert!(good.complete());
        let broken: [fn(&mut Report); 6] = [
            |r| r.lost = 1,
            |r| r.failed_procedures = 1,
            |r| r.completed = 99,
            |r| r.succeeded = 19,
            |r| r.violations = 1,
            |r| r.events.truncate(5),
        ];
        for change in broken {
            let mut report = good.clone();
            change(&mut report);
            assert!(!report.complete(), "{report:?}");
        }
    }
}
