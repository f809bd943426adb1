//! Tests of the owner side. The simulator's fault campaign tests both sides together.

use super::*;
use crate::amf::context::{self, UeContext};
use crate::placement::balance::HostId;
use crate::placement::balance::map::{BUCKETS, BucketMap, SliceBuckets};
use crate::placement::balance::ring::WeightedHost;
use std::collections::BTreeMap;
use vireo_types::{Bucket, Instant, Ltmsi};

/// Number of the last copy that each host has acknowledged.
#[derive(Default)]
struct Said(BTreeMap<HostId, u64>);

impl ReplicaAcks for Said {
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.0.get(&host).copied().unwrap_or_default()
    }
}

const OWN: HostId = HostId(0);

fn parts(weights: &[f64]) -> Vec<SliceBuckets> {
    let hosts = (0..).zip(weights).map(|(n, weight)| WeightedHost { host: HostId(n), weight: *weight }).collect();
    vec![SliceBuckets { weight: 1.0, replicas: 2, hosts }]
}

fn hosts(count: u16) -> Vec<HostId> {
    (0..count).map(HostId).collect()
}

/// Returns an owner among the four hosts of the first map, the map, and a bucket that the owner
/// has.
fn owner(ack: Ack) -> (BucketOwner<u32, &'static str>, BucketMap, Bucket) {
    let map = BucketMap::first(&parts(&[1.0; 4]));
    let mut primary = BucketOwner::new(OWN, ReplicationConfig { mode: Mode::Hot, replicas: 2, ack }, vec![2]);
    assert_eq!(primary.adopt(map.clone(), hosts(4)), None);
    primary.entered(Default::default());
    primary.rescan();
    let bucket = (0..Bucket::COUNT).map(Bucket::new).find(|b| primary.owns(*b)).expect("it has some");
    (primary, map, bucket)
}

fn record(ltmsi: Ltmsi) -> Vec<u8> {
    context::encode(&UeContext::new(ltmsi), Vec::new()).expect("it encodes")
}

fn commit(ltmsi: Ltmsi, context: &[u8]) -> Commit<'_, u32> {
    Commit { slot: 7, ltmsi, before: None, input: 9, context, outbox: b"outbox", ways: [None; 2] }
}

#[test]
fn effects_leave_in_order_when_those_that_are_waited_for_have_the_copy() {
    for ack in Ack::ALL {
        let (mut primary, map, bucket) = owner(ack);
        let replicas: Vec<HostId> = map.owners(bucket).replicas().collect();
        let (ltmsi, mut said, mut sent) = (Ltmsi::new(bucket, 1), Said::default(), Vec::new());
        let context = record(ltmsi);
        for name in ["one", "two"] {
            let mut send = |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.number, copy.perpetual.is_some()));
            let released = primary.on_commit((&commit(ltmsi, &context), false), &said, name, &mut send);
            assert_eq!(released, (ack == Ack::None).then_some(name), "{ack:?}");
        }
        let first = [(replicas[0], 1, true), (replicas[1], 1, true)];
        assert_eq!(sent, [first[0], first[1], (replicas[0], 2, false), (replicas[1], 2, false)], "parts go once");
        if ack == Ack::None {
            continue;
        }
        said.0.insert(replicas[1], 2);
        assert_eq!(primary.next_released(&said), None, "the one that takes over first has none of it");
        said.0.insert(replicas[0], 1);
        assert_eq!([primary.next_released(&said), primary.next_released(&said)], [Some("one"), None]);
        said.0.insert(replicas[0], 2);
        if ack == Ack::All {
            said.0.insert(replicas[1], 1);
            assert_eq!(primary.next_released(&said), None, "all have to have it");
            said.0.insert(replicas[1], 2);
        }
        assert_eq!([primary.next_released(&said), primary.next_released(&said)], [Some("two"), None]);
    }
}

