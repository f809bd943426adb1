//! UE slots and the commit. A slot's first word {version, buffer} says which record is a UE's; a commit writes another
//! buffer and changes that word by one compare-and-swap.
//!
//! A record is what one step made true: the context, the sequence number of the input that was consumed, and the outbox:
//! the effects that may leave now. Its buffer is free again when another record is current *and* its effects have left.

use super::heap::{self, Buffer, FlagOutcome};
use super::layout::{BUFFER_HEADER, SLOT};
use super::mem::{Ordering, WORD, fence};
use super::{DeadWorker, Region, Worker, halves, joined};
use crate::{CommitError, Version};
use vireo_types::Instant;

pub(super) const S_WORD: usize = 0;
/// {leaving 1 | worker 8 at bit 32 | 1 + LTMSI}: whose, and who took or is emptying the slot.
pub(super) const S_ID: usize = 1;
// Words 2 and 3 are the mailbox's, 4 to 6 and 8 to 11 hold identifiers, 12 and 13 notes of numbers.
/// In a slot's second word: it is being emptied.
pub(super) const LEAVING: u64 = 1 << 63;
/// The last record, while it is being removed.
pub(super) const S_LEAVING: usize = 7;

pub(super) const B_PLACE: usize = 1;
pub(super) const B_PREVIOUS: usize = 2;
const B_CONSUMED: usize = 3;
const B_DEADLINE: usize = 4;
const B_LENGTHS: usize = 5;
const B_PIN: usize = 6;

/// The slot of a UE, as long as the UE is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(super) u32);

impl Slot {
    /// Its number, which fits into a ring's item. [`Region::slot_at`] is the way back.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// What a step commits.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitRecord<'a> {
    /// The sequence number of the last input consumed: an input at or below it has been carried out.
    pub consumed: u64,
    /// When something is due.
    pub deadline: Option<Instant>,
    /// Whom the UE's procedure is pinned to, in the host's terms.
    pub pin: u64,
    /// The context.
    pub context: &'a [u8],
    /// The effects.
    pub outbox: &'a [u8],
}

/// What a reader finds: a record as it was at one moment. Kept and used again, it allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(super) word: u64,
    buffer: Option<Buffer>,
    /// The sequence number of the last input consumed.
    pub consumed: u64,
    /// When something is due.
    pub deadline: Option<Instant>,
    /// Whom the UE's procedure is pinned to.
    pub pin: u64,
    /// Whether its effects have left.
    pub sent: bool,
    /// The context.
    pub context: Vec<u8>,
    /// The effects.
    pub outbox: Vec<u8>,
}

impl Snapshot {
    /// The version of the record; 0 = none.
    pub fn version(&self) -> Version {
        if self.buffer.is_some() { halves(self.word).0 } else { 0 }
    }

    /// The buffer the record lies in: what the egress is told.
    pub fn buffer(&self) -> Option<Buffer> {
        self.buffer
    }
}

/// A commit that succeeded. Only now may its effects leave; when they have, [`Worker::sent`] is told of `buffer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the effects leave now, and the egress is told of the buffer"]
pub struct Committed {
    /// The version of the record.
    pub version: Version,
    /// Where the record lies, with its effects.
    pub buffer: Buffer,
    /// The record that it superseded: freed once its own effects have left.
    pub old: Option<Buffer>,
}

impl Committed {
    /// The record as who committed it knows it, without its octets: what the next commit goes by.
    pub fn seen(&self, consumed: u64) -> Snapshot {
        let word = joined(self.version, self.buffer.number);
        Snapshot { word, buffer: Some(self.buffer), consumed, ..Snapshot::default() }
    }
}

impl Region {
    #[inline]
    pub(super) fn slot(&self, slot: u32, word: usize) -> usize {
        self.lay.slots + slot as usize * SLOT + word
    }

    /// The slot of a number, as a ring's item for one; `None` if there are not so many.
    pub fn slot_at(&self, number: impl Into<u64>) -> Option<Slot> {
        let number = number.into();
        (number < self.lay.slot_count as u64).then_some(Slot(number as u32))
    }

    /// How many slots there are, used or not.
    pub fn slot_count(&self) -> u32 {
        self.lay.slot_count as u32
    }

    /// Notes who answers for a slot that has no record, or is to have none: a dead worker's are emptied when it is
    /// reclaimed. From the moment that a slot is being emptied nobody fills it any more (see [`Region::ltmsi_of`]).
    fn sign(&self, slot: u32, worker: u8, leaving: bool) {
        let sign = u64::from(worker) << 32 | if leaving { LEAVING } else { 0 };
        self.change_id(slot, |id| id & u64::from(u32::MAX) | sign);
    }

    /// The record that is current in a slot now: {version, buffer}.
    #[inline]
    pub(super) fn current(&self, slot: u32) -> u64 {
        self.word(self.slot(slot, S_WORD)).load(Ordering::Acquire)
    }

    /// Whether the record that was seen is still the one in force.
    #[inline]
    pub fn is_current(&self, slot: Slot, seen: &Snapshot) -> bool {
        self.current(slot.0) == seen.word
    }

