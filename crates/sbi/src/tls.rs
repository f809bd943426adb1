//! TLS of an endpoint (TS 33.501 13.1).
//!
//! Both sides present certificates and negotiate HTTP/2 (ALPN, RFC 9113 3.2). The caller supplies
//! the certificate checks and the texts for failed ones.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, CommonState, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// ALPN protocol ID of HTTP/2.
const H2: &[u8] = b"h2";
/// Maximum duration of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why a TLS handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// TLS error, as described by [`TlsErrorText`].
    #[error("{0}")]
    Tls(String),
    #[error(transparent)]
    Io(io::Error),
    #[error("it has not shown within {HANDSHAKE_TIMEOUT:?} what it is")]
    TimedOut,
    #[error("it does not agree on HTTP/2 (ALPN)")]
    NoHttp2,
}

/// Function that describes a TLS error of a peer.
pub type TlsErrorText = fn(&rustls::Error) -> String;

/// TLS configuration of an endpoint's connections in both directions.
#[derive(Clone)]
pub struct Tls {
    client: TlsConnector,
    server: TlsAcceptor,
    name: ServerName<'static>,
    words: TlsErrorText,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never print the keys.
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// Creates a configuration. Peers must have certificates for `name`, as far as the verifiers
    /// check it.
    pub fn new(
        mut client: ClientConfig,
        mut server: ServerConfig,
        name: ServerName<'static>,
        words: TlsErrorText,
    ) -> Self {
        client.alpn_protocols = vec![H2.to_vec()];
        server.alpn_protocols = vec![H2.to_vec()];
        Tls { client: Arc::new(client).into(), server: Arc::new(server).into(), name, words }
    }

    /// Performs the TLS handshake as client.
    ///
    /// # Errors
    ///
    /// Returns a [`HandshakeError`] if the peer is not accepted, or does not accept this side.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<client::TlsStream<TcpStream>, HandshakeError> {
        let stream = self.within(self.client.connect(self.name.clone(), stream)).await?;
        agreed(stream.get_ref().1)?;
        Ok(stream)
    }

    /// Performs the TLS handshake as server.
    ///
    /// # Errors
    ///
    /// Returns a [`HandshakeError`] if the peer is not accepted, or does not accept this side.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<server::TlsStream<TcpStream>, HandshakeError> {
        let stream = self.within(self.server.accept(stream)).await?;
        agreed(stream.get_ref().1)?;
        Ok(stream)
    }

    async fn within<T>(&self, handshake: impl Future<Output = io::Result<T>>) -> Result<T, HandshakeError> {
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(result) => result.map_err(|error| self.handshake_error(&error).unwrap_or(HandshakeError::Io(error))),
            Err(_) => Err(HandshakeError::TimedOut),
        }
    }

    /// Describes an error, if a TLS error caused it. In TLS 1.3, a server may reject the client's
    /// certificate after the client's handshake has completed.
    pub(crate) fn handshake_error(&self, error: &(dyn Error + 'static)) -> Option<HandshakeError> {
        let mut next = Some(error);
        while let Some(error) = next {
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
            if let Some(error) = inner.or_else(|| error.downcast_ref()) {
                return Some(HandshakeError::Tls((self.words)(error)));
            }
            next = error.source();
        }
        None
    }
}

fn agreed(connection: &CommonState) -> Result<(), HandshakeError> {
    match connection.alpn_protocol() {
        Some(H2) => Ok(()),
        _ => Err(HandshakeError::NoHttp2),
    }
}

/// Maximum time to read pending data of the peer after a failed write.
const PENDING_DATA_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that passes the error of a failed read to a callback.
pub(crate) struct ErrorReportingStream<S, F> {
    stream: S,
    on_error: F,
    /// Error of a failed write, and the deadline for reading pending data of the peer.
    failed: Option<(io::Error, Pin<Box<Sleep>>)>,
}

impl<S, F: FnMut(&io::Error)> ErrorReportingStream<S, F> {
    pub(crate) fn new(stream: S, on_error: F) -> Self {
        ErrorReportingStream { stream, on_error, failed: None }
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&io::Error) + Unpin> ErrorReportingStream<S, F> {
    /// Returns the result of a write. If it fails, the pending data of the peer may contain the
    /// reason, so it is read first, for at most [`PENDING_DATA_TIMEOUT`].
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.failed.is_none() {
            match write(Pin::new(&mut self.stream), context) {
                Poll::Ready(Err(error)) => {
                    self.failed = Some((error, Box::pin(tokio::time::sleep(PENDING_DATA_TIMEOUT))))
                }
                written => return written,
            }
        }
        let mut octets = [0; 1024];
        while self.failed.as_ref().is_some_and(|(_, until)| until.deadline() > Instant::now()) {
            let mut buffer = ReadBuf::new(&mut octets);
            match Pin::new(&mut *self).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // More data may arrive before the peer closes the socket.
                Poll::Pending => {
                    let waits = |(_, until): &mut (_, Pin<Box<Sleep>>)| until.as_mut().poll(context).is_pending();
                    if self.failed.as_mut().is_some_and(waits) {
                        return Poll::Pending;
                    }
                }
            }
        }
        let failed = self.failed.take().map(|(error, _)| error);
        Poll::Ready(Err(failed.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())))
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&io::Error) + Unpin> AsyncRead for ErrorReportingStream<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            (self.on_error)(error);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: FnMut(&io::Error) + Unpin> AsyncWrite for ErrorReportingStream<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.written(context, |stream, context| stream.poll_write(context, octets))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.written(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    type ReadResult = fn(&mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// A connection that fails all writes, with given results of reads.
    struct Broken(ReadResult);

    impl AsyncRead for Broken {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            (self.0)(buffer)
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn talks(buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buffer.put_slice(b"and so on");
        Poll::Ready(Ok(()))
    }

    #[test]
    fn unclosed_connection_times_out() {
        let cases: [(ReadResult, io::ErrorKind, bool); 4] = [
            (|_| Poll::Pending, io::ErrorKind::BrokenPipe, false),
            (talks, io::ErrorKind::BrokenPipe, false),
            (|_| Poll::Ready(Ok(())), io::ErrorKind::BrokenPipe, false),
            (|_| Poll::Ready(Err(io::ErrorKind::InvalidData.into())), io::ErrorKind::InvalidData, true),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (n, (says, expected, is_reported)) in cases.into_iter().enumerate() {
            let mut reported = Vec::new();
            let mut watched = ErrorReportingStream::new(Broken(says), |error: &io::Error| reported.push(error.kind()));
            let written = runtime.block_on(async {
                // Longer than the operation takes on a loaded machine.
                tokio::time::timeout(Duration::from_secs(60), watched.write(b"x")).await.expect("an end")
            });
            assert_eq!(written.unwrap_err().kind(), expected, "{n}");
            assert_eq!(reported.contains(&expected), is_reported, "{n}");
        }
    }
}
