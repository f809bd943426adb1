//! Threads that carry what is between processes, or look which of these are heard. When such a thread gets a processor too late,
//! because there is more to do than processors for it, it asks the system to be preferred for a while, where that is permitted.
//! Heartbeats have a thread of their own ([`crate::cluster`]).

use rustix::process::{getpriority_process, setpriority_process};
use std::time::{Duration, Instant};

/// The nice value of a thread that was late.
const FIRST: i32 = -10;
/// For how long it is preferred after that.
const LASTS: Duration = Duration::from_secs(10);

/// How a thread keeps its time.
#[derive(Debug)]
pub(crate) struct PriorityBoost {
    /// How often it looks at the clock at the least, if it gets a processor.
    every: Duration,
    looked: Instant,
    /// Its own nice value, and until when it has another.
    raised: Option<(i32, Instant)>,
}

impl PriorityBoost {
    /// Of the calling thread, which is to look at the clock so often.
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        PriorityBoost { every, looked: now, raised: None }
    }

    /// The thread looks at the clock. When it was late it is preferred, and no more when it has been in time for long.
    pub(crate) fn look(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.looked) > self.every + self.every / 2;
        self.looked = now;
        match (late, self.raised) {
            (true, Some((own, _))) => self.raised = Some((own, now + LASTS)),
            (true, None) => {
                // It is the thread's alone (on Linux). Without the permission it goes on as it was.
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
        // Late once more.
        punctual.look(at(8000));
        (0..150).for_each(|n| punctual.look(at(8050 + n * 50)));
        assert_eq!(nice(), raised, "it was late twice");
        (0..100).for_each(|n| punctual.look(at(15_550 + n * 50)));
        assert_eq!(nice(), own);
    }
}
