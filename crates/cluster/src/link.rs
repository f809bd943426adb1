//! Link thread of a host: connections to the controller and to all balancers.
//!
//! Messages of balancers go to the host's input queue. Messages of the host go to the balancer that
//! has their association. The loss of the controller stops nothing. A balancer without a connection
//! is unreachable; its associations are lost when a map lacks it. If the cluster evicts this host,
//! the host ends: other hosts own its UEs.

mod running;

pub use running::HostQueues;
pub(crate) use running::RunningLink;

use crate::command::{Command, CommandReceiver};
use crate::config::ClusterConfig;
use crate::controller_client::{ControllerClient, JoinReply, LocalMember};
use crate::error::LinkError;
use crate::heartbeat::HeartbeatTargets;
use crate::input::Input;
use crate::input_queue::HostSender;
use crate::progress::ProgressCounter;
use crate::unacked::{UnackedMessage, UnreachableBalancer};
use crossbeam_channel::TrySendError;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host::{
    BalancerAssociations, BarrierReply, Barriers, PendingPfcp, PfcpRequest, UnackedQueue,
};
use vireo_core::placement::message::{
    BalancerNotice, ClusterOutput, HostNotice, PeerEvent, RanOutput, ToBalancer, ToController, ToHost, ToMember,
    Welcome,
};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};
use vireo_ops::clock::clock;
use vireo_types::AssocId;

/// Retry interval of a lost connection to a balancer.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Unsent bytes to a balancer above which the host must wait.
const MAX_UNSENT_BYTES: usize = 4 << 20;
/// Maximum number of commands processed in one iteration.
const BATCH: usize = 1024;
/// Interval at which a full input queue of the host is tried again.
const FULL_QUEUE_RETRY_INTERVAL: Duration = Duration::from_micros(100);

/// Connections of a host.
#[derive(Debug)]
pub struct Link {
    host: HostId,
    client: ControllerClient,
    security: Security,
    balancers: BTreeMap<BalancerId, BalancerConnection>,
    /// Epoch of the last map passed to the host, and whether the host was in any map.
    epoch: u64,
    was_in: bool,
    /// Balancer that holds N4, and the PFCP requests that it has not answered.
    holder: Option<BalancerId>,
    pending_pfcp: PendingPfcp,
    /// True if there may be several balancers.
    has_other_balancers: bool,
    /// Maps that the host has not adopted yet, and the last one that it has.
    maps: VecDeque<Box<ClusterMap>>,
    adopted: Option<Box<ClusterMap>>,
    barriers: Barriers,
    /// True if other hosts have all state of this host, which may end.
    leave_granted: bool,
    /// Inputs that the host has no room for. While there are any, balancers are not read.
    deferred: VecDeque<Input>,
    progress: ProgressCounter,
    ended: Arc<AtomicBool>,
}

/// Connection to one balancer.
#[derive(Debug)]
struct BalancerConnection {
    address: SocketAddr,
    stream: Option<Stream>,
    retry_at: Instant,
    /// Associations of the balancer, and their local addresses.
    associations: BalancerAssociations,
    endpoints: Vec<IpAddr>,
    /// Messages that the balancer has not confirmed.
    unacked: UnackedQueue<UnackedMessage>,
}

impl BalancerConnection {
    fn new(address: SocketAddr, retry_at: Instant) -> Self {
        let (associations, endpoints, unacked) = Default::default();
        BalancerConnection { address, stream: None, retry_at, associations, endpoints, unacked }
    }

    /// Sends a balancer the map that lacks it, as far as the socket accepts. A balancer that the
    /// controller does not reach learns from it that it must end: its RAN nodes have to use others.
    fn report_removal(&mut self, map: &ClusterMap) {
        if let Some(stream) = &mut self.stream {
            stream.put(&ToBalancer::Map(Box::new(map.clone())));
            if let Err(error) = stream.flush() {
                tracing::debug!(%error, "a balancer does not receive the map that lacks it");
            }
        }
    }

