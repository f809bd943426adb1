//! Where a worker has the contexts of its UEs: in the region (the design), or, to compare that with, in its own memory (a
//! stateful core, which loses them with the process) or in a database.

use super::Location;
use super::context_database::{
    ContextDatabase, ContextDatabaseError, DatabaseRef, LatestUe, PendingSmfRequest, RecoveryLog, UeRecord, Writer,
};
use super::outbox::{self, Outbox};
use crate::clock::clock;
use crate::metrics::StateOperation;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};
use vireo_core::config::StatePersist;
use vireo_core::context::{self, IncrementalEncoder, UeContext};
use vireo_core::replica;
use vireo_core::sba::N1N2TransferResult;
use vireo_core::step::Effect;
use vireo_store::records::RecordBase;
use vireo_store::region::{Buffer, CommitRecord, Packet, Region, Slot, Snapshot, Worker};
use vireo_store::{CommitError, Version};

/// The mark of a packet that is an outbox, in its sequence number beside the slot's.
pub(crate) const OUTBOX: u64 = 1 << 63;
/// How long a stateful worker waits for room for an outbox: less than after which it would be taken for stuck.
const ROOM_WITHIN: Duration = Duration::from_millis(300);

/// What there is of a UE.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoadResult {
    /// Nothing yet.
    Nothing,
    /// Its context.
    Context {
        /// The last input carried out.
        consumed: u64,
        /// The record whose effects have not left.
        unsent: Option<Buffer>,
    },
    /// Its context has gone; the host is about to take the slot back.
    Tombstone {
        /// The last input carried out.
        consumed: u64,
        /// The record whose effects have not left.
        unsent: Option<Buffer>,
    },
}

/// Where contexts are.
#[derive(Debug, Default)]
enum ContextLocation {
    /// In the region.
    #[default]
    Region,
    /// In this worker's memory.
    Private(FxHashMap<Slot, Box<LoadedContext>>),
    /// In a database; with those that a procedure is under way over, where that keeps them here.
    Central { central: Box<ContextDatabase>, held: Option<FxHashMap<Slot, Box<LoadedContext>>> },
}

/// Why a step is void.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The region.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The database.
    #[error(transparent)]
    Central(#[from] ContextDatabaseError),
    /// The region, when the database has it.
    #[error("{0}; the database has it already")]
    Behind(CommitError),
}

impl StepError {
    /// Whether the same may succeed later.
    pub(super) fn passes(&self) -> bool {
        match self {
            StepError::Central(ContextDatabaseError::Database(error)) => error.is_retryable(),
            // Room is made as effects leave; whoever loads the UE next finds that the database is ahead.
            StepError::Behind(error) => *error == CommitError::Full,
            StepError::Commit(_) | StepError::Central(_) => false,
        }
    }
}

/// A commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommitHandle {
    /// The record, for the egress.
    Committed(Buffer),
    /// A packet with the outbox.
    Private(Packet),
}

/// What a step has left.
#[derive(Debug)]
pub(super) enum StepOutcome {
    /// It is true.
    Done(CommitHandle),
    /// A database is to have it first.
    Pending(Box<PendingCommit>),
}

/// What a step over a UE has left that a database is to have before it is true.
#[derive(Debug)]
pub(super) struct PendingCommit {
    slot: Slot,
    /// What the region has.
    before: Snapshot,
    elsewhere: DatabaseRef,
    /// The version in whose place it goes.
    version: Version,
    /// The database has an earlier one.
    ahead: bool,
    stored: UeRecord,
}

/// How what a step has left becomes true, where contexts are in a record that the SMF shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CommitPath {
    /// It is committed there.
    #[default]
    Committed,
    /// It goes with the question that the step ends in, and the SMF commits it.
    BySmf,
    /// It follows from what the SMF has committed with its answer, which it gives again: it is committed with what comes next.
    Deferred,
}

/// UEs whose contexts a worker keeps decoded; what is not kept is read from the region.
const KEPT: usize = 1024;

