//! Write-behind: commits are queued for a pool of writers and return at once.
//!
//! A commit returns the version that it will have (the non-blocking writes of "The Cost of
//! Stateless Network Functions in 5G"). The next load of that record waits until its queued changes
//! are done: the barrier.
//!
//! The changes of a record are applied in order, one at a time. While the store does not work, they
//! are retried. If one is refused, the later ones are dropped, and the next operation of that
//! record returns the error, once. The queue is bounded: a caller waits for room, and gets an error
//! after a timeout. A process that dies loses the changes in its queue. That is the price of this
//! mode, and the reason that an SMF uses blocking writes.

mod queued_change;
#[cfg(test)]
mod tests;

use super::{Change, Name, Operations, RecordError, RecordStore, StoredRecord};
use crate::Version;
use queued_change::QueuedChange;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause after a failure of the store.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of changes that a writer sends in one request.
const MAX_BATCH: usize = 32;

/// Limits of a writer pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritersConfig {
    /// Maximum number of queued changes.
    pub waiting: usize,
    /// Maximum total size of the queued changes in bytes.
    pub octets: usize,
    /// Maximum time that a caller waits for room, or at a barrier.
    pub timeout: Duration,
}

impl Default for WritersConfig {
    fn default() -> Self {
        WritersConfig { waiting: 4096, octets: 16 << 20, timeout: Duration::from_secs(1) }
    }
}

/// Queued changes of a record, or an unreported error.
#[derive(Debug, Default)]
struct Pending {
    changes: VecDeque<QueuedChange>,
    /// True if a writer processes the first change.
    busy: bool,
    /// Version after all queued changes.
    version: Version,
    /// Error of a failed change, not yet reported.
    error: Option<RecordError>,
}

#[derive(Debug, Default)]
struct State {
    records: FxHashMap<Name, Pending>,
    /// Records with a queued change that no writer processes.
    ready: VecDeque<Name>,
    waiting: usize,
    octets: usize,
    errors: usize,
    stopping: bool,
    operations: Operations,
}

#[derive(Debug)]
struct Shared {
    config: WritersConfig,
    /// Number of writer threads.
    writers: usize,
    state: Mutex<State>,
    /// Signals writers that there are queued changes.
    work: Condvar,
    /// Signals completed changes: there is room, or a barrier may open.
    done: Condvar,
}

impl Shared {
    /// Locks the state. Poisoning is harmless: every section leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `until`; returns an error after that.
fn wait_until<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, State>,
    until: Instant,
) -> Result<MutexGuard<'a, State>, RecordError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(RecordError::Down("its writers have too much to do".into()));
    }
    Ok(condition.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
}

/// The pool of writers of a process. Dropping it first applies the queued changes.
#[derive(Debug)]
pub struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Starts one writer thread for each of these handles.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    pub fn start(config: WritersConfig, handles: Vec<Box<dyn RecordStore>>) -> std::io::Result<Self> {
        let (work, done) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { config, writers: handles.len().max(1), state: Mutex::default(), work, done });
        let mut writers = Writers { shared, threads: Vec::new() };
        for (number, mut store) in handles.into_iter().enumerate() {
            let shared = writers.shared.clone();
            let thread = std::thread::Builder::new().name(format!("writer {number}"));
            writers.threads.push(thread.spawn(move || shared.write(&mut *store))?);
        }
        Ok(writers)
    }

    /// Returns a store that loads through `place` and writes through the pool.
    pub fn records(&self, store: Box<dyn RecordStore>) -> WriteBehindRecords {
        WriteBehindRecords { shared: self.shared.clone(), store, changed: Operations::default() }
    }

    /// Returns the number of changes that are queued or in progress.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting
    }

    /// Returns the operation counters of the writers.
    pub fn operations(&self) -> Operations {
        self.shared.lock().operations
    }

    /// Applies the queued changes, ends the pool and returns the unreported errors.
    pub fn finish(mut self) -> Vec<(Name, RecordError)> {
        self.end();
        let mut state = self.shared.lock();
        state.records.drain().filter_map(|(name, pending)| Some((name, pending.error?))).collect()
    }

    fn end(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A writer that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Runs a writer until the pool ends and its queue is empty.
    fn write(&self, store: &mut dyn RecordStore) {
        let mut state = self.lock();
        loop {
            let together = state.ready.len().div_ceil(self.writers).min(MAX_BATCH);
            let names: Vec<Name> = state.ready.drain(..together).collect();
            if names.is_empty() {
                if state.stopping && state.waiting == 0 {
                    self.work.notify_all();
                    return;
                }
                state = wait(&self.work, state);
                continue;
            }
            let kept: Vec<(Name, QueuedChange)> =
                names.into_iter().filter_map(|name| Some((name, state.take(name)?))).collect();
            drop(state);
            let before = store.operations();
            let results = carry_out(store, &kept);
            state = self.lock();
            state.operations.add(before, store.operations());
            let mut works = true;
            for ((name, kept), result) in kept.into_iter().zip(results) {
                match result {
                    // While the pool ends, a failing store is not retried.
                    Err(error) if error.is_retryable() && !state.stopping => {
                        works = false;
                        state.put_back(name, kept, &error);
                    }
                    result => state.finished(name, kept.size(), result),
                }
            }
            // Other writers may take the remaining ready records.
            self.work.notify_all();
            self.done.notify_all();
            if !works {
                drop(state);
                std::thread::sleep(PAUSE);
                state = self.lock();
            }
        }
    }
}

