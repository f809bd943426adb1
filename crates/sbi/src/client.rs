//! Client side of an endpoint: requests to peers.
//!
//! The client keeps one HTTP/2 connection to each peer. Requests of one lane are sent in order,
//! requests of different lanes in parallel. A request without response is repeated with the same
//! idempotency key, so that the peer executes it once. If several peers share their state, the
//! client tries the next one if a peer does not answer or returns 404.

use crate::common::ProblemDetails;
use crate::grpc::{self, Encoding};
use crate::message::{BODY_OCTETS, Message};
use crate::reply::{HttpBody, Reply};
use crate::server::REQUEST_INFO;
use crate::tls::{ErrorReportingStream, HandshakeError, Tls};
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, LOCATION, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};

/// Capacity of the request queue.
pub(crate) const REQUEST_QUEUE_CAPACITY: usize = 65_536;
/// Capacity of the queue of completed lanes.
const LANES: usize = 1024;
/// Maximum of peers with a connection.
const PEERS: usize = 64;
/// Idle time after which a connection is probed with a PING frame.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Delay before the first repeat; doubled for each further one.
const FIRST_REPEAT_DELAY: Duration = Duration::from_millis(100);
/// Maximum delay before a repeat.
const MAX_REPEAT_DELAY: Duration = Duration::from_millis(800);
/// Time for which an unresponsive peer is tried after all others.
const UNRESPONSIVE_PEER_PENALTY_TIME: Duration = Duration::from_secs(5);
/// Status of a peer that does not know the resource.
const NOT_FOUND: u16 = 404;

/// Reasons why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The URI is invalid.
    #[error(
        "{0:?} is no address of the form http://HOST:PORT/PATH, or https:// where connections are secured (sbi.tls)"
    )]
    Address(String),
    /// The peer cannot be reached or the connection broke, in all attempts.
    #[error("the peer does not answer: {0}")]
    Silent(String),
    /// The encoding cannot express the request.
    #[error("the request has no form in this encoding: {0}")]
    NotEncodable(String),
    /// The peer uses another encoding.
    #[error("the peer uses another encoding ({0}); set the same sbi.encoding for all network functions")]
    Encoding(String),
    /// The response is invalid.
    #[error("the peer's answer cannot be read: {0}")]
    Unreadable(String),
    /// The request queue is full.
    #[error("too many requests wait for their answers")]
    Full,
    /// The request was cancelled.
    #[error("the request was withdrawn")]
    Withdrawn,
}

/// Handle to cancel a request whose response is known from another message. The peer receives
/// RST_STREAM (RFC 9113 8.1). Dropping the handle does not cancel.
#[derive(Debug)]
pub struct CancelHandle(oneshot::Sender<()>);

/// The request's side of a [`CancelHandle`].
#[derive(Debug)]
pub struct CancelSignal(oneshot::Receiver<()>);

impl CancelHandle {
    /// Creates a handle and the signal for its request.
    pub fn new() -> (Self, CancelSignal) {
        let (sender, receiver) = oneshot::channel();
        (CancelHandle(sender), CancelSignal(receiver))
    }

    /// Cancels the request. It completes with [`ClientError::Withdrawn`], unless the response
    /// arrives first.
    pub fn withdraw(self) {
        // Fails if the request has completed.
        let _ = self.0.send(());
    }
}

/// Callback for the result of a request.
pub type Done = Box<dyn FnOnce(Result<Reply, ClientError>) + Send>;

