//! Writing without waiting (seed 3's non-blocking writes): a commit is handed to a pool of writers and returns at once, with the
//! version that it is going to have. The next load of that record waits until what was handed over for it is done: the barrier.
//!
//! Changes of a record are carried out in their order, one at a time; while the place does not work they are tried again. If one is
//! refused, those behind it are dropped, and the next operation of that record is told, once. What waits is bounded: who hands over
//! more waits for room, and is told after a while that there is none. A process that dies loses what its writers have not done; that
//! is what such a mode costs, and why an SMF blocks.

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

/// After the place did not work.
const AGAIN: Duration = Duration::from_millis(20);
/// How many changes a writer gives the place in one go.
const TOGETHER: usize = 32;

/// The pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritersConfig {
    /// Changes that wait at most.
    pub waiting: usize,
    /// Octets that these have at most, together.
    pub octets: usize,
    /// How long somebody waits for room, or at a barrier.
    pub patience: Duration,
}

impl Default for WritersConfig {
    fn default() -> Self {
        WritersConfig { waiting: 4096, octets: 16 << 20, patience: Duration::from_secs(1) }
    }
}

/// What there is to do for a record, or to tell of it.
#[derive(Debug, Default)]
struct Pending {
    changes: VecDeque<QueuedChange>,
    /// A writer has its first change in hand.
    busy: bool,
    /// The version after all of them.
    version: Version,
    /// Why one was not carried out: nobody was told yet.
    error: Option<RecordError>,
}

#[derive(Debug, Default)]
struct State {
    records: FxHashMap<Name, Pending>,
    /// Records with a change that no writer has in hand.
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
    /// Threads.
    writers: usize,
    state: Mutex<State>,
    /// There is something to do.
    work: Condvar,
    /// Something was done: there is room, or a barrier may be open.
    done: Condvar,
}

impl Shared {
    /// What is done under the lock leaves it whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// The same until then; fails when it is over.
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

/// The pool of writers of a process. When it is dropped it does first what was handed over.
#[derive(Debug)]
pub struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Starts the threads, one for each of these ways to the place.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(config: WritersConfig, ways: Vec<Box<dyn RecordStore>>) -> std::io::Result<Self> {
        let (work, done) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { config, writers: ways.len().max(1), state: Mutex::default(), work, done });
        let mut writers = Writers { shared, threads: Vec::new() };
        for (number, mut place) in ways.into_iter().enumerate() {
            let shared = writers.shared.clone();
            let thread = std::thread::Builder::new().name(format!("writer {number}"));
            writers.threads.push(thread.spawn(move || shared.write(&mut *place))?);
        }
        Ok(writers)
    }

    /// Records that are loaded by this way to the place, and written by the pool.
    pub fn records(&self, place: Box<dyn RecordStore>) -> WriteBehindRecords {
        WriteBehindRecords { shared: self.shared.clone(), place, changed: Operations::default() }
    }

    /// How many changes wait or are being carried out: the length of the queue.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting
    }

    /// What the writers have asked.
    pub fn operations(&self) -> Operations {
        self.shared.lock().operations
    }

    /// Does what was handed over and ends; what failed and nobody was told of.
    pub fn finish(mut self) -> Vec<(Name, RecordError)> {
        self.end();
        let mut state = self.shared.lock();
        state.records.drain().filter_map(|(name, pending)| Some((name, pending.error?))).collect()
    }

    fn end(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A writer that has panicked has said so.
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
    /// What a writer does until the pool ends and all is done.
    fn write(&self, place: &mut dyn RecordStore) {
        let mut state = self.lock();
        loop {
            let together = state.ready.len().div_ceil(self.writers).min(TOGETHER);
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
            let before = place.operations();
            let results = carry_out(place, &kept);
            state = self.lock();
            state.operations.add(before, place.operations());
            let mut works = true;
            for ((name, kept), result) in kept.into_iter().zip(results) {
                match result {
                    // At the end nobody waits for a place that does not work.
                    Err(error) if error.is_retryable() && !state.stopping => {
                        works = false;
                        state.put_back(name, kept, &error);
                    }
                    result => state.finished(name, kept.size(), result),
                }
            }
            // Others may take what is ready behind these.
            self.work.notify_all();
            self.done.notify_all();
            if !works {
                drop(state);
                std::thread::sleep(AGAIN);
                state = self.lock();
            }
        }
    }
}

/// What becomes of these changes. One that may have been carried out before, when the answer was lost, is known by its version.
fn carry_out(place: &mut dyn RecordStore, kept: &[(Name, QueuedChange)]) -> Vec<Result<Version, RecordError>> {
    let parts: Vec<_> = kept.iter().map(|(_, kept)| kept.parts()).collect();
    let changes: Vec<_> = kept.iter().zip(&parts).map(|((name, kept), parts)| (*name, kept.change(parts))).collect();
    let mut results = place.change(&changes);
    for ((result, (name, change)), (_, kept)) in results.iter_mut().zip(&changes).zip(kept) {
        if *result == Err(RecordError::Conflict) && kept.doubtful {
            let there = place.load(&[*name]).map(|mut found| found.pop().flatten().map_or(0, |found| found.version));
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
    /// A change that could not be carried out is the first of its record again.
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

    /// A change was carried out, or not.
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

    /// What is to be told of a record, once.
    fn told(&mut self, name: Name) -> Option<RecordError> {
        let error = self.records.get(&name)?.error.clone()?;
        self.records.remove(&name);
        self.errors -= 1;
        Some(error)
    }

    fn push(&mut self, name: Name, change: &Change<'_>) {
        let kept = QueuedChange::of(change);
        (self.waiting, self.octets) = (self.waiting + 1, self.octets + kept.size());
        let pending = self.records.entry(name).or_default();
        if pending.changes.is_empty() && !pending.busy {
            self.ready.push_back(name);
        }
        pending.version = change.result();
        pending.changes.push_back(kept);
    }
}

/// Records that a pool writes.
pub struct WriteBehindRecords {
    shared: Arc<Shared>,
    place: Box<dyn RecordStore>,
    changed: Operations,
}

impl std::fmt::Debug for WriteBehindRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Behind").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl WriteBehindRecords {
    /// Hands one change over.
    fn hand_over(&mut self, name: Name, change: &Change<'_>) -> Result<Version, RecordError> {
        let (size, config) = (QueuedChange::size_of(change), self.shared.config);
        let until = Instant::now() + config.patience;
        let mut state = self.shared.lock();
        loop {
            if let Some(error) = state.told(name) {
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
                // So many wait to be told of errors that one more could not be kept: it waits for its own.
                drop(state);
                return self.place.change(&[(name, *change)]).remove(0);
            }
            // One that is larger than all that may wait goes alone.
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
        let until = Instant::now() + self.shared.config.patience;
        let mut state = self.shared.lock();
        loop {
            if let Some(error) = names.iter().find_map(|name| state.told(*name)) {
                return Err(error);
            }
            if !names.iter().any(|name| state.records.contains_key(name)) {
                break;
            }
            state = wait_until(&self.shared.done, state, until)?;
        }
        drop(state);
        self.place.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.changed.changed(changes);
        changes.iter().map(|(name, change)| self.hand_over(*name, change)).collect()
    }

    /// What is still to be written may be among them or not.
    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.place.list_ids(collection)
    }

    /// What was asked by this way: the questions of the pool are its own ([`Writers::operations`]).
    fn operations(&self) -> Operations {
        let loaded = self.place.operations();
        Operations { writes: self.changed.writes, removals: self.changed.removals, ..loaded }
    }
}
