//! Promotion to the hot table and demotion from it.
//!
//! The writer of the tables promotes the users that workers request. It demotes by a clock hand
//! over the slots: a user without new packets since the last visit is idle. Packets write nothing
//! for this.
//!
//! One run stops the packets of the moved users: they wait at the lock of the tables, which the
//! writer holds. It then waits for the end of every batch that may count in the old entries, and
//! moves entries as a whole.

use super::{HotTable, WAYS, tag};
use crate::tables::{DownlinkId, Tables, keys};
use std::sync::atomic::Ordering::Relaxed;

/// Maximum promotions, and maximum demotions, of one run. It bounds the wait of other users of the
/// lock.
const AT_ONCE: usize = 512;
/// Runs for one round of the clock hand.
const ROUND: usize = 1_024;
/// Minimum runs that a user keeps its slot when another user needs it.
const KEPT: u32 = 128;

/// State of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct HotSlot {
    taken: bool,
    /// Run in which the slot was taken, freed or visited by the clock hand.
    turn: u32,
    /// Packet count of the entry in that run.
    packets: u64,
}

/// State of the writer for the hot table.
#[derive(Debug, Default)]
pub(crate) struct HotManager {
    places: Vec<HotSlot>,
    users: usize,
    turn: u32,
    hand: usize,
    /// Moves of this run: cold index, tag and slot of promotions; slots of demotions.
    come: Vec<(u32, u64, usize)>,
    go: Vec<usize>,
}

impl HotManager {
    pub(crate) fn new(hot: Option<&HotTable>) -> Self {
        let places = hot.map_or(0, |hot| hot.records.len());
        HotManager { places: vec![HotSlot::default(); places], ..HotManager::default() }
    }

    /// Evicts the user of a slot.
    fn evict(&mut self, hot: &HotTable, place: usize) {
        self.places[place] = HotSlot { taken: false, turn: self.turn, packets: 0 };
        self.users -= 1;
        hot.tell(place, 0);
        hot.records[place].open();
        self.go.push(place);
    }

    /// Returns true if the slot has a user without new packets for a while.
    fn is_idle(&self, hot: &HotTable, place: usize) -> bool {
        let HotSlot { taken, turn, packets } = self.places[place];
        taken && self.turn.wrapping_sub(turn) >= KEPT && hot.records[place].state.volume().packets == packets
    }

    /// Moves the clock hand over some slots.
    fn sweep(&mut self, hot: &HotTable) {
        self.hand = (self.hand + 1) % ROUND;
        let count = self.places.len().div_ceil(ROUND);
        for place in self.hand * count..(self.hand + 1) * count {
            let Some(HotSlot { taken, turn, .. }) = self.places.get(place).copied() else { return };
            if !taken || self.turn.wrapping_sub(turn) < KEPT {
                continue;
            }
            match self.is_idle(hot, place) && self.go.len() < AT_ONCE {
                true => self.evict(hot, place),
                false => {
                    let packets = hot.records[place].state.volume().packets;
                    self.places[place] = HotSlot { taken: true, turn: self.turn, packets };
                }
            }
        }
    }
}

impl Tables {
    /// Runs one promotion and demotion: promotes requested users and demotes idle ones. Must be
    /// called every few milliseconds. A user is demoted when it has been idle for 1,024 to 2,048
    /// runs.
    pub(crate) fn turn_hot(&mut self) {
        let arrays = self.shared_arrays();
        let Some(hot) = &arrays.hot else { return };
        self.keeper.turn = self.keeper.turn.wrapping_add(1);
        for index in std::iter::from_fn(|| hot.wishes.pop()).take(AT_ONCE) {
            self.admit(hot, index);
        }
        self.keeper.sweep(hot);
        self.carry_out(hot);
    }

    /// Reserves a slot for a user. If its set is full, an idle user is evicted, and the request is
    /// repeated later.
    fn admit(&mut self, hot: &HotTable, index: u32) {
        // The session may have ended since, and its index may belong to another one.
        let Some(ue) = self.downlink_ue(DownlinkId(index)) else { return };
        let Some(tag) = keys(ue).find_map(tag) else { return };
        let home = &self.shared_arrays().downlinks[index as usize];
        let keeper = &mut self.keeper;
        let coming = keeper.come.iter().any(|(other, ..)| *other == index);
        // Without counters it is unknown whether a user is idle.
        if coming || home.away().is_some() || home.overflows() || home.is_uncounted() {
            return;
        }
        let set = hot.set(tag)..hot.set(tag) + WAYS;
        // Workers may still look for a user evicted in this run in its slot.
        let is_free = |place: &usize| !keeper.places[*place].taken && keeper.places[*place].turn != keeper.turn;
        if let Some(place) = set.clone().find(is_free) {
            keeper.places[place] = HotSlot { taken: true, turn: keeper.turn, packets: home.state.volume().packets };
            keeper.come.push((index, tag, place));
            keeper.users += 1;
        } else if let Some(place) = set.clone().find(|place| keeper.is_idle(hot, *place)) {
            keeper.evict(hot, place);
        }
    }

    /// Moves all reserved entries.
    fn carry_out(&mut self, hot: &HotTable) {
        let (arrays, keeper) = (self.shared_arrays(), &mut self.keeper);
        let cold = |index: u32| &arrays.downlinks[index as usize];
        if keeper.come.is_empty() && keeper.go.is_empty() {
            return;
        }
        keeper.come.iter().for_each(|(index, ..)| cold(*index).open());
        arrays.quiet.wait();
        for place in keeper.go.drain(..) {
            let home = cold(hot.homes[place].load(Relaxed));
            home.come_back(&hot.records[place]);
            home.settle();
        }
        for (index, tag, place) in keeper.come.drain(..) {
            hot.homes[place].store(index, Relaxed);
            cold(index).leave(&hot.records[place], place as u32);
            hot.tell(place, tag);
        }
    }

    /// Moves a held entry back to the cold table.
    pub(crate) fn demote_entry(&mut self, id: DownlinkId) {
        let arrays = self.shared_arrays();
        let home = &arrays.downlinks[id.0 as usize];
        if let (Some(hot), Some(place)) = (&arrays.hot, home.away()) {
            let place = place as usize;
            hot.tell(place, 0);
            home.come_back(&hot.records[place]);
            // The slot is free in the next run, which waits for the batches that may have found the
            // tag.
            self.keeper.places[place] = HotSlot { taken: false, turn: self.keeper.turn, packets: 0 };
            self.keeper.users -= 1;
        }
    }

    /// Returns the number of hot users.
    pub fn hot(&self) -> usize {
        self.keeper.users
    }

    /// Demotes all users. Returns their number.
    #[cfg(test)]
    pub(super) fn demote_all(&mut self) -> usize {
        let arrays = self.shared_arrays();
        let Some(hot) = &arrays.hot else { return 0 };
        for place in 0..self.keeper.places.len() {
            if self.keeper.places[place].taken {
                self.keeper.evict(hot, place);
            }
        }
        let count = self.keeper.go.len();
        self.carry_out(hot);
        count
    }
}
