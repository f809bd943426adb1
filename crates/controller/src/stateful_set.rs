//! Executor of scaling decisions on Kubernetes: the number of pods of a StatefulSet.
//!
//! The StatefulSet restarts pods that end, so the executor sets their number and starts none. It
//! raises the number to that of the controller, and lowers it by one pod at a time while more hosts
//! have joined than the controller needs and no bucket migrates. Pods that have not joined are no
//! reason to lower it: a controller that has lost its hosts must not end them.

use super::kubernetes::{KubernetesError, ScaleClient};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io;
use std::time::{Duration, Instant};
use vireo_cluster::StatefulSetConfig;

/// Interval at which the number of pods is compared, also after a failure.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Delay after a conflict with another client.
const CONFLICT_DELAY: Duration = Duration::from_millis(200);
/// Conflicts after which the next attempt waits for [`CHECK_INTERVAL`].
const CONFLICTS: u32 = 5;
/// Time for a pod to end before the number is lowered once more: longer than the grace period of
/// the chart, 30 s.
const POD_END_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which an error that persists is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(300);

/// Number of hosts that a cluster needs, and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostCounts {
    /// Hosts that the controller needs, with idle ones.
    pub(super) needed: usize,
    /// Hosts that have joined beyond those; 0 while buckets migrate.
    pub(super) surplus: usize,
}

/// Scales a StatefulSet, on a thread that ends with this handle.
#[derive(Debug)]
pub(super) struct StatefulSetScaler {
    counts: Sender<HostCounts>,
    last: Option<HostCounts>,
}

impl StatefulSetScaler {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is incomplete outside of a pod, or the operating
    /// system refuses a thread.
    pub(super) fn start(config: &StatefulSetConfig) -> io::Result<Self> {
        let client = ScaleClient::new(config).map_err(io::Error::other)?;
        // The thread reads the newest counts only.
        let (counts, receiver) = bounded(1);
        std::thread::Builder::new().name("stateful-set".into()).spawn(move || run(client, &receiver))?;
        Ok(StatefulSetScaler { counts, last: None })
    }

    /// Brings the number of pods to that of the hosts.
    pub(super) fn scale(&mut self, counts: HostCounts) {
        // With a full queue the next heartbeat tries again.
        if self.last != Some(counts) && self.counts.try_send(counts).is_ok() {
            self.last = Some(counts);
        }
    }
}

fn run(client: ScaleClient, receiver: &Receiver<HostCounts>) {
    let mut reconciler = Reconciler::new(client);
    let (mut counts, mut wait) = (None, CHECK_INTERVAL);
    loop {
        match receiver.recv_timeout(wait) {
            Ok(newest) => counts = Some(newest),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(counts) = counts {
            wait = reconciler.reconcile(counts, Instant::now());
        }
    }
}

/// Compares the number of pods with the counts of the controller.
#[derive(Debug)]
struct Reconciler {
    client: ScaleClient,
    /// Surplus at which the number was lowered, and the time of it.
    lowered: Option<(usize, Instant)>,
    /// Conflicts since the last success.
    conflicts: u32,
    /// Logged error, and the time of it.
    logged: Option<(String, Instant)>,
}

impl Reconciler {
    fn new(client: ScaleClient) -> Self {
        Reconciler { client, lowered: None, conflicts: 0, logged: None }
    }

    /// Reads the number of pods and changes it if necessary. Returns the time until the next check.
    fn reconcile(&mut self, counts: HostCounts, now: Instant) -> Duration {
        match self.apply(counts, now) {
            Ok(()) => {
                if self.logged.take().is_some() {
                    tracing::info!(stateful_set = self.client.object(), "API server answers again");
                }
                self.conflicts = 0;
            }
            Err(KubernetesError::Conflict { .. }) if self.conflicts < CONFLICTS => {
                self.conflicts += 1;
                return CONFLICT_DELAY;
            }
            Err(error) => {
                self.conflicts = 0;
                self.log(&error, now);
            }
        }
        CHECK_INTERVAL
    }

    fn apply(&mut self, counts: HostCounts, now: Instant) -> Result<(), KubernetesError> {
        let scale = self.client.scale()?;
        let is_ending = scale.pods > scale.replicas;
        let may_lower = !is_ending && self.may_lower(counts.surplus, now);
        let replicas = match scale.replicas {
            few if few < counts.needed => counts.needed,
            many if many > counts.needed && may_lower => many - 1,
            _ => return Ok(()),
        };
        self.client.set_replicas(&scale, replicas)?;
        self.lowered = (replicas < scale.replicas).then_some((counts.surplus, now));
        tracing::info!(
            stateful_set = self.client.object(),
            before = scale.replicas,
            replicas,
            needed = counts.needed,
            surplus = counts.surplus,
            "number of host pods changed"
        );
        Ok(())
    }

    /// Returns true if a pod may end: hosts are left over, and the pod that ended last has left.
    fn may_lower(&self, surplus: usize, now: Instant) -> bool {
        let is_awaited = |(before, at): (usize, Instant)| surplus >= before && now < at + POD_END_TIMEOUT;
        surplus > 0 && !self.lowered.is_some_and(is_awaited)
    }

    /// Logs an error once, and again after an interval.
    fn log(&mut self, error: &KubernetesError, now: Instant) {
        let text = error.to_string();
        if !self.logged.as_ref().is_some_and(|(last, at)| *last == text && now < *at + LOG_INTERVAL) {
            tracing::error!(error = %text, "number of host pods not changed");
            self.logged = Some((text, now));
        }
    }
}

#[cfg(test)]
mod tests;
