mod cordon;
mod machines;
mod rebalance;
mod succession;

use super::*;
use crate::hash::hash_pair;
use std::collections::{BTreeMap, BTreeSet};
use vireo_types::{Bucket, Duration, Instant};

const SECRETS: Secrets = Secrets { tmsi_key: [7; 16], recovery: 9 };
const MS: u64 = 1000;

fn settings(hosts: usize) -> ControllerSettings {
    ControllerSettings {
        hosts,
        max_hosts: 16,
        lossless: true,
        replicas: vec![1, 1],
        migrates: true,
        max_migrating_buckets: 4096,
        scaling: None,
        rebalance_pause: None,
        silence: Duration::from_millis(200),
        reconnect_timeout: Duration::from_secs(1),
        discovery_time: Duration::from_millis(600),
        is_embedded: false,
    }
}

fn address(n: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + n))
}

/// Controller with a clock. Members send heartbeats unless they are listed as silent.
struct Bench {
    controller: Controller,
    now: Instant,
    silent: BTreeSet<Member>,
}

fn host(n: u16) -> Member {
    Member::Host(HostId(n))
}

fn balancer(n: u8) -> Member {
    Member::Balancer(BalancerId(n))
}

impl Bench {
    fn from_controller(controller: Controller, now: Instant) -> Self {
        Bench { controller, now, silent: BTreeSet::new() }
    }

    /// Creates a cluster whose first map has so many hosts and balancers.
    fn new(hosts: u16, balancers: u8) -> Self {
        Bench::with(settings(hosts.into()), balancers)
    }

    fn with(settings: ControllerSettings, balancers: u8) -> Self {
        let (hosts, now) = (settings.hosts as u16, Instant(5_000 * MS));
        let mut bench = Bench::from_controller(Controller::new(settings, SECRETS, now), now);
        bench.pass(700);
        (0..hosts).for_each(|n| assert_eq!(bench.host(n), HostId(n)));
        for n in 0..balancers {
            assert_eq!(bench.balancer(100 + u16::from(n)), BalancerId(n));
        }
        bench.pass(50);
        assert_eq!(bench.epoch(), 1);
        bench
    }

    fn host(&mut self, n: u16) -> HostId {
        let id = self.controller.join_host(address(n), None, self.now).unwrap();
        self.controller.on_ready(Member::Host(id), self.now);
        id
    }

    fn balancer(&mut self, n: u16) -> BalancerId {
        let id = self.controller.join_balancer(address(n), None, self.now).unwrap();
        self.controller.on_ready(Member::Balancer(id), self.now);
        id
    }

    /// Advances time in steps of 50 ms; maps are stored immediately.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            self.step();
            self.write();
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(50);
        self.controller.check_liveness(self.now);
        let members = (0..16).map(host).chain((0..16).map(balancer));
        for member in members.filter(|member| !self.silent.contains(member)) {
            self.controller.on_message(member, self.now);
        }
        self.controller.check_liveness(self.now);
    }

    fn unreachable(&mut self, host: u16, peers: &[u16]) {
        let peers = peers.iter().map(|peer| HostId(*peer));
        self.controller.report_unreachable_peers(HostId(host), peers, self.now);
    }

    fn write(&mut self) {
        if let Some(record) = self.controller.pending_state() {
            assert!(self.controller.on_stored(record.map.unwrap().epoch()));
        }
    }

    /// Reports several times that all copies required by the map exist.
    fn settle(&mut self) {
        for _ in 0..10 {
            self.caught_up();
        }
    }

    /// Returns the reports that the controller awaits: owners for their replicas, and each host for
    /// itself.
    fn pairs(&self) -> BTreeSet<(HostId, HostId)> {
        let mut pairs = self.map().buckets.replication_pairs();
        pairs.extend(self.map().hosts.iter().map(|(host, _)| (*host, *host)));
        pairs
    }

    fn caught_up(&mut self) {
        let (epoch, pairs) = (self.epoch(), self.pairs());
        pairs.into_iter().for_each(|(owner, replica)| self.controller.on_caught_up(owner, epoch, replica));
        self.pass(50);
    }

    /// Returns the number of buckets that a host owns.
    fn owned(&self, host: u16) -> usize {
        let owners = (0..Bucket::COUNT).map(|bucket| self.map().buckets.owners(Bucket::new(bucket)));
        owners.filter(|owners| owners.owner() == Some(HostId(host))).count()
    }

    fn map(&self) -> &ClusterMap {
        self.controller.map().unwrap()
    }

    fn epoch(&self) -> u64 {
        self.controller.map().map_or(0, ClusterMap::epoch)
    }

    fn hosts(&self) -> Vec<u16> {
        self.map().hosts.iter().map(|(host, _)| host.0).collect()
    }

    fn balancers(&self) -> Vec<u8> {
        self.map().balancers.iter().map(|(balancer, _)| balancer.0).collect()
    }

    fn past<Id>(&self, id: Id) -> Option<RejoinInfo<Id>> {
        Some(RejoinInfo { id, record: self.controller.durable_state() })
    }
}

