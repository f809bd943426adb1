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
