//! Status of a fleet for other threads.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use vireo_ops::api::{BalancerStatus, HostStatus};

/// Status of a fleet, shared with other threads.
pub type FleetView = Arc<Mutex<FleetStatus>>;

/// The content of a [`FleetView`].
#[derive(Debug, Default)]
pub struct FleetStatus {
    pub hosts: Vec<HostStatus>,
    pub balancers: Vec<BalancerStatus>,
    /// Hosts that left the map while they owned buckets, the last one at the end.
    pub dead_hosts: Vec<u16>,
    /// UPFs, each with the state of its PFCP association.
    pub upfs: Vec<(SocketAddr, bool)>,
}
