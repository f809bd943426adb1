//! Buffers for records: chunks of 64 KiB, each cut into buffers of one size and owned by one worker, who alone takes
//! buffers from it; anybody gives them back.
//!
//! A bit in the chunk's record says whether a buffer is taken, and nothing else does: a worker's own list of buffers to
//! use again is a private hint about taken buffers that nothing refers to. So a dead worker's buffers are found by
//! walking its chunks. The first word of a buffer is {generation, flags}; a generation ends when the buffer is freed, so
//! that nothing is freed twice.

use super::layout::{BUFFER_HEADER, CHUNK, CHUNK_META, CLASSES, UNIT};
use super::mem::{Ordering, WORD, fence};
use super::{Region, halves, joined};

/// It was current in its slot when somebody set out to supersede it.
pub(super) const COMMITTED: u32 = 1;
/// Another record is current in its slot.
pub(super) const SUPERSEDED: u32 = 2;
/// Its effects have left.
pub(super) const SENT: u32 = 4;
/// Its use is over, and who ended it, not the owner of its chunk, has not given it back yet.
const PENDING: u32 = 8;

/// Chunks that are looked into for a free buffer before another chunk is taken.
const LOOKS: usize = 8;
/// Buffers that a worker keeps for itself, of each size.
const KEPT: usize = 256;
/// Chunks without a taken buffer that a worker keeps for itself, of each size.
const SPARE: usize = 2;
/// Chunks that are looked at for one that nobody owns before a fresh one is taken: what is left behind is used again,
/// but in a large region the search for it must not cost more than the memory.
const ORPHANS_SEARCHED: usize = 1024;
/// Nobody's, in a chunk's record.
const NOBODY: u64 = 0xff;

/// One use of a buffer: its number and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    pub(super) number: u32,
    pub(super) generation: u32,
}

impl Buffer {
    /// As an item of a ring: 40 bits, its generation not in full. [`Region::buffer_of`] is the way back.
    pub const fn to_item(self) -> u64 {
        (self.generation as u64 & 0xff) << 32 | self.number as u64
    }

    /// As one word; never 0.
    pub(super) const fn to_word(self) -> u64 {
        joined(self.generation, self.number)
    }

    /// Of the word.
    pub(super) const fn from_word(word: u64) -> Option<Self> {
        let (generation, number) = halves(word);
        if number == 0 { None } else { Some(Buffer { number, generation }) }
    }
}

/// What became of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagOutcome {
    /// The buffer's generation is over.
    Stale,
    /// It is set.
    Set,
    /// It is set and ended the generation: the caller gives the buffer back.
    Free,
}

/// What a worker knows of its chunks, in its own memory.
#[derive(Debug, Default)]
pub(super) struct Arena {
    classes: [Class; CLASSES.len()],
    /// Where the search for a fresh chunk goes on, and before it that for one that nobody owns.
    cursor: usize,
    orphans: usize,
}

#[derive(Debug, Default)]
struct Class {
    chunks: Vec<u32>,
    cursor: usize,
    kept: Vec<u32>,
}

/// Octets that a record can have at most.
pub const LARGEST: usize = (CLASSES[CLASSES.len() - 1] - BUFFER_HEADER) * WORD;

impl Region {
    /// The first word of a buffer.
    #[inline]
    pub(super) fn buffer(&self, number: u32) -> usize {
        // Of no buffer it is outside of the region.
        self.lay.heap.wrapping_add((number as usize).wrapping_sub(1).wrapping_mul(UNIT))
    }

    fn meta(&self, chunk: usize) -> usize {
        self.lay.chunks + chunk * CHUNK_META
    }

    /// The chunk of a buffer and its place there; `None` if there is no such buffer.
    fn locate(&self, number: u32) -> Option<(usize, usize, usize)> {
        let at = (number as usize).checked_sub(1)? * UNIT;
        let chunk = at / CHUNK;
        if chunk >= self.lay.chunk_count {
            return None;
        }
        let class = self.class_of(chunk)?;
        Some((chunk, at % CHUNK / CLASSES[class], class))
    }

