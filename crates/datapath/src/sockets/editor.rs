//! Handle of the control side to change a running user plane.

use super::{Clock, EventSink, StatsHandle, WorkerSlowPath, send};
use crate::counters::{DropReason, Stats};
use crate::host_routes::HostRoutes;
use crate::pipeline::{self, PacketAction};
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use crate::tables::{Released, Tables};
use std::net::IpAddr;
use std::sync::Arc;
use tracing::warn;
use vireo_types::SessionAddress;

/// Handle to change the tables of a running user plane from any thread.
#[derive(Clone)]
pub struct TablesHandle {
    pub(super) view: StatsHandle,
    /// Sockets of the first worker, for datagrams that changes release.
    pub(super) sockets: Arc<[Socket]>,
    tun: Arc<Tun>,
    routes: Option<Arc<HostRoutes>>,
    events: EventSink,
}

impl std::fmt::Debug for TablesHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Editor").field("view", &self.view).finish_non_exhaustive()
    }
}

impl TablesHandle {
    pub(super) fn new(
        view: StatsHandle,
        (sockets, tun): (Arc<[Socket]>, Tun),
        routes: Option<Arc<HostRoutes>>,
        events: EventSink,
    ) -> Self {
        TablesHandle { view, sockets, tun: Arc::new(tun), routes, events }
    }

    /// Adds the host routes of a UE to this user plane if `here` is true, otherwise removes them.
    /// Does nothing without host routes.
    pub fn set_host_route(&self, ue: SessionAddress, here: bool) {
        if let Some(routes) = &self.routes {
            routes.set(ue, here);
        }
    }

    /// Calls `look` with the locked tables.
    pub fn look<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        self.view.look(look)
    }

    /// Changes the tables. Sends the output of the change before any later packet.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        let mut stats = Stats::default();
        let result = self.view.tables.change_and_decide(change, |tables, released| {
            for (to, datagram) in &released.datagrams {
                if !send(&self.sockets, released.sources, *to, datagram) {
                    stats.drop(DropReason::N3Send);
                }
            }
            stats.drops[DropReason::Action as usize] += released.dropped;
            self.pass_held(tables, released, &mut stats);
        });
        self.view.counters.flush(&mut stats);
        result
    }

    /// Classifies the datagrams that were held until their sender was known.
    fn pass_held(&self, tables: &Tables, released: &mut Released, stats: &mut Stats) {
        let now = Clock::default().now();
        for held in released.take_uplinks() {
            let own = self.sockets.iter().find(|socket| socket.local == held.local);
            let mut rare = WorkerSlowPath { own, sockets: &self.sockets, events: &self.events };
            match pipeline::uplink(tables, held.from, held.local, &held.datagram, now, stats, &mut rare) {
                PacketAction::Send(packet) => match self.tun.write(packet) {
                    Ok(()) => stats.uplink.add(packet.len()),
                    Err(_) => stats.drop(DropReason::N6Send),
                },
                // Not reached for punts: the tables classify every packet.
                PacketAction::Done | PacketAction::Punt => {}
            }
        }
    }

    /// Logs that packets were dropped because no control plane has named their senders, with one
    /// line per round. Returns the number of packets.
    pub(super) fn note_unknown(&self, expired: &[(IpAddr, u64)]) -> u64 {
        let packets = expired.iter().map(|(_, packets)| packets).sum();
        if let Some((peer, _)) = expired.first() {
            warn!(
                %peer,
                peers = expired.len(),
                packets,
                "G-PDUs from unknown addresses dropped; add an address to upf.n3-allow if a RAN node sends from there"
            );
        }
        packets
    }
}
