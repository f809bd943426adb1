//! UE slots and commits.
//!
//! The first word of a slot {version, buffer} identifies the current commit record of the UE. A
//! commit writes another buffer and changes that word by one compare-and-swap.
//!
//! A commit record holds the result of one step: the context, the sequence number of the consumed
//! input, and the outbox. The outbox contains the effects to execute. The buffer of a record is
//! freed when another record is current *and* its effects are sent.

use super::heap::{self, Buffer, FlagOutcome};
use super::layout::{BUFFER_HEADER, SLOT};
use super::mem::{Ordering, WORD, fence};
use super::{DeadWorker, Region, Worker, halves, joined};
use crate::{CommitError, Version};
use vireo_types::Instant;

pub(super) const S_WORD: usize = 0;
/// {leaving 1 | worker 8 at bit 32 | 1 + LTMSI}.
///
/// The LTMSI is that of the slot's UE. The worker has taken the slot or is emptying it.
pub(super) const S_ID: usize = 1;
// Words 2 and 3 hold the mailbox, 4 to 6 and 8 to 11 identifiers, 12 and 13 notes of numbers.
/// In word `S_ID` of a slot: a worker is emptying the slot.
pub(super) const LEAVING: u64 = 1 << 63;
/// The last commit record, while it is being removed.
pub(super) const S_LEAVING: usize = 7;

pub(super) const B_PLACE: usize = 1;
pub(super) const B_PREVIOUS: usize = 2;
const B_CONSUMED: usize = 3;
const B_DEADLINE: usize = 4;
const B_LENGTHS: usize = 5;
const B_PIN: usize = 6;

/// Number of a UE's slot. It stays valid while the UE is in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(super) u32);

impl Slot {
    /// Returns the slot number, which fits into a ring item. [`Region::slot_at`] is the inverse.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Contents of a commit record, as the committing worker passes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitRecord<'a> {
    /// Sequence number of the last input consumed. Inputs at or below it have been executed.
    pub consumed: u64,
    /// Time of the next timer event of the UE; `None` if none is set.
    pub deadline: Option<Instant>,
    /// Binding of the UE's procedure, encoded by the host.
    pub pin: u64,
    /// Encoded context, opaque to the region.
    pub context: &'a [u8],
    /// Encoded effects, opaque to the region.
    pub outbox: &'a [u8],
}

/// A consistent copy of a commit record. Reusing the value avoids allocations.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(super) word: u64,
    buffer: Option<Buffer>,
    /// Sequence number of the last input consumed.
    pub consumed: u64,
    /// Time of the next timer event of the UE; `None` if none is set.
    pub deadline: Option<Instant>,
    /// Binding of the UE's procedure, encoded by the host.
    pub pin: u64,
    /// True if the effects are noted as sent.
    pub sent: bool,
    /// Encoded context; empty if the commit record was read without it.
    pub context: Vec<u8>,
    /// Encoded effects, opaque to the region.
    pub outbox: Vec<u8>,
}

impl Snapshot {
    /// Returns the version of the commit record; 0 = none.
    pub fn version(&self) -> Version {
        if self.buffer.is_some() { halves(self.word).0 } else { 0 }
    }

    /// Returns the buffer of the commit record, which identifies it to the egress.
    pub fn buffer(&self) -> Option<Buffer> {
        self.buffer
    }
}

/// A successful commit.
///
/// The effects may be sent only after it. The egress calls [`Worker::sent`] with `buffer` when it
/// has sent them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the effects leave now, and the egress is told of the buffer"]
pub struct Committed {
    /// Version of the new commit record.
    pub version: Version,
    /// Buffer of the new commit record, including its effects.
    pub buffer: Buffer,
    /// Buffer of the superseded commit record. It is freed when the effects of that record are sent
    /// too.
    pub old: Option<Buffer>,
}

/// Location of a context in its buffer, and its deadline.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextLocation {
    /// Number of the first word in the region.
    pub(crate) word: usize,
    pub(crate) length: usize,
    pub(crate) deadline: Option<Instant>,
}

impl Committed {
    /// Returns a snapshot of this commit record without context and effects, as the base of the
    /// next commit.
    pub fn snapshot(&self, consumed: u64) -> Snapshot {
        let word = joined(self.version, self.buffer.number);
        Snapshot { word, buffer: Some(self.buffer), consumed, ..Snapshot::default() }
    }
}

