//! Cluster settings of a process.

use crate::server_address::ServerAddress;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use vireo_core::placement::balance::steer::{Policy, Preference};
use vireo_core::placement::balancer::Serve;
use vireo_core::placement::cluster::{MachineLabel, Scaling};
pub use vireo_core::placement::replica::{Ack, Mode, ReplicationConfig};
use vireo_fabric::identity::{TlsConfig, TlsError, check_listener};
use vireo_ops::http_post::HttpUrl;

/// Cluster settings, equal for all processes except the listening addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// Endpoints at which controllers accept members; empty: the only balancer is the controller,
    /// too.
    pub controllers: Vec<ServerAddress>,
    /// Endpoints of etcd, for controller state and leader election; empty: a new controller learns
    /// the state from members.
    pub etcd: Vec<ServerAddress>,
    /// TLS of the connections to etcd; `None`: no TLS.
    pub etcd_tls: Option<EtcdTls>,
    /// Address at which a balancer accepts hosts. Without a separate controller: address of the
    /// only balancer.
    pub balancer: SocketAddr,
    /// Unix socket for a hot restart of the balancer; `None`: disabled.
    pub hot_restart_socket: Option<PathBuf>,
    /// Address at which a host receives copies of other hosts; port 0 = any.
    pub listen: SocketAddr,
    /// Machine that a host shares with others; `None`: it shares its machine with no host.
    pub machine: Option<MachineLabel>,
    /// TLS of the fabric; `None`: any process that reaches a member may connect.
    pub tls: Option<TlsConfig>,
    /// True if listening at non-loopback addresses without TLS is permitted.
    pub insecure: bool,
    /// Number of hosts required before the RAN is served.
    pub hosts: u16,
    /// Number of partitions of the UE address pools. Each joining host gets the next one.
    pub pool_partitions: u16,
    /// Heartbeat interval of all processes of the cluster.
    pub heartbeat: Duration,
    /// Number of missed heartbeats after which a member is declared dead.
    pub misses: u32,
    /// Interval of load reports of the hosts.
    pub load_report_interval: Duration,
    /// Policy that selects the host of an unknown UE and, with [`Serve::Procedure`], of a
    /// procedure.
    pub inter: Policy,
    /// Preference of the policy among hosts that meet the latency objective.
    pub prefer: Preference,
    /// Hosts that serve the procedures of known UEs.
    pub serve: Serve,
    /// File to which the balancer writes its choices of serving hosts; `None`: none.
    pub trace_choices: Option<PathBuf>,
    /// Replication of contexts to other hosts.
    pub replication: ReplicationConfig,
    /// True if contexts are in hosts' shared memory, from which they migrate between live hosts.
    pub migrates: bool,
    /// Maximum number of buckets, of the 4,096, that migrate between live hosts at once.
    pub max_migrating_buckets: u16,
    /// Measure by which buckets are shared among hosts.
    pub rebalance: Rebalance,
    /// Number of serving hosts; `None`: all that have joined.
    pub scaling: Option<ScalingConfig>,
}

impl Default for ClusterConfig {
    /// Three hosts on this machine, no replication.
    fn default() -> Self {
        ClusterConfig {
            controllers: Vec::new(),
            etcd: Vec::new(),
            etcd_tls: None,
            balancer: SocketAddr::from((Ipv4Addr::LOCALHOST, 7770)),
            hot_restart_socket: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            machine: None,
            tls: None,
            insecure: false,
            hosts: 3,
            pool_partitions: 16,
            heartbeat: Duration::from_millis(50),
            misses: 4,
            load_report_interval: Duration::from_millis(200),
            inter: Policy::SkewedCh,
            prefer: Preference::default(),
            serve: Serve::default(),
            trace_choices: None,
            replication: ReplicationConfig::default(),
            migrates: true,
            max_migrating_buckets: 512,
            rebalance: Rebalance::default(),
            scaling: None,
        }
    }
}

impl ClusterConfig {
    /// Returns the endpoints at which members search for a controller.
    pub fn controllers(&self) -> Vec<ServerAddress> {
        if self.controllers.is_empty() { vec![self.balancer.into()] } else { self.controllers.clone() }
    }

    /// Checks that each member may listen at its configured address. A controller whose endpoint is
    /// a host name checks its address when it starts.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError::Open`] if neither TLS nor `insecure` is set and other machines may reach
    /// an address.
    pub fn check_listeners(&self) -> Result<(), TlsError> {
        let mut all = self.controllers.iter().filter_map(ServerAddress::address).chain([self.balancer, self.listen]);
        all.try_for_each(|address| self.check_listener(address))
    }

    /// Checks that a member may listen at an address.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError::Open`] in the same case.
    pub fn check_listener(&self, address: SocketAddr) -> Result<(), TlsError> {
        check_listener("cluster", address, (self.tls.as_ref(), self.insecure))
    }
}

/// Measure by which buckets are shared among hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rebalance {
    /// All hosts have the same weight.
    #[default]
    Equal,
    /// The controller adapts the weights to the CPU use that hosts report.
    Load,
}

/// TLS of the connections to etcd: files in PEM, read for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// Authorities that sign the certificates of etcd's members.
    pub authorities: PathBuf,
    /// Certificate and private key of this process; `None`: it presents none.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Number of serving hosts, and the executor that starts more.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    pub hosts: Scaling,
    /// Program with arguments that starts a missing host; empty: no program does.
    pub start: Vec<String>,
    /// StatefulSet whose pods are the hosts; `None`: hosts are started by `start`, or externally.
    pub stateful_set: Option<StatefulSetConfig>,
}

/// StatefulSet of Kubernetes whose pods are the hosts of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatefulSetConfig {
    pub name: String,
    /// `None`: that of the controller's pod.
    pub namespace: Option<String>,
    /// API server; `None`: that of the controller's pod.
    pub server: Option<HttpUrl>,
    /// File with the token of the controller's account, read for each request.
    pub token_file: PathBuf,
    /// Authorities of the API server's certificate, read for each request.
    pub authorities: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_without_tls_stays_on_loopback() {
        let open: SocketAddr = "192.0.2.1:7770".parse().unwrap();
        let good = ClusterConfig::default();
        assert!(good.check_listeners().is_ok(), "the default is loopback");
        for config in [
            ClusterConfig { controllers: vec![good.balancer.into(), open.into()], ..good.clone() },
            ClusterConfig { balancer: open, ..good.clone() },
            ClusterConfig { listen: open, ..good.clone() },
        ] {
            assert!(matches!(config.check_listeners(), Err(TlsError::Open { address, .. }) if address == open));
            assert!(ClusterConfig { insecure: true, ..config }.check_listeners().is_ok());
        }
    }
}
