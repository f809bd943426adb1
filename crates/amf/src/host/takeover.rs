//! Takeover of the UEs of a dead worker by NFs of other workers.
//!
//! Each event that the dead worker had begun is executed again, unless its commit is in the region.
//! A new worker fills the slot. The dead worker was reaped before, so none of its operations can
//! still take effect.

use super::limits::{BATCH, WORKERS};
use super::pools::PoolId;
use super::state::{Host, WorkerRings};
use crate::worker::outbox::Summary;
use crate::worker::region_layout;
use rustc_hash::FxHashSet;
use std::sync::atomic::Ordering;
use vireo_cluster::Input;
use vireo_core::schedule::kind::NfKind;
use vireo_ops::clock::clock;
use vireo_store::region::{DeadWorker, Slot};

/// Crashed workers per event of a UE, before the event is skipped.
const FATAL: u8 = 4;
/// Time in which UEs are served one by one, after the crash of a worker with a batch in progress.
pub(super) const ALONE: vireo_types::Duration = vireo_types::Duration(10_000_000);
/// Maximum number of UEs with a crash count.
const SUSPECTS: usize = 1024;

impl Host {
    /// Takes over the UEs of a dead and reaped worker. A worker that was switched off is not
    /// replaced.
    pub(super) fn take_over(&mut self, dead: DeadWorker, is_switched_off: bool) {
        let number = dead.number();
        // Records that the dead worker reported are emitted first, in their order. The other
        // workers continue and are not waited for.
        if let Some(at) = self.workers.rings.iter().position(|worker| worker.number == number) {
            // A dead worker posts nothing. More items than the ring has cells cannot occur.
            for _ in 0..=self.ues.region.config().ring_cells as usize / BATCH {
                if !self.drain_rings(at) {
                    break;
                }
            }
        }
        let lost = self.workers.pools.remove_worker(number);
        self.workers.rings.retain(|worker| worker.number != number);
        // Idle NFs of other workers join the pools at once.
        for (pool_id, active) in &lost {
            if *active && self.workers.pools.activate(*pool_id).is_none() {
                tracing::warn!(?pool_id, "no idle NF for the queues of a dead worker; its UEs wait");
            }
        }
        if self.ues.private.is_some() {
            self.forget_private(number);
        }
        let (begun, slots) = self.ues_of_worker(&dead);
        // The worker may have run one UE of a batch, or the whole batch. In the second case UEs are
        // served one by one for a while, to find out whether one of them crashes the next worker.
        let serving = self
            .ues
            .region
            .shared_word(self.ues.plan.nf_word(number, 0, region_layout::NF_SERVING))
            .load(Ordering::Relaxed);
        match begun.iter().find(|slot| region_layout::serving(**slot) == serving) {
            Some(slot) => self.note_crash(*slot),
            None if begun.is_empty() => {}
            None => {
                self.ues.region.shared_word(region_layout::BOARD_ALONE).store((clock() + ALONE).0, Ordering::Relaxed)
            }
        }
        for slot in slots {
            self.take_over_ue(slot, &dead);
        }
        // One of its NFs may have become active meanwhile.
        if !is_switched_off || lost.iter().any(|(_, active)| *active) {
            let lost = lost.iter().map(|(pool_id, active)| (*pool_id, self.is_needed(*pool_id, *active)));
            self.launch(&lost.collect::<Vec<_>>());
        }
        self.reclaim(dead);
    }

    fn is_needed(&self, pool_id: PoolId, active: bool) -> bool {
        active && self.workers.pools.count(pool_id).0 == 0
    }

    /// Counts a crash during the step of this UE. One crash proves nothing. Repeated crashes at the
    /// same event show that the event is the cause, and it must not crash all workers.
    fn note_crash(&mut self, slot: Slot) {
        let consumed = self.ues.region.consumed_of(slot);
        let deaths = match self.workers.scaler.suspects.get(&slot) {
            Some((same, deaths)) if *same == consumed => deaths + 1,
            _ => 1,
        };
        if deaths < FATAL {
            if self.workers.scaler.suspects.len() >= SUSPECTS {
                self.workers.scaler.suspects.clear();
            }
            self.workers.scaler.suspects.insert(slot, (consumed, deaths));
            return;
        }
        self.workers.scaler.suspects.remove(&slot);
        tracing::error!(slot = slot.number(), crashes = deaths, "event crashes every worker that runs it; skipping it");
        let free = region_layout::poison_words()
            .map(|word| self.ues.region.shared_word(word))
            .find(|w| w.load(Ordering::Relaxed) == 0);
        if let Some(word) = free {
            word.store(u64::from(slot.number()) + 1, Ordering::Release);
        }
    }

    /// Returns the UEs of a worker: those in progress, and all that were assigned and not
    /// acknowledged.
    fn ues_of_worker(&mut self, dead: &DeadWorker) -> (Vec<Slot>, Vec<Slot>) {
        let (mut at_work, mut slots) = (Vec::new(), Vec::new());
        for nf in 0..self.ues.plan.nfs {
            let queue = self.ues.plan.queue(&self.ues.region, dead.number(), nf);
            let begun = queue.requeue(dead, &self.ues.own);
            at_work.extend(begun.iter().filter_map(|taken| self.ues.region.slot_at(taken.item as u32)));
            let waiting = std::iter::from_fn(|| queue.take(&self.ues.own)).take(queue.room());
            for taken in begun.into_iter().chain(waiting) {
                slots.extend(self.ues.region.slot_at(taken.item as u32));
                queue.acknowledge(&self.ues.own, taken);
            }
        }
        let theirs = self.workers.unpushed.extract_if(|id, _| id.worker == dead.number());
        slots.extend(theirs.flat_map(|(_, slots)| slots));
        (at_work, slots)
    }