#[test]
fn first_map_waits_for_ready_hosts_and_balancer() {
    let now = Instant(1_000 * MS);
    let mut bench = Bench::from_controller(Controller::new(settings(2), SECRETS, now), now);
    assert_eq!(
        bench.controller.join_host(address(0), None, now),
        Err(Refusal::NotReady),
        "there may be a cluster already"
    );
    bench.pass(600);
    let first = bench.host(0);
    let second = bench.controller.join_host(address(1), None, bench.now).unwrap();
    bench.balancer(100);
    bench.silent.insert(host(1));
    bench.pass(1000);
    assert_eq!((first, second, bench.epoch()), (HostId(0), HostId(1), 0), "one of two is ready");
    bench.controller.on_ready(host(1), bench.now);
    bench.silent.clear();
    bench.pass(100);
    assert_eq!((bench.epoch(), bench.hosts(), bench.map().holder()), (1, vec![0, 1], Some(BalancerId(0))));
    bench.pass(1000);
    assert_eq!(bench.epoch(), 1, "nothing happens, nothing changes");
}

#[test]
fn dead_host_id_is_not_reused() {
    let mut bench = Bench::new(3, 1);
    let before = bench.map().clone();
    bench.controller.on_disconnect(host(1));
    bench.pass(50);
    assert_eq!((bench.epoch(), bench.hosts()), (2, vec![0, 2]));
    for bucket in (0..Bucket::COUNT).map(Bucket::new) {
        let expected = before.buckets.owners(bucket).all().find(|owner| *owner != HostId(1));
        assert_eq!(bench.map().buckets.owners(bucket).owner(), expected);
    }
    assert_eq!(bench.host(9), HostId(3));
    bench.pass(50);
    assert_eq!((bench.epoch(), bench.hosts(), bench.map().joined), (3, vec![0, 2, 3], 4));
    // The host was only stopped.
    let past = Some(RejoinInfo { id: HostId(1), record: DurableState::new(SECRETS, Some(before)) });
    assert_eq!(bench.controller.join_host(address(1), past, bench.now), Err(Refusal::Fenced(3)));
}

#[test]
fn silent_member_is_dead_unless_all_are_silent() {
    let mut bench = Bench::new(3, 2);
    bench.silent.insert(host(2));
    bench.pass(150);
    assert_eq!(bench.epoch(), 1);
    bench.pass(100);
    assert_eq!((bench.epoch(), bench.hosts()), (2, vec![0, 1]));
    assert_eq!(bench.controller.take_evicted(), [(host(2), Refusal::Silent)]);
    // The controller itself is isolated.
    bench.silent.extend((0..16).map(host).chain((0..16).map(balancer)));
    bench.pass(3000);
    assert_eq!(bench.epoch(), 2);
    bench.silent.clear();
    bench.pass(100);
    assert_eq!((bench.epoch(), bench.hosts()), (2, vec![0, 1]));
    // The balancer that holds N4 fails: the next one takes N4 over.
    bench.controller.on_disconnect(balancer(0));
    bench.pass(50);
    assert_eq!((bench.epoch(), bench.balancers()), (3, vec![1]));
    let again = bench.balancer(100);
    assert_eq!(again, BalancerId(2), "numbers come back last");
    bench.pass(50);
    assert_eq!(bench.balancers(), [1, 2], "and who has come last is last");
}

