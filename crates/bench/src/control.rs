//! `vireo bench control`: cost and rate of registrations with a PDU session.
//!
//! * CPU: time of all threads of the core, including the SCTP stack where it runs in user space.
//!   UEs register (5G AKA, security mode, 5G-GUTI) and establish a session (PFCP to the embedded
//!   UPF). SUCI schemes are measured separately.
//! * Rate: completed UEs per second with a fixed number of UEs in progress. The emulator runs on
//!   the same processors.
//! * Latency: at 100 UEs per second, counted from the intended start.
//! * Memory: difference of resident memory between 2N and N UEs, per UE. All UEs keep their
//!   session; the gNBs have disconnected.

use crate::results::{self, Machine, Measured};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vireo_config::Failure;
use vireo_emulator::Rats;
use vireo_lab::addresses::CORE;
use vireo_lab::core::Core;
use vireo_lab::emulator::{self, EmulatorOptions, EmulatorRun, Load};
use vireo_lab::files::create;
use vireo_lab::options::{CoreOptions, UE_NETWORKS, s1_table};
use vireo_lab::{Interrupt, Lab};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the numbers as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Repeat every measurement N times
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    runs: u32,
    /// Use N UEs per measurement
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..=30_000))]
    ues: u32,
    /// Keep N UEs in progress at once in the rate measurement
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    window: u32,
    /// Measure gNBs and UEs of 5G (nr), or eNBs and UEs of 4G (eps)
    ///
    /// In 4G an attach with its default bearer is a registration with a session.
    #[arg(long, value_name = "RAT", default_value = "nr", value_parser = crate::rat)]
    rat: Rats,
}

/// UEs per second in the latency measurement.
const LATENCY_RATE: u32 = 100;
const GNBS: u32 = 2;
/// The emulator's name for registration and session establishment together.
const WHOLE: &str = "registration_and_session";

/// SUCI scheme and its emulator scenario: the UEs register, establish one session and stay
/// registered.
const SCHEMES: [(&str, &str); 3] = [("null", "session"), ("profile_a", "profile-a"), ("profile_b", "profile-b")];

/// Returns the SUCI schemes. UEs of EPS send their IMSI.
fn schemes(rat: Rats) -> &'static [(&'static str, &'static str)] {
    if rat == Rats::Nr { &SCHEMES } else { &SCHEMES[..1] }
}

/// Returns the procedures whose latency is measured. An attach has its session with it.
fn procedures(rat: Rats) -> &'static [&'static str] {
    if rat == Rats::Nr { &["registration", "session", WHOLE] } else { &["registration", WHOLE] }
}

/// All results. The JSON key names are a contract.
#[derive(Debug, Serialize)]
struct Numbers {
    /// Git commit at which the binary was built.
    commit: String,
    machine: Machine,
    load: results::OfferedLoad,
    ues_per_run: u32,
    window: u32,
    rat: Rats,
    sctp: String,
    /// Core CPU time per registration with session, by SUCI scheme, at full load.
    cpu_us_per_ue: BTreeMap<&'static str, Measured>,
    /// Core CPU time per registration with session at 100 UEs per second.
    cpu_us_per_ue_at_100_per_s: Measured,
    /// Registrations with session per second, by SUCI scheme.
    sustained_per_s: BTreeMap<&'static str, Measured>,
    /// Latency at 100 UEs per second.
    latency_us: BTreeMap<&'static str, Percentiles>,
    rss_bytes_per_ue: Measured,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    p50: Measured,
    p99: Measured,
}

/// Runs `vireo bench control`.
pub(crate) fn run(args: &Args, commit: &str) -> Result<(), Failure> {
    let mut json = args.json.as_deref().map(create).transpose()?;
    let lab = Lab::build(&UE_NETWORKS)?;
    let bench = Bench { lab, interrupt: Interrupt::listen()?, args };
    let (mut cpu, mut rate) = (BTreeMap::new(), BTreeMap::new());
    let mut sctp = String::new();
    // Each round runs every measurement once, so that load changes on the machine affect all of
    // them equally.
    let rounds = bench.repeat("CPU and rate", |bench| {
        schemes(args.rat).iter().map(|(_, scenario)| bench.full_load(scenario)).collect::<Result<Vec<_>, _>>()
    })?;
    for (index, (scheme, _)) in schemes(args.rat).iter().enumerate() {
        cpu.insert(*scheme, measured(&rounds, |round| cpu_us_per_ue(&round[index]))?);
        rate.insert(*scheme, measured(&rounds, |round| round[index].result.ues_per_second())?);
        sctp.clone_from(&rounds[0][index].result.driver);
    }
    let paced = bench.repeat("latency", |bench| bench.paced())?;
    let percentiles = |procedure: &'static str| -> Result<Percentiles, Failure> {
        Ok(Percentiles {
            p50: measured(&paced, |e| e.result.latency(procedure).p50 as f64)?,
            p99: measured(&paced, |e| e.result.latency(procedure).p99 as f64)?,
        })
    };
    let mut latency_us = BTreeMap::new();
    for procedure in procedures(args.rat).iter().copied() {
        latency_us.insert(procedure, percentiles(procedure)?);
    }
    let memory = bench.repeat("memory", |bench| bench.memory())?;
    let about = "UEs in progress at once (CPU, rate), and UEs per second (latency)";
    let numbers = Numbers {
        commit: commit.to_owned(),
        machine: Machine::read(),
        load: results::OfferedLoad::new(about, [args.window, LATENCY_RATE].map(f64::from), "UEs"),
        ues_per_run: args.ues,
        window: args.window,
        rat: args.rat,
        sctp,
        cpu_us_per_ue: cpu,
        cpu_us_per_ue_at_100_per_s: measured(&paced, cpu_us_per_ue)?,
        sustained_per_s: rate,
        latency_us,
        rss_bytes_per_ue: measured(&memory, |bytes| *bytes)?,
    };
    print!("{}", numbers.table());
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &numbers)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn cpu_us_per_ue(emulated: &EmulatorRun) -> f64 {
    emulated.core_cpu.as_secs_f64() * 1e6 / emulated.result.succeeded as f64
}

