//! Waiting, apart from what is waited for: spin a little, then sleep until somebody rings.
//!
//! A bell is the low half of a word {times rung 31, somebody sleeps 1}. Ringing costs a read as long as nobody sleeps.

use super::Region;
use super::mem::{AtomicU64, Ordering, fence, futex_wait, futex_wake};
use std::time::Duration;

/// How often is looked again before sleeping, at most: a few microseconds.
const SPINS: u32 = 200;
/// The same at least: looking so often costs nothing that could be measured.
const FEW_SPINS: u32 = 4;
/// One wait in so many looks as often as any may, to find out whether that helps by now.
const PROBE: u32 = 64;
const SLEEPS: u64 = 1;
const HALF: u64 = 0xffff_ffff;

/// A bell in a region.
#[derive(Clone, Debug)]
pub struct Bell {
    region: Region,
    number: usize,
    patience: Patience,
}

/// How long somebody spins: as long as it helps. It does where whoever is waited for runs on another processor; on the
/// same one it only keeps them from running.
#[derive(Clone, Debug)]
struct Patience {
    spins: u32,
    waits: u32,
}

impl Patience {
    fn spins(&mut self) -> u32 {
        self.waits = self.waits.wrapping_add(1);
        if self.waits.is_multiple_of(PROBE) { SPINS } else { self.spins }
    }

    fn learn(&mut self, helped: bool) {
        self.spins = if helped { (self.spins * 2).min(SPINS) } else { (self.spins / 2).max(FEW_SPINS) };
    }
}

impl Bell {
    pub(super) fn new(region: Region, number: usize) -> Self {
        Bell { region, number, patience: Patience { spins: SPINS, waits: 0 } }
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
    pub fn wait<T>(&mut self, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..self.patience.spins() {
            if let Some(found) = look() {
                self.patience.learn(true);
                return Some(found);
            }
            std::hint::spin_loop();
        }
        self.patience.learn(false);
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
