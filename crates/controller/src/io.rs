//! Sockets of the controller: the output side of its machine.

use super::leader_store::LeaderStore;
use super::{ControllerSetup, LISTENER, WAKER};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use vireo_core::placement::ConnectionId;
use vireo_core::placement::cluster::machine::{Notice, Output};
use vireo_core::placement::cluster::{DurableState, Member, Rebalance, ScalingDecision};
use vireo_core::placement::message::{ToController, ToMember};
use vireo_fabric::Role;
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::stream::{Stream, to_displace};
use vireo_ops::clock::clock;
use vireo_types::{Duration, Instant};

/// Maximum number of reads from one connection before others are served.
const READS: usize = 16;
/// Fabric version from which on balancers receive lists of cordoned hosts.
const CORDONED_SINCE: u16 = 12;
/// Maximum time for which a closed connection may still send.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections of members, and the store of the maps.
#[derive(Debug)]
pub(super) struct ControllerIo<'a> {
    setup: &'a ControllerSetup,
    listener: TcpListener,
    pub(super) epoll: OwnedFd,
    /// The epoll token of a connection is its number.
    streams: BTreeMap<ConnectionId, Stream>,
    /// Deadline of each connection that the machine has closed and that still sends.
    closing: BTreeMap<ConnectionId, Instant>,
    next_connection: u64,
    /// Store of the maps; `None`: maps take effect at once.
    pub(super) store: Option<LeaderStore>,
}

impl<'a> ControllerIo<'a> {
    pub(super) fn new(
        setup: &'a ControllerSetup,
        listener: TcpListener,
        store: Option<LeaderStore>,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &setup.waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        tracing::info!(address = ?listener.local_addr().ok(), "controller accepts members");
        Ok(ControllerIo {
            setup,
            listener,
            epoll,
            streams: BTreeMap::new(),
            closing: BTreeMap::new(),
            next_connection: WAKER + 1,
            store,
        })
    }

    /// Accepts all waiting connections. Beyond `limit` each one displaces another one. Returns the
    /// accepted and the displaced connections.
    pub(super) fn accept(&mut self, limit: usize) -> [Vec<ConnectionId>; 2] {
        let [mut accepted, mut displaced] = [const { Vec::new() }; 2];
        while let Ok((socket, peer)) = self.listener.accept() {
            if self.streams.len() >= limit {
                tracing::warn!(%peer, "too many controller connections without a member");
                let strangers = self.streams.iter().map(|(connection, stream)| (*connection, stream));
                let Some(oldest) = to_displace(strangers) else { continue };
                self.remove(oldest);
                displaced.push(oldest);
            }
            let connection = ConnectionId(self.next_connection);
            self.next_connection += 1;
            let expected = &[Role::Host, Role::Balancer];
            let stream = Stream::accepted(socket, &self.setup.security, Role::Controller, expected);
            let stream = stream.and_then(|stream| {
                let data = epoll::EventData::new_u64(connection.0);
                epoll::add(&self.epoll, stream.fd(), data, epoll::EventFlags::IN)?;
                Ok(stream)
            });
            match stream {
                Ok(stream) => {
                    self.streams.insert(connection, stream);
                    accepted.push(connection);
                }
                Err(error) => tracing::warn!(%peer, %error, "member connection failed"),
            }
        }
        [accepted, displaced]
    }

