//! Steady open load on a core, with injected worker faults and the core's CPU use.

use super::context::ExperimentContext;
use crate::faults::{Fault, Kind};
use std::time::{Duration, Instant, SystemTime};
use vireo_config::Failure;
use vireo_lab::core::Core;
use vireo_lab::emulator::{self, Emulator, EmulatorOptions, EmulatorResult, Load};
use vireo_lab::timeline::Bin;
use vireo_lab::workers::Worker;

/// In the lab's private `/tmp`.
const TIMELINE: &str = "/tmp/timeline.csv";
const TIMELINE_BESIDE: &str = "/tmp/timeline-beside.csv";
/// Warm-up of a load before its latencies count, in seconds; a quarter of the load if it is short.
const SETTLE_S: f64 = 2.0;
/// Interval between readings of the core's CPU time.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A steady load: mix of procedures, rate, duration and faults.
#[derive(Clone, Debug)]
pub(super) struct Steady {
    /// Names of procedures (`vireo emulate --help`) with weights.
    pub(super) kinds: Vec<(&'static str, f64)>,
    /// Procedures per second, open loop.
    pub(super) rate: f64,
    /// Duration of the load.
    pub(super) seconds: f64,
    /// UEs of all kinds together.
    pub(super) ues: u32,
    /// Length of a timeline interval.
    pub(super) interval: Duration,
    /// Faults of workers, in order of time. Times count from when all UEs are ready.
    pub(super) faults: Vec<Fault>,
    /// Processors of the emulator; empty = all.
    pub(super) processors: Vec<usize>,
    /// Additional arguments of the emulator's command line.
    pub(super) more: Vec<String>,
    /// Load of UEs of another slice, by a separate emulator. It begins before this load and ends
    /// after it.
    pub(super) beside: Option<Box<Steady>>,
}

/// SST of the slice of the UEs of [`Steady::beside`].
pub(super) const OTHER_SST: u8 = 3;
/// Lead time of the load beside another one.
const LEAD: Duration = Duration::from_millis(1500);

/// Result of a load.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) result: EmulatorResult,
    /// Latency over time by procedure; `all` covers all procedures.
    pub(super) timeline: Vec<(String, Bin)>,
    /// Injected faults with their times in seconds on the timeline.
    pub(super) faults: Vec<(Fault, f64)>,
    /// CPU time of all processes of the core per second of the load.
    pub(super) core_cpu_share: f64,
    /// Result of the load beside this one.
    pub(super) beside: Option<EmulatorResult>,
}

impl Steady {
    /// Returns the number of UEs that are registered when the load begins.
    fn resident(&self) -> u32 {
        let weight = |off: bool| -> f64 {
            self.kinds.iter().filter(|(name, _)| !off || !name.starts_with("registration")).map(|(_, w)| w).sum()
        };
        // The shares are rounded, so one or two UEs may be missing.
        (f64::from(self.ues) * weight(true) / weight(false)) as u32 * 99 / 100
    }

    /// Returns the number of required subscribers, including those of the load beside this one.
    pub(super) fn subscribers(&self) -> u32 {
        self.ues + self.beside.as_ref().map_or(0, |beside| beside.subscribers())
    }

    /// Returns the options of an emulator beside another one with `first` UEs.
    fn options_beside(&self, first: u32) -> EmulatorOptions {
        let more = self.words(TIMELINE_BESIDE);
        EmulatorOptions { first: first.into(), number: 1, sst: OTHER_SST, more, ..self.options() }
    }

    /// Returns the options of the emulator.
    pub(super) fn options(&self) -> EmulatorOptions {
        EmulatorOptions {
            ues: self.ues,
            load: Load::Rate(self.rate.round().max(1.0) as u32),
            limit: Duration::from_secs_f64(self.seconds + 180.0),
            more: self.words(TIMELINE),
            processors: self.processors.clone(),
            ..EmulatorOptions::default()
        }
    }

    /// Returns the arguments of the emulator's command line.
    fn words(&self, timeline: &str) -> Vec<String> {
        let kinds: Vec<String> = self.kinds.iter().map(|(name, weight)| format!("{name}={weight}")).collect();
        let mut words = Vec::new();
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        add("--load", kinds.join(","));
        add("--duration", self.seconds.to_string());
        // The load settles first, because an immediate load would include the activation of NFs,
        // which is not compared. Further arguments may set another time.
        if !self.more.iter().any(|word| word == "--settle") {
            add("--settle", format!("{}ms", (self.seconds.min(SETTLE_S * 4.0) * 250.0) as u64));
        }
        add("--timeline", timeline.into());
        add("--timeline-interval", format!("{}ms", self.interval.as_millis()));
        words.extend(self.more.iter().cloned());
        words
    }
}