/// A UE's context in a worker's hands. It stays where it is while it is worked on, kept and found again.
#[derive(Debug)]
pub(super) struct LoadedContext {
    slot: Slot,
    pub(super) ue: UeContext,
    /// Whether there was none.
    pub(super) fresh: bool,
    /// What the next record is made from.
    parts: Option<IncrementalEncoder>,
    /// What was committed last, if that was done here.
    record: Option<Snapshot>,
    /// The last input carried out.
    consumed: u64,
    /// Of one in a database.
    stored: DatabaseState,
}

/// What is known of a context in a database.
#[derive(Debug, Default)]
struct DatabaseState {
    /// Its record; `None` before the first commit.
    elsewhere: Option<DatabaseRef>,
    version: Version,
    /// What that is.
    known: RecordBase,
    /// Which it is of those that the UE has had.
    step: u64,
    /// The database has an earlier one.
    ahead: bool,
    course: RecoveryLog,
    way: CommitPath,
}

impl LoadedContext {
    fn new(slot: Slot, ue: UeContext, fresh: bool, consumed: u64) -> Box<Self> {
        Box::new(LoadedContext {
            slot,
            ue,
            fresh,
            parts: None,
            record: None,
            consumed,
            stored: DatabaseState::default(),
        })
    }

    /// The SMF has answered a question; whether that is so for the first time.
    pub(super) fn is_answered(&mut self, key: u64) -> bool {
        self.stored.course.is_answered(key)
    }

    /// Whether a question is open.
    pub(super) fn has_asked(&self, key: u64) -> bool {
        self.stored.course.has_asked(key)
    }

    /// What became of a transfer that was taken before.
    pub(super) fn result_of(&self, key: u64) -> Option<N1N2TransferResult> {
        self.stored.course.result_of(key)
    }

    /// A transfer was taken.
    pub(super) fn takes(&mut self, key: u64, result: N1N2TransferResult) {
        self.stored.course.takes(key, result);
    }

    /// What a step has left is to become true in this way.
    pub(super) fn goes(&mut self, way: CommitPath) {
        self.stored.way = way;
    }

    /// The SMF is asked.
    pub(super) fn asks(&mut self, asked: PendingSmfRequest) {
        self.stored.course.asks(asked);
    }
}

/// A worker's contexts, one of them loaded.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    place: ContextLocation,
    /// By slot; valid only as long as the region has the same record.
    kept: Vec<Option<Box<LoadedContext>>>,
    loaded: Option<Box<LoadedContext>>,
    /// What was read from the region last.
    snapshot: Snapshot,
    /// A record that became the region's because of what a database had.
    found: Option<Buffer>,
    /// What the database was asked, and how long each took.
    asked: Vec<(StateOperation, Duration)>,
    buffer: Vec<u8>,
}

