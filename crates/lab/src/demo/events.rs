//! `--cluster`: a cluster that undergoes faults and changes while its UEs are active.
//!
//! Events run one after the other, and no UE may be lost. An event begins after the previous event
//! is complete, all members are present and every UE has copies again.

use super::args::{Args, Replication, text};
use super::cluster_event::Event;
use super::{churn, cluster};
use crate::core::{ClusterReadiness, Core};
use crate::emulator::{self, Emulator, EmulatorOptions, EmulatorResult, Load};
use crate::etcd;
use crate::files::create;
use crate::options::{CoreOptions, UE_NETWORKS, UNSHED};
use crate::timeline::Bin;
use crate::{Interrupt, Lab, fabric};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use vireo_config::Failure;

/// Initial number of hosts.
const HOSTS: usize = 3;
/// Number of balancers; every gNB has one association with each.
const BALANCERS: u8 = 2;
/// Default events, in order.
const EVENTS: [Event; 13] = [
    Event::Kill,
    Event::Add,
    Event::Stop,
    Event::Add,
    Event::Cut,
    Event::Add,
    Event::Link,
    Event::Add,
    Event::Drain,
    Event::Balancer,
    Event::Holder,
    Event::Controller,
    // The added host learns of RAN nodes from other balancers than those on whose associations the
    // RAN nodes ran NG Setup.
    Event::Add,
];
/// Time with active UEs before the first event and after the last one.
const MARGIN: Duration = Duration::from_secs(2);
/// Time without deviations that is required between events.
const PAUSE: Duration = Duration::from_millis(500);
/// Downtime of a balancer or the controller.
const AWAY: Duration = Duration::from_secs(1);
/// Time limit of an event, and of the recovery after it.
const LIMIT: Duration = Duration::from_secs(30);
/// Time limit of the last procedures. A UE repeats an unanswered service request after 15 s (T3517,
/// TS 24.501 10.2).
const LAST: &str = "40s";
/// Interval between progress checks of an event.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// Path in the lab's own `/tmp`.
const TIMELINE: &str = "/tmp/timeline.csv";
const LOG: &str = "/tmp/core.log";
/// Lines of each log shown after a failure.
const LAST_WORDS: usize = 20;

/// Event in progress or complete.
#[derive(Clone, Copy, Debug)]
struct RunningEvent {
    event: Event,
    /// Lab number of the host or balancer.
    member: usize,
    /// UEs of the host at the start of the event.
    ues: usize,
    began: Instant,
    began_unix_us: u64,
    /// Time until the cluster map was correct; for the controller, until it knew the map again.
    took: Option<Duration>,
    /// Processes of the shard that had ended before.
    ends: u64,
    /// Whether the killed shard was at work.
    was_at_work: bool,
    /// Whether the killed process has been restarted.
    back: bool,
}

/// Remaining, running and complete events.
#[derive(Debug)]
struct EventScript {
    /// Least number of UEs that are registered at any time.
    ues: usize,
    gnbs: usize,
    balancers: usize,
    to_come: VecDeque<Event>,
    now: Option<RunningEvent>,
    over: Vec<RunningEvent>,
    /// Time of the next check.
    look: Instant,
    /// End of the last event.
    ended: Instant,
    /// Start of the current state without deviations, and the epoch of its map.
    whole: Option<(Instant, u64)>,
    readiness: ClusterReadiness,
    /// Whether all events are complete and the cluster has recovered.
    done: bool,
}

impl EventScript {
    fn new(args: &Args) -> Self {
        let now = Instant::now();
        let ues = args.churn.map_or(args.ues, |_| churn::min_registered(args.ues)) as usize;
        EventScript {
            ues,
            gnbs: super::ran_nodes(args) as usize,
            balancers: usize::from(balancers(args).max(1)),
            to_come: events(args).into(),
            now: None,
            over: Vec::new(),
            look: now,
            ended: now,
            whole: None,
            readiness: ClusterReadiness::default(),
            done: false,
        }
    }

