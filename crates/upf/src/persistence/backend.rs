//! Backend of the UPF's records: a database with its own thread, or shared memory.
//!
//! The database thread communicates by channels. The N4 thread writes to shared memory itself.

use super::{COLLECTION, NODE, PersistentUpf, PreviousState, SharedRecordConfig, TransactionContext, WriterMode};
use crate::machine::settings::CapacityCheck;
use crate::machine::tables_access::TablesAccess;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vireo_datapath::{Clock, Waker};
use vireo_ops::config::StateWrite;
use vireo_ops::database::{
    BATCH, Database, DatabaseError, DatabaseJob, DatabaseOperation, OperationResult, RENEWAL_INTERVAL, read_all, renew,
};
use vireo_ops::metrics::{Metrics, StateFunction};
use vireo_ops::shared_record::COLLECTION as COLLECTION_OF_ALL;
use vireo_ops::state::{DurableRecords, RecordsConfig, SharedConfig};
use vireo_store::Version;
use vireo_store::records::{Change, Codec, Name, Operations, RecordError, RecordStore, ShmRecords, StoredRecord};
use vireo_store::region::LARGEST_RECORD;

/// Delays until a restarted UPF reads again what control planes have committed for its predecessor.
const REREAD_DELAYS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(50)];
/// Interval of checks for a stop during these delays.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum size in bytes of a record's header in shared memory, plus the overhead of sealing.
const HEAD: usize = 64 + 64;
/// Minimum interval of log lines about missing room.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Capacity of the channels to the database and to the N4 thread.
const CHANNEL_CAPACITY: usize = 65_536;

/// Opened records, with the state that was found.
pub(crate) struct OpenedStore {
    records: Box<dyn RecordStore>,
    mode: WriterMode,
    codec: Codec,
    before: Option<PreviousState>,
    /// Set if records are shared with control planes: how, and where.
    shared: Option<(SharedRecordConfig, RecordsConfig)>,
    /// Set if records are in shared memory.
    room: Option<Arc<dyn CapacityCheck>>,
}

/// Opens the records of the UPF at address `n4`: several UPFs may share a database. `sessions` is
/// the maximum number of sessions.
///
/// # Errors
///
/// Returns an error if the records cannot be opened, or have another format.
pub(crate) fn begin(
    of: &DurableRecords,
    (n4, sessions): (IpAddr, usize),
    ntp: u32,
) -> Result<OpenedStore, DatabaseError> {
    let own: String = n4.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let own_key = format!("{COLLECTION}-{own}");
    let (mut shared, mut room) = (None, None);
    let (mut records, mode, codec): (Box<dyn RecordStore>, WriterMode, Codec) = match of {
        DurableRecords::Database(config) => {
            config.prove_key()?;
            let mut alone = config.clone();
            alone.key = format!("{}-{own_key}", config.key);
            let mut records = alone.open()?;
            if config.scope.includes_upf() {
                records = Box::new(SplitRecords { alone: records, shared: config.open()? });
                shared = Some((SharedRecordConfig { own, format: config.octets_format() }, config.clone()));
            }
            let mode =
                if config.write == StateWrite::NonBlocking { WriterMode::WriteBehind } else { WriterMode::Shared };
            (records, mode, config.codec())
        }
        DurableRecords::Shared(config) => {
            let config = SharedConfig { records: u32::try_from(sessions).unwrap_or(u32::MAX), ..config.clone() };
            let records = config.open(&own_key)?;
            room = Some(in_memory(records.clone()));
            (config.sealed(records)?, WriterMode::Sole, Codec::default())
        }
    };
    let before = super::load_previous(&mut *records, codec, shared.as_ref().map(|(sharing, _)| sharing), ntp)?;
    Ok(OpenedStore { records, mode, codec, before, shared, room })
}

impl OpenedStore {
    /// Returns the maximum size of a session's record in bytes, if there is one.
    pub(crate) fn record_octets(&self) -> Option<usize> {
        (self.mode == WriterMode::Sole).then_some(LARGEST_RECORD - HEAD)
    }

    /// Returns the capacity check, if the records are bounded.
    pub(crate) fn room(&self) -> Option<Arc<dyn CapacityCheck>> {
        self.room.clone()
    }
}

/// Capacity check of records in shared memory.
#[derive(Debug)]
struct InMemory {
    records: ShmRecords,
    /// When missing room was last logged. Small records may fit when large ones do not.
    logged_at: Mutex<Option<Instant>>,
}

/// Creates the capacity check of these records.
pub(crate) fn in_memory(records: ShmRecords) -> Arc<dyn CapacityCheck> {
    Arc::new(InMemory { records, logged_at: Mutex::default() })
}

