//! Data types of `GET /status`, and the trait that supplies them.

use super::slices::{MoveError, MoveRequest, MoveResult, SlicesStatus};
use super::ues::{PoolStatus, UePage, UeQuery, UeSelector};
use serde::{Deserialize, Serialize};
use vireo_types::{DeregistrationCause, Supi, SupiError};

/// Maximum of UEs and of gNBs in one response.
const LIMIT_MAX: usize = 1000;

/// Query of `GET /status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusFilter {
    /// Number of UEs and gNBs to skip.
    pub offset: usize,
    /// Maximum of UEs and of gNBs to list, at most 1,000.
    pub limit: usize,
    /// If true, SUPIs are not masked.
    pub reveal_supi: bool,
    /// If false, no UEs are listed.
    pub ues: bool,
    /// Lists the UE of this SUPI alone, with its RAN node.
    pub supi: Option<String>,
    /// Lists the RAN node of this name or ID alone, with its connected UEs.
    pub gnb: Option<String>,
}

impl Default for StatusFilter {
    fn default() -> Self {
        StatusFilter { offset: 0, limit: 100, reveal_supi: false, ues: true, supi: None, gnb: None }
    }
}

impl StatusFilter {
    /// Returns the filter with `limit` reduced to the maximum.
    pub fn bounded(self) -> Self {
        StatusFilter { limit: self.limit.min(LIMIT_MAX), ..self }
    }
}

/// Reason why a status has no selection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("supi: {0}")]
    Supi(#[from] SupiError),
    #[error("gnb: no RAN node has the name or ID {0:?}")]
    NoRanNode(String),
    #[error("the core does not answer in time")]
    Silent,
}

/// Returns the status by the filter, also by its selection of a UE or RAN node.
///
/// # Errors
///
/// Returns an error if the selection is not valid or finds no RAN node.
pub(super) fn select(source: &dyn StatusSource, filter: &StatusFilter) -> Result<Status, SelectionError> {
    if filter.supi.is_none() && filter.gnb.is_none() {
        return source.status(filter).ok_or(SelectionError::Silent);
    }
    let all = StatusFilter { offset: 0, limit: LIMIT_MAX, ues: false, ..filter.clone() };
    let mut status = source.status(&all).ok_or(SelectionError::Silent)?;
    let select = match (&filter.supi, &filter.gnb) {
        (Some(supi), _) => UeSelector::supi(supi.parse()?),
        (None, gnb) => {
            let name = gnb.clone().unwrap_or_default();
            status.gnbs.retain(|node| node.name == name || node.id == name);
            let node = status.gnbs.first().ok_or(SelectionError::NoRanNode(name))?;
            UeSelector::RanNode(node.id.clone())
        }
    };
    let query = UeQuery { select, after: None, limit: filter.limit, reveal_supi: filter.reveal_supi };
    status.ues = source.ues(&query).ok_or(SelectionError::Silent)?.ues;
    if filter.supi.is_some() {
        status.gnbs.retain(|node| status.ues.iter().any(|ue| ue.ran_node.as_ref() == Some(&node.id)));
    }
    Ok(status)
}

/// Source of the status of a core.
///
/// The API calls it on its own thread. An implementation must return within milliseconds and must
/// not wait for a peer. It masks SUPIs unless the filter has `reveal_supi`.
pub trait StatusSource: Send + Sync {
    /// Returns the current status; `None` if the core does not answer in time. Lists hold at most
    /// `filter.limit` entries, starting at `filter.offset`.
    fn status(&self, filter: &StatusFilter) -> Option<Status>;

    /// Returns a page of UEs; `None` if the core does not answer in time.
    fn ues(&self, _: &UeQuery) -> Option<UePage> {
        Some(UePage { total: Some(0), ..UePage::default() })
    }

    /// Returns the use of the address pools.
    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    /// Deregisters the UE of a subscriber (TS 24.501 5.5.2.3) with a cause. If `again`, the UE is
    /// asked to register again. Returns true if there is such a UE, `None` if the core does not
    /// answer in time.
    fn deregister(&self, supi: Supi, again: bool, cause: Option<DeregistrationCause>) -> Option<bool>;

    /// Returns the slices of the user plane. If `_counts`, the result contains the traffic counts
    /// of the users.
    fn slices(&self, _counts: bool) -> SlicesStatus {
        SlicesStatus::default()
    }

