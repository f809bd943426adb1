//! Weights of hosts in the controller: migrations by load, and what they wait for.

use super::*;

const PAUSE: Duration = Duration::from_secs(2);

fn with_rebalance(settings: ControllerSettings) -> ControllerSettings {
    ControllerSettings { rebalance_pause: Some(PAUSE), max_migrating_buckets: 512, ..settings }
}

/// Lets hosts report their load for a time, each half of its CPU in the mean. The load of the
/// `heavy` buckets is `factor` times that of the others. Returns the times at which migrations
/// started.
fn run(bench: &mut Bench, heavy: &BTreeSet<u16>, factor: f32, millis: u64) -> Vec<u64> {
    let mut starts = Vec::new();
    for _ in 0..millis / 50 {
        let loads = loads(bench, heavy, factor);
        let mean = loads.iter().sum::<f32>() / loads.len() as f32;
        for (host, load) in bench.hosts().into_iter().zip(loads) {
            let cpu = 0.5 * load / mean;
            bench.controller.on_load_report(HostId(host), HostUtilisation { cpu, late: false, rate: load }, bench.now);
        }
        let was_settled = bench.controller.is_settled();
        let epoch = bench.epoch();
        bench.caught_up();
        assert!(bench.map().buckets.is_complete());
        assert!(!bench.controller.is_settled() || bench.hosts().iter().all(|host| bench.owned(*host) > 0));
        if was_settled && bench.epoch() > epoch {
            starts.push(bench.now.0 / MS);
        }
    }
    starts
}

/// Returns the load of each host by its buckets.
fn loads(bench: &Bench, heavy: &BTreeSet<u16>, factor: f32) -> Vec<f32> {
    let load = |host: u16| {
        let owned =
            (0..Bucket::COUNT).filter(|n| bench.map().buckets.owners(Bucket::new(*n)).owner() == Some(HostId(host)));
        owned.map(|n| if heavy.contains(&n) { factor } else { 1.0 }).sum()
    };
    bench.hosts().into_iter().map(load).collect()
}

fn spread(loads: &[f32]) -> f32 {
    let mean = loads.iter().sum::<f32>() / loads.len() as f32;
    (loads.iter().copied().fold(0.0, f32::max) - loads.iter().copied().fold(f32::MAX, f32::min)) / mean
}

/// Returns the buckets of a host.
fn buckets_of(bench: &Bench, host: u16) -> BTreeSet<u16> {
    (0..Bucket::COUNT).filter(|n| bench.map().buckets.owners(Bucket::new(*n)).owner() == Some(HostId(host))).collect()
}

fn settled(settings: ControllerSettings) -> Bench {
    let mut bench = Bench::with(settings, 1);
    bench.settle();
    assert!(bench.controller.is_settled());
    bench
}

#[test]
fn skewed_cluster_is_balanced_by_migrations() {
    let mut bench = settled(with_rebalance(settings(3)));
    let heavy = buckets_of(&bench, 0);
    assert!(spread(&loads(&bench, &heavy, 3.0)) > 0.8);
    let starts = run(&mut bench, &heavy, 3.0, 40_000);
    let spread = spread(&loads(&bench, &heavy, 3.0));
    assert!(spread < 0.1 && (2..=10).contains(&starts.len()), "{spread} after {starts:?}");
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 2000), "{starts:?}");
    let done = bench.controller.take_rebalanced().expect("a change");
    assert!(done.weights[0].1 < 0.8 && done.weights[1].1 > 1.0, "{done:?}");
    assert_eq!(run(&mut bench, &heavy, 3.0, 60_000), [], "it has come to rest");
}

#[test]
fn equal_weights_stay_without_the_setting() {
    let mut bench = settled(settings(3));
    let (heavy, epoch) = (buckets_of(&bench, 0), bench.epoch());
    assert_eq!(run(&mut bench, &heavy, 3.0, 10_000), []);
    assert_eq!((bench.epoch(), bench.controller.take_rebalanced()), (epoch, None));
    assert!(bench.controller.durable_state().points.is_empty());
    assert!(bench.controller.weights().iter().all(|(_, weight)| (*weight - 1.0).abs() < 1e-9));
    // Hosts that cannot migrate anything keep their weights, too.
    let mut bench = settled(ControllerSettings { migrates: false, ..with_rebalance(settings(3)) });
    assert_eq!(run(&mut bench, &heavy, 3.0, 10_000), []);
}

