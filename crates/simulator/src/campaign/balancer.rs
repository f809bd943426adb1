//! Balancer of the campaign: [`BalancerMachine`] with simulated I/O.

use super::controller::{BEAT, SILENCE};
use super::message::{Input, Message, NumberedInput};
use super::mutation::Mutation;
use super::network::{ConnectionEnd, Event, MS, Network, Process, TimerEvent};
use super::ran::{self, RanEvent};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use vireo_core::amf::access;
use vireo_core::amf::n2::Route;
use vireo_core::placement::ConnectionId;
use vireo_core::placement::balance::steer::{Policy, Preference};
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::balancer::{self, BalancerMachine, CloseReason, Notice, Output, Serve, Settings, Snapshot};
use vireo_core::placement::cluster::{DurableState, RejoinInfo, Secrets};
use vireo_core::placement::message::{
    BalancerNotice, Envelope, HostNotice, PeerEvent, RanOutput, Receiver, ToBalancer, ToController, ToHost,
};
use vireo_core::schedule::kind::NfKind;
use vireo_types::{AssocId, Bucket, Duration, RanUeNgapId};

/// Buckets alternate between slice 0 and the only configured slice.
pub(super) const SLICES: usize = 2;
/// Missed heartbeats of a host before the report to the controller.
const MISSES: u32 = 4;
const OBJECTIVE: Duration = Duration::from_millis(200);
/// Time for which an input may wait for a serving host.
const SERVING_TIMEOUT: u64 = 51 * MS;

/// Connections of hosts, by the machine's numbers.
type Ends = BTreeMap<ConnectionId, ConnectionEnd>;

#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) process: Process,
    /// Number of its address, at which another process replaces it.
    pub(super) address: usize,
    controller: ConnectionEnd,
    /// Time of the controller's last message.
    last_received: u64,
    /// Set once the controller has assigned an ID.
    member: Option<(Secrets, BalancerMachine)>,
    ends: Ends,
    /// Host that each connection has named.
    hosts: BTreeMap<ConnectionId, HostId>,
    serve: Serve,
    /// Inputs before the balancer has joined.
    early: VecDeque<PeerEvent>,
    /// Serving host of each NG connection, for an injected fault.
    hints: Hints,
    /// Time at which inputs at serving hosts are checked next.
    late_at: u64,
    /// True if the process ends instead of executing its next effect.
    pub(super) ends_at_effect: bool,
    /// True if the process has ended.
    pub(super) ended: bool,
}

/// Connections of the hosts that serve NG connections.
type Hints = BTreeMap<(AssocId, RanUeNgapId), ConnectionId>;

/// Output side of the machine.
struct BalancerIo<'a> {
    network: &'a mut Network,
    ends: &'a mut Ends,
    hints: &'a mut Hints,
    controller: ConnectionEnd,
    balancer: BalancerId,
    /// Hosts whose message is to be executed.
    executed: Option<HostId>,
    /// True if a map lacks this balancer.
    is_fenced: bool,
}

impl Output for BalancerIo<'_> {
    fn has_room(&self, _: ConnectionId) -> bool {
        true
    }

    fn send(&mut self, connection: ConnectionId, message: &ToHost<'_>) {
        if let ToHost::Event(envelope) = message
            && !self.reaches_host(connection, envelope)
        {
            return;
        }
        if let (Some(end), Some(message)) =
            (self.ends.get(&connection), for_host(message, self.network.has_several_balancers))
        {
            self.network.send(*end, message);
        }
    }

    fn send_controller(&mut self, message: &ToController) {
        if let ToController::SilentHosts(hosts) = message {
            self.network.send(self.controller, Message::SilentHosts(hosts.clone()));
        }
    }

    fn close(&mut self, connection: ConnectionId, _: CloseReason) {
        if let Some(end) = self.ends.remove(&connection) {
            self.network.close(end);
        }
    }

    fn execute(&mut self, host: HostId, _: RanOutput) {
        self.executed = Some(host);
    }

    fn reach_barrier(&mut self, host: HostId, _: u64) {
        self.executed = Some(host);
    }

    fn notify(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::MapAdopted { map, .. } => self.network.oracle.on_map(self.balancer, &map.buckets),
            Notice::Fenced { .. } => self.is_fenced = true,
            _ => {}
        }
    }
}

