//! View "with SCTP and emulator on the same processors".
//!
//! Core and emulator are separate processes in the namespaces of the lab. CPU time is that of all
//! threads and processes of the core, including the SCTP stack and the embedded UPF.

use super::cpu::Samples;
use super::messages::{Size, WINDOW};
use super::variants::{EIGHT, UNSHED, Variant};
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_emulator::Rats;
use vireo_lab::addresses::CORE;
use vireo_lab::core::Core;
use vireo_lab::emulator::{self, EmulatorOptions, EmulatorResult, EmulatorRun, Load};
use vireo_lab::files::create;
use vireo_lab::options::{CoreOptions, s1_table};
use vireo_lab::workers::{ResourceUse, holdings};
use vireo_lab::{Interrupt, Lab};

/// Time from the last due service request to the first release.
const APART: Duration = Duration::from_millis(500);
/// Fraction of the closed loop's highest rate at which latency is measured.
const PART: f64 = 0.7;
/// Service requests per second at which the core sleeps between requests.
const RARE: u32 = 10;
/// One in `PARDON` requests of an open load may be rejected: a short stall of the machine makes
/// requests pile up.
const PARDON: u64 = 20;
/// Log configuration for runs whose durations are read from the core's log.
const TELLING: &str = "\n[log]\nlevel = \"info,vireo_amf=debug\"\n";
const LOG: &str = "/tmp/core.log";
/// Shortest time that a UE stays connected.
const AT_ONCE: Duration = Duration::from_millis(1);
const REST_WITHIN: Duration = Duration::from_secs(30);

/// The lab and the sizes of the measurements in it.
pub(super) struct Bench {
    pub(super) lab: Lab,
    pub(super) interrupt: Interrupt,
    /// True for the short form.
    pub(super) quick: bool,
    pub(super) size: Size,
    /// Duration of the latency measurement.
    pub(super) paced: Duration,
    /// Duration of the idle measurement.
    pub(super) idle: Duration,
    pub(super) rats: Rats,
}

/// Load of service requests in an open loop.
#[derive(Clone, Copy)]
pub(super) struct ServiceLoad {
    /// Service requests per second, open loop.
    rate: f64,
    duration: Duration,
    /// Time that a UE stays connected.
    dwell: Duration,
}

/// Results of one configuration of the core.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) sctp: String,
    /// CPU time per registration with session, in microseconds.
    pub(super) registration: f64,
    pub(super) registrations_per_s: f64,
    /// CPU time per service request and the release that follows, in microseconds.
    pub(super) cycle: f64,
    pub(super) cycles_per_s: f64,
    /// CPU time per service request alone, at a fixed rate, in microseconds.
    pub(super) paced: f64,
    /// Median latency in an open loop, at [`PART`] of the highest rate.
    pub(super) service_p50_us: f64,
    pub(super) service_p99_us: f64,
}

/// Memory per registered UE with a session, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PerUe {
    /// Part in the region that all processes share.
    pub(super) shared: f64,
    /// Part in the core's own process, including the embedded UPF and the subscriber service.
    pub(super) parent: f64,
    /// Part in all workers.
    pub(super) workers: f64,
}

impl PerUe {
    /// Returns the memory growth per UE after `ues` more UEs registered.
    pub(super) fn between(before: &ResourceUse, after: &ResourceUse, ues: f64) -> Self {
        let each = |before: u64, after: u64| (after as f64 - before as f64) / ues;
        PerUe {
            shared: each(before.shared_bytes, after.shared_bytes),
            parent: each(before.parent_bytes, after.parent_bytes),
            workers: each(before.worker_bytes, after.worker_bytes),
        }
    }

    pub(super) fn all(&self) -> f64 {
        self.shared + self.parent + self.workers
    }
}

/// Core without work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// Percent of one processor.
    pub(super) cpu_percent: f64,
    /// Median latency of service requests so rare that every thread sleeps in between, in
    /// microseconds.
    pub(super) wake_p50_us: f64,
    pub(super) wake_p99_us: f64,
}

