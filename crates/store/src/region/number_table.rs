//! Number tables: exclusive allocation of small integers to slots.
//!
//! The numbers may be UE addresses, for example. The region does not know their meaning.
//!
//! The search for a free number goes round, so a freed number is among the last to be allocated
//! again. An allocation is first noted in the slot. The worker may die before it commits the
//! context with the number. The next holder of the UE then finds the note and frees the number if
//! the context does not contain it.

use super::layout::NUMBERS;
use super::mem::{AtomicU64, Ordering};
use super::{Region, Slot};

/// Two notes of a slot, {noted 1 | table 8 at bit 32 | number 32} each.
const S_NOTES: [usize; 2] = [12, 13];
const NOTED: u64 = 1 << 63;

/// Word of the search cursor, which only grows.
const N_CURSOR: usize = 0;
const N_USED: usize = 8;

/// Value in place of an owner: the number is lent to another region, together with its UE.
const LENT: u32 = u32::MAX;

/// Maximum count of numbers that one search checks. It bounds how long a table may block a worker.
const MAX_CHECKED: u64 = 1 << 16;

/// Handle of a number table.
#[derive(Clone, Debug)]
pub struct NumberTable {
    region: Region,
    table: u8,
    base: usize,
    size: u32,
}

impl Region {
    /// Returns a number table; `None` if the region does not have it.
    pub fn numbers(&self, table: u8) -> Option<NumberTable> {
        let size = self.config.tables.get(usize::from(table)).copied().filter(|size| *size != 0)?;
        Some(NumberTable { region: self.clone(), table, base: self.lay.tables[usize::from(table)], size })
    }

    fn notes(&self, slot: Slot) -> [&AtomicU64; 2] {
        S_NOTES.map(|word| self.word(self.slot(slot.0, word)))
    }

    /// Returns the numbers, with their tables, that are noted in a slot and not cleared.
    ///
    /// [`Region::clear_notes`] clears them. They are a hint: [`NumberTable::owner`] returns the
    /// true owner.
    pub fn noted_numbers(&self, slot: Slot) -> [Option<(u8, u32)>; 2] {
        self.notes(slot).map(|word| noted(word.load(Ordering::Acquire)))
    }

    /// Clears the notes of a slot. Its committed context contains the noted numbers, or they are
    /// freed.
    pub fn clear_notes(&self, slot: Slot) {
        for note in self.notes(slot) {
            if note.load(Ordering::Relaxed) != 0 {
                note.store(0, Ordering::Release);
            }
        }
    }

    /// Frees the noted numbers of a slot whose UE was removed.
    pub(super) fn free_noted(&self, slot: Slot) {
        for (table, number) in self.noted_numbers(slot).into_iter().flatten() {
            if let Some(numbers) = self.numbers(table) {
                numbers.free(number, slot);
            }
        }
        self.clear_notes(slot);
    }
}

fn noted(note: u64) -> Option<(u8, u32)> {
    (note & NOTED != 0).then_some(((note >> 32) as u8, note as u32))
}

impl NumberTable {
    /// Returns the word that holds the owner of a number, and the bit offset in it.
    fn place(&self, number: u32) -> (&AtomicU64, u32) {
        let word = self.region.word(self.base + NUMBERS + number as usize / 2);
        (word, number % 2 * 32)
    }

