//! Faults of the state region: words with values that no correct worker writes.
//!
//! A broken or hostile worker may have written them. The host continues:
//!
//! - It skips impossible values, drops UEs whose records cannot be read, and counts and logs both.
//! - It replaces workers: the one that reported a record that does not decode, else all of them,
//!   since any worker may have written the value.
//! - Before a worker starts, the host restores the words that it starts with.

use super::limits::WORKERS;
use super::state::Host;
use crate::worker::region_layout;
use std::sync::atomic::Ordering;
use vireo_ops::clock::{self, clock};
use vireo_ops::metrics::Fault;
use vireo_store::region::{Buffer, Slot};
use vireo_types::{Duration, Instant};

/// Minimum interval between replacements of all workers. Damage is found bit by bit.
const REPLACEMENT_INTERVAL: Duration = Duration::from_secs(10);

impl Host {
    /// Handles the faults of the region since the last call.
    pub(super) fn check_faults(&mut self, now: Instant) {
        let count = self.ues.region.faults() - self.workers.faults.handled;
        if count > 0 {
            self.workers.faults.handled += count;
            self.statistics.step_metrics.metrics.faults(Fault::StateRegion, count);
            self.replace_all(now, count);
        }
    }

    fn replace_all(&mut self, now: Instant, count: u64) {
        let recently = self.workers.faults.replaced.is_some_and(|at| now.since(at) < REPLACEMENT_INTERVAL);
        // The death of a stateful worker would lose its UEs.
        if recently || self.ues.private.is_some() {
            return tracing::error!(count, "state region has words that no worker writes");
        }
        self.workers.faults.replaced = Some(now);
        tracing::error!(
            count,
            workers = self.workers.rings.len(),
            "state region has words that no worker writes, replacing workers"
        );
        if let Some(supervisor) = &self.workers.supervisor {
            self.workers.rings.iter().for_each(|worker| supervisor.kill(worker.number));
        }
    }

    /// Handles a record whose effects do not decode: marks it as sent, drops its UE and replaces
    /// its worker.
    pub(super) fn broken_record(&mut self, buffer: Buffer) {
        self.statistics.step_metrics.metrics.fault(Fault::StateRegion);
        let slot = self.ues.region.slot_of_buffer(buffer);
        let worker = self.workers.faults.worker;
        tracing::error!(slot = slot.map(Slot::number), worker, "bug or attack: committed record does not decode");
        self.ues.own.sent(buffer);
        let current = |slot: &Slot| self.ues.region.is_record_of(*slot, buffer);
        if let Some(slot) = slot.filter(current) {
            self.evict(&[slot]);
        }
        if let (Some(worker), None, Some(supervisor)) = (worker, &self.ues.private, &self.workers.supervisor) {
            supervisor.kill(worker);
        }
    }

    /// Removes the UEs in these slots whose records cannot be read.
    pub(super) fn evict_broken(&mut self, from: u32, count: u32) {
        let slots = (from..from.saturating_add(count)).filter_map(|number| self.ues.region.slot_at(number));
        let broken: Vec<Slot> = slots.filter(|slot| self.ues.region.is_broken(*slot)).collect();
        if !broken.is_empty() {
            self.statistics.step_metrics.metrics.faults(Fault::StateRegion, broken.len() as u64);
            tracing::error!(count = broken.len(), "UEs lost: records damaged");
            self.evict(&broken);
            self.replace_all(clock(), broken.len() as u64);
        }
    }

    fn evict(&mut self, slots: &[Slot]) {
        for slot in slots {
            let version = self.ues.own.evict(*slot);
            *self.ues.order.last(*slot) = version;
        }
        self.ues.ids.free_all(|owner| slots.contains(&owner));
    }

    /// Restores the words that a worker reads at its start. Called before a worker of this number
    /// starts.
    pub(super) fn restore(&mut self, number: u8) {
        let plan = self.ues.plan;
        self.ues.region.restore(number, plan.rings(number.min(WORKERS)));
        let put = |word: u32, value: u64| self.ues.region.shared_word(word).store(value, Ordering::Release);
        put(region_layout::BOARD_CLOCK, clock::offset());
        put(region_layout::BOARD_STOP, 0);
        put(region_layout::BOARD_SLOTS, self.ues.slots.into());
        // A worker that died during a step leaves behind its UE in progress and its queueing time.
        // Its successor would seem stuck.
        put(plan.nf_word(number, 0, region_layout::NF_SERVING), 0);
        (0..plan.nfs).for_each(|nf| put(plan.nf_word(number, nf, region_layout::NF_WAITED), 0));
        let alone = self.ues.region.shared_word(region_layout::BOARD_ALONE);
        if alone.load(Ordering::Relaxed) > (clock() + super::takeover::ALONE).0 {
            alone.store(0, Ordering::Relaxed);
        }
        let mut octets = Vec::new();
        self.ues.region.read_published(region_layout::BULLETIN_CONFIG, &mut octets);
        if self.workers.instructions.octets().is_ok_and(|own| own != octets)
            && let Err(error) = self.workers.instructions.publish(&self.ues.region)
        {
            tracing::error!(%error, "worker configuration in the state region damaged and not rewritten");
        }
        self.post_nodes();
        self.publish_own_buckets();
    }
}
