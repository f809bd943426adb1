//! An experiment, and the environment in which it runs.

use crate::context::{ExperimentContext, Findings};
use vireo_bench::upf::network::Network;
use vireo_config::Failure;
use vireo_emulator::Rats;
use vireo_lab::Interrupt;
use vireo_simulator::cluster::ServingCost;

/// An experiment and its source.
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    /// Question that the experiment answers.
    pub(crate) about: &'static str,
    /// Publication and figure; empty if there is none.
    pub(crate) paper: &'static str,
    /// Reason for which the figures may be without any mark; `None` if one always has a mark.
    pub(crate) informative: Option<&'static str>,
    pub(crate) run: Run,
}

/// Function of an experiment, by the environment that it needs.
pub(crate) enum Run {
    /// Namespaces for cores and RANs of 5G.
    Core(fn(&ExperimentContext) -> Result<Findings, Failure>),
    /// Namespaces for cores and RANs of 5G or of 4G (`--rat`).
    EitherRat(fn(&ExperimentContext) -> Result<Findings, Failure>),
    /// A namespace for a user plane alone, linked to its surroundings.
    UserPlane(fn(&Plane) -> Result<Findings, Failure>),
    /// The same; with `--rat eps`, a core and eNBs are beside the user plane.
    EitherRatUserPlane(fn(&Plane) -> Result<Findings, Failure>),
    /// A virtual clock, without namespaces or privileges.
    Simulated(fn(&Simulation) -> Result<Findings, Failure>),
}

/// Environment of a simulated experiment.
pub(crate) struct Simulation {
    pub(crate) interrupt: Interrupt,
    /// True for the short form.
    pub(crate) quick: bool,
    /// Number of repetitions, each with UEs of different identifiers.
    pub(crate) runs: u32,
    /// Seed of the first population; the others count up.
    pub(crate) seed: u64,
    /// CPU time of a procedure that a replica serves.
    pub(crate) serving_cost: ServingCost,
}

/// Environment of an experiment with a user plane alone.
pub(crate) struct Plane {
    pub(crate) network: Network,
    pub(crate) interrupt: Interrupt,
    /// True for the short form.
    pub(crate) quick: bool,
    /// Number of repetitions of every measurement.
    pub(crate) runs: u32,
    /// RAN nodes of the signalling beside the packets.
    pub(crate) rats: Rats,
}

impl Experiment {
    /// Returns true if the experiment has a form with eNBs and UEs of 4G.
    pub(crate) fn has_either_rat(&self) -> bool {
        matches!(self.run, Run::EitherRat(_) | Run::EitherRatUserPlane(_))
    }
}

impl Plane {
    /// Returns the processor of packets and the processors of everything else.
    pub(crate) fn processors(&self) -> (usize, Vec<usize>) {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        (0, if all > 1 { (1..all).collect() } else { vec![0] })
    }
}
