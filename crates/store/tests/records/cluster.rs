//! Tests with a Redis Cluster of three masters, each with a replica.

use crate::load::{self, WriteLog};
use crate::servers::{Redis, free_port, until};
use std::time::Duration;
use vireo_store::conformance;
use vireo_store::records::{Change, Name, RecordError, RecordStore, RedisCluster, RedisClusterConfig};

const LIFE: Duration = Duration::from_secs(600);

/// A cluster. The first three nodes are masters at the beginning, the others their replicas.
struct Cluster {
    nodes: Vec<Option<Redis>>,
    ports: Vec<u16>,
    directory: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ports: Vec<_> = (0..6).map(|_| free_port(true)).collect();
        let nodes = ports.iter().map(|port| Some(Redis::node(*port, directory.path()))).collect();
        let cluster = Cluster { nodes, ports, directory };
        for (master, slots) in [0..5461, 5461..10_923, 10_923..16_384].into_iter().enumerate() {
            let slots: Vec<_> = slots.map(|slot: u32| slot.to_string()).collect();
            cluster.command(master, &format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            cluster.command(master, &format!("CLUSTER SET-CONFIG-EPOCH {}", master + 1));
        }
        for port in &cluster.ports[1..] {
            cluster.command(0, &format!("CLUSTER MEET 127.0.0.1 {port}"));
        }
        until("all know all", || {
            (0..6).all(|node| cluster.answer_contains(node, "CLUSTER INFO", "cluster_known_nodes:6"))
        });
        for replica in 3..6 {
            let id = cluster.query(replica - 3, "CLUSTER MYID");
            let id = id.split("\r\n").nth(1).expect("an answer of a length and a text").to_owned();
            until("it is a replica", || cluster.query(replica, &format!("CLUSTER REPLICATE {id}")).starts_with("+OK"));
        }
        until("the cluster works", || {
            (0..6).all(|node| cluster.answer_contains(node, "CLUSTER INFO", "cluster_state:ok"))
        });
        until("replicas are in step", || {
            (3..6).all(|node| cluster.answer_contains(node, "INFO replication", "master_link_status:up"))
        });
        // Each node must know of each replica that has copied data.
        until("replicas are known", || (0..6).all(|node| cluster.replicas(node) == 3));
        cluster
    }

    /// Returns the number of replicas in a node's slot map. An answer has a port for each node of
    /// each range.
    fn replicas(&self, node: usize) -> usize {
        let answer = self.query(node, "CLUSTER SLOTS");
        let ports = answer.lines().filter(|line| self.ports.iter().any(|port| *line == format!(":{port}")));
        ports.count().saturating_sub(3)
    }

    fn query(&self, node: usize, command: &str) -> String {
        self.nodes[node].as_ref().and_then(|node| node.query(command).ok()).unwrap_or_default()
    }

    fn command(&self, node: usize, command: &str) {
        let answer = self.query(node, command);
        assert!(answer.starts_with("+OK"), "{command}: {answer}");
    }

    fn answer_contains(&self, node: usize, command: &str, text: &str) -> bool {
        self.query(node, command).contains(text)
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node] = None;
    }

    fn start_again(&mut self, node: usize) {
        self.nodes[node] = Some(Redis::node(self.ports[node], self.directory.path()));
    }

    fn config(&self, timeout: Duration) -> RedisClusterConfig {
        // One of the nodes does not answer.
        let nodes = [1, self.ports[4], self.ports[0]].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        RedisClusterConfig { nodes, timeout, confirm: 1, accepts_fewer: true, tls: None }
    }

    /// Returns handles of the cluster. Every other handle has a timeout shorter than an election:
    /// its operations fail without harm. The others wait for the election.
    fn stores(&self) -> Vec<Box<dyn RecordStore>> {
        let timeout = [Duration::from_millis(500), Duration::from_secs(20)];
        (0..24).map(|n| Box::new(self.records(timeout[n % 2])) as Box<dyn RecordStore>).collect()
    }

    fn records(&self, timeout: Duration) -> RedisCluster {
        RedisCluster::new(self.config(timeout), "vireo", LIFE)
    }
}

fn name(id: u64) -> Name {
    Name { collection: "ue", id }
}

const PATIENCE: Duration = Duration::from_secs(2);

#[test]
#[ignore = "make test-stores"]
fn cluster_keeps_contract() {
    let cluster = Cluster::start();
    conformance::records(&mut cluster.records(PATIENCE), &mut cluster.records(PATIENCE));
    conformance::values(&mut cluster.records(PATIENCE), &conformance::FORMATS);
    conformance::concurrency_suite(&mut cluster.stores()[..4], 100);
    let life = Duration::from_secs(2);
    conformance::expiry_suite(&mut RedisCluster::new(cluster.config(PATIENCE), "short", life), life);
}

