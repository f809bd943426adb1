//! What is allowed of the keys of a cluster.

use super::check::Problems;
use super::file::{self, File};
use std::net::SocketAddr;
use std::time::Duration;
use vireo_core::balance::steer::Policy;
use vireo_node::cluster::{Ack, ClusterConfig, Mode, ReplicationConfig};

/// Hosts that may join in a balancer's life.
const PARTS: std::ops::RangeInclusive<u16> = 1..=256;
/// Controllers that stand in for each other.
const CONTROLLERS: usize = 8;
/// The longest time until a host is taken for dead.
const SILENCE: Duration = Duration::from_secs(2);
/// Hosts besides the owner that keep a UE's copy.
const REPLICAS: usize = 2;

/// The cluster.
pub(super) fn cluster(file: &File, problems: &mut Problems) -> ClusterConfig {
    let cluster = &file.cluster;
    let key = |name: &str| format!("cluster.{name}");
    let is_found = |address: &SocketAddr| address.port() != 0 && !address.ip().is_unspecified();
    problems.check(
        is_found(&cluster.balancer),
        "cluster.balancer",
        "hosts find the balancer by it: an address of its machine and a port are allowed",
    );
    let controllers = cluster.controller.all();
    let once =
        controllers.iter().enumerate().all(|(n, address)| is_found(address) && !controllers[..n].contains(address));
    problems.check(
        once && controllers.len() <= CONTROLLERS,
        "cluster.controller",
        format_args!(
            "members find controllers by it: up to {CONTROLLERS} addresses with ports, each once, are allowed"
        ),
    );
    let etcd = &cluster.etcd;
    problems.check(
        etcd.iter().all(is_found) && (etcd.is_empty() || !controllers.is_empty()),
        "cluster.etcd",
        "addresses with ports are allowed, with cluster.controller: a controller beside the balancer keeps nothing",
    );
    let parts = PARTS.contains(&cluster.address_parts);
    problems.check(parts, "cluster.address-parts", "1 to 256 is allowed");
    let hosts = (1..=cluster.address_parts).contains(&cluster.hosts);
    problems.check(hosts, "cluster.hosts", "1 to cluster.address-parts is allowed");
    problems.check((2..=100).contains(&cluster.misses), "cluster.misses", "2 to 100 is allowed");
    let mut span = |name: &str, span: super::values::Span, least: u64, most: u64| {
        let good = (Duration::from_millis(least)..=Duration::from_millis(most)).contains(&span.0.into());
        problems.check(good, &key(name), format_args!("{least}ms to {most}ms is allowed"));
        Duration::from(span.0)
    };
    let heartbeat = span("heartbeat", cluster.heartbeat, 5, 10_000);
    let report = span("report", cluster.report, 10, 10_000);
    // What hosts and balancer remember of what a dead host did reaches back further.
    let silence = heartbeat.saturating_mul(cluster.misses) <= SILENCE;
    problems.check(silence, "cluster.misses", format_args!("with cluster.heartbeat at most {SILENCE:?} is allowed"));
    ClusterConfig {
        controllers,
        etcd: etcd.clone(),
        balancer: cluster.balancer,
        listen: cluster.listen,
        hosts: cluster.hosts,
        address_parts: cluster.address_parts,
        heartbeat,
        misses: cluster.misses,
        report,
        inter: inter(&file.steering, problems),
        replication: replication(file, problems),
        moves: file.state.location == file::Location::Shm,
    }
}

fn inter(steering: &file::Steering, problems: &mut Problems) -> Policy {
    Policy::from_name(&steering.inter).unwrap_or_else(|| {
        let names = Policy::ALL.map(Policy::name).join(", ");
        problems.add("steering.inter", format_args!("{:?} is not allowed; allowed: {names}", steering.inter));
        Policy::default()
    })
}

fn replication(file: &File, problems: &mut Problems) -> ReplicationConfig {
    let file::Replication { mode, replicas, ack } = file.replication;
    problems.check(replicas <= REPLICAS, "replication.replicas", format_args!("0 to {REPLICAS} is allowed"));
    let shared = file.state.location == file::Location::Shm;
    problems.check(
        mode == file::Mode::None || shared,
        "replication.mode",
        "contexts that are not in shared memory (state.location) are not copied: only \"none\" is allowed",
    );
    ReplicationConfig {
        mode: match mode {
            file::Mode::None => Mode::None,
            file::Mode::Cold => Mode::Cold,
            file::Mode::Hot => Mode::Hot,
        },
        replicas,
        ack: match ack {
            file::Ack::None => Ack::None,
            file::Ack::One => Ack::One,
            file::Ack::All => Ack::All,
        },
    }
}