impl BalancerIo<'_> {
    /// Records the receiver of an input. Returns false if an injected fault sends it to a dead
    /// host.
    fn reaches_host(&mut self, connection: ConnectionId, envelope: &Envelope) -> bool {
        let (source, bucket) = match &envelope.event {
            PeerEvent::Ngap { assoc, view: Some(view), .. } => match view.route {
                Route::Ue(id) => (view.ran_id.map(|ran_id| (*assoc, ran_id)), id.ltmsi().bucket()),
                Route::Initial { .. } => (None, envelope.bucket.unwrap_or(Bucket::new(0))),
                Route::Node => return true,
            },
            PeerEvent::Pfcp { seid, .. } => (None, seid.ltmsi().bucket()),
            _ => return true,
        };
        let mut is_served = envelope.receiver == Receiver::ServingHost;
        if let Some(source) = source.filter(|_| self.network.is(Mutation::HintKept)) {
            let kept = self.hints.get(&source).filter(|kept| !self.ends.contains_key(kept));
            match (kept, is_served) {
                (Some(_), _) => is_served = true,
                (None, true) => drop(self.hints.insert(source, connection)),
                (None, false) => {}
            }
        }
        let until = self.network.clock.now() + SERVING_TIMEOUT;
        self.network.oracle.on_input_sent(envelope.number, is_served.then_some((bucket, until)));
        !is_served || envelope.receiver == Receiver::ServingHost
    }
}

impl Balancer {
    pub(super) fn new(network: &mut Network, serve: Serve, address: usize) -> Self {
        let process = network.spawn();
        let end = network.open(process, Process(0));
        network.send(end, Message::JoinBalancer(None));
        network.due(process, BEAT, TimerEvent::Tick);
        let gnbs = if network.has_several_balancers { 0..0 } else { ran::node_numbers(network.rats) };
        let early = gnbs.map(|gnb| PeerEvent::Up { assoc: ran::assoc(gnb), peer: ran::address(gnb) });
        Balancer {
            process,
            address,
            controller: end,
            last_received: network.clock.now(),
            member: None,
            ends: Ends::new(),
            hosts: BTreeMap::new(),
            serve,
            early: early.collect(),
            hints: Hints::new(),
            late_at: u64::MAX,
            ends_at_effect: false,
            ended: false,
        }
    }

    /// Returns the ID of the balancer, once assigned.
    pub(super) fn id(&self) -> Option<BalancerId> {
        self.member.as_ref().map(|(_, machine)| machine.settings().balancer)
    }

    /// Returns true if the balancer is isolated: its associations end.
    pub(super) fn is_isolated(&self) -> bool {
        self.member.as_ref().is_some_and(|(_, machine)| machine.is_isolated())
    }

    /// Returns true if the balancer communicates with the UPF.
    pub(super) fn holds_n4(&self) -> bool {
        self.member.as_ref().is_some_and(|(_, machine)| machine.holds_n4())
    }

    /// Passes an input to the machine. Returns the host whose message is to be executed.
    fn on(&mut self, network: &mut Network, input: balancer::Input<'_>) -> Option<HostId> {
        let now = network.time(self.process);
        let (_, machine) = self.member.as_mut()?;
        let (ends, hints) = (&mut self.ends, &mut self.hints);
        let (controller, balancer) = (self.controller, machine.settings().balancer);
        let mut io = BalancerIo { network, ends, hints, controller, balancer, executed: None, is_fenced: false };
        machine.on(input, now, &mut io);
        let executed = io.executed;
        self.ended |= io.is_fenced && network.has_several_balancers;
        self.wait_for_late(network);
        executed
    }

    pub(super) fn on_message(&mut self, network: &mut Network, at: ConnectionEnd, message: Message) {
        if at == self.controller {
            self.last_received = network.clock.now();
        }
        match message {
            Message::Refused if at == self.controller => self.ended |= network.has_several_balancers,
            Message::Assignment(balancer, secrets) => self.on_joined(network, balancer, secrets),
            Message::Map(map) if at == self.controller => {
                self.on(network, balancer::Input::Map(Box::new((*map).clone())));
            }
            _ if at == self.controller => {}
            message => self.on_host_message(network, at, &message),
        }
        self.on(network, balancer::Input::Poll);
    }

