//! The way of a function's thread to its database of records: a thread beside it, which takes all that is to be loaded and all
//! that is to be committed in one go each, and goes on asking while the database is down. The function's own thread never waits.
//! By delete and create a commit is two changes, one after the other: a record that was taken out is put in again however long that
//! takes.

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

/// After a failure.
const AGAIN: Duration = Duration::from_millis(20);
/// Operations in one go.
pub(crate) const BATCH: usize = 256;
/// How often it is written again what the function is to its peers, so that it is not forgotten.
pub(crate) const RENEWED: Duration = Duration::from_secs(LIFE.as_secs() / 8);

/// An operation.
#[derive(Debug)]
pub(crate) struct DatabaseJob {
    pub(crate) name: Name,
    /// By what who asks knows it: of a record that functions share, what is its own there.
    pub(crate) of: Name,
    pub(crate) what: DatabaseOperation,
    /// The transaction that it is for.
    pub(crate) kind: Transaction,
    /// Until when it makes sense; `None`: however long it takes.
    pub(crate) until: Option<Instant>,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum DatabaseOperation {
    Load,
    /// A record that is a whole.
    Commit {
        expected: Version,
        octets: Vec<u8>,
    },
    /// A value, by the database's codec.
    Put {
        known: RecordBase,
        value: Encoded,
    },
    /// Parts of a record that functions share; of a `whole` it has these alone then.
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
    pub(crate) fn operation(&self) -> StateOperation {
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
            DatabaseOperation::Put { known, value } => codec.parts(known, value),
            DatabaseOperation::Parts { parts, .. } => {
                parts.iter().map(|(name, octets)| RecordPart { name, octets }).collect()
            }
            DatabaseOperation::Load | DatabaseOperation::Commit { .. } | DatabaseOperation::Remove { .. } => Vec::new(),
        }
    }

    fn change<'a>(&'a self, codec: Codec, parts: &'a [RecordPart<'a>], taken_out: bool) -> Option<Change<'a>> {
        match self {
            DatabaseOperation::Load => None,
            DatabaseOperation::Commit { expected, octets } => Some(Change::Commit { expected: *expected, octets }),
            DatabaseOperation::Put { known, value } => Some(codec.change(known, value, parts, taken_out)),
            DatabaseOperation::Parts { expected, whole: true, .. } => {
                Some(Change::Replace { expected: *expected, parts })
            }
            DatabaseOperation::Parts { expected, .. } => Some(Change::Update { expected: *expected, parts }),
            DatabaseOperation::Remove { expected } => Some(Change::Remove { expected: *expected }),
        }
    }
}

/// What has become of it. After an error that passes nothing was done, and will not be.
#[derive(Debug)]
pub(crate) enum OperationResult {
    Loaded(Result<Option<StoredRecord>, RecordError>),
    Changed(Result<Version, RecordError>),
}

/// Why a function does not start over a database.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It does not answer.
    #[error("the database of records (state.database) does not answer: {0}")]
    Records(#[from] RecordError),
    /// It has something else.
    #[error(
        "the database of records (state.database) has something else than records of this release: is state.key another program's too?"
    )]
    Stranger,
    /// The records in shared memory.
    #[error("{0}; see state.database, state.key, state.ues and upf.max-sessions")]
    Shared(#[from] ShmError),
}

/// The records of a collection, by their numbers, some at a time.
///
/// # Errors
///
/// [`RecordError`], of all of them; what `each` says.
pub(crate) fn read_all(
    records: &mut dyn RecordStore,
    collection: &'static str,
    mut each: impl FnMut(u64, StoredRecord) -> Result<(), DatabaseError>,
) -> Result<(), DatabaseError> {
    let numbers = records.list_ids(collection)?;
    for part in numbers.chunks(BATCH) {
        let names: Vec<Name> = part.iter().map(|id| Name { collection, id: *id }).collect();
        for (name, found) in names.iter().zip(records.load(&names)?) {
            // One may have ended its life meanwhile.
            found.map_or(Ok(()), |found| each(name.id, found))?;
        }
    }
    Ok(())
}

