//! Host of the campaign: its connections, and the machine of `core::placement::host`.
//!
//! The machine decides. This Rust module simulates connections and timers; `ues` has the stored
//! UEs and their steps, `host_io` the reads and actions of the machine.

mod balancers;
mod host_io;
mod injected;
mod links;
mod serving;

use super::controller::{self, BEAT, SILENCE};
use super::message::{Input, Message, NumberedInput};
use super::mutation::Mutation;
use super::network::{ConnectionEnd, MS, Network, Process, TimerEvent};
use super::oracle::Violation;
use super::ran;
use super::ues::{Pending, UeEvent, UeKey, Ues};
use host_io::{Io, Replicas};
use links::Links;
use std::collections::BTreeMap;
use std::rc::Rc;
use vireo_core::amf::access;
use vireo_core::amf::engine;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::{ClusterMap, DurableState, MachineLabel, RejoinInfo, Secrets};
use vireo_core::placement::host::{self as machine, CopyQueue, HostLimits, HostMachine, InputTarget};
use vireo_core::placement::message::{RanOutput, Receiver, ToOwner, ToReplica};
use vireo_core::placement::ran_nodes::{MessageTarget, NodeOutput, NodeStepInput};
use vireo_core::placement::replica::{BucketOwner, Claims, ReplicaStore, ReplicationConfig, WATERMARK_INTERVAL};
use vireo_types::{AssocId, Bucket, Duration};

const TICK: u64 = 20 * MS;
/// Delay before a lost connection is reopened. Also the interval of reports about replicas that do
/// not accept copies.
const RETRY_INTERVAL: u64 = 100 * MS;
const REPORT: u64 = 200 * MS;
const LIMITS: HostLimits = HostLimits { pool_partitions: 1, waiting_inputs: 64, scanned_slots: 2 };

/// Decisions of a host about the UEs of its slots.
pub(super) type Machine = HostMachine<u32, Pending, NumberedInput, UeMail>;

/// Event for the UE of a slot, with the number of its input (0 = none).
#[derive(Debug)]
pub(super) struct UeMail {
    pub(super) slot: u32,
    pub(super) input: u64,
    pub(super) event: UeEvent,
}

/// Connection to a host that is or may become a replica of this owner.
#[derive(Debug)]
struct Peer {
    process: Process,
    at: Option<ConnectionEnd>,
    retry_at: u64,
    queue: CopyQueue<Rc<[u8]>>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) process: Process,
    replication: ReplicationConfig,
    /// Label of the machine, if the simulation has labels.
    pub(super) label: Option<MachineLabel>,
    controller: ConnectionEnd,
    ready: bool,
    /// Identity of the host in the cluster, once assigned.
    member: Option<(HostId, Secrets)>,
    /// Present from the join on, except while it acts.
    pub(super) machine: Option<Box<Machine>>,
    pub(super) map: Option<Rc<ClusterMap>>,
    pub(super) links: Links,
    /// Time before which the host does not connect to the controller again.
    retry_at: u64,
    peers: BTreeMap<HostId, Peer>,
    pub(super) incoming: BTreeMap<ConnectionEnd, (HostId, u64)>,
    pub(super) replicas: Replicas,
    pub(super) store: Option<ReplicaStore>,
    /// Replicas reported as caught up in the current map.
    caught_up: Vec<(u64, HostId)>,
    /// Node queries that an injected fault answers.
    unawaited: Vec<u64>,
    pub(super) ues: Ues,
    /// Time of the last report about replicas, and whether it named any.
    reported: (u64, bool),
    /// True if the host has left its cluster.
    pub(super) ended: bool,
}

impl Host {
    pub(super) fn new(network: &mut Network, replication: ReplicationConfig, label: Option<MachineLabel>) -> Self {
        let process = network.spawn();
        let controller = network.open(process, Process(0));
        network.send(controller, Message::JoinHost(None));
        network.due(process, TICK, TimerEvent::Tick);
        Host {
            process,
            replication,
            label,
            controller,
            ready: false,
            member: None,
            machine: None,
            map: None,
            links: Links::default(),
            retry_at: 0,
            peers: BTreeMap::new(),
            incoming: BTreeMap::new(),
            replicas: Replicas::default(),
            store: None,
            caught_up: Vec::new(),
            unawaited: Vec::new(),
            ues: Ues::new(network),
            reported: (0, false),
            ended: false,
        }
    }

    /// Returns the host ID, once assigned.
    pub(super) fn id(&self) -> Option<HostId> {
        self.member.map(|(host, _)| host)
    }

