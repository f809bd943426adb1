//! The view "messages in memory": the real core - balancer, host, worker processes, N4 and UPF - and the emulator in
//! this process, joined by SCTP associations in memory, so that no SCTP stack is in the figures.

use super::cpu::{CpuBreakdown, EMULATOR, Samples};
use super::variants::{UNSHED, Variant};
use crate::cli::Failure;
use crate::config::Config;
use crate::lab::core::{self, CONFIG, CoreOptions, HN_KEYS, plain_metrics};
use crate::lab::workers::Worker;
use crate::run::{Prepared, prepare};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::{Activity, Steady};
use vireo_emulator::scenario::Scenario;
use vireo_emulator::usim::{Concealment, HomeNetworkPublicKey, Keys};
use vireo_emulator::{LAB_K, LAB_OPC, Load, Options, Phase, Procedure, Report, Retry, Subscribers, run_with};
use vireo_node::control::Control;
use vireo_node::metrics::Metrics;
use vireo_node::upf::UpfHandle;
use vireo_sctp::memory::Network;

/// Where the core is in the network in memory.
pub(in crate::bench) const CORE: &str = "127.0.0.1:38412";
const GNBS: u32 = 2;
/// How long UEs stay idle.
const IDLE: Duration = Duration::from_millis(1);
/// UEs under way at once.
pub(super) const WINDOW: u32 = 128;
const SAMPLE_EVERY: Duration = Duration::from_millis(5);
/// Service requests by themselves: the part of the closed loop's rate at which they are sent. The closed loop has a
/// release for each, so this is far below what goes through.
const PACE: f64 = 0.5;
/// Of an open load one in so many may be turned away: a machine that stands still for a moment lets it pile up.
const PARDON: u64 = 20;
/// From the last service request that is due to the first release: all of them are done by then.
const APART: Duration = Duration::from_millis(500);
/// Far more than any core does, in service requests a second.
const BURST: f64 = 500_000.0;
const UP_WITHIN: Duration = Duration::from_secs(30);
const REST_WITHIN: Duration = Duration::from_secs(30);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// UEs that register.
    pub(super) ues: u32,
    /// Service requests in the closed loop.
    pub(super) requests: u32,
    /// Service requests by themselves, at a rate.
    pub(super) alone: u32,
    /// The same, as fast as they are done.
    pub(super) burst: u32,
    /// From the last of these that is due to the first release.
    pub(super) burst_apart: Duration,
}

/// What one configuration came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// CPU for each registration with PDU session.
    pub(super) registration: CpuBreakdown,
    pub(super) registrations_per_s: f64,
    /// CPU for each service request and the release that follows it.
    pub(super) cycle: CpuBreakdown,
    pub(super) cycles_per_s: f64,
    /// CPU for each service request with its N4 exchange, as fast as the core does them.
    pub(super) service: CpuBreakdown,
    /// The same at a rate: threads sleep and wake more often.
    pub(super) paced: CpuBreakdown,
    /// Latency at that rate, in microseconds.
    pub(super) service_p50_us: f64,
    pub(super) service_p99_us: f64,
}

/// A core in this process.
pub(super) struct Running {
    control: Control,
    /// Ends after the control plane.
    _upf: Option<Arc<UpfHandle>>,
    metrics: Arc<Metrics>,
    network: Network,
    workers: Vec<Worker>,
}

/// What one run of the emulator came to.
struct Run {
    report: Report,
    cpu: CpuBreakdown,
    samples: Samples<CpuBreakdown>,
}

impl Running {
    /// Starts it with so many subscribers and waits until its workers are there.
    pub(super) fn start(variant: &Variant, subscribers: u32) -> Result<Self, Failure> {
        let tables = variant.tables.into();
        Self::of(CoreOptions { subscribers: subscribers.into(), tables, ..CoreOptions::default() })
    }

    fn of(options: CoreOptions) -> Result<Self, Failure> {
        // Nothing is logged here, and workers have no more to say.
        let tables = format!("{}{UNSHED}\n[log]\nlevel = \"error\"\n", options.tables);
        core::prepare(&CoreOptions { tables, ..options })?;
        let mut config = Config::load(Some(Path::new(CONFIG)))?;
        config.keep_contexts_in(core::RECORDS, core::STATE_KEY)?;
        let Prepared { mut control, store, metrics, upf } = prepare(config)?;
        control.api.listen = None;
        let network = Network::new();
        let at: SocketAddr = CORE.parse()?;
        let listen = vireo_sctp::Config {
            addresses: vec![at.ip()],
            port: at.port(),
            listen: true,
            ..vireo_sctp::Config::default()
        };
        let control = Control::start_on(network.bind(&listen)?, control, store, Arc::clone(&metrics))?;
        let mut running = Running { control, _upf: upf, metrics, network, workers: Vec::new() };
        running.settle()?;
        Ok(running)
    }

