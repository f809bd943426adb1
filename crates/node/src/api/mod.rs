//! The operator's window: `GET /status`, `GET /slices`, `GET /metrics`, `GET /healthz`, `POST /deregister`,
//! `POST /slices/move`, `POST /sessions/move` and `POST /cluster/drain`, over HTTP on its own thread.
//!
//! It knows the core through [`StatusSource`] and [`Metrics`] alone, and it has no authentication: it listens on a
//! loopback address unless told otherwise, and it changes nothing at the request of a web page.

mod slices;
mod status;

pub use slices::{Move, MoveError, Moved, SliceCounted, SliceStatus, SliceWorkerStatus, SlicesStatus, Who};
pub use status::{
    BalancerStatus, Counts, DrainError, GnbStatus, HostStatus, LatencyStatus, NfStatus, OverloadStatus, RelocateError,
    SessionStatus, Status, StatusFilter, StatusSource, UeStatus, UpfStatus, WorkerStatus,
};

use crate::metrics::Metrics;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use vireo_types::Supi;

const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Why the API does not start.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The address is in use.
    #[error("the API's address {0} is in use, perhaps by another vireo: stop that one or change api.listen")]
    InUse(SocketAddr),
    /// The address is not this machine's.
    #[error("the API's address {0} is not an address of this machine: change api.listen")]
    NotLocal(SocketAddr),
    /// Anything else.
    #[error("the API does not start on {address}: {source}")]
    Io {
        /// Where it should listen.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// The API while it runs; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: TcpListener,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    source: Arc<dyn StatusSource>,
    metrics: Arc<Metrics>,
}

impl Server {
    /// Listens on `address` (port 0 = any) and answers from a thread of its own.
    pub fn start(address: SocketAddr, source: Arc<dyn StatusSource>, metrics: Arc<Metrics>) -> Result<Self, ApiError> {
        let error = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ApiError::InUse(address),
            io::ErrorKind::AddrNotAvailable => ApiError::NotLocal(address),
            _ => ApiError::Io { address, source },
        };
        let listener = TcpListener::bind(address).map_err(error)?;
        Server::on(listener, source, metrics).map_err(error)
    }

    /// Answers from a thread of its own where something listens already.
    pub(crate) fn on(listener: TcpListener, source: Arc<dyn StatusSource>, metrics: Arc<Metrics>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (address, shared) = (listener.local_addr()?, listener.try_clone()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("api".into())
            .spawn(move || runtime.block_on(serve(listener, Shared { source, metrics }, stopped)))?;
        Ok(Server { address, listener: shared, stop: Some(stop), thread: Some(thread) })
    }

    /// What it listens by, for a process that goes on in this one's place.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was already reported by the panic hook; nothing of the core depends on this thread.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, shared: Shared, stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the API ends"),
    };
    let (source, metrics) = (shared.source.clone(), shared.metrics.clone());
    let app = Router::new()
        .route("/status", get(status))
        .route("/metrics", get(prometheus))
        .route("/deregister", post(deregister))
        .route("/slices", get(slices))
        .route("/slices/move", post(move_users))
        .route("/sessions/move", post(relocate))
        .route("/cluster/drain", post(drain))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(shared);
    let upkeep = async {
        let mut tick = tokio::time::interval(UPKEEP_EVERY);
        loop {
            tick.tick().await;
            source.upkeep();
            metrics.upkeep();
        }
    };
    // Open connections are cut: an answer takes milliseconds, and a scraper that keeps one open must not delay the end.
    tokio::select! {
        result = axum::serve(listener, app).into_future() => {
            if let Err(error) = result {
                tracing::error!(%error, "the API ends");
            }
        }
        () = upkeep => {}
        _ = stopped => {}
    }
}

async fn status(
    State(shared): State<Shared>,
    filter: Result<Query<StatusFilter>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let filter = match filter {
        Ok(Query(filter)) => filter.bounded(),
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{}\n", error.body_text())).into_response(),
    };
    axum::Json(shared.source.status(&filter)).into_response()
}

/// What `POST /deregister` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Deregister {
    /// `imsi-` and digits, or digits.
    supi: String,
    /// Whether the UE shall register again.
    #[serde(default)]
    again: bool,
}

async fn deregister(
    State(shared): State<Shared>,
    headers: HeaderMap,
    request: Result<Query<Deregister>, axum::extract::rejection::QueryRejection>,
) -> Response {
    if is_of_a_page(&headers) {
        return (StatusCode::FORBIDDEN, NOT_FOR_PAGES).into_response();
    }
    let request = request.map_err(|error| error.body_text());
    let request = request.and_then(|Query(r)| Ok((r.supi.parse::<Supi>().map_err(|e| e.to_string())?, r.again)));
    match request {
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        Ok((supi, again)) if shared.source.deregister(supi, again) => (StatusCode::ACCEPTED, "ok\n").into_response(),
        Ok(_) => (StatusCode::NOT_FOUND, "no such UE is registered\n").into_response(),
    }
}

const NOT_FOR_PAGES: &str = "not for web pages\n";

/// Browsers name the page that a request comes from; any page could make one to a loopback address.
fn is_of_a_page(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
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
    headers: HeaderMap,
    request: Result<Query<slices::MoveQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    if is_of_a_page(&headers) {
        return (StatusCode::FORBIDDEN, NOT_FOR_PAGES).into_response();
    }
    let order = request.map_err(|error| error.body_text()).and_then(|Query(query)| Ok(Move::try_from(query)?));
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

/// What `POST /sessions/move` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Relocate {
    /// `imsi-` and digits, or digits.
    supi: String,
    /// The name of the UPF.
    to: String,
}

async fn relocate(
    State(shared): State<Shared>,
    headers: HeaderMap,
    request: Result<Query<Relocate>, axum::extract::rejection::QueryRejection>,
) -> Response {
    if is_of_a_page(&headers) {
        return (StatusCode::FORBIDDEN, NOT_FOR_PAGES).into_response();
    }
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

/// What `POST /cluster/drain` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    /// The number of the host.
    host: u16,
}

async fn drain(
    State(shared): State<Shared>,
    headers: HeaderMap,
    request: Result<Query<Drain>, axum::extract::rejection::QueryRejection>,
) -> Response {
    if is_of_a_page(&headers) {
        return (StatusCode::FORBIDDEN, NOT_FOR_PAGES).into_response();
    }
    match request.map(|Query(drain)| shared.source.drain(drain.host)) {
        Ok(Ok(())) => (StatusCode::ACCEPTED, "ok\n").into_response(),
        Ok(Err(error)) => (StatusCode::NOT_FOUND, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{}\n", error.body_text())).into_response(),
    }
}

async fn prometheus(State(shared): State<Shared>) -> Response {
    shared.source.count();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shared.metrics.render()).into_response()
}

#[cfg(test)]
mod tests;
