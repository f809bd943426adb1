//! Tests of the owner side. The simulator's fault campaign tests both sides together.

use super::reconcile::tests::{NOW, World, copy};
use super::*;
use crate::amf::context::{self, UeContext};
use crate::placement::balance::HostId;
use crate::placement::balance::map::{BUCKETS, BucketMap, SliceBuckets};
use crate::placement::balance::ring::WeightedHost;
use std::collections::BTreeMap;
use vireo_types::{Bucket, Instant, Ltmsi};

/// Number of the last copy that each host has acknowledged.
#[derive(Default)]
struct Acks(BTreeMap<HostId, u64>);

impl ReplicaAcks for Acks {
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.0.get(&host).copied().unwrap_or_default()
    }
}

const OWN: HostId = HostId(0);

fn parts(weights: &[f64]) -> Vec<SliceBuckets> {
    let hosts = (0..).zip(weights).map(|(n, weight)| WeightedHost::new(HostId(n), *weight)).collect();
    vec![SliceBuckets { weight: 1.0, replicas: 2, hosts }]
}

fn hosts(count: u16) -> Vec<HostId> {
    (0..count).map(HostId).collect()
}

/// Returns an owner among the four hosts of the first map, the map, and a bucket that the owner
/// has.
fn new_owner(ack: Ack) -> (BucketOwner<u32, &'static str>, BucketMap, Bucket) {
    let map = BucketMap::first(&parts(&[1.0; 4]));
    let mut owner = BucketOwner::new(OWN, ReplicationConfig { mode: Mode::Hot, replicas: 2, ack }, vec![2]);
    assert_eq!(owner.adopt(map.clone(), hosts(4)), None);
    owner.set_awaited(Default::default());
    owner.rescan();
    let bucket = (0..Bucket::COUNT).map(Bucket::new).find(|b| owner.owns(*b)).expect("it has some");
    (owner, map, bucket)
}

fn record(ltmsi: Ltmsi) -> Vec<u8> {
    context::encode(&UeContext::new(ltmsi), Vec::new()).expect("it encodes")
}

fn commit(ltmsi: Ltmsi, context: &[u8]) -> Commit<'_, u32> {
    Commit {
        slot: 7,
        ltmsi,
        before: None,
        input: 9,
        context,
        outbox: b"outbox",
        associations: [None; 2],
        proposer: None,
    }
}

#[test]
fn effects_leave_in_order_after_required_acks() {
    for ack in Ack::ALL {
        let (mut owner, map, bucket) = new_owner(ack);
        let replicas: Vec<HostId> = map.owners(bucket).replicas().collect();
        let (ltmsi, mut acks, mut sent) = (Ltmsi::new(bucket, 1), Acks::default(), Vec::new());
        let context = record(ltmsi);
        for name in ["one", "two"] {
            let mut send = |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.number, copy.perpetual.is_some()));
            let released = owner.on_commit((&commit(ltmsi, &context), false), &acks, name, &mut send);
            assert_eq!(released, (ack == Ack::None).then_some(name), "{ack:?}");
        }
        let first = [(replicas[0], 1, true), (replicas[1], 1, true)];
        assert_eq!(sent, [first[0], first[1], (replicas[0], 2, false), (replicas[1], 2, false)], "parts go once");
        if ack == Ack::None {
            continue;
        }
        acks.0.insert(replicas[1], 2);
        assert_eq!(owner.next_released(&acks), None, "the one that takes over first has none of it");
        acks.0.insert(replicas[0], 1);
        assert_eq!([owner.next_released(&acks), owner.next_released(&acks)], [Some("one"), None]);
        acks.0.insert(replicas[0], 2);
        if ack == Ack::All {
            acks.0.insert(replicas[1], 1);
            assert_eq!(owner.next_released(&acks), None, "all have to have it");
            acks.0.insert(replicas[1], 2);
        }
        assert_eq!([owner.next_released(&acks), owner.next_released(&acks)], [Some("two"), None]);
    }
}