#[test]
fn what_waits_for_a_host_that_dies_waits_for_the_next_one_which_is_sent_it() {
    let (mut primary, map, bucket) = owner(Ack::One);
    let replicas: Vec<HostId> = map.owners(bucket).replicas().collect();
    let (ltmsi, mut said) = (Ltmsi::new(bucket, 1), Said::default());
    let context = record(ltmsi);
    assert_eq!(primary.on_commit((&commit(ltmsi, &context), false), &said, "it", &mut |_, _| ()), None);
    let weights: Vec<f64> = (0..4).map(|n| if HostId(n) == replicas[0] { 0.0 } else { 1.0 }).collect();
    let mut without = parts(&weights);
    without[0].hosts.retain(|weighted| weighted.host != replicas[0]);
    let left: Vec<HostId> = without[0].hosts.iter().map(|weighted| weighted.host).collect();
    assert_eq!(primary.adopt(map.next(&without), left), None);
    let mut sent = Vec::new();
    let again = |_: &&str| {
        let (context, outbox) = (record(ltmsi), b"outbox".to_vec());
        Some(ResentCommit { slot: 7, ltmsi, before: None, input: 9, context, outbox, ways: [None; 2] })
    };
    primary.reassign_acks(again, &mut |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.number, copy.input)));
    assert_eq!(sent, [(replicas[1], 2, 9)], "it is the first to take over now");
    assert!(
        primary.lacks(replicas[1], 7, ltmsi),
        "what the UE is now, which may be by a later commit that waits for nobody"
    );
    said.0.insert(replicas[1], 1);
    assert_eq!(primary.next_released(&said), None);
    said.0.insert(replicas[1], 2);
    assert_eq!(primary.next_released(&said), Some("it"));
}

#[test]
fn a_host_that_is_to_have_copies_is_told_caught_up_when_it_has_all() {
    let (mut primary, map, bucket) = owner(Ack::One);
    let (mut said, ltmsi) = (Said::default(), Ltmsi::new(bucket, 1));
    let first = map.owners(bucket).replicas().next().expect("a replica");
    let question = primary.asks_for_nodes().expect("of the map");
    assert!(primary.caught_up(&said).is_empty() && primary.introduced(question).is_some());
    assert_eq!(primary.caught_up(&said).to_vec(), [OWN], "it has its own");
    let context = record(ltmsi);
    let (mut sent, mut asked) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (to, from) = primary.next_lagging_replica(&said).expect("three other hosts");
        assert_eq!((from, primary.lacks(to, 7, ltmsi)), (0, map.owners(bucket).replicas().any(|host| host == to)));
        if primary.lacks(to, 7, ltmsi) {
            primary.send(to, &commit(ltmsi, &context), &said, &mut |to, copy| sent.push((to, copy.number)));
        }
        asked.extend(primary.looked(to, None).map(|whole| (to, whole.number)));
    }
    assert_eq!((sent.len(), asked.len()), (2, 3));
    assert!(!primary.lacks(first, 7, ltmsi));
    asked.iter().for_each(|(host, question)| _ = said.0.insert(*host, *question));
    assert!(primary.caught_up(&said).is_empty(), "none has said what it has of others");
    said.0.clear();
    for (host, question) in &asked {
        assert!(primary.is_asked(*host, *question) && primary.answered(*host, 0).is_none());
    }
    let (other, question) = *asked.iter().find(|(host, _)| !map.owners(bucket).has(*host)).expect("the third");
    said.0.extend([(other, question), (first, 1)]);
    assert_eq!(primary.caught_up(&said).to_vec(), [other], "who has nothing to get");
    said.0.insert(first, 2);
    assert_eq!(primary.caught_up(&said).to_vec(), [first]);
    primary.forget(7);
    assert!(primary.lacks(first, 7, ltmsi));
}

