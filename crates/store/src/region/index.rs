//! Lock-free indexes from an identifier to a slot.
//!
//! The hash of an identifier selects two cache lines. A lookup always searches both. So removed
//! entries need no tombstone, and no search grows long.
//!
//! An entry is one word {tag 32 | not final 1 | 1 + slot 31} and changes by one compare-and-swap.
//! 32-bit identifiers are their own tag. The tag of a longer identifier is a hash, and the slot
//! holds the identifier in full. An entry is inserted as not final. It is made final when no other
//! entry of its identifier is found. A process that enters the same identifier removes entries that
//! are not final. So a process that dies in between leaves nothing that matters.

use super::layout::{Key, LINE};
use super::mem::Ordering;
use super::{Region, halves, joined};

const OPEN: u64 = 1 << 31;

/// Reason that an identifier was not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdentifierTaken {
    /// The identifier already refers to this slot.
    By(u32),
    /// Both lines are full. This occurs only if the region has more UEs than it was created for.
    Full,
}

/// Spreads consecutive identifiers (finaliser of SplitMix64).
fn mix(mut key: u64) -> u64 {
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

impl Region {
    fn lines(&self, key: Key, value: u64) -> ([usize; 2], u32) {
        let (start, lines) = self.lay.indexes[key as usize];
        let hash = mix(value.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let other = mix(hash ^ 0x5851_f42d_4c95_7f2d);
        let first = hash as usize & (lines - 1);
        // The two lines always differ.
        let second = (first + 1 + other as usize % (lines - 1)) & (lines - 1);
        let tag = if matches!(key, Key::Ltmsi | Key::Tmsi) { value as u32 } else { (hash >> 32) as u32 };
        ([start + first * LINE, start + second * LINE], tag)
    }

    /// Returns the slot of an entry if the entry belongs to this identifier.
    fn entry(&self, key: Key, value: u64, tag: u32, entry: u64) -> Option<u32> {
        let slot = (entry & (OPEN - 1)) as u32;
        if slot == 0 || halves(entry).0 != tag {
            return None;
        }
        self.holds(key, value, slot - 1).then_some(slot - 1)
    }

    /// Returns the slot of an identifier.
    #[inline]
    pub(super) fn find(&self, key: Key, value: u64) -> Option<u32> {
        let (lines, tag) = self.lines(key, value);
        // Both lines are loaded before the first comparison. With many UEs neither is in a cache,
        // and the processor fetches them at the same time.
        let entries =
            lines.map(|line| std::array::from_fn::<u64, LINE, _>(|at| self.word(line + at).load(Ordering::Acquire)));
        let is_final = |entry: &&u64| *entry & OPEN == 0;
        entries.iter().flatten().filter(is_final).find_map(|entry| self.entry(key, value, tag, *entry))
    }

    /// Enters an identifier that refers to a slot.
    pub(super) fn insert_identifier(&self, key: Key, value: u64, slot: u32) -> Result<(), IdentifierTaken> {
        let (lines, tag) = self.lines(key, value);
        let mine = joined(tag, slot + 1);
        loop {
            let cell = self.place(lines, mine | OPEN).ok_or(IdentifierTaken::Full)?;
            for other in lines.iter().flat_map(|line| *line..*line + LINE).filter(|other| *other != cell) {
                let mut entry = self.word(other).load(Ordering::SeqCst);
                while let Some(by) = self.entry(key, value, tag, entry) {
                    if entry & OPEN == 0 {
                        // Failure does not matter: another process may have removed this entry.
                        let _ = self.swap(cell, mine | OPEN, 0);
                        return if by == slot { Ok(()) } else { Err(IdentifierTaken::By(by)) };
                    }
                    match self.swap(other, entry, 0) {
                        Ok(_) => break,
                        Err(seen) => entry = seen,
                    }
                }
            }
            if self.swap(cell, mine | OPEN, mine).is_ok() {
                return Ok(());
            }
        }
    }

    fn swap(&self, cell: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.word(cell).compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Inserts an entry into the emptier line and returns its cell.
    fn place(&self, mut lines: [usize; 2], entry: u64) -> Option<usize> {
        let free = |line: usize| (line..line + LINE).filter(|c| self.word(*c).load(Ordering::Relaxed) == 0).count();
        if free(lines[1]) > free(lines[0]) {
            lines.swap(0, 1);
        }
        lines.iter().flat_map(|line| *line..*line + LINE).find(|cell| self.swap(*cell, 0, entry).is_ok())
    }

    /// Removes an identifier of a slot from the index.
    pub(super) fn remove_identifier(&self, key: Key, value: u64, slot: u32) {
        let (lines, tag) = self.lines(key, value);
        for cell in lines.iter().flat_map(|line| *line..*line + LINE) {
            let entry = self.word(cell).load(Ordering::Acquire);
            if entry & !OPEN == joined(tag, slot + 1) {
                let _ = self.swap(cell, entry, 0);
            }
        }
    }

    /// Empties an index. No other process may use it meanwhile.
    pub(super) fn empty_index(&self, key: Key) {
        let (start, lines) = self.lay.indexes[key as usize];
        (start..start + lines * LINE).for_each(|cell| self.word(cell).store(0, Ordering::Relaxed));
    }
}
