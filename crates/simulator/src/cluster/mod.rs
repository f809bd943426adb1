//! Cluster on a virtual clock, with the core's decisions and simulated time.
//!
//! The core's `balance` chooses hosts; its `schedule` chooses NFs and shares. Procedures arrive by
//! the emulator's patterns. The balancer chooses a host by the hosts' reports, and the host's
//! forwarder chooses an NF. Each core serves its NFs by weighted deficit round robin, step by step,
//! with measured step times. The same seed yields the same result.
//!
//! The simulation has no SCTP, no message contents, no priority increase after violations, and no
//! UEs that give up.

mod cap;
pub(crate) mod clock;
mod comparison;
mod host;
mod outcome;
mod run;
#[cfg(test)]
mod tests;
mod workload;

pub use cap::Cap;
pub use comparison::Comparison;
pub use outcome::{Outcome, PoolOutcome};
pub use run::{Arrival, simulate, trace};
pub use workload::{Heavy, Procedure, Slice, Workload, WorkloadError};

use vireo_core::placement::balance::load_table::Estimate;
use vireo_core::placement::balance::steer;
use vireo_core::schedule::dispatch;
use vireo_types::Duration;

/// Source of the service time `T_t`, at the speed of the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Mean of all UEs, as hosts measure at run time.
    #[default]
    Mean,
    /// UEs with the longest procedures: a conservative profile made in advance.
    Heaviest,
}

/// Cluster and its policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    pub hosts: u16,
    /// Cores for NFs of each host.
    pub cores: usize,
    /// Speed of a host's core relative to a reference core; below 1 is slower.
    pub speed: f64,
    /// CPU limit of a cgroup for each host, if any: full speed, but not at all times.
    pub cap: Option<Cap>,
    /// Additional time of the first message that reaches an idle core: threads wake up and caches
    /// are cold. Messages that arrive at a busy core do not have it.
    pub wake: Duration,
    /// Samples one procedure of this many, on hosts that are slower by the same factor. The
    /// relative load of a host and the distribution of UEs stay the same. Up to 100 million UEs are
    /// possible, since no UE is stored. Queues are coarser, so the simulation overestimates late
    /// procedures rather than underestimates them.
    pub sample: u32,
    /// Policy that chooses the host of a procedure.
    pub inter: steer::Policy,
    /// Preference among the hosts that meet the objective, by skewed consistent hashing.
    pub prefer: steer::Preference,
    /// Estimate of the hosts' loads between their reports.
    pub estimate: Estimate,
    /// Source of the service time `T_t`.
    pub profile: Profile,
    /// True if round robin binds a UE to a host permanently: each UE has its turn, not each
    /// procedure.
    pub bound: bool,
    /// Policy that chooses the NF of a host.
    pub intra: dispatch::Policy,
    /// Replicas of a UE's state besides its owner.
    pub replicas: usize,
    /// Interval of the hosts' load reports.
    pub report_every: Duration,
    /// One-way time between balancer and host.
    pub hop: Duration,
}

impl Default for Setup {
    /// Returns three hosts of one core with the default policies of the product.
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
