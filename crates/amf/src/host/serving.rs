//! Procedures of other hosts' UEs that this host serves, and proposals of other hosts to this one.
//!
//! A worker runs the step of a served UE like any other, on a copy of the replica entry in a guest
//! slot of the region. Its commit there is no commit of the UE: this host proposes the result to
//! the owner, which commits it and emits the effects.

mod guests;

pub(super) use guests::Guests;

use super::deferred_event::DeferredEvent;
use super::egress::EffectRoute;
use super::state::Host;
use crate::worker::event_message::EventMessage;
use crate::worker::outbox::Outbox;
use crate::worker::region_layout;
use guests::{Guest, WaitingReport};
use vireo_cluster::Input;
use vireo_cluster::replicator::Replicator;
use vireo_core::amf::context::EncodedContext;
use vireo_core::amf::engine::Event;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::host::{NamedUe, ProposalDecision, ServedInput, named_ue};
use vireo_core::placement::message::{Envelope, HostNotice, PeerEvent, SERVING_TIMEOUT};
use vireo_core::placement::ran_nodes::MessageTarget;
use vireo_core::placement::replica::{Proposal, ProposalAnswer, ProposalResult, ServedStep};
use vireo_core::schedule::kind::NfKind;
use vireo_ops::clock::clock;
use vireo_ops::metrics::ProposalResult as Decision;
use vireo_store::region::{Buffer, CommitRecord, Slot, Snapshot};
use vireo_types::{AssocId, Duration, Instant, Ltmsi, RanUeNgapId};

/// Time for which a guest is kept after its last step.
const GUEST_RETENTION: Duration = Duration::from_secs(1);
/// Maximum number of reports that wait for serving hosts.
const REPORTS: usize = 4096;
/// Interval of the search for guests that are not used any more.
const SWEEP: Duration = Duration::from_millis(100);

impl Host {
    fn replicator(&self) -> Option<&Replicator> {
        self.cluster.as_ref().map(|cluster| &cluster.member.replicator)
    }

    /// Handles an input that a balancer has sent to this host as the serving host of its UE.
    pub(super) fn serve_input(&mut self, envelope: Envelope, at: Instant) {
        // The answer to the last proposal of the UE may not have woken this host.
        self.take_proposal_answers();
        let number = envelope.number;
        let ltmsi = match &envelope.event {
            PeerEvent::Ngap { assoc, view, pdu } => {
                let target = view.map(|view| (self.nodes.target(*assoc, (&view, pdu), &self.config, at), view));
                match target {
                    Some((MessageTarget::Repeat, _)) => return self.egress.send(HostNotice::Done { number }),
                    Some((MessageTarget::Connected { node, amf_id }, view)) => {
                        Some(amf_id.ltmsi()).filter(|ltmsi| !self.defers_path_switch(node, *ltmsi, (&view, pdu)))
                    }
                    Some((MessageTarget::Initial { node, tmsi: Some(tmsi), .. }, view))
                        if self.admits(&view, true) && !self.defers_short_mac(node, pdu) =>
                    {
                        self.replicator().and_then(|replicator| replicator.ltmsi_of(tmsi))
                    }
                    _ => None,
                }
            }
            PeerEvent::Pfcp { seid, request: false, .. } => Some(seid.ltmsi()),
            _ => None,
        };
        self.cluster.iter_mut().for_each(|cluster| cluster.inputs += 1);
        let input = Input::Peer { envelope, at };
        self.drive(|machine, io| machine.serve(ltmsi, (number, input), io));
        self.start_served();
    }

    /// Lets the replicator wake this host for answers to proposals if an input waits for one.
    pub(super) fn announce_awaited_answers(&self) {
        if let (Some(replicator), Some(machine)) = (self.replicator(), &self.machine) {
            replicator.set_awaits_answers(machine.awaits_answers());
        }
    }