    /// Moves users between slices or workers.
    fn move_users(&self, _: &MoveRequest) -> Result<MoveResult, MoveError> {
        Err(MoveError::NoSlices)
    }

    /// Starts to move the sessions of a subscriber's UE to the UPF of this name (TS 23.502
    /// 4.3.5.3). The status shows the outcome.
    fn relocate(&self, _supi: Supi, _to: &str) -> Result<(), RelocateError> {
        Err(RelocateError::NoCore)
    }

    /// Requests the cell of a connected UE from its RAN node (TS 38.413 8.12.1). The status has the
    /// answer. Returns true if there is such a UE, `None` if the core does not answer in time.
    fn locate(&self, _supi: Supi) -> Option<bool> {
        Some(false)
    }

    /// Starts to drain a host: the cluster migrates its UEs to other hosts, and it leaves. The
    /// status shows the outcome.
    fn drain(&self, _host: u16) -> Result<(), DrainError> {
        Err(DrainError::NoController)
    }

    /// Cordons a host, or ends its cordon: a cordoned host keeps its UEs, and gets no other buckets
    /// and no new UEs.
    fn cordon(&self, _host: u16, _is_cordoned: bool) -> Result<(), DrainError> {
        Err(DrainError::NoController)
    }

    /// Updates metrics that are not counted by events. Called every few seconds on the API's
    /// thread.
    fn upkeep(&self) {}

    /// Updates metrics that are cheap to read. Called before each response of `GET /metrics`.
    fn count(&self) {}

    /// Adds the metrics of shards to those of this process, in the Prometheus text format.
    fn with_shards(&self, own: String) -> String {
        own
    }
}

/// Reasons why a host is not drained or cordoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// This process is not the controller.
    #[error("this process is not the controller; give the address of its API (--api)")]
    NoController,
    /// The cluster map has no such host.
    #[error("the cluster map has no such host; `vireo cluster status` lists the hosts")]
    NoHost,
}

/// Reasons why the sessions of a UE are not relocated to another UPF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelocateError {
    /// This process is a UPF without a core.
    #[error(
        "this process is a UPF without a core, which relocates no sessions; give the address of the API of the core (--api)"
    )]
    NoCore,
    /// No UPF has this name.
    #[error("there is no UPF {name}: this core has {known}")]
    UnknownUpf {
        /// Name in the request.
        name: String,
        /// Names of the configured UPFs.
        known: String,
    },
    /// No UE of this subscriber has a context.
    #[error("no such UE is known")]
    NoUe,
    /// The host does not answer in time.
    #[error("the core does not answer in time; try again")]
    Busy,
}

/// Status of a host of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    pub host: u16,
    /// Replication address of the host.
    pub address: String,
    /// Buckets that the host owns, of 4,096.
    pub buckets: usize,
    /// Buckets of other hosts that this host replicates.
    #[serde(default)]
    pub replicas: usize,
    /// Epoch of the current cluster map.
    pub epoch: u64,
    /// Label of the machine (`cluster.machine`); `None`: the host has a machine of its own. Filled
    /// by the controller.
    #[serde(default)]
    pub machine: Option<String>,
    /// True if the host gets no other buckets and no new UEs. Filled by the controller.
    #[serde(default)]
    pub cordoned: bool,
}

/// Status of a balancer of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerStatus {
    pub balancer: u8,
    /// Address to which hosts connect.
    pub address: String,
    /// If true, this balancer exchanges PFCP with the UPFs.
    pub holds_n4: bool,
}

/// Status of a core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    /// Time since the start in seconds.
    pub uptime_s: u64,
    /// Totals, independent of offset and limit of the lists.
    pub counts: Counts,
    /// gNBs with NG Setup done.
    pub gnbs: Vec<GnbStatus>,
    /// UEs with a context.
    pub ues: Vec<UeStatus>,
    pub upfs: Vec<UpfStatus>,
    /// Worker processes of the host.
    pub workers: Vec<WorkerStatus>,
    /// Latency of procedures in the last seconds, by slice and kind of procedure.
    #[serde(default)]
    pub latencies: Vec<LatencyStatus>,
    /// State of the overload control.
    #[serde(default)]
    pub overload: OverloadStatus,
    /// Hosts of the current cluster map. Filled by controller and balancers.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
    /// Hosts that left the cluster map while they owned buckets, the last one at the end. Filled by
    /// controller and balancers, since their start.
    #[serde(default)]
    pub dead_hosts: Vec<u16>,
    /// Balancers of the current cluster map. Filled by controller and balancers.
    #[serde(default)]
    pub balancers: Vec<BalancerStatus>,
    /// UEs of other hosts with a replica entry here. Filled by hosts of a cluster.
    #[serde(default)]
    pub copies: usize,
    /// Shards of this core, if it has several (`pools.shards`).
    #[serde(default)]
    pub shards: Vec<ShardStatus>,
}

