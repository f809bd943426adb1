//! Partitions of the UE address pools and their assignment to hosts.
//!
//! The partition of a host follows from its ID. UEs take addresses of a partition along to other
//! hosts. The partition of a departed host is therefore assigned again only when no UE uses an
//! address of it. As no host assigns addresses of it meanwhile, a partition that is once known to
//! be unused stays unused.

use super::ClusterMap;
use super::settings::ControllerSettings;
use crate::placement::balance::HostId;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the partition of a host, of `parts` partitions.
pub fn partition_of(host: HostId, parts: u16) -> u16 {
    host.0 % parts.max(1)
}

/// State of a partition without a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionState {
    Free,
    /// Not all hosts have reported for this epoch which partitions they use.
    Unknown,
    Used,
}

/// Reports of the hosts about partitions of departed hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolPartitions {
    /// Per host, the epoch of its last report and the partitions that its UEs use.
    reports: BTreeMap<HostId, (u64, BTreeSet<u16>)>,
}

impl PoolPartitions {
    /// Records all partitions that the UEs of a host use in an epoch.
    pub(super) fn report(&mut self, host: HostId, epoch: u64, parts: impl IntoIterator<Item = u16>) {
        self.reports.insert(host, (epoch, parts.into_iter().collect()));
    }

    /// Removes the report of a departed host.
    pub(super) fn forget(&mut self, host: HostId) {
        self.reports.remove(&host);
    }

    /// Returns the state of a partition that no host has, by the current map.
    pub(super) fn state_of(&self, part: u16, map: &ClusterMap) -> PartitionState {
        if map.lost.contains(&part) {
            return PartitionState::Used;
        }
        let report = |host: &HostId| self.reports.get(host).filter(|(epoch, _)| *epoch == map.epoch());
        let mut parts = map.hosts.iter().map(|(host, _)| report(host));
        if parts.clone().flatten().any(|(_, parts)| parts.contains(&part)) {
            return PartitionState::Used;
        }
        if parts.all(|report| report.is_some()) { PartitionState::Free } else { PartitionState::Unknown }
    }
}

/// Returns the partitions that are lost with this change of hosts, including earlier ones. The UPF
/// may still have PFCP sessions of their UEs: of UEs without a copy, or without one of the last
/// commit. Until all copies required by a map exist (`settled`), every such partition counts as
/// lost.
pub(super) fn lost_partitions(
    map: &ClusterMap,
    next: &BTreeSet<HostId>,
    settings: &ControllerSettings,
    settled: bool,
) -> Vec<u16> {
    let gone = map.hosts.iter().map(|(host, _)| *host).filter(|host| !next.contains(host));
    let loses = |host: &HostId| {
        let mut owned = map.buckets.buckets_owned_by(*host);
        owned.any(|owners| !settings.lossless || !settled || !owners.replicas().any(|replica| next.contains(&replica)))
    };
    let lost = gone.filter(loses).map(|host| partition_of(host, settings.max_hosts));
    let all: BTreeSet<u16> = map.lost.iter().copied().chain(lost).collect();
    all.into_iter().collect()
}
