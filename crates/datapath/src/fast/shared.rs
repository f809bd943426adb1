//! Tables that workers decide by while their owner changes them.

use super::quiescence::BatchCounter;
use super::{Arrays, Classifier, Locking, PendingNotification, ReadSection};
use crate::counters::Stats;
use crate::processes::PuntChannel;
use crate::tables::{Released, Tables};
use crate::verdict::Event;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tables behind their lock, and beside it what needs none. Any number of workers and threads that change them share it.
#[derive(Clone, Debug)]
pub struct SharedTables {
    tables: Arc<RwLock<Tables>>,
    arrays: Arc<Arrays>,
}

impl SharedTables {
    /// These tables, to be shared.
    pub fn new(mut tables: Tables) -> Self {
        tables.settle();
        SharedTables { arrays: tables.shared_arrays(), tables: Arc::new(RwLock::new(tables)) }
    }

    /// Looks at the tables.
    pub fn look<R>(&self, look: impl FnOnce(&Tables) -> R) -> R {
        // whoever panicked with the lock left each record as it was or odd: the tables are consistent
        look(&self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the tables; `send` is given what the change lets go, before any later packet is decided on.
    pub fn change<R>(&self, change: impl FnOnce(&mut Tables, &mut Released) -> R, send: impl FnOnce(&Released)) -> R {
        self.change_and_decide(change, |_, released| send(released))
    }

    /// The same; `send` also gets the tables, to decide on datagrams that were held.
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
        // only now may packets go by what was changed: nothing that the change lets go is overtaken
        tables.settle();
        result
    }

    /// Promotes users that have packets to the hot level and demotes those that are idle, if there is one
    /// ([`crate::Limits::hot_users`]). To be called each few milliseconds, from any thread.
    pub fn turn_hot(&self) {
        if self.arrays.hot.is_some() {
            self.tables.write().unwrap_or_else(PoisonError::into_inner).turn_hot();
        }
    }

    /// What is read without the lock.
    pub(crate) fn arrays(&self) -> &Arc<Arrays> {
        &self.arrays
    }

    /// What one more worker decides by.
    pub(crate) fn reader(&self) -> Reader {
        Reader { shared: self.clone(), turn: self.arrays.quiet.join() }
    }
}

/// A batch of packets.
pub(crate) trait Batch {
    /// How many packets it has.
    fn count(&self) -> usize;
    /// Decides on packets from this one on and sends what leaves at once; says on how many it has decided in all, from
    /// the first packet on: all, unless [`Classifier::ends`] or a packet is not decided on.
    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize;
    /// Tells the owner.
    fn tell(&mut self, event: Event);
}

/// A batch whose rest another process can decide on.
pub(crate) trait PuntBatch: Batch {
    /// Has what is decided on leave, and puts the packets from this one on on the desk.
    fn hand_over(&mut self, from: usize, desk: &PuntChannel);
}

/// Where a worker works: in a thread beside the tables, or in a process of its own.
pub(crate) trait WorkerEnv {
    /// Decides on a batch.
    fn decide(&self, batch: &mut impl PuntBatch);
    /// Takes what was counted, after each round.
    fn flush(&self, stats: &mut Stats);
    /// Says that the worker has taken so many packets from the kernel, at most, and not let them go.
    fn hold(&self, packets: usize);
}

/// What one worker decides by.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: SharedTables,
    turn: Arc<BatchCounter>,
}

/// The locked tables.
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
    /// Decides on a batch: as far as it goes without a lock, and on the rest by the tables. From the first packet that is
    /// not usual on all go that way, so that none overtakes another.
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
            // counts are written: whoever decides is alone
            Locking::Coarse => LockedTables::Alone(self.shared.tables.write().unwrap_or_else(PoisonError::into_inner)),
            _ => LockedTables::WithOthers(self.shared.tables.read().unwrap_or_else(PoisonError::into_inner)),
        };
        finish(&tables, batch, done, owed);
    }

    /// Decides on a batch while nobody else decides on anything.
    pub(crate) fn decide_alone(&self, batch: &mut impl Batch) {
        let tables = self.shared.tables.write().unwrap_or_else(PoisonError::into_inner);
        let quiet = &self.shared.arrays.quiet;
        quiet.exclude();
        finish(&tables, batch, 0, None);
        quiet.include();
    }
}

/// Decides on the rest of a batch by the tables.
pub(crate) fn finish(tables: &Tables, batch: &mut impl Batch, done: usize, owed: Option<PendingNotification>) {
    if let Some(owed) = owed {
        tables.tell_owed(owed, &mut |event| batch.tell(event));
    }
    if done < batch.count() {
        batch.decide(tables, done);
    }
}
