//! Bells: futex wake-ups. A waiter spins briefly, then sleeps until the bell rings.
//!
//! A bell is the low half of a word {ring count 31, has sleeper 1}. Ringing costs one read while no
//! thread sleeps.

use super::Region;
use super::mem::{AtomicU64, Ordering, fence, futex_wait, futex_wake};
use std::time::Duration;

/// Checks before a waiter sleeps; they take a few microseconds.
const SPINS: u32 = 200;
const SLEEPS: u64 = 1;
const HALF: u64 = 0xffff_ffff;

/// Handle of a bell in a region.
#[derive(Clone, Debug)]
pub struct Bell {
    region: Region,
    number: usize,
    spins: u32,
}

impl Bell {
    pub(super) fn new(region: Region, number: usize) -> Self {
        // Spinning costs less than sleeping if the awaited thread runs on another processor. With a
        // single available processor, spinning keeps that thread from running.
        let alone = std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        Bell { region, number, spins: if alone { 0 } else { SPINS } }
    }

    fn word(&self) -> &AtomicU64 {
        self.region.word(self.number)
    }

    /// Wakes the sleeping threads. Call it after the awaited state is visible.
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

    /// Calls `look` until it returns a value, or until `at_most` has passed since the thread began
    /// to sleep.
    pub fn wait<T>(&self, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..self.spins {
            if let Some(found) = look() {
                return Some(found);
            }
            std::hint::spin_loop();
        }
        let now = self.word().load(Ordering::SeqCst);
        let sleeping = now | SLEEPS;
        // If the exchange fails, another thread rang or sleeps too. One more check suffices then.
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
