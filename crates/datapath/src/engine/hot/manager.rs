//! State of the writer for the hot table: which users to promote and to demote.
//!
//! The writer of the tables promotes the users that workers request. It demotes by a clock hand
//! over the slots: a user without new packets since the last visit is idle. Packets write nothing
//! for this.

use crate::engine::hot::table::HotTable;

/// Maximum promotions, and maximum demotions, of one run. It bounds the wait of other users of the
/// lock.
pub(crate) const MOVES_AT_ONCE: usize = 512;
/// Runs for one round of the clock hand.
const ROUND: usize = 1_024;
/// Minimum runs that a user keeps its slot when another user needs it.
const MIN_RUNS_IN_SLOT: u32 = 128;

/// State of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HotSlot {
    pub(crate) occupied: bool,
    /// Run in which the slot was occupied, freed or visited by the clock hand.
    pub(crate) run: u32,
    /// Packet count of the entry in that run.
    pub(crate) packets: u64,
}

/// State of the writer for the hot table.
#[derive(Debug, Default)]
pub(crate) struct HotManager {
    pub(crate) slots: Vec<HotSlot>,
    pub(crate) users: usize,
    pub(crate) run: u32,
    pub(crate) hand: usize,
    /// Moves of this run: cold index, tag and slot of promotions; slots of demotions.
    pub(crate) promotions: Vec<(u32, u64, usize)>,
    pub(crate) demotions: Vec<usize>,
}

impl HotManager {
    pub(crate) fn new(hot: Option<&HotTable>) -> Self {
        let slots = hot.map_or(0, |hot| hot.records.len());
        HotManager { slots: vec![HotSlot::default(); slots], ..HotManager::default() }
    }

    /// Evicts the user of a slot.
    pub(crate) fn evict(&mut self, hot: &HotTable, slot: usize) {
        self.slots[slot] = HotSlot { occupied: false, run: self.run, packets: 0 };
        self.users -= 1;
        hot.publish(slot, 0);
        hot.records[slot].begin_write();
        self.demotions.push(slot);
    }

    /// Returns true if the slot has a user without new packets for a while.
    pub(crate) fn is_idle(&self, hot: &HotTable, slot: usize) -> bool {
        let HotSlot { occupied, run, packets } = self.slots[slot];
        occupied
            && self.run.wrapping_sub(run) >= MIN_RUNS_IN_SLOT
            && hot.records[slot].state.volume().packets == packets
    }

    /// Moves the clock hand over some slots.
    pub(crate) fn sweep(&mut self, hot: &HotTable) {
        self.hand = (self.hand + 1) % ROUND;
        let count = self.slots.len().div_ceil(ROUND);
        for slot in self.hand * count..(self.hand + 1) * count {
            let Some(HotSlot { occupied, run, .. }) = self.slots.get(slot).copied() else { return };
            if !occupied || self.run.wrapping_sub(run) < MIN_RUNS_IN_SLOT {
                continue;
            }
            match self.is_idle(hot, slot) && self.demotions.len() < MOVES_AT_ONCE {
                true => self.evict(hot, slot),
                false => {
                    let packets = hot.records[slot].state.volume().packets;
                    self.slots[slot] = HotSlot { occupied: true, run: self.run, packets };
                }
            }
        }
    }
}
