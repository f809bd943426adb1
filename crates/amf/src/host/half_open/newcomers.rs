//! New UEs that wait for their first step.
//!
//! Workers have at most `state::STEPS` first steps queued, and the balancer at most
//! [`MAX_UNSENT_MESSAGES`] messages. Further new UEs wait in the host, by RAN node (`fair_queue`).
//! Messages about UEs with contexts overtake them, so a flood of one RAN node delays the UEs of
//! others by a few steps only. A new UE that has waited too long is rejected
//! (`overload.registrations`). Only its RAN node is sent Overload Start.

use super::state::Newcomer;
use crate::host::limits::BATCH;
use crate::host::origin::origin;
use crate::host::state::Host;
use vireo_cluster::Input;
use vireo_core::amf::n2::{Route, ShallowView};
use vireo_core::placement::message::{Envelope, HostNotice, PeerEvent};
use vireo_core::schedule::shed::OverloadLevel;
use vireo_ops::clock::clock;
use vireo_ops::metrics::TurnedAway;
use vireo_types::{AssocId, Duration, Instant};

/// New UEs started per pass of the loop while inputs wait. Inputs about UEs with contexts come
/// first.
const WITH_INPUTS: usize = 4;
/// Number of queued messages to the balancer at which no new UE is started.
const MAX_UNSENT_MESSAGES: usize = 1024;

impl Host {
    /// Starts a new UE, or queues it.
    pub(in crate::host) fn newcomer(&mut self, (by, node): (AssocId, AssocId), pdu: &[u8], view: &ShallowView) {
        if self.admission.half_open.waiting.is_empty() && self.begins_newcomers() {
            return self.begin_newcomer((Some(by), node), pdu, view);
        }
        let (number, bucket, at) = (std::mem::take(&mut self.current.input), self.current.bucket, self.current.arrived);
        let newcomer = Newcomer { by, node, view: *view, pdu: pdu.to_vec(), number, bucket, at };
        if let Err(newcomer) = self.admission.half_open.waiting.push(origin(&self.nodes, node), newcomer) {
            self.current.input = newcomer.number;
            self.turn_away((Some(by), node), pdu, TurnedAway::Overload);
        }
    }

    fn begins_newcomers(&mut self) -> bool {
        let region = &self.ues.region;
        self.egress.len() < MAX_UNSENT_MESSAGES
            && self.admission.half_open.first_steps.has_room(clock(), |slot| region.is_idle_and_empty(slot))
    }

    fn begin_newcomer(&mut self, (by, node): (Option<AssocId>, AssocId), pdu: &[u8], view: &ShallowView) {
        if self.admits(view, false) {
            self.create_ue((by, node), pdu, view);
        } else {
            self.turn_away((by, node), pdu, TurnedAway::Overload);
        }
    }

    /// Starts waiting new UEs while there is room. Returns true if it started any.
    pub(in crate::host) fn serve_newcomers(&mut self) -> bool {
        let most = if self.waiting_inputs() == 0 { BATCH } else { WITH_INPUTS };
        for served in 0..most {
            if self.admission.half_open.waiting.is_empty() || self.has_backlog() || !self.begins_newcomers() {
                return served > 0;
            }
            if let Some(newcomer) = self.admission.half_open.waiting.pop() {
                self.serve(newcomer);
            }
        }
        true
    }

    fn serve(&mut self, newcomer: Newcomer) {
        let Newcomer { by, node, view, pdu, number, bucket, at } = newcomer;
        let event = PeerEvent::Ngap { assoc: by, view: Some(view), pdu };
        let envelope = Envelope { number, bucket, ..Envelope::new(event) };
        // The bucket may have migrated meanwhile.
        let Some(Input::Peer { envelope, .. }) = self.admit_input(Input::Peer { envelope, at }) else { return };
        let PeerEvent::Ngap { pdu, .. } = envelope.event else { return };
        (self.current.input, self.current.bucket, self.current.arrived) = (number, bucket, at);
        if self.nodes.get(node).is_none() {
            return self.acknowledge_input();
        }
        if let Route::Initial { ran_id, .. } = view.route {
            self.forget_ran_id(node, ran_id);
        }
        let by = Some(by).filter(|by| self.nodes.node_of(*by) == Some(node));
        let late = self.admission.overload.part_of_wait(clock().since(at)) >= self.admission.overload.registrations();
        if late && !OverloadLevel::Registrations.admits(&view, false) {
            return self.turn_away((by, node), &pdu, TurnedAway::Overload);
        }
        self.begin_newcomer((by, node), &pdu, &view);
    }

    /// Drops the new UEs of a RAN node that has released them.
    pub(in crate::host) fn drop_newcomers(&mut self, node: AssocId) {
        for newcomer in self.admission.half_open.waiting.remove(node) {
            self.current.input = newcomer.number;
            self.acknowledge_input();
        }
    }

    /// Returns the waiting new UEs to the balancer.
    pub(in crate::host) fn return_newcomers(&mut self) {
        while let Some(Newcomer { number, .. }) = self.admission.half_open.waiting.pop() {
            if number != 0 {
                self.egress.send(HostNotice::ReturnInput { number });
            }
        }
    }

    /// Returns the RAN nodes with waiting new UEs, each with the waiting time of the oldest.
    pub(in crate::host) fn newcomers_wait(&self, now: Instant) -> Vec<(AssocId, Duration)> {
        self.admission.half_open.waiting.oldest().map(|(node, oldest)| (node, now.since(oldest.at))).collect()
    }

    /// Returns true if new UEs wait.
    pub(in crate::host) fn has_newcomers(&self) -> bool {
        !self.admission.half_open.waiting.is_empty()
    }
}
