//! Checks of the cluster keys.

use crate::file::{self, File};
use crate::kubernetes;
use crate::problems::Problems;
use crate::surfaces::{SOCKET_PATH, etcd_tls};
use crate::values::DurationText;
use std::net::SocketAddr;
use std::time::Duration;
use vireo_cluster::{Ack, ClusterConfig, Mode, Rebalance, ReplicationConfig, ScalingConfig, ServerAddress};
use vireo_core::config::StateLocation;
use vireo_core::placement::balance::steer::{Policy, Preference};
use vireo_core::placement::balancer::Serve;
use vireo_core::placement::cluster::{MachineLabel, Scaling};
use vireo_core::placement::replica::{MAX_SILENCE, REEXECUTION_WINDOW};
use vireo_fabric::identity::TlsConfig;
use vireo_types::Bucket;

/// Range of hosts that may join during a balancer's life, i.e. of pool partitions.
const PARTS: std::ops::RangeInclusive<u16> = 1..=256;
/// Upper bound of redundant controllers.
const CONTROLLERS: usize = 8;
/// Range of the time that hosts must be over- or underloaded before the autoscaler acts.
const LASTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3600);

/// Upper bound of the report interval if weights follow the load: the controller decides on the
/// reports of 2 s.
const LOAD_REPORT: Duration = Duration::from_millis(500);

/// Checks and returns the cluster configuration.
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
    let once = controllers.iter().enumerate().all(|(n, one)| one.is_reachable() && !controllers[..n].contains(one));
    problems.check(
        once && controllers.len() <= CONTROLLERS,
        "cluster.controller",
        format_args!(
            "members find controllers by it: up to {CONTROLLERS} addresses or host names with ports, each once, are allowed"
        ),
    );
    let etcd = &cluster.etcd;
    problems.check(
        etcd.iter().all(ServerAddress::is_reachable) && (etcd.is_empty() || !controllers.is_empty()),
        "cluster.etcd",
        "addresses or host names with ports are allowed, with cluster.controller: a controller beside the balancer keeps nothing",
    );
    let etcd_tls = etcd_tls(&cluster.etcd_tls, problems);
    problems.check(etcd_tls.is_none() || !etcd.is_empty(), "cluster.etcd-tls", "without cluster.etcd there is no etcd");
    problems.check(PARTS.contains(&cluster.address_parts), "cluster.address-parts", "1 to 256 is allowed");
    let hosts = (1..=cluster.address_parts).contains(&cluster.hosts);
    problems.check(hosts, "cluster.hosts", "1 to cluster.address-parts is allowed");
    problems.check((2..=100).contains(&cluster.misses), "cluster.misses", "2 to 100 is allowed");
    let mut span = |name: &str, span: DurationText, least: u64, most: u64| {
        let good = (Duration::from_millis(least)..=Duration::from_millis(most)).contains(&Duration::from(span.0));
        problems.check(good, &key(name), format_args!("{least}ms to {most}ms is allowed"));
        Duration::from(span.0)
    };
    let heartbeat = span("heartbeat", cluster.heartbeat, 5, 10_000);
    let load_report_interval = span("report", cluster.report, 10, 10_000);
    let silence = heartbeat.saturating_mul(cluster.misses);
    let (most, window) = (Duration::from(MAX_SILENCE), Duration::from(REEXECUTION_WINDOW));
    problems.check(
        silence <= most,
        "cluster.misses",
        format_args!(
            "with cluster.heartbeat a dead host is detected too late to repeat its effects of the last {window:?} \
             ({silence:?}, at most {most:?} is allowed); reduce one of both"
        ),
    );
    let at_once = 1..=Bucket::COUNT;
    problems.check(at_once.contains(&cluster.moves_at_once), "cluster.moves-at-once", "1 to 4096 is allowed");
    let is_equal = cluster.rebalance == Rebalance::Equal;
    problems.check(
        is_equal || file.state.mode().location == StateLocation::Shm,
        "cluster.rebalance",
        "hosts whose contexts are not in shared memory (state.location) migrate none: only \"equal\" is allowed",
    );
    problems.check(
        is_equal || load_report_interval <= LOAD_REPORT,
        "cluster.report",
        format_args!("with cluster.rebalance = \"load\" at most {LOAD_REPORT:?} is allowed"),
    );
    let tls = tls("cluster.tls", &cluster.tls, problems);
    let hot_restart_socket = Some(cluster.handover.clone()).filter(|path| !path.as_os_str().is_empty());
    problems.check(
        hot_restart_socket.as_ref().is_none_or(|path| path.is_absolute() && path.as_os_str().len() <= SOCKET_PATH),
        "cluster.handover",
        format_args!("an absolute path of {SOCKET_PATH} octets at most is allowed, or none"),
    );
    problems.check(
        hot_restart_socket.is_none() || tls.is_none(),
        "cluster.handover",
        "connections with TLS end with their process: only \"\" is allowed with cluster.tls",
    );
    let replication = replication(file, problems);
    ClusterConfig {
        controllers,
        etcd: etcd.clone(),
        etcd_tls,
        balancer: cluster.balancer,
        hot_restart_socket,
        listen: cluster.listen,
        machine: machine(&cluster.machine, problems),
        tls,
        insecure: cluster.insecure,
        hosts: cluster.hosts,
        pool_partitions: cluster.address_parts,
        heartbeat,
        misses: cluster.misses,
        load_report_interval,
        inter: inter(&file.steering, problems),
        prefer: prefer(&file.steering, problems),
        serve: serve(file, replication, problems),
        trace_choices: Some(file.steering.trace_choices.clone()).filter(|path| !path.as_os_str().is_empty()),
        replication,
        migrates: file.state.mode().location == StateLocation::Shm,
        max_migrating_buckets: cluster.moves_at_once,
        rebalance: cluster.rebalance,
        scaling: scaling(file, problems),
    }
}

