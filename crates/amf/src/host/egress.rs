//! Egress: executes the effects of commits, once each.
//!
//! Effects are sent in commit order. The commit record is then marked as sent, so its effects are
//! not executed again, also if another process offers the record.

mod commit_order;
mod effect_route;

pub(super) use commit_order::CommitOrder;
pub(super) use effect_route::EffectRoute;

use super::cluster::Owner;
use super::limits::BATCH;
use super::state::Host;
use super::step_metrics::StepMetrics;
use crate::smf_link::RequestExtras;
use crate::worker::context_database::DatabaseRef;
use crate::worker::event_message::{self, EventMessage};
use crate::worker::outbox::Outbox;
use crate::worker::{Location, OUTBOX};
use vireo_core::amf::access;
use vireo_core::amf::engine::Event;
use vireo_core::placement::host::{NamedUe, named_ue};
use vireo_core::placement::message::{HostNotice, RanOutput};
use vireo_core::sba::{N1N2TransferResult, PiggybackedSmContext, SessionNumber, SmfRequest};
use vireo_core::step::{Effect, effect_key};
use vireo_ops::clock::clock;
use vireo_ops::metrics::TurnedAway;
use vireo_ops::shared_record::DelegatedCommit;
use vireo_store::Version;
use vireo_store::region::{Buffer, InsertError, Key, Packet, Slot, Snapshot, next_version};
use vireo_types::{AssocId, Ltmsi};

/// Number of returned inputs that are remembered.
const MAX_RETURNED_INPUTS: usize = 1024;

impl Host {
    /// Reads the rings of all workers. Returns true if a ring had an item.
    pub(super) fn read_worker_rings(&mut self) -> bool {
        (self.current.arrived, self.current.input) = (clock(), 0);
        if self.awaits_too_many() {
            return false;
        }
        let mut busy = false;
        for at in 0..self.workers.rings.len() {
            busy |= self.drain_rings(at);
        }
        // A worker reports a record before another worker gets the UE. The predecessor of an early
        // record is therefore in a ring.
        let mut before = usize::MAX;
        while (1..before).contains(&self.ues.order.early.len()) {
            let early = std::mem::take(&mut self.ues.order.early);
            before = early.len();
            early.into_iter().for_each(|buffer| self.emit(buffer));
        }
        if !busy {
            self.emit_anyway();
        }
        busy
    }

    /// Reads up to `BATCH` items of each ring of one worker. Returns true if a ring had an item.
    pub(super) fn drain_rings(&mut self, at: usize) -> bool {
        let mut busy = false;
        self.workers.faults.worker = Some(self.workers.rings[at].number);
        for _ in 0..BATCH {
            let Some(item) = self.workers.rings[at].committed.take() else { break };
            if let Some(buffer) = self.ues.region.buffer_of(item) {
                self.emit(buffer);
            }
            busy = true;
        }
        for _ in 0..BATCH {
            let Some(item) = self.workers.rings[at].returned.take() else { break };
            self.on_returned_packet(Packet::from_item(item));
            busy = true;
        }
        self.workers.faults.worker = None;
        busy
    }

    /// Emits early records whose predecessors are missing. This is a bug, but it must not block the
    /// UEs.
    fn emit_anyway(&mut self) {
        let mut early: Vec<_> = std::mem::take(&mut self.ues.order.early)
            .into_iter()
            .filter_map(|buffer| Some((self.ues.region.place_of_buffer(buffer)?, buffer)))
            .collect();
        early.sort_unstable_by_key(|(place, _)| *place);
        for ((slot, version), buffer) in early {
            tracing::error!(slot = slot.number(), version, "bug: effects of a commit not sent before the next commit");
            *self.ues.order.last(slot) = version.wrapping_sub(1);
            self.emit(buffer);
        }
    }

    /// Returns true if more than the effects of a record is needed when they leave.
    pub(super) fn emits_contexts(&self) -> bool {
        self.owner().is_some_and(Owner::copies) || self.smf_commits() || self.persistence.keep.is_some()
    }

    /// Emits the effects of a record after those of its predecessor, unless they were emitted.
    pub(super) fn emit(&mut self, buffer: Buffer) {
        let mut snapshot = std::mem::take(&mut self.ues.snapshot);
        let whole = self.emits_contexts();
        if self.ues.region.read_record(buffer, &mut snapshot, whole) && !snapshot.sent {
            match (Outbox::decode(&snapshot.outbox), self.ues.region.place_of_buffer(buffer)) {
                (Some(outbox), Some((slot, _))) if self.ues.region.is_guest(slot) => {
                    self.propose(slot, buffer, &outbox, &snapshot);
                }
                (Some(_), Some((slot, version))) if !self.ues.order.is_next(slot, version) => {
                    // A record that waits for replicas was offered before.
                    if !self.cluster.as_ref().is_some_and(|cluster| cluster.awaits(buffer)) {
                        self.ues.order.early.push(buffer);
                    }
                }
                (Some(outbox), Some(place)) => self.enter_record(place, buffer, outbox, &snapshot, None),
                _ => self.broken_record(buffer),
            }
        }
        self.ues.snapshot = snapshot;
    }

