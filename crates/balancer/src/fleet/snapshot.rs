//! Hot-restart snapshot of a balancer's fleet.
//!
//! It has the connections of hosts with their buffered data and the state of the machine. Hosts and
//! the controller do not notice a hot restart.

use super::{Fleet, FleetConfig};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use vireo_cluster::{ControllerClient, ControllerClientSnapshot, LinkError};
use vireo_core::placement::balancer::{self, BalancerMachine};
use vireo_core::placement::cluster::{ClusterMap, DurableState};
use vireo_core::placement::message::BalancerAssignment;
use vireo_fabric::Role;
use vireo_fabric::stream::{self, Stream};
use vireo_ops::clock::clock;
use vireo_ops::metrics::Metrics;

/// Snapshot of a [`Fleet`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FleetSnapshot {
    assignment: BalancerAssignment,
    controller: ControllerClientSnapshot,
    machine: balancer::Snapshot,
    /// Connections in the order of the machine's snapshot.
    streams: Vec<stream::StreamSnapshot>,
}

impl FleetSnapshot {
    /// Returns the recovery time stamp of the cluster's N4.
    pub(crate) fn recovery(&self) -> u32 {
        self.assignment.recovery
    }
}

impl Fleet {
    /// Returns the durable state for the embedded controller of the next process. `map` replaces
    /// its last map.
    pub(crate) fn record(&self, map: Option<ClusterMap>) -> Option<DurableState> {
        let DurableState { secrets, map: own, .. } = self.io.controller.record()?.clone();
        Some(DurableState::new(secrets, map.or(own)))
    }

    /// Returns a snapshot, and the sockets in the order that [`Fleet::resume`] expects. Returns
    /// `None` if a connection cannot be transferred, because it uses TLS.
    pub(crate) fn snapshot(&self) -> Option<(FleetSnapshot, Vec<BorrowedFd<'_>>)> {
        let controller = self.io.controller.snapshot(self.machine.settings().has_other_balancers)?;
        let mut sockets = vec![self.io.listener.as_fd()];
        if controller.stream.is_some() {
            sockets.extend(self.io.controller.fd());
        }
        let machine = self.machine.snapshot(clock());
        let mut streams = Vec::new();
        for connection in machine.connections() {
            let stream = self.io.streams.get(&connection)?;
            sockets.push(stream.fd());
            streams.push(stream.snapshot()?);
        }
        Some((FleetSnapshot { assignment: self.assignment.clone(), controller, machine, streams }, sockets))
    }

    /// Restores a fleet from a snapshot and the predecessor's sockets.
    ///
    /// # Errors
    ///
    /// Returns an error if a system call fails, or a socket is missing.
    pub(crate) fn resume(
        snapshot: FleetSnapshot,
        sockets: &mut dyn Iterator<Item = OwnedFd>,
        config: FleetConfig<'_>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, LinkError> {
        let FleetSnapshot { assignment, controller, machine, streams } = snapshot;
        let mut next = || sockets.next().ok_or(LinkError::System(io::ErrorKind::UnexpectedEof.into()));
        let listener = TcpListener::from(next()?);
        let socket = controller.stream.is_some().then(&mut next).transpose()?.map(Into::into);
        let controller =
            ControllerClient::resume(config.cluster, config.security, controller, socket).map_err(LinkError::System)?;
        let connections: Vec<_> = machine.connections().collect();
        let machine = BalancerMachine::resume(config.settings(&assignment), machine, clock());
        let mut fleet = Fleet::new(listener, (controller, assignment), machine, config.security, metrics)?;
        for (connection, stream) in connections.into_iter().zip(streams) {
            let stream = Stream::resume(next()?.into(), config.security, &[Role::Host], stream);
            stream.and_then(|stream| fleet.io.add(connection, stream)).map_err(LinkError::System)?;
            fleet.io.next_connection = fleet.io.next_connection.max(connection.0 + 1);
            // Data that the predecessor had read but not processed does not make the socket
            // readable.
            fleet.unread.push(connection);
        }
        fleet.io.show_members(fleet.machine.map());
        fleet.trace_choices(config.cluster)?;
        Ok(fleet)
    }
}
