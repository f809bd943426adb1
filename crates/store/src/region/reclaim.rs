//! What becomes of all that a dead worker held and that no UE refers to: slots that it was filling or emptying, buffers,
//! packets, and its number.
//!
//! The other workers go on meanwhile, and may be using what the dead one left: its records are current still and are
//! superseded, its packets wait in mailboxes and are carried out. So each thing is freed by the state it was seen in,
//! or not at all. Nothing is taken out of a dead worker's chunks until they have been looked through.

use super::heap::{self, Buffer};
use super::mem::Ordering;
use super::slots::{B_PLACE, B_PREVIOUS, LEAVING, S_ID, S_LEAVING};
use super::{DeadWorker, Region, Slot, Worker, halves};

/// Slots or packets that cost about as much to look at as a chunk.
const CHUNK_COST: usize = 32;

/// A dead worker being reclaimed, in pieces. Dropped before it is done, the worker stays buried; it is buried and
/// reclaimed again then.
#[derive(Debug)]
pub struct Reclaim {
    region: Region,
    dead: DeadWorker,
    part: ReclaimPhase,
    at: usize,
    freed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReclaimPhase {
    Giving,
    Slots,
    Buffers,
    Packets,
    Chunks,
    Done,
}

impl Region {
    /// Begins to free what a dead worker held that no UE refers to, and its number. Its items in flight and the UEs that it
    /// was working for are taken over first, and what it committed has left.
    pub fn reclaim_begin(&self, dead: DeadWorker) -> Reclaim {
        Reclaim { region: self.clone(), dead, part: ReclaimPhase::Giving, at: 0, freed: 0 }
    }

    /// All of [`Region::reclaim_begin`] at once. Returns how many buffers became free.
    pub fn reclaim(&self, dead: DeadWorker) -> usize {
        let mut reclaim = self.reclaim_begin(dead);
        while !reclaim.advance(usize::MAX / 2) {}
        reclaim.freed
    }
}

impl Worker {
    /// As [`Region::reclaim`].
    pub fn reclaim(&mut self, dead: DeadWorker) -> usize {
        self.region.reclaim(dead)
    }
}

impl Reclaim {
    /// Goes on by a piece: about so many slots or packets are looked at (4,000 take a fraction of a millisecond). True if it
    /// is done: the number of the worker is free.
    pub fn advance(&mut self, amount: usize) -> bool {
        let (region, worker) = (&self.region, self.dead.number);
        let chunks = region.lay.chunk_count;
        let (size, next) = match self.part {
            ReclaimPhase::Giving => (1, ReclaimPhase::Slots),
            ReclaimPhase::Slots => (region.lay.slot_count, ReclaimPhase::Buffers),
            ReclaimPhase::Buffers => (chunks, ReclaimPhase::Packets),
            ReclaimPhase::Packets => (region.packet_count() as usize, ReclaimPhase::Chunks),
            ReclaimPhase::Chunks => (chunks, ReclaimPhase::Done),
            ReclaimPhase::Done => return true,
        };
        let amount = if self.part == ReclaimPhase::Buffers { amount / CHUNK_COST } else { amount };
        let end = self.at.saturating_add(amount.max(1)).min(size);
        let places = self.at..end;
        match self.part {
            ReclaimPhase::Giving => {
                Buffer::from_word(region.giving(worker)).into_iter().for_each(|buffer| region.finish_free(buffer));
            }
            ReclaimPhase::Slots => places.for_each(|slot| region.reclaim_slot(slot as u32, worker)),
            ReclaimPhase::Buffers => {
                let mine = places.filter(|chunk| region.is_chunk_of(*chunk, worker));
                self.freed += mine.map(|chunk| region.reclaim_buffers(chunk)).sum::<usize>();
            }
            ReclaimPhase::Packets => places.for_each(|number| region.reclaim_packet(worker, number as u32)),
            // When all of them have been looked through: a buffer of one says what is in another.
            ReclaimPhase::Chunks => {
                places.filter(|chunk| region.is_chunk_of(*chunk, worker)).for_each(|chunk| region.disown_chunk(chunk));
            }
            ReclaimPhase::Done => {}
        }
        self.at = end;
        if end == size {
            (self.part, self.at) = (next, 0);
        }
        if self.part == ReclaimPhase::Done {
            region.dismiss(worker);
        }
        self.part == ReclaimPhase::Done
    }

    /// Buffers that became free until now.
    pub fn freed(&self) -> usize {
        self.freed
    }
}

impl Region {
    /// A slot that a dead worker took and never filled, or was emptying.
    fn reclaim_slot(&self, slot: u32, worker: u8) {
        let id = self.word(self.slot(slot, S_ID));
        let now = id.load(Ordering::Acquire);
        if now == 0 || (now >> 32) as u8 != worker {
            return;
        }
        let leaving = self.word(self.slot(slot, S_LEAVING)).load(Ordering::Acquire);
        if halves(self.current(slot)).1 != 0 {
            // What it was removing is there still, or another record is. The note of which it was does no harm.
            let _ = id.compare_exchange(now, now & !LEAVING, Ordering::AcqRel, Ordering::Relaxed);
            return;
        }
        if let Some(removed) = Buffer::from_word(leaving) {
            self.mark_and_free(removed, heap::SUPERSEDED, None);
        }
        let empty = || id.load(Ordering::Acquire) == now && halves(self.current(slot)).1 == 0;
        match self.hold_idle(Slot(slot), worker, empty) {
            Ok(true) => {
                self.release(slot);
                self.release_idle(Slot(slot));
            }
            Ok(false) => {}
            // Who works for it now fills it or empties it, and answers for it from here on.
            Err(holder) => {
                let theirs = u64::from(holder) << 32 | now & (LEAVING | u64::from(u32::MAX));
                let _ = id.compare_exchange(now, theirs, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// The buffers of a dead worker's chunk that nothing refers to become free. Returns how many.
    fn reclaim_buffers(&self, chunk: usize) -> usize {
        let mut freed = 0;
        for number in self.taken_of(chunk) {
            let base = self.buffer(number);
            let slot = self.word(base + B_PLACE).load(Ordering::Acquire) as u32;
            // Before the flags: who supersedes a record says before that it was committed.
            let current = (slot as usize) < self.lay.slot_count && halves(self.current(slot)).1 == number;
            let (generation, flags) = halves(self.word(base).load(Ordering::Acquire));
            if current {
                // It died between its commit and the word about it.
                if let Some(previous) = Buffer::from_word(self.word(base + B_PREVIOUS).load(Ordering::Acquire)) {
                    self.mark_and_free(previous, heap::SUPERSEDED, None);
                }
            } else if flags & heap::COMMITTED == 0 && !Region::is_pending(flags) {
                self.invalidate(Buffer { number, generation });
                self.free_buffer(number);
                freed += 1;
            }
        }
        freed
    }
}