impl Region {
    #[inline]
    pub(super) fn slot(&self, slot: u32, word: usize) -> usize {
        self.lay.slots + slot as usize * SLOT + word
    }

    /// Returns the slot of a number, such as a ring item; `None` if the region has fewer slots.
    pub fn slot_at(&self, number: impl Into<u64>) -> Option<Slot> {
        let number = number.into();
        (number < self.lay.slot_count as u64).then_some(Slot(number as u32))
    }

    /// Returns the number of slots, used or not.
    pub fn slot_count(&self) -> u32 {
        self.lay.slot_count as u32
    }

    /// Returns true if a slot is for a UE of another host.
    pub fn is_guest(&self, slot: Slot) -> bool {
        slot.0 >= self.lay.own_slots as u32
    }

    /// Returns the index of a guest slot ([`Worker::insert_guest`]).
    pub fn guest_index(&self, slot: Slot) -> Option<u32> {
        slot.0.checked_sub(self.lay.own_slots as u32)
    }

    /// Returns the version of the current commit record; 0 = none.
    pub fn version_of(&self, slot: Slot) -> Version {
        let (version, number) = halves(self.current(slot.0));
        if number == 0 { 0 } else { version }
    }

    /// Stores which worker is responsible for a slot that has no commit record, or loses it.
    ///
    /// Reclaiming a dead worker empties its slots. A slot that is being emptied is not filled (see
    /// [`Region::ltmsi_of`]).
    fn sign(&self, slot: u32, worker: u8, leaving: bool) {
        let sign = u64::from(worker) << 32 | if leaving { LEAVING } else { 0 };
        self.change_id(slot, |id| id & u64::from(u32::MAX) | sign);
    }

    /// Returns the word of the slot's current commit record: {version, buffer}.
    #[inline]
    pub(super) fn current(&self, slot: u32) -> u64 {
        self.word(self.slot(slot, S_WORD)).load(Ordering::Acquire)
    }

    /// Returns true if the commit record of `seen` is still the current one.
    #[inline]
    pub fn is_current(&self, slot: Slot, seen: &Snapshot) -> bool {
        self.current(slot.0) == seen.word
    }

    /// Reads the commit record of a UE. Returns false if there is none.
    pub fn read(&self, slot: Slot, to: &mut Snapshot) -> bool {
        loop {
            to.word = self.current(slot.0);
            let number = halves(to.word).1;
            if number == 0 {
                to.buffer = None;
                to.context.clear();
                to.outbox.clear();
                return false;
            }
            // The commit record is about as long as the previous one. Its lines are fetched before
            // its length is known.
            self.mem.touch(self.buffer(number), BUFFER_HEADER + to.context.len() / WORD);
            let read = self.read_buffer(number, to, true);
            fence(Ordering::Acquire);
            if self.word(self.slot(slot.0, S_WORD)).load(Ordering::Relaxed) == to.word {
                if read {
                    return true;
                }
                // A buffer is rewritten only when another commit record is current. So this buffer
                // holds no valid record.
                self.mem.fault();
                (to.word, to.buffer) = (0, None);
                to.context.clear();
                to.outbox.clear();
                return false;
            }
        }
    }

    /// Returns true if the buffer holds the current commit record of the slot.
    pub fn is_record_of(&self, slot: Slot, buffer: Buffer) -> bool {
        halves(self.current(slot.0)).1 == buffer.number && self.in_use(buffer.number) == buffer
    }

    /// Returns true if the slot refers to an invalid commit record.
    ///
    /// The UE is lost. [`Worker::evict`] frees the slot.
    pub fn is_broken(&self, slot: Slot) -> bool {
        let now = self.current(slot.0);
        let (version, number) = halves(now);
        let broken = number != 0 && {
            let base = self.buffer(number);
            let place = self.word(base + B_PLACE).load(Ordering::Relaxed);
            let (context, outbox) = halves(self.word(base + B_LENGTHS).load(Ordering::Relaxed));
            let words = (context as usize).div_ceil(WORD) + (outbox as usize).div_ceil(WORD);
            place != joined(version, slot.0) || self.capacity(number).is_none_or(|capacity| words > capacity)
        };
        fence(Ordering::Acquire);
        broken && self.word(self.slot(slot.0, S_WORD)).load(Ordering::Relaxed) == now
    }

