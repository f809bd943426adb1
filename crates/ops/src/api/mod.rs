//! HTTP API of a process: status, metrics, and operator commands.
//!
//! Endpoints: `GET /status`, `GET /slices`, `GET /metrics`, `GET /healthz`, `POST /deregister`,
//! `POST /slices/move`, `POST /sessions/move` and `POST /cluster/drain`; the web page ([`web`]).
//! They are served by TCP and by a unix socket, on a thread of their own.
//!
//! The API accesses the core only through [`StatusSource`] and [`Metrics`]. [`access`] decides
//! which client may do what. [`serve`] limits number and lifetime of connections.

mod access;
mod listen;
mod roles;
mod serve;
mod slices;
mod status;
mod tls;
mod token;
mod ues;
mod web;

pub use listen::ApiSocket;
pub use roles::{Identity, NamedToken, NamedTokenError, NamedTokens, Role};
pub use serve::LongResponse;
pub use slices::{
    MoveError, MoveRequest, MoveResult, SliceCounted, SliceStatus, SliceWorkerStatus, SlicesStatus, UserSelector,
};
pub use status::{
    BalancerStatus, Counts, DrainError, GnbStatus, HostStatus, LatencyStatus, NfStatus, OverloadStatus, RelocateError,
    SessionStatus, SessionVolume, ShardStatus, Status, StatusFilter, StatusSource, UeStatus, UpfStatus, WorkerStatus,
};
pub use tls::ApiTlsError;
pub use token::{Token, TokenError};
pub use ues::{PoolStatus, UE_PAGE, UeChange, UePage, UeQuery, UeSelector, UeState};

use crate::config::ApiConfig;
use crate::metrics::Metrics;
use access::{Access, Client, Guard};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension as Layer, Router};
use listen::Socket;
use rustls::ServerConfig;
use serde::Deserialize;
use serve::{Limits, Service};
use status::SelectionError;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use vireo_types::{DeregistrationCause, Supi};

/// Maximum of threads for requests that wait for the core or for a database.
const BLOCKING_THREADS: usize = 8;
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Reasons why the API does not start.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Another process listens on the address.
    #[error("the API's address {0} is in use, perhaps by another vireo: stop that one or change api.listen")]
    InUse(SocketAddr),
    /// The address does not belong to this machine.
    #[error("the API's address {0} is not an address of this machine: change api.listen")]
    NotLocal(SocketAddr),
    /// The listener or the thread cannot be created.
    #[error("the API does not start on {address}: {source}")]
    Io {
        /// The configured TCP address, or 0.0.0.0:0 if there is none.
        address: SocketAddr,
        source: io::Error,
    },
    /// The unix socket cannot be created.
    #[error("api.socket: there can be no socket at {}: {source}; set api.socket to another path, or to \"off\"", path.display())]
    Socket { path: PathBuf, source: io::Error },
    /// The token file is unusable.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Certificate or key of TLS is unusable.
    #[error(transparent)]
    Tls(#[from] ApiTlsError),
}

/// A running API server. Dropping it stops the server.
#[derive(Debug)]
pub struct Server {
    address: Option<SocketAddr>,
    /// Duplicated for the successor process in a hot restart.
    listener: Option<TcpListener>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Declared after the thread: `Drop` joins the thread before the socket file is removed.
    _socket: Option<Socket>,
}

/// Parts of the server that its thread takes over.
struct ServerParts {
    tls: Option<TlsAcceptor>,
    extension: Option<Extension>,
}

#[derive(Clone)]
struct Shared {
    source: Arc<dyn StatusSource>,
    metrics: Arc<Metrics>,
    guard: Guard,
}

/// Creates the routes of another crate, which the same listeners serve. It runs on the thread of
/// the API, and may start tasks there.
pub type Extension = Box<dyn FnOnce() -> Router + Send>;

/// An API with address and token that does not yet serve requests.
#[derive(Debug)]
pub struct Prepared {
    config: ApiConfig,
    listener: Option<TcpListener>,
    token: Option<Token>,
    tls: Option<Arc<ServerConfig>>,
    /// True in a hot restart: this process replaces the socket file of its predecessor.
    takes_over: bool,
}

impl Prepared {
    /// Binds the configured TCP address.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound or the token is unusable.
    pub fn new(config: &ApiConfig) -> Result<Self, ApiError> {
        let listener = config.listen.map(|address| TcpListener::bind(address).map_err(|e| refused(address, e)));
        Prepared::on(listener.transpose()?, config, false)
    }