#[test]
fn delayed_controller_declares_no_member_dead() {
    let mut bench = Bench::new(2, 1);
    // Members have dropped the controller meanwhile, and reconnect before or after the old
    // connections end.
    bench.now = bench.now + Duration::from_secs(5);
    bench.controller.check_liveness(bench.now);
    assert!(bench.controller.is_discovering());
    let past = bench.past(HostId(0));
    assert_eq!(bench.controller.join_host(address(0), past, bench.now), Ok(HostId(0)));
    for member in [host(1), balancer(0)] {
        bench.controller.on_disconnect(member);
        bench.silent.insert(member);
    }
    bench.pass(200);
    let (one, other) = (bench.past(HostId(1)), bench.past(BalancerId(0)));
    assert_eq!(bench.controller.join_host(address(1), one, bench.now), Ok(HostId(1)));
    assert_eq!(bench.controller.join_balancer(address(100), other, bench.now), Ok(BalancerId(0)));
    bench.silent.clear();
    bench.pass(2000);
    assert_eq!((bench.epoch(), bench.hosts()), (1, vec![0, 1]));
}

#[test]
fn lost_last_host_resumes_its_map_on_rejoin() {
    let mut bench = Bench::new(1, 1);
    let past = bench.past(HostId(0));
    bench.controller.on_disconnect(host(0));
    bench.pass(300);
    assert_eq!(bench.epoch(), 1);
    assert_eq!(bench.controller.join_host(address(0), past.clone(), bench.now), Ok(HostId(0)));
    bench.pass(100);
    assert_eq!((bench.epoch(), bench.controller.is_ready(host(0))), (1, Some(true)));
    // Another host joins first: the assignments of the first one are dropped.
    bench.controller.on_disconnect(host(0));
    let other = bench.host(1);
    bench.pass(50);
    assert_eq!((bench.epoch(), bench.hosts()), (2, vec![other.0]));
    assert_eq!(bench.controller.join_host(address(0), past, bench.now), Err(Refusal::Fenced(2)));
}

#[test]
fn balancer_partition_evicts_side_others_miss() {
    let mut bench = Bench::new(3, 2);
    bench.controller.report_silent_hosts(BalancerId(1), [HostId(2)]);
    bench.pass(50);
    assert_eq!((bench.hosts(), bench.balancers()), (vec![0, 1], vec![0, 1]));
    bench.controller.report_silent_hosts(BalancerId(1), [HostId(0), HostId(1), HostId(2)]);
    bench.pass(50);
    assert_eq!((bench.hosts(), bench.balancers()), (vec![0, 1], vec![0]));
    // The only balancer wins, whatever it misses; but one host must remain.
    bench.controller.report_silent_hosts(BalancerId(0), [HostId(0)]);
    bench.pass(50);
    assert_eq!((bench.hosts(), bench.balancers()), (vec![1], vec![0]));
    bench.controller.report_silent_hosts(BalancerId(0), [HostId(1)]);
    bench.pass(50);
    assert_eq!(bench.hosts(), [1]);
}

#[test]
fn host_partition_of_one_pair_evicts_youngest() {
    let mut bench = Bench::new(4, 1);
    bench.pass(3000);
    bench.unreachable(1, &[2]);
    bench.unreachable(2, &[1, 1, 9]);
    bench.pass(50);
    assert_eq!(bench.hosts(), [0, 1, 2, 3], "it may show yet which of them is cut off");
    bench.pass(50);
    assert_eq!(bench.hosts(), [0, 1, 3]);
    assert_eq!(bench.controller.take_evicted(), [(host(2), Refusal::Silent)]);
    // Connections that work again and departed hosts are forgotten.
    bench.unreachable(1, &[3]);
    bench.pass(50);
    bench.unreachable(1, &[2]);
    bench.unreachable(1, &[3]);
    bench.pass(50);
    assert_eq!(bench.hosts(), [0, 1, 3]);
}

#[test]
fn partition_of_pairs_evicts_common_host() {
    let mut bench = Bench::new(4, 1);
    bench.pass(3000);
    // Host 0 is cut off from all others, and has copies only for one of them.
    bench.unreachable(0, &[3]);
    bench.unreachable(1, &[0]);
    bench.unreachable(3, &[0]);
    bench.pass(50);
    assert_eq!(bench.hosts(), [1, 2, 3]);
}

