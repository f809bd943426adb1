//! The server's side: what others ask this function. Each request is handed over with a way to answer it; who asks again
//! because the answer was lost gets the same answer, and nothing is done twice.

use crate::client::Body;
use crate::common::ProblemDetails;
use crate::grpc::{self, Encoding};
use crate::message::{BODY_OCTETS, Message, Model};
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use hyper::{Method, Request, Response, StatusCode};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Requests whose answers are kept for repeats, at the most.
const KEPT: usize = 16_384;
/// How long: longer than anybody asks again.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Octets of an idempotency key at the most.
const KEY_OCTETS: usize = 64;
/// By what a request is known when it is repeated (TS 29.500 5.2.3.2.18).
pub(crate) const REQUEST_INFO: &str = "3gpp-sbi-request-info";
/// The media types of answers.
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Where what was made is.
    pub location: Option<String>,
    /// What it says.
    pub message: Message,
}

impl Reply {
    /// An answer that says nothing more (204).
    pub fn done() -> Self {
        Reply { status: 204, ..Reply::default() }
    }

    /// An answer of this status that says this.
    pub fn of(status: u16, value: impl Into<Model>) -> Self {
        Reply { status, location: None, message: Message::of(value) }
    }

    /// What is wrong.
    pub fn problem(problem: &ProblemDetails) -> Self {
        Reply::of(problem.status.unwrap_or(500), problem)
    }

    /// Whether it is a success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What somebody asks.
#[derive(Debug)]
pub struct IncomingRequest {
    /// The path.
    pub path: String,
    /// What it says.
    pub message: Message,
    /// By what it is known when it is repeated, if it may be: its asker's key.
    pub key: Option<String>,
    /// It was asked before, of this function or of one that had its place.
    pub repeated: bool,
    /// The way to answer.
    pub reply: ReplyTo,
}

/// The way to answer a [`IncomingRequest`]. Dropped without an answer, the asker is told that there is none.
#[derive(Debug)]
pub struct ReplyTo(watch::Sender<Option<Arc<Reply>>>);

impl ReplyTo {
    /// Answers.
    pub fn send(self, reply: Reply) {
        // Whoever asked may have given up.
        self.0.send_replace(Some(Arc::new(reply)));
    }

    /// The way to answer of a call that nobody waits for.
    pub fn nobody() -> Self {
        ReplyTo(watch::Sender::new(None))
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

type Answer = watch::Receiver<Option<Arc<Reply>>>;

/// Where calls go.
pub(crate) type Handler = Arc<dyn Fn(IncomingRequest) + Send + Sync>;

/// What was asked lately, by the keys of the askers.
#[derive(Debug, Default)]
struct ReplyCache {
    answers: HashMap<String, Answer>,
    order: VecDeque<(Instant, String)>,
}

impl ReplyCache {
    /// The answer of a request that was here before; of one that was not, how it is to be answered, too.
    fn enter(&mut self, key: String) -> (Answer, Option<ReplyTo>) {
        while let Some((at, _)) = self.order.front()
            && (self.order.len() >= KEPT || at.elapsed() > KEPT_FOR)
            && let Some((_, old)) = self.order.pop_front()
        {
            self.answers.remove(&old);
        }
        if let Some(answer) = self.answers.get(&key) {
            return (answer.clone(), None);
        }
        let (reply, answer) = watch::channel(None);
        self.answers.insert(key.clone(), answer.clone());
        self.order.push_back((Instant::now(), key));
        (answer, Some(ReplyTo(reply)))
    }

    /// Nothing was done: who asks again may have another answer.
    fn forget(&mut self, key: &str) {
        self.answers.remove(key);
    }
}

/// Whether an answer says that nothing was done, and may be another one later: another function may be about to hand over what is
/// asked for, or there may be room.
fn is_transient(reply: &Reply) -> bool {
    matches!(reply.status, 404 | 429 | 503)
}

/// The server.
pub(crate) struct Server {
    pub(crate) handler: Handler,
    /// How long an answer is waited for.
    pub(crate) patience: Duration,
    encoding: Encoding,
    kept: Mutex<ReplyCache>,
}

impl Server {
    pub(crate) fn new(handler: Handler, patience: Duration, encoding: Encoding) -> Self {
        Server { handler, patience, encoding, kept: Mutex::default() }
    }

    /// Serves one request.
    pub(crate) async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let reply = match (self.encoding, grpc::is_grpc(request.headers())) {
            (Encoding::Grpc, true) => return Ok(grpc::server::serve(self, request).await.map(Either::Right)),
            (Encoding::Json, true) => return Ok(grpc::server::refusal().map(Either::Right)),
            (Encoding::Json, false) => self.ask(request).await,
            (Encoding::Grpc, false) => {
                let why = "this function is asked in gRPC: sbi.encoding is the same at all functions";
                Err(ProblemDetails::new(415, "UNSUPPORTED_MEDIA_TYPE", why))
            }
        };
        let reply = reply.unwrap_or_else(|problem| Arc::new(Reply::problem(&problem)));
        Ok(response(&reply).map(Either::Left))
    }

    async fn ask(&self, request: Request<Incoming>) -> Result<Arc<Reply>, ProblemDetails> {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Err(ProblemDetails::new(405, "METHOD_NOT_ALLOWED", "all operations of this function are POST"));
        }
        let path = head.uri.path().to_owned();
        let too_long = |_| ProblemDetails::new(413, "PAYLOAD_TOO_LARGE", "the body is too long, or was cut short");
        let body = Limited::new(body, BODY_OCTETS).collect().await.map_err(too_long)?.to_bytes();
        let media_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let message = Message::decode(media_type, &body).map_err(|e| ProblemDetails::unreadable(&e.to_string()))?;
        self.hand(path, message, RequestInfo::of(&head.headers)).await
    }