#[test]
fn a_bucket_goes_when_all_before_is_done_and_stays_if_the_next_owner_dies() {
    let (mut primary, map, _) = owner(Ack::One);
    let leaves = parts(&[0.0, 1.0, 1.0, 1.0]);
    let next = map.switch(&leaves, BUCKETS).expect("some buckets may go at once");
    let question = primary.adopt(next.clone(), hosts(4)).expect("buckets go");
    primary.entered(Default::default());
    let goes = (0..Bucket::COUNT).map(Bucket::new).find(|b| primary.leaves(*b)).expect("one of them");
    assert!(primary.owns(goes) && primary.takes(goes) && !primary.is_quiesced(goes), "until the balancers know");
    assert_eq!(primary.classify_input(Some(goes), false, true, true), InputDisposition::Process);
    assert_eq!(
        (primary.on_barrier(question + 1), primary.on_barrier(question)),
        (BarrierResult::Nothing, BarrierResult::Ends)
    );
    assert_eq!(primary.classify_input(Some(goes), false, true, true), InputDisposition::Return);
    assert_eq!(primary.take_ending(), Some(vec![]));
    let last = primary.quiesce();
    assert!(primary.is_quiesced(goes) && primary.take_ending().is_none());
    assert_eq!(primary.on_barrier(last), BarrierResult::HandsOver);
    let to = next.owners(goes).owner().expect("the next");

    let others: Vec<HostId> = hosts(4).into_iter().filter(|host| *host != to).collect();
    let mut without = parts(&[0.0, 1.0, 1.0, 1.0]);
    without[0].hosts.retain(|weighted| weighted.host != to);
    let after = next.next(&without);
    primary.adopt(after.clone(), others);
    assert_eq!(primary.is_quiesced(goes), after.owners(goes).owner() != Some(OWN));

    let (mut primary, ..) = owner(Ack::One);
    primary.adopt(next.clone(), hosts(4));
    let handed = primary.finish_migration().expect("buckets go");
    assert!(handed.epoch == 2 && handed.to.contains(&to) && !handed.to.contains(&OWN));
    assert!(!primary.owns(goes) && primary.leaving() == 0);
}

#[test]
fn inputs_for_ues_that_others_have_to_hand_over_first_wait_and_so_does_what_all_hear() {
    let (mut primary, _, bucket) = owner(Ack::One);
    primary.entered([bucket].into_iter().collect());
    assert!(!primary.owns(bucket));
    assert_eq!(primary.classify_input(Some(bucket), false, true, true), InputDisposition::HoldBack);
    assert_eq!(primary.classify_input(Some(bucket), false, true, false), InputDisposition::Return, "there is no room");
    assert_eq!(primary.classify_input(None, false, true, true), InputDisposition::Process);
    assert_eq!(primary.classify_input(None, true, false, false), InputDisposition::HoldBack);
    assert_eq!(primary.classify_input(None, false, true, true), InputDisposition::HoldBack, "nothing overtakes that");
    primary.entered(Default::default());
    primary.sorts_again();
    assert_eq!(primary.classify_input(Some(bucket), false, true, true), InputDisposition::Process);
}

/// Two commits wait, and the second one changes the UE's LTMSI. A host that receives both again
/// stores one UE.
#[test]
fn a_ue_that_has_got_another_number_while_its_commits_wait_is_one_at_who_is_sent_them_again() {
    let (mut primary, map) = sliced(3, &[2], Ack::One);
    let old = Ltmsi::new(own_bucket(&map, 0), 1);
    let new = Ltmsi::new(old.bucket(), 2);
    let (said, replicas) = (Said::default(), map.owners(old.bucket()).replicas().collect::<Vec<_>>());
    for (ltmsi, before) in [(old, None), (new, Some(old))] {
        let context = record(ltmsi);
        let commit = Commit { before, ..commit(ltmsi, &context) };
        assert!(primary.on_commit((&commit, false), &said, "it", &mut |_, _| ()).is_none());
    }
    let hosts = [OWN, replicas[1]];
    let next = map.next(&of_slices(&hosts, &[2]));
    primary.adopt(next.clone(), hosts.to_vec());
    let mut keeper = ReplicaStore::new(replicas[1]);
    keeper.adopt(&next, &hosts);
    let mut numbers = [(old, None), (new, Some(old))].into_iter();
    let again = |_: &&str| {
        let (ltmsi, before) = numbers.next().expect("two commits");
        let (context, outbox) = (record(ltmsi), b"outbox".to_vec());
        Some(ResentCommit { slot: 7, ltmsi, before, input: 9, context, outbox, ways: [None; 2] })
    };
    let mut send =
        |_, copy: ReplicaUpdate<'_>| _ = keeper.apply((OWN, 2), &copy, Instant(1)).expect("it is in the map");
    primary.reassign_acks(again, &mut send);
    assert_eq!(keeper.len(), 1);
}