#[test]
fn acks_of_dead_host_move_to_successor() {
    let (mut owner, map, bucket) = new_owner(Ack::One);
    let replicas: Vec<HostId> = map.owners(bucket).replicas().collect();
    let (ltmsi, mut acks) = (Ltmsi::new(bucket, 1), Acks::default());
    let context = record(ltmsi);
    assert_eq!(owner.on_commit((&commit(ltmsi, &context), false), &acks, "it", &mut |_, _| ()), None);
    let weights: Vec<f64> = (0..4).map(|n| if HostId(n) == replicas[0] { 0.0 } else { 1.0 }).collect();
    let mut without = parts(&weights);
    without[0].hosts.retain(|weighted| weighted.host != replicas[0]);
    let left: Vec<HostId> = without[0].hosts.iter().map(|weighted| weighted.host).collect();
    assert_eq!(owner.adopt(map.next(&without), left), None);
    let mut sent = Vec::new();
    let again = |_: &&str| {
        let (context, outbox) = (record(ltmsi), b"outbox".to_vec());
        Some(ResentCommit { slot: 7, ltmsi, before: None, input: 9, context, outbox, associations: [None; 2] })
    };
    owner.reassign_acks(again, &mut |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.number, copy.input)));
    assert_eq!(sent, [(replicas[1], 2, 9)], "it is the first to take over now");
    assert!(
        owner.is_missing_copy(replicas[1], 7, ltmsi),
        "what the UE is now, which may be by a later commit that waits for nobody"
    );
    acks.0.insert(replicas[1], 1);
    assert_eq!(owner.next_released(&acks), None);
    acks.0.insert(replicas[1], 2);
    assert_eq!(owner.next_released(&acks), Some("it"));
}

#[test]
fn replica_has_caught_up_after_all_copies() {
    let (mut owner, map, bucket) = new_owner(Ack::One);
    let (mut acks, ltmsi) = (Acks::default(), Ltmsi::new(bucket, 1));
    let first = map.owners(bucket).replicas().next().expect("a replica");
    let barrier = owner.request_nodes().expect("of the map");
    assert!(owner.caught_up(&acks).is_empty() && owner.on_nodes_known(barrier).is_some());
    assert_eq!(owner.caught_up(&acks).to_vec(), [OWN], "it has its own");
    let context = record(ltmsi);
    let (mut sent, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (to, from) = owner.next_lagging_replica(&acks).expect("three other hosts");
        assert_eq!(
            (from, owner.is_missing_copy(to, 7, ltmsi)),
            (0, map.owners(bucket).replicas().any(|host| host == to))
        );
        if owner.is_missing_copy(to, 7, ltmsi) {
            owner.send(to, &commit(ltmsi, &context), &acks, &mut |to, copy| sent.push((to, copy.number)));
        }
        requests.extend(owner.on_scanned(to, None).map(|request| (to, request.number)));
    }
    assert_eq!((sent.len(), requests.len()), (2, 3));
    assert!(!owner.is_missing_copy(first, 7, ltmsi));
    requests.iter().for_each(|(host, barrier)| _ = acks.0.insert(*host, *barrier));
    assert!(owner.caught_up(&acks).is_empty(), "none has said what it has of others");
    acks.0.clear();
    for (host, barrier) in &requests {
        assert!(owner.is_pending_request(*host, *barrier) && owner.on_reconciled(*host, 0).is_none());
    }
    let (other, barrier) = *requests.iter().find(|(host, _)| !map.owners(bucket).has(*host)).expect("the third");
    acks.0.extend([(other, barrier), (first, 1)]);
    assert_eq!(owner.caught_up(&acks).to_vec(), [other], "who has nothing to get");
    acks.0.insert(first, 2);
    assert_eq!(owner.caught_up(&acks).to_vec(), [first]);
    owner.forget(7);
    assert!(owner.is_missing_copy(first, 7, ltmsi));
}

