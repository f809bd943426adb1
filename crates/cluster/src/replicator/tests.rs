use super::*;
use std::net::Ipv4Addr;
use vireo_core::placement::balance::map::{BucketMap, FIRST_EPOCH, SliceBuckets};
use vireo_core::placement::balance::ring::WeightedHost;
use vireo_core::placement::replica::{EffectAssociations, ReplicaUpdate};
use vireo_types::Bucket;

const WITHIN: Duration = Duration::from_secs(20);

/// Returns two hosts, their map, and a bucket of the first one.
fn hosts() -> ([HostId; 2], ClusterMap, Bucket) {
    let hosts = [1, 2].map(HostId);
    let weighted = hosts.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
    let buckets = BucketMap::new(FIRST_EPOCH, &[SliceBuckets { weight: 1.0, replicas: 1, hosts: weighted }]);
    let own = |bucket: &Bucket| buckets.owners(*bucket).owner() == Some(hosts[0]);
    let bucket = (0..Bucket::COUNT).map(Bucket::new).find(own).unwrap();
    let map = ClusterMap { hosts: vec![], buckets, balancers: vec![], joined: 2, lost: vec![], leaving: vec![] };
    (hosts, map, bucket)
}

fn copy(number: u64, bucket: Bucket, ephemeral: &[u8]) -> ReplicaUpdate<'_> {
    let ltmsi = Ltmsi::new(bucket, number as u16);
    let (version, associations) = (number as u32, EffectAssociations::default());
    ReplicaUpdate {
        number,
        ltmsi,
        before: None,
        input: number,
        layout: vireo_core::amf::context::LAYOUT_VERSION,
        perpetual_version: version,
        ephemeral_version: version,
        perpetual: Some(b"who"),
        ephemeral,
        outbox: b"",
        associations,
    }
}

