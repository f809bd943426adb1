//! Changes that a RAN node starts while a UE is connected.

use super::slot::flag;
use super::worker::Worker;
use crate::ran::SendError;
use crate::scenario::Step;

impl Worker<'_> {
    /// Starts a step in which the node of the UE acts.
    pub(super) fn change(&mut self, owner: u32, step: Step) {
        let next = self.next_link(owner);
        let slot = &self.slots[owner as usize];
        let source = usize::from(slot.link);
        let mut outbox = std::mem::take(&mut self.links[source].outbox);
        let sent = match (step, slot.ran) {
            (Step::TransferConfiguration, _) => {
                self.links[source].node.request_addresses(&self.links[next].node, &mut outbox)
            }
            (Step::SecondaryNode, Some(ran)) => self.links[source].node.indicate_modification(ran, &mut outbox),
            (Step::ReportCapability, Some(ran)) => self.links[source].node.report_capability(ran, &mut outbox),
            (Step::DropSession { psi }, Some(ran)) => match slot.ue.tunnel_identity(psi) {
                Some(identity) => self.links[source].node.drop_session(ran, identity, &mut outbox),
                None => Err(SendError::NoConnection),
            },
            _ => Err(SendError::NoConnection),
        };
        self.links[source].outbox = outbox;
        if let Err(error) = sent {
            self.fail(owner, error.to_string());
        }
    }

    /// Handles the core's confirmation of another tunnel end.
    pub(super) fn on_modification_confirmed(&mut self, owner: u32, failed: usize) {
        if failed > 0 || self.step(owner) != Some(Step::SecondaryNode) {
            return self.fail(owner, format!("the core has not modified {failed} sessions"));
        }
        self.slots[owner as usize].flags |= flag::MOVED;
        self.settle(owner);
    }

    /// Stores what the core has done for a UE since its script went on.
    pub(super) fn set_flag(&mut self, owner: u32, flag: u32) {
        self.slots[owner as usize].flags |= flag;
        self.settle(owner);
    }

    /// Handles the answer of another node to a configuration transfer of this one.
    pub(super) fn on_configuration(&mut self, link: usize) {
        for owner in 0..self.slots.len() as u32 {
            let is_here = usize::from(self.slots[owner as usize].link) == link;
            if is_here && self.step(owner) == Some(Step::TransferConfiguration) {
                self.slots[owner as usize].flags |= flag::MOVED;
                self.settle(owner);
            }
        }
    }
}