    /// Lets the machine act on this host.
    pub(super) fn drive<R>(
        &mut self,
        network: &mut Network,
        act: impl FnOnce(&mut Machine, &mut Io<'_>) -> R,
    ) -> Option<R> {
        let mut machine = self.machine.take()?;
        let result = act(&mut machine, &mut Io { host: self, network });
        self.machine = Some(machine);
        Some(result)
    }

    /// Returns the machine, once the host has joined.
    pub(super) fn machine(&mut self) -> Option<&mut Machine> {
        self.machine.as_deref_mut()
    }

    /// Passes an input to the machine, and processes the inputs that it releases.
    pub(super) fn on(&mut self, network: &mut Network, input: machine::Input<'_>) {
        let now = network.time(self.process);
        self.drive(network, |machine, io| machine.on(input, now, io));
        while let Some(released) = self.machine.as_mut().and_then(|machine| machine.released_inputs()) {
            for input in released {
                self.input(network, input);
            }
            self.drive(network, |machine, io| machine.disconnect_unsure(io));
        }
        for number in std::mem::take(&mut self.unawaited) {
            self.on(network, machine::Input::BarrierReply { number, is_whole: true });
        }
    }

    pub(super) fn on_message(&mut self, network: &mut Network, at: ConnectionEnd, message: Message) {
        match message {
            Message::Welcome(host, secrets) => self.welcome(network, host, secrets),
            Message::Refused => self.ended |= at == self.controller,
            Message::LeaveGranted => self.on(network, machine::Input::LeaveGranted),
            Message::Map(map) => self.on_map(network, map),
            Message::Input(input) => {
                self.on_link_message(network, at, &Message::Input(input.clone()));
                match input.receiver {
                    Receiver::ServingHost => self.serve(network, input),
                    _ => self.input(network, input),
                }
            }
            Message::BarrierReply(_) | Message::SentCount(_) => self.on_link_message(network, at, &message),
            Message::Claimed(claim) => self.on(network, machine::Input::Claimed(claim)),
            Message::ToReplica(octets) => self.on_owner_message(network, at, &octets),
            Message::ToOwner(message) => self.on_replica_message(network, at, message),
            _ => {}
        }
        self.advance(network);
    }

    /// Handles the end of a connection.
    pub(super) fn on_disconnect(&mut self, network: &mut Network, at: ConnectionEnd) {
        let now = network.clock.now();
        self.incoming.remove(&at);
        self.replicas.acks.remove(&at);
        if at == self.controller {
            self.retry_at = now + RETRY_INTERVAL;
            let leaves = self.machine.as_ref().is_some_and(|machine| machine.last_barrier().is_some());
            self.ended |= leaves && !self.links.is_connected();
        }
        self.on_balancer_disconnect(network, at);
        for peer in self.peers.values_mut().filter(|peer| peer.at == Some(at)) {
            (peer.at, peer.retry_at) = (None, now + RETRY_INTERVAL);
            peer.queue.on_connection_lost();
        }
    }

    fn welcome(&mut self, network: &mut Network, host: HostId, secrets: Secrets) {
        let replication = self.replication;
        let (own, _) = *self.member.get_or_insert((host, secrets));
        self.ended |= own != host;
        let machine = || {
            let replicas = replication.replicas_by_slice([replication.replicas]);
            let owner = BucketOwner::new(host, replication, replicas);
            Box::new(HostMachine::new(Some(owner), Claims::default(), LIMITS))
        };
        self.machine.get_or_insert_with(machine);
        self.store.get_or_insert_with(|| ReplicaStore::new(host));
        self.ues.set_host(host, &secrets.tmsi_key);
        if let Some(label) = self.label.clone().filter(|_| !network.is(Mutation::LabelsIgnored)) {
            network.send(self.controller, Message::Machine(label));
        }
        if std::mem::replace(&mut self.ready, true) {
            network.send(self.controller, Message::Ready);
        } else {
            network.due(self.process, 5 * MS, TimerEvent::Starts);
        }
        for (epoch, host) in &self.caught_up {
            network.send(self.controller, Message::CaughtUp { epoch: *epoch, host: *host });
        }
    }

    pub(super) fn on_timer(&mut self, network: &mut Network, due: &TimerEvent) {
        match due {
            TimerEvent::Starts => network.send(self.controller, Message::Ready),
            TimerEvent::Tick => self.tick(network),
            TimerEvent::Step(slot) => self.step(network, *slot),
            TimerEvent::Deadline(slot) => self.deadline(network, *slot),
            TimerEvent::Authenticated(slot, request) => {
                let answer = ran::authenticate(network, request);
                self.deliver(network, *slot, 0, UeEvent::Authentication(Box::new(answer)));
            }
            TimerEvent::Served(ltmsi) => self.served_step(network, *ltmsi),
            TimerEvent::ReplicaDeadline(ltmsi) => self.replica_deadline(network, *ltmsi),
            TimerEvent::Written(_) | TimerEvent::Late => {}
        }
        self.advance(network);
    }

    fn tick(&mut self, network: &mut Network) {
        let now = network.clock.now();
        network.due(self.process, TICK, TimerEvent::Tick);
        self.post_copies(network);
        self.send_due_acks(network);
        let leaves = self.machine.as_ref().is_some_and(|machine| machine.last_barrier().is_some());
        if !network.is_open(self.controller) && now >= self.retry_at && !leaves {
            self.retry_at = now + RETRY_INTERVAL;
            self.controller = network.open(self.process, Process(0));
            let past = self.member.map(|(id, secrets)| {
                let map = self.map.as_deref().cloned();
                Box::new(RejoinInfo { id, record: DurableState::new(secrets, map) })
            });
            network.send(self.controller, Message::JoinHost(past));
        }
        if now % WATERMARK_INTERVAL.as_micros() < TICK {
            self.on(network, machine::Input::WatermarkDue);
        }
        if now % BEAT < TICK {
            network.send(self.controller, Message::Beat);
            self.report_load(network);
            self.links.send_to_all(network, &Message::Beat);
        }
        self.connect_balancers(network);
        let epoch = self.epoch();
        let own = self.id();
        for peer in self.peers.values_mut().filter(|peer| peer.at.is_none() && now >= peer.retry_at) {
            peer.connect(network, self.process, own, epoch);
        }
        if now >= self.reported.0 + REPORT {
            let time = network.time(self.process);
            let late = |peer: &Peer| peer.queue.is_late(Duration(SILENCE), time);
            let unreached: Vec<HostId> =
                self.peers.iter().filter(|(_, peer)| late(peer)).map(|(host, _)| *host).collect();
            let complained = std::mem::replace(&mut self.reported, (now, !unreached.is_empty())).1;
            if !unreached.is_empty() || complained {
                network.send(self.controller, Message::UnreachablePeers(unreached));
            }
        }
    }

    /// Reports the load of this host's buckets, if they have any.
    fn report_load(&self, network: &mut Network) {
        let (Some(own), Some(map), Some(skew)) = (self.id(), &self.map, &network.skew) else { return };
        let cpu = skew.cpu(&map.buckets, own);
        network.send(self.controller, Message::Report(cpu));
    }

    pub(super) fn epoch(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.epoch())
    }

