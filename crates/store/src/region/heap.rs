//! Buffers for commit records, allocated from chunks of 64 or 256 KiB.
//!
//! Each chunk is cut into buffers of one size and owned by one worker. Only the owner allocates
//! buffers of a chunk; any process frees them.
//!
//! Only a bit in the chunk's metadata decides whether a buffer is allocated. A worker's own list of
//! buffers for reuse is a private hint: these buffers are allocated, and nothing refers to them. So
//! a scan of a dead worker's chunks finds all its buffers. The first word of a buffer is
//! {generation, flags}. A generation ends when the buffer is freed, so that no buffer is freed
//! twice.

use super::layout::{BUFFER_HEADER, CLASSES, Chunks, UNIT};
use super::mem::{Ordering, WORD, fence};
use super::{Region, halves, joined};

/// Flag: the commit record was current in its slot when a process began to supersede it.
pub(super) const COMMITTED: u32 = 1;
/// Flag: another commit record is current in the slot.
pub(super) const SUPERSEDED: u32 = 2;
/// Flag: the effects of the commit record are sent.
pub(super) const SENT: u32 = 4;
/// Flag: the use is over, and the process that ended it has not freed the buffer yet. Set only by
/// processes other than the chunk's owner.
const PENDING: u32 = 8;

/// Chunks that are searched for a free buffer before another chunk is claimed.
const MAX_CHECKED: usize = 8;
/// Maximum number of buffers of each size that a worker keeps for reuse.
const MAX_SPARE_BUFFERS: usize = 256;
/// Maximum number of empty chunks of each size that a worker keeps.
const MAX_EMPTY_CHUNKS: usize = 2;
/// Chunks that are searched for one without an owner before a fresh one is claimed.
///
/// Abandoned chunks are reused, but in a large region the search must not cost more than the
/// memory.
const ORPHANS_SEARCHED: usize = 1024;
/// Owner in the metadata of a chunk that no worker owns.
const NO_OWNER: u64 = 0xff;

/// One use of a buffer: its number and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    pub(super) number: u32,
    pub(super) generation: u32,
}

impl Buffer {
    /// Encodes the buffer as a ring item of 40 bits, with the low 8 bits of its generation.
    ///
    /// [`Region::buffer_of`] is the inverse.
    pub const fn to_item(self) -> u64 {
        (self.generation as u64 & 0xff) << 32 | self.number as u64
    }

    /// Encodes the buffer as one word; never 0.
    pub(super) const fn to_word(self) -> u64 {
        joined(self.generation, self.number)
    }

    /// Decodes the buffer of a word; `None` for 0.
    pub(super) const fn from_word(word: u64) -> Option<Self> {
        let (generation, number) = halves(word);
        if number == 0 { None } else { Some(Buffer { number, generation }) }
    }
}

/// Outcome of setting a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagOutcome {
    /// The generation of the buffer is over.
    Stale,
    /// The flag is set; the use continues.
    Set,
    /// The flag is set and ended the generation: the caller must free the buffer.
    Free,
}

/// A worker's private view of its chunks.
#[derive(Debug, Default)]
pub(super) struct Arena {
    classes: [Class; CLASSES.len()],
    /// Where the searches for a fresh chunk and for a chunk without an owner continue.
    cursor: usize,
    orphans: usize,
}

/// Location of a buffer.
#[derive(Clone, Copy)]
struct BufferLocation {
    chunk: usize,
    /// Index of the buffer in its chunk.
    index: usize,
    class: usize,
}

#[derive(Debug, Default)]
struct Class {
    chunks: Vec<u32>,
    cursor: usize,
    spare: Vec<u32>,
}

/// Maximum size of a commit record in bytes, in a region without large records.
pub const LARGEST: usize = Chunks::SMALL.largest_record();

impl Region {
    /// Returns the word number of a buffer's first word.
    #[inline]
    pub(super) fn buffer(&self, number: u32) -> usize {
        // For number 0, which is no buffer, the result is outside of the region.
        self.lay.heap.wrapping_add((number as usize).wrapping_sub(1).wrapping_mul(UNIT))
    }

    fn meta(&self, chunk: usize) -> usize {
        self.lay.chunks + chunk * self.lay.chunk.meta
    }

    /// Returns the location of a buffer; `None` if there is no such buffer.
    fn locate(&self, number: u32) -> Option<BufferLocation> {
        let at = (number as usize).checked_sub(1)? * UNIT;
        let words = self.lay.chunk.words;
        let chunk = at >> words.trailing_zeros();
        if chunk >= self.lay.chunk_count {
            return None;
        }
        let class = self.class_of(chunk)?;
        Some(BufferLocation { chunk, index: (at & (words - 1)) / CLASSES[class], class })
    }

