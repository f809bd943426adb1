//! Steps that this host runs in the owner's place, and proposals of others to this host.

use super::super::message::{Input, NumberedInput};
use super::super::mutation::Mutation;
use super::super::network::{Network, TimerEvent};
use super::super::ues::{self, CommitTerms, Outbox, Step, UeEvent, UeKey};
use super::Host;
use std::rc::Rc;
use vireo_core::amf::access;
use vireo_core::amf::context;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::host::{NamedUe, ProposalDecision, ServedInput, StepOutbox, named_ue};
use vireo_core::placement::ran_nodes::MessageTarget;
use vireo_core::placement::replica::{Proposal, ProposalResult, ServedStep};
use vireo_core::step::Effect;
use vireo_types::{AssocId, Ltmsi, RanUeNgapId};

impl Host {
    /// Handles an input of the balancer as the serving host of its UE.
    pub(super) fn serve(&mut self, network: &mut Network, input: NumberedInput) {
        let Some(store) = &self.store else { return };
        let ltmsi = match &input.input {
            Input::Ngap { assoc, pdu, .. } => match self.ues.target(network, self.process, *assoc, pdu) {
                Some(MessageTarget::Repeat) => return self.end_input(network, input.number),
                Some(MessageTarget::Connected { amf_id, .. }) => Some(amf_id.ltmsi()),
                Some(MessageTarget::Initial { tmsi, .. }) => tmsi.and_then(|tmsi| store.ltmsi_of(tmsi)),
                Some(MessageTarget::RanNode) | None => None,
            },
            Input::Pfcp { seid, .. } => Some(seid.ltmsi()),
            _ => None,
        };
        if self.lacks_injected_role(network, &input) {
            return self.execute_input(network, input);
        }
        self.drive(network, |machine, io| machine.serve(ltmsi, (input.number, input), io));
    }

    /// Starts inputs that can be served, and handles answers to proposals.
    pub(super) fn advance_served(&mut self, network: &mut Network) {
        let mut answers = self.store.as_mut().map(|store| store.take_proposal_answers()).unwrap_or_default();
        for answer in &mut answers {
            if answer.result == ProposalResult::Adopted {
                network.oracle.on_executed(answer.input);
            }
            if network.is(Mutation::RefusalIgnored) && answer.result == ProposalResult::Refused {
                self.keep_proposed(answer.ltmsi);
                answer.result = ProposalResult::Committed;
            }
        }
        if !answers.is_empty() {
            self.drive(network, |machine, io| machine.on_proposal_answers(answers, io));
        }
        while let Some(ServedInput { ltmsi, input, .. }) = self.machine().and_then(|machine| machine.next_served()) {
            self.ues.served.insert(ltmsi, input);
            let after = network.step_delay(self.process);
            network.due(self.process, after, TimerEvent::Served(ltmsi));
        }
    }

    /// Runs the step of a served UE, and proposes the result.
    pub(super) fn served_step(&mut self, network: &mut Network, ltmsi: Ltmsi) {
        let Some(NumberedInput { number, input, .. }) = self.ues.served.remove(&ltmsi) else { return };
        let proposal = self.serve_step(network, ltmsi, (number, input));
        if let Some(proposal) = &proposal {
            self.inject_after_step(network, proposal);
        }
        self.drive(network, |machine, io| match proposal {
            Some(proposal) => machine.propose(proposal, io),
            None => machine.return_served(ltmsi, number, io),
        });
    }

