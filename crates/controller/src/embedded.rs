//! Controller in the process of the only balancer.
//!
//! It starts and ends with the balancer, and continues in the process that replaces it. Meanwhile
//! its members try to reconnect at its listening address, and then report the state that it needs.

use super::{ControllerHandle, ControllerView, View};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vireo_cluster::{ClusterConfig, ResidentController};
use vireo_core::placement::cluster::{ClusterMap, DurableState};
use vireo_fabric::Security;
use vireo_ops::api::DrainError;
use vireo_ops::config::SliceRuntime;
use vireo_ops::metrics::Metrics;

/// Controller in the only balancer's process, running or not.
#[derive(Debug)]
pub struct EmbeddedController {
    listener: TcpListener,
    config: ClusterConfig,
    security: Security,
    slices: Vec<SliceRuntime>,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<ControllerHandle>,
    /// True if the last start failed.
    failed: bool,
}

impl EmbeddedController {
    /// Creates a controller that is idle until [`EmbeddedController::begin`].
    pub fn new(
        listener: TcpListener,
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        metrics: Arc<Metrics>,
    ) -> Self {
        let (config, security, slices) = (config.clone(), security.clone(), slices.to_vec());
        EmbeddedController { listener, config, security, slices, metrics, state: Mutex::default() }
    }

    /// Ends the controller and the cluster.
    pub fn stop(&self) {
        if let Some(mut running) = self.state().running.take() {
            running.stop();
        }
    }

    /// Returns true if the controller has ended by itself.
    pub fn has_failed(&self) -> bool {
        let state = self.state();
        state.failed || state.running.as_ref().is_some_and(ControllerHandle::has_failed)
    }

    /// Requests that a host leaves.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such host or controller, or if too many requests wait.
    pub fn drain(&self, host: u16) -> Result<(), DrainError> {
        let drainer = self.state().running.as_ref().map(ControllerHandle::drainer);
        drainer.ok_or(DrainError::NoController)?.drain(host)
    }

    /// Requests that a host gets no other buckets and no new UEs, or again does.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such host or controller, or if too many requests wait.
    pub fn cordon(&self, host: u16, is_cordoned: bool) -> Result<(), DrainError> {
        let drainer = self.state().running.as_ref().map(ControllerHandle::drainer);
        drainer.ok_or(DrainError::NoController)?.cordon(host, is_cordoned)
    }

    /// Reports that the process of a host has ended, as its parent knows.
    pub fn on_host_ended(&self, host: u16) {
        let handle = self.state().running.as_ref().map(ControllerHandle::drainer);
        if let Some(handle) = handle {
            handle.on_host_ended(host);
        }
    }

    /// Returns the address at which members find the controller.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system does not know it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the state of the controller.
    pub fn view(&self) -> ControllerView {
        let Some(view) = self.state().running.as_ref().map(ControllerHandle::view) else {
            return ControllerView::default();
        };
        view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResidentController for EmbeddedController {
    fn begin(&self, record: Option<DurableState>) -> io::Result<()> {
        let listener = self.listener.try_clone();
        let config = (&self.config, &self.security);
        let running = listener.and_then(|listener| match record {
            None => ControllerHandle::start(listener, config, &self.slices, true, &self.metrics),
            Some(record) => ControllerHandle::resume(listener, config, &self.slices, record, &self.metrics),
        });
        let mut state = self.state();
        state.failed = running.is_err();
        state.running = Some(running?);
        Ok(())
    }

    fn detach(&self) -> Option<ClusterMap> {
        let mut running = self.state().running.take()?;
        running.detach();
        map(&running.view())
    }

    fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn map(view: &View) -> Option<ClusterMap> {
    let view = view.lock().unwrap_or_else(PoisonError::into_inner);
    view.map.as_deref().cloned()
}