    /// Returns the buffer of an item of an effect queue; `None` if that use of the buffer is over.
    pub fn buffer_of(&self, item: u64) -> Option<Buffer> {
        let number = item as u32;
        self.capacity(number)?;
        Some(self.in_use(number)).filter(|buffer| buffer.to_item() == item)
    }

    /// Reads a commit record without its context, for its effects.
    ///
    /// Returns false if the record was never committed, or is superseded with its effects sent.
    pub fn read_outbox(&self, buffer: Buffer, to: &mut Snapshot) -> bool {
        self.read_record(buffer, to, false)
    }

    /// Reads a commit record as [`Region::read_outbox`] does, optionally with its context.
    pub fn read_record(&self, buffer: Buffer, to: &mut Snapshot, with_context: bool) -> bool {
        to.word = 0;
        to.buffer = None;
        to.context.clear();
        if self.capacity(buffer.number).is_none() || self.in_use(buffer.number) != buffer {
            return false;
        }
        let read = self.read_buffer(buffer.number, to, with_context) && self.was_committed(buffer.number);
        fence(Ordering::Acquire);
        read && self.in_use(buffer.number) == buffer
    }

    /// Returns true if the commit record in the buffer is or was current in its slot.
    fn was_committed(&self, number: u32) -> bool {
        let base = self.buffer(number);
        let (version, slot) = halves(self.word(base + B_PLACE).load(Ordering::Acquire));
        let current = || (slot as usize) < self.lay.slot_count && self.current(slot) == joined(version, number);
        current() || halves(self.word(base).load(Ordering::Acquire)).1 & heap::COMMITTED != 0
    }

    /// Returns the slot of a commit record; `None` if that use of the buffer is over.
    pub fn slot_of_buffer(&self, buffer: Buffer) -> Option<Slot> {
        self.place_of_buffer(buffer).map(|(slot, _)| slot)
    }

    /// Returns the slot and version of a commit record; `None` if that use of the buffer is over.
    ///
    /// The version is one higher than that of the previous record of the slot.
    pub fn place_of_buffer(&self, buffer: Buffer) -> Option<(Slot, Version)> {
        self.capacity(buffer.number)?;
        let (version, slot) = halves(self.word(self.buffer(buffer.number) + B_PLACE).load(Ordering::Acquire));
        fence(Ordering::Acquire);
        let slot = self.slot_at(slot).filter(|_| self.in_use(buffer.number) == buffer)?;
        Some((slot, version))
    }

    /// Copies a buffer, optionally with its context.
    ///
    /// Returns false if the contents cannot be a commit record, because a worker is writing them.
    fn read_buffer(&self, number: u32, to: &mut Snapshot, with_context: bool) -> bool {
        let base = self.buffer(number);
        let get = |word: usize| self.word(base + word).load(Ordering::Relaxed);
        let (generation, flags) = halves(self.word(base).load(Ordering::Acquire));
        let (context, outbox) = halves(get(B_LENGTHS));
        let (context, outbox) = (context as usize, outbox as usize);
        let words = context.div_ceil(WORD) + outbox.div_ceil(WORD);
        if self.capacity(number).is_none_or(|capacity| words > capacity) {
            return false;
        }
        to.buffer = Some(Buffer { number, generation });
        to.sent = flags & heap::SENT != 0;
        to.consumed = get(B_CONSUMED);
        to.deadline = deadline(get(B_DEADLINE));
        to.pin = get(B_PIN);
        if with_context {
            self.mem.read_over(base + BUFFER_HEADER, context, &mut to.context);
        }
        self.mem.read_over(base + BUFFER_HEADER + context.div_ceil(WORD), outbox, &mut to.outbox);
        true
    }