    fn on_joined(&mut self, network: &mut Network, balancer: BalancerId, secrets: Secrets) {
        if self.member.is_none() {
            let machine =
                BalancerMachine::new(settings(network, (balancer, self.serve), &secrets), network.time(self.process));
            self.member = Some((secrets, machine));
            for input in std::mem::take(&mut self.early) {
                self.on(network, balancer::Input::Event(input));
            }
        }
        network.send(self.controller, Message::Ready);
    }

    /// Replaces the process by another one that inherits its connections (hot restart).
    pub(super) fn restart(&mut self, network: &mut Network) {
        let now = network.time(self.process);
        let Some((secrets, machine)) = self.member.take() else { return };
        let octets = postcard::to_stdvec(&machine.snapshot(now)).unwrap_or_default();
        let snapshot: Option<Snapshot> = postcard::from_bytes(&octets).ok();
        let resume = |snapshot| BalancerMachine::resume(machine.settings().clone(), snapshot, now);
        self.member = snapshot.map(resume).map(|machine| (secrets, machine));
    }

    /// Handles the end of a connection.
    pub(super) fn on_disconnect(&mut self, network: &mut Network, at: ConnectionEnd) {
        let connection = number(at);
        // The next heartbeat reconnects the controller.
        if self.ends.remove(&connection).is_some() {
            self.hosts.remove(&connection);
            self.on(network, balancer::Input::Disconnected(connection));
        }
    }

    pub(super) fn on_timer(&mut self, network: &mut Network, due: &TimerEvent) {
        if matches!(due, TimerEvent::Late) {
            self.late_at = u64::MAX;
            self.on(network, balancer::Input::Poll);
            self.check_served(network);
            return;
        }
        if !network.is_open(self.controller) {
            self.controller = network.open(self.process, Process(0));
            let past = self.member.as_ref().map(|(secrets, machine)| {
                let record = DurableState::new(*secrets, machine.map().cloned());
                Box::new(RejoinInfo { id: machine.settings().balancer, record })
            });
            network.send(self.controller, Message::JoinBalancer(past));
        }
        network.send(self.controller, Message::Beat);
        let is_silent = network.has_several_balancers && network.clock.now() >= self.last_received + SILENCE;
        self.on(network, balancer::Input::Tick { controller_silent: is_silent });
        if network.has_several_balancers {
            self.on(network, balancer::Input::NgapSent);
        }
        network.due(self.process, BEAT, TimerEvent::Tick);
    }

    /// Handles a message of a gNB or of the UPF.
    pub(super) fn on_ran_or_upf_message(&mut self, network: &mut Network, input: Input) {
        let event = match input {
            Input::Ngap { assoc, pdu, .. } => {
                PeerEvent::Ngap { assoc, view: access::peek(assoc.dialect(), &pdu).ok(), pdu: pdu.to_vec() }
            }
            Input::Pfcp { seid, is_request: request, message } => {
                PeerEvent::Pfcp { upf: upf(), seid, request, message: message.to_vec() }
            }
            _ => return,
        };
        self.on_event(network, event);
    }

    /// Handles an event of the RAN or of the UPF.
    pub(super) fn on_event(&mut self, network: &mut Network, event: PeerEvent) {
        match self.member {
            Some(_) => drop(self.on(network, balancer::Input::Event(event))),
            None => self.early.push_back(event),
        }
    }

    /// Schedules the next check for late inputs at serving hosts.
    fn wait_for_late(&mut self, network: &mut Network) {
        let Some(due) = self.member.as_ref().and_then(|(_, machine)| machine.due()) else { return };
        let after = due.since(network.time(self.process)).0 + 1;
        if network.clock.now() + after < self.late_at {
            self.late_at = network.clock.now() + after;
            network.due(self.process, after, TimerEvent::Late);
        }
    }

