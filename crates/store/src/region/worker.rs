//! Workers: who joined the region, and what becomes of one that died. A worker is one thread of one process; what it
//! holds is found again by its number.

use super::Region;
use super::heap::Arena;
use super::layout::{H_SOLE, WORKER};
use super::mem::Ordering;
use super::pool::SearchWindow;
use super::vacancy::Vacant;

/// Of a worker's record.
const W_STATE: usize = 0;
const W_START: usize = 1;
const W_BEAT: usize = 2;
/// The buffer that it wrote its last record into.
const W_LAST: usize = 3;
/// The buffer of another's chunk whose use it is ending.
const W_GIVING: usize = 4;

/// A worker's state: its process id, and how it is.
const JOINED: u64 = 1 << 32;
const BURIED: u64 = 2 << 32;

/// A worker of a region. Dropped, it leaves; killed, it is buried.
#[derive(Debug)]
pub struct Worker {
    pub(super) region: Region,
    pub(super) number: u8,
    pub(super) arena: Arena,
    pub(super) vacant: Vacant,
    pub(super) packets: SearchWindow,
    /// Packets that it freed, perhaps free still.
    pub(super) spare: Vec<u32>,
}

/// The only worker of a region.
#[derive(Debug)]
pub(crate) struct SingleWorker(Worker);

impl SingleWorker {
    /// The region.
    pub(crate) fn region(&self) -> &Region {
        &self.0.region
    }

    /// The worker.
    pub(crate) fn worker(&mut self) -> &mut Worker {
        &mut self.0
    }
}

/// Why a worker cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// There are not so many.
    #[error("the state region was not made for so many workers; make it anew (state.workers)")]
    Number,
    /// The number is taken, or its last holder is not buried yet.
    #[error("another worker has this number")]
    Taken,
    /// Another worker has the region for itself.
    #[error("another worker has the state region for itself")]
    Sole,
}

/// Why a worker cannot be buried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReapError {
    /// Its process is still there, if only stopped: it might wake and go on.
    #[error("process {0} of the worker is still there; kill it and wait for its end first")]
    Alive(u32),
    /// No worker has this number.
    #[error("there is no such worker")]
    Nobody,
}

/// A worker whose process is gone, reaped: what it held may be taken over.
#[derive(Debug)]
pub struct DeadWorker {
    pub(super) number: u8,
}

impl DeadWorker {
    /// Its number.
    pub fn number(&self) -> u8 {
        self.number
    }
}

impl Region {
    fn worker_word(&self, worker: u8, word: usize) -> usize {
        self.lay.workers + usize::from(worker) * WORKER + word
    }

    /// Joins as a worker.
    ///
    /// # Errors
    ///
    /// When the number is taken, too high, or the region is another worker's alone.
    pub fn join(&self, number: u8) -> Result<Worker, JoinError> {
        let worker = self.enrol(number)?;
        let sole = self.word(H_SOLE).load(Ordering::SeqCst);
        if sole != 0 && sole != u64::from(number) + 1 { Err(JoinError::Sole) } else { Ok(worker) }
    }

    /// Joins as the only worker: no other commits as long as this one is there.
    ///
    /// # Errors
    ///
    /// When there is another, or the number is taken.
    pub(crate) fn join_alone(&self, number: u8) -> Result<SingleWorker, JoinError> {
        let worker = self.enrol(number)?;
        let mine = u64::from(number) + 1;
        self.word(H_SOLE).compare_exchange(0, mine, Ordering::SeqCst, Ordering::SeqCst).map_err(|_| JoinError::Sole)?;
        // Whoever joins later sees the claim; who joined earlier is seen here.
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
        state.compare_exchange(0, joined, Ordering::SeqCst, Ordering::SeqCst).map_err(|_| JoinError::Taken)?;
        self.word(self.worker_word(number, W_START)).store(start_of(pid).unwrap_or(0), Ordering::Release);
        let share = self.lay.slot_count / usize::from(self.config.workers);
        Ok(Worker {
            region: self.clone(),
            number,
            arena: Arena::default(),
            // Workers begin their search apart from each other.
            vacant: Vacant::new((share * usize::from(number)) as u32),
            packets: SearchWindow::new(self.config.packets / u32::from(self.config.workers) * u32::from(number)),
            spare: Vec::new(),
        })
    }

