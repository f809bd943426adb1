//! Promotion of downlink entries to the hot table and demotion from it.
//!
//! One run stops the packets of the moved users: they wait at the lock of the tables, which the
//! writer holds. It then waits for the end of every batch that may count in the old entries, and
//! moves entries as a whole.

use super::Tables;
use crate::engine::hot::manager::{HotSlot, MOVES_AT_ONCE};
use crate::engine::hot::table::{HotTable, WAYS, tag};
use crate::engine::index::{DownlinkId, address_keys};
use std::sync::atomic::Ordering::Relaxed;

impl Tables {
    /// Runs one promotion and demotion: promotes requested users and demotes idle ones. Must be
    /// called every few milliseconds. A user is demoted when it has been idle for 1,024 to 2,048
    /// runs.
    pub(crate) fn maintain_hot_table(&mut self) {
        let arrays = self.shared_arrays();
        let Some(hot) = &arrays.hot else { return };
        self.hot.run = self.hot.run.wrapping_add(1);
        for index in std::iter::from_fn(|| hot.requests.pop()).take(MOVES_AT_ONCE) {
            self.admit(hot, index);
        }
        self.hot.sweep(hot);
        self.move_entries(hot);
    }

    /// Reserves a slot for a user. If its set is full, an idle user is evicted, and the request is
    /// repeated later.
    fn admit(&mut self, hot: &HotTable, index: u32) {
        // The session may have ended since, and its index may belong to another one.
        let Some(ue) = self.downlink_ue(DownlinkId(index)) else { return };
        let Some(tag) = address_keys(ue).find_map(tag) else { return };
        let home = &self.shared_arrays().downlinks[index as usize];
        let manager = &mut self.hot;
        let coming = manager.promotions.iter().any(|(other, ..)| *other == index);
        // Without counters it is unknown whether a user is idle.
        if coming || home.hot_index().is_some() || home.overflows() || home.is_uncounted() {
            return;
        }
        let set = hot.set(tag)..hot.set(tag) + WAYS;
        // Workers may still look for a user evicted in this run in its slot.
        let is_free = |slot: &usize| !manager.slots[*slot].occupied && manager.slots[*slot].run != manager.run;
        if let Some(slot) = set.clone().find(is_free) {
            manager.slots[slot] = HotSlot { occupied: true, run: manager.run, packets: home.state.volume().packets };
            manager.promotions.push((index, tag, slot));
            manager.users += 1;
        } else if let Some(slot) = set.clone().find(|slot| manager.is_idle(hot, *slot)) {
            manager.evict(hot, slot);
        }
    }

    /// Moves all reserved entries.
    fn move_entries(&mut self, hot: &HotTable) {
        let (arrays, manager) = (self.shared_arrays(), &mut self.hot);
        let cold = |index: u32| &arrays.downlinks[index as usize];
        if manager.promotions.is_empty() && manager.demotions.is_empty() {
            return;
        }
        manager.promotions.iter().for_each(|(index, ..)| cold(*index).begin_write());
        arrays.quiescence.wait();
        for slot in manager.demotions.drain(..) {
            let home = cold(hot.cold_indexes[slot].load(Relaxed));
            home.demote_from(&hot.records[slot]);
            home.end_write();
        }
        for (index, tag, slot) in manager.promotions.drain(..) {
            hot.cold_indexes[slot].store(index, Relaxed);
            cold(index).promote_to(&hot.records[slot], slot as u32);
            hot.publish(slot, tag);
        }
    }

    /// Moves a held entry back to the cold table.
    pub(crate) fn demote_entry(&mut self, id: DownlinkId) {
        let arrays = self.shared_arrays();
        let home = &arrays.downlinks[id.0 as usize];
        if let (Some(hot), Some(slot)) = (&arrays.hot, home.hot_index()) {
            let slot = slot as usize;
            hot.publish(slot, 0);
            home.demote_from(&hot.records[slot]);
            // The slot is free in the next run, which waits for the batches that may have found the
            // tag.
            self.hot.slots[slot] = HotSlot { occupied: false, run: self.hot.run, packets: 0 };
            self.hot.users -= 1;
        }
    }

    /// Returns the number of hot users.
    pub fn hot(&self) -> usize {
        self.hot.users
    }

    /// Demotes all users. Returns their number.
    #[cfg(test)]
    pub(crate) fn demote_all(&mut self) -> usize {
        let arrays = self.shared_arrays();
        let Some(hot) = &arrays.hot else { return 0 };
        for slot in 0..self.hot.slots.len() {
            if self.hot.slots[slot].occupied {
                self.hot.evict(hot, slot);
            }
        }
        let count = self.hot.demotions.len();
        self.move_entries(hot);
        count
    }
}
