//! Shared memory of a region, seen as 64-bit atomic words.
//!
//! The memory is a memfd or a file, mapped shared. This file has all the unsafe code of the region.
//! The code above it addresses words by number. A number means the same in every process, whatever
//! the mapping address, and under loom, which has its own words. The file does not interpret the
//! words.

#[cfg(all(test, not(loom)))]
pub use super::crash_points::AtomicU64;
#[cfg(not(any(test, loom)))]
pub use std::sync::atomic::AtomicU64;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64;
#[cfg(loom)]
pub(super) use loom::sync::atomic::{Ordering, fence};

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes of a word.
pub(super) const WORD: usize = 8;
/// Words of a cache line.
const LINE: usize = 8;

/// Words that several processes share.
#[cfg(not(loom))]
#[derive(Debug)]
pub(super) struct Mem {
    pub(super) base: std::ptr::NonNull<AtomicU64>,
    pub(super) words: usize,
    fd: OwnedFd,
    huge: bool,
    faults: Faults,
}

/// Substitute for words outside of the region, and the fault counter.
///
/// A number outside of the region comes from a word that no correct worker writes. Its reader gets
/// the substitute word. Nothing depends on the contents of that word.
#[cfg(not(loom))]
#[derive(Debug)]
struct Faults {
    nothing: AtomicU64,
    /// Faults found by this process.
    count: AtomicU64,
}

#[cfg(not(loom))]
impl Faults {
    fn new() -> Self {
        Faults { nothing: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    #[cold]
    fn note(&self) -> &AtomicU64 {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nothing.store(0, Ordering::Relaxed);
        &self.nothing
    }
}

// SAFETY: the mapping lives as long as the value, and is reached only as atomics or, by `octets`,
// under its contract.
#[cfg(not(loom))]
unsafe impl Send for Mem {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Mem {}

#[cfg(not(loom))]
impl Mem {
    /// Creates a region of at least `bytes` bytes, in huge pages if the machine has reserved
    /// enough.
    pub(super) fn create(bytes: usize) -> io::Result<Self> {
        const HUGE: usize = 2 << 20;
        Self::memfd(bytes.next_multiple_of(HUGE), true).or_else(|_| Self::memfd(bytes.next_multiple_of(4096), false))
    }

    fn memfd(bytes: usize, huge: bool) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let flags = if huge { libc::MFD_CLOEXEC | libc::MFD_HUGETLB | libc::MFD_HUGE_2MB } else { flags };
        // SAFETY: the name is a C string; the result is checked before it is owned.
        let fd = unsafe { libc::memfd_create(c"vireo-state".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was created here and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a plain call on a descriptor that is open.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if !huge {
            // No process may truncate the memfd below a mapping (a touched page would then raise
            // SIGBUS).
            // SAFETY: a plain call on a descriptor that is open.
            unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) };
        }
        Self::map(fd, huge)
    }

    /// Maps the region of a descriptor that another process created.
    pub(super) fn map(fd: OwnedFd, huge: bool) -> io::Result<Self> {
        // SAFETY: all-zero is a value of this plain C structure.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is a local variable and large enough.
        if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes = usize::try_from(stat.st_size).map_err(io::Error::other)?;
        if bytes < 4096 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too small to be a state region"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no other memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if !huge {
            // Requests transparent huge pages, where the kernel allows them for shared memory; only
            // advice.
            // SAFETY: the range is the mapping that was just made.
            unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        }
        // Contexts hold NAS keys: core dumps leave the region out.
        // SAFETY: the range is the mapping that was just made.
        if unsafe { libc::madvise(base, bytes, libc::MADV_DONTDUMP) } != 0 {
            let error = io::Error::last_os_error();
            // SAFETY: nothing refers to the mapping that was just made.
            unsafe { libc::munmap(base, bytes) };
            return Err(error);
        }
        let base = std::ptr::NonNull::new(base.cast()).expect("a mapping is not at address 0");
        Ok(Mem { base, words: bytes / WORD, fd, huge, faults: Faults::new() })
    }

    /// Returns a word by its number.
    ///
    /// A number outside of the region counts as a fault; the word returned is then not part of the
    /// region.
    #[inline]
    pub(super) fn word(&self, number: usize) -> &AtomicU64 {
        if number >= self.words {
            return self.faults.note();
        }
        // SAFETY: within the mapping by the check, aligned as the mapping is to pages, and every
        // value is a valid u64.
        unsafe { self.base.add(number).as_ref() }
    }

    /// Returns `count` words from `number` on.
    ///
    /// Returns no words and counts a fault if they are not all in the region.
    fn span(&self, number: usize, count: usize) -> &[AtomicU64] {
        if number > self.words || count > self.words - number {
            self.faults.note();
            return &[];
        }
        // SAFETY: within the mapping by the check, aligned as the mapping is to pages, and every
        // value is a valid u64.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(number), count) }
    }

    /// Returns the number of words of the region.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Counts a fault: a state that no correct worker writes.
    #[cold]
    pub(super) fn fault(&self) {
        self.faults.note();
    }

    /// Returns the number of faults that this process has counted.
    pub(super) fn faults(&self) -> u64 {
        self.faults.count.load(Ordering::Relaxed)
    }

    /// Returns true if the region is in reserved huge pages.
    pub(super) fn is_huge(&self) -> bool {
        self.huge
    }

    /// Returns the descriptor of the mapping.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(not(loom))]
impl Drop for Mem {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping of `map`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * WORD) };
    }
}

