//! UEs of a host: stored contexts, mailboxes, and the steps of `core::amf::engine`.
//!
//! Each UE runs one step at a time: decide, commit, and only then emit effects.

use super::balancer::SLICES;
use super::host::{Host, UeMail};
use super::message::{Message, NumberedInput};
use super::mutation::Mutation;
use super::network::{Network, Process, TimerEvent};
use super::oracle::{self, Counts, Violation};
use super::ran;
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use vireo_core::amf::access;
use vireo_core::amf::context::{self, EncodedContext, NextHopChain, UeContext};
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::UeMessage;
use vireo_core::amf::ran::ResetItem;
use vireo_core::ids::tmsi::TmsiCipher;
use vireo_core::placement::balance::{HostId, migration};
use vireo_core::placement::host::{NamedUe, StepOutbox, named_ue};
use vireo_core::placement::message::ToReplica;
use vireo_core::placement::ran_nodes::{MessageTarget, RanNodeTable};
use vireo_core::placement::replica::{Commit, EffectAssociations};
use vireo_core::schedule::kind;
use vireo_core::step::{Effect, effect_key, idempotency_key};
use vireo_core::subscription::{AuthenticationError, AuthenticationRequest, AuthenticationVector};
use vireo_core::{Env, Identifiers};
use vireo_types::{
    AmfUeNgapId, AssocId, Bucket, Dnn, Instant, Ltmsi, PduSessionType, RanUeNgapId, Seid, SessionAddress, Snssai, Supi,
    Tmsi,
};

/// RAN nodes of a UE's connections: two during a handover.
type Connections = [Option<AssocId>; 2];

/// Event of a UE.
#[derive(Clone, Debug)]
pub(super) enum UeEvent {
    Initial { assoc: AssocId, named: bool, pdu: Rc<[u8]> },
    Ngap { assoc: AssocId, amf_id: AmfUeNgapId, pdu: Rc<[u8]> },
    Pfcp { seid: Seid, message: Rc<[u8]> },
    Authentication(Box<Result<AuthenticationVector, AuthenticationError>>),
    Deadline,
    Superseded,
    RanIdReused { assoc: AssocId, ran_id: RanUeNgapId },
    ConnectionLost { assoc: AssocId },
}

/// Outbox of a commit, stored with the context.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outbox {
    /// Time of the commit.
    pub(super) at: Instant,
    pub(super) ltmsi: Ltmsi,
    /// Name of its effects, equal at every host that executes them.
    key: u64,
    pub(super) input: u64,
    /// Sessions of the PFCP effects.
    seids: Vec<Option<Seid>>,
    /// Numbers without any remaining reference.
    settled: Vec<Ltmsi>,
    pub(super) forgets: bool,
    /// Connections before and after the step.
    connections: (Connections, Connections),
    /// True if the step has connected the UE.
    pub(super) connects: bool,
    counts: Option<Counts>,
    pub(super) effects: Vec<Effect>,
}

/// Commit whose effects wait for the acknowledgement of copies.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) slot: u32,
    pub(super) outbox: Outbox,
    pub(super) context: Vec<u8>,
    pub(super) octets: Vec<u8>,
    /// Serving host that ran the step.
    pub(super) proposer: Option<HostId>,
    /// Associations of the effects.
    pub(super) associations: EffectAssociations,
    /// Hosts without whose copies no effect may leave: those that may be the next owner.
    successors: Vec<HostId>,
}

/// One UE of the host.
#[derive(Debug, Default)]
pub(super) struct Ue {
    /// LTMSI under which the UE was entered. `newest` is the LTMSI of its last commit.
    pub(super) ltmsi: Ltmsi,
    pub(super) newest: Ltmsi,
    /// Stored context; empty if there is none.
    pub(super) context: Vec<u8>,
    /// Outbox of the last commit.
    pub(super) outbox: Vec<u8>,
    mailbox: VecDeque<(u64, UeEvent)>,
    /// Commits whose effects are not emitted yet.
    unsent: u32,
}

impl Ue {
    pub(super) fn has_context(&self) -> bool {
        !self.context.is_empty()
    }

    fn decode(&self) -> Option<UeContext> {
        context::decode(&self.context).ok()
    }
}

