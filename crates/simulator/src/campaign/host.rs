//! Host of the campaign: its connections, and the decisions of `core::placement::replica`.
//!
//! The decisions concern the UEs of Rust module `ues`.

mod entry;

use super::Mutation;
use super::controller::{self, BEAT, SILENCE};
use super::message::{Input, Message};
use super::network::{ConnectionEnd, Due, MS, Network, Process};
use super::ran;
use super::ues::{Outbox, Pending, UeEvent, Ues};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use vireo_core::amf::context;
use vireo_core::amf::engine;
use vireo_core::amf::n2::{self, Route, ShallowView};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::{ClusterMap, DurableState, RejoinInfo, Secrets};
use vireo_core::placement::replica::{
    ASKED_EVERY, ApplyResult, BarrierResult, BucketOwner, Claims, Commit, InputDisposition, MigratedBuckets,
    ReconcileRequest, ReplicaAcks, ReplicaStore, ReplicaUpdate, ReplicationConfig, ResentCommit, WatermarkUpdate,
};
use vireo_core::step::Effect;
use vireo_types::{AssocId, Bucket, Ltmsi};

const TICK: u64 = 20 * MS;
/// Delay before a lost connection is reopened. Also the interval of reports about replicas that do
/// not accept copies.
const AGAIN: u64 = 100 * MS;
const REPORT: u64 = 200 * MS;
/// Number of UE slots per round of copying to a new replica.
const COPIED_AT_ONCE: u32 = 2;

/// Acknowledged copy numbers by replica.
#[derive(Debug, Default)]
pub(super) struct AckTable(BTreeMap<HostId, u64>);

impl ReplicaAcks for AckTable {
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.0.get(&host).copied().unwrap_or_default()
    }
}

/// Connection to a host that is or may become a replica of this owner.
#[derive(Debug)]
struct Peer {
    process: Process,
    at: Option<ConnectionEnd>,
    again: u64,
    unkept: VecDeque<(u64, Message)>,
    since: Option<u64>,
}

/// State of the host as a cluster member.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) primary: BucketOwner<u32, Pending>,
    pub(super) kept: AckTable,
    shadows: ReplicaStore,
    secrets: Secrets,
    /// Copies made during a decision, to be sent.
    pub(super) copies: Vec<(HostId, u64, Message)>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) process: Process,
    replication: ReplicationConfig,
    controller: ConnectionEnd,
    controller_again: u64,
    ready: bool,
    pub(super) cluster: Option<Cluster>,
    map: Option<Rc<ClusterMap>>,
    was_in: bool,
    /// Set when the host has drained: number of the barrier that it awaits from the balancer.
    left: Option<u64>,
    pub(super) balancer: Option<ConnectionEnd>,
    balancer_again: u64,
    peers: BTreeMap<HostId, Peer>,
    incoming: BTreeMap<ConnectionEnd, (HostId, u64)>,
    /// Replicas reported as caught up in the current map.
    caught_up: Vec<(u64, HostId)>,
    waiting: VecDeque<(u64, Input)>,
    /// Pending node queries to the balancer, including those for which it is not connected yet.
    nodes_asked: BTreeSet<u64>,
    /// UEs that were entered while their RAN nodes were unknown.
    pub(super) unsure: Vec<(u32, AssocId)>,
    pub(super) late: Vec<(Ltmsi, u64, UeEvent)>,
    carried: BTreeSet<u64>,
    pub(super) claims: Claims,
    pub(super) ues: Ues,
    reported: u64,
    complained: bool,
    /// True if the host has left its cluster.
    pub(super) ended: bool,
}

impl Host {
    pub(super) fn new(wires: &mut Network, replication: ReplicationConfig) -> Self {
        let process = wires.spawn();
        let controller = wires.open(process, Process(0));
        wires.send(controller, Message::JoinHost(None));
        wires.due(process, TICK, Due::Tick);
        Host {
            process,
            replication,
            controller,
            controller_again: 0,
            ready: false,
            cluster: None,
            map: None,
            was_in: false,
            left: None,
            balancer: None,
            balancer_again: 0,
            peers: BTreeMap::new(),
            incoming: BTreeMap::new(),
            caught_up: Vec::new(),
            waiting: VecDeque::new(),
            nodes_asked: BTreeSet::new(),
            unsure: Vec::new(),
            late: Vec::new(),
            carried: BTreeSet::new(),
            claims: Claims::default(),
            ues: Ues::default(),
            reported: 0,
            complained: false,
            ended: false,
        }
    }