/// A packet for what a step wants done. When all are under way, the egress makes room within a moment: the step has changed a context
/// that is nowhere else, so it cannot be given up lightly.
fn private_packet(worker: &mut Worker, sequence: u64, outbox: &[u8]) -> Result<Packet, CommitError> {
    let since = Instant::now();
    loop {
        match worker.packet(sequence, outbox) {
            Some(packet) => return Ok(packet),
            None if since.elapsed() > ROOM_WITHIN => return Err(CommitError::Full),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

impl Contexts {
    pub(super) fn new(location: Location) -> Self {
        let kept = std::iter::repeat_with(|| None).take(KEPT).collect();
        let place = match location {
            Location::Region => ContextLocation::Region,
            Location::Worker => ContextLocation::Private(FxHashMap::default()),
            Location::Central(config) => {
                let held = (config.records.persist == StatePersist::Procedure).then(FxHashMap::default);
                ContextLocation::Central { central: Box::new(ContextDatabase::new(config)), held }
            }
        };
        Contexts { place, kept, ..Contexts::default() }
    }

    /// Whether several UEs are served in one go: each of them alone would wait for answers of a database of its own.
    pub(super) fn serves_groups(&self) -> bool {
        matches!(self.place, ContextLocation::Central { .. })
    }

    /// Reads what a database has of UEs that are going to be loaded, in one question.
    pub(super) fn foresee(&mut self, region: &Region, slots: impl Iterator<Item = Slot>) {
        let ContextLocation::Central { central, held } = &mut self.place else { return };
        let is_held = |slot: &Slot| held.as_ref().is_some_and(|held| held.contains_key(slot));
        let mut ids = Vec::new();
        for slot in slots {
            if !is_held(&slot) && region.read(slot, &mut self.snapshot) {
                ids.extend(DatabaseRef::of(&self.snapshot.context).map(|elsewhere| elsewhere.id));
            }
        }
        if ids.len() > 1 {
            central.prefetch(&ids);
        }
    }

    /// Loads what there is of a UE.
    pub(super) fn load(&mut self, region: &Region, worker: &mut Worker, slot: Slot) -> Result<LoadResult, StepError> {
        if let Some(hand) = self.loaded.take() {
            // Nothing was done with it.
            self.keep(hand);
        }
        let here = match &mut self.place {
            ContextLocation::Private(private) => private.remove(&slot),
            ContextLocation::Region => self.kept[place(slot)]
                .take_if(|hand| hand.slot == slot)
                .filter(|hand| hand.record.as_ref().is_some_and(|record| region.is_current(slot, record))),
            ContextLocation::Central { .. } => None,
        };
        if let Some(hand) = here {
            // This worker committed it and handed it over.
            let found = LoadResult::Context { consumed: hand.consumed, unsent: None };
            self.loaded = Some(hand);
            return Ok(found);
        }
        if matches!(self.place, ContextLocation::Private(_)) || !region.read(slot, &mut self.snapshot) {
            return Ok(LoadResult::Nothing);
        }
        if let ContextLocation::Central { central, held } = &mut self.place
            && let Some(elsewhere) = DatabaseRef::of(&self.snapshot.context)
        {
            let (consumed, holds) = (self.snapshot.consumed, held.is_some());
            let hand = held.as_mut().and_then(|held| held.remove(&slot));
            if let Some(hand) = hand.filter(|hand| hand.consumed == consumed) {
                self.loaded = Some(hand);
                let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
                return Ok(LoadResult::Context { consumed, unsent });
            }
            let owner = central.config().owner;
            let stored = match central.foreseen(elsewhere.id, consumed) {
                Some((took, version, stored)) => {
                    self.asked.push((StateOperation::Read, took));
                    Some((version, stored))
                }
                None => {
                    let began = Instant::now();
                    let stored = central.read_after(elsewhere, consumed, (region, Writer::own(worker)));
                    self.asked.push((StateOperation::Read, began.elapsed()));
                    stored?
                }
            };
            if stored.as_ref().is_some_and(|(_, stored)| stored.owner != owner) {
                return Err(ContextDatabaseError::Foreign.into());
            }
            return match central.latest(stored, &self.snapshot)? {
                Some(LatestUe { version, stored, ahead }) => {
                    let found = self.stored(region, worker, slot, (elsewhere, version, stored));
                    self.loaded.iter_mut().for_each(|hand| hand.stored.ahead = ahead);
                    found
                }
                None if holds => self.lost(region, worker, slot),
                None => Err(ContextDatabaseError::Lost.into()),
            };
        }
        let (consumed, unsent) = (self.snapshot.consumed, self.snapshot.buffer().filter(|_| !self.snapshot.sent));
        if self.snapshot.context.is_empty() {
            return Ok(LoadResult::Tombstone { consumed, unsent });
        }
        self.decoded(slot, consumed, None);
        Ok(LoadResult::Context { consumed, unsent })
    }

    fn decoded(&mut self, slot: Slot, consumed: u64, octets: Option<&[u8]>) {
        match context::decode(octets.unwrap_or(&self.snapshot.context)) {
            Ok(ue) => self.loaded = Some(LoadedContext::new(slot, ue, false, consumed)),
            Err(error) => tracing::error!(%error, "a stored context does not decode: its UE is left alone"),
        }
    }

    /// A UE as the database has it. Where that is ahead of the region, a worker has died in between, and what it wanted done
    /// becomes the region's.
    fn stored(
        &mut self,
        region: &Region,
        worker: &mut Worker,
        slot: Slot,
        (elsewhere, version, stored): (DatabaseRef, Version, UeRecord),
    ) -> Result<LoadResult, StepError> {
        let octets = elsewhere.octets();
        let here = if stored.context.is_empty() { &[][..] } else { &octets };
        // All was carried out that was before another host left it, and nothing since.
        let consumed = if stored.consumed == 0 { elsewhere.base } else { stored.consumed };
        if consumed > self.snapshot.consumed {
            let (deadline, pin, outbox) = (stored.deadline, stored.pin, stored.outbox());
            let record = CommitRecord { consumed, deadline, pin, context: here, outbox };
            self.found = Some(worker.commit(slot, &self.snapshot, &record)?.buffer);
            region.read(slot, &mut self.snapshot);
        }
        let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
        let UeRecord { context, course, step, known, .. } = stored;
        if context.is_empty() {
            return Ok(LoadResult::Tombstone { consumed, unsent });
        }
        let lost = consumed < self.snapshot.consumed;
        let consumed = consumed.max(self.snapshot.consumed);
        self.decoded(slot, consumed, Some(&context));
        if let Some(hand) = &mut self.loaded {
            let elsewhere = Some(elsewhere);
            hand.stored = DatabaseState { elsewhere, version, known, step, course, ..DatabaseState::default() };
            if lost {
                // A procedure was under way, and who carried it out has died: what it sent had these names and COUNTs.
                replica::skip(&mut hand.ue);
            }
        }
        Ok(LoadResult::Context { consumed, unsent })
    }

    /// A UE whose first procedure was under way when who carried it out has died: the host takes the slot back, and the UE
    /// begins anew.
    fn lost(&mut self, region: &Region, worker: &mut Worker, slot: Slot) -> Result<LoadResult, StepError> {
        let consumed = self.snapshot.consumed;
        let last = Outbox::decode(&self.snapshot.outbox).ok_or(ContextDatabaseError::Lost)?;
        let forget = Outbox {
            key: outbox::key(last.ltmsi, ((last.key >> 4) as u32).wrapping_add(replica::SKIPPED_STEPS as u32)),
            input: 0,
            before: last.after,
            after: None,
            settled: Vec::new(),
            seids: Vec::new(),
            effects: vec![Effect::Forget],
            notes: Vec::new(),
            ..last
        };
        let octets = forget.encode(Vec::new()).ok_or(ContextDatabaseError::Lost)?;
        let record = CommitRecord { consumed, deadline: None, pin: 0, context: &[], outbox: &octets };
        self.found = Some(worker.commit(slot, &self.snapshot, &record)?.buffer);
        region.read(slot, &mut self.snapshot);
        let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
        Ok(LoadResult::Tombstone { consumed, unsent })
    }

    /// A record that the last [`Contexts::load`] has committed for a worker that died: its effects are to leave.
    pub(super) fn found(&mut self) -> Option<Buffer> {
        self.found.take()
    }

    /// What the database was asked since this was asked last.
    pub(super) fn asked(&mut self) -> impl Iterator<Item = (StateOperation, Duration)> {
        self.asked.drain(..)
    }

    /// Whether another host may go on with them from a database: then what is asked and taken is known there, too.
    pub(super) fn are_shared(&self) -> bool {
        matches!(&self.place, ContextLocation::Central { central, .. } if central.config().shared)
    }

    /// Whether the SMF commits to the same records.
    pub(super) fn are_of_smf(&self) -> bool {
        matches!(&self.place, ContextLocation::Central { central, .. } if central.config().records.is_shared())
    }

    /// Nothing was done with what was taken.
    pub(super) fn put_back(&mut self, hand: Box<LoadedContext>) {
        self.loaded = Some(hand);
    }

    /// Whether they are in this worker's memory alone.
    pub(super) fn are_private(&self) -> bool {
        matches!(self.place, ContextLocation::Private(_))
    }

    /// The context that is loaded.
    pub(super) fn current(&self) -> Option<&UeContext> {
        self.loaded.as_ref().map(|hand| &hand.ue)
    }

    /// Makes a context where there is none.
    pub(super) fn fresh(&mut self, region: &Region, slot: Slot, found: LoadResult) -> Option<()> {
        if matches!(found, LoadResult::Nothing) {
            self.loaded = Some(LoadedContext::new(slot, UeContext::new(region.ltmsi_of(slot)?), true, 0));
        }
        Some(())
    }

    /// Takes the context that is loaded, for a step over it. One that does not come back by [`Contexts::commit`] is as it
    /// was stored; a stateful worker has lost it.
    pub(super) fn take(&mut self) -> Option<Box<LoadedContext>> {
        let mut hand = self.loaded.take()?;
        // What the perpetual part was, before the step changes it.
        if hand.parts.is_none() && matches!(self.place, ContextLocation::Region) {
            let parts = if hand.fresh {
                IncrementalEncoder::new(&hand.ue)
            } else {
                IncrementalEncoder::of(&hand.ue, &self.snapshot.context)
            };
            hand.parts = parts.ok();
        }
        Some(hand)
    }

    /// Makes what a step did true: from now on it happened, unless a database has to have it first. The UE is kept at hand.
    pub(super) fn commit(
        &mut self,
        worker: &mut Worker,
        mut hand: Box<LoadedContext>,
        forgets: bool,
        (consumed, deadline, pin): (u64, Option<vireo_types::Instant>, u64),
        outbox: &[u8],
    ) -> Result<StepOutcome, StepError> {
        if matches!(self.place, ContextLocation::Private(_)) {
            let slot = u64::from(hand.slot.number());
            let packet = private_packet(worker, OUTBOX | slot, outbox)?;
            if !forgets {
                (hand.fresh, hand.consumed) = (false, consumed);
                self.keep(hand);
            }
            return Ok(StepOutcome::Done(CommitHandle::Private(packet)));
        }
        if matches!(self.place, ContextLocation::Central { .. }) {
            return self.prepare(worker, hand, forgets, (consumed, deadline, pin), outbox);
        }
        self.buffer.clear();
        let before = hand.record.as_ref().unwrap_or(&self.snapshot);
        if !forgets {
            let encoded = match &mut hand.parts {
                Some(parts) => parts.encode(&hand.ue, &mut self.buffer).map(|_| ()),
                None => context::encode_after(&hand.ue, &before.context, &mut self.buffer),
            };
            encoded.map_err(|_| CommitError::TooLarge(self.buffer.len()))?;
        }
        let record = CommitRecord { consumed, deadline, pin, context: &self.buffer, outbox };
        let committed = worker.commit(hand.slot, before, &record)?;
        if !forgets && hand.parts.is_some() {
            hand.record = Some(committed.seen(consumed));
            (hand.fresh, hand.consumed) = (false, consumed);
            self.keep(hand);
        }
        Ok(StepOutcome::Done(CommitHandle::Committed(committed.buffer)))
    }

    /// The same of a context in a database: it is to be there before it is in the region. What is kept here while a procedure is
    /// under way, or what the SMF is to commit, is in the region alone.
    fn prepare(
        &mut self,
        worker: &mut Worker,
        mut hand: Box<LoadedContext>,
        forgets: bool,
        (consumed, deadline, pin): (u64, Option<vireo_types::Instant>, u64),
        outbox: &[u8],
    ) -> Result<StepOutcome, StepError> {
        let ContextLocation::Central { central, held } = &mut self.place else {
            return Err(CommitError::Conflict.into());
        };
        let (owner, shared) = (central.config().owner, central.config().shared);
        let (slot, ltmsi) = (hand.slot, hand.ue.ltmsi);
        let DatabaseState { elsewhere, version, known, step, ahead, course, way } = &mut hand.stored;
        let later = *version != 0 && (*way == CommitPath::BySmf || *way == CommitPath::Deferred && !*ahead);
        let elsewhere = elsewhere.get_or_insert_with(|| DatabaseRef::fresh(ltmsi, owner, consumed));
        elsewhere.writer = Writer::own(worker);
        let elsewhere = *elsewhere;
        course.wants(clock(), outbox, shared);
        if let Some(held) = held.as_mut().filter(|_| pin != 0 && !forgets) {
            // It goes on.
            let record = CommitRecord { consumed, deadline, pin, context: &elsewhere.octets(), outbox };
            let committed = worker.commit(slot, &self.snapshot, &record)?;
            (hand.fresh, hand.consumed) = (false, consumed);
            held.insert(slot, hand);
            return Ok(StepOutcome::Done(CommitHandle::Committed(committed.buffer)));
        }
        let (version, step, ahead) = (*version, *step + 1, *ahead);
        let (known, course, context) = (std::mem::take(known), std::mem::take(course), Vec::new());
        let mut stored = UeRecord { owner, step, gone: forgets, consumed, deadline, pin, course, context, known };
        if !forgets {
            stored.context = context::encode(&hand.ue, Vec::new()).map_err(|_| CommitError::TooLarge(0))?;
        }
        if let Some(later) = stored.ahead(elsewhere).filter(|_| later && !forgets) {
            let record = CommitRecord { consumed, deadline, pin, context: &later, outbox };
            let committed = worker.commit(slot, &self.snapshot, &record)?;
            return Ok(StepOutcome::Done(CommitHandle::Committed(committed.buffer)));
        }
        let before = std::mem::take(&mut self.snapshot);
        Ok(StepOutcome::Pending(Box::new(PendingCommit { slot, before, elsewhere, version, ahead, stored })))
    }

    /// Makes steps over several UEs true that a database has to have: there, in one question, and then in the region. What becomes of
    /// each.
    pub(super) fn store(
        &mut self,
        worker: &mut Worker,
        pending: Vec<PendingCommit>,
    ) -> Vec<Result<CommitHandle, StepError>> {
        let ContextLocation::Central { central, .. } = &mut self.place else { return Vec::new() };
        let (mut rest, mut commits) = (Vec::new(), Vec::new());
        for pending in pending {
            let PendingCommit { slot, before, elsewhere, version, ahead, stored } = pending;
            commits.push(((elsewhere.id, version), stored));
            rest.push((slot, before, elsewhere, ahead));
        }
        let (began, count) = (Instant::now(), commits.len() as u32);
        let there = central.commit_all(commits);
        let took = began.elapsed() / count.max(1);
        self.asked.extend((0..count).map(|_| (StateOperation::Write, took)));
        let each = rest.into_iter().zip(there).map(|((slot, before, elsewhere, ahead), there)| {
            let mut there = there?;
            let behind = if central.writes_behind() { there.behind(elsewhere) } else { None };
            if central.writes_behind() && (ahead || behind.is_none()) {
                // Who may have been slow to write is dead, or the region has no room for it: this one waits.
                central.settle(elsewhere.id)?;
            }
            let octets = elsewhere.octets();
            let octets = behind.as_deref().unwrap_or(&octets);
            let here = if there.context.is_empty() { &[][..] } else { octets };
            let (deadline, pin, outbox) = (there.deadline, there.pin, there.outbox());
            let record = CommitRecord { consumed: there.consumed, deadline, pin, context: here, outbox };
            Ok(CommitHandle::Committed(worker.commit(slot, &before, &record).map_err(StepError::Behind)?.buffer))
        });
        each.collect()
    }

    /// A commit that nothing is stored together with.
    #[cfg(test)]
    fn commit_alone(
        &mut self,
        worker: &mut Worker,
        hand: Box<LoadedContext>,
        forgets: bool,
        numbers: (u64, Option<vireo_types::Instant>, u64),
        outbox: &[u8],
    ) -> Result<CommitHandle, StepError> {
        match self.commit(worker, hand, forgets, numbers, outbox)? {
            StepOutcome::Done(done) => Ok(done),
            StepOutcome::Pending(pending) => self.store(worker, vec![*pending]).remove(0),
        }
    }

    fn keep(&mut self, hand: Box<LoadedContext>) {
        if hand.fresh {
            return;
        }
        let slot = hand.slot;
        match &mut self.place {
            ContextLocation::Private(private) => drop(private.insert(slot, hand)),
            ContextLocation::Region if hand.record.is_some() => self.kept[place(slot)] = Some(hand),
            ContextLocation::Central { held: Some(held), .. } => drop(held.insert(slot, hand)),
            ContextLocation::Region | ContextLocation::Central { .. } => {}
        }
    }
}

fn place(slot: Slot) -> usize {
    slot.number() as usize % KEPT
}

#[cfg(test)]
mod write_behind_tests;

#[cfg(test)]
mod tests;