    /// Hands over what was asked, once, and waits for the answer.
    pub(crate) async fn hand(
        &self,
        path: String,
        message: Message,
        RequestInfo { key, repeated }: RequestInfo,
    ) -> Result<Arc<Reply>, ProblemDetails> {
        let name = key.as_ref().map(|key| format!("{key} {path}"));
        let (mut answer, reply) = match &name {
            Some(name) => {
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.enter(name.clone())
            }
            None => {
                let (reply, answer) = watch::channel(None);
                (answer, Some(ReplyTo(reply)))
            }
        };
        if let Some(reply) = reply {
            (self.handler)(IncomingRequest { path, message, key, repeated, reply });
        }
        let answered = tokio::time::timeout(self.patience, answer.wait_for(Option::is_some)).await;
        let answered = answered.ok().and_then(Result::ok).and_then(|answer| (*answer).clone());
        if let Some(name) = name.filter(|_| answered.as_deref().is_some_and(is_transient)) {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).forget(&name);
        }
        answered.ok_or_else(|| ProblemDetails::new(504, "TIMED_OUT_REQUEST", "this function has not answered in time"))
    }
}

/// What a request says of itself (TS 29.500 5.2.3.2.18).
#[derive(Debug, Default)]
pub(crate) struct RequestInfo {
    /// By what it is known when it is repeated.
    key: Option<String>,
    /// It was sent before.
    repeated: bool,
}

impl RequestInfo {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        RequestInfo { key: idempotency_key(headers).map(str::to_owned), repeated: is_repeat(headers) }
    }
}

/// Whether a request was sent before (TS 29.500 5.2.3.2.18).
fn is_repeat(headers: &HeaderMap) -> bool {
    let info = headers.get(REQUEST_INFO).and_then(|info| info.to_str().ok());
    info.is_some_and(|info| info.split(';').any(|parameter| parameter.trim() == "retrans=true"))
}

/// The key of a request that may be repeated.
fn idempotency_key(headers: &HeaderMap) -> Option<&str> {
    let info = headers.get(REQUEST_INFO)?.to_str().ok()?;
    let key = info.split(';').find_map(|parameter| parameter.trim().strip_prefix("idempotency-key="))?;
    let key = key.trim_matches('"');
    (1..=KEY_OCTETS).contains(&key.len()).then_some(key)
}

fn response(reply: &Reply) -> Response<Full<Bytes>> {
    // A problem by itself has its own media type; as a part of more it has not (TS 29.502 6.1.7.1).
    let alone = reply.status >= 400 && reply.message.parts.is_empty();
    let (media_type, body) = reply.message.encode(if alone { PROBLEM } else { JSON });
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(value) = media_type.and_then(|media_type| media_type.parse().ok()) {
        headers.insert(CONTENT_TYPE, value);
    }
    if let Some(value) = reply.location.as_ref().and_then(|location| location.parse().ok()) {
        headers.insert(LOCATION, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_is_known_by_its_key() {
        let mut headers = HeaderMap::new();
        assert_eq!(idempotency_key(&headers), None);
        headers.insert(REQUEST_INFO, "retrans=true; idempotency-key=\"a-1\"".parse().unwrap());
        assert_eq!((idempotency_key(&headers), is_repeat(&headers)), (Some("a-1"), true));
        let mut kept = ReplyCache::default();
        let (first, reply) = kept.enter("a-1".into());
        let (again, none) = kept.enter("a-1".into());
        assert!(none.is_none(), "it is not done again");
        reply.unwrap().send(Reply::done());
        for answer in [first, again, kept.enter("a-1".into()).0] {
            assert_eq!(answer.borrow().as_deref(), Some(&Reply::done()));
        }
        assert!(kept.enter("a-2".into()).1.is_some());
        (0..2 * KEPT).for_each(|n| drop(kept.enter(n.to_string())));
        assert!(kept.answers.len() <= KEPT && kept.order.len() <= KEPT);
    }
}