fn send(replicator: &Replicator, to: HostId, copy: ReplicaUpdate<'_>) -> usize {
    replicator.put(to, copy.number, &ToReplica::Copy(copy))
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < WITHIN, "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Copies of one host iteration are passed on as one batch; a lost connection repeats all of them.
#[test]
fn batched_copies_survive_a_lost_connection() {
    let ([one, two], mut map, bucket) = hosts();
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    map.hosts = [one, two].into_iter().zip(listeners.iter().map(|l| l.local_addr().unwrap())).collect();
    let silent_listener = listeners[1].try_clone().unwrap();
    let mut ends = [one, two].into_iter().zip(listeners).map(|(host, listener)| {
        let metrics = Arc::new(Metrics::new());
        replicator(host, WITHIN, (listener, Security::default()), metrics).unwrap()
    });
    let (owner, owner_thread) = ends.next().unwrap();
    let (replica, replica_thread) = ends.next().unwrap();
    replica.adopt(&map);
    owner.adopt(&map);
    let before = owner.commands.len();
    for number in 1..=3 {
        assert!(send(&owner, two, copy(number, bucket, b"e")) > 0);
    }
    assert_eq!(owner.commands.len(), before, "they wait for the end of the turn");
    owner.flush();
    assert_eq!(owner.commands.len(), before + 1, "and go together");
    let large = vec![7; 1 << 10];
    let last = 3 + BATCH_BYTES as u64 / 1024 * 2;
    for number in 4..=last {
        send(&owner, two, copy(number, bucket, &large));
    }
    assert!(owner.commands.len() > before + 1, "so many do not wait");
    owner.flush();
    let run = |thread: ReplicatorThread| {
        let (input_sender, _inputs) = HostSender::without_host();
        std::thread::spawn(move || thread.run(&input_sender))
    };
    let owner_run = run(owner_thread);
    // A peer that receives data and acknowledges nothing.
    wait_until(|| silent_listener.accept().is_ok());
    assert_eq!(owner.acked_up_to(two), 0);
    let replica_run = run(replica_thread);
    wait_until(|| owner.acked_up_to(two) == last);
    assert_eq!(replica.watch().copies() as u64, last, "each is kept, once");
    drop((owner, replica));
    [owner_run, replica_run].into_iter().for_each(|thread| thread.join().unwrap());
}

/// A host that receives repeats first acknowledges old numbers. That revokes no earlier
/// acknowledgement.
#[test]
fn acknowledgement_survives_reconnection() {
    let ([one, two], mut map, bucket) = hosts();
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    map.hosts = [one, two].into_iter().zip(listeners.iter().map(|l| l.local_addr().unwrap())).collect();
    let [own, peer_listener] = listeners;
    let metrics = Arc::new(Metrics::new());
    let (owner, thread) = replicator(one, WITHIN, (own, Security::default()), metrics).unwrap();
    owner.adopt(&map);
    for number in 1..=3 {
        send(&owner, two, copy(number, bucket, b"e"));
        owner.flush();
    }
    let (input_sender, _inputs) = HostSender::without_host();
    let running = std::thread::spawn(move || thread.run(&input_sender));
    let connection = || {
        let (socket, _) = peer_listener.accept().unwrap();
        let mut stream = Stream::accepted(socket, &Security::default(), Role::Peer, &[Role::Peer]).unwrap();
        wait_until(|| {
            stream.flush().unwrap();
            stream.fill().unwrap();
            stream.frame().unwrap().is_some()
        });
        stream
    };
    let reply = |stream: &mut Stream, message: &ToOwner| {
        stream.put(message);
        stream.flush().unwrap();
    };
    let mut first = connection();
    reply(&mut first, &ToOwner::CopyAck { number: 2 });
    wait_until(|| owner.acked_up_to(two) == 2);
    drop(first);
    let mut second = connection();
    reply(&mut second, &ToOwner::CopyAck { number: 1 });
    // Messages are received in separate iterations, in their order.
    for number in 1..=2 {
        reply(&mut second, &ToOwner::ReconcileReply { number, ues: vec![] });
        wait_until(|| owner.has_peer_message());
        assert_eq!(owner.take_peer_messages(), [PeerMessage::ReconcileReply { from: two, number, ues: vec![] }]);
    }
    assert_eq!(owner.acked_up_to(two), 2);
    reply(&mut second, &ToOwner::CopyAck { number: 3 });
    wait_until(|| owner.acked_up_to(two) == 3);
    drop(owner);
    running.join().unwrap();
}

fn proposal(ltmsi: Ltmsi) -> Proposal {
    Proposal {
        epoch: FIRST_EPOCH,
        ltmsi,
        input: 11,
        base: 1,
        layout: vireo_core::amf::context::LAYOUT_VERSION,
        perpetual_version: 1,
        perpetual: None,
        ephemeral: vec![2],
        outbox: vec![],
        associations: EffectAssociations::default(),
        deadline: None,
        is_in_progress: false,
    }
}

/// A host on the thread of its replicator receives before its turn, and sends after it.
#[test]
fn shared_thread_receives_and_sends_apart() {
    let ([one, two], mut map, bucket) = hosts();
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    map.hosts = [one, two].into_iter().zip(listeners.iter().map(|l| l.local_addr().unwrap())).collect();
    let mut ends = [one, two].into_iter().zip(listeners).map(|(host, listener)| {
        let metrics = Arc::new(Metrics::new());
        replicator(host, WITHIN, (listener, Security::default()), metrics).unwrap()
    });
    let (owner, mut owner_thread) = ends.next().unwrap();
    let (replica, mut replica_thread) = ends.next().unwrap();
    let (input_sender, _inputs) = HostSender::without_host();
    replica.adopt(&map);
    owner.adopt(&map);
    send(&owner, two, copy(1, bucket, b"e"));
    owner.flush();
    replica_thread.connection_pending = true;
    let copies = replica.watch();
    wait_until(|| {
        owner_thread.send();
        replica_thread.receive(&input_sender);
        copies.copies() == 1
    });
    assert_eq!(owner.acked_up_to(two), 0, "the owner has received nothing");
    wait_until(|| {
        owner_thread.receive(&input_sender);
        owner.acked_up_to(two) == 1
    });
    replica.propose(proposal(Ltmsi::new(bucket, 1)));
    replica_thread.receive(&input_sender);
    owner_thread.receive(&input_sender);
    assert!(!owner.has_peer_message(), "the proposal waits for the end of the turn");
    replica_thread.send();
    wait_until(|| {
        owner_thread.receive(&input_sender);
        owner.has_peer_message()
    });
}

/// Answers that no input waits for are processed with the next input.
#[test]
fn only_awaited_or_refused_answers_are_due() {
    let ([one, two], ..) = hosts();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let metrics = Arc::new(Metrics::new());
    let (replicator, _thread) = replicator(two, WITHIN, (listener, Security::default()), metrics).unwrap();
    let answer = |is_refusal| {
        let received = Received { is_proposal_answer: true, is_refusal, ..Received::default() };
        assert!(replicator.shared.take(one, received).is_ok_and(|answer| answer.is_none()));
        assert!(replicator.has_proposal_answers());
        replicator.has_due_answers()
    };
    assert!(!replicator.has_due_answers() && !answer(false));
    replicator.set_awaits_answers(true);
    assert!(replicator.has_due_answers());
    replicator.set_awaits_answers(false);
    assert!(answer(true) && answer(false), "an input returns to its balancer");
    assert_eq!(replicator.take_proposal_answers(), []);
    assert!(!replicator.has_proposal_answers() && !replicator.has_due_answers() && !answer(false));
}
