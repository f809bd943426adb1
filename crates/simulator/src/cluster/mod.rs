//! A cluster on a virtual clock: the decisions are the core's own (`balance` for hosts, `schedule` for NFs and shares), what
//! is made up is time. Procedures arrive by the emulator's patterns, the balancer chooses a host by what hosts have reported,
//! the host's forwarder an NF, and each core serves its NFs by weighted deficit round robin, step by step, each step as long as
//! it was measured to be. The same seed gives the same result.
//!
//! What it leaves out: SCTP, the contents of messages, priorities raised by violations, and UEs that give up.

mod cap;
pub(crate) mod clock;
mod comparison;
mod host;
mod ilp;
mod outcome;
mod run;
#[cfg(test)]
mod tests;
mod workload;

pub use cap::Cap;
pub use comparison::Comparison;
pub use ilp::{Optimum, OptimumError, optimum};
pub use outcome::{Outcome, PoolOutcome};
pub use run::simulate;
pub use workload::{Heavy, Procedure, Slice, Workload, WorkloadError};

use vireo_core::balance::load_table::Estimate;
use vireo_core::balance::steer;
use vireo_core::schedule::dispatch;
use vireo_types::Duration;

/// Whose procedures `T_t` is the time of, at the speed of the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Those of all UEs in the mean, as hosts measure while they run.
    #[default]
    Mean,
    /// Those of the UEs whose procedures take longest: a profile taken beforehand that must not promise too much.
    Heaviest,
}

/// A cluster and how it decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Hosts.
    pub hosts: u16,
    /// Cores of each, that NFs run on.
    pub cores: usize,
    /// The part of a core that a host's cores really are: below 1 where they are slower.
    pub speed: f64,
    /// What a cgroup leaves each host, if one does: its cores are as fast as they were, but not at all times.
    pub cap: Option<Cap>,
    /// What the first message takes besides that comes to a core without work: threads wake for it, and find their caches cold. Those
    /// that come while it works are spared that.
    pub wake: Duration,
    /// One procedure of so many is simulated, on hosts that are so many times slower. What a host has to do stays the same part of
    /// what it can, and UEs are as uneven as they were: there may be 100 million, of which nothing is stored. Queues are coarser, by
    /// which procedures are late rather too often than too seldom.
    pub sample: u32,
    /// Which host a procedure goes to.
    pub inter: steer::Policy,
    /// Which of the hosts that keep the objective, by skewed consistent hashing.
    pub prefer: steer::Preference,
    /// How the balancer knows hosts' loads between their reports.
    pub estimate: Estimate,
    /// Whose procedures `T_t` is the time of.
    pub profile: Profile,
    /// Whether a UE is at one host for all time where hosts take turns: the host's turn is the UE's then, not the procedure's.
    pub bound: bool,
    /// Which NF of it.
    pub intra: dispatch::Policy,
    /// Hosts that keep a UE's state besides its primary.
    pub replicas: usize,
    /// How often hosts report their loads.
    pub report_every: Duration,
    /// From balancer to host, and back.
    pub hop: Duration,
}

impl Default for Setup {
    /// Three hosts of one core, with what the product does by default.
    fn default() -> Self {
        Setup {
            hosts: 3,
            cores: 1,
            speed: 1.0,
            cap: None,
            wake: Duration(0),
            sample: 1,
            inter: steer::Policy::default(),
            prefer: steer::Preference::default(),
            estimate: Estimate::default(),
            profile: Profile::default(),
            bound: false,
            intra: dispatch::Policy::default(),
            replicas: 2,
            report_every: Duration::from_millis(200),
            hop: Duration(50),
        }
    }
}