    /// Checks the running event, or starts the next one, if a check is due.
    fn work(&mut self, lab: &Lab, core: &mut Core) -> Result<(), Failure> {
        let now = Instant::now();
        if now < self.look || self.done {
            return Ok(());
        }
        if let Some(happening) = self.now {
            self.look = now + LOOK_EVERY;
            return self.advance(lab, core, happening);
        }
        let first_or_last = self.over.is_empty() || self.to_come.is_empty();
        // The next shard is killed as soon as every UE has its copies again.
        let (every, pause) = match self.to_come.front() {
            _ if first_or_last => (COUNT_EVERY, MARGIN),
            Some(Event::KillShard) => (LOOK_EVERY, Duration::ZERO),
            _ => (COUNT_EVERY, PAUSE),
        };
        self.look = now + every;
        if !self.is_whole_for(core, now, pause)? {
            return Ok(());
        }
        let Some(event) = self.to_come.pop_front() else {
            self.done = true;
            return Ok(());
        };
        self.whole = None;
        let (mut ues, mut ends, mut was_at_work) = (0, 0, false);
        let mut began = Instant::now();
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let member = match event {
            Event::Kill | Event::Stop | Event::Cut | Event::Drain => {
                let host = core.busiest_host()?;
                ues = core.registered_by_host()?[host];
                began = Instant::now();
                match event.fate() {
                    Some(fate) => core.fail_host(host, fate)?,
                    None => core.drain_host(host)?,
                }
                host
            }
            Event::Link => {
                let all = core.registered_by_host()?;
                let host = core.cut_link()?;
                ues = all[host];
                host
            }
            Event::KillShard => {
                let killed = core.kill_random_shard()?;
                (ues, ends, was_at_work) = (killed.status.ues, killed.status.ends, killed.was_at_work);
                killed.status.shard.into()
            }
            Event::Add => core.add_host(lab)?,
            Event::Balancer => core.kill_balancer(false)?,
            Event::Holder => core.kill_balancer(true)?,
            Event::Controller => {
                core.kill_controller()?;
                0
            }
        };
        eprintln!("demo: {event} ({ues} UEs)");
        let began_unix_us = unix.as_micros() as u64;
        let (took, back) = (None, false);
        self.now = Some(RunningEvent { event, member, ues, began, began_unix_us, took, ends, was_at_work, back });
        Ok(())
    }

    /// Returns true if all members are present and every UE has copies, for `pause` and in one
    /// epoch.
    fn is_whole_for(&mut self, core: &Core, now: Instant, pause: Duration) -> Result<bool, Failure> {
        // A restarting member may not answer. The next check asks again.
        self.readiness = core.standing().unwrap_or_default();
        let ClusterReadiness { epoch, hosts, balancers, registered, copies, associations, upfs } = self.readiness;
        let members = hosts == core.hosts_there() && balancers == self.balancers && upfs == 1;
        let ues = registered >= self.ues && copies >= self.ues;
        if !members || !ues || associations != self.gnbs * self.balancers {
            self.whole = None;
            // UEs register before the first event, so that wait has no limit.
            let waited = now.duration_since(self.ended);
            if !self.over.is_empty() && waited > LIMIT {
                return Err(Failure(format!(
                    "not everything is as it should be after {waited:.0?}: {:?}",
                    self.readiness
                )));
            }
            return Ok(false);
        }
        let (since, _) = *self.whole.get_or_insert((now, epoch));
        if self.whole.is_some_and(|(_, known)| known != epoch) {
            self.whole = Some((now, epoch));
            return Ok(false);
        }
        Ok(now.duration_since(since) >= pause)
    }

    /// Checks the progress of an event, and completes it or restarts the killed process.
    fn advance(&mut self, lab: &Lab, core: &mut Core, mut happening: RunningEvent) -> Result<(), Failure> {
        let RunningEvent { event, member, began, ends, back, .. } = happening;
        if began.elapsed() > LIMIT {
            return Err(Failure(format!("{event}, and it is not over after {LIMIT:?}: {:?}", core.standing())));
        }
        let is_away = event.is_absence() && !back && began.elapsed() >= AWAY;
        if is_away && (event == Event::Controller || happening.took.is_some()) {
            match event {
                Event::Controller => core.start_controller(lab)?,
                _ => core.start_balancer(lab, member)?,
            }
            happening.back = true;
        }
        if happening.took.is_none() {
            let is_so = match event {
                Event::KillShard => core.ends_of_shard(member)? > ends,
                Event::Add => core.host_status(member)?.is_some_and(|host| host.buckets > 0),
                Event::Balancer | Event::Holder => core.standing().is_ok_and(|now| now.balancers < self.balancers),
                Event::Controller => back && core.standing().is_ok_and(|now| now.hosts == core.hosts_there()),
                _ => core.host_status(member)?.is_none(),
            };
            if is_so {
                happening.took = Some(began.elapsed());
                match event {
                    Event::Link => core.mend_link()?,
                    _ if event.fate().is_some() => core.recover_host(member)?,
                    _ => {}
                }
            }
        }
        // A host that returns finds its UEs at other hosts, and ends.
        let has_ended = !event.costs_a_host() || core.has_host_ended(member)?;
        let ended = happening.took.is_some() && has_ended && (happening.back || !event.is_absence());
        self.now = Some(happening);
        if ended {
            self.over.extend(self.now.take());
            self.ended = Instant::now();
        }
        Ok(())
    }
}

