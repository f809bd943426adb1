//! Rate-limited log of SUCIs that cannot be de-concealed.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use vireo_types::{DeviceLimit, Duration, Instant, Supi};

/// Minimum interval between two lines, so that peers cannot flood the log.
const PERIOD: Duration = Duration::from_secs(10);

/// Logs one refusal in each period and counts the others. An unknown subscriber has a period of its
/// own.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<State>, Mutex<DeviceLimit>);

#[derive(Debug, Default)]
struct State {
    /// End of the current period.
    next: Option<Instant>,
    suppressed: u64,
}

impl Refusals {
    /// Logs why a SUCI was refused, with its scheme and key identifier. Peers must not learn how
    /// far a forged SUCI went (TS 33.501 6.12.5), so the reason is only logged.
    pub(super) fn report(&self, suci: &[u8], reason: impl Display, now: Instant) {
        if let Some(suppressed) = self.admit(now) {
            // Octets of an IMSI's SUCI (TS 24.501 figure 9.11.3.4.3).
            let scheme = suci.get(6).map(|octet| octet & 0xf);
            let key = suci.get(7);
            tracing::warn!(%reason, scheme, key, suppressed, "SUCI de-concealment failed");
        }
    }

    /// Logs that there is no such subscriber, once in a minute.
    pub(super) fn log_unknown(&self, supi: Supi, now: Instant) {
        if self.1.lock().unwrap_or_else(PoisonError::into_inner).admits(supi.as_u64(), now) {
            tracing::info!(supi = supi.as_u64(), reason = "unknown subscriber", "device refused");
        }
    }

    /// Returns the number of suppressed lines before this one; `None` if this one must be
    /// suppressed.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next.is_some_and(|next| now < next) {
            state.suppressed += 1;
            return None;
        }
        state.next = Some(now + PERIOD);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;
    use std::sync::Arc;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Collects the fields of every event.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!("{}={value:?} ", field.name());
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().expect("lines").push(format!("{} {}", event.metadata().level(), line.0));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn unknown_subscriber_has_one_line_in_minute() {
        let (lines, refusals) = (Lines::default(), Refusals::default());
        let supi: Supi = "999700000000001".parse().expect("an IMSI");
        tracing::subscriber::with_default(lines.clone(), || {
            for second in [5, 6, 64, 65, 66] {
                refusals.log_unknown(supi, Instant(second * 1_000_000));
            }
        });
        let line = format!("INFO message=device refused supi={} reason=unknown subscriber ", supi.as_u64());
        let lines = lines.0.lock().expect("lines");
        let same: Vec<_> = lines.iter().map(|line| line.replace('"', "")).collect();
        assert_eq!(same, [line.clone(), line]);
    }

    #[test]
    fn one_line_in_each_period_and_a_count_of_others() {
        let (lines, refusals) = (Lines::default(), Refusals::default());
        let suci = [1, 0x99, 0xf9, 7, 0xf0, 0xff, 1, 27, 0, 0];
        tracing::subscriber::with_default(lines.clone(), || {
            for second in [5, 5, 14, 15, 16, 40, 41] {
                refusals.report(&suci, "no such key", Instant(second * 1_000_000));
            }
        });
        let lines = lines.0.lock().expect("lines");
        let of = |n: u64| {
            format!("WARN message=SUCI de-concealment failed reason=no such key scheme=1 key=27 suppressed={n} ")
        };
        assert_eq!(*lines, [of(0), of(2), of(1)]);
    }
}