    /// Replicates a record that is next in the order of its UE, or emits its effects at once.
    /// `route` is given for the step of a serving host.
    pub(super) fn enter_record(
        &mut self,
        (slot, version): (Slot, Version),
        buffer: Buffer,
        outbox: Outbox,
        snapshot: &Snapshot,
        route: Option<EffectRoute>,
    ) {
        *self.ues.order.last(slot) = version;
        if let Some(keep) = &mut self.persistence.keep {
            let is_registered = outbox.after.is_some_and(|after| after.registered);
            keep.on_commit(slot, is_registered, &snapshot.context, self.current.arrived);
        }
        if let Some(deadline) = snapshot.deadline {
            self.events.timers.schedule(slot, deadline, outbox.at);
        }
        if self.owner().is_some_and(Owner::copies) {
            self.copy((slot, buffer), outbox, snapshot, route);
        } else {
            self.current.delegated_commit = self.delegated_commit(&snapshot.context);
            self.emit_effects(slot, buffer, outbox, EffectRoute::default());
        }
    }

    /// Executes the effects of a record, once, by these associations as far as they are up.
    pub(super) fn emit_effects(&mut self, slot: Slot, buffer: Buffer, outbox: Outbox, route: EffectRoute) {
        let forgets = outbox.forgets();
        self.act(slot, outbox, route);
        self.ues.own.sent(buffer);
        if forgets {
            self.free_removed_slot(slot, Some(buffer));
        }
    }

    /// Frees the slot of a removed context, unless the UE has returned to it meanwhile.
    fn free_removed_slot(&mut self, slot: Slot, tombstone: Option<Buffer>) {
        self.ues.ids.free_uncommitted_numbers(slot, |_, _, _| false);
        let mut now = std::mem::take(&mut self.ues.snapshot);
        let there = self.ues.region.read(slot, &mut now);
        match tombstone {
            Some(buffer) if there && now.buffer() == Some(buffer) => match self.ues.own.remove(slot, &now) {
                Ok(()) => *self.ues.order.last(slot) = next_version(now.version()),
                Err(error) => tracing::error!(%error, "bug: context not removed"),
            },
            Some(_) => {}
            None => {
                self.ues.own.abandon(slot);
            }
        }
        self.ues.snapshot = now;
    }

    /// Processes a returned packet: an event without its UE, or the outbox of a stateful worker.
    pub(super) fn on_returned_packet(&mut self, packet: Packet) {
        let mut octets = Vec::new();
        if let Some(sequence) = self.ues.region.read_packet(packet, &mut octets) {
            if sequence & OUTBOX != 0 {
                self.private_outbox((sequence & !OUTBOX) as u32, &octets);
            } else if !self.workers.returned.contains(&sequence) {
                if self.workers.returned.len() == MAX_RETURNED_INPUTS {
                    self.workers.returned.pop_front();
                }
                self.workers.returned.push_back(sequence);
                self.redeliver(&octets);
            }
        }
        self.ues.own.free(packet);
    }

    fn private_outbox(&mut self, slot: u32, octets: &[u8]) {
        let (Some(slot), Some(outbox)) = (self.ues.region.slot_at(slot), Outbox::decode(octets)) else { return };
        let (forgets, after, deadline) = (outbox.forgets(), outbox.after, outbox.deadline);
        if let Some(deadline) = deadline {
            self.events.timers.schedule(slot, deadline, outbox.at);
        }
        if let Some((_, summary)) = self.ues.private.as_mut().and_then(|private| private.get_mut(&slot)) {
            *summary = after.unwrap_or_default();
        }
        self.act(slot, outbox, EffectRoute::default());
        if forgets {
            if let Some(private) = &mut self.ues.private {
                private.remove(&slot);
            }
            self.free_removed_slot(slot, None);
        }
    }

