//! Sections and keys of the configuration file, with defaults.
//!
//! `examples/reference.toml` explains each key.

pub(super) use crate::access::Dnn;
use crate::alarms::Alarms;
use crate::half_open::HalfOpen;
use crate::kubernetes::Kubernetes;
use crate::log::Log;
use crate::n2::N2;
use crate::n4::{Associations, ControlPlane, N4};
use crate::s1::S1;
use crate::state::State;
use crate::subscribers::Subscribers;
pub(super) use crate::surfaces::{Api, Cluster, Sbi, Tls};
use crate::traces::Traces;
use crate::values::{CountOrAuto, DurationText, LocalAddress, Prefix};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use vireo_cluster::{ClusterConfig, ReplicationConfig};
use vireo_core::config::{KeyLifetime, Timers as CoreTimers};
use vireo_core::schedule::dispatch::Policy;
use vireo_ops::config::{OverloadConfig, PoolsConfig, SliceRuntime};
use vireo_types::{Duration, Plmn};
use vireo_upf::UpfConfig;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    pub(super) core: Core,
    /// Empty means the slice of [`File::slices`].
    pub(super) slice: BTreeMap<String, Slice>,
    /// Empty means the data network of [`File::dnns`].
    pub(super) dnn: BTreeMap<String, Dnn>,
    pub(super) n2: N2,
    pub(super) s1: S1,
    pub(super) n4: N4,
    pub(super) upf: Upf,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) external_upf: Vec<ExternalUpf>,
    pub(super) datapath: Datapath,
    pub(super) host: Host,
    pub(super) pools: Pools,
    pub(super) steering: Steering,
    pub(super) cluster: Cluster,
    pub(super) scaling: Scaling,
    pub(super) replication: Replication,
    pub(super) state: State,
    pub(super) overload: Overload,
    pub(super) half_open: HalfOpen,
    pub(super) sbi: Sbi,
    pub(super) subscribers: Subscribers,
    pub(super) api: Api,
    pub(super) alarms: Alarms,
    pub(super) traces: Traces,
    pub(super) log: Log,
}

impl File {
    /// Returns the configured slices, or a slice of SST 1 if the file has none.
    pub(super) fn slices(&self) -> BTreeMap<String, Slice> {
        let slice = Slice {
            snssai: SliceId { sst: 1, sd: None },
            slo: usual_slo(),
            limit: 1.0,
            guarantee: 0.0,
            replicas: most_replicas(),
            profile: Profile::Full,
            count_sessions: false,
            report_every: never(),
            session_quota: 0,
            data_workers: 0,
            data_cores: Vec::new(),
        };
        let default = || BTreeMap::from([("default".to_owned(), slice)]);
        if self.slice.is_empty() { default() } else { self.slice.clone() }
    }

