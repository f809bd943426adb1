//! Handover of connected UEs between 4G and 5G (TS 23.502 4.11.1.2).
//!
//! A RAN node requires the handover to one of the other system. The UE moves with the command, and
//! registers there. Some targets refuse, some sources cancel, and some UEs lose the radio link when
//! the command has arrived.

use super::associations::dialect_of;
use super::dialect::{PreparedTarget, target_released};
use super::handover_outcome::{HandoverOutcome, Move};
use super::{GNBS, NODES, Phone, Ran, UeWait, keys};
use crate::campaign::network::Network;
use crate::campaign::oracle::Violation;
use rand::Rng;
use vireo_emulator::Rats;
use vireo_emulator::gnb::Outbox;
use vireo_emulator::ue::{self, Registration, UeOutput};
use vireo_emulator::usim::Usim;
use vireo_types::RanUeNgapId;

impl Ran {
    /// Returns true if UEs move between the systems. With two balancers they do not: an eNB is then
    /// another RAN node for each MME.
    pub(super) fn has_moves(&self, network: &Network) -> bool {
        network.rats == Rats::Both && !network.has_several_balancers
    }

    /// Starts a handover to a RAN node of the other system.
    pub(super) fn system_handover(&mut self, network: &mut Network, n: usize, ran: RanUeNgapId) {
        let at = self.devices[n].at;
        let to = (at / GNBS * GNBS + GNBS + network.random.random_range(0..GNBS)) % NODES;
        let outcome = match network.random.random_range(0..20) {
            0 | 1 => HandoverOutcome::TargetRefuses,
            2 | 3 => HandoverOutcome::SourceCancels,
            4 => HandoverOutcome::RadioLinkLost,
            _ => HandoverOutcome::Arrives,
        };
        let mut out = Outbox::default();
        let is_refused = outcome == HandoverOutcome::TargetRefuses;
        let is_required = self.nodes[to].is_up()
            && self.nodes[at].require_system_handover(ran, &self.nodes[to], is_refused, &mut out);
        if !is_required {
            return self.on_ue_timeout(network, n);
        }
        self.devices[n].wait = Some(UeWait::Moved);
        self.devices[n].moving = Some(Move { to, outcome, prepared: None });
        self.send(network, at, &out);
    }

    /// Handles a prepared target. A UE that has left its source meanwhile does not arrive.
    pub(super) fn on_prepared(&mut self, network: &mut Network, n: usize, node: usize, prepared: PreparedTarget) {
        let device = &mut self.devices[n];
        let is_here = device.wait == Some(UeWait::Moved) && device.ran == Some(prepared.source);
        let moving = device.moving.as_mut().filter(|moving| is_here && moving.to == node && moving.prepared.is_none());
        let Some(moving) = moving else { return self.nodes[node].drop_connection(prepared.target) };
        moving.prepared = Some(prepared);
        if moving.outcome == HandoverOutcome::SourceCancels {
            let (at, mut out) = (device.at, Outbox::default());
            self.nodes[node].drop_connection(prepared.target);
            self.nodes[at].cancel_handover(prepared.source, &mut out);
            self.send(network, at, &out);
        }
    }

    /// Handles the command to the source: the UE arrives at its target, and registers there.
    pub(super) fn on_command(&mut self, network: &mut Network, n: usize, target: RanUeNgapId, nas: &[u8]) {
        let device = &mut self.devices[n];
        let is_own = |moving: &mut Move| moving.prepared.is_some_and(|prepared| prepared.target == target);
        let Some(Move { to, outcome, prepared: Some(prepared) }) = device.moving.take_if(is_own) else { return };
        if outcome == HandoverOutcome::SourceCancels {
            // The command crosses the cancellation.
            device.moving = Some(Move { to, outcome, prepared: Some(prepared) });
            return;
        }
        // A target that has reset its connections meanwhile does not serve the UE, which returns to
        // the source (TS 36.331 5.4.3.5, TS 38.331 5.4.3.5).
        let is_prepared = self.nodes[to].owner(target) == Some(n as u32);
        if outcome == HandoverOutcome::RadioLinkLost || !is_prepared {
            self.nodes[to].drop_connection(target);
            return self.on_ue_timeout(network, n);
        }
        let spare = Phone::new(device.ue.dialect(), Usim::new(device.ue.supi(), keys()));
        if !device.ue.apply_handover_command(nas, spare) {
            return network.oracle.record_violation(Violation::Ue(n, ue::Violation::AccessKey));
        }
        let from = std::mem::replace(&mut device.at, to);
        device.ran = Some(target);
        device.source = self.links[from].iter().map(|link| link.assoc).collect();
        device.is_arriving = true;
        self.moves += 1;
        self.nodes[from].drop_connection(prepared.source);
        let mut out = Outbox::default();
        self.nodes[to].notify(target, &mut out);
        self.send(network, to, &out);
        let mut out = UeOutput::default();
        self.devices[n].ue.check_mapped_key(&prepared.key, prepared.chaining, &mut out);
        self.send_ue_messages(network, n, out);
        self.register_after_move(network, n);
    }

    /// Registers a UE in the system to which it was handed over.
    pub(super) fn register_after_move(&mut self, network: &mut Network, n: usize) {
        self.start(network, n, UeWait::Registered, |ue, p, out| ue.register(p, Registration::Mobility, out).is_ok());
    }

    /// Returns true if a command releases the target of a handover whose identifier the core does
    /// not know yet. The target's refusal or reset crosses it.
    pub(super) fn is_release_crossed(&self, node: usize, pdu: &[u8]) -> bool {
        target_released(dialect_of(node), pdu).is_some_and(|id| self.requested.contains(&(node, id)))
    }

    /// Forgets the target of a handover that has ended at its source.
    pub(super) fn end_move(&mut self, n: usize) {
        if let Some(Move { to, prepared: Some(prepared), .. }) = self.devices[n].moving.take() {
            self.nodes[to].drop_connection(prepared.target);
        }
    }
}
