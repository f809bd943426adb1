//! Memory that workers and, where it is mapped from the kernel, a BPF program read and write at the same time.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// A type of which anybody may write any part at any time.
///
/// # Safety
///
/// It consists of atomics alone, has no padding, and any bits are a valid value of it.
pub(crate) unsafe trait Plain: Sync {}

// SAFETY: an atomic integer is all of it
unsafe impl Plain for std::sync::atomic::AtomicU32 {}

// SAFETY: as above
unsafe impl Plain for std::sync::atomic::AtomicU64 {}

// SAFETY: as above
unsafe impl Plain for std::sync::atomic::AtomicU8 {}

// SAFETY: atomic integers without padding between them are all of it
unsafe impl<const N: usize> Plain for [std::sync::atomic::AtomicU64; N] {}

/// Octets of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// An array that begins as zeros and does not move.
#[derive(Debug)]
pub(crate) struct Shared<T: Plain> {
    start: NonNull<T>,
    length: usize,
    /// Octets of the mapping; 0 = it is our own memory.
    mapped: usize,
}

// SAFETY: what is reached through it consists of atomics, which any thread may use
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above
unsafe impl<T: Plain> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Memory of this process alone. The kernel backs it as it is used; what is as long as a huge page lies in huge pages
    /// where the machine has them: at random in ordinary ones, each access would be a second miss, of its page's entry.
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
        // SAFETY: the size is not 0
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start.cast()) {
            Some(start) => Shared { start, length, mapped: 0 },
            None => handle_alloc_error(layout),
        }
    }

    /// A mapping of so many octets that begins where a huge page may; `None` if there is no room.
    fn in_huge_pages(length: usize, octets: usize) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let all = octets.checked_add(HUGE_PAGE)?;
        // SAFETY: the kernel chooses the place; the result is checked and owned by nobody else
        let whole = unsafe { libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0) };
        if whole == libc::MAP_FAILED {
            return None;
        }
        let before = whole.align_offset(HUGE_PAGE);
        // SAFETY: the parts before and after lie in the mapping, are whole pages, and nobody uses them; what is between
        // is a mapping of ours of `octets`. Where the kernel does not take the advice, ordinary pages do.
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

    /// Memory that other processes may map too, and what they map it by.
    pub(crate) fn in_file(length: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("vireo-datapath", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, Self::mapped_octets(length) as u64)?;
        let shared: Shared<T> = Shared::mapped(file.as_fd(), length)?;
        if shared.mapped >= HUGE_PAGE {
            // SAFETY: the range is our mapping. Where the kernel does not take the advice, ordinary pages do.
            unsafe { libc::madvise(shared.start.as_ptr().cast(), shared.mapped, libc::MADV_HUGEPAGE) };
        }
        Ok((shared, file))
    }

    fn mapped_octets(length: usize) -> usize {
        Self::layout(length).size().max(1).next_multiple_of(page_octets())
    }

    /// The values of a BPF array map, or of another process's memory, which holds at least `length` of them back to back.
    pub(crate) fn mapped(map: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let octets = Self::mapped_octets(length);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place; the result is checked and owned by nobody else
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), octets, protection, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        match NonNull::new(start.cast::<T>()) {
            Some(begin) if start != libc::MAP_FAILED => Ok(Shared { start: begin, length, mapped: octets }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn layout(length: usize) -> Layout {
        // longer than the address space is a length that no limit allows
        Layout::array::<T>(length).unwrap_or(Layout::new::<()>())
    }
}

fn page_octets() -> usize {
    // SAFETY: takes no pointers
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

impl<T: Plain> Deref for Shared<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `length` values from `start` are ours until we are dropped, aligned (pages and layouts are), and
        // whatever is in them is valid
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> Drop for Shared<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.length);
        match self.mapped {
            0 if layout.size() == 0 => {}
            // SAFETY: it was allocated with this layout
            0 => unsafe { dealloc(self.start.as_ptr().cast(), layout) },
            octets => {
                // SAFETY: it is our mapping, of this length. It cannot fail, and if it did nothing could be done.
                let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), octets) };
            }
        }
    }
}
