//! Tables that workers read while the control side changes them.

use super::quiescence::BatchCounter;
use super::{Arrays, Classifier, Locking, PendingNotification, ReadSection};
use crate::counters::Stats;
use crate::processes::PuntChannel;
use crate::tables::{Released, Tables};
use crate::verdict::Event;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tables under a lock, and their lock-free part. Any number of workers and writers share them.
#[derive(Clone, Debug)]
pub struct SharedTables {
    tables: Arc<RwLock<Tables>>,
    arrays: Arc<Arrays>,
}

impl SharedTables {
    /// Shares these tables.
    pub fn new(mut tables: Tables) -> Self {
        tables.settle();
        SharedTables { arrays: tables.shared_arrays(), tables: Arc::new(RwLock::new(tables)) }
    }

    /// Calls `look` with the locked tables.
    pub fn look<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        // A panic under the lock left each entry unchanged or odd, so the tables are consistent.
        look(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the tables. Calls `send` with the output of the change, before any later packet is
    /// classified.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R, send: impl FnOnce(&Released)) -> R {
        self.change_and_decide(change, |_, released| send(released))
    }

    /// Changes the tables. `send` also gets the tables, to classify datagrams that were held.
    pub(crate) fn change_and_decide<R>(
        &self,
        change: impl FnOnce(&mut Tables, &mut Released) -> R,
        send: impl FnOnce(&Tables, &mut Released),
    ) -> R {
        let mut released = Released::default();
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut tables, &mut released);
        tables.release_held(&mut released);
        if released.last {
            self.arrays.quiet.wait();
        }
        send(&tables, &mut released);
        // Packets use the changed entries only after this. So nothing overtakes the output of the
        // change.
        tables.settle();
        result
    }

    /// Promotes active users to the hot table and demotes idle ones, if the hot table exists
    /// ([`crate::Limits::hot_users`]). Must be called every few milliseconds, from any thread.
    pub fn turn_hot(&self) {
        if self.arrays.hot.is_some() {
            self.tables.write().unwrap_or_else(PoisonError::into_inner).turn_hot();
        }
    }

    /// Returns the part that is read without a lock.
    pub(crate) fn arrays(&self) -> &Arc<Arrays> {
        &self.arrays
    }

    /// Returns a reader for one more worker.
    pub(crate) fn reader(&self) -> Reader {
        Reader { shared: self.clone(), turn: self.arrays.quiet.join() }
    }
}

/// A batch of packets.
pub(crate) trait Batch {
    /// Returns the number of packets.
    fn count(&self) -> usize;
    /// Classifies packets from the index `from` on and sends their output. Returns the number of
    /// packets classified from the start of the batch. It is less than all if [`Classifier::ends`]
    /// is true or a packet has no verdict.
    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize;
    /// Notifies the control side.
    fn tell(&mut self, event: Event);
}

/// A batch whose remaining packets can be punted to another process.
pub(crate) trait PuntBatch: Batch {
    /// Sends the output of classified packets, and writes the packets from `from` on to the punt
    /// channel.
    fn hand_over(&mut self, from: usize, desk: &PuntChannel);
}

/// Environment of a worker: a thread of the process with the tables, or a worker process.
pub(crate) trait WorkerEnv {
    /// Classifies a batch.
    fn decide(&self, batch: &mut impl PuntBatch);
    /// Adds the counts of the worker, after each round.
    fn flush(&self, stats: &mut Stats);
    /// Announces the maximum number of packets that the worker has received and not released.
    fn hold(&self, packets: usize);
}

/// Access of one worker to the tables.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: SharedTables,
    turn: Arc<BatchCounter>,
}

/// Guard of the locked tables.
enum LockedTables<'a> {
    WithOthers(RwLockReadGuard<'a, Tables>),
    Alone(RwLockWriteGuard<'a, Tables>),
}

impl Deref for LockedTables<'_> {
    type Target = Tables;

    #[inline]
    fn deref(&self) -> &Tables {
        match self {
            LockedTables::WithOthers(tables) => tables,
            LockedTables::Alone(tables) => tables,
        }
    }
}

impl Reader {
    /// Classifies a batch, first on the fast path. From the first packet that needs the slow path
    /// on, all packets take it, so that none overtakes another.
    #[inline]
    pub(crate) fn decide(&self, batch: &mut impl Batch) {
        let (mut done, mut owed) = (0, None);
        if self.shared.arrays.locking != Locking::Coarse
            && let Some(inside) = ReadSection::begin(&self.shared.arrays, &self.turn.0)
        {
            done = batch.decide(&inside, 0);
            owed = inside.owed.get();
        }
        if done < batch.count() || owed.is_some() {
            self.decide_locked(batch, done, owed);
        }
    }

    fn decide_locked(&self, batch: &mut impl Batch, done: usize, owed: Option<PendingNotification>) {
        let tables = match self.shared.arrays.locking {
            // Packets change counters, so classifying needs the write lock.
            Locking::Coarse => LockedTables::Alone(self.shared.tables.write().unwrap_or_else(PoisonError::into_inner)),
            _ => LockedTables::WithOthers(self.shared.tables.read().unwrap_or_else(PoisonError::into_inner)),
        };
        finish(&tables, batch, done, owed);
    }

    /// Classifies a batch while no other worker classifies packets.
    pub(crate) fn decide_alone(&self, batch: &mut impl Batch) {
        let tables = self.shared.tables.write().unwrap_or_else(PoisonError::into_inner);
        let quiet = &self.shared.arrays.quiet;
        quiet.exclude();
        finish(&tables, batch, 0, None);
        quiet.include();
    }
}

/// Classifies the rest of a batch by the locked tables.
pub(crate) fn finish(tables: &Tables, batch: &mut impl Batch, done: usize, owed: Option<PendingNotification>) {
    if let Some(owed) = owed {
        tables.tell_owed(owed, &mut |event| batch.tell(event));
    }
    if done < batch.count() {
        batch.decide(tables, done);
    }
}
