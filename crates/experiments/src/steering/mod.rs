//! MMLite's steering experiments on hosts with a virtual clock.
//!
//! `crates/simulator` runs the product's decisions on predefined workloads
//! (`crates/simulator/workloads/mmlite-*.toml`). A procedure that a replica serves has the measured
//! cost [`ServingCost::MEASURED`], or that of `--serving-cost`.

pub(super) mod hosts_needed;
mod ilp;
pub(super) mod limits;
pub(super) mod load_balance;
mod outcome;

use crate::experiment::Simulation;
use vireo_bench::results::Configuration;
use vireo_config::Failure;
use vireo_core::placement::balance::steer::{Policy, Preference};
use vireo_core::schedule::dispatch;
use vireo_simulator::cluster::{Binding, Comparison, Profile, ServingCost, Setup};
use vireo_types::Duration;

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
        let Setup { inter, intra, prefer, binding, rebalance, .. } = (self.change)(Setup::default());
        let serve = if binding == Binding::Procedure { "procedure" } else { "owner" };
        let (inter, prefer, intra) = (inter.name(), prefer.name(), intra.name());
        let mut toml = format!(
            "[steering]\ninter = \"{inter}\"\nprefer = \"{prefer}\"\nserve = \"{serve}\"\nintra = \"{intra}\"\n"
        );
        if rebalance.is_some() {
            toml.push_str("\n[cluster]\nrebalance = \"load\"\n");
        }
        let about = format!("{} {}", self.about, decided_by(binding));
        Configuration { name: self.name.into(), about, toml }
    }
}

/// Returns the code that chooses the host.
fn decided_by(binding: Binding) -> &'static str {
    match binding {
        Binding::Procedure => "The product's balancer decides for each procedure (core::placement::balancer::serving).",
        Binding::FirstMessage => "The product's balancer decides at a UE's first message (core::placement::balancer).",
        Binding::Bucket => "The product's balancer passes messages to the owner of the bucket.",
        Binding::Ue => "The simulator decides by a table of UEs, which is not in the product.",
    }
}

/// NF selection of the baselines within a host.
const IN_TURN: dispatch::Policy = dispatch::Policy::RoundRobin;
/// Minimum time between changes of weights, as in the product.
const REBALANCE_PAUSE: Duration = Duration::from_secs(2);

const ROUND_ROBIN: Scheme = Scheme {
    name: "round robin",
    about: "Each UE stays at the host whose turn it was when it came; NFs in turn.",
    change: |setup| Setup { inter: Policy::RoundRobin, binding: Binding::Ue, intra: IN_TURN, ..setup },
};
const CONSISTENT: Scheme = Scheme {
    name: "consistent hashing",
    about: "Each UE at the host that is next on the circle; NFs in turn.",
    change: |setup| Setup { inter: Policy::ConsistentHash, binding: Binding::Ue, intra: IN_TURN, ..setup },
};
const MAGLEV: Scheme = Scheme {
    name: "Maglev",
    about: "Each UE by the Maglev paper's table; NFs in turn.",
    change: |setup| Setup { inter: Policy::Maglev, binding: Binding::Ue, intra: IN_TURN, ..setup },
};
const PEPC: Scheme = Scheme {
    name: "PEPC-style",
    about: "Each host has a range of the UEs for all time, as slices have in PEPC; NFs in turn. What its packets cost beside is left out.",
    change: |setup| Setup { inter: Policy::StaticRange, binding: Binding::Ue, intra: IN_TURN, ..setup },
};
const LEAST_LOADED_UE: Scheme = Scheme {
    name: "least loaded, UE",
    about: "Each UE stays at the host that had the least CPU use when it came.",
    change: |setup| Setup { inter: Policy::LeastLoaded, binding: Binding::FirstMessage, ..setup },
};
const SKEWED_UE: Scheme = Scheme {
    name: "skewed, UE",
    about: "Each UE stays at the host that skewed consistent hashing gave it when it came.",
    change: |setup| Setup { binding: Binding::FirstMessage, ..setup },
};
const WEIGHTED: Scheme = Scheme {
    name: "load-weighted buckets",
    about: "Each UE at the owner of its bucket; the controller's rebalancer changes the weights of hosts by load, after 40 s of warm-up, and migration is free.",
    change: |setup| Setup { binding: Binding::Bucket, rebalance: Some(REBALANCE_PAUSE), ..setup },
};
const ROUND_ROBIN_PROCEDURE: Scheme = Scheme {
    name: "round robin, procedure",
    about: "Each procedure at the owner or a replica in turn.",
    change: |setup| Setup { inter: Policy::RoundRobin, ..setup },
};
const LEAST_LOADED_PROCEDURE: Scheme = Scheme {
    name: "least loaded, procedure",
    about: "Each procedure at the owner or replica with the least CPU use.",
    change: |setup| Setup { inter: Policy::LeastLoaded, ..setup },
};
/// MMLite's Algorithm 1 as written, in the product.
fn mmlite(setup: Setup) -> Setup {
    Setup { prefer: Preference::MostLoaded, profile: Profile::Heaviest, ..setup }
}
const MMLITE: Scheme = Scheme {
    name: "MMLite",
    about: "Algorithms 1 and 2 (prefer = \"most-loaded\"); T_t is that of the heavier UEs.",
    change: mmlite,
};
const OURS: Scheme = Scheme {
    name: "ours",
    about: "The owner while its estimate is far within the objective, else a replica (prefer = \"spare\").",
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
    let ServingCost { total, owner } = simulation.serving_cost;
    let source = match simulation.serving_cost == ServingCost::MEASURED {
        true => "`vireo bench cluster` measured that (results/bench-cluster)",
        false => "the command line sets that (--serving-cost)",
    };
    format!(
        "Simulated: hosts on a virtual clock; the machine's speed changes nothing. The configurations name the code that \
         decides. A procedure that a replica serves costs {total} times the CPU time of one that the owner serves, {owner} of it \
         at the owner; {source}. Proposal, copy and acknowledgement take 50 us each; the balancer recalls an \
         input after 50 ms. Registrations are the owner's. Runs are populations of UEs with identifiers of their own, from \
         seed {} on; the same seed gives the same figures. {what}",
        simulation.seed
    )
}

/// Returns the note on the source of the gain, and on when there is none.
fn worth() -> String {
    "A choice for each procedure gains nothing where UEs are alike, or half of them heavier as the paper describes them: UEs \
     bound by hash or in turn are in time at load 0.8, with 20 as with 33,000 of them for each host. It gains nothing at load \
     0.6 either. It needs skewed UEs and hosts above 0.7. Part of the gain then comes from the load alone: where skew lasts \
     and UEs are many, UEs that stay at the host that had the least load when they came are in time as well (but not where \
     half of the UEs are heavier), and load-weighted buckets nearly so. A choice for each procedure by CPU reports or in turn is late where one by the work in \
     progress is not."
        .into()
}
