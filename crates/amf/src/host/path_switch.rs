//! Refusal of path switches of RAN nodes that guess connections.
//!
//! PATH SWITCH REQUEST moves a UE to the RAN node that names its connection (TS 38.413 8.4.4, TS
//! 36.413 8.4.4). An identifier that names no connection of a UE counts for the peer address.
//! Beyond a budget the host refuses all path switches of the address for some time, before a UE
//! gets them. A request that names a connection never counts, whatever the step decides about it.
//!
//! Each host has its own budgets. As a serving host it refuses nothing: the owner of the UE decides
//! about the requests of an address that has named unknown connections here.

mod limit;

pub(super) use limit::GuessLimit;

use super::origin::origin;
use super::state::Host;
use crate::worker::Location;
use crate::worker::outbox::Outbox;
use vireo_core::amf::access;
use vireo_core::amf::context::{Connection, EncodedContext};
use vireo_core::amf::engine::{self, UNKNOWN_PATH_SWITCH};
use vireo_core::amf::n2::ShallowView;
use vireo_core::amf::ran::admission::Refusal;
use vireo_core::placement::message::RanOutput;
use vireo_core::schedule::kind::NfKind;
use vireo_core::step::{Effect, Note};
use vireo_ops::clock::clock;
use vireo_store::region::Slot;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, Ltmsi};

impl Host {
    /// Refuses a path switch of a RAN node whose address has guessed too often, and counts one that
    /// names no connection. Returns true if the message is answered.
    pub(super) fn refuses_path_switch(
        &mut self,
        (assoc, node): (AssocId, AssocId),
        amf_id: AmfUeNgapId,
        (view, pdu): (&ShallowView, &[u8]),
    ) -> bool {
        if !is_path_switch(assoc, view, pdu) {
            return false;
        }
        if self.admission.path_switches.refuses(origin(&self.nodes, node).address, clock()) {
            self.statistics.step_metrics.metrics.n2_refused(Refusal::Guessing);
            match engine::refuse_path_switch(assoc.dialect(), amf_id, pdu) {
                Ok(Some(pdu)) => {
                    self.egress.send(RanOutput::Ngap { assoc, ue: Some(amf_id.ltmsi()), key: 0, pdu });
                }
                Ok(None) => {}
                Err(fault) => self.fault(assoc, &fault),
            }
            return true;
        }
        let has_connection = match self.ues.region.slot_of(amf_id.ltmsi()) {
            Some(slot) => self.has_connection(slot, (assoc.dialect(), amf_id)),
            None => Some(false),
        };
        if has_connection == Some(false) {
            self.on_failed_path_switch(node);
        }
        false
    }

    /// Counts a path switch that names no connection.
    fn on_failed_path_switch(&mut self, node: AssocId) {
        let begins = self.admission.path_switches.add_failure(origin(&self.nodes, node).address, clock());
        if begins {
            self.warn_about_guesses(node, "PATH SWITCH REQUEST");
        }
    }

    /// Counts a path switch that a step has refused because it names no connection. Only for UEs
    /// whose contexts the host cannot read.
    pub(super) fn count_failed_path_switch(&mut self, notes: &[Note], effects: &[Effect]) {
        let is_failed = |note: &Note| matches!(note, Note::Fault(word) if *word == UNKNOWN_PATH_SWITCH);
        if matches!(self.workers.location, Location::Region) || !notes.iter().any(is_failed) {
            return;
        }
        let answered = |effect: &Effect| match effect {
            Effect::Ngap { assoc, .. } => Some(*assoc),
            _ => None,
        };
        if let Some(node) = effects.iter().find_map(answered) {
            self.on_failed_path_switch(node);
        }
    }

    /// Returns true if the UE of a slot has a connection with this identifier, or a handover gives
    /// it one. `None` if only a worker can read its context.
    pub(super) fn has_connection(&mut self, slot: Slot, named: (Dialect, AmfUeNgapId)) -> Option<bool> {
        if !matches!(self.workers.location, Location::Region) {
            return None;
        }
        let mut record = std::mem::take(&mut self.ues.snapshot);
        let is_read = self.ues.region.read(slot, &mut record);
        let ltmsi = Outbox::stored_ltmsi(&record.outbox).or_else(|| self.ues.region.ltmsi_of(slot));
        let has_connection = is_read && ltmsi.is_some_and(|ltmsi| names_connection(&record.context, ltmsi, named));
        self.ues.snapshot = record;
        Some(has_connection)
    }

    /// Returns true if the owner of a UE must decide about a message to this host as the serving
    /// host: a path switch of an address that has named unknown connections.
    pub(super) fn defers_path_switch(
        &mut self,
        node: AssocId,
        ltmsi: Ltmsi,
        (view, pdu): (&ShallowView, &[u8]),
    ) -> bool {
        if !is_path_switch(node, view, pdu) {
            return false;
        }
        let (address, now) = (origin(&self.nodes, node).address, clock());
        if self.guests.path_switches.refuses(address, now) {
            return true;
        }
        // The owner may have a UE whose first copy has not arrived.
        let has_copy = self.cluster.as_ref().is_some_and(|cluster| cluster.member.replicator.has_copy(ltmsi));
        if !has_copy {
            self.guests.path_switches.add_failure(address, now);
        }
        !has_copy
    }

    /// Returns true if the owner must decide about a path switch that names another connection than
    /// the copy of the UE in a guest slot has.
    pub(super) fn names_other_connection(
        &mut self,
        (slot, node): (Slot, AssocId),
        amf_id: AmfUeNgapId,
        (view, pdu): (&ShallowView, &[u8]),
    ) -> bool {
        let is_other =
            is_path_switch(node, view, pdu) && self.has_connection(slot, (node.dialect(), amf_id)) == Some(false);
        if is_other {
            self.guests.path_switches.add_failure(origin(&self.nodes, node).address, clock());
        }
        is_other
    }
}

fn is_path_switch(assoc: AssocId, view: &ShallowView, pdu: &[u8]) -> bool {
    view.kind == NfKind::Handover && access::is_path_switch(assoc.dialect(), pdu)
}

/// Returns true if the encoded context of the UE with this LTMSI has a connection with an
/// identifier. The identifiers of the dialects are not distinct.
fn names_connection(context: &[u8], ltmsi: Ltmsi, (dialect, amf_id): (Dialect, AmfUeNgapId)) -> bool {
    let Ok(parts) = EncodedContext::new(context) else { return false };
    let is_it = |connection: &Connection| connection.amf_id == amf_id && connection.assoc.dialect() == dialect;
    if parts.connection(ltmsi).as_ref().is_some_and(is_it) {
        return true;
    }
    // Messages of different associations are not ordered: the target of a handover may hand the UE
    // over before its HANDOVER NOTIFY arrives.
    let Ok(ue) = parts.decode() else { return false };
    let target = ue.handover.as_ref().and_then(|handover| handover.target());
    target.is_some_and(|target| target.amf_id == amf_id && target.assoc.dialect() == dialect)
        || ue.source.as_ref().is_some_and(|source| is_it(&source.connection))
}
