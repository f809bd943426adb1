//! Redis Cluster of the lab: three masters, each with a replica.
//!
//! The servers run in the core's namespace. They store only their node names on disk, in the lab's
//! own `/tmp`.

use crate::Lab;
use crate::files::create;
use crate::process::Process;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// Number of masters; equally many nodes are their replicas.
const MASTERS: usize = 3;
/// Port of the first node; the others follow.
const FIRST_PORT: u16 = 7000;
/// Hash slots of a Redis Cluster.
const SLOTS: usize = 16_384;
const DIRECTORY: &str = "/tmp/redis-cluster";
/// Silence after which the nodes declare a node dead (ms).
const NODE_TIMEOUT_MS: &str = "1000";
/// Time limit far above the usual duration.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Running cluster. Dropping it kills the nodes.
#[derive(Debug)]
pub(crate) struct RedisCluster {
    /// Initial masters, then their replicas in the same order; `None` for killed nodes.
    nodes: Vec<Option<Process>>,
}

impl RedisCluster {
    /// Starts the cluster and waits until all nodes know each other and all replicas are
    /// synchronised.
    pub(crate) fn start(lab: &Lab) -> Result<Self, Failure> {
        std::fs::create_dir_all(DIRECTORY)?;
        let node = |node: usize| {
            let port = port(node).to_string();
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"]);
            command.args(["--dir", DIRECTORY, "--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS]);
            command.args(["--cluster-config-file", &format!("nodes-{port}.conf")]);
            let log = create(&Path::new(DIRECTORY).join(format!("{port}.log")))?;
            Process::start("redis", &lab.core, &mut command, Some(log)).map(Some).map_err(|error| {
                Failure(format!("redis-server does not start ({error}); install the package redis-server"))
            })
        };
        let nodes = (0..2 * MASTERS).map(node).collect::<Result<_, _>>()?;
        lab.core.run(join)??;
        Ok(RedisCluster { nodes })
    }

    /// Returns the URL of the cluster.
    pub(crate) fn url() -> String {
        let nodes: Vec<_> = (0..2 * MASTERS).map(|node| format!("127.0.0.1:{}", port(node))).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// Kills the first master.
    pub(crate) fn kill_master(&mut self) -> Result<(), Failure> {
        match self.nodes[0].take() {
            Some(mut master) => Ok(master.kill()?),
            None => Err(Failure("the first master of the cluster is dead already".into())),
        }
    }

    /// Returns true if the replica of the first master has become a master.
    pub(crate) fn is_replaced(lab: &Lab) -> Result<bool, Failure> {
        lab.core.run(|| answers_with(MASTERS, "INFO replication", "role:master"))
    }
}

fn port(node: usize) -> u16 {
    FIRST_PORT + node as u16
}

/// Joins the nodes to a cluster.
fn join() -> Result<(), Failure> {
    let all = 0..2 * MASTERS;
    until("its nodes do not answer", || all.clone().all(|node| answers_with(node, "PING", "+PONG")))?;
    for master in 0..MASTERS {
        let slots = (SLOTS * master / MASTERS..SLOTS * (master + 1) / MASTERS).map(|slot| slot.to_string());
        execute(master, &format!("CLUSTER ADDSLOTS {}", slots.collect::<Vec<_>>().join(" ")))?;
        execute(master, &format!("CLUSTER SET-CONFIG-EPOCH {}", master + 1))?;
    }
    for node in all.clone().skip(1) {
        execute(0, &format!("CLUSTER MEET 127.0.0.1 {}", port(node)))?;
    }
    let known = format!("cluster_known_nodes:{}", 2 * MASTERS);
    until("its nodes do not find each other", || all.clone().all(|node| answers_with(node, "CLUSTER INFO", &known)))?;
    for master in 0..MASTERS {
        let answer = query(master, "CLUSTER MYID")?;
        let name = answer.lines().nth(1).ok_or_else(|| Failure(format!("a node has no name: {answer}")))?.to_owned();
        let replicate = format!("CLUSTER REPLICATE {name}");
        until("a node becomes no replica", || answers_with(MASTERS + master, &replicate, "+OK"))?;
    }
    until("it does not work", || all.clone().all(|node| answers_with(node, "CLUSTER INFO", "cluster_state:ok")))?;
    let in_step = |node| answers_with(node, "INFO replication", "master_link_status:up");
    until("its replicas are not in step", || (MASTERS..2 * MASTERS).all(in_step))?;
    // Each node knows that each replica has copied data: an answer has one port per node, three of
    // them of masters.
    let knows = |node: usize| {
        let answer = query(node, "CLUSTER SLOTS").unwrap_or_default();
        all.clone().all(|other| answer.lines().any(|line| line == format!(":{}", port(other))))
    };
    until("its replicas are not known", || all.clone().all(knows))
}

/// Waits until a condition holds.
fn until(not: &str, is_so: impl Fn() -> bool) -> Result<(), Failure> {
    let end = Instant::now() + START_TIMEOUT;
    while !is_so() {
        if Instant::now() > end {
            return Err(Failure(format!("the Redis Cluster is not ready after {START_TIMEOUT:?}: {not}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn answers_with(node: usize, command: &str, text: &str) -> bool {
    query(node, command).is_ok_and(|answer| answer.contains(text))
}

fn execute(node: usize, command: &str) -> Result<(), Failure> {
    let answer = query(node, command)?;
    if answer.starts_with("+OK") {
        Ok(())
    } else {
        Err(Failure(format!("a node of the cluster says {}", answer.trim())))
    }
}

/// Returns the answer of a node, as far as it arrives at once. The caller must be in the core's
/// namespace.
fn query(node: usize, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port(node)))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut answer = vec![0; 65_536];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
