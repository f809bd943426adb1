//! The parts that the pools of UE addresses are cut into: which host has which, and which are nobody's. A host's part follows
//! from its number. UEs take addresses of a part along to other hosts, so the part of a host that is gone is given again only
//! when no UE has an address of it any more. As nobody gets one of it meanwhile, what is known once stays so.

use super::{ClusterMap, ControllerSettings};
use crate::balance::HostId;
use std::collections::{BTreeMap, BTreeSet};

/// The part of a host, of so many.
pub fn partition_of(host: HostId, parts: u16) -> u16 {
    host.0 % parts.max(1)
}

/// Whether a part may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionState {
    Free,
    /// Not all hosts have said of this epoch which they have addresses of.
    Unknown,
    Used,
}

/// What hosts have said of parts whose hosts are gone.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolPartitions {
    /// The epoch of which each has said which of them its UEs have addresses of.
    said: BTreeMap<HostId, (u64, BTreeSet<u16>)>,
}

impl PoolPartitions {
    /// A host has said of which parts its UEs have addresses in an epoch, all of them.
    pub(super) fn said(&mut self, host: HostId, epoch: u64, parts: impl IntoIterator<Item = u16>) {
        self.said.insert(host, (epoch, parts.into_iter().collect()));
    }

    /// A host is gone.
    pub(super) fn forget(&mut self, host: HostId) {
        self.said.remove(&host);
    }

    /// Whether a part that no host has may be given, by the map that holds.
    pub(super) fn look(&self, part: u16, map: &ClusterMap) -> PartitionState {
        if map.lost.contains(&part) {
            return PartitionState::Used;
        }
        let said = |host: &HostId| self.said.get(host).filter(|(epoch, _)| *epoch == map.epoch());
        let mut parts = map.hosts.iter().map(|(host, _)| said(host));
        if parts.clone().flatten().any(|(_, parts)| parts.contains(&part)) {
            return PartitionState::Used;
        }
        if parts.all(|said| said.is_some()) { PartitionState::Free } else { PartitionState::Unknown }
    }
}

/// The parts of hosts that a map has and the next has not, with which sessions may be lost that a UPF still has: of UEs that
/// nobody has a copy of, or none of the last commit.
/// Until all are there that a map wants (`settled`), nobody is sure to have them.
pub(super) fn lost(map: &ClusterMap, next: &[HostId], settings: &ControllerSettings, settled: bool) -> Vec<u16> {
    let gone = map.hosts.iter().map(|(host, _)| *host).filter(|host| !next.contains(host));
    let loses = |host: &HostId| {
        let mut owned = map.buckets.buckets_owned_by(*host);
        owned.any(|owners| !settings.lossless || !settled || !owners.replicas().any(|replica| next.contains(&replica)))
    };
    let lost = gone.filter(loses).map(|host| partition_of(host, settings.most_hosts));
    let all: BTreeSet<u16> = map.lost.iter().copied().chain(lost).collect();
    all.into_iter().collect()
}
