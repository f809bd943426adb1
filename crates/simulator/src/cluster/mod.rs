//! A cluster on a virtual clock: the decisions are the core's own (`balance` for hosts, `schedule` for NFs and shares), what
//! is made up is time. Procedures arrive by the emulator's patterns, the balancer chooses a host by what hosts have reported,
//! the host's forwarder an NF, and each core serves its NFs by weighted deficit round robin, step by step, each step as long as
//! it was measured to be. The same seed gives the same result.
//!
//! What it leaves out: SCTP, the contents of messages, priorities raised by violations, and UEs that give up.

mod clock;
mod host;
mod outcome;
mod run;
#[cfg(test)]
mod tests;
mod workload;

pub use outcome::{Outcome, PoolOutcome};
pub use run::simulate;
pub use workload::{Heavy, Procedure, Slice, Workload, WorkloadError};

use vireo_core::balance::steer;
use vireo_core::schedule::forward;
use vireo_types::Duration;

/// A cluster and how it decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Hosts.
    pub hosts: u16,
    /// Cores of each, that NFs run on.
    pub cores: usize,
    /// The part of a core that a host's cores really are: below 1 where hosts are capped.
    pub speed: f64,
    /// Which host a procedure goes to.
    pub inter: steer::Policy,
    /// Which NF of it.
    pub intra: forward::Policy,
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
            inter: steer::Policy::default(),
            intra: forward::Policy::default(),
            replicas: 2,
            report_every: Duration::from_millis(200),
            hop: Duration(50),
        }
    }
}
