//! Events of SMFs and of the operator for the UE of a subscriber.

use super::state::Host;
use crate::worker::event_message::EventMessage;
use crossbeam_channel::Sender;
use vireo_core::sba::{N1N2Transfer, N1N2TransferResult, SessionNumber};
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::Key;
use vireo_types::Supi;

impl Host {
    /// Delivers an N1N2 transfer of an SMF to its UE. Reports to the SMF if the UE is unknown.
    pub(super) fn transfer(&mut self, supi: Supi, key: u64, transfer: Box<N1N2Transfer>) {
        match self.ues.region.lookup(Key::Supi, supi.as_u64()) {
            Some(slot) => self.deliver(slot, &EventMessage::Transfer { key, transfer }, NfKind::Session),
            None => {
                self.transferred(transfer.token, N1N2TransferResult::Unknown, None);
                self.done();
            }
        }
    }

    /// Reports the release of an SM context to its UE, and to the SMF whether the UE is known.
    pub(super) fn released(&mut self, supi: Supi, number: SessionNumber, token: u64) {
        let slot = self.ues.region.lookup(Key::Supi, supi.as_u64());
        slot.into_iter()
            .for_each(|slot| self.deliver(slot, &EventMessage::SmContextReleased { number }, NfKind::Session));
        if let Some(smf) = &self.smf {
            smf.notified(token, slot.is_some());
        }
    }

    /// Delivers an operator command to a subscriber's UE. Replies whether the UE is known.
    pub(super) fn order(&mut self, supi: Supi, order: &EventMessage<'_>, kind: NfKind, reply: &Sender<bool>) {
        let slot = self.ues.region.lookup(Key::Supi, supi.as_u64());
        let _ = reply.try_send(slot.is_some());
        if let Some(slot) = slot {
            self.deliver(slot, order, kind);
        }
    }
}
