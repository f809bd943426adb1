//! Maximum bit rates, each policed by a generic cell rate algorithm that keeps its state in one word.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vireo_types::Instant;

/// How far ahead of its rate a flow may run: enough for a burst of TCP, short enough for the mean to be seen soon.
const BURST_NS: u64 = 50_000_000;
/// However slow the rate, this many octets may come at once, or no full packet would ever pass.
const BURST_OCTETS: u64 = 3_000;
const FRACTION_BITS: u32 = 16;

/// A maximum bit rate (TS 29.244 8.2.8) as the time one octet takes, in 2^-16 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// No limit.
    pub const UNLIMITED: Rate = Rate(0);
    const NOTHING: Rate = Rate(u64::MAX);

    /// The rate of so many kilobits per second; nothing passes at 0.
    pub const fn from_kbps(kbps: u64) -> Rate {
        match kbps {
            0 => Rate::NOTHING,
            kbps => {
                let cost = (8_000_000 << FRACTION_BITS) / kbps;
                // beyond what one word can tell it is no limit in practice
                Rate(cost)
            }
        }
    }

    /// The lower of the two.
    pub fn min(self, other: Rate) -> Rate {
        Rate(self.0.max(other.0))
    }

    /// The number that stands for it in a record: [`Rate::UNLIMITED`] is 0, and nothing passes at all ones.
    pub(crate) const fn cost(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_cost(cost: u64) -> Rate {
        Rate(cost)
    }

    const fn time_ns(self, octets: u64) -> u64 {
        octets.saturating_mul(self.0) >> FRACTION_BITS
    }
}

/// The state of one policer: the theoretical arrival time of the next octet. One compare-and-swap per packet, so any
/// number of workers share one rate.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Policer(AtomicU64);

impl Policer {
    pub(crate) fn set(&self, expected_ns: u64) {
        self.0.store(expected_ns, Relaxed);
    }

    /// Goes on where another was.
    pub(crate) fn copy(&self, from: &Policer) {
        self.set(from.0.load(Relaxed));
    }

    #[cfg(test)]
    pub(crate) fn expected_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Whether a packet of so many octets (at most 65,535) conforms; counts it if so.
    #[inline]
    pub(crate) fn allow(&self, rate: Rate, octets: usize, now: Instant) -> bool {
        conforms(&self.0, rate, octets, now)
    }
}

/// [`Policer::allow`] for a policer's word that lies anywhere.
#[inline]
pub(crate) fn conforms(word: &AtomicU64, rate: Rate, octets: usize, now: Instant) -> bool {
    rate == Rate::UNLIMITED || police(word, rate, octets, now)
}

fn police(word: &AtomicU64, rate: Rate, octets: usize, now: Instant) -> bool {
    if rate == Rate::NOTHING {
        return false;
    }
    let now_ns = now.as_micros().saturating_mul(1_000);
    let span = rate.time_ns(octets as u64);
    let tolerance = BURST_NS.max(rate.time_ns(BURST_OCTETS));
    let mut expected = word.load(Relaxed);
    loop {
        let start = expected.max(now_ns);
        if start - now_ns > tolerance {
            return false;
        }
        match word.compare_exchange_weak(expected, start.saturating_add(span), Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(seen) => expected = seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kilobits that pass in a second when packets of 1,000 octets are offered at twice the rate.
    fn passed(kbps: u64) -> u64 {
        let (rate, policer) = (Rate::from_kbps(kbps), Policer::default());
        let interval_ns = 8_000_000_000 / (2 * kbps);
        let start = 1_000_000_000_000;
        (0..10_000_000_000 / interval_ns)
            .filter(|n| policer.allow(rate, 1_000, Instant((start + n * interval_ns) / 1_000)))
            .count() as u64
            * 8
            / 10
    }

    #[test]
    fn the_mean_is_the_rate_however_much_is_offered() {
        for kbps in [64, 1_000, 50_000, 1_000_000] {
            let passed = passed(kbps);
            let tolerance = kbps / 50 + 8;
            assert!(passed.abs_diff(kbps) <= tolerance, "{passed} of {kbps} kbps");
        }
    }

    #[test]
    fn a_rate_of_zero_passes_nothing_and_no_rate_everything() {
        let policer = Policer::default();
        assert!(!policer.allow(Rate::from_kbps(0), 1, Instant(1)));
        assert!((0..1000).all(|_| policer.allow(Rate::UNLIMITED, 65_535, Instant(1))));
        assert_eq!(Rate::from_kbps(5).min(Rate::UNLIMITED), Rate::from_kbps(5));
        assert_eq!(Rate::from_kbps(5).min(Rate::from_kbps(4)), Rate::from_kbps(4));
    }
}
