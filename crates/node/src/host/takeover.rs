//! What follows the death of a worker: its UEs go to NFs of other workers, each event that it had begun is carried out
//! again or was carried out, and its place is filled. It is reaped before, so nothing of it can wake (DESIGN decision 3).

use super::{Host, Input};
use crate::clock::clock;
use crate::worker::outbox::Summary;
use crate::worker::region_layout;
use rustc_hash::FxHashSet;
use std::sync::atomic::Ordering;
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::{DeadWorker, Slot};

/// Workers that an event of a UE has ended before it is passed over.
const FATAL: u8 = 4;
/// How long UEs are served one by one after the death of a worker that had several in hand.
pub(super) const ALONE: vireo_types::Duration = vireo_types::Duration(10_000_000);
/// UEs that are suspected at a time.
const SUSPECTS: usize = 1024;

impl Host {
    /// A worker is dead and reaped.
    pub(super) fn take_over(&mut self, dead: DeadWorker) {
        let number = dead.number();
        // What it committed and said leaves first, in its order. The others go on, and are not waited for.
        if let Some(at) = self.rings.iter().position(|worker| worker.number == number) {
            // One that is dead puts nothing in: more than there is room for is what no worker writes.
            for _ in 0..=self.region.config().ring_cells as usize / super::BATCH {
                if !self.take_from(at) {
                    break;
                }
            }
        }
        let lost = self.pools.down(number);
        self.rings.retain(|worker| worker.number != number);
        // Its pools go on with idle NFs of other workers, at once.
        for (purpose, active) in &lost {
            if *active && self.pools.activate(*purpose).is_none() {
                tracing::warn!(?purpose, "no idle NF is left for what a dead worker did: its UEs wait for a new one");
            }
        }
        if self.private.is_some() {
            self.forget_private(number);
        }
        let (begun, slots) = self.ues_of_worker(&dead);
        // It may have been at work for one of several, or for all of them: then they are served one by one for a while, and it is
        // seen whether one of them ends the next worker.
        let serving =
            self.region.shared_word(self.plan.nf_word(number, 0, region_layout::NF_SERVING)).load(Ordering::Relaxed);
        match begun.iter().find(|slot| region_layout::serving(**slot) == serving) {
            Some(slot) => self.note_crash(*slot),
            None if begun.is_empty() => {}
            None => self.region.shared_word(region_layout::BOARD_ALONE).store((clock() + ALONE).0, Ordering::Relaxed),
        }
        for slot in slots {
            self.take_over_ue(slot, &dead);
        }
        self.launch(
            &lost.iter().map(|(purpose, active)| (*purpose, self.is_needed(*purpose, *active))).collect::<Vec<_>>(),
        );
        self.reclaim(dead);
    }

    fn is_needed(&self, purpose: super::pools::Purpose, active: bool) -> bool {
        active && self.pools.count(purpose).0 == 0
    }

    /// A worker died while it worked for this UE. By itself that says nothing; again and again at the same event, it says
    /// that the event is what kills, and it must not take all workers along.
    fn note_crash(&mut self, slot: Slot) {
        let consumed = self.region.consumed_of(slot);
        let deaths = match self.controller.suspects.get(&slot) {
            Some((same, deaths)) if *same == consumed => deaths + 1,
            _ => 1,
        };
        if deaths < FATAL {
            if self.controller.suspects.len() >= SUSPECTS {
                self.controller.suspects.clear();
            }
            self.controller.suspects.insert(slot, (consumed, deaths));
            return;
        }
        self.controller.suspects.remove(&slot);
        tracing::error!(slot = slot.number(), deaths, "the oldest event of a UE ends worker after worker");
        let free = region_layout::poison_words()
            .map(|word| self.region.shared_word(word))
            .find(|w| w.load(Ordering::Relaxed) == 0);
        if let Some(word) = free {
            word.store(u64::from(slot.number()) + 1, Ordering::Release);
        }
    }

    /// The UEs that a worker had: those it was at work for, and all that it was given and has not acknowledged.
    fn ues_of_worker(&mut self, dead: &DeadWorker) -> (Vec<Slot>, Vec<Slot>) {
        let (mut at_work, mut slots) = (Vec::new(), Vec::new());
        for nf in 0..self.plan.nfs {
            let queue = self.plan.queue(&self.region, dead.number(), nf);
            let begun = queue.requeue(dead, &self.own);
            at_work.extend(begun.iter().filter_map(|taken| self.region.slot_at(taken.item as u32)));
            let waiting = std::iter::from_fn(|| queue.take(&self.own)).take(queue.room());
            for taken in begun.into_iter().chain(waiting) {
                slots.extend(self.region.slot_at(taken.item as u32));
                queue.acknowledge(&self.own, taken);
            }
        }
        let theirs = self.unpushed.extract_if(|place, _| place.worker == dead.number());
        slots.extend(theirs.flat_map(|(_, slots)| slots));
        (at_work, slots)
    }

