//! The client's side: what this function asks others. One connection to each; requests about the same thing go one after the
//! other, others beside each other. What gets no answer is asked again under the same key, so that it is not done twice; of
//! several peers that have the same state, the next one is asked where one does not answer, or does not know what is asked for.

use crate::common::ProblemDetails;
use crate::grpc::{self, Encoding};
use crate::message::{BODY_OCTETS, Message};
use crate::server::{REQUEST_INFO, Reply};
use crate::tls::{ErrorReportingStream, Tls};
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};

/// Requests that may wait.
pub(crate) const WAITING: usize = 65_536;
/// Ended requests of which it is not known yet.
const LANES: usize = 1024;
/// Peers that connections are kept to.
const PEERS: usize = 64;
/// A connection that is silent for so long is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long after a failed attempt the next one begins; doubled each time.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The longest of these times.
const AGAIN_AT_LAST: Duration = Duration::from_millis(800);
/// How long one of several peers that has not answered is asked last.
const DOUBTED: Duration = Duration::from_secs(5);
/// The answer of a peer that does not know what is asked for.
const NOT_FOUND: u16 = 404;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The peer's address is none.
    #[error(
        "{0:?} is no address of the form http://HOST:PORT/PATH, or https:// where connections are secured (sbi.tls)"
    )]
    Address(String),
    /// The peer cannot be reached, or the connection broke; after all repetitions.
    #[error("the peer does not answer: {0}")]
    Silent(String),
    /// What is asked cannot be said in this encoding.
    #[error("the request cannot be said: {0}")]
    Unsaid(String),
    /// The peer takes another encoding.
    #[error("the peer is not asked in this encoding (sbi.encoding is the same at all functions): {0}")]
    Encoding(String),
    /// The answer is none.
    #[error("the peer's answer cannot be read: {0}")]
    Unreadable(String),
    /// Too many requests wait.
    #[error("too many requests wait for their answers")]
    Full,
    /// Nobody wants the answer any more.
    #[error("the request was withdrawn")]
    Withdrawn,
}

/// The way to withdraw a request, when its answer is known from something else: the peer hears that nobody waits for it (RST_STREAM,
/// RFC 9113 8.1). Dropping it lets the request go on.
#[derive(Debug)]
pub struct CancelHandle(oneshot::Sender<()>);

/// What a request is withdrawn by.
#[derive(Debug)]
pub struct CancelSignal(oneshot::Receiver<()>);

impl CancelHandle {
    /// Of a request that is to be asked with the second.
    pub fn new() -> (Self, CancelSignal) {
        let (sender, receiver) = oneshot::channel();
        (CancelHandle(sender), CancelSignal(receiver))
    }

    /// Withdraws it: what it ends with is [`ClientError::CancelSignal`], unless its answer is faster.
    pub fn withdraw(self) {
        // It has ended already, if nobody is there.
        let _ = self.0.send(());
    }
}

/// What becomes of a request.
pub type Done = Box<dyn FnOnce(Result<Reply, ClientError>) + Send>;

/// A request (POST).
pub struct Outgoing {
    /// Where it goes: an absolute URI.
    pub uri: String,
    /// Who may be asked for the same instead: roots (`http://HOST:PORT`).
    pub others: Vec<String>,
    /// What it says.
    pub message: Message,
    /// By what the peer knows it when it is asked again by somebody else, such as this function after a restart; `None`: only
    /// this endpoint asks it.
    pub key: Option<String>,
    /// What it is about: requests of one lane go one after the other.
    pub lane: u64,
    /// What it is withdrawn by, if it may be.
    pub withdrawn: Option<CancelSignal>,
    /// Called once, on the endpoint's thread: it must not block for long.
    pub done: Done,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("uri", &self.uri).field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// The way to an endpoint that asks others.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) mpsc::Sender<Outgoing>);

impl Client {
    /// Asks. If too much waits, the answer is that, at once.
    pub fn send(&self, request: Outgoing) {
        if let Err(error) = self.0.try_send(request) {
            let (mpsc::error::TrySendError::Full(request) | mpsc::error::TrySendError::Closed(request)) = error;
            (request.done)(Err(ClientError::Full));
        }
    }
}

/// How it asks.
#[derive(Clone, Debug)]
pub(crate) struct ClientConfig {
    /// What this function is (TS 29.500 5.2.2.2, User-Agent).
    pub(crate) agent: String,
    /// How long an answer is waited for.
    pub(crate) timeout: Duration,
    /// How often it waits that long in all. A peer that refuses is asked more often in that time: it may be about to start.
    pub(crate) attempts: u32,
    /// What keys begin with: no other process's do.
    pub(crate) nonce: u64,
    /// How it says what it asks.
    pub(crate) encoding: Encoding,
    /// What connections are secured by, if they are.
    pub(crate) tls: Option<Tls>,
}

/// What is sent and answered: JSON is whole, gRPC ends with trailers.
pub(crate) type Body = Either<Full<Bytes>, tonic::body::Body>;

/// A connection to a peer, which may have ended.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    sender: SendRequest<Body>,
    ended: Arc<Ended>,
    /// Whether it is secured.
    secured: bool,
}

