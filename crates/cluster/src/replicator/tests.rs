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
    let weighted = hosts.iter().map(|host| WeightedHost { host: *host, weight: 1.0 }).collect();
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

fn until(mut what: impl FnMut() -> bool) {
    let since = Instant::now();
    while !what() {
        assert!(since.elapsed() < WITHIN, "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Copies of one host iteration are passed on as one batch; a lost connection repeats all of them.
#[test]
fn copies_are_gathered_and_none_is_lost_with_a_connection() {
    let ([one, two], mut map, bucket) = hosts();
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    map.hosts = [one, two].into_iter().zip(listeners.iter().map(|l| l.local_addr().unwrap())).collect();
    let knocked_at = listeners[1].try_clone().unwrap();
    let mut ends = [one, two].into_iter().zip(listeners).map(|(host, listener)| {
        let metrics = Arc::new(Metrics::new());
        replicator(host, WITHIN, (listener, Security::default()), metrics).unwrap()
    });
    let (sends, sender) = ends.next().unwrap();
    let (keeps, keeper) = ends.next().unwrap();
    keeps.adopt(&map);
    sends.adopt(&map);
    let before = sends.orders.len();
    for number in 1..=3 {
        assert!(send(&sends, two, copy(number, bucket, b"e")) > 0);
    }
    assert_eq!(sends.orders.len(), before, "they wait for the end of the turn");
    sends.flush();
    assert_eq!(sends.orders.len(), before + 1, "and go together");
    let large = vec![7; 1 << 10];
    let last = 3 + GATHERED as u64 / 1024 * 2;
    for number in 4..=last {
        send(&sends, two, copy(number, bucket, &large));
    }
    assert!(sends.orders.len() > before + 1, "so many do not wait");
    sends.flush();
    let run = |thread: ReplicatorThread| {
        let (door, _inputs) = HostSender::alone();
        std::thread::spawn(move || thread.run(&door))
    };
    let sending = run(sender);
    // A peer that receives data and acknowledges nothing.
    until(|| knocked_at.accept().is_ok());
    assert_eq!(sends.acked_up_to(two), 0);
    let keeping = run(keeper);
    until(|| sends.acked_up_to(two) == last);
    assert_eq!(keeps.watch().copies() as u64, last, "each is kept, once");
    drop((sends, keeps));
    [sending, keeping].into_iter().for_each(|thread| thread.join().unwrap());
}

/// A host that receives repeats first acknowledges old numbers. That revokes no earlier
/// acknowledgement.
#[test]
fn what_a_host_has_said_to_have_it_has_whatever_it_says_after_a_connection_was_lost() {
    let ([one, two], mut map, bucket) = hosts();
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    map.hosts = [one, two].into_iter().zip(listeners.iter().map(|l| l.local_addr().unwrap())).collect();
    let [own, others] = listeners;
    let metrics = Arc::new(Metrics::new());
    let (sends, thread) = replicator(one, WITHIN, (own, Security::default()), metrics).unwrap();
    sends.adopt(&map);
    for number in 1..=3 {
        send(&sends, two, copy(number, bucket, b"e"));
        sends.flush();
    }
    let (door, _inputs) = HostSender::alone();
    let running = std::thread::spawn(move || thread.run(&door));
    let connection = || {
        let (socket, _) = others.accept().unwrap();
        let mut stream = Stream::accepted(socket, &Security::default(), Role::Peer, &[Role::Peer]).unwrap();
        until(|| {
            stream.flush().unwrap();
            stream.fill().unwrap();
            stream.frame().unwrap().is_some()
        });
        stream
    };
    let says = |stream: &mut Stream, message: &ToOwner| {
        stream.put(message);
        stream.flush().unwrap();
    };
    let mut first = connection();
    says(&mut first, &ToOwner::CopyAck { number: 2 });
    until(|| sends.acked_up_to(two) == 2);
    drop(first);
    let mut second = connection();
    says(&mut second, &ToOwner::CopyAck { number: 1 });
    // Messages are received in separate iterations, in their order.
    for number in 1..=2 {
        says(&mut second, &ToOwner::ReconcileReply { number, ues: vec![] });
        until(|| sends.has_peer_message());
        assert_eq!(sends.take_peer_messages(), [PeerMessage::ReconcileReply { from: two, number, ues: vec![] }]);
    }
    assert_eq!(sends.acked_up_to(two), 2);
    says(&mut second, &ToOwner::CopyAck { number: 3 });
    until(|| sends.acked_up_to(two) == 3);
    drop(sends);
    running.join().unwrap();
}