    /// Returns the host ID, once assigned.
    pub(super) fn id(&self) -> Option<HostId> {
        self.cluster.as_ref().map(|cluster| cluster.primary.own())
    }

    pub(super) fn on_message(&mut self, wires: &mut Network, at: ConnectionEnd, message: Message) {
        match message {
            Message::Welcome(host, secrets) => self.welcome(wires, host, secrets),
            Message::Refused => self.ended |= at == self.controller,
            Message::Left => {
                let Some(cluster) = self.cluster.as_mut() else { return };
                let number = cluster.primary.ask();
                self.left = Some(number);
                self.tell(wires, Message::Sync(number));
            }
            Message::Map(map) => self.on_map(wires, map),
            Message::Give { number, input } => self.input(wires, number, input),
            Message::Synced(number) => self.synced(wires, number),
            Message::Claimed(claim) => self.claimed(wires, claim),
            Message::From { host, epoch } => drop(self.incoming.insert(at, (host, epoch))),
            Message::Copy(octets) => self.copied(wires, at, &octets),
            Message::Yours { number, epoch } => self.on_handoff(wires, at, number, epoch),
            Message::Whole { number, buckets } => self.asked_for_others(wires, at, number, &buckets),
            Message::Others { number, ues } => self.has_others(at, number, &ues),
            Message::Gone { number, ues } => self.gone(wires, at, number, &ues),
            Message::AllLeft { number, until } => self.all_left(wires, at, number, until),
            Message::Kept(number) => self.kept(wires, at, number),
            Message::Fenced => self.ended = true,
            _ => {}
        }
        self.advance(wires);
    }

    /// Handles the end of a connection.
    pub(super) fn on_disconnect(&mut self, wires: &mut Network, at: ConnectionEnd) {
        let now = wires.clock.now();
        self.incoming.remove(&at);
        if at == self.controller {
            self.controller_again = now + AGAIN;
            self.ended |= self.left.is_some() && self.balancer.is_none();
        } else if self.balancer == Some(at) {
            (self.balancer, self.balancer_again) = (None, now + AGAIN);
            if let Some(number) = self.left {
                // The balancer that would answer is gone.
                self.synced(wires, number);
            }
        }
        for peer in self.peers.values_mut().filter(|peer| peer.at == Some(at)) {
            (peer.at, peer.again) = (None, now + AGAIN);
        }
    }

    fn welcome(&mut self, wires: &mut Network, host: HostId, secrets: Secrets) {
        let (replication, process) = (self.replication, self.process);
        let cluster = self.cluster.get_or_insert_with(|| Cluster {
            primary: BucketOwner::new(host, replication, replication.of_slices([replication.replicas])),
            kept: AckTable::default(),
            shadows: ReplicaStore::new(host),
            secrets,
            copies: Vec::new(),
        });
        self.ended |= cluster.primary.own() != host;
        self.ues.is_of(host, &secrets.tmsi_key);
        if std::mem::replace(&mut self.ready, true) {
            wires.send(self.controller, Message::Ready);
        } else {
            wires.due(process, 5 * MS, Due::Starts);
        }
        for (epoch, host) in &self.caught_up {
            wires.send(self.controller, Message::CaughtUp { epoch: *epoch, host: *host });
        }
    }

    pub(super) fn is_due(&mut self, wires: &mut Network, what: &Due) {
        match what {
            Due::Starts => wires.send(self.controller, Message::Ready),
            Due::Tick => self.tick(wires),
            Due::Step(slot) => self.step(wires, *slot),
            Due::Deadline(slot) => self.deadline(wires, *slot),
            Due::Authenticated(slot, request) => {
                let answer = ran::home(wires, request);
                self.deliver(wires, *slot, 0, UeEvent::Authentication(Box::new(answer)));
            }
            Due::Written(_) => {}
        }
        self.advance(wires);
    }

