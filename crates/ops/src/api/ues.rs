//! Look-up of UEs by identity, address or RAN node, and pages of all UEs.

use super::status::UeStatus;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use vireo_types::Supi;

/// Maximum of UEs in one page.
pub const UE_PAGE: usize = 1000;

/// Selection of UEs. Each but [`UeSelector::State`] uses an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UeSelector {
    All,
    /// The packed SUPI (`Supi::as_u64`).
    Supi(u64),
    /// 5G-TMSI or M-TMSI.
    Tmsi(u32),
    /// IPv4 address of a session, or an address in its IPv6 prefix.
    Address(IpAddr),
    /// UEs that are connected by this RAN node, by its ID as in the status.
    RanNode(String),
    /// UEs in a state. A page examines a bounded number of UEs, so it may have few or none.
    State(UeState),
    /// UEs whose registration or number of sessions has changed since the last query of this kind.
    /// The first query begins the observation, which ends some seconds after the last one. The
    /// total counts further changes too.
    Changed,
}

/// What has changed of a UE, for [`UeSelector::Changed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeChange {
    pub registration: bool,
    pub sessions: bool,
}

impl UeSelector {
    /// Selects the UE of a subscriber.
    pub fn supi(supi: Supi) -> Self {
        UeSelector::Supi(supi.as_u64())
    }
}

/// State of a UE as a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UeState {
    Registered,
    Registering,
    Deregistered,
    Connected,
    Idle,
}

impl UeState {
    /// Returns true if a UE is in the state.
    pub fn fits(self, ue: &UeStatus) -> bool {
        match self {
            UeState::Registered => ue.rm == "REGISTERED",
            UeState::Registering => ue.rm == "REGISTERING",
            UeState::Deregistered => ue.rm == "DEREGISTERED",
            UeState::Connected => ue.cm == "CONNECTED",
            UeState::Idle => ue.cm == "IDLE",
        }
    }
}

/// Request for a page of UEs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeQuery {
    pub select: UeSelector,
    /// Position after which the page starts, from [`UePage::next`].
    pub after: Option<u64>,
    /// Maximum of UEs, at most [`UE_PAGE`].
    pub limit: usize,
    /// If true, SUPIs are not masked.
    pub reveal_supi: bool,
}

/// A page of UEs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UePage {
    pub ues: Vec<UeStatus>,
    /// Position of the next page, if there may be more UEs.
    pub next: Option<u64>,
    /// Number of UEs of the selection, where it is known without a scan.
    pub total: Option<usize>,
    /// The change of each UE, for [`UeSelector::Changed`]; else empty.
    pub changes: Vec<UeChange>,
}

/// Use of an address pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    pub dnn: String,
    /// Network and prefix length.
    pub cidr: String,
    /// Addresses, or prefixes of 64 bits, that sessions have.
    pub used: u64,
    /// Addresses or prefixes of the pool.
    pub size: u64,
}
