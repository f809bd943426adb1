//! View "messages in memory": core and emulator in one process, without SCTP.
//!
//! The real core (balancer, host, worker processes, N4 and UPF) and the emulator exchange messages
//! by SCTP associations in memory. The figures therefore contain no SCTP stack.

use super::cpu::{CpuBreakdown, EMULATOR, Samples};
use super::variants::{UNSHED, Variant};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_config::Config;
use vireo_config::Failure;
use vireo_config::roles::{Prepared, prepare};
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::{Activity, Steady};
use vireo_emulator::scenario::Scenario;
use vireo_emulator::usim::{Concealment, HomeNetworkPublicKey, Keys};
use vireo_emulator::{
    LAB_K, LAB_OPC, Load, Options, Phase, Procedure, Rats, Report, Retry, S1AP_PORT, Subscribers, run_with,
};
use vireo_lab::core::plain_metrics;
use vireo_lab::files::{CONFIG, RECORDS, STATE_KEY};
use vireo_lab::options::{CoreOptions, FIRST_IMSI, HN_KEYS};
use vireo_lab::provision;
use vireo_lab::workers::Worker;
use vireo_node::control::Control;
use vireo_ops::config::WorkerModel;
use vireo_ops::metrics::Metrics;
use vireo_sctp::memory::Network;
use vireo_upf::UpfHandle;

/// Address of the core in the network in memory.
pub(crate) const CORE: &str = "127.0.0.1:38412";
const GNBS: u32 = 2;
/// Time for which UEs stay idle.
const IDLE: Duration = Duration::from_millis(1);
/// UEs in progress at once.
pub(super) const WINDOW: u32 = 128;
const SAMPLE_EVERY: Duration = Duration::from_millis(5);
/// Rate of service requests alone, as a fraction of the closed loop's rate. The closed loop
/// includes a release per request, so this rate is far below saturation.
const PACE: f64 = 0.5;
/// One in `PARDON` requests of an open load may be rejected: a short stall of the machine makes
/// requests pile up.
const PARDON: u64 = 20;
/// Time from the last due service request to the first release. All service requests complete
/// within it.
const APART: Duration = Duration::from_millis(500);
/// Rate far above the capacity of any core, in service requests per second.
const BURST: f64 = 500_000.0;
/// Rates of registrations far below saturation, per second: threads sleep before each message.
pub(super) const RATES: [u32; 2] = [100, 2000];
const UP_WITHIN: Duration = Duration::from_secs(30);
const REST_WITHIN: Duration = Duration::from_secs(30);

/// Numbers of UEs and requests of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Number of UEs that register in each measurement.
    pub(super) ues: u32,
    /// Service requests in the closed loop.
    pub(super) requests: u32,
    /// Service requests without releases, at a fixed rate.
    pub(super) alone: u32,
    /// Service requests without releases, as fast as the core completes them.
    pub(super) burst: u32,
    /// Duration of the registrations at each of [`RATES`], in seconds.
    pub(super) paced_seconds: f64,
    /// Time from the last due request of the burst to the first release.
    pub(super) burst_apart: Duration,
}

impl Size {
    /// Returns the number of UEs that register in the time of the paced registrations at a rate.
    fn at_rate(&self, rate: u32) -> u32 {
        (self.paced_seconds * f64::from(rate)).round() as u32
    }
}

/// Results of one configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// CPU time per registration with PDU session.
    pub(super) registration: CpuBreakdown,
    pub(super) registrations_per_s: f64,
    /// CPU time per registration with PDU session at each of [`RATES`].
    pub(super) registration_at: [CpuBreakdown; RATES.len()],
    /// CPU time per service request and the release that follows.
    pub(super) cycle: CpuBreakdown,
    pub(super) cycles_per_s: f64,
    /// CPU time per service request with its N4 exchange, at the highest rate.
    pub(super) service: CpuBreakdown,
    /// CPU time per service request at a fixed rate: threads sleep and wake more often.
    pub(super) paced: CpuBreakdown,
    /// Median latency at the fixed rate, in microseconds.
    pub(super) service_p50_us: f64,
    pub(super) service_p99_us: f64,
}

/// Core that runs in this process.
pub(super) struct Running {
    control: Control,
    /// Dropped after the control plane.
    _upf: Option<Arc<UpfHandle>>,
    metrics: Arc<Metrics>,
    network: Network,
    workers: Vec<Worker>,
    rats: Rats,
}

/// Cost of service requests at a rate.
struct ServiceCost {
    /// CPU time per request.
    cpu: CpuBreakdown,
    p50_us: f64,
    p99_us: f64,
}

/// Result of one emulator run.
struct Run {
    report: Report,
    cpu: CpuBreakdown,
    samples: Samples<CpuBreakdown>,
}