    fn tick(&mut self, wires: &mut Network) {
        let now = wires.clock.now();
        wires.due(self.process, TICK, Due::Tick);
        self.post_copies(wires);
        if !wires.is_open(self.controller) && now >= self.controller_again && self.left.is_none() {
            self.controller_again = now + AGAIN;
            self.controller = wires.open(self.process, Process(0));
            let past = self.cluster.as_ref().map(|cluster| {
                let map = self.map.as_deref().cloned();
                Box::new(RejoinInfo {
                    id: cluster.primary.own(),
                    record: DurableState { secrets: cluster.secrets, map },
                })
            });
            wires.send(self.controller, Message::JoinHost(past));
        }
        if now % ASKED_EVERY.as_micros() < TICK
            && let Some(number) = self.cluster.as_mut().and_then(|cluster| cluster.primary.request_watermark())
        {
            self.tell(wires, Message::Sync(number));
        }
        if now % BEAT < TICK {
            wires.send(self.controller, Message::Beat);
            self.tell(wires, Message::Beat);
        }
        if self.balancer.is_none() && now >= self.balancer_again && self.was_in {
            self.connect(wires);
        }
        let epoch = self.epoch();
        let own = self.id();
        for peer in self.peers.values_mut().filter(|peer| peer.at.is_none() && now >= peer.again) {
            peer.connect(wires, self.process, own, epoch);
        }
        if now >= self.reported + REPORT {
            self.reported = now;
            let late = |peer: &Peer| peer.since.is_some_and(|since| since + SILENCE <= now);
            let unreached: Vec<HostId> =
                self.peers.iter().filter(|(_, peer)| late(peer)).map(|(host, _)| *host).collect();
            if !unreached.is_empty() || self.complained {
                self.complained = !unreached.is_empty();
                wires.send(self.controller, Message::Unreached(unreached));
            }
        }
    }

