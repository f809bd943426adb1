//! The hosts of a cluster, from a balancer's point of view: sockets around [`BalancerMachine`].
//!
//! The machine decides which host receives an input, what is redelivered, and which messages of
//! hosts are executed. The fleet reads and writes the connections of hosts and the controller, and
//! calls the machine for each message, for each input and at each heartbeat.

mod choice_trace;
mod io;
mod snapshot;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use snapshot::FleetSnapshot;
pub use view::{FleetStatus, FleetView};

use choice_trace::ChoiceTrace;
use io::FleetIo;
pub(crate) use io::HostCommand;
use rustix::event::epoll;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use vireo_cluster::{
    ClusterConfig, ControllerClient, HeartbeatHandle, HeartbeatTargets, JoinReply, LinkError, LocalMember,
    ProgressCounter,
};
use vireo_core::config::CoreConfig;
use vireo_core::placement::ConnectionId;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::balancer::{self, BalancerMachine};
use vireo_core::placement::cluster;
use vireo_core::placement::message::{BalancerAssignment, PeerEvent, ToMember};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::{FrameReader, Security};
use vireo_ops::clock::clock;
use vireo_ops::config::SliceRuntime;
use vireo_ops::evicted_claims::EvictedClaims;
use vireo_ops::metrics::Metrics;
use vireo_types::{AssocId, Instant};

/// Maximum of connections from peers that are no hosts of the map.
const UNIDENTIFIED: usize = 64;
/// Connections of one host: data and heartbeat.
const CONNECTIONS: usize = 2;
/// Maximum number of reads of one connection before other connections are read.
const READS: usize = 16;
/// Number of missed reports after which a host's load counts as unknown.
const STALE: u32 = 3;
const LISTENER: u64 = 0;
const CONTROLLER: u64 = 1;

/// Configuration of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct FleetConfig<'a> {
    pub cluster: &'a ClusterConfig,
    pub security: &'a Security,
    /// Configured local addresses of the N2 endpoint.
    pub endpoints: &'a [IpAddr],
    pub core: &'a CoreConfig,
    pub slices: &'a [SliceRuntime],
}

impl FleetConfig<'_> {
    fn settings(&self, assignment: &BalancerAssignment) -> balancer::Settings {
        balancer::Settings {
            balancer: assignment.balancer,
            tmsi_key: assignment.tmsi_key,
            policy: self.cluster.inter,
            prefer: self.cluster.prefer,
            serve: self.cluster.serve,
            core: self.core.clone(),
            objectives: self.slices.iter().map(|slice| slice.slo).collect(),
            stale: (self.cluster.load_report_interval * STALE).into(),
            misses: assignment.heartbeat.1,
            endpoints: self.endpoints.iter().copied().filter(|address| !address.is_unspecified()).collect(),
            has_other_balancers: true,
        }
    }
}

/// The hosts of a cluster and their connections.
#[derive(Debug)]
pub struct Fleet {
    assignment: BalancerAssignment,
    machine: BalancerMachine,
    io: FleetIo,
    /// Heartbeat thread of this balancer, which beats while `progress` advances; `None` during
    /// shutdown.
    heartbeats: Option<HeartbeatHandle>,
    progress: ProgressCounter,
    /// Connections of a hot restart's predecessor that have not been read yet.
    unread: Vec<ConnectionId>,
    evicted_claims: EvictedClaims,
    /// Time of the last check for silent hosts.
    checked_at: Instant,
}

impl Fleet {
    /// Joins the cluster of the configured controller and accepts hosts at an address.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no controller or it refuses this balancer.
    pub fn join(listener: TcpListener, config: FleetConfig<'_>, metrics: Arc<Metrics>) -> Result<Self, LinkError> {
        let address = listener.local_addr().map_err(LinkError::System)?;
        let (controller, reply) =
            ControllerClient::join(config.cluster, config.security, LocalMember::Balancer(address))?;
        let JoinReply::Balancer(assignment) = reply else {
            return Err(LinkError::Refused("it was given the number of a host".into()));
        };
        let machine = BalancerMachine::new(config.settings(&assignment), clock());
        let mut fleet = Fleet::new(listener, (controller, assignment), machine, config.security, metrics)?;
        fleet.trace_choices(config.cluster)?;
        Ok(fleet)
    }

    /// Writes the choices of serving hosts to the configured file, if there is one.
    fn trace_choices(&mut self, config: &ClusterConfig) -> Result<(), LinkError> {
        let Some(path) = &config.trace_choices else { return Ok(()) };
        self.io.choices = Some(ChoiceTrace::create(path).map_err(LinkError::System)?);
        self.machine.trace_choices();
        Ok(())
    }