    /// Adopts a map from any sender if it is newer than the current one.
    fn on_map(&mut self, network: &mut Network, map: Rc<ClusterMap>) {
        let Some(own) = self.id().filter(|_| map.epoch() > self.epoch()) else { return };
        if !map.has_host(own) {
            // A host that has not joined yet ignores its absence from the map.
            let leaves = self.machine.as_ref().is_some_and(|machine| machine.last_barrier().is_some());
            self.ended |= self.map.is_some() && !leaves && !network.is(Mutation::FenceIgnored);
            return;
        }
        self.map = Some(Rc::clone(&map));
        self.links.on_map(network, &map);
        self.on(network, machine::Input::Map { map: &map, loading: &Default::default() });
    }

    fn connect_peers(&mut self, network: &mut Network, map: &ClusterMap) {
        let Some(own) = self.id() else { return };
        let epoch = map.epoch();
        let gone: Vec<HostId> = self.peers.keys().copied().filter(|host| !map.has_host(*host)).collect();
        for at in gone.into_iter().filter_map(|host| self.peers.remove(&host)?.at) {
            network.close(at);
        }
        for (host, address) in map.hosts.iter().filter(|(host, _)| *host != own) {
            let process = controller::process(*address);
            let new = || Peer { process, at: None, retry_at: 0, queue: CopyQueue::default() };
            let peer = self.peers.entry(*host).or_insert_with(new);
            match peer.at {
                Some(at) => network.send(at, Message::ToReplica(hello(own, epoch))),
                None => peer.connect(network, self.process, Some(own), epoch),
            }
        }
    }

