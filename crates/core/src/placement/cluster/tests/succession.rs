//! Recovery of a controller without a store, after the process of the only balancer was killed.

use super::*;

/// Returns a cluster whose controller runs in its only balancer and which has made several maps.
fn with_single_balancer(hosts: u16) -> Bench {
    let mut bench = Bench::with(ControllerSettings { is_embedded: true, ..settings(hosts.into()) }, 1);
    bench.settle();
    bench
}

/// Restarts the killed process of the only balancer: returns its controller before any member
/// joins.
fn successor(before: &Bench) -> Bench {
    let other = Secrets { tmsi_key: [9; 16], recovery: 77 };
    let alone = ControllerSettings { is_embedded: true, ..settings(before.hosts().len()) };
    Bench::from_controller(Controller::new(alone, other, before.now), before.now)
}

/// Has a host with this state rejoin the next controller.
fn rejoin(bench: &mut Bench, n: u16, record: &DurableState) -> Result<HostId, Refusal> {
    let past = Some(RejoinInfo { id: HostId(n), record: record.clone() });
    bench.controller.join_host(address(n), past, bench.now)
}

#[test]
fn successor_of_only_balancer_learns_the_cluster() {
    let before = with_single_balancer(3);
    let record = before.controller.durable_state();
    let mut next = successor(&before);
    // Its own balancer asks first, and must wait for members that know more.
    assert_eq!(next.controller.join_balancer(address(200), None, next.now), Err(Refusal::NotReady));
    for n in 0..3 {
        assert_eq!(rejoin(&mut next, n, &record), Ok(HostId(n)));
    }
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    assert_eq!(new, BalancerId(1), "hosts know the one before by its number");
    next.controller.on_ready(Member::Balancer(new), next.now);
    next.pass(50);
    // The controller does not wait: the previous balancer cannot return.
    assert_eq!((next.hosts(), next.balancers(), next.controller.secrets()), (vec![0, 1, 2], vec![1], SECRETS));
    assert!(next.epoch() > before.epoch() + 1 && !next.map().is_first(), "{}", next.epoch());
    assert!((0..3).all(|n| next.owned(n) == before.owned(n)));
    // A second restart: balancer IDs are not reused soon.
    let mut third = successor(&next);
    (0..3).for_each(|n| assert_eq!(rejoin(&mut third, n, &next.controller.durable_state()), Ok(HostId(n))));
    assert_eq!(third.controller.join_balancer(address(201), None, third.now), Ok(BalancerId(2)));
}

#[test]
fn successor_reassigns_buckets_of_dead_hosts() {
    let before = with_single_balancer(3);
    let record = before.controller.durable_state();
    let mut next = successor(&before);
    (0..2).for_each(|n| assert_eq!(rejoin(&mut next, n, &record), Ok(HostId(n))));
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    next.controller.on_ready(Member::Balancer(new), next.now);
    next.silent.insert(host(2));
    next.pass(900);
    assert_eq!(next.epoch(), before.epoch(), "it may still come");
    next.pass(200);
    assert_eq!((next.hosts(), next.owned(0) + next.owned(1)), (vec![0, 1], usize::from(Bucket::COUNT)));
    assert_eq!(rejoin(&mut next, 2, &record), Err(Refusal::Fenced(next.epoch())));
}

/// A host that was removed from newer maps rejoins first, the others late. The controller does not
/// continue with it alone.
#[test]
fn successor_waits_for_most_hosts_of_newest_map() {
    let mut before = with_single_balancer(3);
    let stale = before.controller.durable_state();
    before.controller.on_disconnect(host(0));
    before.pass(50);
    let newest = before.controller.durable_state();
    let mut next = successor(&before);
    assert_eq!(rejoin(&mut next, 0, &stale), Ok(HostId(0)));
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    next.controller.on_ready(Member::Balancer(new), next.now);
    next.silent.extend([host(1), host(2)]);
    next.pass(4500);
    assert_eq!((next.epoch(), next.hosts()), (stale.map.as_ref().unwrap().epoch(), vec![0, 1, 2]));
    assert_eq!(rejoin(&mut next, 1, &newest), Ok(HostId(1)));
    assert_eq!(rejoin(&mut next, 2, &newest), Ok(HostId(2)));
    next.silent.clear();
    next.pass(50);
    assert_eq!((next.hosts(), next.balancers()), (vec![1, 2], vec![1]));
    assert_eq!(rejoin(&mut next, 0, &stale), Err(Refusal::Fenced(next.epoch())));
    // If the others are dead, the controller finally continues with the present hosts, by a map
    // that is newer than any.
    let mut last = successor(&before);
    assert_eq!(rejoin(&mut last, 0, &stale), Ok(HostId(0)));
    let new = last.controller.join_balancer(address(200), None, last.now).unwrap();
    last.controller.on_ready(Member::Balancer(new), last.now);
    last.silent.extend([host(1), host(2)]);
    last.pass(5100);
    assert!(last.hosts() == [0] && last.epoch() > before.epoch() + 100, "{}", last.epoch());
    assert_eq!(rejoin(&mut last, 1, &newest), Err(Refusal::Fenced(last.epoch())));
}

/// Hosts join when the controller has created another cluster without a map: it restarts, and they
/// join again.
#[test]
fn controller_of_unknown_cluster_restarts() {
    let before = with_single_balancer(2);
    let record = before.controller.durable_state();
    let mut next = successor(&before);
    next.pass(700);
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    next.controller.on_ready(Member::Balancer(new), next.now);
    assert!(!next.controller.must_restart());
    assert_eq!(rejoin(&mut next, 0, &record), Err(Refusal::UnknownCluster));
    assert!(next.controller.must_restart());
    // A member of the other cluster that was in no map does not teach it to the restarted
    // controller.
    let fresh = DurableState::new(next.controller.secrets(), None);
    let mut again = successor(&before);
    assert_eq!(rejoin(&mut again, 7, &fresh), Err(Refusal::NotReady));
    assert_eq!(rejoin(&mut again, 0, &record), Ok(HostId(0)));
    assert_eq!(rejoin(&mut again, 7, &fresh), Err(Refusal::OtherCluster));
    // Once the controller has a map, the host belongs to another cluster.
    let mut other = with_single_balancer(2);
    let strange = DurableState::new(Secrets { recovery: 1, ..SECRETS }, record.map);
    assert_eq!(rejoin(&mut other, 0, &strange), Err(Refusal::OtherCluster));
    assert!(!other.controller.must_restart());
}

#[test]
fn host_id_in_no_map_has_one_host() {
    let before = with_single_balancer(3);
    let record = before.controller.durable_state();
    let mut next = Bench::from_controller(Controller::restore(settings(3), record.clone(), before.now), before.now);
    (0..3).for_each(|n| assert_eq!(rejoin(&mut next, n, &record), Ok(HostId(n))));
    assert_eq!(next.controller.join_host(address(10), None, next.now), Ok(HostId(3)));
    // The controller before had assigned the same ID to a host that reconnects now.
    let past = Some(RejoinInfo { id: HostId(3), record });
    let second = next.controller.join_host(address(11), past.clone(), next.now);
    assert_eq!(second, Err(Refusal::Fenced(next.epoch())));
    assert_eq!(next.controller.join_host(address(10), past, next.now), Ok(HostId(3)), "the first host reconnects");
}
