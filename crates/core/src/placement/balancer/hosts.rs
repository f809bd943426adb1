//! Hosts that join, are lost, and are removed by a map.

use super::BalancerMachine;
use super::connection::{ConnectionState, InProgress};
use super::output::{CloseReason, Notice, Output};
use super::serving::for_owner;
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{BalancerNotice, Envelope, PeerEvent, Receiver, ToHost};
use std::borrow::Cow;
use vireo_types::Instant;

/// Reason sent to a host that connects a second time.
const CONNECTED_BEFORE: &str = "it was connected before: the controller decides who goes";

impl BalancerMachine {
    /// Handles the host ID that a new connection sends.
    pub(super) fn on_host_hello(
        &mut self,
        connection: ConnectionId,
        host: HostId,
        now: Instant,
        output: &mut dyn Output,
    ) {
        let Some(known) = self.connections.get_mut(&connection).filter(|known| known.host.is_none()) else { return };
        if self.lost.contains_key(&host) || self.serving.contains_key(&host) {
            // Inputs of the other connection may not have arrived.
            output.send(connection, &ToHost::Refused(CONNECTED_BEFORE.into()));
            known.state = ConnectionState::Refused;
            return;
        }
        known.host = Some(host);
        // A host that no known map contains waits until it or the controller sends a newer map.
        if self.map.as_ref().is_some_and(|map| map.has_host(host)) {
            self.welcome(connection, now, output);
        }
    }

    /// Starts to serve a host of the map: sends the map, RAN nodes, UPFs and recent claims.
    fn welcome(&mut self, connection: ConnectionId, now: Instant, output: &mut dyn Output) {
        let known = self.connections.get_mut(&connection);
        let Some(known) = known.filter(|known| known.state == ConnectionState::Unidentified) else { return };
        let Some(host) = known.host else { return };
        known.state = ConnectionState::Serving;
        if let Some(map) = &self.map {
            output.send(connection, &ToHost::Map(Box::new(map.clone())));
        }
        if !self.settings.endpoints.is_empty() {
            let endpoints = BalancerNotice::Endpoints(self.settings.endpoints.clone());
            output.send(connection, &ToHost::Notice(endpoints));
        }
        self.ran.send_all(connection, output);
        // A balancer that is not active on N4 has no associated UPFs.
        for (upf, _) in self.upfs.iter().filter(|(_, up)| **up) {
            let envelope = Envelope::new(PeerEvent::Upf { upf: *upf, up: true });
            output.send(connection, &ToHost::Event(Cow::Owned(envelope)));
        }
        for claim in self.claims.recent(now) {
            output.send(connection, &ToHost::Notice(BalancerNotice::Claimed(claim)));
        }
        self.serving.insert(host, connection);
        self.liveness.on_connected(host);
        output.notify(Notice::HostConnected(host));
    }

    /// Removes a connection. If it was a host's, reports that to the controller; the host's buckets
    /// have no owner until the next map.
    pub(super) fn on_disconnect(&mut self, connection: ConnectionId, output: &mut dyn Output) {
        let Some(known) = self.connections.remove(&connection) else { return };
        let Some(host) = known.host.filter(|host| self.serving.get(host) == Some(&connection)) else { return };
        self.serving.remove(&host);
        self.lost.insert(host, known.in_progress);
        self.report_silent_hosts(output);
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, connection: ConnectionId, reason: CloseReason, output: &mut dyn Output) {
        output.close(connection, reason);
        self.on_disconnect(connection, output);
    }

