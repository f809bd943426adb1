use super::RecordError;
use std::time::{Duration, Instant};

/// Initial back-off after a failure; it doubles with each further failure.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Maximum back-off of a store, after repeated failures.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Back-off of a record store that has failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    /// End of the back-off, and its length.
    pause: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Returns an error while the back-off lasts.
    pub(super) fn check(&self) -> Result<(), RecordError> {
        let now = Instant::now();
        match self.pause {
            Some((pause, _)) if pause > now => {
                let left = pause.duration_since(now).as_millis();
                Err(RecordError::Down(format!("it is asked again in {left} ms")))
            }
            _ => Ok(()),
        }
    }

    /// Ends the back-off: the store has answered.
    pub(super) fn reset(&mut self) {
        self.pause = None;
    }

    /// Starts or doubles the back-off: the store has not answered.
    pub(super) fn extend(&mut self) {
        let pause = self.pause.map_or(FIRST_PAUSE, |(_, pause)| (pause * 2).min(MAX_PAUSE));
        self.pause = Some((Instant::now() + pause, pause));
    }
}
