//! The controller beside a cluster's only balancer: it begins with it, ends with it, and goes on with whoever takes its place. Its
//! members look for it meanwhile, where it listens all the time, and tell it what it has to know.

use super::{ControllerHandle, View};
use crate::api::DrainError;
use crate::cluster::ClusterConfig;
use crate::config::SliceRuntime;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vireo_core::cluster::{ClusterMap, DurableState};
use vireo_fabric::Security;

/// It.
#[derive(Debug)]
pub(crate) struct EmbeddedController {
    listener: TcpListener,
    config: ClusterConfig,
    security: Security,
    slices: Vec<SliceRuntime>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<ControllerHandle>,
    /// It did not begin again.
    failed: bool,
}

impl EmbeddedController {
    /// One that does nothing before [`EmbeddedController::begin`].
    pub(crate) fn new(
        listener: TcpListener,
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
    ) -> Self {
        let (config, security, slices) = (config.clone(), security.clone(), slices.to_vec());
        EmbeddedController { listener, config, security, slices, state: Mutex::default() }
    }

    /// Begins, or goes on from what is known of a cluster.
    ///
    /// # Errors
    ///
    /// When the system refuses something.
    pub(crate) fn begin(&self, record: Option<DurableState>) -> io::Result<()> {
        let listener = self.listener.try_clone();
        let config = (&self.config, &self.security);
        let running = listener.and_then(|listener| match record {
            None => ControllerHandle::start(listener, config, &self.slices, true),
            Some(record) => ControllerHandle::resume(listener, config, &self.slices, record),
        });
        let mut state = self.state();
        state.failed = running.is_err();
        state.running = Some(running?);
        Ok(())
    }

    /// Ends without a word to its members, which go on looking for it; the map that held.
    pub(crate) fn leave(&self) -> Option<ClusterMap> {
        let mut running = self.state().running.take()?;
        running.leave();
        map(&running.view())
    }

    /// Ends, and the cluster with it.
    pub(crate) fn stop(&self) {
        if let Some(mut running) = self.state().running.take() {
            running.stop();
        }
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_failed(&self) -> bool {
        let state = self.state();
        state.failed || state.running.as_ref().is_some_and(ControllerHandle::has_failed)
    }

    /// Has a host leave.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be asked now.
    pub(crate) fn drain(&self, host: u16) -> Result<(), DrainError> {
        let drainer = self.state().running.as_ref().map(ControllerHandle::drainer);
        drainer.ok_or(DrainError::NoController)?.drain(host)
    }

    /// What it listens by.
    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn map(view: &View) -> Option<ClusterMap> {
    let map = view.lock().unwrap_or_else(PoisonError::into_inner);
    map.as_deref().cloned()
}