/// Returns the machine of a host; `None` if the host has a machine of its own.
fn machine(label: &str, problems: &mut Problems) -> Option<MachineLabel> {
    if label.is_empty() {
        return None;
    }
    let label = MachineLabel::try_from(label.to_owned());
    label.map_err(|error| problems.add("cluster.machine", format_args!("{error}, or \"\" for none"))).ok()
}

/// Returns the TLS configuration of the fabric or the SBI. Only the roles that need the files read
/// them, so another role may use the same configuration file without a key.
pub(super) fn tls(table: &str, tls: &file::Tls, problems: &mut Problems) -> Option<TlsConfig> {
    let files = [&tls.certificate, &tls.key, &tls.authorities];
    if files.iter().all(|file| file.is_empty()) {
        return None;
    }
    let all = files.iter().all(|file| !file.is_empty());
    let known = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    let named = (1..=64).contains(&tls.name.len()) && tls.name.bytes().all(known);
    problems.check(
        named,
        &format!("{table}.name"),
        "1 to 64 letters, digits, -, _ and . are allowed, as in certificates",
    );
    problems.check(all, table, "certificate, key and authorities are needed, or none of them");
    let [certificate, key, authorities] = files.map(Into::into);
    Some(TlsConfig { certificate, key, authorities, name: tls.name.clone() })
}

fn inter(steering: &file::Steering, problems: &mut Problems) -> Policy {
    Policy::from_name(&steering.inter).unwrap_or_else(|| {
        let names = Policy::ALL.map(Policy::name).join(", ");
        problems.add("steering.inter", format_args!("{:?} is not allowed; allowed: {names}", steering.inter));
        Policy::default()
    })
}

fn prefer(steering: &file::Steering, problems: &mut Problems) -> Preference {
    Preference::from_name(&steering.prefer).unwrap_or_else(|| {
        let names = Preference::ALL.map(Preference::name).join(", ");
        problems.add("steering.prefer", format_args!("{:?} is not allowed; allowed: {names}", steering.prefer));
        Preference::default()
    })
}

