//! `vireo demo`: core, RAN with UEs and data network in namespaces of one machine.
//!
//! The UEs register, establish sessions, exchange packets with the data network and deregister. The
//! demo succeeds only if every UE completes all steps.

mod args;
mod changes;
mod chaos;
mod churn;
mod cluster;
mod cluster_event;
mod events;
mod kill;
mod migrate;
mod report;
mod sba;
mod seeds;

use crate::addresses::{CORE, N2, N6};
use crate::capture::Capture;
use crate::core::Core;
use crate::emulator::{self, EmulatorOptions, Load, PATIENT};
use crate::files::create;
use crate::netns::interface_counters;
use crate::options::{BEHIND_UES, CoreOptions, RECORDS, SbiOptions, UE_NETWORKS, UNSHED};
use crate::{Interrupt, Lab, second_upf};
pub use args::Args;
use args::{Chain, Ciphering, Datapath, Rat, text};
use cluster::{HostChange, HostFailure, Procedures};
use kill::WorkerKiller;
use migrate::{MigrationTarget, Migrator};
use report::Report;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_ops::api::{SlicesStatus, UpfStatus};
use vireo_upf::UpfConfig;

/// Configuration that makes N4 messages visible to a capture.
const N4_ON_THE_WIRE: &str = "[n4]\ndirect = false\n";

/// Runs `vireo demo`.
pub fn run(args: &Args) -> Result<(), Failure> {
    check_rat(args)?;
    match (args.cluster || args.churn.is_some(), args.change_subscribers) {
        (true, _) => return events::run(args),
        (false, true) => return changes::run(args),
        (false, false) => {}
    }
    if args.scenario == chaos::CHAOS {
        let core = |lab: &Lab| core_options(args, lab, MigrationTarget::Slices);
        return chaos::run(args, &chaos::Parts { core: &core, killers: &|| killers(args) });
    }
    if args.seed.is_some() {
        return Err(Failure("--seed needs --scenario chaos: other scenarios have no random choices".into()));
    }
    run_scenario(args)
}