#[test]
fn bucket_stays_if_next_owner_dies() {
    let (mut owner, map, _) = new_owner(Ack::One);
    let without_own = parts(&[0.0, 1.0, 1.0, 1.0]);
    let next = map.switch(&without_own, BUCKETS).expect("some buckets may go at once");
    let barrier = owner.adopt(next.clone(), hosts(4)).expect("buckets go");
    owner.set_awaited(Default::default());
    let outgoing = (0..Bucket::COUNT).map(Bucket::new).find(|b| owner.is_outgoing(*b)).expect("one of them");
    assert!(
        owner.owns(outgoing) && owner.accepts_inputs(outgoing) && !owner.is_quiesced(outgoing),
        "until the balancers know"
    );
    assert_eq!(owner.classify_input(Some(outgoing), false, true, true), InputDisposition::Process);
    assert_eq!(
        (owner.on_barrier(barrier + 1), owner.on_barrier(barrier)),
        (BarrierResult::Nothing, BarrierResult::EndProcedures)
    );
    assert_eq!(owner.classify_input(Some(outgoing), false, true, true), InputDisposition::Return);
    assert_eq!(owner.take_ending(), Some(vec![]));
    let last = owner.quiesce();
    assert!(owner.is_quiesced(outgoing) && owner.take_ending().is_none());
    assert_eq!(owner.on_barrier(last), BarrierResult::HandOff);
    let to = next.owners(outgoing).owner().expect("the next");

    let others: Vec<HostId> = hosts(4).into_iter().filter(|host| *host != to).collect();
    let mut without = parts(&[0.0, 1.0, 1.0, 1.0]);
    without[0].hosts.retain(|weighted| weighted.host != to);
    let after = next.next(&without);
    owner.adopt(after.clone(), others);
    assert_eq!(owner.is_quiesced(outgoing), after.owners(outgoing).owner() != Some(OWN));

    let (mut owner, ..) = new_owner(Ack::One);
    owner.adopt(next.clone(), hosts(4));
    let handed = owner.finish_migration().expect("buckets go");
    assert!(handed.epoch == 2 && handed.to.contains(&to) && !handed.to.contains(&OWN));
    assert!(!owner.owns(outgoing) && owner.outgoing_count() == 0);
}

#[test]
fn inputs_wait_for_handoff_behind_node_inputs() {
    let (mut owner, _, bucket) = new_owner(Ack::One);
    owner.set_awaited([bucket].into_iter().collect());
    assert!(!owner.owns(bucket));
    assert_eq!(owner.classify_input(Some(bucket), false, true, true), InputDisposition::HoldBack);
    assert_eq!(owner.classify_input(Some(bucket), false, true, false), InputDisposition::Return, "there is no room");
    assert_eq!(owner.classify_input(None, false, true, true), InputDisposition::Process);
    assert_eq!(owner.classify_input(None, true, false, false), InputDisposition::HoldBack);
    assert_eq!(owner.classify_input(None, false, true, true), InputDisposition::HoldBack, "nothing overtakes that");
    owner.set_awaited(Default::default());
    owner.restart_classification();
    assert_eq!(owner.classify_input(Some(bucket), false, true, true), InputDisposition::Process);
}

/// Two commits wait, and the second one changes the UE's LTMSI. A host that receives both again
/// stores one UE.
#[test]
fn renumbered_ue_is_one_at_new_replica() {
    let (mut owner, map) = sliced(3, &[2], Ack::One);
    let old = Ltmsi::new(own_bucket(&map, 0), 1);
    let new = Ltmsi::new(old.bucket(), 2);
    let (acks, replicas) = (Acks::default(), map.owners(old.bucket()).replicas().collect::<Vec<_>>());
    for (ltmsi, before) in [(old, None), (new, Some(old))] {
        let context = record(ltmsi);
        let commit = Commit { before, ..commit(ltmsi, &context) };
        assert!(owner.on_commit((&commit, false), &acks, "it", &mut |_, _| ()).is_none());
    }
    let hosts = [OWN, replicas[1]];
    let next = map.next(&slice_buckets(&hosts, &[2]));
    owner.adopt(next.clone(), hosts.to_vec());
    let mut store = ReplicaStore::new(replicas[1]);
    store.adopt(&next, &hosts);
    let mut numbers = [(old, None), (new, Some(old))].into_iter();
    let again = |_: &&str| {
        let (ltmsi, before) = numbers.next().expect("two commits");
        let (context, outbox) = (record(ltmsi), b"outbox".to_vec());
        Some(ResentCommit { slot: 7, ltmsi, before, input: 9, context, outbox, associations: [None; 2] })
    };
    let mut send = |_, copy: ReplicaUpdate<'_>| _ = store.apply((OWN, 2), &copy, Instant(1)).expect("it is in the map");
    owner.reassign_acks(again, &mut send);
    assert_eq!(store.len(), 1);
}

