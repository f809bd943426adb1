//! Silent hosts: missed heartbeats and their report to the controller.

use super::BalancerMachine;
use super::connection::ConnectionState;
use super::output::{CloseReason, Notice, Output};
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::message::{ToController, ToHost};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use vireo_types::{Duration, Instant};

/// Maximum lifetime of a connection from a peer that is no host of the map.
const UNIDENTIFIED_TIMEOUT: Duration = Duration::from_secs(5);
/// Factor of the failure timeout for a host of a new map that has not connected yet.
const CONNECT_FACTOR: u32 = 5;

/// Missed heartbeats of hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Liveness {
    /// Number of consecutive checks without a message, for each silent host of the map.
    misses: BTreeMap<HostId, u32>,
    /// True if the last report to the controller contained silent hosts.
    has_reported: bool,
    pub(super) is_isolated: bool,
}

impl Liveness {
    pub(super) fn on_connected(&mut self, host: HostId) {
        self.misses.remove(&host);
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.misses.remove(&host);
    }

    fn miss(&mut self, host: HostId) {
        *self.misses.entry(host).or_default() += 1;
    }
}

impl BalancerMachine {
    /// Sends heartbeats, counts missed ones of hosts, and closes overdue unidentified connections.
    ///
    /// A balancer that was itself delayed is called once, after it has read all messages, so that
    /// its delay counts against no host.
    pub(super) fn on_tick(&mut self, controller_silent: bool, now: Instant, output: &mut dyn Output) {
        for connection in self.check_connections(now, output) {
            self.close(connection, CloseReason::NoHost, output);
        }
        self.dedup.forget(now);
        if let Some(map) = &self.map {
            for (host, _) in map.hosts.iter().filter(|(host, _)| !self.serving.contains_key(host)) {
                self.liveness.miss(*host);
            }
            let is_isolated = controller_silent && !self.is_alone() && self.are_all_hosts_silent();
            if is_isolated && !self.liveness.is_isolated {
                output.notify(Notice::Isolated);
            }
            self.liveness.is_isolated = is_isolated;
            self.report_silent_hosts(output);
        }
        let violations = std::mem::take(&mut self.steering.violations);
        if violations > 0 {
            output.send_controller(&ToController::Violations(violations));
        }
        self.deliver(now, output);
    }

    /// Checks all connections and returns the overdue ones.
    fn check_connections(&mut self, now: Instant, output: &mut dyn Output) -> Vec<ConnectionId> {
        let mut overdue = Vec::new();
        let beats = self.connections.values_mut().filter(|known| known.state == ConnectionState::HeartbeatOnly);
        let beats = beats.filter_map(|known| known.host.filter(|_| std::mem::take(&mut known.has_received)));
        let beats: BTreeSet<HostId> = beats.collect();
        for (connection, known) in &mut self.connections {
            output.send(*connection, &ToHost::Heartbeat);
            let received =
                std::mem::take(&mut known.has_received) || known.host.is_some_and(|host| beats.contains(&host));
            match (known.state, known.host) {
                (ConnectionState::HeartbeatOnly, Some(host)) if self.serving.contains_key(&host) => known.since = now,
                (ConnectionState::Serving, Some(host)) if !received => self.liveness.miss(host),
                (ConnectionState::Serving, Some(host)) => self.liveness.forget(host),
                _ if now.since(known.since) > UNIDENTIFIED_TIMEOUT => overdue.push(*connection),
                _ => {}
            }
        }
        overdue
    }

    /// Returns true if all hosts of the map are silent. A host that has ended its connection may
    /// have a map without this balancer.
    fn are_all_hosts_silent(&self) -> bool {
        let limit = self.settings.misses.max(1);
        let is_silent = |host: &HostId| match self.serving.contains_key(host) {
            true => self.liveness.misses.get(host).is_some_and(|misses| *misses >= limit),
            false => self.lost.contains_key(host),
        };
        self.map.as_ref().is_some_and(|map| map.hosts.iter().all(|(host, _)| is_silent(host)))
    }

    /// Returns the hosts of the map that are silent for the failure timeout or lost.
    pub fn silent_hosts(&self) -> Vec<HostId> {
        let limit = self.settings.misses.max(1);
        // A host that is new in the map, or whose heartbeat connection is missing, may need longer
        // to connect.
        let beating = self.connections.values().filter(|known| known.state == ConnectionState::HeartbeatOnly);
        let beating: BTreeSet<HostId> = beating.filter_map(|known| known.host).collect();
        let is_connected = |host: &HostId| self.serving.contains_key(host) && beating.contains(host);
        let limit = |host: &HostId| if is_connected(host) { limit } else { limit * CONNECT_FACTOR };
        let silent = self.liveness.misses.iter().filter(|(host, misses)| **misses >= limit(host));
        let silent: BTreeSet<HostId> = silent.map(|(host, _)| *host).chain(self.lost.keys().copied()).collect();
        silent.into_iter().collect()
    }

    /// Reports the silent hosts to the controller. Sends an empty report once after a non-empty
    /// one.
    pub(super) fn report_silent_hosts(&mut self, output: &mut dyn Output) {
        let silent = self.silent_hosts();
        let reports = !silent.is_empty();
        if reports || self.liveness.has_reported {
            output.send_controller(&ToController::SilentHosts(silent));
            self.liveness.has_reported = reports;
        }
    }
}
