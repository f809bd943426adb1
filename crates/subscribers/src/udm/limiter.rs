//! Bound on the log lines that peers can cause.

use std::sync::{Mutex, PoisonError};
use vireo_types::{Duration, Instant};

/// Lets one line through in each period, and counts what it leaves out.
#[derive(Debug)]
pub(super) struct Limiter {
    period: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// End of the current period.
    next: Option<Instant>,
    left_out: u64,
}

impl Limiter {
    pub(super) fn new(period: Duration) -> Self {
        Limiter { period, state: Mutex::default() }
    }

    /// Returns how many lines were left out before this one. `None` if this one is left out, too.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next.is_some_and(|next| now < next) {
            state.left_out += 1;
            return None;
        }
        state.next = Some(now + self.period);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_each_period_and_a_count_of_others() {
        let limiter = Limiter::new(Duration::from_secs(10));
        let at = |s: u64| Instant(s * 1_000_000);
        let seen: Vec<_> = [5, 5, 14, 15, 16, 40, 41].into_iter().map(|s| limiter.admit(at(s))).collect();
        assert_eq!(seen, [Some(0), None, None, Some(2), None, Some(1), None]);
    }
}