    /// Prepares the API of a hot restart. Uses the predecessor's listener if it has the configured
    /// address.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound or the token is unusable.
    pub fn resume(listener: Option<TcpListener>, config: &ApiConfig) -> Result<Self, ApiError> {
        match listener.filter(|listener| listener.local_addr().ok() == config.listen) {
            None => Ok(Prepared { takes_over: true, ..Prepared::new(config)? }),
            listener => Prepared::on(listener, config, true),
        }
    }

    fn on(listener: Option<TcpListener>, config: &ApiConfig, takes_over: bool) -> Result<Self, ApiError> {
        let config = config.clone();
        let token = token(&config)?;
        let tls = config.tls.as_ref().filter(|_| config.listen.is_some()).map(tls::load).transpose()?;
        Ok(Prepared { config, listener, token, tls, takes_over })
    }

    /// Returns a duplicate of the TCP listener, for the successor process in a hot restart.
    pub fn listener(&self) -> io::Result<Option<TcpListener>> {
        self.listener.as_ref().map(TcpListener::try_clone).transpose()
    }

    /// Starts to serve on a new thread. Returns `None` if neither TCP nor the unix socket is
    /// configured.
    ///
    /// # Errors
    ///
    /// Returns an error if the unix socket or the thread cannot be created.
    pub fn start(self, source: Arc<dyn StatusSource>, metrics: Arc<Metrics>) -> Result<Option<Server>, ApiError> {
        self.start_with(source, metrics, None)
    }

    /// The same, with further routes.
    ///
    /// # Errors
    ///
    /// Same as [`Prepared::start`].
    pub fn start_with(
        self,
        source: Arc<dyn StatusSource>,
        metrics: Arc<Metrics>,
        extension: Option<Extension>,
    ) -> Result<Option<Server>, ApiError> {
        let Prepared { config, listener, token, tls, takes_over } = self;
        let tls = tls.map(TlsAcceptor::from);
        let named = config.listen.unwrap_or_else(|| SocketAddr::from(([0; 4], 0)));
        let error = |source: io::Error| ApiError::Io { address: named, source };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose().map_err(error)?;
        let socket = socket(&config, address.map(|address| address.port()), takes_over)?;
        if address.is_none() && socket.is_none() {
            return Ok(None);
        }
        let guard = Guard::new(token, NamedTokens::new(&config.tokens), &config.host_names, Arc::clone(&metrics));
        let tcp = listener.as_ref().map(TcpListener::try_clone).transpose().map_err(error)?;
        let unix = socket.as_ref().map(Socket::listener).transpose().map_err(error)?;
        if let Some(listener) = &tcp {
            listener.set_nonblocking(true).map_err(error)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(BLOCKING_THREADS)
            .enable_all()
            .build()
            .map_err(error)?;
        let (stop, stopped) = oneshot::channel();
        let client = Client::Tcp { loopback: address.is_some_and(|address| is_loopback(address.ip())) };
        let shared = Shared { source, metrics, guard };
        let further = ServerParts { tls, extension };
        let thread = std::thread::Builder::new()
            .name("api".into())
            .spawn(move || runtime.block_on(serve((tcp, client), unix, (shared, further), stopped)));
        let thread = Some(thread.map_err(error)?);
        Ok(Some(Server { address, listener, stop: Some(stop), thread, _socket: socket }))
    }
}

impl Server {
    /// Opens the configured listeners and serves them on a new thread. Returns `None` if none is
    /// configured.
    ///
    /// # Errors
    ///
    /// Returns an error if the address or the unix socket cannot be bound, or the token is
    /// unusable.
    pub fn start(
        config: &ApiConfig,
        source: Arc<dyn StatusSource>,
        metrics: Arc<Metrics>,
    ) -> Result<Option<Self>, ApiError> {
        Prepared::new(config)?.start(source, metrics)
    }

    /// Returns a duplicate of the TCP listener, for the successor process in a hot restart.
    pub fn listener(&self) -> io::Result<Option<TcpListener>> {
        self.listener.as_ref().map(TcpListener::try_clone).transpose()
    }

    /// Returns the TCP address, if the API listens by TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

fn refused(address: SocketAddr, source: io::Error) -> ApiError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ApiError::InUse(address),
        io::ErrorKind::AddrNotAvailable => ApiError::NotLocal(address),
        _ => ApiError::Io { address, source },
    }
}

