//! Procedures that a replica serves in the owner's place (MMLite, Algorithm 1).
//!
//! The serving host runs each step on its replica entry and proposes the result. The owner commits
//! the proposal and emits its effects, or refuses it; then the input and all later ones return to
//! the balancer, which gives them to the owner. A serving host has one unanswered proposal for each
//! UE, and further inputs of the UE wait for its answer.

use super::committed::ExecutedBy;
use super::io::{HostIo, StepOutbox, StoredUe};
use super::machine::HostMachine;
use super::served::{MAX_SERVED_UES, MAX_WAITING_INPUTS, ServedInput, ServedUe};
use crate::placement::balance::HostId;
use crate::placement::message::{HostNotice, ToReplica};
use crate::placement::replica::{BucketOwner, Proposal, ProposalAnswer, ProposalResult, SlotKey};
use crate::step::Effect;
use std::collections::VecDeque;
use vireo_types::{Instant, Ltmsi};

impl<S: SlotKey, P, I, E> HostMachine<S, P, I, E> {
    /// Admits an input that a balancer has sent to this host as the serving host of the UE. `ltmsi`
    /// is absent if this host does not know the UE. Inputs that can be executed are returned by
    /// [`HostMachine::next_served`]; others wait, or return to the balancer.
    pub fn serve<O>(&mut self, ltmsi: Option<Ltmsi>, (number, input): (u64, I), io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let may_serve = |ltmsi: &Ltmsi| self.may_serve(*ltmsi) && !self.served.returned.contains_key(ltmsi);
        let Some(ltmsi) = ltmsi.filter(may_serve) else {
            return io.send(HostNotice::ReturnServedInput { number }.into());
        };
        let has_room = self.served.ues.len() < MAX_SERVED_UES;
        match self.served.ues.get_mut(&ltmsi) {
            Some(ue) if ue.waiting.len() < MAX_WAITING_INPUTS => ue.waiting.push_back((number, input)),
            None if has_room && io.is_servable(ltmsi) => {
                self.served
                    .ues
                    .insert(ltmsi, ServedUe { current: number, is_proposed: false, waiting: VecDeque::new() });
                self.served.runnable.push_back(ServedInput { ltmsi, number, input });
            }
            _ => {
                self.served.returned.insert(ltmsi, None);
                io.send(HostNotice::ReturnServedInput { number }.into());
            }
        }
    }

    /// Returns true if this host is a replica of a UE whose owner commits proposals.
    fn may_serve(&self, ltmsi: Ltmsi) -> bool {
        let Some(owner) = &self.owner else { return false };
        let is_replica = |owner: &BucketOwner<S, P>| {
            owner.map().is_some_and(|map| map.owners(ltmsi.bucket()).keeps_copies(owner.host_id()))
        };
        !owner.replication().may_lag() && is_replica(owner)
    }

    /// Returns the next input to execute on the replica entry of its UE
    /// ([`read_for_serving`](crate::placement::replica::ReplicaStore::read_for_serving)). The
    /// caller runs the step, and calls [`HostMachine::propose`] or [`HostMachine::return_served`].
    pub fn next_served(&mut self) -> Option<ServedInput<I>> {
        self.served.runnable.pop_front()
    }

    /// Returns true if an input waits for the answer to a proposal of this host.
    pub fn awaits_answers(&self) -> bool {
        self.served.ues.values().any(|ue| !ue.waiting.is_empty())
    }

    /// Proposes the result of an input to the owner of the UE.
    pub fn propose<O>(&mut self, proposal: Proposal, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let epoch = self.owner.as_ref().and_then(BucketOwner::map).map_or(0, |map| map.epoch());
        let Some(ue) = self.served.ues.get_mut(&proposal.ltmsi) else { return };
        if (ue.current, ue.is_proposed) != (proposal.input, false) {
            return;
        }
        if proposal.epoch != epoch {
            return self.return_served(proposal.ltmsi, proposal.input, io);
        }
        ue.is_proposed = true;
        io.send_proposal(proposal);
    }

    /// Returns an input and all later ones of its UE to the balancer: the owner must execute them.
    pub fn return_served<O>(&mut self, ltmsi: Ltmsi, number: u64, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if self.served.ues.get(&ltmsi).is_some_and(|ue| ue.current == number)
            && let Some(ue) = self.served.ues.remove(&ltmsi)
        {
            self.served.returned.insert(ltmsi, None);
            let numbers = [ue.current].into_iter().chain(ue.waiting.into_iter().map(|(number, _)| number));
            numbers.for_each(|number| io.send(HostNotice::ReturnServedInput { number }.into()));
        }
    }

