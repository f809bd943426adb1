//! Machines that hosts share: a failure of one ends all its hosts.

use super::HostId;
use super::ring::WeightedHost;
use std::collections::{BTreeMap, BTreeSet};

/// Number of a machine, equal for the hosts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachineIndex(pub u16);

/// Machines of hosts. A host that is not listed shares its machine with no host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Machines(BTreeMap<HostId, MachineIndex>);

impl Machines {
    pub(super) fn new(hosts: &[WeightedHost]) -> Self {
        Machines(hosts.iter().filter_map(|weighted| Some((weighted.host, weighted.machine?))).collect())
    }

    /// Returns true if two hosts are on one machine.
    pub(super) fn share(&self, one: HostId, other: HostId) -> bool {
        let machine = |host| self.0.get(&host);
        one == other || machine(one).is_some_and(|own| machine(other) == Some(own))
    }

    /// Returns the number of listed hosts minus that of their machines.
    pub(super) fn shared(&self) -> usize {
        self.0.len() - self.0.values().collect::<BTreeSet<_>>().len()
    }

    /// Returns true if no two hosts are on one machine.
    pub(super) fn are_all_distinct(&self) -> bool {
        self.0.is_empty() || self.shared() == 0
    }
}