/// Result of one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EventReport {
    event: String,
    /// Start of the event since the start of the load, in seconds.
    at_s: f64,
    /// UEs of the host at the start of the event.
    ues: usize,
    /// Time until the cluster map was correct (for the controller: until it knew the map again), in
    /// milliseconds.
    took_ms: f64,
    /// Longest wait of a UE for a procedure due between this event and the next, in milliseconds.
    /// The fields after it hold the failed procedures and the UEs that registered again.
    worst_ms: f64,
    failed: u64,
    lost: u64,
}

/// Result of the run. The names of the JSON are a contract.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Report {
    /// Requested UEs. The next field holds those that registered with a session.
    ues: u64,
    succeeded: u64,
    /// Service requests that were due. The next fields hold those that completed and those that
    /// failed.
    procedures: u64,
    completed: u64,
    failed_procedures: u64,
    /// Requests that UEs repeated without an answer.
    retries: u64,
    /// UEs that had to register again.
    lost: u64,
    /// Violations of the specifications by the core.
    violations: u64,
    /// Median of all service requests in milliseconds, followed by the 99th percentile.
    p50_ms: f64,
    p99_ms: f64,
    /// Packets of UEs to the data network that require an answer. The next field holds those
    /// without one.
    echoes: u64,
    echoes_lost: u64,
    /// Longest time without an answer for a UE that sends without a pause, in milliseconds.
    longest_gap_ms: f64,
    /// Longest latency of each kind of procedure, in milliseconds.
    slowest_ms: BTreeMap<String, f64>,
    /// Killed shards that were at work, with `--shards`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shards_at_work: Option<usize>,
    events: Vec<EventReport>,
}

