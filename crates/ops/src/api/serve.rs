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
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Maximum number of header fields of a request.
const HEADERS: usize = 64;
/// Size of the read buffer in bytes, which limits the head of a request.
const HEAD_OCTETS: usize = 16 << 10;
/// Pause before the next `accept` after an error, for example without free file descriptors.
const AGAIN: Duration = Duration::from_millis(100);

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
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) app: Router,
    pub(super) guard: Guard,
}

impl Service {
    /// Serves a TCP listener. Never returns.
    pub(super) async fn tcp(&self, listener: TcpListener, client: Client, limits: Limits) {
        let mut connections = Connections::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.take(stream, client, &mut connections, limits),
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
                    self.take(stream, Client::Unix { trusted }, &mut connections, limits);
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Starts to serve a connection. Closes the oldest one if the limit is reached.
    fn take<S>(&self, stream: S, client: Client, connections: &mut Connections, limits: Limits)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if connections.is_full(limits.connections) {
            self.guard.refuse(ApiRefusal::Connections);
            connections.end_oldest();
        }
        let service = TowerToHyperService::new(self.app.clone().layer(Extension(client)));
        let task = tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(limits.head)
                .max_headers(HEADERS)
                .max_buf_size(HEAD_OCTETS);
            let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
            // Errors of a connection concern only its client.
            tokio::select! {
                _ = &mut connection => {}
                () = sleep(limits.life) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(limits.head, connection).await;
                }
            }
        });
        connections.0.push_back(task.abort_handle());
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
