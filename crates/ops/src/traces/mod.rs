//! Traces of procedures across balancer, host and UPF, for OpenTelemetry.
//!
//! A trace has what one UE does within a minute. Its ID follows from the LTMSI and the minute, so
//! each process derives it from messages as they are: AMF-UE-NGAP-IDs, SEIDs and keys of effects
//! contain the LTMSI. By the ID, each process also decides whether the trace is sampled. With equal
//! settings, all decide alike.
//!
//! Without configuration, a part that might record a span reads one atomic value. A UE that is not
//! sampled costs a hash. A sampled span is a fixed number of bytes in a bounded queue: recording
//! neither allocates nor blocks, and a span without room is dropped and counted.
//!
//! The machines need synchronised clocks. A procedure across the end of a minute has two traces.

mod export;
mod span;

use crate::http_post::HttpPost;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
pub use span::Outcome;
use span::{OpenRequests, Span};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as Monotonic};
use vireo_types::{Instant, Ltmsi};

/// Spans that may wait for the exporter.
const QUEUE: usize = 8192;
/// Maximum number of spans of one request to the collector.
const BATCH: usize = 512;
/// Maximum time for which a span waits for others.
const MAX_BATCH_DELAY: Duration = Duration::from_secs(1);
/// Length of the window of a trace, in microseconds.
const WINDOW_US: u64 = 60_000_000;

/// The tracer of this process, set by [`start`].
static TRACER: OnceLock<Tracer> = OnceLock::new();
/// Spans that the collector has accepted, and spans that were dropped.
static SENT: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Settings of traces.
#[derive(Clone, Debug)]
pub struct TracesConfig {
    /// Collector of OTLP over HTTP, with the path of traces.
    pub collector: HttpPost,
    /// Sampled part of all traces, 0 to 1.
    pub ratio: f64,
}

/// ID of a trace. It has the same value in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TraceId {
    high: u64,
    low: u64,
}

impl TraceId {
    /// Derives the ID of a span from the part that records it and a number that is unique for that
    /// part within the trace.
    fn span(self, part: Part, number: u64) -> u64 {
        // 0 is no ID.
        mix(self.low ^ mix(number ^ (part as u64 + 1) << 60)).max(1)
    }
}

/// Part of the core that records a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Balancer,
    Host,
    Upf,
}

/// What waits for the exporter.
#[derive(Debug)]
enum ExporterInput {
    Span(Span),
    /// Reports when everything before it is sent or dropped.
    Flush(Sender<()>),
}

/// Recorder of spans of sampled UEs.
#[derive(Debug)]
pub struct Tracer {
    queue: Sender<ExporterInput>,
    /// A trace is sampled if its ID is below.
    threshold: u64,
    open: OpenRequests,
}