/// Applies changes and returns their results.
///
/// After a lost answer, a change may have been applied already. The stored version tells.
fn carry_out(store: &mut dyn RecordStore, kept: &[(Name, QueuedChange)]) -> Vec<Result<Version, RecordError>> {
    let parts: Vec<_> = kept.iter().map(|(_, kept)| kept.parts()).collect();
    let changes: Vec<_> = kept.iter().zip(&parts).map(|((name, kept), parts)| (*name, kept.change(parts))).collect();
    let mut results = store.change(&changes);
    for ((result, (name, change)), (_, kept)) in results.iter_mut().zip(&changes).zip(kept) {
        if *result == Err(RecordError::Conflict) && kept.doubtful {
            let there = store.load(&[*name]).map(|mut found| found.pop().flatten().map_or(0, |found| found.version));
            *result = match there {
                Ok(version) if version == change.result() => Ok(version),
                Ok(_) => Err(RecordError::Conflict),
                Err(error) => Err(error),
            };
        }
    }
    results
}

impl State {
    /// Returns a change that could not be applied to the front of its record's queue.
    fn put_back(&mut self, name: Name, mut kept: QueuedChange, error: &RecordError) {
        let Some(pending) = self.records.get_mut(&name) else { return };
        kept.doubtful |= matches!(error, RecordError::OutcomeUnknown(_));
        pending.busy = false;
        pending.changes.push_front(kept);
        self.ready.push_back(name);
    }

    fn take(&mut self, name: Name) -> Option<QueuedChange> {
        let pending = self.records.get_mut(&name)?;
        pending.busy = true;
        pending.changes.pop_front()
    }

    /// Handles the final result of a change.
    fn finished(&mut self, name: Name, size: usize, result: Result<Version, RecordError>) {
        let Some(pending) = self.records.get_mut(&name) else { return };
        (self.waiting, self.octets) = (self.waiting - 1, self.octets - size);
        pending.busy = false;
        if let Err(error) = result {
            self.waiting -= pending.changes.len();
            self.octets -= pending.changes.drain(..).map(|kept| kept.size()).sum::<usize>();
            pending.error = Some(error);
            self.errors += 1;
        } else if !pending.changes.is_empty() {
            self.ready.push_back(name);
        } else {
            self.records.remove(&name);
        }
    }

    /// Returns the unreported error of a record, once.
    fn take_error(&mut self, name: Name) -> Option<RecordError> {
        let error = self.records.get(&name)?.error.clone()?;
        self.records.remove(&name);
        self.errors -= 1;
        Some(error)
    }

    fn push(&mut self, name: Name, change: &Change<'_>) {
        let kept = QueuedChange::new(change);
        (self.waiting, self.octets) = (self.waiting + 1, self.octets + kept.size());
        let pending = self.records.entry(name).or_default();
        if pending.changes.is_empty() && !pending.busy {
            self.ready.push_back(name);
        }
        pending.version = change.result();
        pending.changes.push_back(kept);
    }
}

/// Records that a writer pool writes.
pub struct WriteBehindRecords {
    shared: Arc<Shared>,
    store: Box<dyn RecordStore>,
    changed: Operations,
}

impl std::fmt::Debug for WriteBehindRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Behind").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl WriteBehindRecords {
    /// Queues one change, or returns the unreported error of its record.
    fn enqueue(&mut self, name: Name, change: &Change<'_>) -> Result<Version, RecordError> {
        let (size, config) = (QueuedChange::size_of(change), self.shared.config);
        let until = Instant::now() + config.timeout;
        let mut state = self.shared.lock();
        loop {
            if let Some(error) = state.take_error(name) {
                return Err(error);
            }
            let pending = state.records.get(&name);
            if pending.is_some_and(|pending| pending.version != change.expected()) {
                return Err(RecordError::Conflict);
            }
            if state.stopping {
                return Err(RecordError::Down("its writers have ended".into()));
            }
            if pending.is_none() && state.errors >= config.waiting {
                // There is no room for another unreported error: the change is made directly.
                drop(state);
                return self.store.change(&[(name, *change)]).remove(0);
            }
            // A change larger than the limit is queued alone.
            let room = state.waiting < config.waiting.max(1) && state.octets + size <= config.octets;
            if room || state.waiting == 0 {
                state.push(name, change);
                self.shared.work.notify_one();
                return Ok(change.result());
            }
            state = wait_until(&self.shared.done, state, until)?;
        }
    }
}

impl RecordStore for WriteBehindRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        let until = Instant::now() + self.shared.config.timeout;
        let mut state = self.shared.lock();
        loop {
            if let Some(error) = names.iter().find_map(|name| state.take_error(*name)) {
                return Err(error);
            }
            if !names.iter().any(|name| state.records.contains_key(name)) {
                break;
            }
            state = wait_until(&self.shared.done, state, until)?;
        }
        drop(state);
        self.store.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.changed.changed(changes);
        changes.iter().map(|(name, change)| self.enqueue(*name, change)).collect()
    }

    /// Lists the stored records. Records with queued changes may be included or not.
    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.store.list_ids(collection)
    }

    /// Returns the counters of this handle. The pool has its own ([`Writers::operations`]).
    fn operations(&self) -> Operations {
        let loaded = self.store.operations();
        Operations { writes: self.changed.writes, removals: self.changed.removals, ..loaded }
    }
}