/// Words of a loom model.
#[cfg(loom)]
#[derive(Debug)]
pub(super) struct Mem {
    words: Box<[AtomicU64]>,
}

#[cfg(loom)]
impl Mem {
    /// Never returns: a model has no faults.
    ///
    /// # Panics
    ///
    /// Panics always.
    pub(super) fn fault(&self) {
        unreachable!("a model writes what workers write")
    }
}

#[cfg(loom)]
impl Mem {
    pub(super) fn model(words: usize) -> Self {
        Mem { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn word(&self, number: usize) -> &AtomicU64 {
        &self.words[number]
    }

    fn span(&self, number: usize, count: usize) -> &[AtomicU64] {
        &self.words[number..number + count]
    }

    pub(super) fn words(&self) -> usize {
        self.words.len()
    }
}

impl Mem {
    /// Writes bytes from word `number` on.
    ///
    /// Other processes may read meanwhile; they detect it when they recheck their word.
    #[inline]
    pub(super) fn write(&self, number: usize, octets: &[u8]) {
        // By cache lines, whose words are stored without a check of how many remain.
        let (lines, rest) = octets.as_chunks::<{ LINE * WORD }>();
        let (words, _) = self.span(number, lines.len() * LINE).as_chunks::<LINE>();
        for (words, line) in words.iter().zip(lines) {
            for (word, chunk) in words.iter().zip(line.as_chunks::<WORD>().0) {
                word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
            }
        }
        let number = number + lines.len() * LINE;
        let (chunks, rest) = rest.as_chunks::<WORD>();
        for (word, chunk) in self.span(number, chunks.len()).iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            self.word(number + chunks.len()).store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
    }

    /// Reads one word of each cache line in the range, so that the lines are fetched in parallel.
    #[inline]
    pub(super) fn touch(&self, number: usize, words: usize) {
        // A model has no caches, and every read makes it longer.
        let end = if cfg!(loom) { number } else { (number + words).min(self.words()) };
        for word in (number..end).step_by(8) {
            std::hint::black_box(self.word(word).load(Ordering::Relaxed));
        }
    }

    /// Appends `octets` bytes from word `number` on to `to`.
    ///
    /// They are what a writer stored only if the caller's recheck succeeds.
    #[inline]
    pub(super) fn read(&self, number: usize, octets: usize, to: &mut Vec<u8>) {
        let start = to.len();
        to.resize(start + octets, 0);
        self.copy(number, &mut to[start..]);
    }

    /// Replaces the contents of `to` by `octets` bytes from word `number` on.
    #[inline]
    pub(super) fn read_over(&self, number: usize, octets: usize, to: &mut Vec<u8>) {
        // Bytes that `to` already has are not zeroed first.
        to.resize(octets, 0);
        self.copy(number, to);
    }

    #[inline]
    fn copy(&self, number: usize, to: &mut [u8]) {
        let words = self.span(number, to.len().div_ceil(WORD));
        let (chunks, rest) = to.as_chunks_mut::<WORD>();
        let whole = chunks.len();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if let Some(last) = words.get(whole) {
            rest.copy_from_slice(&last.load(Ordering::Relaxed).to_le_bytes()[..rest.len()]);
        }
    }
}

/// Returns a duplicate of `fd` that child processes inherit.
pub(super) fn inheritable(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: a plain call on a descriptor that is open; the result is checked before it is owned.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was created here and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Sleeps until the low half of the word differs from `seen`, a wake-up arrives, or `at_most`
/// passes.
#[cfg(not(loom))]
pub(super) fn futex_wait(word: &AtomicU64, seen: u32, at_most: std::time::Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(at_most.subsec_nanos() as i32),
    };
    // SAFETY: the futex is the low half of a word that lives as long as the borrow (little-endian);
    // `time` is a local variable.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr().cast::<u32>(), libc::FUTEX_WAIT, seen, &raw const time) };
}

/// Wakes up to `waiters` threads that sleep on the word, in any process.
#[cfg(not(loom))]
pub(super) fn futex_wake(word: &AtomicU64, waiters: i32) {
    // SAFETY: as in `futex_wait`.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr().cast::<u32>(), libc::FUTEX_WAKE, waiters) };
}

#[cfg(target_endian = "big")]
compile_error!("the state region's futex is the low half of a little-endian word");
