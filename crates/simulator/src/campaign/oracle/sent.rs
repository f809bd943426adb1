//! Effects on their way by balancers.
//!
//! An effect that a balancer has not executed when it ends is executed by another one, if its RAN
//! node has another association.

use super::{Oracle, Violation};
use std::collections::{BTreeSet, HashMap};
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_types::AssocId;

/// Time within which another balancer must execute the effects of one that has ended.
const REPEATED_WITHIN: u64 = 700_000;

/// Effect that a host has sent to a balancer.
#[derive(Debug)]
struct SentEffect {
    host: HostId,
    balancer: BalancerId,
    /// Association of a message to a RAN node; `None`: for the UPF.
    assoc: Option<AssocId>,
    /// Time by which another balancer must execute it.
    deadline: Option<u64>,
}

/// Effects on their way, by name.
#[derive(Debug, Default)]
pub(super) struct SentEffects {
    effects: HashMap<u64, SentEffect>,
    /// Balancer to which each effect was sent first.
    first: HashMap<u64, BalancerId>,
    /// Balancers that have ended, or are in the map no longer.
    ended: BTreeSet<BalancerId>,
    /// Effects that a balancer had not confirmed when the host's connection to it broke.
    unconfirmed: BTreeSet<u64>,
}

impl Oracle {
    /// Handles that a host sends an effect to a balancer.
    pub(in super::super) fn on_effect_sent(
        &mut self,
        name: u64,
        host: HostId,
        (balancer, assoc): (BalancerId, Option<AssocId>),
    ) {
        if name != 0 {
            self.sent.first.entry(name).or_insert(balancer);
        }
        if name != 0 && !self.is_executed(name) {
            self.sent.effects.insert(name, SentEffect { host, balancer, assoc, deadline: None });
        }
    }

    /// Returns true if an effect may be executed again, or late: one of the balancers that have
    /// received it has ended, or had not confirmed it when the connection broke.
    pub(super) fn is_repeatable(&self, name: u64, by: [BalancerId; 2]) -> bool {
        let first = self.sent.first.get(&name);
        let has_ended = first.into_iter().chain(&by).any(|balancer| self.sent.ended.contains(balancer));
        has_ended || self.sent.unconfirmed.contains(&name)
    }

    /// Handles that the connection of a host to a balancer breaks before the balancer has confirmed
    /// an effect, or before the host sends it. The host cannot know whether a live balancer has sent
    /// it, and sends it by another association than the copies of its commit name. If the host then
    /// fails, the next owner sends the same octets by the named one. Seeds 15 and 273 with two
    /// balancers do so.
    pub(in super::super) fn on_unconfirmed(&mut self, name: u64) {
        self.sent.unconfirmed.insert(name);
    }

    /// Returns true if a balancer has ended, or is in the map no longer.
    pub(in super::super) fn is_gone(&self, balancer: BalancerId) -> bool {
        self.sent.ended.contains(&balancer)
    }

    /// Handles that an effect is executed, or is of no use any more.
    pub(in super::super) fn on_effect_void(&mut self, name: u64) {
        self.sent.effects.remove(&name);
    }

    /// Handles the end of a balancer. `has_other_association`: the RAN node of an association has
    /// another one.
    pub(in super::super) fn on_balancer_gone(
        &mut self,
        balancer: BalancerId,
        now: u64,
        has_other_association: impl Fn(AssocId) -> bool,
    ) {
        if !self.sent.ended.insert(balancer) {
            return;
        }
        self.sent.effects.retain(|_, sent| sent.balancer != balancer || sent.assoc.is_none_or(&has_other_association));
        for sent in self.sent.effects.values_mut().filter(|sent| sent.balancer == balancer) {
            sent.deadline = Some(now + REPEATED_WITHIN);
        }
        self.forget_inputs_of(balancer);
    }

    /// Handles the end of a host: the next owner executes its effects again.
    pub(in super::super) fn on_host_gone(&mut self, host: HostId) {
        self.sent.effects.retain(|_, sent| sent.host != host);
    }

    /// Handles that RAN nodes have lost all associations, which included these.
    pub(in super::super) fn on_node_gone(&mut self, is_gone: impl Fn(AssocId) -> bool) {
        self.sent.effects.retain(|_, sent| !sent.assoc.is_some_and(&is_gone));
    }

    /// Checks the effects whose balancers have ended.
    pub(in super::super) fn check_sent(&mut self, now: u64) {
        let is_lost = |sent: &SentEffect| sent.deadline.is_some_and(|deadline| deadline < now);
        let lost = self.sent.effects.iter().filter(|(_, sent)| is_lost(sent)).map(|(name, _)| *name).min();
        if let Some(name) = lost {
            self.record_violation(Violation::EffectLost(name));
        }
    }
}
