//! Which indexes are in use.

use std::collections::VecDeque;

/// Indexes and what is kept by them, at most `limit`. Room for all is reserved at the start (the kernel backs it with
/// memory as it is used), so that growing never moves a million of them while packets wait.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    limit: usize,
    /// The generations that are given out, first and last: all, or those of one life.
    generations: (u8, u8),
}

/// Lives that have generations of their own, until the next has those of the first again.
const LIVES: u8 = 5;

#[derive(Debug)]
struct Slot<T> {
    /// The last generation that the index was given out with, 1 to 255: never 0, so that no TEID is 0. 0: not yet.
    generation: u8,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Slab { slots: Vec::with_capacity(limit), free: VecDeque::new(), limit, generations: (1, u8::MAX) }
    }

    /// In this life of the program others are given out than in the lives before: what those have given out and nobody has written
    /// down is not given out again.
    pub(crate) fn begin_life(&mut self, life: u32) {
        const OF_ONE: u8 = u8::MAX / LIVES;
        let before = (life % u32::from(LIVES)) as u8 * OF_ONE;
        self.generations = (before + 1, before + OF_ONE);
    }

    /// The generation after that.
    fn after(&self, generation: u8) -> u8 {
        let (first, last) = self.generations;
        if (first..last).contains(&generation) { generation + 1 } else { first }
    }

    /// Takes an index, the one that was free longest, with its next generation.
    pub(crate) fn insert(&mut self, value: T) -> Option<(u32, u8)> {
        if let Some(index) = self.free.pop_front() {
            let generation = self.after(self.slots[index as usize].generation);
            self.slots[index as usize] = Slot { generation, value: Some(value) };
            return Some((index, generation));
        }
        if self.slots.len() >= self.limit {
            return None;
        }
        let generation = self.after(0);
        self.slots.push(Slot { generation, value: Some(value) });
        Some((self.slots.len() as u32 - 1, generation))
    }

    /// Takes an index that is above all that were ever taken, as it was taken in another life: those below it are free. Whether it
    /// could be had.
    pub(crate) fn insert_at(&mut self, index: u32, generation: u8, value: T) -> bool {
        let at = index as usize;
        if at < self.slots.len() || at >= self.limit || generation == 0 {
            return false;
        }
        self.free.extend(self.slots.len() as u32..index);
        self.slots.resize_with(at, || Slot { generation: 0, value: None });
        self.slots.push(Slot { generation, value: Some(value) });
        true
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.value.take()?;
        self.free.push_back(index);
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// All indexes are below this.
    pub(crate) fn indexes(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Indexes in parts of equal size, so that who has an index can be told by its range.
#[derive(Debug)]
pub(crate) struct Parted<T> {
    parts: Vec<Slab<T>>,
    span: usize,
}

impl<T> Parted<T> {
    pub(crate) fn new(limit: usize, parts: usize) -> Self {
        let parts = parts.clamp(1, limit.max(1));
        let span = limit / parts;
        Parted { parts: (0..parts).map(|_| Slab::new(span)).collect(), span: span.max(1) }
    }

    /// See [`Slab::begin_life`].
    pub(crate) fn begin_life(&mut self, life: u32) {
        self.parts.iter_mut().for_each(|part| part.begin_life(life));
    }

    /// Takes an index of a part, or where that is full of another.
    pub(crate) fn insert(&mut self, part: usize, value: T) -> Option<(u32, u8)>
    where
        T: Clone,
    {
        let count = self.parts.len();
        (0..count).map(|next| (part + next) % count).find_map(|part| {
            let (index, generation) = self.parts[part].insert(value.clone())?;
            Some(((part * self.span) as u32 + index, generation))
        })
    }

    /// Takes this index, if it is above all of its part that were ever taken ([`Slab::insert_at`]).
    pub(crate) fn insert_at(&mut self, index: u32, generation: u8, value: T) -> bool {
        let (span, index) = (self.span, index as usize);
        let part = self.parts.get_mut(index / span);
        part.is_some_and(|part| part.insert_at((index % span) as u32, generation, value))
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let index = index as usize;
        self.parts.get_mut(index / self.span)?.remove((index % self.span) as u32)
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Slab::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_reused_late_and_with_the_next_generation() {
        let mut slab = Slab::new(2);
        assert_eq!((slab.insert('a'), slab.insert('b'), slab.insert('c')), (Some((0, 1)), Some((1, 1)), None));
        slab.remove(1);
        slab.remove(0);
        assert_eq!((slab.remove(0), slab.len()), (None, 0));
        assert_eq!((slab.insert('d'), slab.insert('e')), (Some((1, 2)), Some((0, 2))));
        for _ in 0..300 {
            slab.remove(0);
            assert!(slab.insert('f').is_some_and(|(index, generation)| index == 0 && generation != 0));
        }
    }

    #[test]
    fn indexes_of_another_life_are_taken_in_order() {
        let mut slab = Parted::new(8, 2);
        assert!(slab.insert_at(1, 7, 'a') && slab.insert_at(3, 255, 'b') && slab.insert_at(6, 1, 'c'));
        assert!(!slab.insert_at(0, 7, 'd') && !slab.insert_at(3, 255, 'd') && !slab.insert_at(8, 1, 'd'));
        assert!(!slab.insert_at(7, 0, 'd'), "no TEID is 0");
        assert_eq!(slab.len(), 3);
        let mut take = |part| slab.insert(part, 'e').map(|(index, _)| index);
        // What was free below them, then what is above, then the other part's.
        assert_eq!([take(0), take(0), take(1), take(1), take(1)], [Some(0), Some(2), Some(4), Some(5), Some(7)]);
        assert_eq!((slab.insert(0, 'e'), slab.remove(3), slab.insert(1, 'f')), (None, Some('b'), Some((3, 1))));
    }

    /// What a life has given out, and none of it was written down, the lives after it do not give out.
    #[test]
    fn lives_give_out_others() {
        let mut before = std::collections::HashSet::new();
        for life in 0..u32::from(LIVES) {
            let mut slab = Parted::new(4, 2);
            slab.begin_life(life);
            // One that was written down is there still, and is given out once more when it is gone.
            assert!(life == 0 || slab.insert_at(1, life as u8, 'a'));
            let mut own = std::collections::HashSet::new();
            for turn in 0..200 {
                let (index, generation) = slab.insert(turn % 2, 'b').expect("room");
                assert!(
                    generation != 0 && !before.contains(&(index, generation)),
                    "{index} {generation} of life {life}"
                );
                own.insert((index, generation));
                slab.remove(index);
                if turn == 50 {
                    slab.remove(1);
                }
            }
            before.extend(own);
        }
    }

    #[test]
    fn parts_have_ranges_of_their_own_and_help_each_other_out() {
        let mut slab = Parted::new(7, 2);
        let mut take = |part| slab.insert(part, ());
        assert_eq!((take(0), take(1), take(1)), (Some((0, 1)), Some((3, 1)), Some((4, 1))));
        assert_eq!((take(1), take(1)), (Some((5, 1)), Some((1, 1))), "the second part is full");
        assert_eq!((slab.remove(4), slab.remove(4), slab.remove(6), slab.len()), (Some(()), None, None, 4));
        assert_eq!((slab.insert(0, ()), slab.insert(0, ()), slab.insert(0, ())), (Some((2, 1)), Some((4, 2)), None));
        assert_eq!(Parted::new(0, 1).insert(0, ()), None);
    }
}
