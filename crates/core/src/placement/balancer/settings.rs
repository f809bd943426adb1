//! Settings of the balancer.

use crate::config::CoreConfig;
use crate::placement::balance::BalancerId;
use crate::placement::balance::steer::{Policy, Preference};
use crate::schedule::kind::NfKind;
use std::net::IpAddr;
use vireo_types::Duration;

/// Latency objective where no slice is configured.
const DEFAULT_OBJECTIVE: Duration = Duration::from_millis(100);

/// Hosts that serve procedures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serve {
    /// The owner of the UE.
    #[default]
    Owner,
    /// The owner or a replica, chosen for each procedure.
    Procedure,
}

impl Serve {
    /// All values, in configuration order.
    pub const ALL: [Serve; 2] = [Serve::Procedure, Serve::Owner];

    /// Returns the name in the configuration (`steering.serve`).
    pub const fn name(self) -> &'static str {
        match self {
            Serve::Owner => "owner",
            Serve::Procedure => "procedure",
        }
    }

    /// Returns the value with a configuration name.
    pub fn from_name(name: &str) -> Option<Self> {
        Serve::ALL.into_iter().find(|serve| serve.name() == name)
    }
}

/// Settings of a balancer machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// ID that the controller has assigned.
    pub balancer: BalancerId,
    /// Key from which 5G-TMSIs are derived.
    pub tmsi_key: [u8; 16],
    /// Policy for new UEs and, with [`Serve::Procedure`], for procedures.
    pub policy: Policy,
    /// Preference of the policy among hosts that meet the objective.
    pub prefer: Preference,
    /// Hosts that serve the procedures of known UEs.
    pub serve: Serve,
    pub core: CoreConfig,
    /// Latency objectives of each slice, by kind of procedure.
    pub objectives: Vec<[Duration; NfKind::ALL.len()]>,
    /// Age from which a host's load report is ignored.
    pub stale: Duration,
    /// Number of missed heartbeats after which a peer is silent.
    pub misses: u32,
    /// AMF addresses of the associations.
    pub endpoints: Vec<IpAddr>,
    /// True if the cluster may have other balancers. Hosts then keep NGAP PDUs until the balancer
    /// acknowledges that they were sent.
    pub has_other_balancers: bool,
}

impl Settings {
    /// Returns the objective of a slice; 0 is for UEs whose slice is not known.
    pub(super) fn objective(&self, slice: usize, kind: NfKind) -> Duration {
        let known = slice.checked_sub(1).and_then(|slice| self.objectives.get(slice));
        known.map_or_else(|| self.strictest_objective(kind), |slice| slice[kind.index()])
    }

    /// Returns the strictest objective of all slices.
    pub(super) fn strictest_objective(&self, kind: NfKind) -> Duration {
        self.objectives.iter().map(|slice| slice[kind.index()]).min().unwrap_or(DEFAULT_OBJECTIVE)
    }
}
