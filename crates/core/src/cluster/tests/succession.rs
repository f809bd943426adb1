//! What a controller without a memory learns, when the process of the only balancer was killed and is there again.

use super::*;

/// A cluster whose only balancer is the controller, too, and which has gone through so many maps.
fn of_one_balancer(hosts: u16) -> Bench {
    let mut bench = Bench::with(ControllerSettings { alone: true, ..settings(hosts.into()) }, 1);
    bench.settle();
    bench
}

/// The process of the only balancer was killed, and is there again: its controller, before it has heard anybody.
fn successor(before: &Bench) -> Bench {
    let other = Secrets { tmsi_key: [9; 16], recovery: 77 };
    let alone = ControllerSettings { alone: true, ..settings(before.hosts().len()) };
    Bench::of(Controller::new(alone, other, before.now), before.now)
}

/// What a host of this record says to the next controller.
fn comes(bench: &mut Bench, n: u16, record: &DurableState) -> Result<HostId, Refusal> {
    let past = Some(RejoinInfo { id: HostId(n), record: record.clone() });
    bench.controller.join_host(address(n), past, bench.now)
}

#[test]
fn successor_of_only_balancer_learns_the_cluster() {
    let before = of_one_balancer(3);
    let record = before.controller.record();
    let mut next = successor(&before);
    // Its own balancer asks first, and waits for whoever knows more.
    assert_eq!(next.controller.join_balancer(address(200), None, next.now), Err(Refusal::NotYet));
    for n in 0..3 {
        assert_eq!(comes(&mut next, n, &record), Ok(HostId(n)));
    }
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    assert_eq!(new, BalancerId(1), "hosts know the one before by its number");
    next.controller.ready(Member::Balancer(new), next.now);
    next.pass(50);
    // Nobody is waited for: the balancer before cannot come.
    assert_eq!((next.hosts(), next.balancers(), next.controller.secrets()), (vec![0, 1, 2], vec![1], SECRETS));
    assert!(next.epoch() > before.epoch() + 1 && !next.map().is_first(), "{}", next.epoch());
    assert!((0..3).all(|n| next.owned(n) == before.owned(n)));
    // Again: numbers of balancers do not come back soon.
    let mut third = successor(&next);
    (0..3).for_each(|n| assert_eq!(comes(&mut third, n, &next.controller.record()), Ok(HostId(n))));
    assert_eq!(third.controller.join_balancer(address(201), None, third.now), Ok(BalancerId(2)));
}

#[test]
fn successor_gives_buckets_of_hosts_that_died_meanwhile_to_others() {
    let before = of_one_balancer(3);
    let record = before.controller.record();
    let mut next = successor(&before);
    (0..2).for_each(|n| assert_eq!(comes(&mut next, n, &record), Ok(HostId(n))));
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    next.controller.ready(Member::Balancer(new), next.now);
    next.silent.insert(host(2));
    next.pass(900);
    assert_eq!(next.epoch(), before.epoch(), "it may still come");
    next.pass(200);
    assert_eq!((next.hosts(), next.owned(0) + next.owned(1)), (vec![0, 1], usize::from(Bucket::COUNT)));
    assert_eq!(comes(&mut next, 2, &record), Err(Refusal::Fenced(next.epoch())));
}

/// One host that was left out of newer maps comes first, the others late. It is not gone on with alone.
#[test]
fn successor_waits_for_most_hosts_of_the_newest_map() {
    let mut before = of_one_balancer(3);
    let stale = before.controller.record();
    before.controller.lost(host(0));
    before.pass(50);
    let newest = before.controller.record();
    let mut next = successor(&before);
    assert_eq!(comes(&mut next, 0, &stale), Ok(HostId(0)));
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    next.controller.ready(Member::Balancer(new), next.now);
    next.silent.extend([host(1), host(2)]);
    next.pass(4500);
    assert_eq!((next.epoch(), next.hosts()), (stale.map.as_ref().unwrap().epoch(), vec![0, 1, 2]));
    assert_eq!(comes(&mut next, 1, &newest), Ok(HostId(1)));
    assert_eq!(comes(&mut next, 2, &newest), Ok(HostId(2)));
    next.silent.clear();
    next.pass(50);
    assert_eq!((next.hosts(), next.balancers()), (vec![1, 2], vec![1]));
    assert_eq!(comes(&mut next, 0, &stale), Err(Refusal::Fenced(next.epoch())));
    // If the others are dead, those that are there are gone on with in the end, by a map that is newer than any.
    let mut last = successor(&before);
    assert_eq!(comes(&mut last, 0, &stale), Ok(HostId(0)));
    let new = last.controller.join_balancer(address(200), None, last.now).unwrap();
    last.controller.ready(Member::Balancer(new), last.now);
    last.silent.extend([host(1), host(2)]);
    last.pass(5100);
    assert!(last.hosts() == [0] && last.epoch() > before.epoch() + 100, "{}", last.epoch());
    assert_eq!(comes(&mut last, 1, &newest), Err(Refusal::Fenced(last.epoch())));
}

/// Hosts come when it has begun another cluster, in which there is no map yet: it starts anew, and they look for it again.
#[test]
fn controller_that_has_begun_too_early_starts_anew() {
    let before = of_one_balancer(2);
    let record = before.controller.record();
    let mut next = successor(&before);
    next.pass(700);
    let new = next.controller.join_balancer(address(200), None, next.now).unwrap();
    next.controller.ready(Member::Balancer(new), next.now);
    assert!(!next.controller.is_ignorant());
    assert_eq!(comes(&mut next, 0, &record), Err(Refusal::Unlearned));
    assert!(next.controller.is_ignorant());
    // Who has joined the other cluster, in no map, does not teach that to the one that is started anew.
    let fresh = DurableState { secrets: next.controller.secrets(), map: None };
    let mut again = successor(&before);
    assert_eq!(comes(&mut again, 7, &fresh), Err(Refusal::NotYet));
    assert_eq!(comes(&mut again, 0, &record), Ok(HostId(0)));
    assert_eq!(comes(&mut again, 7, &fresh), Err(Refusal::OtherCluster));
    // Once there is a map, it is another cluster.
    let mut other = of_one_balancer(2);
    let strange = DurableState { secrets: Secrets { recovery: 1, ..SECRETS }, map: record.map };
    assert_eq!(comes(&mut other, 0, &strange), Err(Refusal::OtherCluster));
    assert!(!other.controller.is_ignorant());
}
