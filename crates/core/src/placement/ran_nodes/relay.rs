//! Messages that one RAN node sends to another one by way of the AMF.

use super::output::{NodeEvent, NodeOutput};
use super::table::RanNodeTable;
use crate::placement::message::RanOutput;
use crate::placement::replica::SlotKey;
use vireo_types::{AssocId, Instant, RanNodeId};

impl<U: SlotKey> RanNodeTable<U> {
    /// Sends a message of one RAN node to another one.
    pub(super) fn relay(
        &mut self,
        from: AssocId,
        (target, pdu): (RanNodeId, Vec<u8>),
        (answers, now): (bool, Instant),
        out: &mut Vec<NodeOutput<U>>,
    ) {
        let node = self.find(target);
        let label = match node.and_then(|node| Some((node, self.association_to(node, None)?))) {
            Some(_) if !answers => return,
            Some((node, assoc)) => {
                if self.relay_budget(node).is_some_and(|budget| budget.spend(pdu.len(), now)) {
                    return out.push(NodeOutput::Send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu }));
                }
                "limit"
            }
            None => "configuration-transfer-to-unknown-node",
        };
        out.push(NodeOutput::Event(NodeEvent::Fault { peer: self.peer(from), label, offered: None }));
    }
}
