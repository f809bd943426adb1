//! Hot restart: a balancer passes its sockets and state to a successor process.
//!
//! RAN nodes, UPFs, hosts and the controller observe a pause of about ten milliseconds.
//!
//! ```text
//! successor                             predecessor
//!  | -- TakeOver (format) --------------> |  unix socket of the same user
//!  | <- State, sockets, snapshot -------- |  stops processing
//!  | -- Ready --------------------------> |  successor is able to serve
//!  | <- Commit -------------------------- |  ends its balancer role
//!  | -- Serving ------------------------> |  exits
//! ```
//!
//! Both processes share the sockets (SCM_RIGHTS). The predecessor changes nothing while it waits.
//! If the successor dies, or is silent for [`STEP_TIMEOUT`], the predecessor continues as before.
//! The successor does not act before `Commit`. If it is silent after `Commit`, the predecessor
//! kills it first, so that two processes never serve at the same time.

mod channel;
mod error;
mod listener;
pub mod protocol;

pub use channel::HotRestartChannel;
pub use error::HotRestartError;
pub use listener::HotRestartListener;

use crate::balancer::{Association, Balancer, HOT_RESTART_TOKEN, Hosts, StopHandle};
use crate::fleet::{Fleet, FleetConfig, FleetSnapshot, FleetView};
use channel::encoded;
use protocol::{AssociationSnapshot, BalancerSnapshot, FORMAT, PredecessorMessage, STEP_TIMEOUT, SuccessorMessage};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vireo_cluster::{ClusterConfig, ProgressCounter, ResidentController};
use vireo_core::config::CoreConfig;
use vireo_core::placement::cluster::DurableState;
use vireo_fabric::Security;
use vireo_n4 as n4;
use vireo_ops::clock;
use vireo_ops::config::{N2Config, SliceRuntime};
use vireo_ops::metrics::Metrics;
use vireo_sctp::{AssociationTable, Endpoint, EndpointSnapshot};
use vireo_types::AssocId;

impl Balancer {
    /// Accepts hot restarts through a listener.
    pub fn accept_hot_restarts(&mut self, hot_restart: HotRestartListener) -> io::Result<()> {
        self.endpoint.watch(hot_restart.fd(), HOT_RESTART_TOKEN)?;
        self.hot_restart = Some(hot_restart);
        Ok(())
    }

    /// Serves a pending hot-restart request. Returns true if the successor has taken over.
    pub(super) fn hand_over_if_requested(&mut self) -> bool {
        let Some(mut channel) = self.hot_restart.as_ref().and_then(HotRestartListener::next) else { return false };
        let Hosts::Fabric(fleet) = &self.hosts else { return false };
        let (progress, began) = (fleet.progress(), clock::clock());
        // Only one of the two controllers may decide at a time.
        let controller = self.hot_restart.as_ref().and_then(HotRestartListener::controller);
        let record = controller.and_then(|controller| fleet.record(controller.detach()));
        match self.hand_over(&mut channel, record.clone(), &progress) {
            Ok(()) => {
                let paused_us = clock::clock().since(began).as_micros();
                tracing::info!(
                    associations = self.associations.len(),
                    paused_us,
                    "hot restart complete; the successor serves"
                );
                true
            }
            Err(error) => {
                tracing::warn!(%error, "hot restart failed; this balancer continues");
                if let Some(Err(error)) = controller.map(|controller| controller.begin(record)) {
                    tracing::error!(%error, "embedded controller does not continue after the failed hot restart");
                }
                channel.set_deadline(STEP_TIMEOUT, &progress);
                // Send the reason to a successor that is still alive.
                let _ = channel.send(&PredecessorMessage::Refused(error.to_string()));
                false
            }
        }
    }

