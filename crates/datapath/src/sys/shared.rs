//! Memory that workers and, where it is mapped from the kernel, a BPF program read and write at the same time.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// A type of which anybody may write any part at any time.
///
/// # Safety
///
/// It consists of atomics alone, has no padding, and any bits are a valid value of it.
pub(crate) unsafe trait Plain: Sync {}

// SAFETY: an atomic integer is all of it
unsafe impl Plain for std::sync::atomic::AtomicU32 {}

/// An array that begins as zeros and does not move.
#[derive(Debug)]
pub(crate) struct Shared<T: Plain> {
    start: NonNull<T>,
    length: usize,
}

// SAFETY: what is reached through it consists of atomics, which any thread may use
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above
unsafe impl<T: Plain> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Memory of this process alone. The kernel backs it as it is used.
    pub(crate) fn private(length: usize) -> Self {
        let layout = Self::layout(length);
        if layout.size() == 0 {
            return Shared { start: NonNull::dangling(), length };
        }
        // SAFETY: the size is not 0
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start.cast()) {
            Some(start) => Shared { start, length },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(length: usize) -> Layout {
        // longer than the address space is a length that no limit allows
        Layout::array::<T>(length).unwrap_or(Layout::new::<()>())
    }
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
        if layout.size() != 0 {
            // SAFETY: it was allocated with this layout
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}
