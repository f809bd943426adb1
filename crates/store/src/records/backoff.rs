use super::RecordError;
use std::time::{Duration, Instant};

/// Initial back-off after a failure; it doubles with each further failure.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Maximum back-off of a store, after repeated failures.
const AGAIN_AT_LAST: Duration = Duration::from_secs(2);

/// Back-off of a record store that has failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    /// End of the back-off, and its length.
    until: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Returns an error while the back-off lasts.
    pub(super) fn check(&self) -> Result<(), RecordError> {
        let now = Instant::now();
        match self.until {
            Some((until, _)) if until > now => {
                let left = until.duration_since(now).as_millis();
                Err(RecordError::Down(format!("it is asked again in {left} ms")))
            }
            _ => Ok(()),
        }
    }

    /// Ends the back-off: the store has answered.
    pub(super) fn succeeded(&mut self) {
        self.until = None;
    }

    /// Starts or doubles the back-off: the store has not answered.
    pub(super) fn failed(&mut self) {
        let pause = self.until.map_or(AGAIN_AFTER, |(_, pause)| (pause * 2).min(AGAIN_AT_LAST));
        self.until = Some((Instant::now() + pause, pause));
    }
}
