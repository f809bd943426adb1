//! What comes for a subscriber's UE from elsewhere than its RAN node: from an SMF, and from the operator.

use super::Host;
use crate::worker::event_message::EventMessage;
use crossbeam_channel::Sender;
use vireo_core::sba::{N1N2Transfer, N1N2TransferResult, SessionNumber};
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::Key;
use vireo_types::Supi;

impl Host {
    /// Hands what an SMF has to the UE that it is for; the SMF is told if there is none.
    pub(super) fn transfer(&mut self, supi: Supi, key: u64, transfer: Box<N1N2Transfer>) {
        match self.region.lookup(Key::Supi, supi.as_u64()) {
            Some(slot) => self.deliver(slot, &EventMessage::Transfer { key, transfer }, NfKind::Session),
            None => {
                self.transferred(transfer.token, N1N2TransferResult::Unknown, None);
                self.done();
            }
        }
    }

    /// Tells a UE that an SMF has a session of it no more; the SMF is told if there is none.
    pub(super) fn released(&mut self, supi: Supi, number: SessionNumber, token: u64) {
        let slot = self.region.lookup(Key::Supi, supi.as_u64());
        slot.into_iter()
            .for_each(|slot| self.deliver(slot, &EventMessage::SmContextReleased { number }, NfKind::Session));
        if let Some(smf) = &self.smf {
            smf.notified(token, slot.is_some());
        }
    }

    /// Hands the operator's order to a subscriber's UE, and says whether there is one.
    pub(super) fn order(&mut self, supi: Supi, order: &EventMessage<'_>, kind: NfKind, reply: &Sender<bool>) {
        let slot = self.region.lookup(Key::Supi, supi.as_u64());
        let _ = reply.try_send(slot.is_some());
        if let Some(slot) = slot {
            self.deliver(slot, order, kind);
        }
    }
}