    /// Adopts the map of a new epoch. Fences hosts that it lacks, and queues their unfinished
    /// inputs for redelivery.
    pub(super) fn adopt(&mut self, map: ClusterMap, now: Instant, output: &mut dyn Output) {
        let old = self.map.as_ref();
        if !map.buckets.is_complete() || old.is_some_and(|old| old.epoch() >= map.epoch()) {
            return;
        }
        if !map.has_balancer(self.settings.balancer) {
            // Maps are ignored until one contains this balancer.
            if old.is_some() {
                output.notify(Notice::Fenced { epoch: map.epoch() });
            }
            return;
        }
        // A drained host has finished all inputs of its UEs.
        let owned = |host: HostId| old.is_some_and(|old| old.buckets.buckets_owned_by(host).next().is_some());
        let hosts = old.iter().flat_map(|old| &old.hosts).map(|(host, _)| *host);
        let removed: Vec<(HostId, bool)> =
            hosts.filter(|host| !map.has_host(*host)).map(|host| (host, owned(host))).collect();
        let mut unfinished = Vec::new();
        for (host, owned) in &removed {
            let InProgress { inputs, effects } = self.fence(*host, &map, now, output);
            self.dedup.add(effects, now);
            let inputs = inputs.into_unfinished(now).into_iter().map(|(_, envelope)| envelope);
            unfinished
                .extend(inputs.filter(|envelope| *owned || envelope.receiver == Receiver::ServingHost).map(for_owner));
            self.steering.forget(*host);
            self.serving_hosts.forget(*host);
        }
        unfinished.sort_by_key(|envelope: &Envelope| envelope.number);
        self.set_map(map, output);
        if let Some(map) = &self.map {
            output.notify(Notice::MapAdopted { map, removed: removed.len(), unfinished: unfinished.len() });
        }
        self.welcome_hosts_of_map(now, output);
        // Unfinished inputs precede all later ones.
        for input in unfinished.into_iter().rev() {
            self.queue.redelivery.push_front(input);
        }
        let map = self.map.as_ref();
        let setups = self.ran.take_setups(|host| map.is_none_or(|map| !map.has_host(host)));
        self.queue.redelivery.extend(setups);
        self.deliver(now, output);
    }

    /// Makes a map current and sends it to all hosts: later messages follow it.
    fn set_map(&mut self, map: ClusterMap, output: &mut dyn Output) {
        self.steer_by(&map);
        let message = ToHost::Map(Box::new(map));
        self.send_to_others(None, &message, output);
        if let ToHost::Map(map) = message {
            self.map = Some(*map);
        }
    }

    fn welcome_hosts_of_map(&mut self, now: Instant, output: &mut dyn Output) {
        let Some(map) = &self.map else { return };
        let unidentified = self.connections.iter().filter(|(_, known)| known.state == ConnectionState::Unidentified);
        let joined = unidentified.filter(|(_, known)| known.host.is_some_and(|host| map.has_host(host)));
        let joined: Vec<ConnectionId> = joined.map(|(connection, _)| *connection).collect();
        joined.into_iter().for_each(|connection| self.welcome(connection, now, output));
    }

    /// Steers new UEs to the hosts that neither drain nor are cordoned. Without such hosts they go
    /// to cordoned ones, and at last to draining ones.
    pub(super) fn steer_by(&mut self, map: &ClusterMap) {
        let rank = |host: &HostId| (map.leaving.contains(host), self.cordoned.contains(host));
        let best = map.hosts.iter().map(|(host, _)| rank(host)).min();
        let all = map.hosts.iter().map(|(host, _)| *host);
        let (hosts, excluded) = all.partition(|host| Some(rank(host)) == best);
        self.steering.set_hosts(hosts, excluded, self.settings.prefer);
    }

    /// Handles the hosts that receive no new UEs.
    pub(super) fn set_cordoned(&mut self, hosts: Vec<HostId>) {
        if self.cordoned == hosts {
            return;
        }
        self.cordoned = hosts;
        if let Some(map) = self.map.take() {
            self.steer_by(&map);
            self.map = Some(map);
        }
    }

    /// Fences a host that the next map lacks. Returns its inputs in flight and its recent effects.
    ///
    /// The host may be alive. Until other hosts have the map, they accept its copies. So its
    /// connection stays open: otherwise the host would take this balancer for dead and end its UEs'
    /// procedures.
    fn fence(&mut self, host: HostId, map: &ClusterMap, now: Instant, output: &mut dyn Output) -> InProgress {
        self.liveness.forget(host);
        let before = self.lost.remove(&host);
        let Some(connection) = self.serving.remove(&host) else { return before.unwrap_or_default() };
        let Some(known) = self.connections.get_mut(&connection) else { return before.unwrap_or_default() };
        // A live host learns from the map that it has been removed.
        output.send(connection, &ToHost::Map(Box::new(map.clone())));
        (known.state, known.since) = (ConnectionState::Refused, now);
        std::mem::take(&mut known.in_progress)
    }
}
