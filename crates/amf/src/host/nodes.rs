//! RAN nodes and the UEs connected by each of them.

mod contest;
mod deferred_setups;
mod table;

pub(super) use table::{Node, Nodes};

use super::forward::ran_key;
use super::state::Host;
use crate::worker::outbox::Summary;
use crate::worker::ran::PublishedNode;
use crate::worker::region_layout;
use std::net::IpAddr;
use table::{AssociationLoss, RemovedNode};
use vireo_cluster::{LostBalancer, UnackedMessage};
use vireo_core::amf::context;
use vireo_core::amf::engine::Event;
use vireo_core::amf::ran::{self, RanNode, RanStepRequest, ResetItem};
use vireo_core::placement::message::{AssociationOwner, HostNotice, RanOutput};
use vireo_core::placement::replica::EffectAssociations;
use vireo_core::schedule::kind::NfKind;
use vireo_ops::clock::clock;
use vireo_ops::metrics::{Failure, Procedure};
use vireo_store::region::{Key, Slot, Snapshot};
use vireo_types::{AssocId, Dialect, Ltmsi};

/// UEs of a lost RAN node that are notified in one batch, and the queue fill level that must not be
/// exceeded before. All at once would count as overload, and the host would reject UEs of other
/// nodes.
const MAX_NOTIFIED: usize = 64;
const MAX_FILL: f64 = 0.1;

/// Returns the association that was selected for a RAN node, if any.
pub(super) fn select_association(paths: EffectAssociations, node: AssocId) -> Option<AssocId> {
    paths.into_iter().flatten().find(|(of, _)| *of == node).map(|(_, by)| by)
}

impl Host {
    /// Handles the loss or restart of an association. If its RAN node has no other, the node's UEs
    /// become idle.
    pub(super) fn association_lost(&mut self, assoc: AssocId, restarted: bool) {
        match self.nodes.remove_association(assoc, restarted) {
            AssociationLoss::Nothing => {
                tracing::info!(assoc = assoc.0, restarted, "an association without NG Setup is gone")
            }
            AssociationLoss::Fewer(remaining) => {
                tracing::warn!(
                    assoc = assoc.0,
                    restarted,
                    remaining,
                    "a RAN node has lost an association, and has others"
                );
            }
            AssociationLoss::Last(RemovedNode { node, name, ues, .. }) => {
                tracing::info!(assoc = assoc.0, restarted, name, "a RAN node is gone");
                if restarted {
                    // At once: the next messages of the same association may concern the same UEs.
                    ues.into_iter().for_each(|slot| self.connection_lost(slot, node));
                } else {
                    self.nodes.disconnected.push((node, ues));
                }
                let nodes = &self.nodes;
                self.stale.retain(|node| nodes.get(node).is_some());
                self.post_nodes();
            }
        }
    }

    /// Handles the loss of a balancer. RAN nodes with associations to other balancers receive an
    /// AMF Configuration Update: by themselves they may consider the balancer alive for seconds.
    /// Messages that the balancer did not confirm are sent by other associations.
    pub(super) fn on_balancer_lost(&mut self, remaining: LostBalancer) {
        let LostBalancer { associations, endpoints, unsent } = remaining;
        let mut nodes: Vec<AssocId> = Vec::new();
        for assoc in associations {
            nodes.extend(self.nodes.remember_node(assoc));
            self.association_lost(assoc, false);
        }
        nodes.sort_unstable();
        nodes.dedup();
        if self.is_ran_responder() && !endpoints.is_empty() {
            let pdu = ran::remove_associations(&endpoints);
            for node in nodes {
                self.update_node(node, &pdu);
            }
        }
        if !unsent.is_empty() {
            tracing::warn!(count = unsent.len(), "what a balancer has not said to have sent goes by others");
        }
        unsent.into_iter().for_each(|message| self.send_again(message));
    }