/// UE in the table of RAN nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UeKey {
    /// UE of a slot.
    Own(u32),
    /// UE of another host whose procedure this host serves.
    Served(Ltmsi),
}

/// All UEs of a host.
#[derive(Debug, Default)]
pub(super) struct Ues {
    ues: BTreeMap<u32, Ue>,
    next: u32,
    /// UE slots by LTMSI.
    names: BTreeMap<Ltmsi, u32>,
    tmsis: BTreeMap<Tmsi, u32>,
    supis: BTreeMap<u64, u32>,
    pub(super) nodes: RanNodeTable<UeKey>,
    numbers: u16,
    addresses: u16,
    cipher: Option<TmsiCipher>,
    host: u16,
    /// Inputs of other hosts' UEs that wait for their steps.
    pub(super) served: BTreeMap<Ltmsi, NumberedInput>,
    /// Input that the machine has just dropped as executed before, and states that this host has
    /// proposed. Both are for injected faults.
    pub(super) dropped: Option<u64>,
    pub(super) proposed: BTreeMap<Ltmsi, Vec<u8>>,
}

impl Ues {
    /// Creates the store of a host without UEs. With one balancer, the associations are always up.
    pub(super) fn new(network: &Network) -> Self {
        let mut ues = Ues::default();
        if !network.has_several_balancers {
            ran::node_numbers(network.rats)
                .for_each(|gnb| _ = ues.nodes.on_association_up(ran::assoc(gnb), ran::address(gnb)));
        }
        ues
    }

    /// Returns the addressee of an NGAP message; `None` if the message is invalid.
    pub(super) fn target(
        &mut self,
        network: &Network,
        process: Process,
        assoc: AssocId,
        pdu: &[u8],
    ) -> Option<MessageTarget> {
        let view = access::peek(assoc.dialect(), pdu).ok()?;
        Some(self.nodes.target(assoc, (&view, pdu), &network.config, network.time(process)))
    }

