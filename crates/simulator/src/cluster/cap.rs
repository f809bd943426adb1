//! CPU limit of a cgroup (cgroup v2 `cpu.max`).
//!
//! A host runs at full speed until it has used its quota of a period. It then stops until the next
//! period begins. This differs from a slower processor: short and rare work takes no longer.

use super::clock::Nanos;
use vireo_types::Duration;

/// CPU limit of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cap {
    /// Quota in processors, 0.25 for a quarter of one.
    pub part: f64,
    /// Length of a period; the kernel's default is 100 ms.
    pub period: Duration,
}

/// Use of the quota by one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    period: Nanos,
    quota: Nanos,
    /// Offset of its periods, which differ between hosts.
    offset: Nanos,
    /// Number of the period, and the time used in it.
    of: Nanos,
    used: Nanos,
}

impl Meter {
    /// Creates the meter of a cap. `begins` is the offset of its periods as a part (0 to 1) of one.
    pub(super) fn new(cap: Cap, begins: f64) -> Self {
        let period = cap.period.0.saturating_mul(1000).max(1);
        let quota = ((period as f64 * cap.part) as Nanos).max(1);
        Meter { period, quota, offset: (period as f64 * begins) as Nanos, of: 0, used: 0 }
    }

    /// Returns the completion time of work that begins at `now`.
    pub(super) fn ends(&mut self, now: Nanos, work: Nanos) -> Nanos {
        let (mut at, mut left) = (now + self.offset, work);
        loop {
            let of = at / self.period;
            if of > self.of {
                (self.of, self.used) = (of, 0);
            }
            // Another core may have used up a later period.
            let next = (self.of + 1) * self.period;
            at = at.max(self.of * self.period);
            let runs = left.min(self.quota.saturating_sub(self.used)).min(next - at);
            (self.used, left) = (self.used + runs, left - runs);
            if left == 0 {
                return at + runs - self.offset;
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn meter() -> Meter {
        Meter::new(Cap { part: 0.25, period: Duration::from_millis(100) }, 0.0)
    }

    #[test]
    fn short_work_runs_at_once_and_long_work_waits() {
        let mut meter = meter();
        assert_eq!(meter.ends(10 * MS, MS), 11 * MS);
        assert_eq!(meter.ends(20 * MS, 24 * MS), 44 * MS);
        assert_eq!(meter.ends(50 * MS, MS), 101 * MS, "all is used until the next period");
        assert_eq!(meter.ends(200 * MS, 50 * MS), 325 * MS);
        assert_eq!(meter.ends(490 * MS, 20 * MS), 510 * MS, "some of it in one period, some in the next");
        assert_eq!(meter.ends(510 * MS, 16 * MS), 601 * MS);
    }

    #[test]
    fn long_run_share_equals_quota() {
        let mut meter = Meter::new(Cap { part: 0.25, period: Duration::from_millis(20) }, 0.4);
        let end = (0..10_000).fold(0, |at, _| meter.ends(at, MS / 2));
        let part = 5_000.0 / (end / MS) as f64;
        assert!((part - 0.25).abs() < 0.001, "{part}");
    }
}