    /// Redelivers an event that was posted to the wrong UE.
    fn redeliver(&mut self, octets: &[u8]) {
        let decoded = event_message::EventMessage::decode(octets);
        let unproved = match decoded.as_ref().map(|decoded| &decoded.event) {
            Some(EventMessage::Initial { assoc: node, created: None, pdu }) => Some((*node, *pdu)),
            _ => None,
        };
        if decoded.as_ref().is_some_and(|decoded| self.return_guest_event(decoded.input)) {
            return unproved.into_iter().for_each(|(node, pdu)| self.on_returned_initial(node, pdu));
        }
        unproved.into_iter().for_each(|(node, pdu)| self.on_unproved_initial(node, pdu));
        (self.current.input, self.current.bucket) = (decoded.as_ref().map_or(0, |decoded| decoded.input), None);
        // Event messages name the RAN node.
        match decoded.map(|decoded| decoded.event) {
            Some(EventMessage::Initial { assoc: node, pdu, .. }) => self.redeliver_initial(node, pdu),
            Some(EventMessage::Congested { assoc: node, pdu }) => {
                self.turn_away((None, node), pdu, TurnedAway::Overload);
            }
            Some(EventMessage::Event { event: Event::Ngap { assoc: node, pdu, .. }, .. }) => {
                if let Some(assoc) = self.nodes.association_to(node, None) {
                    self.unknown_ue(assoc, pdu);
                }
                self.acknowledge_input();
            }
            Some(EventMessage::UpfRequest { upf, message, .. }) => self.unknown_session(upf, message),
            Some(EventMessage::Event { event: Event::Transfer(transfer), .. }) => {
                self.answer_transfer(transfer.token, N1N2TransferResult::Unknown, None)
            }
            _ => {}
        }
    }

    /// Creates a UE for a first message that named another one. Answers a first message that no
    /// worker can decode.
    fn redeliver_initial(&mut self, node: AssocId, pdu: &[u8]) {
        let dialect = node.dialect();
        let view = access::ue_message(dialect, pdu).and_then(|_| access::peek(dialect, pdu));
        match view.map(|view| (view, named_ue(&view, &self.config))) {
            Ok((view, NamedUe::Initial { tmsi, .. })) => {
                // The balancer routed the message by this bucket, and does so on redelivery.
                self.current.bucket = tmsi.map(|tmsi| self.ues.ids.bucket_of(tmsi));
                self.create_ue((None, node), pdu, &view);
            }
            Ok(_) => self.acknowledge_input(),
            Err(fault) => {
                self.fault_of(node, &fault);
                self.acknowledge_input();
            }
        }
    }

    /// Executes the effects of a step in order.
    fn act(&mut self, slot: Slot, outbox: Outbox, route: EffectRoute) {
        let EffectRoute { associations, served_by } = route;
        let connecting_input = outbox.connecting_input();
        let Outbox { at, ltmsi, key, input, before, after, settled, seids, effects, notes, .. } = outbox;
        let delegated_commit = self.current.delegated_commit.take();
        // If the SMF commits for the AMF, the input is complete when the SMF's response arrives.
        let has_smf_request = effects.iter().any(|effect| matches!(effect, Effect::SmfRequest { .. }));
        let is_delegated = has_smf_request
            && delegated_commit.as_ref().is_some_and(|delegated_commit| delegated_commit.part.is_some());
        let (smf_input, input) = if is_delegated { (input, 0) } else { (0, input) };
        self.statistics.totals.change(before, after);
        self.statistics.ue_changes.note(slot, (before, after), self.current.arrived);
        self.on_connections_changed(slot, before, after);
        if let Some(input) = connecting_input {
            self.nodes.on_connected(slot, input);
        }
        if self.ues.region.ltmsi_of(slot) != Some(ltmsi) && !self.ues.region.rename(slot, ltmsi) {
            tracing::error!(%ltmsi, "bug: UE not renumbered");
        }
        for old in settled {
            self.ues.region.drop_alias(slot, old);
        }
        let slice = self.ues.ids.slice_of(ltmsi);
        for note in &notes {
            self.statistics.step_metrics.note(note, at, slice, format_args!("UE {ltmsi}"));
        }
        self.count_failed_path_switch(&notes, &effects);
        let mut seids = seids.into_iter();
        for (n, effect) in effects.into_iter().enumerate() {
            match effect {
                Effect::Ngap { assoc: node, pdu } => {
                    self.send_about((Some(slot), ltmsi), (node, associations), effect_key(key, n), pdu);
                }
                Effect::ReleaseStale { assoc: node, amf_id, ran_id } => {
                    self.release_stale((slot, ltmsi), node, (amf_id, ran_id), effect_key(key, n));
                }
                Effect::Pfcp { upf, message, .. } => {
                    let seid = seids.next().flatten();
                    self.egress.send(RanOutput::Pfcp { upf, key: effect_key(key, n), seid, served_by, message });
                }
                Effect::Authenticate(request) => {
                    let node = after.and_then(|summary| summary.connection).map(|(node, _)| node);
                    self.authenticate((slot, ltmsi), node, request);
                }
                Effect::BindTmsi(tmsi) => self.bind(slot, Key::Tmsi, u64::from(tmsi.0)),
                Effect::FreeTmsi(tmsi) => self.ues.region.unbind(slot, Key::Tmsi, u64::from(tmsi.0)),
                Effect::BindSupi(supi) => {
                    self.drive(|machine, io| machine.bind_subscriber((slot, supi), at, clock(), io));
                }
                Effect::BindSupiSince(supi, began) => {
                    self.drive(|machine, io| machine.bind_subscriber_since((slot, supi), began, clock(), io));
                }
                Effect::FreeAddress(dnn, address) => {
                    // The lender of a foreign address may allocate it again.
                    let part = self.ues.ids.free_address(slot, &dnn, &address);
                    if let Some(to) = part.and_then(|part| self.machine.as_ref()?.lender(part)) {
                        self.egress.send(HostNotice::ReturnAddress { to, dnn, address });
                    }
                }
                Effect::SmfRequest { number, request, sm_context } => {
                    let with = RequestExtras {
                        sm_context: sm_context.as_ref(),
                        delegated_commit: delegated_commit.as_ref(),
                        input: smf_input,
                    };
                    self.send_smf_request((ltmsi, effect_key(key, n)), number, request, with);
                }
                Effect::N1N2TransferReply { token, result, sm_context } => {
                    self.answer_transfer(token, result, sm_context.as_ref())
                }
                Effect::DeleteContext => {}
            }
        }
        StepMetrics::trace(&notes, (ltmsi, key), at);
        if input != 0 {
            self.egress.send(HostNotice::Done { number: input });
        }
    }

