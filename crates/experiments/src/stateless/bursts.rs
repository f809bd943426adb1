//! Bursts of PDU sessions in SBA mode, by state mode, with time and CPU cost.

use super::super::context::ExperimentContext;
use super::modes::{Mode, Server};
use super::noise::{Ticks, same_work};
use super::watch::{FUNCTIONS, SocketSample, Watch};
use std::path::Path;
use std::time::Duration;
use vireo_bench::results::Table;
use vireo_config::Failure;
use vireo_lab::core::Core;
use vireo_lab::emulator::{self, EmulatorOptions, EmulatorRun, Load};
use vireo_lab::files::create;
use vireo_lab::mongodb::Mongodb;
use vireo_lab::options::{CoreOptions, UNSHED};
use vireo_lab::process::Process;
use vireo_lab::redis::{OperationCounts, Redis};
use vireo_ops::state::HAS_MONGODB;

/// Time after the emulator's end for the remaining work, such as contexts of disconnected gNBs.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

/// Result of a burst of simultaneous requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Burst {
    /// UEs that register and establish a session at once.
    pub(super) requests: u32,
    /// True if the functions had not served a UE before.
    pub(super) cold: bool,
    /// Mean time of the establishment, from the UE's request to the accept.
    pub(super) mean_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Time of the release that follows.
    pub(super) release_ms: f64,
    /// CPU time of each function per UE, including registration and release.
    pub(super) cpu_us: [f64; 3],
    /// Commands per UE, as reported by the database server.
    pub(super) commands: f64,
    pub(super) octets: f64,
    /// CPU time of the database per UE.
    pub(super) database_us: f64,
    /// Time spent waiting for the database's answers, per UE.
    pub(super) waited_us: f64,
    /// Time of a fixed amount of work just before the burst; `stolen` is the percentage of
    /// processor time given to other guests during it.
    pub(super) same_work_ms: f64,
    pub(super) stolen: f64,
    /// Samples during the burst, if it was watched.
    pub(super) moments: Vec<SocketSample>,
}

/// Runs one repetition: bursts of every size in every mode. Each mode has new functions and a new
/// database. With `watched`, the last burst is sampled.
pub(super) fn round(
    session: &ExperimentContext,
    modes: &[Mode],
    sizes: &[u32],
    watched: bool,
) -> Result<Vec<Vec<Burst>>, Failure> {
    modes.iter().map(|mode| bursts(session, mode, sizes, watched)).collect()
}

/// The functions with their database.
#[derive(Debug)]
pub(super) struct Functions {
    pub(super) core: Core,
    database: Option<Redis>,
    _mongodb: Option<Mongodb>,
    /// Proxy between the UPF and its database.
    _proxy: Option<Process>,
}

impl Functions {
    /// Starts the functions and the database of a mode.
    pub(super) fn start(session: &ExperimentContext, mode: &Mode, subscribers: u32) -> Result<Self, Failure> {
        let start = |server| mode.database == Some(server);
        let mongodb = start(Server::Mongodb).then(|| mongodb(session)).transpose()?;
        let database = start(Server::Redis).then(|| Redis::start(&session.lab, &[])).transpose()?;
        let far = mode.far_ms.map(|ms| Redis::behind_delay(&session.lab, Duration::from_millis(ms))).transpose()?;
        let (database_of_upf, proxy) = far.unzip();
        // MongoDB handles only some hundred operations per second, so overload rejection is
        // disabled.
        let shed = if start(Server::Mongodb) { UNSHED } else { "" };
        let options = CoreOptions {
            database_of_upf,
            subscribers: subscribers.into(),
            tables: format!("{}\n{shed}", mode.tables),
            sba: true,
            ..CoreOptions::default()
        };
        let log = match &session.log {
            Some(log) => log.try_clone()?,
            None => create(Path::new("/tmp/core.log"))?,
        };
        let core = Core::start(&session.lab, &options, log, &session.interrupt)?;
        Ok(Functions { core, database, _mongodb: mongodb, _proxy: proxy })
    }
}

/// Runs the bursts of one mode, after a cold one.
fn bursts(session: &ExperimentContext, mode: &Mode, sizes: &[u32], watched: bool) -> Result<Vec<Burst>, Failure> {
    let first = sizes.first().copied().unwrap_or(1);
    let mut functions = Functions::start(session, mode, first + sizes.iter().sum::<u32>())?;
    let mut done = 0;
    let mut found = Vec::new();
    for (place, size) in std::iter::once(&first).chain(sizes).enumerate() {
        let mut watch = (watched && place == sizes.len()).then(Watch::new);
        let load = Load::Window(*size);
        let mut burst = one(session, &mut functions, (done, *size), load, watch.as_mut())?;
        burst.cold = place == 0;
        burst.moments = watch.map(|watch| watch.moments).unwrap_or_default();
        found.push(burst);
        done += u64::from(*size);
        std::thread::sleep(SETTLE);
        session.interrupt.check()?;
    }
    functions.core.stop()?;
    Ok(found)
}

/// Starts the server with MongoDB's protocol.
fn mongodb(session: &ExperimentContext) -> Result<Mongodb, Failure> {
    if !HAS_MONGODB {
        let remedy = "build it with `cargo build --release -p vireo --features mongodb`";
        return Err(Failure(format!("this program was built without MongoDB's driver: {remedy}")));
    }
    Mongodb::start(&session.lab)
}