/// Returns an owner and the first map, for `count` hosts and slices with the given numbers of
/// replicas.
fn sliced(count: u16, replicas: &[usize], ack: Ack) -> (BucketOwner<u32, &'static str>, BucketMap) {
    let map = BucketMap::first(&slice_buckets(&hosts(count), replicas));
    let most = replicas.iter().max().copied().unwrap_or_default();
    let mut owner =
        BucketOwner::new(OWN, ReplicationConfig { mode: Mode::Hot, replicas: most, ack }, replicas.to_vec());
    assert_eq!(owner.adopt(map.clone(), hosts(count)), None);
    owner.set_awaited(Default::default());
    (owner, map)
}

fn slice_buckets(hosts: &[HostId], replicas: &[usize]) -> Vec<SliceBuckets> {
    let hosts: Vec<WeightedHost> = hosts.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
    replicas.iter().map(|replicas| SliceBuckets { weight: 1.0, replicas: *replicas, hosts: hosts.clone() }).collect()
}

/// Returns a bucket of a slice that this host owns.
fn own_bucket(map: &BucketMap, slice: usize) -> Bucket {
    map.buckets(slice).find(|bucket| map.owners(*bucket).owner() == Some(OWN)).expect("it has some")
}

#[test]
fn procedure_end_waits_for_all_replicas() {
    for (ack, amid, at_the_end) in [(Ack::None, 0, 0), (Ack::One, 1, 2), (Ack::All, 2, 2)] {
        let (mut owner, map) = sliced(3, &[2], ack);
        let ltmsi = Ltmsi::new(own_bucket(&map, 0), 1);
        let replicas: Vec<HostId> = map.owners(ltmsi.bucket()).replicas().collect();
        let (acks, context) = (Acks::default(), record(ltmsi));
        for (ended, waited) in [(false, amid), (true, at_the_end)] {
            let mut sent = Vec::new();
            let commit = commit(ltmsi, &context);
            let (needs, _) = owner.replicate((&commit, ended), &acks, &mut |to, _: ReplicaUpdate<'_>| sent.push(to));
            let needs: Vec<HostId> = needs.into_iter().map(|(host, _)| host).collect();
            assert_eq!((&needs[..], &sent), (&replicas[..waited], &replicas), "{ack:?}");
        }
    }
}

#[test]
fn silent_replica_blocks_until_declared_dead() {
    for ack in [Ack::One, Ack::All] {
        let (mut owner, map) = sliced(3, &[2], ack);
        let ltmsi = Ltmsi::new(own_bucket(&map, 0), 1);
        let (mut acks, mut sent, context) = (Acks::default(), Vec::new(), record(ltmsi));
        let mut send = |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.number));
        assert_eq!(owner.on_commit((&commit(ltmsi, &context), true), &acks, "it", &mut send), None);
        let [(first, of_first), (second, of_second)] = sent[..] else { panic!("{sent:?}") };
        assert_eq!(owner.next_released(&acks), None);
        acks.0.insert(first, of_first);
        assert_eq!(owner.next_released(&acks), None, "the other one does not answer");
        acks.0.insert(first, of_first + 7);
        assert_eq!(owner.next_released(&acks), None, "whatever this one says");

        // The replica is declared dead, and a host that has joined since replaces it.
        let hosts = [OWN, first, HostId(3)];
        assert_eq!(owner.adopt(map.next(&slice_buckets(&hosts, &[2])), hosts.to_vec()), None);
        let again = |_: &&str| {
            let (context, outbox) = (record(ltmsi), b"outbox".to_vec());
            Some(ResentCommit { slot: 7, ltmsi, before: None, input: 9, context, outbox, associations: [None; 2] })
        };
        let mut more = Vec::new();
        owner.reassign_acks(again, &mut |to, copy: ReplicaUpdate<'_>| more.push((to, copy.number)));
        let [(HostId(3), next)] = more[..] else { panic!("{ack:?}: {more:?}") };
        acks.0.insert(second, of_second);
        assert_eq!(owner.next_released(&acks), None, "what it says now is nobody's affair");
        acks.0.insert(HostId(3), next);
        assert_eq!(owner.next_released(&acks), Some("it"));
    }
}