    /// Waits until no worker has come for a while.
    fn settle(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + UP_WITHIN;
        let mut since = Instant::now();
        while self.workers.is_empty() || since.elapsed() < Duration::from_millis(300) {
            let workers = Worker::of_pid(std::process::id())?;
            if workers.len() != self.workers.len() {
                (self.workers, since) = (workers, Instant::now());
            }
            if Instant::now() > deadline || self.control.has_failed() {
                return Err(Failure("the core in this process is not ready; the machine may be overloaded".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until the UEs of gNBs that have gone are released: as long as that takes, the core is busy.
    fn rest(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + REST_WITHIN;
        while plain_metrics(&self.metrics.render()).get("vireo_ue_connected") != Some(&0.0) {
            if Instant::now() > deadline {
                return Err(Failure("the core in this process does not release UEs whose gNBs have gone".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // The UPF hears of the last ones a little later.
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    /// Ends it in good order.
    pub(super) fn stop(self) -> Result<(), Failure> {
        self.control.stop().map_err(|e| Failure(format!("the core in this process failed: {e}")))
    }

    /// A run of the emulator in which everything must succeed, but of an open load a little.
    fn emulate(&self, options: &Options) -> Result<Run, Failure> {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut samples = Samples::new();
                while !ended.load(Ordering::Relaxed) {
                    samples.add(CpuBreakdown::read(&self.workers)?);
                    std::thread::sleep(SAMPLE_EVERY);
                }
                Ok::<_, Failure>(samples)
            });
            // Threads without a name of their own have that of their parent, and so the emulator's are known by theirs.
            let emulator = std::thread::Builder::new().name(EMULATOR.into());
            let emulated = emulator.spawn_scoped(scope, || self.run(options))?.join();
            ended.store(true, Ordering::Relaxed);
            let panicked = |_| Failure("a thread of the measurement panicked".into());
            let samples = sampler.join().map_err(panicked)??;
            let (report, cpu) = emulated.map_err(panicked)??;
            let lost = if report.steady.procedures > 0 {
                report.steady.procedures.saturating_sub(report.steady.completed) > report.steady.procedures / PARDON
            } else {
                !report.is_success()
            };
            if lost || !report.violations.is_empty() {
                let complaints: Vec<_> = report.failures.iter().chain(&report.violations).collect();
                let (done, ues) = (report.succeeded, report.ues);
                return Err(Failure(format!("{done} of {ues} UEs succeeded: {complaints:?}")));
            }
            self.rest()?;
            Ok(Run { report, cpu, samples })
        })
    }

    /// On the emulator's thread. The CPU time is from before the gNBs connect until all UEs are where they stay.
    fn run(&self, options: &Options) -> Result<(Report, CpuBreakdown), Failure> {
        let before = CpuBreakdown::read(&self.workers)?;
        let mut used = Err(Failure("the emulator did not come to its end".into()));
        let open = |_| Ok(self.network.bind(&vireo_sctp::Config::default())?);
        let report = run_with(options, &open, &mut |progress| {
            if progress.phase == Phase::Settled {
                used = CpuBreakdown::read(&self.workers).map(|now| now - before);
            }
        })?;
        Ok((report, used?))
    }

    /// Registrations with session by so many UEs: CPU for each, and how many in a second.
    fn register(&self, scenario: &'static Scenario, first: u32, ues: u32) -> Result<(CpuBreakdown, f64), Failure> {
        let run = self.emulate(&Options { idle: IDLE, ..options(scenario, first, ues)? })?;
        Ok((run.cpu.each(ues.into()), run.report.ues_per_second))
    }

    /// Service requests and releases, in a closed loop. `registration` is what the UEs' registrations cost.
    fn cycles(&self, first: u32, requests: u32, registration: CpuBreakdown) -> Result<(CpuBreakdown, f64), Failure> {
        let rounds = requests.div_ceil(WINDOW).max(1);
        let run = self.emulate(&Options { rounds, idle: IDLE, ..options(find("idle-service")?, first, WINDOW)? })?;
        let done = run.report.service_requests as f64;
        let cpu = run.cpu - registration.times(WINDOW.into());
        Ok((cpu.each(done), done / run.report.seconds))
    }

    /// Service requests alone, at a rate: the releases come when all are done, which they are this long after the last.
    fn service(
        &self,
        first: u32,
        requests: u32,
        rate: f64,
        apart: Duration,
    ) -> Result<(CpuBreakdown, f64, f64), Failure> {
        let duration = Duration::from_secs_f64(f64::from(requests) / rate);
        let dwell = duration + apart;
        let kinds = [(Activity::ServiceRequest, 1.0)];
        let run = self.emulate(&Options {
            steady: Some(Steady::weighted(&kinds, rate, Pattern::Constant, dwell)),
            duration: Some(duration),
            retry: Retry::Never,
            timeout: dwell + Duration::from_secs(10),
            ..options(find("session")?, first, requests + 2)?
        })?;
        let steady = run.report.steady;
        let began = steady.steady_began_unix_us;
        // The last ones that were due are done well before the first release.
        let ended = began + (duration + apart / 2).as_micros() as u64;
        let none = || Failure("the measurement was too short".into());
        let cpu = run.samples.between(began, ended).ok_or_else(none)?;
        let latency = run.report.latency(Procedure::ServiceRequest).cloned().unwrap_or_default();
        Ok((cpu.each(steady.completed as f64), latency.p50 as f64, latency.p99 as f64))
    }
}

/// Octets of the state region that the record of an idle UE with a session takes, in a core with these slices.
pub(crate) fn octets_of_records(slices: &str, ues: u32) -> Result<f64, Failure> {
    let core = Running::of(CoreOptions { subscribers: ues.into(), slices: slices.into(), ..CoreOptions::default() })?;
    core.register(find("session")?, 0, ues)?;
    core.control.gauge();
    let metrics = plain_metrics(&core.metrics.render());
    core.stop()?;
    let of = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
    if of("vireo_ue_registered") != f64::from(ues) || of("vireo_pdu_sessions") != f64::from(ues) {
        return Err(Failure("not all UEs are registered with a session where their contexts are measured".into()));
    }
    Ok(of("vireo_region_record_bytes") / f64::from(ues))
}

/// Everything of one configuration.
pub(super) fn measure(variant: &Variant, size: Size) -> Result<Outcome, Failure> {
    let warm_up = (size.ues / 10).max(WINDOW);
    let core = Running::start(variant, warm_up + size.ues + WINDOW + size.alone + 2 + size.burst + 2)?;
    core.register(find("session")?, 0, warm_up)?;
    let (registration, registrations_per_s) = core.register(find("session")?, warm_up, size.ues)?;
    let first = warm_up + size.ues;
    let (cycle, cycles_per_s) = core.cycles(first, size.requests, registration)?;
    let (first, rate) = (first + WINDOW, (cycles_per_s * PACE).max(100.0));
    let (paced, service_p50_us, service_p99_us) = core.service(first, size.alone, rate, APART)?;
    let (service, ..) = core.service(first + size.alone + 2, size.burst, BURST, size.burst_apart)?;
    core.stop()?;
    Ok(Outcome {
        registration,
        registrations_per_s,
        cycle,
        cycles_per_s,
        service,
        paced,
        service_p50_us,
        service_p99_us,
    })
}

/// Registrations alone with a concealed identity, by the name of a scenario.
pub(super) fn concealed(variant: &Variant, scenario: &str, ues: u32) -> Result<CpuBreakdown, Failure> {
    let warm_up = (ues / 10).max(WINDOW);
    let core = Running::start(variant, warm_up + ues)?;
    core.register(find(scenario)?, 0, warm_up)?;
    let (cpu, _) = core.register(find(scenario)?, warm_up, ues)?;
    core.stop()?;
    Ok(cpu)
}

pub(in crate::bench) fn find(scenario: &str) -> Result<&'static Scenario, Failure> {
    Scenario::find(scenario).ok_or_else(|| Failure(format!("there is no scenario {scenario}")))
}

/// So many UEs from a subscriber on.
pub(in crate::bench) fn options(scenario: &'static Scenario, first: u32, ues: u32) -> Result<Options, Failure> {
    let mut options = Options::lab(CORE.parse()?, scenario);
    let imsi: vireo_types::Supi = core::FIRST_IMSI.parse()?;
    options.gnbs = GNBS;
    options.ues = ues;
    options.load = Load::Window(WINDOW);
    options.subscribers =
        Subscribers::Range { first: imsi.offset(first.into())?, keys: Keys { k: LAB_K, opc: LAB_OPC } };
    if let Some(key) = HN_KEYS.iter().find(|key| key.scenario == scenario.name) {
        let octets = hex::decode(key.public)?;
        let public = match <[u8; 32]>::try_from(octets.as_slice()) {
            Ok(octets) => HomeNetworkPublicKey::profile_a(&octets),
            Err(_) => HomeNetworkPublicKey::profile_b(&octets)
                .map_err(|_| Failure("the laboratory's home network key is no key".into()))?,
        };
        options.profile.concealment = Concealment::Ecies { key_id: key.id, key: public };
    }
    Ok(options)
}