/// Returns an owner and the first map, for `count` hosts and slices with the given numbers of
/// replicas.
fn sliced(count: u16, replicas: &[usize], ack: Ack) -> (BucketOwner<u32, &'static str>, BucketMap) {
    let map = BucketMap::first(&of_slices(&hosts(count), replicas));
    let most = replicas.iter().max().copied().unwrap_or_default();
    let mut primary =
        BucketOwner::new(OWN, ReplicationConfig { mode: Mode::Hot, replicas: most, ack }, replicas.to_vec());
    assert_eq!(primary.adopt(map.clone(), hosts(count)), None);
    primary.entered(Default::default());
    (primary, map)
}

fn of_slices(hosts: &[HostId], replicas: &[usize]) -> Vec<SliceBuckets> {
    let hosts: Vec<WeightedHost> = hosts.iter().map(|host| WeightedHost { host: *host, weight: 1.0 }).collect();
    replicas.iter().map(|replicas| SliceBuckets { weight: 1.0, replicas: *replicas, hosts: hosts.clone() }).collect()
}

/// Returns a bucket of a slice that this host owns.
fn own_bucket(map: &BucketMap, slice: usize) -> Bucket {
    map.buckets(slice).find(|bucket| map.owners(*bucket).owner() == Some(OWN)).expect("it has some")
}

#[test]
fn a_commit_that_ends_a_procedure_waits_for_all_and_others_as_they_are_told() {
    for (ack, amid, at_the_end) in [(Ack::None, 0, 0), (Ack::One, 1, 2), (Ack::All, 2, 2)] {
        let (mut primary, map) = sliced(3, &[2], ack);
        let ltmsi = Ltmsi::new(own_bucket(&map, 0), 1);
        let replicas: Vec<HostId> = map.owners(ltmsi.bucket()).replicas().collect();
        let (said, context) = (Said::default(), record(ltmsi));
        for (ended, waited) in [(false, amid), (true, at_the_end)] {
            let mut sent = Vec::new();
            let commit = commit(ltmsi, &context);
            let (needs, _) = primary.replicate((&commit, ended), &said, &mut |to, _: ReplicaUpdate<'_>| sent.push(to));
            let needs: Vec<HostId> = needs.into_iter().map(|(host, _)| host).collect();
            assert_eq!((&needs[..], &sent), (&replicas[..waited], &replicas), "{ack:?}");
        }
    }
}

#[test]
fn what_waits_for_a_replica_that_does_not_answer_waits_until_that_is_given_up_and_then_for_the_next() {
    for ack in [Ack::One, Ack::All] {
        let (mut primary, map) = sliced(3, &[2], ack);
        let ltmsi = Ltmsi::new(own_bucket(&map, 0), 1);
        let (mut said, mut sent, context) = (Said::default(), Vec::new(), record(ltmsi));
        let mut send = |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.number));
        assert_eq!(primary.on_commit((&commit(ltmsi, &context), true), &said, "it", &mut send), None);
        let [(first, of_first), (second, of_second)] = sent[..] else { panic!("{sent:?}") };
        assert_eq!(primary.next_released(&said), None);
        said.0.insert(first, of_first);
        assert_eq!(primary.next_released(&said), None, "the other one does not answer");
        said.0.insert(first, of_first + 7);
        assert_eq!(primary.next_released(&said), None, "whatever this one says");

        // The replica is declared dead, and a host that has joined since replaces it.
        let hosts = [OWN, first, HostId(3)];
        assert_eq!(primary.adopt(map.next(&of_slices(&hosts, &[2])), hosts.to_vec()), None);
        let again = |_: &&str| {
            let (context, outbox) = (record(ltmsi), b"outbox".to_vec());
            Some(ResentCommit { slot: 7, ltmsi, before: None, input: 9, context, outbox, ways: [None; 2] })
        };
        let mut more = Vec::new();
        primary.reassign_acks(again, &mut |to, copy: ReplicaUpdate<'_>| more.push((to, copy.number)));
        let [(HostId(3), next)] = more[..] else { panic!("{ack:?}: {more:?}") };
        said.0.insert(second, of_second);
        assert_eq!(primary.next_released(&said), None, "what it says now is nobody's affair");
        said.0.insert(HostId(3), next);
        assert_eq!(primary.next_released(&said), Some("it"));
    }
}

