//! Start-up configuration of the parts of a running core, as data.
//!
//! The binary reads and checks the configuration file. Values that steps depend on are in
//! `vireo_core::config`. The UPF has its own.

pub use crate::api::ApiSocket;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use vireo_core::amf::ran::admission::Allow;
pub use vireo_core::config::{
    StateAnswer, StateCarry, StateChange, StateFormat, StateLocation, StatePersist, StateScope, StateWrite,
};
use vireo_core::placement::replica::ReplicationConfig;
use vireo_core::schedule::dispatch::Policy;
use vireo_core::schedule::kind::NfKind;
use vireo_sctp::Driver;
use vireo_store::records::RecordsKey;
pub use vireo_store::records::{DatabaseTls, DatabaseTlsError};
use vireo_types::{Network, Snssai, is_inside};

/// The endpoints of N2 and S1, to which RAN nodes connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N2Config {
    /// SCTP implementation to use.
    pub driver: Driver,
    /// Local addresses of the endpoint, at least one; several make it multi-homed.
    pub addresses: Vec<IpAddr>,
    /// SCTP port (38412 for NGAP, TS 38.412 7).
    pub port: u16,
    /// Local UDP port of the UDP encapsulation (RFC 6951). Only for [`Driver::UserspaceUdp`].
    pub udp_port: u16,
    /// UDP port of the peers in the UDP encapsulation.
    pub udp_peer_port: u16,
    pub s1: S1Config,
    /// RAN nodes and the networks that they may connect from; empty = any node from any address.
    pub allow: Vec<Allow>,
    /// Maximum of simultaneous associations of one peer address.
    pub associations_per_address: u32,
    /// Maximum time from the start of an association to the end of its NG Setup.
    pub setup_within: Duration,
}

impl Default for N2Config {
    /// Returns a configuration with automatic driver choice, on loopback, with the ports of the
    /// specifications.
    fn default() -> Self {
        N2Config {
            driver: Driver::Auto,
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            port: 38412,
            udp_port: 9899,
            udp_peer_port: 9899,
            s1: S1Config::default(),
            allow: Vec::new(),
            associations_per_address: 256,
            setup_within: Duration::from_secs(10),
        }
    }
}

impl N2Config {
    /// Returns true if any RAN node is accepted and an address can be reached from outside this
    /// machine and private networks.
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && !self.addresses.iter().chain(&self.s1.addresses).all(|address| is_inside(*address))
    }
}

/// The S1 endpoint, to which eNBs connect. Driver and admission are N2's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S1Config {
    /// Local addresses of the endpoint; empty = there is none.
    pub addresses: Vec<IpAddr>,
    /// SCTP port (36412 for S1AP, TS 36.412 7).
    pub port: u16,
    /// Local UDP port of the UDP encapsulation, another than N2's.
    pub udp_port: u16,
}

impl Default for S1Config {
    /// Returns a configuration without an endpoint.
    fn default() -> Self {
        S1Config { addresses: Vec::new(), port: 36412, udp_port: 9900 }
    }
}

/// The N4 endpoint (PFCP) of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct N4Config {
    /// Local address and UDP port (8805, TS 29.244 6.3.1).
    pub listen: SocketAddr,
    /// If true, requests to the embedded UPF pass within the process instead of the network.
    pub direct: bool,
    /// Networks from which PFCP is accepted, including the UPFs'; empty = any.
    pub allow: Vec<Network>,
}

impl Default for N4Config {
    /// Returns a configuration on loopback; the embedded UPF uses 127.0.0.8.
    fn default() -> Self {
        N4Config { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8805)), direct: true, allow: Vec::new() }
    }
}

/// The HTTP endpoint of metrics and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// TCP address; `None` = no TCP listener.
    pub listen: Option<SocketAddr>,
    pub socket: ApiSocket,
    pub token: ApiToken,
    /// File of the named tokens with roles; it need not exist.
    pub tokens: PathBuf,
    /// Certificate and key of TCP connections; `None` = they are not encrypted.
    pub tls: Option<ApiTls>,
    /// Host names that clients may use in requests, besides addresses and `localhost`.
    pub host_names: Vec<String>,
}

/// The token file of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    pub path: PathBuf,
    /// If true, the API does not start without a token, even if it listens on loopback only.
    pub required: bool,
}

/// Files of the API's TLS identity, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTls {
    /// Certificate chain, the server's first.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl ApiConfig {
    /// Returns a configuration on loopback, port 9090, without a unix socket, with the given token
    /// file.
    pub fn loopback(token: PathBuf) -> Self {
        ApiConfig {
            tokens: token.with_extension("tokens"),
            tls: None,
            listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))),
            socket: ApiSocket::Off,
            token: ApiToken { path: token, required: false },
            host_names: Vec::new(),
        }
    }
}

/// Number of procedure kinds that have NFs of their own.
pub const NF_KINDS: usize = NfKind::ALL.len();