#[test]
#[ignore = "make test-stores"]
fn moved_slot_is_followed() {
    let cluster = Cluster::start();
    let mut store = cluster.records(PATIENCE);
    let mut version = store.change(&[(name(1), Change::Commit { expected: 0, octets: b"a" })]).remove(0).unwrap();
    // The slot of the record, its master, and another master.
    let slot = cluster.query(0, "CLUSTER KEYSLOT vireo:ue:{1}").trim_matches([':', '\r', '\n']).to_owned();
    let slots = [5461, 10_923, 16_384];
    let from = slots.iter().position(|end| slot.parse::<u32>().unwrap() < *end).unwrap();
    let to = (from + 1) % 3;
    let id = |node| cluster.query(node, "CLUSTER MYID").split("\r\n").nth(1).unwrap().to_owned();
    let (from_id, to_id) = (id(from), id(to));
    cluster.command(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    cluster.command(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    // A missing key is requested from the other node (ASK); an existing key stays.
    let mut commit = |store: &mut RedisCluster, octets: &[u8]| {
        version = store.change(&[(name(1), Change::Commit { expected: version, octets })]).remove(0).unwrap();
        assert_eq!(store.load(&[name(1)]).unwrap().remove(0).unwrap().octets, octets);
    };
    commit(&mut store, b"b");
    cluster.command(from, &format!("MIGRATE 127.0.0.1 {} vireo:ue:{{1}} 0 2000", cluster.ports[to]));
    commit(&mut store, b"c");
    // The slot has migrated (MOVED).
    for node in [to, from] {
        cluster.command(node, &format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    }
    commit(&mut store, b"d");
    commit(&mut cluster.records(PATIENCE), b"e");
}

/// Kills a master under load; its replica is elected. Returns the confirmed counts of the records.
fn kill_under_load(cluster: &mut Cluster, master: usize, replica: usize, log: &WriteLog) -> Vec<u32> {
    let (stores, cluster) = (cluster.stores(), std::cell::RefCell::new(cluster));
    load::write_through(stores, log, || {
        cluster.borrow_mut().kill(master);
        until("its replica is elected", || {
            cluster.borrow().answer_contains(replica, "INFO replication", "role:master")
        });
    })
}

#[test]
#[ignore = "make test-stores"]
fn master_death_keeps_confirmed_commits() {
    let mut cluster = Cluster::start();
    let log = WriteLog::default();
    let mut all = Vec::new();
    let incarnation = |cluster: &Cluster| cluster.records(PATIENCE).incarnation().unwrap().unwrap();
    let first = incarnation(&cluster);
    assert_eq!((incarnation(&cluster), first.split(' ').count()), (first.clone(), 3), "one of each master");
    // The second time, the elected master dies, and the restarted one that became its replica is
    // elected.
    for (master, replica) in [(0, 3), (3, 0)] {
        let counts = kill_under_load(&mut cluster, master, replica, &log);
        load::check(&mut cluster.records(PATIENCE), &counts);
        cluster.start_again(master);
        until("it is a replica", || cluster.answer_contains(master, "INFO replication", "master_link_status:up"));
        until("that is known", || (0..6).all(|node| cluster.replicas(node) == 3));
        all = counts;
        assert_ne!(incarnation(&cluster), first, "what was elected may lack commits");
    }
    load::report(&all, &log);
}

#[test]
#[ignore = "make test-stores"]
fn unreplicated_commit_is_not_confirmed() {
    let mut cluster = Cluster::start();
    for replica in 3..6 {
        cluster.nodes[replica].as_ref().unwrap().signal("-STOP");
    }
    let mut store = cluster.records(Duration::from_secs(1));
    let silent = store.change(&[(name(1), Change::Commit { expected: 0, octets: b"a" })]).remove(0);
    assert!(matches!(silent, Err(RecordError::OutcomeUnknown(_))), "{silent:?}");
    let unsure = store.load(&[name(1)]);
    assert!(
        matches!(unsure, Err(RecordError::OutcomeUnknown(_))),
        "nor is it told while it may be taken back: {unsure:?}"
    );
    assert_eq!(store.load(&[name(2)]), Ok(vec![None]), "another is");
    for replica in 3..6 {
        cluster.nodes[replica].as_ref().unwrap().signal("-CONT");
    }
    until("it is confirmed", || store.load(&[name(1)]).is_ok_and(|found| found[0].is_some()));
    // Without replicas, commits succeed only where `accepts_fewer` allows it.
    (3..6).for_each(|replica| cluster.kill(replica));
    until("all know", || (0..3).all(|node| cluster.replicas(node) == 0));
    let mut version = 1;
    until("it counts alone", || {
        let change = Change::Commit { expected: version, octets: b"b" };
        match store.change(&[(name(1), change)]).remove(0) {
            Ok(_) => true,
            Err(_) => {
                let found = store.load(&[name(1)]);
                version = found.map_or(version, |found| found[0].as_ref().map_or(0, |found| found.version));
                false
            }
        }
    });
    let config = RedisClusterConfig { accepts_fewer: false, ..cluster.config(Duration::from_secs(1)) };
    let mut strict = RedisCluster::new(config, "vireo", LIFE);
    let silent = strict.change(&[(name(3), Change::Commit { expected: 0, octets: b"a" })]).remove(0);
    assert!(matches!(silent, Err(RecordError::OutcomeUnknown(_))), "{silent:?}");
}
