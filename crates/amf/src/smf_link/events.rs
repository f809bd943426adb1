//! Queue of the host for events of the SBI.

use vireo_core::sba::SmfEvent;

/// Queue of the host for events of the SBI.
pub(crate) trait SmfEventQueue: std::fmt::Debug + Send + Sync {
    /// Enqueues an event and wakes the host; blocks while the queue is full. A host that has exited
    /// receives nothing.
    fn send(&self, event: SmfEvent);

    /// Enqueues an event and wakes the host. Returns false if the queue is full or the host has
    /// exited.
    fn try_send(&self, event: SmfEvent) -> bool;
}
