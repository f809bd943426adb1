use std::net::{IpAddr, SocketAddr};
use vireo_types::{Duration, Network};
use vireo_wire::pfcp::{CpFunctionFeatures, NodeId, RecoveryTimeStamp};

/// Configuration of the control plane's N4 endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of this endpoint, which the F-SEIDs of its sessions contain.
    pub address: IpAddr,
    pub node_id: NodeId,
    /// Addresses of the UPFs, without duplicates.
    pub upfs: Vec<SocketAddr>,
    /// Permitted source networks of datagrams; empty: any. They must include the UPFs.
    pub allow: Vec<Network>,
    /// Address pools of UEs. The endpoint ignores datagrams from these addresses.
    pub ue_pools: Vec<Network>,
    /// True if user data are sent over NAS: the endpoint has a GTP-U socket, too.
    pub user_data: bool,
    /// Recovery Time Stamp. It is the same in the whole cluster and for the lifetime of its
    /// sessions, so that no UPF detects a restart.
    pub recovery_time_stamp: RecoveryTimeStamp,
    /// True if other endpoints may have this Node ID. The sequence number of a request with a key
    /// then derives from the key, so that a UPF recognises repeats from any endpoint.
    pub shared: bool,
    /// First sequence number (24 bits). It must be random: after a crash a UPF would take a reused
    /// number for a repeat.
    pub first_sequence: u32,
    pub features: CpFunctionFeatures,
    /// T1 (TS 29.244 6.4): time to wait for a response.
    pub t1: Duration,
    /// N1: number of repeats of a request.
    pub n1: u8,
    /// Interval of Heartbeat Requests to a UPF.
    pub heartbeat_interval: Duration,
    /// Number of repeats of a Heartbeat Request before the UPF counts as down.
    pub heartbeat_n1: u8,
    /// Time from a failed attempt to reach a UPF until the next one; doubled each time.
    pub retry_first: Duration,
    /// Maximum time between attempts.
    pub retry_longest: Duration,
    /// Maximum number of unanswered requests to all UPFs.
    pub outstanding: usize,
    /// Maximum number of stored responses to requests of all UPFs.
    pub replies: usize,
    /// Lifetime of stored responses: more than the peers' T1 times N1.
    pub reply_memory: Duration,
}

impl Config {
    /// Creates a configuration with the defaults of TS 29.244 and of Vireo. The Node ID is the
    /// address.
    pub fn new(
        address: IpAddr,
        upfs: Vec<SocketAddr>,
        recovery_time_stamp: RecoveryTimeStamp,
        first_sequence: u32,
    ) -> Self {
        Config {
            address,
            node_id: address.into(),
            upfs,
            allow: vec![],
            ue_pools: Vec::new(),
            user_data: false,
            recovery_time_stamp,
            shared: false,
            first_sequence,
            features: CpFunctionFeatures::default(),
            t1: Duration::from_secs(1),
            n1: 3,
            heartbeat_interval: Duration::from_secs(10),
            heartbeat_n1: 3,
            retry_first: Duration::from_millis(500),
            retry_longest: Duration::from_secs(30),
            outstanding: 65_536,
            replies: 16_384,
            reply_memory: Duration::from_secs(10),
        }
    }
}