/// Returns the hosts that serve the procedures of known UEs.
fn serve(file: &File, replication: ReplicationConfig, problems: &mut Problems) -> Serve {
    const KEY: &str = "steering.serve";
    let Some(name) = &file.steering.serve else {
        return if obstacle_to_replicas(file, replication).is_none() { Serve::Procedure } else { Serve::Owner };
    };
    match (Serve::from_name(name), obstacle_to_replicas(file, replication)) {
        (Some(Serve::Procedure), Some(obstacle)) => {
            problems.add(KEY, format_args!("{obstacle}, or write steering.serve = \"owner\""));
        }
        (Some(serve), _) => return serve,
        (None, _) => {
            let names = Serve::ALL.map(Serve::name).join(", ");
            problems.add(KEY, format_args!("{name:?} is not allowed; allowed: {names}"));
        }
    }
    Serve::default()
}

/// Returns why replicas cannot serve procedures, with the remedy. A replica that serves needs every
/// commit, and its owner must know which commits it has.
fn obstacle_to_replicas(file: &File, replication: ReplicationConfig) -> Option<String> {
    if file.state.mode().location != StateLocation::Shm {
        return Some("contexts outside shared memory have no replicas; write state.location = \"shm\"".into());
    }
    match replication {
        ReplicationConfig { mode: Mode::Hot, replicas: 0, .. } => {
            Some("no host has copies (replication.replicas = 0); write 1 or 2".into())
        }
        ReplicationConfig { mode: Mode::Hot, ack: Ack::None, .. } => Some(
            "replicas may lack commits whose effects have left (replication.ack = \"none\"); write \"one\" or \"all\""
                .into(),
        ),
        ReplicationConfig { mode: Mode::Hot, .. } => None,
        ReplicationConfig { mode: Mode::None | Mode::Cold, .. } => {
            let mode = if replication.mode == Mode::Cold { "cold" } else { "none" };
            Some(format!(
                "replicas lack commits of procedures in progress (replication.mode = {mode:?}); write \"hot\" and run a \
                 cluster"
            ))
        }
    }
}

/// Returns the configuration of the autoscaler; `None` if all hosts serve.
fn scaling(file: &File, problems: &mut Problems) -> Option<ScalingConfig> {
    let file::Scaling { least, most, idle, high, low, lasts, ref start, kubernetes: ref pods } = file.scaling;
    let stateful_set = kubernetes::stateful_set(pods, problems);
    if least == 0 {
        let needed = "1 or more is needed with scaling.kubernetes, else all hosts that join serve";
        problems.check(stateful_set.is_none(), "scaling.least", needed);
        return None;
    }
    problems.check(
        file.state.mode().location == StateLocation::Shm,
        "scaling.least",
        "hosts whose contexts are not in shared memory (state.location) hand nothing over: only 0 is allowed",
    );
    let at_first = file.cluster.hosts;
    let ordered = least <= most && at_first <= most && most <= file.cluster.address_parts;
    problems.check(ordered, "scaling.most", "scaling.least and cluster.hosts to cluster.address-parts is allowed");
    problems.check(idle <= most, "scaling.idle", "0 to scaling.most is allowed");
    problems.check(0.0 < low && low < high && high <= 1.0, "scaling.high", "above scaling.low to 1 is allowed");
    let span = Duration::from(lasts.0);
    problems.check(LASTS.contains(&span), "scaling.lasts", format_args!("{LASTS:?} is allowed"));
    let program = start.first().is_none_or(|program| !program.is_empty());
    problems.check(program, "scaling.start", "a program and its arguments are allowed, each a text of its own");
    problems.check(
        start.is_empty() || stateful_set.is_none(),
        "scaling.start",
        "a StatefulSet (scaling.kubernetes) starts hosts already; only [] is allowed",
    );
    let [least, most, idle] = [least, most, idle].map(usize::from);
    let hosts = Scaling { least, most, idle, high, low, lasts: lasts.0 };
    Some(ScalingConfig { hosts, start: start.clone(), stateful_set })
}

fn replication(file: &File, problems: &mut Problems) -> ReplicationConfig {
    let file::Replication { mode, replicas, ack } = file.replication;
    const MAX_REPLICAS: usize = ReplicationConfig::MAX_REPLICAS;
    problems.check(replicas <= MAX_REPLICAS, "replication.replicas", format_args!("0 to {MAX_REPLICAS} is allowed"));
    let shared = file.state.mode().location == StateLocation::Shm;
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
