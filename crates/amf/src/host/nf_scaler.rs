//! NF scaler: number and states of the NFs of a host (MMLite).
//!
//! It puts idle NFs into pools that miss their objectives, retires NFs that are not needed, keeps
//! idle NFs ready, and replaces workers that died. [`vireo_ops::supervisor`] watches the processes
//! themselves.

mod state;

pub(super) use state::NfScaler;

use super::builder::HostConfig;
use super::limits::WORKERS;
use super::pools::{NfState, PoolId};
use super::state::Host;
use crate::worker::region_layout::{NF_SERVING, RegionLayout};
use rustc_hash::FxHashMap;
use state::SCALING_INTERVAL;
use std::sync::atomic::Ordering;
use vireo_cluster::{HostSender, Input};
use vireo_ops::supervisor::{self, ExitCause, Supervisor, SupervisorConfig, WorkerEvent};
use vireo_store::region::Region;
use vireo_types::Instant;

/// Interval of polling the queues for the shares of the NFs.
const CHECK_INTERVAL: vireo_types::Duration = vireo_types::Duration(500);
/// Consecutive decisions with violations before a pool gets another NF. Raising its priority comes
/// first.
const PERSISTENT: u32 = 3;
/// Consecutive decisions without work before a pool retires an NF: 5 s.
const QUIET: u32 = 50;
/// Minimum relative change of a worker's weight that is applied.
const WEIGHT_STEP: f64 = 0.2;

/// Returns the estimated cost of a procedure on this machine, in nanoseconds, before any
/// measurement. The unit is the mean time of encoding and decoding a context, the most frequent
/// work of a step. Each kind of procedure is a multiple of it.
pub(super) fn initial_estimate() -> impl Fn(PoolId) -> u64 {
    use vireo_core::amf::context::{UeContext, decode, encode};
    use vireo_core::schedule::kind::NfKind;
    const RUNS: u32 = 2000;
    let ue = UeContext::new(vireo_types::Ltmsi::from_raw(1));
    let began = std::time::Instant::now();
    for _ in 0..RUNS {
        let octets = std::hint::black_box(encode(&ue, Vec::with_capacity(256)));
        std::hint::black_box(octets.ok().and_then(|octets| decode(&octets).ok()));
    }
    let unit = (began.elapsed().as_nanos() as u64 / u64::from(RUNS)).max(1);
    // Ratios measured on one machine. Measurements of the running procedures replace the estimates.
    move |pool_id| {
        unit * match pool_id.kind {
            Some(NfKind::Registration) | None => 150,
            Some(NfKind::Handover) => 100,
            Some(NfKind::ServiceRequest | NfKind::Mobility | NfKind::Session) => 60,
            Some(NfKind::Deregistration | NfKind::Paging | NfKind::StateManagement) => 40,
        }
    }
}

/// Starts the supervisor of a host's worker processes.
pub(super) fn start_supervisor(
    region: &Region,
    config: &HostConfig,
    plan: RegionLayout,
    input_sender: HostSender,
) -> std::io::Result<Supervisor> {
    let settings = SupervisorConfig {
        stopped_after: config.pools.stopped_after,
        // A worker that waits for its database is not stuck: it loads, commits, and checks the
        // result.
        stuck_after: match config.state.location.is_database() {
            true => config.pools.stuck_after.max(vireo_ops::state::RESPONSE_TIMEOUT * 4),
            false => config.pools.stuck_after,
        },
        cores: config.pools.cores.clone(),
        ..SupervisorConfig::new(config.program.clone())
    };
    let watched = region.clone();
    let queues: Vec<Vec<_>> =
        (0..WORKERS).map(|worker| (0..plan.nfs).map(|nf| plan.queue(&watched, worker, nf)).collect()).collect();
    let waiting = move |worker: u8| {
        let serving = watched.shared_word(plan.nf_word(worker, 0, NF_SERVING)).load(Ordering::Relaxed) != 0;
        serving || queues.get(usize::from(worker)).is_some_and(|nfs: &Vec<_>| nfs.iter().any(|q| !q.is_empty()))
    };
    supervisor::start(region.clone(), settings, waiting, move |event| {
        // The send fails only without a host.
        let _ = input_sender.send_urgent(Input::WorkerEvent(event));
    })
}

