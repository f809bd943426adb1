//! What is sent to whom, and who is waited for.

use super::*;
use crate::cluster::config::Ack;
use crate::cluster::replicator::{Thread, replicator};
use crate::fabric::Security;
use crate::metrics::Metrics;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use vireo_core::balance::map::SlicePart;
use vireo_core::balance::ring::Weighted;
use vireo_store::region::{RegionConfig, Worker};

const OWN: HostId = HostId(0);

/// A host among others, with the copies that it sends; and what would carry them.
fn cluster(hosts: &[HostId], replicas: &[usize], ack: Ack) -> (Cluster, Thread) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let welcome = Welcome { host: OWN, tmsi_key: [0; 16], part: (0, 16), heartbeat: (50, 4), report: 200, recovery: 1 };
    let (patience, metrics) = (std::time::Duration::from_secs(1), Arc::new(Metrics::new()));
    let (replicator, thread) = replicator(OWN, patience, (listener, Security::default()), metrics).unwrap();
    let most = replicas.iter().max().copied().unwrap_or(0);
    let replication = ReplicationConfig { mode: Mode::Hot, replicas: most, ack };
    let mut cluster = Cluster::new(Membership { welcome, replication, replicas: replicas.to_vec(), replicator });
    cluster.hosts = hosts.to_vec();
    cluster.map = Some(BucketMap::first(&parts(hosts, replicas)));
    (cluster, thread)
}

fn parts(hosts: &[HostId], replicas: &[usize]) -> Vec<SlicePart> {
    let hosts: Vec<Weighted> = hosts.iter().map(|host| Weighted { host: *host, weight: 1.0 }).collect();
    replicas.iter().map(|replicas| SlicePart { weight: 1.0, replicas: *replicas, hosts: hosts.clone() }).collect()
}

/// A bucket of this host's in a slice.
fn own_bucket(cluster: &Cluster, slice: usize) -> Bucket {
    let map = cluster.map.as_ref().unwrap();
    map.buckets(slice).find(|bucket| map.owners(*bucket).primary() == Some(OWN)).unwrap()
}

fn region() -> (Region, Worker) {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let worker = region.join(0).unwrap();
    (region, worker)
}

fn outbox(ltmsi: Ltmsi) -> Outbox {
    Outbox {
        at: Instant(1),
        ltmsi,
        key: 0,
        input: 0,
        deadline: None,
        before: None,
        after: None,
        settled: vec![],
        seids: vec![],
        effects: vec![],
        notes: vec![],
    }
}

/// The hosts that the effects of a commit wait for.
fn waits_for(cluster: &mut Cluster, slot: Slot, ltmsi: Ltmsi, ended: bool) -> Vec<HostId> {
    let (needs, ..) = cluster.spread(slot, (ltmsi, None), 0, &[], (b"outbox", Ways::default()), ended);
    needs.into_iter().map(|(host, _)| host).collect()
}

#[test]
fn a_commit_that_ends_a_procedure_waits_for_all_and_others_as_they_are_told() {
    let (region, mut worker) = region();
    for (ack, amid, at_the_end) in [(Ack::None, 0, 0), (Ack::One, 1, 2), (Ack::All, 2, 2)] {
        let (mut cluster, _thread) = cluster(&[0, 1, 2].map(HostId), &[2], ack);
        let ltmsi = Ltmsi::new(own_bucket(&cluster, 0), 1);
        let slot = worker.insert(ltmsi).unwrap();
        let replicas: Vec<HostId> = cluster.owners(ltmsi.bucket()).replicas().collect();
        assert_eq!(waits_for(&mut cluster, slot, ltmsi, false), replicas[..amid], "{ack:?}");
        assert_eq!(waits_for(&mut cluster, slot, ltmsi, true), replicas[..at_the_end], "{ack:?}");
        worker.abandon(slot);
    }
    drop(region);
}