    /// Closes the connection and returns the balancer's state.
    fn end(&mut self) -> UnreachableBalancer {
        self.stream = None;
        UnreachableBalancer {
            associations: self.associations.on_disconnect(),
            endpoints: std::mem::take(&mut self.endpoints),
            unsent: self.unacked.end(),
        }
    }
}

/// Status of a link for other threads.
#[derive(Clone, Debug)]
pub struct LinkStatus(Arc<AtomicBool>);

impl LinkStatus {
    /// Returns true if the link thread has ended.
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Link {
    /// Finds the controller and joins; the host receives copies of other hosts at `copies`.
    pub fn join(config: &ClusterConfig, security: &Security, copies: SocketAddr) -> Result<(Self, Welcome), LinkError> {
        let (client, reply) = ControllerClient::join(config, security, LocalMember::Host(copies))?;
        let JoinReply::Host(welcome) = reply else {
            return Err(LinkError::Refused("it was given the number of a balancer".into()));
        };
        let link = Link {
            host: welcome.host,
            client,
            security: security.clone(),
            balancers: BTreeMap::new(),
            epoch: 0,
            was_in: false,
            holder: None,
            pending_pfcp: PendingPfcp::default(),
            has_other_balancers: !config.controllers.is_empty(),
            maps: VecDeque::new(),
            adopted: None,
            barriers: Barriers::default(),
            leave_granted: false,
            deferred: VecDeque::new(),
            progress: ProgressCounter::default(),
            ended: Arc::default(),
        };
        Ok((link, welcome))
    }

    /// Returns the status for other threads.
    pub fn ended(&self) -> LinkStatus {
        LinkStatus(Arc::clone(&self.ended))
    }

    /// Returns the receivers of the host's heartbeats.
    fn heartbeat_targets(&self) -> HeartbeatTargets {
        let balancers = self.balancers.values().map(|connection| connection.address).collect();
        HeartbeatTargets { controller: self.client.controller(), balancers }
    }

    fn targets_changed(&self, targets: &HeartbeatTargets) -> bool {
        let balancers = self.balancers.values().map(|connection| connection.address);
        self.client.controller() != targets.controller || !balancers.eq(targets.balancers.iter().copied())
    }

    /// Receives messages of the controller, if it is connected.
    fn controller(&mut self, now: Instant, input_sender: &HostSender) -> Result<(), LinkError> {
        let (mut maps, mut leave_granted) = (Vec::new(), false);
        let polled = self.client.poll(now, &mut |message| match message {
            ToMember::Map(map) => maps.push(map),
            ToMember::LeaveGranted => leave_granted = true,
            _ => {}
        });
        if leave_granted && !self.leave_granted {
            self.leave_granted = true;
            self.offer(Input::LeaveGranted, input_sender);
            input_sender.wake();
        }
        if let Err(error) = polled {
            // A host that has left is not a member, and ends by itself.
            return if self.leave_granted { Ok(()) } else { Err(error) };
        }
        for map in maps {
            self.on_map(map, input_sender)?;
        }
        Ok(())
    }

    /// Adopts a map from any sender, if it is newer than the host's.
    fn on_map(&mut self, map: Box<ClusterMap>, input_sender: &HostSender) -> Result<(), LinkError> {
        if map.epoch() <= self.epoch || !map.buckets.is_complete() {
            return Ok(());
        }
        if !map.has_host(self.host) {
            // Maps do not concern the host until it is in one.
            return if self.was_in && !self.leave_granted { Err(LinkError::Fenced(map.epoch())) } else { Ok(()) };
        }
        (self.epoch, self.was_in) = (map.epoch(), true);
        let holder = std::mem::replace(&mut self.holder, map.holder());
        self.client.set_map(&map);
        self.offer(Input::Map(map.clone()), input_sender);
        let now = Instant::now();
        let same =
            |id: &BalancerId, connection: &BalancerConnection| map.balancers.contains(&(*id, connection.address));
        let removed: Vec<BalancerId> =
            self.balancers.iter().filter(|(id, connection)| !same(id, connection)).map(|(id, _)| *id).collect();
        for balancer in removed {
            if let Some(mut connection) = self.balancers.remove(&balancer) {
                tracing::warn!(balancer = balancer.0, epoch = map.epoch(), "balancer lost");
                connection.report_removal(&map);
                self.barriers.remove(balancer, clock());
                self.on_unreachable(connection.end(), input_sender);
                self.on_lost(connection.associations.take_lost(), input_sender);
                self.complete_barriers(input_sender);
            }
        }
        for (balancer, address) in &map.balancers {
            self.balancers.entry(*balancer).or_insert_with(|| BalancerConnection::new(*address, now));
        }
        if holder != self.holder {
            self.pending_pfcp.mark_undelivered();
            // On an existing connection; a new connection starts with its map.
            self.send_to_holder(&ToBalancer::Map(map.clone()));
            let count = self.resend_pfcp();
            if count > 0 {
                tracing::warn!(count, "resending unanswered PFCP requests through the next balancer");
            }
        }
        self.maps.push_back(map);
        self.connect(now);
        input_sender.wake();
        Ok(())
    }

    /// Sends all unanswered requests to the balancer that holds N4, if connected; returns their
    /// number.
    fn resend_pfcp(&mut self) -> usize {
        let connection = self.holder.and_then(|holder| self.balancers.get_mut(&holder));
        let Some(stream) = connection.and_then(|connection| connection.stream.as_mut()) else { return 0 };
        let requests = self.pending_pfcp.take_for_resend(clock());
        requests.map(|request| stream.put(&ToBalancer::Output(Cow::Owned(request)))).count()
    }

    /// Connects to balancers without a connection.
    fn connect(&mut self, now: Instant) {
        // The newest map: a balancer that has not received it adopts it, too.
        let (host, map) = (self.host, self.maps.back().or(self.adopted.as_ref()));
        let lost = self
            .balancers
            .iter_mut()
            .filter(|(_, connection)| connection.stream.is_none() && now >= connection.retry_at);
        let mut holds = false;
        for (balancer, connection) in lost {
            connection.retry_at = now + RETRY_INTERVAL;
            match Stream::connect(connection.address, &self.security, Role::Host, &[Role::Balancer]) {
                Ok(mut stream) => {
                    stream.put(&ToBalancer::Hello(host));
                    if let Some(map) = map {
                        stream.put(&ToBalancer::Map(map.clone()));
                    }
                    for number in self.barriers.unanswered_by(*balancer) {
                        stream.put(&ToBalancer::Barrier { number });
                    }
                    connection.stream = Some(stream);
                    holds |= self.holder == Some(*balancer);
                }
                Err(error) => tracing::debug!(balancer = balancer.0, %error, "no connection to a balancer"),
            }
        }
        if holds {
            self.resend_pfcp();
        }
    }

    /// Writes the host's messages to the connections, as long as these keep up. Otherwise the host
    /// waits.
    fn execute_commands(&mut self, commands: &CommandReceiver, input_sender: &HostSender) {
        for _ in 0..BATCH {
            if self.is_congested() {
                return;
            }
            let Ok(command) = commands.queue.try_recv() else { return };
            match command {
                Command::Ran(output) => self.send_output(output, input_sender),
                Command::Cluster(output) => self.send_to_cluster(output, input_sender),
            }
        }
    }

    /// Sends an output to the balancer that executes it.
    fn send_output(&mut self, output: RanOutput, input_sender: &HostSender) {
        match &output {
            RanOutput::Ngap { .. } => self.ngap(output, input_sender),
            RanOutput::Pfcp { upf, key, seid, message, .. } => {
                let sent = self.send_to_holder(&ToBalancer::Output(Cow::Borrowed(&output)));
                let request = PfcpRequest { upf: *upf, key: *key, seid: *seid, message };
                self.pending_pfcp.add(clock(), request, sent);
                self.on_undelivered(!sent);
            }
            RanOutput::RefuseReport { .. } => {
                // If it is lost, the UPF reports again.
                self.send_to_holder(&ToBalancer::Output(Cow::Borrowed(&output)));
            }
            RanOutput::Abort { assoc } | RanOutput::Probe { assoc } => {
                self.send_to(assoc.balancer(), &ToBalancer::Output(Cow::Borrowed(&output)));
            }
        }
    }

    /// Sends an output to the members of the cluster that it concerns.
    fn send_to_cluster(&mut self, output: ClusterOutput, input_sender: &HostSender) {
        match output {
            ClusterOutput::Epoch { epoch } => self.adopt(epoch),
            ClusterOutput::Barrier { number } => self.send_barrier(number, input_sender),
            ClusterOutput::Introduce { number } => self.introduce(number, input_sender),
            ClusterOutput::Notice(notice) => self.send_notice(notice),
            ClusterOutput::Report { cpu, rate, pools } => {
                self.send_to_all(&ToBalancer::Report { cpu, pools: pools.clone() });
                self.client.put(&ToController::Report { cpu, rate, pools });
            }
            ClusterOutput::CaughtUp { epoch, host } => self.client.caught_up(epoch, host),
            ClusterOutput::PoolPartitions { epoch, partitions } => self.client.parts(epoch, partitions),
            ClusterOutput::UnreachablePeers(hosts) => self.client.put(&ToController::UnreachablePeers(hosts)),
            ClusterOutput::Leave => self.client.request_leave(),
        }
    }

    /// Sends a notice to the balancer that it concerns.
    fn send_notice(&mut self, notice: HostNotice) {
        let balancer = match &notice {
            HostNotice::Done { number }
            | HostNotice::ReturnInput { number }
            | HostNotice::ReturnServedInput { number } => Some(BalancerId::from_input(*number).0),
            // If a claim is lost, the host repeats it when another balancer holds N4.
            HostNotice::Claim(_) | HostNotice::ReturnAddress { .. } => self.holder.map(|holder| holder.0),
            HostNotice::RanNode(of) => Some(of.assoc.balancer()),
        };
        if let Some(balancer) = balancer {
            self.send_to(balancer, &ToBalancer::Notice(notice));
        }
    }

    /// Writes a message to a RAN node. A message about a UE without a connection is returned to the
    /// host, for another association of the RAN node.
    fn ngap(&mut self, output: RanOutput, input_sender: &HostSender) {
        let RanOutput::Ngap { assoc, .. } = output else { return };
        let sent = self.send_to(assoc.balancer(), &ToBalancer::Output(Cow::Borrowed(&output)));
        let RanOutput::Ngap { ue, key, pdu, .. } = output else { return };
        self.on_undelivered(!sent);
        // Without other balancers there is no other association.
        let unsent = ue.filter(|_| self.has_other_balancers).map(|ue| UnackedMessage { assoc, ue, key, pdu });
        match self.balancers.get_mut(&BalancerId(assoc.balancer())).filter(|_| sent) {
            Some(connection) => connection.unacked.add(unsent),
            None => {
                if let Some(unsent) = unsent {
                    self.offer(Input::Unsent(Box::new(unsent)), input_sender);
                    input_sender.wake();
                }
            }
        }
    }

    /// Records that a message was or may have been lost.
    fn on_undelivered(&mut self, broken: bool) {
        if broken {
            self.barriers.on_undelivered(clock());
        }
    }

    fn is_congested(&self) -> bool {
        let mut streams = self.balancers.values().filter_map(|connection| connection.stream.as_ref());
        streams.any(|stream| stream.unsent() > MAX_UNSENT_BYTES)
    }

    /// Sends a message to a balancer. Returns false if it is not connected: its associations are
    /// then down too.
    fn send_to(&mut self, balancer: u8, message: &ToBalancer<'_>) -> bool {
        let connection = self.balancers.get_mut(&BalancerId(balancer));
        let stream = connection.and_then(|connection| connection.stream.as_mut());
        stream.map(|stream| stream.put(message)).is_some()
    }

    fn send_to_holder(&mut self, message: &ToBalancer<'_>) -> bool {
        self.holder.is_some_and(|holder| self.send_to(holder.0, message))
    }

    fn send_to_all(&mut self, message: &ToBalancer<'_>) {
        for stream in self.balancers.values_mut().filter_map(|connection| connection.stream.as_mut()) {
            stream.put(message);
        }
    }

    /// Handles a barrier of the host: every connected balancer must answer.
    fn send_barrier(&mut self, number: u64, input_sender: &HostSender) {
        self.send_to_all(&ToBalancer::Barrier { number });
        let connected = self.balancers.iter().filter(|(_, connection)| connection.stream.is_some()).map(|(id, _)| *id);
        self.barriers.add(number, connected);
        self.complete_barriers(input_sender);
    }

    /// Handles a barrier of the host to all balancers of the map: one without a connection receives
    /// it when it connects.
    fn introduce(&mut self, number: u64, input_sender: &HostSender) {
        self.barriers.introduce(number, self.balancers.keys().copied());
        self.send_to_all(&ToBalancer::Barrier { number });
        self.complete_barriers(input_sender);
    }

    fn complete_barriers(&mut self, input_sender: &HostSender) {
        while let Some(BarrierReply { number, is_whole: whole }) = self.barriers.take_answered(clock()) {
            self.offer(Input::BarrierReply { number, whole }, input_sender);
            input_sender.wake();
        }
    }

    /// Handles that the host applies the map of an epoch to all messages from here on.
    fn adopt(&mut self, epoch: u64) {
        while self.maps.front().is_some_and(|map| map.epoch() <= epoch) {
            self.adopted = self.maps.pop_front();
        }
        if let Some(map) = self.adopted.clone() {
            self.send_to_all(&ToBalancer::Map(map));
        }
    }

    fn flush(&mut self, input_sender: &HostSender) {
        let mut lost = Vec::new();
        for (balancer, connection) in &mut self.balancers {
            if let Some(Err(error)) = connection.stream.as_mut().map(Stream::flush) {
                lost.push((*balancer, error));
            }
        }
        lost.into_iter().for_each(|(balancer, error)| self.on_disconnect(balancer, &error, input_sender));
    }

    /// Handles the loss of a balancer connection: the balancer is dead, or has dropped this host.
    fn on_disconnect(&mut self, balancer: BalancerId, cause: &FrameError, input_sender: &HostSender) {
        let Some(connection) = self.balancers.get_mut(&balancer) else { return };
        let unreachable = connection.end();
        if !unreachable.associations.is_empty() {
            tracing::warn!(balancer = balancer.0, reason = %cause, "balancer connection lost");
        }
        self.barriers.on_disconnect(balancer, clock());
        if self.holder == Some(balancer) {
            self.pending_pfcp.mark_undelivered();
        }
        self.on_unreachable(unreachable, input_sender);
        self.complete_barriers(input_sender);
    }

    fn on_unreachable(&mut self, mut balancer: UnreachableBalancer, input_sender: &HostSender) {
        // Addresses that another balancer has too are not reported as gone.
        let has_other =
            |address: &IpAddr| self.balancers.values().any(|connection| connection.endpoints.contains(address));
        balancer.endpoints.retain(|address| !has_other(address));
        if !balancer.associations.is_empty() {
            self.offer(Input::BalancerUnreachable(Box::new(balancer)), input_sender);
            input_sender.wake();
        }
    }

    /// Handles that associations of unreachable balancers are lost.
    fn on_lost(&mut self, associations: BTreeSet<AssocId>, input_sender: &HostSender) {
        if !associations.is_empty() {
            self.offer(Input::AssociationsLost(associations), input_sender);
            input_sender.wake();
        }
    }

    fn offer(&mut self, input: Input, input_sender: &HostSender) {
        if !self.deferred.is_empty() {
            self.deferred.push_back(input);
        } else if let Err(TrySendError::Full(input)) = input_sender.try_put(input) {
            self.deferred.push_back(input);
        }
    }

    /// Passes messages of the balancers to the host. Returns true if there were any.
    fn receive(&mut self, input_sender: &HostSender) -> Result<bool, LinkError> {
        while let Some(input) = self.deferred.pop_front() {
            if let Err(TrySendError::Full(input)) = input_sender.try_put(input) {
                self.deferred.push_front(input);
                return Ok(true);
            }
        }
        let mut received_any = false;
        let balancers: Vec<BalancerId> = self.balancers.keys().copied().collect();
        for balancer in balancers {
            match self.receive_from(balancer, input_sender) {
                Ok(received) => received_any |= received,
                Err(LinkError::Lost(cause)) => {
                    self.on_disconnect(balancer, &cause, input_sender);
                    received_any = true;
                }
                Err(error) => return Err(error),
            }
            if !self.deferred.is_empty() {
                return Ok(true);
            }
        }
        Ok(received_any)
    }

    fn receive_from(&mut self, balancer: BalancerId, input_sender: &HostSender) -> Result<bool, LinkError> {
        let mut received_any = false;
        loop {
            let Some(BalancerConnection { associations, endpoints, unacked, stream: Some(stream), .. }) =
                self.balancers.get_mut(&balancer)
            else {
                return Ok(received_any);
            };
            let Some(octets) = stream.frame()? else {
                if stream.fill()? == 0 {
                    return Ok(received_any);
                }
                continue;
            };
            let message: ToHost<'_> = frame::decode(octets)?;
            let lost = if message.is_for_served_host() { associations.take_lost() } else { BTreeSet::new() };
            let input = match message {
                ToHost::Event(envelope) => {
                    match &envelope.event {
                        PeerEvent::Up { assoc, .. } => associations.on_up(*assoc),
                        PeerEvent::Down { assoc, restarted: false } => associations.on_down(*assoc),
                        PeerEvent::Pfcp { seid, request: false, message, .. } => {
                            _ = self.pending_pfcp.on_response(*seid, message);
                        }
                        PeerEvent::PfcpTimeout { seid } => self.pending_pfcp.on_timeout(*seid),
                        PeerEvent::UpfLost { upf } => self.pending_pfcp.drop_upf(*upf),
                        _ => {}
                    }
                    Input::Peer { envelope: envelope.into_owned(), at: clock() }
                }
                ToHost::Notice(notice) => {
                    if let BalancerNotice::Endpoints(addresses) = &notice {
                        endpoints.clone_from(addresses);
                    }
                    Input::Notice(notice)
                }
                ToHost::Heartbeat => continue,
                ToHost::SentCount { count } => {
                    unacked.on_sent(count);
                    continue;
                }
                ToHost::Refused(cause) => return Err(FrameError::Refused(cause).into()),
                ToHost::Map(map) => {
                    self.on_map(map, input_sender)?;
                    continue;
                }
                ToHost::BarrierReply { number } => {
                    self.on_lost(lost, input_sender);
                    self.barriers.on_answer(balancer, number);
                    self.complete_barriers(input_sender);
                    received_any = true;
                    continue;
                }
            };
            received_any = true;
            self.on_lost(lost, input_sender);
            self.offer(input, input_sender);
            if !self.deferred.is_empty() {
                return Ok(true);
            }
        }
    }
}