impl Outcome {
    /// Returns the timeline of one procedure.
    pub(super) fn bins(&self, procedure: &str) -> Vec<Bin> {
        self.timeline.iter().filter(|(name, _)| name == procedure).map(|(_, bin)| *bin).collect()
    }

    /// Returns true if the core kept up with the load: at most 1 in 50 procedures is missing, and
    /// no backlog grew.
    pub(super) fn kept_up(&self, longest: Duration) -> bool {
        let steady = &self.result;
        let missing = steady.procedures.saturating_sub(steady.completed) as f64;
        let slow = self.bins("all").iter().rev().take(10).any(|bin| bin.p50_ms > longest.as_secs_f64() * 1e3);
        steady.procedures > 0 && missing <= steady.procedures as f64 * 0.02 && !slow
    }
}

impl ExperimentContext {
    /// Runs a steady load to its end. Calls `look` regularly with the seconds since all UEs are
    /// ready.
    pub(super) fn steady(
        &self,
        core: &mut Core,
        steady: &Steady,
        look: &mut dyn FnMut(&mut Core, f64) -> Result<(), Failure>,
    ) -> Result<Outcome, Failure> {
        let mut beside = match &steady.beside {
            None => None,
            Some(load) => {
                let emulator = Emulator::start(&self.lab, &self.with_rat(load.options_beside(steady.ues)))?;
                std::thread::sleep(LEAD);
                Some(emulator)
            }
        };
        let _ = std::fs::remove_file(TIMELINE);
        let options = self.with_rat(steady.options());
        let mut watch = Watch { steady, since: None, samples: Vec::new(), sampled_at: None, happened: Vec::new() };
        let emulated = emulator::run_with(&self.lab, core, &options, &self.interrupt, &mut |core| {
            let Some(at_s) = watch.poll(core)? else { return Ok(()) };
            look(core, at_s)
        })?;
        let result = emulated.result;
        if result.procedures == 0 {
            return Err(Failure(format!("the load had no procedures: {}", result.complaints().join(", "))));
        }
        let beside = match &mut beside {
            None => None,
            Some(emulator) => {
                while !emulator.has_ended(core, &self.interrupt)? {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Some(emulator.result()?)
            }
        };
        let began = result.steady_began_unix_us;
        let faults = watch.happened.iter().map(|(fault, at)| (*fault, (*at as f64 - began as f64) / 1e6)).collect();
        Ok(Outcome {
            timeline: emulator::read_timeline(&std::fs::read_to_string(TIMELINE)?)?,
            faults,
            core_cpu_share: watch.cpu_share(began, result.steady_seconds),
            beside,
            result,
        })
    }
}

/// Work during the emulator's run: sampling and faults.
struct Watch<'a> {
    steady: &'a Steady,
    /// Time since which all UEs are ready.
    since: Option<Instant>,
    /// Unix time and the core's CPU time, in microseconds.
    samples: Vec<(u64, u64)>,
    sampled_at: Option<Instant>,
    /// Injected faults with their Unix times in microseconds.
    happened: Vec<(Fault, u64)>,
}

impl Watch<'_> {
    /// Injects due faults. Returns the seconds since all UEs are ready, once per [`LOOK_EVERY`].
    fn poll(&mut self, core: &Core) -> Result<Option<f64>, Failure> {
        if let (Some(since), Some(fault)) = (self.since, self.steady.faults.get(self.happened.len()))
            && since.elapsed().as_secs_f64() >= fault.at_s
        {
            self.inject(core, *fault)?;
        }
        if self.sampled_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(None);
        }
        self.sampled_at = Some(Instant::now());
        self.samples.push((unix_us(), core.cpu()?.as_micros() as u64));
        if self.since.is_none() && core.registered()? >= self.steady.resident() as usize {
            self.since = Some(Instant::now());
        }
        Ok(self.since.map(|since| since.elapsed().as_secs_f64()))
    }

    /// Injects a fault into a worker.
    fn inject(&mut self, core: &Core, fault: Fault) -> Result<(), Failure> {
        let mut workers = Worker::nf_workers(&core.process)?;
        if workers.is_empty() {
            return Err(Failure("the core has no worker processes to kill".into()));
        }
        // A fault of an idle worker shows nothing, so the schedule selects from the busier half.
        workers.sort_by_key(|worker| std::cmp::Reverse(worker.cpu()));
        workers.truncate(workers.len().div_ceil(2));
        let victim = &workers[fault.victim % workers.len()];
        let at = unix_us();
        let done = match fault.kind {
            Kind::Kill => victim.kill()?,
            Kind::Stop => victim.stop()?,
        };
        if done {
            self.happened.push((fault, at));
        }
        Ok(())
    }

    /// Returns the CPU time of the core per second of the load.
    fn cpu_share(&self, began_unix_us: u64, seconds: f64) -> f64 {
        let ended = began_unix_us + (seconds * 1e6) as u64;
        let mut within = self.samples.iter().filter(|(at, _)| (began_unix_us..=ended).contains(at));
        match (within.next(), within.next_back()) {
            // A host that failed takes its CPU time with it, so the difference may be negative.
            (Some(first), Some(last)) if last.0 > first.0 => {
                last.1.saturating_sub(first.1) as f64 / (last.0 - first.0) as f64
            }
            _ => 0.0,
        }
    }
}

