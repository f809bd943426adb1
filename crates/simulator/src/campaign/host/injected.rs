//! Injected faults of serving hosts and of owners that receive proposals.

use super::super::message::{Input, Message, NumberedInput};
use super::super::mutation::Mutation;
use super::super::network::{Network, TimerEvent};
use super::super::ues::{EffectRoute, Outbox, UeEvent, admitted};
use super::Host;
use vireo_core::amf::access;
use vireo_core::amf::context::{self, EncodedContext};
use vireo_core::amf::n2::Route;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host::{self as machine, ProposalDecision};
use vireo_core::placement::message::ToReplica;
use vireo_core::placement::replica::Proposal;
use vireo_core::step::Effect;
use vireo_types::Ltmsi;

impl Host {
    /// Returns a proposal on the present state of its UE, whatever its base is.
    pub(super) fn injected_base(&self, network: &Network, proposal: &Proposal) -> Option<Proposal> {
        let ue = self.ues.slot_of(proposal.ltmsi).and_then(|slot| self.ues.get(slot))?;
        let own = EncodedContext::new(&ue.context).ok().filter(|_| network.is(Mutation::BaseNotChecked))?;
        let perpetual_version =
            if proposal.perpetual.is_some() { proposal.perpetual_version } else { own.versions.perpetual };
        Some(Proposal { base: own.versions.ephemeral, perpetual_version, ..proposal.clone() })
    }

    /// Returns the decision of an owner that checks the base of a proposal but not its epoch, or
    /// that keeps the identifiers of a refused proposal.
    pub(super) fn injected_decision(
        &mut self,
        network: &mut Network,
        decision: Option<ProposalDecision<u32>>,
        proposal: &Proposal,
    ) -> Option<ProposalDecision<u32>> {
        if decision != Some(ProposalDecision::Refuse) {
            return decision;
        }
        let Some(slot) = self.ues.slot_of(proposal.ltmsi) else {
            if network.is(Mutation::EpochNotChecked) {
                self.act_as_former_owner(network, proposal);
            }
            return decision;
        };
        if network.is(Mutation::IdentifierKept) {
            let outbox: Option<Outbox> = postcard::from_bytes(&proposal.outbox).ok();
            for effect in outbox.iter().flat_map(|outbox| &outbox.effects) {
                if let Effect::BindTmsi(tmsi) = effect {
                    self.ues.bind(*tmsi, slot);
                }
            }
        }
        let is_current = self.machine.as_ref().and_then(|machine| machine.owner()).is_some_and(|owner| {
            let bucket = proposal.ltmsi.bucket();
            owner.accepts_inputs(bucket) && !owner.is_outgoing(bucket) && proposal.epoch == self.epoch()
        });
        let is_injected = network.is(Mutation::EpochNotChecked) && !is_current && self.ues.is_idle(slot);
        let before = self.ues.get(slot).filter(|_| is_injected).map(|ue| ue.context.clone());
        let before = before.filter(|before| proposal.context(before).is_some());
        before.map(|before| ProposalDecision::Commit { slot, before }).or(decision)
    }

    /// Sends the effects of a proposal on this host's copy of a UE, which it has handed off.
    fn act_as_former_owner(&mut self, network: &mut Network, proposal: &Proposal) {
        let before = self.store.as_ref().and_then(|store| store.read_for_serving(proposal.ltmsi));
        let is_based = before.is_some_and(|before| proposal.context(&before).is_some());
        if let Some(outbox) = postcard::from_bytes::<Outbox>(&proposal.outbox).ok().filter(|_| is_based) {
            self.successors(network, proposal.ltmsi.bucket());
            self.send_effects(network, EffectRoute::default(), &outbox);
        }
    }

