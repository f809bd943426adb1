//! What the parts of a running core are told at start. It is read and checked by the binary; here it is data. What
//! decisions depend on is apart, in `vireo_core::config`; the user plane's is in `upf`.

pub use crate::api::ApiSocket;
use crate::cluster::ReplicationConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
pub use vireo_core::config::{
    StateAnswer, StateCarry, StateChange, StateFormat, StateLocation, StatePersist, StateScope, StateWrite,
};
use vireo_core::ran::admission::Allow;
use vireo_core::schedule::dispatch::Policy;
use vireo_core::schedule::kind::NfKind;
use vireo_sctp::Driver;
use vireo_store::records::RecordsKey;
pub use vireo_store::records::{DatabaseTls, DatabaseTlsError};
use vireo_types::{Network, Snssai, is_inside};

/// The N2 endpoint: where RAN nodes connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N2Config {
    /// Which SCTP.
    pub driver: Driver,
    /// The local addresses of the endpoint, at least one; several make it multi-homed.
    pub addresses: Vec<IpAddr>,
    /// SCTP port (38412 for NGAP, TS 38.412 7).
    pub port: u16,
    /// UDP encapsulation (RFC 6951): the local UDP port. Only for [`Driver::UserspaceUdp`].
    pub udp_port: u16,
    /// UDP encapsulation: the UDP port of peers.
    pub udp_peer_port: u16,
    /// Which RAN nodes may come from where; empty = any from anywhere.
    pub allow: Vec<Allow>,
    /// Associations of one peer address at the same time.
    pub associations_per_address: u32,
    /// How long an association may be no RAN node's.
    pub setup_within: Duration,
}

impl Default for N2Config {
    /// Any driver, loopback, the ports of the specifications.
    fn default() -> Self {
        N2Config {
            driver: Driver::Auto,
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            port: 38412,
            udp_port: 9899,
            udp_peer_port: 9899,
            allow: Vec::new(),
            associations_per_address: 256,
            setup_within: Duration::from_secs(10),
        }
    }
}

impl N2Config {
    /// Returns true if any node may come, and from more than this machine or a private network.
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && !self.addresses.iter().all(|address| is_inside(*address))
    }
}

/// The control plane's N4 endpoint (PFCP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N4Config {
    /// The local address and UDP port (8805, TS 29.244 6.3.1).
    pub listen: SocketAddr,
    /// Whether requests to the embedded UPF are handed over within the process, not sent over the network.
    pub direct: bool,
    /// Where PFCP is read from; empty: from anywhere. The UPFs are among them.
    pub allow: Vec<Network>,
}

impl Default for N4Config {
    /// Loopback, apart from the embedded UPF's 127.0.0.8.
    fn default() -> Self {
        N4Config { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8805)), direct: true, allow: Vec::new() }
    }
}

/// The HTTP endpoint: metrics and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// Where it listens by TCP; `None` = not at all.
    pub listen: Option<SocketAddr>,
    /// The unix socket.
    pub socket: ApiSocket,
    /// The bearer token.
    pub token: ApiToken,
    /// Names, besides addresses and `localhost`, by which clients may name it.
    pub host_names: Vec<String>,
}

/// The file of the API's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// The file.
    pub path: PathBuf,
    /// Whether the API does not start without it on a loopback address either.
    pub required: bool,
}

impl ApiConfig {
    /// Loopback alone, without a unix socket, and this token file.
    pub fn loopback(token: PathBuf) -> Self {
        ApiConfig {
            listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))),
            socket: ApiSocket::Off,
            token: ApiToken { path: token, required: false },
            host_names: Vec::new(),
        }
    }
}

/// Kinds of procedure that have NFs of their own.
pub const NF_KINDS: usize = NfKind::ALL.len();

/// What an NF is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKey {
    /// One kind of procedure of one slice.
    #[default]
    SliceProcedure,
    /// Everything: the unified NF that decomposition is compared with.
    Wildcard,
}

/// The worker processes of a host and the NFs in them.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolsConfig {
    /// What an NF is for.
    pub key: PoolKey,
    /// NFs in a worker process, 1 to 64; 1 = each NF a process of its own.
    pub nfs_per_worker: u8,
    /// With [`PoolKey::Wildcard`]: how many worker processes are active; 0 = one for each of [`PoolsConfig::cores`].
    pub workers: u8,
    /// Idle NFs kept ready for each kind.
    pub idle: u8,
    /// How the NF is chosen for a procedure.
    pub intra: Policy,
    /// The processors that workers run on, dealt in turn; empty = all, and the kernel places them.
    pub cores: Vec<usize>,
    /// How long a worker with work may show no progress before it is looked at, and killed if it was stopped.
    pub stopped_after: Duration,
    /// How long a worker with work may show no progress before it is killed in any case.
    pub stuck_after: Duration,
}

