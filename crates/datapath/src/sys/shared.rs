//! Memory that workers and, where it is mapped from the kernel, a BPF program access concurrently.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// A type that permits concurrent writes to any part.
///
/// # Safety
///
/// The type must consist of atomics only, have no padding, and be valid for any bit pattern.
pub(crate) unsafe trait Plain: Sync {}

// SAFETY: it consists of one atomic integer.
unsafe impl Plain for std::sync::atomic::AtomicU32 {}

// SAFETY: it consists of one atomic integer.
unsafe impl Plain for std::sync::atomic::AtomicU64 {}

// SAFETY: it consists of one atomic integer.
unsafe impl Plain for std::sync::atomic::AtomicU8 {}

// SAFETY: it consists of atomic integers without padding between them.
unsafe impl<const N: usize> Plain for [std::sync::atomic::AtomicU64; N] {}

/// Size of a huge page in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// A zero-initialised array that does not move.
#[derive(Debug)]
pub(crate) struct Shared<T: Plain> {
    start: NonNull<T>,
    length: usize,
    /// Size of the mapping in bytes; 0 = private heap memory.
    mapped: usize,
}

// SAFETY: all contents are atomics, which any thread may use.
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: all contents are atomics, which any thread may use.
unsafe impl<T: Plain> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Allocates memory of this process only. The kernel backs it on use. Arrays of at least one
    /// huge page use huge pages where the machine has them. With random access to ordinary pages,
    /// each access would also miss its page table entry.
    pub(crate) fn private(length: usize) -> Self {
        let layout = Self::layout(length);
        if layout.size() == 0 {
            return Shared { start: NonNull::dangling(), length, mapped: 0 };
        }
        if layout.size() >= HUGE_PAGE
            && let Some(shared) = Self::in_huge_pages(length, layout.size().next_multiple_of(HUGE_PAGE))
        {
            return shared;
        }
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start.cast()) {
            Some(start) => Shared { start, length, mapped: 0 },
            None => handle_alloc_error(layout),
        }
    }

    /// Creates a mapping of `octets` bytes that begins at a huge page boundary. `None` if there is
    /// no room.
    fn in_huge_pages(length: usize, octets: usize) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let all = octets.checked_add(HUGE_PAGE)?;
        // SAFETY: the kernel chooses the place; the result is checked and has no other owner.
        let whole = unsafe { libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0) };
        if whole == libc::MAP_FAILED {
            return None;
        }
        let before = whole.align_offset(HUGE_PAGE);
        // SAFETY: the parts before and after lie in the mapping, are whole pages, and have no user;
        // the part between is a mapping of ours of `octets`. If the kernel does not take the
        // advice, ordinary pages suffice.
        let start = unsafe {
            let start = whole.add(before);
            if before > 0 {
                libc::munmap(whole, before);
            }
            libc::munmap(start.add(octets), HUGE_PAGE - before);
            libc::madvise(start, octets, libc::MADV_HUGEPAGE);
            start
        };
        Some(Shared { start: NonNull::new(start.cast())?, length, mapped: octets })
    }

    /// Allocates memory that other processes may map. Returns it with the descriptor for mapping
    /// it.
    pub(crate) fn in_file(length: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("vireo-datapath", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, Self::mapped_octets(length) as u64)?;
        let shared: Shared<T> = Shared::mapped(file.as_fd(), length)?;
        if shared.mapped >= HUGE_PAGE {
            // SAFETY: the range is our mapping. If the kernel does not take the advice, ordinary
            // pages suffice.
            unsafe { libc::madvise(shared.start.as_ptr().cast(), shared.mapped, libc::MADV_HUGEPAGE) };
        }
        Ok((shared, file))
    }

    fn mapped_octets(length: usize) -> usize {
        Self::layout(length).size().max(1).next_multiple_of(page_octets())
    }

    /// Maps a BPF array map, or memory of another process, which must hold at least `length`
    /// consecutive values.
    pub(crate) fn mapped(map: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let octets = Self::mapped_octets(length);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place; the result is checked and has no other owner.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), octets, protection, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        match NonNull::new(start.cast::<T>()) {
            Some(begin) if start != libc::MAP_FAILED => Ok(Shared { start: begin, length, mapped: octets }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn layout(length: usize) -> Layout {
        // The limits exclude lengths beyond the address space.
        Layout::array::<T>(length).unwrap_or(Layout::new::<()>())
    }
}

fn page_octets() -> usize {
    // SAFETY: takes no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

impl<T: Plain> Deref for Shared<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `length` values from `start` are ours until we are dropped, aligned (pages and
        // layouts are), and any contents are valid.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> Drop for Shared<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.length);
        match self.mapped {
            0 if layout.size() == 0 => {}
            // SAFETY: it was allocated with this layout.
            0 => unsafe { dealloc(self.start.as_ptr().cast(), layout) },
            octets => {
                // SAFETY: it is our mapping, of this length. The call cannot fail, and a failure
                // would have no remedy.
                let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), octets) };
            }
        }
    }
}
