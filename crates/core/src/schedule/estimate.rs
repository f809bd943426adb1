//! How long a procedure would take at an NF (seed 1, `W_i = q_i T_t / c_i` and `T_i = (q_i / c_i + 1) T_t`), from
//! measured times: `T_t` is the time of procedure type `t` alone on a core, calibrated at start and tracked as it runs
//! (DESIGN decision 11).

use vireo_types::Duration;

/// The weight of a new measurement: 1/8 follows a drift within a few dozen procedures and forgets one outlier as fast.
const WEIGHT_SHIFT: u32 = 3;

/// `T_t` of one procedure type, in nanoseconds so that microsecond procedures keep their digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    nanos: u64,
}

impl ServiceTime {
    /// A calibrated time, one nanosecond at least.
    pub const fn new(nanos: u64) -> Self {
        ServiceTime { nanos: if nanos == 0 { 1 } else { nanos } }
    }

    /// Takes a measurement: the time that a procedure has spent on a core.
    pub fn measured(&mut self, nanos: u64) {
        let old = self.nanos;
        self.nanos = (old - (old >> WEIGHT_SHIFT) + (nanos >> WEIGHT_SHIFT)).max(1);
    }

    /// The time now.
    pub const fn nanos(self) -> u64 {
        self.nanos
    }
}

/// `W_i`: how long a procedure waits at an NF with `queue` procedures before it and the part `share` of a core.
///
/// A share that is not above zero waits for ever.
pub fn waiting(queue: u32, share: f64, time: ServiceTime) -> Duration {
    nanos(f64::from(queue) / positive(share) * time.nanos as f64)
}

/// `T_i`: when it would be complete.
pub fn completion(queue: u32, share: f64, time: ServiceTime) -> Duration {
    nanos((f64::from(queue) / positive(share) + 1.0) * time.nanos as f64)
}

fn positive(share: f64) -> f64 {
    if share > 0.0 { share } else { f64::MIN_POSITIVE }
}

/// Rounds up: an estimate that promises too much is worse than one that promises too little.
fn nanos(nanos: f64) -> Duration {
    // A float beyond the range of the integer becomes its maximum.
    Duration((nanos / 1000.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_equations_are_the_papers() {
        let t = ServiceTime::new(1_000_000);
        assert_eq!(waiting(4, 0.5, t), Duration::from_millis(8));
        assert_eq!(completion(4, 0.5, t), Duration::from_millis(9));
        assert_eq!(completion(0, 0.5, t), Duration::from_millis(1), "an empty queue leaves the time alone");
        assert_eq!(completion(1, 0.0, t), Duration(u64::MAX), "no share is no service");
    }

    #[test]
    fn measurements_pull_the_time_along() {
        let mut t = ServiceTime::new(20_000);
        t.measured(200_000);
        assert!((40_000..45_000).contains(&t.nanos()), "one outlier counts an eighth: {t:?}");
        for _ in 0..100 {
            t.measured(10_000);
        }
        assert!((9_900..10_200).contains(&t.nanos()), "{t:?}");
        for _ in 0..100 {
            t.measured(0);
        }
        assert!(t.nanos() >= 1);
    }
}
