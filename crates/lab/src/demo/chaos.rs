//! `--scenario chaos`: faults of radio and RAN nodes, and the state of each UE after them.
//!
//! Each seed has a core of its own. When the faults have ended and each UE has had service once
//! more, the core must have what the UEs have: registration, 5G-TMSI or M-TMSI, sessions and
//! addresses, and no connection.

use super::args::{Args, text};
use super::kill::WorkerKiller;
use super::seeds::Seeds;
use crate::core::Core;
use crate::emulator::{self, EmulatorOptions, Load};
use crate::files::create;
use crate::options::{CoreOptions, UE_NETWORKS};
use crate::{Interrupt, Lab};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_ops::api::UeStatus;

/// Name of the scenario.
pub(super) const CHAOS: &str = "chaos";
/// Time in which the core notices that the last connections have ended.
const IDLE_WITHIN: Duration = Duration::from_secs(5);
/// Differences that are printed.
const PRINTED: usize = 10;

/// JSON result of the emulator, as far as it is of this scenario.
#[derive(Debug, Deserialize)]
struct ChaosResult {
    chaos: Faults,
    /// First message behind each violation, in hexadecimal digits.
    evidence: BTreeMap<String, String>,
}

/// Faults of a run, and the UEs after them.
#[derive(Debug, Deserialize)]
struct Faults {
    messages_lost: u64,
    messages_repeated: u64,
    restarts: u64,
    unsettled: u64,
    ues: Vec<UeAtEnd>,
}

/// What a UE has after the faults.
#[derive(Clone, Debug, Deserialize)]
struct UeAtEnd {
    supi: String,
    registered: bool,
    /// The 5G-TMSI, in EPS the M-TMSI.
    tmsi: Option<u32>,
    /// Active sessions in the order of their identities.
    sessions: Vec<SessionAtEnd>,
}

/// Session of such a UE.
#[derive(Clone, Copy, Debug, Deserialize)]
struct SessionAtEnd {
    /// PDU session identity or EPS bearer identity.
    id: u8,
    ipv4: Option<Ipv4Addr>,
}

/// Core and killers of each run.
pub(super) struct Parts<'a> {
    pub(super) core: &'a dyn Fn(&Lab) -> Result<CoreOptions, Failure>,
    pub(super) killers: &'a dyn Fn() -> [Option<WorkerKiller>; 3],
}

/// Result of one seed.
#[derive(Clone, Debug, Default, Serialize)]
struct SeedReport {
    seed: u64,
    ues: u64,
    /// Procedures that were due, and those that completed in spite of the faults.
    procedures: u64,
    completed: u64,
    messages_lost: u64,
    messages_repeated: u64,
    restarts: u64,
    /// Worker processes and shards killed.
    kills: u64,
    /// UEs that had no service after the faults.
    unsettled: u64,
    /// Violations of the specifications by the core.
    violations: BTreeMap<String, u64>,
    /// First message behind each of them, in hexadecimal digits.
    evidence: BTreeMap<String, String>,
    /// UEs of which the core has another state, with the difference.
    differences: Vec<String>,
}

impl SeedReport {
    fn is_success(&self) -> bool {
        self.unsettled == 0 && self.violations.is_empty() && self.differences.is_empty() && self.ues > 0
    }
}

/// Runs all seeds, one after another.
pub(super) fn run(args: &Args, parts: &Parts<'_>) -> Result<(), Failure> {
    check(args)?;
    let mut json = args.json.as_deref().map(create).transpose()?;
    let lab = Lab::build(&UE_NETWORKS)?;
    let interrupt = Interrupt::listen()?;
    let seeds = args.seed.unwrap_or(Seeds { from: 1, to: 1 });
    let mut reports = Vec::new();
    for seed in seeds.from..=seeds.to {
        let report = run_seed(args, parts, (&lab, &interrupt), seed)?;
        let SeedReport { procedures, completed, messages_lost, messages_repeated, restarts, kills, .. } = &report;
        eprintln!(
            "demo: seed {seed}: {completed} of {procedures} procedures; {messages_lost} messages lost, \
             {messages_repeated} repeated, {restarts} nodes restarted, {kills} processes killed; {} UEs without service, \
             {} with another state in the core",
            report.unsettled,
            report.differences.len()
        );
        report.differences.iter().take(PRINTED).for_each(|difference| eprintln!("demo: {difference}"));
        for (what, count) in &report.violations {
            let message = report.evidence.get(what).map_or("", String::as_str);
            eprintln!("demo: {count} x {what} {message}");
        }
        reports.push(report);
    }
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &reports)?;
        file.write_all(b"\n")?;
    }
    let failed: Vec<String> =
        reports.iter().filter(|report| !report.is_success()).map(|report| report.seed.to_string()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure(format!("UEs and core do not agree after the faults, with --seed {}", failed.join(", ")))),
    }
}

/// Returns an error if options exclude each other.
fn check(args: &Args) -> Result<(), Failure> {
    let reason = match args {
        Args { hosts: Some(_), .. } | Args { chain: Some(_), .. } => "remove --hosts and --chain",
        Args { pcap: Some(_), .. } | Args { migrate: Some(_), .. } => "remove --pcap and --migrate",
        Args { movers: Some(1..), .. } => "remove --movers",
        Args { gnbs: 1, .. } => "UEs go from node to node: give --gnbs 2 or more",
        _ => return Ok(()),
    };
    Err(Failure(format!("--scenario chaos has its own load and a core of one machine: {reason}")))
}