    /// Returns the word of a slot, which identifies its current commit record.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn word_of(&self, slot: Slot) -> u64 {
        self.current(slot.0)
    }

    /// Returns the location and deadline of the context in a buffer.
    #[cfg(not(loom))]
    pub(crate) fn context_at(&self, number: u32) -> ContextLocation {
        let base = self.buffer(number);
        let length = halves(self.word(base + B_LENGTHS).load(Ordering::Relaxed)).0 as usize;
        let deadline = deadline(self.word(base + B_DEADLINE).load(Ordering::Relaxed));
        ContextLocation { word: base + BUFFER_HEADER, length, deadline }
    }

    /// Returns one header word of the slot's current commit record; `None` if there is no record.
    #[inline]
    fn peek(&self, slot: u32, word: usize) -> Option<u64> {
        loop {
            let now = self.current(slot);
            let number = halves(now).1;
            if number == 0 {
                return None;
            }
            let value = self.word(self.buffer(number) + word).load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if self.word(self.slot(slot, S_WORD)).load(Ordering::Relaxed) == now {
                return Some(value);
            }
        }
    }

    /// Returns the deadline of the slot's UE.
    pub fn deadline_of(&self, slot: Slot) -> Option<Instant> {
        self.peek(slot.0, B_DEADLINE).and_then(deadline)
    }

    /// Returns the pin of the slot's UE; 0 if there is no commit record.
    pub fn pin_of(&self, slot: Slot) -> u64 {
        self.peek(slot.0, B_PIN).unwrap_or(0)
    }

    /// Returns the sequence number of the last consumed input; 0 if there is no commit record.
    pub fn consumed_of(&self, slot: Slot) -> u64 {
        self.peek(slot.0, B_CONSUMED).unwrap_or(0)
    }

    /// Returns the slots that have a commit record, with their deadlines, among `count` slots from
    /// `from` on.
    ///
    /// It serves a sweep over all slots of own UEs in pieces.
    pub fn slots_from(&self, from: u32, count: u32) -> impl Iterator<Item = (Slot, Option<Instant>)> {
        let end = from.saturating_add(count).min(self.lay.own_slots as u32);
        (from..end).filter_map(|slot| self.peek(slot, B_DEADLINE).map(|due| (Slot(slot), deadline(due))))
    }

    /// Returns all slots of own UEs that have a commit record.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..self.lay.own_slots as u32).map(Slot).filter(|slot| halves(self.current(slot.0)).1 != 0)
    }

    /// Counts the used slots below number `below`, and those of them that are held or have waiting
    /// packets.
    ///
    /// A used slot has a UE, with or without a commit record.
    pub fn slots_used(&self, below: u32) -> (usize, usize) {
        let used = |slot: &u32| self.word(self.slot(*slot, S_ID)).load(Ordering::Relaxed) != 0;
        let slots = (0..below.min(self.slot_count())).filter(used);
        slots.fold((0, 0), |(all, busy), slot| (all + 1, busy + usize::from(!self.is_idle(slot))))
    }

    /// Returns the bytes of the buffers that hold the current commit records of the slots below
    /// `below`.
    pub fn record_bytes(&self, below: u32) -> usize {
        let numbers = (0..below.min(self.slot_count())).map(|slot| halves(self.current(slot)).1);
        let words = numbers.filter_map(|number| Some(self.capacity(number)? + BUFFER_HEADER));
        words.sum::<usize>() * WORD
    }

    /// Returns the commit records of a dead worker whose effects are not noted as sent.
    ///
    /// The process that takes over sends these effects before it reclaims the worker. They may be
    /// sent twice, with the same bytes. The function scans every record of the worker; see
    /// [`Region::last_of`].
    pub fn unsent(&self, dead: &DeadWorker) -> Vec<Buffer> {
        let unsent = self.owned_by(dead.number).filter_map(|number| {
            let (generation, flags) = halves(self.word(self.buffer(number)).load(Ordering::Acquire));
            (flags & heap::SENT == 0 && self.was_committed(number)).then_some(Buffer { number, generation })
        });
        unsent.collect()
    }

    /// Returns the last commit record of a dead worker, if its effects are not noted as sent.
    ///
    /// A worker may pass each record to the egress before it commits the next. Then this record is
    /// the only one that the egress may not know.
    pub fn last_of(&self, dead: &DeadWorker) -> Option<Buffer> {
        let last = Buffer::from_word(self.last_commit(dead.number))?;
        self.capacity(last.number)?;
        let (generation, flags) = halves(self.word(self.buffer(last.number)).load(Ordering::Acquire));
        let unsent = generation == last.generation && flags & heap::SENT == 0;
        (unsent && self.was_committed(last.number)).then_some(last)
    }

    /// Prepares to supersede the commit record of `seen`.
    ///
    /// Marks the record as committed. Also completes the supersession of the record before it,
    /// because the committer may have died before doing so.
    fn set_out(&self, slot: Slot, seen: u64, by: u8) -> Result<Option<Buffer>, CommitError> {
        let number = halves(seen).1;
        let old = (number != 0).then(|| self.in_use(number));
        let previous = old.map_or(0, |_| self.word(self.buffer(number) + B_PREVIOUS).load(Ordering::Acquire));
        // Versions never repeat: if the commit record is still current, it was current during all
        // reads above.
        if self.current(slot.0) != seen {
            return Err(CommitError::Conflict);
        }
        if let Some(previous) = Buffer::from_word(previous) {
            self.mark_and_free(previous, heap::SUPERSEDED, Some(by));
        }
        if let Some(old) = old {
            self.mark(old, heap::COMMITTED, Some(by));
        }
        Ok(old)
    }

    /// Clears the reference of the commit record in buffer `number` to its superseded predecessor.
    ///
    /// The buffer is in a chunk of the calling worker, which has allocated no other buffer since.
    /// So it still holds this record or is free.
    fn settle(&self, number: u32) {
        self.word(self.buffer(number) + B_PREVIOUS).store(0, Ordering::Release);
    }
}

