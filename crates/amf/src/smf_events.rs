//! Delivery of SBI events to the host's input queue.

use crate::smf_link::SmfEventQueue;
use vireo_cluster::{HostSender, Input};
use vireo_core::sba::SmfEvent;

impl SmfEventQueue for HostSender {
    fn send(&self, event: SmfEvent) {
        // The send fails only when the host has exited.
        let _ = HostSender::send(self, Input::Smf(event));
    }

    fn try_send(&self, event: SmfEvent) -> bool {
        let is_queued = self.try_put(Input::Smf(event)).is_ok();
        if is_queued {
            self.wake();
        }
        is_queued
    }
}
