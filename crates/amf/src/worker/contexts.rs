//! Contexts of a worker's UEs: in the region, its memory or a database.
//!
//! The region is the design. The other locations exist for comparison: a stateful core, which loses
//! its contexts with the process, and a database.

use super::Location;
use super::context_database::{
    ContextDatabase, ContextDatabaseError, DatabaseRef, LatestUe, PrefetchedRecord, Writer, content_ahead,
    pending_content,
};
use super::outbox::Outbox;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};
use vireo_core::amf::context::{self, ContextDecoder, IncrementalEncoder, UeContext};
use vireo_core::config::StatePersist;
use vireo_core::placement::replica;
use vireo_core::sba::N1N2TransferResult;
use vireo_core::step::{Effect, idempotency_key, step_of_key};
use vireo_ops::clock::clock;
use vireo_ops::metrics::StateOperation;
use vireo_ops::ue_record::{PendingSmfRequest, RecoveryLog, UeRecord};
use vireo_store::records::RecordBase;
use vireo_store::region::{Buffer, CommitRecord, Packet, Region, Slot, Snapshot, Worker};
use vireo_store::{CommitError, Version};

/// Flag in the sequence number of a packet: the packet is an outbox. The other bits are the slot.
pub(crate) const OUTBOX: u64 = 1 << 63;
/// Maximum wait of a stateful worker for room for an outbox: less than the time after which it
/// counts as stuck.
const ROOM_TIMEOUT: Duration = Duration::from_millis(300);

/// Result of loading a UE.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoadResult {
    /// There is no context yet.
    Nothing,
    /// The context was loaded.
    Context {
        /// Number of the last processed input.
        consumed: u64,
        /// Record whose effects were not sent.
        unsent: Option<Buffer>,
    },
    /// The context is removed; the host is about to free the slot.
    Tombstone {
        /// Number of the last processed input.
        consumed: u64,
        /// Record whose effects were not sent.
        unsent: Option<Buffer>,
    },
}

/// Location of the contexts.
#[derive(Debug, Default)]
enum ContextLocation {
    /// State region.
    #[default]
    Region,
    /// Memory of this worker.
    Private(FxHashMap<Slot, Box<LoadedContext>>),
    /// Database. `in_procedure` has the contexts of procedures in progress with
    /// [`StatePersist::Procedure`].
    Database { database: Box<ContextDatabase>, in_procedure: Option<FxHashMap<Slot, Box<LoadedContext>>> },
}

/// Error that makes a step void.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The commit to the region failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The database failed or refused.
    #[error(transparent)]
    Database(#[from] ContextDatabaseError),
    /// The commit to the region failed after that to the database.
    #[error("{0}; the database has it already")]
    RegionCommit(CommitError),
}

impl StepError {
    /// Returns true if a retry may succeed.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            StepError::Database(ContextDatabaseError::Database(error)) => error.is_retryable(),
            // Room appears as effects are sent. The next load finds the database ahead.
            StepError::RegionCommit(error) => *error == CommitError::Full,
            StepError::Commit(_) | StepError::Database(_) => false,
        }
    }
}

/// Result of a commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum CommitHandle {
    /// The commit record for the egress.
    Committed(Buffer),
    /// A packet with the outbox.
    Private(Packet),
}

/// What a commit records besides context and effects.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitTerms {
    /// Sequence number of the last processed event.
    pub(super) consumed: u64,
    /// Next deadline of the UE.
    pub(super) deadline: Option<vireo_types::Instant>,
    /// NF of an unfinished procedure ([`super::region_layout::nf_pin`]); 0 = none.
    pub(super) pin: u64,
}

#[cfg(test)]
impl CommitTerms {
    /// Returns the terms of an event without deadline and pin.
    fn from_input(consumed: u64) -> Self {
        CommitTerms { consumed, deadline: None, pin: 0 }
    }
}

/// Result of a step.
#[derive(Debug)]
pub(super) enum StepOutcome {
    /// The result is committed.
    Done(CommitHandle),
    /// The database must store the result first.
    Pending(Box<PendingCommit>),
}

/// Result of a step that the database must store before the region.
#[derive(Debug)]
pub(super) struct PendingCommit {
    slot: Slot,
    /// State of the region before the step.
    before: Snapshot,
    reference: DatabaseRef,
    /// Version that the commit replaces.
    version: Version,
    /// True if the database has an earlier state than the region.
    ahead: bool,
    stored: UeRecord,
}