#[test]
fn cut_off_host_with_late_heartbeats_is_evicted() {
    let mut bench = Bench::new(4, 1);
    bench.pass(3000);
    // Of host 0 only what it has sent before still arrives. One peer has missed it already.
    bench.unreachable(3, &[0]);
    bench.silent.insert(host(0));
    bench.pass(50);
    assert_eq!(bench.hosts(), [0, 1, 2, 3], "host 0 has sent something a moment ago");
    bench.pass(50);
    assert_eq!(bench.hosts(), [1, 2, 3]);
}

/// Regression test for seed 2441 of the fault campaign. A host that is presumed alive, because it
/// sends no heartbeats yet, is cut off.
#[test]
fn cut_off_host_presumed_alive_is_evicted() {
    let mut bench = Bench::new(4, 1);
    bench.pass(3000);
    bench.silent.insert(host(0));
    for _ in 0..4 {
        bench.controller.presume_alive(host(0), bench.now);
        bench.pass(50);
    }
    assert_eq!(bench.hosts(), [0, 1, 2, 3]);
    bench.unreachable(3, &[0]);
    for _ in 0..2 {
        bench.controller.presume_alive(host(0), bench.now);
        bench.pass(50);
    }
    assert_eq!(bench.hosts(), [1, 2, 3]);
}

#[test]
fn stored_unsent_map_is_sent_by_successor() {
    let mut bench = Bench::new(3, 1);
    let before = bench.controller.durable_state();
    bench.controller.on_disconnect(host(2));
    bench.step();
    let written = bench.controller.pending_state().unwrap();
    assert_eq!(bench.epoch(), 1, "not written: it holds for nobody");
    // The controller dies here. Its successor restores the stored map, and members rejoin with the
    // previous one.
    let mut next = Bench::from_controller(Controller::restore(settings(3), written, bench.now), bench.now);
    assert_eq!((next.epoch(), next.hosts()), (2, vec![0, 1]));
    let past = |id| Some(RejoinInfo { id, record: before.clone() });
    assert_eq!(next.controller.join_host(address(2), past(HostId(2)), next.now), Err(Refusal::Fenced(2)));
    for n in 0..2 {
        assert_eq!(next.controller.join_host(address(n), past(HostId(n)), next.now), Ok(HostId(n)));
    }
    assert!(next.controller.is_discovering(), "the balancer is missing");
    let past = Some(RejoinInfo { id: BalancerId(0), record: before });
    assert_eq!(next.controller.join_balancer(address(100), past, next.now), Ok(BalancerId(0)));
    next.pass(2000);
    assert_eq!((next.epoch(), next.hosts()), (2, vec![0, 1]));
}

#[test]
fn unstored_map_is_dropped_by_successor() {
    let mut bench = Bench::new(3, 1);
    let kept = bench.controller.durable_state();
    bench.controller.on_disconnect(host(2));
    bench.step();
    assert!(bench.controller.pending_state().is_some());
    let mut next = Bench::from_controller(Controller::restore(settings(3), kept.clone(), bench.now), bench.now);
    for n in 0..2 {
        let past = Some(RejoinInfo { id: HostId(n), record: kept.clone() });
        next.controller.join_host(address(n), past, next.now).unwrap();
    }
    let past = Some(RejoinInfo { id: BalancerId(0), record: kept });
    next.controller.join_balancer(address(100), past, next.now).unwrap();
    next.silent.insert(host(2));
    next.pass(900);
    assert_eq!((next.epoch(), next.hosts()), (1, vec![0, 1, 2]), "it may still come");
    next.pass(200);
    assert_eq!((next.epoch(), next.hosts()), (2, vec![0, 1]));
}

