//! Bounded rings of items, for any number of producers and consumers. An item that was taken stays in its place, marked
//! with its worker, until it is acknowledged: a dead worker's items are found there, in order, and taken over once.
//!
//! A cell is one word {lap 14, state 2, worker 8, item 40} and changes by one compare-and-swap. Head and tail are only
//! hints of where to look, moved on by whoever finds them behind; so a process killed in between holds nobody up. A
//! compare-and-swap on a cell that came round 2^14 laps later would be deceived; a worker that is stopped for so long
//! is killed, not continued.

use super::layout::RING;
use super::mem::{AtomicU64, Ordering};
use super::{DeadWorker, Region, Worker};

pub(super) const HEAD: usize = 0;
pub(super) const TAIL: usize = 8;
#[cfg(not(loom))]
const BELL: usize = 16;

const LAPS: u64 = (1 << 14) - 1;
pub(super) const ITEM: u64 = (1 << 40) - 1;

const EMPTY: u64 = 0;
const FULL: u64 = 1;
const TAKEN: u64 = 2;

/// A ring of a region.
#[derive(Clone, Debug)]
pub struct Ring {
    region: Region,
    base: usize,
    cells: u64,
}

/// An item in flight: taken, and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightItem {
    position: u64,
    /// The item.
    pub item: u64,
}

/// The ring has no room; who pushes counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full")]
pub struct RingFull;

impl Region {
    /// A ring, by its number.
    pub fn ring(&self, number: u16) -> Option<Ring> {
        let base = self.ring_base(number)?;
        Some(Ring { region: self.clone(), base, cells: self.config.ring_cells.into() })
    }

    pub(super) fn ring_base(&self, number: u16) -> Option<usize> {
        let base = self.lay.rings + usize::from(number) * (RING + self.config.ring_cells as usize);
        (number < self.config.rings).then_some(base)
    }
}

impl Ring {
    fn at(&self, word: usize) -> &AtomicU64 {
        self.region.word(self.base + word)
    }

    fn cell(&self, position: u64) -> &AtomicU64 {
        self.at(RING + (position & (self.cells - 1)) as usize)
    }

    fn lap(&self, position: u64) -> u64 {
        (position / self.cells) & LAPS
    }

    /// Moves a hint on from `position`, unless somebody did.
    fn advance(&self, hint: usize, position: u64) {
        let next = position.wrapping_add(1);
        let _ = self.at(hint).compare_exchange(position, next, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Puts an item (40 bits) in.
    ///
    /// # Errors
    ///
    /// When the ring is full, items in flight included.
    pub fn push(&self, item: u64) -> Result<(), RingFull> {
        loop {
            let tail = self.at(TAIL).load(Ordering::SeqCst);
            let (cell, lap) = (self.cell(tail), self.lap(tail));
            let now = cell.load(Ordering::SeqCst);
            let (found, state) = lap_and_state(now);
            if found == lap && state == EMPTY {
                let full = word(lap, FULL, 0, item & ITEM);
                if cell.compare_exchange(now, full, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    self.advance(TAIL, tail);
                    return Ok(());
                }
            } else if found == lap || found == (lap + 1) & LAPS {
                self.advance(TAIL, tail);
            } else if self.at(TAIL).load(Ordering::SeqCst) == tail {
                return Err(RingFull);
            }
        }
    }

    /// Takes the oldest item; it is in flight until [`Ring::acknowledge`].
    pub fn take(&self, worker: &Worker) -> Option<InFlightItem> {
        loop {
            let head = self.at(HEAD).load(Ordering::SeqCst);
            let (cell, lap) = (self.cell(head), self.lap(head));
            let now = cell.load(Ordering::SeqCst);
            let (found, state) = lap_and_state(now);
            if found == lap && state == FULL {
                let taken = word(lap, TAKEN, worker.number, now & ITEM);
                if cell.compare_exchange(now, taken, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    self.advance(HEAD, head);
                    return Some(InFlightItem { position: head, item: now & ITEM });
                }
            } else if found == lap && state == TAKEN || found == (lap + 1) & LAPS {
                self.advance(HEAD, head);
            } else if self.at(HEAD).load(Ordering::SeqCst) == head {
                return None;
            }
        }
    }

    /// An item is done with: its place is free. False if it was not this worker's any more.
    pub fn acknowledge(&self, worker: &Worker, taken: InFlightItem) -> bool {
        let lap = self.lap(taken.position);
        let now = word(lap, TAKEN, worker.number, taken.item);
        let empty = word((lap + 1) & LAPS, EMPTY, 0, 0);
        self.cell(taken.position).compare_exchange(now, empty, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Takes a dead worker's items in flight over, in their order. Each is given to one caller once; should that one die
    /// too, they are its items in flight.
    pub fn requeue(&self, dead: &DeadWorker, worker: &Worker) -> Vec<InFlightItem> {
        let last = self.at(HEAD).load(Ordering::SeqCst).max(self.at(TAIL).load(Ordering::SeqCst));
        let mine = |position: u64| {
            let (cell, lap) = (self.cell(position), self.lap(position));
            let now = cell.load(Ordering::SeqCst);
            let item = now & ITEM;
            let taken = word(lap, TAKEN, worker.number, item);
            let theirs = now == word(lap, TAKEN, dead.number, item);
            let done = theirs && cell.compare_exchange(now, taken, Ordering::SeqCst, Ordering::Relaxed).is_ok();
            done.then_some(InFlightItem { position, item })
        };
        (last.saturating_sub(self.cells)..=last).filter_map(mine).collect()
    }

    /// Items that wait, about.
    pub fn len(&self) -> usize {
        let waiting = self.at(TAIL).load(Ordering::Relaxed).saturating_sub(self.at(HEAD).load(Ordering::Relaxed));
        waiting.min(self.cells) as usize
    }

    /// Items that it has room for.
    pub fn room(&self) -> usize {
        self.cells as usize
    }

    /// Empties it. Nobody uses it meanwhile.
    #[cfg(not(loom))]
    pub(super) fn clear(&self) {
        for position in 0..self.cells {
            self.cell(position).store(word(0, EMPTY, 0, 0), Ordering::Relaxed);
        }
        for hint in [HEAD, TAIL] {
            self.at(hint).store(0, Ordering::SeqCst);
        }
    }

    /// Whether none waits, about.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What consumers of this ring wait for, and producers ring.
    #[cfg(not(loom))]
    pub fn bell(&self) -> super::Bell {
        super::Bell::new(self.region.clone(), self.base + BELL)
    }
}

const fn word(lap: u64, state: u64, worker: u8, item: u64) -> u64 {
    lap << 50 | state << 48 | (worker as u64) << 40 | item
}

const fn lap_and_state(word: u64) -> (u64, u64) {
    (word >> 50, word >> 48 & 3)
}
