//! Bounded rings of items, for any number of producers and consumers.
//!
//! A consumed item stays in its cell, marked with its worker, until it is acknowledged. So a dead
//! worker's items are found there, in order, and are taken over once.
//!
//! A cell is one word {lap 14, state 2, worker 8, item 40} and changes by one compare-and-swap.
//! Head and tail are only hints: any process that finds one outdated advances it. So a process
//! killed in between blocks no other. A compare-and-swap cannot detect a cell that was reused
//! exactly 2^14 laps later. A worker that is stopped for so long is killed, not continued.

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

/// Handle of a ring.
#[derive(Clone, Debug)]
pub struct Ring {
    region: Region,
    base: usize,
    cells: u64,
}

/// An item that was taken and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightItem {
    position: u64,
    /// Value passed to [`Ring::push`], 40 bits.
    pub item: u64,
}

/// The ring is full. The producer counts the dropped item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full")]
pub struct RingFull;

impl Region {
    /// Returns a ring by its number; `None` if the region has fewer rings.
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

    /// Advances a hint from `position`, unless another process has done so.
    fn advance(&self, hint: usize, position: u64) {
        let next = position.wrapping_add(1);
        let _ = self.at(hint).compare_exchange(position, next, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Appends an item (40 bits).
    ///
    /// # Errors
    ///
    /// Returns an error if the ring is full, counting items in flight.
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

    /// Frees the cell of an item in flight. Returns false if the item is not in flight at this
    /// worker.
    pub fn acknowledge(&self, worker: &Worker, taken: InFlightItem) -> bool {
        let lap = self.lap(taken.position);
        let now = word(lap, TAKEN, worker.number, taken.item);
        let empty = word((lap + 1) & LAPS, EMPTY, 0, 0);
        self.cell(taken.position).compare_exchange(now, empty, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Transfers a dead worker's items in flight to `worker`, in order.
    ///
    /// Each item is returned to one caller only. If that worker dies too, they are its items in
    /// flight.
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

    /// Returns the approximate number of waiting items.
    pub fn len(&self) -> usize {
        let waiting = self.at(TAIL).load(Ordering::Relaxed).saturating_sub(self.at(HEAD).load(Ordering::Relaxed));
        waiting.min(self.cells) as usize
    }

    /// Returns the capacity in items.
    pub fn room(&self) -> usize {
        self.cells as usize
    }

    /// Empties the ring. No process may use it meanwhile.
    #[cfg(not(loom))]
    pub(super) fn clear(&self) {
        for position in 0..self.cells {
            self.cell(position).store(word(0, EMPTY, 0, 0), Ordering::Relaxed);
        }
        for hint in [HEAD, TAIL] {
            self.at(hint).store(0, Ordering::SeqCst);
        }
    }

    /// Returns true if no item waits; approximate.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bell of the ring: producers ring it, consumers wait for it.
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
