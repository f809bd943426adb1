//! Database thread of a network function: batched operations with retries.
//!
//! The thread collects all pending loads and all pending changes into one operation each, and
//! retries while the database is down. The function's own thread never waits. With delete-create a
//! commit is two consecutive changes: a removed record is created again, however long that takes.

use crate::metrics::{Metrics, StateFunction, StateOperation, Transaction};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vireo_store::Version;
use vireo_store::records::{
    Change, Codec, Encoded, LIFE, Name, RecordBase, RecordError, RecordPart, RecordStore, ShmError, StoredRecord,
    UpdateMode,
};
use vireo_types::Instant;

/// Interval of retries after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of jobs per operation.
pub const BATCH: usize = 256;
/// Interval of renewing the function's record for its peers, so that it does not expire.
pub const RENEWAL_INTERVAL: Duration = Duration::from_secs(LIFE.as_secs() / 8);

/// An operation on one record.
#[derive(Debug)]
pub struct DatabaseJob {
    pub name: Name,
    /// Name by which the requester knows it: for a shared record, the requester's part of it.
    pub requester_name: Name,
    pub operation: DatabaseOperation,
    /// The transaction that needs the operation.
    pub kind: Transaction,
    /// Time after which the operation is useless; `None`: never.
    pub deadline: Option<Instant>,
}

/// Kind of operation.
#[derive(Debug)]
pub enum DatabaseOperation {
    Load,
    /// Commits a whole record.
    Commit {
        expected: Version,
        octets: Vec<u8>,
    },
    /// Commits a value, encoded by the database's codec.
    Put {
        known: RecordBase,
        value: Encoded,
    },
    /// Commits parts of a shared record. With `whole` the record then has only these parts.
    Parts {
        expected: Version,
        parts: Vec<(String, Vec<u8>)>,
        whole: bool,
    },
    Remove {
        expected: Version,
    },
}

impl DatabaseOperation {
    pub fn state_operation(&self) -> StateOperation {
        match self {
            DatabaseOperation::Load => StateOperation::Read,
            DatabaseOperation::Commit { .. } | DatabaseOperation::Put { .. } | DatabaseOperation::Parts { .. } => {
                StateOperation::Write
            }
            DatabaseOperation::Remove { .. } => StateOperation::Remove,
        }
    }

    fn parts(&self, codec: Codec) -> Vec<RecordPart<'_>> {
        match self {
            DatabaseOperation::Put { value, .. } => codec.parts(value),
            DatabaseOperation::Parts { parts, .. } => {
                parts.iter().map(|(name, octets)| RecordPart { name, octets }).collect()
            }
            DatabaseOperation::Load | DatabaseOperation::Commit { .. } | DatabaseOperation::Remove { .. } => Vec::new(),
        }
    }

    fn change<'a>(&'a self, codec: Codec, parts: &'a [RecordPart<'a>], is_removed: bool) -> Option<Change<'a>> {
        match self {
            DatabaseOperation::Load => None,
            DatabaseOperation::Commit { expected, octets } => Some(Change::Commit { expected: *expected, octets }),
            DatabaseOperation::Put { known, value } => Some(codec.change(known, value, parts, is_removed)),
            DatabaseOperation::Parts { expected, whole: true, .. } => {
                Some(Change::Replace { expected: *expected, parts })
            }
            DatabaseOperation::Parts { expected, .. } => Some(Change::Update { expected: *expected, parts }),
            DatabaseOperation::Remove { expected } => Some(Change::Remove { expected: *expected }),
        }
    }
}

/// Result of an operation. After a retryable error nothing was done, and nothing will be.
#[derive(Debug)]
pub enum OperationResult {
    Loaded(Result<Option<StoredRecord>, RecordError>),
    Changed(Result<Version, RecordError>),
}

