//! Mobility of UEs between the gNBs of their worker.

use super::slot::flag;
use super::worker::Worker;
use crate::gnb::SendError;
use vireo_types::RanUeNgapId;

impl Worker<'_> {
    /// Returns the next node of the UE's dialect. With both dialects they alternate.
    fn next_link(&self, owner: u32) -> usize {
        let dialects = self.options.rats.list().len();
        (usize::from(self.slots[owner as usize].link) + dialects) % self.links.len()
    }

    /// Lets an idle UE camp on the next gNB.
    pub(super) fn roam(&mut self, owner: u32) {
        self.slots[owner as usize].link = self.next_link(owner) as u16;
    }

    /// Hands the UE over to the next gNB by Xn. The emulator exchanges no XnAP messages.
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
        let source = self.links[usize::from(slot.link)].node.gnb()?;
        let ue = source.hand_over(ran, capability)?;
        // Until the path switch the AMF may still address the UE at the source.
        source.drop_prepared(ran);
        source.forget(ran);
        let target = &mut self.links[next];
        slot.link = next as u16;
        slot.ran = Some(target.node.gnb()?.path_switch(ue, |_| true, &mut target.outbox)?);
        Ok(())
    }

    /// Starts an N2 handover of the UE to the next gNB.
    pub(super) fn n2_handover(&mut self, owner: u32) {
        if let Err(error) = self.try_n2_handover(owner) {
            self.fail(owner, error.to_string());
        }
    }

    fn try_n2_handover(&mut self, owner: u32) -> Result<(), SendError> {
        let next = self.next_link(owner);
        let target = self.links[next].node.gnb()?.config();
        let (id, area) = (target.id, target.tai);
        let slot = &self.slots[owner as usize];
        let link = &mut self.links[usize::from(slot.link)];
        let ran = slot.ran.ok_or(SendError::NoConnection)?;
        link.node.gnb()?.require_handover(ran, id, area, &mut link.outbox)
    }

    /// Detaches the UE from its source gNB and directs it to the prepared target.
    pub(super) fn on_handover_command(&mut self, owner: u32, target: RanUeNgapId) {
        let next = self.next_link(owner);
        let slot = &mut self.slots[owner as usize];
        (slot.link, slot.ran) = (next as u16, Some(target));
    }

    /// Attaches the UE to the target gNB when the target has the status of the UE's bearers. A real
    /// UE takes longer than that. The source's UPLINK RAN STATUS TRANSFER must still find its
    /// connection, and the two gNBs have no common message order.
    pub(super) fn on_status_transfer(&mut self, owner: u32) {
        let slot = &self.slots[owner as usize];
        let link = &mut self.links[usize::from(slot.link)];
        let notified = slot.ran.ok_or(SendError::NoConnection);
        if let Err(error) = notified.and_then(|ran| link.node.gnb()?.notify(ran, &mut link.outbox)) {
            self.fail(owner, error.to_string());
        }
    }

    /// Returns true if the UE is at another gNB than `link`.
    pub(super) fn is_on_other_gnb(&self, owner: u32, link: usize) -> bool {
        self.slots.get(owner as usize).is_some_and(|slot| usize::from(slot.link) != link)
    }

    /// Completes the handover after the release of the source connection.
    pub(super) fn on_source_released(&mut self, owner: u32) {
        self.slots[owner as usize].flags |= flag::MOVED;
        self.settle(owner);
    }
}