/// Which procedures one NF runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKey {
    /// One kind of procedure of one slice.
    #[default]
    SliceProcedure,
    /// All procedures of all slices: the unified NF, as the baseline of the decomposition
    /// experiments.
    Wildcard,
}

/// What runs the NFs of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerModel {
    /// Worker processes. A worker that ends or is stuck loses nothing.
    #[default]
    Processes,
    /// The thread of the host, which runs each step to completion. A message wakes one thread less.
    /// A step that ends the process ends the host.
    Inline,
}

/// The worker processes of a host and their NFs.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolsConfig {
    pub key: PoolKey,
    /// What runs the NFs. With [`WorkerModel::Inline`] the fields about worker processes are
    /// unused.
    pub worker_model: WorkerModel,
    /// NFs in one worker process, 1 to 64; 1 = each NF has its own process.
    pub nfs_per_worker: u8,
    /// Active worker processes with [`PoolKey::Wildcard`]; 0 = one for each of
    /// [`PoolsConfig::cores`].
    pub workers: u8,
    /// Spare idle NFs for each kind of procedure.
    pub idle: u8,
    /// Policy that selects the NF of a procedure.
    pub intra: Policy,
    /// CPUs of the workers, assigned round robin; empty = all CPUs, and the kernel places the
    /// workers.
    pub cores: Vec<usize>,
    /// Time without progress after which a worker with pending work is checked. The supervisor
    /// kills it if it is stopped.
    pub stopped_after: Duration,
    /// Time without progress after which a worker with pending work is killed in any case.
    pub stuck_after: Duration,
    /// CPU time that each step takes in addition, for measurements at the service times of other
    /// systems.
    pub added_step_time: Duration,
}

impl Default for PoolsConfig {
    /// Returns a configuration with one NF for each slice and kind, 16 NFs in a worker, on all
    /// CPUs.
    fn default() -> Self {
        PoolsConfig {
            key: PoolKey::SliceProcedure,
            worker_model: WorkerModel::Processes,
            nfs_per_worker: 16,
            workers: 0,
            idle: 1,
            intra: Policy::Optimal,
            cores: Vec::new(),
            stopped_after: Duration::from_millis(20),
            stuck_after: Duration::from_millis(500),
            added_step_time: Duration::ZERO,
        }
    }
}

/// Maximum of data networks of a host. Each uses two number tables in the state region.
pub const DATA_NETWORKS: usize = vireo_store::region::TABLES / 2;

/// The state region of a host, and the database of its contexts if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Where UE contexts are stored.
    pub location: StateLocation,
    /// When contexts are committed to a database. Only if `location` is a database.
    pub persist: StatePersist,
    /// How a database record is changed.
    pub change: StateChange,
    /// Encoding of a database record.
    pub format: StateFormat,
    /// Whether AMF, SMF and UPF share one record of a UE in the database. Only in SBA mode.
    pub scope: StateScope,
    /// What a commit waits for.
    pub write: StateWrite,
    /// Whether SM contexts are piggybacked on SBI messages. Only in SBA mode.
    pub carry: StateCarry,
    /// Whether the AMF needs an explicit create response of the SMF. Only in SBA mode.
    pub answer: StateAnswer,
    /// URL of the database.
    pub database: String,
    /// TLS of the database connections, if the URL asks for TLS.
    pub tls: DatabaseTls,
    /// Replicas of a Redis Cluster that must have a commit before it is acknowledged.
    pub confirm: u16,
    /// Prefix of the record keys; in MongoDB the name of the database. A process that takes over
    /// records needs the same value.
    pub key: String,
    /// Encrypts records; `None` = records are stored in clear text.
    pub sealing: Option<RecordsKey>,
    /// Where contexts are stored for the next start of the core; `None` = they are lost when the
    /// core stops.
    pub keep: Option<KeepConfig>,
    /// Maximum of UEs with a context, registered or not.
    pub ues: u32,
    /// Size of the region in bytes. Unused pages take no memory.
    pub bytes: usize,
    /// Packet buffers of 2 KiB for messages of all UEs that wait or are in progress.
    pub packets: u32,
}

/// Where a core without a cluster stores contexts for its next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepConfig {
    /// In a file of a memory file system.
    File(KeepFile),
    /// In the database of [`StateConfig::location`].
    Database {
        /// If true, the core does not start when it cannot store contexts.
        is_wanted: bool,
    },
}

/// A file that stores contexts across a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepFile {
    /// Path in a memory file system.
    pub path: PathBuf,
    /// Encrypts the content of the file.
    pub key: RecordsKey,
    /// If true, the core does not start when it cannot store contexts.
    pub is_wanted: bool,
}

impl StateConfig {
    /// Returns a region size in bytes that suffices for these UEs and packets.
    ///
    /// - 8 KiB for each UE: its index entry, its context twice during a change, and room for large
    ///   UE capabilities.
    /// - 2 KiB for each packet.
    /// - 128 MiB for rings, number tables and the free objects that workers keep ready.
    pub const fn bytes_for(ues: u32, packets: u32) -> usize {
        ues as usize * 8192 + packets as usize * 2048 + (128 << 20)
    }