    fn hand_over(
        &self,
        channel: &mut HotRestartChannel,
        controller: Option<DurableState>,
        progress: &ProgressCounter,
    ) -> Result<(), HotRestartError> {
        let (pid, _) = channel.peer()?;
        // Opened before the first message: after the process ends, its PID may be reused.
        let process = pidfd_open(pid, PidfdFlags::empty()).ok();
        let (Some(hot_restart), Hosts::Fabric(fleet)) = (&self.hot_restart, &self.hosts) else {
            return Err(HotRestartError::NoPath);
        };
        let EndpointSnapshot { socket, known, s1 } = self.endpoint.snapshot()?;
        let (listener, api) = hot_restart.sockets();
        let (fleet_snapshot, fleet_sockets) = fleet.snapshot().ok_or(HotRestartError::Tls)?;
        let embedded = hot_restart.controller().filter(|_| controller.is_some()).map(ResidentController::listener);
        let snapshot =
            self.snapshot((known, s1.as_ref().map(|s1| s1.known.clone())), api.is_some(), controller, fleet_snapshot);
        let snapshot = encoded(&snapshot).map_err(|error| HotRestartError::Large(error.to_string()))?;
        let mut sockets = vec![listener, socket.as_fd(), self.n4.as_fd()];
        sockets.extend(s1.iter().map(|s1| s1.socket.as_fd()));
        sockets.extend(api);
        sockets.extend(embedded);
        sockets.extend(fleet_sockets);
        channel.set_deadline(STEP_TIMEOUT, progress);
        channel.send(&PredecessorMessage::State { sockets: sockets.len() as u32 })?;
        channel.send_sockets(&sockets)?;
        channel.send_encoded(&snapshot)?;
        match channel.receive()? {
            SuccessorMessage::Ready => {}
            _ => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
        channel.send(&PredecessorMessage::Commit)?;
        channel.set_deadline(STEP_TIMEOUT, progress);
        match channel.receive() {
            Ok(SuccessorMessage::Serving) => Ok(()),
            // The successor is dead; this process still has all the state.
            Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error.into()),
            silence => match process.filter(|_| pid != getpid()).map(|process| kill_process(pid, &process)) {
                Some(Ok(())) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
                // The successor has received `Commit` and will serve once it runs again.
                _ => {
                    tracing::warn!(?silence, "successor silent and not killed; it has the sockets");
                    Ok(())
                }
            },
        }
    }

    fn snapshot(
        &self,
        (sctp, s1): (AssociationTable, Option<AssociationTable>),
        api: bool,
        controller: Option<DurableState>,
        fleet: FleetSnapshot,
    ) -> BalancerSnapshot {
        let associations = self.associations.iter().map(|(assoc, association)| AssociationSnapshot {
            assoc: *assoc,
            streams: association.streams,
            unsent: association.unsent.iter().cloned().collect(),
        });
        BalancerSnapshot {
            clock: clock::offset(),
            sctp,
            s1,
            first: self.assoc_ids.first(),
            associations: associations.collect(),
            n4: self.n4.snapshot(),
            api,
            controller,
            fleet,
        }
    }

    /// Ends without messages to peers, because the successor has all the state.
    pub(super) fn detach(mut self) {
        if let Some(hot_restart) = &mut self.hot_restart {
            hot_restart.release_ownership();
        }
        self.endpoint.detach();
        self.replaced.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Kills a process and waits for its end.
fn kill_process(pid: Pid, process: &OwnedFd) -> io::Result<()> {
    tracing::warn!(?pid, "successor silent; killing it");
    pidfd_send_signal(process, Signal::KILL)?;
    let wait = rustix::event::Timespec { tv_sec: STEP_TIMEOUT.as_secs() as _, tv_nsec: 0 };
    match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&wait))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Snapshot and sockets that a successor has received, before it serves.
#[derive(Debug)]
pub struct ReceivedState {
    channel: HotRestartChannel,
    path: PathBuf,
    listener: UnixListener,
    n4: UdpSocket,
    api: Option<TcpListener>,
    controller: Option<TcpListener>,
    sctp: Option<EndpointSnapshot>,
    snapshot: BalancerSnapshot,
    /// Sockets of the fleet.
    sockets: std::vec::IntoIter<OwnedFd>,
}

/// Configuration of a successor, with the SCTP endpoint over the received socket.
pub struct SuccessorConfig<'a> {
    pub endpoint: Box<dyn Endpoint>,
    pub n4: n4::Config,
    pub core: &'a CoreConfig,
    pub slices: &'a [SliceRuntime],
    pub cluster: &'a ClusterConfig,
    pub security: &'a Security,
    pub n2: &'a N2Config,
}

