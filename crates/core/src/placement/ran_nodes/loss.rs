//! Loss of associations, RAN nodes and balancers.

use super::output::{NodeEvent, NodeOutput};
use super::table::{AssociationLoss, RanNodeTable, RemovedNode};
use crate::amf::ran;
use crate::placement::replica::SlotKey;
use std::net::{IpAddr, SocketAddr};
use vireo_types::{AssocId, Dialect};

impl<U: SlotKey> RanNodeTable<U> {
    /// Handles the loss of an association, or its restart by the peer. If its RAN node has no
    /// other, the node's UEs become idle.
    pub fn on_association_lost(&mut self, assoc: AssocId, restarted: bool) -> Vec<NodeOutput<U>> {
        let mut out = Vec::new();
        self.lose_association(assoc, restarted, &mut out);
        out
    }

    pub(super) fn lose_association(&mut self, assoc: AssocId, restarted: bool, out: &mut Vec<NodeOutput<U>>) {
        match self.remove_association(assoc, restarted) {
            AssociationLoss::Nothing => out.push(NodeOutput::Event(NodeEvent::LostUnbound { assoc, restarted })),
            AssociationLoss::Fewer(remaining) => {
                out.push(NodeOutput::Event(NodeEvent::LostOne { assoc, restarted, remaining }));
            }
            AssociationLoss::Last(RemovedNode { node, name, ues, .. }) => {
                out.push(NodeOutput::Event(NodeEvent::LostNode { assoc, restarted, name }));
                // After a restart the next messages of the same association may concern the UEs.
                out.push(NodeOutput::Disconnect { node, ues, at_once: restarted });
                out.push(NodeOutput::Changed);
            }
        }
    }

    /// Adds an association. If an unreachable one had this number, that one is lost.
    pub fn on_association_up(&mut self, assoc: AssocId, peer: SocketAddr) -> Vec<NodeOutput<U>> {
        let mut out = Vec::new();
        if self.is_unreachable(assoc) {
            self.lose_association(assoc, true, &mut out);
        }
        self.insert_association(assoc, peer);
        out
    }

    /// Handles the end of the connection to a balancer with its associations, which are at these
    /// AMF addresses. RAN nodes continue on their associations to other balancers.
    ///
    /// The balancer may be alive: then this host will be declared dead, and the copies of its UEs
    /// must not be idle. So a RAN node without another association keeps its UEs until the
    /// association is known to be lost ([`RanNodeTable::on_associations_lost`]), or until the node
    /// sets up another one.
    ///
    /// RAN nodes with other associations receive an AMF Configuration Update if this host sends
    /// those (`answers`): by themselves they may consider the balancer alive for seconds.
    /// [`RanNodeTable::alternative_to`] then names the associations for messages that the balancer
    /// may not have sent.
    pub fn on_balancer_unreachable(
        &mut self,
        associations: impl IntoIterator<Item = AssocId>,
        endpoints: &[IpAddr],
        answers: bool,
    ) -> Vec<NodeOutput<U>> {
        let (mut out, mut nodes) = (Vec::new(), Vec::new());
        for assoc in associations {
            nodes.extend(self.remember_node(assoc));
            match self.set_unreachable(assoc).map(str::to_owned) {
                Some(name) => {
                    out.push(NodeOutput::Event(NodeEvent::Unreachable { assoc, name }));
                    out.push(NodeOutput::Changed);
                }
                None => self.lose_association(assoc, false, &mut out),
            }
        }
        if answers && !endpoints.is_empty() {
            nodes.sort_unstable();
            nodes.dedup();
            nodes.retain(|node| self.is_reachable(*node));
            self.update_nodes(&nodes, &ran::remove_associations(endpoints), &mut out);
        }
        out
    }

    /// Handles that associations of an unreachable balancer are lost: the UEs of their RAN nodes
    /// become idle.
    pub fn on_associations_lost(&mut self, associations: impl IntoIterator<Item = AssocId>) -> Vec<NodeOutput<U>> {
        let mut out = Vec::new();
        for assoc in associations {
            // A RAN node with another association has lost this one before.
            if self.is_unreachable(assoc) {
                self.lose_association(assoc, false, &mut out);
            }
        }
        out
    }

    /// Handles that a balancer with these AMF addresses is new or has recovered: all RAN nodes are
    /// requested to set up an association with it.
    pub fn on_balancer_up(&mut self, endpoints: &[IpAddr]) -> Vec<NodeOutput<U>> {
        let mut nodes: Vec<AssocId> = self.iter().map(|(node, _)| node).collect();
        nodes.sort_unstable();
        let mut out = Vec::new();
        self.update_nodes(&nodes, &ran::add_associations(endpoints), &mut out);
        out
    }

    /// Sends an AMF Configuration Update to RAN nodes that are no eNBs.
    fn update_nodes(&mut self, nodes: &[AssocId], pdu: &[u8], out: &mut Vec<NodeOutput<U>>) {
        for node in nodes.iter().filter(|node| node.dialect() == Dialect::Nr) {
            if let Some(assoc) = self.association_to(*node, None) {
                self.send_update(assoc, pdu.to_vec(), out);
            }
        }
    }
}