    /// Handles answers to proposals of this host.
    fn take_proposal_answers(&mut self) {
        let answers = match self.replicator().filter(|replicator| replicator.has_proposal_answers()) {
            Some(replicator) => replicator.take_proposal_answers(),
            None => Vec::new(),
        };
        if !answers.is_empty() {
            for ProposalAnswer { ltmsi, result, .. } in &answers {
                self.guests.on_answer(*ltmsi, *result == ProposalResult::Committed);
            }
            self.drive(|machine, io| machine.on_proposal_answers(answers, io));
        }
    }

    /// Handles answers to proposals of this host, and starts inputs that waited for them.
    pub(super) fn advance_served(&mut self) {
        self.take_proposal_answers();
        self.start_served();
        let now = clock();
        self.release_reports(now);
        if now.since(self.guests.swept) >= SWEEP && !self.guests.ues.is_empty() {
            self.sweep_guests(now);
        }
    }

    /// Delivers a report of a UPF to a UE, after the procedure that another host serves.
    pub(super) fn deliver_report(&mut self, slot: Slot, event: &EventMessage<'_>) {
        // No report overtakes an earlier one of its UE.
        let is_served = self.ues.region.pin_of(slot) == region_layout::UNPINNED || self.guests.has_report(slot);
        let Some(ltmsi) = self.ues.region.ltmsi_of(slot).filter(|_| is_served && self.guests.reports.len() < REPORTS)
        else {
            return self.deliver(slot, event, NfKind::Paging);
        };
        let octets = event.encode(self.current.arrived, self.current.input, Vec::new());
        let event = DeferredEvent { slot, ltmsi, kind: NfKind::Paging, octets };
        self.guests.reports.push_back(WaitingReport { deadline: clock() + SERVING_TIMEOUT, event });
    }

    /// Delivers reports that have waited for the end of a procedure.
    fn release_reports(&mut self, now: Instant) {
        let region = &self.ues.region;
        let is_over = |report: &mut WaitingReport| {
            now >= report.deadline || region.pin_of(report.event.slot) != region_layout::UNPINNED
        };
        while let Some(WaitingReport { event, .. }) = self.guests.reports.pop_front_if(|report| is_over(report)) {
            *self.events.deferred_count.entry(event.slot).or_default() += 1;
            self.events.deferred.push_back(event);
        }
    }

    fn start_served(&mut self) {
        while let Some(ServedInput { ltmsi, number, input }) =
            self.machine.as_mut().and_then(|machine| machine.next_served())
        {
            if !self.start_step(ltmsi, number, input) {
                self.return_served(ltmsi, number);
            }
        }
    }

    /// Leaves an input and those behind it to the owner of the UE.
    fn return_served(&mut self, ltmsi: Ltmsi, number: u64) {
        self.guests.end(ltmsi);
        self.drive(|machine, io| machine.return_served(ltmsi, number, io));
    }

    /// Gives an input of a served UE to a worker. Returns false if the owner must process it.
    fn start_step(&mut self, ltmsi: Ltmsi, number: u64, input: Input) -> bool {
        let Input::Peer { envelope, at } = input else { return false };
        let Some(slot) = self.guest_slot(ltmsi, number) else { return false };
        self.current.arrived = at;
        let (event, kind) = match &envelope.event {
            PeerEvent::Ngap { assoc, view: Some(view), pdu } => {
                let Some(node) = self.nodes.node_of(*assoc) else { return false };
                self.nodes.set_last_association(node, *assoc, slot);
                self.guests.ues.entry(ltmsi).and_modify(|guest| guest.node = Some(node));
                let event = match named_ue(view, &self.config) {
                    NamedUe::Connected(amf_id) if self.names_other_connection((slot, node), amf_id, (view, pdu)) => {
                        return false;
                    }
                    NamedUe::Connected(amf_id) => Event::Ngap { assoc: node, amf_id, pdu }.into(),
                    NamedUe::Initial { .. } => EventMessage::Initial { assoc: node, created: None, pdu },
                    NamedUe::RanNode => return false,
                };
                (event, view.kind)
            }
            PeerEvent::Pfcp { seid, message, .. } => {
                (Event::Pfcp { seid: *seid, message }.into(), NfKind::from_pfcp(message))
            }
            _ => return false,
        };
        let mut octets = std::mem::take(&mut self.ues.scratch);
        octets.clear();
        octets = event.encode(at, number, octets);
        let is_posted = self.post_to_guest(slot, &octets, kind);
        self.ues.scratch = octets;
        is_posted
    }