    /// Sets the owning host.
    pub(super) fn set_host(&mut self, host: HostId, tmsi_key: &[u8; 16]) {
        // Each host starts at a different number, so that a new owner does not reassign numbers
        // that the previous one assigned recently.
        if self.cipher.is_none() {
            (self.host, self.numbers) = (host.0, host.0 << 10);
        }
        self.cipher = Some(TmsiCipher::new(tmsi_key));
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Ue> {
        self.ues.get(&slot)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Ue)> {
        self.ues.iter().map(|(slot, ue)| (*slot, ue))
    }

    /// Returns the UEs of `count` slots from `from` on.
    pub(super) fn from(&self, from: u32, count: u32) -> impl Iterator<Item = (u32, &Ue)> {
        self.ues.range(from..from + count).map(|(slot, ue)| (*slot, ue))
    }

    /// Returns the number of used slots.
    pub(super) fn slots(&self) -> u32 {
        self.next
    }

    pub(super) fn slot_of(&self, ltmsi: Ltmsi) -> Option<u32> {
        self.names.get(&ltmsi).copied()
    }

    pub(super) fn named(&self, tmsi: Tmsi) -> Option<u32> {
        self.tmsis.get(&tmsi).copied()
    }

    pub(super) fn bind(&mut self, tmsi: Tmsi, slot: u32) {
        self.tmsis.insert(tmsi, slot);
    }

    /// Returns true if a 5G-TMSI names a UE at rest that does not have it.
    pub(super) fn has_unused_tmsi(&self) -> bool {
        let is_unused = |(tmsi, slot): (&Tmsi, &u32)| match self.ues.get(slot).filter(|_| self.is_done(*slot)) {
            Some(ue) => ue.decode().is_none_or(|ue| ![ue.identity.tmsi, ue.identity.old_tmsi].contains(&Some(*tmsi))),
            None => false,
        };
        self.tmsis.iter().any(is_unused)
    }

    /// Returns the UE of a connection that a reset names.
    pub(super) fn by_reset(&self, assoc: AssocId, item: ResetItem) -> Option<u32> {
        let ResetItem { amf_id, ran_id } = item;
        let has = |slot: &u32| {
            let connection = self.get(*slot).and_then(Ue::decode).and_then(|ue| ue.connection);
            connection.is_some_and(|c| {
                c.assoc == assoc && amf_id.is_none_or(|id| id == c.amf_id) && ran_id.is_none_or(|id| id == c.ran_id)
            })
        };
        let named = amf_id.and_then(|id| self.slot_of(id.ltmsi()));
        named.or_else(|| ran_id.filter(|_| amf_id.is_none()).and_then(|id| self.at(assoc, id))).filter(has)
    }

    /// Returns the UE with a connection of this RAN-UE-NGAP-ID.
    pub(super) fn at(&self, assoc: AssocId, ran_id: RanUeNgapId) -> Option<u32> {
        let has =
            |ue: &Ue| ue.decode().and_then(|ue| ue.connection).is_some_and(|c| (c.assoc, c.ran_id) == (assoc, ran_id));
        self.all().find(|(_, ue)| has(ue)).map(|(slot, _)| slot)
    }

    /// Returns true if no event of the UE is in progress and all its effects are emitted.
    pub(super) fn is_done(&self, slot: u32) -> bool {
        self.ues.get(&slot).is_none_or(|ue| ue.mailbox.is_empty() && ue.unsent == 0)
    }

    /// Returns true if no event of the UE waits.
    pub(super) fn is_idle(&self, slot: u32) -> bool {
        self.ues.get(&slot).is_none_or(|ue| ue.mailbox.is_empty())
    }

    /// Allocates a slot for a new UE, with an LTMSI in the column of a bucket that this host owns.
    pub(super) fn fresh(&mut self, by: Option<Bucket>, own: impl Fn(Bucket) -> bool) -> Option<u32> {
        let column = by.and_then(|by| migration::in_column(by, 0, SLICES)).filter(|bucket| own(*bucket));
        let any = || (0..Bucket::COUNT).step_by(SLICES).map(Bucket::new).find(|bucket| own(*bucket));
        let bucket = column.or_else(any)?;
        self.numbers = self.numbers.wrapping_add(1);
        let slot = self.insert(Ltmsi::new(bucket, self.numbers));
        Some(slot)
    }

    fn insert(&mut self, ltmsi: Ltmsi) -> u32 {
        let slot = self.next;
        self.next += 1;
        self.names.insert(ltmsi, slot);
        self.ues.insert(slot, Ue { ltmsi, newest: ltmsi, ..Ue::default() });
        slot
    }

    /// Enters a UE of another host.
    pub(super) fn enter(
        &mut self,
        network: &mut Network,
        (process, ltmsi): (Process, Ltmsi),
        octets: Vec<u8>,
        ue: &UeContext,
    ) -> u32 {
        let slot = self.insert(ltmsi);
        if let Some(entry) = self.ues.get_mut(&slot) {
            (entry.context, entry.newest) = (octets, ue.ltmsi);
        }
        self.names.extend(references(ue).into_iter().map(|old| (old, slot)));
        for tmsi in [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten() {
            self.tmsis.insert(tmsi, slot);
        }
        self.nodes.update_connections(UeKey::Own(slot), [None; 2], connections(ue));
        schedule(network, process, slot, ue.deadline());
        slot
    }

    /// Removes a UE.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Ue> {
        self.names.retain(|_, of| *of != slot);
        self.tmsis.retain(|_, of| *of != slot);
        self.supis.retain(|_, of| *of != slot);
        let ue = self.ues.remove(&slot)?;
        if let Some(context) = ue.decode() {
            self.nodes.update_connections(UeKey::Own(slot), connections(&context), [None; 2]);
        }
        Some(ue)
    }

    /// Returns the UE that has the valid context of a subscriber.
    pub(super) fn subscriber(&self, supi: Supi) -> Option<u32> {
        self.supis.get(&supi.as_u64()).copied()
    }

    pub(super) fn bind_subscriber(&mut self, slot: u32, supi: Supi) {
        self.supis.insert(supi.as_u64(), slot);
    }

    pub(super) fn unbind_subscriber(&mut self, slot: u32, supi: Supi) {
        if self.subscriber(supi) == Some(slot) {
            self.supis.remove(&supi.as_u64());
        }
    }
}

/// Schedules a check of the UE's deadline.
pub(super) fn schedule(network: &mut Network, process: Process, slot: u32, deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        let after = deadline.since(network.time(process)).0;
        network.due(process, after + 1, TimerEvent::Deadline(slot));
    }
}

