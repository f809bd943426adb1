//! Maximum bit rates, policed by a generic cell rate algorithm with one word of state.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vireo_types::Instant;

/// Burst tolerance in ns: enough for a burst of TCP, and short enough that the mean rate soon
/// applies.
const BURST_NS: u64 = 50_000_000;
/// Minimum burst in octets. Without it no full packet would pass at a very low rate.
const BURST_OCTETS: u64 = 3_000;
const FRACTION_BITS: u32 = 16;

/// Maximum bit rate (TS 29.244 8.2.8), stored as the time of one octet in units of 2^-16 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// Rate without a limit.
    pub const UNLIMITED: Rate = Rate(0);
    const NOTHING: Rate = Rate(u64::MAX);

    /// Returns a rate in kilobits per second. Nothing passes at 0.
    pub const fn from_kbps(kbps: u64) -> Rate {
        match kbps {
            0 => Rate::NOTHING,
            kbps => {
                let cost = (8_000_000 << FRACTION_BITS) / kbps;
                // A rate that exceeds one word is no limit in practice.
                Rate(cost)
            }
        }
    }

    /// Returns the lower rate.
    pub fn min(self, other: Rate) -> Rate {
        Rate(self.0.max(other.0))
    }

    /// Returns the encoding in an entry: [`Rate::UNLIMITED`] is 0, and all ones means that nothing
    /// passes.
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

/// State of one policer: the theoretical arrival time of the next octet. It needs one
/// compare-and-swap per packet, so any number of workers can share one rate.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Policer(AtomicU64);

impl Policer {
    pub(crate) fn set(&self, expected_ns: u64) {
        self.0.store(expected_ns, Relaxed);
    }

    /// Copies the state of another policer.
    pub(crate) fn copy(&self, from: &Policer) {
        self.set(from.0.load(Relaxed));
    }

    #[cfg(test)]
    pub(crate) fn expected_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Returns true if a packet of `octets` octets (at most 65,535) conforms, and then counts it.
    #[inline]
    pub(crate) fn allow(&self, rate: Rate, octets: usize, now: Instant) -> bool {
        conforms(&self.0, rate, octets, now)
    }
}

/// Polices with a policer word at any address; see [`Policer::allow`].
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

    /// Returns the kilobits that pass in one second when packets of 1,000 octets are offered at
    /// twice the rate.
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
    fn mean_rate_is_limit_at_any_load() {
        for kbps in [64, 1_000, 50_000, 1_000_000] {
            let passed = passed(kbps);
            let tolerance = kbps / 50 + 8;
            assert!(passed.abs_diff(kbps) <= tolerance, "{passed} of {kbps} kbps");
        }
    }

    #[test]
    fn zero_rate_passes_nothing_and_none_everything() {
        let policer = Policer::default();
        assert!(!policer.allow(Rate::from_kbps(0), 1, Instant(1)));
        assert!((0..1000).all(|_| policer.allow(Rate::UNLIMITED, 65_535, Instant(1))));
        assert_eq!(Rate::from_kbps(5).min(Rate::UNLIMITED), Rate::from_kbps(5));
        assert_eq!(Rate::from_kbps(5).min(Rate::from_kbps(4)), Rate::from_kbps(4));
    }
}
