//! Connections of the API: limits of their number and lifetime.
//!
//! All tasks run on the API's thread. When the limit is reached, the oldest connection is closed.
//! So idle connections never block new clients. TCP and the unix socket have separate limits.

use super::access::{Client, Guard};
use crate::metrics::ApiRefusal;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Maximum number of header fields of a request.
const HEADERS: usize = 64;
/// Size of the read buffer in bytes, which limits the head of a request.
const HEAD_OCTETS: usize = 16 << 10;
/// Pause before the next `accept` after an error, for example without free file descriptors.
const AGAIN: Duration = Duration::from_millis(100);

/// Further lifetime of a connection whose response is a stream.
const LONG_LIFE: Duration = Duration::from_secs(3600);

/// Limits of one listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum of simultaneous connections. One more closes the oldest.
    pub(super) connections: usize,
    /// Maximum time to receive the head of a request, including the wait for its first byte.
    pub(super) head: Duration,
    /// Maximum lifetime of a connection, even if it is busy.
    pub(super) life: Duration,
}

impl Limits {
    /// Limits of TCP.
    pub(super) const TCP: Limits =
        Limits { connections: 64, head: Duration::from_secs(5), life: Duration::from_secs(30) };
    /// Limits of the unix socket.
    pub(super) const UNIX: Limits = Limits { connections: 16, ..Limits::TCP };
}

/// HTTP service: routes and access control.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) app: Router,
    pub(super) guard: Guard,
    /// TLS of TCP connections, if configured.
    pub(super) tls: Option<TlsAcceptor>,
}

/// Mark of a connection whose response is a stream: it may last longer than others.
#[derive(Clone, Debug, Default)]
pub struct LongResponse(Arc<AtomicBool>);

impl LongResponse {
    /// Lets the connection last for the longer time.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Service {
    /// Serves a TCP listener. Never returns.
    pub(super) async fn tcp(&self, listener: TcpListener, client: Client, limits: Limits) {
        let mut connections = Connections::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.take(stream, client, self.tls.clone(), (&mut connections, limits)),
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Serves a unix-socket listener. Never returns.
    pub(super) async fn unix(&self, listener: UnixListener, limits: Limits) {
        let mut connections = Connections::default();
        let own = rustix::process::geteuid().as_raw();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let trusted = stream.peer_cred().is_ok_and(|user| user.uid() == own || user.uid() == 0);
                    self.take(stream, Client::Unix { trusted }, None, (&mut connections, limits));
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Starts to serve a connection. Closes the oldest one if the limit is reached.
    fn take<S>(&self, stream: S, client: Client, tls: Option<TlsAcceptor>, (connections, limits): Limited<'_>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if connections.is_full(limits.connections) {
            self.guard.refuse(ApiRefusal::Connections);
            connections.end_oldest();
        }
        let long = LongResponse::default();
        let app = self.app.clone().layer(Extension(client)).layer(Extension(long.clone()));
        let task = tokio::spawn(async move {
            match tls {
                None => connection(stream, app, &long, limits).await,
                // A client that does not complete the handshake in time is dropped.
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(limits.head, tls.accept(stream)).await {
                        connection(stream, app, &long, limits).await;
                    }
                }
            }
        });
        connections.0.push_back(task.abort_handle());
    }
}

/// Connections of a listener and their limits.
type Limited<'a> = (&'a mut Connections, Limits);

/// Serves a connection until it ends or its time is over.
async fn connection<S>(stream: S, app: Router, long: &LongResponse, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_headers(HEADERS).max_buf_size(HEAD_OCTETS);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)));
    let life = async {
        sleep(limits.life).await;
        if long.0.load(Ordering::Relaxed) {
            sleep(LONG_LIFE).await;
        }
    };
    // Errors of a connection concern only its client.
    tokio::select! {
        _ = &mut connection => {}
        () = life => {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(limits.head, connection).await;
        }
    }
}

/// Connections of one listener, the oldest first.
#[derive(Debug, Default)]
struct Connections(VecDeque<AbortHandle>);

impl Connections {
    fn is_full(&mut self, limit: usize) -> bool {
        self.0.retain(|task| !task.is_finished());
        self.0.len() >= limit
    }

    fn end_oldest(&mut self) {
        if let Some(task) = self.0.pop_front() {
            task.abort();
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::debug!(%error, "the API accepts no connection");
    sleep(AGAIN).await;
}