    /// Gives a UE of a dead worker to another.
    fn take_over_ue(&mut self, slot: Slot, dead: &DeadWorker) {
        // It may have died between its commit and the word about it: this is the only place that could still say so.
        let mut record = std::mem::take(&mut self.snapshot);
        let unsent = self.region.read(slot, &mut record) && !record.sent;
        let buffer = record.buffer().filter(|_| unsent);
        self.snapshot = record;
        if let Some(buffer) = buffer {
            self.emit(buffer);
        }
        let Some(chosen) = self.nf_for(slot, NfKind::StateManagement) else {
            // No NF of its pool is there: it is pushed when one is.
            self.controller.orphans.push((slot, dead.number()));
            return;
        };
        if self.region.take_over(slot, dead, chosen.place.worker) {
            self.push(chosen.place, slot);
        }
    }

    /// Gives the UEs that no NF was there for to those that are there now.
    pub(super) fn adopt_orphans(&mut self) {
        let orphans = std::mem::take(&mut self.controller.orphans);
        for (slot, number) in orphans {
            let Some(at) = self.controller.dead.iter().position(|d| d.number() == number) else { continue };
            let dead = self.controller.dead.swap_remove(at);
            self.take_over_ue(slot, &dead);
            self.controller.dead.push(dead);
        }
        if self.controller.orphans.is_empty() {
            for dead in std::mem::take(&mut self.controller.dead) {
                self.reclaim(dead);
            }
        }
    }

    /// Frees what a dead worker held, on a thread of its own: that looks at all that it ever had.
    fn reclaim(&mut self, dead: DeadWorker) {
        if !self.controller.orphans.is_empty() {
            return self.controller.dead.push(dead);
        }
        let (region, door, worker) = (self.region.clone(), self.door.clone(), dead.number());
        let thread = std::thread::Builder::new().name("reclaim".into()).spawn(move || {
            region.reclaim(dead);
            // Without a host there is nobody to tell.
            let _ = door.send_urgent(Input::Reclaimed { worker });
        });
        if let Err(error) = thread {
            tracing::warn!(%error, worker, "what a dead worker held is not freed");
        }
    }

    /// A stateful worker has taken its UEs' contexts with it.
    fn forget_private(&mut self, number: u8) {
        let Some(private) = &mut self.private else { return };
        let gone: Vec<(Slot, Summary)> = private
            .extract_if(|_, (place, _)| place.worker == number)
            .map(|(slot, (_, summary))| (slot, summary))
            .collect();
        tracing::warn!(
            ues = gone.len(),
            "the contexts of these UEs are lost with their worker: state.location is memory"
        );
        let slots: FxHashSet<Slot> = gone.iter().map(|(slot, _)| *slot).collect();
        self.ids.give_back_all(|owner| slots.contains(&owner));
        for (slot, summary) in gone {
            self.totals.change(Some(summary), None);
            self.moved(slot, Some(summary), None);
            self.own.abandon(slot);
        }
    }

    /// Starts workers with these NFs, in each as many as a worker has.
    pub(super) fn launch(&mut self, purposes: &[(super::pools::Purpose, bool)]) {
        // Unified NFs are there to use several processors: each has a worker of its own.
        let unified = purposes.iter().any(|(purpose, _)| purpose.kind.is_none());
        let each = if unified { 1 } else { usize::from(self.plan.nfs) };
        for purposes in purposes.chunks(each) {
            self.launch_one(purposes);
        }
    }

    fn launch_one(&mut self, purposes: &[(super::pools::Purpose, bool)]) {
        let Some(number) = self.controller.number(super::WORKERS) else {
            tracing::error!("no worker number is free: a worker is not started yet");
            return self.controller.failed.extend(purposes);
        };
        self.restore(number);
        self.pools.enter(&self.region, number, purposes);
        // One that died at work has left word of it behind, by which its successor would seem stuck or late.
        self.pools.forget_worker(&self.region, number);
        self.crew.launch(number);
    }

    /// A worker is there.
    pub(super) fn arrived(&mut self, number: u8, pid: u32) {
        let bell = self.plan.bell(&self.region, number);
        self.rings.push(super::WorkerRings {
            number,
            pid,
            committed: self.region.receiver(self.plan.committed(number)).expect("rings for all workers"),
            returned: self.region.receiver(self.plan.returned(number)).expect("rings for all workers"),
            bell,
            called: false,
        });
        self.pools.up(number);
        self.pools.fill();
        self.adopt_orphans();
    }
}
