//! Snapshot of a balancer for a hot restart.

use super::BalancerMachine;
use super::connection::{Connection, ConnectionState, InProgress};
use super::liveness::Liveness;
use super::ran::RanState;
use super::routing::InputQueue;
use super::settings::Settings;
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::replica::{Claim, EffectDedup};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use vireo_types::Instant;

/// State of a [`BalancerMachine`] that its successor process needs. Hosts and the controller do not
/// notice the change.
///
/// It lacks the load of hosts, because these report it several times a second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    map: Option<ClusterMap>,
    connections: BTreeMap<ConnectionId, Connection>,
    lost: BTreeMap<HostId, InProgress>,
    liveness: Liveness,
    ran: RanState,
    upfs: BTreeMap<SocketAddr, bool>,
    queue: InputQueue,
    dedup: EffectDedup,
    claims: Vec<Claim>,
}

impl Snapshot {
    /// Returns the connections that the successor continues, in order.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.connections.keys().copied()
    }
}

impl BalancerMachine {
    /// Returns a snapshot.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        // A refused peer that is no host closes its connection itself. A removed host may not have
        // read the notification yet.
        let stays = |known: &Connection| known.state != ConnectionState::Refused || known.host.is_some();
        let connections = self.connections.iter().filter(|(_, known)| stays(known));
        Snapshot {
            map: self.map.clone(),
            connections: connections.map(|(connection, known)| (*connection, known.clone())).collect(),
            lost: self.lost.clone(),
            liveness: self.liveness.clone(),
            ran: self.ran.clone(),
            upfs: self.upfs.clone(),
            queue: self.queue.clone(),
            dedup: self.dedup.clone(),
            claims: self.claims.recent(now).collect(),
        }
    }

    /// Restores a balancer from a snapshot of its predecessor.
    pub fn resume(settings: Settings, snapshot: Snapshot, now: Instant) -> Self {
        let mut machine = BalancerMachine::new(settings, now);
        let Snapshot { map, connections, lost, liveness, ran, upfs, queue, dedup, claims } = snapshot;
        let serving = connections.iter().filter(|(_, known)| known.state == ConnectionState::Serving);
        machine.serving = serving.filter_map(|(connection, known)| Some((known.host?, *connection))).collect();
        machine.connections = connections;
        (machine.lost, machine.liveness, machine.ran) = (lost, liveness, ran);
        // The configuration decides which UPFs there are.
        for (upf, up) in upfs {
            machine.upfs.entry(upf).and_modify(|known| *known = up);
        }
        (machine.queue, machine.dedup) = (queue, dedup);
        machine.recall_all();
        for claim in claims {
            machine.claims.on_remote_claim(claim, now);
        }
        if let Some(map) = map {
            machine.steer_by(&map);
            machine.map = Some(map);
        }
        machine
    }
}
