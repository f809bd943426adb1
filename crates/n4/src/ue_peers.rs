//! Rejection of N2 and N4 peers with a UE's address.
//!
//! No UE is a RAN node, UPF or control plane.

use std::net::IpAddr;
use std::time::{Duration, Instant};
use tracing::warn;
use vireo_core::config::DnnConfig;
use vireo_types::Network;

/// Minimum interval of log lines about rejected peers.
const LOGGED: Duration = Duration::from_secs(10);

/// Returns the address pools of the data networks.
pub fn pools(dnns: &[DnnConfig]) -> Vec<Network> {
    let v4 = dnns.iter().filter_map(|dnn| dnn.ipv4_pool).map(|(address, length)| (address.into(), length));
    let v6 = dnns.iter().filter_map(|dnn| dnn.ipv6_pool).map(|(address, length)| (address.into(), length));
    v4.chain(v6).map(|(address, length)| Network::new(address, length)).collect()
}

/// Filter for peers whose address is in a pool of UEs.
#[derive(Debug)]
pub struct UePeers {
    interface: &'static str,
    pools: Vec<Network>,
    /// Time of the last log line, and number of peers rejected since.
    logged: Option<Instant>,
    suppressed: u64,
}

impl UePeers {
    /// Creates a filter for an interface, named as in the log.
    pub fn new(interface: &'static str, pools: Vec<Network>) -> Self {
        UePeers { interface, pools, logged: None, suppressed: 0 }
    }

    /// Returns true if the peer must be rejected.
    pub fn has(&self, peer: IpAddr) -> bool {
        // a dual-stack socket returns IPv4 addresses as mapped IPv6 addresses
        let peer = peer.to_canonical();
        self.pools.iter().any(|pool| pool.contains(peer))
    }

    /// Counts rejected peers, of which `peer` was the last, and logs them at the minimum interval.
    pub fn log(&mut self, peer: IpAddr, count: u64) {
        self.suppressed += count;
        if self.logged.is_some_and(|logged| logged.elapsed() < LOGGED) {
            return;
        }
        self.logged = Some(Instant::now());
        let count = std::mem::take(&mut self.suppressed);
        warn!(interface = self.interface, %peer, count, "peers refused whose address is in a UE pool");
    }
}