/// Returns the version after `version`: that of the next commit record, or of its removal.
///
/// 0 is the version of a slot that was never used.
pub const fn next_version(version: Version) -> Version {
    match version.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

fn deadline(word: u64) -> Option<Instant> {
    (word != u64::MAX).then_some(Instant(word))
}

impl Worker {
    /// Frees a slot that has no commit record, because its UE was rejected.
    ///
    /// Returns false if the slot has a record or no UE. Only the holder of the UE, or the worker
    /// that has just inserted it, may call this.
    pub fn abandon(&mut self, slot: Slot) -> bool {
        let nobody = self.region.word(self.region.slot(slot.0, S_ID)).load(Ordering::Acquire) == 0;
        if nobody || halves(self.region.current(slot.0)).1 != 0 {
            return false;
        }
        self.region.sign(slot.0, self.number, true);
        self.region.release(slot.0);
        self.on_freed(slot);
        true
    }

    /// Frees a slot and its identifiers whatever the slot contains. The UE is lost.
    ///
    /// It is meant for slots that [are broken](Region::is_broken). Returns the new version of the
    /// slot.
    pub fn evict(&mut self, slot: Slot) -> Version {
        let region = &self.region;
        let word = region.word(region.slot(slot.0, S_WORD));
        let now = word.load(Ordering::Acquire);
        let (version, number) = halves(now);
        let next = next_version(version);
        region.sign(slot.0, self.number, true);
        word.store(joined(next, 0), Ordering::Release);
        if region.capacity(number).is_some() && !region.was_committed(number) {
            let buffer = region.in_use(number);
            self.done(buffer, heap::SUPERSEDED | heap::SENT);
        }
        self.region.word(self.region.slot(slot.0, S_LEAVING)).store(0, Ordering::Release);
        self.region.release_idle(slot);
        self.region.release(slot.0);
        next
    }

    /// Commits `record` for a UE if the commit record of `seen` is still current.
    ///
    /// # Errors
    ///
    /// Returns an error if another record is current or the region is full. Nothing has changed
    /// then.
    pub fn commit(&mut self, slot: Slot, seen: &Snapshot, record: &CommitRecord<'_>) -> Result<Committed, CommitError> {
        self.commit_word(slot, seen.word, record)
    }

    pub(crate) fn commit_word(
        &mut self,
        slot: Slot,
        seen: u64,
        record: &CommitRecord<'_>,
    ) -> Result<Committed, CommitError> {
        let octets = record.context.len().next_multiple_of(WORD) + record.outbox.len();
        if octets > self.region.largest_record() {
            return Err(CommitError::TooLarge(octets));
        }
        let number = self.arena.take(&self.region, self.number, octets).ok_or(CommitError::Full)?;
        let region = &self.region;
        let word = region.word(region.slot(slot.0, S_WORD));
        let old = match region.set_out(slot, seen, self.number) {
            Ok(old) => old,
            Err(error) => {
                self.arena.free(&self.region, self.number, number);
                return Err(error);
            }
        };
        let version = next_version(halves(seen).0);
        let buffer = region.fill(number, slot, version, old, record);
        region.note_commit(self.number, buffer.to_word());
        match word.compare_exchange(seen, joined(version, number), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                if let Some(old) = old {
                    self.done(old, heap::SUPERSEDED);
                    self.region.settle(number);
                }
                Ok(Committed { version, buffer, old })
            }
            Err(_) => {
                self.region.invalidate(buffer);
                self.arena.free(&self.region, self.number, number);
                Err(CommitError::Conflict)
            }
        }
    }

    /// Returns true if there is room for a commit record of this many bytes.
    ///
    /// With a single worker, the next commit then finds that room.
    pub(crate) fn has_room(&mut self, octets: usize) -> bool {
        let fits = octets <= self.region.largest_record();
        let number = fits.then(|| self.arena.take(&self.region, self.number, octets)).flatten();
        number.inspect(|number| self.arena.free(&self.region, self.number, *number)).is_some()
    }

    /// Removes the commit record of `seen` and its UE. Effects of that record may still be sent.
    ///
    /// # Errors
    ///
    /// Returns an error if another record is current. Nothing has changed then.
    pub fn remove(&mut self, slot: Slot, seen: &Snapshot) -> Result<(), CommitError> {
        self.remove_word(slot, seen.word)
    }

    pub(crate) fn remove_word(&mut self, slot: Slot, seen: u64) -> Result<(), CommitError> {
        let region = &self.region;
        let version = halves(seen).0;
        let word = region.word(region.slot(slot.0, S_WORD));
        let Some(old) = region.set_out(slot, seen, self.number)? else { return Err(CommitError::Conflict) };
        region.sign(slot.0, self.number, true);
        region.word(region.slot(slot.0, S_LEAVING)).store(old.to_word(), Ordering::Release);
        let next = joined(next_version(version), 0);
        let done = word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed);
        if done.is_ok() {
            self.done(old, heap::SUPERSEDED);
        } else {
            self.region.sign(slot.0, self.number, false);
        }
        self.region.word(self.region.slot(slot.0, S_LEAVING)).store(0, Ordering::Release);
        done.map_err(|_| CommitError::Conflict)?;
        self.region.release(slot.0);
        self.on_freed(slot);
        Ok(())
    }

    /// Remembers a slot that this worker has freed.
    fn on_freed(&mut self, slot: Slot) {
        if !self.region.is_guest(slot) {
            self.vacant.on_freed(slot.0);
        }
    }

    /// Notes that the effects of a commit record are sent. They are not requested again.
    pub fn sent(&mut self, buffer: Buffer) {
        self.done(buffer, heap::SENT);
    }

    pub(super) fn done(&mut self, buffer: Buffer, flag: u32) {
        if self.region.mark(buffer, flag, Some(self.number)) == FlagOutcome::Free {
            self.arena.free(&self.region, self.number, buffer.number);
            self.region.note_freeing(Some(self.number), 0);
        }
    }
}

