//! Random schedule of faults from a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Fault of a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The process is killed (SIGKILL).
    Kill,
    /// The process is stopped (SIGSTOP) and never continued.
    Stop,
}

/// One scheduled fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    /// Time in seconds since the load began.
    pub(crate) at_s: f64,
    pub(crate) kind: Kind,
    /// Number of the worker, to be taken modulo the current number of workers.
    pub(crate) victim: usize,
}

/// Draws a Poisson process of faults with a mean of `per_minute`, both kinds with the same
/// probability. Faults lie between `from_s` and `until_s`, and never two within `apart_s`. The same
/// seed yields the same faults.
pub(crate) fn schedule(seed: u64, per_minute: f64, (from_s, until_s): (f64, f64), apart_s: f64) -> Vec<Fault> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut faults = Vec::new();
    let mut at_s = from_s;
    if per_minute <= 0.0 {
        return faults;
    }
    loop {
        let gap = -(1.0 - random.random::<f64>()).ln() * 60.0 / per_minute;
        at_s += if faults.is_empty() { gap } else { gap.max(apart_s) };
        if at_s >= until_s {
            return faults;
        }
        let kind = if random.random() { Kind::Kill } else { Kind::Stop };
        faults.push(Fault { at_s, kind, victim: random.random_range(0..1 << 16) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_at_their_rate_and_apart() {
        let faults = schedule(7, 30.0, (10.0, 3610.0), 0.5);
        assert!((1600..=1950).contains(&faults.len()), "{} of about 1,780", faults.len());
        assert!(faults.first().is_some_and(|f| f.at_s >= 10.0) && faults.last().is_some_and(|f| f.at_s < 3610.0));
        assert!(faults.windows(2).all(|pair| pair[1].at_s - pair[0].at_s >= 0.5));
        let kills = faults.iter().filter(|f| f.kind == Kind::Kill).count();
        assert!((faults.len() * 2 / 5..faults.len() * 3 / 5).contains(&kills));
    }

    #[test]
    fn same_seed_gives_same_schedule() {
        let of = |seed| schedule(seed, 30.0, (0.0, 600.0), 0.1);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(schedule(1, 0.0, (0.0, 600.0), 0.1), []);
    }
}
