//! Peers of N2 and N4 whose address is a UE's: no UE is a RAN node, a UPF or a control plane.

use std::net::IpAddr;
use std::time::{Duration, Instant};
use tracing::warn;
use vireo_core::config::DnnConfig;
use vireo_types::Network;

/// How often it is logged that such peers are refused.
const LOGGED: Duration = Duration::from_secs(10);

/// The pools of the data networks.
pub fn pools(dnns: &[DnnConfig]) -> Vec<Network> {
    let v4 = dnns.iter().filter_map(|dnn| dnn.ipv4_pool).map(|(address, length)| (address.into(), length));
    let v6 = dnns.iter().filter_map(|dnn| dnn.ipv6_pool).map(|(address, length)| (address.into(), length));
    v4.chain(v6).map(|(address, length)| Network::new(address, length)).collect()
}

/// Refuses peers in these pools.
#[derive(Debug)]
pub struct UePeers {
    interface: &'static str,
    pools: Vec<Network>,
    /// When it was logged last, and how many were refused since.
    logged: Option<Instant>,
    left_out: u64,
}

impl UePeers {
    /// On an interface, as the log names it.
    pub fn of(interface: &'static str, pools: Vec<Network>) -> Self {
        UePeers { interface, pools, logged: None, left_out: 0 }
    }

    /// Whether a peer is to be refused.
    pub fn has(&self, peer: IpAddr) -> bool {
        // on a socket of both families IPv4 addresses come as IPv6 ones
        let peer = peer.to_canonical();
        self.pools.iter().any(|pool| pool.contains(peer))
    }

    /// Logs that peers were refused, of which this was the last, once in a while.
    pub fn log(&mut self, peer: IpAddr, count: u64) {
        self.left_out += count;
        if self.logged.is_some_and(|logged| logged.elapsed() < LOGGED) {
            return;
        }
        self.logged = Some(Instant::now());
        let count = std::mem::take(&mut self.left_out);
        warn!(interface = self.interface, %peer, count, "peers refused whose address is in a UE pool");
    }
}
