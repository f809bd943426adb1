//! Handle of the control side to change a running user plane.

use super::stats::StatsHandle;
use crate::drivers::udp::{WorkerSlowPath, send};
use crate::engine::counters::{DropReason, Stats};
use crate::engine::event::EventSink;
use crate::engine::pipeline::{self, PacketAction};
use crate::engine::tables::{Released, Tables};
use crate::os_setup::host_routes::HostRoutes;
use crate::sys::clock::Clock;
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use std::net::IpAddr;
use std::sync::Arc;
use tracing::warn;
use vireo_types::SessionAddress;

/// Handle to change the tables of a running user plane from any thread.
#[derive(Clone)]
pub struct TablesHandle {
    pub(super) stats: StatsHandle,
    /// Sockets of the first worker, for datagrams that changes release.
    pub(super) sockets: Arc<[Socket]>,
    tun: Arc<Tun>,
    routes: Option<Arc<HostRoutes>>,
    events: EventSink,
}

impl std::fmt::Debug for TablesHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TablesHandle").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl TablesHandle {
    pub(super) fn new(
        stats: StatsHandle,
        sockets: Arc<[Socket]>,
        tun: Tun,
        routes: Option<Arc<HostRoutes>>,
        events: EventSink,
    ) -> Self {
        TablesHandle { stats, sockets, tun: Arc::new(tun), routes, events }
    }

    /// Adds the host routes of a UE to this user plane if `present` is true, otherwise removes
    /// them. Does nothing without host routes.
    pub fn set_host_route(&self, ue: SessionAddress, present: bool) {
        if let Some(routes) = &self.routes {
            routes.set(ue, present);
        }
    }

    /// Calls `read` with the locked tables.
    pub fn read<R>(&self, read: impl FnOnce(&Tables) -> R) -> R {
        self.stats.read(read)
    }

    /// Changes the tables. Sends the output of the change before any later packet.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        let mut stats = Stats::default();
        let result = self.stats.tables.change_and_classify(change, |tables, released| {
            for (to, datagram) in &released.datagrams {
                if !send(&self.sockets, released.sources, *to, datagram) {
                    stats.drop(DropReason::N3Send);
                }
            }
            stats.drops[DropReason::Action as usize] += released.dropped;
            self.pass_held(tables, released, &mut stats);
        });
        self.stats.counters.total.flush(&mut stats);
        result
    }

    /// Classifies the datagrams that were held until their sender was known.
    fn pass_held(&self, tables: &Tables, released: &mut Released, stats: &mut Stats) {
        let now = Clock::default().now();
        for held in released.take_uplinks() {
            let datagram = held.received();
            let own = self.sockets.iter().find(|socket| socket.local == datagram.local);
            let mut output = WorkerSlowPath { own, sockets: &self.sockets, events: &self.events };
            match pipeline::uplink(tables, datagram, now, stats, &mut output) {
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
