//! Weights of hosts: when they may change, and how they outlive the controller.

use super::super::ClusterMap;
use super::super::member::MemberStage;
use super::super::rebalancer::{Points, Rebalance, Rebalancer};
use super::{Controller, slice_buckets};
use crate::placement::balance::HostId;
use crate::placement::balance::map::{BUCKETS, BucketMap};
use crate::placement::balance::ring::{VIRTUAL_NODES, WeightedHost};
use std::collections::BTreeSet;
use vireo_types::{Bucket, Instant};

impl Controller {
    /// Changes the weights of hosts if their loads require it. The next map then starts the
    /// migration.
    pub(super) fn rebalance(&mut self, now: Instant) {
        if self.rebalancer.is_none() {
            return;
        }
        let hosts = self.resting_hosts();
        let Some(rebalancer) = &mut self.rebalancer else { return };
        let Some(hosts) = hosts else { return rebalancer.reset() };
        let settings = &self.settings;
        let owners = |points: &Points| {
            let weight = |points: &u16| f64::from(*points) / f64::from(VIRTUAL_NODES);
            let weighted = points.iter().map(|(host, points)| WeightedHost::new(*host, weight(points)));
            let map = BucketMap::first(&slice_buckets(settings, weighted.collect()));
            (0..Bucket::COUNT).filter_map(|bucket| map.owners(Bucket::new(bucket)).owner()).collect()
        };
        if rebalancer.rebalance(&hosts, now, owners) {
            self.settled = false;
        }
    }

    /// Returns the hosts of the map if their loads are representative: all serve, no bucket
    /// migrates and none is about to. No host is cordoned, since it would get no bucket by a higher
    /// weight.
    fn resting_hosts(&self) -> Option<BTreeSet<HostId>> {
        let is_stable = self.drain.hosts.is_empty() && self.cordon.hosts.is_empty();
        let map = self.map.as_ref().filter(|_| self.is_settled() && is_stable)?;
        let hosts: BTreeSet<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        let changes = self.hosts.iter().any(|(id, host)| match host.stage {
            MemberStage::Starting => true,
            MemberStage::Idle => false,
            MemberStage::Serving => !hosts.contains(id) || !host.liveness.connected || !host.unreached.is_empty(),
        });
        let is_there = |host: &HostId| self.hosts.get(host).is_some_and(|host| host.stage == MemberStage::Serving);
        let scaler = self.fleet_size.scaler.as_ref();
        let scales = scaler.is_some_and(|scaler| scaler.is_pending(hosts.len(), self.idle() > 0));
        (!changes && !scales && hosts.iter().all(is_there)).then_some(hosts)
    }

    /// Returns the weight of a host.
    pub(super) fn weight(&self, host: HostId) -> f64 {
        self.rebalancer.as_ref().map_or(1.0, |rebalancer| rebalancer.weight(host))
    }

    /// Returns the weight of each host of the map. A host that drains has none.
    pub fn weights(&self) -> Vec<(HostId, f64)> {
        let hosts = self.map.iter().flat_map(|map| map.hosts.iter().map(move |(host, _)| (map, *host)));
        let weight =
            |(map, host): (&ClusterMap, HostId)| if map.leaving.contains(&host) { 0.0 } else { self.weight(host) };
        hosts.map(|(map, host)| (host, weight((map, host)))).collect()
    }

    /// Returns and clears the last change of weights.
    pub fn take_rebalanced(&mut self) -> Option<Rebalance> {
        self.rebalancer.as_mut()?.take_done()
    }

    /// Returns the points of hosts to store.
    pub(super) fn points(&self) -> Vec<(HostId, u16)> {
        let points = self.rebalancer.iter().flat_map(Rebalancer::points);
        points.map(|(host, points)| (*host, *points)).collect()
    }

    /// Adopts the points that the previous controller has stored, if it has stored any.
    pub(super) fn adopt_points(&mut self, points: Vec<(HostId, u16)>) {
        if let Some(rebalancer) = self.rebalancer.as_mut().filter(|_| !points.is_empty()) {
            rebalancer.adopt(points.into_iter().collect());
        }
    }

    /// Recovers the points from the map of a controller that has not stored them. A map in
    /// migration follows no ring; then the owned buckets are the measure.
    pub(super) fn recover_points(&mut self, map: &ClusterMap) {
        let Some(rebalancer) = &mut self.rebalancer else { return };
        let points = map.buckets.ring_points(self.settings.replicas.len(), Rebalancer::range()).unwrap_or_else(|| {
            let owners = map.hosts.iter().map(|(host, _)| (*host, map.buckets.buckets_owned_by(*host).count()));
            let owners = owners.filter(|(_, count)| *count > 0);
            let share = |count: usize| count * map.hosts.len() * VIRTUAL_NODES as usize / BUCKETS;
            owners.map(|(host, count)| (host, share(count) as u32)).collect()
        });
        let small = |points: u32| u16::try_from(points).unwrap_or(u16::MAX);
        rebalancer.adopt(points.into_iter().map(|(host, points)| (host, small(points))).collect());
    }
}
