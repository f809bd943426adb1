//! What goes wrong when, from a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What happens to a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is killed (SIGKILL).
    Kill,
    /// It is stopped (SIGSTOP), and nobody lets it go on.
    Stop,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// When, in seconds since the load began.
    pub at_s: f64,
    /// What.
    pub kind: Kind,
    /// To whom: the number of the worker, to be taken modulo their number then.
    pub victim: usize,
}

/// Faults of a Poisson process with `per_minute` in a minute in the mean, each of either kind with the same probability,
/// from `from_s` to `until_s`, and never two within `apart_s`. The same seed gives the same faults.
pub fn schedule(seed: u64, per_minute: f64, (from_s, until_s): (f64, f64), apart_s: f64) -> Vec<Fault> {
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
    fn a_seed_is_a_schedule() {
        let of = |seed| schedule(seed, 30.0, (0.0, 600.0), 0.1);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(schedule(1, 0.0, (0.0, 600.0), 0.1), []);
    }
}