impl Host {
    /// Handles an event of a worker process.
    pub(super) fn on_worker_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Up { worker, pid, took } => {
                tracing::debug!(worker, pid, ?took, "worker ready");
                self.on_worker_ready(worker, pid);
            }
            WorkerEvent::Down { worker, pid, dead, cause, noticed } => {
                let began = std::time::Instant::now();
                match dead {
                    Some(dead) => self.take_over(dead, cause == ExitCause::Retired),
                    None => {
                        let lost = self.workers.pools.remove_worker(worker);
                        self.workers.rings.retain(|w| w.number != worker);
                        self.workers.scaler.free_number(worker);
                        if cause != ExitCause::Retired {
                            self.launch(&lost);
                        }
                    }
                }
                let took = began.elapsed();
                self.workers.scaler.stopping.take_if(|stopping| *stopping == worker);
                if cause == ExitCause::Retired {
                    tracing::info!(worker, pid, "idle worker stopped");
                } else {
                    tracing::warn!(
                        worker,
                        pid,
                        reason = ?cause,
                        ?noticed,
                        ?took,
                        "worker ended; other workers have taken over its UEs"
                    );
                }
            }
            WorkerEvent::Failed { worker, error } => {
                tracing::error!(worker, %error, "worker does not start");
                let lost = self.workers.pools.remove_worker(worker);
                self.workers.scaler.free_number(worker);
                self.workers.scaler.failed.extend(lost);
            }
        }
    }

    /// Runs the periodic tasks of the NF scaler.
    pub(super) fn scale_nfs(&mut self, now: Instant) {
        if now.since(self.workers.scaler.checked_at) >= CHECK_INTERVAL {
            self.workers.scaler.checked_at = now;
            self.workers.pools.update_shares(&self.ues.region);
            self.update_overload();
        }
        if now.since(self.workers.scaler.controlled) < SCALING_INTERVAL {
            return;
        }
        self.workers.scaler.controlled = now;
        self.check_faults(now);
        self.workers.pools.measure(&self.ues.region);
        self.workers.pools.fill();
        self.scale();
        self.weigh();
        self.replace_failed_launches();
        self.workers.scaler.worked = self.workers.pools.iter().any(|nf| !nf.queue.is_empty())
            || !self.workers.scaler.late_decisions.is_empty()
            || self.admission.overload.is_on();
    }

    /// Starts workers in place of those that did not start.
    pub(super) fn replace_failed_launches(&mut self) {
        let failed = std::mem::take(&mut self.workers.scaler.failed);
        if !failed.is_empty() {
            self.launch(&failed);
        }
    }

    /// Adds an NF to pools that repeatedly miss their objectives, and retires NFs of idle
    /// pools.
    fn scale(&mut self) {
        let mut late: FxHashMap<PoolId, u32> = FxHashMap::default();
        for (at, recent) in self.workers.pools.take_violations() {
            let pool_id = self.workers.pools.iter().nth(at).map(|nf| nf.pool_id);
            if let Some(pool_id) = pool_id {
                *late.entry(pool_id).or_default() += recent;
            }
        }
        for pool_id in self.workers.pools.pool_ids() {
            let count = if late.contains_key(&pool_id) {
                self.workers.scaler.late_decisions.get(&pool_id).map_or(1, |n| n + 1)
            } else {
                0
            };
            if count == 0 {
                self.workers.scaler.late_decisions.remove(&pool_id);
            } else {
                self.workers.scaler.late_decisions.insert(pool_id, count);
            }
            if count >= PERSISTENT {
                self.workers.scaler.late_decisions.remove(&pool_id);
                self.scale_out(pool_id);
            }
            self.scale_in(pool_id);
        }
        self.switch_off();
    }

    /// Stops a worker whose NFs are idle beyond need, one at a time.
    fn switch_off(&mut self) {
        let (None, Some(supervisor)) = (self.workers.scaler.stopping, &self.workers.supervisor) else { return };
        if let Some(worker) = self.workers.pools.unneeded_worker() {
            self.workers.scaler.stopping = Some(worker);
            supervisor.stop_worker(worker);
        }
    }

    fn scale_out(&mut self, pool_id: PoolId) {
        let began = std::time::Instant::now();
        // A second NF of a pool on the same processor would not help.
        let processors = self.workers.pools.processors();
        if self.workers.pools.count(pool_id).0 >= processors {
            return;
        }
        let Some(id) = self.workers.pools.activate(pool_id) else { return };
        let (active, idle) = self.workers.pools.count(pool_id);
        let took = began.elapsed();
        tracing::info!(?pool_id, ?id, active, ?took, "NF added to a pool that missed its objective");
        // Keeps another NF idle if the machine has a processor for it.
        if idle == 0 && active < processors {
            self.launch(&[(pool_id, false)]);
        }
    }

    fn scale_in(&mut self, pool_id: PoolId) {
        let of = || {
            self.workers.pools.iter().enumerate().filter(|(_, nf)| nf.pool_id == pool_id && nf.state == NfState::Active)
        };
        let waiting: usize = of().map(|(_, nf)| nf.queue.len()).sum();
        let (count, last) = (of().count(), of().last().map(|(at, _)| at));
        let unified = pool_id.kind.is_none();
        if count < 2 || waiting > 0 || unified {
            self.workers.scaler.quiet_decisions.remove(&pool_id);
            return;
        }
        let quiet = self.workers.scaler.quiet_decisions.entry(pool_id).or_default();
        *quiet += 1;
        if *quiet >= QUIET
            && let Some(last) = last
            && self.workers.pools.retire(last)
        {
            self.workers.scaler.quiet_decisions.remove(&pool_id);
            tracing::info!(?pool_id, "NF removed from a pool");
        }
    }

    /// Applies the CPU weights of the workers: the total share of their NFs.
    fn weigh(&mut self) {
        let Some(supervisor) = &self.workers.supervisor else { return };
        for (worker, weight) in self.workers.pools.weights(&self.ues.region) {
            let before = self.workers.scaler.weights.get(&worker).copied().unwrap_or(0.0);
            if (weight - before).abs() > before * WEIGHT_STEP {
                self.workers.scaler.weights.insert(worker, weight);
                supervisor.weigh(worker, weight);
            }
        }
    }
}
