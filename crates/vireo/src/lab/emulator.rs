//! The RAN in the laboratory: `vireo emulate` as a process of its own, measured from outside while it runs.

use super::core::{self, Core};
use super::create;
use super::process::{self, Process};
use super::{CORE, DN, DN_V6, Interrupt, Lab, RAN, RAN_INTERFACE};
use crate::cli::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_simulator::analysis::timeline::Bin;
use vireo_types::Supi;

const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Samples of memory for each question to the core.
const ASK_EVERY: u32 = 5;

/// For UEs whose packets may be late because somebody was killed that they need: they are sent again for so many seconds, as any
/// sender would.
pub(crate) const PATIENT: [&str; 2] = ["--echo-tries", "10"];

/// When UEs start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// So many in a second, whatever the core does.
    Rate(u32),
    /// So many under way at once.
    Window(u32),
}

/// What the emulator is told.
#[derive(Clone, Debug)]
pub(crate) struct EmulatorOptions {
    /// Where the core has N2.
    pub(crate) core: Vec<Ipv4Addr>,
    /// gNBs.
    pub(crate) gnbs: u32,
    /// UEs.
    pub(crate) ues: u32,
    /// How many of the lab's subscribers are left out first.
    pub(crate) first: u64,
    /// When UEs start.
    pub(crate) load: Load,
    /// What they do; empty = what the further words say.
    pub(crate) scenario: String,
    /// How long they stay idle in scenarios where they do.
    pub(crate) idle: Duration,
    /// Whether the core's memory is watched: it costs the core some CPU time. Needs [`Load::Rate`].
    pub(crate) watch_memory: bool,
    /// Whether it shows its progress and its own table.
    pub(crate) quiet: bool,
    /// The longest that it may take.
    pub(crate) limit: Duration,
    /// Further words of its command line.
    pub(crate) more: Vec<String>,
    /// The processors that it runs on; empty = all.
    pub(crate) processors: Vec<usize>,
    /// 0 for the first emulator of the laboratory; one that runs beside it has another number, and so an address and gNBs
    /// of its own.
    pub(crate) number: u8,
    /// SST of the slice that its gNBs and UEs are in.
    pub(crate) sst: u8,
}

impl Default for EmulatorOptions {
    fn default() -> Self {
        EmulatorOptions {
            core: vec![CORE],
            gnbs: 2,
            ues: 1,
            first: 0,
            load: Load::Window(100),
            scenario: String::new(),
            idle: Duration::ZERO,
            watch_memory: false,
            quiet: true,
            limit: Duration::from_secs(300),
            more: Vec::new(),
            processors: Vec::new(),
            number: 0,
            sst: 1,
        }
    }
}

impl EmulatorOptions {
    /// In the laboratory's own `/tmp`.
    fn file(&self, kind: &str) -> String {
        format!("/tmp/emulator-{}.{kind}", self.number)
    }

    /// Where its gNBs are.
    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::from(RAN.to_bits() + u32::from(self.number))
    }
}

/// What a run of the emulator came to.
#[derive(Debug)]
pub(crate) struct Emulated {
    /// What it says itself.
    pub(crate) result: EmulatorResult,
    /// CPU time of the emulator, by the kernel.
    pub(crate) cpu: Duration,
    /// CPU time of the core meanwhile, by the kernel.
    pub(crate) core_cpu: Duration,
    /// How much more of the core was resident when all UEs had registered than when half of them had, for each UE of
    /// that half: what the core needs once is not in it. `None` if it was not watched.
    pub(crate) core_bytes_per_ue: Option<f64>,
}

/// The emulator's own JSON, as far as it is used here.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct EmulatorResult {
    /// UEs asked for.
    pub(crate) ues: u64,
    /// UEs that did all their steps.
    pub(crate) succeeded: u64,
    /// Registrations accepted.
    pub(crate) registered: u64,
    /// PDU sessions established.
    pub(crate) sessions: u64,
    /// Deregistrations done.
    pub(crate) deregistered: u64,
    /// Service requests accepted.
    pub(crate) service_requests: u64,
    /// From the first UE's start to the last UE's end.
    pub(crate) seconds: f64,
    /// UEs done in a second.
    pub(crate) ues_per_second: f64,
    /// Of a steady load: procedures that were due.
    #[serde(default)]
    pub(crate) procedures: u64,
    /// Those that came to their end.
    #[serde(default)]
    pub(crate) completed: u64,
    /// Those that were refused, not done in time, or never begun.
    #[serde(default)]
    pub(crate) failed_procedures: u64,
    /// UEs that had to register again although they were registered, and how often.
    #[serde(default)]
    pub(crate) lost: u64,
    /// Requests repeated because there was no answer.
    #[serde(default)]
    pub(crate) retries: u64,
    /// For how long procedures were due, in seconds.
    #[serde(default)]
    pub(crate) steady_seconds: f64,
    /// When the steady load began: microseconds of Unix time.
    #[serde(default)]
    pub(crate) steady_began_unix_us: u64,
    /// By procedure, in microseconds.
    pub(crate) latency_us: BTreeMap<String, Latency>,
    /// How many UEs failed, by what happened.
    pub(crate) failures: BTreeMap<String, u64>,
    /// What the core did against the specifications.
    pub(crate) violations: BTreeMap<String, u64>,
    /// Echoes.
    pub(crate) user_plane: UserPlane,
    /// The SCTP driver.
    pub(crate) driver: String,
}

