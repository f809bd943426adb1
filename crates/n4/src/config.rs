use std::net::{IpAddr, SocketAddr};
use vireo_types::{Duration, Network};
use vireo_wire::pfcp::{CpFunctionFeatures, NodeId, RecoveryTimeStamp};

/// How the control plane's N4 endpoint behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address of this endpoint: that of the F-SEIDs of sessions that it sets up.
    pub address: IpAddr,
    /// The control plane's Node ID.
    pub node_id: NodeId,
    /// The user plane functions, each once.
    pub upfs: Vec<SocketAddr>,
    /// Where datagrams are read from; empty: from anywhere. The UPFs are among them.
    pub allow: Vec<Network>,
    /// The addresses of UEs, which are no UPF's: what comes from there is ignored.
    pub ue_pools: Vec<Network>,
    /// When the control plane started. One value for the whole cluster and for the life of its sessions, so that no UPF
    /// thinks that its control plane restarted (DESIGN decision 1).
    pub recovery_time_stamp: RecoveryTimeStamp,
    /// Whether there may be other endpoints of this Node ID: then the sequence number of a request that has a name follows
    /// from that, so that a UPF knows it again whichever endpoint it comes from.
    pub shared: bool,
    /// Where sequence numbers begin (24 bits). Random: a UPF would take a number that was in use a moment ago, before a
    /// crash of this process, for a repeat.
    pub first_sequence: u32,
    /// What the control plane can.
    pub features: CpFunctionFeatures,
    /// T1 (TS 29.244 6.4): how long a response is waited for.
    pub t1: Duration,
    /// N1: how often a request is sent again.
    pub n1: u8,
    /// How often a UPF is asked for a sign of life.
    pub heartbeat_interval: Duration,
    /// How often a Heartbeat Request is sent again before the UPF counts as down.
    pub heartbeat_n1: u8,
    /// How long after a failed attempt the next one begins to reach a UPF; doubled each time.
    pub retry_first: Duration,
    /// The longest time between attempts.
    pub retry_longest: Duration,
    /// Requests that wait for a response, over all UPFs.
    pub outstanding: usize,
    /// Requests of UPFs whose response is kept for repeats, over all UPFs.
    pub replies: usize,
    /// How long a response is kept for repeats: more than the peers' T1 times N1.
    pub reply_memory: Duration,
}

impl Config {
    /// The defaults of TS 29.244 and of this implementation; the Node ID is the address.
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
