//! Invariants of inputs and proposals.
//!
//! * An input has at most one result that lasts, and is done only if a host has executed it.
//! * A proposal is committed on the very state that it was made from.
//! * An effect leaves when each possible next owner has its commit.
//! * No input waits for a serving host longer than the balancer allows.

use super::{Oracle, Violation};
use std::collections::{BTreeMap, HashMap, HashSet};
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::replica::Proposal;
use vireo_types::{Bucket, Ltmsi};

/// State of inputs, proposals and copies.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// Step with the lasting result of each input.
    results: HashMap<u64, u64>,
    /// Inputs that hosts have executed, with or without a lasting result.
    executed: HashSet<u64>,
    /// Hash of the state that the proposal for an input was made from.
    bases: HashMap<u64, u64>,
    /// Version of each UE at each host that stores copies of it.
    copies: HashMap<(HostId, Ltmsi), u32>,
    /// Inputs at serving hosts: the bucket of the UE, and the time until which they may wait.
    served: BTreeMap<u64, (Bucket, u64)>,
}

impl Oracle {
    /// Handles that a host has executed an input, or has committed its proposal.
    pub(in super::super) fn on_executed(&mut self, input: u64) {
        self.inputs.executed.insert(input);
    }

    /// Checks a message that reports an input done.
    pub(in super::super) fn on_done(&mut self, input: u64) {
        self.inputs.served.remove(&input);
        if !self.inputs.executed.contains(&input) {
            self.record_violation(Violation::NotExecuted(input));
        }
    }

    /// Checks the step of an input whose commit has the required copies.
    pub(in super::super) fn on_result(&mut self, input: u64, step: u64) {
        if input != 0 && *self.inputs.results.entry(input).or_insert(step) != step {
            self.record_violation(Violation::ExecutedTwice(input));
        }
    }

    /// Handles that a serving host proposes a step on a state.
    pub(in super::super) fn on_proposal(&mut self, input: u64, state: &[u8]) {
        self.inputs.bases.insert(input, super::hash(state));
    }

    /// Checks the state on which a proposal of a host is committed. The host has the commit from
    /// here on.
    pub(in super::super) fn on_proposal_committed(&mut self, from: HostId, proposal: &Proposal, state: &[u8]) {
        if self.inputs.bases.get(&proposal.input) != Some(&super::hash(state)) {
            self.record_violation(Violation::OtherBase(proposal.input));
        }
        self.on_executed(proposal.input);
        self.on_copy(from, proposal.ltmsi, proposal.versions().ephemeral);
    }

    /// Handles that a host stores a version of a UE.
    pub(in super::super) fn on_copy(&mut self, host: HostId, ltmsi: Ltmsi, version: u32) {
        let stored = self.inputs.copies.entry((host, ltmsi)).or_insert(version);
        if version.wrapping_sub(*stored) as i32 > 0 {
            *stored = version;
        }
    }

    /// Checks that these hosts store a version of a UE whose effects leave.
    pub(in super::super) fn on_effects(&mut self, hosts: &[HostId], ltmsi: Ltmsi, version: u32) {
        for host in hosts {
            let stored = self.inputs.copies.get(&(*host, ltmsi));
            if stored.is_none_or(|stored| (version.wrapping_sub(*stored) as i32) > 0) {
                self.record_violation(Violation::NoCopy(*host));
            }
        }
    }

    /// Handles that the balancer sends an input to its owner, or to a serving host, where it may
    /// wait `until` a time.
    pub(in super::super) fn on_input_sent(&mut self, input: u64, served: Option<(Bucket, u64)>) {
        match served {
            Some(served) => drop(self.inputs.served.insert(input, served)),
            None => drop(self.inputs.served.remove(&input)),
        }
    }

    /// Forgets the inputs of a balancer that has ended.
    pub(super) fn forget_inputs_of(&mut self, balancer: BalancerId) {
        self.inputs.served.retain(|number, _| BalancerId::from_input(*number) != balancer);
    }

    /// Checks the inputs of a balancer at serving hosts. `waits`: the owner of a bucket receives
    /// nothing, so that its inputs wait for the owner.
    pub(in super::super) fn on_time(&mut self, now: u64, balancer: BalancerId, waits: impl Fn(Bucket) -> bool) {
        let is_late = |number: &u64, until: u64| BalancerId::from_input(*number) == balancer && until < now;
        let late = self.inputs.served.extract_if(.., |number, (_, until)| is_late(number, *until));
        let late: Vec<(u64, Bucket)> = late.map(|(number, (of, _))| (number, of)).collect();
        if let Some((input, _)) = late.into_iter().find(|(_, bucket)| !waits(*bucket)) {
            self.record_violation(Violation::Late(input));
        }
    }
}