    /// Creates a fleet without connections.
    fn new(
        listener: TcpListener,
        (controller, assignment): (ControllerClient, BalancerAssignment),
        machine: BalancerMachine,
        security: &Security,
        metrics: Arc<Metrics>,
    ) -> Result<Self, LinkError> {
        listener.set_nonblocking(true).map_err(LinkError::System)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| LinkError::System(error.into()))?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)
            .map_err(|error| LinkError::System(error.into()))?;
        let progress = ProgressCounter::default();
        let member = cluster::Member::Balancer(assignment.balancer);
        let heartbeats = HeartbeatHandle::start(member, controller.heartbeat(), security, vec![progress.clone()], None);
        let io = FleetIo {
            controller,
            security: security.clone(),
            listener,
            epoll,
            streams: BTreeMap::new(),
            next_connection: CONTROLLER + 1,
            commands: VecDeque::new(),
            exit_reason: None,
            metrics,
            choices: None,
            view: FleetView::default(),
        };
        io.show_upfs(machine.upfs());
        Ok(Fleet {
            assignment,
            machine,
            io,
            heartbeats: Some(heartbeats.map_err(LinkError::System)?),
            progress,
            unread: Vec::new(),
            evicted_claims: EvictedClaims::default(),
            checked_at: clock(),
        })
    }

    /// Declares that the cluster never has another balancer.
    pub fn set_only_balancer(&mut self) {
        self.machine.set_only_balancer();
    }

    /// Returns the controller's reply to the join.
    pub fn assignment(&self) -> &BalancerAssignment {
        &self.assignment
    }

    /// Returns the ID of this balancer.
    pub(crate) fn balancer(&self) -> BalancerId {
        self.assignment.balancer
    }

    /// Returns the machine, which knows map, hosts and RAN nodes.
    pub(crate) fn machine(&self) -> &BalancerMachine {
        &self.machine
    }

    /// Returns the progress counter of this thread, for use during long operations.
    pub(crate) fn progress(&self) -> ProgressCounter {
        self.progress.clone()
    }

    /// Takes the reason why the cluster has removed this balancer, if it has.
    pub(crate) fn take_exit_reason(&mut self) -> Option<LinkError> {
        self.io.exit_reason.take()
    }

    /// Stops the heartbeats, before the balancer ends.
    pub(crate) fn stop_heartbeats(&mut self) {
        self.heartbeats = None;
    }

    /// Returns the descriptor that becomes readable when [`Fleet::pump`] has work.
    pub(crate) fn fd(&self) -> RawFd {
        self.io.epoll.as_raw_fd()
    }

    /// Returns the status that is shared with other threads.
    pub fn view(&self) -> FleetView {
        Arc::clone(&self.io.view)
    }

    /// Returns the maximum interval between two calls of [`Fleet::pump`].
    pub(crate) fn heartbeat(&self) -> std::time::Duration {
        self.io.controller.heartbeat()
    }

    /// Returns the latest time of the next call of [`Fleet::pump`].
    pub(crate) fn due(&self) -> Instant {
        let tick = self.tick_due();
        self.machine.due().map_or(tick, |due| due.min(tick))
    }

    /// Returns the time of the next check for silent hosts.
    fn tick_due(&self) -> Instant {
        self.checked_at + vireo_types::Duration::from(self.heartbeat())
    }

    /// Returns the next command of a host.
    pub(crate) fn next_command(&mut self) -> Option<HostCommand> {
        self.io.commands.pop_front()
    }

    /// Passes an input to the machine.
    fn on(&mut self, input: balancer::Input<'_>) {
        self.machine.on(input, clock(), &mut self.io);
    }

    /// Routes an event of the RAN or a UPF to hosts.
    pub(crate) fn route(&mut self, event: PeerEvent) {
        self.on(balancer::Input::Event(event));
    }

    /// Acknowledges all NGAP PDUs of hosts as sent.
    pub(crate) fn acknowledge_sent(&mut self) {
        self.on(balancer::Input::NgapSent);
    }

    /// Marks all UPFs as not associated, because another balancer takes over N4 and reports their
    /// state to hosts.
    pub(crate) fn deactivate_n4(&mut self) {
        self.on(balancer::Input::N4Deactivated);
    }

    /// Handles a host's message that does not concern a UE, before it is sent.
    pub(super) fn on_node_message(&mut self, assoc: AssocId, pdu: &[u8]) {
        self.on(balancer::Input::NodeMessage { assoc, pdu });
    }

    /// Handles that an association is about to be aborted.
    pub(super) fn on_abort(&mut self, assoc: AssocId) {
        self.on(balancer::Input::Abort(assoc));
    }

    /// Confirms a barrier to a host: all its preceding commands are executed.
    pub(crate) fn on_barrier(&mut self, host: HostId, number: u64) {
        self.on(balancer::Input::BarrierReached { host, number });
    }

    /// Processes messages of hosts and controller, sends pending data, and checks for silent hosts.
    pub(crate) fn pump(&mut self) {
        self.progress.tick();
        let mut events =
            [const { epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) } }; 32];
        let nothing = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = match epoll::wait(&self.io.epoll, &mut events[..], Some(&nothing)) {
            Ok(ready) => ready,
            Err(error) => {
                tracing::error!(%error, "connections of hosts cannot be polled");
                0
            }
        };
        let is_due = clock() >= self.tick_due();
        let mut polls_controller = is_due;
        std::mem::take(&mut self.unread).into_iter().for_each(|connection| self.read(connection));
        for event in &events[..ready] {
            match event.data.u64() {
                LISTENER => self.accept(),
                CONTROLLER => {
                    self.io.controller.set_readable(true);
                    polls_controller = true;
                }
                token => {
                    let connection = ConnectionId(token);
                    let stream = self.io.streams.get_mut(&connection);
                    stream.into_iter().for_each(|stream| stream.set_readable(true));
                    self.read(connection);
                }
            }
        }
        if polls_controller {
            self.poll_controller();
        }
        if is_due {
            self.tick();
        }
        self.on(balancer::Input::Poll);
        self.flush();
    }

    /// Processes messages of the controller.
    fn poll_controller(&mut self) {
        let controller = &mut self.io.controller;
        // The fleet handles messages from here on; before, the client only joined.
        controller.report_ready();
        let (mut maps, mut cordoned) = (Vec::new(), None);
        let polled = controller.poll(std::time::Instant::now(), &mut |message| match message {
            ToMember::Map(map) => maps.push(map),
            ToMember::Cordoned(hosts) => cordoned = Some(hosts),
            _ => {}
        });
        if controller.take_reconnected()
            && let Some(fd) = controller.fd()
            && let Err(error) =
                epoll::add(&self.io.epoll, fd, epoll::EventData::new_u64(CONTROLLER), epoll::EventFlags::IN)
        {
            // Without epoll, the connection is still read at each heartbeat.
            tracing::warn!(%error, "controller connection failed");
        }
        if let Some(heartbeats) = &self.heartbeats {
            let targets = HeartbeatTargets { controller: self.io.controller.controller(), balancers: Vec::new() };
            heartbeats.set_targets(targets);
        }
        cordoned.into_iter().for_each(|hosts| self.on(balancer::Input::Cordoned(hosts)));
        maps.into_iter().for_each(|map| self.on(balancer::Input::Map(map)));
        if let Err(error) = polled {
            self.io.exit_reason = Some(error);
        }
    }

    fn tick(&mut self) {
        let now = clock();
        self.checked_at = now;
        let received = self.io.streams.iter_mut().filter_map(|(id, stream)| stream.take_received().then_some(*id));
        let received: Vec<ConnectionId> = received.collect();
        received.into_iter().for_each(|connection| self.on(balancer::Input::DataReceived(connection)));
        let timeout = self.heartbeat() * self.assignment.heartbeat.1.max(1);
        let controller_silent = self.io.controller.is_silent(std::time::Instant::now(), timeout);
        self.on(balancer::Input::Tick { controller_silent });
        self.evicted_claims.update(self.machine.claims_mut(), &self.io.metrics, now);
    }

    fn accept(&mut self) {
        let limit = UNIDENTIFIED + self.machine.host_count() * CONNECTIONS;
        let [accepted, displaced] = self.io.accept(limit);
        accepted.into_iter().for_each(|connection| self.on(balancer::Input::Connected(connection)));
        displaced.into_iter().for_each(|connection| self.on(balancer::Input::Disconnected(connection)));
    }

    /// Processes pending messages of one connection.
    fn read(&mut self, connection: ConnectionId) {
        for _ in 0..READS {
            let Some(stream) = self.io.streams.get_mut(&connection) else { return };
            let filled = stream.fill();
            let filled = self.handle_frames(connection).and(filled);
            match filled {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => return self.disconnect(connection, &error),
            }
        }
    }

    /// Handles the received messages of a connection.
    fn handle_frames(&mut self, connection: ConnectionId) -> Result<(), FrameError> {
        let Some(stream) = self.io.streams.get_mut(&connection) else { return Ok(()) };
        let Some(mut frames) = stream.take_frames()? else { return Ok(()) };
        let handled = self.handle_all(connection, &mut frames);
        if let Some(stream) = self.io.streams.get_mut(&connection) {
            stream.return_frames(frames);
        }
        handled
    }

    fn handle_all(&mut self, connection: ConnectionId, frames: &mut FrameReader) -> Result<(), FrameError> {
        let now = clock();
        // The machine may close the connection.
        while self.io.streams.contains_key(&connection)
            && let Some(octets) = frames.frame()?
        {
            let message = frame::decode(octets)?;
            self.machine.on(balancer::Input::Message { connection, message }, now, &mut self.io);
        }
        Ok(())
    }

    /// Handles the end of a connection.
    fn disconnect(&mut self, connection: ConnectionId, reason: &FrameError) {
        self.io.remove(connection);
        match self.machine.host_of(connection) {
            Some(host) => tracing::warn!(host = host.0, reason = %reason, "host connection ended"),
            None => tracing::debug!(reason = %reason, "fabric connection ended"),
        }
        self.on(balancer::Input::Disconnected(connection));
    }

    /// Sends pending data to hosts.
    pub(crate) fn flush(&mut self) {
        let mut failed = Vec::new();
        for (connection, stream) in &mut self.io.streams {
            if let Err(error) = stream.flush_at(&self.io.epoll, connection.0) {
                failed.push((*connection, error));
            }
        }
        for (connection, error) in failed {
            self.disconnect(connection, &error);
        }
    }
}