#[test]
fn unreplicated_slice_retracts_copies() {
    let (mut owner, map) = sliced(3, &[2, 0, 1], Ack::All);
    let (unknown, acks) = (Ltmsi::new(own_bucket(&map, 0), 1), Acks::default());
    let home = |slice| {
        Ltmsi::new(crate::placement::balance::migration::in_column(unknown.bucket(), slice, 3).expect("in it"), 1)
    };
    // Number of required acknowledgements; copies as (receiver, UE, deleted).
    let spread = |owner: &mut BucketOwner<u32, &'static str>, ltmsi, before, context: &[u8]| {
        let mut sent = Vec::new();
        let commit = Commit { before, ..commit(ltmsi, context) };
        let mut send = |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.ltmsi, copy.ephemeral.is_empty()));
        (owner.replicate((&commit, true), &acks, &mut send).0.len(), sent)
    };
    let context = record(unknown);
    let [first, second] = [1, 2].map(HostId);
    let (waits, mut sent) = spread(&mut owner, unknown, None, &[]);
    sent.sort_unstable();
    assert_eq!((waits, sent), (2, vec![(first, unknown, true), (second, unknown, true)]));
    assert_eq!(spread(&mut owner, home(1), Some(unknown), &[]), (0, vec![]), "nobody had it: it had no context");

    // Once the UE has a context, a former replica receives one deletion.
    spread(&mut owner, unknown, None, &context);
    let (waits, mut sent) = spread(&mut owner, home(1), Some(unknown), &context);
    sent.sort_unstable();
    assert_eq!((waits, sent), (0, vec![(first, unknown, true), (second, unknown, true)]));
    assert_eq!(spread(&mut owner, home(1), Some(unknown), &context), (0, vec![]));
    // A slice with fewer replicas sends no deletion to the replicas that remain.
    spread(&mut owner, unknown, None, &context);
    let (waits, sent) = spread(&mut owner, home(2), Some(unknown), &context);
    let [(stays, of, false), (outgoing, unknown_to_it, true)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((waits, of, unknown_to_it), (1, home(2), unknown));
    assert!(stays != outgoing && map.owners(home(2).bucket()).replicas().eq([stays]));
    // While a bucket migrates, this copy is not one that effects wait for.
    let next = slice_buckets(&hosts(4), &[2, 0, 1]);
    let prepared = map.next(&next).prepare(&next).expect("the one that has joined is to have some");
    let outgoing =
        prepared.buckets(1).find(|bucket| prepared.owners(*bucket).replicas().count() > 0).expect("one of them");
    owner.adopt(prepared.clone(), hosts(4));
    for host in prepared.owners(outgoing).replicas() {
        assert!(!owner.keeps_copies(host, outgoing) && !owner.is_missing_copy(host, 8, Ltmsi::new(outgoing, 2)));
    }
}

