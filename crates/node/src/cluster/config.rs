//! What the processes of a cluster are told of it.

pub use crate::controller::EtcdTls;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use vireo_core::balance::steer::Policy;
use vireo_core::cluster::Scaling;
pub use vireo_core::replica::{Ack, Mode, ReplicationConfig};
use vireo_fabric::identity::{TlsConfig, TlsError, permits};

/// The cluster, the same for all its processes but for where each listens.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// Where controllers take members, and where these look for one; empty: the only balancer is the controller, too.
    pub controllers: Vec<SocketAddr>,
    /// Where controllers keep what outlives them, and agree on who leads; empty: what outlives one is what members know.
    pub etcd: Vec<SocketAddr>,
    /// TLS of the connections there; `None`: they have none.
    pub etcd_tls: Option<EtcdTls>,
    /// Where a balancer takes hosts. Without a controller elsewhere: where the only balancer is found.
    pub balancer: SocketAddr,
    /// The unix socket at which a balancer hands over to the process that is to follow it; `None`: it does not.
    pub handover: Option<PathBuf>,
    /// Where a host takes other hosts' copies; port 0 = any.
    pub listen: SocketAddr,
    /// By what members know each other; `None`: whoever reaches them is one.
    pub tls: Option<TlsConfig>,
    /// Whether addresses of other machines are listened at without that.
    pub insecure: bool,
    /// Hosts that are waited for before the RAN is served.
    pub hosts: u16,
    /// Parts that the pools of UE addresses are cut into. Each host that joins gets the next.
    pub address_parts: u16,
    /// How often the processes of a cluster say something to each other.
    pub heartbeat: Duration,
    /// Heartbeats without a word after which a host is taken for dead.
    pub misses: u32,
    /// How often hosts report their load.
    pub report: Duration,
    /// Which host gets a UE that is not known.
    pub inter: Policy,
    /// Copies of contexts at other hosts.
    pub replication: ReplicationConfig,
    /// Whether contexts are in hosts' shared memory, from which living hosts hand them over to each other.
    pub moves: bool,
    /// Buckets, of the 4,096, that go from living hosts to others at once.
    pub at_once: u16,
    /// How many hosts work; `None`: all that have joined.
    pub scaling: Option<ScalingConfig>,
}

impl Default for ClusterConfig {
    /// Three hosts on this machine, no copies.
    fn default() -> Self {
        ClusterConfig {
            controllers: Vec::new(),
            etcd: Vec::new(),
            etcd_tls: None,
            balancer: SocketAddr::from((Ipv4Addr::LOCALHOST, 7770)),
            handover: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: None,
            insecure: false,
            hosts: 3,
            address_parts: 16,
            heartbeat: Duration::from_millis(50),
            misses: 4,
            report: Duration::from_millis(200),
            inter: Policy::SkewedCh,
            replication: ReplicationConfig::default(),
            moves: true,
            at_once: 512,
            scaling: None,
        }
    }
}

impl ClusterConfig {
    /// Where members look for a controller.
    pub(crate) fn controllers(&self) -> Vec<SocketAddr> {
        if self.controllers.is_empty() { vec![self.balancer] } else { self.controllers.clone() }
    }

    /// Checks that each member may listen where the configuration says.
    ///
    /// # Errors
    ///
    /// [`TlsError::Open`]: neither TLS nor `insecure` is set, and other machines may reach an address.
    pub fn check_listeners(&self) -> Result<(), TlsError> {
        let mut all = self.controllers.iter().chain([&self.balancer, &self.listen]);
        all.try_for_each(|address| self.permits(*address))
    }

    /// Checks that a member may listen at an address.
    ///
    /// # Errors
    ///
    /// [`TlsError::Open`], as above.
    pub(super) fn permits(&self, address: SocketAddr) -> Result<(), TlsError> {
        permits("cluster", address, (self.tls.as_ref(), self.insecure))
    }
}

/// How many hosts work, and what starts more.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    /// How many.
    pub hosts: Scaling,
    /// The program, with its arguments, that is run when one is missing; empty: hosts are started by others.
    pub start: Vec<String>,
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
            ClusterConfig { controllers: vec![good.balancer, open], ..good.clone() },
            ClusterConfig { balancer: open, ..good.clone() },
            ClusterConfig { listen: open, ..good.clone() },
        ] {
            assert!(matches!(config.check_listeners(), Err(TlsError::Open { address, .. }) if address == open));
            assert!(ClusterConfig { insecure: true, ..config }.check_listeners().is_ok());
        }
    }
}