impl std::fmt::Debug for SuccessorConfig<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SuccessorConfig").field("driver", &self.endpoint.driver()).finish_non_exhaustive()
    }
}

impl ReceivedState {
    /// Requests a hot restart from the balancer at a path. That balancer stops processing until
    /// this process is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if no balancer listens there, or it refuses.
    pub fn request(path: &Path) -> Result<Self, HotRestartError> {
        let socket =
            UnixStream::connect(path).map_err(|error| HotRestartError::NoBalancer { path: path.to_owned(), error })?;
        let mut channel = HotRestartChannel::new(socket, STEP_TIMEOUT, ProgressCounter::default())?;
        if !channel.peer()?.1 {
            return Err(HotRestartError::Refused("it is another user's process".into()));
        }
        channel.send(&SuccessorMessage::TakeOver { format: FORMAT })?;
        let sockets = match channel.receive()? {
            PredecessorMessage::State { sockets } => sockets as usize,
            PredecessorMessage::Refused(reason) => return Err(HotRestartError::Refused(reason)),
            PredecessorMessage::Commit => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        };
        let mut sockets = channel.receive_sockets(sockets)?.into_iter();
        let snapshot: BalancerSnapshot = channel.receive()?;
        // Must precede the first use of the clock in this process.
        clock::adopt(snapshot.clock);
        let mut next = || sockets.next().ok_or(io::Error::from(io::ErrorKind::UnexpectedEof));
        let (listener, socket, n4) = (UnixListener::from(next()?), next()?, UdpSocket::from(next()?));
        let s1_socket = snapshot.s1.is_some().then(&mut next).transpose()?;
        let api = snapshot.api.then(&mut next).transpose()?.map(TcpListener::from);
        let controller = snapshot.controller.is_some().then(&mut next).transpose()?.map(TcpListener::from);
        let s1 =
            s1_socket.zip(snapshot.s1.clone()).map(|(socket, known)| Box::new(EndpointSnapshot::new(socket, known)));
        let sctp = Some(EndpointSnapshot { s1, ..EndpointSnapshot::new(socket, snapshot.sctp.clone()) });
        Ok(ReceivedState { channel, path: path.to_owned(), listener, n4, api, controller, sctp, snapshot, sockets })
    }

    /// Returns the recovery time stamp of the cluster's N4.
    pub fn recovery(&self) -> u32 {
        self.snapshot.fleet.recovery()
    }

    /// Takes the state of the SCTP endpoints. A second call fails.
    pub fn sctp(&mut self) -> Result<EndpointSnapshot, HotRestartError> {
        Ok(self.sctp.take().ok_or(vireo_sctp::HandoffError::InProcess)?)
    }

    /// Takes the API's listener, if there was one.
    pub fn api(&mut self) -> Option<TcpListener> {
        self.api.take()
    }

    /// Takes listener and state of the embedded controller, if there was one.
    pub fn controller(&mut self) -> Option<(TcpListener, DurableState)> {
        self.controller.take().zip(self.snapshot.controller.take())
    }