#[test]
fn stateless_controller_learns_map_from_rejoin() {
    let mut bench = Bench::new(3, 1);
    let old = bench.controller.durable_state();
    bench.controller.on_disconnect(host(0));
    bench.pass(50);
    let new = bench.controller.durable_state();
    let other = Secrets { recovery: 1, ..SECRETS };
    let mut next = Bench::from_controller(Controller::new(settings(3), other, bench.now), bench.now);
    assert_eq!(next.controller.join_host(address(8), None, next.now), Err(Refusal::NotReady));
    let past = |id, record: &DurableState| Some(RejoinInfo { id, record: record.clone() });
    assert_eq!(next.controller.join_host(address(1), past(HostId(1), &old), next.now), Ok(HostId(1)));
    assert_eq!(next.controller.join_host(address(2), past(HostId(2), &new), next.now), Ok(HostId(2)));
    assert_eq!((next.epoch(), next.controller.secrets()), (2, SECRETS));
    assert_eq!(next.controller.join_host(address(0), past(HostId(0), &old), next.now), Err(Refusal::Fenced(2)));
    let stranger = Some(RejoinInfo { id: HostId(1), record: DurableState::new(other, None) });
    assert_eq!(next.controller.join_host(address(1), stranger, next.now), Err(Refusal::OtherCluster));
    let past = Some(RejoinInfo { id: BalancerId(0), record: old });
    next.controller.join_balancer(address(100), past, next.now).unwrap();
    assert_eq!(next.host(8), HostId(3), "its number is one that nobody had");
    next.pass(100);
    assert_eq!(next.hosts(), [1, 2, 3]);
    assert!(next.epoch() > 3, "newer than what the one before may have told others");
}

#[test]
fn drained_host_departs_when_others_have_all() {
    let mut bench = Bench::new(2, 1);
    let (caught_up, owned) = (Bench::caught_up, Bench::owned);
    bench.host(2);
    bench.pass(100);
    assert_eq!((bench.epoch(), owned(&bench, 2)), (2, 0), "until it has copies it owns nothing");
    (0..8).for_each(|_| caught_up(&mut bench));
    let epoch = bench.epoch();
    assert!((800..2000).contains(&owned(&bench, 2)), "{}", owned(&bench, 2));
    assert!(bench.controller.drain(HostId(0)) && !bench.controller.drain(HostId(7)));
    bench.pass(500);
    assert_eq!((bench.epoch(), bench.map().leaving.clone()), (epoch + 1, vec![HostId(0)]));
    assert!(owned(&bench, 0) > 0, "nobody has said to have copies");
    (0..8).for_each(|_| caught_up(&mut bench));
    assert_eq!((bench.hosts(), bench.controller.take_departed()), (vec![1, 2], vec![HostId(0)]));
    assert_eq!(owned(&bench, 1) + owned(&bench, 2), usize::from(Bucket::COUNT));
}

/// A joined host has all copies, but has not reported that it knows the RAN nodes.
#[test]
fn joined_host_without_ran_nodes_gets_no_buckets() {
    let mut bench = Bench::new(2, 1);
    bench.settle();
    bench.host(2);
    bench.pass(100);
    for _ in 0..4 {
        let (epoch, pairs) = (bench.epoch(), bench.map().buckets.replication_pairs());
        pairs.into_iter().for_each(|(owner, replica)| bench.controller.on_caught_up(owner, epoch, replica));
        bench.pass(50);
    }
    assert_eq!((bench.owned(2), bench.controller.is_settled()), (0, false));
    (0..8).for_each(|_| bench.caught_up());
    assert!(bench.owned(2) > 800 && bench.controller.is_settled(), "{}", bench.owned(2));
}

#[test]
fn buckets_go_from_living_hosts_a_part_at_a_time() {
    let now = Instant(5_000 * MS);
    let mut bench = Bench::from_controller(
        Controller::new(ControllerSettings { max_migrating_buckets: 512, ..settings(2) }, SECRETS, now),
        now,
    );
    bench.pass(700);
    (0..2).for_each(|n| assert_eq!(bench.host(n), HostId(n)));
    bench.balancer(100);
    bench.pass(50);
    bench.host(2);
    bench.pass(100);
    let (mut owned, mut most) = (0, 0);
    for _ in 0..8 {
        let (epoch, pairs) = (bench.epoch(), bench.pairs());
        let last = pairs.len() - 1;
        for (n, (owner, replica)) in pairs.into_iter().enumerate() {
            if n == last {
                bench.pass(200);
                assert_eq!(bench.epoch(), epoch, "the next ones wait until all are where they were to go");
            }
            bench.controller.on_caught_up(owner, epoch, replica);
        }
        bench.pass(50);
        let owners = (0..Bucket::COUNT).map(|bucket| bench.map().buckets.owners(Bucket::new(bucket)));
        let before = std::mem::replace(&mut owned, owners.filter(|o| o.owner() == Some(HostId(2))).count());
        most = most.max(owned - before);
    }
    assert!((800..2000).contains(&owned) && most <= 512 && most > 256, "{owned} buckets, {most} at once");
}