/// A POST request.
pub struct Outgoing {
    pub uri: String,
    /// Roots of further peers that can execute the request (`http://HOST:PORT`).
    pub fallbacks: Vec<String>,
    pub message: Message,
    /// Idempotency key that a repeat by another sender also uses, such as a restarted process.
    /// `None` = the client creates a unique key.
    pub key: Option<String>,
    /// Lane of the request. Requests of one lane are sent in order, each after the response to the
    /// previous one.
    pub lane: u64,
    /// Cancels the request; `None` = the request cannot be cancelled.
    pub withdrawn: Option<CancelSignal>,
    /// Called once, on the endpoint's thread. It must not block for long.
    pub done: Done,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("uri", &self.uri).field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// Sender of requests to an endpoint's client.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) mpsc::Sender<Outgoing>);

impl Client {
    /// Queues a request. If the queue is full, the request completes with [`ClientError::Full`] at
    /// once.
    pub fn send(&self, request: Outgoing) {
        if let Err(error) = self.0.try_send(request) {
            let (mpsc::error::TrySendError::Full(request) | mpsc::error::TrySendError::Closed(request)) = error;
            (request.done)(Err(ClientError::Full));
        }
    }
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientConfig {
    /// Value of User-Agent: `AMF` or `SMF` (TS 29.500 5.2.2.2).
    pub(crate) agent: String,
    /// Maximum wait for a response, for each attempt.
    pub(crate) timeout: Duration,
    /// Maximum of timed-out attempts. Attempts that are refused at once do not count, within the
    /// total time: the peer may be starting.
    pub(crate) attempts: u32,
    /// Prefix of idempotency keys that no other process uses.
    pub(crate) nonce: u64,
    pub(crate) encoding: Encoding,
    /// TLS of the connections; `None` = no TLS.
    pub(crate) tls: Option<Tls>,
}

/// Reason why a connection cannot be made or has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The peer cannot be reached.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The TLS handshake failed.
    #[error("the connection is not secure: {0}")]
    Insecure(#[from] HandshakeError),
    /// The HTTP/2 handshake failed.
    #[error("{}", words(.0))]
    Http(hyper::Error),
    /// The connection ended without a response.
    #[error("{cause}{}", if *hint { "; if its connections are secured, set sbi.tls here as there" } else { "" })]
    Ended {
        cause: String,
        /// True if the peer may require TLS, which this side does not use.
        hint: bool,
    },
}

impl From<ConnectionError> for ClientError {
    fn from(error: ConnectionError) -> Self {
        ClientError::Silent(error.to_string())
    }
}

/// A connection to a peer, which may be closed.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    sender: SendRequest<HttpBody>,
    ended: Arc<Ended>,
    /// True if the connection uses TLS.
    secured: bool,
}

impl Http2Connection {
    /// Sends a request and waits for the response.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectionError::Ended`] if there is no response.
    pub(crate) async fn send(&mut self, request: Request<HttpBody>) -> Result<Response<Incoming>, ConnectionError> {
        self.sender.ready().await.map_err(|error| self.request_error(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| self.request_error(&error))?;
        self.ended.answered.store(true, Ordering::Relaxed);
        Ok(response)
    }

    /// Describes why a request has no response.
    fn request_error(&self, error: &hyper::Error) -> ConnectionError {
        let cause = self.ended.cause.get().cloned().unwrap_or_else(|| words(error));
        let hint = !self.secured && !self.ended.answered.load(Ordering::Relaxed);
        ConnectionError::Ended { cause, hint }
    }
}

/// Information about the end of a connection.
#[derive(Debug, Default)]
struct Ended {
    /// Reason for the end, as text.
    cause: OnceLock<String>,
    /// True if the peer has sent a response on the connection.
    answered: AtomicBool,
}

type ConnectionSlot = Arc<AsyncMutex<Option<Http2Connection>>>;

/// Client with its connections.
struct RequestSender {
    config: ClientConfig,
    connections: Mutex<HashMap<String, ConnectionSlot>>,
    /// Unresponsive peers, each with the time of the failure. Only for requests with several peers.
    silent: Mutex<HashMap<String, Instant>>,
}

/// A peer and the URI for the request to it.
struct Target {
    authority: String,
    uri: Uri,
}

impl Target {
    fn new(uri: &str, scheme: &str) -> Result<Self, ClientError> {
        let bad = || ClientError::Address(uri.to_owned());
        let target: Uri = uri.parse().map_err(|_| bad())?;
        let authority = target.authority().filter(|_| target.scheme_str() == Some(scheme)).ok_or_else(bad)?.to_string();
        Ok(Target { authority, uri: target })
    }
}

/// Runs the client until all senders are dropped.
pub(crate) async fn run(config: ClientConfig, mut requests: mpsc::Receiver<Outgoing>) {
    let sender = Arc::new(RequestSender { config, connections: Mutex::default(), silent: Mutex::default() });
    // Requests that wait behind the one in progress, for each active lane.
    let mut lanes: HashMap<u64, VecDeque<Outgoing>> = HashMap::new();
    let (finished, mut free) = mpsc::channel(LANES);
    let mut number = 0;
    let mut waiting = 0;
    loop {
        let (lane, request) = tokio::select! {
            request = requests.recv() => match request {
                None => return,
                Some(request) => match lanes.get_mut(&request.lane) {
                    Some(_) if waiting >= REQUEST_QUEUE_CAPACITY => {
                        (request.done)(Err(ClientError::Full));
                        continue;
                    }
                    Some(behind) => {
                        behind.push_back(request);
                        waiting += 1;
                        continue;
                    }
                    None => {
                        lanes.insert(request.lane, VecDeque::new());
                        (request.lane, request)
                    }
                },
            },
            Some(lane) = free.recv() => match lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
                Some(request) => {
                    waiting -= 1;
                    (lane, request)
                }
                None => {
                    lanes.remove(&lane);
                    continue;
                }
            },
        };
        number += 1;
        let (sender, finished) = (Arc::clone(&sender), finished.clone());
        tokio::spawn(async move {
            let Outgoing { uri, fallbacks, message, key, withdrawn, done, .. } = request;
            let key = key.unwrap_or_else(|| format!("{:016x}-{number:x}", sender.config.nonce));
            let asked = sender.send((&uri, &fallbacks), &message, &key);
            done(match withdrawn {
                None => asked.await,
                Some(CancelSignal(withdrawn)) => tokio::select! {
                    biased;
                    Ok(()) = withdrawn => Err(ClientError::Withdrawn),
                    result = asked => result,
                },
            });
            // Fails only when the endpoint stops.
            let _ = finished.send(lane).await;
        });
    }
}

/// Content of the header 3gpp-Sbi-Request-Info (TS 29.500 5.2.3.3) of a request.
#[derive(Clone, Copy)]
struct RepeatInfo<'a> {
    /// Idempotency key: equal in all repeats.
    key: &'a str,
    is_repeat: bool,
}

