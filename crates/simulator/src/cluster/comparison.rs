//! Comparison of policies: its clusters and workloads.
//!
//! A comparison is a file. It is written and committed before the policies that it judges are run.

use super::Setup;
use super::workload::{Slice, Workload, WorkloadError};
use serde::Deserialize;

/// Cluster and workload of a comparison.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Comparison {
    /// Worker processes of a host.
    pub workers: usize,
    /// Part of a core that each worker has.
    pub speed: f64,
    /// Load of the hosts as a part of their capacity.
    pub load: f64,
    /// UEs for each host.
    pub ues_per_host: u32,
    /// Arrival patterns, run one after the other.
    pub patterns: Vec<String>,
    /// Slices. Rates are parts of the total, and so is `ues`; `patterns` above sets the pattern.
    pub slices: Vec<Slice>,
}

impl Comparison {
    /// Parses a file.
    pub fn read(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Returns the setup with this number of hosts.
    pub fn setup(&self, hosts: u16) -> Setup {
        Setup { hosts, cores: self.workers, speed: self.speed, ..Setup::default() }
    }

    /// Returns the workload with one of the patterns, at the load for this number of hosts.
    pub fn workload(&self, pattern: &str, hosts: f64) -> Workload {
        let ues: u32 = self.slices.iter().map(|slice| slice.ues).sum();
        let ues = f64::from(self.ues_per_host) * hosts / f64::from(ues.max(1));
        let mut workload = Workload { slices: self.slices.clone() };
        for slice in &mut workload.slices {
            slice.pattern = pattern.to_owned();
            slice.ues = (f64::from(slice.ues) * ues).round().max(1.0) as u32;
        }
        let cores = self.workers as f64 * self.speed * hosts;
        workload.scaled(self.load * cores / workload.cores())
    }

    /// Returns the comparison with uniform UEs.
    #[must_use]
    pub fn uniform(&self) -> Self {
        let mut uniform = self.clone();
        for slice in &mut uniform.slices {
            (slice.skew, slice.cap, slice.heavy) = (0.0, None, None);
        }
        uniform
    }

    /// Returns the comparison with UEs of equal activity, some of them heavier.
    #[must_use]
    pub fn half_heavier(&self) -> Self {
        let mut even = self.clone();
        for slice in &mut even.slices {
            (slice.skew, slice.cap) = (0.0, None);
        }
        even
    }

    /// Checks the values for consistency.
    pub fn check(&self) -> Result<(), WorkloadError> {
        self.patterns.iter().try_for_each(|pattern| self.workload(pattern, 3.0).patterns().map(|_| ()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 4] = [
        include_str!("../../workloads/mmlite-fig10.toml"),
        include_str!("../../workloads/mmlite-fig11-pareto1.toml"),
        include_str!("../../workloads/mmlite-fig11-pareto2.toml"),
        include_str!("../../workloads/mmlite-fig11-pareto3.toml"),
    ];

    #[test]
    fn file_load_holds_at_every_cluster_size() {
        for text in FILES {
            let comparison = Comparison::read(text).expect("a comparison");
            comparison.check().expect("it makes sense");
            for hosts in [3_u16, 40] {
                let setup = comparison.setup(hosts);
                let room = f64::from(hosts) * setup.cores as f64 * setup.speed;
                for comparison in [comparison.clone(), comparison.uniform()] {
                    let workload = comparison.workload(&comparison.patterns[0], hosts.into());
                    assert!((workload.cores() / room - comparison.load).abs() < 1e-9);
                    assert_eq!(workload.slices[0].ues, comparison.ues_per_host * u32::from(hosts));
                }
            }
        }
    }
}
