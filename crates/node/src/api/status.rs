//! What the status says, as plain data.

use super::slices::{MoveError, MoveRequest, MoveResult, SlicesStatus};
use serde::{Deserialize, Serialize};
use vireo_types::Supi;

/// The most UEs (and gNBs) that one answer lists.
const LIMIT_MAX: usize = 1000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusFilter {
    /// How many UEs and gNBs to leave out first.
    pub offset: usize,
    /// How many UEs and gNBs to list, 1,000 at the most.
    pub limit: usize,
    /// Show SUPIs whole.
    pub reveal_supi: bool,
}

impl Default for StatusFilter {
    fn default() -> Self {
        StatusFilter { offset: 0, limit: 100, reveal_supi: false }
    }
}

impl StatusFilter {
    /// The same with a limit that can be answered.
    pub fn bounded(self) -> Self {
        StatusFilter { limit: self.limit.min(LIMIT_MAX), ..self }
    }
}

/// Who can say how the core is. Called on the API's thread: it must answer within milliseconds and never wait for a
/// peer. SUPIs are masked unless the filter asks for them.
pub trait StatusSource: Send + Sync {
    /// The status now; lists hold at most `filter.limit` entries from `filter.offset` on.
    fn status(&self, filter: &StatusFilter) -> Status;

    /// Deregisters a subscriber's UE (TS 24.501 5.5.2.3), asking it to register `again` or not. Whether there is one.
    fn deregister(&self, supi: Supi, again: bool) -> bool;

    /// The slices of its user plane; `counts` = with what their users' records have counted.
    fn slices(&self, _counts: bool) -> SlicesStatus {
        SlicesStatus::default()
    }

    /// Moves users between them.
    fn move_users(&self, _: &MoveRequest) -> Result<MoveResult, MoveError> {
        Err(MoveError::NoSlices)
    }

    /// Has the sessions of a subscriber's UE moved to the UPF of this name (TS 23.502 4.3.5.3); what comes of it is seen in
    /// the status.
    fn relocate(&self, _supi: Supi, _to: &str) -> Result<(), RelocateError> {
        Err(RelocateError::NoCore)
    }

    /// Has a host of the cluster give its UEs to others and leave; what comes of it is seen in the status.
    fn drain(&self, _host: u16) -> Result<(), DrainError> {
        Err(DrainError::NoController)
    }

    /// Called every few seconds on the API's thread: brings metrics up to date that nobody counts as things happen.
    fn upkeep(&self) {}

    /// Called before the metrics are shown: brings those up to date that are quickly looked at.
    fn count(&self) {}
}

/// Why a host does not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// Not of a controller.
    #[error("hosts leave at the word of the controller: give the address of its API (--api)")]
    NoController,
    /// No such host.
    #[error("the map that holds has no such host: `vireo cluster status` shows those that there are")]
    NoHost,
}

/// Why the sessions of a UE are not moved to another UPF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelocateError {
    /// A UPF alone.
    #[error("sessions are moved between UPFs by the core that has them: give the address of its API (--api)")]
    NoCore,
    /// Another name.
    #[error("there is no UPF {name}: this core has {known}")]
    UnknownUpf {
        /// As it was named.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// No such UE.
    #[error("no such UE is known")]
    NoUe,
    /// The host does not answer.
    #[error("the core is too busy to take the order: try again")]
    Busy,
}

/// A host of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its number.
    pub host: u16,
    /// Where it takes other hosts' copies.
    pub address: String,
    /// Buckets that it owns, of 4,096.
    pub buckets: usize,
    /// Buckets of others that it keeps copies of.
    #[serde(default)]
    pub replicas: usize,
    /// The epoch that holds.
    pub epoch: u64,
}

/// A balancer of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancerStatus {
    /// Its number.
    pub balancer: u8,
    /// Where it takes hosts.
    pub address: String,
    /// Whether it is the one that talks to the UPFs.
    pub holds_n4: bool,
}

/// How the core is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of Vireo.
    pub version: String,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// How many of everything, whatever the lists hold.
    pub counts: Counts,
    /// gNBs with NG Setup done.
    pub gnbs: Vec<GnbStatus>,
    /// UEs with a context.
    pub ues: Vec<UeStatus>,
    /// The user plane functions.
    pub upfs: Vec<UpfStatus>,
    /// The worker processes.
    pub workers: Vec<WorkerStatus>,
    /// How long procedures of the last seconds took, by slice and kind.
    #[serde(default)]
    pub latencies: Vec<LatencyStatus>,
    /// Whether there is more to do than can be done.
    #[serde(default)]
    pub overload: OverloadStatus,
    /// Of a cluster's controller and balancers: the hosts of the map that holds.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
    /// And the balancers.
    #[serde(default)]
    pub balancers: Vec<BalancerStatus>,
    /// Of a cluster's host: UEs of other hosts that it has copies of.
    #[serde(default)]
    pub copies: usize,
}

/// How the core copes with what there is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverloadStatus {
    /// What is turned away: `normal` (nothing), `registrations`, `low-priority` or `others`.
    pub level: String,
    /// How full the room for what waits is, 0 to 1.
    pub fill: f64,
    /// First messages that were turned away since the start.
    pub refused: u64,
    /// How much less of it the RAN nodes are asked to let through, in percent, if they are (Overload Start).
    pub reduction_percent: Option<u8>,
}

/// Totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// gNBs with NG Setup done.
    pub gnbs: usize,
    /// UE contexts.
    pub ues: usize,
    /// UEs in 5GMM-REGISTERED.
    pub registered: usize,
    /// UEs in CM-CONNECTED.
    pub connected: usize,
    /// PDU sessions.
    pub sessions: usize,
}

/// A gNB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GnbStatus {
    /// RAN Node Name, empty if it told none.
    pub name: String,
    /// Global gNB ID as `PLMN-number`.
    pub id: String,
    /// The peer of its first association.
    pub address: String,
    /// How many SCTP associations it has.
    #[serde(default)]
    pub associations: usize,
    /// The TACs it supports, as decimal numbers.
    pub tacs: Vec<u32>,
    /// The S-NSSAIs it supports, as `SST` or `SST-SD`.
    pub slices: Vec<String>,
    /// UEs connected by it.
    pub ues: usize,
}

/// A UE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeStatus {
    /// SUPI, masked unless asked for; empty while it is not known.
    pub supi: String,
    /// 5G-TMSI in hexadecimal, empty if it has none.
    pub tmsi: String,
    /// `REGISTERED`, `REGISTERING` or `DEREGISTERED`.
    pub rm: String,
    /// `CONNECTED` or `IDLE`.
    pub cm: String,
    /// The tracking area it was last seen in, as `PLMN-TAC`.
    pub tai: String,
    /// The gNB that connects it, if one does.
    pub gnb: Option<String>,
    /// Its PDU sessions.
    pub sessions: Vec<SessionStatus>,
}

/// A PDU session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// PDU session identity.
    pub psi: u8,
    /// Data network name.
    pub dnn: String,
    /// S-NSSAI.
    pub snssai: String,
    /// The name of its slice.
    #[serde(default)]
    pub slice: String,
    /// IPv4 address of the UE.
    pub ipv4: Option<String>,
    /// IPv6 prefix of the UE.
    pub ipv6: Option<String>,
    /// `ACTIVE`, `INACTIVE` (no user plane), or what is under way.
    pub state: String,
    /// QoS flow identifier of the default flow.
    pub qfi: u8,
    /// The name of the UPF that it is at.
    #[serde(default)]
    pub upf: String,
    /// Whether it is on its way to another UPF, or the one before still has something of it.
    #[serde(default)]
    pub moves: bool,
}

/// A user plane function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpfStatus {
    /// Its name in the configuration.
    #[serde(default)]
    pub name: String,
    /// Node ID.
    pub node: String,
    /// Whether the PFCP association is up.
    pub associated: bool,
    /// PFCP sessions.
    pub sessions: u64,
    /// Packets forwarded from UEs.
    pub uplink_packets: u64,
    /// Octets forwarded from UEs, headers of the tunnel not counted.
    pub uplink_bytes: u64,
    /// Packets forwarded to UEs.
    pub downlink_packets: u64,
    /// Octets forwarded to UEs, headers of the tunnel not counted.
    pub downlink_bytes: u64,
    /// Packets dropped, whatever the reason.
    pub dropped_packets: u64,
    /// Data workers, processes of their own, that have died and were taken over from.
    #[serde(default)]
    pub takeovers: u64,
    /// The longest time from when a data worker's end was seen until the next one worked, in microseconds.
    #[serde(default)]
    pub longest_takeover_us: u64,
    /// Packets that died with data workers, at most.
    #[serde(default)]
    pub packets_died: u64,
}

/// A worker process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its number.
    pub number: u8,
    /// Its process.
    pub pid: u32,
    /// CPU time that it has used, in microseconds, as the kernel counts.
    #[serde(default)]
    pub cpu_us: u64,
    /// The NFs in it.
    pub nfs: Vec<NfStatus>,
}

/// A network function: what runs one kind of procedure of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NfStatus {
    /// Its number, of this NF alone as long as the core runs.
    pub id: u32,
    /// Its slice's name; empty for UEs whose slice is not known yet, and for a unified NF.
    pub slice: String,
    /// The kind of procedure, or `unified`.
    pub kind: String,
    /// `active` or `idle`.
    pub state: String,
    /// Procedures that wait or run.
    pub queue: u32,
    /// Its part of a core, 0 to 1.
    pub share: f64,
    /// Steps that it has done.
    pub processed: u64,
    /// Estimates beyond the latency objective.
    pub violations: u64,
    /// How long a procedure takes it with a core for itself, in microseconds, as measured.
    pub service_time_us: f64,
}

/// How long procedures took that have succeeded in the last 5 to 10 seconds, from the step of the first message to that of
/// the last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// The slice's name; empty for UEs whose slice is not known.
    pub slice: String,
    /// The kind of procedure.
    pub kind: String,
    /// The latency objective, in microseconds.
    pub slo_us: u64,
    /// How many there were.
    pub count: u64,
    /// How many of them took longer than the objective.
    pub violations: u64,
    /// What half of them took at most, in microseconds.
    pub p50_us: u64,
    /// What 99 of 100 took at most, in microseconds.
    pub p99_us: u64,
    /// How many there were since the start.
    pub total: u64,
    /// How many of these took longer than the objective.
    pub total_violations: u64,
}