/// Returns the RAN nodes of a UE's connections.
fn connections(ue: &UeContext) -> Connections {
    let mut associations = ue.associations();
    [associations.next(), associations.next()]
}

/// Returns the association and the RAN node's identifier of a UE's connection.
fn connection(ue: &UeContext) -> Option<(AssocId, RanUeNgapId)> {
    ue.connection.as_ref().map(|connection| (connection.assoc, connection.ran_id))
}

/// Returns the other LTMSIs that still refer to a context.
fn references(ue: &UeContext) -> Vec<Ltmsi> {
    let connections = ue.amf_ids().map(|id| id.ltmsi());
    let sessions = ue.sessions.iter().flat_map(|s| s.seids()).map(|seid| seid.ltmsi());
    connections.chain(sessions).filter(|l| *l != ue.ltmsi).collect()
}

/// Result of a step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) outbox: Outbox,
    /// True if a procedure is in progress after it.
    pub(super) runs: bool,
    /// True if a serving host could not allocate an identifier.
    pub(super) needs_owner: bool,
}

/// What a commit has besides the context.
#[derive(Debug)]
pub(super) struct CommitTerms {
    pub(super) outbox: Outbox,
    /// True if a procedure is in progress after the commit.
    pub(super) runs: bool,
    /// Serving host that ran the step, and the associations of its effects.
    pub(super) route: Option<(HostId, EffectAssociations)>,
}

/// How the effects of a commit leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EffectRoute {
    /// UE that gets the answers of the subscriber service.
    pub(super) slot: Option<u32>,
    /// Serving host that gets the responses of UPFs.
    pub(super) served_by: Option<HostId>,
    pub(super) associations: EffectAssociations,
}

/// Identifiers for one step.
struct Ids<'a> {
    names: &'a BTreeMap<Ltmsi, u32>,
    tmsis: &'a BTreeMap<Tmsi, u32>,
    cipher: Option<&'a TmsiCipher>,
    random: u32,
    addresses: &'a mut u16,
    host: u16,
    /// True at a serving host, which allocates only 5G-TMSIs.
    is_serving: bool,
    /// True if a serving host would have had to allocate another identifier.
    needs_owner: bool,
}

impl Identifiers for Ids<'_> {
    fn tmsi(&mut self, ltmsi: Ltmsi) -> Option<Tmsi> {
        let sealed = (0..8_u32).filter_map(|n| self.cipher?.seal(ltmsi.bucket(), self.random.wrapping_add(n)));
        let tmsi = sealed.into_iter().find(|tmsi| !self.tmsis.contains_key(tmsi));
        self.random = self.random.wrapping_mul(0x9e37_79b9).wrapping_add(1);
        tmsi
    }

    fn rekey(&mut self, current: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        if usize::from(current.bucket().get()) % SLICES == 1 {
            return None;
        }
        self.needs_owner = true;
        if self.is_serving {
            return None;
        }
        // In the same column, so that the hosts of the UE never change.
        let bucket = migration::in_column(current.bucket(), 1, SLICES)?;
        let numbers = (0..=u16::MAX).map(|n| Ltmsi::new(bucket, current.number().wrapping_add(n)));
        numbers.into_iter().find(|ltmsi| !self.names.contains_key(ltmsi))
    }

    fn address(&mut self, _: &Dnn, _: PduSessionType) -> Option<SessionAddress> {
        self.needs_owner = true;
        if self.is_serving {
            return None;
        }
        *self.addresses = self.addresses.wrapping_add(1);
        Some(ran::session_address(self.host, *self.addresses))
    }
}

impl Host {
    /// Delivers an event to the UE of a slot, unless its bucket is quiesced.
    pub(super) fn deliver(&mut self, network: &mut Network, slot: u32, input: u64, event: UeEvent) {
        let (Some(ltmsi), mail) = (self.ues.get(slot).map(|ue| ue.ltmsi), UeMail { slot, input, event }) else {
            return;
        };
        match self.machine() {
            Some(machine) if machine.is_quiesced(ltmsi) => machine.defer(ltmsi, mail),
            Some(_) => self.enqueue(network, mail),
            None => {}
        }
    }