/// Returns the Unix time in microseconds.
pub(super) fn unix_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use vireo_lab::emulator::Latency;

    /// Returns an outcome in which each listed procedure took the given milliseconds, with a fault
    /// at 1 s.
    pub(crate) fn outcome(latency_ms: &[(&str, u64)], kind: Kind) -> Outcome {
        let latency = |ms: u64| Latency {
            p50: ms * 1000,
            p99: ms * 2000,
            mean: ms as f64 * 1100.0,
            max: ms * 3000,
            ..Latency::default()
        };
        let result = EmulatorResult {
            ues: 100,
            procedures: 1000,
            completed: 1000,
            steady_seconds: 2.0,
            latency_us: latency_ms.iter().map(|(name, ms)| ((*name).to_owned(), latency(*ms))).collect(),
            ..EmulatorResult::default()
        };
        let most = latency_ms.iter().map(|(_, ms)| *ms as f64).fold(0.0, f64::max);
        let bin = |n: u32| Bin {
            at_s: f64::from(n) * 0.1,
            done: 50,
            p50_ms: most,
            p99_ms: most,
            max_ms: most,
            ..Bin::default()
        };
        Outcome {
            result,
            timeline: (0..20).map(|n| ("all".to_owned(), bin(n))).collect(),
            faults: vec![(Fault { at_s: 1.0, kind, victim: 0 }, 1.0)],
            core_cpu_share: 0.9,
            beside: None,
        }
    }

    fn load() -> Steady {
        Steady {
            kinds: vec![("service-request", 0.6), ("registration-session", 0.4)],
            rate: 100.0,
            seconds: 2.5,
            ues: 1000,
            interval: Duration::from_millis(100),
            faults: Vec::new(),
            processors: Vec::new(),
            more: vec!["--retry".into(), "1s".into()],
            beside: None,
        }
    }

    #[test]
    fn load_becomes_emulator_arguments() {
        // A test of `vireo emulate` parses this line.
        let line = "--load service-request=0.6,registration-session=0.4 --duration 2.5 --settle 625ms \
                    --timeline /tmp/timeline.csv --timeline-interval 100ms --retry 1s";
        assert_eq!(load().words(TIMELINE).join(" "), line);
        assert_eq!(load().resident(), 594, "those that attach are off, and one in a hundred may be late");
    }

    #[test]
    fn core_keeps_up_if_complete_and_fast() {
        let longest = Duration::from_millis(100);
        let mut outcome = outcome(&[("service_request", 5)], Kind::Kill);
        assert!(outcome.kept_up(longest));
        outcome.result.completed = 990;
        assert!(outcome.kept_up(longest));
        outcome.result.completed = 970;
        assert!(!outcome.kept_up(longest));
        let slow = tests::outcome(&[("service_request", 500)], Kind::Kill);
        assert!(!slow.kept_up(longest));
    }

    #[test]
    fn cpu_share_covers_load_only() {
        let steady = load();
        let samples =
            vec![(0, 0), (1_000_000, 900_000), (2_000_000, 1_400_000), (3_000_000, 1_900_000), (9_000_000, 9_000_000)];
        let watch = Watch { steady: &steady, since: None, samples, sampled_at: None, happened: Vec::new() };
        assert_eq!(watch.cpu_share(1_000_000, 2.5), 0.5);
        assert_eq!(watch.cpu_share(4_000_000, 1.0), 0.0, "nothing was sampled");
    }
}
