//! Forwarder: posts events to the mailboxes of UEs and assigns UEs to NFs.
//!
//! The events of one UE are processed one by one and in order, by the worker that holds the UE.

use super::deferred_event::DeferredEvent;
use super::limits::MAX_DEFERRED;
use super::origin::origin;
use super::pools::NfId;
use super::state::{Host, WorkerRings};
use crate::worker::event_message::{EventMessage, ReceivedEvent};
use crate::worker::region_layout;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use vireo_core::amf::access;
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::{Fault, ShallowView};
use vireo_core::placement::message::RanOutput;
use vireo_core::placement::ran_nodes::MessageTarget;
use vireo_core::schedule::kind::NfKind;
use vireo_ops::clock::clock;
use vireo_ops::metrics::TurnedAway;
use vireo_store::region::{Key, LARGE_PACKET_OCTETS, PACKET_OCTETS, Posted, Slot};
use vireo_types::{AssocId, Duration, Instant, Ltmsi, RanUeNgapId, Seid, Tmsi};
use vireo_wire::gtpu;

/// Returns the key of a connection in the index of RAN UE NGAP IDs. They are unique within a RAN
/// node (TS 38.413 9.3.3.2).
pub(super) fn ran_key(node: AssocId, ran_id: RanUeNgapId) -> u64 {
    u64::from(node.0) << 32 | u64::from(ran_id.0)
}

/// Result of posting an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostResult {
    /// The event is in the UE's mailbox, or was dropped.
    Accepted,
    /// No NF is available for the UE.
    NoNf,
    /// No packet buffer is free.
    NoRoom,
}

/// Time after the first message until the slot of a UE is checked. A UE without a record by then
/// has come to nothing.
const FIRST_COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

impl Host {
    pub(super) fn ngap(&mut self, assoc: AssocId, view: Option<ShallowView>, pdu: &[u8], answers: bool) {
        // The balancer sends no view of an invalid message.
        let view = match view.map_or_else(|| access::peek(assoc.dialect(), pdu), Ok) {
            Ok(view) => view,
            Err(fault) => {
                self.fault(assoc, &fault);
                return self.acknowledge_input();
            }
        };
        match self.nodes.target(assoc, (&view, pdu), &self.config, self.current.arrived) {
            MessageTarget::Repeat => {
                tracing::debug!(assoc = assoc.0, "repeat of a message of a lost association dropped");
                self.acknowledge_input();
            }
            MessageTarget::Connected { node, amf_id }
                if self.refuses_path_switch((assoc, node), amf_id, (&view, pdu)) =>
            {
                self.acknowledge_input();
            }
            MessageTarget::Connected { node, amf_id } => match self.ues.region.slot_of(amf_id.ltmsi()) {
                Some(slot) if !self.is_connected_by(slot, node) && !self.admits_unproved(slot, node) => {
                    self.drop_unproved(node);
                }
                Some(slot) => {
                    self.nodes.set_last_association(node, assoc, slot);
                    self.deliver(slot, &Event::Ngap { assoc: node, amf_id, pdu }.into(), view.kind);
                }
                None => {
                    self.unknown_ue(assoc, pdu);
                    self.acknowledge_input();
                }
            },
            MessageTarget::Initial { node, ran_id, tmsi } => self.initial((assoc, node), (ran_id, tmsi), &view, pdu),
            MessageTarget::RanNode => {
                self.node_message(assoc, pdu, (answers, self.current.input));
                self.acknowledge_input();
            }
        }
    }

    /// Returns true if the UE has a connection by the RAN node, or a handover to it prepares one.
    fn is_connected_by(&self, slot: Slot, node: AssocId) -> bool {
        self.nodes.get(node).is_some_and(|node| node.ues.contains(&slot))
    }

    /// Returns true if a message that may not be of the UE may wait in its mailbox, and counts it.
    /// RAN nodes can name the UE in any number of messages, and would use up the mailbox.
    fn admits_unproved(&mut self, slot: Slot, node: AssocId) -> bool {
        let region = &self.ues.region;
        self.events.unproved.admit(slot, origin(&self.nodes, node), |slot| region.waiting(slot))
    }

    /// Drops a message that may not be of the UE that it names.
    fn drop_unproved(&mut self, node: AssocId) {
        let what = format_args!("RAN node on association {}: messages about UEs of others", node.0);
        self.statistics.step_metrics.fault("limit", clock(), what);
        self.acknowledge_input();
    }

    /// Answers a message about an unknown UE.
    pub(super) fn unknown_ue(&mut self, assoc: AssocId, pdu: &[u8]) {
        if let Some(fault) = engine::unknown_ue(assoc.dialect(), pdu) {
            self.fault(assoc, &fault);
        }
    }

