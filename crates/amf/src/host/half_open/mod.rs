//! Half-open UEs: contexts of UEs that have not been authenticated yet.
//!
//! Every device in a cell can create them. Their number is limited per RAN node, per peer address
//! and in total. Beyond a limit the oldest is evicted (`table`).
//!
//! An evicted UE is sent a Registration Reject with cause #22 and T3346, and its RAN node a UE
//! Context Release Command. One message of a flood causes at most four answers, and a RAN node
//! keeps no connection without a context. Evictions are events of their UEs. Workers execute them
//! in order with the other events, so identifiers, deadlines, counts and replicas are updated as at
//! any other end of a context. A UE that has been authenticated meanwhile stays.
//!
//! The host answers a rejected UE itself, by a step over a context that is then dropped. The UE
//! takes no slot. New UEs wait for their first steps by RAN node (`newcomers`).

mod newcomers;
mod state;
mod table;

pub(super) use state::HalfOpen;

use super::origin::origin;
use super::state::Host;
use rand::RngCore;
use table::{Arrival, Limit, NewUeDecision};
use vireo_core::amf::access;
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::{EstablishmentCause, ShallowView, UeMessage};
use vireo_core::placement::message::HostNotice;
use vireo_core::schedule::kind::NfKind;
use vireo_core::step::Effect;
use vireo_core::{Env, Identifiers};
use vireo_ops::clock::clock;
use vireo_ops::metrics::{Eviction, Fault, Population, TurnedAway};
use vireo_store::region::Slot;
use vireo_types::{AssocId, Dnn, Duration, Instant, Ltmsi, PduSessionType, SessionAddress, Snssai, Tmsi};

/// Interval of the log lines about a flood.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum interval between two counts of a full region.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(1);
/// One in this number of slots may change during a count.
const CHANGED: usize = 16;

impl Host {
    /// Makes room for a new UE of a RAN node.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room. The caller rejects the UE.
    pub(super) fn make_room(&mut self, node: AssocId, view: &ShallowView, now: Instant) -> Result<(), TurnedAway> {
        let urgent = matches!(view.establishment, Some(EstablishmentCause::Emergency | EstablishmentCause::Priority));
        let full = self.is_full() && {
            self.recount(now);
            self.is_full()
        };
        match self.admission.half_open.table.admit(Arrival { origin: origin(&self.nodes, node), now, urgent, full }) {
            NewUeDecision::Free => Ok(()),
            NewUeDecision::Evicts(slot, limit) => {
                self.admission.half_open.table.evict(slot);
                self.admission.half_open.evicted += 1;
                self.statistics.step_metrics.metrics.evicted(match limit {
                    Limit::Node => Eviction::NodeLimit,
                    Limit::Address => Eviction::AddressLimit,
                    Limit::All => Eviction::Limit,
                    Limit::Room => Eviction::Full,
                });
                // The eviction does not belong to the input of the new UE.
                let input = std::mem::take(&mut self.current.input);
                self.deliver(slot, &Event::Evicted.into(), NfKind::StateManagement);
                self.current.input = input;
                Ok(())
            }
            NewUeDecision::Refused(limit) => Err(match limit {
                Limit::Node => TurnedAway::NodeLimit,
                Limit::Address => TurnedAway::AddressLimit,
                Limit::All => TurnedAway::Limit,
                Limit::Room => TurnedAway::Full,
            }),
        }
    }

    /// Returns true if there is no room for a new UE, even after the pending evictions.
    fn is_full(&self) -> bool {
        let staying = self.ues.region.slots_taken().saturating_sub(self.admission.half_open.table.evicting());
        staying >= self.ues.region.config().ues as usize
    }

    /// Recounts the UEs of a full region: their number is a shared word that a worker can damage.
    fn recount(&mut self, now: Instant) {
        if now.since(self.admission.half_open.recounted) < RECOUNT_INTERVAL {
            return;
        }
        self.admission.half_open.recounted = now;
        let wrong = self.ues.region.recount();
        if wrong > self.ues.region.config().ues as usize / CHANGED {
            self.statistics.step_metrics.metrics.fault(Fault::StateRegion);
            tracing::error!(count = wrong, "state region has words that no worker writes: number of UEs");
        }
    }

