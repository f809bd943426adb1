//! RAN nodes: executes what the table of RAN nodes decides (`core::placement::ran_nodes`).

use super::forward::ran_key;
use super::state::Host;
use crate::worker::outbox::Summary;
use crate::worker::region_layout;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use vireo_cluster::{UnackedMessage, UnreachableBalancer};
use vireo_core::amf::context;
use vireo_core::amf::engine::Event;
use vireo_core::amf::ran::ResetItem;
use vireo_core::placement::message::{AssociationOwner, HostNotice, RanOutput};
use vireo_core::placement::ran_nodes::{NodeEvent, NodeOutput, NodeStepInput};
use vireo_core::placement::replica::EffectAssociations;
use vireo_core::schedule::kind::NfKind;
use vireo_ops::clock::clock;
use vireo_ops::metrics::{Failure, Procedure};
use vireo_store::region::{Key, Slot, Snapshot};
use vireo_types::{AmfUeNgapId, AssocId, Dialect, Duration, Instant, Ltmsi, RanUeNgapId};

/// UEs of a lost RAN node that are notified in one batch, and the queue fill level that must not be
/// exceeded before. All at once would count as overload, and the host would reject UEs of other
/// nodes.
const MAX_NOTIFIED: usize = 64;
const MAX_FILL: f64 = 0.1;

impl Host {
    /// Handles the loss or restart of an association.
    pub(super) fn on_association_loss(&mut self, assoc: AssocId, restarted: bool) {
        let outputs = self.nodes.on_association_lost(assoc, restarted);
        self.execute_node_outputs(outputs);
    }

    /// Handles a new association.
    pub(super) fn association_up(&mut self, assoc: AssocId, peer: SocketAddr) {
        tracing::info!(assoc = assoc.0, %peer, "association up");
        let outputs = self.nodes.on_association_up(assoc, peer);
        self.execute_node_outputs(outputs);
    }

    /// Handles that associations of unreachable balancers are lost.
    pub(super) fn on_association_losses(&mut self, associations: BTreeSet<AssocId>) {
        let outputs = self.nodes.on_associations_lost(associations);
        self.execute_node_outputs(outputs);
    }

    /// Handles the end of the connection to a balancer. Messages that the balancer did not confirm
    /// are sent by other associations.
    pub(super) fn on_balancer_unreachable(&mut self, balancer: UnreachableBalancer) {
        let UnreachableBalancer { associations, endpoints, unsent } = balancer;
        let answers = self.is_ran_responder();
        let outputs = self.nodes.on_balancer_unreachable(associations, &endpoints, answers);
        self.execute_node_outputs(outputs);
        if !unsent.is_empty() {
            tracing::warn!(count = unsent.len(), "resending unacknowledged messages on other associations");
        }
        unsent.into_iter().for_each(|message| self.send_again(message));
    }