    /// Adds an event to the mailbox of its UE.
    pub(super) fn enqueue(&mut self, network: &mut Network, UeMail { slot, input, event }: UeMail) {
        let Some(ue) = self.ues.ues.get_mut(&slot) else { return };
        ue.mailbox.push_back((input, event));
        if ue.mailbox.len() == 1 {
            let after = network.step_delay(self.process);
            network.due(self.process, after, TimerEvent::Step(slot));
        }
    }

    pub(super) fn deadline(&mut self, network: &mut Network, slot: u32) {
        let now = network.time(self.process);
        let due = self.ues.get(slot).and_then(Ue::decode).and_then(|ue| ue.deadline());
        if due.is_some_and(|due| due <= now) {
            self.deliver(network, slot, 0, UeEvent::Deadline);
        }
    }

    /// Runs the UE's next event.
    pub(super) fn step(&mut self, network: &mut Network, slot: u32) {
        let Some(ue) = self.ues.ues.get_mut(&slot) else { return };
        let Some((input, event)) = ue.mailbox.pop_front() else { return };
        network.oracle.on_executed(input);
        if !ue.mailbox.is_empty() {
            let after = network.step_delay(self.process);
            network.due(self.process, after, TimerEvent::Step(slot));
        }
        let before = ue.decode();
        let Some(event) = admitted(before.as_ref(), &event) else {
            return self.redeliver(network, slot, input, event);
        };
        let context = before.unwrap_or_else(|| {
            let mut fresh = UeContext::new(ue.ltmsi);
            // The step names use it with the LTMSI, which belonged to another UE before.
            fresh.sequence = u64::from(network.random.random::<u32>() >> 4);
            fresh
        });
        self.run_step(network, slot, input, context, event);
    }

    /// Handles an event that is not for the UE of the slot.
    fn redeliver(&mut self, network: &mut Network, slot: u32, input: u64, event: UeEvent) {
        match event {
            UeEvent::Initial { assoc, pdu, .. } => {
                let named = access::peek(assoc.dialect(), &pdu).map(|view| named_ue(&view, &network.config));
                let bucket = match (named, &self.ues.cipher) {
                    (Ok(NamedUe::Initial { tmsi: Some(tmsi), .. }), Some(cipher)) => Some(cipher.bucket(tmsi)),
                    _ => None,
                };
                self.create_ue(network, (input, assoc), bucket, &pdu);
            }
            UeEvent::Ngap { assoc, pdu, .. } => {
                let by = self.ues.nodes.association_to(assoc, None).unwrap_or(assoc);
                self.unknown_ue(network, by, &pdu);
                self.end_input(network, input);
            }
            _ => {}
        }
        // Its first message had no effect.
        if self.ues.get(slot).is_some_and(|ue| !ue.has_context() && ue.mailbox.is_empty() && ue.unsent == 0) {
            self.ues.remove(slot);
        }
    }

    fn run_step(&mut self, network: &mut Network, slot: u32, input: u64, mut ue: UeContext, event: Event<'_>) {
        let Step { outbox, runs, .. } = self.decide(network, (input, false), &mut ue, event);
        schedule(network, self.process, slot, ue.deadline());
        let Some(entry) = self.ues.ues.get(&slot) else { return };
        let mut context = Vec::new();
        if outbox.forgets || context::encode_after(&ue, &entry.context, &mut context).is_ok() {
            self.commit(network, slot, context, CommitTerms { outbox, runs, route: None });
        }
    }

