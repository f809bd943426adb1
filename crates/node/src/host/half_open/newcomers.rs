//! New UEs that wait for their first step.
//!
//! Workers have at most [`STEPS`] first steps of new UEs queued, and the balancer at most [`UNSENT`] messages. Further new
//! UEs wait in the host, by RAN node (`line`). What RAN nodes send about UEs that have contexts passes them, so a flood
//! of one RAN node delays the UEs of others by a few steps only. A new UE that has waited too long is turned away
//! (`overload.registrations`), and its RAN node is sent Overload Start, not the others.

use super::{Host, TurnedAway, origin};
use crate::clock::clock;
use crate::host::{BATCH, Input};
use vireo_core::n2::{Route, ShallowView};
use vireo_core::schedule::shed::Level;
use vireo_store::region::Slot;
use vireo_types::{AssocId, Bucket, Duration, Instant};

/// Maximum number of first steps of new UEs that wait in the queues of NFs.
const STEPS: usize = 64;
/// A first step that takes longer than this, for example because its worker died, holds up no new UE.
const STEP_WITHIN: Duration = Duration::from_secs(1);
/// New UEs that are begun in a turn of the host while inputs wait: inputs about UEs that have contexts pass new UEs.
const WITH_INPUTS: usize = 4;
/// Messages to the balancer from which on no new UE is begun.
const UNSENT: usize = 1024;

/// A new UE that waits.
#[derive(Debug)]
pub(in crate::host) struct Newcomer {
    by: AssocId,
    pub(super) node: AssocId,
    view: ShallowView,
    pdu: Vec<u8>,
    /// The balancer's number of the input.
    number: u64,
    bucket: Option<Bucket>,
    pub(super) at: Instant,
}

/// First steps that are queued.
#[derive(Debug, Default)]
pub(super) struct FirstSteps(Vec<(Instant, Slot)>);

impl FirstSteps {
    pub(super) fn push(&mut self, slot: Slot, now: Instant) {
        self.0.push((now, slot));
    }

    /// Returns true if another one may be queued; `is_done`: the UE of a slot has no event any more.
    fn has_room(&mut self, now: Instant, is_done: impl Fn(Slot) -> bool) -> bool {
        if self.0.len() >= STEPS {
            self.0.retain(|(at, slot)| now.since(*at) < STEP_WITHIN && !is_done(*slot));
        }
        self.0.len() < STEPS
    }
}

impl Host {
    /// Begins a new UE, or has it wait.
    pub(in crate::host) fn newcomer(&mut self, (by, node): (AssocId, AssocId), pdu: &[u8], view: &ShallowView) {
        if self.half_open.line.is_empty() && self.begins_newcomers() {
            return self.begin_newcomer((Some(by), node), pdu, view);
        }
        let (number, bucket, at) = (std::mem::take(&mut self.input), self.bucket, self.arrived);
        let newcomer = Newcomer { by, node, view: *view, pdu: pdu.to_vec(), number, bucket, at };
        if let Err(newcomer) = self.half_open.line.push(origin(&self.nodes, node), newcomer) {
            self.input = newcomer.number;
            self.turn_away((Some(by), node), pdu, TurnedAway::Overload);
        }
    }

    fn begins_newcomers(&mut self) -> bool {
        let region = &self.region;
        self.egress.len() < UNSENT
            && self.half_open.first_steps.has_room(clock(), |slot| region.is_idle_and_empty(slot))
    }

    fn begin_newcomer(&mut self, (by, node): (Option<AssocId>, AssocId), pdu: &[u8], view: &ShallowView) {
        if self.admits(view, false) {
            self.create_ue((by, node), pdu, view);
        } else {
            self.turn_away((by, node), pdu, TurnedAway::Overload);
        }
    }

    /// Begins new UEs that wait, as many as there is room for. Returns true if there were any.
    pub(in crate::host) fn serve_newcomers(&mut self) -> bool {
        let most = if self.inputs.queue.is_empty() { BATCH } else { WITH_INPUTS };
        for served in 0..most {
            if self.half_open.line.is_empty() || self.is_held_up() || !self.begins_newcomers() {
                return served > 0;
            }
            if let Some(newcomer) = self.half_open.line.pop() {
                self.serve(newcomer);
            }
        }
        true
    }

    fn serve(&mut self, newcomer: Newcomer) {
        let Newcomer { by, node, view, pdu, number, bucket, at } = newcomer;
        let input = Input::Ngap { assoc: by, view: Ok(view), pdu, at, number, answers: true, bucket };
        // Its bucket may have been migrated meanwhile.
        let Some(Input::Ngap { pdu, .. }) = self.admit_input(input) else { return };
        (self.input, self.bucket, self.arrived) = (number, bucket, at);
        if self.nodes.get(node).is_none() {
            return self.done();
        }
        if let Route::Initial { ran_id, .. } = view.route {
            self.forget_ran_id(node, ran_id);
        }
        let by = Some(by).filter(|by| self.nodes.of(*by) == Some(node));
        let late = self.overload.part_of_wait(clock().since(at)) >= self.overload.registrations();
        if late && !Level::Registrations.admits(&view, false) {
            return self.turn_away((by, node), &pdu, TurnedAway::Overload);
        }
        self.begin_newcomer((by, node), &pdu, &view);
    }

    /// Drops the new UEs of a RAN node that has forgotten them.
    pub(in crate::host) fn drop_newcomers(&mut self, node: AssocId) {
        for newcomer in self.half_open.line.remove(node) {
            self.input = newcomer.number;
            self.done();
        }
    }

    /// Returns the new UEs that wait to the balancer.
    pub(in crate::host) fn return_newcomers(&mut self) {
        while let Some(Newcomer { number, .. }) = self.half_open.line.pop() {
            if number != 0 {
                self.egress.send(crate::balancer::Command::ReturnInput { number });
            }
        }
    }

    /// Returns the RAN nodes of which new UEs wait, each with the time that the oldest has waited.
    pub(in crate::host) fn newcomers_wait(&self, now: Instant) -> Vec<(AssocId, Duration)> {
        self.half_open.line.oldest().map(|(node, oldest)| (node, now.since(oldest.at))).collect()
    }

    /// Returns true if new UEs wait.
    pub(in crate::host) fn has_newcomers(&self) -> bool {
        !self.half_open.line.is_empty()
    }
}