    /// Checks the TLS files of the database connections, if `location` is a database.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file.
    pub fn check_tls(&self) -> Result<(), DatabaseTlsError> {
        if self.location.is_database() { self.tls.check() } else { Ok(()) }
    }
}

impl Default for StateConfig {
    /// Returns a configuration with shared memory for 100,000 UEs.
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

/// Overload control of a host.
///
/// The thresholds are fractions from 0 to 1. They apply to the larger of two values: the waiting
/// time of messages relative to `wait`, and the used part of the message buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadConfig {
    /// Waiting time of a message before its step at which the host counts as full. UEs repeat a
    /// request after seconds (T3510, T3517: TS 24.501 10.2). Work on an abandoned request is
    /// wasted.
    pub wait: Duration,
    /// Threshold above which RAN nodes are asked to send less (Overload Start, TS 38.413 8.7.7).
    pub start: f64,
    /// Threshold below which Overload Stop is sent (TS 38.413 8.7.8).
    pub stop: f64,
    /// Threshold above which registrations are rejected with cause #22 (congestion) and a back-off
    /// timer (T3346, TS 24.501 5.3.9). Exempt are emergency registrations and UEs that this host
    /// knows.
    pub registrations: f64,
    /// Threshold above which all procedures are rejected. Exempt are emergencies, handovers,
    /// releases and procedures in progress.
    pub procedures: f64,
    /// Mean of the back-off timer. Each UE receives a random value around it, which spreads the
    /// retries.
    pub back_off: Duration,
    /// Limits of UEs that are not yet authenticated.
    pub half_open: HalfOpenConfig,
}

impl Default for OverloadConfig {
    fn default() -> Self {
        OverloadConfig {
            wait: Duration::from_secs(1),
            start: 0.5,
            stop: 0.25,
            registrations: 0.6,
            procedures: 0.85,
            back_off: Duration::from_secs(60),
            half_open: HalfOpenConfig::default(),
        }
    }
}

/// Limits of the half-open UEs of a host: UEs that have a context and are not yet authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenConfig {
    /// Maximum of half-open UEs, at least 1. Beyond it, the oldest UE of the peer address with the
    /// most UEs is evicted.
    pub ues: usize,
    /// Maximum for all RAN nodes of one peer address, at least 1. Beyond it, the oldest UE of the
    /// address's largest RAN node is evicted.
    pub ues_per_address: usize,
    /// Maximum for one RAN node, at least 1. Beyond it, the node's oldest UE is evicted.
    pub ues_per_node: usize,
    /// Age from which a UE can be evicted in favour of a UE of a peer with about as many UEs. While
    /// all are younger, new UEs are refused, so that the UEs of a burst have this time to answer.
    pub min_age: Duration,
}

impl Default for HalfOpenConfig {
    /// Returns limits that let one peer use at most half of the total.
    ///
    /// A flood is admitted at a rate that is a fraction of one CPU's capacity, even if every UE
    /// stays for the minimum age.
    fn default() -> Self {
        let min_age = Duration::from_secs(3);
        HalfOpenConfig { ues: 16_384, ues_per_address: 8192, ues_per_node: 8192, min_age }
    }
}

/// A slice, as its NFs see it.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceRuntime {
    /// Name from the configuration.
    pub name: String,
    /// S-NSSAI that UEs and RAN nodes use for the slice.
    pub snssai: Snssai,
    /// Latency objective of each kind of procedure, indexed by [`NfKind::index`].
    pub slo: [vireo_types::Duration; NF_KINDS],
    /// Maximum CPU share of all NFs of the slice, in CPUs: above 0, at most 1.
    pub limit: f64,
    /// Minimum CPU share of the NFs of the slice with work, in CPUs: at most `limit`.
    pub guarantee: f64,
    /// Maximum number of replicas of the slice's UEs, besides the owner.
    /// [`ReplicationConfig`] limits it further.
    pub replicas: usize,
}

impl SliceRuntime {
    /// Default latency objective.
    pub const SLO: vireo_types::Duration = vireo_types::Duration::from_millis(100);

    /// Returns a slice with default objectives and without a CPU limit.
    pub fn new(name: impl Into<String>, snssai: Snssai) -> Self {
        SliceRuntime {
            name: name.into(),
            snssai,
            slo: [Self::SLO; NF_KINDS],
            limit: 1.0,
            guarantee: 0.0,
            replicas: ReplicationConfig::MAX_REPLICAS,
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
    fn default_region_size_suffices() {
        for (ues, packets) in [(1000, 1024), (100_000, 16_384)] {
            let bytes = StateConfig::bytes_for(ues, packets);
            let config = RegionConfig { packets, rings: 250 * 9, ..RegionConfig::new(ues, 250, bytes) };
            assert!(Region::create(config).is_ok(), "{ues} UEs");
        }
    }
}
