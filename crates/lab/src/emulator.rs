//! RAN of the lab: `vireo emulate` as a separate process, measured by the kernel.

use crate::addresses::{CORE, DN, DN_V6, RAN, RAN_INTERFACE};
use crate::core::Core;
use crate::files::create;
use crate::options::{FIRST_IMSI, HN_KEYS};
use crate::process::{self, Process};
use crate::timeline::Bin;
use crate::{Interrupt, Lab};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_types::Supi;

const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Memory samples per status request to the core.
const ASK_EVERY: u32 = 5;

/// Options for UEs whose packets may be late because a process that serves them was killed. The UEs
/// repeat packets for that many seconds, like any sender.
pub const PATIENT: [&str; 2] = ["--echo-tries", "10"];

/// Start of UEs.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// UEs per second, open loop.
    Rate(u32),
    /// Simultaneously active UEs, closed loop.
    Window(u32),
}

/// Options of one emulator run.
#[derive(Clone, Debug)]
pub struct EmulatorOptions {
    /// N2 addresses of the core.
    pub core: Vec<Ipv4Addr>,
    pub gnbs: u32,
    pub ues: u32,
    /// Number of lab subscribers to skip.
    pub first: u64,
    pub load: Load,
    /// Scenario of the UEs; empty if `more` selects the load.
    pub scenario: String,
    /// Idle time in scenarios with idle UEs.
    pub idle: Duration,
    /// Samples the core's memory, at some CPU time of the core. Needs [`Load::Rate`].
    pub watch_memory: bool,
    /// Suppresses progress and table of the emulator.
    pub quiet: bool,
    /// Time limit of the run.
    pub limit: Duration,
    /// Arguments after those of the other fields.
    pub more: Vec<String>,
    /// Processors of the emulator; empty means all.
    pub processors: Vec<usize>,
    /// Number of the emulator, 0 for the first one. Parallel emulators have different numbers, and
    /// therefore different addresses and gNBs.
    pub number: u8,
    /// SST of the slice of its gNBs and UEs.
    pub sst: u8,
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
    /// Returns the path of the result.
    pub(crate) fn result_file(&self) -> String {
        self.file("json")
    }

    /// Returns a path in the lab's own `/tmp`.
    fn file(&self, kind: &str) -> String {
        format!("/tmp/emulator-{}.{kind}", self.number)
    }

    /// Returns the address of the emulator's gNBs.
    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::from(RAN.to_bits() + u32::from(self.number))
    }
}

/// Result and measurements of an emulator run.
#[derive(Debug)]
pub struct EmulatorRun {
    /// Result that the emulator reports.
    pub result: EmulatorResult,
    /// CPU time of the emulator, from the kernel.
    pub cpu: Duration,
    /// CPU time of the core during the run, from the kernel.
    pub core_cpu: Duration,
    /// Growth of the core's resident memory per UE, from half of the UEs registered to all of them.
    /// Excludes memory that the core needs once. `None` if not measured.
    pub core_bytes_per_ue: Option<f64>,
}

/// JSON result of the emulator, as far as it is used here.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct EmulatorResult {
    /// Number of UEs that the command line requested.
    pub ues: u64,
    /// UEs that completed all steps.
    pub succeeded: u64,
    pub registered: u64,
    pub sessions: u64,
    pub deregistered: u64,
    pub service_requests: u64,
    /// Time from the first UE's start to the last UE's end.
    pub seconds: f64,
    /// Due procedures of a steady load.
    #[serde(default)]
    pub procedures: u64,
    /// Due procedures that completed.
    #[serde(default)]
    pub completed: u64,
    /// Due procedures that were served within 200 ms.
    #[serde(default)]
    pub in_time: u64,
    /// Due procedures that were refused, late, or never started.
    #[serde(default)]
    pub failed_procedures: u64,
    /// Times that a registered UE had to register again.
    #[serde(default)]
    pub lost: u64,
    /// Requests repeated without an answer.
    #[serde(default)]
    pub retries: u64,
    /// Duration of the steady load in seconds.
    #[serde(default)]
    pub steady_seconds: f64,
    /// Start of the steady load, in microseconds of Unix time.
    #[serde(default)]
    pub steady_began_unix_us: u64,
    /// Latency by procedure, in microseconds.
    pub latency_us: BTreeMap<String, Latency>,
    /// Failed UEs by cause.
    pub failures: BTreeMap<String, u64>,
    /// Violations of the specifications by the core, by kind.
    pub violations: BTreeMap<String, u64>,
    /// Echoes of the UEs.
    pub user_plane: UserPlane,
    /// Name of the SCTP driver.
    pub driver: String,
}