impl Report {
    fn new(result: &EmulatorResult, timeline: &[(String, Bin)], over: &[RunningEvent]) -> Self {
        let at_s =
            |happening: &RunningEvent| (happening.began_unix_us as f64 - result.steady_began_unix_us as f64) / 1e6;
        let ends = over.iter().skip(1).map(at_s).chain([f64::INFINITY]);
        let told = over.iter().zip(ends).map(|(happening, end)| {
            let begin = at_s(happening);
            let due = |(name, bin): &&(String, Bin)| name == "all" && bin.at_s > begin - WIDTH_S && bin.at_s < end;
            let due: Vec<&Bin> = timeline.iter().filter(due).map(|(_, bin)| bin).collect();
            EventReport {
                event: happening.event.to_string(),
                at_s: begin,
                ues: happening.ues,
                took_ms: happening.took.unwrap_or_default().as_secs_f64() * 1e3,
                worst_ms: due.iter().map(|bin| bin.max_ms).fold(0.0, f64::max),
                failed: due.iter().map(|bin| bin.failed).sum(),
                lost: due.iter().map(|bin| bin.lost).sum(),
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
            echoes: result.user_plane.echoes,
            echoes_lost: result.user_plane.echoes_lost,
            slowest_ms: result.latency_us.iter().map(|(name, l)| (name.clone(), l.max as f64 / 1e3)).collect(),
            longest_gap_ms: result.user_plane.longest_gap_us as f64 / 1e3,
            shards_at_work: over
                .iter()
                .any(|happening| happening.event == Event::KillShard)
                .then(|| over.iter().filter(|happening| happening.was_at_work).count()),
            events: told.collect(),
        }
    }

    /// Returns true if the events affected only the latency of UEs.
    fn complete(&self) -> bool {
        let good = self.succeeded == self.ues && self.completed == self.procedures && self.procedures > 0;
        let packets = self.echoes_lost == 0;
        good && packets
            && self.failed_procedures == 0
            && self.lost == 0
            && self.violations == 0
            && !self.events.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ("event", "at", "UEs", "map after", "worst wait", "failed", "lost");
        let (event, at, ues, map, wait, failed, lost) = heads;
        writeln!(f, "  {event:<36} {at:>7} {ues:>6} {map:>9} {wait:>11} {failed:>7} {lost:>5}")?;
        let has_table = |told: &&EventReport| self.events.len() <= TABLE || told.failed + told.lost > 0;
        for EventReport { event, at_s, ues, took_ms, worst_ms, failed, lost } in self.events.iter().filter(has_table) {
            let line = format!("{event:<36} {at_s:>5.1} s {ues:>6} {took_ms:>6.0} ms {worst_ms:>8.0} ms");
            writeln!(f, "  {line} {failed:>7} {lost:>5}")?;
        }
        writeln!(f, "  UEs {}, with a session {}", self.ues, self.succeeded)?;
        writeln!(
            f,
            "  procedures {}: {} done (service requests p50 {:.1} ms, p99 {:.1} ms), {} failed, {} repeated",
            self.procedures, self.completed, self.p50_ms, self.p99_ms, self.failed_procedures, self.retries
        )?;
        if self.echoes > 0 {
            writeln!(
                f,
                "  packets of UEs {}: {} never answered; longest time of a sending UE without an answer {:.0} ms",
                self.echoes, self.echoes_lost, self.longest_gap_ms
            )?;
        }
        if let Some(at_work) = self.shards_at_work {
            writeln!(f, "  shards killed {}: {at_work} of them at work", self.events.len())?;
        }
        write!(f, "  lost: {}", self.lost)
    }
}

/// Number of events above which the table has only those with failures.
const TABLE: usize = 100;
/// Width of a timeline interval in seconds.
const WIDTH_S: f64 = 0.1;

/// Runs `vireo demo --cluster` or `--churn`.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.replication == Replication::None {
        return Err(Failure(
            "--cluster needs copies of UEs (--replication hot or cold): without them UEs are lost".into(),
        ));
    }
    let balancers = balancers(args);
    if balancers > 0 {
        etcd::check()?;
    }
    // Opens the files before the namespaces hide the real `/tmp`, and before a wrong path costs a
    // run.
    let mut json = args.json.as_deref().map(create).transpose()?;
    let log = args.core_log.as_deref().map(create).transpose()?;
    let joining_program = args.joining_program.as_deref().map(open_program).transpose()?;
    let lab = Lab::build(&UE_NETWORKS)?;
    let interrupt = Interrupt::listen()?;
    let log = log.map_or_else(|| create(Path::new(LOG)), Ok)?;
    let options = CoreOptions {
        subscribers: args.ues.into(),
        hosts: if args.shards.is_some() { 0 } else { HOSTS },
        shards: args.shards.unwrap_or(0),
        joining_program,
        balancers,
        tables: super::s1_table(args)
            + &cluster::tables(HOSTS, args.replication, args.serve)
            + if cfg!(debug_assertions) { UNSHED } else { "" },
        ..CoreOptions::default()
    };
    let mut core = Core::start(&lab, &options, log, &interrupt)?;
    core.wait_for_upfs(&interrupt)?;
    let hosts = args.shards.map_or_else(|| format!("{HOSTS} hosts"), |shards| format!("{shards} shards"));
    let parts = match balancers {
        0 if args.shards.is_some() => "the core with".to_owned(),
        0 => "a balancer with the controller and a UPF,".to_owned(),
        _ => format!("etcd, a controller, {balancers} balancers, a UPF and"),
    };
    eprintln!("demo: {parts} {hosts} are ready; {} UEs on {} gNBs register", args.ues, args.gnbs);
    let mut script = EventScript::new(args);
    let happened = run_events(args, &lab, &mut core, &mut script, &interrupt);
    let told = happened.and_then(|result| print_event(&result, &script, json.as_mut()));
    let words = core.last_words(LAST_WORDS);
    core.gather_logs()?;
    told.map_err(|error| Failure(format!("{error}; what the parts of the core said last:\n{words}")))?;
    core.stop()
}

fn open_program(path: &Path) -> Result<Arc<File>, Failure> {
    let file = File::open(path);
    file.map(Arc::new).map_err(|error| Failure(format!("--joining-program {}: {error}", path.display())))
}

/// Runs the UEs until all events are complete.
fn run_events(
    args: &Args,
    lab: &Lab,
    core: &mut Core,
    script: &mut EventScript,
    interrupt: &Interrupt,
) -> Result<EmulatorResult, Failure> {
    let mut emulator = Emulator::start(lab, &emulator_options(args)?)?;
    let mut ends = false;
    while !emulator.has_ended(core, interrupt)? {
        script.work(lab, core)?;
        if script.done && !std::mem::replace(&mut ends, true) {
            emulator.end_load()?;
        }
        std::thread::sleep(LOOK_EVERY / 2);
    }
    match script.now.map(|now| now.event).or(script.to_come.front().copied()) {
        Some(event) => {
            let complaints = emulator.result()?.complaints().join(", ");
            Err(Failure(format!("the UEs were done before this was over: {event} ({complaints}); see above")))
        }
        None => emulator.result(),
    }
}