impl Http2Connection {
    /// Sends a request.
    ///
    /// # Errors
    ///
    /// Why there is no answer, in words.
    pub(crate) async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, String> {
        self.sender.ready().await.map_err(|error| self.why(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| self.why(&error))?;
        self.ended.answered.store(true, Ordering::Relaxed);
        Ok(response)
    }

    /// Why a request has found no answer, in words.
    fn why(&self, error: &hyper::Error) -> String {
        let why = self.ended.why.get().cloned().unwrap_or_else(|| words(error));
        if self.secured || self.ended.answered.load(Ordering::Relaxed) {
            return why;
        }
        format!("{why}; if its connections are secured, set sbi.tls here as there")
    }
}

/// What is known of a connection's end.
#[derive(Debug, Default)]
struct Ended {
    /// Why it has ended, in words.
    why: OnceLock<String>,
    /// Whether the peer has answered anything by it.
    answered: AtomicBool,
}

type ConnectionSlot = Arc<AsyncMutex<Option<Http2Connection>>>;

/// What asks, and its connections.
struct RequestSender {
    manner: ClientConfig,
    connections: Mutex<HashMap<String, ConnectionSlot>>,
    /// Of several peers those that have not answered, and when.
    silent: Mutex<HashMap<String, Instant>>,
}

/// A peer that may be asked, and where.
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

/// Takes requests until nobody has any more.
pub(crate) async fn run(manner: ClientConfig, mut requests: mpsc::Receiver<Outgoing>) {
    let asker = Arc::new(RequestSender { manner, connections: Mutex::default(), silent: Mutex::default() });
    // Those under way, and what waits behind each.
    let mut lanes: HashMap<u64, VecDeque<Outgoing>> = HashMap::new();
    let (finished, mut free) = mpsc::channel(LANES);
    let mut number = 0;
    let mut waiting = 0;
    loop {
        let (lane, request) = tokio::select! {
            request = requests.recv() => match request {
                None => return,
                Some(request) => match lanes.get_mut(&request.lane) {
                    Some(_) if waiting >= WAITING => {
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
        let (asker, finished) = (Arc::clone(&asker), finished.clone());
        tokio::spawn(async move {
            let Outgoing { uri, others, message, key, withdrawn, done, .. } = request;
            let key = key.unwrap_or_else(|| format!("{:016x}-{number:x}", asker.manner.nonce));
            let asked = asker.ask((&uri, &others), &message, &key);
            done(match withdrawn {
                None => asked.await,
                Some(CancelSignal(withdrawn)) => tokio::select! {
                    biased;
                    Ok(()) = withdrawn => Err(ClientError::Withdrawn),
                    result = asked => result,
                },
            });
            // Nobody is there any more when the endpoint ends.
            let _ = finished.send(lane).await;
        });
    }
}

/// Whether a result, with one of several peers that has not answered or without, may be another one later.
fn is_asked_again((result, doubtful): &(Result<Reply, ClientError>, bool)) -> bool {
    match result {
        // Congestion (TS 29.500 6.4): it may have room later.
        Ok(reply) => *doubtful || matches!(reply.status, 429 | 503),
        Err(error) => matches!(error, ClientError::Silent(_)),
    }
}

impl RequestSender {
    /// What the URIs of those that are asked begin with.
    fn scheme(&self) -> &'static str {
        if self.manner.tls.is_some() { "https" } else { "http" }
    }

    /// Asks until there is an answer, or often and long enough.
    async fn ask(&self, (uri, others): (&str, &[String]), message: &Message, key: &str) -> Result<Reply, ClientError> {
        let mut targets = vec![Target::new(uri, self.scheme())?];
        let path = targets[0].uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        for root in others {
            targets.push(Target::new(&format!("{root}{path}"), self.scheme())?);
        }
        let end = Instant::now() + self.manner.timeout * self.manner.attempts;
        let mut wait = AGAIN_AFTER;
        let mut attempt = 1;
        loop {
            if targets.len() > 1 {
                targets.sort_by_key(|target| self.is_unresponsive(&target.authority));
            }
            let result = self.try_each_peer(&targets, message, (key, attempt > 1)).await;
            if !is_asked_again(&result) || attempt >= self.manner.attempts && Instant::now() + wait >= end {
                return result.0;
            }
            tracing::debug!(uri, attempt, result = ?result.0, "a request is repeated");
            tokio::time::sleep(wait).await;
            (wait, attempt) = ((wait * 2).min(AGAIN_AT_LAST), attempt + 1);
        }
    }

    /// Asks one after the other until one knows what is asked for. Whether there was one that has not answered, if none does.
    async fn try_each_peer(
        &self,
        targets: &[Target],
        message: &Message,
        (key, repeated): (&str, bool),
    ) -> (Result<Reply, ClientError>, bool) {
        let (mut unknown, mut silent) = (None, None);
        for Target { authority, uri } in targets {
            let asked = self.once(authority, uri, message, (key, repeated));
            let result = match tokio::time::timeout(self.manner.timeout, asked).await {
                Ok(result) => result,
                Err(_) => Err(ClientError::Silent(format!("no answer within {:?}", self.manner.timeout))),
            };
            if targets.len() == 1 {
                return (result, false);
            }
            self.mark_unresponsive(authority, is_asked_again(&(result.clone(), false)));
            match &result {
                Ok(reply) if reply.status == NOT_FOUND => unknown = Some(result),
                _ if is_asked_again(&(result.clone(), false)) => silent = Some(result),
                _ => return (result, false),
            }
        }
        // Who is silent may be the one that knows it, until another one has all that it had.
        let doubtful = silent.is_some();
        let last = unknown.or(silent).unwrap_or_else(|| Err(ClientError::Silent("there is no peer".into())));
        (last, doubtful)
    }

    /// Whether one of several peers has not answered lately.
    fn is_unresponsive(&self, authority: &str) -> bool {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.get(authority).is_some_and(|at| at.elapsed() < DOUBTED)
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
        (key, repeated): (&str, bool),
    ) -> Result<Reply, ClientError> {
        let info = format!("retrans={repeated}; idempotency-key=\"{key}\"");
        let wire = self.connection(authority).await.map_err(ClientError::Silent)?;
        match self.manner.encoding {
            Encoding::Json => self.in_json(wire, uri, message, info).await,
            Encoding::Grpc => grpc::client::ask(wire, &self.manner.agent, uri, message, &info).await,
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
            .header(USER_AGENT, &self.manner.agent)
            .header(REQUEST_INFO, info);
        if let Some(media_type) = media_type {
            request = request.header(CONTENT_TYPE, media_type);
        }
        let request = request.body(Either::Left(Full::new(Bytes::from(body))));
        let request = request.map_err(|_| ClientError::Address(uri.to_string()))?;
        let response = wire.send(request).await.map_err(ClientError::Silent)?;
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

    /// The connection to a peer; made when there is none, by one at a time.
    ///
    /// # Errors
    ///
    /// Why there is none, in words.
    async fn connection(&self, authority: &str) -> Result<Http2Connection, String> {
        let connection = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            if connections.len() >= PEERS && !connections.contains_key(authority) {
                // Those in use go on: who asks by them has them.
                connections.clear();
            }
            Arc::clone(connections.entry(authority.to_owned()).or_default())
        };
        let mut connection = connection.lock().await;
        if let Some(wire) = connection.as_ref().filter(|wire| !wire.sender.is_closed()) {
            return Ok(wire.clone());
        }
        let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let ended = Arc::new(Ended::default());
        let wire = match &self.manner.tls {
            None => self.handshake(authority, stream, ended).await?,
            Some(tls) => {
                let insecure = |why: String| format!("the connection is not secure: {why}");
                let stream = tls.connect(stream).await.map_err(insecure)?;
                let (tls, known) = (tls.clone(), Arc::clone(&ended));
                // A server that does not take this function's certificate says so when the connection is already used.
                let stream = ErrorReportingStream::new(stream, move |error| {
                    if let Some(why) = tls.why(error) {
                        let _ = known.why.set(insecure(why));
                    }
                });
                self.handshake(authority, stream, ended).await?
            }
        };
        *connection = Some(wire.clone());
        Ok(wire)
    }

    /// Begins to speak HTTP/2.
    async fn handshake(
        &self,
        authority: &str,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        ended: Arc<Ended>,
    ) -> Result<Http2Connection, String> {
        let made = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(self.manner.timeout)
            .max_header_list_size(grpc::server::HEADERS_OCTETS)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, driver) = made.map_err(|error| words(&error))?;
        let (peer, known) = (authority.to_owned(), Arc::clone(&ended));
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                let why = known.why.get_or_init(|| words(&error));
                tracing::debug!(peer, why, "a connection has ended");
            }
        });
        Ok(Http2Connection { sender, ended, secured: self.manner.tls.is_some() })
    }
}

/// An error with what it comes from.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