impl Default for PoolsConfig {
    /// NFs by slice and procedure, 8 to a worker, on all processors.
    fn default() -> Self {
        PoolsConfig {
            key: PoolKey::SliceProcedure,
            nfs_per_worker: 16,
            workers: 0,
            idle: 1,
            intra: Policy::Optimal,
            cores: Vec::new(),
            stopped_after: Duration::from_millis(20),
            stuck_after: Duration::from_millis(500),
        }
    }
}

/// Data networks that a host serves at most: each has two number tables in the state region.
pub const DATA_NETWORKS: usize = vireo_store::region::TABLES / 2;

/// The state region of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Where the contexts are.
    pub location: StateLocation,
    /// When they are committed to a database, if they are there.
    pub persist: StatePersist,
    /// How they are changed there.
    pub change: StateChange,
    /// What they are there.
    pub format: StateFormat,
    /// Of a service-based chain: which functions share a record there.
    pub scope: StateScope,
    /// What commits wait for.
    pub write: StateWrite,
    /// Of a service-based chain: whether SM contexts travel.
    pub carry: StateCarry,
    /// Of a service-based chain: what the AMF takes for the SMF's answer.
    pub answer: StateAnswer,
    /// The database: a URL.
    pub database: String,
    /// TLS of the connections to it, if the URL says that they have it.
    pub tls: DatabaseTls,
    /// Of a Redis Cluster: how many replicas have a commit before it counts.
    pub confirm: u16,
    /// What the keys of records there begin with; of MongoDB the name of the database. Whoever is to go on with somebody's
    /// records has the same.
    pub key: String,
    /// Seals what is kept there; `None`: it is kept in clear.
    pub sealing: Option<RecordsKey>,
    /// Where contexts are kept for the core's next start; `None`: they end with it.
    pub keep: Option<KeepConfig>,
    /// UEs at most.
    pub ues: u32,
    /// Octets of the region in all; pages that are not used cost no memory.
    pub bytes: usize,
    /// Messages that may wait or be worked at, for all UEs, 2 KiB each.
    pub packets: u32,
}

/// Where the contexts of a core by itself are kept for its next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepConfig {
    /// In a file of a memory file system.
    File(KeepFile),
    /// In the database that has them.
    Database {
        /// Whether a core that cannot keep them does not start.
        is_wanted: bool,
    },
}

/// A file that keeps contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepFile {
    /// The file, in a memory file system.
    pub path: PathBuf,
    /// Seals what is there.
    pub key: RecordsKey,
    /// Whether a core that cannot keep them does not start.
    pub is_wanted: bool,
}

impl StateConfig {
    /// Octets that suit so many UEs and packets: 8 KiB a UE (its place in the indexes, its context twice while it
    /// changes, room for large UE capabilities), 2 KiB a packet, and 128 MiB for rings, number tables and what workers
    /// keep ready.
    pub const fn bytes_for(ues: u32, packets: u32) -> usize {
        ues as usize * 8192 + packets as usize * 2048 + (128 << 20)
    }

    /// Checks the files of the connections to the database, if they have TLS.
    ///
    /// # Errors
    ///
    /// [`DatabaseTlsError`] names the file that is not usable.
    pub fn check_tls(&self) -> Result<(), DatabaseTlsError> {
        if self.location.is_database() { self.tls.check() } else { Ok(()) }
    }
}

impl Default for StateConfig {
    /// Shared memory for 100,000 UEs.
    fn default() -> Self {
        let (ues, packets) = (100_000, 16_384);
        StateConfig {
            location: StateLocation::Shm,
            persist: StatePersist::Transaction,
            change: StateChange::Replace,
            format: StateFormat::Binary,
            scope: StateScope::Function,
            write: StateWrite::Blocking,
            tls: DatabaseTls::default(),
            confirm: 0,
            carry: StateCarry::None,
            answer: StateAnswer::Explicit,
            database: "redis://127.0.0.1:6379".into(),
            key: "vireo".into(),
            sealing: None,
            keep: None,
            ues,
            bytes: StateConfig::bytes_for(ues, packets),
            packets,
        }
    }
}

