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
use tokio::time::{Instant, Sleep};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, CommonState, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// The protocol that is agreed on: HTTP/2.
const H2: &[u8] = b"h2";
/// How long a peer may take to show what it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said of a peer with which TLS fails.
pub type TlsErrorText = fn(&rustls::Error) -> String;

/// What both ends of an endpoint's connections are secured by.
#[derive(Clone)]
pub struct Tls {
    client: TlsConnector,
    server: TlsAcceptor,
    name: ServerName<'static>,
    words: TlsErrorText,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A key is nobody's business.
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// By these, with peers whose certificates are for this name.
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

/// How long what a peer has said before writing to it failed may be on its way.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection, with somebody who is told of the error that reading it ends with.
pub(crate) struct ErrorReportingStream<S, F> {
    stream: S,
    tell: F,
    /// Writing has failed, and so long it is read what the peer has said before.
    failed: Option<(io::Error, Pin<Box<Sleep>>)>,
}

impl<S, F: FnMut(&io::Error)> ErrorReportingStream<S, F> {
    pub(crate) fn new(stream: S, tell: F) -> Self {
        ErrorReportingStream { stream, tell, failed: None }
    }
}

impl<S: AsyncRead + Unpin, F: FnMut(&io::Error) + Unpin> ErrorReportingStream<S, F> {
    /// What comes of writing: where that fails, what the peer has said before it closed says more. One that says nothing of the
    /// kind and does not close is waited for no longer than [`LAST_WORDS`].
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.failed.is_none() {
            match write(Pin::new(&mut self.stream), context) {
                Poll::Ready(Err(error)) => self.failed = Some((error, Box::pin(tokio::time::sleep(LAST_WORDS)))),
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
                // It may be about to come: then the socket is closed.
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
            (self.tell)(error);
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

    type Says = fn(&mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// A connection that cannot be written to, and what a peer says by it.
    struct Broken(Says);

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
    fn a_peer_that_does_not_close_is_not_waited_for_for_long() {
        let cases: [(Says, io::ErrorKind, bool); 4] = [
            (|_| Poll::Pending, io::ErrorKind::BrokenPipe, false),
            (talks, io::ErrorKind::BrokenPipe, false),
            (|_| Poll::Ready(Ok(())), io::ErrorKind::BrokenPipe, false),
            (|_| Poll::Ready(Err(io::ErrorKind::InvalidData.into())), io::ErrorKind::InvalidData, true),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (n, (says, expected, is_told)) in cases.into_iter().enumerate() {
            let mut told = Vec::new();
            let mut watched = ErrorReportingStream::new(Broken(says), |error: &io::Error| told.push(error.kind()));
            let written = runtime.block_on(async {
                // Longer than it takes, whatever else the machine does.
                tokio::time::timeout(Duration::from_secs(60), watched.write(b"x")).await.expect("an end")
            });
            assert_eq!(written.unwrap_err().kind(), expected, "{n}");
            assert_eq!(told.contains(&expected), is_told, "{n}");
        }
    }
}
