//! `vireo demo`: core, RAN with UEs and data network in namespaces of one machine.
//!
//! The UEs register, establish sessions, exchange packets with the data network and deregister. The
//! demo succeeds only if every UE completes all steps.

mod churn;
mod cluster;
mod events;
mod kill;
mod migrate;
mod report;
mod sba;
mod second_upf;

use crate::cli::Failure;
use crate::lab::capture::Capture;
use crate::lab::core::{Core, CoreOptions, UE_NETWORKS, UNSHED};
use crate::lab::emulator::{self, EmulatorOptions, Load, PATIENT};
use crate::lab::members::HostFault;
use crate::lab::netns::interface_counters;
use crate::lab::{Interrupt, Lab, N2, N6, create, has_ipv6};
use clap::ValueEnum;
use cluster::{HostChange, HostFailure, Replication};
use kill::{Killer, Rate};
use migrate::{Between, Migrator};
use report::Report;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vireo_ops::api::{SlicesStatus, UpfStatus};
use vireo_upf::UpfConfig;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Emulate N UEs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    ues: u32,
    /// Spread the UEs over N gNBs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    gnbs: u32,
    /// Start R registrations per second
    #[arg(long, value_name = "R", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Select the radio access
    #[arg(long, value_enum, default_value_t = Rat::Nr)]
    rat: Rat,
    /// Prefer this NAS ciphering [default: nea2; with --pcap readable nea0]
    #[arg(long, value_enum)]
    ciphering: Option<Ciphering>,
    /// Run this scenario in each UE (see `vireo emulate --list`)
    #[arg(long, value_name = "S", default_value = report::FULL)]
    scenario: String,
    /// Select the driver of user packets; all but sockets need root
    #[arg(long, value_enum, value_name = "D", default_value_t = Datapath::Sockets)]
    datapath: Datapath,
    /// Kill worker processes at RATE while UEs are active, e.g. 5/s or 30/m
    #[arg(long, value_name = "R/s")]
    kill_nf: Option<Rate>,
    /// Kill data worker processes at RATE while UEs are active
    #[arg(long, value_name = "R/s")]
    kill_data: Option<Rate>,
    /// Migrate users at RATE between slices, or UPFs with --upfs 2
    #[arg(long, value_name = "R/s")]
    migrate: Option<Rate>,
    /// Spread sessions over N UPFs; the second one is its own process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    upfs: u8,
    /// Run AMF, SMF and UPF as separate processes over the SBI
    #[arg(long, value_enum, value_name = "CHAIN")]
    #[arg(conflicts_with_all = ["clusters", "kill_data", "migrate", "upfs"])]
    chain: Option<Chain>,
    /// Keep state in this backend, with --chain [default: process memory]
    #[arg(long, value_enum, requires = "chain")]
    state: Option<sba::StateBackend>,
    /// Load and commit at these points, with --state
    #[arg(long, value_enum, requires = "state", default_value_t = sba::PersistMode::Transaction)]
    persist: sba::PersistMode,
    /// Share a UE's record among these functions, with --state
    ///
    /// One of the functions commits for all of them.
    #[arg(long, value_enum, requires = "state", default_value_t = sba::Scope::Function)]
    scope: sba::Scope,
    /// Make database commits wait for this, with --state
    #[arg(long, value_enum, requires = "state", default_value_t = sba::WriteMode::Blocking)]
    write: sba::WriteMode,
    /// Piggyback SM contexts on SMF responses and AMF requests, with --chain
    #[arg(long, requires = "chain")]
    piggyback: bool,
    /// Accept the first N1N2 transfer as create response, with --chain
    #[arg(long, requires = "chain")]
    implied: bool,
    /// Encode SBI messages in this format, with --chain
    #[arg(long, value_enum, requires = "chain", default_value_t = sba::Sbi::Json)]
    sbi: sba::Sbi,
    /// Use mutual TLS between AMF and SMF, with --chain
    ///
    /// The demo creates the certificates.
    #[arg(long, requires = "chain")]
    tls: bool,
    /// Kill this process in mid-run, with --state
    ///
    /// SMF and UPF restart at once. The AMF is one of two AMFs behind a balancer. The master is one
    /// of the Redis Cluster.
    #[arg(long, value_enum, requires = "state")]
    kill: Option<sba::KillTarget>,
    /// Run a cluster of a balancer and N hosts
    #[arg(long, value_name = "N", group = "clusters", value_parser = clap::value_parser!(u16).range(1..=16))]
    #[arg(conflicts_with_all = ["kill_nf", "migrate", "upfs"])]
    hosts: Option<u16>,
    /// Run a cluster through faults and changes, without losing a UE
    ///
    /// The cluster has etcd, a controller, two balancers and three hosts. Hosts are killed,
    /// stopped, isolated, added and drained, and a balancer and the controller are killed and
    /// restarted, while UEs are active. --rate is the rate of service requests.
    #[arg(long, group = "clusters", conflicts_with_all = ["kill_nf", "kill_data", "migrate", "upfs", "datapath", "scenario", "pcap"])]
    cluster: bool,
    /// Run these events, in order, with --cluster [default: all, and adds]
    #[arg(long, value_enum, value_name = "EVENTS", value_delimiter = ',', requires = "cluster")]
    events: Vec<events::Event>,
    /// Run a cluster under traffic while N hosts join and N are killed
    ///
    /// The cluster has a balancer and three hosts. Joins and kills alternate.
    #[arg(long, value_name = "N", group = "clusters", value_parser = clap::value_parser!(u8).range(1..=200))]
    #[arg(conflicts_with_all = ["kill_nf", "kill_data", "migrate", "upfs", "datapath", "scenario", "pcap"])]
    churn: Option<u8>,
    /// Select the commits that hosts copy to each other
    #[arg(long, value_enum, default_value_t = Replication::Hot, requires = "clusters")]
    replication: Replication,
    /// Fail the host with the most UEs while UEs are active
    #[arg(long, value_enum, requires = "hosts")]
    fail_host: Option<HostFault>,
    /// Fail TIME after the first registration [default: in mid-load]
    ///
    /// By default the host fails when all UEs have registered and resumed from idle.
    #[arg(long, value_name = "TIME", requires = "fail_host", value_parser = humantime::parse_duration)]
    fail_after: Option<Duration>,
    /// Add a host TIME after the first registration
    #[arg(long, value_name = "TIME", requires = "hosts", value_parser = humantime::parse_duration)]
    join_after: Option<Duration>,
    /// Remove the host with the most UEs TIME after the first registration
    #[arg(long, value_name = "TIME", requires = "hosts", value_parser = humantime::parse_duration)]
    leave_after: Option<Duration>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Capture N2, N3 and N4 to a pcap file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write the core's log to FILE
    #[arg(long, value_name = "FILE")]
    core_log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rat {
    /// Use NR (5G)
    Nr,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ciphering {
    /// Use no ciphering
    Nea0,
    /// Use SNOW 3G
    Nea1,
    /// Use AES
    Nea2,
    /// Use ZUC
    Nea3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Datapath {
    /// Use UDP sockets and a TUN device
    Sockets,
    /// Use an XDP program in the kernel
    Xdp,
    /// Use AF_PACKET rings
    AfPacket,
    /// Use AF_XDP
    AfXdp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chain {
    /// Use HTTP/2 between AMF and SMF (TS 29.502, TS 29.518), PFCP to the UPF
    Sba,
}

/// Configuration that makes N4 messages visible to a capture.
const N4_ON_THE_WIRE: &str = "[n4]\ndirect = false\n";

/// Returns the name of a value on the command line.
fn text(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

impl Args {
    /// Returns the number of AMFs behind a balancer; 0 means one AMF that terminates N2.
    fn amfs(&self) -> u8 {
        self.kill.map_or(0, sba::KillTarget::amfs)
    }

    /// Returns true if UEs may wait longer for the SBA database than an overloaded core makes them
    /// wait.
    fn is_slow(&self) -> bool {
        let dies = self.kill_nf.is_some() && self.state.is_some_and(|state| state != sba::StateBackend::Shm);
        dies || self.state == Some(sba::StateBackend::Mongodb) || self.kill == Some(sba::KillTarget::Master)
    }

    /// Returns true if UEs are spread over several hosts or AMFs.
    fn has_several(&self) -> bool {
        self.hosts.is_some() || self.amfs() > 0
    }
}

/// Runs `vireo demo`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Rat::Nr = args.rat;
    if args.cluster || args.churn.is_some() {
        return events::run(args);
    }
    check(args)?;
    // Opens the files before the namespaces hide the real `/tmp`, and before a wrong path costs a
    // run.
    let mut json = args.json.as_deref().map(create).transpose()?;
    let pcap = args.pcap.as_deref().map(create).transpose()?;
    let log = args.core_log.as_deref().map(create).transpose()?;

    let lab = Lab::build(&UE_NETWORKS)?;
    let interrupt = Interrupt::listen()?;
    eprintln!("demo: namespaces for core, RAN and data network are up");
    // Starts before the core, so that the capture includes the PFCP association.
    let capture = pcap.map(|file| Capture::start(file, &[N2, "lo"])).transpose()?;
    let log = log.map_or_else(|| create(Path::new("/tmp/core.log")), Ok)?;
    let between = if args.upfs > 1 { Between::Upfs } else { Between::Slices };
    let options = core_options(args, &lab, between)?;
    let second = (args.upfs > 1).then(|| second_upf::start(&lab, &networks())).transpose()?;
    let mut database = args.state.map(|state| state.start(&lab)).transpose()?.flatten();
    let mut core = Core::start(&lab, &options, log, &interrupt)?;
    core.wait_for_upfs(&interrupt)?;
    eprintln!("demo: the core is ready; {} UEs on {} gNBs, {} per second", args.ues, args.gnbs, args.rate);

    let before = lab.data_network_counters()?;
    let mut killers = [args.kill_nf.map(Killer::nf_workers), args.kill_data.map(Killer::data_workers)];
    let mut migrator = args.migrate.map(|rate| Migrator::new(rate, between));
    // All UEs have registered by then, and the number of active UEs is near its maximum.
    let busy = Duration::from_secs_f64(f64::from(args.ues) / f64::from(args.rate));
    let after = args.fail_after.unwrap_or(busy + IN_THE_MIDDLE);
    let mut doom = args.fail_host.map(|fate| HostFailure::new(fate, after));
    // About half of the UEs have registered by then.
    let mut kill = args.kill.map(|victim| sba::KillPlan::new(victim, busy / 2));
    let mut change = HostChange::new(args.join_after, args.leave_after);
    let (mut most, mut counted) = (Vec::new(), Instant::now());
    let mut meanwhile = |core: &mut Core| {
        if args.has_several() && counted.elapsed() > COUNT_EVERY {
            counted = Instant::now();
            spread(core, &mut most)?;
        }
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
    let (relocated, carried, asked) = (core.relocated()?, core.carried()?, core.state_operations()?);
    core.stop()?;
    drop(database);
    second.map(second_upf::stop).transpose()?;
    if let (Some(capture), Some(path)) = (capture, &args.pcap) {
        let written = capture.finish()?;
        eprintln!("demo: {} packets in {}, {} lost", written.packets, path.display(), written.lost);
    }

    let mut report = Report::new(args.ues, &args.scenario, &emulated, before, after);
    let [kills, data_kills] = killers.each_ref().map(|killer| killer.as_ref().map(|killer| killer.kills));
    (report.kills, report.data_kills) = (kills.unwrap_or(0), data_kills.unwrap_or(0));
    (report.data_takeovers, report.packets_died) = (user_plane.takeovers, user_plane.packets_died);
    report.longest_takeover_us = user_plane.longest_takeover_us;
    (report.hosts, report.state_operations) = (most, asked);
    report.failover_ms = kill.as_ref().and_then(|kill| kill.vacancy).map(|time| time.as_millis() as u64);
    report.failed_hosts = doom.as_ref().map_or(0, |doom| doom.failed) + kill.as_ref().map_or(0, sba::KillPlan::amfs);
    report.migrations = match between {
        Between::Slices => migrator.as_ref().map_or(0, |migrator| migrator.migrations),
        Between::Upfs => relocated,
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
    if between == Between::Upfs {
        let seen = emulated.result.user_plane;
        check_counted(carried, [seen.up_octets, seen.down_octets], args.scenario == report::FULL)?;
    }
    let none = [kills, data_kills].contains(&Some(0)) || kill.is_some_and(|kill| !kill.is_done());
    both((args, report.lost), verdict(&report, &emulated.result.complaints(), none), gone)
}

/// Combines the results of the UEs (`done`) and of the remaining sessions (`gone`). Prints a reason
/// if a loss is inherent in the mode.
fn both((args, lost): (&Args, u64), done: Result<(), Failure>, gone: Result<(), Failure>) -> Result<(), Failure> {
    let why = args.kill.and_then(|victim| args.write.loses_with(victim)).filter(|_| lost > 0 || gone.is_err());
    why.iter().for_each(|why| eprintln!("demo: {why}"));
    match (done, gone) {
        (Err(failure), Err(Failure(why))) => {
            eprintln!("demo: {why}");
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
        let why = "a procedure that is under way is lost with the AMF";
        return Err(Failure(format!("--kill amf needs --persist transaction: {why}")));
    }
    let shares = args.scope != sba::Scope::Function;
    if shares && (args.piggyback || args.persist == sba::PersistMode::Procedure) {
        let why = "functions that share a record commit each transaction there";
        return Err(Failure(format!("--scope goes with neither --piggyback nor --persist procedure: {why}")));
    }
    if args.state == Some(sba::StateBackend::Shm) && (shares || args.persist == sba::PersistMode::Procedure) {
        let why = "shared memory has each transaction, and each function's records by themselves";
        return Err(Failure(format!("--persist procedure and --scope are of a database: {why}")));
    }
    if args.write == sba::WriteMode::NonBlocking
        && (args.state == Some(sba::StateBackend::Shm)
            || args.piggyback
            || shares
            || args.persist == sba::PersistMode::Procedure)
    {
        let why = "--write non-blocking is of each transaction, and of SM contexts that the SMF has";
        return Err(Failure(format!(
            "{why}: remove --persist, --scope and --piggyback, and name a database by --state"
        )));
    }
    args.state.map_or(Ok(()), |state| state.check(args.kill))
}

/// Returns an error unless every UE completed all steps and the requested kills happened.
fn verdict(report: &Report, complaints: &[String], none_killed: bool) -> Result<(), Failure> {
    if report.complete() {
        let why = "nothing was killed: the run was over before, or there was none";
        return if none_killed { Err(Failure(why.into())) } else { Ok(()) };
    }
    for complaint in complaints {
        eprintln!("demo: {complaint}");
    }
    Err(Failure("not every UE succeeded: see the table".into()))
}

/// Returns the options of the core.
fn core_options(args: &Args, lab: &Lab, between: Between) -> Result<CoreOptions, Failure> {
    let ciphering = args.ciphering.unwrap_or(if args.pcap.is_some() { Ciphering::Nea0 } else { Ciphering::Nea2 });
    let options = match (between, args.migrate) {
        (Between::Upfs, _) => CoreOptions {
            upf: second_upf::OF_THE_FIRST.into(),
            slices: second_upf::SLICES.into(),
            ..CoreOptions::default()
        },
        (Between::Slices, Some(_)) => CoreOptions { slices: migrate::slices(), ..CoreOptions::default() },
        (Between::Slices, None) => CoreOptions::default(),
    };
    let state = args.state.map_or(String::new(), |state| state.tables(args.persist, args.scope, args.write));
    let carry = if args.piggyback { "carry = \"piggyback\"\n" } else { "" };
    let answer = if args.implied { "answer = \"implied\"\n" } else { "" };
    Ok(CoreOptions {
        subscribers: args.ues.into(),
        ciphering: vec![text(ciphering).to_uppercase()],
        hosts: args.hosts.unwrap_or(0).into(),
        chain: args.chain == Some(Chain::Sba),
        amfs: args.amfs(),
        encoding: args.sbi.into(),
        secured: args.tls,
        tables: datapath(args, lab)?
            + &cluster::tables(args.hosts.unwrap_or(0).into(), args.replication)
            + &sba::with_axes(state, &format!("{carry}{answer}"))
            + if args.kill.is_some() || args.is_slow() { UNSHED } else { "" }
            + if args.pcap.is_some() { N4_ON_THE_WIRE } else { "" }
            + &if args.upfs > 1 { second_upf::table() } else { String::new() },
        ..options
    })
}

/// Returns the UE networks of this machine, IPv4 first.
fn networks() -> Vec<&'static str> {
    UE_NETWORKS.into_iter().filter(|network| has_ipv6() || !network.contains(':')).collect()
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
        more: match (args.upfs > 1, args.kill.is_some() || args.is_slow()) {
            // Enough echoes that most sessions are relocated while they are active.
            (true, _) => ["--echoes", "400"].map(str::to_owned).to_vec(),
            // A session waits for the process that takes over, or for the election of a database
            // master. Its packets may be late.
            (false, true) => PATIENT.map(str::to_owned).to_vec(),
            (false, false) => vec![],
        },
        // Far above the usual duration; ends only a run that hangs.
        limit: Duration::from_secs(120 + u64::from(args.ues / args.rate.min(100))),
        ..EmulatorOptions::default()
    }
}
