//! Messages between the two processes of a hot restart.

use crate::fleet::FleetSnapshot;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vireo_core::placement::cluster::DurableState;
use vireo_fabric::VERSION;
use vireo_n4 as n4;
use vireo_sctp::AssociationTable;
use vireo_types::AssocId;

/// Maximum wait of each process for the next message of the other.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// Version of the snapshot's format, raised with every change, and version of the fabric, whose
/// connections are transferred.
pub const FORMAT: (u16, u16) = (6, VERSION);

/// Message of the successor to the running process.
#[derive(Debug, Serialize, Deserialize)]
pub enum SuccessorMessage {
    TakeOver { format: (u16, u16) },
    Ready,
    Serving,
}

/// Message of the running process to the successor.
#[derive(Debug, Serialize, Deserialize)]
pub enum PredecessorMessage {
    Refused(String),
    /// Announces the number of sockets that follow. The snapshot comes after them.
    State {
        sockets: u32,
    },
    Commit,
}

/// State of a balancer.
#[derive(Debug, Serialize, Deserialize)]
pub struct BalancerSnapshot {
    /// Offset between this process's monotonic time and the machine's clock. The times in the
    /// snapshot need it.
    pub(super) clock: u64,
    pub(super) sctp: AssociationTable,
    /// State of S1's endpoint. If set, the sockets include its own.
    pub(super) s1: Option<AssociationTable>,
    /// Offset of the association IDs (`AssocIdMap`).
    pub(super) first: u32,
    pub(super) associations: Vec<AssociationSnapshot>,
    pub(super) n4: n4::N4Snapshot,
    /// True if the sockets include the API's listener.
    pub(super) api: bool,
    /// State of the embedded controller. If set, the sockets include its listener.
    pub(super) controller: Option<DurableState>,
    pub(super) fleet: FleetSnapshot,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AssociationSnapshot {
    pub(super) assoc: AssocId,
    pub(super) streams: u16,
    pub(super) unsent: Vec<(u16, Vec<u8>)>,
}