    /// Returns the proposal of a step; `None` if the owner must run it.
    fn serve_step(&mut self, network: &mut Network, ltmsi: Ltmsi, (number, input): (u64, Input)) -> Option<Proposal> {
        let before = self.store.as_ref()?.read_for_serving(ltmsi)?;
        let mut ue = context::decode(&before).ok()?;
        let event = match input {
            Input::Ngap { assoc: by, pdu, .. } => {
                let assoc = self.ues.nodes.node_of(by)?;
                self.ues.nodes.set_last_association(assoc, by, UeKey::Served(ltmsi));
                match access::peek(by.dialect(), &pdu).map(|view| named_ue(&view, &network.config)) {
                    Ok(NamedUe::Connected(amf_id)) => UeEvent::Ngap { assoc, amf_id, pdu },
                    Ok(NamedUe::Initial { ran_id, .. }) if !has_connection(&ue, assoc, ran_id) => {
                        UeEvent::Initial { assoc, named: true, pdu: Rc::clone(&pdu) }
                    }
                    _ => return None,
                }
            }
            Input::Pfcp { seid, message, .. } => UeEvent::Pfcp { seid, message },
            _ => return None,
        };
        let event = ues::admitted(Some(&ue), &event)?;
        let Step { outbox, runs, needs_owner } = self.decide(network, (number, true), &mut ue, event);
        let is_local = outbox.ltmsi == ltmsi && !needs_owner && outbox.effects.iter().all(Effect::may_be_proposed);
        let mut after = Vec::new();
        if !is_local || context::encode_after(&ue, &before, &mut after).is_err() {
            return None;
        }
        let octets = postcard::to_stdvec(&outbox).ok()?;
        let effects = outbox.effects;
        network.oracle.on_proposal(number, &before);
        if network.mutation.is_some() {
            self.ues.proposed.insert(ltmsi, after.clone());
        }
        Proposal::new(ServedStep {
            epoch: self.epoch(),
            ltmsi,
            input: number,
            before: context::EncodedContext::new(&before).ok()?.versions,
            after: &after,
            outbox: octets,
            associations: self.ues.nodes.effect_associations(UeKey::Served(ltmsi), &effects),
            deadline: ue.deadline(),
            is_in_progress: runs,
        })
    }

    /// Commits or refuses the proposal of a replica.
    pub(super) fn on_proposal(&mut self, network: &mut Network, from: HostId, proposal: &Proposal) {
        let altered = self.injected_base(network, proposal);
        let proposal = altered.as_ref().unwrap_or(proposal);
        let decision = self.drive(network, |machine, io| machine.check_proposal(from, proposal, io));
        let is_committed = match self.injected_decision(network, decision, proposal) {
            Some(ProposalDecision::Commit { slot, before }) => {
                self.commit_proposal(network, (slot, from), proposal, &before)
            }
            Some(ProposalDecision::Refuse) => false,
            Some(ProposalDecision::Repeat) | None => return,
        };
        network.proposals.0 += u64::from(is_committed);
        network.proposals.1 += u64::from(!is_committed);
        let now = network.time(self.process);
        self.drive(network, |machine, io| machine.answer_proposal(from, proposal, is_committed, now, io));
    }

    fn commit_proposal(
        &mut self,
        network: &mut Network,
        (slot, from): (u32, HostId),
        proposal: &Proposal,
        before: &[u8],
    ) -> bool {
        let outbox: Option<Outbox> = postcard::from_bytes(&proposal.outbox).ok();
        let Some((context, outbox)) = proposal.context(before).zip(outbox) else { return false };
        network.oracle.on_proposal_committed(from, proposal, before);
        ues::schedule(network, self.process, slot, proposal.deadline);
        let runs = proposal.is_in_progress;
        if let Some(input) = outbox.connecting_input() {
            // A reset that the RAN node sent before may arrive before the effects leave.
            self.ues.nodes.on_connected(UeKey::Own(slot), input);
        }
        self.restore_associations(proposal.associations, slot);
        let route = Some((from, proposal.associations));
        self.commit(network, slot, context, CommitTerms { outbox, runs, route });
        true
    }
}

/// Returns true if the UE has a connection with this RAN-UE-NGAP-ID already.
fn has_connection(ue: &context::UeContext, assoc: AssocId, ran_id: RanUeNgapId) -> bool {
    ue.connection.as_ref().is_some_and(|connection| (connection.assoc, connection.ran_id) == (assoc, ran_id))
}
