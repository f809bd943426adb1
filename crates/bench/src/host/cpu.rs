//! CPU time by thread and process, as the kernel's scheduler counts it.

use serde::Serialize;
use std::fs;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime};
use vireo_config::Failure;
use vireo_lab::process::cpu_of;
use vireo_lab::workers::Worker;

/// Name of the emulator's threads in the process of the core.
pub(crate) const EMULATOR: &str = "emulator";

/// CPU time in microseconds, by part. [`CpuBreakdown::core`] sums the parts of the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CpuBreakdown {
    /// Thread that passes messages to NFs and back.
    pub(super) host: f64,
    /// Thread that terminates N2 and N4.
    pub(crate) balancer: f64,
    /// Supervisor threads of the workers.
    #[serde(rename = "crew")]
    pub(super) supervisor: f64,
    /// Threads of the subscriber service.
    pub(super) udm: f64,
    pub(super) workers: f64,
    /// The UPF's N4 endpoint.
    pub(super) upf: f64,
    /// EmulatorRun gNBs and UEs.
    pub(super) emulator: f64,
    /// All other threads of the process: the measurement itself and the status interface.
    pub(super) other: f64,
}

impl CpuBreakdown {
    /// Reads the CPU time of this process, which runs core, UPF and emulator, and of the workers.
    pub(crate) fn read(workers: &[Worker]) -> Result<Self, Failure> {
        let mut cpu = CpuBreakdown::default();
        for task in fs::read_dir("/proc/self/task")? {
            let task = task?.path();
            let read = |file| fs::read_to_string(task.join(file));
            // The thread may have ended since the directory was read.
            let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else { continue };
            *cpu.part(name.trim()) += microseconds(&stat)
                .ok_or_else(|| Failure("this kernel does not count CPU time by thread (CONFIG_SCHED_INFO)".into()))?;
        }
        for worker in workers {
            cpu.workers += cpu_of(worker.pid).unwrap_or_default().as_secs_f64() * 1e6;
        }
        Ok(cpu)
    }

    /// Returns the part to which a thread of this name belongs.
    fn part(&mut self, thread: &str) -> &mut f64 {
        match thread {
            "host" => &mut self.host,
            "balancer" => &mut self.balancer,
            "supervisor" | "reclaim" => &mut self.supervisor,
            EMULATOR => &mut self.emulator,
            name if name.starts_with("udm-") => &mut self.udm,
            name if name.starts_with("upf-") => &mut self.upf,
            _ => &mut self.other,
        }
    }

    /// Returns the CPU time of the core, without UPF and emulator.
    pub(super) fn core(&self) -> f64 {
        self.host + self.balancer + self.supervisor + self.udm + self.workers
    }

    /// Returns the CPU time per operation.
    pub(super) fn each(self, operations: f64) -> Self {
        self.map(|value| value / operations)
    }

    /// Returns every part multiplied by `factor`.
    pub(super) fn times(self, factor: f64) -> Self {
        self.map(|value| value * factor)
    }

    fn map(mut self, change: impl Fn(f64) -> f64) -> Self {
        for part in self.parts() {
            *part = change(*part);
        }
        self
    }

    fn parts(&mut self) -> [&mut f64; 8] {
        let CpuBreakdown { host, balancer, supervisor, udm, workers, upf, emulator, other } = self;
        [host, balancer, supervisor, udm, workers, upf, emulator, other]
    }

    fn with(mut self, mut other: CpuBreakdown, combine: impl Fn(f64, f64) -> f64) -> CpuBreakdown {
        for (mine, theirs) in self.parts().into_iter().zip(other.parts()) {
            *mine = combine(*mine, *theirs);
        }
        self
    }
}

impl Add for CpuBreakdown {
    type Output = CpuBreakdown;

    fn add(self, other: CpuBreakdown) -> CpuBreakdown {
        self.with(other, |a, b| a + b)
    }
}

impl Sub for CpuBreakdown {
    type Output = CpuBreakdown;

    fn sub(self, other: CpuBreakdown) -> CpuBreakdown {
        self.with(other, |a, b| a - b)
    }
}

/// Parses the CPU time in `/proc/PID/task/TID/schedstat`. Its first number is in nanoseconds.
fn microseconds(schedstat: &str) -> Option<f64> {
    Some(schedstat.split(' ').next()?.parse::<u64>().ok()? as f64 / 1e3)
}

/// Samples of cumulative resource use over time.
#[derive(Debug)]
pub(super) struct Samples<T>(Vec<(u64, T)>);

impl<T: Copy + Sub<Output = T>> Samples<T> {
    pub(super) fn new() -> Self {
        Samples(Vec::new())
    }

    /// Adds a sample of the cumulative use up to the present time.
    pub(super) fn add(&mut self, used: T) {
        self.0.push((unix_us(), used));
    }

    /// Returns the use between two Unix times in microseconds: from the last sample before the
    /// first time to the first sample after the second time.
    pub(super) fn between(&self, from_us: u64, to_us: u64) -> Option<T> {
        let first = self.0.iter().rfind(|(at, _)| *at <= from_us)?;
        let last = self.0.iter().find(|(at, _)| *at >= to_us)?;
        Some(last.1 - first.1)
    }
}

fn unix_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).as_ref().map_or(0, Duration::as_micros) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart() {
        let mut cpu = CpuBreakdown::default();
        for (thread, used) in [
            ("host", 1.0),
            ("balancer", 2.0),
            ("supervisor", 4.0),
            ("udm-database", 8.0),
            ("udm-sidf-1", 16.0),
            ("upf-n4", 32.0),
            ("emulator", 64.0),
            ("api", 128.0),
        ] {
            *cpu.part(thread) += used;
        }
        cpu.workers = 256.0;
        assert_eq!((cpu.udm, cpu.upf, cpu.emulator, cpu.other), (24.0, 32.0, 64.0, 128.0));
        assert_eq!(cpu.core(), 287.0);
        assert_eq!(cpu.each(2.0).core(), 143.5);
        assert_eq!((cpu + cpu - cpu).core(), 287.0);
    }

    #[test]
    fn cpu_time_of_this_thread_is_read() {
        let thread = std::thread::Builder::new().name(EMULATOR.into());
        let used = thread.spawn(|| {
            let own = || microseconds(&fs::read_to_string("/proc/thread-self/schedstat").unwrap()).unwrap();
            while own() < 20_000.0 {}
            CpuBreakdown::read(&[]).unwrap().emulator
        });
        assert!(used.unwrap().join().unwrap() >= 20_000.0);
        assert_eq!(microseconds("1500 7 3\n"), Some(1.5));
        assert_eq!(microseconds(""), None);
    }

    #[test]
    fn samples_are_cut_to_span() {
        let samples = Samples((0..10).map(|n| (n * 10, n as f64)).collect());
        assert_eq!(samples.between(20, 50), Some(3.0));
        assert_eq!(samples.between(25, 41), Some(3.0), "no part of it is left out");
        assert_eq!(samples.between(25, 91), None);
    }
}
