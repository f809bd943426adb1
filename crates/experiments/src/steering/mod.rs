//! MMLite's steering experiments on hosts with a virtual clock.
//!
//! `crates/simulator` runs the core's steering decisions on predefined workloads
//! (`crates/simulator/workloads/mmlite-*.toml`).

pub(super) mod hosts_needed;
mod ilp;
pub(super) mod load_balance;
mod outcome;

use crate::experiment::Simulation;
use vireo_bench::results::Configuration;
use vireo_config::Failure;
use vireo_core::placement::balance::load_table::Estimate;
use vireo_core::placement::balance::steer::{Policy, Preference};
use vireo_core::schedule::dispatch;
use vireo_simulator::cluster::{Comparison, Profile, Setup};

/// One of the compared ways to choose hosts and NFs.
#[derive(Clone, Copy)]
struct Scheme {
    name: &'static str,
    about: &'static str,
    /// Change of the default cluster configuration.
    change: fn(Setup) -> Setup,
}

impl Scheme {
    fn configuration(&self) -> Configuration {
        let Setup { inter, intra, prefer, .. } = (self.change)(Setup::default());
        let toml = format!("[steering]\ninter = \"{}\"\nintra = \"{}\"\n", inter.name(), intra.name());
        let prefer = if inter == Policy::SkewedCh { format!("prefer: {}", prefer.name()) } else { String::new() };
        Configuration { name: self.name.into(), about: format!("{} {prefer}", self.about).trim().into(), toml }
    }
}

/// NF selection of the baselines within a host.
const IN_TURN: dispatch::Policy = dispatch::Policy::RoundRobin;

const ROUND_ROBIN: Scheme = Scheme {
    name: "round robin",
    about: "Each UE stays at the host whose turn it was when it came; NFs in turn.",
    change: |setup| Setup { inter: Policy::RoundRobin, bound: true, intra: IN_TURN, ..setup },
};
const CONSISTENT: Scheme = Scheme {
    name: "consistent hashing",
    about: "Each UE at the host that is next on the circle; NFs in turn.",
    change: |setup| Setup { inter: Policy::ConsistentHash, intra: IN_TURN, ..setup },
};
const MAGLEV: Scheme = Scheme {
    name: "Maglev",
    about: "Each UE by the Maglev paper's table; NFs in turn.",
    change: |setup| Setup { inter: Policy::Maglev, intra: IN_TURN, ..setup },
};
const PEPC: Scheme = Scheme {
    name: "PEPC-style",
    about: "Each host has a range of the UEs for all time, as slices have in PEPC; NFs in turn. What its packets cost beside is left out.",
    change: |setup| Setup { inter: Policy::StaticRange, intra: IN_TURN, ..setup },
};
/// MMLite with the gaps of its description filled so that it works.
fn mmlite(setup: Setup) -> Setup {
    let (prefer, estimate) = (Preference::MostLoaded, Estimate::Corrected);
    Setup { inter: Policy::SkewedCh, prefer, estimate, profile: Profile::Heaviest, ..setup }
}
const MMLITE: Scheme = Scheme {
    name: "MMLite",
    about: "Algorithms 1 and 2; T_t is that of the heavier UEs, and what the balancer has sent since a report counts.",
    change: mmlite,
};
const LETTER: Scheme = Scheme {
    name: "MMLite to the letter",
    about: "Algorithms 1 and 2; T_t is the mean, and the balancer knows nothing between two reports.",
    change: |setup| Setup {
        inter: Policy::SkewedCh,
        prefer: Preference::MostLoaded,
        estimate: Estimate::Reported,
        ..setup
    },
};
const OURS: Scheme = Scheme {
    name: "ours",
    about: "What Vireo does by default: the most loaded only where a host can be spared, else that with the least work under way, which the balancer knows itself.",
    change: |setup| setup,
};

/// Reads a built-in comparison.
fn comparison(text: &str) -> Result<Comparison, Failure> {
    let comparison = Comparison::read(text).map_err(|error| Failure(format!("the built-in workload: {error}")))?;
    comparison.check().map_err(|error| Failure(format!("the built-in workload: {error}")))?;
    Ok(comparison)
}

/// Returns the seeds of a run, one per population of UEs. Each population has different
/// identifiers.
fn seeds(simulation: &Simulation, run: u32, populations: u64) -> impl Iterator<Item = u64> + use<> {
    let first = simulation.seed.wrapping_add(u64::from(run) * populations);
    (0..populations).map(move |n| first.wrapping_add(n))
}

/// Returns the explanatory note of a simulated experiment.
fn note(simulation: &Simulation, what: &str) -> String {
    format!(
        "Simulated: hosts on a virtual clock with the core's own decisions; the machine's speed changes nothing. Runs are \
         populations of UEs with identifiers of their own, from seed {} on; the same seed gives the same figures. {what}",
        simulation.seed
    )
}