fn run_scenario(args: &Args) -> Result<(), Failure> {
    check(args)?;
    // Opens the files before the namespaces hide the real `/tmp`, and a wrong path costs a run.
    let mut json = args.json.as_deref().map(create).transpose()?;
    let pcap = args.pcap.as_deref().map(create).transpose()?;
    let log = args.core_log.as_deref().map(create).transpose()?;

    let lab = Lab::build(&[UE_NETWORKS[0], UE_NETWORKS[1], BEHIND_UES])?;
    let interrupt = Interrupt::listen()?;
    eprintln!("demo: namespaces for core, RAN and data network are up");
    // Starts before the core, so that the capture includes the PFCP association.
    let capture = pcap.map(|file| Capture::start(file, &[N2, "lo"])).transpose()?;
    let log = log.map_or_else(|| create(Path::new("/tmp/core.log")), Ok)?;
    let target = if args.upfs > 1 { MigrationTarget::Upfs } else { MigrationTarget::Slices };
    let options = core_options(args, &lab, target)?;
    let second = (args.upfs > 1).then(|| second_upf::start(&lab)).transpose()?;
    let mut database = args.state.map(|state| state.start(&lab)).transpose()?.flatten();
    let mut core = Core::start(&lab, &options, log, &interrupt)?;
    core.wait_for_upfs(&interrupt)?;
    eprintln!("demo: the core is ready; {} UEs on {} gNBs, {} per second", args.ues, args.gnbs, args.rate);

    let before = lab.data_network_counters()?;
    let mut killers = killers(args);
    let mut migrator = args.migrate.map(|rate| Migrator::new(rate, target));
    // All UEs have registered by then, and the number of active UEs is near its maximum.
    let busy = Duration::from_secs_f64(f64::from(args.ues) / f64::from(args.rate));
    let mut doom = args.fail_host.map(|fate| HostFailure::new(fate, args.fail_after.unwrap_or(busy + IN_THE_MIDDLE)));
    // About half of the UEs have registered by then.
    let mut kill = args.kill.map(|victim| sba::KillPlan::new(victim, busy / 2));
    let mut change = HostChange::new(args.join_after, args.leave_after);
    let (mut most, mut counted, mut procedures) = (Vec::new(), Instant::now(), Procedures::default());
    let mut meanwhile = |core: &mut Core| {
        if args.has_several() && counted.elapsed() > COUNT_EVERY {
            counted = Instant::now();
            spread(core, &mut most)?;
        }
        procedures.work(core, doom.as_ref().is_some_and(HostFailure::is_due))?;
        doom.as_mut().map_or(Ok(()), |doom| doom.work(core))?;
        change.work(&lab, core)?;
        kill.as_mut().map_or(Ok(()), |kill| kill.work(&lab, core, database.as_mut()))?;
        killers.iter_mut().flatten().try_for_each(|killer| killer.work(core))?;
        migrator.as_mut().map_or(Ok(()), |migrator| migrator.work(core))
    };
    let emulated = emulator::run_with(&lab, &mut core, &emulator_options(args), &interrupt, &mut meanwhile)?;
    let after = lab.data_network_counters()?;
    if args.datapath != Datapath::Sockets {
        check_fast(&text(args.datapath), after.rx_packets - before.rx_packets)?;
    }
    let (gone, slices) = (check_gone(&core, args), core.slices()?);
    let user_plane = taken_over(&core, killers[1].as_ref().map_or(0, |killer| killer.kills))?;
    let (relocated, carried, asked) = (core.completed_relocations()?, core.session_bytes()?, core.state_operations()?);
    let served = procedures.total(&core)?;
    core.stop()?;
    drop(database);
    second.map(second_upf::stop).transpose()?;
    if let (Some(capture), Some(path)) = (capture, &args.pcap) {
        let written = capture.finish()?;
        eprintln!("demo: {} packets in {}, {} lost", written.packets, path.display(), written.lost);
    }

    let mut report = Report::new(args.ues, &args.scenario, &emulated, before, after);
    let kills = killers.each_ref().map(|killer| killer.as_ref().map(|killer| killer.kills));
    [report.kills, report.data_kills, report.shard_kills] = kills.map(Option::unwrap_or_default);
    (report.data_takeovers, report.packets_died) = (user_plane.takeovers, user_plane.packets_died);
    report.longest_takeover_us = user_plane.longest_takeover_us;
    (report.hosts, report.shards, report.state_operations) = (most, args.shards.unwrap_or(0).into(), asked);
    report.failover_ms = kill.as_ref().and_then(|kill| kill.vacancy).map(|time| time.as_millis() as u64);
    report.failed_hosts = doom.as_ref().map_or(0, |doom| doom.failed) + kill.as_ref().map_or(0, sba::KillPlan::amfs);
    (report.served_by_owner, report.served_by_replica) = (served.by_owner, served.by_replica);
    report.migrations = match target {
        MigrationTarget::Slices => migrator.as_ref().map_or(0, |migrator| migrator.migrations),
        MigrationTarget::Upfs => relocated,
    };
    println!("{report}");
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &report)?;
        file.write_all(b"\n")?;
    }
    if report.data_takeovers < report.data_kills {
        let (kills, takeovers) = (report.data_kills, report.data_takeovers);
        return Err(Failure(format!("{kills} data workers were killed, and only {takeovers} taken over from")));
    }
    if let Some(idle) = report.hosts.iter().position(|ues| *ues == 0).filter(|_| report.failed_hosts == 0) {
        return Err(Failure(format!("host {idle} has never had a UE: they are not spread")));
    }
    if migrator.is_some() {
        check_moved(&report, &slices)?;
    }
    if target == MigrationTarget::Upfs {
        let seen = emulated.result.user_plane;
        check_counted(carried, [seen.up_octets, seen.down_octets], args.scenario == report::FULL)?;
    }
    let none = kills.contains(&Some(0)) || kill.is_some_and(|kill| !kill.is_done());
    both((args, report.lost), verdict(&report, &emulated.result.complaints(), none), gone)
}