    /// Returns true if the SMF commits to the records of UEs.
    pub(super) fn smf_commits(&self) -> bool {
        matches!(&self.workers.location, Location::Database(config) if config.records.is_shared())
    }

    /// Returns the commit that a UE's requests to the SMF delegate, if the SMF commits to its
    /// record.
    fn delegated_commit(&self, context: &[u8]) -> Option<DelegatedCommit> {
        let elsewhere = DatabaseRef::decode(context).filter(|_| self.smf_commits())?;
        Some(DelegatedCommit { record: elsewhere.id, part: DatabaseRef::part(context).map(<[u8]>::to_vec) })
    }

    /// Sends a request to the SMF with the key of the effect.
    pub(super) fn send_smf_request(
        &self,
        (ltmsi, key): (Ltmsi, u64),
        number: SessionNumber,
        request: SmfRequest,
        with: RequestExtras<'_>,
    ) {
        match &self.smf {
            Some(smf) => smf.send_request((ltmsi, key), number, request, with),
            None => tracing::error!(%ltmsi, "bug: step requests an SMF without SBA mode"),
        }
    }

    /// Sends the result of an N1N2 transfer to the SMF.
    pub(super) fn answer_transfer(
        &self,
        token: u64,
        result: N1N2TransferResult,
        sm_context: Option<&PiggybackedSmContext>,
    ) {
        if let Some(smf) = &self.smf {
            smf.answer_transfer(token, result, sm_context);
        }
    }

    /// Binds an identifier to a UE in the directory.
    pub(super) fn bind(&mut self, slot: Slot, key: Key, value: u64) {
        match self.ues.region.bind(slot, key, value) {
            Ok(()) => {}
            Err(InsertError::InUse(_)) => {
                // The second UE with the same 5G-TMSI is not found by it and identifies itself.
                tracing::debug!(?key, "identifier belongs to another UE");
            }
            Err(error) => tracing::error!(%error, ?key, "identifier has no index entry"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::region::{CommitRecord, Region, RegionConfig, Snapshot};

    /// Two workers run the steps of a UE in turn; the host removes the UE and the slot is reused.
    #[test]
    fn record_waits_for_its_predecessor() {
        let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
        let (mut host, mut workers) = (region.join(0).unwrap(), [1, 2].map(|n| region.join(n).unwrap()));
        let mut order = CommitOrder::default();
        for _ in 0..2 {
            let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
            let mut commit = |worker: usize| {
                let mut seen = Snapshot::default();
                region.read(slot, &mut seen);
                let done = workers[worker]
                    .commit(slot, &seen, &CommitRecord { outbox: b"x", ..CommitRecord::default() })
                    .unwrap();
                region.place_of_buffer(done.buffer).unwrap()
            };
            let records = [commit(0), commit(1), commit(0)];
            assert!(records.iter().all(|(of, _)| *of == slot));
            for (n, (slot, version)) in records.into_iter().enumerate() {
                assert!(records[n + 1..].iter().all(|(slot, is_delegated)| !order.is_next(*slot, *is_delegated)));
                assert!(order.is_next(slot, version));
                *order.last(slot) = version;
                assert!(!order.is_next(slot, version), "once");
            }
            let mut last = Snapshot::default();
            assert!(region.read(slot, &mut last));
            host.remove(slot, &last).unwrap();
            *order.last(slot) = next_version(last.version());
        }
    }
}
