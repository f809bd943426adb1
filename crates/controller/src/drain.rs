//! Draining of hosts on request of another thread.

use super::View;
use crossbeam_channel::Sender;
use vireo_core::placement::balance::HostId;
use vireo_ops::api::DrainError;
use vireo_sctp::Waker;

/// Handle of other threads that drains hosts.
#[derive(Clone, Debug)]
pub struct DrainHandle {
    pub(super) view: View,
    pub(super) drains: Sender<HostId>,
    pub(super) waker: Waker,
}

impl DrainHandle {
    /// Requests that a host of the cluster map leaves.
    ///
    /// # Errors
    ///
    /// Returns an error if the map lacks the host, or too many requests wait.
    pub fn drain(&self, host: u16) -> Result<(), DrainError> {
        // Never poisoned: the code under the lock does not panic.
        let has = self.view.lock().is_ok_and(|view| view.map.as_ref().is_some_and(|map| map.has_host(HostId(host))));
        if !has || self.drains.try_send(HostId(host)).is_err() {
            return Err(DrainError::NoHost);
        }
        self.waker.wake();
        Ok(())
    }
}
