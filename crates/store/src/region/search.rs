//! Where a worker continues its searches for free packets and slots.

use std::collections::VecDeque;

/// Part of the pool in which a worker searches a free packet.
///
/// It grows when too many of its packets are in use, and shrinks when none is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchWindow {
    /// First packet of the window; each worker has another one.
    base: u32,
    size: u32,
    /// Offset from `base` of the next packet to check.
    at: u32,
    /// True if a packet checked in this round was in use.
    busy: bool,
}

impl SearchWindow {
    /// Minimum number of packets in a window.
    const LEAST: u32 = 256;
    /// The window grows after this many used packets in a row.
    const MISSES: u32 = 32;

    pub(super) fn new(base: u32) -> Self {
        SearchWindow { base, size: Self::LEAST, at: 0, busy: false }
    }

    /// Returns the next packet to try, of `count`, after `missed` failed attempts.
    ///
    /// Returns `None` if all packets have been tried.
    pub(super) fn next(&mut self, count: u32, missed: &mut u32) -> Option<u32> {
        self.size = self.size.min(count);
        self.busy |= *missed > 0;
        if self.size < count && *missed >= Self::MISSES.min(self.size) {
            (self.at, self.size, *missed) = (self.size, (self.size * 2).min(count), 0);
        } else if *missed >= count {
            return None;
        }
        if self.at >= self.size {
            let shrinks = !self.busy && self.size / 2 >= Self::LEAST;
            self.size = if shrinks { self.size / 2 } else { self.size };
            (self.at, self.busy) = (0, false);
        }
        let number = (self.base + self.at) % count;
        (self.at, *missed) = (self.at + 1, *missed + 1);
        Some(number)
    }
}

/// A worker's private view of free slots.
#[derive(Debug)]
pub(super) struct VacantSlots {
    /// Slots that this worker has freed, the oldest first; another worker may have taken them
    /// since.
    pub(super) freed: VecDeque<u32>,
    /// Slot at which the search continues.
    pub(super) cursor: u32,
    /// True if a whole round found no free slot.
    pub(super) searched: bool,
}

impl VacantSlots {
    /// Creates an empty view; the search begins at `cursor`.
    pub(super) fn new(cursor: u32) -> Self {
        VacantSlots { freed: VecDeque::new(), cursor, searched: false }
    }

    /// Adds a slot that the worker has freed.
    pub(super) fn on_freed(&mut self, slot: u32) {
        self.freed.push_back(slot);
    }
}
