//! The core in one answer, and the requests for it.

use crate::page::MAX_LIMIT;
use serde::Serialize;
use utoipa::ToSchema;
use vireo_ops::api::{GnbStatus, LatencyStatus, Status, StatusFilter, StatusSource, UpfStatus};

/// The core at a glance.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Overview {
    /// UEs in the state registered.
    registered: usize,
    /// UEs with a connection to the RAN.
    connected: usize,
    /// UEs with a context.
    ues: usize,
    sessions: usize,
    ran_nodes: usize,
    uptime_s: u64,
    /// Procedures that completed in the last second.
    procedures_per_second: f64,
    latencies: Vec<Latency>,
    user_plane: Traffic,
    /// Hosts of the cluster, or shards of the core; 1 without either.
    hosts: usize,
    alarms: AlarmCounts,
}

/// Active alarms by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AlarmCounts {
    pub(crate) critical: usize,
    pub(crate) major: usize,
    pub(crate) minor: usize,
    pub(crate) warning: usize,
}

/// Latency of a kind of procedure in a slice in the last 5 to 10 seconds.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Latency {
    /// Empty for UEs whose slice is not known.
    slice: String,
    procedure: String,
    /// Procedures in the interval.
    count: u64,
    p50_us: u64,
    p99_us: u64,
    objective_us: u64,
    /// Part of the procedures that were later than the objective, 0 to 1.
    late_ratio: f64,
}

impl From<&LatencyStatus> for Latency {
    fn from(status: &LatencyStatus) -> Self {
        let late_ratio = if status.count == 0 { 0.0 } else { status.violations as f64 / status.count as f64 };
        let (slice, procedure) = (status.slice.clone(), status.kind.clone());
        let (count, p50_us, p99_us) = (status.count, status.p50_us, status.p99_us);
        Latency { slice, procedure, count, p50_us, p99_us, objective_us: status.slo_us, late_ratio }
    }
}

/// Traffic since the start of the user plane.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Traffic {
    pub(crate) uplink_packets: u64,
    pub(crate) uplink_octets: u64,
    pub(crate) downlink_packets: u64,
    pub(crate) downlink_octets: u64,
    pub(crate) dropped_packets: u64,
}

impl Traffic {
    pub(crate) fn from_upf(upf: &UpfStatus) -> Self {
        Traffic {
            uplink_packets: upf.uplink_packets,
            uplink_octets: upf.uplink_bytes,
            downlink_packets: upf.downlink_packets,
            downlink_octets: upf.downlink_bytes,
            dropped_packets: upf.dropped_packets,
        }
    }

    fn plus(self, other: Self) -> Self {
        Traffic {
            uplink_packets: self.uplink_packets + other.uplink_packets,
            uplink_octets: self.uplink_octets + other.uplink_octets,
            downlink_packets: self.downlink_packets + other.downlink_packets,
            downlink_octets: self.downlink_octets + other.downlink_octets,
            dropped_packets: self.dropped_packets + other.dropped_packets,
        }
    }
}

impl Overview {
    /// Creates the overview of a status.
    pub(crate) fn new(status: &Status, procedures_per_second: f64, alarms: AlarmCounts) -> Self {
        Overview {
            registered: status.counts.registered,
            connected: status.counts.connected,
            ues: status.counts.ues,
            sessions: status.counts.sessions,
            ran_nodes: status.counts.gnbs,
            uptime_s: status.uptime_s,
            procedures_per_second,
            latencies: status.latencies.iter().map(Latency::from).collect(),
            user_plane: status.upfs.iter().map(Traffic::from_upf).fold(Traffic::default(), Traffic::plus),
            hosts: status.hosts.len().max(status.shards.len()).max(1),
            alarms,
        }
    }
}

/// Filter for a status without lists.
pub(crate) fn without_lists() -> StatusFilter {
    StatusFilter { limit: 0, ues: false, ..StatusFilter::default() }
}

/// Reads all RAN nodes; `None` if the core does not answer in time.
pub(crate) fn all_ran_nodes(source: &dyn StatusSource) -> Option<Vec<GnbStatus>> {
    let mut nodes = Vec::new();
    loop {
        let filter = StatusFilter { offset: nodes.len(), limit: MAX_LIMIT, ues: false, ..StatusFilter::default() };
        let page = source.status(&filter)?;
        let (count, total) = (page.gnbs.len(), page.counts.gnbs);
        nodes.extend(page.gnbs);
        if count == 0 || nodes.len() >= total {
            return Some(nodes);
        }
    }
}
