//! Cells: memory of one cache line each, for rule lists and for counters of flow rules.
//!
//! A kernel program shares the cells.

use crate::sys::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `struct cell` of `bpf/entry.h`.
pub(crate) type Cell = [AtomicU64; 8];

/// Maximum number of cells, which take 256 MiB. `CELL` of `bpf/entry.h` can address four times as
/// many.
pub(crate) const MAX_CELLS: usize = 1 << 22;

/// Location of a cell: shared with the kernel program, or private.
#[derive(Clone, Debug)]
pub(crate) enum CellRef {
    Shared(u32),
    Private(Arc<Cell>),
}

impl CellRef {
    pub(crate) fn shared(&self) -> Option<u32> {
        match self {
            CellRef::Shared(cell) => Some(*cell),
            CellRef::Private(_) => None,
        }
    }
}

/// Cells shared with the kernel program. Empty without a program.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Shared<Cell>,
    /// First cell that was never used.
    fresh: u32,
    free: Vec<u32>,
    /// Cells freed in this round, and in the previous one. A running program may still read them.
    resting: [Vec<u32>; 2],
}

impl Cells {
    pub(crate) fn new(cells: Shared<Cell>) -> Self {
        // Cell 0 means none.
        Cells { cells, fresh: 1, free: vec![], resting: [vec![], vec![]] }
    }

    /// Returns true if a program shares the cells.
    pub(crate) fn are_shared(&self) -> bool {
        !self.cells.is_empty()
    }

    /// Allocates a zeroed cell.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let cell = match self.free.pop() {
            Some(cell) => cell,
            None if (self.fresh as usize) < self.cells.len() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        self.write(cell, [0; 8]);
        Some(cell)
    }

    /// Allocates `count` cells, or none.
    pub(crate) fn take_all(&mut self, count: usize) -> Option<Vec<u32>> {
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            match self.take() {
                Some(cell) => taken.push(cell),
                None => {
                    // No program has seen them.
                    self.free.append(&mut taken);
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// Frees a cell. It is reused when no program can still read it.
    pub(crate) fn release(&mut self, cell: u32) {
        self.resting[0].push(cell);
    }

    /// Makes the cells freed before the last call available. With one call a second, this is at
    /// least one second later. A program runs for some microseconds.
    pub(crate) fn recycle(&mut self) {
        self.free.append(&mut self.resting[1]);
        self.resting.swap(0, 1);
    }

    pub(crate) fn write(&self, cell: u32, words: [u64; 8]) {
        if let Some(cell) = self.cells.get(cell as usize) {
            cell.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        }
    }

    /// Allocates a cell for counters, private if no shared one is free.
    pub(crate) fn allocate_counters(&mut self) -> CellRef {
        self.take().map_or_else(|| CellRef::Private(Arc::default()), CellRef::Shared)
    }

    /// Moves a private cell to a shared one, if one is free.
    pub(crate) fn share(&mut self, cell: CellRef) -> CellRef {
        match cell {
            CellRef::Private(own) => match self.take() {
                Some(cell) => {
                    self.write(cell, std::array::from_fn(|n| own[n].load(Relaxed)));
                    CellRef::Shared(cell)
                }
                None => CellRef::Private(own),
            },
            shared => shared,
        }
    }

    #[inline]
    pub(crate) fn at<'a>(&'a self, cell: &'a CellRef) -> &'a Cell {
        match cell {
            CellRef::Shared(cell) => &self.cells[*cell as usize],
            CellRef::Private(own) => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_cell_is_reused_later() {
        let mut cells = Cells::new(Shared::private(4));
        assert_eq!(cells.take_all(4), None, "there are three");
        let mut all = cells.take_all(3).expect("room");
        all.sort_unstable();
        assert_eq!((all, cells.take()), (vec![1, 2, 3], None));
        cells.write(2, [7; 8]);
        cells.release(2);
        cells.recycle();
        assert_eq!(cells.take(), None);
        cells.recycle();
        assert_eq!(cells.take(), Some(2));
        assert!(cells.at(&CellRef::Shared(2)).iter().all(|word| word.load(Relaxed) == 0));
    }

    #[test]
    fn private_cell_is_shared_when_room_is_free() {
        let mut cells = Cells::new(Shared::private(2));
        let first = cells.allocate_counters();
        let own = cells.allocate_counters();
        assert_eq!((first.shared(), own.shared()), (Some(1), None));
        cells.at(&own)[3].store(9, Relaxed);
        let own = cells.share(own);
        assert_eq!(own.shared(), None);
        cells.release(1);
        cells.recycle();
        cells.recycle();
        let shared = cells.share(own);
        assert_eq!((shared.shared(), cells.at(&shared)[3].load(Relaxed)), (Some(1), 9));
        assert!(!Cells::new(Shared::private(0)).are_shared());
    }
}
