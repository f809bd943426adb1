//! Description of the machine of a measurement.

use serde::{Deserialize, Serialize};

/// Properties that a comparison requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Number of usable processors.
    pub cpus: usize,
    /// Release of the kernel.
    pub kernel: String,
    #[serde(default)]
    pub release: String,
}

impl Machine {
    /// Returns the description of this machine.
    pub fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
        Machine {
            cpu: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned()),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}