/// Error that prevents a network function from starting with its records.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database does not answer.
    #[error("the database of records (state.database) does not answer: {0}")]
    Records(#[from] RecordError),
    /// The records are not of this release.
    #[error(
        "the database of records (state.database) has something else than records of this release: is state.key another program's too?"
    )]
    UnknownFormat,
    /// The records in shared memory failed.
    #[error("{0}; see state.database, state.key, state.ues and upf.max-sessions")]
    Shared(#[from] ShmError),
}

/// Calls `each` for all records of a collection, and loads them in batches.
///
/// # Errors
///
/// Returns the [`RecordError`] of an operation, or the error of `each`.
pub fn read_all(
    records: &mut dyn RecordStore,
    collection: &'static str,
    mut each: impl FnMut(u64, StoredRecord) -> Result<(), DatabaseError>,
) -> Result<(), DatabaseError> {
    let numbers = records.list_ids(collection)?;
    for part in numbers.chunks(BATCH) {
        let names: Vec<Name> = part.iter().map(|id| Name { collection, id: *id }).collect();
        for (name, found) in names.iter().zip(records.load(&names)?) {
            // The record may have expired meanwhile.
            found.map_or(Ok(()), |found| each(name.id, found))?;
        }
    }
    Ok(())
}

/// An operation that is not complete.
#[derive(Debug)]
pub struct Pending {
    job: DatabaseJob,
    /// True if it may have been executed with unknown outcome.
    is_uncertain: bool,
    /// True if the record was removed and must be created again.
    is_removed: bool,
    since: std::time::Instant,
}

impl Pending {
    pub fn new(job: DatabaseJob) -> Self {
        Pending { job, is_uncertain: false, is_removed: false, since: std::time::Instant::now() }
    }

    /// Returns true if its next change removes the record (delete-create).
    fn removes_first(&self, codec: Codec) -> bool {
        let there = matches!(&self.job.operation, DatabaseOperation::Put { known, .. } if known.version != 0);
        there && codec.update_mode == UpdateMode::DeleteCreate && !self.is_removed
    }

    /// Marks it for a retry.
    fn retry_later(mut self, error: &RecordError) -> Self {
        tracing::debug!(%error, "an operation waits for the database");
        self.is_uncertain |=
            !matches!(self.job.operation, DatabaseOperation::Load) && matches!(error, RecordError::OutcomeUnknown(_));
        self
    }
}

/// Result of a change.
enum ChangeResult {
    Done(Pending, Result<Version, RecordError>),
    /// The record was removed and must be created again.
    Recreate(Pending),
    /// The database does not work.
    Later(Pending),
}

/// State of the database thread.
pub struct Database {
    pub records: Box<dyn RecordStore>,
    pub codec: Codec,
    pub jobs: Receiver<DatabaseJob>,
    pub metrics: Arc<Metrics>,
    pub stop: Arc<AtomicBool>,
    /// The network function that uses it.
    pub function: StateFunction,
    /// Name of the function's record for its peers.
    pub node: Name,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("function", &self.function).field("node", &self.node).finish_non_exhaustive()
    }
}