impl EmulatorResult {
    /// Returns the number of UEs completed per second.
    pub fn ues_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.succeeded as f64 / self.seconds } else { 0.0 }
    }
}

/// Percentiles of one procedure's latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Procedures whose latency was measured.
    #[serde(default, skip_serializing)]
    pub count: u64,
    /// Procedures with a latency above 10 ms.
    #[serde(default, skip_serializing)]
    pub over_10ms: u64,
    /// Procedures with a latency above 50 ms.
    #[serde(default, skip_serializing)]
    pub over_50ms: u64,
    pub p50: u64,
    pub p99: u64,
    #[serde(default, skip_serializing)]
    pub mean: f64,
    #[serde(default, skip_serializing)]
    pub max: u64,
}

/// Echoes through the user plane.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct UserPlane {
    pub echoes: u64,
    pub echoes_answered: u64,
    /// Bytes of packets that the UEs sent; the next field holds those that they received.
    #[serde(default)]
    pub up_octets: u64,
    #[serde(default)]
    pub down_octets: u64,
    /// Packets received that were damaged or misdirected.
    #[serde(default)]
    pub bad_packets: u64,
    /// Changes of a tunnel's UPF end that the core ordered.
    #[serde(default)]
    pub tunnels_moved: u64,
    /// Changes of a session's QoS that the core ordered.
    #[serde(default)]
    pub qos_modified: u64,
    /// Packets repeated without an answer in time.
    #[serde(default)]
    pub resent: u64,
    /// Echoes without an answer after all repetitions.
    #[serde(default)]
    pub echoes_lost: u64,
    /// Longest time without an answer for a connected UE that sends without a pause, in
    /// microseconds.
    #[serde(default)]
    pub longest_gap_us: u64,
    #[serde(default)]
    pub moves: Moves,
}

/// Moves of UEs between 4G and 5G, and echoes that they sent meanwhile.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Moves {
    /// Moves of idle UEs.
    pub idle: u64,
    /// Moves of connected UEs, by handover.
    pub connected: u64,
    pub echoes: u64,
    pub echoes_lost: u64,
    /// Packets that the sources of handovers have forwarded to the targets.
    #[serde(default)]
    pub forwarded: u64,
    /// Answers that arrived after the answer to a later echo.
    #[serde(default)]
    pub echoes_reordered: u64,
}

impl EmulatorResult {
    /// Returns the latency of a procedure, zero if the procedure did not occur.
    pub fn latency(&self, procedure: &str) -> Latency {
        self.latency_us.get(procedure).copied().unwrap_or_default()
    }

    /// Returns the failures and violations, one line each.
    pub fn complaints(&self) -> Vec<String> {
        self.failures.iter().chain(&self.violations).map(|(what, count)| format!("{count} x {what}")).collect()
    }
}

/// Runs the emulator to its end.
pub fn run(
    lab: &Lab,
    core: &mut Core,
    options: &EmulatorOptions,
    interrupt: &Interrupt,
) -> Result<EmulatorRun, Failure> {
    run_with(lab, core, options, interrupt, &mut |_| Ok(()))
}