    /// Returns the configured data networks, or `internet` if the file has none.
    pub(super) fn dnns(&self) -> BTreeMap<String, Dnn> {
        let default = || {
            let internet = Dnn {
                ipv4_pool: Some(Prefix(Ipv4Addr::new(10, 45, 0, 0), 16)),
                ipv6_pool: Some(Prefix(Ipv6Addr::new(0xfd45, 0x45, 0, 0, 0, 0, 0, 0), 48)),
                dns: vec![IpAddr::from([1, 1, 1, 1]), IpAddr::from([8, 8, 8, 8])],
                ..Dnn::default()
            };
            BTreeMap::from([("internet".to_owned(), internet)])
        };
        if self.dnn.is_empty() { default() } else { self.dnn.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Core {
    pub(super) name: String,
    pub(super) plmns: Vec<Plmn>,
    pub(super) tacs: Vec<u32>,
    pub(super) relative_capacity: u8,
    pub(super) amf: Amf,
    pub(super) security: Security,
    pub(super) timers: Timers,
    pub(super) paging: Paging,
    pub(super) power_saving: PowerSaving,
    pub(super) ciot: Ciot,
    pub(super) network: Network,
    pub(super) location_reports: bool,
}

impl Default for Core {
    fn default() -> Self {
        Core {
            name: "vireo".into(),
            plmns: "99970".parse().into_iter().collect(),
            tacs: vec![1],
            relative_capacity: 255,
            amf: Amf { region: 2, set: 1, pointer: 0 },
            security: Security::default(),
            timers: Timers::default(),
            paging: Paging::default(),
            power_saving: PowerSaving::default(),
            ciot: Ciot::default(),
            network: Network::default(),
            location_reports: false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Network {
    pub(super) full_name: String,
    pub(super) short_name: String,
    /// Offset of local time from UTC; empty = UEs get no time.
    pub(super) time_zone: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Amf {
    pub(super) region: u8,
    pub(super) set: u16,
    pub(super) pointer: u8,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Security {
    pub(super) integrity: Vec<String>,
    pub(super) ciphering: Vec<String>,
    /// 0 means no limit.
    pub(super) key_lifetime: DurationText,
    pub(super) nas_count_limit: u32,
}

impl Default for Security {
    fn default() -> Self {
        let names = |all: &[&str]| all.iter().map(|n| (*n).to_owned()).collect();
        Security {
            integrity: names(&["NIA2", "NIA1", "NIA3"]),
            ciphering: names(&["NEA2", "NEA1", "NEA3", "NEA0"]),
            key_lifetime: DurationText(Duration(0)),
            nas_count_limit: KeyLifetime::NAS_COUNT,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Timers {
    pub(super) t3512: DurationText,
    pub(super) t3550: DurationText,
    pub(super) t3560: DurationText,
    pub(super) t3570: DurationText,
    pub(super) t3522: DurationText,
    pub(super) t3513: DurationText,
    pub(super) t3592: DurationText,
    pub(super) t3402: DurationText,
    pub(super) t3447: DurationText,
    pub(super) retransmissions: u8,
    pub(super) ran_response: DurationText,
    pub(super) implicit_deregistration: DurationText,
}

impl Default for Timers {
    fn default() -> Self {
        let t = CoreTimers::default();
        Timers {
            t3512: DurationText(t.t3512),
            t3550: DurationText(t.t3550),
            t3560: DurationText(t.t3560),
            t3570: DurationText(t.t3570),
            t3522: DurationText(t.t3522),
            t3513: DurationText(t.t3513),
            t3592: DurationText(t.t3592),
            t3402: DurationText(t.t3402),
            t3447: DurationText(t.t3447),
            retransmissions: t.retransmissions,
            ran_response: DurationText(t.ran_response),
            implicit_deregistration: DurationText(t.implicit_deregistration),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Paging {
    pub(super) last_node_first: bool,
    pub(super) priority_levels: u8,
}

impl Default for Paging {
    fn default() -> Self {
        Paging { last_node_first: true, priority_levels: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PowerSaving {
    pub(super) psm: bool,
    pub(super) active_time: DurationText,
    pub(super) periodic_update: DurationText,
    pub(super) extended_drx: bool,
    /// Unix time in seconds of the start of a hyperframe with H-SFN 0.
    pub(super) hyperframe_epoch: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Ciot {
    pub(super) attach_without_pdn: bool,
    pub(super) control_plane_data: bool,
}

impl Default for PowerSaving {
    fn default() -> Self {
        PowerSaving {
            psm: false,
            active_time: DurationText(Duration::from_secs(3600)),
            periodic_update: DurationText(Duration::from_secs(10 * 86_400)),
            extended_drx: false,
            hyperframe_epoch: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Slice {
    pub(super) snssai: SliceId,
    /// Keys are names of procedure kinds, or [`ALL`].
    #[serde(default = "usual_slo")]
    pub(super) slo: BTreeMap<String, DurationText>,
    #[serde(default = "no_limit")]
    pub(super) limit: f64,
    #[serde(default)]
    pub(super) guarantee: f64,
    #[serde(default = "most_replicas")]
    pub(super) replicas: usize,
    #[serde(default)]
    pub(super) profile: Profile,
    #[serde(default)]
    pub(super) count_sessions: bool,
    /// Interval of usage reports; 0 means only at the end of a session.
    #[serde(default = "never")]
    pub(super) report_every: DurationText,
    /// Bytes; 0 means no quota.
    #[serde(default)]
    pub(super) session_quota: u64,
    /// 0 means one worker, if any slice has its own workers.
    #[serde(default)]
    pub(super) data_workers: usize,
    /// Processors of the data workers, one each; empty means any.
    #[serde(default)]
    pub(super) data_cores: Vec<usize>,
}

/// Properties of the devices of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Profile {
    #[default]
    Full,
    Iot,
}

/// Key for every kind of procedure without its own key.
pub(super) const ALL: &str = "all";

fn usual_slo() -> BTreeMap<String, DurationText> {
    BTreeMap::from([(ALL.to_owned(), DurationText(SliceRuntime::SLO))])
}

fn never() -> DurationText {
    DurationText(Duration::from_secs(0))
}

fn most_replicas() -> usize {
    ReplicationConfig::MAX_REPLICAS
}

fn no_limit() -> f64 {
    1.0
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SliceId {
    pub(super) sst: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sd: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Upf {
    pub(super) enabled: bool,
    pub(super) n4: SocketAddr,
    pub(super) n3: Vec<LocalAddress>,
    pub(super) tun: String,
    pub(super) nat: bool,
    pub(super) host_routes: bool,
    pub(super) max_sessions: usize,
    pub(super) framed_routes: Vec<String>,
    /// Interval of Echo Requests (TS 29.281 7.2.1); 0 disables them.
    pub(super) path_check: DurationText,
    pub(super) control_planes: Vec<ControlPlane>,
    pub(super) associations: Associations,
    pub(super) protect: Vec<String>,
    pub(super) reachable: Vec<String>,
    pub(super) n3_allow: Vec<String>,
    pub(super) tunnel_ends: Vec<String>,
    pub(super) bind_peers: bool,
}

impl Default for Upf {
    fn default() -> Self {
        let upf = UpfConfig::default();
        let n3 = upf.n3.into_iter().map(LocalAddress::Fixed).collect();
        Upf {
            enabled: true,
            n4: upf.n4,
            n3,
            tun: upf.tun,
            nat: upf.nat,
            host_routes: upf.host_routes,
            max_sessions: upf.max_sessions,
            framed_routes: Vec::new(),
            path_check: DurationText(Duration::from_secs(0)),
            control_planes: Vec::new(),
            associations: Associations::default(),
            protect: Vec::new(),
            reachable: Vec::new(),
            n3_allow: Vec::new(),
            tunnel_ends: Vec::new(),
            bind_peers: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ExternalUpf {
    /// `None` means the text of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) n4: SocketAddr,
    #[serde(default)]
    pub(super) dnns: Vec<String>,
    #[serde(default)]
    pub(super) n3_ipv6: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Datapath {
    pub(super) driver: PacketDriver,
    /// Applies to all drivers but `sockets`.
    pub(super) interfaces: Vec<String>,
    pub(super) next_hops: Vec<IpAddr>,
    /// Applies to XDP and AF_XDP.
    pub(super) mode: XdpMode,
    /// Number of packet threads.
    pub(super) workers: usize,
    /// Applies to sockets and AF_PACKET.
    pub(super) placement: Placement,
    /// Applies to AF_PACKET only.
    pub(super) fanout: Fanout,
    /// Applies to all drivers but `sockets`.
    pub(super) nic_filters: bool,
    /// Applies to all drivers but XDP.
    pub(super) locking: Locking,
    /// Applies to all drivers but XDP; 0 means one level.
    pub(super) hot_users: usize,
    /// Applies to slices with their own workers.
    pub(super) rebalance: bool,
    /// Applies to all drivers but `sockets`. Replaces `interfaces`, `next_hops` and `workers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) module: Vec<Module>,
}

/// Module: part of the user plane with its own interfaces and N3 address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Module {
    pub(super) n3_interface: String,
    pub(super) n3_address: IpAddr,
    pub(super) n6_interface: String,
    #[serde(default)]
    pub(super) next_hops: Vec<IpAddr>,
    /// Processors of the module's workers, one each.
    #[serde(default)]
    pub(super) cores: Vec<usize>,
}

impl Default for Datapath {
    fn default() -> Self {
        Datapath {
            driver: PacketDriver::Sockets,
            interfaces: Vec::new(),
            next_hops: Vec::new(),
            mode: XdpMode::Native,
            workers: 1,
            placement: Placement::Threads,
            fanout: Fanout::Hash,
            nic_filters: false,
            locking: Locking::Fine,
            hot_users: 0,
            rebalance: false,
            module: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Locking {
    Fine,
    Coarse,
    SharedWriter,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Placement {
    Threads,
    Processes,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PacketDriver {
    Sockets,
    Xdp,
    AfPacket,
    AfXdp,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fanout {
    Hash,
    Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum XdpMode {
    Native,
    Generic,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Host {
    pub(super) slot: u8,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Pools {
    pub(super) key: Key,
    pub(super) worker_model: WorkerModel,
    pub(super) shards: u8,
    pub(super) nfs_per_worker: u8,
    pub(super) workers: CountOrAuto,
    pub(super) idle: u8,
    /// Empty means all processors.
    pub(super) cores: Vec<usize>,
    pub(super) stopped_after: DurationText,
    pub(super) stuck_after: DurationText,
    pub(super) added_step_time: DurationText,
}

impl Default for Pools {
    fn default() -> Self {
        let p = PoolsConfig::default();
        Pools {
            key: Key::SliceProcedure,
            worker_model: WorkerModel::Processes,
            shards: 1,
            nfs_per_worker: p.nfs_per_worker,
            workers: CountOrAuto::Auto,
            idle: p.idle,
            cores: p.cores,
            stopped_after: DurationText(p.stopped_after.into()),
            stuck_after: DurationText(p.stuck_after.into()),
            added_step_time: DurationText(p.added_step_time.into()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Key {
    #[serde(rename = "slice,procedure")]
    SliceProcedure,
    Wildcard,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WorkerModel {
    Processes,
    Inline,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Steering {
    pub(super) intra: Policy,
    pub(super) inter: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) serve: Option<String>,
    pub(super) prefer: String,
    pub(super) trace_choices: PathBuf,
}

impl Default for Steering {
    fn default() -> Self {
        let ClusterConfig { inter, prefer, .. } = ClusterConfig::default();
        let (inter, prefer) = (inter.name().into(), prefer.name().into());
        Steering { intra: Policy::default(), inter, serve: None, prefer, trace_choices: PathBuf::new() }
    }
}

/// Autoscaling: number of serving hosts of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Scaling {
    pub(super) least: u16,
    pub(super) most: u16,
    pub(super) idle: u16,
    pub(super) high: f32,
    pub(super) low: f32,
    pub(super) lasts: DurationText,
    pub(super) start: Vec<String>,
    pub(super) kubernetes: Kubernetes,
}

impl Default for Scaling {
    fn default() -> Self {
        Scaling {
            least: 0,
            most: 16,
            idle: 1,
            high: 0.7,
            low: 0.4,
            lasts: DurationText(Duration::from_secs(2)),
            start: Vec::new(),
            kubernetes: Kubernetes::default(),
        }
    }
}

/// Replication of UE contexts to other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Replication {
    pub(super) mode: Mode,
    pub(super) replicas: usize,
    pub(super) ack: Ack,
}

impl Default for Replication {
    fn default() -> Self {
        Replication { mode: Mode::None, replicas: 1, ack: Ack::One }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    None,
    Cold,
    Hot,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ack {
    None,
    One,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Overload {
    pub(super) wait: DurationText,
    pub(super) start: f64,
    pub(super) stop: f64,
    pub(super) registrations: f64,
    #[serde(rename = "others")]
    pub(super) other_procedures: f64,
    pub(super) back_off: DurationText,
}

impl Default for Overload {
    fn default() -> Self {
        let OverloadConfig { wait, start, stop, registrations, procedures: others, back_off, .. } =
            OverloadConfig::default();
        Overload {
            wait: DurationText(wait.into()),
            start,
            stop,
            registrations,
            other_procedures: others,
            back_off: DurationText(back_off.into()),
        }
    }
}

/// Upper bound of any timer: the largest value of T3512 (TS 24.008 10.5.7.4a: 31 times 320 hours).
pub(super) const MAX_TIMER: Duration = Duration::from_secs(31 * 320 * 3600);