    /// Returns the number of the buffer at a location.
    fn number(&self, location: BufferLocation) -> u32 {
        let BufferLocation { chunk, index, class } = location;
        ((chunk * self.lay.chunk.words + index * CLASSES[class]) / UNIT + 1) as u32
    }

    /// Returns the maximum size of a commit record in bytes.
    pub fn largest_record(&self) -> usize {
        self.lay.chunk.largest_record()
    }

    fn class_of(&self, chunk: usize) -> Option<usize> {
        let class = self.word(self.meta(chunk)).load(Ordering::Acquire) & 0xff;
        usize::try_from(class).ok()?.checked_sub(1).filter(|c| *c < self.lay.chunk.classes)
    }

    /// Returns the words of a buffer after its header; `None` if there is no such buffer.
    #[inline]
    pub(super) fn capacity(&self, number: u32) -> Option<usize> {
        self.locate(number).map(|location| CLASSES[location.class] - BUFFER_HEADER)
    }

    /// Returns the current use of a buffer.
    #[inline]
    pub(super) fn in_use(&self, number: u32) -> Buffer {
        let (generation, _) = halves(self.word(self.buffer(number)).load(Ordering::Acquire));
        Buffer { number, generation }
    }

    /// Sets a flag for this use of the buffer, on behalf of worker `by` if the caller is a worker.
    ///
    /// `SUPERSEDED` and `SENT` together end the use.
    pub(super) fn mark(&self, buffer: Buffer, flag: u32, by: Option<u8>) -> FlagOutcome {
        let Some(BufferLocation { chunk, .. }) = self.locate(buffer.number) else { return FlagOutcome::Stale };
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
                // If the worker dies before it frees the buffer, recovery finds the buffer by this
                // note.
                self.note_freeing(by, buffer.to_word());
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

    /// Sets a flag as [`Region::mark`] does, and frees the buffer if that ends its use.
    pub(super) fn mark_and_free(&self, buffer: Buffer, flag: u32, by: Option<u8>) {
        if self.mark(buffer, flag, by) == FlagOutcome::Free {
            self.free_buffer(buffer.number);
            self.note_freeing(by, 0);
        }
    }

    /// Completes the freeing of a buffer by a dead worker.
    ///
    /// A later allocation clears the pending flag before it sets the bit. So if the bit is seen set
    /// and then the flag is seen set, the dead worker has not freed the buffer.
    pub(super) fn finish_free(&self, buffer: Buffer) {
        let Some(BufferLocation { chunk, index, .. }) = self.locate(buffer.number) else { return };
        let bit = self.word(self.meta(chunk) + 1 + index / 64).load(Ordering::Acquire) >> (index % 64) & 1;
        let pending = joined(buffer.generation.wrapping_add(1), PENDING);
        if bit == 1 && self.word(self.buffer(buffer.number)).load(Ordering::Acquire) == pending {
            self.free_buffer(buffer.number);
        }
    }

    /// Returns true if another process is about to free the buffer.
    pub(super) fn is_pending(flags: u32) -> bool {
        flags & PENDING != 0
    }

    /// Ends a use that nothing refers to.
    pub(super) fn invalidate(&self, buffer: Buffer) {
        let word = self.word(self.buffer(buffer.number));
        let now = word.load(Ordering::Acquire);
        if halves(now).0 == buffer.generation {
            let next = joined(buffer.generation.wrapping_add(1), 0);
            // Only the owner, or the process that recovers the dead owner, invalidates a buffer.
            // Failure means that another process has ended the use.
            let _ = word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Frees a buffer for reuse by its chunk's owner.
    pub(super) fn free_buffer(&self, number: u32) {
        if let Some(BufferLocation { chunk, index, .. }) = self.locate(number) {
            self.word(self.meta(chunk) + 1 + index / 64).fetch_and(!(1 << (index % 64)), Ordering::Release);
        }
    }

    /// Returns the allocated buffers of a chunk.
    pub(super) fn allocated_in(&self, chunk: usize) -> Vec<u32> {
        let Some(class) = self.class_of(chunk) else { return Vec::new() };
        let bits = |index: usize| self.word(self.meta(chunk) + 1 + index / 64).load(Ordering::Acquire) >> (index % 64);
        let places = (0..self.lay.chunk.words / CLASSES[class]).filter(|index| bits(*index) & 1 != 0);
        places.map(|index| self.number(BufferLocation { chunk, index, class })).collect()
    }

    /// Returns the allocated buffers of the chunks that a worker owns.
    pub(super) fn owned_by(&self, worker: u8) -> impl Iterator<Item = u32> {
        self.chunks_of(worker).flat_map(|chunk| self.allocated_in(chunk))
    }

    fn chunks_of(&self, worker: u8) -> impl Iterator<Item = usize> {
        (0..self.lay.chunk_count).filter(move |chunk| self.is_chunk_of(*chunk, worker))
    }

    pub(super) fn is_chunk_of(&self, chunk: usize, worker: u8) -> bool {
        let meta = self.word(self.meta(chunk)).load(Ordering::Acquire);
        meta != 0 && meta >> 8 == u64::from(worker)
    }

    /// Returns true if a worker ever owned the chunk.
    pub(super) fn is_chunk_used(&self, chunk: usize) -> bool {
        self.word(self.meta(chunk)).load(Ordering::Acquire) != 0
    }

    /// Returns true if no buffer of the chunk is allocated.
    fn is_free(&self, chunk: usize) -> bool {
        (1..self.lay.chunk.meta).all(|word| self.word(self.meta(chunk) + word).load(Ordering::Acquire) == 0)
    }

    /// Releases a worker's chunk, so that any worker may claim it.
    pub(super) fn disown_chunk(&self, chunk: usize) {
        let meta = self.word(self.meta(chunk));
        meta.store(meta.load(Ordering::Relaxed) & 0xff | NO_OWNER << 8, Ordering::Release);
    }

    /// Returns the number of allocated buffers of the region, and the bytes of all claimed chunks.
    pub fn heap_use(&self) -> (usize, usize) {
        let chunks = (0..self.lay.chunk_count).filter(|chunk| self.class_of(*chunk).is_some());
        let size = self.lay.chunk.words * WORD;
        chunks.fold((0, 0), |(buffers, octets), chunk| (buffers + self.allocated_in(chunk).len(), octets + size))
    }
}

impl Arena {
    /// Allocates a buffer with room for `octets` bytes, for exclusive use. Its generation is a
    /// fresh one.
    pub(super) fn take(&mut self, region: &Region, worker: u8, octets: usize) -> Option<u32> {
        let words = BUFFER_HEADER + octets.div_ceil(WORD);
        let classes = region.lay.chunk.classes;
        let first = CLASSES[..classes].partition_point(|c| *c < words);
        // A slightly larger free buffer is preferred to a new chunk. Otherwise UEs whose commit
        // records all shrink or grow, as when they become idle, would need memory for both sizes.
        let near = (first..classes).take_while(|class| CLASSES[*class] * 4 <= CLASSES[first] * 5);
        let there = near.into_iter().find_map(|class| self.classes[class].take(region, class));
        let any = || (first..classes).find_map(|class| self.take_class(region, worker, class));
        let number = there.or_else(any)?;
        // Orders a reader's loads of the buffer's previous use before the writes of the new one.
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
        class.search(region, index, class.chunks.len())
    }

    /// Claims a chunk: one of this size without an owner and with room, else a fresh one.
    fn claim(&mut self, region: &Region, worker: u8, class: usize) -> Option<u32> {
        let count = region.lay.chunk_count;
        // All chunks below the position of the last fresh one have been in use.
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
        let orphan = now == (class as u64 + 1) | NO_OWNER << 8;
        let room = now == 0 && fresh || orphan && region.free_place(chunk, class).is_some();
        let mine = (class as u64 + 1) | u64::from(worker) << 8;
        room && meta.compare_exchange(now, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Releases the chunks whose buffers are all free, except for a few.
    ///
    /// Otherwise, when UEs move between workers, each worker would keep memory for all of them.
    pub(super) fn trim(&mut self, region: &Region) {
        for class in &mut self.classes {
            class.spare.drain(..).for_each(|number| region.free_buffer(number));
            let mut spare = 0;
            // Only this worker allocates buffers of these chunks: a free chunk stays free.
            class.chunks.retain(|chunk| {
                let free = region.is_free(*chunk as usize);
                spare += usize::from(free);
                let leave = free && spare > MAX_EMPTY_CHUNKS;
                if leave {
                    region.disown_chunk(*chunk as usize);
                }
                !leave
            });
            class.cursor = 0;
        }
    }

    /// Frees a buffer. A buffer of the worker's own chunks is kept for its next commit record.
    pub(super) fn free(&mut self, region: &Region, worker: u8, number: u32) {
        let Some(BufferLocation { chunk, class, .. }) = region.locate(number) else { return };
        let spare = &mut self.classes[class].spare;
        if region.owner_of(chunk) == u64::from(worker) && spare.len() < MAX_SPARE_BUFFERS {
            spare.push(number);
        } else {
            region.free_buffer(number);
        }
    }
}

impl Region {
    fn free_place(&self, chunk: usize, class: usize) -> Option<usize> {
        let places = self.lay.chunk.words / CLASSES[class];
        (0..places.div_ceil(64)).find_map(|i| {
            let bits = self.word(self.meta(chunk) + 1 + i).load(Ordering::Acquire);
            let index = i * 64 + (!bits).trailing_zeros() as usize;
            (bits != u64::MAX && index < places).then_some(index)
        })
    }
}

impl Class {
    /// Allocates a free buffer if a short search finds one.
    fn take(&mut self, region: &Region, class: usize) -> Option<u32> {
        self.spare.pop().or_else(|| self.search(region, class, MAX_CHECKED))
    }

    fn search(&mut self, region: &Region, class: usize, chunks: usize) -> Option<u32> {
        for _ in 0..chunks.min(self.chunks.len()) {
            let chunk = self.chunks[self.cursor] as usize;
            if let Some(index) = region.free_place(chunk, class) {
                let number = region.number(BufferLocation { chunk, index, class });
                let word = region.word(region.buffer(number));
                let (generation, flags) = halves(word.load(Ordering::Relaxed));
                if Region::is_pending(flags) {
                    // Before the bit: a process that sees the bit knows that no process is about to
                    // free the buffer.
                    word.store(joined(generation, 0), Ordering::Relaxed);
                }
                // Only this worker sets bits of this chunk.
                region.word(region.meta(chunk) + 1 + index / 64).fetch_or(1 << (index % 64), Ordering::AcqRel);
                return Some(number);
            }
            self.cursor = (self.cursor + 1) % self.chunks.len();
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LARGEST, Region};
    use crate::CommitError;
    use crate::region::{CommitRecord, RegionConfig, Snapshot, Worker};
    use vireo_types::Ltmsi;

    fn commit(region: &Region, worker: &mut Worker, number: u32, context: &[u8]) -> Result<(), CommitError> {
        let ltmsi = Ltmsi::from_raw(number);
        let slot = region.slot_of(ltmsi).unwrap_or_else(|| worker.insert(ltmsi).unwrap());
        let mut seen = Snapshot::default();
        let _ = region.read(slot, &mut seen);
        let done = worker.commit(slot, &seen, &CommitRecord { context, ..CommitRecord::default() })?;
        worker.sent(done.buffer);
        Ok(())
    }

    #[test]
    fn large_record_needs_region_with_large_ones() {
        let config = RegionConfig::new(3000, 1, 64 << 20);
        let small = Region::create(config).unwrap();
        let large = Region::create(RegionConfig { large_records: true, ..config }).unwrap();
        for (region, most) in [(&small, LARGEST), (&large, 4 * LARGEST + 3 * 56)] {
            assert_eq!(region.largest_record(), most);
            let mut worker = region.join(0).unwrap();
            for octets in [100, 60 << 10, most, 100, most] {
                let context = vec![octets as u8; octets];
                assert_eq!(commit(region, &mut worker, 1, &context), Ok(()), "{octets}");
                let mut seen = Snapshot::default();
                assert!(region.read(region.slot_of(Ltmsi::from_raw(1)).unwrap(), &mut seen));
                assert_eq!(seen.context, context);
            }
            let refused = commit(region, &mut worker, 1, &vec![1; most + 1]);
            assert_eq!(refused, Err(CommitError::TooLarge(most + 8)));
        }
        // A process that maps the region knows its chunks.
        let other = Region::attach(large.share().unwrap()).unwrap();
        assert_eq!((other.largest_record(), other.config()), (large.largest_record(), large.config()));
    }

    /// A chunk of 256 KiB has 1024 of the smallest buffers, more than a chunk of 64 KiB has bits.
    #[test]
    fn small_records_share_large_chunk() {
        let config = RegionConfig { large_records: true, ..RegionConfig::new(3000, 1, 64 << 20) };
        let region = Region::create(config).unwrap();
        let mut worker = region.join(0).unwrap();
        for number in 0..3000_u32 {
            assert_eq!(commit(&region, &mut worker, number + 1, &number.to_be_bytes()), Ok(()));
        }
        for number in 0..3000_u32 {
            let mut seen = Snapshot::default();
            assert!(region.read(region.slot_of(Ltmsi::from_raw(number + 1)).unwrap(), &mut seen));
            assert_eq!(seen.context, number.to_be_bytes());
        }
        let (buffers, octets) = region.heap_use();
        assert_eq!((buffers >= 3000, octets), (true, 3 * (256 << 10)));
    }
}
