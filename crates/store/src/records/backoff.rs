use super::RecordError;
use std::time::{Duration, Instant};

/// How long after a failure a place is asked again; doubled with each further one.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// The longest of these times.
const AGAIN_AT_LAST: Duration = Duration::from_secs(2);

/// A place that has failed is left alone for a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    /// Until when, and the pause after the next failure.
    until: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Whether the place may be asked.
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

    /// It has answered.
    pub(super) fn succeeded(&mut self) {
        self.until = None;
    }

    /// It has not.
    pub(super) fn failed(&mut self) {
        let pause = self.until.map_or(AGAIN_AFTER, |(_, pause)| (pause * 2).min(AGAIN_AT_LAST));
        self.until = Some((Instant::now() + pause, pause));
    }
}