    /// Handles the answers to proposals of this host.
    pub fn on_proposal_answers<O>(&mut self, answers: Vec<ProposalAnswer>, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        for ProposalAnswer { ltmsi, input, result } in answers {
            // A map may have changed the role of this host since it admitted the waiting inputs.
            let may_serve = self.may_serve(ltmsi);
            let Some(ue) = self.served.ues.get_mut(&ltmsi).filter(|ue| ue.current == input) else { continue };
            match result {
                ProposalResult::Committed => {
                    let Some((number, input)) = ue.waiting.pop_front() else {
                        self.served.ues.remove(&ltmsi);
                        continue;
                    };
                    (ue.current, ue.is_proposed) = (number, false);
                    match may_serve {
                        true => self.served.runnable.push_back(ServedInput { ltmsi, number, input }),
                        false => self.return_served(ltmsi, number, io),
                    }
                }
                // After an adoption this host is the owner and has the result. The balancer sends
                // it the waiting inputs again.
                ProposalResult::Refused | ProposalResult::Adopted => self.return_served(ltmsi, input, io),
            }
        }
    }

    /// Ends the serving of UEs after a new map, except of those whose proposals are unanswered. The
    /// balancer gives their inputs to the owners.
    pub(super) fn end_serving<O>(&mut self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        self.served.runnable.clear();
        let mut ended: Vec<(Ltmsi, u64)> = Vec::new();
        ended.extend(self.served.ues.iter().filter(|(_, ue)| !ue.is_proposed).map(|(ltmsi, ue)| (*ltmsi, ue.current)));
        ended.sort_unstable();
        ended.into_iter().for_each(|(ltmsi, number)| self.return_served(ltmsi, number, io));
    }

    /// Decides about a proposal of a replica. The caller commits it if the decision is to commit,
    /// with the proposer in [`Commit::proposer`](crate::placement::replica::Commit::proposer), and
    /// then calls [`HostMachine::answer_proposal`], unless the proposal was answered before.
    ///
    /// A proposal is committed only if it is of the same epoch, the proposer is a replica of the
    /// UE, the UE is at rest in the state before the step, no step of this host is in progress for
    /// it, its identifiers are free, and this host knows the associations of its effects. A
    /// balancer reports a new association on each connection, so that the report can arrive after
    /// the proposal. Effects would then leave by an association that no copy names, and the next
    /// owner would send them again by another one.
    pub fn check_proposal<O>(&self, from: HostId, proposal: &Proposal, io: &O) -> ProposalDecision<S>
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(owner) = &self.owner else { return ProposalDecision::Refuse };
        match self.committed.get(proposal.input) {
            Some(ExecutedBy::ServingHost | ExecutedBy::NoHost) => return ProposalDecision::Repeat,
            Some(ExecutedBy::Owner | ExecutedBy::ThisHost) => return ProposalDecision::Refuse,
            None => {}
        }
        let bucket = proposal.ltmsi.bucket();
        let is_current = owner.map().is_some_and(|map| map.epoch() == proposal.epoch)
            && owner.accepts_inputs(bucket)
            && !owner.is_outgoing(bucket)
            && owner.keeps_copies(from, bucket);
        let slot = io.slot_of(proposal.ltmsi).filter(|slot| is_current && io.is_idle(*slot));
        let Some(slot) = slot.filter(|slot| io.ltmsi_of(*slot) == Some(proposal.ltmsi)) else {
            return ProposalDecision::Refuse;
        };
        let is_base = |ue: &StoredUe| ue.ltmsi == proposal.ltmsi && proposal.is_based_on(&ue.context);
        let Some(ue) = io.read(slot).filter(is_base) else { return ProposalDecision::Refuse };
        if proposal.associations.into_iter().flatten().any(|(node, by)| !io.knows_association(node, by)) {
            return ProposalDecision::Refuse;
        }
        let outbox = O::Outbox::decode(&proposal.outbox);
        let is_free = |effect: &Effect| match effect {
            Effect::BindTmsi(tmsi) => io.is_free_tmsi(*tmsi),
            effect => effect.may_be_proposed(),
        };
        match outbox.is_some_and(|outbox| outbox.effects().iter().all(is_free)) {
            true => ProposalDecision::Commit { slot, before: ue.context },
            false => ProposalDecision::Refuse,
        }
    }

    /// Answers a proposal, after its commit if it is committed.
    pub fn answer_proposal<O>(&mut self, from: HostId, proposal: &Proposal, is_committed: bool, now: Instant, io: &O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(owner) = &mut self.owner else { return };
        let (number, ltmsi, input) = (owner.number(from), proposal.ltmsi, proposal.input);
        match is_committed {
            true => self.committed.add_served(ltmsi, input, now),
            false => self.committed.add_refused(input, now),
        }
        io.send_to_replica(from, number, &ToReplica::ProposalAnswer { number, ltmsi, input, is_committed });
    }
}

/// Decision about a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposalDecision<S> {
    /// The proposal is committed on the stored context `before`.
    Commit {
        slot: S,
        before: Vec<u8>,
    },
    Refuse,
    /// The proposal was answered before. The answer is on its way.
    Repeat,
}
