//! Atomic words for tests, with crash injection before a chosen write.
//!
//! The words written before the crash stay, and no write follows. Tests thus reach, one after the
//! other, every state that a killed process can leave.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

thread_local! {
    /// Writes until this thread crashes; `None`: it does not crash.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    /// Words that this thread has read.
    static READ: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many words `work` reads.
pub(super) fn reads(work: impl FnOnce()) -> u64 {
    let before = READ.get();
    work();
    READ.get() - before
}

struct Death;

/// Runs `work` and crashes it before the write that follows `writes` writes.
///
/// Returns true if `work` completed without a crash.
pub(super) fn run_until_crash(writes: u32, work: impl FnOnce()) -> bool {
    LEFT.set(Some(writes));
    let end = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(None);
    match end {
        Ok(()) => true,
        Err(reason) if reason.is::<Death>() => false,
        Err(reason) => resume_unwind(reason),
    }
}

fn tick() {
    match LEFT.get() {
        Some(0) => resume_unwind(Box::new(Death)),
        Some(left) => LEFT.set(Some(left - 1)),
        None => {}
    }
}

/// Replacement of [`std::sync::atomic::AtomicU64`] that counts reads and writes.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicU64(std::sync::atomic::AtomicU64);

/// Defines forwarding methods that count a write first.
macro_rules! writes {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(pub(crate) fn $name(&self, $($argument: $type,)* order: Ordering) -> $result {
            tick();
            self.0.$name($($argument,)* order)
        })*
    };
}

impl AtomicU64 {
    pub(crate) const fn new(value: u64) -> Self {
        AtomicU64(std::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        READ.set(READ.get() + 1);
        self.0.load(order)
    }

    pub(crate) fn as_ptr(&self) -> *mut u64 {
        self.0.as_ptr()
    }

    pub(crate) fn compare_exchange(&self, old: u64, new: u64, done: Ordering, not: Ordering) -> Result<u64, u64> {
        tick();
        self.0.compare_exchange(old, new, done, not)
    }

    writes! {
        store(value: u64) -> ();
        fetch_add(value: u64) -> u64;
        fetch_or(value: u64) -> u64;
        fetch_and(value: u64) -> u64;
        fetch_max(value: u64) -> u64;
    }
}
