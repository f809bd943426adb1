//! Connections of the API: how many there may be at a time, and how long each may take.
//!
//! Everything here runs on the API's thread. Where there is no room the oldest connection ends: those that stay open without
//! a word keep nobody out. The budgets of TCP and of the unix socket are apart.

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

/// Header fields of a request.
const HEADERS: usize = 64;
/// Octets that are read before they are looked at: a request's head has fewer.
const HEAD_OCTETS: usize = 16 << 10;
/// How soon accepting is tried again where the process has no descriptors left.
const AGAIN: Duration = Duration::from_millis(100);

/// The budget of a way in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time; one more ends the oldest.
    pub(super) connections: usize,
    /// How long the head of a request may take, the time before its first octet included.
    pub(super) head: Duration,
    /// How long a connection lasts, whatever comes by it.
    pub(super) life: Duration,
}

impl Limits {
    /// Those of TCP.
    pub(super) const TCP: Limits =
        Limits { connections: 64, head: Duration::from_secs(5), life: Duration::from_secs(30) };
    /// Those of the unix socket.
    pub(super) const UNIX: Limits = Limits { connections: 16, ..Limits::TCP };
}

/// What answers.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) app: Router,
    pub(super) guard: Guard,
}

impl Service {
    /// Serves a TCP listener, for ever.
    pub(super) async fn tcp(&self, listener: TcpListener, client: Client, limits: Limits) {
        let mut room = Room::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.take(stream, client, &mut room, limits),
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Serves a unix socket, for ever.
    pub(super) async fn unix(&self, listener: UnixListener, limits: Limits) {
        let mut room = Room::default();
        let own = rustix::process::geteuid().as_raw();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let trusted = stream.peer_cred().is_ok_and(|user| user.uid() == own || user.uid() == 0);
                    self.take(stream, Client::Unix { trusted }, &mut room, limits);
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Answers by a connection.
    fn take<S>(&self, stream: S, client: Client, room: &mut Room, limits: Limits)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if room.is_full(limits.connections) {
            self.guard.refuse(ApiRefusal::Connections);
            room.end_oldest();
        }
        let service = TowerToHyperService::new(self.app.clone().layer(Extension(client)));
        let task = tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(limits.head)
                .max_headers(HEADERS)
                .max_buf_size(HEAD_OCTETS);
            let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
            // What ends a connection early is its client's matter.
            tokio::select! {
                _ = &mut connection => {}
                () = sleep(limits.life) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(limits.head, connection).await;
                }
            }
        });
        room.0.push_back(task.abort_handle());
    }
}

/// The connections of a way in, the oldest first.
#[derive(Debug, Default)]
struct Room(VecDeque<AbortHandle>);

impl Room {
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