/// Percentiles of one procedure's latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// How many.
    #[serde(default, skip_serializing)]
    pub(crate) count: u64,
    /// Those that took longer than 10 ms.
    #[serde(default, skip_serializing)]
    pub(crate) over_10ms: u64,
    /// Half of them were faster.
    pub(crate) p50: u64,
    /// One in a hundred was slower.
    pub(crate) p99: u64,
    /// The mean of all.
    #[serde(default, skip_serializing)]
    pub(crate) mean: f64,
    /// The slowest.
    #[serde(default, skip_serializing)]
    pub(crate) max: u64,
}

/// Echoes through the user plane.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct UserPlane {
    /// Asked for.
    pub(crate) echoes: u64,
    /// Answered.
    pub(crate) echoes_answered: u64,
    /// Octets of packets that the UEs sent, and that came for them.
    #[serde(default)]
    pub(crate) up_octets: u64,
    #[serde(default)]
    pub(crate) down_octets: u64,
    /// Packets sent again, because no answer had come in time.
    #[serde(default)]
    pub(crate) resent: u64,
    /// Given up.
    #[serde(default)]
    pub(crate) echoes_lost: u64,
    /// The longest time without an answer of a connected UE that sends without a pause, in microseconds.
    #[serde(default)]
    pub(crate) longest_gap_us: u64,
}

impl EmulatorResult {
    /// The latency of a procedure, zero if it did not happen.
    pub(crate) fn latency(&self, procedure: &str) -> Latency {
        self.latency_us.get(procedure).copied().unwrap_or_default()
    }

    /// What went wrong, a line each.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.failures.iter().chain(&self.violations).map(|(what, count)| format!("{count} x {what}")).collect()
    }
}

/// Runs it to its end.
pub(crate) fn run(
    lab: &Lab,
    core: &mut Core,
    options: &EmulatorOptions,
    interrupt: &Interrupt,
) -> Result<Emulated, Failure> {
    run_with(lab, core, options, interrupt, &mut |_| Ok(()))
}

/// Runs it to its end and calls `meanwhile` every few milliseconds.
pub(crate) fn run_with(
    lab: &Lab,
    core: &mut Core,
    options: &EmulatorOptions,
    interrupt: &Interrupt,
    meanwhile: &mut dyn FnMut(&mut Core) -> Result<(), Failure>,
) -> Result<Emulated, Failure> {
    let core_before = core.cpu()?;
    let children_before = process::cpu_of_ended_children()?;
    let mut emulator = Emulator::start(lab, options)?;
    let mut memory = Memory::new(options);
    while !emulator.has_ended(core, interrupt)? {
        memory.sample(core)?;
        meanwhile(core)?;
        std::thread::sleep(SAMPLE_EVERY);
    }
    Ok(Emulated {
        result: emulator.result()?,
        cpu: process::cpu_of_ended_children()?.saturating_sub(children_before),
        core_cpu: core.cpu()?.saturating_sub(core_before),
        core_bytes_per_ue: memory.per_ue(),
    })
}

/// One that is running. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Emulator {
    process: Process,
    file: String,
    limit: Duration,
    deadline: Instant,
}

impl Emulator {
    /// Starts it.
    pub(crate) fn start(lab: &Lab, options: &EmulatorOptions) -> Result<Self, Failure> {
        if options.number > 0 {
            // It may be there from an earlier one.
            lab.ran.ip(&format!("address replace {}/24 dev {RAN_INTERFACE}", options.address()))?;
        }
        let file = options.file("json");
        let mut command = Process::this_program();
        command.args(arguments(options, &file)?);
        // An earlier run's result must not be taken for this one's.
        let _ = std::fs::remove_file(&file);
        let log = if options.quiet { Some(create(Path::new(&options.file("log")))?) } else { None };
        let start = || Process::start("emulator", &lab.ran, &mut command, log);
        let process = process::on_processors(&options.processors, start)??;
        if options.number > 0 {
            // It loads the core beside the one that measures.
            process.give_way()?;
        }
        Ok(Emulator { process, file, limit: options.limit, deadline: Instant::now() + options.limit })
    }

    /// Whether it has ended; fails if it never will, or not as it should.
    pub(crate) fn has_ended(&mut self, core: &mut Core, interrupt: &Interrupt) -> Result<bool, Failure> {
        if self.process.ended()?.is_some() {
            return Ok(true);
        }
        core.check()?;
        interrupt.check()?;
        if Instant::now() > self.deadline {
            return Err(Failure(format!("the emulator is not done after {:?}", self.limit)));
        }
        Ok(false)
    }