#[test]
fn what_waits_for_a_replica_that_does_not_answer_waits_until_that_is_given_up_and_then_for_the_next() {
    let (region, mut worker) = region();
    for ack in [Ack::One, Ack::All] {
        let (mut cluster, _thread) = cluster(&[0, 1, 2].map(HostId), &[2], ack);
        let ltmsi = Ltmsi::new(own_bucket(&cluster, 0), 1);
        let slot = worker.insert(ltmsi).unwrap();
        let mut seen = Snapshot::default();
        region.read(slot, &mut seen);
        let record = vireo_store::region::Record { outbox: b"x", ..Default::default() };
        let buffer = worker.commit(slot, &seen, &record).unwrap().buffer;
        let (needs, ..) = cluster.spread(slot, (ltmsi, None), 0, &[], (b"x", Ways::default()), true);
        let [(first, of_first), (second, of_second)] = needs[..] else { panic!("{needs:?}") };
        let outbox = outbox(ltmsi);
        cluster.awaiting.push_back(Pending { slot, buffer, outbox, ways: Ways::default(), ended: true, needs });
        assert!(!cluster.is_next_there());
        cluster.member.replicator.keeps(first, of_first);
        assert!(!cluster.is_next_there(), "the other one does not answer");
        cluster.member.replicator.keeps(first, of_first + 7);
        assert!(!cluster.is_next_there(), "whatever this one says");

        // It is given up, and a host that has joined since is a replica in its place.
        let hosts = [OWN, first, HostId(3)];
        cluster.hosts = hosts.to_vec();
        cluster.map = Some(cluster.map.as_ref().unwrap().next(&parts(&hosts, &[2])));
        cluster.wait_for_others(&hosts, &region);
        let needs = &cluster.awaiting[0].needs;
        assert_eq!(needs.iter().map(|(host, _)| *host).collect::<Vec<_>>(), [first, HostId(3)], "{ack:?}");
        cluster.member.replicator.keeps(second, of_second);
        assert!(!cluster.is_next_there(), "what it says now is nobody's affair");
        let next = needs[1].1;
        cluster.member.replicator.keeps(HostId(3), next);
        assert!(cluster.is_next_there());
        worker.abandon(slot);
    }
}

#[test]
fn a_ue_of_a_slice_without_copies_is_copied_until_its_slice_is_known_and_not_longer() {
    let (_region, mut worker) = region();
    let (mut cluster, _thread) = cluster(&[0, 1, 2].map(HostId), &[2, 0, 1], Ack::All);
    let unknown = Ltmsi::new(own_bucket(&cluster, 0), 1);
    let slot = worker.insert(unknown).unwrap();
    let mut spread = |ltmsi, before| {
        let (needs, copies, octets) = cluster.spread(slot, (ltmsi, before), 0, &[], (b"outbox", Ways::default()), true);
        (needs.len(), copies, octets > 0)
    };
    let slices = 3;
    let home = |slice| Ltmsi::new(vireo_core::balance::moves::in_column(unknown.bucket(), slice, slices).unwrap(), 1);
    assert_eq!(spread(unknown, None), (2, 2, true));
    assert_eq!(spread(home(1), Some(unknown)), (0, 0, false), "nobody had it: it had no context");
    assert_eq!(spread(home(2), Some(unknown)), (1, 1, true));

    // With a context, who had it is told that it is gone from there, once.
    let known = |cluster: &mut Cluster, host| {
        cluster.known.entry(host).or_default().insert(slot, (unknown, 1));
    };
    [1, 2].map(HostId).iter().for_each(|host| known(&mut cluster, *host));
    let octets = cluster.withdraw(slot, unknown, home(1).bucket());
    assert!(octets > 0);
    assert_eq!(cluster.withdraw(slot, unknown, home(1).bucket()), 0);
    // One that is to have fewer leaves those alone that stay.
    [1, 2].map(HostId).iter().for_each(|host| known(&mut cluster, *host));
    assert_eq!(cluster.withdraw(slot, unknown, home(2).bucket()) * 2, octets);
    // While a bucket is on its way to another host, this is no copy that anybody waits for.
    let hosts = [0, 1, 2, 3].map(HostId);
    let map = cluster.map.take().unwrap();
    let prepared = map.next(&parts(&hosts, &[2, 0, 1])).prepare(&parts(&hosts, &[2, 0, 1])).unwrap();
    let goes = prepared.buckets(1).find(|bucket| prepared.owners(*bucket).replicas().count() > 0).unwrap();
    (cluster.map, cluster.hosts) = (Some(prepared), hosts.to_vec());
    assert!(cluster.replicas(goes).is_empty() && !cluster.keeps_copies(HostId(3), goes));
}
