//! Settings of the balancer.

use crate::config::CoreConfig;
use crate::placement::balance::BalancerId;
use crate::placement::balance::steer::Policy;
use crate::schedule::kind::NfKind;
use std::net::IpAddr;
use vireo_types::Duration;

/// Latency objective where no slice is configured.
const DEFAULT_OBJECTIVE: Duration = Duration::from_millis(100);

/// Settings of a balancer machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// ID that the controller has assigned.
    pub balancer: BalancerId,
    /// Key from which 5G-TMSIs are derived.
    pub tmsi_key: [u8; 16],
    /// Policy for new UEs.
    pub policy: Policy,
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
    pub several: bool,
}

impl Settings {
    /// Returns the strictest objective of all slices.
    pub(super) fn strictest_objective(&self, kind: NfKind) -> Duration {
        self.objectives.iter().map(|slice| slice[kind.index()]).min().unwrap_or(DEFAULT_OBJECTIVE)
    }
}