    /// Reads the record of a UE; false if there is none.
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
            // About as large as the one before: its lines are on their way while its length is not known yet.
            self.mem.touch(self.buffer(number), BUFFER_HEADER + to.context.len() / WORD);
            let read = self.read_buffer(number, to, true);
            fence(Ordering::Acquire);
            if self.word(self.slot(slot.0, S_WORD)).load(Ordering::Relaxed) == to.word {
                if read {
                    return true;
                }
                // A buffer is written anew only when another record is current: what is there is no record.
                self.mem.fault();
                (to.word, to.buffer) = (0, None);
                to.context.clear();
                to.outbox.clear();
                return false;
            }
        }
    }

    /// Whether a buffer has the record that is current in a slot.
    pub fn is_record_of(&self, slot: Slot, buffer: Buffer) -> bool {
        halves(self.current(slot.0)).1 == buffer.number && self.in_use(buffer.number) == buffer
    }

    /// Whether what a slot says of its record cannot be: its UE is lost, and its slot is to be freed by [`Worker::evict`].
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

    /// The record that an item of a queue of effects speaks of; `None` if its use is over.
    pub fn buffer_of(&self, item: u64) -> Option<Buffer> {
        let number = item as u32;
        self.capacity(number)?;
        Some(self.in_use(number)).filter(|buffer| buffer.to_item() == item)
    }

    /// Reads a record without its context, for its effects; false if it was never committed, or is gone: superseded and
    /// its effects sent.
    pub fn read_outbox(&self, buffer: Buffer, to: &mut Snapshot) -> bool {
        self.read_record(buffer, to, false)
    }

    /// As [`Region::read_outbox`], with the context or without.
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

    /// Whether a buffer's record is or was current in its slot.
    fn was_committed(&self, number: u32) -> bool {
        let base = self.buffer(number);
        let (version, slot) = halves(self.word(base + B_PLACE).load(Ordering::Acquire));
        let current = || (slot as usize) < self.lay.slot_count && self.current(slot) == joined(version, number);
        current() || halves(self.word(base).load(Ordering::Acquire)).1 & heap::COMMITTED != 0
    }

    /// The slot that a record is of; `None` if the use of its buffer is over.
    pub fn slot_of_buffer(&self, buffer: Buffer) -> Option<Slot> {
        self.place_of_buffer(buffer).map(|(slot, _)| slot)
    }

    /// The slot that a record is of and its version there, one higher than that of the record before it; `None` if the
    /// use of its buffer is over.
    pub fn place_of_buffer(&self, buffer: Buffer) -> Option<(Slot, Version)> {
        self.capacity(buffer.number)?;
        let (version, slot) = halves(self.word(self.buffer(buffer.number) + B_PLACE).load(Ordering::Acquire));
        fence(Ordering::Acquire);
        let slot = self.slot_at(slot).filter(|_| self.in_use(buffer.number) == buffer)?;
        Some((slot, version))
    }

    /// Copies a buffer, with its context or without; false if what is there cannot be a record, because it is being
    /// written.
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

    /// The word of a slot: which record is its UE's.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn word_of(&self, slot: Slot) -> u64 {
        self.current(slot.0)
    }

    /// Where the context of a record lies, and its length and deadline.
    #[cfg(not(loom))]
    pub(crate) fn context_at(&self, number: u32) -> (usize, usize, Option<Instant>) {
        let base = self.buffer(number);
        let length = halves(self.word(base + B_LENGTHS).load(Ordering::Relaxed)).0 as usize;
        (base + BUFFER_HEADER, length, deadline(self.word(base + B_DEADLINE).load(Ordering::Relaxed)))
    }

    /// A word of the record that is current in a slot, without its octets; `None` if there is no record.
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

    /// When something is due for a slot's UE.
    pub fn deadline_of(&self, slot: Slot) -> Option<Instant> {
        self.peek(slot.0, B_DEADLINE).and_then(deadline)
    }

    /// Whom the procedure of a slot's UE is pinned to, as its record says; 0 if there is no record.
    pub fn pin_of(&self, slot: Slot) -> u64 {
        self.peek(slot.0, B_PIN).unwrap_or(0)
    }

    /// The sequence number of the last input that a slot's record consumed; 0 if there is no record.
    pub fn consumed_of(&self, slot: Slot) -> u64 {
        self.peek(slot.0, B_CONSUMED).unwrap_or(0)
    }

    /// Those of `count` slots from number `from` on that have a record, and when something is due for each: a sweep over
    /// all of them in pieces, up to [`Region::slot_count`].
    pub fn slots_from(&self, from: u32, count: u32) -> impl Iterator<Item = (Slot, Option<Instant>)> {
        let end = from.saturating_add(count).min(self.slot_count());
        (from..end).filter_map(|slot| self.peek(slot, B_DEADLINE).map(|due| (Slot(slot), deadline(due))))
    }

    /// Every slot with a UE in it.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..self.lay.slot_count as u32).map(Slot).filter(|slot| halves(self.current(slot.0)).1 != 0)
    }

    /// Slots below a number that are a UE's, with a record or not, and how many of them somebody holds or has packets
    /// waiting for.
    pub fn slots_used(&self, below: u32) -> (usize, usize) {
        let used = |slot: &u32| self.word(self.slot(*slot, S_ID)).load(Ordering::Relaxed) != 0;
        let slots = (0..below.min(self.slot_count())).filter(used);
        slots.fold((0, 0), |(all, busy), slot| (all + 1, busy + usize::from(!self.is_idle(slot))))
    }

    /// Octets of the buffers that the records of slots below a number lie in.
    pub fn record_bytes(&self, below: u32) -> usize {
        let numbers = (0..below.min(self.slot_count())).map(|slot| halves(self.current(slot)).1);
        let words = numbers.filter_map(|number| Some(self.capacity(number)? + BUFFER_HEADER));
        words.sum::<usize>() * WORD
    }

    /// The records that a dead worker committed and whose effects were not noted as sent. Who takes over lets them leave
    /// (again, perhaps: with the same octets) before it reclaims the worker. It looks at every record of the worker; see
    /// [`Region::last_of`].
    pub fn unsent(&self, dead: &DeadWorker) -> Vec<Buffer> {
        let unsent = self.owned_by(dead.number).filter_map(|number| {
            let (generation, flags) = halves(self.word(self.buffer(number)).load(Ordering::Acquire));
            (flags & heap::SENT == 0 && self.was_committed(number)).then_some(Buffer { number, generation })
        });
        unsent.collect()
    }

    /// The record that a dead worker committed last, if its effects were not noted as sent. A worker that tells the egress
    /// of each record before it commits the next has no other that the egress was not told of.
    pub fn last_of(&self, dead: &DeadWorker) -> Option<Buffer> {
        let last = Buffer::from_word(self.last_commit(dead.number))?;
        self.capacity(last.number)?;
        let (generation, flags) = halves(self.word(self.buffer(last.number)).load(Ordering::Acquire));
        let unsent = generation == last.generation && flags & heap::SENT == 0;
        (unsent && self.was_committed(last.number)).then_some(last)
    }

    /// Before the record of `seen` is superseded: says of it that it was current, and finishes for its committer, who may
    /// have died, what it had to do about the record before.
    fn set_out(&self, slot: Slot, seen: u64, by: u8) -> Result<Option<Buffer>, CommitError> {
        let number = halves(seen).1;
        let old = (number != 0).then(|| self.in_use(number));
        let previous = old.map_or(0, |_| self.word(self.buffer(number) + B_PREVIOUS).load(Ordering::Acquire));
        // Versions never come back: if the record is still current, so it was when all this was read.
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

    /// The record before that in `number` is dealt with. The buffer is of a chunk of the caller's, who has not taken
    /// another since: it is this record's still, or nobody's.
    fn settle(&self, number: u32) {
        self.word(self.buffer(number) + B_PREVIOUS).store(0, Ordering::Release);
    }
}