    /// Reads and decodes messages of a connection, up to a limit.
    pub(super) fn read(
        &mut self,
        connection: ConnectionId,
        messages: &mut Vec<ToController>,
    ) -> Result<(), FrameError> {
        let Some(stream) = self.streams.get_mut(&connection) else { return Ok(()) };
        stream.set_readable(true);
        for _ in 0..READS {
            let filled = stream.fill();
            while let Some(octets) = stream.frame()? {
                messages.push(frame::decode(octets)?);
            }
            if filled? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns true if the role of a connection's peer permits a message.
    pub(super) fn permits(&self, connection: ConnectionId, message: &ToController) -> bool {
        let required = match message {
            ToController::JoinHost { .. } | ToController::HeartbeatOnly(Member::Host(_)) => Role::Host,
            ToController::JoinBalancer { .. } | ToController::HeartbeatOnly(Member::Balancer(_)) => Role::Balancer,
            _ => return true,
        };
        self.streams.get(&connection).and_then(Stream::role) == Some(required)
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, connection: ConnectionId) {
        self.closing.remove(&connection);
        if let Some(stream) = self.streams.remove(&connection) {
            let _ = epoll::delete(&self.epoll, stream.fd());
        }
    }

    /// Sends pending data, and ends closed connections. Returns the failed connections.
    pub(super) fn flush(&mut self) -> Vec<(ConnectionId, FrameError)> {
        let (mut ended, mut failed) = (Vec::new(), Vec::new());
        let now = clock();
        for (connection, stream) in &mut self.streams {
            match stream.flush_at(&self.epoll, connection.0) {
                Err(error) => failed.push((*connection, error)),
                Ok(()) => {
                    let deadline = self.closing.get(connection);
                    if deadline.is_some_and(|deadline| stream.unsent() == 0 || now >= *deadline) {
                        ended.push(*connection);
                    }
                }
            }
        }
        ended.into_iter().for_each(|connection| self.remove(connection));
        failed
    }

    fn peer(&self, connection: ConnectionId) -> Option<std::net::SocketAddr> {
        self.streams.get(&connection)?.peer()
    }
}

impl Output for ControllerIo<'_> {
    fn send(&mut self, connection: ConnectionId, message: &ToMember) {
        if let Some(stream) = self.streams.get_mut(&connection) {
            // An earlier release gets a heartbeat instead.
            let is_known = !matches!(message, ToMember::Cordoned(_)) || stream.version() >= CORDONED_SINCE;
            stream.put(if is_known { message } else { &ToMember::Heartbeat });
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        self.closing.insert(connection, clock() + CLOSE_TIMEOUT);
    }

    fn store(&mut self, state: DurableState) {
        if let Some(store) = &self.store {
            store.write(state);
        }
    }

    fn notify(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::Joined { connection, member, rejoined } => {
                tracing::info!(?member, rejoined, peer = ?self.peer(connection), "member joined");
            }
            Notice::JoinRefused { connection, reason } => {
                tracing::warn!(peer = ?self.peer(connection), reason = %reason, "join refused");
            }
            Notice::MachineSet { host, machine } => {
                tracing::info!(host = host.0, %machine, "host has a machine label");
                self.setup.show_machine(host, machine);
            }
            Notice::Ready(member) => tracing::info!(?member, "member ready"),
            Notice::Evicted { member, reason } => tracing::warn!(?member, reason = %reason, "member declared dead"),
            Notice::Violation { member, message } => {
                tracing::warn!(?member, ?message, "message not permitted for this member");
            }
            Notice::Draining(host) => tracing::info!(host = host.0, "draining host"),
            Notice::Cordoned { host, is_cordoned } => {
                tracing::info!(host = host.0, is_cordoned, "cordon changed");
            }
            Notice::Departed(host) => tracing::info!(host = host.0, "host drained"),
            Notice::Scaled(ScalingDecision::ScaleOut) => {
                tracing::info!("scaling out: serving hosts are overloaded");
            }
            Notice::Scaled(ScalingDecision::ScaleIn(host)) => {
                tracing::info!(host = host.0, "scaling in: draining host");
            }
            Notice::Rebalanced(Rebalance { mean, spread, weights }) => {
                let weights: Vec<String> =
                    weights.iter().map(|(host, weight)| format!("{}:{weight:.3}", host.0)).collect();
                let weights = weights.join(" ");
                tracing::info!(mean_cpu = mean, spread_cpu = spread, weights, "host weights changed by load");
                self.setup.metrics.rebalancing.rebalanced();
            }
            Notice::MapSent { map, idle, weights, machines } => {
                let (epoch, hosts, balancers) = (map.epoch(), map.hosts.len(), map.balancers.len());
                tracing::info!(epoch, hosts, idle, balancers, "cluster map adopted");
                self.setup.update_view(Some(map), machines.to_vec());
                self.setup.metrics.rebalancing.set_weights(weights.iter().map(|(host, weight)| (host.0, *weight)));
            }
        }
    }
}
