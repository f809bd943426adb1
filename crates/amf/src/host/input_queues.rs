//! Inputs that wait for the forwarder, by slice and kind of procedure.
//!
//! If more inputs wait than one pass of the host takes, the host sorts them and takes some of each
//! queue in turn: the stricter its latency objective, the more. The messages of one slice or kind
//! therefore delay those of another by one turn, however many wait. Behind the forwarder the NFs'
//! shares decide, which follow the same priorities (MMLite's P_i).
//!
//! Invariants:
//!
//! - The inputs of one UE stay in order: while one waits, later ones join its queue.
//! - An input that is not about one UE (a *barrier*: RAN nodes, UPFs, cluster maps, commands)
//!   follows all inputs before it and precedes all inputs after it.

use super::forward::ran_key;
use super::limits::{BATCH, INPUTS};
use super::state::Host;
use crossbeam_channel::TryRecvError;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use vireo_cluster::Input;
use vireo_core::amf::n2::ShallowView;
use vireo_core::placement::host::{NamedUe, named_ue};
use vireo_core::placement::message::{BalancerNotice, PeerEvent, Receiver};
use vireo_core::sba::SmfEvent;
use vireo_core::schedule::kind::NfKind;
use vireo_ops::config::NF_KINDS;
use vireo_store::region::{Key, Slot};
use vireo_types::{AssocId, Ltmsi};

/// Maximum number of inputs sorted in one pass of the host.
const MAX_SORTED_INPUTS: usize = 256 * BATCH;
/// Number of inputs in a turn of a queue with the strictest objective. A queue whose objective is
/// 16 times as long, or longer, has one.
const INPUTS_PER_TURN: u32 = 16;
/// Queue of the inputs about UEs of other hosts, whose procedures this host serves.
const GUESTS: usize = 0;
/// Queue of the notices about UEs, which have no order.
const NOTICES: usize = 1;
/// First queue of the UEs of this host.
const UES: usize = 2;

/// Place of an input among the waiting ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputClass {
    /// In this queue, or in that of the UE's inputs that wait.
    Queue { queue: usize, ue: Option<Slot> },
    /// After all others.
    Barrier,
}

/// Waiting inputs.
#[derive(Debug)]
pub(super) struct InputQueues<T> {
    queues: Vec<VecDeque<(Option<Slot>, T)>>,
    /// Number of inputs in a turn of each queue; [`INPUTS_PER_TURN`] for queues without a number.
    turn_lengths: Vec<u32>,
    /// Queues with inputs, in the order of their turns.
    turns: VecDeque<usize>,
    /// Number of inputs of the first turn that are out.
    turn_position: u32,
    /// Queue and number of the inputs of each UE that has any.
    ues: FxHashMap<Slot, (usize, u32)>,
    /// Taken when the queues are empty. Until then no input is added.
    barrier: Option<T>,
    len: usize,
}

impl<T> Default for InputQueues<T> {
    fn default() -> Self {
        InputQueues {
            queues: Vec::new(),
            turn_lengths: Vec::new(),
            turns: VecDeque::new(),
            turn_position: 0,
            ues: FxHashMap::default(),
            barrier: None,
            len: 0,
        }
    }
}

impl<T> InputQueues<T> {
    /// Sets the lengths of the turns by the latency objectives in microseconds: of UEs of unknown
    /// slice, followed by those of each slice.
    pub(super) fn set_objectives(&mut self, objectives: &[[u64; NF_KINDS]]) {
        let all = || objectives.as_flattened().iter().copied();
        let strictest = all().min().unwrap_or(1).max(1) as f64;
        let length =
            |objective: u64| (f64::from(INPUTS_PER_TURN) * strictest / objective.max(1) as f64).round().max(1.0) as u32;
        self.turn_lengths = std::iter::repeat_n(INPUTS_PER_TURN, UES).chain(all().map(length)).collect();
    }

    /// Returns the number of inputs.
    pub(super) fn len(&self) -> usize {
        self.len + usize::from(self.barrier.is_some())
    }

    /// Returns true if no input waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if no barrier waits, so that inputs may be added.
    fn is_open(&self) -> bool {
        self.barrier.is_none()
    }

    fn push(&mut self, class: InputClass, input: T) {
        let InputClass::Queue { mut queue, ue } = class else {
            self.barrier = Some(input);
            return;
        };
        if let Some(ue) = ue {
            let (its_queue, count) = self.ues.entry(ue).or_insert((queue, 0));
            (queue, *count) = (*its_queue, *count + 1);
        }
        if self.queues.len() <= queue {
            self.queues.resize_with(queue + 1, VecDeque::new);
        }
        if self.queues[queue].is_empty() {
            self.turns.push_back(queue);
        }
        self.queues[queue].push_back((ue, input));
        self.len += 1;
    }

