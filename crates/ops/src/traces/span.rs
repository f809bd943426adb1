//! Spans of the parts of the core: their names, IDs and parents.

use super::{Part, TraceId, Tracer};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vireo_core::step::{ltmsi_of_key, step_key};
use vireo_types::{Duration, Instant, Ltmsi, Seid};
use vireo_wire::pfcp::{Message, MessageType};

/// Requests to UPFs without a response that are remembered.
const OPEN_REQUESTS: usize = 4096;

/// Role of a span in the communication of parts (`SpanKind` of OpenTelemetry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
    Producer = 4,
    Consumer = 5,
}

/// A completed span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) trace: TraceId,
    pub(super) id: u64,
    /// 0 for a span without a parent.
    pub(super) parent: u64,
    pub(super) part: Part,
    pub(super) name: &'static str,
    pub(super) kind: SpanKind,
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// Cause of a failure; 0 = a failure without cause.
    pub(super) failure: Option<u8>,
    /// UE, shown as `vireo.ltmsi`.
    pub(super) ltmsi: Ltmsi,
    /// A further value with its name.
    pub(super) attribute: Option<(&'static str, u64)>,
}

/// Result of a procedure.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// Since when the procedure has run.
    Succeeded(Instant),
    /// Cause; 0 = none.
    Failed(u8),
}

/// Requests to UPFs that have no response yet, of sampled UEs.
#[derive(Debug)]
pub(super) struct OpenRequests(Mutex<HashMap<(Seid, MessageType), OpenRequest>>);

/// A request of a session to a UPF. A session has one of each kind at a time.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    key: u64,
    start: Instant,
}