#[test]
fn slice_replicas_are_capped_by_cluster() {
    let of = |mode, replicas, wanted: &[usize]| {
        ReplicationConfig { mode, replicas, ack: Ack::One }.replicas_by_slice(wanted.iter().copied())
    };
    assert_eq!(of(Mode::Hot, 2, &[0, 1, 2]), [2, 0, 1, 2]);
    assert_eq!(of(Mode::Cold, 1, &[0, 2]), [1, 0, 1]);
    assert_eq!(of(Mode::Hot, 2, &[0, 0]), [0, 0, 0], "nor of those that can only be of one of these");
    assert_eq!(of(Mode::None, 2, &[2]), [0, 0]);
    assert_eq!(of(Mode::Hot, 2, &[]), [2]);
    let lossless = |mode, wanted, ack| ReplicationConfig { mode, replicas: 2, ack }.is_lossless([1, wanted]);
    assert!(lossless(Mode::Hot, 2, Ack::One) && lossless(Mode::Hot, 1, Ack::All));
    assert!(!lossless(Mode::Hot, 0, Ack::All) && !lossless(Mode::Hot, 2, Ack::None));
    assert!(!lossless(Mode::Cold, 2, Ack::All) && !lossless(Mode::None, 2, Ack::One));
}

#[test]
fn ack_names_match_configuration() {
    assert!(Ack::ALL.iter().all(|ack| Ack::from_name(ack.name()) == Some(*ack)));
    assert_eq!(Ack::from_name("two"), None);
}

/// Returns the former and the next owner of a bucket, its second replica, which knows the migration
/// between the two, and two LTMSIs of the bucket.
fn migrated() -> ([HostId; 2], ReplicaStore, [Ltmsi; 2]) {
    let world = World::new();
    let [former, next, _] = world.hosts;
    let mut store = world.second_replica();
    store.adopt(&world.maps[1], &world.hosts);
    ([former, next], store, [1, 2].map(|number| Ltmsi::new(world.bucket, number)))
}

fn names(store: &ReplicaStore) -> Vec<Ltmsi> {
    let mut names: Vec<Ltmsi> = store.ues.values().flat_map(|ues| ues.keys().copied()).collect();
    names.sort_unstable();
    names
}

/// Regression test for seed 4508 of the fault campaign. A copy of the former owner arrives after
/// the next owner has renumbered the UE.
#[test]
fn late_copy_restores_no_renumbered_ue() {
    let ([former, next], mut store, [old, new]) = migrated();
    store.apply((former, 1), &copy(1, old, 1, b""), NOW).unwrap();
    store.apply((next, 2), &copy(1, old, 3, b""), NOW).unwrap();
    store.apply((next, 2), &ReplicaUpdate { before: Some(old), ..copy(2, new, 4, b"") }, NOW).unwrap();
    let late = ReplicaUpdate { perpetual: None, ..copy(2, old, 2, b"") };
    assert_eq!(store.apply((former, 1), &late, NOW), Ok(ApplyResult::Stale));
    // The former owner had adopted the map of the migration when it sent this copy.
    assert_eq!(store.apply((former, 2), &ReplicaUpdate { number: 3, ..late }, NOW), Ok(ApplyResult::Stale));
    // It has adopted a later map since, and repeats the copy on a new connection.
    store.adopt(&World::new().maps[1].next(&parts(&[1.0; 3])), &hosts(3));
    assert_eq!(store.apply((former, 3), &ReplicaUpdate { number: 4, ..late }, NOW), Ok(ApplyResult::Stale));
    assert_eq!(names(&store), [new]);
    assert_eq!(store.apply((former, 4), &copy(5, old, 1, b""), NOW), Ok(ApplyResult::Applied), "an owner again");
}

#[test]
fn late_copy_restores_no_deleted_ue() {
    let ([former, next], mut store, [ue, other]) = migrated();
    store.apply((next, 2), &copy(1, ue, 3, b""), NOW).unwrap();
    store.apply((next, 2), &ReplicaUpdate { ephemeral: b"", ..copy(2, ue, 0, b"") }, NOW).unwrap();
    assert_eq!(store.apply((former, 1), &copy(1, ue, 2, b""), NOW), Ok(ApplyResult::Stale));
    assert_eq!(store.apply((next, 2), &copy(3, ue, 1, b""), NOW), Ok(ApplyResult::Applied), "another UE");
    // An entry that the owner does not confirm is removed for good.
    store.apply((former, 1), &copy(2, other, 1, b""), NOW).unwrap();
    store.remove_orphans((next, 2), 4, &[other], NOW).unwrap();
    assert_eq!(store.apply((former, 1), &copy(3, other, 2, b""), NOW), Ok(ApplyResult::Stale));
    assert_eq!(names(&store), [ue]);
}