/// What is shed when there is more work than the host can do. Thresholds are parts, 0 to 1, of the time that a message may
/// wait, or of the room for those that wait, whichever is nearer to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadConfig {
    /// How long a message may wait for its step before the host counts as full. UEs ask again after seconds (T3510,
    /// T3517: TS 24.501 10.2), and what they gave up is work for nothing.
    pub wait: Duration,
    /// Above it, RAN nodes are told to send less (Overload Start, TS 38.413 8.7.7).
    pub start: f64,
    /// Below it, they are told that it is over (Overload Stop, TS 38.413 8.7.8).
    pub stop: f64,
    /// Above it, registrations that are neither of an emergency nor of a UE known here are refused: cause #22
    /// (congestion) and a back-off timer (T3346, TS 24.501 5.3.9).
    pub registrations: f64,
    /// Above it, so is everything but emergencies, handovers, releases and procedures that have begun.
    pub others: f64,
    /// The back-off timer's mean; each UE is told another value around it, so that they do not come back at once.
    pub back_off: Duration,
    /// UEs that have not been authenticated yet.
    pub half_open: HalfOpenConfig,
}

impl Default for OverloadConfig {
    fn default() -> Self {
        OverloadConfig {
            wait: Duration::from_secs(1),
            start: 0.5,
            stop: 0.25,
            registrations: 0.6,
            others: 0.85,
            back_off: Duration::from_secs(60),
            half_open: HalfOpenConfig::default(),
        }
    }
}

/// Limits of the half-open UEs of a host: UEs that have a context and have not been authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenConfig {
    /// UEs in all, at least 1. Beyond, the oldest of the peer with the most is evicted.
    pub ues: usize,
    /// UEs of the RAN nodes of one peer address, at least 1. Beyond, the oldest of its largest RAN node is evicted.
    pub ues_per_address: usize,
    /// UEs of one RAN node, at least 1. Beyond, its oldest is evicted.
    pub ues_per_node: usize,
    /// Age from which a UE is evicted for a UE of a peer with about as many. While all are younger, new UEs are turned away:
    /// the UEs of a burst have this time to answer.
    pub min_age: Duration,
}

impl Default for HalfOpenConfig {
    /// One peer has at most half. The rate that a flood is admitted at, all UEs in the minimum age, is a fraction of the
    /// capacity of one processor.
    fn default() -> Self {
        let min_age = Duration::from_secs(3);
        HalfOpenConfig { ues: 16_384, ues_per_address: 8192, ues_per_node: 8192, min_age }
    }
}

/// A slice, as its NFs see it.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceRuntime {
    /// The operator's name for it.
    pub name: String,
    /// What UEs and RAN know it by.
    pub snssai: Snssai,
    /// The latency objective of each kind of procedure, by [`NfKind::index`].
    pub slo: [vireo_types::Duration; NF_KINDS],
    /// The largest part of a core that its NFs have together, above 0 to 1.
    pub limit: f64,
    /// Hosts besides the owner that keep copies of its UEs at the most; no more than [`crate::cluster::ReplicationConfig`]
    /// says.
    pub replicas: usize,
}

impl SliceRuntime {
    /// The latency objective where none is written down.
    pub const SLO: vireo_types::Duration = vireo_types::Duration::from_millis(100);

    /// A slice with the usual objectives and no limit.
    pub fn new(name: impl Into<String>, snssai: Snssai) -> Self {
        SliceRuntime {
            name: name.into(),
            snssai,
            slo: [Self::SLO; NF_KINDS],
            limit: 1.0,
            replicas: ReplicationConfig::MOST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::region::{Region, RegionConfig};

    #[test]
    fn n2_is_open_on_public_addresses_without_list() {
        let n2 = |addresses: &[&str]| N2Config {
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
            ..N2Config::default()
        };
        for open in [&["203.0.113.1"][..], &["127.0.0.1", "2001:db8::1"], &["0.0.0.0"], &["::"]] {
            assert!(n2(open).is_open(), "{open:?}");
            let allow = vec![Allow { network: "0.0.0.0/0".parse().expect("a network"), plmn: None, ids: None }];
            assert!(!N2Config { allow, ..n2(open) }.is_open());
        }
        for closed in [&["127.0.0.1"][..], &["10.1.2.3", "192.168.1.1", "172.16.0.9"], &["fd00::1", "::1", "fe80::1"]] {
            assert!(!n2(closed).is_open(), "{closed:?}");
        }
    }

    #[test]
    fn the_usual_octets_are_enough_for_a_region() {
        for (ues, packets) in [(1000, 1024), (100_000, 16_384)] {
            let bytes = StateConfig::bytes_for(ues, packets);
            let config = RegionConfig { packets, rings: 250 * 9, ..RegionConfig::new(ues, 250, bytes) };
            assert!(Region::create(config).is_ok(), "{ues} UEs");
        }
    }
}