#[test]
fn idle_hosts_replace_dead_ones_and_scale() {
    let now = Instant(5_000 * MS);
    let lasts = Duration::from_secs(1);
    let scaling = Some(Scaling { least: 2, most: 3, idle: 1, high: 0.7, low: 0.4, lasts });
    let mut bench =
        Bench::from_controller(Controller::new(ControllerSettings { scaling, ..settings(2) }, SECRETS, now), now);
    bench.pass(700);
    (0..3).for_each(|n| assert_eq!(bench.host(n), HostId(n)));
    bench.balancer(100);
    bench.pass(50);
    assert_eq!((bench.hosts(), bench.controller.idle(), bench.controller.missing_hosts()), (vec![0, 1], 1, (3, 0)));
    bench.controller.on_disconnect(host(0));
    bench.pass(50);
    assert_eq!((bench.hosts(), bench.controller.idle(), bench.controller.missing_hosts()), (vec![1, 2], 0, (3, 1)));
    assert_eq!(bench.host(9), HostId(3));
    bench.pass(200);
    assert_eq!((bench.hosts(), bench.controller.idle()), (vec![1, 2], 1));

    // Hosts report their load and that they have all copies.
    let load = |bench: &mut Bench, cpu: f32, millis: u64| {
        for _ in 0..millis / 50 {
            for n in 0..5 {
                bench.controller.on_load_report(
                    HostId(n),
                    HostUtilisation { cpu, late: false, rate: 1000.0 * cpu },
                    bench.now,
                );
            }
            let (epoch, pairs) = (bench.epoch(), bench.pairs());
            pairs.into_iter().for_each(|(owner, replica)| bench.controller.on_caught_up(owner, epoch, replica));
            bench.pass(50);
        }
    };
    load(&mut bench, 0.9, 900);
    assert_eq!(bench.hosts(), [1, 2], "that may pass");
    load(&mut bench, 0.9, 2000);
    assert_eq!((bench.hosts(), bench.controller.missing_hosts()), (vec![1, 2, 3], (4, 1)));
    load(&mut bench, 0.9, 5000);
    assert_eq!((bench.host(10), bench.hosts().len()), (HostId(4), 3));
    load(&mut bench, 0.9, 5000);
    assert_eq!((bench.hosts().len(), bench.controller.idle()), (3, 1), "no more than may");
    load(&mut bench, 0.1, 5000);
    assert_eq!((bench.hosts().len(), bench.controller.take_departed().len(), bench.controller.idle()), (2, 1, 1));
    load(&mut bench, 0.1, 5000);
    assert_eq!((bench.hosts().len(), bench.controller.missing_hosts()), (2, (3, 0)), "no fewer than must be");
    // An idle host has no buckets to migrate.
    assert!(bench.controller.drain(HostId(4)));
    assert_eq!((bench.controller.take_departed(), bench.controller.idle()), (vec![HostId(4)], 0));
    // The next controller keeps as many hosts serving.
    let next =
        Controller::restore(ControllerSettings { scaling, ..settings(2) }, bench.controller.durable_state(), bench.now);
    assert_eq!(next.missing_hosts().0, 3);
}

/// Controllers that lead in turn and die anywhere, over one store that accepts writes of the leader
/// only, and hosts that die, stop and join. Invariants: an epoch has one map, the epochs of members
/// grow, and a bucket moves only to a host that had its copy.
#[test]
fn maps_are_sequential_under_failures() {
    for seed in 0..8 {
        World::new(seed).run();
    }
}

struct World {
    seed: u64,
    turn: u64,
    now: Instant,
    store: DurableState,
    /// The leader, and a controller that still considers itself the leader.
    leaders: Vec<Controller>,
    /// Last state that each live member received.
    hosts: BTreeMap<u16, Option<DurableState>>,
    balancers: BTreeMap<u8, Option<DurableState>>,
    epochs: BTreeMap<u64, ClusterMap>,
}