    /// Runs a step on a context, at the owner or at a serving host.
    pub(super) fn decide(
        &mut self,
        network: &mut Network,
        (input, is_serving): (u64, bool),
        ue: &mut UeContext,
        event: Event<'_>,
    ) -> Step {
        let (now, config) = (network.time(self.process), Rc::clone(&network.config));
        let (before, connections_before) = (ue.security.clone(), connections(ue));
        let connection_before = connection(ue);
        let mut old = references(ue);
        old.push(ue.ltmsi);
        ue.sequence += 1;
        let random = &mut network.random;
        let Ues { names, tmsis, cipher, addresses, host, nodes, .. } = &mut self.ues;
        let cipher = cipher.as_ref();
        let mut ids = Ids {
            names,
            tmsis,
            cipher,
            random: random.random(),
            addresses,
            host: *host,
            is_serving,
            needs_owner: false,
        };
        let mut fill = |octets: &mut [u8]| random.fill(octets);
        let mut env = Env { now, arrived: now, config: &config, random: &mut fill, ids: &mut ids, ran: nodes };
        let outcome = engine::step(ue, event, &mut env);
        let needs_owner = ids.needs_owner;
        let runs = kind::procedure_in_progress(ue).is_some();
        let forgets = outcome.effects.contains(&Effect::DeleteContext);
        let references = references(ue);
        let seid = |effect: &Effect| match effect {
            Effect::Pfcp { session, upf, .. } => {
                Some(ue.sessions.iter().find(|s| s.index == *session).map(|s| s.seid_at(*upf)))
            }
            _ => None,
        };
        let counts = ue.security.as_ref().map(|security| {
            let next_hop = match (&security.next_hop, before.as_ref().and_then(|before| before.next_hop.as_ref())) {
                (Some(NextHopChain::At(hop)), Some(_))
                    if security.next_hop != before.as_ref().and_then(|b| b.next_hop) =>
                {
                    Some(oracle::hash(hop.nh))
                }
                _ => None,
            };
            {
                let (uplink, downlink) = (security.uplink, security.downlink);
                Counts { key: oracle::hash(security.kamf), uplink, downlink, next_hop }
            }
        });
        let outbox = Outbox {
            at: now,
            ltmsi: ue.ltmsi,
            key: idempotency_key(ue.ltmsi, ue.sequence as u32),
            input,
            seids: outcome.effects.iter().filter_map(seid).collect(),
            settled: old.into_iter().filter(|old| !references.contains(old) && *old != ue.ltmsi).collect(),
            forgets,
            connects: connection(ue).is_some() && connection(ue) != connection_before,
            connections: (connections_before, if forgets { [None; 2] } else { connections(ue) }),
            counts,
            effects: outcome.effects,
        };
        if let (Some(now), Some(before)) = (&mut ue.security, &before) {
            // Injected faults: the commit omits the COUNTs that it used.
            if network.is(Mutation::CountNotReserved) {
                now.downlink = before.downlink.min(now.downlink);
            }
            if network.is(Mutation::UplinkNotCounted) {
                now.uplink = before.uplink.min(now.uplink);
            }
            if network.is(Mutation::NextHopNotTaken) && now.next_hop.is_some() && before.next_hop.is_some() {
                now.next_hop = before.next_hop;
            }
        }
        Step { outbox, runs, needs_owner }
    }

    /// Stores a commit and its copies. Its effects leave when the copies are acknowledged.
    pub(super) fn commit(&mut self, network: &mut Network, slot: u32, context: Vec<u8>, terms: CommitTerms) {
        let CommitTerms { outbox, runs, route } = terms;
        let own = || self.ues.nodes.effect_associations(UeKey::Own(slot), &outbox.effects);
        let (proposer, associations) = route.map_or_else(|| (None, own()), |(host, of)| (Some(host), of));
        let Some(entry) = self.ues.ues.get_mut(&slot) else { return };
        entry.unsent += 1;
        let octets = postcard::to_stdvec(&outbox).unwrap_or_default();
        let (ltmsi, before) = (outbox.ltmsi, Some(entry.ltmsi).filter(|before| *before != outbox.ltmsi));
        (entry.context, entry.outbox, entry.newest) = (context.clone(), octets.clone(), ltmsi);
        self.ues.names.insert(ltmsi, slot);
        let commit = Commit {
            slot,
            ltmsi,
            before,
            input: outbox.input,
            context: &context,
            outbox: &octets,
            associations,
            proposer,
        };
        let ended = !runs || outbox.forgets;
        let successors = self.successors(network, ltmsi.bucket());
        let pending = Pending {
            slot,
            outbox,
            context: context.clone(),
            octets: octets.clone(),
            proposer,
            associations,
            successors,
        };
        if is_early(network, proposer) {
            self.send_effects_of_commit(network, &pending);
        }
        // `self.replicas` collects the copies.
        let mut send = |to, number, message: &ToReplica<'_>| self.replicas.push(to, number, message);
        let Some(machine) = self.machine.as_mut() else { return };
        let released = machine.commit((&commit, ended), pending, &self.replicas, &mut send);
        if let Some(pending) = released {
            self.emit_effects(network, pending);
        }
    }