impl Database {
    /// Runs until all job senders are dropped. While the database is down it also ends on `stop`.
    pub fn run(mut self, mut done: impl FnMut(Name, OperationResult), clock: impl Fn() -> Instant) {
        let mut waiting = VecDeque::new();
        let mut renewed = std::time::Instant::now();
        loop {
            if waiting.is_empty() {
                match self.jobs.recv_timeout(RENEWAL_INTERVAL) {
                    Ok(job) => waiting.push_back(Pending::new(job)),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            waiting.extend(self.jobs.try_iter().map(Pending::new));
            if renewed.elapsed() >= RENEWAL_INTERVAL {
                renewed = std::time::Instant::now();
                renew(&mut *self.records, self.node);
            }
            if !self.run_pending(&mut waiting, &mut done) {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                abandon_expired(&mut waiting, clock(), &mut done);
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
    }

    /// Executes the waiting jobs. Returns false if the database does not work.
    pub fn run_pending(
        &mut self,
        waiting: &mut VecDeque<Pending>,
        done: &mut impl FnMut(Name, OperationResult),
    ) -> bool {
        while !waiting.is_empty() {
            let part: Vec<Pending> = waiting.drain(..waiting.len().min(BATCH)).collect();
            let (loads, changes): (Vec<_>, Vec<_>) =
                part.into_iter().partition(|pending| matches!(pending.job.operation, DatabaseOperation::Load));
            let (loaded, changed) = (self.load(&loads), self.change(&changes));
            let mut works = true;
            for (pending, result) in loads.into_iter().zip(loaded) {
                match result {
                    Err(error) if error.is_retryable() => {
                        waiting.push_back(pending.retry_later(&error));
                        works = false;
                    }
                    result => self.finish(pending, OperationResult::Loaded(result), done),
                }
            }
            for (pending, result) in changes.into_iter().zip(changed) {
                match self.changed(pending, result) {
                    ChangeResult::Done(pending, result) => self.finish(pending, OperationResult::Changed(result), done),
                    ChangeResult::Recreate(pending) => waiting.push_front(pending),
                    ChangeResult::Later(pending) => {
                        waiting.push_back(pending);
                        works = false;
                    }
                }
            }
            if !works {
                return false;
            }
        }
        true
    }

    /// Evaluates the result of a change.
    fn changed(&mut self, pending: Pending, result: Result<Version, RecordError>) -> ChangeResult {
        let removes_first = pending.removes_first(self.codec);
        match result {
            Ok(_) if removes_first => ChangeResult::Recreate(self.on_removed(pending)),
            // This change may have removed the record, with its response lost.
            Err(RecordError::Conflict) if removes_first && pending.is_uncertain => {
                match self.records.load(&[pending.job.name]).map(|mut found| found.pop().flatten()) {
                    Ok(None) => ChangeResult::Recreate(self.on_removed(pending)),
                    Err(error) if error.is_retryable() => ChangeResult::Later(pending.retry_later(&error)),
                    _ => ChangeResult::Done(pending, Err(RecordError::Conflict)),
                }
            }
            Err(error) if error.is_retryable() => ChangeResult::Later(pending.retry_later(&error)),
            result => ChangeResult::Done(pending, result),
        }
    }

    /// Records that the first half of delete-create is done.
    fn on_removed(&self, pending: Pending) -> Pending {
        let Pending { job, since, .. } = pending;
        self.metrics.state_operation(self.function, job.kind, StateOperation::Remove, since.elapsed());
        Pending { is_removed: true, ..Pending::new(job) }
    }

    fn load(&mut self, loads: &[Pending]) -> Vec<Result<Option<StoredRecord>, RecordError>> {
        if loads.is_empty() {
            return Vec::new();
        }
        let names: Vec<Name> = loads.iter().map(|pending| pending.job.name).collect();
        match self.records.load(&names) {
            Ok(found) => found.into_iter().map(Ok).collect(),
            // One invalid record spoils the result of all.
            Err(RecordError::NotARecord) if loads.len() > 1 => {
                let one =
                    |name: &Name| self.records.load(std::slice::from_ref(name)).map(|mut found| found.pop().flatten());
                names.iter().map(one).collect()
            }
            Err(error) => loads.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn change(&mut self, changes: &[Pending]) -> Vec<Result<Version, RecordError>> {
        if changes.is_empty() {
            return Vec::new();
        }
        let codec = self.codec;
        let parts: Vec<Vec<RecordPart<'_>>> =
            changes.iter().map(|pending| pending.job.operation.parts(codec)).collect();
        let changes = changes.iter().zip(&parts).filter_map(|(Pending { job, is_removed, .. }, parts)| {
            Some((job.name, job.operation.change(codec, parts, *is_removed)?))
        });
        let changes: Vec<(Name, Change<'_>)> = changes.collect();
        self.records.change(&changes)
    }

    fn finish(&self, pending: Pending, result: OperationResult, done: &mut impl FnMut(Name, OperationResult)) {
        let DatabaseJob { requester_name, operation, kind, .. } = pending.job;
        self.metrics.state_operation(self.function, kind, operation.state_operation(), pending.since.elapsed());
        done(requester_name, result);
    }
}

/// Abandons jobs after their deadline, except those that may have been executed or are half done.
fn abandon_expired(waiting: &mut VecDeque<Pending>, now: Instant, done: &mut impl FnMut(Name, OperationResult)) {
    waiting.retain(|pending| {
        let over = pending.job.deadline.is_some_and(|deadline| deadline <= now)
            && !pending.is_uncertain
            && !pending.is_removed;
        if over {
            let error = RecordError::Down("deadline expired".into());
            let loads = matches!(pending.job.operation, DatabaseOperation::Load);
            done(
                pending.job.requester_name,
                if loads { OperationResult::Loaded(Err(error)) } else { OperationResult::Changed(Err(error)) },
            );
        }
        !over
    });
}

/// Renews the function's record for its peers. A failure is retried at the next interval.
pub fn renew(records: &mut dyn RecordStore, node: Name) {
    let there = records.load(&[node]).map(|mut found| found.pop().flatten());
    if let Ok(Some(StoredRecord { version, octets, .. })) = there {
        let committed = records.change(&[(node, Change::Commit { expected: version, octets: &octets })]).remove(0);
        if let Err(error) = committed {
            tracing::warn!(%error, "record of the function for its peers not renewed; retrying");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;
    use vireo_store::records::{Format, MemoryRecords, Operations};

    const NAME: Name = Name { collection: "smf", id: 7 };

    /// A database that fails a number of times with this error before it works.
    struct Failing {
        records: MemoryRecords,
        times: u32,
        error: RecordError,
    }

    impl Failing {
        fn fails_now(&mut self) -> bool {
            let fails = self.times > 0;
            self.times = self.times.saturating_sub(1);
            fails
        }
    }

    impl RecordStore for Failing {
        fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
            if self.fails_now() { Err(self.error.clone()) } else { self.records.load(names) }
        }

        fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
            if self.fails_now() {
                return changes.iter().map(|_| Err(self.error.clone())).collect();
            }
            self.records.change(changes)
        }

        fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
            self.records.list_ids(collection)
        }

        fn operations(&self) -> Operations {
            self.records.operations()
        }
    }

    /// Returns the results of jobs if the database fails this number of times and the time is
    /// `now`.
    fn done(jobs: Vec<DatabaseJob>, times: u32, error: RecordError, now: Instant) -> Vec<(Name, OperationResult)> {
        let (sender, receiver) = bounded(jobs.len());
        jobs.into_iter().for_each(|job| sender.send(job).unwrap());
        drop(sender);
        let records = Box::new(Failing { records: MemoryRecords::new(LIFE), times, error });
        let (metrics, stop) = (Arc::new(Metrics::new()), Arc::default());
        let mut all = Vec::new();
        let (metrics_of, function) = (Arc::clone(&metrics), StateFunction::Smf);
        let codec = Codec::default();
        let database = Database { records, codec, jobs: receiver, metrics: metrics_of, stop, function, node: NAME };
        database.run(|name, result| all.push((name, result)), || now);
        let text = metrics.render();
        let writes =
            r#"vireo_database_operations_total{function="smf",transaction="create_sm_context",operation="write"} 1"#;
        let committed = all.iter().any(|(_, done)| matches!(done, OperationResult::Changed(Ok(_))));
        assert_eq!(text.contains(writes), committed, "each is counted once: {text}");
        all
    }

    fn commit(deadline: Option<Instant>) -> DatabaseJob {
        let operation = DatabaseOperation::Commit { expected: 0, octets: vec![1] };
        DatabaseJob { name: NAME, requester_name: NAME, operation, kind: Transaction::CreateSmContext, deadline }
    }

    #[test]
    fn expired_job_is_abandoned_if_never_executed() {
        let (early, late) = (Some(Instant(1)), Some(Instant(9)));
        let down = || RecordError::Down("x".into());
        let is_done = |all: &[(Name, OperationResult)]| matches!(all, [(_, OperationResult::Changed(Ok(_)))]);
        assert!(is_done(&done(vec![commit(late)], 3, down(), Instant(5))));
        assert!(is_done(&done(vec![commit(None)], 3, down(), Instant(5))));
        assert!(is_done(&done(vec![commit(early)], 3, RecordError::OutcomeUnknown("x".into()), Instant(5))));
        let over = done(vec![commit(early)], 3, down(), Instant(5));
        assert!(matches!(&over[..], [(_, OperationResult::Changed(Err(RecordError::Down(_))))]), "{over:?}");
        let load = DatabaseJob { operation: DatabaseOperation::Load, ..commit(early) };
        let over = done(vec![load], 1, RecordError::OutcomeUnknown("x".into()), Instant(5));
        assert!(matches!(&over[..], [(_, OperationResult::Loaded(Err(_)))]), "{over:?}");
    }

    /// A database that loses the response to one change, which was executed or not.
    struct Lossy {
        records: MemoryRecords,
        turn: u32,
        is_executed: bool,
    }

    impl RecordStore for Lossy {
        fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
            self.records.load(names)
        }

        fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
            self.turn = self.turn.wrapping_sub(1);
            if self.turn != u32::MAX {
                return self.records.change(changes);
            }
            if self.is_executed {
                self.records.change(changes);
            }
            changes.iter().map(|_| Err(RecordError::OutcomeUnknown("x".into()))).collect()
        }

        fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
            self.records.list_ids(collection)
        }

        fn operations(&self) -> Operations {
            self.records.operations()
        }
    }

    /// With delete-create, whichever response is lost, the record finally has the last committed
    /// value.
    #[test]
    fn delete_create_survives_any_lost_response() {
        #[derive(PartialEq, Debug, serde::Serialize, serde::Deserialize)]
        struct Value {
            count: u8,
        }
        let codec = Codec { format: Format::Json, update_mode: UpdateMode::DeleteCreate };
        let name = NAME;
        for (turn, is_executed) in [(0, false), (0, true), (1, false), (1, true), (9, true)] {
            let memory = MemoryRecords::new(LIFE);
            let mut known = RecordBase::default();
            codec.commit(&mut memory.clone(), name, &mut known, &Value { count: 1 }).unwrap();
            let (jobs, stop) = (crossbeam_channel::never(), Arc::default());
            let records = Box::new(Lossy { records: memory.clone(), turn, is_executed });
            let mut database = Database {
                records,
                codec,
                jobs,
                metrics: Arc::new(Metrics::new()),
                stop,
                function: StateFunction::Smf,
                node: NAME,
            };
            let value = codec.encode(&known, &Value { count: 2 }).unwrap();
            let operation = DatabaseOperation::Put { known, value };
            let job = DatabaseJob { operation, ..commit(Some(Instant(1))) };
            let (mut waiting, mut all) = (VecDeque::from([Pending::new(job)]), Vec::new());
            while !database.run_pending(&mut waiting, &mut |_, done| all.push(done)) {
                // At any later time.
                abandon_expired(&mut waiting, Instant(2), &mut |_, done| panic!("{done:?} after {turn}"));
            }
            // If the last response was lost, the requester checks whether the record is its own.
            let own = if (turn, is_executed) == (1, true) { Err(RecordError::Conflict) } else { Ok(2) };
            assert!(matches!(&all[..], [OperationResult::Changed(result)] if *result == own), "{all:?} after {turn}");
            let (there, known) = codec.load::<Value>(&mut memory.clone(), name).unwrap().unwrap();
            assert_eq!((there, known.version), (Value { count: 2 }, 2));
        }
    }
}