    /// Assigns a UE of a dead worker to another worker.
    fn take_over_ue(&mut self, slot: Slot, dead: &DeadWorker) {
        // The worker may have died between its commit and the report of it. Only this check finds
        // such a record.
        let mut record = std::mem::take(&mut self.ues.snapshot);
        let unsent = self.ues.region.read(slot, &mut record) && !record.sent;
        let buffer = record.buffer().filter(|_| unsent);
        self.ues.snapshot = record;
        if let Some(buffer) = buffer {
            self.emit(buffer);
        }
        let Some(chosen) = self.nf_for(slot, NfKind::StateManagement) else {
            // The pool has no NF; the UE is pushed when one starts.
            self.workers.scaler.orphans.push((slot, dead.number()));
            return;
        };
        if self.ues.region.take_over(slot, dead, chosen.id.worker) {
            self.push(chosen.id, slot);
        }
    }

    /// Assigns the UEs that had no NF to available NFs.
    pub(super) fn adopt_orphans(&mut self) {
        let orphans = std::mem::take(&mut self.workers.scaler.orphans);
        for (slot, number) in orphans {
            let Some(at) = self.workers.scaler.dead.iter().position(|d| d.number() == number) else { continue };
            let dead = self.workers.scaler.dead.swap_remove(at);
            self.take_over_ue(slot, &dead);
            self.workers.scaler.dead.push(dead);
        }
        if self.workers.scaler.orphans.is_empty() {
            for dead in std::mem::take(&mut self.workers.scaler.dead) {
                self.reclaim(dead);
            }
        }
    }

    /// Frees the resources of a dead worker on a separate thread: it scans everything the worker
    /// ever held.
    fn reclaim(&mut self, dead: DeadWorker) {
        if !self.workers.scaler.orphans.is_empty() {
            return self.workers.scaler.dead.push(dead);
        }
        let (region, input_sender, worker) = (self.ues.region.clone(), self.input_sender.clone(), dead.number());
        let thread = std::thread::Builder::new().name("reclaim".into()).spawn(move || {
            region.reclaim(dead);
            // The send fails only without a host.
            let _ = input_sender.send_urgent(Input::Reclaimed { worker });
        });
        if let Err(error) = thread {
            tracing::warn!(%error, worker, "resources of a dead worker not freed");
        }
    }

    /// Removes UEs whose contexts were in the private memory of a dead worker.
    fn forget_private(&mut self, number: u8) {
        let Some(private) = &mut self.ues.private else { return };
        let gone: Vec<(Slot, Summary)> =
            private.extract_if(|_, (id, _)| id.worker == number).map(|(slot, (_, summary))| (slot, summary)).collect();
        tracing::warn!(ues = gone.len(), "contexts lost with their worker: state.location is memory");
        let slots: FxHashSet<Slot> = gone.iter().map(|(slot, _)| *slot).collect();
        self.ues.ids.free_all(|owner| slots.contains(&owner));
        for (slot, summary) in gone {
            self.statistics.totals.change(Some(summary), None);
            self.on_connections_changed(slot, Some(summary), None);
            self.ues.own.abandon(slot);
        }
    }

    /// Starts workers for these NFs, each with `nfs-per-worker` NFs.
    pub(super) fn launch(&mut self, pool_ids: &[(PoolId, bool)]) {
        // Unified NFs exist to use several processors: each has its own worker.
        let unified = pool_ids.iter().any(|(pool_id, _)| pool_id.kind.is_none());
        let each = if unified { 1 } else { usize::from(self.ues.plan.nfs) };
        for pool_ids in pool_ids.chunks(each) {
            self.launch_one(pool_ids);
        }
    }

    fn launch_one(&mut self, pool_ids: &[(PoolId, bool)]) {
        let Some(number) = self.workers.scaler.number(WORKERS) else {
            tracing::error!("no free worker number; a worker is not started yet");
            return self.workers.scaler.failed.extend(pool_ids);
        };
        self.restore(number);
        self.workers.pools.add_worker(&self.ues.region, number, pool_ids);
        // A worker that died during a step leaves its NF words behind. Its successor would seem
        // stuck or late.
        self.workers.pools.forget_worker(&self.ues.region, number);
        if let Some(supervisor) = &self.workers.supervisor {
            supervisor.launch(number);
        }
    }

    /// Registers a worker that is ready.
    pub(super) fn on_worker_ready(&mut self, number: u8, pid: u32) {
        let bell = self.ues.plan.bell(&self.ues.region, number);
        self.workers.rings.push(WorkerRings {
            number,
            pid,
            committed: self.ues.region.receiver(self.ues.plan.commit_ring(number)).expect("rings for all workers"),
            returned: self.ues.region.receiver(self.ues.plan.return_ring(number)).expect("rings for all workers"),
            bell,
            wake_pending: false,
        });
        self.workers.pools.on_worker_started(number);
        self.workers.pools.fill();
        self.adopt_orphans();
    }
}