    /// Removes the next input: that of the queue whose turn it is, and the barrier after all.
    fn pop(&mut self) -> Option<T> {
        let Some(&queue) = self.turns.front() else { return self.barrier.take() };
        let waiting = self.queues.get_mut(queue)?;
        let (ue, input) = waiting.pop_front()?;
        self.turn_position += 1;
        let is_empty = waiting.is_empty();
        if is_empty || self.turn_position >= self.turn_lengths.get(queue).copied().unwrap_or(INPUTS_PER_TURN) {
            self.turn_position = 0;
            self.turns.pop_front();
            if !is_empty {
                self.turns.push_back(queue);
            }
        }
        if let Some(ue) = ue
            && let Some((_, count)) = self.ues.get_mut(&ue)
        {
            *count -= 1;
            if *count == 0 {
                self.ues.remove(&ue);
            }
        }
        self.len -= 1;
        Some(input)
    }
}

impl Host {
    /// Returns the number of inputs that wait.
    pub(super) fn waiting_inputs(&self) -> usize {
        self.events.waiting.len() + self.inputs.queue.len()
    }

    /// Sorts the waiting inputs if one pass does not take all of them.
    pub(super) fn sort_inputs(&mut self) {
        if self.waiting_inputs() <= BATCH {
            return;
        }
        for _ in 0..MAX_SORTED_INPUTS {
            if !self.events.waiting.is_open() || self.events.waiting.len() >= INPUTS {
                return;
            }
            // The end of the queue is noticed when the sorted inputs are taken.
            let Ok(input) = self.inputs.queue.try_recv() else { return };
            let class = self.class_of(&input);
            self.events.waiting.push(class, input);
        }
    }

    /// Takes the next input.
    pub(super) fn next_input(&mut self) -> Result<Input, TryRecvError> {
        self.events.waiting.pop().map_or_else(|| self.inputs.queue.try_recv(), Ok)
    }

    fn class_of(&self, input: &Input) -> InputClass {
        match input {
            Input::Peer { envelope, .. } if envelope.receiver == Receiver::ServingHost => {
                InputClass::Queue { queue: GUESTS, ue: None }
            }
            Input::Peer { envelope, .. } => match &envelope.event {
                PeerEvent::Ngap { assoc, view: Some(view), .. } => self.class_of_message(*assoc, view),
                PeerEvent::Pfcp { seid, message, .. } => self.class_of_ue(seid.ltmsi(), NfKind::from_pfcp(message)),
                PeerEvent::PfcpTimeout { seid } => self.class_of_ue(seid.ltmsi(), NfKind::Session),
                _ => InputClass::Barrier,
            },
            Input::Authentication { ltmsi, .. } => self.class_of_ue(*ltmsi, NfKind::Registration),
            Input::Smf(SmfEvent::Response { ltmsi, .. }) => self.class_of_ue(*ltmsi, NfKind::Session),
            Input::Notice(BalancerNotice::Claimed(_) | BalancerNotice::AddressReturned { .. }) => {
                InputClass::Queue { queue: NOTICES, ue: None }
            }
            _ => InputClass::Barrier,
        }
    }

    fn class_of_ue(&self, ltmsi: Ltmsi, kind: NfKind) -> InputClass {
        let ue = self.ues.region.slot_of(ltmsi);
        // An earlier number of the UE may be of a bucket of another slice.
        let own = ue.and_then(|slot| self.ues.region.ltmsi_of(slot)).unwrap_or(ltmsi);
        InputClass::Queue { queue: queue_of(self.ues.ids.slice_of(own), kind), ue }
    }

    fn class_of_message(&self, assoc: AssocId, view: &ShallowView) -> InputClass {
        let Some(node) = self.nodes.node_of(assoc) else { return InputClass::Barrier };
        let class = match named_ue(view, &self.config) {
            NamedUe::Connected(amf_id) => self.class_of_ue(amf_id.ltmsi(), view.kind),
            NamedUe::Initial { tmsi, .. } => {
                let known = tmsi.and_then(|tmsi| self.ues.region.lookup(Key::Tmsi, u64::from(tmsi.0)));
                let own = known.and_then(|slot| self.ues.region.ltmsi_of(slot));
                let slice = own.map_or(0, |ltmsi| self.ues.ids.slice_of(ltmsi));
                InputClass::Queue { queue: queue_of(slice, view.kind), ue: known }
            }
            NamedUe::RanNode => return InputClass::Barrier,
        };
        let InputClass::Queue { ue, .. } = class else { return class };
        // A RAN node that reuses an identifier has released the UE that had it. The last messages
        // of that UE come first.
        let before = view.ran_id.and_then(|ran_id| self.ues.region.lookup(Key::Ran, ran_key(node, ran_id)));
        if before.is_some() && before != ue { InputClass::Barrier } else { class }
    }
}

fn queue_of(slice: usize, kind: NfKind) -> usize {
    UES + slice * NF_KINDS + kind.index()
}

#[cfg(test)]
mod tests;
