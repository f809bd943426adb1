//! Temporary priority of a thread that was late.
//!
//! Threads that carry messages between processes or check heartbeats use it. If an overloaded
//! machine gives such a thread a processor too late, the thread raises its own priority for a
//! while, where that is permitted. Heartbeats are sent by a separate thread ([`crate::cluster`]).

use rustix::process::{getpriority_process, setpriority_process};
use std::time::{Duration, Instant};

/// Nice value of a late thread.
const FIRST: i32 = -10;
/// Duration of the raised priority.
const LASTS: Duration = Duration::from_secs(10);

/// Lateness and priority of a thread.
#[derive(Debug)]
pub(crate) struct PriorityBoost {
    /// Maximum interval of the thread's calls if it gets a processor in time.
    every: Duration,
    looked: Instant,
    /// Original nice value and end of the raised priority.
    raised: Option<(i32, Instant)>,
}

impl PriorityBoost {
    /// Creates an instance for the calling thread, with its maximum interval of calls.
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        PriorityBoost { every, looked: now, raised: None }
    }

    /// Raises the priority if this call is late. Restores it when the thread was in time for long
    /// enough.
    pub(crate) fn look(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.looked) > self.every + self.every / 2;
        self.looked = now;
        match (late, self.raised) {
            (true, Some((own, _))) => self.raised = Some((own, now + LASTS)),
            (true, None) => {
                // On Linux the nice value is per thread. Without permission the thread continues
                // unchanged.
                let own = getpriority_process(None).unwrap_or_default();
                if own > FIRST && setpriority_process(None, FIRST).is_ok() {
                    tracing::debug!("a thread that other processes wait for was late, and is preferred for a while");
                    self.raised = Some((own, now + LASTS));
                }
            }
            (false, Some((own, until))) if now > until => {
                if let Err(error) = setpriority_process(None, own) {
                    tracing::debug!(%error, "a thread stays preferred");
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
    fn who_was_late_is_preferred_for_a_while_where_that_is_permitted() {
        let nice = || getpriority_process(None).expect("it can be read");
        let own = nice();
        let permitted = setpriority_process(None, own - 1).is_ok() && setpriority_process(None, own).is_ok();
        let raised = if permitted { FIRST } else { own };
        let (began, every) = (Instant::now(), Duration::from_millis(50));
        let at = |millis: u64| began + Duration::from_millis(millis);
        let mut punctual = PriorityBoost::new(every, began);
        punctual.look(at(50));
        punctual.look(at(110));
        assert_eq!(nice(), own, "in time");
        punctual.look(at(200));
        assert_eq!(nice(), raised, "late");
        (0..150).for_each(|n| punctual.look(at(250 + n * 50)));
        assert_eq!(nice(), raised);
        // A second late call.
        punctual.look(at(8000));
        (0..150).for_each(|n| punctual.look(at(8050 + n * 50)));
        assert_eq!(nice(), raised, "it was late twice");
        (0..100).for_each(|n| punctual.look(at(15_550 + n * 50)));
        assert_eq!(nice(), own);
    }
}
