//! What the machine gives to who is measured. On one that is shared with others the same work may take half as long again for a
//! while, and a function's CPU time grows with it, as its kernel does not see all that is taken from it: who reads the results
//! sees by this whether a run was slow, or its machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rounds of the work.
const ROUNDS: u32 = 4_000_000;

/// How long some work takes that is always the same, on all processors at once.
pub(super) fn same_work() -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    std::thread::scope(|scope| {
        (0..processors).for_each(|processor| drop(scope.spawn(move || black_box(work(processor as u64 + 1, ROUNDS)))));
    });
    began.elapsed()
}

/// Xorshift: each round waits for the one before, so that nothing but the processor's speed counts.
fn work(seed: u64, rounds: u32) -> u64 {
    (0..rounds).fold(seed, |mut word, _| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^ word << 17
    })
}

/// The time of all processors since the machine was started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    /// What the hypervisor had given to others meanwhile, as far as it says so.
    stolen: u64,
}

impl Ticks {
    /// Up to now.
    pub(super) fn now() -> std::io::Result<Self> {
        Ok(Ticks::read(&std::fs::read_to_string("/proc/stat")?))
    }

    /// From the first line of `/proc/stat` (proc(5)).
    fn read(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        // A guest's time is in that of user and nice.
        let fields: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
        Ticks { all: fields.iter().sum(), stolen: fields.get(7).copied().unwrap_or_default() }
    }

    /// The part of the time since then that others had, in percent.
    pub(super) fn stolen_since(self, before: Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_had_is_read() {
        let before = Ticks::read("cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        assert_eq!(before, Ticks { all: 1000, stolen: 35 });
        let after = Ticks::read("cpu  150 0 60 820 10 0 5 55 9 0\n");
        assert_eq!((after.stolen_since(before), after.stolen_since(after)), (20.0, 0.0));
        assert!(Ticks::now().unwrap().all > 0);
    }

    #[test]
    fn the_same_work_is_the_same() {
        assert_eq!(work(1, 3), work(work(1, 1), 2));
        assert!(same_work() > Duration::ZERO);
    }
}