#[test]
fn a_ue_of_a_slice_without_copies_is_copied_until_its_slice_is_known_and_not_longer() {
    let (mut primary, map) = sliced(3, &[2, 0, 1], Ack::All);
    let (unknown, said) = (Ltmsi::new(own_bucket(&map, 0), 1), Said::default());
    let home = |slice| {
        Ltmsi::new(crate::placement::balance::migration::in_column(unknown.bucket(), slice, 3).expect("in it"), 1)
    };
    // Number of required acknowledgements; copies as (receiver, UE, deleted).
    let spread = |primary: &mut BucketOwner<u32, &'static str>, ltmsi, before, context: &[u8]| {
        let mut sent = Vec::new();
        let commit = Commit { before, ..commit(ltmsi, context) };
        let mut send = |to, copy: ReplicaUpdate<'_>| sent.push((to, copy.ltmsi, copy.ephemeral.is_empty()));
        (primary.replicate((&commit, true), &said, &mut send).0.len(), sent)
    };
    let context = record(unknown);
    let [first, second] = [1, 2].map(HostId);
    let (waits, mut sent) = spread(&mut primary, unknown, None, &[]);
    sent.sort_unstable();
    assert_eq!((waits, sent), (2, vec![(first, unknown, true), (second, unknown, true)]));
    assert_eq!(spread(&mut primary, home(1), Some(unknown), &[]), (0, vec![]), "nobody had it: it had no context");

    // Once the UE has a context, a former replica receives one deletion.
    spread(&mut primary, unknown, None, &context);
    let (waits, mut sent) = spread(&mut primary, home(1), Some(unknown), &context);
    sent.sort_unstable();
    assert_eq!((waits, sent), (0, vec![(first, unknown, true), (second, unknown, true)]));
    assert_eq!(spread(&mut primary, home(1), Some(unknown), &context), (0, vec![]));
    // A slice with fewer replicas sends no deletion to the replicas that remain.
    spread(&mut primary, unknown, None, &context);
    let (waits, sent) = spread(&mut primary, home(2), Some(unknown), &context);
    let [(stays, of, false), (goes, unknown_to_it, true)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((waits, of, unknown_to_it), (1, home(2), unknown));
    assert!(stays != goes && map.owners(home(2).bucket()).replicas().eq([stays]));
    // While a bucket migrates, this copy is not one that effects wait for.
    let next = of_slices(&hosts(4), &[2, 0, 1]);
    let prepared = map.next(&next).prepare(&next).expect("the one that has joined is to have some");
    let goes = prepared.buckets(1).find(|bucket| prepared.owners(*bucket).replicas().count() > 0).expect("one of them");
    primary.adopt(prepared.clone(), hosts(4));
    for host in prepared.owners(goes).replicas() {
        assert!(!primary.keeps_copies(host, goes) && !primary.lacks(host, 8, Ltmsi::new(goes, 2)));
    }
}

#[test]
fn a_slice_has_as_many_copies_as_it_asks_for_and_no_more_than_there_are() {
    let of = |mode, replicas, wanted: &[usize]| {
        ReplicationConfig { mode, replicas, ack: Ack::One }.of_slices(wanted.iter().copied())
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
fn names_of_acknowledgements_are_those_of_the_configuration() {
    assert!(Ack::ALL.iter().all(|ack| Ack::from_name(ack.name()) == Some(*ack)));
    assert_eq!(Ack::from_name("two"), None);
}
