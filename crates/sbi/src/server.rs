//! Server side of an endpoint: requests of peers.
//!
//! The handler receives each request with a reply channel. A repeated request gets the response of
//! the first one and is not executed again.

use crate::body::{self, BodyMemory};
use crate::common::ProblemDetails;
use crate::grpc::{self, Encoding};
use crate::message::{BODY_OCTETS, Message};
use crate::reply::{HttpBody, Reply};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use hyper::{Method, Request, Response, StatusCode};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Maximum of stored responses for repeats.
const MAX_REPLIES: usize = 16_384;
/// Lifetime of stored responses, longer than any client repeats a request.
const REPLY_LIFETIME: Duration = Duration::from_secs(30);
/// Minimum of the time in which a body arrives: a busy machine needs some.
const MIN_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of an idempotency key in bytes.
const KEY_OCTETS: usize = 64;
/// Header with the idempotency key and the repeat flag (TS 29.500 5.2.3.2.18).
pub(crate) const REQUEST_INFO: &str = "3gpp-sbi-request-info";
/// Media types of responses.
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// A received request.
#[derive(Debug)]
pub struct IncomingRequest {
    pub path: String,
    pub message: Message,
    /// Idempotency key of the sender; `None` = the request cannot be recognised as a repeat.
    pub key: Option<String>,
    /// True if the request was sent before, to this process or to a predecessor.
    pub repeated: bool,
    pub reply: ReplyTo,
}

/// Reply channel of an [`IncomingRequest`]. Dropping it without a reply sends an error response.
#[derive(Debug)]
pub struct ReplyTo(watch::Sender<Option<Arc<Reply>>>);

impl ReplyTo {
    /// Sends the reply.
    pub fn send(self, reply: Reply) {
        // The sender of the request may have gone.
        self.0.send_replace(Some(Arc::new(reply)));
    }

    /// Creates a channel whose reply is dropped.
    pub fn disconnected() -> Self {
        ReplyTo(watch::Sender::new(None))
    }

    /// Returns true if no request waits for the reply.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

type Answer = watch::Receiver<Option<Arc<Reply>>>;

/// Handler of requests.
pub(crate) type Handler = Arc<dyn Fn(IncomingRequest) + Send + Sync>;

/// Responses by idempotency key and path, for repeats.
#[derive(Debug, Default)]
struct ReplyCache {
    answers: HashMap<String, Answer>,
    order: VecDeque<(Instant, String)>,
}

impl ReplyCache {
    /// Returns the pending or stored response of a request. For a new request, returns also the
    /// reply channel.
    fn enter(&mut self, key: String) -> (Answer, Option<ReplyTo>) {
        while let Some((at, _)) = self.order.front()
            && (self.order.len() >= MAX_REPLIES || at.elapsed() > REPLY_LIFETIME)
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

    /// Removes a response that had no effect, so that a repeat is executed.
    fn forget(&mut self, key: &str) {
        self.answers.remove(key);
    }
}

/// Returns true if a response had no effect and a repeat may succeed: another process may be
/// taking over the resource, or there may be room later.
fn is_transient(reply: &Reply) -> bool {
    matches!(reply.status, 404 | 429 | 503)
}

/// Server of an endpoint.
pub(crate) struct Server {
    pub(crate) handler: Handler,
    /// Maximum wait for the handler's reply.
    pub(crate) timeout: Duration,
    /// Maximum time in which a body arrives.
    pub(crate) body_timeout: Duration,
    encoding: Encoding,
    /// Memory of the bodies of all connections.
    pub(crate) bodies: BodyMemory,
    replies: Mutex<ReplyCache>,
}

impl Server {
    /// `timeout` = maximum wait of a client for a response, for each of its `attempts`.
    pub(crate) fn new(handler: Handler, timeout: Duration, attempts: u32, encoding: Encoding) -> Self {
        Server {
            handler,
            timeout: timeout * attempts,
            body_timeout: timeout.max(MIN_BODY_TIMEOUT),
            encoding,
            bodies: BodyMemory::new(),
            replies: Mutex::default(),
        }
    }

    /// Serves one request of the connection with the memory `bodies`.
    pub(crate) async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
        bodies: BodyMemory,
    ) -> Result<Response<HttpBody>, Infallible> {
        let reply = match (self.encoding, grpc::is_grpc(request.headers())) {
            (Encoding::Grpc, true) => return Ok(grpc::server::serve(self, request, bodies).await.map(Either::Right)),
            (Encoding::Json, true) => return Ok(grpc::server::refusal().map(Either::Right)),
            (Encoding::Json, false) => self.serve_json(request, bodies).await,
            (Encoding::Grpc, false) => {
                let cause = "this function is asked in gRPC: sbi.encoding is the same at all functions";
                Err(ProblemDetails::new(415, "UNSUPPORTED_MEDIA_TYPE", cause))
            }
        };
        let reply = reply.unwrap_or_else(|problem| Arc::new(Reply::problem(&problem)));
        Ok(response(&reply).map(Either::Left))
    }

