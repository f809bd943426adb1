//! Events of SMFs and of the operator for the UE of a subscriber.

use super::state::Host;
use crate::worker::event_message::EventMessage;
use crossbeam_channel::Sender;
use vireo_core::amf::engine::Event;
use vireo_core::sba::{N1N2Transfer, N1N2TransferResult, SessionNumber, SmfEvent};
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::Key;
use vireo_types::Supi;

impl Host {
    /// Processes an event of an SMF.
    pub(super) fn on_smf_event(&mut self, event: SmfEvent) {
        match event {
            SmfEvent::Response { ltmsi, key, number, request, response, sm_context, input } => {
                self.current.input = input;
                let sm_context = sm_context.map(|sm_context| *sm_context);
                let event = Event::Smf { number, request: *request, response, sm_context };
                self.deliver_to(ltmsi, &EventMessage::Event { key, event }, NfKind::Session);
            }
            SmfEvent::Transfer { supi, key, transfer, input } => {
                self.current.input = input;
                self.transfer(supi, key, *transfer);
            }
            SmfEvent::Released { supi, number, token } => self.report_release(supi, number, token),
        }
    }

    /// Delivers an N1N2 transfer of an SMF to its UE. Reports to the SMF if the UE is unknown.
    fn transfer(&mut self, supi: Supi, key: u64, transfer: N1N2Transfer) {
        match self.ues.region.lookup(Key::Supi, supi.as_u64()) {
            Some(slot) => {
                let event = Event::Transfer(transfer);
                self.deliver(slot, &EventMessage::Event { key, event }, NfKind::Session);
            }
            None => {
                self.answer_transfer(transfer.token, N1N2TransferResult::Unknown, None);
                self.acknowledge_input();
            }
        }
    }

    /// Reports the release of an SM context to its UE, and to the SMF whether the UE is known.
    fn report_release(&mut self, supi: Supi, number: SessionNumber, token: u64) {
        let slot = self.ues.region.lookup(Key::Supi, supi.as_u64());
        slot.into_iter()
            .for_each(|slot| self.deliver(slot, &Event::SmContextReleased { number }.into(), NfKind::Session));
        if let Some(smf) = &self.smf {
            smf.answer_notification(token, slot.is_some());
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
