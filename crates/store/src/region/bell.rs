//! Waiting, apart from what is waited for: spin a little, then sleep until somebody rings.
//!
//! A bell is the low half of a word {times rung 31, somebody sleeps 1}. Ringing costs a read as long as nobody sleeps.

use super::Region;
use super::mem::{AtomicU64, Ordering, fence, futex_wait, futex_wake};
use std::time::Duration;

/// How often is looked again before sleeping: a few microseconds.
const SPINS: u32 = 200;
const SLEEPS: u64 = 1;
const HALF: u64 = 0xffff_ffff;

/// A bell in a region.
#[derive(Clone, Debug)]
pub struct Bell {
    region: Region,
    number: usize,
    spins: u32,
}

impl Bell {
    pub(super) fn new(region: Region, number: usize) -> Self {
        // Looking on costs less than to sleep and be waked, where whoever is waited for runs on another processor; on the
        // only one that this thread may use, it keeps them from running.
        let alone = std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        Bell { region, number, spins: if alone { 0 } else { SPINS } }
    }

    fn word(&self) -> &AtomicU64 {
        self.region.word(self.number)
    }

    /// Wakes whoever sleeps. Call it after what they wait for is there.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        let now = self.word().load(Ordering::SeqCst);
        if now & SLEEPS != 0 {
            let next = (now & !SLEEPS).wrapping_add(2) & HALF;
            if self.word().compare_exchange(now, next, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                futex_wake(self.word(), i32::MAX);
            }
        }
    }

    /// Looks until there is something, or `at_most` has passed since it began to sleep.
    pub fn wait<T>(&self, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..self.spins {
            if let Some(found) = look() {
                return Some(found);
            }
            std::hint::spin_loop();
        }
        let now = self.word().load(Ordering::SeqCst);
        let sleeping = now | SLEEPS;
        // If it fails, somebody rang or sleeps too: looking once more is all there is to do.
        if now == sleeping || self.word().compare_exchange(now, sleeping, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            fence(Ordering::SeqCst);
            if let Some(found) = look() {
                return Some(found);
            }
            futex_wait(self.word(), sleeping as u32, at_most);
        }
        look()
    }
}
