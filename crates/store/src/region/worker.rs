//! Workers of a region: joining, heartbeats and the recovery of dead workers.
//!
//! A worker is one thread of one process. Everything that it holds is found by its worker number.

use super::Region;
use super::heap::Arena;
use super::layout::{H_SOLE, WORKER};
use super::mem::Ordering;
use super::search::{SearchWindow, VacantSlots};

/// Words of a worker's entry.
const W_STATE: usize = 0;
const W_START: usize = 1;
const W_BEAT: usize = 2;
/// Buffer of the worker's last commit record.
const W_LAST: usize = 3;
/// Buffer of another worker's chunk that the worker is freeing.
const W_FREEING: usize = 4;

/// Flags of the state word, beside the process id.
const JOINED: u64 = 1 << 32;
const DEAD: u64 = 2 << 32;

/// Membership of a worker in a region.
///
/// Dropping it leaves the region. After a kill, [`Region::declare_dead`] and [`Region::reclaim`]
/// recover it.
#[derive(Debug)]
pub struct Worker {
    pub(super) region: Region,
    pub(super) number: u8,
    pub(super) arena: Arena,
    pub(super) vacant: VacantSlots,
    pub(super) packets: SearchWindow,
    /// Small packets that this worker freed. Other workers may have allocated them since.
    pub(super) spare: Vec<u32>,
}

/// The only worker of a region.
#[derive(Debug)]
pub(crate) struct SingleWorker(Worker);

impl SingleWorker {
    pub(crate) fn region(&self) -> &Region {
        &self.0.region
    }

    pub(crate) fn worker(&mut self) -> &mut Worker {
        &mut self.0
    }
}

/// Reason that a worker cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The number exceeds the configured maximum of workers.
    #[error("bug: the number of the worker exceeds the maximum of the state region")]
    Number,
    /// Another worker uses the number, or died and is not reclaimed yet.
    #[error("another worker has this number")]
    NumberInUse,
    /// Another worker uses the region exclusively.
    #[error("another worker uses the state region exclusively")]
    Sole,
}

/// Reason that a worker cannot be marked as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReapError {
    /// The process still exists. A stopped process might continue.
    #[error("process {0} of the worker is still there; kill it and wait for its end first")]
    Alive(u32),
    /// No worker has this number.
    #[error("there is no such worker")]
    NoWorker,
}

/// A worker whose process has ended and been reaped. Other workers may take over what it held.
#[derive(Debug)]
pub struct DeadWorker {
    pub(super) number: u8,
}

impl DeadWorker {
    /// Returns the number of the worker.
    pub fn number(&self) -> u8 {
        self.number
    }
}

impl Region {
    fn worker_word(&self, worker: u8, word: usize) -> usize {
        self.lay.workers + usize::from(worker) * WORKER + word
    }

    /// Joins the region as a worker.
    ///
    /// # Errors
    ///
    /// Returns an error if the number is in use or too high, or another worker uses the region
    /// exclusively.
    pub fn join(&self, number: u8) -> Result<Worker, JoinError> {
        let worker = self.enrol(number)?;
        let sole = self.word(H_SOLE).load(Ordering::SeqCst);
        if sole != 0 && sole != u64::from(number) + 1 { Err(JoinError::Sole) } else { Ok(worker) }
    }

    /// Joins the region as its only worker. No other worker can join and commit while it exists.
    ///
    /// # Errors
    ///
    /// Returns an error if the region has another worker, or the number is in use.
    pub(crate) fn join_alone(&self, number: u8) -> Result<SingleWorker, JoinError> {
        let worker = self.enrol(number)?;
        let mine = u64::from(number) + 1;
        self.word(H_SOLE).compare_exchange(0, mine, Ordering::SeqCst, Ordering::SeqCst).map_err(|_| JoinError::Sole)?;
        // A worker that joins later sees the claim; a worker that joined earlier is seen here.
        let others = (0..self.config.workers).filter(|w| *w != number);
        if others.into_iter().any(|w| self.word(self.worker_word(w, W_STATE)).load(Ordering::SeqCst) != 0) {
            return Err(JoinError::Sole);
        }
        Ok(SingleWorker(worker))
    }

    fn enrol(&self, number: u8) -> Result<Worker, JoinError> {
        if number >= self.config.workers {
            return Err(JoinError::Number);
        }
        let pid = std::process::id();
        let state = self.word(self.worker_word(number, W_STATE));
        let joined = JOINED | u64::from(pid);
        state.compare_exchange(0, joined, Ordering::SeqCst, Ordering::SeqCst).map_err(|_| JoinError::NumberInUse)?;
        self.word(self.worker_word(number, W_START)).store(start_of(pid).unwrap_or(0), Ordering::Release);
        let share = self.lay.own_slots / usize::from(self.config.workers);
        Ok(Worker {
            region: self.clone(),
            number,
            arena: Arena::default(),
            // Each worker begins its searches at another position.
            vacant: VacantSlots::new((share * usize::from(number)) as u32),
            packets: SearchWindow::new(self.config.packets / u32::from(self.config.workers) * u32::from(number)),
            spare: Vec::new(),
        })
    }