    fn class_of(&self, chunk: usize) -> Option<usize> {
        let class = self.word(self.meta(chunk)).load(Ordering::Acquire) & 0xff;
        usize::try_from(class).ok()?.checked_sub(1).filter(|c| *c < CLASSES.len())
    }

    /// Words that a buffer has after its header; `None` if there is no such buffer.
    #[inline]
    pub(super) fn capacity(&self, number: u32) -> Option<usize> {
        self.locate(number).map(|(_, _, class)| CLASSES[class] - BUFFER_HEADER)
    }

    /// The present use of a buffer.
    #[inline]
    pub(super) fn in_use(&self, number: u32) -> Buffer {
        let (generation, _) = halves(self.word(self.buffer(number)).load(Ordering::Acquire));
        Buffer { number, generation }
    }

    /// Sets a flag of this use of the buffer; superseded and sent together end it. Worker `by` does so, if it is one.
    pub(super) fn mark(&self, buffer: Buffer, flag: u32, by: Option<u8>) -> FlagOutcome {
        let Some((chunk, ..)) = self.locate(buffer.number) else { return FlagOutcome::Stale };
        let word = self.word(self.buffer(buffer.number));
        let mut now = word.load(Ordering::Acquire);
        loop {
            let (generation, flags) = halves(now);
            if generation != buffer.generation {
                return FlagOutcome::Stale;
            }
            let flags = flags | flag;
            let over = flags & (SUPERSEDED | SENT) == SUPERSEDED | SENT;
            let next = if !over {
                joined(generation, flags)
            } else if by.is_some_and(|by| self.owner_of(chunk) == u64::from(by)) {
                joined(generation.wrapping_add(1), 0)
            } else {
                // Should it die before it gives the buffer back, this is where that is found out.
                self.note_giving(by, buffer.to_word());
                joined(generation.wrapping_add(1), PENDING)
            };
            match word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return if over { FlagOutcome::Free } else { FlagOutcome::Set },
                Err(seen) => now = seen,
            }
        }
    }

    fn owner_of(&self, chunk: usize) -> u64 {
        self.word(self.meta(chunk)).load(Ordering::Relaxed) >> 8
    }

    /// As [`Region::mark`]; a buffer whose use it ends is given back.
    pub(super) fn mark_and_free(&self, buffer: Buffer, flag: u32, by: Option<u8>) {
        if self.mark(buffer, flag, by) == FlagOutcome::Free {
            self.free_buffer(buffer.number);
            self.note_giving(by, 0);
        }
    }

    /// Gives back what a dead worker was giving back. Who takes the buffer afterwards takes the mark off first, so it is
    /// free twice only if the mark is seen and then the bit, and the mark still.
    pub(super) fn finish_free(&self, buffer: Buffer) {
        let Some((chunk, place, _)) = self.locate(buffer.number) else { return };
        let bit = self.word(self.meta(chunk) + 1 + place / 64).load(Ordering::Acquire) >> (place % 64) & 1;
        let pending = joined(buffer.generation.wrapping_add(1), PENDING);
        if bit == 1 && self.word(self.buffer(buffer.number)).load(Ordering::Acquire) == pending {
            self.free_buffer(buffer.number);
        }
    }

    /// Whether somebody else is about to give a buffer back.
    pub(super) fn is_pending(flags: u32) -> bool {
        flags & PENDING != 0
    }

    /// Ends a use that nothing refers to.
    pub(super) fn invalidate(&self, buffer: Buffer) {
        let word = self.word(self.buffer(buffer.number));
        let now = word.load(Ordering::Acquire);
        if halves(now).0 == buffer.generation {
            let next = joined(buffer.generation.wrapping_add(1), 0);
            // Only its owner or who buried the owner voids a buffer: if it fails, somebody else ended the use.
            let _ = word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Makes a buffer free for its chunk's owner.
    pub(super) fn free_buffer(&self, number: u32) {
        if let Some((chunk, place, _)) = self.locate(number) {
            self.word(self.meta(chunk) + 1 + place / 64).fetch_and(!(1 << (place % 64)), Ordering::Release);
        }
    }

    /// The buffers of a chunk that are taken.
    pub(super) fn taken_of(&self, chunk: usize) -> Vec<u32> {
        let Some(class) = self.class_of(chunk) else { return Vec::new() };
        let bits = |place: usize| self.word(self.meta(chunk) + 1 + place / 64).load(Ordering::Acquire) >> (place % 64);
        let places = (0..CHUNK / CLASSES[class]).filter(|place| bits(*place) & 1 != 0);
        places.map(|place| ((chunk * CHUNK + place * CLASSES[class]) / UNIT + 1) as u32).collect()
    }

    /// The taken buffers of the chunks that a worker owns.
    pub(super) fn owned_by(&self, worker: u8) -> impl Iterator<Item = u32> {
        self.chunks_of(worker).flat_map(|chunk| self.taken_of(chunk))
    }

    fn chunks_of(&self, worker: u8) -> impl Iterator<Item = usize> {
        (0..self.lay.chunk_count).filter(move |chunk| self.is_chunk_of(*chunk, worker))
    }

    pub(super) fn is_chunk_of(&self, chunk: usize, worker: u8) -> bool {
        let meta = self.word(self.meta(chunk)).load(Ordering::Acquire);
        meta != 0 && meta >> 8 == u64::from(worker)
    }

    /// Whether a chunk was ever somebody's.
    pub(super) fn is_chunk_used(&self, chunk: usize) -> bool {
        self.word(self.meta(chunk)).load(Ordering::Acquire) != 0
    }

    /// Whether no buffer of a chunk is taken.
    fn is_free(&self, chunk: usize) -> bool {
        (1..CHUNK_META).all(|word| self.word(self.meta(chunk) + word).load(Ordering::Acquire) == 0)
    }

    /// Makes a chunk of a worker anybody's.
    pub(super) fn disown_chunk(&self, chunk: usize) {
        let meta = self.word(self.meta(chunk));
        meta.store(meta.load(Ordering::Relaxed) & 0xff | NOBODY << 8, Ordering::Release);
    }

    /// Buffers taken in the whole region, and the octets of the chunks they are cut from.
    pub fn heap_use(&self) -> (usize, usize) {
        let chunks = (0..self.lay.chunk_count).filter(|chunk| self.class_of(*chunk).is_some());
        chunks.fold((0, 0), |(buffers, octets), chunk| (buffers + self.taken_of(chunk).len(), octets + CHUNK * WORD))
    }
}

impl Arena {
    /// A buffer with room for so many octets. It is the caller's alone; its generation is a fresh one.
    pub(super) fn take(&mut self, region: &Region, worker: u8, octets: usize) -> Option<u32> {
        let words = BUFFER_HEADER + octets.div_ceil(WORD);
        let first = CLASSES.partition_point(|c| *c < words);
        // One that is there, if little larger, before there are more: UEs whose records all become smaller or larger, as
        // when they go idle, would need memory for both else.
        let near = (first..CLASSES.len()).take_while(|class| CLASSES[*class] * 4 <= CLASSES[first] * 5);
        let there = near.into_iter().find_map(|class| self.classes[class].take(region, class));
        let any = || (first..CLASSES.len()).find_map(|class| self.take_class(region, worker, class));
        let number = there.or_else(any)?;
        // Orders what a reader may still see of the buffer's last use before what is written now.
        fence(Ordering::Release);
        Some(number)
    }

    fn take_class(&mut self, region: &Region, worker: u8, index: usize) -> Option<u32> {
        if let Some(number) = self.classes[index].take(region, index) {
            return Some(number);
        }
        if let Some(chunk) = self.claim(region, worker, index) {
            let class = &mut self.classes[index];
            class.chunks.push(chunk);
            class.cursor = class.chunks.len() - 1;
        }
        let class = &mut self.classes[index];
        class.look(region, index, class.chunks.len())
    }

    /// Another chunk: one of this size that nobody owns and that has room, else a fresh one.
    fn claim(&mut self, region: &Region, worker: u8, class: usize) -> Option<u32> {
        let count = region.lay.chunk_count;
        // All before the place where the last fresh one was found have been in use.
        let used = self.cursor.min(ORPHANS_SEARCHED);
        for _ in 0..used {
            self.orphans = (self.orphans + 1) % self.cursor;
            if self.try_claim(region, worker, class, self.orphans, false) {
                return Some(self.orphans as u32);
            }
        }
        for _ in 0..count {
            let chunk = self.cursor;
            if region.sparse && !region.is_chunk_used(chunk) && !region.reserve_chunk(chunk) {
                return None;
            }
            self.cursor = (self.cursor + 1) % count;
            if self.try_claim(region, worker, class, chunk, true) {
                return Some(chunk as u32);
            }
        }
        None
    }

    fn try_claim(&self, region: &Region, worker: u8, class: usize, chunk: usize, fresh: bool) -> bool {
        let meta = region.word(region.meta(chunk));
        let now = meta.load(Ordering::Acquire);
        let orphan = now == (class as u64 + 1) | NOBODY << 8;
        let room = now == 0 && fresh || orphan && region.free_place(chunk, class).is_some();
        let mine = (class as u64 + 1) | u64::from(worker) << 8;
        room && meta.compare_exchange(now, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Leaves to others what the worker does not need: chunks all of whose buffers are free. Where UEs go from one
    /// worker to another, each would otherwise keep room for all of them.
    pub(super) fn trim(&mut self, region: &Region) {
        for class in &mut self.classes {
            class.kept.drain(..).for_each(|number| region.free_buffer(number));
            let mut spare = 0;
            // Nobody else takes buffers of these chunks: one that is free stays so.
            class.chunks.retain(|chunk| {
                let free = region.is_free(*chunk as usize);
                spare += usize::from(free);
                let leave = free && spare > SPARE;
                if leave {
                    region.disown_chunk(*chunk as usize);
                }
                !leave
            });
            class.cursor = 0;
        }
    }

    /// Gives back a buffer: kept for the next record, if it is the worker's own.
    pub(super) fn free(&mut self, region: &Region, worker: u8, number: u32) {
        let Some((chunk, _, class)) = region.locate(number) else { return };
        let kept = &mut self.classes[class].kept;
        if region.owner_of(chunk) == u64::from(worker) && kept.len() < KEPT {
            kept.push(number);
        } else {
            region.free_buffer(number);
        }
    }
}

impl Region {
    fn free_place(&self, chunk: usize, class: usize) -> Option<usize> {
        let places = CHUNK / CLASSES[class];
        (0..places.div_ceil(64)).find_map(|i| {
            let bits = self.word(self.meta(chunk) + 1 + i).load(Ordering::Acquire);
            let place = i * 64 + (!bits).trailing_zeros() as usize;
            (bits != u64::MAX && place < places).then_some(place)
        })
    }
}

impl Class {
    /// A free buffer, if one is found soon.
    fn take(&mut self, region: &Region, class: usize) -> Option<u32> {
        self.kept.pop().or_else(|| self.look(region, class, LOOKS))
    }

    fn look(&mut self, region: &Region, class: usize, chunks: usize) -> Option<u32> {
        for _ in 0..chunks.min(self.chunks.len()) {
            let chunk = self.chunks[self.cursor] as usize;
            if let Some(place) = region.free_place(chunk, class) {
                let number = ((chunk * CHUNK + place * CLASSES[class]) / UNIT + 1) as u32;
                let word = region.word(region.buffer(number));
                let (generation, flags) = halves(word.load(Ordering::Relaxed));
                if Region::is_pending(flags) {
                    // Before the bit: whoever sees the bit knows that nobody is about to give the buffer back.
                    word.store(joined(generation, 0), Ordering::Relaxed);
                }
                // Only this worker sets bits of this chunk.
                region.word(region.meta(chunk) + 1 + place / 64).fetch_or(1 << (place % 64), Ordering::AcqRel);
                return Some(number);
            }
            self.cursor = (self.cursor + 1) % self.chunks.len();
        }
        None
    }
}