impl World {
    fn new(seed: u64) -> Self {
        let now = Instant(1_000 * MS);
        let store = DurableState::new(SECRETS, None);
        let leaders = vec![Controller::restore(settings(3), store.clone(), now)];
        let (hosts, balancers, epochs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        World { seed, turn: 0, now, store, leaders, hosts, balancers, epochs }
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.turn += 1;
        hash_pair(self.seed, self.turn) % sides
    }

    fn run(&mut self) {
        for _ in 0..400 {
            self.now = self.now + Duration::from_millis(50);
            match self.dice(40) {
                0 => self.leaders.truncate(1),
                // The leader dies, or is only suspended and continues later. Another controller
                // starts from the store.
                1 | 2 => {
                    let next = Controller::restore(settings(3), self.store.clone(), self.now);
                    self.leaders.insert(0, next);
                    self.leaders.truncate(2);
                }
                3 if self.hosts.len() > 2 => {
                    let at = self.dice(self.hosts.len() as u64) as usize;
                    let dead = *self.hosts.keys().nth(at).unwrap();
                    self.hosts.remove(&dead);
                    self.leaders[0].on_disconnect(host(dead));
                }
                4 if self.balancers.len() > 1 => {
                    let (dead, _) = self.balancers.pop_first().unwrap();
                    self.leaders[0].on_disconnect(balancer(dead));
                }
                _ => {}
            }
            self.members();
            self.run_leaders();
        }
        assert!(self.epochs.len() > 3, "seed {}: {} epochs", self.seed, self.epochs.len());
    }

    fn members(&mut self) {
        let now = self.now;
        let leader = &mut self.leaders[0];
        leader.check_liveness(now);
        let mut gone = Vec::new();
        for (n, state) in &mut self.hosts {
            let past = state.clone().map(|record| RejoinInfo { id: HostId(*n), record });
            match leader.join_host(address(*n), past, now) {
                Ok(id) => assert_eq!(id.0, *n),
                Err(_) => gone.push(*n),
            }
            leader.on_ready(host(*n), now);
        }
        gone.into_iter().for_each(|n| drop(self.hosts.remove(&n)));
        if self.hosts.len() < 4
            && let Ok(id) = leader.join_host(address(0), None, now)
        {
            leader.on_ready(Member::Host(id), now);
            // The join reply contains the map.
            self.hosts.insert(id.0, Some(leader.durable_state()));
        }
        for (n, state) in &mut self.balancers {
            let past = state.clone().map(|record| RejoinInfo { id: BalancerId(*n), record });
            let joined = leader.join_balancer(address(100), past, now);
            assert_eq!(joined, Ok(BalancerId(*n)), "seed {}", self.seed);
            leader.on_ready(balancer(*n), now);
        }
        if self.balancers.len() < 2 {
            let id = leader.join_balancer(address(100), None, now).unwrap();
            self.balancers.insert(id.0, Some(leader.durable_state()));
        }
    }

    fn run_leaders(&mut self) {
        let dies = self.dice(10) == 0;
        for at in (0..self.leaders.len()).rev() {
            let leader = &mut self.leaders[at];
            leader.check_liveness(self.now);
            if let Some(record) = leader.pending_state() {
                let map = record.map.clone().unwrap();
                // The store accepts writes of the leader only.
                if at == 0 {
                    self.follows(&map);
                    self.store = record;
                    // Between storing and sending.
                    if dies {
                        self.leaders[0] = Controller::restore(settings(3), self.store.clone(), self.now);
                        continue;
                    }
                    self.leaders[0].on_stored(map.epoch());
                }
            }
            let Some(map) = self.leaders[at].map().cloned() else { continue };
            assert_eq!(self.epochs.get(&map.epoch()), Some(&map), "seed {}: an epoch has one map", self.seed);
            let records = self.hosts.values_mut().chain(self.balancers.values_mut());
            for record in records.flatten() {
                let known = record.map.as_ref().map_or(0, ClusterMap::epoch);
                if map.epoch() > known {
                    record.map = Some(map.clone());
                }
            }
        }
    }

    fn follows(&mut self, map: &ClusterMap) {
        let before = self.store.map.as_ref();
        assert_eq!(map.epoch(), before.map_or(0, ClusterMap::epoch) + 1, "seed {}", self.seed);
        for bucket in (0..Bucket::COUNT).step_by(97).map(Bucket::new) {
            let new = map.buckets.owners(bucket).owner().expect("an owner");
            let had = before.map(|before| before.buckets.owners(bucket)).unwrap_or_default();
            let lives = had.all().find(|host| map.has_host(*host));
            assert!(lives.is_none_or(|first| first == new), "seed {}: {bucket:?} went to who has no copy", self.seed);
        }
        assert!(self.epochs.insert(map.epoch(), map.clone()).is_none(), "seed {}: written twice", self.seed);
    }
}

#[test]
fn unused_partition_of_departed_host_is_reused() {
    let mut bench = Bench::with(ControllerSettings { max_hosts: 4, ..settings(3) }, 1);
    let report = |bench: &mut Bench, used: &[(u16, &[u16])]| {
        let epoch = bench.epoch();
        for (host, parts) in used {
            bench.controller.report_used_partitions(HostId(*host), epoch, parts.iter().copied());
        }
    };
    let next = |bench: &Bench| bench.controller.clone().join_host(address(50), None, bench.now);
    assert_eq!(next(&bench), Ok(HostId(3)), "the part that nobody has had");
    bench.host(3);
    bench.settle();
    assert_eq!(next(&bench), Err(Refusal::NoFreePartition(4)));
    // One host dies. Other hosts own its UEs, which use its addresses.
    bench.silent.insert(host(1));
    bench.pass(400);
    bench.settle();
    assert_eq!((bench.hosts(), &bench.map().lost[..]), (vec![0, 2, 3], &[][..]));
    assert_eq!(next(&bench), Err(Refusal::NotReady), "not all have said");
    report(&mut bench, &[(0, &[]), (2, &[1]), (3, &[])]);
    assert_eq!(next(&bench), Err(Refusal::NoFreePartition(4)));
    report(&mut bench, &[(2, &[])]);
    // The host ID determines the partition.
    assert_eq!(next(&bench), Ok(HostId(5)));
    assert_eq!(partition_of(HostId(5), 4), 1);
    let before = bench.epoch();
    bench.host(5);
    bench.settle();
    assert!(bench.epoch() > before && bench.hosts() == [0, 2, 3, 5]);
    assert_eq!(next(&bench), Err(Refusal::NoFreePartition(4)));
    // Reports of an earlier epoch do not count.
    bench.silent.insert(host(3));
    bench.pass(400);
    let epoch = bench.epoch() - 1;
    for n in [0, 2, 5] {
        bench.controller.report_used_partitions(HostId(n), epoch, []);
    }
    assert_eq!(next(&bench), Err(Refusal::NotReady));
}

#[test]
fn partition_of_lost_ues_is_not_reused() {
    for lossless in [true, false] {
        let mut bench = Bench::with(ControllerSettings { max_hosts: 3, lossless, ..settings(2) }, 1);
        bench.host(2);
        bench.settle();
        // Both hosts of some buckets at once, or one host whose copies may lag.
        let dead: &[u16] = if lossless { &[0, 1] } else { &[0] };
        bench.silent.extend(dead.iter().map(|n| host(*n)));
        bench.pass(400);
        bench.settle();
        let left = bench.hosts();
        assert_eq!(bench.map().lost, dead, "{lossless}");
        let epoch = bench.epoch();
        left.iter().for_each(|n| bench.controller.report_used_partitions(HostId(*n), epoch, []));
        let joins = bench.controller.clone().join_host(address(50), None, bench.now);
        assert_eq!(joins, Err(Refusal::NoFreePartition(3)));
        // The next controller knows the lost partitions too.
        let restored = Controller::restore(settings(2), bench.controller.durable_state(), bench.now);
        assert_eq!(restored.map().map(|map| &map.lost[..]), Some(dead));
    }
    // A host that drains has migrated everything to others.
    let mut bench = Bench::with(ControllerSettings { lossless: false, ..settings(2) }, 1);
    bench.host(2);
    bench.settle();
    bench.controller.drain(HostId(0));
    bench.settle();
    assert_eq!((bench.hosts(), &bench.map().lost[..]), (vec![1, 2], &[][..]));
}
