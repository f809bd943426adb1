//! Replica entry of one UE, and the effects that a takeover may execute again.

use super::proposal::Proposal;
use super::{EffectAssociations, ReplicaUpdate};
use crate::amf::context::{self, EncodedContext, UeContext, Versions};
use crate::placement::balance::HostId;
use std::collections::VecDeque;
use vireo_types::{Duration, Instant, Tmsi};

/// How long the effects of a commit are kept for re-execution, and which UEs were deleted or
/// renumbered. Longer than detection of a host failure, and shorter than balancers remember the
/// effects that they have sent.
pub const REEXECUTION_WINDOW: Duration = Duration::from_secs(3);

/// Copy of one UE at a replica, not decoded.
#[derive(Clone, Debug)]
pub struct ReplicaEntry {
    pub(super) versions: Versions,
    /// Sender of the entry; after a handoff by this host, the new owner.
    pub(super) from: Option<HostId>,
    /// Epoch in which the entry was sent.
    pub(super) epoch: u64,
    pub(super) perpetual: Vec<u8>,
    /// Current and former 5G-TMSI.
    pub(super) tmsis: [Option<Tmsi>; 2],
    /// Empty: the context is deleted.
    pub ephemeral: Vec<u8>,
    /// Effects of the last commits. Several may arrive before the effects of the first have left.
    pub(super) outboxes: VecDeque<OutboxEntry>,
}

/// Effects of one commit.
#[derive(Clone, Debug)]
pub(super) struct OutboxEntry {
    /// Time of arrival and sender.
    pub(super) at: Instant,
    pub(super) from: HostId,
    /// True if the effects have left, or if their host is alive and executes them itself.
    pub(super) sent: bool,
    /// Number of the last copy with these effects, version of the UE after the commit, and input
    /// that was executed (0 if none).
    pub(super) number: u64,
    pub(super) version: u32,
    pub(super) input: u64,
    pub(super) outbox: Vec<u8>,
    pub(super) associations: EffectAssociations,
}

/// Effects of one commit that may not have been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentOutbox<'a> {
    /// Encoded effects of the commit.
    pub outbox: &'a [u8],
    /// Associations that the effects use.
    pub associations: EffectAssociations,
    /// True if the messages have left: the dead host has reported it, or a live previous owner has
    /// committed the effects. Only requests are then sent again, because their answers may have
    /// been lost.
    pub sent: bool,
}

impl ReplicaEntry {
    pub(super) fn parts(&self) -> EncodedContext<'_> {
        EncodedContext { versions: self.versions, perpetual: &self.perpetual, ephemeral: &self.ephemeral }
    }

    /// Decodes the context; `None` if the entry is invalid.
    pub fn decode(&self) -> Option<UeContext> {
        self.parts().decode().ok()
    }

    /// Returns the effects that may not have been executed, in order.
    pub fn unsent_outboxes(&self, now: Instant) -> impl Iterator<Item = UnsentOutbox<'_>> {
        let recent = self.outboxes.iter().filter(move |commit| now.since(commit.at) <= REEXECUTION_WINDOW);
        recent.map(|commit| UnsentOutbox {
            outbox: &commit.outbox,
            associations: commit.associations,
            sent: commit.sent,
        })
    }

    /// Appends the effects of a commit, if it has any.
    pub(super) fn add_outbox(&mut self, from: HostId, copy: &ReplicaUpdate<'_>, now: Instant) {
        if !copy.outbox.is_empty() {
            let (number, version, input) = (copy.number, copy.ephemeral_version, copy.input);
            let (outbox, associations) = (copy.outbox.to_vec(), copy.associations);
            self.outboxes.push_back(OutboxEntry {
                at: now,
                from,
                sent: false,
                number,
                version,
                input,
                outbox,
                associations,
            });
        }
    }

    /// Drops effects that are too old for re-execution.
    pub(super) fn forget(&mut self, now: Instant) {
        while self.outboxes.front().is_some_and(|commit| now.since(commit.at) > REEXECUTION_WINDOW) {
            self.outboxes.pop_front();
        }
    }

    /// Returns the effects of the last commit.
    pub fn last_outbox(&self) -> Option<&[u8]> {
        self.outboxes.back().map(|commit| &commit.outbox[..])
    }

    /// Returns true if the context exists and no part of it is missing.
    pub(super) fn is_whole(&self) -> bool {
        !self.ephemeral.is_empty() && !self.perpetual.is_empty()
    }

    /// Returns true if a copy has the state of this entry.
    pub(super) fn has_state_of(&self, copy: &ReplicaUpdate<'_>) -> bool {
        let is_same_version = (self.versions.layout, self.versions.perpetual) == (copy.layout, copy.perpetual_version);
        let is_same_perpetual = copy.perpetual.map_or(is_same_version, |perpetual| perpetual == self.perpetual);
        is_same_perpetual && copy.ephemeral == self.ephemeral
    }

    /// Returns true if one of the last commits executed an input.
    pub(super) fn has_input(&self, input: u64) -> bool {
        self.outboxes.iter().any(|commit| commit.input == input)
    }

    /// Continues the entry with a proposal to its owner, which has died. Returns false if the entry
    /// is not the base of the proposal.
    pub(super) fn adopt_proposal(&mut self, (owner, at): (HostId, Instant), proposal: Proposal) -> bool {
        let is_known = (self.versions.layout, self.versions.perpetual) == (proposal.layout, proposal.perpetual_version);
        if self.versions.ephemeral != proposal.base || proposal.perpetual.is_none() && !is_known || !self.is_whole() {
            return false;
        }
        self.versions = proposal.versions();
        let Proposal { input, perpetual, ephemeral, outbox, associations, .. } = proposal;
        self.perpetual = perpetual.unwrap_or_else(|| std::mem::take(&mut self.perpetual));
        self.ephemeral = ephemeral;
        self.outboxes.push_back(OutboxEntry {
            at,
            from: owner,
            sent: false,
            // No effect watermark includes it.
            number: u64::MAX,
            version: self.versions.ephemeral,
            input,
            outbox,
            associations,
        });
        true
    }

    /// Returns the version of the perpetual part.
    pub fn perpetual_version(&self) -> u32 {
        self.versions.perpetual
    }

    /// Returns the context in its stored form.
    pub fn encoded_context(&self) -> Option<Vec<u8>> {
        let parts = self.parts();
        let mut octets = Vec::with_capacity(parts.encoded_len());
        parts.put(&mut octets).ok()?;
        Some(octets)
    }

    /// Returns the stored form of a later state of the UE; its versions continue those of the
    /// entry.
    pub fn next_version(&self, ue: &UeContext) -> Option<Vec<u8>> {
        let mut octets = Vec::new();
        context::encode_after(ue, &self.encoded_context()?, &mut octets).ok()?;
        Some(octets)
    }
}