    /// Returns the slot with the present replica entry of a UE, for a step that begins.
    fn guest_slot(&mut self, ltmsi: Ltmsi, input: u64) -> Option<Slot> {
        let replicator = self.cluster.as_ref().map(|cluster| &cluster.member.replicator)?;
        let mut before = replicator.versions_for_serving(ltmsi)?;
        let now = clock();
        let guests = &mut self.guests;
        let slot = match guests.ues.get(&ltmsi) {
            // A worker may still have an earlier step, whose input went to the owner.
            Some(guest) if guest.input != 0 || !self.ues.region.is_idle_and_empty(guest.slot) => return None,
            Some(guest) if guest.versions == Some(before) => guest.slot,
            known => {
                // A copy may have replaced the entry since.
                let stored = replicator.read_for_serving(ltmsi)?;
                before = EncodedContext::new(&stored).ok()?.versions;
                let (known, slot) = match known {
                    Some(guest) => (true, guest.slot),
                    None => (false, self.ues.own.insert_guest(*guests.free.last()?, ltmsi)?),
                };
                let mut seen = Snapshot::default();
                self.ues.region.read(slot, &mut seen);
                let record =
                    CommitRecord { consumed: self.events.sequence, context: &stored, ..CommitRecord::default() };
                if self.ues.own.commit(slot, &seen, &record).is_err() {
                    if !known {
                        self.ues.own.abandon(slot);
                    }
                    return None;
                }
                if !known {
                    guests.free.pop();
                }
                slot
            }
        };
        let node = guests.ues.get(&ltmsi).and_then(|guest| guest.node);
        let guest = Guest { slot, versions: Some(before), proposed: None, before, input, node, used: now };
        guests.ues.insert(ltmsi, guest);
        guests.inputs.insert(input, ltmsi);
        Some(slot)
    }

    /// Handles the record of a step on a guest: proposes the result to the owner of the UE.
    pub(super) fn propose(&mut self, slot: Slot, buffer: Buffer, outbox: &Outbox, snapshot: &Snapshot) {
        self.ues.own.sent(buffer);
        let Some(ltmsi) = self.ues.region.ltmsi_of(slot) else { return };
        let Some(guest) = self.guests.ues.get_mut(&ltmsi).filter(|guest| guest.slot == slot) else { return };
        let (input, before) = (guest.input, guest.before);
        guest.versions = None;
        if outbox.input != input || input == 0 {
            // The result of an input that went to the owner.
            return;
        }
        guest.used = clock();
        guest.proposed = EncodedContext::new(&snapshot.context).ok().map(|context| context.versions);
        self.guests.end(ltmsi);
        let step = ServedStep {
            epoch: self.owner().and_then(|owner| owner.map()).map_or(0, |map| map.epoch()),
            ltmsi,
            input,
            before,
            after: &snapshot.context,
            outbox: snapshot.outbox.clone(),
            associations: self.nodes.effect_associations(slot, &outbox.effects),
            deadline: snapshot.deadline,
            is_in_progress: snapshot.pin != 0,
        };
        match Proposal::new(step) {
            Some(proposal) => drop(self.drive(|machine, io| machine.propose(proposal, io))),
            None => self.return_served(ltmsi, input),
        }
    }

    /// Handles an event that a worker returned. Returns false if it is not that of a guest.
    pub(super) fn return_guest_event(&mut self, input: u64) -> bool {
        let Some(ltmsi) = self.guests.inputs.get(&input).copied().filter(|_| input != 0) else { return false };
        self.return_served(ltmsi, input);
        true
    }

