//! Mobility of UEs between the nodes of their worker.

use super::slot::flag;
use super::worker::Worker;
use crate::dialect::Establishment;
use crate::ran::{ConnectionId, SendError};
use crate::scenario::Step;
use crate::ue::Registration;
use vireo_types::RanUeNgapId;

impl Worker<'_> {
    /// Returns the next node of the UE's dialect. With both dialects they alternate.
    fn next_link(&self, owner: u32) -> usize {
        let dialects = self.options.rats.list().len();
        (usize::from(self.slots[owner as usize].link) + dialects) % self.links.len()
    }

    /// Lets an idle UE camp on the next node.
    pub(super) fn roam(&mut self, owner: u32) {
        self.slots[owner as usize].link = self.next_link(owner) as u16;
    }

    /// Lets an idle UE camp on the node of the other technology beside its own, and begins the
    /// registration there.
    pub(super) fn change_rat(&mut self, owner: u32) {
        let options = self.options;
        let slot = &mut self.slots[owner as usize];
        let listed = slot.tmsi.take().map(|tmsi| (slot.ue.rat(), tmsi.0));
        // gNBs and eNBs alternate.
        slot.link ^= 1;
        let moved = slot.ue.change_rat(options);
        listed.and_then(|listed| self.listed.remove(&listed));
        if !moved {
            return self.fail(owner, "the UE has nothing with which it could move".into());
        }
        let slot = &mut self.slots[owner as usize];
        let commanded = slot.ue.register(options, Registration::Mobility, &mut self.out);
        self.commanded(owner, commanded, Establishment::Signalling);
    }

    /// Hands the UE over to the next node by Xn or X2. The emulator exchanges no XnAP or X2AP
    /// messages.
    pub(super) fn xn_handover(&mut self, owner: u32) {
        if let Err(error) = self.try_xn_handover(owner) {
            self.fail(owner, error.to_string());
        }
    }

    fn try_xn_handover(&mut self, owner: u32) -> Result<(), SendError> {
        let next = self.next_link(owner);
        let slot = &mut self.slots[owner as usize];
        let ran = slot.ran.ok_or(SendError::NoConnection)?;
        let capability = (self.options.profile.ciphering, self.options.profile.integrity);
        let ue = self.links[usize::from(slot.link)].node.hand_over(ran, capability)?;
        let target = &mut self.links[next];
        slot.link = next as u16;
        slot.ran = Some(target.node.path_switch(ue, &mut target.outbox)?);
        Ok(())
    }

    /// Starts an N2 or S1 handover of the UE to the next node.
    /// The target refuses it if `refused`.
    pub(super) fn n2_handover(&mut self, owner: u32, refused: bool) {
        if let Err(error) = self.try_n2_handover(owner, refused) {
            self.fail(owner, error.to_string());
        }
    }

    fn try_n2_handover(&mut self, owner: u32, refused: bool) -> Result<(), SendError> {
        let next = self.next_link(owner);
        let slot = &self.slots[owner as usize];
        let source = usize::from(slot.link);
        let ran = slot.ran.ok_or(SendError::NoConnection)?;
        let mut outbox = std::mem::take(&mut self.links[source].outbox);
        let required = self.links[source].node.require_handover(ran, &self.links[next].node, refused, &mut outbox);
        self.links[source].outbox = outbox;
        required
    }

    /// Handles a prepared target: the UE stays if the source cancels, or has left meanwhile.
    pub(super) fn on_handover_prepared(
        &mut self,
        owner: u32,
        source: ConnectionId,
        target: (usize, ConnectionId),
    ) -> bool {
        let slot = self.slots.get(owner as usize);
        let is_here = slot.is_some_and(|slot| slot.ran == Some(source));
        if is_here && self.step(owner) != Some(Step::CancelledHandover) {
            return true;
        }
        self.links[target.0].node.drop_prepared(target.1);
        if is_here {
            let link = &mut self.links[usize::from(self.slots[owner as usize].link)];
            if let Err(error) = link.node.cancel_handover(source, &mut link.outbox) {
                self.fail(owner, error.to_string());
            }
        }
        false
    }

    /// Ends a handover that its target refused or its source cancelled.
    pub(super) fn on_handover_ended(&mut self, owner: u32, by: Step) {
        if self.step(owner) != Some(by) {
            return self.fail(owner, "the core refused the handover".into());
        }
        self.slots[owner as usize].flags |= flag::MOVED;
        self.settle(owner);
    }

    /// Detaches the UE from its source node and directs it to the prepared target.
    pub(super) fn on_handover_command(&mut self, owner: u32, target: RanUeNgapId) {
        // The command may cross the cancellation.
        if self.step(owner) == Some(Step::CancelledHandover) {
            return;
        }
        let next = self.next_link(owner);
        let slot = &mut self.slots[owner as usize];
        (slot.link, slot.ran) = (next as u16, Some(target));
    }

    /// Attaches the UE to the target node when the target has the status of the UE's bearers. A
    /// real UE takes longer than that. The source's status transfer must still find its
    /// connection, and the two nodes have no common message order.
    pub(super) fn on_status_transfer(&mut self, owner: u32) {
        let slot = &self.slots[owner as usize];
        let link = &mut self.links[usize::from(slot.link)];
        let notified = slot.ran.ok_or(SendError::NoConnection);
        if let Err(error) = notified.and_then(|ran| link.node.notify(ran, &mut link.outbox)) {
            self.fail(owner, error.to_string());
        }
    }

    /// Returns true if the UE is at another node than `link`.
    pub(super) fn is_on_other_gnb(&self, owner: u32, link: usize) -> bool {
        self.slots.get(owner as usize).is_some_and(|slot| usize::from(slot.link) != link)
    }

    /// Completes the handover after the release of the source connection.
    pub(super) fn on_source_released(&mut self, owner: u32) {
        self.slots[owner as usize].flags |= flag::MOVED;
        self.settle(owner);
    }
}