    /// Marks a worker as dead after its process has ended and been reaped.
    ///
    /// The caller must have waited for the end of the process. A stopped process could otherwise
    /// continue with memory that other workers have taken over.
    ///
    /// # Errors
    ///
    /// Returns an error if the process still exists, or there is no such worker.
    pub fn declare_dead(&self, number: u8) -> Result<DeadWorker, ReapError> {
        if number >= self.config.workers {
            return Err(ReapError::NoWorker);
        }
        let word = self.word(self.worker_word(number, W_STATE));
        let state = word.load(Ordering::Acquire);
        if state == 0 {
            return Err(ReapError::NoWorker);
        }
        let pid = state as u32;
        // Start time 0: the worker died before it stored its start time. Another process may have
        // its pid. That process is not necessarily a worker, so the worker counts as alive.
        let start = self.word(self.worker_word(number, W_START)).load(Ordering::Acquire);
        if start_of(pid).is_some_and(|now| start == 0 || now == start) {
            return Err(ReapError::Alive(pid));
        }
        word.store(DEAD | u64::from(pid), Ordering::Release);
        Ok(DeadWorker { number })
    }

    /// Marks a worker as dead whose process is known to have ended.
    ///
    /// The process had locked the region, and this process holds the lock. Whether another process
    /// has the same pid does not matter.
    #[cfg(not(loom))]
    pub(crate) fn declare_dead_unlocked(&self, number: u8) -> Option<DeadWorker> {
        let word = self.word(self.worker_word(number, W_STATE));
        let state = word.load(Ordering::Acquire);
        (state != 0).then(|| {
            word.store(DEAD | u64::from(state as u32), Ordering::Release);
            DeadWorker { number }
        })
    }

    /// Marks a worker as dead whose process this process has reaped, whatever the region contains.
    #[cfg(not(loom))]
    pub fn declare_dead_reaped(&self, number: u8, pid: u32) -> Option<DeadWorker> {
        let word = (number < self.config.workers).then(|| self.word(self.worker_word(number, W_STATE)))?;
        word.store(DEAD | u64::from(pid), Ordering::Release);
        Some(DeadWorker { number })
    }

    /// Returns the process id of a worker.
    pub fn pid_of(&self, number: u8) -> Option<u32> {
        let state = (number < self.config.workers).then(|| self.word(self.worker_word(number, W_STATE)))?;
        Some(state.load(Ordering::Acquire) as u32).filter(|pid| *pid != 0)
    }

    /// Returns true if process `pid` has joined as worker `number` and is not marked as dead.
    pub fn is_joined(&self, number: u8, pid: u32) -> bool {
        let state = |number| self.word(self.worker_word(number, W_STATE)).load(Ordering::Acquire);
        number < self.config.workers && state(number) == JOINED | u64::from(pid)
    }

    /// Returns the time of a worker's last [`Worker::beat`], in the worker's unit; 0 if there was
    /// none.
    pub fn last_beat(&self, number: u8) -> u64 {
        if number < self.config.workers {
            self.word(self.worker_word(number, W_BEAT)).load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// Stores the buffer of a worker's commit record before the commit.
    #[inline]
    pub(super) fn note_commit(&self, number: u8, buffer: u64) {
        self.word(self.worker_word(number, W_LAST)).store(buffer, Ordering::Relaxed);
    }

    pub(super) fn last_commit(&self, number: u8) -> u64 {
        self.word(self.worker_word(number, W_LAST)).load(Ordering::Acquire)
    }

    /// Stores the buffer of another worker's chunk that a worker is freeing; 0 afterwards.
    #[inline]
    pub(super) fn note_freeing(&self, number: Option<u8>, buffer: u64) {
        if let Some(number) = number {
            self.word(self.worker_word(number, W_FREEING)).store(buffer, Ordering::Release);
        }
    }

    pub(super) fn freeing(&self, number: u8) -> u64 {
        self.word(self.worker_word(number, W_FREEING)).load(Ordering::Acquire)
    }

    pub(super) fn remove_worker(&self, number: u8) {
        let sole = u64::from(number) + 1;
        // Fails, as intended, if the worker had not claimed the region.
        let _ = self.word(H_SOLE).compare_exchange(sole, 0, Ordering::SeqCst, Ordering::SeqCst);
        for word in [W_BEAT, W_LAST, W_FREEING, W_START] {
            self.word(self.worker_word(number, word)).store(0, Ordering::Relaxed);
        }
        self.word(self.worker_word(number, W_STATE)).store(0, Ordering::Release);
    }
}

/// Returns the start time of a process in clock ticks; `None` if there is no such process.
///
/// A process id is reused sooner or later. The pair of process id and start time is not.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may contain anything. The fields after it count from 3
    // (proc(5)).
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0))
}

impl Worker {
    /// Returns the number of the worker.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the region of the worker.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Releases chunks that the worker does not need. Call it periodically.
    pub fn trim(&mut self) {
        self.arena.trim(&self.region);
    }

    /// Stores `now` as the time of the worker's heartbeat.
    pub fn beat(&self, now: u64) {
        self.region.word(self.region.worker_word(self.number, W_BEAT)).store(now, Ordering::Relaxed);
    }
}

#[cfg(loom)]
impl Region {
    /// Treats a worker of a model as killed.
    pub fn model_death(&self, number: u8) -> DeadWorker {
        DeadWorker { number }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.region.reclaim(DeadWorker { number: self.number });
    }
}
