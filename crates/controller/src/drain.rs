//! Orders of other threads: hosts to drain or cordon, and hosts whose process has ended.

use super::View;
use crossbeam_channel::Sender;
use vireo_core::placement::balance::HostId;
use vireo_ops::api::DrainError;
use vireo_sctp::Waker;

/// Order of another thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// The operator drains the host.
    Drain(HostId),
    /// The operator cordons the host, or ends its cordon.
    Cordon { host: HostId, is_cordoned: bool },
    /// The process of the host has ended.
    Ended(HostId),
}

/// Handle of other threads that drains and cordons hosts.
#[derive(Clone, Debug)]
pub struct DrainHandle {
    pub(super) view: View,
    pub(super) orders: Sender<Order>,
    pub(super) waker: Waker,
}

impl DrainHandle {
    /// Requests that a host of the cluster map leaves.
    ///
    /// # Errors
    ///
    /// Returns an error if the map lacks the host, or too many requests wait.
    pub fn drain(&self, host: u16) -> Result<(), DrainError> {
        self.order(host, Order::Drain(HostId(host)))
    }

    /// Requests that a host of the cluster map gets no other buckets and no new UEs, or again does.
    ///
    /// # Errors
    ///
    /// Returns an error if the map lacks the host, or too many requests wait.
    pub fn cordon(&self, host: u16, is_cordoned: bool) -> Result<(), DrainError> {
        self.order(host, Order::Cordon { host: HostId(host), is_cordoned })
    }

    fn order(&self, host: u16, order: Order) -> Result<(), DrainError> {
        // Never poisoned: the code under the lock does not panic.
        let has = self.view.lock().is_ok_and(|view| view.map.as_ref().is_some_and(|map| map.has_host(HostId(host))));
        if !has || self.orders.try_send(order).is_err() {
            return Err(DrainError::NoHost);
        }
        self.waker.wake();
        Ok(())
    }

    /// Reports that the process of a host has ended. Waits while too many orders are queued.
    pub fn on_host_ended(&self, host: u16) {
        // The controller ends only with its process, or for another process that learns the hosts
        // itself.
        if self.orders.send(Order::Ended(HostId(host))).is_ok() {
            self.waker.wake();
        }
    }
}