    /// Asks all RAN nodes for an association with a new or recovered balancer, if `n2_endpoints`
    /// contains its addresses.
    pub(super) fn on_balancer_up(&mut self, addresses: &[IpAddr]) {
        let configured: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| self.config.ran.n2_endpoints.contains(address)).collect();
        if !configured.is_empty() && self.is_ran_responder() {
            let outputs = self.nodes.on_balancer_up(&configured);
            self.execute_node_outputs(outputs);
        }
    }

    /// Records the RAN node of an association, as reported by a balancer.
    pub(super) fn on_node_report(&mut self, of: AssociationOwner) {
        let outputs = self.nodes.on_report(of);
        self.execute_node_outputs(outputs);
    }

    /// Processes a message that concerns no single UE. In a cluster every host stores the result,
    /// and one answers.
    pub(super) fn node_message(&mut self, assoc: AssocId, pdu: &[u8], (answers, number): (bool, u64)) {
        let input = NodeStepInput { config: &self.config, now: clock(), answers, number };
        let outputs = self.nodes.on_message(assoc, pdu, input);
        self.execute_node_outputs(outputs);
    }

    /// Refuses the NG Setups that contest the identity of a RAN node that answered a probe.
    pub(super) fn node_lives(&mut self, assoc: AssocId) {
        let outputs = self.nodes.on_alive(assoc);
        self.execute_node_outputs(outputs);
    }

    /// Applies NG Setups whose existing RAN node is gone or did not answer in time.
    pub(super) fn settle_contests(&mut self, now: Instant) {
        let outputs = self.nodes.settle_contests(&self.config, now);
        self.execute_node_outputs(outputs);
    }

    fn execute_node_outputs(&mut self, outputs: Vec<NodeOutput<Slot>>) {
        for output in outputs {
            match output {
                NodeOutput::Send(output) => self.egress.send(output),
                NodeOutput::Report(of) => {
                    if self.cluster.is_some() {
                        self.egress.send(HostNotice::RanNode(of));
                    }
                }
                NodeOutput::Disconnect { node, ues, at_once: true } => {
                    ues.into_iter().for_each(|slot| self.connection_lost(slot, node));
                }
                NodeOutput::Disconnect { node, ues, at_once: false } => self.events.disconnected.push((node, ues)),
                NodeOutput::Reset { node, items, input } => {
                    for slot in self.connections_of(node, &items) {
                        if self.nodes.begin_reset_of(node, input, slot) {
                            self.connection_lost(slot, node);
                        }
                    }
                }
                NodeOutput::Ended { node } => self.drop_newcomers(node),
                NodeOutput::Begun { assoc } => self.relieve_new_node(assoc),
                NodeOutput::Changed => {
                    let nodes = &self.nodes;
                    self.stale.retain(|node| nodes.get(node).is_some());
                    self.post_nodes();
                }
                NodeOutput::Event(event) => self.on_node_event(event),
            }
        }
    }

    /// Counts and logs an event of a RAN node.
    fn on_node_event(&self, event: NodeEvent) {
        let step_metrics = &self.statistics.step_metrics;
        let metrics = &step_metrics.metrics;
        let succeeded = |procedure| {
            metrics.procedures.started(procedure);
            metrics.procedures.succeeded(procedure, Duration::default());
        };
        match event {
            NodeEvent::Fault { peer, label, offered } => {
                step_metrics.fault(label, clock(), peer);
                if let Some(offered) = offered {
                    tracing::warn!(%peer, reason = label, offered, "RAN node refused");
                }
                if label.starts_with("ng-setup") || label.starts_with("s1-setup") {
                    metrics.procedures.failed(Procedure::NgSetup, Failure::Cause(0));
                }
            }
            NodeEvent::SetUp { assoc, peer, name, id } => {
                succeeded(Procedure::NgSetup);
                match assoc.dialect() {
                    Dialect::Nr => tracing::info!(assoc = assoc.0, %peer, name, gnb = ?id, "NG is set up"),
                    Dialect::Eps => tracing::info!(assoc = assoc.0, %peer, name, enb = ?id, "S1 is set up"),
                }
            }
            NodeEvent::SetupRefused { assoc, peer, id, reason } => {
                metrics.n2_refused(reason);
                metrics.procedures.failed(Procedure::NgSetup, Failure::Cause(0));
                tracing::warn!(%peer, assoc = assoc.0, gnb = ?id, reason = reason.label(), "NG Setup refused");
            }
            NodeEvent::SetupDeferred { assoc, peer, id } => {
                tracing::warn!(
                    %peer, assoc = assoc.0, gnb = ?id,
                    "NG Setup waits: another association has this identity"
                );
            }
            NodeEvent::Bound { assoc, name } => {
                tracing::info!(assoc = assoc.0, name, "further association bound to a RAN node");
            }
            NodeEvent::BindingRefused { assoc, peer, id, reason } => {
                metrics.n2_refused(reason);
                tracing::warn!(
                    %peer, assoc = assoc.0, gnb = ?id, reason = reason.label(),
                    "further association refused"
                );
            }
            NodeEvent::Reset => succeeded(Procedure::NgReset),
            NodeEvent::Updated { assoc, peer, failed } => {
                tracing::info!(assoc = assoc.0, %peer, failed, "further addresses acknowledged by a RAN node");
            }
            NodeEvent::UnsolicitedUpdate { peer } => {
                step_metrics.fault("unsolicited-acknowledgement", clock(), peer);
            }
            NodeEvent::Replaced { .. }
            | NodeEvent::Silent { .. }
            | NodeEvent::Unreachable { .. }
            | NodeEvent::LostUnbound { .. }
            | NodeEvent::LostOne { .. }
            | NodeEvent::LostNode { .. } => log_lost_association(event),
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
        while let Some((assoc, mut ues)) = self.events.disconnected.pop() {
            // Messages in transit between an NF and a UPF return to a queue too.
            let queued = self.workers.pools.iter().map(|nf| nf.queue.len()).max().unwrap_or(0);
            let waiting = queued + self.egress.len() + self.waiting_inputs();
            let calm = MAX_FILL * f64::from(self.ues.region.config().ring_cells);
            if self.has_backlog() || waiting as f64 > calm {
                return self.events.disconnected.push((assoc, ues));
            }
            for slot in ues.split_off(ues.len().saturating_sub(MAX_NOTIFIED)) {
                // A UE that was removed meanwhile needs no notification.
                if self.ues.region.ltmsi_of(slot).is_some() {
                    self.connection_lost(slot, assoc);
                }
            }
            if !ues.is_empty() {
                self.events.disconnected.push((assoc, ues));
            }
        }
    }

    pub(super) fn connection_lost(&mut self, slot: Slot, assoc: AssocId) {
        self.deliver(slot, &Event::ConnectionLost { assoc }.into(), NfKind::StateManagement);
    }

    /// Applies the change of a UE's connections by a step.
    pub(super) fn on_connections_changed(&mut self, slot: Slot, before: Option<Summary>, after: Option<Summary>) {
        self.update_connection_tables(slot, before, after);
        for assoc in after.map(|s| s.associations()).unwrap_or_default().into_iter().flatten() {
            // The association was lost during the step.
            if self.nodes.get(assoc).is_none() {
                self.connection_lost(slot, assoc);
            }
        }
    }

    /// Updates the tables after a change of a UE's connections.
    pub(super) fn update_connection_tables(&mut self, slot: Slot, before: Option<Summary>, after: Option<Summary>) {
        let associations = |s: Option<Summary>| s.map(|s| s.associations()).unwrap_or_default();
        self.admission.half_open.on_commit(&self.nodes, slot, before, after);
        self.nodes.update_connections(slot, associations(before), associations(after));
        let prepared = |s: Option<Summary>| s.and_then(|s| s.target.zip(s.target_id));
        self.nodes.set_prepared(slot, prepared(before), prepared(after));
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
    /// it is still up. `paths` has the associations that were selected when the message was
    /// created; they have priority.
    pub(super) fn send_about(
        &mut self,
        (slot, ue): (Option<Slot>, Ltmsi),
        (node, paths): (AssocId, EffectAssociations),
        key: u64,
        pdu: Vec<u8>,
    ) {
        // A RAN node that is gone has released its UEs.
        if let Some(assoc) = self.nodes.effect_association(paths, node, slot) {
            self.egress.send(RanOutput::Ngap { assoc, ue: Some(ue), key, pdu });
        }
    }

    /// Publishes the list of reachable RAN nodes to the workers, if it has changed.
    pub(super) fn post_nodes(&mut self) {
        let (region, nodes) = (&self.ues.region, &self.nodes);
        let reachable = nodes.iter().filter(|(assoc, _)| nodes.is_reachable(*assoc));
        let reachable = reachable.map(|(assoc, node)| (assoc, &node.record));
        let room = region.config().published_value_bytes as usize;
        let (octets, omitted) = match self.workers.nodes.encode(reachable, &self.config, room) {
            Ok(encoded) => encoded,
            Err(error) => return tracing::error!(%error, "bug: list of RAN nodes does not encode"),
        };
        if omitted > 0 {
            tracing::error!(omitted, "too many RAN nodes for paging; workers do not have all");
        }
        // Workers decode each new version.
        let mut present = Vec::new();
        if region.read_published(region_layout::BULLETIN_RAN, &mut present) != 0 && present == octets {
            return;
        }
        if let Err(error) = region.publish(region_layout::BULLETIN_RAN, &octets) {
            tracing::error!(%error, "bug: list of RAN nodes is not published");
        }
    }

    /// Returns the UEs of the connections that a partial NG Reset names by either UE NGAP ID, each
    /// once.
    ///
    /// A message has room for tens of thousands of items, so that an item must not read all UEs of
    /// the RAN node, and no UE is read twice.
    fn connections_of(&self, node: AssocId, items: &[ResetItem]) -> Vec<Slot> {
        let mut read: FxHashMap<Slot, NodeConnections> = FxHashMap::default();
        let mut named: Vec<Slot> = Vec::new();
        for item in items {
            let Some(slot) = self.slot_of_item(node, *item) else { continue };
            let connections = read.entry(slot).or_insert_with(|| self.connections(slot, node));
            if !connections.is_named && connections.have(*item) {
                connections.is_named = true;
                named.push(slot);
            }
        }
        named
    }

    fn slot_of_item(&self, node: AssocId, item: ResetItem) -> Option<Slot> {
        match item {
            ResetItem { amf_id: Some(id), .. } => self.ues.region.slot_of(id.ltmsi()),
            ResetItem { ran_id: Some(id), .. } => {
                let serving = self.ues.region.lookup(Key::Ran, ran_key(node, id));
                serving.or_else(|| self.nodes.prepared(node, id))
            }
            ResetItem { .. } => None,
        }
    }

    /// Reads the connections of a UE by a RAN node.
    fn connections(&self, slot: Slot, node: AssocId) -> NodeConnections {
        let mut record = Snapshot::default();
        self.ues.region.read(slot, &mut record);
        let Ok(ue) = context::decode(&record.context) else { return NodeConnections::default() };
        let serving = ue.connection.filter(|c| c.assoc == node).map(|c| (c.amf_id, Some(c.ran_id)));
        let target = ue.handover.as_ref().and_then(|h| h.target()).filter(|m| m.assoc == node);
        NodeConnections { ids: [serving, target.map(|m| (m.amf_id, m.ran_id))], is_named: false }
    }
}

/// Connections of a UE by one RAN node.
#[derive(Clone, Copy, Debug, Default)]
struct NodeConnections {
    /// UE NGAP IDs of the connection in use, and of that which a handover prepares.
    ids: [Option<(AmfUeNgapId, Option<RanUeNgapId>)>; 2],
    /// True if an item has named one of them.
    is_named: bool,
}

impl NodeConnections {
    /// Returns true if one of the connections has these UE NGAP IDs.
    fn have(&self, item: ResetItem) -> bool {
        self.ids.iter().flatten().any(|(amf_id, ran_id)| {
            item.amf_id.is_none_or(|id| id == *amf_id) && item.ran_id.is_none_or(|id| Some(id) == *ran_id)
        })
    }
}

/// Logs the loss of an association.
fn log_lost_association(event: NodeEvent) {
    match event {
        NodeEvent::Replaced { assoc, peer } => tracing::warn!(
            assoc = assoc.0,
            %peer,
            "association ended: its RAN node has set up NG or S1 on another one"
        ),
        NodeEvent::Silent { assoc, peer } => tracing::warn!(
            %peer,
            assoc = assoc.0,
            "association ended: its RAN node is silent and has set up at another address"
        ),
        NodeEvent::LostUnbound { assoc, restarted } => {
            tracing::info!(assoc = assoc.0, restarted, "association lost that no RAN node uses");
        }
        NodeEvent::LostOne { assoc, restarted, remaining } => {
            tracing::warn!(assoc = assoc.0, restarted, remaining, "RAN node lost an association and has others")
        }
        NodeEvent::Unreachable { assoc, name } => tracing::warn!(
            assoc = assoc.0,
            name,
            "RAN node unreachable: the balancer of its only association is not connected"
        ),
        NodeEvent::LostNode { assoc, restarted, name } => {
            tracing::info!(assoc = assoc.0, restarted, name, "RAN node lost");
        }
        _ => {}
    }
}