impl Running {
    /// Starts the core with `subscribers` subscribers and waits until its workers are ready.
    pub(super) fn start(variant: &Variant, subscribers: u32, rats: Rats) -> Result<Self, Failure> {
        let tables = variant.tables.into();
        Self::new(CoreOptions { subscribers: subscribers.into(), tables, ..CoreOptions::default() }, rats)
    }

    fn new(options: CoreOptions, rats: Rats) -> Result<Self, Failure> {
        // Logging is limited to errors, in the core and in its workers.
        let tables = format!("{}{UNSHED}\n[log]\nlevel = \"error\"\n", options.tables);
        provision::prepare(&CoreOptions { tables, ..options })?;
        let mut config = Config::load(Some(Path::new(CONFIG)))?;
        config.keep_contexts_in(RECORDS, STATE_KEY)?;
        let has_workers = config.pools.worker_model == WorkerModel::Processes;
        let Prepared { mut control, store, metrics, upf } = prepare(config)?;
        control.api.listen = None;
        let network = Network::new();
        let at: SocketAddr = CORE.parse()?;
        let listen =
            |port| vireo_sctp::Config { addresses: vec![at.ip()], port, listen: true, ..vireo_sctp::Config::default() };
        let mut endpoint = network.bind(&listen(at.port()))?;
        if rats != Rats::Nr {
            endpoint = vireo_sctp::pair(endpoint, network.bind(&listen(S1AP_PORT))?)?;
        }
        let control = Control::start_on(endpoint, control, store, Arc::clone(&metrics))?;
        let mut running = Running { control, _upf: upf, metrics, network, workers: Vec::new(), rats };
        if has_workers {
            running.settle()?;
        }
        Ok(running)
    }