/// Way of a commit if the record is shared with the SMF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CommitPath {
    /// The AMF commits to the record.
    #[default]
    Committed,
    /// The SMF commits it with the request that the step sends.
    BySmf,
    /// It follows from the SMF's response, which the SMF can repeat. The next commit includes it.
    Deferred,
}

/// Number of contexts that a worker caches decoded; others are read from the region.
const MAX_CACHED_CONTEXTS: usize = 1024;

/// A loaded context of a UE. It stays at one address while it is used, cached and found again.
#[derive(Debug)]
pub(super) struct LoadedContext {
    slot: Slot,
    pub(super) ue: UeContext,
    /// True if there was no context before.
    pub(super) fresh: bool,
    /// Base of the next incremental encoding.
    parts: Option<IncrementalEncoder>,
    /// State after the last commit, if this worker made it.
    record: Option<Snapshot>,
    /// Number of the last processed input.
    consumed: u64,
    /// Only for a context in a database.
    stored: DatabaseState,
}

/// State of a context in a database.
#[derive(Debug, Default)]
struct DatabaseState {
    /// Reference to its record; `None` before the first commit.
    reference: Option<DatabaseRef>,
    version: Version,
    /// Content of that version.
    known: RecordBase,
    /// Version of the UE: number of its commits.
    step: u64,
    /// True if the database has an earlier state than the region.
    ahead: bool,
    recovery: RecoveryLog,
    path: CommitPath,
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

    /// Removes an answered request. Returns true if this is its first response.
    pub(super) fn complete_request(&mut self, key: u64) -> bool {
        self.stored.recovery.complete_request(key)
    }

    /// Returns true if the request is open.
    pub(super) fn has_request(&self, key: u64) -> bool {
        self.stored.recovery.has_request(key)
    }

    /// Returns the result of a repeated transfer.
    pub(super) fn result_of(&self, key: u64) -> Option<N1N2TransferResult> {
        self.stored.recovery.transfer_result(key)
    }

    /// Adds the result of a transfer.
    pub(super) fn add_transfer_result(&mut self, key: u64, result: N1N2TransferResult) {
        self.stored.recovery.add_transfer(key, result);
    }

    /// Sets the path of the next commit.
    pub(super) fn set_path(&mut self, path: CommitPath) {
        self.stored.path = path;
    }

    /// Adds an SMF request.
    pub(super) fn add_request(&mut self, request: PendingSmfRequest) {
        self.stored.recovery.add_request(request);
    }
}

/// Contexts of a worker, with at most one loaded.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    location: ContextLocation,
    /// Cached contexts by slot; valid only while the region has the same record.
    cached: Vec<Option<Box<LoadedContext>>>,
    loaded: Option<Box<LoadedContext>>,
    /// Last read of the region.
    snapshot: Snapshot,
    decoder: ContextDecoder,
    /// Record that was copied from the database to the region for a dead worker.
    recovered: Option<Buffer>,
    /// Database operations and their times since the last query.
    operations: Vec<(StateOperation, Duration)>,
    buffer: Vec<u8>,
}

