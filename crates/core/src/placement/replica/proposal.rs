//! Proposals: steps that a serving host has run on its replica entries, for owners to commit.
//!
//! A proposal has no effect until the owner of the UE commits it. The owner answers each proposal
//! in the sequence of copies, behind the copy of the commit. The serving host keeps a proposal
//! until the answer: the owner may have committed it, and counts the serving host as a holder of
//! the commit. If the owner dies, the next owner commits its own unanswered proposals, because
//! their effects may have left. Proposals of other hosts are void: an owner that commits one waits
//! for the next owner's acknowledgement.

use super::EffectAssociations;
use super::entry::ReplicaEntry;
use super::store::ReplicaStore;
use crate::amf::context::{EncodedContext, Versions};
use crate::placement::balance::HostId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use vireo_types::{Instant, Ltmsi};

/// Result of a step at a serving host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Epoch of the sender's map. The owner refuses proposals of other epochs.
    pub epoch: u64,
    pub ltmsi: Ltmsi,
    /// Number of the input that the step executes.
    pub input: u64,
    /// Version of the ephemeral part before the step.
    pub base: u32,
    /// Layout version of the parts of the context.
    pub layout: u8,
    /// Version of the perpetual part after the step.
    pub perpetual_version: u32,
    /// Perpetual part; `None` if the step leaves it unchanged.
    #[serde(with = "serde_bytes")]
    pub perpetual: Option<Vec<u8>>,
    /// Ephemeral part after the step.
    #[serde(with = "serde_bytes")]
    pub ephemeral: Vec<u8>,
    /// Effects of the step, encoded.
    #[serde(with = "serde_bytes")]
    pub outbox: Vec<u8>,
    /// Associations that the effects use.
    pub associations: EffectAssociations,
    /// Deadline of the UE after the step.
    pub deadline: Option<Instant>,
    /// True if a procedure is in progress after the step.
    pub is_in_progress: bool,
}

/// Step of a serving host.
#[derive(Clone, Debug)]
pub struct ServedStep<'a> {
    /// Epoch of the host's map.
    pub epoch: u64,
    pub ltmsi: Ltmsi,
    /// Number of the input that the step executes.
    pub input: u64,
    /// Versions of the stored context before the step.
    pub before: Versions,
    /// Stored context after the step.
    pub after: &'a [u8],
    /// Effects of the step in the encoding of a commit record.
    pub outbox: Vec<u8>,
    /// Associations that the effects use.
    pub associations: EffectAssociations,
    /// Deadline of the UE after the step.
    pub deadline: Option<Instant>,
    /// True if a procedure is in progress after the step.
    pub is_in_progress: bool,
}

impl Proposal {
    /// Creates the proposal of a step. Returns `None` if the context after it has no parts.
    pub fn new(step: ServedStep<'_>) -> Option<Self> {
        let (before, after) = (step.before, EncodedContext::new(step.after).ok()?);
        let is_same = (before.layout, before.perpetual) == (after.versions.layout, after.versions.perpetual);
        Some(Proposal {
            epoch: step.epoch,
            ltmsi: step.ltmsi,
            input: step.input,
            base: before.ephemeral,
            layout: after.versions.layout,
            perpetual_version: after.versions.perpetual,
            perpetual: (!is_same).then(|| after.perpetual.to_vec()),
            ephemeral: after.ephemeral.to_vec(),
            outbox: step.outbox,
            associations: step.associations,
            deadline: step.deadline,
            is_in_progress: step.is_in_progress,
        })
    }

    /// Returns the versions of the context after the step.
    pub fn versions(&self) -> Versions {
        Versions { layout: self.layout, perpetual: self.perpetual_version, ephemeral: self.base.wrapping_add(1) }
    }

    /// Returns true if a stored context is the base of this proposal.
    pub fn is_based_on(&self, before: &[u8]) -> bool {
        EncodedContext::new(before).is_ok_and(|before| self.continues(before.versions))
    }

    fn continues(&self, before: Versions) -> bool {
        let is_known = (self.layout, self.perpetual_version) == (before.layout, before.perpetual);
        before.ephemeral == self.base && (self.perpetual.is_some() || is_known)
    }

    /// Returns the context after the step in its stored form, given that before the step. `None` if
    /// that is not the base of this proposal.
    pub fn context(&self, before: &[u8]) -> Option<Vec<u8>> {
        let before = EncodedContext::new(before).ok().filter(|before| self.continues(before.versions))?;
        let perpetual = self.perpetual.as_deref().unwrap_or(before.perpetual);
        let mut octets = Vec::with_capacity(before.encoded_len() + self.ephemeral.len());
        EncodedContext { versions: self.versions(), perpetual, ephemeral: &self.ephemeral }.put(&mut octets).ok()?;
        Some(octets)
    }
}

/// Answer to a proposal of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalAnswer {
    pub ltmsi: Ltmsi,
    /// Number of the input that the proposal executes.
    pub input: u64,
    pub result: ProposalResult,
}

/// Fate of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalResult {
    /// The owner has committed it.
    Committed,
    /// The owner has refused it, or is dead and another host is the owner: the input is not
    /// executed.
    Refused,
    /// The owner is dead, and this host has committed it as the next owner.
    Adopted,
}