/// The version that follows one: of the next record, or of there being none any more. 0 is that of a slot never used.
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
    /// Frees a slot that has no record: its UE was turned away. False if it has one, or is nobody's. Only who holds the
    /// UE, or has just inserted it, does this.
    pub fn abandon(&mut self, slot: Slot) -> bool {
        let nobody = self.region.word(self.region.slot(slot.0, S_ID)).load(Ordering::Acquire) == 0;
        if nobody || halves(self.region.current(slot.0)).1 != 0 {
            return false;
        }
        self.region.sign(slot.0, self.number, true);
        self.region.release(slot.0);
        self.vacant.freed(slot);
        true
    }

    /// Frees a slot whatever it says, and what leads to it: its UE is lost. For slots that [are broken](Region::is_broken). Returns
    /// the version that the slot has then.
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

    /// Makes `record` the record of a UE, if that of `seen` still is.
    ///
    /// # Errors
    ///
    /// When another is, or there is no room; nothing has changed then.
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
        if octets > heap::LARGEST {
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

    /// Whether there is room for a record of so many octets: one who commits alone has it for the next.
    pub(crate) fn has_room(&mut self, octets: usize) -> bool {
        let number = if octets > heap::LARGEST { None } else { self.arena.take(&self.region, self.number, octets) };
        number.inspect(|number| self.arena.free(&self.region, self.number, *number)).is_some()
    }

    /// Takes the record of `seen` and its UE out. Effects of that record may still leave.
    ///
    /// # Errors
    ///
    /// When another record is current; nothing has changed then.
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
        self.vacant.freed(slot);
        Ok(())
    }

    /// The effects of a record have left: it is never asked for them again.
    pub fn sent(&mut self, buffer: Buffer) {
        self.done(buffer, heap::SENT);
    }

    pub(super) fn done(&mut self, buffer: Buffer, flag: u32) {
        if self.region.mark(buffer, flag, Some(self.number)) == FlagOutcome::Free {
            self.arena.free(&self.region, self.number, buffer.number);
            self.region.note_giving(Some(self.number), 0);
        }
    }
}

impl Region {
    /// As [`Worker::sent`], for who is no worker.
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