/// Status of a shard: a host process of `vireo run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStatus {
    /// Number of the shard, from 0.
    pub shard: u8,
    /// Process ID; 0 while there is no process.
    pub pid: u32,
    /// `starting`, `serving`, or `ended`.
    pub state: String,
    /// Host ID; a shard that replaces another has a new one.
    pub host: Option<u16>,
    /// UEs whose steps it commits.
    pub ues: usize,
    /// UEs of other shards with a copy here.
    pub copies: usize,
    /// CPU time of the process in microseconds.
    pub cpu_us: u64,
    /// Processes of this shard that have ended since the start of the core.
    pub ends: u64,
    /// True if all UEs have their copies, so that the end of one more shard loses none.
    pub copied: bool,
}

/// State of the overload control.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverloadStatus {
    /// Procedures that are rejected: `normal` (none), `registrations`, `low-priority` or `others`.
    pub level: String,
    /// Used part of the message buffers, 0 to 1.
    pub fill: f64,
    /// Initial messages rejected since the start.
    pub refused: u64,
    /// Reduction of signalling that RAN nodes are asked for, in percent; `None` = none (Overload
    /// Start).
    pub reduction_percent: Option<u8>,
}

/// Totals of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// gNBs with NG Setup done.
    pub gnbs: usize,
    /// UEs with a context.
    pub ues: usize,
    /// UEs in state 5GMM-REGISTERED (TS 24.501 5.1.3).
    pub registered: usize,
    /// UEs in state CM-CONNECTED (TS 23.501 5.3.3).
    pub connected: usize,
    pub sessions: usize,
}

/// Status of a gNB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GnbStatus {
    /// RAN Node Name; empty if the gNB sent none.
    pub name: String,
    /// Global gNB ID as `PLMN-number`.
    pub id: String,
    /// Kind: `gNB` or `eNB`.
    #[serde(default)]
    pub kind: String,
    /// Peer address of its first association.
    pub address: String,
    /// Number of its SCTP associations.
    #[serde(default)]
    pub associations: usize,
    /// Supported TACs, as decimal numbers.
    pub tacs: Vec<u32>,
    /// Supported S-NSSAIs, as `SST` or `SST-SD`.
    pub slices: Vec<String>,
    /// UEs that are connected through the gNB.
    pub ues: usize,
}

/// Status of a UE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeStatus {
    /// SUPI, masked unless the filter has `reveal_supi`; empty while it is unknown.
    pub supi: String,
    /// 5G-TMSI in hexadecimal; empty if none is assigned.
    pub tmsi: String,
    /// `REGISTERED`, `REGISTERING` or `DEREGISTERED`.
    pub rm: String,
    /// CM state: `CONNECTED` or `IDLE`.
    pub cm: String,
    /// Last known tracking area, as `PLMN-TAC`.
    pub tai: String,
    /// Cell as `PLMN-CELL`, the latter in hexadecimal, if the UE is connected and the filter has
    /// `reveal_supi`.
    #[serde(default)]
    pub cell: Option<String>,
    /// Serving gNB, if the UE is connected.
    pub gnb: Option<String>,
    /// ID of the serving RAN node as in [`GnbStatus::id`], if the UE is connected.
    #[serde(default)]
    pub ran_node: Option<String>,
    /// Dialect, `nr` or `eps`.
    #[serde(default)]
    pub rat: String,
    /// Host that has the UE, if the process has several (shards).
    #[serde(default)]
    pub host: Option<u16>,
    /// GUTI as `PLMN-AMF-TMSI`, the latter two in hexadecimal.
    #[serde(default)]
    pub guti: Option<String>,
    pub sessions: Vec<SessionStatus>,
}