    pub(super) fn fault(&mut self, assoc: AssocId, fault: &Fault) {
        self.statistics.step_metrics.fault(fault.kind, clock(), self.nodes.peer(assoc));
        if let Some(pdu) = access::answer(assoc.dialect(), fault) {
            self.egress.send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu });
        }
    }

    /// Answers a faulty message that came by one of a RAN node's associations.
    pub(super) fn fault_of(&mut self, node: AssocId, fault: &Fault) {
        if let Some(assoc) = self.nodes.association_to(node, None) {
            self.fault(assoc, fault);
        }
    }

    /// Handles the first message of an NG connection. It goes to the context of the UE that it
    /// names; the step verifies the identity. Without such a context the host creates a UE.
    fn initial(
        &mut self,
        (assoc, node): (AssocId, AssocId),
        (ran_id, tmsi): (RanUeNgapId, Option<Tmsi>),
        view: &ShallowView,
        pdu: &[u8],
    ) {
        self.forget_ran_id(node, ran_id);
        let known = tmsi.and_then(|tmsi| self.ues.region.lookup(Key::Tmsi, u64::from(tmsi.0)));
        let Some(slot) = known.filter(|_| !self.refuses_short_mac(node, pdu)) else {
            return self.newcomer((assoc, node), pdu, view);
        };
        if !self.admits_unproved(slot, node) {
            return self.drop_unproved(node);
        }
        let refused = !self.admits(view, true);
        self.nodes.set_last_association(node, assoc, slot);
        match refused {
            true => self.deliver(slot, &EventMessage::Congested { assoc: node, pdu }, view.kind),
            false => self.deliver(slot, &EventMessage::Initial { assoc: node, created: None, pdu }, view.kind),
        }
    }

    /// A RAN node that reuses a RAN UE NGAP ID has released the UE that had it.
    pub(super) fn forget_ran_id(&mut self, node: AssocId, ran_id: RanUeNgapId) {
        if let Some(before) = self.ues.region.lookup(Key::Ran, ran_key(node, ran_id)) {
            let input = std::mem::take(&mut self.current.input);
            self.deliver(before, &Event::RanIdReused { assoc: node, ran_id }.into(), NfKind::StateManagement);
            self.current.input = input;
        }
    }

    /// Does the same if another UE than that of a slot had the RAN UE NGAP ID.
    pub(super) fn forget_ran_id_of_others(&mut self, slot: Slot, node: AssocId, ran_id: RanUeNgapId) {
        if self.ues.region.lookup(Key::Ran, ran_key(node, ran_id)).is_some_and(|before| before != slot) {
            self.forget_ran_id(node, ran_id);
        }
    }

    /// Creates a UE for the first message of an unknown UE, or of one that has not proved its
    /// identity. `by` is the association of the message if it still exists.
    pub(super) fn create_ue(&mut self, (by, node): (Option<AssocId>, AssocId), pdu: &[u8], view: &ShallowView) {
        let now = clock();
        if let Err(cause) = self.make_room(node, view, now) {
            return self.turn_away((by, node), pdu, cause);
        }
        let Some(ltmsi) = self.ues.ids.fresh(self.current.bucket) else { return self.no_number() };
        let Ok(slot) = self.ues.own.insert(ltmsi) else {
            return self.turn_away((by, node), pdu, TurnedAway::Full);
        };
        self.mark_used(slot);
        self.events.young.push_back((now, slot, ltmsi));
        self.half_open(slot, node, now);
        if let Some(by) = by {
            self.nodes.set_last_association(node, by, slot);
        }
        self.deliver(slot, &EventMessage::Initial { assoc: node, created: Some(now), pdu }, view.kind);
    }

    /// Records that a slot is in use.
    pub(super) fn mark_used(&mut self, slot: Slot) {
        if slot.number() >= self.ues.slots {
            self.ues.slots = slot.number() + 1;
            self.ues.region.shared_word(region_layout::BOARD_SLOTS).store(self.ues.slots.into(), Ordering::Relaxed);
        }
    }

    /// Frees the slots of UEs without a commit: the first message was invalid, or crashed its
    /// workers. A UE with a record ends by its steps.
    pub(super) fn free_unused_slots(&mut self, now: Instant) {
        while let Some((at, slot, ltmsi)) = self.events.young.front().copied() {
            if now.since(at) < FIRST_COMMIT_TIMEOUT {
                return;
            }
            self.events.young.pop_front();
            let private = self.ues.private.as_ref().is_some_and(|private| private.contains_key(&slot));
            if private || self.ues.region.ltmsi_of(slot) != Some(ltmsi) {
                continue;
            }
            if self.events.deferred_count.contains_key(&slot) || !self.ues.region.is_idle_and_empty(slot) {
                // The first message still waits.
                self.events.young.push_back((now, slot, ltmsi));
                continue;
            }
            // Does nothing if there is a record.
            if self.ues.own.abandon(slot) {
                self.admission.half_open.remove(slot);
            }
        }
    }

    pub(super) fn pfcp(&mut self, upf: SocketAddr, seid: Seid, request: bool, message: &[u8]) {
        match self.ues.region.slot_of(seid.ltmsi()) {
            Some(slot) => {
                if request {
                    return self.deliver_report(slot, &EventMessage::UpfRequest { upf, seid, message });
                }
                self.deliver(slot, &Event::Pfcp { seid, message }.into(), NfKind::from_pfcp(message));
            }
            None => {
                if request {
                    self.unknown_session(upf, message);
                }
                self.acknowledge_input();
            }
        }
    }

    /// Refuses a request of a UPF about an unknown session.
    pub(super) fn unknown_session(&mut self, upf: SocketAddr, message: &[u8]) {
        if gtpu::is_g_pdu(message) {
            // A packet in transit as its session ended.
            return;
        }
        self.statistics.step_metrics.fault("pfcp-unknown-session", clock(), upf);
        self.egress.send(RanOutput::RefuseReport { upf, message: message.to_vec() });
    }

    /// Delivers an event to the UE with this LTMSI. Drops it if there is none, and acknowledges its
    /// input.
    pub(super) fn deliver_to(&mut self, ltmsi: Ltmsi, event: &EventMessage<'_>, kind: NfKind) {
        match self.ues.region.slot_of(ltmsi) {
            Some(slot) => self.deliver(slot, event, kind),
            None => self.acknowledge_input(),
        }
    }

    /// Delivers an event to the UE of a slot.
    pub(super) fn deliver(&mut self, slot: Slot, event: &EventMessage<'_>, kind: NfKind) {
        let (arrived, input) = (self.current.arrived, self.current.input);
        if self.cluster.is_some()
            && let Some(ltmsi) = self.ues.region.ltmsi_of(slot)
            && let Some(machine) = self.machine.as_mut().filter(|machine| machine.is_quiesced(ltmsi))
        {
            let octets = event.encode(arrived, input, Vec::new());
            return machine.defer(ltmsi, DeferredEvent { slot, ltmsi, kind, octets });
        }
        let mut octets = std::mem::take(&mut self.ues.scratch);
        octets.clear();
        octets = event.encode(arrived, input, octets);
        // No event overtakes deferred events of the same UE.
        let waits =
            self.events.deferred_count.contains_key(&slot) || self.post(slot, &octets, kind) != PostResult::Accepted;
        if let Some(ltmsi) = self.ues.region.ltmsi_of(slot).filter(|_| waits) {
            *self.events.deferred_count.entry(slot).or_default() += 1;
            self.events.deferred.push_back(DeferredEvent { slot, ltmsi, kind, octets: octets.clone() });
        }
        self.ues.scratch = octets;
    }

    /// Posts deferred events. Returns false if so many remain that the host must not take inputs.
    pub(super) fn post_deferred(&mut self) -> bool {
        if self.events.deferred.is_empty() {
            return true;
        }
        let mut blocked: FxHashSet<Slot> = FxHashSet::default();
        let mut unposted = Vec::new();
        let mut room = true;
        // Without room for one event there is none for another.
        while room && let Some(event) = self.events.deferred.pop_front() {
            // The slot may belong to another UE.
            let same = self.ues.region.slot_of(event.ltmsi) == Some(event.slot);
            let result = match same {
                true if blocked.contains(&event.slot) => PostResult::NoNf,
                true => self.post(event.slot, &event.octets, event.kind),
                false => PostResult::Accepted,
            };
            room = result != PostResult::NoRoom;
            if result == PostResult::Accepted {
                if let Some(count) = self.events.deferred_count.get_mut(&event.slot) {
                    *count -= 1;
                    if *count == 0 {
                        self.events.deferred_count.remove(&event.slot);
                    }
                }
            } else {
                blocked.insert(event.slot);
                unposted.push(event);
            }
        }
        unposted.into_iter().rev().for_each(|event| self.events.deferred.push_front(event));
        room && self.events.deferred.len() < MAX_DEFERRED
    }

    /// Posts an event to a guest. Returns false if there is no room.
    pub(super) fn post_to_guest(&mut self, slot: Slot, octets: &[u8], kind: NfKind) -> bool {
        self.post(slot, octets, kind) == PostResult::Accepted
    }

    /// Posts an event to the mailbox of a UE.
    fn post(&mut self, slot: Slot, octets: &[u8], kind: NfKind) -> PostResult {
        let Some(chosen) = self.nf_for(slot, kind) else { return PostResult::NoNf };
        let Some(packet) = self.ues.own.packet(self.events.sequence + 1, octets) else {
            if octets.len() > LARGE_PACKET_OCTETS {
                // No buffer can hold the event, and waiting would block all inputs.
                self.statistics.step_metrics.fault(
                    "limit",
                    clock(),
                    format_args!("an event of a UE has {} octets", octets.len()),
                );
                return PostResult::Accepted;
            }
            if octets.len() > PACKET_OCTETS {
                tracing::debug!(octets = octets.len(), "no large packet is free");
            }
            return PostResult::NoRoom;
        };
        self.events.sequence += 1;
        let worker = chosen.id.worker;
        let posted = self.ues.region.post(&self.ues.own, slot, packet, worker).or_else(|full| {
            match EventMessage::decode(octets) {
                // A UE cannot avoid eviction by sending many messages.
                Some(ReceivedEvent { event: EventMessage::Event { event: Event::Evicted, .. }, .. }) => {
                    self.ues.region.post_last(&self.ues.own, slot, packet, worker)
                }
                _ => Err(full),
            }
        });
        if posted.is_ok() {
            self.events.unproved.on_posted(slot);
        }
        match posted {
            Ok(Posted::Holder) => {
                if chosen.violation {
                    self.workers.pools.record_violation(chosen.at);
                }
                if let Some(private) = &mut self.ues.private {
                    private.entry(slot).or_insert_with(|| (chosen.id, Default::default()));
                }
                self.push(chosen.id, slot);
            }
            Ok(Posted::Queued) => {}
            Err(_) => {
                // A well-behaved UE has a few messages waiting. Excess messages are dropped at the
                // UE's own expense.
                self.ues.own.free(packet);
                self.statistics.step_metrics.fault("limit", clock(), "a UE has too many messages waiting");
            }
        }
        PostResult::Accepted
    }

    /// Selects the NF for an event of a UE that no worker holds: the NF of its procedure, else the
    /// one of the pool that is expected to finish first.
    pub(super) fn nf_for(&mut self, slot: Slot, kind: NfKind) -> Option<super::pools::NfChoice> {
        if let Some(private) = &self.ues.private
            && let Some((id, _)) = private.get(&slot)
        {
            // A stateful worker keeps its UEs for life.
            return self.workers.pools.by_pin(region_layout::nf_pin(id.worker, id.nf));
        }
        let pin = self.ues.region.pin_of(slot);
        if let Some(chosen) = self.workers.pools.by_pin(pin) {
            return Some(chosen);
        }
        // A slot without a UE (its stateful worker died) still has messages that need an answer.
        let ltmsi = self.ues.region.ltmsi_of(slot).unwrap_or(Ltmsi::from_raw(0));
        self.workers.pools.choose(self.ues.ids.slice_of(ltmsi), kind, u64::from(ltmsi.get()))
    }

    /// Assigns a UE to an NF.
    pub(super) fn push(&mut self, id: NfId, slot: Slot) {
        // An unknown NF id belongs to a dead worker; its takeover is pending and includes the UE.
        // UEs that wait already go first.
        let full = self.workers.unpushed.contains_key(&id);
        let pushed =
            !full && self.workers.pools.nf(id).is_some_and(|nf| nf.queue.push(u64::from(slot.number())).is_ok());
        if !pushed {
            self.workers.unpushed.entry(id).or_default().push_back(slot);
        }
        request_wake(&mut self.workers.rings, id);
    }

    /// Wakes the workers with new work, once per pass of the loop. A woken worker on the same
    /// processor runs at once, and otherwise would do so for each UE.
    pub(super) fn wake(&mut self) {
        for worker in self.workers.rings.iter_mut().filter(|w| w.wake_pending) {
            worker.wake_pending = false;
            worker.bell.ring();
        }
    }

    /// Retries UEs that did not fit into a queue.
    pub(super) fn retry_full_queues(&mut self) {
        let (pools, rings) = (&self.workers.pools, &mut self.workers.rings);
        self.workers.unpushed.retain(|id, slots| {
            let Some(nf) = pools.nf(*id) else { return true };
            while let Some(slot) = slots.front() {
                if nf.queue.push(u64::from(slot.number())).is_err() {
                    break;
                }
                slots.pop_front();
                request_wake(rings, *id);
            }
            !slots.is_empty()
        });
    }

    /// Returns the number of UEs that wait for room in a queue.
    pub(super) fn waiting_ues(&self) -> usize {
        self.workers.unpushed.values().map(VecDeque::len).sum()
    }
}

/// Marks the worker of an NF for waking.
fn request_wake(rings: &mut [WorkerRings], id: NfId) {
    if let Some(worker) = rings.iter_mut().find(|w| w.number == id.worker) {
        worker.wake_pending = true;
    }
}
