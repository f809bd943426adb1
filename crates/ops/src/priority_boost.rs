//! Temporary priority of a thread that was late.
//!
//! Threads that carry messages between processes or check heartbeats use it. If an overloaded
//! machine gives such a thread a processor too late, the thread raises its own priority for a
//! while, where that is permitted. Heartbeats are sent by a separate thread.

use rustix::process::{getpriority_process, setpriority_process};
use std::time::{Duration, Instant};

/// Nice value of a late thread.
const BOOST_NICE: i32 = -10;
/// Duration of the raised priority.
const BOOST_TIME: Duration = Duration::from_secs(10);

/// Lateness and priority of a thread.
#[derive(Debug)]
pub struct PriorityBoost {
    /// Maximum interval of the thread's calls if it gets a processor in time.
    every: Duration,
    checked_at: Instant,
    /// Original nice value and end of the raised priority.
    raised: Option<(i32, Instant)>,
}

impl PriorityBoost {
    /// Creates an instance for the calling thread, with its maximum interval of calls.
    pub fn new(every: Duration, now: Instant) -> Self {
        PriorityBoost { every, checked_at: now, raised: None }
    }

    /// Raises the priority if this call is late. Restores it when the thread was in time for long
    /// enough.
    pub fn update(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.checked_at) > self.every + self.every / 2;
        self.checked_at = now;
        match (late, self.raised) {
            (true, Some((own, _))) => self.raised = Some((own, now + BOOST_TIME)),
            (true, None) => {
                // On Linux the nice value is per thread. Without permission the thread continues
                // unchanged.
                let own = getpriority_process(None).unwrap_or_default();
                if own > BOOST_NICE && setpriority_process(None, BOOST_NICE).is_ok() {
                    tracing::debug!("late thread gets a higher priority for a limited time");
                    self.raised = Some((own, now + BOOST_TIME));
                }
            }
            (false, Some((own, until))) if now > until => {
                if let Err(error) = setpriority_process(None, own) {
                    tracing::debug!(%error, "higher priority of a thread not ended");
                }
                self.raised = None;
            }
            (false, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_thread_is_boosted_for_a_while() {
        let nice = || getpriority_process(None).expect("it can be read");
        let own = nice();
        let permitted = setpriority_process(None, own - 1).is_ok() && setpriority_process(None, own).is_ok();
        let raised = if permitted { BOOST_NICE } else { own };
        let (began, every) = (Instant::now(), Duration::from_millis(50));
        let at = |millis: u64| began + Duration::from_millis(millis);
        let mut punctual = PriorityBoost::new(every, began);
        punctual.update(at(50));
        punctual.update(at(110));
        assert_eq!(nice(), own, "in time");
        punctual.update(at(200));
        assert_eq!(nice(), raised, "late");
        (0..150).for_each(|n| punctual.update(at(250 + n * 50)));
        assert_eq!(nice(), raised);
        // A second late call.
        punctual.update(at(8000));
        (0..150).for_each(|n| punctual.update(at(8050 + n * 50)));
        assert_eq!(nice(), raised, "it was late twice");
        (0..100).for_each(|n| punctual.update(at(15_550 + n * 50)));
        assert_eq!(nice(), own);
    }
}
