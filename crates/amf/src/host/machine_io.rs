//! The host as driver of its machine (`core::placement::host`): reads of the state region, actions.

use super::cluster::{EnteredUes, Pending};
use super::deferred_event::DeferredEvent;
use super::host_machine::Machine;
use super::state::Host;
use crate::worker::event_message::EventMessage;
use crate::worker::outbox::{Outbox, Summary};
use crate::worker::{references, region_layout};
use vireo_cluster::Input;
use vireo_cluster::replicator::{PeerMessage, Replicator};
use vireo_core::amf::context::{self, EncodedContext, UeContext};
use vireo_core::amf::engine::Event;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host::{
    self as machine, AddressNumber, HostIo, InputTarget, ReplicaTransport, StepOutbox, StoredUe, UeNotice,
};
use vireo_core::placement::message::{BalancerNotice, ClusterOutput, RanOutput, Receiver, ToReplica};
use vireo_core::placement::replica::{EffectAssociations, Proposal, ReplicaAcks, ResentCommit, TakeoverSet};
use vireo_core::sba::SmfEvent;
use vireo_core::schedule::kind::NfKind;
use vireo_core::step::{Effect, effect_key};
use vireo_core::subscription::AuthenticationRequest;
use vireo_ops::clock::clock;
use vireo_ops::metrics::Flow;
use vireo_store::region::{CommitRecord, Key, Slot, Snapshot, next_version};
use vireo_types::{AssocId, Bucket, Instant, Ltmsi, Supi, Tmsi};

/// Addresses per message of an audit.
const AUDITED_ADDRESSES: usize = 8192;

impl Host {
    /// Lets the machine act on this host. The actions of the machine do not call it again.
    pub(super) fn drive<R>(&mut self, act: impl FnOnce(&mut Machine, &mut Io<'_>) -> R) -> Option<R> {
        let mut machine = self.machine.take()?;
        let result = act(&mut machine, &mut Io { host: self });
        self.machine = Some(machine);
        Some(result)
    }

    /// Passes an input to the machine, and processes the inputs that it releases.
    pub(super) fn on(&mut self, input: machine::Input<'_>) {
        let (began, now) = (std::time::Instant::now(), clock());
        self.drive(|machine, io| machine.on(input, now, io));
        self.report_entered(began);
        self.release_waiting();
    }

    fn report_entered(&mut self, began: std::time::Instant) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        let EnteredUes { taken_over, received, handed_off } = std::mem::take(&mut cluster.entered);
        if taken_over > 0 {
            self.statistics.step_metrics.metrics.messages(Flow::Promoted, taken_over as u64);
            tracing::warn!(ues = taken_over, took = ?began.elapsed(), "UEs of dead hosts taken over");
        }
        if received > 0 {
            self.statistics.step_metrics.metrics.messages(Flow::TakenOn, received as u64);
            tracing::info!(ues = received, took = ?began.elapsed(), "UEs migrated to this host");
        }
        if handed_off > 0 {
            tracing::info!(ues = handed_off, took = ?began.elapsed(), "UEs migrated to other hosts");
        }
    }

    /// Passes the messages of other hosts besides copies to the machine.
    pub(super) fn receive_peer_messages(&mut self) {
        let replicator = self.cluster.as_ref().map(|cluster| &cluster.member.replicator);
        for message in replicator.map(Replicator::take_peer_messages).unwrap_or_default() {
            match message {
                PeerMessage::AddressAudit { from, message } => {
                    self.on(machine::Input::AddressAudit { from, message: &message });
                }
                PeerMessage::ReconcileReply { from, number, ues } => {
                    self.on(machine::Input::ReconcileReply { from, number, ues: &ues });
                }
                PeerMessage::Proposal { from, proposal } => self.on_proposal(from, &proposal),
            }
        }
    }

    /// Processes waiting inputs, as far as their UEs are here.
    pub(super) fn release_waiting(&mut self) {
        while let Some(inputs) = self.machine.as_mut().and_then(|machine| machine.released_inputs()) {
            inputs.into_iter().for_each(|input| self.input(input));
            (self.current.arrived, self.current.input) = (clock(), 0);
            self.drive(|machine, io| machine.disconnect_unsure(io));
        }
    }