/// Time until additional workers and NFs are usable, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Starts {
    /// From the start of each worker process until the host sees it as ready.
    pub(super) workers: Vec<f64>,
    /// From the decision to activate each idle NF until it can take work.
    pub(super) nfs: Vec<f64>,
}

impl Bench {
    pub(super) fn core(&self, options: &CoreOptions) -> Result<Core, Failure> {
        let s1 = if self.rats == Rats::Nr { String::new() } else { s1_table(CORE) };
        let options = CoreOptions { tables: s1 + &options.tables, ..options.clone() };
        Core::start(&self.lab, &options, create(Path::new(LOG))?, &self.interrupt)
    }

    fn core_of_variant(&self, variant: &Variant, subscribers: u32) -> Result<Core, Failure> {
        let tables = format!("{}{UNSHED}", variant.tables);
        self.core(&CoreOptions { subscribers: subscribers.into(), tables, ..CoreOptions::default() })
    }

    /// Returns the options with the radio access technology of the measurement.
    pub(super) fn with_rat(&self, mut options: EmulatorOptions) -> EmulatorOptions {
        options.more.extend(["--rat", self.rats.name()].map(str::to_owned));
        options
    }

    fn emulate(&self, core: &mut Core, options: EmulatorOptions) -> Result<EmulatorRun, Failure> {
        let emulated = emulator::run(&self.lab, core, &self.with_rat(options), &self.interrupt)?;
        succeeded(&emulated.result)?;
        self.wait_for_releases(core)?;
        Ok(emulated)
    }