    /// Changes the owner of a number, 1 + slot or 0, from `old` to `new`.
    ///
    /// Returns false if the owner is not `old`.
    fn change(&self, number: u32, old: u32, new: u32) -> bool {
        let (word, shift) = self.place(number);
        let mut now = word.load(Ordering::Acquire);
        // The exchange fails if the number in the other half of the word changes: retry.
        while (now >> shift) as u32 == old {
            let next = now & !(u64::from(u32::MAX) << shift) | u64::from(new) << shift;
            match word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    /// Returns a note of the slot that may be overwritten: empty, or of a number that the slot does
    /// not own.
    fn free_note(&self, slot: Slot) -> Option<&AtomicU64> {
        self.region.notes(slot).into_iter().find(|note| {
            noted(note.load(Ordering::Acquire)).is_none_or(|(table, number)| {
                self.region.numbers(table).is_none_or(|numbers| numbers.owner(number) != Some(slot))
            })
        })
    }

    fn to_note(&self, number: u32) -> u64 {
        NOTED | u64::from(self.table) << 32 | u64::from(number)
    }

    /// Allocates a number for a slot and notes it there. Only the holder of the slot's UE may call
    /// it.
    ///
    /// Returns `None` in these cases:
    ///
    /// - No number is free. In a large table: no number is free among the 65,536 that were checked.
    /// - The slot has two notes of its numbers that [`Region::clear_notes`] has not cleared.
    pub fn take(&self, slot: Slot) -> Option<u32> {
        self.take_in(slot, 0..self.size)
    }

    /// Allocates a number of a range as [`NumberTable::take`] does.
    ///
    /// A caller must use the same range of a table each time.
    pub fn take_in(&self, slot: Slot, part: std::ops::Range<u32>) -> Option<u32> {
        let size = part.end.min(self.size).checked_sub(part.start).filter(|size| *size > 0)?;
        let note = self.free_note(slot)?;
        let cursor = self.region.word(self.base + N_CURSOR);
        let start = cursor.load(Ordering::Relaxed);
        if start > u64::MAX / 2 {
            // The cursor never grows so far, so this word is corrupt.
            self.region.mem.fault();
            cursor.store(0, Ordering::Relaxed);
            return None;
        }
        for at in start..start + MAX_CHECKED.min(size.into()) {
            let number = part.start + (at % u64::from(size)) as u32;
            if self.owner(number).is_none() {
                note.store(self.to_note(number), Ordering::Release);
                if self.change(number, 0, slot.0 + 1) {
                    cursor.fetch_max(at + 1, Ordering::Relaxed);
                    self.count(1);
                    return Some(number);
                }
            }
        }
        note.store(0, Ordering::Release);
        cursor.fetch_max(start + MAX_CHECKED.min(size.into()), Ordering::Relaxed);
        None
    }

    /// Allocates a specific number for a slot, noting it there as [`NumberTable::take`] does.
    ///
    /// Returns true also if the slot already owns the number. Returns false if another slot owns
    /// it, the number does not exist, or the slot has no free note.
    pub fn reserve(&self, number: u32, slot: Slot) -> bool {
        if self.owner(number) == Some(slot) {
            return true;
        }
        if number >= self.size || !self.note(number, slot) {
            return false;
        }
        if self.change(number, LENT, slot.0 + 1) {
            return true;
        }
        let done = self.change(number, 0, slot.0 + 1);
        if done {
            self.count(1);
        }
        done
    }

    /// Marks a slot's number as lent: it migrates with its UE to another region.
    ///
    /// The number is not allocated here until [`NumberTable::unlend`] frees it, or the UE returns
    /// ([`NumberTable::reserve`]). Returns false if the slot does not own the number.
    pub fn lend(&self, number: u32, slot: Slot) -> bool {
        number < self.size && self.change(number, slot.0 + 1, LENT)
    }

    /// Returns true if a number is lent.
    pub fn is_lent(&self, number: u32) -> bool {
        number < self.size && self.owner(number) == Some(Slot(LENT - 1))
    }

    /// Frees a lent number. Returns false if it was not lent.
    pub fn unlend(&self, number: u32) -> bool {
        let done = number < self.size && self.change(number, LENT, 0);
        if done {
            self.count(-1);
        }
        done
    }

    /// Notes in the slot that one of its numbers may have to be freed.
    ///
    /// A worker calls this before it commits a context that omits the number. If the worker dies
    /// before it frees the number, the number is not lost. Returns false if the slot has no free
    /// note.
    pub fn note(&self, number: u32, slot: Slot) -> bool {
        let noted = self.region.noted_numbers(slot).contains(&Some((self.table, number)));
        let free = if noted { None } else { self.free_note(slot) };
        if let Some(note) = free {
            note.store(self.to_note(number), Ordering::Release);
        }
        noted || free.is_some()
    }

    /// Frees a number of a slot. Returns false if the slot does not own it.
    pub fn free(&self, number: u32, slot: Slot) -> bool {
        let done = number < self.size && self.change(number, slot.0 + 1, 0);
        if done {
            self.count(-1);
        }
        done
    }

    /// Returns the slot that owns a number; for a lent number, a slot that does not exist.
    pub fn owner(&self, number: u32) -> Option<Slot> {
        if number >= self.size {
            return None;
        }
        let (word, shift) = self.place(number);
        let owner = ((word.load(Ordering::Acquire) >> shift) as u32).checked_sub(1).map(Slot)?;
        // An owner that is no slot of the region is corrupt: the number counts as free.
        (owner.0 < self.region.slot_count() || owner.0 == LENT - 1).then_some(owner)
    }

    fn count(&self, change: i64) {
        self.region.word(self.base + N_USED).fetch_add(change as u64, Ordering::Relaxed);
    }

    /// Returns the approximate count of owned and lent numbers.
    ///
    /// A worker killed between an allocation and its count makes it wrong by one.
    pub fn used(&self) -> u32 {
        let used = self.region.word(self.base + N_USED).load(Ordering::Relaxed) as i64;
        used.clamp(0, self.size.into()) as u32
    }

    /// Returns the size of the table.
    pub fn size(&self) -> u32 {
        self.size
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::region::{Region, RegionConfig, Slot};
    use std::collections::HashSet;
    use vireo_types::Ltmsi;

    fn region(sizes: [u32; 2]) -> Region {
        let mut config = RegionConfig::new(100, 4, 96 << 20);
        config.tables[1..3].copy_from_slice(&sizes);
        Region::create(config).unwrap()
    }

    #[test]
    fn number_belongs_to_one_slot() {
        let region = region([5, 1 << 24]);
        assert!(region.numbers(0).is_none() && region.numbers(8).is_none());
        let numbers = region.numbers(1).unwrap();
        let (one, two) = (region.slot_at(1_u32).unwrap(), region.slot_at(2_u32).unwrap());
        let take = |slot: Slot| {
            let number = numbers.take(slot);
            region.clear_notes(slot);
            number
        };
        assert_eq!([take(one), take(two), take(one)], [Some(0), Some(1), Some(2)]);
        assert!(!numbers.free(1, one) && numbers.free(1, two) && !numbers.free(1, two));
        assert_eq!([take(one), take(one), take(two), take(two)], [Some(3), Some(4), Some(1), None], "1 again at last");
        assert_eq!((numbers.used(), numbers.size(), numbers.owner(1)), (5, 5, Some(two)));
        assert!(!numbers.reserve(1, one) && numbers.reserve(1, two) && !numbers.reserve(5, one));
        assert!(numbers.free(1, two) && numbers.reserve(1, one));
        assert_eq!(numbers.owner(1), Some(one));
        assert!(!numbers.free(5, one) && numbers.owner(5).is_none());
        let large = region.numbers(2).unwrap();
        assert!(large.reserve((1 << 24) - 1, one) && large.owner((1 << 24) - 1) == Some(one));
        assert_eq!(large.take(one), None, "it has two notes");
    }

    #[test]
    fn unconfirmed_number_is_found() {
        let region = region([5, 300]);
        let mut worker = region.join(0).unwrap();
        let slot = worker.insert(Ltmsi::from_raw(1)).unwrap();
        let (first, second) = (region.numbers(1).unwrap(), region.numbers(2).unwrap());
        let (a, b) = (first.take(slot).unwrap(), second.take(slot).unwrap());
        assert_eq!(region.noted_numbers(slot), [Some((1, a)), Some((2, b))]);
        assert_eq!(first.take(slot), None, "there is no room for another note");
        assert!(first.free(a, slot));
        let c = first.take(slot).unwrap();
        assert_ne!(a, c);
        assert_eq!(region.noted_numbers(slot), [Some((1, c)), Some((2, b))]);
        region.clear_notes(slot);
        assert_eq!(region.noted_numbers(slot), [None, None]);
        assert!(second.note(b, slot) && second.note(b, slot));
        assert_eq!(region.noted_numbers(slot), [Some((2, b)), None]);
        assert!(worker.abandon(slot));
        assert_eq!((first.owner(c), second.owner(b)), (Some(slot), None), "what is noted is given back with the slot");
        assert_eq!((first.used(), second.used(), region.noted_numbers(slot)), (1, 0, [None, None]));
    }

    #[test]
    fn threads_take_different_numbers() {
        let region = region([1000, 0]);
        let numbers = region.numbers(1).unwrap();
        let all: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u32)
                .map(|n| {
                    let (numbers, slot) = (&numbers, region.slot_at(n).unwrap());
                    let region = &region;
                    scope.spawn(move || {
                        let take = || {
                            let number = numbers.take(slot).unwrap();
                            region.clear_notes(slot);
                            number
                        };
                        let mut mine: Vec<u32> = (0..200).map(|_| take()).collect();
                        for _ in 0..5000 {
                            assert!(numbers.free(mine.remove(0), slot));
                            mine.push(take());
                        }
                        mine
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((all.iter().collect::<HashSet<_>>().len(), numbers.used()), (800, 800));
    }

    #[test]
    fn lent_number_is_not_assigned() {
        let region = region([5, 0]);
        let numbers = region.numbers(1).unwrap();
        let (one, other) = (Slot(1), Slot(2));
        let number = numbers.take(one).unwrap();
        region.clear_notes(one);
        assert!(!numbers.is_lent(number));
        assert!(!numbers.lend(number, other) && numbers.lend(number, one) && !numbers.lend(number, one));
        assert!(numbers.is_lent(number) && !numbers.is_lent(number + 1) && !numbers.is_lent(5));
        let take = || numbers.take(other).inspect(|_| region.clear_notes(other));
        assert_eq!(std::iter::from_fn(take).count(), 4, "all but that one");
        assert!(!numbers.free(number, one) && numbers.reserve(number, one), "its UE is here again");
        region.clear_notes(one);
        assert!(numbers.lend(number, one) && numbers.unlend(number) && !numbers.unlend(number));
        assert_eq!((take(), numbers.used()), (Some(number), 5));
    }
}
