//! `--change-subscribers`: the records of all subscribers are replaced while their UEs send
//! packets.
//!
//! `vireo subscriber import --replace` gives each subscriber another Session-AMBR. Every session
//! gets it within [`LIMIT`], no packet is lost, and the kernel has seen each of them.

use super::args::{Args, text};
use super::migrate::MigrationTarget;
use super::{core_options, ran_nodes};
use crate::core::Core;
use crate::emulator::{Emulator, EmulatorOptions, EmulatorResult, Load};
use crate::files::{DATABASE, create};
use crate::netns::InterfaceCounters;
use crate::options::{CoreOptions, UE_NETWORKS};
use crate::process::Process;
use crate::{Interrupt, Lab, provision};
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_subscribers::format::{Keys, write_json};

/// Time in which every session has the new terms. An unoptimised core needs almost all of it on two
/// processors, where tests run beside it.
const LIMIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 15 } else { 5 });
/// Time with packets before and after the change.
const MARGIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Paths in the lab's own `/tmp`.
const MIX: &str = "/tmp/changes.toml";
const RECORDS: &str = "/tmp/changed.json";
/// Packets of all UEs in a second. More would measure the emulator.
const PACKETS: u32 = 1_000;

/// Runs the demo.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let lab = Lab::build(&UE_NETWORKS)?;
    let interrupt = Interrupt::listen()?;
    let options = core_options(args, &lab, MigrationTarget::Slices)?;
    let mut core = Core::start(&lab, &options, create(Path::new("/tmp/core.log"))?, &interrupt)?;
    core.wait_for_upfs(&interrupt)?;
    eprintln!("demo: the core is ready; {} UEs on {} RAN nodes register", args.ues, ran_nodes(args));
    let before = lab.data_network_counters()?;
    std::fs::write(MIX, mix(args.ues))?;
    let mut emulator = Emulator::start(&lab, &emulator_options(args))?;
    let took = change(args, &options, &mut core, &mut emulator, &interrupt)?;
    emulator.end_load()?;
    while !emulator.has_ended(&mut core, &interrupt)? {
        std::thread::sleep(LOOK_EVERY);
    }
    let result = emulator.result()?;
    let after = lab.data_network_counters()?;
    core.stop()?;
    verdict(args, took, &result, (before, after))
}

/// Has all UEs send packets, and changes their subscribers. Returns the time that the change took.
fn change(
    args: &Args,
    options: &CoreOptions,
    core: &mut Core,
    emulator: &mut Emulator,
    interrupt: &Interrupt,
) -> Result<Duration, Failure> {
    let ues = u64::from(args.ues);
    let mut wait_for = |core: &mut Core, is_so: &dyn Fn(&Core) -> Result<bool, Failure>| loop {
        if emulator.has_ended(core, interrupt)? {
            return Err(Failure("the UEs were done before their subscribers changed; see above".into()));
        }
        if is_so(core)? {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    };
    wait_for(core, &|core| Ok(core.counts()?.sessions as u64 >= ues))?;
    let settled = Instant::now() + MARGIN;
    wait_for(core, &|_| Ok(Instant::now() >= settled))?;
    let mut changed = provision::subscribers(options)?;
    for network in changed.iter_mut().flat_map(|s| &mut s.subscription.slices).flat_map(|slice| &mut slice.dnns) {
        (network.ambr.uplink_bps, network.ambr.downlink_bps) = (500_000_000, 700_000_000);
    }
    let mut changed = changed.into_iter();
    let records = BufWriter::new(create(Path::new(RECORDS))?);
    write_json(records, Keys::With, &mut || changed.next())?;
    let began = Instant::now();
    let import = ["subscriber", "import", RECORDS, "--replace", "--database", DATABASE];
    let done = Process::this_program().args(import).status()?;
    if !done.success() {
        return Err(Failure(format!("vireo subscriber import ended with {done}")));
    }
    let imported = began.elapsed();
    let give_up = began + 2 * LIMIT;
    wait_for(core, &|core| Ok(core.modified_sessions()? >= ues || Instant::now() > give_up))?;
    let (took, modified) = (began.elapsed(), core.modified_sessions()?);
    println!("  subscribers changed    {ues}, in {:.2} s", imported.as_secs_f64());
    println!("  sessions modified      {modified}, after {:.2} s", took.as_secs_f64());
    let rest = Instant::now() + MARGIN;
    wait_for(core, &|_| Ok(Instant::now() >= rest))?;
    Ok(took)
}

/// Prints the results. Returns an error if a session was not modified in time or a packet was lost.
fn verdict(
    args: &Args,
    took: Duration,
    result: &EmulatorResult,
    (before, after): (InterfaceCounters, InterfaceCounters),
) -> Result<(), Failure> {
    let packets = result.user_plane;
    let (out, back) = (after.rx_packets - before.rx_packets, after.tx_packets - before.tx_packets);
    println!("  changes at RAN nodes   {}", packets.qos_modified);
    println!("  packets of UEs         {}, answered {}", packets.echoes, packets.echoes_answered);
    println!("  packets on N6          {out} out, {back} back (kernel)");
    for complaint in result.complaints() {
        eprintln!("demo: {complaint}");
    }
    let ues = u64::from(args.ues);
    let is_witnessed = out >= packets.echoes && back >= packets.echoes;
    let lost = packets.echoes - packets.echoes_answered + packets.resent + packets.echoes_lost;
    let is_good = result.lost == 0 && result.violations.is_empty() && packets.qos_modified == ues;
    match (took <= LIMIT, lost == 0 && packets.echoes > 0) {
        (true, true) if is_good && is_witnessed => Ok(()),
        (false, _) => Err(Failure(format!("the sessions had the new terms after {took:.1?}, not within {LIMIT:?}"))),
        (_, false) => Err(Failure(format!("{lost} packets were lost"))),
        _ => Err(Failure("not every session was modified, or packets are missing in the kernel's count".into())),
    }
}

/// Returns the device profile: each UE sends packets without a pause. A packet without an answer
/// counts as lost.
fn mix(ues: u32) -> String {
    let every = (1_000 * ues / PACKETS).max(250);
    let head = "[[profile]]\nname = \"streaming\"\nshare = 1\nstay-connected = true\nechoes = 1";
    format!("{head}\nprocedures.data = {{ every = \"{every}ms\" }}\n")
}

fn emulator_options(args: &Args) -> EmulatorOptions {
    let limit = Duration::from_secs(120) + Duration::from_millis(20) * args.ues;
    let seconds = format!("{}s", limit.as_secs());
    let load = ["--mix", MIX, "--echo-tries", "1", "--duration", &seconds, "--rat", &text(args.rat)];
    EmulatorOptions {
        gnbs: args.gnbs,
        ues: args.ues,
        load: Load::Window(20),
        more: load.map(str::to_owned).to_vec(),
        limit,
        ..EmulatorOptions::default()
    }
}
