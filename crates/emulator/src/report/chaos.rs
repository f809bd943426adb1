//! Result of a run with faults.

use serde::Serialize;
use std::net::Ipv4Addr;

/// What happened in a run with faults.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChaosReport {
    /// NAS messages lost, and sent twice.
    pub messages_lost: u64,
    pub messages_repeated: u64,
    pub restarts: u64,
    /// UEs whose last procedure, without faults, did not complete.
    pub unsettled: u64,
    pub ues: Vec<UeAtEnd>,
}

impl ChaosReport {
    pub(crate) fn add(&mut self, other: &ChaosReport) {
        self.messages_lost += other.messages_lost;
        self.messages_repeated += other.messages_repeated;
        self.restarts += other.restarts;
        self.unsettled += other.unsettled;
        self.ues.extend_from_slice(&other.ues);
    }
}

/// State of a UE at the end of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UeAtEnd {
    pub supi: String,
    /// True if the UE is registered; it is idle then.
    pub registered: bool,
    /// The 5G-TMSI, in EPS the M-TMSI.
    pub tmsi: Option<u32>,
    /// Active sessions, by PDU session identity or EPS bearer identity.
    pub sessions: Vec<SessionAtEnd>,
}

/// Session of a UE at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SessionAtEnd {
    pub id: u8,
    pub ipv4: Option<Ipv4Addr>,
}