/// The former owner has renumbered a UE. Both copies arrive after the state of the next owner.
#[test]
fn stale_renumbering_removes_former_entry() {
    let ([former, next], mut store, [old, new]) = migrated();
    store.apply((next, 2), &copy(1, new, 3, b""), NOW).unwrap();
    store.apply((former, 1), &copy(1, old, 1, b""), NOW).unwrap();
    let renumbering = ReplicaUpdate { before: Some(old), ..copy(2, new, 2, b"") };
    assert_eq!(store.apply((former, 1), &renumbering, NOW), Ok(ApplyResult::Stale));
    assert_eq!(names(&store), [new]);
}

/// Regression test for seed 1535 of the fault campaign. The former owner has renumbered a UE, and
/// only this second replica knows. The next owner does the same two commits later.
#[test]
fn repeated_renumbering_voids_former_one() {
    let ([former, next], mut store, [old, new]) = migrated();
    store.apply((former, 1), &copy(1, old, 3, b"request"), NOW).unwrap();
    let renumbering = ReplicaUpdate { before: Some(old), ..copy(2, new, 4, b"void") };
    store.apply((former, 1), &renumbering, NOW).unwrap();
    store.apply((next, 2), &copy(1, old, 3, b"request"), NOW).unwrap();
    store.apply((next, 2), &copy(2, old, 4, b"deadline"), NOW).unwrap();
    store.apply((next, 2), &ReplicaUpdate { before: Some(old), ..copy(3, new, 5, b"answer") }, NOW).unwrap();
    store.apply((next, 2), &copy(4, new, 6, b"next"), NOW).unwrap();
    assert_eq!(names(&store), [new]);
    let entry = &store.ues[&new.bucket()][&new];
    let outboxes: Vec<&[u8]> = entry.unsent_outboxes(NOW).map(|unsent| unsent.outbox).collect();
    assert_eq!(outboxes, [&b"answer"[..], b"next"]);
}

/// Regression test for seed 882 of the fault campaign. The former owner has committed the step of
/// this second replica, and the next owner its own one in the same place. It copies the state only.
#[test]
fn other_step_of_same_version_is_void() {
    for (state, expected) in [(&b"other"[..], &[&b"first"[..]][..]), (b"ephemeral", &[b"first", b"second"])] {
        let ([former, next], mut store, [ue, _]) = migrated();
        store.apply((former, 1), &copy(1, ue, 3, b"first"), NOW).unwrap();
        store.apply((former, 1), &copy(2, ue, 4, b"second"), NOW).unwrap();
        store.apply((next, 2), &ReplicaUpdate { ephemeral: state, ..copy(1, ue, 4, b"") }, NOW).unwrap();
        let entry = &store.ues[&ue.bucket()][&ue];
        let outboxes: Vec<&[u8]> = entry.unsent_outboxes(NOW).map(|unsent| unsent.outbox).collect();
        assert_eq!(outboxes, expected);
    }
}

/// The next owner executes an input again that the former one has executed without its knowledge.
/// Its first copy is of a later version.
#[test]
fn input_of_next_owner_voids_former_step() {
    let ([former, next], mut store, [ue, _]) = migrated();
    store.apply((former, 1), &copy(1, ue, 3, b"void"), NOW).unwrap();
    store.apply((next, 2), &copy(1, ue, 4, b"own"), NOW).unwrap();
    store.apply((next, 2), &ReplicaUpdate { input: 103, ..copy(2, ue, 5, b"again") }, NOW).unwrap();
    let entry = &store.ues[&ue.bucket()][&ue];
    let outboxes: Vec<&[u8]> = entry.unsent_outboxes(NOW).map(|unsent| unsent.outbox).collect();
    assert_eq!(outboxes, [&b"own"[..], b"again"]);
}