/// An operation that is not done yet.
pub(crate) struct Pending {
    job: DatabaseJob,
    /// It may have been carried out, and nobody knows.
    doubtful: bool,
    /// The record was taken out, to be put in again.
    taken_out: bool,
    since: std::time::Instant,
}

impl Pending {
    pub(crate) fn new(job: DatabaseJob) -> Self {
        Pending { job, doubtful: false, taken_out: false, since: std::time::Instant::now() }
    }

    /// Whether it is a commit that has the record taken out next.
    fn takes_out(&self, codec: Codec) -> bool {
        let there = matches!(&self.job.what, DatabaseOperation::Put { known, .. } if known.version != 0);
        there && codec.manner == UpdateMode::DeleteCreate && !self.taken_out
    }

    /// It is tried again.
    fn retry_later(mut self, error: &RecordError) -> Self {
        tracing::debug!(%error, "an operation waits for the database");
        self.doubtful |=
            !matches!(self.job.what, DatabaseOperation::Load) && matches!(error, RecordError::OutcomeUnknown(_));
        self
    }
}

/// What a change comes to.
enum ChangeResult {
    Done(Pending, Result<Version, RecordError>),
    /// The record was taken out, and is to be put in.
    PutIn(Pending),
    /// The database does not work.
    Later(Pending),
}

/// The thread.
pub(crate) struct Database {
    pub(crate) records: Box<dyn RecordStore>,
    pub(crate) codec: Codec,
    pub(crate) jobs: Receiver<DatabaseJob>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop: Arc<AtomicBool>,
    /// Whose it is.
    pub(crate) function: StateFunction,
    /// Where it is written what the function is to its peers.
    pub(crate) node: Name,
}