impl OpenRequests {
    pub(super) fn new() -> Self {
        // Room for all, so that an insertion does not allocate.
        OpenRequests(Mutex::new(HashMap::with_capacity(OPEN_REQUESTS)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Seid, MessageType), OpenRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracer {
    /// Host: records a procedure that has ended at `end`. The name is the label of its metrics.
    pub fn record_procedure(&self, ltmsi: Ltmsi, name: &'static str, outcome: Outcome, end: Instant) {
        let (start, failure) = match outcome {
            Outcome::Succeeded(since) => (since, None),
            Outcome::Failed(cause) => (end, Some(cause)),
        };
        let Some(trace) = self.sampled(ltmsi, start) else { return };
        let ended = name.bytes().fold(end.as_micros(), |sum, octet| sum.rotate_left(5) ^ u64::from(octet));
        let number = PROCEDURE | (ended & (PROCEDURE - 1));
        let (id, part) = (trace.span(Part::Host, number), Part::Host);
        let kind = SpanKind::Internal;
        self.record(Span { trace, id, parent: 0, part, name, kind, start, end, failure, ltmsi, attribute: None });
    }

    /// Host: records a step of a UE, from its commit to the execution of its effects. The key of
    /// the step identifies it.
    pub fn record_step(&self, (ltmsi, key): (Ltmsi, u64), start: Instant, end: Instant) {
        let Some(trace) = self.sampled(ltmsi, start) else { return };
        let (id, part) = (step_span(trace, key), Part::Host);
        let (name, kind) = ("step", SpanKind::Internal);
        let span = Span { trace, id, parent: 0, part, name, kind, start, end, failure: None, ltmsi, attribute: None };
        self.record(span);
    }

    /// Balancer: records a message of a RAN node about a UE.
    pub fn record_received(&self, ltmsi: Ltmsi, octets: usize, at: Instant) {
        let Some(trace) = self.sampled(ltmsi, at) else { return };
        let (id, part) = (trace.span(Part::Balancer, at.as_micros()), Part::Balancer);
        let (name, kind, start, end) = ("message from RAN node", SpanKind::Consumer, at, at);
        let attribute = Some(("vireo.octets", octets as u64));
        self.record(Span { trace, id, parent: 0, part, name, kind, start, end, failure: None, ltmsi, attribute });
    }

    /// Balancer: records a message to a RAN node about a UE. Its parent is the step of the effect.
    pub fn record_sent(&self, (ltmsi, key): (Ltmsi, u64), octets: usize, at: Instant) {
        let Some(trace) = self.sampled(ltmsi, at) else { return };
        let number = if key == 0 { at.as_micros() } else { key };
        let (id, part) = (trace.span(Part::Balancer, MESSAGE_SENT | number), Part::Balancer);
        let (name, kind, start, end) = ("message to RAN node", SpanKind::Producer, at, at);
        let (parent, attribute) = (parent_step(trace, (ltmsi, key)), Some(("vireo.octets", octets as u64)));
        self.record(Span { trace, id, parent, part, name, kind, start, end, failure: None, ltmsi, attribute });
    }

    /// Balancer: notes the time of a request of a session to a UPF.
    pub fn note_submitted(&self, seid: Seid, key: u64, message: &[u8], at: Instant) {
        if self.sampled(seid.ltmsi(), at).is_none() {
            return;
        }
        // A malformed message is not sent.
        let Ok(message) = Message::new(message) else { return };
        let mut open = self.open.lock();
        if open.len() < OPEN_REQUESTS {
            open.insert((seid, message.message_type()), OpenRequest { key, start: at });
        } else {
            // Those without a response.
            open.retain(|_, request| at.since(request.start) < Duration::from_secs(60));
        }
    }

    /// Balancer: records a request to a UPF, from its submission to this response. Its parent is
    /// the step of the effect.
    pub fn record_answered(&self, seid: Seid, response: &[u8], at: Instant) {
        let ltmsi = seid.ltmsi();
        if self.sampled(ltmsi, at).is_none() {
            return;
        }
        let Ok(response) = Message::new(response) else { return };
        let Some((request, name)) = request_of(response.message_type()) else { return };
        let Some(OpenRequest { key, start }) = self.open.lock().remove(&(seid, request)) else { return };
        let Some(trace) = self.sampled(ltmsi, start) else { return };
        let (part, kind) = (Part::Balancer, SpanKind::Client);
        let (id, parent) = (request_span(trace, part, &response), parent_step(trace, (ltmsi, key)));
        let attribute = Some(("vireo.pfcp.sequence", u64::from(response.sequence())));
        self.record(Span { trace, id, parent, part, name, kind, start, end: at, failure: None, ltmsi, attribute });
    }

    /// UPF: records the execution of a request by its response. The parent is the span of the
    /// balancer.
    pub fn record_executed(&self, response: &[u8], start: Instant, end: Instant) {
        let Ok(response) = Message::new(response) else { return };
        let Some((_, name)) = request_of(response.message_type()) else { return };
        let ltmsi = Seid(response.seid()).ltmsi();
        // A rejected request may have no session.
        let Some(trace) = self.sampled(ltmsi, start).filter(|_| response.seid() != 0) else { return };
        let (part, kind) = (Part::Upf, SpanKind::Server);
        let (id, parent) = (request_span(trace, part, &response), request_span(trace, Part::Balancer, &response));
        let attribute = Some(("vireo.pfcp.sequence", u64::from(response.sequence())));
        self.record(Span { trace, id, parent, part, name, kind, start, end, failure: None, ltmsi, attribute });
    }
}

// Numbers of spans of one part: these bits distinguish their kinds.
const PROCEDURE: u64 = 1 << 59;
const MESSAGE_SENT: u64 = 1 << 58;
const REQUEST: u64 = 1 << 57;

/// Returns the type of the request that a session's response answers, and the name of its span.
fn request_of(response: MessageType) -> Option<(MessageType, &'static str)> {
    Some(match response {
        MessageType::SESSION_ESTABLISHMENT_RESPONSE => {
            (MessageType::SESSION_ESTABLISHMENT_REQUEST, "PFCP session establishment")
        }
        MessageType::SESSION_MODIFICATION_RESPONSE => {
            (MessageType::SESSION_MODIFICATION_REQUEST, "PFCP session modification")
        }
        MessageType::SESSION_DELETION_RESPONSE => (MessageType::SESSION_DELETION_REQUEST, "PFCP session deletion"),
        _ => return None,
    })
}

/// Returns the span of a request, by its sequence number.
fn request_span(trace: TraceId, part: Part, response: &Message<'_>) -> u64 {
    trace.span(part, REQUEST | u64::from(response.sequence()))
}

fn step_span(trace: TraceId, key: u64) -> u64 {
    trace.span(Part::Host, step_key(key))
}

/// Returns the span of the step of an effect; 0 for an effect without a key, or one about another
/// UE than that of the step.
fn parent_step(trace: TraceId, (ltmsi, key): (Ltmsi, u64)) -> u64 {
    if ltmsi_of_key(key) == ltmsi { step_span(trace, key) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::{ExporterInput, tests::tracer};
    use super::*;
    use vireo_types::Bucket;
    use vireo_wire::pfcp::{Cause, SessionDeletionRequest, SessionDeletionResponse};

    #[test]
    fn parts_agree_on_parents() {
        let (tracer, spans) = tracer(1.0);
        let ltmsi = Ltmsi::new(Bucket::new(7), 1);
        let seid = Seid::new(ltmsi, 5, 3);
        let step = vireo_core::step::idempotency_key(ltmsi, 9);
        let effect = vireo_core::step::effect_key(step, 2);
        let (mut request, mut response) = (Vec::new(), Vec::new());
        SessionDeletionRequest::default().emit(&mut request, 77, 0).expect("encoded");
        let body = SessionDeletionResponse::new(Cause::REQUEST_ACCEPTED);
        body.emit(&mut response, seid.0, 4711).expect("encoded");
        let at = |us: u64| Instant(1_000_000 + us);
        tracer.record_step((ltmsi, step), at(0), at(1));
        tracer.note_submitted(seid, effect, &request, at(2));
        tracer.record_executed(&response, at(3), at(4));
        tracer.record_answered(seid, &response, at(5));
        tracer.record_answered(seid, &response, at(6));
        let spans: Vec<_> = spans
            .try_iter()
            .map(|queued| match queued {
                ExporterInput::Span(span) => span,
                ExporterInput::Flush(_) => panic!("no flush"),
            })
            .collect();
        let [step, upf, balancer] = spans[..] else { panic!("{spans:#?}") };
        assert!(step.trace == upf.trace && upf.trace == balancer.trace);
        assert_eq!((step.part, upf.part, balancer.part), (Part::Host, Part::Upf, Part::Balancer));
        assert_eq!((balancer.parent, upf.parent), (step.id, balancer.id));
        assert_eq!((balancer.start, balancer.end), (at(2), at(5)));
        assert_eq!(upf.name, "PFCP session deletion");
    }

    #[test]
    fn requests_without_response_are_bounded() {
        let (tracer, _spans) = tracer(1.0);
        let mut request = Vec::new();
        SessionDeletionRequest::default().emit(&mut request, 77, 0).expect("encoded");
        let seid = |n: usize| Seid::new(Ltmsi::new(Bucket::new((n >> 12) as u16), (n & 0xfff) as u16), 5, 3);
        let count = |tracer: &Tracer| tracer.open.lock().len();
        (0..2 * OPEN_REQUESTS).for_each(|n| tracer.note_submitted(seid(n), 1, &request, Instant(1)));
        assert_eq!(count(&tracer), OPEN_REQUESTS);
        let later = Instant(61_000_000);
        (0..2).for_each(|n| tracer.note_submitted(seid(n), 1, &request, later));
        assert_eq!(count(&tracer), 1, "the old ones are removed");
    }
}