    /// Handles an input of the balancer.
    fn input(&mut self, network: &mut Network, input: NumberedInput) {
        let NumberedInput { number, receiver, .. } = input;
        self.ues.dropped = None;
        let target = match &input.input {
            Input::Ngap { assoc, pdu, bucket, .. } => {
                InputTarget::from_ngap(access::peek(assoc.dialect(), pdu).ok().as_ref(), number, *bucket)
            }
            Input::Pfcp { seid, .. } => InputTarget::Bucket(seid.ltmsi().bucket()),
            Input::Up { .. } | Input::Node(_) => InputTarget::Introduction,
            Input::Down(_) | Input::BalancerUnreachable(_) | Input::AssociationsLost(_) | Input::Unsent(_) => {
                InputTarget::Node
            }
        };
        let copy = network.is(Mutation::InputRepeated).then(|| input.clone());
        let admitted = self.drive(network, |machine, io| machine.admit(input, (number, target), io)).flatten();
        let admitted = admitted.or_else(|| copy.filter(|_| self.ues.dropped.take() == Some(number)));
        if receiver == Receiver::OwnerAfterServingHost && admitted.is_some() {
            let now = network.time(self.process);
            self.machine().into_iter().for_each(|machine| machine.note_recalled(number, now));
        }
        if let Some(admitted) = admitted {
            self.execute_input(network, admitted);
        }
    }

    /// Executes an input.
    fn execute_input(&mut self, network: &mut Network, NumberedInput { number, input, .. }: NumberedInput) {
        match input {
            Input::Ngap { assoc, bucket, answers, pdu } => {
                self.ngap(network, (number, assoc), bucket, answers, &pdu);
            }
            Input::Pfcp { seid, message, .. } => {
                if let Some(slot) = self.ues.slot_of(seid.ltmsi()) {
                    self.deliver(network, slot, number, UeEvent::Pfcp { seid, message });
                }
            }
            Input::Up { assoc, peer } => {
                let outputs = self.ues.nodes.on_association_up(assoc, peer);
                self.execute_node_outputs(network, outputs);
            }
            Input::Down(assoc) => {
                let outputs = self.ues.nodes.on_association_lost(assoc, false);
                self.execute_node_outputs(network, outputs);
            }
            Input::Node(owner) => {
                let outputs = self.ues.nodes.on_report(*owner);
                self.execute_node_outputs(network, outputs);
            }
            Input::BalancerUnreachable(balancer) => {
                let outputs = self.ues.nodes.on_balancer_unreachable(balancer.associations.iter().copied(), &[], false);
                self.execute_node_outputs(network, outputs);
                balancer.unsent.iter().for_each(|message| self.send_again(network, message.clone()));
            }
            Input::AssociationsLost(associations) => {
                let outputs = self.ues.nodes.on_associations_lost(associations);
                self.execute_node_outputs(network, outputs);
            }
            Input::Unsent(message) => self.send_again(network, *message),
        }
    }

    /// Executes what the table of RAN nodes has decided.
    fn execute_node_outputs(&mut self, network: &mut Network, outputs: Vec<NodeOutput<UeKey>>) {
        for output in outputs {
            match output {
                NodeOutput::Send(RanOutput::Ngap { assoc, pdu, .. }) => {
                    self.send_effect(network, Message::Ngap { assoc, ue: None, key: 0, counts: None, pdu: pdu.into() });
                }
                NodeOutput::Send(RanOutput::Abort { assoc }) => self.send_effect(network, Message::Abort(assoc)),
                NodeOutput::Report(owner) => {
                    self.links.send_about_association(network, owner.assoc, Message::Node(owner));
                }
                NodeOutput::Disconnect { node, ues, .. } => {
                    for ue in ues {
                        if let UeKey::Own(slot) = ue {
                            self.deliver(network, slot, 0, UeEvent::ConnectionLost { assoc: node });
                        }
                    }
                }
                NodeOutput::Reset { node, items, input } => {
                    let ues: Vec<u32> = items.into_iter().filter_map(|item| self.ues.by_reset(node, item)).collect();
                    for slot in ues {
                        if !self.ues.nodes.begin_reset_of(node, input, UeKey::Own(slot)) {
                            continue;
                        }
                        self.deliver(network, slot, 0, UeEvent::ConnectionLost { assoc: node });
                    }
                }
                // No RAN node uses the identity of another one. The hosts limit no new UEs.
                NodeOutput::Send(_)
                | NodeOutput::Ended { .. }
                | NodeOutput::Begun { .. }
                | NodeOutput::Changed
                | NodeOutput::Event(_) => {}
            }
        }
    }

