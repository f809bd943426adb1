//! Delivery of SBI events to the host's input queue.

use crate::smf_link::{SmfEvent, SmfEventQueue};
use vireo_cluster::{HostSender, Input};

impl SmfEventQueue for HostSender {
    fn send(&self, event: SmfEvent) {
        // The send fails only when the host has exited.
        let _ = HostSender::send(self, event.into());
    }

    fn try_send(&self, event: SmfEvent) -> bool {
        let is_queued = self.try_put(event.into()).is_ok();
        if is_queued {
            self.wake();
        }
        is_queued
    }
}

impl From<SmfEvent> for Input {
    fn from(event: SmfEvent) -> Self {
        match event {
            SmfEvent::Response { ltmsi, key, number, request, response, sm_context, input } => {
                Input::Smf { ltmsi, key, number, request, answer: response, sm_context, input }
            }
            SmfEvent::Transfer { supi, key, transfer, input } => Input::Transfer { supi, key, transfer, input },
            SmfEvent::Released { supi, number, token } => Input::SmContextReleased { supi, number, token },
        }
    }
}