    /// Returns an input that can be processed now ([`machine::HostMachine::admit`]).
    pub(super) fn admit_input(&mut self, input: Input) -> Option<Input> {
        if let Input::Smf(SmfEvent::Transfer { supi, .. } | SmfEvent::Released { supi, .. }) = &input
            && self.may_be_loading(*supi)
            && let Some(machine) = self.machine.as_mut().filter(|machine| machine.has_room())
        {
            machine.hold_back(input);
            return None;
        }
        if self.cluster.is_none() {
            return Some(input);
        }
        let (number, target) = match &input {
            Input::Peer { envelope, .. } => match InputTarget::from_envelope(envelope) {
                Some(target) => (envelope.acknowledged_number(), target),
                None => return Some(input),
            },
            Input::Notice(BalancerNotice::RanNode(_)) => (0, InputTarget::Introduction),
            Input::BalancerUnreachable(_) | Input::AssociationsLost(_) | Input::Unsent(_) => (0, InputTarget::Node),
            _ => return Some(input),
        };
        let receiver = match &input {
            Input::Peer { envelope, .. } => envelope.receiver,
            _ => Receiver::Owner,
        };
        let admitted = self.drive(|machine, io| machine.admit(input, (number, target), io)).flatten();
        if receiver == Receiver::OwnerAfterServingHost && admitted.is_some() {
            let now = clock();
            self.machine.iter_mut().for_each(|machine| machine.note_recalled(number, now));
        }
        admitted
    }

    /// Publishes to the workers the buckets in which they may allocate LTMSIs.
    pub(super) fn publish_own_buckets(&self) {
        if let Some(owner) = self.owner() {
            region_layout::set_own(&self.ues.region, |bucket| owner.accepts_inputs(bucket));
        }
    }

    /// Begins to leave the cluster: all UEs of this host are handed off.
    pub(super) fn on_leave_granted(&mut self) {
        self.return_newcomers();
        self.on(machine::Input::LeaveGranted);
    }

    /// Handles the reply of the balancers to a barrier.
    pub(super) fn on_barrier_reply(&mut self, number: u64, is_whole: bool) {
        self.on(machine::Input::BarrierReply { number, is_whole });
        self.enter_waiting(number);
        if self.has_left()
            && let Some(cluster) = &self.cluster
        {
            cluster.member.replicator.set_left();
        }
    }

    /// Returns true if the host has left its cluster.
    pub(super) fn has_left(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.has_left())
    }

    /// Enters a UE with this encoded context, which this host did not have. Returns its slot.
    pub(super) fn enter_context(
        &mut self,
        (ltmsi, ue): (Ltmsi, &UeContext),
        octets: &[u8],
        claimed: impl Fn() -> Option<Instant>,
    ) -> Option<Slot> {
        self.drive(|machine, io| machine.enter((ltmsi, ue), octets, claimed, io)).flatten()
    }

    /// Removes the entries of a UE that belongs to another host from the tables.
    fn remove_from_tables(&mut self, slot: Slot, ue: &UeContext) {
        let summary = Summary::new(ue);
        self.statistics.totals.change(Some(summary), None);
        self.on_connections_changed(slot, Some(summary), None);
        for session in &ue.sessions {
            self.ues.ids.lend(slot, &session.terms.dnn, &session.address);
        }
    }
}

impl StepOutbox for Outbox {
    fn decode(octets: &[u8]) -> Option<Self> {
        Outbox::decode(octets)
    }

    fn at(&self) -> Instant {
        self.at
    }

    fn effects(&self) -> &[Effect] {
        &self.effects
    }

    fn connecting_input(&self) -> Option<u64> {
        self.connecting_input()
    }

    fn retain_requests(&mut self) {
        self.effects.retain(|effect| matches!(effect, Effect::Authenticate(_)));
    }
}

/// Reads and actions of a host's machine.
#[derive(Debug)]
pub(super) struct Io<'a> {
    host: &'a mut Host,
}

