//! Takeover of UEs from a dead host, and their migration from a living one.

use super::super::Mutation;
use super::super::Violation;
use super::super::message::Message;
use super::super::network::Network;
use super::super::ues::{Outbox, UeEvent};
use super::Host;
use vireo_core::amf::context::UeContext;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::replica::{self, Origin, ReplicaEntry, TakeoverSet};
use vireo_core::step::Effect;
use vireo_types::Ltmsi;

impl Host {
    pub(super) fn enter_taken(&mut self, wires: &mut Network, mut taken: TakeoverSet) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        cluster.primary.entered(std::mem::take(&mut taken.awaited));
        self.carried.extend(taken.inputs.iter().copied());
        self.enter_ues(wires, taken, wires.is(Mutation::NodesNotAwaited));
    }

    /// Enters UEs that this host owns from now on. Unless the RAN nodes are certain (`sure`), UEs
    /// of unknown nodes wait.
    fn enter_ues(&mut self, wires: &mut Network, taken: TakeoverSet, sure: bool) {
        let now = wires.time(self.process);
        for (ltmsi, shadow) in taken.ues {
            if wires.is(Mutation::CopiesForgotten) {
                continue;
            }
            let mut slot = None;
            if !shadow.ephemeral.is_empty() {
                let Some(mut ue) = shadow.decode() else {
                    wires.oracle.record_violation(Violation::Baseless);
                    continue;
                };
                if !sure && self.is_of_unknown_node(&ue) {
                    self.keep_back(ltmsi, shadow, Origin::Dead);
                    continue;
                }
                let lags = self.replication.may_lag();
                if lags {
                    replica::skip(&mut ue);
                }
                let octets = if lags { shadow.next_version(&ue) } else { shadow.record() };
                slot = octets.map(|octets| self.enter(wires, (ltmsi, &shadow), octets, &ue));
            }
            wires.taken += 1;
            self.do_again(wires, slot, &shadow, now);
        }
        for (from, ltmsi, shadow) in taken.handed.into_iter().filter(|(.., shadow)| !shadow.ephemeral.is_empty()) {
            self.go_on(wires, (from, sure), ltmsi, shadow);
        }
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.primary.rescan();
            cluster.primary.sorts_again();
        }
        for (number, input) in std::mem::take(&mut self.waiting) {
            self.input(wires, number, input);
        }
        if self.waiting.is_empty() {
            self.disconnect_unsure(wires);
        }
    }

    fn is_of_unknown_node(&self, ue: &UeContext) -> bool {
        ue.associations().any(|assoc| !self.ues.nodes.has(assoc))
    }

    fn keep_back(&mut self, ltmsi: Ltmsi, shadow: ReplicaEntry, origin: Origin) {
        self.cluster.iter_mut().for_each(|cluster| cluster.primary.keep_back(ltmsi, shadow.clone(), origin));
    }

    /// Handles the end of the node query: UEs of nodes that are still unknown become idle.
    fn disconnect_unsure(&mut self, wires: &mut Network) {
        for (slot, assoc) in std::mem::take(&mut self.unsure) {
            if !self.ues.nodes.has(assoc) {
                self.deliver(wires, slot, 0, UeEvent::ConnectionLost { assoc });
            }
        }
    }

    /// Queries the known RAN nodes from the balancer, if a query is pending.
    pub(super) fn ask_for_nodes(&mut self, wires: &mut Network) {
        while let Some(number) = self.cluster.as_mut().and_then(|cluster| cluster.primary.asks_for_nodes()) {
            if wires.is(Mutation::NodesNotAwaited) {
                self.introduced(wires, number);
            } else {
                self.nodes_asked.insert(number);
                self.tell(wires, Message::Sync(number));
            }
        }
    }

    pub(super) fn introduced(&mut self, wires: &mut Network, number: u64) {
        self.nodes_asked.remove(&number);
        if let Some(taken) = self.cluster.as_mut().and_then(|cluster| cluster.primary.introduced(number)) {
            self.enter_ues(wires, taken, true);
        }
    }

    /// Re-executes the effects of a dead host's last commits, which may not have been executed,
    /// under the same names.
    fn do_again(&mut self, wires: &mut Network, slot: Option<u32>, shadow: &ReplicaEntry, now: vireo_types::Instant) {
        for undone in shadow.unsent_outboxes(now) {
            let Some(mut outbox) = Outbox::decode(undone.outbox) else { continue };
            if undone.sent {
                outbox.effects.retain(|effect| matches!(effect, Effect::Authenticate(_)));
            }
            self.send_effects(wires, slot, &outbox);
            for effect in &outbox.effects {
                if let (Some((supi, at)), Some(slot)) = (effect.claims_subscriber(outbox.at), slot) {
                    self.claim_again(wires, slot, supi, at);
                }
            }
        }
    }

    /// Continues a UE that a living host has migrated.
    fn go_on(&mut self, wires: &mut Network, (from, sure): (Option<HostId>, bool), ltmsi: Ltmsi, shadow: ReplicaEntry) {
        let (Some(ue), Some(octets)) = (shadow.decode(), shadow.record()) else {
            return wires.oracle.record_violation(Violation::Baseless);
        };
        if !sure && self.is_of_unknown_node(&ue) {
            return self.keep_back(ltmsi, shadow, Origin::Handed(from));
        }
        wires.handed += 1;
        let slot = self.enter(wires, (ltmsi, &shadow), octets, &ue);
        if let (Some(cluster), Some(from)) = (self.cluster.as_mut(), from)
            && cluster.primary.keeps_copies(from, ltmsi.bucket())
        {
            cluster.primary.knows(from, slot, ltmsi, shadow.perpetual_version());
        }
        for effect in shadow.last_outbox().and_then(Outbox::decode).into_iter().flat_map(|outbox| outbox.effects) {
            if let Effect::Authenticate(request) = effect {
                self.authenticate(wires, slot, request);
            }
        }
    }
}