    /// Applies the change of a UE's connections by a step. A UE whose RAN node was lost during the
    /// step becomes idle.
    fn update_nodes(&mut self, network: &mut Network, slot: u32, (before, after): (Connections, Connections)) {
        self.ues.nodes.update_connections(UeKey::Own(slot), before, after);
        for assoc in after.into_iter().flatten() {
            if self.ues.nodes.get(assoc).is_none() {
                self.deliver(network, slot, 0, UeEvent::ConnectionLost { assoc });
            }
        }
    }

    /// Returns the hosts that may be the next owner of a bucket. Records a violation if this host
    /// is not the owner.
    pub(super) fn successors(&self, network: &mut Network, bucket: Bucket) -> Vec<HostId> {
        let Some(owner) = self.machine.as_ref().and_then(|machine| machine.owner()) else { return Vec::new() };
        let Some(map) = owner.map().filter(|_| !owner.is_outgoing(bucket)) else { return Vec::new() };
        if map.owners(bucket).owner() != Some(owner.host_id()) {
            network.oracle.record_violation(Violation::NotOwner(owner.host_id()));
        }
        let placement = map.owners(bucket);
        let is_sure = |host: &HostId| owner.keeps_copies(*host, bucket) && !owner.replication().may_lag();
        placement.first_replica().filter(is_sure).collect()
    }

    /// Sends the effects of a commit of this host.
    fn send_effects_of_commit(&mut self, network: &mut Network, pending: &Pending) {
        let Pending { slot, outbox, proposer, successors, context, associations, .. } = pending;
        if let (Ok(parts), Some(map)) = (EncodedContext::new(context), &self.map) {
            let successors: Vec<HostId> = successors.iter().copied().filter(|host| map.has_host(*host)).collect();
            network.oracle.on_effects(&successors, outbox.ltmsi, parts.versions.ephemeral);
        }
        self.note_other_associations(network, (*slot, *associations), outbox);
        let route = EffectRoute { slot: Some(*slot), served_by: *proposer, associations: *associations };
        self.send_effects(network, route, outbox);
    }

    /// Tells the oracle which effects of a commit leave by other associations than the copies of
    /// the commit name.
    fn note_other_associations(
        &self,
        network: &mut Network,
        (slot, associations): (u32, EffectAssociations),
        outbox: &Outbox,
    ) {
        for (n, effect) in outbox.effects.iter().enumerate() {
            let Effect::Ngap { assoc: node, .. } = effect else { continue };
            let named = associations.iter().flatten().find(|(of, _)| of == node).map(|(_, by)| *by);
            let used = self.ues.nodes.effect_association(associations, *node, Some(UeKey::Own(slot)));
            if named.is_some() && used != named {
                network.oracle.on_unconfirmed(effect_key(outbox.key, n));
            }
        }
    }

    /// Executes the effects of a commit.
    pub(super) fn emit_effects(&mut self, network: &mut Network, pending: Pending) {
        network.oracle.on_result(pending.outbox.input, pending.outbox.key);
        self.update_nodes(network, pending.slot, pending.outbox.connections);
        if let Some(input) = pending.outbox.connecting_input() {
            self.ues.nodes.on_connected(UeKey::Own(pending.slot), input);
        }
        if !is_early(network, pending.proposer) {
            self.send_effects_of_commit(network, &pending);
        }
        let Pending { slot, outbox, .. } = pending;
        if let Some(ue) = self.ues.ues.get_mut(&slot) {
            ue.unsent -= 1;
            ue.ltmsi = outbox.ltmsi;
        }
        for old in &outbox.settled {
            if self.ues.names.get(old) == Some(&slot) {
                self.ues.names.remove(old);
            }
        }
        let now = network.time(self.process);
        for effect in &outbox.effects {
            match effect {
                Effect::BindTmsi(tmsi) => drop(self.ues.tmsis.insert(*tmsi, slot)),
                Effect::FreeTmsi(tmsi) => drop(self.ues.tmsis.remove(tmsi)),
                Effect::BindSupi(supi) => {
                    let at = outbox.at;
                    self.drive(network, |machine, io| machine.bind_subscriber((slot, *supi), at, now, io));
                }
                Effect::BindSupiSince(supi, began) => {
                    self.drive(network, |machine, io| machine.bind_subscriber_since((slot, *supi), *began, now, io));
                }
                _ => {}
            }
        }
        if outbox.input != 0 {
            self.links.send_about_input(network, outbox.input, Message::Done(outbox.input));
        }
        // Unless the UE has returned to its slot.
        if outbox.forgets && self.ues.get(slot).is_some_and(|ue| !ue.has_context() && ue.mailbox.is_empty()) {
            self.ues.remove(slot);
        }
    }