    /// Checks the inputs at serving hosts. Inputs to a host that is not connected wait for it.
    fn check_served(&self, network: &mut Network) {
        let Some((_, machine)) = &self.member else { return };
        let hosts: Vec<HostId> = machine.connected_hosts().collect();
        let Some(map) = machine.map() else { return };
        let waits = |bucket: Bucket| map.buckets.owners(bucket).owner().is_none_or(|owner| !hosts.contains(&owner));
        let all = map.hosts.iter().all(|(host, _)| hosts.contains(host));
        let own = machine.settings().balancer;
        network.oracle.on_time(network.clock.now(), own, |bucket| !all || waits(bucket));
    }

    /// Handles a message of a host, and executes it if the machine decides so.
    fn on_host_message(&mut self, network: &mut Network, at: ConnectionEnd, message: &Message) {
        let connection = number(at);
        if self.ends.insert(connection, at).is_none() {
            self.on(network, balancer::Input::Connected(connection));
        }
        if let Message::Host(host) = message {
            self.hosts.insert(connection, *host);
        }
        if let Message::Done(number) = message {
            network.oracle.on_done(*number);
        }
        if self.ends_at_effect && message.effect_key() != 0 {
            self.ended = true;
            return;
        }
        let Some(sent) = from_host(message, network.is(Mutation::RepeatsSent)) else { return };
        let mut host = self.on(network, balancer::Input::Message { connection, message: sent });
        if network.is(Mutation::FenceIgnored) && self.is_fenced(connection) {
            host = self.hosts.get(&connection).copied();
        }
        if let Some(host) = host {
            self.execute(network, host, message);
        }
    }

    /// Returns true if the map has removed the host of a connection.
    fn is_fenced(&self, connection: ConnectionId) -> bool {
        self.member.as_ref().is_some_and(|(_, machine)| machine.host_of(connection).is_none())
    }

    fn execute(&mut self, network: &mut Network, host: HostId, message: &Message) {
        let Some(own) = self.id() else { return };
        let name = (message.effect_key(), own);
        let acts = |network: &mut Network, bucket: Option<Bucket>| {
            bucket.into_iter().for_each(|bucket| network.oracle.on_host_output(host, bucket, name));
        };
        match message {
            Message::Sync(number) => {
                self.on(network, balancer::Input::BarrierReached { host, number: *number });
            }
            Message::Ngap { assoc, ue, key, counts, pdu } => {
                acts(network, ue.map(|ue| ue.bucket()));
                network.oracle.on_effect(name, (assoc.dialect(), pdu), *counts);
                if ue.is_none() {
                    self.on(network, balancer::Input::NodeMessage { assoc: *assoc, pdu });
                }
                ran::down(network, *assoc, *key, Rc::clone(pdu));
            }
            Message::Stale { assoc, ran, ue, key, pdu } => {
                acts(network, Some(ue.bucket()));
                network.oracle.on_effect_void(*key);
                let (assoc, ran, pdu) = (*assoc, *ran, Rc::clone(pdu));
                network.clock.after(0, Event::Ran(RanEvent::Stale { assoc, ran, pdu }));
            }
            Message::Pfcp { key, seid, message, .. } => {
                acts(network, seid.map(|seid| seid.ltmsi().bucket()));
                let (after, key, seid) = (network.delay(), *key, *seid);
                let (by, message) = (self.process, Rc::clone(message));
                network.clock.after(after, Event::Ran(RanEvent::Pfcp { by, key, seid, message }));
            }
            Message::Abort(assoc) => {
                self.on(network, balancer::Input::Abort(*assoc));
                network.clock.after(0, Event::Ran(RanEvent::Down(*assoc)));
            }
            _ => {}
        }
    }
}

fn settings(network: &Network, (balancer, serve): (BalancerId, Serve), secrets: &Secrets) -> Settings {
    Settings {
        balancer,
        tmsi_key: secrets.tmsi_key,
        // Without load reports only the turn selects.
        policy: if serve == Serve::Procedure { Policy::RoundRobin } else { Policy::SkewedCh },
        prefer: Preference::Spare,
        serve,
        core: (*network.config).clone(),
        objectives: vec![[OBJECTIVE; NfKind::ALL.len()]; SLICES - 1],
        stale: Duration::from_secs(1),
        misses: MISSES,
        endpoints: Vec::new(),
        has_other_balancers: network.has_several_balancers,
    }
}

