//! Index allocation with generations.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

/// Indexes and their values, at most `limit`. Capacity for all is reserved at the start, and the
/// kernel backs it with memory on use. Growing therefore never moves a million values while packets
/// wait.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    limit: usize,
    /// First and last generation in use: all, or those of one run of the process.
    generations: (u8, u8),
    /// If set, generations are random: a peer that knows an index and its last generation cannot
    /// predict the next one.
    random: Option<Random>,
}

/// Random numbers: a keyed hash of a counter. Unpredictable without the key.
#[derive(Debug, Default)]
struct Random {
    key: RandomState,
    count: u64,
    /// True in tests whose tables must assign equal numbers.
    #[cfg(test)]
    known: bool,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.count += 1;
        #[cfg(test)]
        if self.known {
            return self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        }
        self.key.hash_one(self.count)
    }
}

/// Number of process runs with disjoint generations. The next run uses the generations of the first
/// again.
const LIVES: u8 = 5;

#[derive(Debug)]
struct Slot<T> {
    /// Generation of the last allocation of the index, 1 to 255. Never 0, so that no TEID is 0. 0 =
    /// not allocated yet.
    generation: u8,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new(limit: usize) -> Self {
        let (slots, free) = (Vec::with_capacity(limit), VecDeque::new());
        Slab { slots, free, limit, generations: (1, u8::MAX), random: None }
    }

    /// Creates a slab with random generations.
    fn random(limit: usize) -> Self {
        Slab { random: Some(Random::default()), ..Slab::new(limit) }
    }

    /// Selects the generations of this run of the process. They differ from those of the preceding
    /// runs, whose allocations may have been lost before they were stored.
    pub(crate) fn set_generation_base(&mut self, life: u32) {
        const OF_ONE: u8 = u8::MAX / LIVES;
        let before = (life % u32::from(LIVES)) as u8 * OF_ONE;
        self.generations = (before + 1, before + OF_ONE);
    }

    /// Returns the generation after `generation`. It always differs from it.
    fn after(&mut self, generation: u8) -> u8 {
        let (first, last) = self.generations;
        let Some(random) = &mut self.random else {
            return if (first..last).contains(&generation) { generation + 1 } else { first };
        };
        let (number, all) = (random.next(), u64::from(last - first) + 1);
        let others = (first..=last).contains(&generation).then(|| u64::from(generation - first));
        let place = match others {
            // All but the used one.
            Some(used) => (used + 1 + number % (all - 1)) % all,
            None => number % all,
        };
        first + place as u8
    }

    /// Allocates the index that was free longest, with its next generation.
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

    /// Allocates the index `index`, which an earlier run of the process had allocated. It must be
    /// above all allocated indexes; the indexes below it become free. Returns true if it was
    /// allocated.
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

    /// Returns an upper bound: all indexes are below it.
    pub(crate) fn indexes(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Indexes in partitions of equal size: the range of an index identifies its partition.
#[derive(Debug)]
pub(crate) struct PartitionedSlab<T> {
    parts: Vec<Slab<T>>,
    span: usize,
}

impl<T> PartitionedSlab<T> {
    pub(crate) fn new(limit: usize, parts: usize) -> Self {
        let parts = parts.clamp(1, limit.max(1));
        let span = limit / parts;
        PartitionedSlab { parts: (0..parts).map(|_| Slab::random(span)).collect(), span: span.max(1) }
    }

    /// Makes generations equal in all slabs on which this is called.
    #[cfg(test)]
    pub(crate) fn make_generations_known(&mut self) {
        self.parts.iter_mut().flat_map(|part| &mut part.random).for_each(|random| random.known = true);
    }

    /// Selects the generations of this run; see [`Slab::set_generation_base`].
    pub(crate) fn begin_life(&mut self, life: u32) {
        self.parts.iter_mut().for_each(|part| part.set_generation_base(life));
    }

    /// Allocates an index of the partition `part`, or of another one if that is full.
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

    /// Allocates this index, if it is above all indexes ever allocated in its partition
    /// ([`Slab::insert_at`]).
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
    fn indexes_are_reused_late_with_next_generation() {
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

    /// Seen from a peer that allocates and frees the same index repeatedly.
    #[test]
    fn generations_cannot_be_guessed() {
        let first = || PartitionedSlab::new(1, 1).insert(0, ()).map(|(_, generation)| generation);
        let firsts: std::collections::HashSet<_> = (0..64).map(|_| first()).collect();
        assert!(firsts.len() > 32, "random from the first use: {firsts:?}");
        let mut slab = PartitionedSlab::new(1, 1);
        let mut generations = vec![];
        for _ in 0..4_000 {
            let (index, generation) = slab.insert(0, ()).expect("room");
            slab.remove(index);
            generations.push(generation);
        }
        assert!(generations.iter().all(|generation| *generation != 0), "no TEID is 0");
        assert!(generations.windows(2).all(|two| two[0] != two[1]), "none follows itself");
        let steps: std::collections::HashSet<_> =
            generations.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
        assert!(steps.len() > 200, "the step tells nothing: {}", steps.len());
        let seen: std::collections::HashSet<_> = generations.iter().collect();
        assert_eq!(seen.len(), 255, "all are given out");
    }

    #[test]
    fn indexes_of_another_life_are_taken_in_order() {
        let mut slab = PartitionedSlab::new(8, 2);
        assert!(slab.insert_at(1, 7, 'a') && slab.insert_at(3, 255, 'b') && slab.insert_at(6, 1, 'c'));
        assert!(!slab.insert_at(0, 7, 'd') && !slab.insert_at(3, 255, 'd') && !slab.insert_at(8, 1, 'd'));
        assert!(!slab.insert_at(7, 0, 'd'), "no TEID is 0");
        assert_eq!(slab.len(), 3);
        let mut take = |part| slab.insert(part, 'e').map(|(index, _)| index);
        // First the free indexes below them, then the ones above, then those of the other
        // partition.
        assert_eq!([take(0), take(0), take(1), take(1), take(1)], [Some(0), Some(2), Some(4), Some(5), Some(7)]);
        assert_eq!((slab.insert(0, 'e'), slab.remove(3)), (None, Some('b')));
        assert!(slab.insert(1, 'f').is_some_and(|(index, generation)| index == 3 && generation != 255));
    }

    /// Later runs do not assign what a run assigned and did not store.
    #[test]
    fn lives_give_out_others() {
        let mut before = std::collections::HashSet::new();
        for life in 0..u32::from(LIVES) {
            let mut slab = PartitionedSlab::new(4, 2);
            slab.begin_life(life);
            // A stored index still exists, and may be assigned again after its removal.
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
    fn full_partition_uses_others() {
        let mut slab = PartitionedSlab::new(7, 2);
        let mut take = |part| slab.insert(part, ()).map(|(index, _)| index);
        assert_eq!((take(0), take(1), take(1)), (Some(0), Some(3), Some(4)));
        assert_eq!((take(1), take(1)), (Some(5), Some(1)), "the second part is full");
        assert_eq!((slab.remove(4), slab.remove(4), slab.remove(6), slab.len()), (Some(()), None, None, 4));
        let mut take = |part| slab.insert(part, ()).map(|(index, _)| index);
        assert_eq!((take(0), take(0), take(0)), (Some(2), Some(4), None));
        assert_eq!(PartitionedSlab::new(0, 1).insert(0, ()), None);
    }
}