    /// Waits until no further worker has started for a while.
    fn settle(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + UP_WITHIN;
        let mut since = Instant::now();
        while self.workers.is_empty() || since.elapsed() < Duration::from_millis(300) {
            let workers = Worker::by_parent(std::process::id())?;
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

    /// Waits until the UEs of disconnected gNBs are released. The core is busy until then.
    fn wait_for_releases(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + REST_WITHIN;
        while plain_metrics(&self.metrics.render()).get("vireo_ues_connected") != Some(&0.0) {
            if Instant::now() > deadline {
                return Err(Failure("the core in this process does not release UEs whose gNBs have gone".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // The UPF receives the last releases slightly later.
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    /// Stops the core gracefully.
    pub(super) fn stop(self) -> Result<(), Failure> {
        self.control.stop().map_err(|e| Failure(format!("the core in this process failed: {e}")))
    }

    /// Runs the emulator. Every procedure must succeed, except a small part of an open load
    /// ([`PARDON`]).
    fn emulate(&self, options: &Options) -> Result<Run, Failure> {
        let name = options.scenario.name;
        let none = || Failure(format!("there is no scenario {name} for --rat {}", self.rats.name()));
        let scenario = Scenario::find_for(self.rats, name).ok_or_else(none)?;
        let options = &Options { rats: self.rats, scenario, ..options.clone() };
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
            // Threads without a name inherit that of their parent. The name identifies the
            // emulator's threads.
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
            self.wait_for_releases()?;
            Ok(Run { report, cpu, samples })
        })
    }

    /// Runs on the emulator's thread. The CPU time covers the time from before the gNBs connect
    /// until all UEs are in their final state.
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

    /// Registers `ues` UEs with a session. Returns the CPU time per registration and the
    /// registrations per second.
    fn register(&self, scenario: &'static Scenario, first: u32, ues: u32) -> Result<(CpuBreakdown, f64), Failure> {
        let run = self.emulate(&Options { idle: IDLE, ..options(scenario, first, ues)? })?;
        Ok((run.cpu.each(ues.into()), run.report.ues_per_second))
    }

    /// Registers UEs with a session at each of [`RATES`], for the same time. Returns the CPU time
    /// per registration.
    fn register_at_rates(&self, first: u32, size: Size) -> Result<[CpuBreakdown; RATES.len()], Failure> {
        let (mut first, mut cpu) = (first, [CpuBreakdown::default(); RATES.len()]);
        for (cpu, rate) in cpu.iter_mut().zip(RATES) {
            let ues = size.at_rate(rate);
            let load = Load::Rate(rate.into());
            let run = self.emulate(&Options { idle: IDLE, load, ..options(find("session")?, first, ues)? })?;
            *cpu = run.cpu.each(ues.into());
            first += ues;
        }
        Ok(cpu)
    }

    /// Runs service requests and releases in a closed loop. `registration` is the CPU time of the
    /// UEs' registrations.
    fn cycles(&self, first: u32, requests: u32, registration: CpuBreakdown) -> Result<(CpuBreakdown, f64), Failure> {
        let rounds = requests.div_ceil(WINDOW).max(1);
        let run = self.emulate(&Options { rounds, idle: IDLE, ..options(find("idle-service")?, first, WINDOW)? })?;
        let done = run.report.service_requests as f64;
        let cpu = run.cpu - registration.times(WINDOW.into());
        Ok((cpu.each(done), done / run.report.seconds))
    }

    /// Runs service requests alone, at a rate. The releases begin `apart` after the last request is
    /// due, when all requests are complete.
    fn service(&self, first: u32, requests: u32, rate: f64, apart: Duration) -> Result<ServiceCost, Failure> {
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
        // The last due requests complete well before the first release.
        let ended = began + (duration + apart / 2).as_micros() as u64;
        let none = || Failure("the measurement was too short".into());
        let cpu = run.samples.between(began, ended).ok_or_else(none)?;
        let latency = run.report.latency(Procedure::ServiceRequest).cloned().unwrap_or_default();
        let cpu = cpu.each(steady.completed as f64);
        Ok(ServiceCost { cpu, p50_us: latency.p50 as f64, p99_us: latency.p99 as f64 })
    }
}

/// Returns the size in the state region of the commit record of an idle UE with a session, in
/// bytes. The core has the given slices.
pub fn octets_of_records(slices: &str, ues: u32) -> Result<f64, Failure> {
    let options = CoreOptions { subscribers: ues.into(), slices: slices.into(), ..CoreOptions::default() };
    let core = Running::new(options, Rats::Nr)?;
    core.register(find("session")?, 0, ues)?;
    // The core updates its counts twice a second.
    let deadline = Instant::now() + REST_WITHIN;
    let metrics = loop {
        core.control.gauge();
        let metrics = plain_metrics(&core.metrics.render());
        let has_all = |name: &str| metrics.get(name) == Some(&ues.into());
        if has_all("vireo_ues_registered") && has_all("vireo_pdu_sessions") || Instant::now() > deadline {
            break metrics;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    core.stop()?;
    let of = |name: &str| metrics.get(name).copied().unwrap_or(f64::NAN);
    if of("vireo_ues_registered") != f64::from(ues) || of("vireo_pdu_sessions") != f64::from(ues) {
        return Err(Failure("not all UEs are registered with a session where their contexts are measured".into()));
    }
    Ok(of("vireo_region_commit_record_bytes") / f64::from(ues))
}

/// Runs all measurements of one configuration.
pub(super) fn measure(variant: &Variant, size: Size, rats: Rats) -> Result<Outcome, Failure> {
    let warm_up = (size.ues / 10).max(WINDOW);
    let paced_ues: u32 = RATES.map(|rate| size.at_rate(rate)).iter().sum();
    let subscribers = warm_up + size.ues + WINDOW + size.alone + 2 + size.burst + 2 + paced_ues;
    let core = Running::start(variant, subscribers, rats)?;
    core.register(find("session")?, 0, warm_up)?;
    let (registration, registrations_per_s) = core.register(find("session")?, warm_up, size.ues)?;
    let first = warm_up + size.ues;
    let (cycle, cycles_per_s) = core.cycles(first, size.requests, registration)?;
    let (first, rate) = (first + WINDOW, (cycles_per_s * PACE).max(100.0));
    let paced = core.service(first, size.alone, rate, APART)?;
    let service = core.service(first + size.alone + 2, size.burst, BURST, size.burst_apart)?;
    let registration_at = core.register_at_rates(first + size.alone + 2 + size.burst + 2, size)?;
    core.stop()?;
    Ok(Outcome {
        registration,
        registrations_per_s,
        registration_at,
        cycle,
        cycles_per_s,
        service: service.cpu,
        paced: paced.cpu,
        service_p50_us: paced.p50_us,
        service_p99_us: paced.p99_us,
    })
}

/// Measures registrations alone with a concealed identity. `scenario` names the emulator scenario.
pub(super) fn concealed(variant: &Variant, scenario: &str, ues: u32) -> Result<CpuBreakdown, Failure> {
    let warm_up = (ues / 10).max(WINDOW);
    let core = Running::start(variant, warm_up + ues, Rats::Nr)?;
    core.register(find(scenario)?, 0, warm_up)?;
    let (cpu, _) = core.register(find(scenario)?, warm_up, ues)?;
    core.stop()?;
    Ok(cpu)
}

pub(crate) fn find(scenario: &str) -> Result<&'static Scenario, Failure> {
    Scenario::find(scenario).ok_or_else(|| Failure(format!("there is no scenario {scenario}")))
}

/// Returns the emulator options for `ues` UEs, starting with subscriber `first`.
pub(crate) fn options(scenario: &'static Scenario, first: u32, ues: u32) -> Result<Options, Failure> {
    let mut options = Options::lab(CORE.parse()?, scenario);
    let imsi: vireo_types::Supi = FIRST_IMSI.parse()?;
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
