//! Connections of the API: limits of their number and lifetime.
//!
//! All tasks run on the API's thread. When the limit is reached, one more connection closes another
//! one, so that idle connections never block new clients: the oldest without a token, of the peer
//! address with the most of these. TCP and the unix socket have separate limits.

use super::access::{Client, Guard};
use crate::metrics::ApiRefusal;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use vireo_types::to_displace;

/// Maximum number of header fields of a request.
const HEADERS: usize = 64;
/// Size of the read buffer in bytes, which limits the head of a request.
const HEAD_OCTETS: usize = 16 << 10;
/// Pause before the next `accept` after an error, for example without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Further lifetime of a connection whose response is a stream.
const STREAM_LIFETIME: Duration = Duration::from_secs(3600);

/// Limits of one listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum of simultaneous connections. One more closes another one.
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

/// Mark of a connection whose client has shown who it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Identified(Arc<AtomicBool>);

impl Identified {
    /// Lets the connection stay while there are others whose clients are not known.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Service {
    /// Serves a TCP listener. Never returns.
    pub(super) async fn tcp(&self, listener: TcpListener, client: Client, limits: Limits) {
        let mut connections = Connections::default();
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let peer = (client, Some(peer.ip()));
                    self.take(stream, peer, self.tls.clone(), (&mut connections, limits));
                }
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
                    self.take(stream, (Client::Unix { trusted }, None), None, (&mut connections, limits));
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Starts to serve a connection. Closes another one if the limit is reached.
    fn take<S>(
        &self,
        stream: S,
        (client, address): (Client, Option<IpAddr>),
        tls: Option<TlsAcceptor>,
        (connections, limits): Limited<'_>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if connections.is_full(limits.connections) {
            self.guard.refuse(ApiRefusal::Connections);
            connections.end_one();
        }
        let (long, identified) = (LongResponse::default(), Identified::default());
        let app = self.app.clone().layer(Extension(client)).layer(Extension(long.clone()));
        let app = app.layer(Extension(identified.clone()));
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
        connections.add(task.abort_handle(), address, identified);
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
            sleep(STREAM_LIFETIME).await;
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
struct Connections(VecDeque<OpenConnection>);

/// A connection that is served.
#[derive(Debug)]
struct OpenConnection {
    task: AbortHandle,
    /// Address of the peer; `None` for a unix socket.
    peer: Option<IpAddr>,
    identified: Identified,
}

impl Connections {
    fn add(&mut self, task: AbortHandle, peer: Option<IpAddr>, identified: Identified) {
        self.0.push_back(OpenConnection { task, peer, identified });
    }

    fn is_full(&mut self, limit: usize) -> bool {
        self.0.retain(|connection| !connection.task.is_finished());
        self.0.len() >= limit
    }

    /// Ends a connection whose client is not known. If all are known, ends the oldest.
    fn end_one(&mut self) {
        let unknown = self.0.iter().enumerate().filter(|(_, c)| !c.identified.0.load(Ordering::Relaxed));
        let at = to_displace(unknown.map(|(at, connection)| (at, connection.peer))).unwrap_or_default();
        if let Some(connection) = self.0.remove(at) {
            connection.task.abort();
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::debug!(%error, "the API accepts no connection");
    sleep(ACCEPT_RETRY_DELAY).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::access::check;
    use crate::api::{NamedTokens, Token};
    use crate::metrics::Metrics;
    use axum::body::Body;
    use axum::http::{Request, header};
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use hyper::service::Service as _;
    use std::path::Path;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn unknown_clients_make_room_for_others() {
        block_on(async {
            let mut connections = Connections::default();
            let mut tasks = Vec::new();
            for peer in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8::3"] {
                let (task, identified) = (tokio::spawn(std::future::pending::<()>()), Identified::default());
                connections.add(task.abort_handle(), Some(peer.parse().unwrap()), identified.clone());
                tasks.push((task, identified));
            }
            tasks[0].1.set();
            // The network with the most, then the oldest of those with one, and the known one last.
            for ended in [2, 3, 1, 4, 0] {
                assert!(connections.is_full(1));
                connections.end_one();
                let stopped = timeout(Duration::from_secs(60), &mut tasks[ended].0).await;
                assert!(stopped.is_ok_and(|stopped| stopped.is_err()), "{ended}");
            }
            assert!(!connections.is_full(1));
            connections.end_one();
        });
    }

    #[test]
    fn token_identifies_its_connection() {
        let tokens = NamedTokens::new(Path::new("/nonexistent/api.tokens"));
        let guard = Guard::new(Token::parse("0123456789abcdef"), tokens, &[], Arc::new(Metrics::new()));
        for (token, expected) in [(None, false), (Some("Bearer 0"), false), (Some("Bearer 0123456789abcdef"), true)] {
            let identified = Identified::default();
            let app = Router::new().route("/status", get(|| async { "" }));
            let app = app.layer(from_fn_with_state(guard.clone(), check));
            let app = app.layer(Extension(Client::Tcp { loopback: true })).layer(Extension(identified.clone()));
            let mut request = Request::builder().uri("/status").header(header::HOST, "127.0.0.1");
            if let Some(token) = token {
                request = request.header(header::AUTHORIZATION, token);
            }
            let request = request.body(Body::empty()).unwrap();
            block_on(TowerToHyperService::new(app).call(request)).unwrap();
            assert_eq!(identified.0.load(Ordering::Relaxed), expected, "{token:?}");
        }
    }
}