    fn ngap(
        &mut self,
        network: &mut Network,
        (number, assoc): (u64, AssocId),
        bucket: Option<Bucket>,
        answers: bool,
        pdu: &Rc<[u8]>,
    ) {
        match self.ues.target(network, self.process, assoc, pdu) {
            Some(MessageTarget::Connected { node, amf_id }) => match self.ues.slot_of(amf_id.ltmsi()) {
                Some(slot) => {
                    self.ues.nodes.set_last_association(node, assoc, UeKey::Own(slot));
                    self.deliver(network, slot, number, UeEvent::Ngap { assoc: node, amf_id, pdu: Rc::clone(pdu) });
                }
                None => {
                    self.unknown_ue(network, assoc, pdu);
                    self.end_input(network, number);
                }
            },
            Some(MessageTarget::Initial { node, ran_id, tmsi }) => {
                if let Some(slot) = self.ues.at(node, ran_id) {
                    self.deliver(network, slot, 0, UeEvent::RanIdReused { assoc: node, ran_id });
                }
                let known = tmsi.and_then(|tmsi| self.ues.named(tmsi));
                if let Some(slot) = known {
                    let event = UeEvent::Initial { assoc: node, named: true, pdu: Rc::clone(pdu) };
                    self.deliver(network, slot, number, event);
                }
                let slot = known.or_else(|| self.create_ue(network, (number, node), bucket, pdu));
                slot.into_iter().for_each(|slot| self.ues.nodes.set_last_association(node, assoc, UeKey::Own(slot)));
            }
            Some(MessageTarget::RanNode) => {
                let now = network.time(self.process);
                let input = NodeStepInput { config: &network.config, now, answers, number };
                let outputs = self.ues.nodes.on_message(assoc, pdu, input);
                self.execute_node_outputs(network, outputs);
                self.end_input(network, number);
            }
            Some(MessageTarget::Repeat) | None => self.end_input(network, number),
        }
    }

    /// Reports an input without a commit done.
    pub(super) fn end_input(&self, network: &mut Network, number: u64) {
        network.oracle.on_executed(number);
        self.links.send_about_input(network, number, Message::Done(number));
    }

    /// Handles a message for an unknown UE.
    pub(super) fn unknown_ue(&mut self, network: &mut Network, assoc: AssocId, pdu: &[u8]) {
        let fault = engine::unknown_ue(assoc.dialect(), pdu);
        if let Some(pdu) = fault.and_then(|fault| access::answer(assoc.dialect(), &fault)) {
            self.send_effect(network, Message::Ngap { assoc, ue: None, key: 0, counts: None, pdu: pdu.into() });
        }
    }

    /// Handles the first message of a UE that is unknown or not authenticated.
    pub(super) fn create_ue(
        &mut self,
        network: &mut Network,
        (number, assoc): (u64, AssocId),
        bucket: Option<Bucket>,
        pdu: &Rc<[u8]>,
    ) -> Option<u32> {
        let owner = self.machine.as_ref().and_then(|machine| machine.owner())?;
        let fresh = self.ues.fresh(bucket, |bucket| owner.accepts_inputs(bucket));
        match fresh {
            Some(slot) => {
                self.deliver(network, slot, number, UeEvent::Initial { assoc, named: false, pdu: Rc::clone(pdu) });
            }
            None => self.links.send_about_input(network, number, Message::Back(number)),
        }
        fresh
    }

    /// Handles a message of an owner as its replica.
    fn on_owner_message(&mut self, network: &mut Network, at: ConnectionEnd, octets: &[u8]) {
        let Ok(message) = postcard::from_bytes::<ToReplica<'_>>(octets) else { return };
        if let ToReplica::Hello { host, epoch } = message {
            if self.incoming.insert(at, (host, epoch)).is_none() {
                let proposals = self.store.iter().flat_map(|store| store.unanswered_proposals(host));
                proposals.for_each(|of| network.send(at, Message::ToOwner(ToOwner::Proposal(Box::new(of.clone())))));
            }
            return;
        }
        let copy = if let ToReplica::Copy(copy) = &message { Some(copy.number) } else { None };
        let stored =
            if let ToReplica::Copy(copy) = &message { Some((copy.ltmsi, copy.ephemeral_version)) } else { None };
        let message = self.injected_answer(network, message);
        let own = self.id();
        let Some((from, store)) = self.incoming.get(&at).copied().zip(self.store.as_mut()) else { return };
        match machine::receive(store, from, message, network.time(self.process)) {
            Ok(received) => {
                for ((ltmsi, version), own) in stored.into_iter().zip(own) {
                    network.oracle.on_copy(own, ltmsi, version);
                }
                if let Some(ltmsi) = received.missing_base {
                    network.trace(format!("copy of {from:?} to {:?} has no base: {ltmsi:?}", self.id()));
                    network.oracle.record_violation(Violation::Baseless);
                }
                self.replicas.acks.entry(at).or_default().on_received(&received, network.time(self.process));
                received.answer.into_iter().for_each(|answer| network.send(at, Message::ToOwner(answer)));
                stored.into_iter().for_each(|(ltmsi, _)| self.inject_deadline(network, ltmsi));
                self.send_due_acks(network);
                if received.is_handoff {
                    self.on(network, machine::Input::Handoff);
                }
            }
            Err(error) => {
                let ignored = copy.filter(|_| network.is(Mutation::FenceIgnored));
                let answer =
                    ignored.map_or(ToOwner::Fenced { epoch: error.epoch }, |number| ToOwner::CopyAck { number });
                network.send(at, Message::ToOwner(answer));
            }
        }
    }