/// Runs `requests` UEs from the number `first` on, at once or at a rate.
pub(super) fn one(
    session: &ExperimentContext,
    functions: &mut Functions,
    (first, requests): (u64, u32),
    load: Load,
    watch: Option<&mut Watch>,
) -> Result<Burst, Failure> {
    let Functions { core, database, .. } = functions;
    let database = database.as_ref();
    let spent = |core: &Core| -> Result<([Duration; 3], OperationCounts, Duration), Failure> {
        let asked =
            database.map_or(Ok(OperationCounts::default()), |database| database.operation_counts(&session.lab))?;
        let mut cpu = [Duration::ZERO; 3];
        for (name, process) in core.sba_processes() {
            let place = FUNCTIONS.iter().position(|function| *function == name);
            place.map_or(Ok(()), |place| process.cpu().map(|used| cpu[place] = used))?;
        }
        Ok((cpu, asked, core.state_time()?))
    };
    let same_work_ms = same_work().as_secs_f64() * 1e3;
    let (cpu_before, asked_before, waited_before) = spent(core)?;
    let ticks_before = Ticks::now()?;
    let options = EmulatorOptions {
        ues: requests,
        first,
        load,
        scenario: "sessions".into(),
        limit: Duration::from_secs(120),
        more: vec!["--rounds".into(), "1".into()],
        ..EmulatorOptions::default()
    };
    let mut nobody = |_: &mut Core| Ok(());
    let mut look = watch.map(|watch| move |core: &mut Core| watch.sample(core));
    let meanwhile: &mut dyn FnMut(&mut Core) -> Result<(), Failure> = match &mut look {
        Some(look) => look,
        None => &mut nobody,
    };
    let EmulatorRun { result, .. } = emulator::run_with(&session.lab, core, &options, &session.interrupt, meanwhile)?;
    let stolen = Ticks::now()?.stolen_since(ticks_before);
    let (cpu_after, asked_after, waited_after) = spent(core)?;
    if result.succeeded != u64::from(requests) {
        let reason = result.complaints().join(", ");
        return Err(Failure(format!("{} of {requests} UEs succeeded: {reason}", result.succeeded)));
    }
    let (latency, release) = (result.latency("session"), result.latency("session_release"));
    let each = |value: f64| value / f64::from(requests);
    let used = |place: usize| each(cpu_after[place].saturating_sub(cpu_before[place]).as_secs_f64() * 1e6);
    Ok(Burst {
        requests,
        cold: false,
        mean_ms: latency.mean / 1e3,
        p50_ms: latency.p50 as f64 / 1e3,
        p99_ms: latency.p99 as f64 / 1e3,
        release_ms: release.mean / 1e3,
        cpu_us: [used(0), used(1), used(2)],
        commands: each((asked_after.commands - asked_before.commands) as f64),
        octets: each((asked_after.octets - asked_before.octets) as f64),
        database_us: each((asked_after.cpu.saturating_sub(asked_before.cpu)).as_secs_f64() * 1e6),
        waited_us: each(waited_after.saturating_sub(waited_before).as_secs_f64() * 1e6),
        same_work_ms,
        stolen,
        moments: Vec::new(),
    })
}

/// Returns the table of all measurements.
pub(super) fn table(modes: &[Mode], rounds: &[Vec<Vec<Burst>>]) -> Table {
    let mut table = Table::new(&[
        "run",
        "mode",
        "requests",
        "cold",
        "mean_ms",
        "p50_ms",
        "p99_ms",
        "release_mean_ms",
        "amf_cpu_us",
        "smf_cpu_us",
        "upf_cpu_us",
        "database_commands",
        "database_octets",
        "database_cpu_us",
        "database_time_us",
        "same_work_ms",
        "stolen_percent",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for (mode, bursts) in modes.iter().zip(round) {
            for b in bursts {
                let head = [(run + 1).to_string(), mode.name.into(), b.requests.to_string(), b.cold.to_string()];
                let [amf, smf, upf] = b.cpu_us;
                let values = [
                    b.mean_ms,
                    b.p50_ms,
                    b.p99_ms,
                    b.release_ms,
                    amf,
                    smf,
                    upf,
                    b.commands,
                    b.octets,
                    b.database_us,
                    b.waited_us,
                    b.same_work_ms,
                    b.stolen,
                ];
                table.row(head.into_iter().chain(values.map(|value| value.to_string())));
            }
        }
    }
    table
}

/// Returns the samples of the watched bursts.
pub(super) fn moments(modes: &[Mode], rounds: &[Vec<Vec<Burst>>]) -> Table {
    let mut table = Table::new(&[
        "run",
        "mode",
        "at_s",
        "amf_cpu",
        "smf_cpu",
        "upf_cpu",
        "amf_waiting_octets",
        "smf_waiting_octets",
        "upf_waiting_octets",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for (mode, bursts) in modes.iter().zip(round) {
            for SocketSample { at_s, cpu, waiting } in bursts.iter().flat_map(|burst| &burst.moments) {
                let head = [(run + 1).to_string(), mode.name.into(), at_s.to_string()];
                let rest = cpu.map(|part| part.to_string()).into_iter().chain(waiting.map(|octets| octets.to_string()));
                table.row(head.into_iter().chain(rest));
            }
        }
    }
    table
}