fn measured<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Result<Measured, Failure> {
    Measured::each(runs, value).ok_or_else(|| Failure("nothing was measured".into()))
}

struct Bench<'a> {
    lab: Lab,
    interrupt: Interrupt,
    args: &'a Args,
}

impl Bench<'_> {
    fn repeat<T>(&self, what: &str, run: impl Fn(&Self) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
        (1..=self.args.runs)
            .map(|n| {
                eprintln!("bench: {what}, run {n} of {}", self.args.runs);
                run(self)
            })
            .collect()
    }

    fn core(&self, subscribers: u32) -> Result<Core, Failure> {
        let tables = if self.args.rat == Rats::Nr { String::new() } else { s1_table(CORE) };
        let options = CoreOptions { subscribers: subscribers.into(), tables, ..CoreOptions::default() };
        Core::start(&self.lab, &options, create(Path::new("/tmp/core.log"))?, &self.interrupt)
    }

    /// Runs a scenario with `ues` UEs. All of them must succeed.
    fn emulate(
        &self,
        core: &mut Core,
        scenario: &str,
        first: u32,
        ues: u32,
        load: Load,
    ) -> Result<EmulatorRun, Failure> {
        let options = EmulatorOptions {
            gnbs: GNBS,
            ues,
            first: first.into(),
            load,
            scenario: scenario.into(),
            more: ["--rat", self.args.rat.name()].map(str::to_owned).to_vec(),
            ..EmulatorOptions::default()
        };
        let emulated = emulator::run(&self.lab, core, &options, &self.interrupt)?;
        if emulated.result.succeeded != u64::from(ues) {
            let complaints = emulated.result.complaints().join(", ");
            return Err(Failure(format!("{} of {ues} UEs succeeded: {complaints}", emulated.result.succeeded)));
        }
        Ok(emulated)
    }

    fn full_load(&self, scenario: &str) -> Result<EmulatorRun, Failure> {
        let warm_up = self.args.ues / 10;
        let mut core = self.core(warm_up + self.args.ues)?;
        let load = Load::Window(self.args.window);
        self.emulate(&mut core, scenario, 0, warm_up, load)?;
        let emulated = self.emulate(&mut core, scenario, warm_up, self.args.ues, load)?;
        core.stop()?;
        Ok(emulated)
    }

    fn paced(&self) -> Result<EmulatorRun, Failure> {
        // 10 s of load: enough samples for a 99th percentile with ten values above it.
        let (warm_up, ues) = (LATENCY_RATE, LATENCY_RATE * 10);
        let mut core = self.core(warm_up + ues)?;
        let load = Load::Rate(LATENCY_RATE);
        self.emulate(&mut core, "session", 0, warm_up, load)?;
        let emulated = self.emulate(&mut core, "session", warm_up, ues, load)?;
        core.stop()?;
        Ok(emulated)
    }

    /// Returns the memory per UE in bytes, from the difference between N and 2N UEs.
    fn memory(&self) -> Result<f64, Failure> {
        let n = self.args.ues;
        let mut core = self.core(2 * n)?;
        let mut resident = Vec::new();
        for first in [0, n] {
            self.emulate(&mut core, "session", first, n, Load::Window(self.args.window))?;
            // The core releases the contexts of the disconnected gNBs in this time.
            std::thread::sleep(Duration::from_secs(1));
            resident.push(core.process.resident_bytes()? as f64);
        }
        core.stop()?;
        Ok((resident[1] - resident[0]) / f64::from(n))
    }
}

impl Numbers {
    fn table(&self) -> String {
        let mut lines = vec![(
            format!("{} x {}, Linux {}", self.machine.cpus, self.machine.cpu, self.machine.kernel),
            String::new(),
        )];
        lines.push((format!("SCTP: {}", self.sctp), String::new()));
        for (scheme, cpu) in &self.cpu_us_per_ue {
            lines.push((format!("core CPU per registration + session, SUCI {scheme} (us)"), cpu.to_string()));
        }
        lines.push(("the same at 100 UEs per second, null (us)".into(), self.cpu_us_per_ue_at_100_per_s.to_string()));
        for (scheme, rate) in &self.sustained_per_s {
            lines.push((format!("sustained, SUCI {scheme} (UEs/s)"), rate.to_string()));
        }
        for (procedure, l) in &self.latency_us {
            let name = procedure.replace('_', " ");
            lines.push((format!("{name} at 100/s, p50 (us)"), l.p50.to_string()));
            lines.push((format!("{name} at 100/s, p99 (us)"), l.p99.to_string()));
        }
        lines.push(("memory per registered UE with session (octets)".into(), self.rss_bytes_per_ue.to_string()));
        let width = lines.iter().filter(|(_, v)| !v.is_empty()).map(|(name, _)| name.len()).max().unwrap_or(0);
        lines.iter().map(|(name, value)| format!("{}\n", format!("{name:<width$}  {value}").trim_end())).collect()
    }
}