    /// Returns an owner's message as a host reads it that does not distinguish refusals from
    /// commits. Such a host reports the inputs of its proposals done.
    pub(super) fn injected_answer<'a>(&self, network: &mut Network, message: ToReplica<'a>) -> ToReplica<'a> {
        match message {
            ToReplica::ProposalAnswer { number, ltmsi, input, is_committed: false }
                if network.is(Mutation::RefusalLost) =>
            {
                self.links.send_about_input(network, input, Message::Done(input));
                ToReplica::ProposalAnswer { number, ltmsi, input, is_committed: true }
            }
            message => message,
        }
    }

    /// Returns true if a host executes a first message that it was to serve, although it is no
    /// replica of the UE.
    pub(super) fn lacks_injected_role(&self, network: &Network, input: &NumberedInput) -> bool {
        let Input::Ngap { assoc, pdu, bucket: Some(bucket), .. } = &input.input else { return false };
        let is_first = access::peek(assoc.dialect(), pdu).is_ok_and(|view| matches!(view.route, Route::Initial { .. }));
        let map = self.map.as_ref().filter(|_| is_first && network.is(Mutation::RoleNotChecked));
        let is_replica = |map: &ClusterMap| self.id().is_some_and(|own| map.buckets.owners(*bucket).keeps_copies(own));
        map.is_some_and(|map| !is_replica(map))
    }

    /// Lets a serving host send the effects of its step.
    pub(super) fn inject_after_step(&mut self, network: &mut Network, proposal: &Proposal) {
        if network.is(Mutation::ServingHostSends)
            && let Ok(outbox) = postcard::from_bytes::<Outbox>(&proposal.outbox)
        {
            self.send_effects(network, EffectRoute::default(), &outbox);
        }
    }

    /// Lets a replica wait for the deadline of a UE that it may serve.
    pub(super) fn inject_deadline(&self, network: &mut Network, ltmsi: Ltmsi) {
        let store = self.store.as_ref().filter(|_| network.is(Mutation::DeadlineAtReplica));
        let copy = store.and_then(|store| store.read_for_serving(ltmsi));
        if let Some(deadline) = copy.and_then(|copy| context::decode(&copy).ok()?.deadline()) {
            let after = deadline.since(network.time(self.process)).0;
            network.due(self.process, after + 1, TimerEvent::ReplicaDeadline(ltmsi));
        }
    }

    /// Executes a deadline of a UE at its replica, as only its owner may.
    pub(super) fn replica_deadline(&mut self, network: &mut Network, ltmsi: Ltmsi) {
        let now = network.time(self.process);
        let before = self.store.as_ref().and_then(|store| store.read_for_serving(ltmsi));
        let Some(mut ue) = before.and_then(|before| context::decode(&before).ok()) else { return };
        if ue.deadline().is_some_and(|due| due <= now)
            && let Some(event) = admitted(Some(&ue.clone()), &UeEvent::Deadline)
        {
            let step = self.decide(network, (0, true), &mut ue, event);
            self.send_effects(network, EffectRoute::default(), &step.outbox);
        }
    }

    /// Handles the unanswered proposals to hosts that the next map lacks. Returns the UEs whose
    /// proposals this host keeps as copies.
    pub(super) fn end_injected_proposals(&mut self, network: &Network, map: &ClusterMap) -> Vec<Ltmsi> {
        let (Some(own), Some(store)) = (self.id(), self.store.as_mut()) else { return Vec::new() };
        let gone: Vec<HostId> = self.peers.keys().copied().filter(|host| !map.has_host(*host)).collect();
        let unanswered = |store: &vireo_core::placement::replica::ReplicaStore, host| -> Vec<(Ltmsi, u64)> {
            store.unanswered_proposals(host).map(|proposal| (proposal.ltmsi, proposal.input)).collect()
        };
        let mut kept = Vec::new();
        for host in gone {
            for (n, (ltmsi, input)) in (1..).zip(unanswered(store, host)) {
                let placement = map.buckets.owners(ltmsi.bucket());
                if network.is(Mutation::ProposalForgotten) && placement.owner() == Some(own) {
                    let answer =
                        ToReplica::ProposalAnswer { number: u64::MAX / 2 + n, ltmsi, input, is_committed: false };
                    _ = machine::receive(store, (host, map.epoch() - 1), answer, network.time(self.process));
                }
                if network.is(Mutation::ProposalKept) && placement.keeps_copies(own) {
                    kept.push(ltmsi);
                }
            }
        }
        kept
    }

    /// Makes a proposed state this host's copy of the UE.
    pub(super) fn keep_proposed(&mut self, ltmsi: Ltmsi) {
        if let (Some(after), Some(store)) = (self.ues.proposed.get(&ltmsi), self.store.as_mut())
            && let Ok(parts) = EncodedContext::new(after)
        {
            store.insert_own(ltmsi, &parts);
        }
    }
}