fn run_seed(
    args: &Args,
    parts: &Parts<'_>,
    (lab, interrupt): (&Lab, &Interrupt),
    seed: u64,
) -> Result<SeedReport, Failure> {
    let options = (parts.core)(lab)?;
    let log = create(args.core_log.as_deref().unwrap_or(Path::new("/tmp/core.log")))?;
    let mut core = Core::start(lab, &options, log, interrupt)?;
    core.wait_for_upfs(interrupt)?;
    let mut killers = (parts.killers)();
    let mut meanwhile = |core: &mut Core| killers.iter_mut().flatten().try_for_each(|killer| killer.work(core));
    let options = emulator_options(args, seed);
    let emulated = emulator::run_with(lab, &mut core, &options, interrupt, &mut meanwhile)?;
    let text = std::fs::read_to_string(options.result_file())?;
    let ChaosResult { chaos, evidence } = serde_json::from_str(&text)?;
    let Faults { messages_lost, messages_repeated, restarts, unsettled, ues } = chaos;
    let differences = differences(&core, &ues, interrupt)?;
    core.stop()?;
    Ok(SeedReport {
        seed,
        ues: ues.len() as u64,
        procedures: emulated.result.procedures,
        completed: emulated.result.completed,
        messages_lost,
        messages_repeated,
        restarts,
        kills: killers.iter().flatten().map(|killer: &WorkerKiller| killer.kills).sum(),
        unsettled,
        violations: emulated.result.violations,
        evidence,
        differences,
    })
}

fn emulator_options(args: &Args, seed: u64) -> EmulatorOptions {
    let more = ["--rat", &text(args.rat), "--seed", &seed.to_string()].map(str::to_owned).to_vec();
    EmulatorOptions {
        gnbs: args.gnbs,
        ues: args.ues,
        // The rate of the load is the scenario's own.
        load: Load::Window(50),
        scenario: CHAOS.into(),
        more,
        limit: Duration::from_secs(240),
        ..EmulatorOptions::default()
    }
}

/// Returns what the core has otherwise than the UEs, when it has noticed that all are idle.
fn differences(core: &Core, ues: &[UeAtEnd], interrupt: &Interrupt) -> Result<Vec<String>, Failure> {
    let end = Instant::now() + IDLE_WITHIN;
    loop {
        interrupt.check()?;
        let mut in_core: BTreeMap<String, Vec<UeStatus>> = BTreeMap::new();
        for ue in core.all_ues()? {
            in_core.entry(ue.supi.trim_start_matches("imsi-").to_owned()).or_default().push(ue);
        }
        let contexts = |ue: &UeAtEnd| in_core.get(&ue.supi).map_or(&[][..], Vec::as_slice);
        let differences: Vec<String> = ues.iter().filter_map(|ue| difference(ue, contexts(ue))).collect();
        if differences.is_empty() || Instant::now() > end {
            return Ok(differences);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns what the core has otherwise than the UE, by the contexts of its subscriber. Beside the
/// one in use there may be one that is deregistered and not deleted yet.
fn difference(ue: &UeAtEnd, in_core: &[UeStatus]) -> Option<String> {
    let registered: Vec<&UeStatus> = in_core.iter().filter(|status| status.rm == "REGISTERED").collect();
    let told = |what: String| Some(format!("UE {}: {what}", ue.supi));
    if registered.len() != usize::from(ue.registered) {
        let states: Vec<String> = in_core.iter().map(|ue| format!("{} {} {}", ue.tmsi, ue.rm, ue.cm)).collect();
        return told(format!("registered: {}, in the core {states:?}", ue.registered));
    }
    let status = registered.first()?;
    if status.cm != "IDLE" {
        return told("idle, and connected in the core".into());
    }
    let tmsi = u32::from_str_radix(&status.tmsi, 16).ok();
    if tmsi != ue.tmsi {
        return told(format!("TMSI {:08x?}, in the core {tmsi:08x?}", ue.tmsi));
    }
    let mut sessions: Vec<(u8, Option<String>)> =
        status.sessions.iter().map(|session| (session.psi, session.ipv4.clone())).collect();
    sessions.sort();
    let own: Vec<(u8, Option<String>)> =
        ue.sessions.iter().map(|session| (session.id, session.ipv4.map(|address| address.to_string()))).collect();
    if sessions != own {
        return told(format!("sessions {own:?}, in the core {sessions:?}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::SessionStatus;

    #[test]
    fn every_difference_is_named() {
        let session = SessionAtEnd { id: 1, ipv4: Some([10, 45, 0, 2].into()) };
        let ue = UeAtEnd { supi: "1".into(), registered: true, tmsi: Some(0xa1), sessions: vec![session] };
        let same = UeStatus {
            rm: "REGISTERED".into(),
            cm: "IDLE".into(),
            tmsi: "000000a1".into(),
            sessions: vec![SessionStatus { psi: 1, ipv4: Some("10.45.0.2".into()), ..SessionStatus::default() }],
            ..UeStatus::default()
        };
        assert_eq!(difference(&ue, std::slice::from_ref(&same)), None);
        let old = UeStatus { rm: "DEREGISTERED".into(), ..same.clone() };
        assert_eq!(difference(&ue, &[old.clone(), same.clone(), old]), None);
        assert!(difference(&ue, &[same.clone(), same.clone()]).is_some(), "two contexts in use");
        let others = [
            UeStatus { rm: "DEREGISTERED".into(), ..same.clone() },
            UeStatus { cm: "CONNECTED".into(), ..same.clone() },
            UeStatus { tmsi: "000000a2".into(), ..same.clone() },
            UeStatus { sessions: Vec::new(), ..same.clone() },
        ];
        for other in others {
            assert!(difference(&ue, std::slice::from_ref(&other)).is_some(), "{other:?}");
        }
        assert!(difference(&ue, &[]).is_some());
        let out = UeAtEnd { registered: false, ..ue };
        assert_eq!(difference(&out, &[]), None);
        assert!(difference(&out, &[same]).is_some());
    }
}