impl ReplicaAcks for Io<'_> {
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.host.cluster.as_ref().map_or(0, |cluster| cluster.member.replicator.acked_up_to(host))
    }
}

impl ReplicaTransport for Io<'_> {
    fn send_to_replica(&self, to: HostId, number: u64, message: &ToReplica<'_>) {
        if let Some(cluster) = &self.host.cluster {
            cluster.member.replicator.put(to, number, message);
        }
    }
}

impl HostIo for Io<'_> {
    type Slot = Slot;
    type Record = Pending;
    type Event = DeferredEvent;
    type Outbox = Outbox;

    fn slot_of(&self, ltmsi: Ltmsi) -> Option<Slot> {
        self.host.ues.region.slot_of(ltmsi)
    }

    fn ltmsi_of(&self, slot: Slot) -> Option<Ltmsi> {
        self.host.ues.region.ltmsi_of(slot)
    }

    fn slot_of_subscriber(&self, supi: Supi) -> Option<Slot> {
        self.host.ues.region.lookup(Key::Supi, supi.as_u64())
    }

    fn slots_from(&self, from: u32, count: u32) -> Vec<(u32, Slot)> {
        self.host.ues.region.slots_from(from, count).map(|(slot, _)| (slot.number(), slot)).collect()
    }

    fn slots(&self) -> Vec<Slot> {
        let slots = (0..self.host.ues.slots).filter_map(|number| self.host.ues.region.slot_at(number));
        slots.filter(|slot| self.host.ues.region.ltmsi_of(*slot).is_some()).collect()
    }

    fn slot_bound(&self) -> u32 {
        self.host.ues.slots
    }

    fn read(&self, slot: Slot) -> Option<StoredUe> {
        let mut record = Snapshot::default();
        if !self.host.ues.region.read(slot, &mut record) {
            return None;
        }
        let ltmsi = Outbox::stored_ltmsi(&record.outbox);
        let ltmsi = ltmsi.or_else(|| self.host.ues.region.ltmsi_of(slot))?;
        let is_passed = record.sent || self.host.ues.order.last_of(slot) == record.version();
        Some(StoredUe { ltmsi, context: record.context, outbox: record.outbox, is_passed })
    }

    fn read_record(&self, pending: &Pending) -> Option<ResentCommit<Slot>> {
        let mut record = Snapshot::default();
        let Pending { slot, outbox: Outbox { ltmsi, input, .. }, route, .. } = *pending;
        let found = self.host.ues.region.read_record(pending.buffer, &mut record, true);
        let before = self.host.ues.region.ltmsi_of(slot).filter(|before| *before != ltmsi);
        let (context, outbox) = (record.context, record.outbox);
        found.then_some(ResentCommit { slot, ltmsi, before, input, context, outbox, associations: route.associations })
    }

    fn is_at_rest(&self, slot: Slot) -> bool {
        let has_event = self.host.events.deferred_count.contains_key(&slot) || self.host.guests.has_report(slot);
        if has_event || !self.host.ues.region.is_idle_and_empty(slot) {
            return false;
        }
        let mut record = Snapshot::default();
        !self.host.ues.region.read(slot, &mut record) || record.sent
    }

    fn is_idle(&self, slot: Slot) -> bool {
        let host = &self.host;
        if host.events.deferred_count.contains_key(&slot) || !host.ues.region.is_idle_and_empty(slot) {
            return false;
        }
        // A record that no ring has delivered yet would be overtaken.
        host.ues.order.last_of(slot) == host.ues.region.version_of(slot)
    }

    fn is_free_tmsi(&self, tmsi: Tmsi) -> bool {
        self.host.ues.region.lookup(Key::Tmsi, u64::from(tmsi.0)).is_none()
    }

    fn is_servable(&self, ltmsi: Ltmsi) -> bool {
        self.host.cluster.as_ref().is_some_and(|cluster| cluster.member.replicator.is_servable(ltmsi))
    }

    fn send_proposal(&mut self, proposal: Proposal) {
        if let Some(cluster) = &self.host.cluster {
            cluster.member.replicator.propose(proposal);
        }
    }

    fn has_node(&self, node: AssocId) -> bool {
        self.host.nodes.get(node).is_some()
    }

    fn record_connecting_input(&mut self, slot: Slot, input: u64) {
        self.host.nodes.on_connected(slot, input);
    }

    fn knows_association(&self, node: AssocId, by: AssocId) -> bool {
        self.host.nodes.knows_association(node, by)
    }

    fn insert(&mut self, ltmsi: Ltmsi, ue: &UeContext, context: &[u8]) -> Option<Slot> {
        self.host.inputs.tick();
        if self.host.ues.region.slot_of(ltmsi).is_some() {
            // Inserting the UE would displace the other one.
            tracing::error!(%ltmsi, "bug: UE not taken over, its number is in use");
            return None;
        }
        let Ok(slot) = self.host.ues.own.insert(ltmsi) else {
            tracing::error!(%ltmsi, "UE not taken over: state region full; raise state.ues");
            return None;
        };
        self.host.mark_used(slot);
        for old in references(ue) {
            if let Err(error) = self.host.ues.region.alias(slot, old) {
                tracing::debug!(%error, %ltmsi, "an earlier number of a UE does not lead to it");
            }
        }
        for session in &ue.sessions {
            self.host.ues.ids.adopt(slot, &session.terms.dnn, &session.address);
        }
        let mut seen = Snapshot::default();
        self.host.ues.region.read(slot, &mut seen);
        let record = CommitRecord {
            consumed: self.host.events.sequence,
            deadline: ue.deadline(),
            context,
            ..CommitRecord::default()
        };
        let committed = match self.host.ues.own.commit(slot, &seen, &record) {
            Ok(committed) => committed,
            Err(error) => {
                tracing::error!(%error, %ltmsi, "UE not taken over");
                return None;
            }
        };
        *self.host.ues.order.last(slot) = committed.version;
        for tmsi in [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten() {
            self.host.bind(slot, Key::Tmsi, u64::from(tmsi.0));
        }
        let summary = Summary::new(ue);
        self.host.statistics.totals.change(None, Some(summary));
        self.host.update_connection_tables(slot, None, Some(summary));
        if let Some(deadline) = ue.deadline() {
            self.host.events.timers.schedule(slot, deadline, clock());
        }
        Some(slot)
    }

    fn remove(&mut self, slot: Slot) -> Option<Vec<u8>> {
        self.host.inputs.tick();
        let mut record = Snapshot::default();
        if !self.host.ues.region.read(slot, &mut record) {
            if self.host.ues.own.abandon(slot) {
                self.host.admission.half_open.remove(slot);
            }
            return None;
        }
        match context::decode(&record.context) {
            Ok(ue) => self.host.remove_from_tables(slot, &ue),
            Err(error) => tracing::error!(%error, "bug: stored context does not decode"),
        }
        match self.host.ues.own.remove(slot, &record) {
            Ok(()) => *self.host.ues.order.last(slot) = next_version(record.version()),
            Err(error) => tracing::error!(%error, "bug: UE of another host not removed"),
        }
        if let Some(cluster) = self.host.cluster.as_mut() {
            cluster.entered.handed_off += 1;
        }
        Some(record.context)
    }

    fn partitions_of(&self, ue: &UeContext) -> Vec<u16> {
        let addresses = ue.sessions.iter().map(|session| (&session.terms.dnn, &session.address));
        addresses.flat_map(|(dnn, address)| self.host.ues.ids.parts_of(dnn, address)).collect()
    }

    fn uses_partition(&self, partition: u16) -> bool {
        self.host.ues.ids.has_of(partition)
    }

    fn borrowed_addresses(&self, partition: u16) -> Vec<(u8, Vec<u32>)> {
        self.host.ues.ids.foreign_numbers(partition, AUDITED_ADDRESSES)
    }

    fn lends_addresses(&self) -> bool {
        self.host.ues.ids.lends()
    }

    fn free_lent(&mut self, is_in_use: &dyn Fn(AddressNumber) -> bool) {
        let freed = self.host.ues.ids.returned_but(is_in_use);
        tracing::info!(freed, "unused addresses freed by the address audit");
    }

    fn bind_subscriber(&mut self, slot: Slot, supi: Supi) {
        self.host.bind(slot, Key::Supi, supi.as_u64());
    }

    fn unbind_subscriber(&mut self, slot: Slot, supi: Supi) {
        self.host.ues.region.unbind(slot, Key::Supi, supi.as_u64());
    }

    fn node_of_ue_known(&mut self, slot: Slot, node: AssocId) {
        self.host.nodes.update_connections(slot, [None; 2], [Some(node), None]);
    }

    fn event(&mut self, slot: Slot, notice: UeNotice) -> DeferredEvent {
        let event = match notice {
            UeNotice::Superseded => Event::Superseded,
            UeNotice::ConnectionLost { node } => Event::ConnectionLost { assoc: node },
        };
        let ltmsi = self.host.ues.region.ltmsi_of(slot).unwrap_or_default();
        let octets = EventMessage::from(event).encode(self.host.current.arrived, 0, Vec::new());
        DeferredEvent { slot, ltmsi, kind: NfKind::StateManagement, octets }
    }

    fn post(&mut self, event: DeferredEvent) {
        *self.host.events.deferred_count.entry(event.slot).or_default() += 1;
        self.host.events.deferred.push_back(event);
    }

    fn authenticate(&mut self, slot: Slot, ltmsi: Ltmsi, request: AuthenticationRequest) {
        self.host.authenticate((slot, ltmsi), None, request);
    }

    fn execute_again(&mut self, slot: Option<Slot>, outbox: Outbox, paths: EffectAssociations) {
        let Outbox { ltmsi, key, seids, effects, .. } = outbox;
        if let Some(slot) = slot {
            // Later messages to the UE use the same association.
            paths.into_iter().flatten().for_each(|(node, by)| self.host.nodes.restore_association(node, by, slot));
        }
        let mut seids = seids.into_iter();
        for (n, effect) in effects.into_iter().enumerate() {
            let key = effect_key(key, n);
            match effect {
                Effect::Ngap { assoc: node, pdu } => {
                    self.host.send_about((slot, ltmsi), (node, paths), key, pdu);
                }
                Effect::Pfcp { upf, message, .. } => {
                    let seid = seids.next().flatten();
                    self.host.egress.send(RanOutput::Pfcp { upf, key, seid, served_by: None, message });
                }
                Effect::Authenticate(request) => {
                    slot.into_iter().for_each(|slot| self.host.authenticate((slot, ltmsi), None, request.clone()));
                }
                // The machine repeats claims. The other effects are part of the context or of the
                // tables derived from it.
                _ => {}
            }
        }
    }

    fn apply_map(&mut self, map: &ClusterMap) -> TakeoverSet {
        self.host.cluster.as_ref().map(|cluster| cluster.member.replicator.adopt(map)).unwrap_or_default()
    }

    fn handed_off(&mut self) -> TakeoverSet {
        self.host.cluster.as_ref().map(|cluster| cluster.member.replicator.take_handed_off()).unwrap_or_default()
    }

    fn store_own_entries(&mut self, ues: &[(Ltmsi, Vec<u8>)]) {
        if let Some(cluster) = &self.host.cluster {
            let parts = ues.iter().filter_map(|(ltmsi, octets)| Some((*ltmsi, EncodedContext::new(octets).ok()?)));
            cluster.member.replicator.store_own(parts);
        }
    }

    fn publish_buckets(&mut self, may_allocate: &dyn Fn(Bucket) -> bool) {
        region_layout::set_own(&self.host.ues.region, may_allocate);
    }

    fn on_entered(&mut self, taken_over: usize, migrated: usize) {
        if let Some(cluster) = self.host.cluster.as_mut() {
            cluster.entered.taken_over += taken_over;
            cluster.entered.received += migrated;
        }
    }

    fn on_invalid_entry(&mut self, ltmsi: Ltmsi) {
        tracing::error!(%ltmsi, "bug: replica entry does not decode; UE lost");
    }

    fn send(&mut self, output: ClusterOutput) {
        self.host.egress.send(output);
    }
}