    /// Asks all RAN nodes for an association with a new or recovered balancer, if `n2_endpoints`
    /// contains its addresses.
    pub(super) fn on_balancer_up(&mut self, addresses: &[IpAddr]) {
        let configured: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| self.config.n2_endpoints.contains(address)).collect();
        if !configured.is_empty() && self.is_ran_responder() {
            let nodes: Vec<AssocId> = self.nodes.iter().map(|(node, _)| node).collect();
            let pdu = ran::add_associations(&configured);
            nodes.into_iter().for_each(|node| self.update_node(node, &pdu));
        }
    }

    /// Sends an AMF Configuration Update to a RAN node, if it is no eNB.
    fn update_node(&mut self, node: AssocId, pdu: &[u8]) {
        if node.dialect() == Dialect::Eps {
            return;
        }
        if let Some(assoc) = self.nodes.association_to(node, None) {
            self.nodes.count_update(assoc);
            self.egress.send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu: pdu.to_vec() });
        }
    }

    /// Sends a message that its association did not carry by another association of the RAN node,
    /// if any.
    pub(super) fn send_again(&mut self, message: UnackedMessage) {
        let UnackedMessage { assoc: gone, ue, key, pdu } = message;
        if let Some(assoc) = self.nodes.alternative_to(gone, self.ues.region.slot_of(ue)) {
            self.egress.send(RanOutput::Ngap { assoc, ue: Some(ue), key, pdu });
        }
    }

    /// Notifies a batch of UEs whose RAN nodes are gone.
    pub(super) fn notify_disconnected(&mut self) {
        while let Some((assoc, mut ues)) = self.nodes.disconnected.pop() {
            // Messages in transit between an NF and a UPF return to a queue too.
            let queued = self.workers.pools.iter().map(|nf| nf.queue.len()).max().unwrap_or(0);
            let waiting = queued + self.egress.len() + self.inputs.queue.len();
            let calm = MAX_FILL * f64::from(self.ues.region.config().ring_cells);
            if self.has_backlog() || waiting as f64 > calm {
                return self.nodes.disconnected.push((assoc, ues));
            }
            for slot in ues.split_off(ues.len().saturating_sub(MAX_NOTIFIED)) {
                // A UE that was removed meanwhile needs no notification.
                if self.ues.region.ltmsi_of(slot).is_some() {
                    self.connection_lost(slot, assoc);
                }
            }
            if !ues.is_empty() {
                self.nodes.disconnected.push((assoc, ues));
            }
        }
    }

    pub(super) fn connection_lost(&mut self, slot: Slot, assoc: AssocId) {
        self.deliver(slot, &Event::ConnectionLost { assoc }.into(), NfKind::StateManagement);
    }

    /// Applies the change of a UE's connections by a step.
    pub(super) fn moved(&mut self, slot: Slot, before: Option<Summary>, after: Option<Summary>) {
        self.connected(slot, before, after);
        for assoc in after.map(|s| s.associations()).unwrap_or_default().into_iter().flatten() {
            // The association was lost during the step.
            if self.nodes.get(assoc).is_none() {
                self.connection_lost(slot, assoc);
            }
        }
    }

    /// Updates the tables after a change of a UE's connections.
    pub(super) fn connected(&mut self, slot: Slot, before: Option<Summary>, after: Option<Summary>) {
        let associations = |s: Option<Summary>| s.map(|s| s.associations()).unwrap_or_default();
        self.admission.half_open.changed(&self.nodes, slot, before, after);
        self.nodes.moved(slot, associations(before), associations(after));
        let (old, new) = (before.and_then(|s| s.connection), after.and_then(|s| s.connection));
        if old != new {
            if let Some((assoc, ran_id)) = old {
                self.ues.region.unbind(slot, Key::Ran, ran_key(assoc, ran_id));
            }
            if let Some((assoc, ran_id)) = new {
                self.bind(slot, Key::Ran, ran_key(assoc, ran_id));
            }
        }
    }

    /// Sends a message about a UE to its RAN node. Uses the association of the UE's last message if
    /// it is still up. `by` is the association that was selected when the message was created; it
    /// has priority.
    pub(super) fn send_about(
        &mut self,
        (slot, ue): (Option<Slot>, Ltmsi),
        (node, by): (AssocId, Option<AssocId>),
        key: u64,
        pdu: Vec<u8>,
    ) {
        let selected = by.filter(|by| self.nodes.node_of(*by) == Some(node));
        // A RAN node that is gone has released its UEs.
        if let Some(assoc) = selected.or_else(|| self.nodes.association_to(node, slot)) {
            self.egress.send(RanOutput::Ngap { assoc, ue: Some(ue), key, pdu });
        }
    }

    /// Reports the RAN node of its further associations to their balancers.
    fn report_node(&mut self, node: AssocId) {
        let Some(known) = self.nodes.get(node).filter(|_| self.cluster.is_some()) else { return };
        for assoc in known.further(node) {
            let of = AssociationOwner { assoc, node, record: known.record.clone() };
            self.egress.send(HostNotice::Node(Box::new(of)));
        }
    }

    /// Records the RAN node of an association, as reported by a balancer. The association may
    /// have been bound before this host joined.
    pub(super) fn on_node_report(&mut self, of: AssociationOwner) {
        let AssociationOwner { assoc, node, record } = of;
        if self.nodes.bind_reported(assoc, node, record) {
            self.post_nodes();
        }
    }

    /// Publishes the list of RAN nodes to the workers.
    pub(super) fn post_nodes(&self) {
        let of = |(assoc, node): (AssocId, &Node)| {
            let areas = node.record.areas.iter().map(|a| a.tai).collect();
            PublishedNode { assoc, id: node.record.id, areas }
        };
        let nodes: Vec<PublishedNode> = self.nodes.iter().map(of).collect();
        let posted = postcard::to_stdvec(&nodes).map_err(|e| e.to_string());
        let posted = posted.and_then(|octets| {
            self.ues.region.publish(region_layout::BULLETIN_RAN, &octets).map_err(|e| e.to_string())
        });
        if let Err(error) = posted {
            tracing::error!(
                error,
                nodes = nodes.len(),
                "the workers do not learn of all RAN nodes: too many for paging"
            );
        }
    }

    /// Processes a message that concerns no single UE. In a cluster every host stores the result,
    /// and one answers.
    pub(super) fn node_message(&mut self, assoc: AssocId, pdu: &[u8], answers: bool) {
        if !self.nodes.is_up(assoc) {
            return;
        }
        let now = clock();
        let bound = self.nodes.node_of(assoc);
        // The first message of a further association names its RAN node.
        let dialect = assoc.dialect();
        let named = if bound.is_none() && dialect == Dialect::Nr { ran::named(pdu) } else { None };
        let node = bound.or_else(|| self.nodes.find(named?));
        if let (Some(id), None) = (named, node) {
            self.nodes.claim(assoc, id);
        }
        let before = node.and_then(|node| self.nodes.get(node)).map(|node| node.record.clone());
        let mut record = before.clone();
        let outcome = ran::step_of(dialect, &mut record, pdu, &self.config);
        if let Some(fault) = outcome.fault {
            self.statistics.step_metrics.fault(fault, now, self.nodes.peer(assoc));
            if fault.starts_with("ng-setup") || fault.starts_with("s1-setup") {
                self.statistics.step_metrics.metrics.procedures.failed(Procedure::NgSetup, Failure::Cause(0));
            }
        }
        let begins = outcome.request == Some(RanStepRequest::Erase);
        let setup = record.as_ref().filter(|_| begins && answers);
        if setup.is_some_and(|record| !self.admits_setup(assoc, record, pdu, now)) {
            return;
        }
        let further = node.filter(|_| bound.is_none() && !begins && outcome.fault.is_none());
        if further.is_some_and(|node| !self.admits_binding(assoc, node, answers)) {
            return;
        }
        if let (Some(node), Some(record), false) = (node, &record, begins) {
            if bound.is_none() && outcome.fault.is_none() {
                tracing::info!(assoc = assoc.0, name = record.name, "a RAN node has a further association");
                self.nodes.bind(assoc, node);
            }
            if before.as_ref() != Some(record) {
                self.nodes.record(node, record.clone());
                self.post_nodes();
            }
            if bound.is_none() || before.as_ref() != Some(record) {
                self.report_node(node);
            }
        }
        match outcome.request {
            // In a cluster one host has sent the update.
            Some(RanStepRequest::Updated { failed }) if answers => self.updated(assoc, failed),
            Some(request) => self.request(assoc, record, request, answers),
            None => {}
        }
        if let Some(pdu) = outcome.answer.filter(|_| answers) {
            self.egress.send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu });
        }
        // An eNB has one association with each MME.
        if begins && answers && dialect == Dialect::Nr && !self.config.n2_endpoints.is_empty() {
            let pdu = ran::add_associations(&self.config.n2_endpoints);
            self.nodes.count_update(assoc);
            self.egress.send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu });
        }
        if begins && bound.is_none() {
            self.relieve_new_node(assoc);
        }
    }

    fn request(&mut self, assoc: AssocId, record: Option<RanNode>, request: RanStepRequest, answers: bool) {
        let now = clock();
        let procedures = |p| {
            self.statistics.step_metrics.metrics.procedures.started(p);
            self.statistics.step_metrics.metrics.procedures.succeeded(p, clock().since(now));
        };
        let node = self.nodes.node_of(assoc).unwrap_or(assoc);
        match request {
            RanStepRequest::Erase => {
                procedures(Procedure::NgSetup);
                if let Some(record) = record {
                    self.begin(assoc, record, answers);
                }
            }
            RanStepRequest::Reset(items) if items.is_empty() => {
                procedures(Procedure::NgReset);
                for slot in self.nodes.ues(node) {
                    self.connection_lost(slot, node);
                }
            }
            RanStepRequest::Reset(items) => {
                procedures(Procedure::NgReset);
                for item in items {
                    if let Some(slot) = self.connection_of(node, item) {
                        self.connection_lost(slot, node);
                    }
                }
            }
            RanStepRequest::ResetAcknowledged | RanStepRequest::Updated { .. } => {}
        }
    }

    /// Processes the acknowledgement of an AMF Configuration Update.
    fn updated(&mut self, assoc: AssocId, failed: usize) {
        let peer = self.nodes.peer(assoc);
        if self.nodes.acknowledge_update(assoc) {
            tracing::info!(assoc = assoc.0, %peer, failed, "a RAN node knows the further addresses of this AMF");
        } else {
            self.statistics.step_metrics.fault("unsolicited-acknowledgement", clock(), peer);
        }
    }

    /// Applies an NG Setup. If the RAN node was set up before, it has restarted without noticing
    /// the loss of its older associations. The host that answers aborts them.
    fn begin(&mut self, assoc: AssocId, record: RanNode, answers: bool) {
        let peer = self.nodes.peer(assoc);
        tracing::info!(assoc = assoc.0, %peer, name = record.name, gnb = ?record.id, "NG is set up");
        for RemovedNode { node, ues, remaining, .. } in self.nodes.begin(assoc, record) {
            self.drop_newcomers(node);
            if node == assoc {
                // At once: the next messages with the same number may concern the same UEs.
                ues.into_iter().for_each(|slot| self.connection_lost(slot, node));
            } else {
                self.nodes.disconnected.push((node, ues));
            }
            for old in remaining.into_iter().filter(|_| answers) {
                tracing::warn!(
                    assoc = old.0,
                    %peer,
                    "the same RAN node has set NG up on another association: this one ends"
                );
                self.egress.send(RanOutput::Abort { assoc: old });
            }
        }
        self.post_nodes();
        self.report_node(assoc);
    }

    /// Returns the UE of a connection that a partial NG Reset names by either UE NGAP ID.
    fn connection_of(&self, assoc: AssocId, item: ResetItem) -> Option<Slot> {
        let slot = match item {
            ResetItem { amf_id: Some(id), .. } => self.ues.region.slot_of(id.ltmsi())?,
            ResetItem { ran_id: Some(id), .. } => {
                let target = || self.nodes.ues(assoc).into_iter().find(|slot| self.fits(*slot, assoc, item));
                self.ues.region.lookup(Key::Ran, ran_key(assoc, id)).or_else(target)?
            }
            ResetItem { .. } => return None,
        };
        self.fits(slot, assoc, item).then_some(slot)
    }

    /// Returns true if the UE has a connection with these UE NGAP IDs.
    fn fits(&self, slot: Slot, assoc: AssocId, item: ResetItem) -> bool {
        let mut record = Snapshot::default();
        self.ues.region.read(slot, &mut record);
        let Ok(ue) = context::decode(&record.context) else { return false };
        let serving = ue.connection.map(|c| (c.assoc, c.amf_id, Some(c.ran_id)));
        let target = ue.handover.as_ref().and_then(|h| h.target()).map(|m| (m.assoc, m.amf_id, m.ran_id));
        serving.into_iter().chain(target).any(|(of, amf_id, ran_id)| {
            of == assoc && item.amf_id.is_none_or(|id| id == amf_id) && item.ran_id.is_none_or(|id| Some(id) == ran_id)
        })
    }
}