/// Status of a PDU session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// PDU session identity, 1 to 15; in EPS the EPS bearer identity.
    pub psi: u8,
    pub dnn: String,
    pub snssai: String,
    /// Name of the slice.
    #[serde(default)]
    pub slice: String,
    /// IPv4 address of the UE.
    pub ipv4: Option<String>,
    /// IPv6 prefix of the UE.
    pub ipv6: Option<String>,
    /// `ACTIVE`, `INACTIVE` (no user plane), or the procedure in progress.
    pub state: String,
    /// QoS flow identifier of the default flow.
    pub qfi: u8,
    /// Name of the session's UPF.
    #[serde(default)]
    pub upf: String,
    /// True during a relocation, until the source UPF has released the session.
    #[serde(default)]
    pub moves: bool,
    /// Session-AMBR of the uplink in bit/s.
    #[serde(default)]
    pub uplink_bps: u64,
    #[serde(default)]
    pub downlink_bps: u64,
    /// 5QI of the default flow; in EPS the QCI.
    #[serde(default)]
    pub five_qi: u8,
    /// Volume that the UPF has reported, if the slice measures it.
    #[serde(default)]
    pub volume: Option<SessionVolume>,
}

/// Volume of a session as the UPF has reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionVolume {
    /// Bytes from the UE.
    pub uplink_octets: u64,
    /// Bytes to the UE.
    pub downlink_octets: u64,
}

/// Status of a UPF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpfStatus {
    /// Name in the configuration.
    #[serde(default)]
    pub name: String,
    /// Node ID in PFCP (TS 29.244 8.2.38).
    pub node: String,
    /// True if the PFCP association is up.
    pub associated: bool,
    /// Number of PFCP sessions.
    pub sessions: u64,
    /// Packets forwarded from UEs.
    pub uplink_packets: u64,
    /// Bytes forwarded from UEs, without tunnel headers.
    pub uplink_bytes: u64,
    /// Packets forwarded to UEs.
    pub downlink_packets: u64,
    /// Bytes forwarded to UEs, without tunnel headers.
    pub downlink_bytes: u64,
    /// Packets dropped for any reason.
    pub dropped_packets: u64,
    /// Takeovers of data worker processes that died.
    #[serde(default)]
    pub takeovers: u64,
    /// Longest takeover in microseconds, from the detection of a data worker's death until the next
    /// worker forwards.
    #[serde(default)]
    pub longest_takeover_us: u64,
    /// Upper bound of packets lost in data workers that died.
    #[serde(default)]
    pub packets_died: u64,
}

/// Status of a worker process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Worker number in the host.
    pub number: u8,
    pub pid: u32,
    /// CPU time in microseconds, as counted by the kernel.
    #[serde(default)]
    pub cpu_us: u64,
    /// NFs of the worker.
    pub nfs: Vec<NfStatus>,
}

/// Status of an NF, which runs one kind of procedure of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NfStatus {
    /// Number of the NF. It is not reused while the core runs.
    pub id: u32,
    /// Name of the slice; empty for UEs whose slice is not yet known, and for a unified NF.
    pub slice: String,
    /// Kind of procedure, or `unified`.
    pub kind: String,
    /// State of the NF: `active` or `idle`.
    pub state: String,
    /// Procedures that are queued or in progress.
    pub queue: u32,
    /// CPU share of the NF, 0 to 1.
    pub share: f64,
    /// Steps that the NF has run.
    pub processed: u64,
    /// Latency estimates that exceeded the objective.
    pub violations: u64,
    /// Measured service time of a procedure in microseconds, with a CPU for the NF alone.
    pub service_time_us: f64,
}

/// Latency of procedures that succeeded in the last 5 to 10 seconds, from the step of the first
/// message to the step of the last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// Name of the slice; empty for UEs whose slice is unknown.
    pub slice: String,
    pub kind: String,
    /// Latency objective in microseconds.
    pub slo_us: u64,
    /// Procedures in the interval.
    pub count: u64,
    /// Procedures in the interval that exceeded the objective.
    pub violations: u64,
    /// Median latency in the interval, in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the latency in the interval, in microseconds.
    pub p99_us: u64,
    /// Procedures since the start.
    pub total: u64,
    /// Procedures since the start that exceeded the objective.
    pub total_violations: u64,
}