/// Returns the kills of NF workers, data workers and shards.
fn killers(args: &Args) -> [Option<WorkerKiller>; 3] {
    let nf_workers = args.kill_nf.map(WorkerKiller::nf_workers);
    [nf_workers, args.kill_data.map(WorkerKiller::data_workers), args.kill_shard.map(WorkerKiller::shards)]
}

/// Combines the results of the UEs (`done`) and of the remaining sessions (`gone`). Prints a reason
/// if a loss is inherent in the mode.
fn both((args, lost): (&Args, u64), done: Result<(), Failure>, gone: Result<(), Failure>) -> Result<(), Failure> {
    let reason = args.kill.and_then(|victim| args.write.loses_with(victim)).filter(|_| lost > 0 || gone.is_err());
    reason.iter().for_each(|reason| eprintln!("demo: {reason}"));
    match (done, gone) {
        (Err(failure), Err(Failure(reason))) => {
            eprintln!("demo: {reason}");
            Err(failure)
        }
        (done, gone) => done.and(gone),
    }
}

/// Returns an error if options exclude each other.
fn check(args: &Args) -> Result<(), Failure> {
    if args.upfs > 1 && args.datapath != Datapath::Sockets {
        return Err(Failure("--upfs 2 needs --datapath sockets: two programs would take each other's frames".into()));
    }
    if args.kill == Some(sba::KillTarget::Amf) && args.persist == sba::PersistMode::Procedure {
        let reason = "a procedure that is under way is lost with the AMF";
        return Err(Failure(format!("--kill amf needs --persist transaction: {reason}")));
    }
    let shares = args.scope != sba::Scope::Function;
    if shares && (args.piggyback || args.persist == sba::PersistMode::Procedure) {
        let reason = "functions that share a record commit each transaction there";
        return Err(Failure(format!("--scope goes with neither --piggyback nor --persist procedure: {reason}")));
    }
    if args.state == Some(sba::StateBackend::Shm) && (shares || args.persist == sba::PersistMode::Procedure) {
        let reason = "shared memory has each transaction, and each function's records by themselves";
        return Err(Failure(format!("--persist procedure and --scope are of a database: {reason}")));
    }
    if args.write == sba::WriteMode::NonBlocking
        && (args.state == Some(sba::StateBackend::Shm)
            || args.piggyback
            || shares
            || args.persist == sba::PersistMode::Procedure)
    {
        let reason = "--write non-blocking needs a commit at each transaction and SM contexts at the SMF";
        return Err(Failure(format!(
            "{reason}: remove --persist, --scope and --piggyback, and name a database by --state"
        )));
    }
    args.state.map_or(Ok(()), |state| state.check(args.kill))
}

/// Returns an error if a demo with these options has no eNBs.
fn check_rat(args: &Args) -> Result<(), Failure> {
    let reason = match args.rat {
        Rat::Nr | Rat::Eps if args.movers() > 0 => "--movers needs --rat both",
        Rat::Nr => return Ok(()),
        _ if args.chain.is_some() => "--chain needs --rat nr: the SBA mode has no MME",
        _ => return Ok(()),
    };
    Err(Failure(reason.into()))
}

/// Returns an error unless every UE completed all steps and the requested kills happened.
fn verdict(report: &Report, complaints: &[String], none_killed: bool) -> Result<(), Failure> {
    if report.complete() {
        let reason = "nothing was killed: the run was over before, or there was none";
        return if none_killed { Err(Failure(reason.into())) } else { Ok(()) };
    }
    for complaint in complaints {
        eprintln!("demo: {complaint}");
    }
    Err(Failure("not every UE succeeded: see the table".into()))
}