    /// Sends the acknowledgements that are due.
    fn send_due_acks(&mut self, network: &mut Network) {
        let now = network.time(self.process);
        for (at, schedule) in &mut self.replicas.acks {
            let number = schedule.take_due(now);
            number.into_iter().for_each(|number| network.send(*at, Message::ToOwner(ToOwner::CopyAck { number })));
        }
    }

    /// Handles a message of a replica as the owner.
    fn on_replica_message(&mut self, network: &mut Network, at: ConnectionEnd, message: ToOwner) {
        let now = network.time(self.process);
        match message {
            ToOwner::Fenced { .. } => self.ended = true,
            ToOwner::CopyAck { number } => {
                let Some((host, peer)) = self.peers.iter_mut().find(|(_, peer)| peer.at == Some(at)) else { return };
                self.replicas.acknowledge(*host, number);
                peer.queue.acknowledge(number, now);
            }
            ToOwner::Proposal(proposal) => {
                if let Some(from) = self.peer_at(at) {
                    self.on_proposal(network, from, &proposal);
                }
            }
            ToOwner::ReconcileReply { number, ues } => {
                if let Some(from) = self.peer_at(at) {
                    self.on(network, machine::Input::ReconcileReply { from, number, ues: &ues });
                }
            }
        }
    }

    fn peer_at(&self, at: ConnectionEnd) -> Option<HostId> {
        self.peers.iter().find(|(_, peer)| peer.at == Some(at)).map(|(host, _)| *host)
    }

    /// Runs the pending work after each event.
    fn advance(&mut self, network: &mut Network) {
        self.handle_link_events(network);
        self.advance_served(network);
        while let Some(pending) = self.machine.as_mut().and_then(|machine| machine.next_released(&self.replicas)) {
            self.emit_effects(network, pending);
        }
        self.on(network, machine::Input::Poll);
        let epoch = self.epoch();
        self.caught_up.retain(|(of, _)| *of == epoch);
        // Without effects that wait for acknowledgement, copies leave at the next opportunity.
        if !network.mutation.is_some_and(Mutation::delays_copies) {
            self.post_copies(network);
        }
    }

    /// Sends the machine's messages to other hosts.
    fn post_copies(&mut self, network: &mut Network) {
        let now = network.time(self.process);
        for (to, number, message) in self.replicas.unsent() {
            let Some(peer) = self.peers.get_mut(&to) else { continue };
            peer.queue.push(number, message, now);
            peer.write(network);
        }
    }
}

impl Peer {
    fn connect(&mut self, network: &mut Network, own: Process, id: Option<HostId>, epoch: u64) {
        let Some(host) = id else { return };
        let at = network.open(own, self.process);
        self.at = Some(at);
        network.send(at, Message::ToReplica(hello(host, epoch)));
        self.write(network);
    }

    /// Writes the pending messages to the connection, if there is one.
    fn write(&mut self, network: &mut Network) {
        let Some(at) = self.at else { return };
        while let Some(message) = self.queue.next_unwritten() {
            network.send(at, Message::ToReplica(Rc::clone(message)));
        }
    }
}

fn hello(host: HostId, epoch: u64) -> Rc<[u8]> {
    encoded(&ToReplica::Hello { host, epoch })
}

/// Returns the encoded message to a replica.
fn encoded(message: &ToReplica<'_>) -> Rc<[u8]> {
    postcard::to_stdvec(message).unwrap_or_default().into()
}