#[test]
fn balanced_cluster_has_no_new_map() {
    let mut bench = settled(with_rebalance(settings(3)));
    let epoch = bench.epoch();
    // By chance the ring gives some hosts more buckets than others: within the first seconds this
    // is corrected.
    let first = run(&mut bench, &BTreeSet::new(), 1.0, 20_000);
    assert!(first.len() <= 4, "{first:?}");
    assert_eq!(run(&mut bench, &BTreeSet::new(), 1.0, 60_000), []);
    assert!(spread(&loads(&bench, &BTreeSet::new(), 1.0)) < 0.1 && bench.epoch() >= epoch);
}

/// A successor with the stored state, one that learns the map from a member, and one that starts
/// with equal weights.
#[test]
fn restarted_controller_keeps_weights() {
    let mut bench = settled(with_rebalance(settings(3)));
    let heavy = buckets_of(&bench, 0);
    run(&mut bench, &heavy, 3.0, 12_000);
    while !bench.controller.is_settled() {
        bench.caught_up();
    }
    let state = bench.controller.durable_state();
    assert!(state.points.iter().any(|(_, points)| *points < 140), "{:?}", state.points);
    let known = DurableState::new(state.secrets, state.map.clone());
    for (record, setting, is_same) in
        [(state.clone(), Some(PAUSE), true), (known.clone(), Some(PAUSE), true), (state, None, false)]
    {
        let settings = ControllerSettings { rebalance_pause: setting, ..with_rebalance(settings(3)) };
        let mut next = Bench::from_controller(Controller::restore(settings, record, bench.now), bench.now);
        for n in 0..3 {
            let past = Some(RejoinInfo { id: HostId(n), record: known.clone() });
            assert_eq!(next.controller.join_host(address(n), past, next.now), Ok(HostId(n)));
        }
        let past = Some(RejoinInfo { id: BalancerId(0), record: known.clone() });
        assert_eq!(next.controller.join_balancer(address(100), past, next.now), Ok(BalancerId(0)));
        next.pass(100);
        next.settle();
        assert!(next.controller.is_settled());
        let before = known.map.as_ref().unwrap();
        let moved = (0..Bucket::COUNT).map(Bucket::new);
        let moved =
            moved.filter(|b| before.buckets.owners(*b).owner() != next.map().buckets.owners(*b).owner()).count();
        assert_eq!(moved == 0, is_same, "{moved} buckets move");
    }
}

#[test]
fn rebalance_waits_for_joining_and_leaving_hosts() {
    let mut bench = settled(with_rebalance(settings(3)));
    let heavy = buckets_of(&bench, 0);
    // A host joins and is not ready yet.
    let id = bench.controller.join_host(address(9), None, bench.now).unwrap();
    bench.silent.insert(Member::Host(id));
    assert_eq!(run(&mut bench, &heavy, 3.0, 6_000), []);
    bench.silent.clear();
    bench.controller.on_ready(Member::Host(id), bench.now);
    let ready = bench.now.0 / MS;
    let starts = run(&mut bench, &heavy, 3.0, 10_000);
    let hosts = bench.hosts();
    assert!(hosts.contains(&id.0) && starts.first() < Some(&(ready + 200)), "its own migration: {starts:?}");
    assert!(starts.iter().all(|start| *start < ready + 200 || *start > ready + 2000), "{starts:?}");
    // The migration of a host that leaves takes everything from it.
    assert!(bench.controller.drain(HostId(1)));
    bench.pass(50);
    let before = bench.controller.weights();
    assert!(before.iter().any(|(host, weight)| *host == HostId(1) && *weight == 0.0), "{before:?}");
    bench.settle();
    assert_eq!((bench.hosts().contains(&1), bench.controller.is_settled()), (false, true));
    // A host dies: its replicas take over, and the others keep their weights.
    let weights = bench.controller.weights();
    bench.controller.on_disconnect(host(2));
    bench.pass(50);
    let left: Vec<_> = weights.into_iter().filter(|(host, _)| host.0 != 2).collect();
    assert_eq!(bench.controller.weights(), left);
}
