//! Who is hot: the owner of the tables promotes those that workers ask for, and demotes by a clock that goes round the
//! places: who has counted nothing since it last came by is idle. Packets write nothing for it.
//!
//! A turn stops the packets of those that move (they wait at the lock of the tables, which the owner holds), waits until
//! every batch has ended that may count in the old places, and then moves records whole.

use super::{HotTable, WAYS, tag};
use crate::tables::{DownlinkId, Tables, keys};
use std::sync::atomic::Ordering::Relaxed;

/// Users that are promoted, and such that are demoted, in one turn: whoever waits for the tables waits for that.
const AT_ONCE: usize = 512;
/// Turns until the clock has gone round.
const ROUND: usize = 1_024;
/// Turns that a user keeps its place at least when another wants it.
const KEPT: u32 = 128;

/// What is known of a place.
#[derive(Clone, Copy, Debug, Default)]
struct HotSlot {
    taken: bool,
    /// The turn in which somebody came or went, or the clock came by.
    turn: u32,
    /// What the record had counted then.
    packets: u64,
}

/// What the owner of the tables knows of the hot level.
#[derive(Debug, Default)]
pub(crate) struct HotManager {
    places: Vec<HotSlot>,
    users: usize,
    turn: u32,
    hand: usize,
    /// Of this turn: cold index, tag and place of those that come; places of those that go.
    come: Vec<(u32, u64, usize)>,
    go: Vec<usize>,
}

impl HotManager {
    pub(crate) fn new(hot: Option<&HotTable>) -> Self {
        let places = hot.map_or(0, |hot| hot.records.len());
        HotManager { places: vec![HotSlot::default(); places], ..HotManager::default() }
    }

    /// Takes the place that somebody has.
    fn evict(&mut self, hot: &HotTable, place: usize) {
        self.places[place] = HotSlot { taken: false, turn: self.turn, packets: 0 };
        self.users -= 1;
        hot.tell(place, 0);
        hot.records[place].open();
        self.go.push(place);
    }

    /// Whether somebody has a place and has counted nothing for a while.
    fn is_idle(&self, hot: &HotTable, place: usize) -> bool {
        let HotSlot { taken, turn, packets } = self.places[place];
        taken && self.turn.wrapping_sub(turn) >= KEPT && hot.records[place].state.volume().packets == packets
    }

    /// The clock comes by some places.
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
    /// One turn: promotes who was asked for, and demotes who is idle. To be called each few milliseconds; a user is
    /// demoted when it has been idle for 1,024 to 2,048 turns.
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

    /// Finds a place for who comes; where there is none, who is idle in its set goes, and the wish comes again.
    fn admit(&mut self, hot: &HotTable, index: u32) {
        // it may have ended since, and begun again
        let Some(ue) = self.downlink_ue(DownlinkId(index)) else { return };
        let Some(tag) = keys(ue).find_map(tag) else { return };
        let home = &self.shared_arrays().downlinks[index as usize];
        let keeper = &mut self.keeper;
        let coming = keeper.come.iter().any(|(other, ..)| *other == index);
        // of who is not counted nobody can tell whether it is idle
        if coming || home.away().is_some() || home.overflows() || home.is_uncounted() {
            return;
        }
        let set = hot.set(tag)..hot.set(tag) + WAYS;
        // who went in this turn may still be looked for in its place
        let is_free = |place: &usize| !keeper.places[*place].taken && keeper.places[*place].turn != keeper.turn;
        if let Some(place) = set.clone().find(is_free) {
            keeper.places[place] = HotSlot { taken: true, turn: keeper.turn, packets: home.state.volume().packets };
            keeper.come.push((index, tag, place));
            keeper.users += 1;
        } else if let Some(place) = set.clone().find(|place| keeper.is_idle(hot, *place)) {
            keeper.evict(hot, place);
        }
    }

    /// Moves all that come and go.
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

    /// Has a record come home that is paused.
    pub(crate) fn demote_entry(&mut self, id: DownlinkId) {
        let arrays = self.shared_arrays();
        let home = &arrays.downlinks[id.0 as usize];
        if let (Some(hot), Some(place)) = (&arrays.hot, home.away()) {
            let place = place as usize;
            hot.tell(place, 0);
            home.come_back(&hot.records[place]);
            // it is free in the next turn, which waits for the batches that may have found the tag
            self.keeper.places[place] = HotSlot { taken: false, turn: self.keeper.turn, packets: 0 };
            self.keeper.users -= 1;
        }
    }

    /// How many users are hot now.
    pub fn hot(&self) -> usize {
        self.keeper.users
    }

    /// Demotes everybody, idle or not; says how many that were.
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