    fn epoch(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.epoch())
    }

    /// Sends a message to the balancer, if it is connected.
    pub(super) fn tell(&self, wires: &mut Network, message: Message) {
        if let Some(at) = self.balancer {
            wires.send(at, message);
        }
    }

    fn connect(&mut self, wires: &mut Network) {
        let Some(((_, address), own)) = self.map.as_ref().and_then(|map| map.balancers.first()).zip(self.id()) else {
            return;
        };
        let at = wires.open(self.process, controller::process(*address));
        self.balancer = Some(at);
        wires.send(at, Message::Host(own));
        if let Some(map) = &self.map {
            wires.send(at, Message::Map(Rc::clone(map)));
        }
        self.nodes_asked.iter().for_each(|number| wires.send(at, Message::Sync(*number)));
    }

    /// Adopts a map from any sender if it is newer than the current one.
    fn on_map(&mut self, wires: &mut Network, map: Rc<ClusterMap>) {
        let Some(own) = self.id().filter(|_| map.epoch() > self.epoch()) else { return };
        if !map.has_host(own) {
            // A host that has not joined yet ignores its absence from the map.
            self.ended |= self.was_in && self.left.is_none() && !wires.is(Mutation::FenceIgnored);
            return;
        }
        self.was_in = true;
        self.map = Some(Rc::clone(&map));
        match self.balancer {
            // Later messages follow this map.
            Some(at) => wires.send(at, Message::Map(Rc::clone(&map))),
            None => self.connect(wires),
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        let taken = cluster.shadows.adopt(&map.buckets, &hosts);
        let question = cluster.primary.adopt(map.buckets.clone(), hosts);
        self.connect_peers(wires, &map);
        question.into_iter().for_each(|number| self.tell(wires, Message::Sync(number)));
        for (ltmsi, input, what) in std::mem::take(&mut self.late) {
            self.deliver_to(wires, ltmsi, input, what);
        }
        self.wait_for_others();
        self.enter_taken(wires, taken);
    }

    fn connect_peers(&mut self, wires: &mut Network, map: &ClusterMap) {
        let Some(own) = self.id() else { return };
        let epoch = map.epoch();
        let gone: Vec<HostId> = self.peers.keys().copied().filter(|host| !map.has_host(*host)).collect();
        for at in gone.into_iter().filter_map(|host| self.peers.remove(&host)?.at) {
            wires.close(at);
        }
        for (host, address) in map.hosts.iter().filter(|(host, _)| *host != own) {
            let process = controller::process(*address);
            let new = || Peer { process, at: None, again: 0, unkept: VecDeque::new(), since: None };
            let peer = self.peers.entry(*host).or_insert_with(new);
            match peer.at {
                Some(at) => wires.send(at, Message::From { host: own, epoch }),
                None => peer.connect(wires, self.process, Some(own), epoch),
            }
        }
    }

    fn wait_for_others(&mut self) {
        let Some(Cluster { primary, copies, .. }) = self.cluster.as_mut() else { return };
        let read = |pending: &Pending| {
            let Pending { slot, outbox, context, octets } = pending;
            let (ltmsi, input) = (outbox.ltmsi, outbox.input);
            let (context, outbox) = (context.clone(), octets.clone());
            let before = self.ues.get(*slot).map(|ue| ue.ltmsi).filter(|before| *before != ltmsi);
            Some(ResentCommit { slot: *slot, ltmsi, before, input, context, outbox, ways: [None; 2] })
        };
        primary.reassign_acks(read, &mut |to, copy| copies.push(encoded(to, &copy)));
    }

    /// Handles an input of the balancer.
    fn input(&mut self, wires: &mut Network, number: u64, input: Input) {
        let (bucket, of_node) = match &input {
            Input::Ngap { pdu, bucket, .. } => match n2::peek(pdu) {
                Ok(ShallowView { route: Route::Ue(id), .. }) => (Some(id.ltmsi().bucket()), false),
                Ok(ShallowView { route: Route::Initial { .. }, .. }) => (*bucket, false),
                Ok(ShallowView { route: Route::Node, .. }) => (None, true),
                Err(_) => (None, false),
            },
            Input::Pfcp { seid, .. } => (Some(seid.ltmsi().bucket()), false),
        };
        let Some(cluster) = self.cluster.as_mut() else { return };
        // A node's input does not wait for UEs.
        let sorted = match of_node && number == 0 {
            true => InputDisposition::Process,
            false => cluster.primary.classify_input(bucket, of_node, number != 0, self.waiting.len() < 64),
        };
        match sorted {
            InputDisposition::HoldBack => return self.waiting.push_back((number, input)),
            InputDisposition::Return => return self.tell(wires, Message::Back(number)),
            InputDisposition::Process => {}
        }
        if number != 0 && self.carried.contains(&number) {
            return self.tell(wires, Message::Done(number));
        }
        match input {
            Input::Ngap { assoc, bucket, answers, pdu } => self.ngap(wires, (number, assoc), bucket, answers, &pdu),
            Input::Pfcp { seid, message } => {
                if let Some(slot) = self.ues.slot_of(seid.ltmsi()) {
                    self.deliver(wires, slot, number, UeEvent::Pfcp { seid, message });
                }
            }
        }
    }

    fn ngap(
        &mut self,
        wires: &mut Network,
        (number, assoc): (u64, AssocId),
        bucket: Option<Bucket>,
        answers: bool,
        pdu: &Rc<[u8]>,
    ) {
        match n2::peek(pdu).map(|view| view.route) {
            Ok(Route::Ue(amf_id)) => match self.ues.slot_of(amf_id.ltmsi()) {
                Some(slot) => self.deliver(wires, slot, number, UeEvent::Ngap { assoc, amf_id, pdu: Rc::clone(pdu) }),
                None => {
                    self.unknown_ue(wires, assoc, pdu);
                    self.tell(wires, Message::Done(number));
                }
            },
            Ok(Route::Initial { ran_id, .. }) => {
                if let Some(slot) = self.ues.at(assoc, ran_id) {
                    self.deliver(wires, slot, 0, UeEvent::RanIdReused { assoc, ran_id });
                }
                let named = match n2::ue_message(pdu) {
                    Ok((_, n2::UeMessage::Initial(message))) => engine::named_tmsi(&message.nas, &wires.config),
                    _ => None,
                };
                match named.and_then(|tmsi| self.ues.named(tmsi)) {
                    Some(slot) => {
                        self.deliver(wires, slot, number, UeEvent::Initial { assoc, named: true, pdu: Rc::clone(pdu) });
                    }
                    None => self.stranger(wires, (number, assoc), bucket, pdu),
                }
            }
            Ok(Route::Node) | Err(_) => {
                let answer = self.ues.nodes.takes(assoc, pdu, &wires.config);
                if let Some(pdu) = answer.filter(|_| answers) {
                    self.tell(wires, Message::Ngap { assoc, ue: None, key: 0, counts: None, pdu: pdu.into() });
                }
                self.tell(wires, Message::Done(number));
            }
        }
    }

    /// Handles a message for an unknown UE.
    pub(super) fn unknown_ue(&self, wires: &mut Network, assoc: AssocId, pdu: &[u8]) {
        if let Some(pdu) = engine::unknown_ue(pdu).and_then(|fault| fault.answer()) {
            self.tell(wires, Message::Ngap { assoc, ue: None, key: 0, counts: None, pdu: pdu.into() });
        }
    }

    /// Handles the first message of a UE that is unknown or not authenticated.
    pub(super) fn stranger(
        &mut self,
        wires: &mut Network,
        (number, assoc): (u64, AssocId),
        bucket: Option<Bucket>,
        pdu: &Rc<[u8]>,
    ) {
        let Some(cluster) = self.cluster.as_ref() else { return };
        match self.ues.fresh(bucket, |bucket| cluster.primary.takes(bucket)) {
            Some(slot) => {
                self.deliver(wires, slot, number, UeEvent::Initial { assoc, named: false, pdu: Rc::clone(pdu) });
            }
            None => self.tell(wires, Message::Back(number)),
        }
    }

    /// Handles a copy as a replica.
    fn copied(&mut self, wires: &mut Network, at: ConnectionEnd, octets: &[u8]) {
        let Some((from, cluster)) = self.incoming.get(&at).copied().zip(self.cluster.as_mut()) else { return };
        let Ok(copy) = postcard::from_bytes::<ReplicaUpdate<'_>>(octets) else { return };
        match cluster.shadows.apply(from, &copy, wires.time(self.process)) {
            Ok(kept) => {
                if kept == ApplyResult::MissingBase {
                    let own = cluster.primary.own();
                    wires.trace(format!("what {from:?} copies to {own:?} of {:?} builds on none", copy.ltmsi));
                    wires.oracle.record_violation(super::Violation::Baseless);
                }
                wires.send(at, Message::Kept(copy.number));
            }
            Err(_) if wires.is(Mutation::FenceIgnored) => wires.send(at, Message::Kept(copy.number)),
            Err(_) => wires.send(at, Message::Fenced),
        }
    }

    fn on_handoff(&mut self, wires: &mut Network, at: ConnectionEnd, number: u64, epoch: u64) {
        let Some((from, cluster)) = self.incoming.get(&at).copied().zip(self.cluster.as_mut()) else { return };
        match cluster.shadows.on_handoff(from, number, epoch) {
            Ok(awaited) => {
                wires.send(at, Message::Kept(number));
                if awaited {
                    let taken = cluster.shadows.take_handed();
                    self.enter_taken(wires, taken);
                }
            }
            Err(_) => wires.send(at, Message::Fenced),
        }
    }

    fn kept(&mut self, wires: &Network, at: ConnectionEnd, number: u64) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let Some((host, peer)) = self.peers.iter_mut().find(|(_, peer)| peer.at == Some(at)) else { return };
        cluster.kept.0.insert(*host, number);
        while peer.unkept.front().is_some_and(|(copy, _)| *copy <= number) {
            peer.unkept.pop_front();
        }
        peer.since = (!peer.unkept.is_empty()).then(|| wires.clock.now());
    }

    /// Sends a message to a host after all earlier copies.
    fn post(&mut self, wires: &mut Network, to: HostId, number: u64, message: Message) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if let Some(at) = peer.at {
            wires.send(at, message.clone());
        }
        peer.unkept.push_back((number, message));
        peer.since.get_or_insert_with(|| wires.clock.now());
    }

    /// Runs the pending work after each event.
    pub(super) fn advance(&mut self, wires: &mut Network) {
        while let Some(cluster) = self.cluster.as_mut()
            && let Some(pending) = cluster.primary.next_released(&cluster.kept)
        {
            self.let_go(wires, pending);
        }
        self.catch_up();
        self.end_leaving(wires);
        self.ask_for_nodes(wires);
        let Some(cluster) = self.cluster.as_mut() else { return };
        let epoch = cluster.primary.map().map_or(0, vireo_core::placement::balance::map::BucketMap::epoch);
        let caught_up = cluster.primary.caught_up(&cluster.kept);
        self.caught_up.retain(|(of, _)| *of == epoch);
        for host in caught_up {
            self.caught_up.push((epoch, host));
            wires.send(self.controller, Message::CaughtUp { epoch, host });
        }
        // Without effects that wait for acknowledgement, copies leave at the next opportunity.
        if !wires.is(Mutation::EffectsBeforeAcknowledgement) {
            self.post_copies(wires);
        }
    }

    fn post_copies(&mut self, wires: &mut Network) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        for (to, number, message) in std::mem::take(&mut cluster.copies) {
            self.post(wires, to, number, message);
        }
    }

    fn catch_up(&mut self) {
        let Some(Cluster { primary, kept, copies, .. }) = self.cluster.as_mut() else { return };
        let Some((to, from)) = primary.next_lagging_replica(&*kept) else { return };
        for (slot, ue) in self.ues.from(from, COPIED_AT_ONCE) {
            if ue.has_context() && primary.lacks(to, slot, ue.ltmsi) {
                primary.send(to, &ue.as_it_is(slot), &*kept, &mut |to, copy| copies.push(encoded(to, &copy)));
            }
        }
        let next = from + COPIED_AT_ONCE;
        let whole = primary.looked(to, (next < self.ues.slots()).then_some(next));
        copies.extend(whole.map(|whole| asking(to, whole)));
    }

    /// Handles a reconcile request as a replica: the owner has sent all UEs and asks for entries
    /// that it did not send.
    fn asked_for_others(&mut self, wires: &mut Network, at: ConnectionEnd, number: u64, buckets: &[Bucket]) {
        let Some((from, cluster)) = self.incoming.get(&at).copied().zip(self.cluster.as_mut()) else { return };
        match cluster.shadows.foreign_entries(from, number, buckets) {
            Ok(ues) => {
                wires.send(at, Message::Others { number, ues: ues.into() });
                wires.send(at, Message::Kept(number));
            }
            Err(_) => wires.send(at, Message::Fenced),
        }
    }

    /// Removes the replica entries that their owner does not confirm.
    fn gone(&mut self, wires: &mut Network, at: ConnectionEnd, number: u64, ues: &[Ltmsi]) {
        let Some((from, cluster)) = self.incoming.get(&at).copied().zip(self.cluster.as_mut()) else { return };
        match cluster.shadows.remove_orphans(from, number, ues) {
            Ok(()) => wires.send(at, Message::Kept(number)),
            Err(_) => wires.send(at, Message::Fenced),
        }
    }

    /// Stores the owner's effect watermark as a replica.
    fn all_left(&mut self, wires: &mut Network, at: ConnectionEnd, number: u64, until: u64) {
        let Some((from, cluster)) = self.incoming.get(&at).copied().zip(self.cluster.as_mut()) else { return };
        match cluster.shadows.left(from, number, until) {
            Ok(()) => wires.send(at, Message::Kept(number)),
            Err(_) => wires.send(at, Message::Fenced),
        }
    }

    /// Handles a replica's list of entries of this owner's UEs that came from other hosts' copies.
    fn has_others(&mut self, at: ConnectionEnd, question: u64, named: &[Ltmsi]) {
        let Some((from, _)) = self.peers.iter().find(|(_, peer)| peer.at == Some(at)) else { return };
        let Some(Cluster { primary, kept, copies, .. }) = self.cluster.as_mut() else { return };
        let from = *from;
        if !primary.is_asked(from, question) {
            return;
        }
        let mut gone = Vec::new();
        for ltmsi in named {
            if !primary.owns(ltmsi.bucket()) {
                continue;
            }
            let here = self.ues.slot_of(*ltmsi).and_then(|slot| Some((slot, self.ues.get(slot)?)));
            match here.filter(|(_, ue)| ue.ltmsi == *ltmsi && ue.has_context()) {
                Some((slot, ue)) => {
                    primary.resend_full(from, slot);
                    primary.send(from, &ue.as_it_is(slot), &*kept, &mut |to, copy| copies.push(encoded(to, &copy)));
                }
                None => gone.push(*ltmsi),
            }
        }
        if !gone.is_empty() {
            let number = primary.number(from);
            copies.push((from, number, Message::Gone { number, ues: gone.into() }));
        }
        let again = primary.answered(from, named.len());
        copies.extend(again.map(|whole| asking(from, whole)));
    }

    fn synced(&mut self, wires: &mut Network, number: u64) {
        if self.left == Some(number) {
            self.ended = true;
        }
        self.introduced(wires, number);
        if let Some(Cluster { primary, copies, .. }) = self.cluster.as_mut() {
            let gone = primary.left(number, true).into_iter();
            copies.extend(
                gone.map(|WatermarkUpdate { to, number, until }| (to, number, Message::AllLeft { number, until })),
            );
        }
        match self.cluster.as_mut().map(|cluster| cluster.primary.on_barrier(number)) {
            Some(BarrierResult::HandsOver) => self.hand_over(wires),
            Some(BarrierResult::Ends | BarrierResult::Nothing) | None => {}
        }
    }

    fn leaving_slots(&self) -> Vec<u32> {
        let Some(cluster) = self.cluster.as_ref() else { return vec![] };
        self.ues.all().filter(|(_, ue)| cluster.primary.leaves(ue.ltmsi.bucket())).map(|(slot, _)| slot).collect()
    }

    /// Quiesces the migration when the UEs that migrate to other hosts have no work left.
    fn end_leaving(&mut self, wires: &mut Network) {
        let ending = self.cluster.as_mut().and_then(|cluster| cluster.primary.take_ending());
        if ending.is_none() {
            return;
        }
        let mut busy = self.leaving_slots();
        busy.retain(|slot| !self.ues.is_done(*slot));
        let sleeps = busy.is_empty() && self.send_last();
        let Some(cluster) = self.cluster.as_mut() else { return };
        if sleeps {
            let number = cluster.primary.quiesce();
            self.tell(wires, Message::Sync(number));
        } else {
            cluster.primary.still_ends(busy);
        }
    }

    fn send_last(&mut self) -> bool {
        let slots = self.leaving_slots();
        let Some(Cluster { primary, kept, copies, .. }) = self.cluster.as_mut() else { return false };
        if primary.is_next_far_behind(&*kept) {
            return false;
        }
        for slot in slots {
            let Some(ue) = self.ues.get(slot).filter(|ue| ue.has_context()) else { continue };
            let asks = |effect: &Effect| matches!(effect, Effect::Authenticate(_));
            let asks = Outbox::decode(&ue.outbox).is_some_and(|outbox| outbox.effects.iter().any(asks));
            if let Some(to) = primary.last_copy(slot, ue.ltmsi, asks) {
                let commit = as_it_is(slot, ue.ltmsi, &ue.context, if asks { &ue.outbox } else { &[] });
                primary.send_now(to, &commit, &mut |to, copy| copies.push(encoded(to, &copy)));
            }
        }
        true
    }

    fn hand_over(&mut self, wires: &mut Network) {
        let slots = self.leaving_slots();
        let Some(Cluster { primary, shadows, copies, .. }) = self.cluster.as_mut() else { return };
        let Some(MigratedBuckets { epoch, to }) = primary.finish_migration() else { return };
        self.late.clear();
        let own = primary.own();
        for slot in slots {
            let Some(ue) = self.ues.remove(slot) else { continue };
            primary.forget(slot);
            let keeps = primary.map().is_some_and(|map| map.owners(ue.ltmsi.bucket()).has(own));
            if let Some(parts) = context::EncodedContext::new(&ue.context).ok().filter(|_| keeps) {
                shadows.keep_own(ue.ltmsi, &parts);
            }
        }
        for host in to {
            let number = primary.number(host);
            copies.push((host, number, Message::Yours { number, epoch }));
        }
        self.advance(wires);
    }
}

impl Peer {
    fn connect(&mut self, wires: &mut Network, own: Process, id: Option<HostId>, epoch: u64) {
        let Some(host) = id else { return };
        let at = wires.open(own, self.process);
        self.at = Some(at);
        wires.send(at, Message::From { host, epoch });
        self.unkept.iter().for_each(|(_, message)| wires.send(at, message.clone()));
    }
}

/// Returns the encoded copy message with its receiver and number.
pub(super) fn encoded(to: HostId, copy: &ReplicaUpdate<'_>) -> (HostId, u64, Message) {
    (to, copy.number, Message::Copy(postcard::to_stdvec(copy).unwrap_or_default().into()))
}

/// Returns the reconcile request to a replica that has been sent all copies.
fn asking(to: HostId, ReconcileRequest { number, buckets }: ReconcileRequest) -> (HostId, u64, Message) {
    (to, number, Message::Whole { number, buckets: buckets.into() })
}

fn as_it_is<'a>(slot: u32, ltmsi: Ltmsi, context: &'a [u8], outbox: &'a [u8]) -> Commit<'a, u32> {
    Commit { slot, ltmsi, before: None, input: 0, context, outbox, ways: [None; 2] }
}