/// Returns true if only processes of this machine can reach the address.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns the token, if the API has a listener. Fails without a token if the configuration
/// requires one or if other machines can reach the TCP address.
fn token(config: &ApiConfig) -> Result<Option<Token>, ApiError> {
    if config.listen.is_none() && config.socket.path(None).is_none() {
        return Ok(None);
    }
    let needed = config.token.required || config.listen.is_some_and(|address| !is_loopback(address.ip()));
    match Token::read_or_make(&config.token.path) {
        Ok(token) => Ok(Some(token)),
        Err(error) if needed => Err(error.into()),
        Err(error) => {
            tracing::warn!(%error, "the API has no token: only the unix socket's user may change anything");
            Ok(None)
        }
    }
}

/// Opens the unix socket, if one is configured.
fn socket(config: &ApiConfig, port: Option<u16>, takes_over: bool) -> Result<Option<Socket>, ApiError> {
    let Some(path) = config.socket.path(port) else { return Ok(None) };
    match Socket::open(&path, takes_over) {
        Ok(socket) => Ok(Some(socket)),
        // In a hot restart, this process already has all the state: a missing socket must not stop
        // it.
        Err(source) if matches!(config.socket, ApiSocket::At(_)) && !takes_over => {
            Err(ApiError::Socket { path, source })
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "API has no unix socket; set api.socket to another path");
            Ok(None)
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread. No other part of the core
            // depends on it.
            let _ = thread.join();
        }
    }
}

async fn serve(
    (tcp, client): (Option<TcpListener>, Client),
    unix: Option<std::os::unix::net::UnixListener>,
    (shared, further): (Shared, ServerParts),
    stopped: oneshot::Receiver<()>,
) {
    let tcp = tcp.map(tokio::net::TcpListener::from_std).transpose();
    let unix = unix.map(tokio::net::UnixListener::from_std).transpose();
    let (tcp, unix) = match (tcp, unix) {
        (Ok(tcp), Ok(unix)) => (tcp, unix),
        (Err(error), _) | (_, Err(error)) => return tracing::error!(%error, "the API ends"),
    };
    let (source, metrics) = (shared.source.clone(), shared.metrics.clone());
    let service = Service { guard: shared.guard.clone(), app: routes(shared, further.extension), tls: further.tls };
    let upkeep = async {
        let mut tick = tokio::time::interval(UPKEEP_EVERY);
        loop {
            tick.tick().await;
            source.upkeep();
            metrics.upkeep();
        }
    };
    let by_tcp = async {
        match tcp {
            Some(listener) => service.tcp(listener, client, LIMITS[0]).await,
            None => std::future::pending().await,
        }
    };
    let by_unix = async {
        match unix {
            Some(listener) => service.unix(listener, LIMITS[1]).await,
            None => std::future::pending().await,
        }
    };
    // Dropping the futures closes open connections: a response takes milliseconds, and a scraper's
    // keep-alive connection must not delay the shutdown.
    tokio::select! {
        () = by_tcp => {}
        () = by_unix => {}
        () = upkeep => {}
        _ = stopped => {}
    }
}

/// Limits of TCP and of the unix socket, in this order.
#[cfg(not(test))]
const LIMITS: [Limits; 2] = [Limits::TCP, Limits::UNIX];
/// Limits for tests, with shorter timeouts.
#[cfg(test)]
const LIMITS: [Limits; 2] = {
    let (head, life) = (Duration::from_millis(300), Duration::from_millis(1500));
    [Limits { head, life, ..Limits::TCP }, Limits { head, life, ..Limits::UNIX }]
};

fn routes(shared: Shared, extension: Option<Extension>) -> Router {
    let guard = shared.guard.clone();
    // The page shows what the further routes offer.
    let check_host = axum::middleware::from_fn_with_state(guard.clone(), access::check_host);
    let page = extension.as_ref().map(|_| web::routes().layer(check_host)).unwrap_or_default();
    let further = extension.map(|routes| routes()).unwrap_or_default();
    Router::new()
        .route("/status", get(status))
        .route("/metrics", get(prometheus))
        .route("/deregister", post(deregister))
        .route("/slices", get(slices))
        .route("/slices/move", post(move_users))
        .route("/sessions/move", post(relocate))
        .route("/cluster/drain", post(drain))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(shared)
        .merge(further)
        .layer(axum::middleware::from_fn_with_state(guard, access::check))
        .merge(page)
}

