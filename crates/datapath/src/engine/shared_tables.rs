//! Tables that workers read while the control side changes them.

use crate::engine::arrays::Arrays;
use crate::engine::batch::{Batch, finish};
use crate::engine::event::PendingNotification;
use crate::engine::locking::Locking;
use crate::engine::quiescence::BatchCounter;
use crate::engine::read_section::ReadSection;
use crate::engine::tables::{Released, Tables};
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

    /// Calls `read` with the locked tables.
    pub fn read<R>(&self, read: impl FnOnce(&Tables) -> R) -> R {
        // A panic under the lock left each entry unchanged or odd, so the tables are consistent.
        read(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the tables. Calls `send` with the output of the change, before any later packet is
    /// classified.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R, send: impl FnOnce(&Released)) -> R {
        self.change_and_classify(change, |_, released| send(released))
    }

    /// Changes the tables. `send` also gets the tables, to classify datagrams that were held.
    pub(crate) fn change_and_classify<R>(
        &self,
        change: impl FnOnce(&mut Tables, &mut Released) -> R,
        send: impl FnOnce(&Tables, &mut Released),
    ) -> R {
        let mut released = Released::default();
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut tables, &mut released);
        tables.release_held(&mut released);
        if released.last {
            self.arrays.quiescence.wait();
        }
        send(&tables, &mut released);
        // Packets use the changed entries only after this. So nothing overtakes the output of the
        // change.
        tables.settle();
        result
    }

    /// Promotes active users to the hot table and demotes idle ones, if the hot table exists
    /// ([`crate::Limits::hot_users`]). Must be called every few milliseconds, from any thread.
    pub fn maintain_hot_table(&self) {
        if self.arrays.hot.is_some() {
            self.tables.write().unwrap_or_else(PoisonError::into_inner).maintain_hot_table();
        }
    }

    /// Returns the part that is read without a lock.
    pub(crate) fn arrays(&self) -> &Arc<Arrays> {
        &self.arrays
    }

    /// Returns a reader for one more worker.
    pub(crate) fn reader(&self) -> Reader {
        Reader { shared: self.clone(), batch_counter: self.arrays.quiescence.join() }
    }
}

/// Access of one worker to the tables.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: SharedTables,
    batch_counter: Arc<BatchCounter>,
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
        let (mut done, mut pending) = (0, None);
        if self.shared.arrays.locking != Locking::Coarse
            && let Some(section) = ReadSection::begin(&self.shared.arrays, &self.batch_counter.0)
        {
            done = batch.decide(&section, 0);
            pending = section.pending.get();
        }
        if done < batch.count() || pending.is_some() {
            self.decide_locked(batch, done, pending);
        }
    }

    fn decide_locked(&self, batch: &mut impl Batch, done: usize, pending: Option<PendingNotification>) {
        let tables = match self.shared.arrays.locking {
            // Packets change counters, so classifying needs the write lock.
            Locking::Coarse => LockedTables::Alone(self.shared.tables.write().unwrap_or_else(PoisonError::into_inner)),
            _ => LockedTables::WithOthers(self.shared.tables.read().unwrap_or_else(PoisonError::into_inner)),
        };
        finish(&tables, batch, done, pending);
    }

    /// Classifies a batch while no other worker classifies packets.
    pub(crate) fn decide_alone(&self, batch: &mut impl Batch) {
        let tables = self.shared.tables.write().unwrap_or_else(PoisonError::into_inner);
        let quiescence = &self.shared.arrays.quiescence;
        quiescence.exclude();
        finish(&tables, batch, 0, None);
        quiescence.include();
    }
}
