//! What the processes of a cluster are told of it.

use crate::config::SliceRuntime;
use crate::fabric::TlsConfig;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use vireo_core::balance::steer::Policy;
use vireo_core::cluster::Scaling;

/// The cluster, the same for all its processes but for where each listens.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// Where controllers take members, and where these look for one; empty: the only balancer is the controller, too.
    pub controllers: Vec<SocketAddr>,
    /// Where controllers keep what outlives them, and agree on who leads; empty: what outlives one is what members know.
    pub etcd: Vec<SocketAddr>,
    /// Where a balancer takes hosts. Without a controller elsewhere: where the only balancer is found.
    pub balancer: SocketAddr,
    /// Where a host takes other hosts' copies; port 0 = any.
    pub listen: SocketAddr,
    /// By what members know each other; `None`: whoever reaches them is one.
    pub tls: Option<TlsConfig>,
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
            balancer: SocketAddr::from((Ipv4Addr::LOCALHOST, 7770)),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: None,
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
}

/// How many hosts work, and what starts more.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    /// How many.
    pub hosts: Scaling,
    /// The program, with its arguments, that is run when one is missing; empty: hosts are started by others.
    pub start: Vec<String>,
}

/// Which commits are copied, to how many hosts, and what waits for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationConfig {
    /// Which commits.
    pub mode: Mode,
    /// Hosts besides the owner: 0 to 2.
    pub replicas: usize,
    /// What effects wait for.
    pub ack: Ack,
}

impl ReplicationConfig {
    /// Hosts besides the owner at the most.
    pub const MOST: usize = 2;

    /// How many hosts besides the owner keep copies of UEs whose slice is not known yet, and of each slice's: of the former as
    /// many as of any slice that they may turn out to be of.
    pub(crate) fn of_slices(&self, slices: &[SliceRuntime]) -> Vec<usize> {
        let most = if self.is_on() { self.replicas } else { 0 };
        let each = slices.iter().map(|slice| slice.replicas.min(most));
        std::iter::once(each.clone().max().unwrap_or(most)).chain(each).collect()
    }

    /// Whether there are copies at all.
    pub fn is_on(&self) -> bool {
        self.mode != Mode::None && self.replicas > 0
    }

    /// Whether nothing of any slice's UEs is lost with a host that dies, as long as there are copies: each commit has one before
    /// anybody is told of it.
    pub(crate) fn is_lossless(&self, slices: &[SliceRuntime]) -> bool {
        !self.may_lag() && self.of_slices(slices).iter().all(|replicas| *replicas > 0)
    }

    /// Whether a host may use COUNTs that no copy knows of.
    pub(crate) fn may_lag(&self) -> bool {
        self.mode == Mode::Cold || self.ack == Ack::None
    }
}

/// Which commits are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// None.
    #[default]
    None,
    /// Those that end a procedure.
    Cold,
    /// Each.
    Hot,
}

/// What the effects of a commit wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// Nothing.
    None,
    /// The host that takes over first; at the end of a procedure all that have copies.
    #[default]
    One,
    /// All hosts that have copies.
    All,
}

impl Ack {
    /// Whether the effects of a commit, which may end a procedure, wait for a host, which may be the one that takes over first.
    pub(crate) fn waits(self, first: bool, ended: bool) -> bool {
        match self {
            Ack::None => false,
            Ack::One => first || ended,
            Ack::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::Snssai;

    #[test]
    fn a_slice_has_as_many_copies_as_it_asks_for_and_no_more_than_there_are() {
        let slice = |replicas| SliceRuntime { replicas, ..SliceRuntime::new("s", Snssai { sst: 1, sd: None }) };
        let of = |mode, replicas, slices: &[usize]| {
            let slices: Vec<SliceRuntime> = slices.iter().map(|replicas| slice(*replicas)).collect();
            ReplicationConfig { mode, replicas, ack: Ack::One }.of_slices(&slices)
        };
        assert_eq!(of(Mode::Hot, 2, &[0, 1, 2]), [2, 0, 1, 2]);
        assert_eq!(of(Mode::Cold, 1, &[0, 2]), [1, 0, 1]);
        assert_eq!(of(Mode::Hot, 2, &[0, 0]), [0, 0, 0], "nor of those that can only be of one of these");
        assert_eq!(of(Mode::None, 2, &[2]), [0, 0]);
        assert_eq!(of(Mode::Hot, 2, &[]), [2]);
        let lossless = |mode, replicas, ack| {
            ReplicationConfig { mode, replicas: 2, ack }.is_lossless(&[slice(1), slice(replicas)])
        };
        assert!(lossless(Mode::Hot, 2, Ack::One) && lossless(Mode::Hot, 1, Ack::All));
        assert!(!lossless(Mode::Hot, 0, Ack::All) && !lossless(Mode::Hot, 2, Ack::None));
        assert!(!lossless(Mode::Cold, 2, Ack::All) && !lossless(Mode::None, 2, Ack::One));
    }
}
