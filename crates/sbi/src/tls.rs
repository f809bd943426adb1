//! What secures an endpoint (TS 33.501 13.1): TLS in which both sides show certificates, and in which HTTP/2 is agreed on (ALPN,
//! RFC 9113 3.2). Which certificates are good, and what is said of those that are not, is decided by who configures it.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, CommonState, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// The protocol that is agreed on: HTTP/2.
const H2: &[u8] = b"h2";
/// How long a peer may take to show what it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said of a peer with which TLS fails.
pub type Words = fn(&rustls::Error) -> String;

/// What both ends of an endpoint's connections are secured by.
#[derive(Clone)]
pub struct Tls {
    client: TlsConnector,
    server: TlsAcceptor,
    name: ServerName<'static>,
    words: Words,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key is nobody's business.
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// By these, with peers whose certificates are for this name.
    pub fn new(mut client: ClientConfig, mut server: ServerConfig, name: ServerName<'static>, words: Words) -> Self {
        client.alpn_protocols = vec![H2.to_vec()];
        server.alpn_protocols = vec![H2.to_vec()];
        Tls { client: Arc::new(client).into(), server: Arc::new(server).into(), name, words }
    }

    /// Secures a connection that was made.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<client::TlsStream<TcpStream>, String> {
        let stream = self.within(self.client.connect(self.name.clone(), stream)).await?;
        agreed(stream.get_ref().1)?;
        Ok(stream)
    }

    /// Secures a connection that somebody has made to here.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<server::TlsStream<TcpStream>, String> {
        let stream = self.within(self.server.accept(stream)).await?;
        agreed(stream.get_ref().1)?;
        Ok(stream)
    }

    async fn within<T>(&self, handshake: impl Future<Output = io::Result<T>>) -> Result<T, String> {
        match tokio::time::timeout(PATIENCE, handshake).await {
            Ok(result) => result.map_err(|error| self.why(&error).unwrap_or_else(|| error.to_string())),
            Err(_) => Err(format!("it has not shown within {PATIENCE:?} what it is")),
        }
    }

    /// What is said of an error, if it is one of TLS: a server takes a look at the client's certificate when that one has begun
    /// to use the connection (TLS 1.3).
    pub(crate) fn why(&self, error: &(dyn Error + 'static)) -> Option<String> {
        let mut next = Some(error);
        while let Some(error) = next {
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
            if let Some(error) = inner.or_else(|| error.downcast_ref()) {
                return Some((self.words)(error));
            }
            next = error.source();
        }
        None
    }
}

fn agreed(connection: &CommonState) -> Result<(), String> {
    match connection.alpn_protocol() {
        Some(H2) => Ok(()),
        _ => Err("it does not agree on HTTP/2 (ALPN)".into()),
    }
}

/// A connection, with somebody who is told of the error that reading it ends with.
pub(crate) struct Watched<S, F> {
    stream: S,
    tell: F,
}

impl<S, F: FnMut(&io::Error)> Watched<S, F> {
    pub(crate) fn new(stream: S, tell: F) -> Self {
        Watched { stream, tell }
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&io::Error) + Unpin> Watched<S, F> {
    /// What comes of writing: where that fails, what the peer has said before it closed says more.
    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(error)) = written else { return written };
        let mut octets = [0; 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut octets);
            match Pin::new(&mut *self).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // It is about to come: the socket is closed.
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&io::Error) + Unpin> AsyncRead for Watched<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            (self.tell)(error);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: FnMut(&io::Error) + Unpin> AsyncWrite for Watched<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, octets);
        self.written(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