    /// Frees guests that are not used any more, and leaves inputs without a result to the owners.
    fn sweep_guests(&mut self, now: Instant) {
        self.guests.swept = now;
        let is_over =
            |guest: &Guest| now.since(guest.used) >= GUEST_RETENTION && self.ues.region.is_idle_and_empty(guest.slot);
        let over: Vec<Ltmsi> =
            self.guests.ues.iter().filter(|(_, guest)| is_over(guest)).map(|(ltmsi, _)| *ltmsi).collect();
        for ltmsi in over {
            let input = self.guests.ues.get(&ltmsi).map_or(0, |guest| guest.input);
            if input != 0 {
                self.return_served(ltmsi, input);
            }
            if let Some(guest) = self.guests.ues.remove(&ltmsi) {
                self.free_guest(guest);
            }
        }
    }

    fn free_guest(&mut self, guest: Guest) {
        let Guest { slot, node, .. } = guest;
        node.into_iter().for_each(|node| self.nodes.forget_last_association(node, slot));
        let mut record = Snapshot::default();
        let removed = match self.ues.region.read(slot, &mut record) {
            true => self.ues.own.remove(slot, &record).is_ok(),
            false => self.ues.own.abandon(slot),
        };
        match self.ues.region.guest_index(slot).filter(|_| removed) {
            Some(index) => self.guests.free.push(index),
            None => tracing::error!(slot = slot.number(), "bug: guest slot not freed"),
        }
    }

    /// Commits or refuses the proposal of a serving host, and answers it.
    pub(super) fn on_proposal(&mut self, from: HostId, proposal: &Proposal) {
        let decision = self.drive(|machine, io| machine.check_proposal(from, proposal, io));
        let is_committed = match decision {
            Some(ProposalDecision::Commit { slot, before }) => self.commit_proposal((slot, from), proposal, &before),
            Some(ProposalDecision::Refuse) => false,
            Some(ProposalDecision::Repeat) | None => return,
        };
        let result = if is_committed { Decision::Committed } else { Decision::Refused };
        self.statistics.step_metrics.metrics.proposal(result);
        self.drive(|machine, io| machine.answer_proposal(from, proposal, is_committed, clock(), io));
    }

    /// Commits a proposal on the stored context `before`. Returns false if it cannot.
    fn commit_proposal(&mut self, (slot, from): (Slot, HostId), proposal: &Proposal, before: &[u8]) -> bool {
        let Some((context, outbox)) = proposal.context(before).zip(Outbox::decode(&proposal.outbox)) else {
            return false;
        };
        let mut seen = Snapshot::default();
        if !self.ues.region.read(slot, &mut seen) {
            return false;
        }
        let pin = if proposal.is_in_progress { region_layout::UNPINNED } else { 0 };
        let record = CommitRecord {
            consumed: seen.consumed,
            deadline: proposal.deadline,
            pin,
            context: &context,
            outbox: &proposal.outbox,
        };
        let committed = match self.ues.own.commit(slot, &seen, &record) {
            Ok(committed) => committed,
            Err(error) => {
                tracing::debug!(%error, ltmsi = %proposal.ltmsi, "the step of a serving host is refused");
                return false;
            }
        };
        if let Some(input) = outbox.connecting_input() {
            // A reset that the RAN node sent before may arrive before the effects leave.
            self.nodes.on_connected(slot, input);
        }
        if let Some((node, ran_id)) = new_connection(&outbox) {
            self.forget_ran_id_of_others(slot, node, ran_id);
        }
        for (node, by) in proposal.associations.into_iter().flatten() {
            self.nodes.restore_association(node, by, slot);
        }
        seen.context = context;
        seen.outbox.clone_from(&proposal.outbox);
        (seen.pin, seen.deadline) = (pin, proposal.deadline);
        let route = EffectRoute { associations: proposal.associations, served_by: Some(from) };
        self.enter_record((slot, committed.version), committed.buffer, outbox, &seen, Some(route));
        true
    }
}

/// Returns the connection that a step has begun.
fn new_connection(outbox: &Outbox) -> Option<(AssocId, RanUeNgapId)> {
    let (before, after) = (outbox.before.and_then(|s| s.connection), outbox.after.and_then(|s| s.connection));
    after.filter(|_| before != after)
}