/// Returns a packet with the outbox of a step. Waits while all packets are in use: the egress frees
/// some soon. The changed context exists nowhere else, so the step must not fail lightly.
fn private_packet(worker: &mut Worker, sequence: u64, outbox: &[u8]) -> Result<Packet, CommitError> {
    let since = Instant::now();
    loop {
        match worker.packet(sequence, outbox) {
            Some(packet) => return Ok(packet),
            None if since.elapsed() > ROOM_TIMEOUT => return Err(CommitError::Full),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

impl Contexts {
    pub(super) fn new(location: Location) -> Self {
        let cached = std::iter::repeat_with(|| None).take(MAX_CACHED_CONTEXTS).collect();
        let location = match location {
            Location::Region => ContextLocation::Region,
            Location::Worker => ContextLocation::Private(FxHashMap::default()),
            Location::Database(config) => {
                let in_procedure = (config.records.persist == StatePersist::Procedure).then(FxHashMap::default);
                ContextLocation::Database { database: Box::new(ContextDatabase::new(config)), in_procedure }
            }
        };
        Contexts { location, cached, ..Contexts::default() }
    }

    /// Returns true if UEs are served in batches: each one alone would wait for a database.
    pub(super) fn serves_groups(&self) -> bool {
        matches!(self.location, ContextLocation::Database { .. })
    }

    /// Prefetches the records of UEs in one database operation.
    pub(super) fn prefetch(&mut self, region: &Region, slots: impl Iterator<Item = Slot>) {
        let ContextLocation::Database { database, in_procedure } = &mut self.location else { return };
        let is_held = |slot: &Slot| in_procedure.as_ref().is_some_and(|in_procedure| in_procedure.contains_key(slot));
        let mut ids = Vec::new();
        for slot in slots {
            if !is_held(&slot) && region.read(slot, &mut self.snapshot) {
                ids.extend(DatabaseRef::decode(&self.snapshot.context).map(|reference| reference.id));
            }
        }
        if ids.len() > 1 {
            database.prefetch(&ids);
        }
    }

    /// Loads the context of a UE.
    pub(super) fn load(&mut self, region: &Region, worker: &mut Worker, slot: Slot) -> Result<LoadResult, StepError> {
        if let Some(loaded) = self.loaded.take() {
            // The loaded context was not used.
            self.store_in_memory(loaded);
        }
        let here = match &mut self.location {
            ContextLocation::Private(private) => private.remove(&slot),
            ContextLocation::Region => self.cached[cache_index(slot)]
                .take_if(|loaded| loaded.slot == slot)
                .filter(|loaded| loaded.record.as_ref().is_some_and(|record| region.is_current(slot, record))),
            ContextLocation::Database { .. } => None,
        };
        if let Some(loaded) = here {
            // This worker committed the context and passed the record to the host.
            let found = LoadResult::Context { consumed: loaded.consumed, unsent: None };
            self.loaded = Some(loaded);
            return Ok(found);
        }
        if matches!(self.location, ContextLocation::Private(_)) || !region.read(slot, &mut self.snapshot) {
            return Ok(LoadResult::Nothing);
        }
        if let ContextLocation::Database { database, in_procedure } = &mut self.location
            && let Some(reference) = DatabaseRef::decode(&self.snapshot.context)
        {
            let (consumed, holds) = (self.snapshot.consumed, in_procedure.is_some());
            let loaded = in_procedure.as_mut().and_then(|in_procedure| in_procedure.remove(&slot));
            if let Some(loaded) = loaded.filter(|loaded| loaded.consumed == consumed) {
                self.loaded = Some(loaded);
                let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
                return Ok(LoadResult::Context { consumed, unsent });
            }
            let owner = database.config().owner;
            let stored = match database.prefetched(reference.id, consumed) {
                Some(PrefetchedRecord { took, version, stored }) => {
                    self.operations.push((StateOperation::Read, took));
                    Some((version, stored))
                }
                None => {
                    let began = Instant::now();
                    let stored = database.read_after(reference, consumed, (region, Writer::this_process(worker)));
                    self.operations.push((StateOperation::Read, began.elapsed()));
                    stored?
                }
            };
            if stored.as_ref().is_some_and(|(_, stored)| stored.owner != owner) {
                return Err(ContextDatabaseError::Foreign.into());
            }
            return match database.latest(stored, &self.snapshot)? {
                Some(latest) => {
                    let ahead = latest.ahead;
                    let found = self.stored(region, worker, slot, reference, latest);
                    self.loaded.iter_mut().for_each(|loaded| loaded.stored.ahead = ahead);
                    found
                }
                None if holds => self.remove_unfinished(region, worker, slot),
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
        match self.decoder.decode(octets.unwrap_or(&self.snapshot.context)) {
            Ok(ue) => self.loaded = Some(LoadedContext::new(slot, ue, false, consumed)),
            Err(error) => tracing::error!(%error, "bug: stored context does not decode; UE skipped"),
        }
    }

    /// Loads a UE from its database record. If that is ahead of the region, a worker died in
    /// between: its outbox is copied to the region.
    fn stored(
        &mut self,
        region: &Region,
        worker: &mut Worker,
        slot: Slot,
        reference: DatabaseRef,
        latest: LatestUe,
    ) -> Result<LoadResult, StepError> {
        let LatestUe { version, stored, .. } = latest;
        let octets = reference.octets();
        let here = if stored.context.is_empty() { &[][..] } else { &octets };
        // All inputs before the takeover from another host were processed, and none since.
        let consumed = if stored.consumed == 0 { reference.base } else { stored.consumed };
        if consumed > self.snapshot.consumed {
            let (deadline, pin, outbox) = (stored.deadline, stored.pin, stored.outbox());
            let record = CommitRecord { consumed, deadline, pin, context: here, outbox };
            self.recovered = Some(worker.commit(slot, &self.snapshot, &record)?.buffer);
            region.read(slot, &mut self.snapshot);
        }
        let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
        let UeRecord { context, recovery, step, known, .. } = stored;
        if context.is_empty() {
            return Ok(LoadResult::Tombstone { consumed, unsent });
        }
        let lost = consumed < self.snapshot.consumed;
        let consumed = consumed.max(self.snapshot.consumed);
        self.decoded(slot, consumed, Some(&context));
        if let Some(loaded) = &mut self.loaded {
            let reference = Some(reference);
            loaded.stored = DatabaseState { reference, version, known, step, recovery, ..DatabaseState::default() };
            if lost {
                // A worker died during a procedure: its messages used these identifiers and COUNTs.
                replica::skip(&mut loaded.ue);
            }
        }
        Ok(LoadResult::Context { consumed, unsent })
    }

    /// Removes a UE whose worker died during the first procedure. The host frees the slot, and the
    /// UE starts again.
    fn remove_unfinished(&mut self, region: &Region, worker: &mut Worker, slot: Slot) -> Result<LoadResult, StepError> {
        let consumed = self.snapshot.consumed;
        let last = Outbox::decode(&self.snapshot.outbox).ok_or(ContextDatabaseError::Lost)?;
        let forget = Outbox {
            key: idempotency_key(last.ltmsi, step_of_key(last.key).wrapping_add(replica::SKIPPED_STEPS as u32)),
            input: 0,
            before: last.after,
            after: None,
            settled: Vec::new(),
            seids: Vec::new(),
            effects: vec![Effect::DeleteContext],
            notes: Vec::new(),
            ..last
        };
        let octets = forget.encode(Vec::new()).ok_or(ContextDatabaseError::Lost)?;
        let record = CommitRecord { consumed, deadline: None, pin: 0, context: &[], outbox: &octets };
        self.recovered = Some(worker.commit(slot, &self.snapshot, &record)?.buffer);
        region.read(slot, &mut self.snapshot);
        let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
        Ok(LoadResult::Tombstone { consumed, unsent })
    }

    /// Returns the record that the last [`Contexts::load`] committed for a dead worker. Its effects
    /// must be sent.
    pub(super) fn take_recovered(&mut self) -> Option<Buffer> {
        self.recovered.take()
    }

    /// Returns the database operations since the last call.
    pub(super) fn operations(&mut self) -> impl Iterator<Item = (StateOperation, Duration)> {
        self.operations.drain(..)
    }

    /// Returns true if another host may take the contexts over from a database. Requests and
    /// results are then stored too.
    pub(super) fn are_shared(&self) -> bool {
        matches!(&self.location, ContextLocation::Database { database, .. } if database.config().shared)
    }

    /// Returns true if the SMF commits to the same records.
    pub(super) fn are_shared_with_smf(&self) -> bool {
        matches!(&self.location, ContextLocation::Database { database, .. } if database.config().records.is_shared())
    }

    /// Returns an unused context.
    pub(super) fn put_back(&mut self, loaded: Box<LoadedContext>) {
        self.loaded = Some(loaded);
    }

    /// Returns true if the contexts exist only in this worker's memory.
    pub(super) fn are_private(&self) -> bool {
        matches!(self.location, ContextLocation::Private(_))
    }

    /// Returns the loaded context.
    pub(super) fn current(&self) -> Option<&UeContext> {
        self.loaded.as_ref().map(|loaded| &loaded.ue)
    }

    /// Creates a context if there is none.
    pub(super) fn fresh(&mut self, region: &Region, slot: Slot, found: LoadResult) -> Option<()> {
        if matches!(found, LoadResult::Nothing) {
            self.loaded = Some(LoadedContext::new(slot, UeContext::new(region.ltmsi_of(slot)?), true, 0));
        }
        Some(())
    }

    /// Returns the loaded context for a step. Without a later [`Contexts::commit`] the stored
    /// context stays unchanged; a stateful worker loses it.
    pub(super) fn take(&mut self) -> Option<Box<LoadedContext>> {
        let mut loaded = self.loaded.take()?;
        // The perpetual part, before the step changes it.
        if loaded.parts.is_none() && matches!(self.location, ContextLocation::Region) {
            let parts = if loaded.fresh {
                IncrementalEncoder::new(&loaded.ue)
            } else {
                IncrementalEncoder::from_stored(&loaded.ue, &self.snapshot.context)
            };
            loaded.parts = parts.ok();
        }
        Some(loaded)
    }

    /// Commits the result of a step, unless the database must store it first. Caches the context.
    pub(super) fn commit(
        &mut self,
        worker: &mut Worker,
        mut loaded: Box<LoadedContext>,
        forgets: bool,
        terms: CommitTerms,
        outbox: &[u8],
    ) -> Result<StepOutcome, StepError> {
        let CommitTerms { consumed, deadline, pin } = terms;
        if matches!(self.location, ContextLocation::Private(_)) {
            let slot = u64::from(loaded.slot.number());
            let packet = private_packet(worker, OUTBOX | slot, outbox)?;
            if !forgets {
                (loaded.fresh, loaded.consumed) = (false, consumed);
                self.store_in_memory(loaded);
            }
            return Ok(StepOutcome::Done(CommitHandle::Private(packet)));
        }
        if matches!(self.location, ContextLocation::Database { .. }) {
            return self.prepare(worker, loaded, forgets, terms, outbox);
        }
        self.buffer.clear();
        let before = loaded.record.as_ref().unwrap_or(&self.snapshot);
        if !forgets {
            let encoded = match &mut loaded.parts {
                Some(parts) => parts.encode(&loaded.ue, &mut self.buffer).map(|_| ()),
                None => context::encode_after(&loaded.ue, &before.context, &mut self.buffer),
            };
            encoded.map_err(|_| CommitError::TooLarge(self.buffer.len()))?;
        }
        let record = CommitRecord { consumed, deadline, pin, context: &self.buffer, outbox };
        let committed = worker.commit(loaded.slot, before, &record)?;
        if !forgets && loaded.parts.is_some() {
            loaded.record = Some(committed.snapshot(consumed));
            (loaded.fresh, loaded.consumed) = (false, consumed);
            self.store_in_memory(loaded);
        }
        Ok(StepOutcome::Done(CommitHandle::Committed(committed.buffer)))
    }

    /// Prepares the commit of a context in a database, which precedes the region's. During a
    /// procedure with [`StatePersist::Procedure`], or if the SMF commits, only the region is
    /// changed.
    fn prepare(
        &mut self,
        worker: &mut Worker,
        mut loaded: Box<LoadedContext>,
        forgets: bool,
        terms: CommitTerms,
        outbox: &[u8],
    ) -> Result<StepOutcome, StepError> {
        let CommitTerms { consumed, deadline, pin } = terms;
        let ContextLocation::Database { database, in_procedure } = &mut self.location else {
            return Err(CommitError::Conflict.into());
        };
        let (owner, shared) = (database.config().owner, database.config().shared);
        let (slot, ltmsi) = (loaded.slot, loaded.ue.ltmsi);
        let DatabaseState { reference, version, known, step, ahead, recovery, path } = &mut loaded.stored;
        let later = *version != 0 && (*path == CommitPath::BySmf || *path == CommitPath::Deferred && !*ahead);
        let reference = reference.get_or_insert_with(|| DatabaseRef::fresh(ltmsi, owner, consumed));
        reference.writer = Writer::this_process(worker);
        let reference = *reference;
        recovery.add_outbox(clock(), outbox, shared);
        if let Some(in_procedure) = in_procedure.as_mut().filter(|_| pin != 0 && !forgets) {
            // The procedure continues.
            let record = CommitRecord { consumed, deadline, pin, context: &reference.octets(), outbox };
            let committed = worker.commit(slot, &self.snapshot, &record)?;
            (loaded.fresh, loaded.consumed) = (false, consumed);
            in_procedure.insert(slot, loaded);
            return Ok(StepOutcome::Done(CommitHandle::Committed(committed.buffer)));
        }
        let (version, step, ahead) = (*version, *step + 1, *ahead);
        let (known, recovery) = (std::mem::take(known), std::mem::take(recovery));
        let stored = UeRecord { owner, step, removed: forgets, consumed, deadline, pin, ..UeRecord::default() };
        let mut stored = UeRecord { recovery, known, ..stored };
        if !forgets {
            stored.context = context::encode(&loaded.ue, Vec::new()).map_err(|_| CommitError::TooLarge(0))?;
        }
        if let Some(later) = content_ahead(&stored, reference).filter(|_| later && !forgets) {
            let record = CommitRecord { consumed, deadline, pin, context: &later, outbox };
            let committed = worker.commit(slot, &self.snapshot, &record)?;
            return Ok(StepOutcome::Done(CommitHandle::Committed(committed.buffer)));
        }
        let before = std::mem::take(&mut self.snapshot);
        Ok(StepOutcome::Pending(Box::new(PendingCommit { slot, before, reference, version, ahead, stored })))
    }

    /// Commits the results of steps over several UEs to the database in one operation, and then to
    /// the region. Returns the result of each.
    pub(super) fn store(
        &mut self,
        worker: &mut Worker,
        pending: Vec<PendingCommit>,
    ) -> Vec<Result<CommitHandle, StepError>> {
        let ContextLocation::Database { database, .. } = &mut self.location else { return Vec::new() };
        let (mut rest, mut commits) = (Vec::new(), Vec::new());
        for pending in pending {
            let PendingCommit { slot, before, reference, version, ahead, stored } = pending;
            commits.push(((reference.id, version), stored));
            rest.push((slot, before, reference, ahead));
        }
        let (began, count) = (Instant::now(), commits.len() as u32);
        let there = database.commit_all(commits);
        let took = began.elapsed() / count.max(1);
        self.operations.extend((0..count).map(|_| (StateOperation::Write, took)));
        let each = rest.into_iter().zip(there).map(|((slot, before, reference, ahead), there)| {
            let mut there = there?;
            let behind = if database.writes_behind() { pending_content(&mut there, reference) } else { None };
            if database.writes_behind() && (ahead || behind.is_none()) {
                // A slow writer may be dead, or the region has no room: this commit waits for the
                // write.
                database.settle(reference.id)?;
            }
            let octets = reference.octets();
            let octets = behind.as_deref().unwrap_or(&octets);
            let here = if there.context.is_empty() { &[][..] } else { octets };
            let (deadline, pin, outbox) = (there.deadline, there.pin, there.outbox());
            let record = CommitRecord { consumed: there.consumed, deadline, pin, context: here, outbox };
            Ok(CommitHandle::Committed(worker.commit(slot, &before, &record).map_err(StepError::RegionCommit)?.buffer))
        });
        each.collect()
    }

    /// Commits one result alone.
    #[cfg(test)]
    fn commit_alone(
        &mut self,
        worker: &mut Worker,
        loaded: Box<LoadedContext>,
        forgets: bool,
        terms: CommitTerms,
        outbox: &[u8],
    ) -> Result<CommitHandle, StepError> {
        match self.commit(worker, loaded, forgets, terms, outbox)? {
            StepOutcome::Done(done) => Ok(done),
            StepOutcome::Pending(pending) => self.store(worker, vec![*pending]).remove(0),
        }
    }

    fn store_in_memory(&mut self, loaded: Box<LoadedContext>) {
        if loaded.fresh {
            return;
        }
        let slot = loaded.slot;
        match &mut self.location {
            ContextLocation::Private(private) => drop(private.insert(slot, loaded)),
            ContextLocation::Region if loaded.record.is_some() => self.cached[cache_index(slot)] = Some(loaded),
            ContextLocation::Database { in_procedure: Some(in_procedure), .. } => {
                drop(in_procedure.insert(slot, loaded))
            }
            ContextLocation::Region | ContextLocation::Database { .. } => {}
        }
    }
}

fn cache_index(slot: Slot) -> usize {
    slot.number() as usize % MAX_CACHED_CONTEXTS
}

#[cfg(test)]
mod write_behind_tests;

#[cfg(test)]
mod tests;
