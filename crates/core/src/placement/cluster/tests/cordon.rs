//! Cordoned hosts: their buckets, and controllers that follow.

use super::*;

/// Returns the buckets of which a host is the owner or a replica.
fn buckets(bench: &Bench, host: u16) -> BTreeSet<u16> {
    (0..Bucket::COUNT).filter(|bucket| bench.map().buckets.owners(Bucket::new(*bucket)).has(HostId(host))).collect()
}

/// Creates a settled cluster of four hosts.
fn settled() -> Bench {
    let mut bench = Bench::new(4, 1);
    bench.settle();
    bench
}

fn lose_last_host(bench: &mut Bench) {
    bench.controller.on_disconnect(host(3));
    bench.pass(100);
    bench.settle();
    assert!(bench.controller.is_settled());
}

#[test]
fn cordoned_host_gains_no_bucket() {
    let (mut bench, mut plain) = (settled(), settled());
    let (before, epoch) = (buckets(&bench, 1), bench.epoch());
    assert!(bench.controller.cordon(HostId(1), true) && !bench.controller.cordon(HostId(9), true));
    bench.settle();
    assert_eq!((bench.epoch(), buckets(&bench, 1)), (epoch + 1, before.clone()), "one map, which stores the change");
    assert!(bench.controller.is_settled() && bench.controller.cordon(HostId(1), true));
    bench.settle();
    assert_eq!(bench.epoch(), epoch + 1, "no change");

    // The buckets of a dead host get their second copies elsewhere.
    [&mut bench, &mut plain].into_iter().for_each(lose_last_host);
    assert!(buckets(&bench, 1).is_subset(&before) && !buckets(&plain, 1).is_subset(&before));
    let copies = |bucket| bench.map().buckets.owners(Bucket::new(bucket)).all().count();
    assert!((0..Bucket::COUNT).all(|bucket| copies(bucket) == 2));

    assert!(bench.controller.cordon(HostId(1), false));
    bench.settle();
    assert!(bench.controller.is_settled());
    (0..3).for_each(|host| assert_eq!(buckets(&bench, host), buckets(&plain, host), "as if it was never cordoned"));
}

#[test]
fn drained_host_is_not_cordoned_any_more() {
    let mut bench = settled();
    bench.controller.cordon(HostId(3), true);
    bench.settle();
    assert!(bench.controller.drain(HostId(3)));
    bench.settle();
    assert_eq!((bench.hosts(), bench.controller.cordoned().count()), (vec![0, 1, 2], 0));
}

#[test]
fn cordon_outlives_its_controller() {
    let mut bench = settled();
    assert_eq!(bench.controller.cordoned_for_balancers(), None, "balancers have no list");
    bench.controller.cordon(HostId(2), true);
    bench.settle();
    let stored = bench.controller.durable_state();
    let cordoned = |controller: &Controller| controller.cordoned().collect::<Vec<_>>();
    let restored = Controller::restore(settings(4), stored.clone(), bench.now);
    assert_eq!(cordoned(&restored), [HostId(2)]);
    assert_eq!(restored.cordoned_for_balancers(), Some(vec![HostId(2)]));

    // Without a store a balancer reports the list, soon after the start.
    let (known, start) = (DurableState::new(SECRETS, stored.map), bench.now);
    let report = |seconds: u64| {
        let mut next = Controller::new(settings(4), SECRETS, start);
        let now = start + Duration::from_secs(seconds);
        let past = RejoinInfo { id: HostId(2), record: known.clone() };
        assert_eq!(next.join_host(address(2), Some(past), now), Ok(HostId(2)));
        next.report_cordoned(&[HostId(2), HostId(77)], now);
        (cordoned(&next), next.cordoned_for_balancers())
    };
    assert_eq!(report(1), (vec![HostId(2)], Some(vec![HostId(2)])));
    assert_eq!(report(60), (vec![], Some(vec![])), "an old list of a balancer that was isolated");
}