/// Returns the tracer, if the configuration of this process has one.
pub fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// Starts the exporter of this process; later calls have no effect. `role` names the process in the
/// traces.
///
/// # Errors
///
/// Returns an error if the system provides no thread or descriptor.
pub fn start(config: TracesConfig, role: &str) -> io::Result<()> {
    if TRACER.get().is_some() {
        return Ok(());
    }
    let (queue, spans) = bounded(QUEUE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let instance = format!("{role}-{}", std::process::id());
    let run = move || runtime.block_on(export(&config.collector, &instance, &spans));
    std::thread::Builder::new().name("traces".into()).spawn(run)?;
    // A second call keeps the tracer of the first one.
    let _ = TRACER.set(Tracer::new(queue, config.ratio));
    Ok(())
}

/// Waits until the spans recorded so far are sent or dropped, but at most `within`.
pub fn finish(within: Duration) {
    let Some(tracer) = tracer() else { return };
    let (done, is_done) = bounded(1);
    if tracer.queue.send_timeout(ExporterInput::Flush(done), within).is_ok() {
        // The process ends in any case.
        let _ = is_done.recv_timeout(within);
    }
}

/// Returns the metric of spans in the Prometheus text format; empty without traces.
pub(crate) fn metrics() -> String {
    const NAME: &str = "vireo_trace_spans_total";
    if tracer().is_none() {
        return String::new();
    }
    let [sent, dropped] = [&SENT, &DROPPED].map(|count| count.load(Ordering::Relaxed));
    format!(
        "# HELP {NAME} Spans that the collector accepted (sent), or that it did not or that had no room (dropped).\n\
         # TYPE {NAME} counter\n{NAME}{{result=\"sent\"}} {sent}\n{NAME}{{result=\"dropped\"}} {dropped}\n"
    )
}

impl Tracer {
    fn new(queue: Sender<ExporterInput>, ratio: f64) -> Self {
        Tracer { queue, threshold: threshold(ratio), open: OpenRequests::new() }
    }

    /// Returns the trace of a UE at a time, if it is sampled.
    fn sampled(&self, ltmsi: Ltmsi, at: Instant) -> Option<TraceId> {
        let ue = mix(u64::from(ltmsi.get()) ^ 0x7669_7265_6f00_0000);
        // The windows of all UEs do not end at once.
        let window = at.as_micros().wrapping_add(ue % WINDOW_US) / WINDOW_US;
        let low = mix(ue ^ window);
        (low < self.threshold).then(|| TraceId { high: mix(low), low: low.max(1) })
    }

    fn record(&self, span: Span) {
        if self.queue.try_send(ExporterInput::Span(span)).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the bound of sampled IDs.
fn threshold(ratio: f64) -> u64 {
    // Saturates at the largest value.
    (ratio.clamp(0.0, 1.0) * 2_f64.powi(64)) as u64
}

/// Mixes all bits of a number (finaliser of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Sends spans in batches until the queue ends.
async fn export(collector: &HttpPost, instance: &str, queue: &Receiver<ExporterInput>) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut has_failed = false;
    loop {
        // Nothing else runs on this thread.
        let (mut flush, mut due) = (None, None);
        while batch.len() < BATCH && flush.is_none() {
            let wait = due.map_or(Duration::MAX, |due: Monotonic| due.saturating_duration_since(Monotonic::now()));
            let next = match wait {
                Duration::MAX => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                wait => queue.recv_timeout(wait),
            };
            match next {
                Ok(ExporterInput::Span(span)) => {
                    batch.push(span);
                    due.get_or_insert_with(|| Monotonic::now() + MAX_BATCH_DELAY);
                }
                Ok(ExporterInput::Flush(done)) => flush = Some(done),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        if !batch.is_empty() {
            let body = export::request(instance, &batch);
            let (sent, count) = (collector.send("application/x-protobuf", &body).await, batch.len() as u64);
            match &sent {
                Ok(()) => SENT.fetch_add(count, Ordering::Relaxed),
                Err(_) => DROPPED.fetch_add(count, Ordering::Relaxed),
            };
            // Once for each time that the collector fails.
            match sent {
                Err(error) if !has_failed => {
                    tracing::warn!(%error, count, "traces not sent: spans are dropped; check traces.collector");
                    has_failed = true;
                }
                Ok(()) => has_failed = false,
                Err(_) => {}
            }
            batch.clear();
        }
        if let Some(done) = flush {
            // The waiting thread may have ended its wait.
            let _ = done.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::Bucket;

    pub(super) fn tracer(ratio: f64) -> (Tracer, Receiver<ExporterInput>) {
        let (queue, spans) = bounded(4);
        (Tracer::new(queue, ratio), spans)
    }

    fn ue(number: u16) -> Ltmsi {
        Ltmsi::new(Bucket::new(7), number)
    }

    #[test]
    fn sampled_part_is_the_ratio() {
        let count = |ratio| {
            let (tracer, _spans) = tracer(ratio);
            (0..10_000).filter(|n| tracer.sampled(ue(*n), Instant(1_700_000_000_000_000)).is_some()).count()
        };
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((80..120).contains(&count(0.01)), "{}", count(0.01));
    }

    #[test]
    fn trace_is_one_ue_for_a_minute() {
        let (tracer, _spans) = tracer(1.0);
        let trace = |n: u16, seconds: u64| tracer.sampled(ue(n), Instant(seconds * 1_000_000)).expect("all are");
        assert_ne!(trace(1, 1000), trace(2, 1000), "another UE");
        let changes = (1000..1600).filter(|second| trace(1, *second) != trace(1, second + 1)).count();
        assert_eq!(changes, 10, "one for each minute");
        // A process with a lower ratio has the same IDs.
        let (some, _spans) = self::tracer(0.5);
        let ids = (0..100).filter_map(|n| some.sampled(ue(n), Instant(5)).map(|id| (n, id)));
        assert!(ids.into_iter().all(|(n, id)| tracer.sampled(ue(n), Instant(5)) == Some(id)));
    }

    #[test]
    fn full_queue_drops_spans() {
        let (tracer, spans) = tracer(1.0);
        let before = DROPPED.load(Ordering::Relaxed);
        (0..6).for_each(|n| tracer.record_step((ue(1), n << 4), Instant(1), Instant(2)));
        assert_eq!((DROPPED.load(Ordering::Relaxed) - before, spans.len()), (2, 4));
    }

    #[test]
    fn recording_does_not_allocate() {
        let (tracer, _spans) = tracer(1.0);
        let counts = allocation_counter::measure(|| {
            tracer.record_step((ue(1), 1 << 4), Instant(1), Instant(2));
            tracer.record_step((ue(1), 2 << 4), Instant(1), Instant(2));
        });
        assert_eq!(counts.count_total, 0);
    }
}