impl CapacityCheck for InMemory {
    fn has(&self, octets: usize) -> bool {
        let has = self.records.has_room(octets + HEAD);
        if !has {
            let mut logged_at = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
            if logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
                return has;
            }
            *logged_at = Some(Instant::now());
            tracing::warn!("changes of sessions are refused: the records have no room for more (see state.database)");
        }
        has
    }
}

/// Store of two sets of records: those of the UPF alone, and those of UEs that it shares.
struct SplitRecords {
    alone: Box<dyn RecordStore>,
    shared: Box<dyn RecordStore>,
}

impl SplitRecords {
    fn store(&mut self, is_shared: bool) -> &mut dyn RecordStore {
        if is_shared { &mut *self.shared } else { &mut *self.alone }
    }
}

fn is_shared(name: Name) -> bool {
    name.collection == COLLECTION_OF_ALL
}

impl RecordStore for SplitRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        let mut all: Vec<Option<StoredRecord>> = names.iter().map(|_| None).collect();
        for side in [false, true] {
            let at: Vec<usize> = (0..names.len()).filter(|at| is_shared(names[*at]) == side).collect();
            let wanted: Vec<Name> = at.iter().map(|at| names[*at]).collect();
            if !wanted.is_empty() {
                let found = self.store(side).load(&wanted)?;
                at.into_iter().zip(found).for_each(|(at, found)| all[at] = found);
            }
        }
        Ok(all)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        // A placeholder: each change gets its own result below.
        let mut all: Vec<_> = changes.iter().map(|_| Err(RecordError::Conflict)).collect();
        for side in [false, true] {
            let at: Vec<usize> = (0..changes.len()).filter(|at| is_shared(changes[*at].0) == side).collect();
            let wanted: Vec<(Name, Change<'_>)> = at.iter().map(|at| changes[*at]).collect();
            if !wanted.is_empty() {
                let done = self.store(side).change(&wanted);
                at.into_iter().zip(done).for_each(|(at, done)| all[at] = done);
            }
        }
        all
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.store(collection == COLLECTION_OF_ALL).list_ids(collection)
    }

    fn operations(&self) -> Operations {
        let (alone, shared) = (self.alone.operations(), self.shared.operations());
        Operations {
            reads: alone.reads + shared.reads,
            writes: alone.writes + shared.writes,
            removals: alone.removals + shared.removals,
            round_trips: alone.round_trips + shared.round_trips,
        }
    }
}

/// Reads the shared records again, after commits that were in flight at the restart.
fn reread_shared(of: &RecordsConfig, stop: &AtomicBool, mut report: impl FnMut(Name, OperationResult)) {
    for after in REREAD_DELAYS {
        let end = Instant::now() + after;
        while Instant::now() < end {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(STOP_CHECK_INTERVAL);
        }
        let mut records = match of.open() {
            Ok(records) => records,
            Err(_) => continue,
        };
        let looked = read_all(&mut *records, COLLECTION_OF_ALL, |id, found| {
            report(Name { collection: COLLECTION_OF_ALL, id }, OperationResult::Loaded(Ok(Some(found))));
            Ok(())
        });
        if let Err(error) = looked {
            tracing::warn!(%error, "records of UEs not read; retrying later");
        }
    }
}

/// The transactions in progress, with the connection to the store.
#[derive(Debug)]
pub(crate) struct PersistenceBackend {
    pub(crate) stored: PersistentUpf,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Thread { jobs: Sender<DatabaseJob>, done: Receiver<(Name, OperationResult)>, stop: Arc<AtomicBool> },
    Shm(ShmBackend),
}

/// Records in shared memory, which the N4 thread writes itself.
struct ShmBackend {
    records: Box<dyn RecordStore>,
    metrics: Arc<Metrics>,
    /// When the node's record was last renewed.
    renewed: Instant,
}

impl std::fmt::Debug for ShmBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmBackend").finish_non_exhaustive()
    }
}

impl ShmBackend {
    fn execute_job(&mut self, job: &DatabaseJob) -> OperationResult {
        let begun = Instant::now();
        let change = match &job.operation {
            DatabaseOperation::Load => None,
            DatabaseOperation::Commit { expected, octets } => Some(Change::Commit { expected: *expected, octets }),
            DatabaseOperation::Remove { expected } => Some(Change::Remove { expected: *expected }),
            // Records that are not shared have no parts.
            DatabaseOperation::Put { .. } | DatabaseOperation::Parts { .. } => {
                return OperationResult::Changed(Err(RecordError::NotARecord));
            }
        };
        let done = match change {
            None => OperationResult::Loaded(self.records.load(&[job.name]).map(|mut found| found.pop().flatten())),
            Some(change) => OperationResult::Changed(self.records.change(&[(job.name, change)]).remove(0)),
        };
        self.metrics.state_operation(StateFunction::Upf, job.kind, job.operation.state_operation(), begun.elapsed());
        done
    }