    /// Restores the balancer, which does nothing before [`ResumableBalancer::serve`].
    ///
    /// # Errors
    ///
    /// Returns an error if a system call fails or the fleet cannot be restored.
    pub fn resume(
        self,
        by: SuccessorConfig<'_>,
        metrics: Arc<Metrics>,
    ) -> Result<(ResumableBalancer, StopHandle), ResumeError> {
        let ReceivedState { channel, path, listener, n4, snapshot, mut sockets, .. } = self;
        let n4 = n4::Endpoint::resume(n4, by.n4, snapshot.n4)?;
        let config = FleetConfig {
            cluster: by.cluster,
            security: by.security,
            endpoints: &by.n2.addresses,
            core: by.core,
            slices: by.slices,
        };
        let mut fleet = Fleet::resume(snapshot.fleet, &mut sockets, config, Arc::clone(&metrics))?;
        let view = fleet.view();
        if by.cluster.controllers.is_empty() {
            fleet.set_only_balancer();
        }
        let (mut balancer, stopper) = Balancer::from_predecessor(by.endpoint, n4, fleet, snapshot.first, metrics)?;
        balancer.associations = snapshot.associations.into_iter().map(Association::resumed).collect();
        balancer.resume_admission(by.n2);
        Ok((ResumableBalancer { channel, path, listener, view, balancer }, stopper))
    }
}

/// Reasons why a balancer cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Link(#[from] vireo_cluster::LinkError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Association {
    fn resumed(snapshot: AssociationSnapshot) -> (AssocId, Self) {
        (snapshot.assoc, Association::with_unsent(snapshot.streams, snapshot.unsent.into()))
    }
}

/// A restored balancer that does not serve yet.
#[derive(Debug)]
pub struct ResumableBalancer {
    channel: HotRestartChannel,
    path: PathBuf,
    listener: UnixListener,
    view: FleetView,
    balancer: Balancer,
}

impl ResumableBalancer {
    /// Returns the fleet status that is shared with other threads.
    pub fn view(&self) -> FleetView {
        self.view.clone()
    }

    /// Completes the hot restart and starts to serve. The new balancer also accepts hot restarts.
    ///
    /// # Errors
    ///
    /// Returns an error if the predecessor has exited or has resumed service itself.
    pub fn serve(
        self,
        api: Option<OwnedFd>,
        controller: Option<(Arc<dyn ResidentController>, DurableState)>,
    ) -> Result<Balancer, HotRestartError> {
        let ResumableBalancer { mut channel, path, listener, mut balancer, .. } = self;
        let progress = ProgressCounter::default();
        let (embedded, record) = controller.unzip();
        let hot_restart = HotRestartListener::on(listener, &path, (api, embedded.clone()))?;
        balancer.accept_hot_restarts(hot_restart)?;
        channel.set_deadline(STEP_TIMEOUT, &progress);
        let reply = channel.send(&SuccessorMessage::Ready).and_then(|()| channel.receive());
        let reply = match reply {
            // The embedded controller must start first. If it fails, this process ends, and the
            // predecessor continues.
            Ok(PredecessorMessage::Commit) => {
                embedded.map_or(Ok(()), |embedded| embedded.begin(record)).map_err(HotRestartError::from).map(|()| {
                    if let Err(error) = channel.send(&SuccessorMessage::Serving) {
                        // The predecessor resumes only if this process is dead. So the failed send
                        // means that the predecessor has died.
                        tracing::warn!(%error, "predecessor ended early");
                    }
                })
            }
            Ok(PredecessorMessage::Refused(reason)) => Err(HotRestartError::Refused(reason)),
            Ok(PredecessorMessage::State { .. }) => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
            Err(error) => Err(error.into()),
        };
        match reply {
            Ok(()) => {
                balancer.hot_restart.iter_mut().for_each(HotRestartListener::take_ownership);
                Ok(balancer)
            }
            Err(error) => {
                // The predecessor still has all the state.
                balancer.detach();
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_successor_is_killed() {
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
        let pid = Pid::from_child(&process);
        let by = pidfd_open(pid, PidfdFlags::empty()).expect("it is there");
        kill_process(pid, &by).expect("it is ours");
        assert!(!process.wait().expect("it has ended").success());
    }
}
