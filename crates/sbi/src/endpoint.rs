//! SBI endpoint of an AMF or SMF: server and client on one thread.

use crate::client::{self, Client, ClientConfig};
use crate::grpc::Encoding;
use crate::server::{IncomingRequest, Server};
use crate::tls::Tls;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use vireo_types::to_displace;

/// Maximum of simultaneous connections of peers. One more closes one whose peer is not known.
const CONNECTIONS: usize = 256;
/// Minimum interval between two log lines about refused peers.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum of simultaneous requests of one connection. A client queues the others. An SMF answers
/// when the UPF has answered, so that one silent UPF must not use up the requests.
const STREAMS: u32 = 256;
/// Maximum size of the headers of a request in bytes.
const HEADERS_OCTETS: u32 = 8 * 1024;
/// Idle time after which a connection is probed with a PING frame.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Maximum time until the answer to the PING frame. The connection is then closed.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the server.
    pub listen: SocketAddr,
    /// Value of User-Agent: `AMF` or `SMF`.
    pub agent: String,
    /// Maximum wait for a response, for each attempt.
    pub timeout: Duration,
    /// Maximum of timed-out attempts. Attempts that are refused at once do not count, within the
    /// total time: the peer may be starting.
    pub attempts: u32,
    /// Random number that distinguishes the requests of this process from those of all others.
    pub nonce: u64,
    /// Encoding of requests and responses, the same at AMF and SMF.
    pub encoding: Encoding,
    /// TLS of all connections, with `https` URIs; `None` = no TLS.
    pub tls: Option<Tls>,
}

/// The endpoint cannot start.
#[derive(Debug, thiserror::Error)]
#[error("the service-based interface does not start on {address}: {error}; check sbi.amf and sbi.smf")]
pub struct EndpointError {
    address: SocketAddr,
    error: io::Error,
}

/// A running endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts an endpoint. It passes requests to `handler`, which must not block for long.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound or the thread cannot be started.
    pub fn start(
        settings: Settings,
        handler: impl Fn(IncomingRequest) + Send + Sync + 'static,
    ) -> Result<Self, EndpointError> {
        let fail = |error| EndpointError { address: settings.listen, error };
        let listener = TcpListener::bind(settings.listen).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let (requests, waiting) = mpsc::channel(client::REQUEST_QUEUE_CAPACITY);
        let (stop, stopped) = oneshot::channel();
        let Settings { agent, timeout, attempts, nonce, encoding, tls, .. } = settings.clone();
        let client_config = ClientConfig { agent, timeout, attempts, nonce, encoding, tls: tls.clone() };
        let server = Arc::new(Server::new(Arc::new(handler), timeout, attempts, encoding));
        let run = async move {
            tokio::select! {
                () = client::run(client_config, waiting) => {}
                () = accept(listener, tls, server) => {}
                _ = stopped => {}
            }
        };
        let thread =
            std::thread::Builder::new().name("sbi".into()).spawn(move || runtime.block_on(run)).map_err(fail)?;
        Ok(Endpoint { address, client: Client(requests), stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the client of the endpoint.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns true if the endpoint has ended unexpectedly.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, tls: Option<Tls>, server: Arc<Server>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the service-based interface ends"),
    };
    let refused = Arc::new(RefusalLog::default());
    let mut connections = Connections::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example too many open files, which may be temporary.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !connections.make_room() {
            refused.log(peer, &format_args!("{CONNECTIONS} peers are connected"));
            continue;
        }
        let _ = stream.set_nodelay(true);
        let (server, tls, refused) = (Arc::clone(&server), tls.clone(), Arc::clone(&refused));
        let is_known = Arc::new(AtomicBool::new(false));
        let known = Arc::clone(&is_known);
        let task = tokio::spawn(async move {
            match tls {
                None => serve(stream, server, known).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => {
                        known.store(true, Ordering::Relaxed);
                        serve(stream, server, known).await;
                    }
                    Err(cause) => refused.log(peer, &cause),
                },
            }
        });
        connections.0.push(Connection { task: task.abort_handle(), peer: peer.ip(), is_known });
    }
}

/// Connections of peers, the oldest first.
#[derive(Debug, Default)]
struct Connections(Vec<Connection>);

/// Connection of a peer.
#[derive(Debug)]
struct Connection {
    task: AbortHandle,
    peer: IpAddr,
    /// True if the peer has shown its certificate or sent a request. Anyone can be silent.
    is_known: Arc<AtomicBool>,
}

impl Connections {
    /// Closes a connection whose peer is not known if the limit is reached. Returns false if all
    /// are known.
    fn make_room(&mut self) -> bool {
        if self.0.len() >= CONNECTIONS {
            self.0.retain(|connection| !connection.task.is_finished());
        }
        if self.0.len() >= CONNECTIONS {
            let unknown = self.0.iter().enumerate().filter(|(_, c)| !c.is_known.load(Ordering::Relaxed));
            let Some(at) = to_displace(unknown.map(|(at, c)| (at, Some(c.peer)))) else { return false };
            self.0.remove(at).task.abort();
        }
        true
    }
}

/// Rate limit for log lines about refused peers. Without it, any peer could flood the log.
#[derive(Debug, Default)]
struct RefusalLog(Mutex<Option<Instant>>);

impl RefusalLog {
    fn log(&self, peer: SocketAddr, cause: &impl Display) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return tracing::debug!(%peer, reason = %cause, "a peer is refused");
        }
        *logged = Some(Instant::now());
        tracing::warn!(%peer, reason = %cause, "a peer is refused");
    }
}

/// Serves a connection until it closes.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    server: Arc<Server>,
    is_known: Arc<AtomicBool>,
) {
    let bodies = server.bodies.for_connection();
    let service = service_fn(move |request| {
        is_known.store(true, Ordering::Relaxed);
        Arc::clone(&server).serve(request, bodies.clone())
    });
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS_OCTETS)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of a peer has ended");
    }
}