/// Runs the emulator to its end and calls `meanwhile` every few milliseconds.
pub fn run_with(
    lab: &Lab,
    core: &mut Core,
    options: &EmulatorOptions,
    interrupt: &Interrupt,
    meanwhile: &mut dyn FnMut(&mut Core) -> Result<(), Failure>,
) -> Result<EmulatorRun, Failure> {
    let core_before = core.cpu()?;
    let children_before = process::cpu_of_ended_children()?;
    let mut emulator = Emulator::start(lab, options)?;
    let mut memory = Memory::new(options);
    while !emulator.has_ended(core, interrupt)? {
        memory.sample(core)?;
        meanwhile(core)?;
        std::thread::sleep(SAMPLE_EVERY);
    }
    Ok(EmulatorRun {
        result: emulator.result()?,
        cpu: process::cpu_of_ended_children()?.saturating_sub(children_before),
        core_cpu: core.cpu()?.saturating_sub(core_before),
        core_bytes_per_ue: memory.per_ue(),
    })
}

/// Running emulator. Dropping it kills the process.
#[derive(Debug)]
pub struct Emulator {
    process: Process,
    file: String,
    limit: Duration,
    deadline: Instant,
}

impl Emulator {
    /// Starts the emulator.
    pub fn start(lab: &Lab, options: &EmulatorOptions) -> Result<Self, Failure> {
        if options.number > 0 {
            // The address may exist from an earlier emulator.
            lab.ran.ip(&format!("address replace {}/24 dev {RAN_INTERFACE}", options.address()))?;
        }
        let file = options.result_file();
        let mut command = Process::this_program();
        command.args(arguments(options, &file)?);
        // The result of an earlier run must not count as this run's.
        let _ = std::fs::remove_file(&file);
        let log = if options.quiet { Some(create(Path::new(&options.file("log")))?) } else { None };
        let start = || Process::start("emulator", &lab.ran, &mut command, log);
        let process = process::on_processors(&options.processors, start)??;
        if options.number > 0 {
            // The emulator has lower priority than the measuring process on a shared processor.
            process.give_way()?;
        }
        Ok(Emulator { process, file, limit: options.limit, deadline: Instant::now() + options.limit })
    }

    /// Returns true if the emulator has ended. Returns an error if it failed or exceeded its time
    /// limit.
    pub fn has_ended(&mut self, core: &mut Core, interrupt: &Interrupt) -> Result<bool, Failure> {
        if self.process.exit_status()?.is_some() {
            return Ok(true);
        }
        core.check()?;
        interrupt.check()?;
        if Instant::now() > self.deadline {
            return Err(Failure(format!("the emulator is not done after {:?}", self.limit)));
        }
        Ok(false)
    }

    /// Ends the load: procedures in progress complete.
    pub(crate) fn end_load(&mut self) -> Result<(), Failure> {
        Ok(self.process.signal(libc::SIGTERM)?)
    }

    /// Returns the result of an emulator that has ended.
    pub fn result(&mut self) -> Result<EmulatorResult, Failure> {
        let text = std::fs::read_to_string(&self.file).map_err(|e| {
            let words = self.process.last_words(10);
            Failure(format!("the emulator ended without a result ({e}) {words}"))
        })?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Samples the core's memory from half of the UEs registered to all of them.
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
        // A status request costs CPU time of the core, which is measured too. Requests are
        // therefore rare and end at half of the UEs.
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
    let first: Supi = FIRST_IMSI.parse()?;
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
    if let Some(key) = HN_KEYS.iter().find(|key| options.scenario == key.scenario) {
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

/// Parses the timeline of the emulator.
pub fn read_timeline(csv: &str) -> Result<Vec<(String, Bin)>, Failure> {
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
    fn timeline_csv_is_parsed() {
        let text = "at_s,procedure,count,failures,p50_us,p99_us,max_us,lost\n0.000,all,2,2,1500,2000,2500,1\n0.100,paging,1,0,7,7,7,0\n";
        let rows = read_timeline(text).unwrap();
        let bin = Bin { at_s: 0.0, done: 2, failed: 2, lost: 1, p50_ms: 1.5, p99_ms: 2.0, max_ms: 2.5 };
        assert_eq!(rows[0], ("all".to_owned(), bin));
        assert_eq!((rows[1].0.as_str(), rows[1].1.at_s), ("paging", 0.1));
        assert!(read_timeline("head\n0.0,all,x\n").is_err());
    }
}