/// Returns true if a repeat may give another result. `doubtful` = one of several peers has not
/// answered.
fn is_retryable((result, doubtful): &(Result<Reply, ClientError>, bool)) -> bool {
    match result {
        // Congestion (TS 29.500 6.4): the peer may have room later.
        Ok(reply) => *doubtful || matches!(reply.status, 429 | 503),
        Err(error) => matches!(error, ClientError::Silent(_)),
    }
}

impl RequestSender {
    /// Returns the scheme of request URIs.
    fn scheme(&self) -> &'static str {
        if self.config.tls.is_some() { "https" } else { "http" }
    }

    /// Sends a request, and repeats it until there is a response or attempts and time are used up.
    async fn send(
        &self,
        (uri, fallbacks): (&str, &[String]),
        message: &Message,
        key: &str,
    ) -> Result<Reply, ClientError> {
        let mut targets = vec![Target::new(uri, self.scheme())?];
        let path = targets[0].uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        for root in fallbacks {
            targets.push(Target::new(&format!("{root}{path}"), self.scheme())?);
        }
        let end = Instant::now() + self.config.timeout * self.config.attempts;
        let mut wait = FIRST_REPEAT_DELAY;
        let mut attempt = 1;
        loop {
            if targets.len() > 1 {
                targets.sort_by_key(|target| self.is_unresponsive(&target.authority));
            }
            let result = self.try_each_peer(&targets, message, RepeatInfo { key, is_repeat: attempt > 1 }).await;
            if !is_retryable(&result) || attempt >= self.config.attempts && Instant::now() + wait >= end {
                return result.0;
            }
            tracing::debug!(uri, attempt, result = ?result.0, "a request is repeated");
            tokio::time::sleep(wait).await;
            (wait, attempt) = ((wait * 2).min(MAX_REPEAT_DELAY), attempt + 1);
        }
    }

    /// Tries each peer until one knows the resource. Returns the result, and true if a peer has not
    /// answered.
    async fn try_each_peer(
        &self,
        targets: &[Target],
        message: &Message,
        repeat: RepeatInfo<'_>,
    ) -> (Result<Reply, ClientError>, bool) {
        let (mut unknown, mut silent) = (None, None);
        for Target { authority, uri } in targets {
            let asked = self.once(authority, uri, message, repeat);
            let result = match tokio::time::timeout(self.config.timeout, asked).await {
                Ok(result) => result,
                Err(_) => Err(ClientError::Silent(format!("no answer within {:?}", self.config.timeout))),
            };
            if targets.len() == 1 {
                return (result, false);
            }
            self.mark_unresponsive(authority, is_retryable(&(result.clone(), false)));
            match &result {
                Ok(reply) if reply.status == NOT_FOUND => unknown = Some(result),
                _ if is_retryable(&(result.clone(), false)) => silent = Some(result),
                _ => return (result, false),
            }
        }
        // The unresponsive peer may have the resource, until another peer has taken over its state.
        let doubtful = silent.is_some();
        let last = unknown.or(silent).unwrap_or_else(|| Err(ClientError::Silent("there is no peer".into())));
        (last, doubtful)
    }

    /// Returns true if a peer has been unresponsive lately.
    fn is_unresponsive(&self, authority: &str) -> bool {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.get(authority).is_some_and(|at| at.elapsed() < UNRESPONSIVE_PEER_PENALTY_TIME)
    }

    fn mark_unresponsive(&self, authority: &str, is_silent: bool) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if is_silent {
            silent.insert(authority.to_owned(), Instant::now());
        } else if !silent.is_empty() {
            silent.remove(authority);
        }
    }

    async fn once(
        &self,
        authority: &str,
        uri: &Uri,
        message: &Message,
        repeat: RepeatInfo<'_>,
    ) -> Result<Reply, ClientError> {
        let RepeatInfo { key, is_repeat } = repeat;
        let info = format!("retrans={is_repeat}; idempotency-key=\"{key}\"");
        let wire = self.connection(authority).await?;
        match self.config.encoding {
            Encoding::Json => self.in_json(wire, uri, message, info).await,
            Encoding::Grpc => grpc::client::send(wire, &self.config.agent, uri, message, &info).await,
        }
    }

    async fn in_json(
        &self,
        mut wire: Http2Connection,
        uri: &Uri,
        message: &Message,
        info: String,
    ) -> Result<Reply, ClientError> {
        let (media_type, body) = message.encode("application/json");
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri.clone())
            .header(USER_AGENT, &self.config.agent)
            .header(REQUEST_INFO, info);
        if let Some(media_type) = media_type {
            request = request.header(CONTENT_TYPE, media_type);
        }
        let request = request.body(Either::Left(Full::new(Bytes::from(body))));
        let request = request.map_err(|_| ClientError::Address(uri.to_string()))?;
        let response = wire.send(request).await?;
        let (head, body) = response.into_parts();
        let silent = |error: Box<dyn Error + Send + Sync>| ClientError::Silent(words(&*error));
        let body = Limited::new(body, BODY_OCTETS).collect().await.map_err(silent)?.to_bytes();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let message = Message::decode(text(CONTENT_TYPE), &body);
        let message = message.map_err(|error| ClientError::Unreadable(error.to_string()))?;
        if head.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            let problem = message.value::<ProblemDetails>().unwrap_or_default();
            return Err(ClientError::Encoding(problem.detail.unwrap_or_default()));
        }
        Ok(Reply { status: head.status.as_u16(), location: text(LOCATION).map(str::to_owned), message })
    }

    /// Returns the connection to a peer. Creates it if necessary, one at a time for each peer.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer cannot be reached or a handshake fails.
    async fn connection(&self, authority: &str) -> Result<Http2Connection, ConnectionError> {
        let connection = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            if connections.len() >= PEERS && !connections.contains_key(authority) {
                // Requests in progress hold their connections, which therefore stay open.
                connections.clear();
            }
            Arc::clone(connections.entry(authority.to_owned()).or_default())
        };
        let mut connection = connection.lock().await;
        if let Some(wire) = connection.as_ref().filter(|wire| !wire.sender.is_closed()) {
            return Ok(wire.clone());
        }
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        let ended = Arc::new(Ended::default());
        let wire = match &self.config.tls {
            None => self.handshake(authority, stream, ended).await?,
            Some(tls) => {
                let stream = tls.connect(stream).await?;
                let (tls, known) = (tls.clone(), Arc::clone(&ended));
                // In TLS 1.3, the server rejects the client's certificate after the handshake.
                let stream = ErrorReportingStream::new(stream, move |error| {
                    if let Some(error) = tls.handshake_error(error) {
                        let _ = known.cause.set(ConnectionError::Insecure(error).to_string());
                    }
                });
                self.handshake(authority, stream, ended).await?
            }
        };
        *connection = Some(wire.clone());
        Ok(wire)
    }

    /// Performs the HTTP/2 handshake.
    async fn handshake(
        &self,
        authority: &str,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        ended: Arc<Ended>,
    ) -> Result<Http2Connection, ConnectionError> {
        let made = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(self.config.timeout)
            .max_header_list_size(grpc::server::HEADERS_OCTETS)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, driver) = made.map_err(ConnectionError::Http)?;
        let (peer, known) = (authority.to_owned(), Arc::clone(&ended));
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                let cause = known.cause.get_or_init(|| words(&error));
                tracing::debug!(peer, reason = cause, "a connection has ended");
            }
        });
        Ok(Http2Connection { sender, ended, secured: self.config.tls.is_some() })
    }
}

/// Returns an error and its sources as text.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