    /// Has its load end: what is under way comes to its end.
    pub(crate) fn end_load(&mut self) -> Result<(), Failure> {
        Ok(self.process.signal(libc::SIGTERM)?)
    }

    /// What it says when it has ended.
    pub(crate) fn result(&mut self) -> Result<EmulatorResult, Failure> {
        let text = std::fs::read_to_string(&self.file).map_err(|e| {
            let words = self.process.last_words(10);
            Failure(format!("the emulator ended without a result ({e}) {words}"))
        })?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Watches the core's memory between half of the UEs and all.
#[derive(Debug)]
struct Memory {
    ues: usize,
    watched: bool,
    ticks: u32,
    half: Option<(usize, u64)>,
    peak: u64,
}

impl Memory {
    fn new(options: &EmulatorOptions) -> Self {
        Memory { ues: options.ues as usize, watched: options.watch_memory, ticks: 0, half: None, peak: 0 }
    }

    fn sample(&mut self, core: &Core) -> Result<(), Failure> {
        if !self.watched {
            return Ok(());
        }
        let resident = core.process.resident_bytes()?;
        self.peak = self.peak.max(resident);
        // Asking costs the core CPU time that is measured too, so it is asked rarely, and no more than needed.
        if self.half.is_none() && self.ticks.is_multiple_of(ASK_EVERY) {
            let registered = core.registered()?;
            self.half = (registered >= self.ues / 2).then_some((registered, resident));
        }
        self.ticks += 1;
        Ok(())
    }

    fn per_ue(&self) -> Option<f64> {
        let grown = match self.half {
            Some((registered, resident)) if registered < self.ues => {
                self.peak.saturating_sub(resident) as f64 / (self.ues - registered) as f64
            }
            _ => 0.0,
        };
        self.watched.then_some(grown)
    }
}

fn arguments(options: &EmulatorOptions, result: &str) -> Result<Vec<String>, Failure> {
    let first: Supi = core::FIRST_IMSI.parse()?;
    let mut arguments: Vec<String> = vec!["emulate".into()];
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    options.core.iter().for_each(|core| add("--core", core.to_string()));
    add("--n2", options.address().to_string());
    add("--n3", options.address().to_string());
    add("--gnb-id", (1 + u32::from(options.number) * 1000).to_string());
    add("--snssai", options.sst.to_string());
    add("--echo-v4", DN.to_string());
    add("--echo-v6", DN_V6.to_string());
    add("--gnbs", options.gnbs.to_string());
    add("--ues", options.ues.to_string());
    add("--imsi", first.offset(options.first)?.reveal());
    if !options.scenario.is_empty() {
        add("--scenario", options.scenario.clone());
    }
    add("--json", result.to_owned());
    if let Some(key) = core::HN_KEYS.iter().find(|key| options.scenario == key.scenario) {
        add("--home-key", key.public.to_owned());
        add("--home-key-id", key.id.to_string());
    }
    add("--idle", options.idle.as_millis().to_string());
    match options.load {
        Load::Rate(rate) => add("--rate", rate.to_string()),
        Load::Window(window) => add("--window", window.to_string()),
    }
    arguments.extend(options.more.iter().cloned());
    Ok(arguments)
}

/// The timeline as the emulator writes it.
pub(crate) fn read_timeline(csv: &str) -> Result<Vec<(String, Bin)>, Failure> {
    let wrong = |line: &str| Failure(format!("the emulator's timeline has a line that cannot be read: {line:?}"));
    let row = |line: &str| -> Option<(String, Bin)> {
        let mut cells = line.split(',');
        let (at_s, name) = (cells.next()?.parse().ok()?, cells.next()?.to_owned());
        let mut number = || cells.next()?.parse::<u64>().ok();
        let (done, failed) = (number()?, number()?);
        let mut ms = || number().map(|us| us as f64 / 1e3);
        let (p50_ms, p99_ms, max_ms) = (ms()?, ms()?, ms()?);
        Some((name, Bin { at_s, done, failed, lost: number()?, p50_ms, p99_ms, max_ms }))
    };
    csv.lines().skip(1).map(|line| row(line).ok_or_else(|| wrong(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeline_is_read() {
        let text = "at_s,procedure,count,failures,p50_us,p99_us,max_us,lost\n0.000,all,2,2,1500,2000,2500,1\n0.100,paging,1,0,7,7,7,0\n";
        let rows = read_timeline(text).unwrap();
        let bin = Bin { at_s: 0.0, done: 2, failed: 2, lost: 1, p50_ms: 1.5, p99_ms: 2.0, max_ms: 2.5 };
        assert_eq!(rows[0], ("all".to_owned(), bin));
        assert_eq!((rows[1].0.as_str(), rows[1].1.at_s), ("paging", 0.1));
        assert!(read_timeline("head\n0.0,all,x\n").is_err());
    }
}
