//! Estimate of the completion time of a procedure at an NF (MMLite).
//!
//! The equations are `W_i = q_i T_t / c_i` and `T_i = (q_i / c_i + 1) T_t`. `T_t` is the time of
//! procedure type `t` alone on a core. It is calibrated at start and updated by measurement.

use vireo_types::Duration;

/// Weight of a new measurement: 1/8 follows a drift, and forgets an outlier, within a few dozen
/// procedures.
const WEIGHT_SHIFT: u32 = 3;

/// `T_t` of one procedure type. In nanoseconds, so that procedures of microseconds keep their
/// precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    nanos: u64,
}

impl ServiceTime {
    /// Returns a calibrated time, at least one nanosecond.
    pub const fn new(nanos: u64) -> Self {
        ServiceTime { nanos: if nanos == 0 { 1 } else { nanos } }
    }

    /// Adds a measurement: the time that a procedure took on a core.
    pub fn add_measurement(&mut self, nanos: u64) {
        let old = self.nanos;
        self.nanos = (old - (old >> WEIGHT_SHIFT) + (nanos >> WEIGHT_SHIFT)).max(1);
    }

    /// Returns the current estimate in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.nanos
    }
}

/// Returns `W_i`: the waiting time at an NF with `queue` procedures ahead and the part `share` of a
/// core. It is practically infinite if the share is not positive.
pub fn waiting(queue: u32, share: f64, time: ServiceTime) -> Duration {
    nanos(f64::from(queue) / positive(share) * time.nanos as f64)
}

/// Returns `T_i`: the completion time.
pub fn completion(queue: u32, share: f64, time: ServiceTime) -> Duration {
    nanos((f64::from(queue) / positive(share) + 1.0) * time.nanos as f64)
}

fn positive(share: f64) -> f64 {
    if share > 0.0 { share } else { f64::MIN_POSITIVE }
}

/// Rounds up to microseconds: an optimistic estimate is worse than a pessimistic one.
fn nanos(nanos: f64) -> Duration {
    // A float beyond the range of the integer becomes its maximum.
    Duration((nanos / 1000.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_equations_match_paper() {
        let t = ServiceTime::new(1_000_000);
        assert_eq!(waiting(4, 0.5, t), Duration::from_millis(8));
        assert_eq!(completion(4, 0.5, t), Duration::from_millis(9));
        assert_eq!(completion(0, 0.5, t), Duration::from_millis(1), "an empty queue leaves the time alone");
        assert_eq!(completion(1, 0.0, t), Duration(u64::MAX), "no share is no service");
    }

    #[test]
    fn measurements_pull_the_time_along() {
        let mut t = ServiceTime::new(20_000);
        t.add_measurement(200_000);
        assert!((40_000..45_000).contains(&t.nanos()), "one outlier counts an eighth: {t:?}");
        for _ in 0..100 {
            t.add_measurement(10_000);
        }
        assert!((9_900..10_200).contains(&t.nanos()), "{t:?}");
        for _ in 0..100 {
            t.add_measurement(0);
        }
        assert!(t.nanos() >= 1);
    }
}
