//! Configuration and time of the state machine.

use crate::config::{DataSlice, LeanSlice, N3, Pool};
use crate::machine::control_planes::AssociationConfig;
use std::net::IpAddr;
use std::sync::Arc;
use vireo_types::{Duration, Instant};

/// Time as the state machine sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    /// Time of the datapath's clock.
    pub(crate) instant: Instant,
    /// Seconds since 1900-01-01, the time format of PFCP.
    pub(crate) ntp: u32,
}

/// Capacity of the session store.
pub(crate) trait CapacityCheck: std::fmt::Debug + Send + Sync {
    /// Returns true if an existing session could be stored with this size in bytes.
    fn has(&self, octets: usize) -> bool;
}

/// Configuration of the state machine.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The UPF's address on N4, for Node ID and F-SEID.
    pub(crate) address: IpAddr,
    /// The UPF's addresses on N3, one element for each module; at least one.
    pub(crate) n3: Vec<N3>,
    /// All addresses on N3. Tunnel ends that the control plane allocates have one of them.
    pub(crate) n3_addresses: Vec<IpAddr>,
    pub(crate) max_sessions: usize,
    pub(crate) pools: Vec<Pool>,
    /// Networks that may be behind UEs, in addition to the pools.
    pub(crate) framed: Vec<(IpAddr, u8)>,
    pub(crate) slices: Vec<DataSlice>,
    pub(crate) lean: Vec<LeanSlice>,
    pub(crate) response_time: Duration,
    pub(crate) attempts: u8,
    pub(crate) path_check: Option<Duration>,
    pub(crate) associations: AssociationConfig,
    /// Start of the UPF, in seconds since 1900: its Recovery Time Stamp.
    pub(crate) started: u32,
    /// Random seed of SEIDs and sequence numbers.
    pub(crate) seed: [u8; 32],
    /// Maximum size of a session's record in bytes, if there is one.
    pub(crate) record_octets: Option<usize>,
    /// Checked before each change of a session, if the store is bounded.
    pub(crate) room: Option<Arc<dyn CapacityCheck>>,
}

impl Settings {
    pub(super) fn heartbeat_interval(&self) -> Option<Duration> {
        self.associations.heartbeat_interval.map(Into::into)
    }

    /// Returns the module of a session. Sessions are assigned in turn.
    pub(crate) fn module(&self, seid: u64) -> usize {
        // the lower half of a SEID counts from 1
        (seid as u32).wrapping_sub(1) as usize % self.n3.len().max(1)
    }

    /// Returns the UPF's N3 addresses in a session's F-TEIDs.
    pub(crate) fn n3(&self, seid: u64) -> N3 {
        self.n3.get(self.module(seid)).copied().unwrap_or_default()
    }
}