impl Region {
    /// Notes that the effects of a commit record are sent, for callers that are not a worker.
    pub fn sent(&self, buffer: Buffer) {
        self.mark_and_free(buffer, heap::SENT, None);
    }

    fn fill(
        &self,
        number: u32,
        slot: Slot,
        version: Version,
        old: Option<Buffer>,
        record: &CommitRecord<'_>,
    ) -> Buffer {
        let base = self.buffer(number);
        let put = |word: usize, value: u64| self.word(base + word).store(value, Ordering::Relaxed);
        let generation = halves(self.word(base).load(Ordering::Relaxed)).0;
        let flags = if record.outbox.is_empty() { heap::SENT } else { 0 };
        put(0, joined(generation, flags));
        put(B_PLACE, joined(version, slot.0));
        put(B_PREVIOUS, old.map_or(0, Buffer::to_word));
        put(B_CONSUMED, record.consumed);
        put(B_DEADLINE, record.deadline.map_or(u64::MAX, |d| d.0));
        put(B_LENGTHS, joined(record.context.len() as u32, record.outbox.len() as u32));
        put(B_PIN, record.pin);
        self.mem.write(base + BUFFER_HEADER, record.context);
        self.mem.write(base + BUFFER_HEADER + record.context.len().div_ceil(WORD), record.outbox);
        Buffer { number, generation }
    }
}