/// A proposal that is not answered.
#[derive(Debug)]
struct UnansweredProposal {
    owner: HostId,
    at: Instant,
    proposal: Proposal,
}

/// Proposals of this host, by UE. Each UE has at most one unanswered.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    unanswered: FxHashMap<Ltmsi, UnansweredProposal>,
    answers: Vec<ProposalAnswer>,
}

impl ReplicaStore {
    /// Returns true if this host may serve the procedures of a UE: it is a replica of the UE, has
    /// the copies of the present owner, and has no unanswered proposal.
    pub fn is_servable(&self, ltmsi: Ltmsi) -> bool {
        self.entry_for_serving(ltmsi).is_some()
    }

    /// Returns true if this host has a copy of a UE.
    pub fn has_copy(&self, ltmsi: Ltmsi) -> bool {
        self.ues.get(&ltmsi.bucket()).is_some_and(|ues| ues.contains_key(&ltmsi))
    }

    /// Returns the versions of a UE whose procedures this host may serve.
    pub fn versions_for_serving(&self, ltmsi: Ltmsi) -> Option<Versions> {
        self.entry_for_serving(ltmsi).map(|entry| entry.versions)
    }

    /// Returns the stored form of a UE whose procedures this host may serve.
    pub fn read_for_serving(&self, ltmsi: Ltmsi) -> Option<Vec<u8>> {
        self.entry_for_serving(ltmsi).and_then(ReplicaEntry::encoded_context)
    }

    fn entry_for_serving(&self, ltmsi: Ltmsi) -> Option<&ReplicaEntry> {
        let owners = self.map.as_ref()?.owners(ltmsi.bucket());
        let entry = self.ues.get(&ltmsi.bucket())?.get(&ltmsi)?;
        let is_current = owners.keeps_copies(self.host_id()) && owners.owner() == entry.from;
        let is_usable = is_current && entry.is_whole() && !self.proposals.unanswered.contains_key(&ltmsi);
        is_usable.then_some(entry)
    }

    /// Stores a proposal until its answer. Returns the owner that must receive it.
    pub fn propose(&mut self, proposal: Proposal, now: Instant) -> Option<HostId> {
        let owner = self.map.as_ref()?.owners(proposal.ltmsi.bucket()).owner()?;
        self.proposals.unanswered.insert(proposal.ltmsi, UnansweredProposal { owner, at: now, proposal });
        Some(owner)
    }

    /// Returns true if this host has proposed the result of an input and has no answer.
    pub fn has_proposed(&self, ltmsi: Ltmsi, input: u64) -> bool {
        let unanswered = self.proposals.unanswered.get(&ltmsi);
        unanswered.is_some_and(|unanswered| unanswered.proposal.input == input)
    }

    /// Returns the unanswered proposals to an owner, for a new connection.
    pub fn unanswered_proposals(&self, owner: HostId) -> impl Iterator<Item = &Proposal> {
        let theirs = self.proposals.unanswered.values().filter(move |unanswered| unanswered.owner == owner);
        theirs.map(|unanswered| &unanswered.proposal)
    }

    /// Handles an owner's answer to a proposal.
    pub(in crate::placement) fn on_proposal_answer(
        &mut self,
        from: HostId,
        (ltmsi, input): (Ltmsi, u64),
        is_committed: bool,
    ) {
        let Proposals { unanswered, answers } = &mut self.proposals;
        if unanswered.get(&ltmsi).is_some_and(|of| (of.owner, of.proposal.input) == (from, input)) {
            unanswered.remove(&ltmsi);
            let result = if is_committed { ProposalResult::Committed } else { ProposalResult::Refused };
            answers.push(ProposalAnswer { ltmsi, input, result });
        }
    }

    /// Removes and returns the answers since the last call.
    pub fn take_proposal_answers(&mut self) -> Vec<ProposalAnswer> {
        std::mem::take(&mut self.proposals.answers)
    }

    /// Returns true if there are answers.
    pub fn has_proposal_answers(&self) -> bool {
        !self.proposals.answers.is_empty()
    }

    /// Ends the proposals to dead owners, before their UEs are taken over. The proposals to UEs
    /// that this host owns from here on are committed. `owns` decides by the next map.
    pub(super) fn end_proposals(&mut self, is_alive: impl Fn(HostId) -> bool, owns: impl Fn(Ltmsi) -> bool) {
        let ended: Vec<UnansweredProposal> =
            self.proposals.unanswered.extract_if(|_, of| !is_alive(of.owner)).map(|(_, of)| of).collect();
        for UnansweredProposal { owner, at, proposal } in ended {
            let (ltmsi, input) = (proposal.ltmsi, proposal.input);
            let entry = self.ues.get_mut(&ltmsi.bucket()).and_then(|ues| ues.get_mut(&ltmsi));
            let is_adopted = entry
                .filter(|_| owns(ltmsi))
                .is_some_and(|entry| entry.has_input(input) || entry.adopt_proposal((owner, at), proposal));
            if is_adopted {
                self.note_input(at, (ltmsi, input));
            }
            let result = if is_adopted { ProposalResult::Adopted } else { ProposalResult::Refused };
            self.proposals.answers.push(ProposalAnswer { ltmsi, input, result });
        }
    }
}
