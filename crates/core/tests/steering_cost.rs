//! Cost limits of steering on the message path.

use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::load_table::{LoadTable, PoolReport};
use vireo_core::placement::balance::map::{BucketMap, SliceBuckets};
use vireo_core::placement::balance::ring::WeightedHost;
use vireo_core::placement::balance::steer::{HostSet, Policy, Preference, SteeringRequest, select_host};
use vireo_core::schedule::estimate::ServiceTime;
use vireo_types::{Bucket, Duration, Instant};

#[test]
fn choosing_a_host_allocates_nothing() {
    let hosts: Vec<HostId> = (0..100).map(HostId).collect();
    let weighted = hosts.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
    let map = BucketMap::new(1, &[SliceBuckets { weight: 1.0, replicas: 2, hosts: weighted }]);
    let mut loads = LoadTable::new(1, Duration::from_millis(600));
    for host in &hosts {
        loads.report(*host, 0.5, &[PoolReport { backlog: 1.0, share: 1.0 }], Instant(0));
    }
    for prefer in Preference::ALL {
        let fleet = HostSet::new(hosts.clone()).with(prefer);
        for policy in Policy::ALL {
            let counted = allocation_counter::measure(|| {
                for bucket in 0..4096 {
                    let bucket = Bucket::new(bucket);
                    let (time, slo) = (ServiceTime::new(20_000), Duration::from_millis(10));
                    let request = SteeringRequest { bucket, owners: map.owners(bucket), pool: 0, time, slo, turn: 1 };
                    let choice = select_host(policy, &request, &fleet, &loads, Instant(1)).expect("there are hosts");
                    loads.on_sent(choice.host, 0, time);
                    loads.on_ended(choice.host, 0, time);
                }
            });
            assert_eq!(counted.count_total, 0, "{policy:?} {prefer:?}");
        }
    }
}