/// Returns the options of the core.
fn core_options(args: &Args, lab: &Lab, target: MigrationTarget) -> Result<CoreOptions, Failure> {
    let ciphering = args.ciphering.unwrap_or(if args.pcap.is_some() { Ciphering::Nea0 } else { Ciphering::Nea2 });
    let options = match (target, args.migrate) {
        (MigrationTarget::Upfs, _) => second_upf::core_options(),
        (MigrationTarget::Slices, Some(_)) => CoreOptions { slices: migrate::slices(), ..CoreOptions::default() },
        (MigrationTarget::Slices, None) => CoreOptions::default(),
    };
    let state = args.state.map_or(String::new(), |state| state.tables(args.persist, args.scope, args.write));
    let carry = if args.piggyback { "carry = \"piggyback\"\n" } else { "" };
    let answer = if args.implied { "answer = \"implied\"\n" } else { "" };
    Ok(CoreOptions {
        subscribers: args.ues.into(),
        records: RECORDS
            .iter()
            .find(|(name, _)| *name == args.scenario)
            .map_or(options.records, |(_, records)| *records),
        ciphering: vec![text(ciphering).to_uppercase()],
        hosts: args.hosts.unwrap_or(0).into(),
        shards: args.shards.unwrap_or(0),
        sba: args.chain == Some(Chain::Sba),
        amfs: args.amfs(),
        sbi: SbiOptions { encoding: args.sbi.into(), secured: args.tls },
        tables: datapath(args, lab)?
            + &s1_table(args)
            + &cluster::tables(args.hosts.unwrap_or(0).into(), args.replication, args.serve)
            + &sba::with_axes(state, &format!("{carry}{answer}"))
            + if args.kill.is_some() || args.is_slow() { UNSHED } else { "" }
            + if args.pcap.is_some() { N4_ON_THE_WIRE } else { "" }
            + &options.tables,
        ..options
    })
}

/// Returns the table of the endpoint for eNBs, if the demo has them.
fn s1_table(args: &Args) -> String {
    if args.rat == Rat::Nr { String::new() } else { crate::options::s1_table(CORE) }
}

/// Returns the number of RAN nodes.
fn ran_nodes(args: &Args) -> u32 {
    if args.rat == Rat::Both { 2 * args.gnbs } else { args.gnbs }
}

/// Time from the last registration to a host fault. UEs resume from idle then.
const IN_THE_MIDDLE: Duration = Duration::from_millis(700);

/// Interval between counts of UEs per host.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// Updates the largest number of simultaneous UEs of each host.
fn spread(core: &Core, most: &mut Vec<u64>) -> Result<(), Failure> {
    let now = core.registered_by_host()?;
    most.resize(now.len(), 0);
    most.iter_mut().zip(now).for_each(|(most, now)| *most = (*most).max(now as u64));
    Ok(())
}

