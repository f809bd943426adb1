//! Weights of hosts by their load: the controller's [`Rebalancer`] on the virtual clock.
//!
//! A change of weights migrates buckets at once and at no cost.

use std::collections::BTreeSet;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::map::{BucketMap, SliceBuckets};
use vireo_core::placement::balance::ring::{VIRTUAL_NODES, WeightedHost};
use vireo_core::placement::cluster::{Points, Rebalancer};
use vireo_types::{Bucket, Duration, Instant};

/// Returns the map of hosts with these weights, as the controller makes it: all slices, and the UEs
/// of unknown slice, have equal parts of the buckets.
pub(super) fn bucket_map(hosts: &[WeightedHost], slices: usize, replicas: usize) -> BucketMap {
    let part = SliceBuckets { weight: 1.0, replicas, hosts: hosts.to_vec() };
    BucketMap::first(&vec![part; slices + 1])
}

/// Weights of the hosts.
#[derive(Debug)]
pub(super) struct HostWeights {
    rebalancer: Rebalancer,
    hosts: BTreeSet<HostId>,
    slices: usize,
    replicas: usize,
    changes: u64,
}

impl HostWeights {
    /// Creates the loop of hosts with equal weights. `pause` is the minimum time between changes.
    pub(super) fn new(hosts: &[HostId], (slices, replicas): (usize, usize), pause: Duration) -> Self {
        let hosts: BTreeSet<HostId> = hosts.iter().copied().collect();
        let mut rebalancer = Rebalancer::new(pause);
        rebalancer.set_hosts(&hosts);
        HostWeights { rebalancer, hosts, slices, replicas, changes: 0 }
    }

    /// Stores the load report of a host.
    pub(super) fn on_report(&mut self, host: HostId, cpu: f64, now: Instant) {
        self.rebalancer.on_load_report(host, cpu as f32, now);
    }

    /// Returns the next map if the loads require one.
    pub(super) fn next_map(&mut self, now: Instant) -> Option<BucketMap> {
        let (slices, replicas) = (self.slices, self.replicas);
        let map = |points: &Points| {
            let weight = |points: u16| f64::from(points) / f64::from(VIRTUAL_NODES);
            let hosts = points.iter().map(|(host, points)| WeightedHost::new(*host, weight(*points)));
            bucket_map(&hosts.collect::<Vec<_>>(), slices, replicas)
        };
        let owners = |points: &Points| {
            let map = map(points);
            (0..Bucket::COUNT).filter_map(|bucket| map.owners(Bucket::new(bucket)).owner()).collect()
        };
        if !self.rebalancer.rebalance(&self.hosts, now, owners) {
            return None;
        }
        // The loads before the migration are those of other buckets.
        self.rebalancer.reset();
        self.changes += 1;
        Some(map(self.rebalancer.points()).advance_epoch(self.changes))
    }
}