impl Database {
    /// Works until nobody has jobs any more, or until it is told to stop.
    pub(crate) fn run(mut self, mut done: impl FnMut(Name, OperationResult), clock: impl Fn() -> Instant) {
        let mut waiting = VecDeque::new();
        let mut renewed = std::time::Instant::now();
        loop {
            if waiting.is_empty() {
                match self.jobs.recv_timeout(RENEWED) {
                    Ok(job) => waiting.push_back(Pending::new(job)),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            waiting.extend(self.jobs.try_iter().map(Pending::new));
            if renewed.elapsed() >= RENEWED {
                renewed = std::time::Instant::now();
                renew(&mut *self.records, self.node);
            }
            if !self.run_pending(&mut waiting, &mut done) {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                give_up(&mut waiting, clock(), &mut done);
                std::thread::sleep(AGAIN);
            }
        }
    }

    /// Does what waits, as far as the database does; whether it does.
    pub(crate) fn run_pending(
        &mut self,
        waiting: &mut VecDeque<Pending>,
        done: &mut impl FnMut(Name, OperationResult),
    ) -> bool {
        while !waiting.is_empty() {
            let part: Vec<Pending> = waiting.drain(..waiting.len().min(BATCH)).collect();
            let (loads, changes): (Vec<_>, Vec<_>) =
                part.into_iter().partition(|pending| matches!(pending.job.what, DatabaseOperation::Load));
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
                    ChangeResult::PutIn(pending) => waiting.push_front(pending),
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

    /// What a change comes to that the database was asked for.
    fn changed(&mut self, pending: Pending, result: Result<Version, RecordError>) -> ChangeResult {
        let takes_out = pending.takes_out(self.codec);
        match result {
            Ok(_) if takes_out => ChangeResult::PutIn(self.taken_out(pending)),
            // It may be because it was taken out by this, and the answer was lost.
            Err(RecordError::Conflict) if takes_out && pending.doubtful => {
                match self.records.load(&[pending.job.name]).map(|mut found| found.pop().flatten()) {
                    Ok(None) => ChangeResult::PutIn(self.taken_out(pending)),
                    Err(error) if error.is_retryable() => ChangeResult::Later(pending.retry_later(&error)),
                    _ => ChangeResult::Done(pending, Err(RecordError::Conflict)),
                }
            }
            Err(error) if error.is_retryable() => ChangeResult::Later(pending.retry_later(&error)),
            result => ChangeResult::Done(pending, result),
        }
    }

    /// The first half of delete and create is done.
    fn taken_out(&self, pending: Pending) -> Pending {
        let Pending { job, since, .. } = pending;
        self.metrics.state_operation(self.function, job.kind, StateOperation::Remove, since.elapsed());
        Pending { taken_out: true, ..Pending::new(job) }
    }

    fn load(&mut self, loads: &[Pending]) -> Vec<Result<Option<StoredRecord>, RecordError>> {
        if loads.is_empty() {
            return Vec::new();
        }
        let names: Vec<Name> = loads.iter().map(|pending| pending.job.name).collect();
        match self.records.load(&names) {
            Ok(found) => found.into_iter().map(Ok).collect(),
            // One that is no record spoils the answer of all.
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
        let parts: Vec<Vec<RecordPart<'_>>> = changes.iter().map(|pending| pending.job.what.parts(codec)).collect();
        let changes = changes.iter().zip(&parts).filter_map(|(Pending { job, taken_out, .. }, parts)| {
            Some((job.name, job.what.change(codec, parts, *taken_out)?))
        });
        let changes: Vec<(Name, Change<'_>)> = changes.collect();
        self.records.change(&changes)
    }

    fn finish(&self, pending: Pending, result: OperationResult, done: &mut impl FnMut(Name, OperationResult)) {
        let DatabaseJob { of, what, kind, .. } = pending.job;
        self.metrics.state_operation(self.function, kind, what.operation(), pending.since.elapsed());
        done(of, result);
    }
}

/// What makes no sense any more is given up, unless it may have been done, or is half done.
fn give_up(waiting: &mut VecDeque<Pending>, now: Instant, done: &mut impl FnMut(Name, OperationResult)) {
    waiting.retain(|pending| {
        let over = pending.job.until.is_some_and(|until| until <= now) && !pending.doubtful && !pending.taken_out;
        if over {
            let error = RecordError::Down("it was asked for too long".into());
            let loads = matches!(pending.job.what, DatabaseOperation::Load);
            done(
                pending.job.of,
                if loads { OperationResult::Loaded(Err(error)) } else { OperationResult::Changed(Err(error)) },
            );
        }
        !over
    });
}

/// What the function is to its peers is written again; if that fails, later.
pub(crate) fn renew(records: &mut dyn RecordStore, node: Name) {
    let there = records.load(&[node]).map(|mut found| found.pop().flatten());
    if let Ok(Some(StoredRecord { version, octets, .. })) = there {
        let committed = records.change(&[(node, Change::Commit { expected: version, octets: &octets })]).remove(0);
        if let Err(error) = committed {
            tracing::warn!(%error, "what this function is to its peers was not written again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;
    use vireo_store::records::{Format, MemoryRecords, Operations};

    const NAME: Name = Name { collection: "smf", id: 7 };

    /// A database that fails so often before it works, each time with this.
    struct Failing {
        records: MemoryRecords,
        times: u32,
        error: RecordError,
    }

    impl Failing {
        fn fails(&mut self) -> bool {
            let fails = self.times > 0;
            self.times = self.times.saturating_sub(1);
            fails
        }
    }

    impl RecordStore for Failing {
        fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
            if self.fails() { Err(self.error.clone()) } else { self.records.load(names) }
        }

        fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
            if self.fails() {
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

    /// What becomes of jobs when the database fails so often, and time is `now`.
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
        database.run(|name, what| all.push((name, what)), || now);
        let text = metrics.render();
        let writes =
            r#"vireo_state_operations_total{function="smf",transaction="create-sm-context",operation="write"} 1"#;
        let committed = all.iter().any(|(_, done)| matches!(done, OperationResult::Changed(Ok(_))));
        assert_eq!(text.contains(writes), committed, "each is counted once: {text}");
        all
    }

    fn commit(until: Option<Instant>) -> DatabaseJob {
        let what = DatabaseOperation::Commit { expected: 0, octets: vec![1] };
        DatabaseJob { name: NAME, of: NAME, what, kind: Transaction::CreateSmContext, until }
    }

    #[test]
    fn what_somebody_waits_for_is_given_up_in_time_unless_it_may_have_been_done() {
        let (early, late) = (Some(Instant(1)), Some(Instant(9)));
        let down = || RecordError::Down("x".into());
        let is_done = |all: &[(Name, OperationResult)]| matches!(all, [(_, OperationResult::Changed(Ok(_)))]);
        assert!(is_done(&done(vec![commit(late)], 3, down(), Instant(5))));
        assert!(is_done(&done(vec![commit(None)], 3, down(), Instant(5))));
        assert!(is_done(&done(vec![commit(early)], 3, RecordError::OutcomeUnknown("x".into()), Instant(5))));
        let over = done(vec![commit(early)], 3, down(), Instant(5));
        assert!(matches!(&over[..], [(_, OperationResult::Changed(Err(RecordError::Down(_))))]), "{over:?}");
        let load = DatabaseJob { what: DatabaseOperation::Load, ..commit(early) };
        let over = done(vec![load], 1, RecordError::OutcomeUnknown("x".into()), Instant(5));
        assert!(matches!(&over[..], [(_, OperationResult::Loaded(Err(_)))]), "{over:?}");
    }

    /// A database whose answer to the change of this turn is lost: it was carried out, or not.
    struct Lossy {
        records: MemoryRecords,
        turn: u32,
        carried_out: bool,
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
            if self.carried_out {
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

    /// By delete and create, whichever answer is lost, the record is there in the end, with what was committed last.
    #[test]
    fn what_was_taken_out_is_put_in_whichever_answer_is_lost() {
        #[derive(PartialEq, Debug, serde::Serialize, serde::Deserialize)]
        struct Value {
            count: u8,
        }
        let codec = Codec { format: Format::Json, manner: UpdateMode::DeleteCreate };
        let name = NAME;
        for (turn, carried_out) in [(0, false), (0, true), (1, false), (1, true), (9, true)] {
            let memory = MemoryRecords::new(LIFE);
            let mut known = RecordBase::default();
            codec.commit(&mut memory.clone(), name, &mut known, &Value { count: 1 }).unwrap();
            let (jobs, stop) = (crossbeam_channel::never(), Arc::default());
            let records = Box::new(Lossy { records: memory.clone(), turn, carried_out });
            let mut database = Database {
                records,
                codec,
                jobs,
                metrics: Arc::new(Metrics::new()),
                stop,
                function: StateFunction::Smf,
                node: NAME,
            };
            let what = DatabaseOperation::Put { known, value: codec.encode(&Value { count: 2 }).unwrap() };
            let job = DatabaseJob { what, ..commit(Some(Instant(1))) };
            let (mut waiting, mut all) = (VecDeque::from([Pending::new(job)]), Vec::new());
            while !database.run_pending(&mut waiting, &mut |_, done| all.push(done)) {
                // However late it is.
                give_up(&mut waiting, Instant(2), &mut |_, done| panic!("{done:?} after {turn}"));
            }
            // Where the last answer was lost, who asked looks whether what is there is its own.
            let own = if (turn, carried_out) == (1, true) { Err(RecordError::Conflict) } else { Ok(2) };
            assert!(matches!(&all[..], [OperationResult::Changed(result)] if *result == own), "{all:?} after {turn}");
            let (there, known) = codec.load::<Value>(&mut memory.clone(), name).unwrap().unwrap();
            assert_eq!((there, known.version), (Value { count: 2 }, 2));
        }
    }
}
