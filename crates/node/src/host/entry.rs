//! Entry of UEs whose RAN nodes are unknown, as `core::placement::replica` decides.

use super::Host;
use super::cluster::Cluster;
use crate::balancer::Command;
use crate::worker::outbox::Summary;
use vireo_core::amf::context::UeContext;
use vireo_core::placement::replica::{Origin, ReplicaEntry};
use vireo_store::region::Slot;
use vireo_types::{AssocId, Ltmsi};

/// A UE that was entered while one of its RAN nodes was unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsure {
    slot: Slot,
    ltmsi: Ltmsi,
    node: AssocId,
}

impl Host {
    /// Returns true if the UE is connected by a RAN node that is unknown here.
    pub(super) fn is_of_unknown_node(&self, ue: &UeContext) -> bool {
        ue.associations().any(|node| self.nodes.get(node).is_none())
    }

    /// Defers the entry of a UE until the balancers have sent all RAN nodes that they know.
    pub(super) fn keep_back(&mut self, ltmsi: Ltmsi, shadow: ReplicaEntry, origin: Origin) {
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.primary.keep_back(ltmsi, shadow, origin);
        }
    }

    /// Asks all balancers for their RAN nodes, if this is due.
    pub(super) fn ask_for_nodes(&mut self) {
        let number = self.cluster.as_mut().and_then(|cluster| cluster.primary.asks_for_nodes());
        number.into_iter().for_each(|number| self.egress.send(Command::Introduce { number }));
    }

    /// Enters the deferred UEs: all balancers have sent their RAN nodes.
    pub(super) fn knows_nodes(&mut self, question: u64) {
        let taken = self.cluster.as_mut().and_then(|cluster| cluster.primary.introduced(question));
        let Some(taken) = taken.filter(|taken| !taken.ues.is_empty() || !taken.handed.is_empty()) else { return };
        let count = taken.ues.len() + taken.handed.len();
        tracing::info!(count, "entering UEs that came before their RAN nodes");
        self.take_over_ues(taken, true);
        self.tell_own();
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.primary.rescan();
        }
        self.release_waiting();
    }

    /// Updates the tables after the entry of a UE of another host.
    pub(super) fn has_entered(&mut self, slot: Slot, ltmsi: Ltmsi, summary: Summary) {
        self.connected(slot, None, Some(summary));
        let unknown = summary.associations().into_iter().flatten().filter(|node| self.nodes.get(*node).is_none());
        let unsure = unknown.map(|node| Unsure { slot, ltmsi, node });
        if let Some(cluster) = self.cluster.as_mut() {
            cluster.unsure.extend(unsure);
        }
    }

    /// Makes UEs idle whose RAN nodes are still unknown after all reports were processed. Does
    /// nothing while messages of RAN nodes wait.
    pub(super) fn disconnect_unsure(&mut self) {
        let Some(Cluster { unsure, waiting, .. }) = self.cluster.as_deref_mut() else { return };
        if !waiting.is_empty() || unsure.is_empty() {
            return;
        }
        for Unsure { slot, ltmsi, node } in std::mem::take(unsure) {
            if self.region.slot_of(ltmsi) != Some(slot) {
                continue;
            }
            match self.nodes.get(node) {
                Some(_) => self.nodes.moved(slot, [None; 2], [Some(node), None]),
                None => self.connection_lost(slot, node),
            }
        }
    }
}