    /// Executes all queued jobs.
    fn execute<P: TablesAccess>(&mut self, stored: &mut PersistentUpf, on: &mut TransactionContext<'_, P>) {
        while let Some(job) = stored.jobs().pop_front() {
            let done = self.execute_job(&job);
            stored.on_result(on, job.name, done);
        }
    }

    /// Retries commits that found no room, and renews the node's record when due.
    fn on_time<P: TablesAccess>(&mut self, stored: &mut PersistentUpf, on: &mut TransactionContext<'_, P>) {
        stored.retry_stalled(on);
        if self.renewed.elapsed() >= RENEWAL_INTERVAL {
            self.renewed = Instant::now();
            renew(&mut *self.records, NODE);
        }
        self.execute(stored, on);
    }
}

impl PersistenceBackend {
    /// Starts the backend, and restores the state that was found. A database gets a thread, which
    /// wakes the N4 thread.
    pub(crate) fn start<P: TablesAccess>(
        begun: OpenedStore,
        metrics: Arc<Metrics>,
        (wake, clock): (Waker, Clock),
        on: &mut TransactionContext<'_, P>,
    ) -> io::Result<Self> {
        let OpenedStore { records, mode, codec, before, shared, .. } = begun;
        let sharing = shared.as_ref().map(|(sharing, _)| sharing.clone());
        let backend = if mode == WriterMode::Sole {
            Backend::Shm(ShmBackend { records, metrics, renewed: Instant::now() })
        } else {
            let (jobs, waiting) = bounded(CHANNEL_CAPACITY);
            let (results, done) = bounded(CHANNEL_CAPACITY);
            let stop = Arc::new(AtomicBool::new(false));
            let function = StateFunction::Upf;
            let (node, ended) = (NODE, Arc::clone(&stop));
            let database = Database { records, codec, jobs: waiting, metrics, stop: ended, function, node };
            let report = move |name, done| {
                // The N4 thread has ended if the UPF was stopped.
                let _ = results.send((name, done));
                wake.wake();
            };
            if let Some((_, of)) = shared.filter(|_| before.is_some()) {
                let (report, stop) = (report.clone(), Arc::clone(&stop));
                let thread = std::thread::Builder::new().name("upf-late".to_owned());
                thread.spawn(move || reread_shared(&of, &stop, report))?;
            }
            let thread = std::thread::Builder::new().name("upf-database".to_owned());
            thread.spawn(move || database.run(report, || clock.now()))?;
            Backend::Thread { jobs, done, stop }
        };
        let mut persistence = PersistenceBackend { stored: PersistentUpf::new(mode, codec, sharing), backend };
        persistence.stored.begin(on, before);
        Ok(persistence)
    }

    /// Handles a batch of database results and queues new jobs. Returns true if more results are
    /// available.
    pub(crate) fn poll<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) -> bool {
        if let Backend::Thread { done, .. } = &self.backend {
            for (name, done) in done.try_iter().take(BATCH) {
                self.stored.on_result(on, name, done);
            }
        }
        self.submit(on);
        matches!(&self.backend, Backend::Thread { done, .. } if !done.is_empty())
    }

    /// Sends jobs until the channel is full. The rest waits for results, which wake the thread.
    /// Shared memory executes them at once.
    pub(crate) fn submit<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
        let PersistenceBackend { stored, backend } = self;
        match backend {
            Backend::Shm(shm) => shm.execute(stored, on),
            Backend::Thread { jobs: to, .. } => {
                let jobs = stored.jobs();
                while let Some(job) = jobs.pop_front() {
                    if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = to.try_send(job) {
                        jobs.push_front(job);
                        return;
                    }
                }
            }
        }
    }

    /// Renews and retries commits. Must be called once a second.
    pub(crate) fn on_time<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
        self.stored.renew(on);
        if let Backend::Shm(shm) = &mut self.backend {
            shm.on_time(&mut self.stored, on);
        }
    }
}

impl Drop for PersistenceBackend {
    fn drop(&mut self) {
        if let Backend::Thread { stop, .. } = &self.backend {
            stop.store(true, Ordering::SeqCst);
        }
    }
}
