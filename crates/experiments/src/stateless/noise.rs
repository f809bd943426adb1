//! Noise of the machine during a measurement.
//!
//! On a machine shared with others, the same work may take 1.5 times as long for a while. A
//! function's CPU time grows with it, because the guest's kernel does not see all stolen time.
//! These values show whether a run was slow or the machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rounds of the reference work.
const ROUNDS: u32 = 4_000_000;

/// Returns the time of a fixed amount of work on all processors at once.
pub(super) fn same_work() -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    std::thread::scope(|scope| {
        (0..processors).for_each(|processor| drop(scope.spawn(move || black_box(work(processor as u64 + 1, ROUNDS)))));
    });
    began.elapsed()
}

/// Runs xorshift. Each round depends on the previous one, so that only the processor's speed
/// counts.
fn work(seed: u64, rounds: u32) -> u64 {
    (0..rounds).fold(seed, |mut word, _| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^ word << 17
    })
}

/// Time of all processors since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    /// Time that the hypervisor gave to other guests, as far as it reports it.
    stolen: u64,
}

impl Ticks {
    /// Reads the ticks up to the present time.
    pub(super) fn now() -> std::io::Result<Self> {
        Ok(Ticks::read(&std::fs::read_to_string("/proc/stat")?))
    }

    /// Parses the first line of `/proc/stat` (proc(5)).
    fn read(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        // Guest time is included in user and nice.
        let fields: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
        Ticks { all: fields.iter().sum(), stolen: fields.get(7).copied().unwrap_or_default() }
    }

    /// Returns the stolen part of the time since `before`, in percent.
    pub(super) fn stolen_since(self, before: Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_ticks_are_read() {
        let before = Ticks::read("cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        assert_eq!(before, Ticks { all: 1000, stolen: 35 });
        let after = Ticks::read("cpu  150 0 60 820 10 0 5 55 9 0\n");
        assert_eq!((after.stolen_since(before), after.stolen_since(after)), (20.0, 0.0));
        assert!(Ticks::now().unwrap().all > 0);
    }

    #[test]
    fn equal_work_is_recognised() {
        assert_eq!(work(1, 3), work(work(1, 1), 2));
        assert!(same_work() > Duration::ZERO);
    }
}
