//! Members of a cluster in the status API.

use std::collections::BTreeMap;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::{ClusterMap, MachineLabel};
use vireo_ops::api::{BalancerStatus, HostStatus};
use vireo_types::Bucket;

/// Number of dead hosts that are remembered.
const DEAD_HOSTS: usize = 64;

/// Adds the hosts that the new map lacks and that owned buckets in the one before. A host that
/// drains owns none at its end. No other host ever gets the ID of a dead one.
pub fn note_dead_hosts(dead: &mut Vec<u16>, before: &[HostStatus], now: &ClusterMap) {
    let is_dead = |host: &&HostStatus| host.buckets > 0 && !now.has_host(HostId(host.host));
    dead.extend(before.iter().filter(is_dead).map(|host| host.host));
    let surplus = dead.len().saturating_sub(DEAD_HOSTS);
    dead.drain(..surplus);
}

/// Returns the status entries of a map. The controller knows the machines of the hosts.
pub fn member_status(
    map: &ClusterMap,
    machines: &BTreeMap<HostId, MachineLabel>,
) -> (Vec<HostStatus>, Vec<BalancerStatus>) {
    let buckets = || (0..Bucket::COUNT).map(|bucket| map.buckets.owners(Bucket::new(bucket)));
    let hosts = map.hosts.iter().map(|(host, address)| HostStatus {
        host: host.0,
        address: address.to_string(),
        buckets: buckets().filter(|owners| owners.owner() == Some(*host)).count(),
        replicas: buckets().filter(|owners| owners.replicas().any(|replica| replica == *host)).count(),
        epoch: map.epoch(),
        machine: machines.get(host).map(MachineLabel::to_string),
        cordoned: false,
    });
    let balancers = map.balancers.iter().map(|(balancer, address)| BalancerStatus {
        balancer: balancer.0,
        address: address.to_string(),
        holds_n4: map.holder() == Some(*balancer),
    });
    (hosts.collect(), balancers.collect())
}