    /// Sends the effects of a commit, also when they are re-executed. A serving host gets the
    /// responses.
    pub(super) fn send_effects(&mut self, network: &mut Network, route: EffectRoute, outbox: &Outbox) {
        let EffectRoute { slot, served_by, associations } = route;
        let mut seids = outbox.seids.iter();
        for (n, effect) in outbox.effects.iter().enumerate() {
            let key = effect_key(outbox.key, n);
            match effect {
                Effect::ReleaseStale { assoc: node, amf_id, ran_id } => {
                    let Some(assoc) = self.ues.nodes.association_to(*node, slot.map(UeKey::Own)) else { continue };
                    let pdu = access::stale_release_command(assoc.dialect(), *amf_id, *ran_id).into();
                    let ran = *ran_id;
                    self.send_effect(network, Message::Stale { assoc, ran, ue: outbox.ltmsi, key, pdu });
                }
                Effect::Ngap { assoc: node, pdu } => {
                    // A RAN node that is gone has lost its UEs.
                    let assoc = self.ues.nodes.effect_association(associations, *node, slot.map(UeKey::Own));
                    let Some(assoc) = assoc else { continue };
                    let (ue, pdu) = (Some(outbox.ltmsi), pdu[..].into());
                    self.send_effect(network, Message::Ngap { assoc, ue, key, counts: outbox.counts, pdu });
                }
                Effect::Pfcp { message, .. } => {
                    let (seid, message) = (seids.next().copied().flatten(), message[..].into());
                    self.send_effect(network, Message::Pfcp { key, seid, served_by, message });
                }
                Effect::Authenticate(request) => {
                    slot.into_iter().for_each(|slot| self.authenticate(network, slot, request.clone()));
                }
                _ => {}
            }
        }
    }

    /// Selects the associations that a commit of another host has selected.
    pub(super) fn restore_associations(&mut self, associations: EffectAssociations, slot: u32) {
        for (node, by) in associations.into_iter().flatten() {
            self.ues.nodes.restore_association(node, by, UeKey::Own(slot));
        }
    }

    pub(super) fn authenticate(&self, network: &mut Network, slot: u32, request: AuthenticationRequest) {
        let after = network.random.random_range(300..3_000);
        network.due(self.process, after, TimerEvent::Authenticated(slot, Box::new(request)));
    }
}

/// Returns true if an injected fault lets the effects of a commit leave without copies.
fn is_early(network: &Network, proposer: Option<HostId>) -> bool {
    network.is(Mutation::EffectsBeforeAcknowledgement)
        || network.is(Mutation::FirstReplicaNotAwaited) && proposer.is_some()
}

/// Returns the event if it is for the UE of this context.
pub(super) fn admitted<'a>(ue: Option<&UeContext>, event: &'a UeEvent) -> Option<Event<'a>> {
    match event {
        UeEvent::Initial { assoc, named, pdu } => {
            let Ok((_, UeMessage::Initial(message))) = access::ue_message(assoc.dialect(), pdu) else { return None };
            if *named && !engine::is_authentic(ue?, &message.nas) {
                return None;
            }
            Some(Event::Initial { assoc: *assoc, message })
        }
        _ if ue.is_none() => None,
        UeEvent::Ngap { assoc, amf_id, pdu } => Some(Event::Ngap { assoc: *assoc, amf_id: *amf_id, pdu }),
        UeEvent::Pfcp { seid, message } => Some(Event::Pfcp { seid: *seid, message }),
        UeEvent::Authentication(answer) => Some(Event::Authentication((**answer).clone())),
        UeEvent::Deadline => Some(Event::Deadline),
        UeEvent::Superseded => Some(Event::Superseded),
        UeEvent::ConnectionLost { assoc } => Some(Event::ConnectionLost { assoc: *assoc }),
        UeEvent::RanIdReused { assoc, ran_id } => Some(Event::RanIdReused { assoc: *assoc, ran_id: *ran_id }),
    }
}