    /// Adds a new UE that has a slot.
    pub(super) fn half_open(&mut self, slot: Slot, node: AssocId, now: Instant) {
        self.admission.half_open.table.enter(slot, origin(&self.nodes, node), now);
        self.admission.half_open.first_steps.push(slot, now);
    }

    /// Answers the first message of a UE without creating a context. `by` is the association of the
    /// message if it still exists. The LTMSI in the answers belongs to no UE, and is not reused for
    /// long.
    pub(super) fn turn_away(&mut self, (by, node): (Option<AssocId>, AssocId), pdu: &[u8], cause: TurnedAway) {
        let Some(ltmsi) = self.ues.ids.fresh(self.current.bucket) else { return self.no_number() };
        self.statistics.step_metrics.metrics.turned_away(cause);
        // Overload counts its own rejections.
        if cause != TurnedAway::Overload {
            self.admission.overload.refused += 1;
            self.admission.half_open.refused += 1;
            self.statistics.step_metrics.metrics.fault(Fault::Limit);
        }
        let message = match access::ue_message(node.dialect(), pdu) {
            Ok((_, UeMessage::Initial(message))) => message,
            Ok(_) => return self.acknowledge_input(),
            Err(fault) => {
                self.fault_of(node, &fault);
                return self.acknowledge_input();
            }
        };
        let (now, rng) = (clock(), &mut self.rng);
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let (arrived, mut ids) = (self.current.arrived.min(now), NoIdentifiers);
        let mut env = Env { now, arrived, config: &self.config, random: &mut random, ids: &mut ids, ran: &() };
        let outcome = engine::turn_away(ltmsi, node, message, &mut env);
        for note in &outcome.notes {
            self.statistics.step_metrics.note(note, now, 0, format_args!("UE {ltmsi}"));
        }
        for effect in outcome.effects {
            if let Effect::Ngap { assoc: node, pdu } = effect {
                self.send_about((None, ltmsi), (node, [by.map(|by| (node, by)), None]), 0, pdu);
            }
        }
        self.acknowledge_input();
    }

    /// Handles the lack of a free LTMSI for a new UE.
    pub(super) fn no_number(&mut self) {
        if self.cluster.is_some() && self.current.input != 0 {
            // This host has no buckets left: another host creates the UE.
            return self.egress.send(HostNotice::ReturnInput { number: std::mem::take(&mut self.current.input) });
        }
        self.statistics.step_metrics.fault("limit", clock(), "a new UE: no number is free");
        self.acknowledge_input();
    }

    /// Updates the metric of half-open UEs, and logs the evictions and rejections of a flood.
    pub(super) fn show_half_open(&mut self, now: Instant) {
        let HalfOpen { table, evicted, refused, logged, .. } = &mut self.admission.half_open;
        self.statistics.step_metrics.metrics.population(Population::HalfOpen, table.len());
        if (*evicted, *refused) == (0, 0) || now.since(*logged) < LOG_INTERVAL {
            return;
        }
        *logged = now;
        let largest = table.largest().and_then(|node| self.nodes.get(node)).map(|node| node.peer.to_string());
        tracing::warn!(
            half_open = table.len(),
            evicted = std::mem::take(evicted),
            rejected = std::mem::take(refused),
            peer = largest.unwrap_or_default(),
            ues = self.ues.region.slots_taken(),
            "limits of half-open UEs or state.ues reached"
        );
    }
}

/// Identifiers of a rejected UE: none are assigned.
struct NoIdentifiers;

impl Identifiers for NoIdentifiers {
    fn tmsi(&mut self, _: Ltmsi) -> Option<Tmsi> {
        None
    }

    fn rekey(&mut self, _: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        None
    }

    fn address(&mut self, _: &Dnn, _: PduSessionType) -> Option<SessionAddress> {
        None
    }
}
