//! Mobility of UEs between the nodes of their worker.

use super::slot::{PreparedTarget, flag};
use super::worker::Worker;
use crate::dialect::{Establishment, TargetBehaviour};
use crate::ran::{ConnectionId, ForwardingEnd, SendError, Tunnel, forwarding_teid};
use crate::scenario::Step;
use crate::ue::Registration;
use std::fmt::Debug;
use vireo_types::RanUeNgapId;

impl Worker<'_> {
    /// Returns the next node of the UE's dialect. With both dialects they alternate.
    pub(super) fn next_link(&self, owner: u32) -> usize {
        let dialects = self.options.rats.list().len();
        (usize::from(self.slots[owner as usize].link) + dialects) % self.links.len()
    }

    /// Returns the node of the other technology beside the UE's own: gNBs and eNBs alternate.
    fn other_rat_link(&self, owner: u32) -> usize {
        usize::from(self.slots[owner as usize].link) ^ 1
    }

    /// Lets an idle UE camp on the next node.
    pub(super) fn roam(&mut self, owner: u32) {
        self.slots[owner as usize].link = self.next_link(owner) as u16;
    }

    /// Lets an idle UE camp on the node of the other technology beside its own, and begins the
    /// registration there.
    pub(super) fn change_rat(&mut self, owner: u32) {
        let (options, next) = (self.options, self.other_rat_link(owner));
        self.unlist(owner);
        let slot = &mut self.slots[owner as usize];
        slot.link = next as u16;
        if !slot.ue.change_rat(options) {
            return self.fail(owner, "the UE has nothing with which it could move".into());
        }
        let slot = &mut self.slots[owner as usize];
        let commanded = slot.ue.register(options, Registration::Mobility, &mut self.out);
        self.on_command_sent(owner, commanded, Establishment::Signalling);
    }

    /// Removes the UE from those that are paged: it gets another identity.
    fn unlist(&mut self, owner: u32) {
        let slot = &mut self.slots[owner as usize];
        let listed = slot.tmsi.take().map(|tmsi| (slot.ue.rat(), tmsi.0));
        listed.and_then(|listed| self.listed.remove(&listed));
    }

    /// Hands the UE over to the next node by Xn or X2. The emulator exchanges no XnAP or X2AP
    /// messages.
    pub(super) fn xn_handover(&mut self, owner: u32) {
        if let Err(error) = self.try_xn_handover(owner) {
            self.fail(owner, error.to_string());
        }
    }

    fn try_xn_handover(&mut self, owner: u32) -> Result<(), SendError> {
        let (next, has_chaos) = (self.next_link(owner), self.has_chaos());
        let slot = &mut self.slots[owner as usize];
        let ran = slot.ran.ok_or(SendError::NoConnection)?;
        let capability = (self.options.profile.ciphering, self.options.profile.integrity);
        if has_chaos {
            // PATH SWITCH REQUEST may be lost with the target, and the core then releases the UE
            // here.
            self.links[usize::from(slot.link)].node.abandon_silently(ran);
        }
        let mut ue = self.links[usize::from(slot.link)].node.take_handover_context(ran, capability)?;
        if self.options.profile.interworks {
            ue.eutra_capability = capability;
        }
        let before = ue.tunnels.clone();
        let target = &mut self.links[next];
        let ran = target.node.path_switch(ue, &mut target.outbox)?;
        let after = target.node.tunnels(ran);
        let end = |tunnel: &Tunnel| {
            let there = after.iter().find(|there| there.psi == tunnel.psi)?;
            Some(ForwardingEnd { tunnel: *tunnel, to: target.node.n3(), teid: forwarding_teid(there.downlink) })
        };
        let forwarding: Vec<_> = before.iter().filter_map(end).collect();
        self.forward(owner, &forwarding);
        let slot = &mut self.slots[owner as usize];
        (slot.link, slot.ran) = (next as u16, Some(ran));
        self.await_forwarded(owner, &forwarding);
        Ok(())
    }

    /// Starts an N2 or S1 handover of the UE to the next node.
    pub(super) fn n2_handover(&mut self, owner: u32, behaviour: TargetBehaviour) {
        let next = self.next_link(owner);
        self.require_handover(owner, next, behaviour);
    }

    /// Starts a handover of the UE to the node of the other technology beside its own.
    pub(super) fn system_handover(&mut self, owner: u32, behaviour: TargetBehaviour) {
        let next = self.other_rat_link(owner);
        self.require_handover(owner, next, behaviour);
    }

    fn require_handover(&mut self, owner: u32, next: usize, behaviour: TargetBehaviour) {
        let slot = &self.slots[owner as usize];
        let source = usize::from(slot.link);
        let mut outbox = std::mem::take(&mut self.links[source].outbox);
        let required = slot.ran.ok_or(SendError::NoConnection).and_then(|ran| {
            self.links[source].node.require_handover(ran, &self.links[next].node, behaviour, &mut outbox)
        });
        self.links[source].outbox = outbox;
        if let Err(error) = required {
            self.fail(owner, error.to_string());
        }
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
        let cancels = matches!(self.step(owner), Some(Step::CancelledHandover | Step::CancelledSystemHandover));
        if is_here && !cancels {
            return true;
        }
        self.links[target.0].node.abandon_silently(target.1);
        if is_here {
            let link = &mut self.links[usize::from(self.slots[owner as usize].link)];
            if let Err(error) = link.node.cancel_handover(source, &mut link.outbox) {
                self.fail(owner, error.to_string());
            }
        }
        false
    }

    /// Stores the key of a target in the other system: the UE has its own with the command.
    pub(super) fn on_system_target(&mut self, owner: u32, key: [u8; 32], chaining: u8) {
        self.slots[owner as usize].moving.prepared = Some(Box::new(PreparedTarget { key, chaining }));
    }

    /// Ends a handover that its source cancelled.
    pub(super) fn on_handover_cancelled(&mut self, owner: u32) {
        if !matches!(self.step(owner), Some(Step::CancelledHandover | Step::CancelledSystemHandover)) {
            return self.fail(owner, "the core cancelled the handover".into());
        }
        self.end_handover(owner);
    }

    /// Ends a handover that was refused, if its cause is that of the target or of an unknown
    /// target.
    pub(super) fn on_handover_refused(&mut self, owner: u32, cause: &impl Debug) {
        const REFUSED: &str = "no_radio_resources_available_in_target_cell";
        const UNKNOWN: &str = "unknown_targetID";
        let cause = format!("{cause:?}");
        let expected = match self.step(owner) {
            Some(Step::RefusedHandover | Step::RefusedSystemHandover) => Some(REFUSED),
            Some(Step::UnknownSystemTarget) => Some(UNKNOWN),
            _ => None,
        };
        if expected.is_none_or(|expected| !cause.contains(expected)) {
            return self.fail(owner, format!("the core refused the handover: {cause}"));
        }
        self.end_handover(owner);
    }

    fn end_handover(&mut self, owner: u32) {
        let slot = &mut self.slots[owner as usize];
        slot.moving.prepared = None;
        slot.flags |= flag::MOVED;
        self.settle(owner);
    }

    /// Detaches the UE from its source node and directs it to the prepared target. In the other
    /// system it arrives at once, because its bearers have no status there.
    pub(super) fn on_handover_command(
        &mut self,
        owner: u32,
        (target, forwarding): (RanUeNgapId, &[ForwardingEnd]),
        nas: &[u8],
    ) {
        // The command may cross the cancellation.
        if matches!(self.step(owner), Some(Step::CancelledHandover | Step::CancelledSystemHandover)) {
            return;
        }
        self.forward(owner, forwarding);
        if let Some(prepared) = self.slots[owner as usize].moving.prepared.take() {
            self.change_system(owner, target, nas, &prepared);
        } else {
            let next = self.next_link(owner);
            let slot = &mut self.slots[owner as usize];
            (slot.link, slot.ran) = (next as u16, Some(target));
        }
        self.await_forwarded(owner, forwarding);
    }

    /// Attaches the UE to its target in the other system, and registers it there.
    fn change_system(&mut self, owner: u32, target: RanUeNgapId, nas: &[u8], prepared: &PreparedTarget) {
        let (options, next) = (self.options, self.other_rat_link(owner));
        self.unlist(owner);
        let slot = &mut self.slots[owner as usize];
        if !slot.ue.apply_handover_command(nas) {
            return self.fail(owner, "the NAS container of the handover is not acceptable".into());
        }
        (slot.link, slot.ran) = (next as u16, Some(target));
        let link = &mut self.links[next];
        if let Err(error) = link.node.notify(target, &mut link.outbox) {
            return self.fail(owner, error.to_string());
        }
        self.out.clear();
        slot.ue.check_mapped_key(&prepared.key, prepared.chaining, &mut self.out);
        let commanded = slot.ue.register(options, Registration::Mobility, &mut self.out);
        self.on_command_sent(owner, commanded, Establishment::Signalling);
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
