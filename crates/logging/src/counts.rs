//! Counts of dropped and suppressed log lines, including worker processes.
//!
//! A worker process reports through an in-memory file that its parent has created. The parent uses
//! [`Report`], the worker [`report_through`].

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Environment variable of a worker process: its slot in the file at its standard output.
pub const SLOT_VARIABLE: &str = "VIREO_LOG_COUNTS";

/// Maximum number of concurrent worker processes. Further ones report nothing.
const SLOTS: u32 = 1024;
/// Bytes of a slot: two numbers in native byte order.
const OCTETS: u64 = 16;

/// Counts of log lines since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that standard error did not accept, because it was full, closed or slow.
    pub dropped: u64,
    /// Lines above the limit of their kind or peer.
    pub suppressed: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.dropped += other.dropped;
        self.suppressed += other.suppressed;
    }
}

static DROPPED: AtomicU64 = AtomicU64::new(0);
static SUPPRESSED: AtomicU64 = AtomicU64::new(0);
static PARENT: OnceLock<(File, u64)> = OnceLock::new();
static WORKERS: Mutex<Option<Workers>> = Mutex::new(None);

pub(crate) fn count_dropped(lines: u64) {
    DROPPED.fetch_add(lines, Relaxed);
}

pub(crate) fn count_suppressed() {
    SUPPRESSED.fetch_add(1, Relaxed);
}

/// Returns the counts of this process alone.
pub fn this_process() -> Counts {
    Counts { dropped: DROPPED.load(Relaxed), suppressed: SUPPRESSED.load(Relaxed) }
}

/// Returns the counts of this process and of all its worker processes, including those that ended.
pub fn all() -> Counts {
    let mut counts = this_process();
    counts.add(worker_processes());
    counts
}

fn worker_processes() -> Counts {
    let mut counts = Counts::default();
    if let Some(workers) = &*workers() {
        counts.add(workers.ended);
        (0..workers.used).for_each(|slot| counts.add(workers.read(slot)));
    }
    counts
}

/// Counts of the worker processes.
struct Workers {
    file: File,
    /// Slots from this number on were never assigned.
    used: u32,
    free: Vec<u32>,
    /// Sum over the processes that have ended.
    ended: Counts,
}

impl Workers {
    fn new() -> io::Result<Self> {
        let file = memfd_create("vireo-log-counts", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, u64::from(SLOTS) * OCTETS)?;
        let mut file = File::from(file);
        // accidental output of a worker is written after the counts
        io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(Workers { file, used: 0, free: Vec::new(), ended: Counts::default() })
    }

    fn read(&self, slot: u32) -> Counts {
        let mut octets = [[0; 8]; 2];
        // reading an in-memory file does not fail; if it did, the counts would be 0
        let _ = self.file.read_exact_at(octets.as_flattened_mut(), u64::from(slot) * OCTETS);
        let [dropped, suppressed] = octets.map(u64::from_ne_bytes);
        Counts { dropped, suppressed }
    }
}

fn workers() -> MutexGuard<'static, Option<Workers>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of one worker process, held by its parent. Drop it when the process has ended.
#[derive(Debug)]
pub struct Report {
    slot: u32,
}

impl Report {
    /// Allocates a slot; `None` if none is free.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no memory or descriptor.
    pub fn new() -> io::Result<Option<Self>> {
        let mut workers = workers();
        let all = match &mut *workers {
            Some(all) => all,
            empty => empty.insert(Workers::new()?),
        };
        let slot = match all.free.pop() {
            Some(slot) => slot,
            None if all.used < SLOTS => {
                all.used += 1;
                all.used - 1
            }
            None => return Ok(None),
        };
        Ok(Some(Report { slot }))
    }

    /// Returns the value of [`SLOT_VARIABLE`] for the worker process.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns the descriptor that the worker process needs as its standard output.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no free descriptor.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        let workers = workers();
        let all = workers.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(all.file.try_clone()?.into())
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(all) = &mut *workers() {
            let counts = all.read(self.slot);
            all.ended.add(counts);
            // fails as little as reading does
            let _ = all.file.write_all_at(&[0; OCTETS as usize], u64::from(self.slot) * OCTETS);
            all.free.push(self.slot);
        }
    }
}

/// Makes this worker process report its counts to its parent's file. Only the first call has an
/// effect.
pub fn report_through(file: File, slot: u32) {
    let _ = PARENT.set((file, u64::from(slot.min(SLOTS - 1)) * OCTETS));
}

/// Reports changed counts to the parent.
pub(crate) fn report(last: &mut Counts) {
    let now = this_process();
    if now == *last {
        return;
    }
    if let Some((file, at)) = PARENT.get() {
        let octets = [now.dropped.to_ne_bytes(), now.suppressed.to_ne_bytes()];
        // writing to an in-memory file does not fail, unless the parent is gone
        let _ = file.write_all_at(octets.as_flattened(), *at);
    }
    *last = now;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_counts_survive_the_worker() {
        let report = Report::new().expect("memory").expect("a place");
        let file = File::from(report.descriptor().expect("a descriptor"));
        // The test writes as a worker does, at the assigned place of the file.
        let octets = [7_u64.to_ne_bytes(), 11_u64.to_ne_bytes()];
        file.write_all_at(octets.as_flattened(), u64::from(report.slot()) * OCTETS).expect("written");
        let counts = Counts { dropped: 7, suppressed: 11 };
        assert_eq!(worker_processes(), counts);
        let slot = report.slot();
        drop(report);
        assert_eq!(worker_processes(), counts, "the process has ended");
        let next = Report::new().expect("memory").expect("a place");
        assert_eq!((next.slot(), worker_processes()), (slot, counts), "its place is free and zero");
        // Accidental output is written after the counts.
        io::Write::write_all(&mut File::from(next.descriptor().expect("a descriptor")), &[255; 64]).expect("written");
        assert_eq!(worker_processes(), counts);
    }
}
