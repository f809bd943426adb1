//! Cluster on a virtual clock, with the core's decisions and simulated time.
//!
//! The product's balancer machine (`core::placement::balancer`) chooses the host of a procedure by
//! the hosts' reports, keeps the choice and recalls late inputs; `schedule` chooses NFs and shares;
//! the rebalancer of the controller changes the weights of hosts. Procedures arrive by the
//! emulator's patterns. Each core serves its NFs by weighted deficit round robin, step by step,
//! with measured step times. The same seed yields the same result.
//!
//! A procedure that a replica serves costs [`ServingCost`]. The proposal, and the answer to the
//! balancer, take the time of the network. An effect waits for the acknowledgement of the first
//! replica, which is that host's proposal if it serves; the last effect of a procedure waits for
//! all replicas.
//!
//! The simulation has no SCTP, no message contents, no conflicts of a UE's procedures, no priority
//! increase after violations, and no UEs that give up.

mod arrivals;
mod balancer;
mod cap;
pub(crate) mod clock;
mod comparison;
mod host;
mod host_weights;
mod outcome;
mod run;
mod serving_cost;
#[cfg(test)]
mod tests;
mod workload;

pub use arrivals::{Arrival, trace};
pub use cap::Cap;
pub use comparison::Comparison;
pub use outcome::{Outcome, PoolOutcome, ServedCounts};
pub use run::simulate;
pub use serving_cost::{ServingCost, ServingCostError};
pub use workload::{HeavyUes, Procedure, Slice, Workload, WorkloadError};

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

/// What is bound to a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// A procedure: the balancer chooses among the owner of the UE and its replicas (`[steering]
    /// serve = "procedure"`).
    #[default]
    Procedure,
    /// A UE: the balancer chooses the owner at its first message (`serve = "owner"`).
    FirstMessage,
    /// A bucket: its owner serves the UEs, whose buckets are random.
    Bucket,
    /// A UE, by a table of the policy that has no buckets and no balancer.
    Ue,
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
    /// Source of the service time `T_t`.
    pub profile: Profile,
    /// Scope of a choice of a host.
    pub binding: Binding,
    /// CPU time of a procedure that a replica serves.
    pub serving_cost: ServingCost,
    /// Minimum time between changes of the hosts' weights by load (`cluster.rebalance = "load"`).
    /// `None`: the weights are equal.
    pub rebalance: Option<Duration>,
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
            profile: Profile::default(),
            binding: Binding::default(),
            serving_cost: ServingCost::default(),
            rebalance: None,
            intra: dispatch::Policy::default(),
            replicas: 2,
            report_every: Duration::from_millis(200),
            hop: Duration(50),
        }
    }
}