async fn status(
    State(shared): State<Shared>,
    Layer(access): Layer<Access>,
    filter: Result<Query<StatusFilter>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let filter = match filter {
        Ok(Query(filter)) => filter.bounded(),
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{}\n", error.body_text())).into_response(),
    };
    let refusal = if filter.reveal_supi { shared.guard.refusal(&access) } else { None };
    refusal.unwrap_or_else(|| match status::select(&*shared.source, &filter) {
        Ok(status) => axum::Json(status).into_response(),
        Err(error) => {
            let code = match error {
                SelectionError::Supi(_) => StatusCode::BAD_REQUEST,
                SelectionError::NoRanNode(_) => StatusCode::NOT_FOUND,
                SelectionError::Silent => StatusCode::SERVICE_UNAVAILABLE,
            };
            (code, format!("{error}\n")).into_response()
        }
    })
}

/// Returns the response for a core that does not answer the API.
fn no_answer() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the core does not answer in time: try again\n").into_response()
}

/// Query of `POST /deregister`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deregister {
    /// Digits of the IMSI, with or without `imsi-`.
    supi: String,
    /// If true, the UE is asked to register again.
    #[serde(default, rename = "again")]
    reregister: bool,
    #[serde(default)]
    cause: Option<u8>,
}

/// Reads the cause of a deregistration.
///
/// # Errors
///
/// Returns the reason for the client if the cause is not permitted, or given to a UE that is to
/// register again.
pub fn deregistration_cause(reregister: bool, cause: Option<u8>) -> Result<Option<DeregistrationCause>, String> {
    if reregister && cause.is_some() {
        return Err("a UE that is to register again gets no cause".into());
    }
    cause.map(|cause| DeregistrationCause::try_from(cause).map_err(|error| error.to_string())).transpose()
}

async fn deregister(
    State(shared): State<Shared>,
    request: Result<Query<Deregister>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let request = request.map_err(|error| error.body_text());
    let request = request.and_then(|Query(Deregister { supi, reregister, cause })| {
        let supi = supi.parse::<Supi>().map_err(|error| error.to_string())?;
        Ok((supi, reregister, deregistration_cause(reregister, cause)?))
    });
    match request {
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        Ok((supi, reregister, cause)) => match shared.source.deregister(supi, reregister, cause) {
            Some(true) => (StatusCode::ACCEPTED, "ok\n").into_response(),
            Some(false) => (StatusCode::NOT_FOUND, "no such UE is registered\n").into_response(),
            None => no_answer(),
        },
    }
}

async fn slices(
    State(shared): State<Shared>,
    query: Result<Query<slices::SlicesQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    match query {
        Ok(Query(query)) => axum::Json(shared.source.slices(query.counts)).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{}\n", error.body_text())).into_response(),
    }
}

async fn move_users(
    State(shared): State<Shared>,
    request: Result<Query<slices::MoveQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let order = request.map_err(|error| error.body_text()).and_then(|Query(query)| Ok(MoveRequest::try_from(query)?));
    let order = match order {
        Ok(order) => order,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    match shared.source.move_users(&order) {
        Ok(moved) => axum::Json(moved).into_response(),
        Err(error @ (MoveError::Range | MoveError::TooWide)) => {
            (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()
        }
        Err(error) => (StatusCode::NOT_FOUND, format!("{error}\n")).into_response(),
    }
}

/// Query of `POST /sessions/move`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RelocateRequest {
    /// Digits of the IMSI, with or without `imsi-`.
    supi: String,
    /// Name of the target UPF.
    to: String,
}

async fn relocate(
    State(shared): State<Shared>,
    request: Result<Query<RelocateRequest>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let request = request.map_err(|error| error.body_text());
    let request = request.and_then(|Query(r)| Ok((r.supi.parse::<Supi>().map_err(|e| e.to_string())?, r.to)));
    let (supi, to) = match request {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    match shared.source.relocate(supi, &to) {
        Ok(()) => (StatusCode::ACCEPTED, "ok\n").into_response(),
        Err(error @ RelocateError::Busy) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::NOT_FOUND, format!("{error}\n")).into_response(),
    }
}

/// Query of `POST /cluster/drain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    host: u16,
}

async fn drain(
    State(shared): State<Shared>,
    request: Result<Query<DrainRequest>, axum::extract::rejection::QueryRejection>,
) -> Response {
    match request.map(|Query(drain)| shared.source.drain(drain.host)) {
        Ok(Ok(())) => (StatusCode::ACCEPTED, "ok\n").into_response(),
        Ok(Err(error)) => (StatusCode::NOT_FOUND, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{}\n", error.body_text())).into_response(),
    }
}

async fn prometheus(State(shared): State<Shared>) -> Response {
    shared.source.count();
    let text = shared.source.with_shards(shared.metrics.render());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