/// Prints the results. Returns an error if the run was not complete.
fn print_event(result: &EmulatorResult, script: &EventScript, json: Option<&mut File>) -> Result<(), Failure> {
    let timeline = emulator::read_timeline(&std::fs::read_to_string(TIMELINE)?)?;
    let report = Report::new(result, &timeline, &script.over);
    println!("{report}");
    if let Some(file) = json {
        serde_json::to_writer_pretty(&mut *file, &report)?;
        file.write_all(b"\n")?;
    }
    if report.complete() {
        return Ok(());
    }
    for complaint in result.complaints() {
        eprintln!("demo: {complaint}");
    }
    Err(Failure("not every UE was served: see the table".into()))
}

/// Returns the events of the run.
fn events(args: &Args) -> Vec<Event> {
    match args.churn {
        Some(count) => churn::events(count, args.shards.is_some()),
        None if args.events.is_empty() => EVENTS.to_vec(),
        None => args.events.clone(),
    }
}

/// Returns the number of balancers with their own namespaces.
fn balancers(args: &Args) -> u8 {
    if args.churn.is_some() { 0 } else { BALANCERS }
}

fn emulator_options(args: &Args) -> Result<EmulatorOptions, Failure> {
    // The events end, or fail, before this limit.
    let busy = LIMIT * 2 * (1 + events(args).len() as u32);
    let (duration, width) = (format!("{}s", busy.as_secs()), format!("{}ms", WIDTH_S * 1e3));
    let load = ["--duration", &duration, "--timeout", LAST, "--timeline", TIMELINE, "--timeline-interval", &width];
    let common = EmulatorOptions {
        gnbs: args.gnbs,
        more: load.into_iter().chain(["--rat", &text(args.rat)]).map(str::to_owned).collect(),
        // Far above the usual duration; ends only a run that hangs.
        limit: busy + Duration::from_secs(120) + Duration::from_millis(20) * args.ues,
        ..EmulatorOptions::default()
    };
    if args.churn.is_some() {
        return churn::emulator_options(args, common);
    }
    let mut more = common.more;
    more.extend(["--load", "service-request=1", "--tnl-associations"].map(str::to_owned));
    more.push(BALANCERS.to_string());
    let core = (0..BALANCERS).map(fabric::n2).collect();
    Ok(EmulatorOptions { core, ues: args.ues, load: Load::Rate(args.rate), more, ..common })
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

    fn over() -> Vec<RunningEvent> {
        let happening = |(n, event): (u64, &Event)| RunningEvent {
            event: *event,
            member: n as usize,
            ues: 7,
            began: Instant::now(),
            began_unix_us: 3_000_000 + n * 1_000_000,
            took: Some(Duration::from_millis(250)),
            ends: 0,
            was_at_work: false,
            back: false,
        };
        (0..).zip(&EVENTS).map(happening).collect()
    }

    #[test]
    fn each_event_is_told_with_the_waits_after_it() {
        let bin = |at_s: f64, max_ms: f64| ("all".to_owned(), Bin { at_s, done: 5, max_ms, ..Bin::default() });
        let mut timeline = [bin(1.5, 900.0), bin(2.0, 210.0), bin(2.5, 9.0), bin(3.2, 30.0), bin(99.0, 60.0)];
        (timeline[0].1.failed, timeline[2].1.failed, timeline[3].1.lost) = (9, 2, 1);
        let report = Report::new(&result(), &timeline, &over());
        let worst: Vec<f64> = report.events.iter().map(|told| told.worst_ms).collect();
        assert_eq!(worst[..3], [210.0, 30.0, 0.0]);
        assert_eq!(worst.last(), Some(&60.0));
        assert_eq!((report.events[1].at_s, report.events[0].took_ms), (3.0, 250.0));
        assert_eq!((report.events[0].failed, report.events[0].lost, report.events[1].lost), (2, 0, 1));
        let text = report.to_string();
        assert!(text.ends_with("  lost: 0") && text.contains("a host is cut off, and joined again"), "{text}");
    }

    #[test]
    fn whoever_is_lost_or_not_served_spoils_it() {
        let good = Report::new(&result(), &[], &over());
        assert!(good.complete());
        let broken: [fn(&mut Report); 7] = [
            |r| r.echoes_lost = 1,
            |r| r.lost = 1,
            |r| r.failed_procedures = 1,
            |r| r.completed = 99,
            |r| r.succeeded = 19,
            |r| r.violations = 1,
            |r| r.events.clear(),
        ];
        for change in broken {
            let mut report = good.clone();
            change(&mut report);
            assert!(!report.complete(), "{report:?}");
        }
    }
}
