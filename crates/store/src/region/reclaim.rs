//! Recovery of slots, buffers, packets and the number of a dead worker.
//!
//! It frees everything that the worker held and no UE refers to: slots being filled or emptied,
//! buffers, packets, and the worker number.
//!
//! The other workers run meanwhile and may use the state of the dead one. Its current commit
//! records are superseded, and its packets in mailboxes are processed. So each item is freed only
//! if it is still in the state in which it was seen. No buffer of a dead worker's chunks is
//! allocated until all the chunks have been scanned.

use super::heap::{self, Buffer};
use super::mem::Ordering;
use super::slots::{B_PLACE, B_PREVIOUS, LEAVING, S_ID, S_LEAVING};
use super::{DeadWorker, Region, Slot, Worker, halves};

/// Slots or packets whose check costs about as much as that of a chunk.
const CHUNK_COST: usize = 32;

/// Recovery of a dead worker, in pieces.
///
/// If it is dropped before its end, the worker stays marked as dead and must be marked and
/// reclaimed again.
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
    Freeing,
    Slots,
    Buffers,
    Packets,
    Chunks,
    Done,
}

impl Region {
    /// Begins to free the worker number and everything that the worker held and no UE refers to.
    ///
    /// Before this call, its items in flight and its UEs must be taken over, and the effects of its
    /// commit records sent.
    pub fn reclaim_begin(&self, dead: DeadWorker) -> Reclaim {
        Reclaim { region: self.clone(), dead, part: ReclaimPhase::Freeing, at: 0, freed: 0 }
    }

    /// Runs [`Region::reclaim_begin`] to its end. Returns how many buffers became free.
    pub fn reclaim(&self, dead: DeadWorker) -> usize {
        let mut reclaim = self.reclaim_begin(dead);
        while !reclaim.advance(usize::MAX / 2) {}
        reclaim.freed
    }
}

impl Worker {
    /// Reclaims a dead worker as [`Region::reclaim`] does.
    pub fn reclaim(&mut self, dead: DeadWorker) -> usize {
        self.region.reclaim(dead)
    }
}

impl Reclaim {
    /// Continues by about `amount` slots or packets (4,000 take a fraction of a millisecond).
    ///
    /// Returns true when the recovery is complete and the number of the worker is free.
    pub fn advance(&mut self, amount: usize) -> bool {
        let (region, worker) = (&self.region, self.dead.number);
        let chunks = region.lay.chunk_count;
        let (size, next) = match self.part {
            ReclaimPhase::Freeing => (1, ReclaimPhase::Slots),
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
            ReclaimPhase::Freeing => {
                Buffer::from_word(region.freeing(worker)).into_iter().for_each(|buffer| region.finish_free(buffer));
            }
            ReclaimPhase::Slots => places.for_each(|slot| region.reclaim_slot(slot as u32, worker)),
            ReclaimPhase::Buffers => {
                let mine = places.filter(|chunk| region.is_chunk_of(*chunk, worker));
                self.freed += mine.map(|chunk| region.reclaim_buffers(chunk)).sum::<usize>();
            }
            ReclaimPhase::Packets => places.for_each(|number| region.reclaim_packet(worker, number as u32)),
            // After the scan of all chunks: a buffer of one chunk refers to buffers of others.
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
            region.remove_worker(worker);
        }
        self.part == ReclaimPhase::Done
    }

    /// Returns how many buffers have become free so far.
    pub fn freed(&self) -> usize {
        self.freed
    }
}

impl Region {
    /// Recovers a slot that the dead worker took and never filled, or was emptying.
    fn reclaim_slot(&self, slot: u32, worker: u8) {
        let id = self.word(self.slot(slot, S_ID));
        let now = id.load(Ordering::Acquire);
        if now == 0 || (now >> 32) as u8 != worker {
            return;
        }
        let leaving = self.word(self.slot(slot, S_LEAVING)).load(Ordering::Acquire);
        if halves(self.current(slot)).1 != 0 {
            // The commit record that the worker was removing is still current, or another one is.
            // The note of the removed record does no harm.
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
            // The current holder fills or empties the slot, and is responsible for it from here on.
            Err(holder) => {
                let theirs = u64::from(holder) << 32 | now & (LEAVING | u64::from(u32::MAX));
                let _ = id.compare_exchange(now, theirs, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Frees the buffers of a dead worker's chunk that nothing refers to, and returns their number.
    fn reclaim_buffers(&self, chunk: usize) -> usize {
        let mut freed = 0;
        for number in self.allocated_in(chunk) {
            let base = self.buffer(number);
            let slot = self.word(base + B_PLACE).load(Ordering::Acquire) as u32;
            // Read before the flags: a process that supersedes a commit record first marks it as
            // committed.
            let current = (slot as usize) < self.lay.slot_count && halves(self.current(slot)).1 == number;
            let (generation, flags) = halves(self.word(base).load(Ordering::Acquire));
            if current {
                // The worker died between its commit and the mark on the superseded commit record.
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
