//! Bells: futex wake-ups. A waiter spins briefly, then sleeps until the bell rings.
//!
//! A bell is the low half of a word {ring count 31, has sleeper 1}. Ringing costs one read while no
//! thread sleeps.

use super::Region;
use super::mem::{AtomicU64, Ordering, fence, futex_wait, futex_wake};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Time for which a waiter checks before it sleeps: less than a sleep and a wake-up take. A number
/// of checks would take several times as long on some processors as on others.
const SPIN: Duration = Duration::from_micros(4);
/// Maximum number of waits in a row that do not spin.
const MAX_SKIPS: u32 = 63;
const SLEEPS: u64 = 1;
const HALF: u64 = 0xffff_ffff;

/// Handle of a bell in a region.
#[derive(Clone, Debug)]
pub struct Bell {
    region: Region,
    number: usize,
    /// Zero: no wait spins.
    spin: Duration,
    backoff: SpinBackoff,
}

/// Decides which waits spin. A spin saves a sleep and a wake-up if it finds something, and wastes
/// as much if not. After the second spin in a row that found nothing, the next wait does not spin,
/// after the third 3 waits, then 7, and so on. Each waiter has its own.
#[derive(Debug, Default)]
struct SpinBackoff {
    /// Number of waits that do not spin before the next one that does.
    skips: AtomicU32,
    /// 2^n - 1 after n spins in a row that found nothing, up to a limit.
    vain: AtomicU32,
}

impl SpinBackoff {
    /// Returns true if the next wait spins.
    fn is_due(&self) -> bool {
        let skips = self.skips.load(Ordering::Relaxed);
        self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
        skips == 0
    }

    /// Records whether a spin found something.
    fn record(&self, found: bool) {
        let vain = if found { 0 } else { (self.vain.load(Ordering::Relaxed) * 2 + 1).min(MAX_SKIPS * 2 + 1) };
        self.vain.store(vain, Ordering::Relaxed);
        self.skips.store(vain / 2, Ordering::Relaxed);
    }
}

impl Clone for SpinBackoff {
    fn clone(&self) -> Self {
        SpinBackoff::default()
    }
}

impl Bell {
    pub(super) fn new(region: Region, number: usize) -> Self {
        // Spinning costs less than sleeping if the awaited thread runs on another processor. With a
        // single available processor, spinning keeps that thread from running.
        let alone = std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        Bell { region, number, spin: if alone { Duration::ZERO } else { SPIN }, backoff: SpinBackoff::default() }
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

    /// Calls `look` at least once, until it returns a value or the time is over.
    fn spin<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let begin = Instant::now();
        loop {
            std::hint::spin_loop();
            let found = look();
            if found.is_some() || begin.elapsed() >= self.spin {
                return found;
            }
        }
    }

    /// Calls `look` until it returns a value, or until `at_most` has passed since the thread began
    /// to sleep.
    pub fn wait<T>(&self, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        if !self.spin.is_zero() && self.backoff.is_due() {
            let found = self.spin(&mut look);
            self.backoff.record(found.is_some());
            if found.is_some() {
                return found;
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionConfig;

    fn bell(spin: Duration) -> Bell {
        let config = RegionConfig { rings: 1, ..RegionConfig::new(4, 1, 32 << 20) };
        let bell = Region::create(config).unwrap().ring(0).unwrap().bell();
        Bell { spin, ..bell }
    }

    #[test]
    fn vain_spins_become_rare() {
        let backoff = SpinBackoff::default();
        let skips = |found: bool| {
            backoff.record(found);
            (0..).take_while(|_| !backoff.is_due()).count()
        };
        assert_eq!([false; 8].map(skips), [0, 1, 3, 7, 15, 31, 63, 63]);
        assert_eq!([true, false, false, true, false].map(skips), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn waits_after_vain_spins_sleep_at_once() {
        let bell = bell(Duration::from_micros(50));
        let spins = || {
            let mut looks = 0;
            let found: Option<()> = bell.wait(Duration::from_millis(1), || {
                looks += 1;
                None
            });
            assert_eq!(found, None);
            // One before, one when the bell knows of the sleep, and one after it.
            looks > 3
        };
        assert_eq!([(); 7].map(|()| spins()), [true, true, false, true, false, false, false]);
    }

    #[test]
    fn present_work_needs_no_sleep() {
        let bell = bell(Duration::ZERO);
        assert_eq!(bell.wait(Duration::from_secs(60), || Some(7)), Some(7));
        assert_eq!(bell.word().load(Ordering::SeqCst), 0, "no process has to wake this thread");
    }
}
