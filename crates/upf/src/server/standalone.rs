//! Status interface of a UPF without a core, under an external control plane.

use crate::server::UpfHandle;
use std::sync::Arc;
use std::time::Instant;
use vireo_ops::api::{MoveError, MoveRequest, MoveResult, SlicesStatus, Status, StatusFilter, StatusSource, UpfStatus};
use vireo_types::{DeregistrationCause, Supi};

/// Status of one UPF, without subscribers.
#[derive(Debug)]
pub struct StandaloneStatus {
    upf: Arc<UpfHandle>,
    started: Instant,
}

impl StandaloneStatus {
    /// Creates the status of this UPF.
    pub fn new(upf: Arc<UpfHandle>) -> Self {
        StandaloneStatus { upf, started: Instant::now() }
    }
}

impl UpfHandle {
    /// Writes the counters into a status entry.
    pub fn fill_status(&self, entry: &mut UpfStatus) {
        let stats = self.stats();
        entry.sessions = stats.sessions as u64;
        entry.uplink_packets = stats.packets.uplink.packets;
        entry.uplink_bytes = stats.packets.uplink.octets;
        entry.downlink_packets = stats.packets.downlink.packets;
        entry.downlink_bytes = stats.packets.downlink.octets;
        entry.dropped_packets = stats.packets.drops.iter().sum();
        entry.takeovers = stats.takeovers.count;
        entry.longest_takeover_us = u64::try_from(stats.takeovers.longest.as_micros()).unwrap_or(u64::MAX);
        entry.packets_died = stats.takeovers.lost_at_most;
    }
}

impl StatusSource for StandaloneStatus {
    fn status(&self, _: &StatusFilter) -> Option<Status> {
        let associated = self.upf.stats().associations > 0;
        let mut entry = UpfStatus { node: self.upf.n4().to_string(), associated, ..UpfStatus::default() };
        self.upf.fill_status(&mut entry);
        Some(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            upfs: vec![entry],
            ..Status::default()
        })
    }

    fn slices(&self, counts: bool) -> SlicesStatus {
        self.upf.slices(counts)
    }

    fn move_users(&self, order: &MoveRequest) -> Result<MoveResult, MoveError> {
        self.upf.move_users(order)
    }

    fn upkeep(&self) {}

    fn deregister(&self, _: Supi, _: bool, _: Option<DeregistrationCause>) -> Option<bool> {
        Some(false)
    }
}