/// Returns the user-plane counters when `killed` data workers have been taken over, or after 2 s.
/// The last kill may be very recent.
fn taken_over(core: &Core, killed: u64) -> Result<UpfStatus, Failure> {
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let user_plane = core.user_plane()?;
        if user_plane.takeovers >= killed || Instant::now() > end {
            return Ok(user_plane);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns an error if, in SBA mode, the SMF still has sessions after all UEs have deregistered.
/// The last release may be in progress.
fn check_gone(core: &Core, args: &Args) -> Result<(), Failure> {
    if args.chain.is_none() {
        return Ok(());
    }
    let all_left = args.scenario == report::FULL;
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        match core.sessions_at_smf()? {
            left if all_left && left > 0 && Instant::now() > end => {
                return Err(Failure(format!("the UEs have left or given up, and the SMF has {left} sessions")));
            }
            left if all_left && left > 0 => std::thread::sleep(Duration::from_millis(10)),
            _ => return Ok(()),
        }
    }
}

/// Returns the configuration of the driver, and prepares the lab for it.
fn datapath(args: &Args, lab: &Lab) -> Result<String, Failure> {
    let placement = if args.kill_data.is_some() { "processes" } else { "threads" };
    let mut table = format!("[datapath]\nplacement = {placement:?}\n");
    match args.datapath {
        Datapath::Sockets => {}
        driver @ (Datapath::Xdp | Datapath::AfPacket | Datapath::AfXdp) => {
            lab.prepare_xdp()?;
            let driver = text(driver);
            table += &format!("driver = {driver:?}\ninterfaces = [{N2:?}, {N6:?}]\n");
        }
    }
    Ok(table)
}

/// Returns an error unless users were migrated, each slice handled packets, and no packet was lost.
fn check_moved(report: &Report, slices: &SlicesStatus) -> Result<(), Failure> {
    let idle = slices.slices.iter().find(|slice| slice.workers.iter().all(|worker| worker.uplink_packets == 0));
    if let Some(idle) = idle {
        return Err(Failure(format!("slice {} has handled no packet: nobody was moved to it in time", idle.name)));
    }
    // Packets lost with killed data workers are not lost by migrations.
    match (report.migrations, report.lost_packets.saturating_sub(report.packets_died)) {
        (0, _) => Err(Failure("nobody was moved: the run was over before".into())),
        (_, 0) => Ok(()),
        (_, lost) => Err(Failure(format!("{lost} packets of UEs were lost or late, and sent again"))),
    }
}

/// Returns an error unless, after all sessions have ended, the UPFs counted what the UEs sent and
/// received.
fn check_counted(counted: [u64; 2], seen: [u64; 2], ended: bool) -> Result<(), Failure> {
    match counted == seen || !ended {
        true => Ok(()),
        false => Err(Failure(format!(
            "the UPFs report {} octets uplink and {} downlink, the UEs have sent {} and got {}",
            counted[0], counted[1], seen[0], seen[1]
        ))),
    }
}

/// Returns an error unless most packets bypassed the TUN device. The driver passes the first
/// packets of a UE to it while tunnel or next hop are unknown. `packets` is the number that reached
/// the data network; equally many returned.
fn check_fast(driver: &str, packets: u64) -> Result<(), Failure> {
    let tun = interface_counters(&UpfConfig::default().tun)?;
    let slow = tun.rx_packets + tun.tx_packets;
    eprintln!("demo: {driver} left {slow} of {} packets to the sockets", 2 * packets);
    match slow < packets {
        true => Ok(()),
        false => {
            Err(Failure(format!("{driver} left most packets to the sockets, where only the first of a UE belong")))
        }
    }
}

fn emulator_options(args: &Args) -> EmulatorOptions {
    let mut more: Vec<String> = match (args.upfs > 1, args.kill.is_some() || args.is_slow()) {
        // Enough echoes that most sessions are relocated while they are active.
        (true, _) => ["--echoes", "400"].map(str::to_owned).to_vec(),
        // A session waits for the process that takes over, or for the election of a database
        // master. Its packets may be late.
        (false, true) => PATIENT.map(str::to_owned).to_vec(),
        (false, false) => vec![],
    };
    more.extend(["--rat".to_owned(), text(args.rat), "--movers".to_owned(), args.movers().to_string()]);
    EmulatorOptions {
        gnbs: args.gnbs,
        ues: args.ues,
        load: Load::Rate(args.rate),
        scenario: args.scenario.clone(),
        // The first UEs stay idle until the last ones have registered, so that all UEs are present
        // at once.
        idle: Duration::from_millis(500) + Duration::from_secs(1) * args.ues / args.rate,
        // Memory is not measured with several hosts.
        watch_memory: !args.has_several(),
        quiet: false,
        more,
        // Far above the usual duration; ends only a run that hangs.
        limit: Duration::from_secs(120 + u64::from(args.ues / args.rate.min(100))),
        ..EmulatorOptions::default()
    }
}