    /// Notes that the process of a worker is gone. Who started it has waited for its end: a stopped process that wakes
    /// must find nothing of its own left, so nothing is taken over from one that is still there.
    ///
    /// # Errors
    ///
    /// When it is not gone, or there is no such worker.
    pub fn bury(&self, number: u8) -> Result<DeadWorker, ReapError> {
        if number >= self.config.workers {
            return Err(ReapError::Nobody);
        }
        let word = self.word(self.worker_word(number, W_STATE));
        let state = word.load(Ordering::Acquire);
        if state == 0 {
            return Err(ReapError::Nobody);
        }
        let pid = state as u32;
        // 0: it died before it wrote when it was started. Its number may be another process's then; that one is not ours
        // to judge, so the worker counts as alive.
        let start = self.word(self.worker_word(number, W_START)).load(Ordering::Acquire);
        if start_of(pid).is_some_and(|now| start == 0 || now == start) {
            return Err(ReapError::Alive(pid));
        }
        word.store(BURIED | u64::from(pid), Ordering::Release);
        Ok(DeadWorker { number })
    }

    /// The same where the worker's process is gone for sure, whoever has its number now: it had a lock on the region, which is this
    /// process's.
    #[cfg(not(loom))]
    pub(crate) fn bury_unlocked(&self, number: u8) -> Option<DeadWorker> {
        let word = self.word(self.worker_word(number, W_STATE));
        let state = word.load(Ordering::Acquire);
        (state != 0).then(|| {
            word.store(BURIED | u64::from(state as u32), Ordering::Release);
            DeadWorker { number }
        })
    }

    /// The same by who has reaped the worker's process, this one, whatever the region says of it.
    #[cfg(not(loom))]
    pub fn bury_reaped(&self, number: u8, pid: u32) -> Option<DeadWorker> {
        let word = (number < self.config.workers).then(|| self.word(self.worker_word(number, W_STATE)))?;
        word.store(BURIED | u64::from(pid), Ordering::Release);
        Some(DeadWorker { number })
    }

    /// The process of a worker.
    pub fn pid_of(&self, number: u8) -> Option<u32> {
        let state = (number < self.config.workers).then(|| self.word(self.worker_word(number, W_STATE)))?;
        Some(state.load(Ordering::Acquire) as u32).filter(|pid| *pid != 0)
    }

    /// Whether a worker is this process, and nobody knows it to be dead.
    pub fn is_joined(&self, number: u8, pid: u32) -> bool {
        let state = |number| self.word(self.worker_word(number, W_STATE)).load(Ordering::Acquire);
        number < self.config.workers && state(number) == JOINED | u64::from(pid)
    }

    /// When a worker was last heard of, in its own terms: what it said by [`Worker::beat`].
    pub fn heard_of(&self, number: u8) -> u64 {
        if number < self.config.workers {
            self.word(self.worker_word(number, W_BEAT)).load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// Before a worker's commit: where its record lies.
    #[inline]
    pub(super) fn note_commit(&self, number: u8, buffer: u64) {
        self.word(self.worker_word(number, W_LAST)).store(buffer, Ordering::Relaxed);
    }

    pub(super) fn last_commit(&self, number: u8) -> u64 {
        self.word(self.worker_word(number, W_LAST)).load(Ordering::Acquire)
    }

    /// Before and after a worker gives back a buffer that is not of its own chunks.
    #[inline]
    pub(super) fn note_giving(&self, number: Option<u8>, buffer: u64) {
        if let Some(number) = number {
            self.word(self.worker_word(number, W_GIVING)).store(buffer, Ordering::Release);
        }
    }

    pub(super) fn giving(&self, number: u8) -> u64 {
        self.word(self.worker_word(number, W_GIVING)).load(Ordering::Acquire)
    }

    pub(super) fn dismiss(&self, number: u8) {
        let sole = u64::from(number) + 1;
        // Only if it had claimed the region.
        let _ = self.word(H_SOLE).compare_exchange(sole, 0, Ordering::SeqCst, Ordering::SeqCst);
        for word in [W_BEAT, W_LAST, W_GIVING, W_START] {
            self.word(self.worker_word(number, word)).store(0, Ordering::Relaxed);
        }
        self.word(self.worker_word(number, W_STATE)).store(0, Ordering::Release);
    }
}

/// When a process was started, in the kernel's ticks; `None` if there is none. A number is given to another process
/// sooner or later: number and start together are not.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold anything; what follows is numbered from field 3 (proc(5)).
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0))
}

impl Worker {
    /// Its number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Its region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Leaves memory to others that it has no use for now. To be called from time to time.
    pub fn trim(&mut self) {
        self.arena.trim(&self.region);
    }

    /// Says that it is alive, at `now`.
    pub fn beat(&self, now: u64) {
        self.region.word(self.region.worker_word(self.number, W_BEAT)).store(now, Ordering::Relaxed);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.region.reclaim(DeadWorker { number: self.number });
    }
}