/// Returns the machine's number of a connection.
fn number(end: ConnectionEnd) -> ConnectionId {
    ConnectionId(end.connection as u64)
}

fn upf() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 8805))
}

/// Converts a message of the machine; `None` if the campaign's hosts do not need it.
fn for_host(message: &ToHost<'_>, has_several_balancers: bool) -> Option<Message> {
    Some(match message {
        ToHost::Refused(_) => Message::Refused,
        ToHost::Heartbeat => Message::Beat,
        ToHost::Map(map) => Message::Map(Rc::new((**map).clone())),
        ToHost::Event(envelope) => {
            let input = match &envelope.event {
                PeerEvent::Ngap { assoc, pdu, .. } => {
                    let (bucket, answers) = (envelope.bucket, envelope.answers);
                    Input::Ngap { assoc: *assoc, bucket, answers, pdu: pdu[..].into() }
                }
                PeerEvent::Pfcp { seid, request, message, .. } => {
                    Input::Pfcp { seid: *seid, is_request: *request, message: message[..].into() }
                }
                PeerEvent::Up { assoc, peer } if has_several_balancers => Input::Up { assoc: *assoc, peer: *peer },
                PeerEvent::Down { assoc, .. } if has_several_balancers => Input::Down(*assoc),
                _ => return None,
            };
            Message::Input(NumberedInput { number: envelope.number, receiver: envelope.receiver, input })
        }
        ToHost::Notice(BalancerNotice::Claimed(claim)) => Message::Claimed(*claim),
        ToHost::Notice(BalancerNotice::RanNode(owner)) => {
            let input = Input::Node(owner.clone());
            Message::Input(NumberedInput { number: 0, receiver: Receiver::Owner, input })
        }
        ToHost::SentCount { count } => Message::SentCount(*count),
        ToHost::BarrierReply { number } => Message::BarrierReply(*number),
        _ => return None,
    })
}

/// Converts a message of a host; `None` if it is not for a balancer. With `forget_keys`, the
/// machine recognises no repeats.
fn from_host(message: &Message, forget_keys: bool) -> Option<ToBalancer<'_>> {
    let key = |key: u64| if forget_keys { 0 } else { key };
    let effect = |output| ToBalancer::Output(Cow::Owned(output));
    Some(match message {
        Message::Beat => ToBalancer::Heartbeat,
        Message::Host(host) => ToBalancer::Hello(*host),
        Message::Map(map) => ToBalancer::Map(Box::new((**map).clone())),
        Message::Done(number) => ToBalancer::Notice(HostNotice::Done { number: *number }),
        Message::Back(number) => ToBalancer::Notice(HostNotice::ReturnInput { number: *number }),
        Message::BackServed(number) => ToBalancer::Notice(HostNotice::ReturnServedInput { number: *number }),
        Message::Claim(claim) => ToBalancer::Notice(HostNotice::Claim(*claim)),
        Message::Node(owner) => ToBalancer::Notice(HostNotice::RanNode(owner.clone())),
        Message::Abort(assoc) => effect(RanOutput::Abort { assoc: *assoc }),
        Message::Sync(number) => ToBalancer::Barrier { number: *number },
        Message::Ngap { assoc, ue, key: name, pdu, .. } => {
            effect(RanOutput::Ngap { assoc: *assoc, ue: *ue, key: key(*name), pdu: pdu.to_vec() })
        }
        Message::Stale { assoc, ue, key: name, pdu, .. } => {
            effect(RanOutput::Ngap { assoc: *assoc, ue: Some(*ue), key: key(*name), pdu: pdu.to_vec() })
        }
        Message::Pfcp { key: name, seid, served_by, message } => effect(RanOutput::Pfcp {
            upf: upf(),
            key: key(*name),
            seid: *seid,
            served_by: *served_by,
            message: message.to_vec(),
        }),
        _ => return None,
    })
}
