//! Sockets of a fleet: the output side of the balancer machine.

use super::choice_trace::ChoiceTrace;
use super::view::FleetView;
use rustix::event::epoll;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vireo_cluster::{ControllerClient, LinkError, member_status, note_dead_hosts};
use vireo_core::placement::ConnectionId;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balancer::{CloseReason, Notice, Output};
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::message::{RanOutput, ToController, ToHost};
use vireo_fabric::stream::{Stream, to_displace};
use vireo_fabric::{Role, Security};
use vireo_ops::metrics::{Flow, Metrics, ServedBy};

/// Maximum of unsent bytes of a host that does not read. Beyond it, the balancer stops reading from
/// the RAN.
const MAX_UNSENT_BYTES: usize = 8 << 20;

/// Command of a host that the balancer executes in order.
#[derive(Debug)]
pub(crate) enum HostCommand {
    Output(RanOutput),
    /// Confirm that all earlier commands are executed.
    Barrier {
        /// Host that waits for the confirmation.
        host: HostId,
        /// Number of the barrier.
        number: u64,
    },
}

/// Connections of hosts and the controller, and commands of hosts.
#[derive(Debug)]
pub(super) struct FleetIo {
    pub(super) controller: ControllerClient,
    pub(super) security: Security,
    pub(super) listener: TcpListener,
    pub(super) epoll: OwnedFd,
    /// The epoll token of a connection is its number.
    pub(super) streams: BTreeMap<ConnectionId, Stream>,
    /// Number of the next connection.
    pub(super) next_connection: u64,
    /// Commands of hosts that the balancer has not executed yet.
    pub(super) commands: VecDeque<HostCommand>,
    /// Reason why the cluster has removed this balancer, if it has.
    pub(super) exit_reason: Option<LinkError>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) choices: Option<ChoiceTrace>,
    pub(super) view: FleetView,
}

impl FleetIo {
    /// Adds an accepted or resumed connection.
    pub(super) fn add(&mut self, connection: ConnectionId, stream: Stream) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(connection.0);
        epoll::add(&self.epoll, stream.fd(), data, epoll::EventFlags::IN)?;
        self.streams.insert(connection, stream);
        Ok(())
    }

    /// Accepts all waiting connections. Beyond `limit` each one displaces another one. Returns the
    /// accepted and the displaced connections.
    pub(super) fn accept(&mut self, limit: usize) -> [Vec<ConnectionId>; 2] {
        let [mut accepted, mut displaced] = [const { Vec::new() }; 2];
        while let Ok((socket, peer)) = self.listener.accept() {
            if self.streams.len() >= limit {
                tracing::warn!(%peer, "too many fabric connections without a host of the cluster");
                let strangers = self.streams.iter().map(|(connection, stream)| (*connection, stream));
                let Some(oldest) = to_displace(strangers) else { continue };
                self.remove(oldest);
                displaced.push(oldest);
            }
            let connection = ConnectionId(self.next_connection);
            self.next_connection += 1;
            let stream = Stream::accepted(socket, &self.security, Role::Balancer, &[Role::Host]);
            match stream.and_then(|stream| self.add(connection, stream)) {
                Ok(()) => accepted.push(connection),
                Err(error) => tracing::warn!(%peer, %error, "fabric connection failed"),
            }
        }
        [accepted, displaced]
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, connection: ConnectionId) {
        if let Some(stream) = self.streams.remove(&connection) {
            let _ = epoll::delete(&self.epoll, stream.fd());
        }
    }

    /// Publishes the members of a map.
    pub(super) fn show_members(&self, map: Option<&ClusterMap>) {
        // The lock is never poisoned: no code under it panics.
        if let (Some(map), Ok(mut view)) = (map, self.view.lock()) {
            let view = &mut *view;
            note_dead_hosts(&mut view.dead_hosts, &view.hosts, map);
            (view.hosts, view.balancers) = member_status(map, &BTreeMap::new());
        }
    }

    /// Publishes the state of the UPFs.
    pub(super) fn show_upfs(&self, upfs: impl Iterator<Item = (SocketAddr, bool)>) {
        if let Ok(mut view) = self.view.lock() {
            view.upfs = upfs.collect();
        }
    }
}

impl Output for FleetIo {
    fn has_room(&self, connection: ConnectionId) -> bool {
        self.streams.get(&connection).is_none_or(|stream| stream.unsent() <= MAX_UNSENT_BYTES)
    }

    fn send(&mut self, connection: ConnectionId, message: &ToHost<'_>) {
        if let Some(stream) = self.streams.get_mut(&connection) {
            stream.put(message);
        }
    }

    fn send_controller(&mut self, message: &ToController) {
        self.controller.put(message);
    }

    fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        tracing::debug!(%reason, "fabric connection ended");
        self.remove(connection);
    }

    fn execute(&mut self, _: HostId, output: RanOutput) {
        self.commands.push_back(HostCommand::Output(output));
    }

    fn reach_barrier(&mut self, host: HostId, number: u64) {
        self.commands.push_back(HostCommand::Barrier { host, number });
    }

    fn notify(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::HostConnected(host) => tracing::info!(host = host.0, "host connected"),
            Notice::MapAdopted { map, removed, unfinished } => {
                self.show_members(Some(map));
                self.controller.set_map(map);
                let (epoch, hosts) = (map.epoch(), map.hosts.len());
                tracing::info!(epoch, hosts, removed, unfinished, "cluster map adopted");
            }
            Notice::Fenced { epoch } => self.exit_reason = Some(LinkError::Fenced(epoch)),
            Notice::UpfsChanged(upfs) => self.show_upfs(upfs.iter().map(|(upf, up)| (*upf, *up))),
            Notice::RepeatDropped => self.metrics.messages(Flow::Repeats, 1),
            Notice::ServingHostChosen { is_owner, violation } => {
                let role = if is_owner { ServedBy::Owner } else { ServedBy::Replica };
                self.metrics.serving_host_chosen(role, violation);
            }
            Notice::ChoiceTraced(choice) => self.choices.iter_mut().for_each(|trace| trace.add(choice)),
            Notice::InputsRecalled(count) => self.metrics.inputs_recalled(count as u64),
            Notice::Isolated => {
                tracing::error!("hosts and controller silent; ending associations, other balancers continue");
            }
        }
    }
}