    async fn serve_json(&self, request: Request<Incoming>, bodies: BodyMemory) -> Result<Arc<Reply>, ProblemDetails> {
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Err(ProblemDetails::new(405, "METHOD_NOT_ALLOWED", "all operations of this function are POST"));
        }
        let path = head.uri.path().to_owned();
        let received = body::receive(body, BODY_OCTETS, self.body_timeout, bodies).await;
        let (body, _reservation) = received.map_err(|error| error.problem())?;
        let media_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let message = Message::decode(media_type, &body).map_err(|e| ProblemDetails::unreadable(&e.to_string()))?;
        self.dispatch(path, message, RequestInfo::from_headers(&head.headers)).await
    }

    /// Passes a request to the handler, once for all its repeats, and waits for the reply.
    pub(crate) async fn dispatch(
        &self,
        path: String,
        message: Message,
        RequestInfo { key, repeated }: RequestInfo,
    ) -> Result<Arc<Reply>, ProblemDetails> {
        let name = key.as_ref().map(|key| format!("{key} {path}"));
        let (mut answer, reply) = match &name {
            Some(name) => {
                let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
                replies.enter(name.clone())
            }
            None => {
                let (reply, answer) = watch::channel(None);
                (answer, Some(ReplyTo(reply)))
            }
        };
        if let Some(reply) = reply {
            (self.handler)(IncomingRequest { path, message, key, repeated, reply });
        }
        let answered = tokio::time::timeout(self.timeout, answer.wait_for(Option::is_some)).await;
        let answered = answered.ok().and_then(Result::ok).and_then(|answer| (*answer).clone());
        if let Some(name) = name.filter(|_| answered.as_deref().is_some_and(is_transient)) {
            self.replies.lock().unwrap_or_else(PoisonError::into_inner).forget(&name);
        }
        answered.ok_or_else(|| ProblemDetails::new(504, "TIMED_OUT_REQUEST", "this function has not answered in time"))
    }
}

/// Content of the request information header (TS 29.500 5.2.3.2.18).
#[derive(Debug, Default)]
pub(crate) struct RequestInfo {
    key: Option<String>,
    /// True if the request was sent before.
    repeated: bool,
}

impl RequestInfo {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        RequestInfo { key: idempotency_key(headers).map(str::to_owned), repeated: is_repeat(headers) }
    }
}

/// Returns true if a request was sent before (TS 29.500 5.2.3.2.18).
fn is_repeat(headers: &HeaderMap) -> bool {
    let info = headers.get(REQUEST_INFO).and_then(|info| info.to_str().ok());
    info.is_some_and(|info| info.split(';').any(|parameter| parameter.trim() == "retrans=true"))
}

/// Returns the idempotency key of a request.
fn idempotency_key(headers: &HeaderMap) -> Option<&str> {
    let info = headers.get(REQUEST_INFO)?.to_str().ok()?;
    let key = info.split(';').find_map(|parameter| parameter.trim().strip_prefix("idempotency-key="))?;
    let key = key.trim_matches('"');
    (1..=KEY_OCTETS).contains(&key.len()).then_some(key)
}

fn response(reply: &Reply) -> Response<Full<Bytes>> {
    // ProblemDetails alone has its own media type, but not in a multipart body (TS 29.502 6.1.7.1).
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
    fn repeat_is_recognised_by_key() {
        let mut headers = HeaderMap::new();
        assert_eq!(idempotency_key(&headers), None);
        headers.insert(REQUEST_INFO, "retrans=true; idempotency-key=\"a-1\"".parse().unwrap());
        assert_eq!((idempotency_key(&headers), is_repeat(&headers)), (Some("a-1"), true));
        let mut replies = ReplyCache::default();
        let (first, reply) = replies.enter("a-1".into());
        let (again, none) = replies.enter("a-1".into());
        assert!(none.is_none(), "it is not done again");
        reply.unwrap().send(Reply::done());
        for answer in [first, again, replies.enter("a-1".into()).0] {
            assert_eq!(answer.borrow().as_deref(), Some(&Reply::done()));
        }
        assert!(replies.enter("a-2".into()).1.is_some());
        (0..2 * MAX_REPLIES).for_each(|n| drop(replies.enter(n.to_string())));
        assert!(replies.answers.len() <= MAX_REPLIES && replies.order.len() <= MAX_REPLIES);
    }
}
