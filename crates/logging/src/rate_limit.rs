//! The `tracing` layer that limits lines by kind and peer.

use crate::counts;
use crate::limiter::{BoundedText, Limiter, Limits, Line, SuppressedLines};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Fields that name the peer of a line.
///
/// The first of these that a line has counts. The port of an address is ignored.
pub const PEER_FIELDS: [&str; 10] =
    ["peer", "control_plane", "from", "to", "gnb", "upf", "host", "balancer", "member", "assoc"];
/// Fields that distinguish lines of one call site.
const DETAIL_FIELDS: [&str; 2] = ["fault", "reason"];
/// Bytes of the text of a suppressed line that are kept.
const TEXT: usize = 160;

/// A layer that suppresses lines over the [`Limits`] of their kind or peer.
///
/// A kind is a call site with one value of the field `fault` or `reason`. Clones share the counts.
#[derive(Clone, Debug)]
pub struct RateLimit {
    limiter: Arc<Mutex<Limiter>>,
}

impl RateLimit {
    /// Creates a layer with these limits.
    pub fn new(limits: Limits) -> Self {
        RateLimit { limiter: Arc::new(Mutex::new(Limiter::new(limits))) }
    }

    /// Returns the suppressed lines of periods that have ended by `now`, or, with `all`, of all
    /// periods.
    pub fn take_ended(&self, now: Instant, all: bool) -> Vec<SuppressedLines> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner).take_ended(now, all)
    }
}

impl<S: Subscriber> Layer<S> for RateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        // Values are formatted before the lock is taken, because formatting runs foreign code.
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = Line {
            site: metadata.callsite(),
            level: *metadata.level(),
            detail: fields.detail.as_str(),
            peer: fields.peer.as_str(),
        };
        let text = || format!("{}: {}", metadata.target(), fields.text.as_str());
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = limiter.admits(&line, Instant::now(), text);
        drop(limiter);
        if !admitted {
            counts::count_suppressed();
        }
        admitted
    }
}

/// The parts of a line that the limiter uses.
struct Fields {
    peer: BoundedText<64>,
    /// Index of the peer's field in [`PEER_FIELDS`].
    rank: usize,
    detail: BoundedText<32>,
    text: BoundedText<TEXT>,
}

impl Default for Fields {
    fn default() -> Self {
        Fields {
            peer: BoundedText::default(),
            rank: PEER_FIELDS.len(),
            detail: BoundedText::default(),
            text: BoundedText::default(),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let name = field.name();
        if name == "message" {
            self.text = BoundedText::new(value);
        } else if DETAIL_FIELDS.contains(&name) {
            self.detail = BoundedText::new(value);
        } else if let Some(rank) = PEER_FIELDS[..self.rank].iter().position(|peer| *peer == name) {
            (self.peer, self.rank) = (BoundedText::new(value), rank);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // without the quotes of `Debug`
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tracing_subscriber::layer::SubscriberExt;

    /// A layer that counts lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn lines_are_limited_by_call_site_and_peer() {
        let (limit, lines) = (RateLimit::new(Limits::default()), Lines::default());
        let written = || lines.0.swap(0, Relaxed);
        let subscriber = tracing_subscriber::registry().with(limit.clone()).with(lines.clone());
        tracing::subscriber::with_default(subscriber, || {
            for port in 1..1000_u16 {
                let peer = SocketAddr::from(([192, 0, 2, 1], port));
                tracing::warn!(%peer, assoc = port, "unsolicited acknowledgement");
            }
            assert_eq!(written(), 5);
            tracing::info!(peer = "192.0.2.1", "another kind");
            assert_eq!(written(), 1);
            for n in 0..1000 {
                tracing::debug!(n, "nobody's");
            }
            assert_eq!(written(), 20);
            for reason in ["address", "plmn", "address"] {
                (0..9).for_each(|_| tracing::warn!(peer = ?"gnb", reason, "refused"));
            }
            assert_eq!(written(), 10);
        });
        let mut ended = limit.take_ended(Instant::now(), true);
        ended.sort_by_key(|kind| kind.count);
        let counts: Vec<_> = ended.iter().map(|kind| (kind.count, kind.peer.as_str(), kind.peers)).collect();
        assert_eq!(counts, [(4, "\"gnb\"", 1), (13, "\"gnb\"", 1), (980, "", 0), (994, "192.0.2.1", 1)]);
        assert!(ended[3].text.ends_with("rate_limit::tests: unsolicited acknowledgement"), "{}", ended[3].text);
    }
}