    /// Waits until the UEs of disconnected gNBs are released. The core is busy until then.
    fn wait_for_releases(&self, core: &mut Core) -> Result<(), Failure> {
        let deadline = Instant::now() + REST_WITHIN;
        while core.counts()?.connected > 0 {
            core.check()?;
            self.interrupt.check()?;
            if Instant::now() > deadline {
                return Err(Failure("the core does not release UEs whose gNBs have gone".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Registers `ues` UEs and establishes a session for each.
    pub(super) fn register(&self, core: &mut Core, first: u32, ues: u32) -> Result<EmulatorRun, Failure> {
        let load = Load::Window(WINDOW);
        let limit = Duration::from_secs(300 + u64::from(ues / 100));
        let scenario = "session".into();
        self.emulate(core, EmulatorOptions { first: first.into(), ues, load, scenario, limit, ..Default::default() })
    }

    fn cycles(&self, core: &mut Core, first: u32) -> Result<EmulatorRun, Failure> {
        let rounds = self.size.requests.div_ceil(WINDOW).max(1);
        let options = EmulatorOptions {
            first: first.into(),
            ues: WINDOW,
            load: Load::Window(WINDOW),
            scenario: "idle-service".into(),
            idle: Duration::from_millis(1),
            more: vec!["--rounds".into(), rounds.to_string()],
            ..EmulatorOptions::default()
        };
        self.emulate(core, options)
    }

    /// Runs service requests at a rate by idle UEs that stay connected for a while. Returns their
    /// results and the core's CPU time from the first due request until all are complete.
    pub(super) fn service(
        &self,
        core: &mut Core,
        (first, ues): (u32, u32),
        load: ServiceLoad,
    ) -> Result<(EmulatorResult, f64), Failure> {
        let ServiceLoad { rate, duration, dwell } = load;
        let ms = |span: Duration| format!("{}ms", span.as_millis());
        let words =
            ["--load", "service-request", "--duration", &ms(duration), "--dwell", &ms(dwell), "--retry", "never"];
        let options = EmulatorOptions {
            first: first.into(),
            ues,
            load: Load::Rate((rate as u32).max(1)),
            limit: Duration::from_secs(300 + u64::from(ues / 100)),
            more: words.map(str::to_owned).to_vec(),
            ..EmulatorOptions::default()
        };
        let mut samples = Samples::new();
        let emulated = emulator::run_with(&self.lab, core, &self.with_rat(options), &self.interrupt, &mut |core| {
            samples.add(core.process.cpu()?.as_secs_f64() * 1e6);
            Ok(())
        })?;
        let result = emulated.result;
        if result.procedures == 0 || result.completed < result.procedures - result.procedures / PARDON {
            let complaints = result.complaints().join(", ");
            let (done, due) = (result.completed, result.procedures);
            return Err(Failure(format!("{done} of {due} service requests at {rate:.0}/s were done: {complaints}")));
        }
        let began = result.steady_began_unix_us;
        let ended = began + (duration + APART / 2).as_micros() as u64;
        let used = samples.between(began, ended).unwrap_or(f64::NAN);
        let each = used / result.completed as f64;
        Ok((result, each))
    }

    /// Measures CPU time, rates and latency of a configuration.
    pub(super) fn measure(&self, variant: &Variant) -> Result<Outcome, Failure> {
        let (warm_up, Size { ues, alone, .. }) = ((self.size.ues / 10).max(WINDOW), self.size);
        let mut core = self.core_of_variant(variant, warm_up + ues + WINDOW + 2 * (alone + 2))?;
        self.register(&mut core, 0, warm_up)?;
        let registered = self.register(&mut core, warm_up, ues)?;
        let registration = registered.core_cpu.as_secs_f64() * 1e6 / f64::from(ues);
        let first = warm_up + ues;
        let cycled = self.cycles(&mut core, first)?;
        let done = cycled.result.service_requests as f64;
        let cycle = (cycled.core_cpu.as_secs_f64() * 1e6 - registration * f64::from(WINDOW)) / done;
        let cycles_per_s = done / cycled.result.seconds;
        let first = first + WINDOW;
        // The closed loop includes a release per service request, so this rate is well below
        // saturation.
        let duration = Duration::from_secs_f64(f64::from(alone) / (cycles_per_s * PART));
        let load = ServiceLoad { rate: cycles_per_s * PART, duration, dwell: duration + APART };
        let (_, alone_us) = self.service(&mut core, (first, alone + 2), load)?;
        let load = ServiceLoad { rate: cycles_per_s * PART, duration: self.paced, dwell: AT_ONCE };
        let (paced, _) = self.service(&mut core, (first + alone + 2, alone), load)?;
        core.stop()?;
        let latency = paced.latency("service_request");
        Ok(Outcome {
            registration,
            registrations_per_s: registered.result.ues_per_second(),
            sctp: registered.result.driver,
            cycle,
            cycles_per_s,
            paced: alone_us,
            service_p50_us: latency.p50 as f64,
            service_p99_us: latency.p99 as f64,
        })
    }

    /// Returns the memory per UE, from the difference between 2N and N UEs.
    pub(super) fn memory(&self, variant: &Variant) -> Result<PerUe, Failure> {
        let n = self.size.ues;
        let mut core = self.core_of_variant(variant, 2 * n)?;
        let mut held = Vec::new();
        for first in [0, n] {
            self.register(&mut core, first, n)?;
            held.push(holdings(&core.process)?);
        }
        core.stop()?;
        Ok(PerUe::between(&held[0], &held[1], n.into()))
    }

    /// Measures the CPU use of a core without work and its wake-up latency.
    pub(super) fn idle(&self, variant: &Variant) -> Result<Idle, Failure> {
        let ues = RARE * 3;
        let mut core = self.core_of_variant(variant, 2 * ues)?;
        self.register(&mut core, 0, ues)?;
        std::thread::sleep(Duration::from_secs(1));
        let before = core.process.cpu()?;
        let began = Instant::now();
        while began.elapsed() < self.idle {
            self.interrupt.check()?;
            std::thread::sleep(Duration::from_millis(100).min(self.idle));
        }
        let used = core.process.cpu()?.saturating_sub(before);
        let cpu_percent = used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
        let load = ServiceLoad { rate: f64::from(RARE), duration: self.paced, dwell: AT_ONCE };
        let (rare, _) = self.service(&mut core, (ues, ues), load)?;
        core.stop()?;
        let latency = rare.latency("service_request");
        Ok(Idle { cpu_percent, wake_p50_us: latency.p50 as f64, wake_p99_us: latency.p99 as f64 })
    }

    /// Measures the start times of workers and NFs. A core that cannot meet its objectives
    /// activates idle NFs.
    pub(super) fn starts(&self) -> Result<Starts, Failure> {
        let options = CoreOptions {
            subscribers: WINDOW.into(),
            slices: "[slice.default]\nsnssai = { sst = 1 }\nslo = { all = \"1ms\" }\n".into(),
            // Some NFs have separate workers, so that they miss their objectives sooner.
            tables: format!("{}{TELLING}", EIGHT.tables),
            ..CoreOptions::default()
        };
        let mut core = self.core(&options)?;
        self.cycles(&mut core, 0)?;
        core.stop()?;
        Ok(Starts::read(&std::fs::read_to_string(LOG)?))
    }
}

fn succeeded(result: &EmulatorResult) -> Result<(), Failure> {
    if result.succeeded == result.ues {
        return Ok(());
    }
    let complaints = result.complaints().join(", ");
    Err(Failure(format!("{} of {} UEs succeeded: {complaints}", result.succeeded, result.ues)))
}

impl Starts {
    /// Reads the start times from the core's log.
    fn read(log: &str) -> Self {
        let of = |what: &str| log.lines().filter(|line| line.contains(what)).filter_map(took).collect();
        Starts { workers: of("worker ready"), nfs: of("NF added to a pool") }
    }
}

/// Returns the time in `took=1.5ms` of a log line, in milliseconds.
fn took(line: &str) -> Option<f64> {
    // Terminal colour codes may separate name and value.
    let plain: String = line.split('\u{1b}').map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect();
    let plain = if line.contains('\u{1b}') { plain } else { line.to_owned() };
    let value = plain.split_once("took=")?.1.split_whitespace().next()?;
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = value[..digits].parse().ok()?;
    match &value[digits..] {
        "s" => Some(number * 1e3),
        "ms" => Some(number),
        "us" | "\u{b5}s" => Some(number / 1e3),
        "ns" => Some(number / 1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_log() {
        let log = "x INFO vireo_amf: NF added to a pool that missed its objective purpose=P took=12.5\u{b5}s\n\
                   x DEBUG vireo_amf: worker ready worker=1 pid=7 took=3.25ms\n\
                   x DEBUG vireo_amf: worker ready \u{1b}[3mworker\u{1b}[0m=2 \u{1b}[3mtook\u{1b}[0m\u{1b}[2m=\u{1b}[0m1.5s\n\
                   x DEBUG vireo_amf: something else took=9ms\n";
        assert_eq!(Starts::read(log), Starts { workers: vec![3.25, 1500.0], nfs: vec![0.0125] });
        assert_eq!(took("took=800ns a"), Some(0.0008));
        assert_eq!(took("took=fast"), None);
    }

    #[test]
    fn memory_is_counted_once_where_it_is_shared() {
        let before =
            ResourceUse { parent_bytes: 1000, worker_bytes: 500, shared_bytes: 4000, ..ResourceUse::default() };
        let after =
            ResourceUse { parent_bytes: 3000, worker_bytes: 400, shared_bytes: 24_000, ..ResourceUse::default() };
        let per_ue = PerUe::between(&before, &after, 10.0);
        assert_eq!(per_ue, PerUe { shared: 2000.0, parent: 200.0, workers: -10.0 });
        assert_eq!(per_ue.all(), 2190.0);
    }
}
