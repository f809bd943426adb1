//! Client that posts to one web server, over HTTP or HTTPS, for alarms and traces.
//!
//! Each request has a connection of its own. The answer is its status code; the rest is ignored.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Maximum time of a request, its connection included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A parsed `http://HOST:PORT/PATH` or `https://HOST:PORT/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    is_secure: bool,
    /// Host, and port if the URL names one.
    authority: String,
    /// Host name or address, without brackets.
    host: String,
    port: u16,
    path: String,
}

impl HttpUrl {
    /// Parses a URL; `None` if it is neither of `http` nor of `https`, or names a user.
    pub fn parse(url: &str) -> Option<Self> {
        let (is_secure, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return None,
        };
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        // An IPv6 address has colons and brackets.
        let end_of_host = authority.find(']').map_or(0, |at| at + 1);
        let (host, port) = match authority[end_of_host..].find(':') {
            Some(at) => (&authority[..end_of_host + at], authority[end_of_host + at + 1..].parse().ok()?),
            None => (authority, if is_secure { 443 } else { 80 }),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_printable = url.bytes().all(|octet| octet.is_ascii_graphic());
        if !is_printable || host.is_empty() || host.contains(['@', '[', ']', '?', '#']) || port == 0 {
            return None;
        }
        let (authority, host, path) = (authority.to_owned(), host.to_owned(), path.to_owned());
        Some(HttpUrl { is_secure, authority, host, port, path })
    }

    /// Returns true for `https`.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the host, and the port if the URL names one.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the path, at least `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the host name or address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, that of the scheme unless the URL names one.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Reasons why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpPostError {
    #[error("{} is not usable ({cause}); a PEM file with certificates of authorities is needed", path.display())]
    Authorities { path: PathBuf, cause: String },
    #[error("this machine has no certificates of authorities; name a file with them")]
    NoAuthorities,
    #[error("{0:?} is no name that a certificate can have")]
    Name(String),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Client of one server.
#[derive(Clone)]
pub struct HttpPost {
    url: HttpUrl,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl fmt::Debug for HttpPost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpPost").field("url", &self.url).finish_non_exhaustive()
    }
}

impl HttpPost {
    /// Creates a client. With `https`, the server's certificate must be signed by an authority of
    /// the file, or of this machine without one. TLS 1.3 only.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no authorities.
    pub fn new(url: HttpUrl, authorities: Option<&Path>) -> Result<Self, HttpPostError> {
        if !url.is_secure {
            return Ok(HttpPost { url, tls: None });
        }
        let name = ServerName::try_from(url.host.clone()).map_err(|_| HttpPostError::Name(url.host.clone()))?;
        Ok(HttpPost { url, tls: Some((TlsConnector::from(client_config(authorities)?), name)) })
    }

    /// Posts a body.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer in time, or not with a status of success.
    pub async fn send(&self, content_type: &str, body: &[u8]) -> io::Result<()> {
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, async {
            let stream = TcpStream::connect((self.url.host.as_str(), self.url.port)).await?;
            match &self.tls {
                None => self.exchange(stream, content_type, body).await,
                Some((tls, name)) => self.exchange(tls.connect(name.clone(), stream).await?, content_type, body).await,
            }
        });
        sent.await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
    }

    async fn exchange(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        content_type: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let HttpUrl { authority, path, .. } = &self.url;
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.flush().await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        match &head[..10] {
            b"HTTP/1.1 2" | b"HTTP/1.0 2" => Ok(()),
            _ => Err(io::Error::other(format!("the answer is {}", String::from_utf8_lossy(&head).escape_debug()))),
        }
    }
}

/// Returns the TLS configuration of a client without a certificate: TLS 1.3, and the authorities of
/// a file, or of this machine without one.
///
/// # Errors
///
/// Returns an error if there are no authorities.
pub fn client_config(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, HttpPostError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(authorities)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn roots(authorities: Option<&Path>) -> Result<RootCertStore, HttpPostError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            let failed = |cause: String| HttpPostError::Authorities { path: path.to_path_buf(), cause };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))? {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                roots.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(failed("it has no certificate".into()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(HttpPostError::NoAuthorities);
            }
        }
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use std::net::SocketAddr;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use vireo_pki::Authority;

    #[test]
    fn urls_of_http_and_https_are_parsed() {
        let parsed = |url| HttpUrl::parse(url).map(|url| (url.is_secure, url.host, url.port, url.path));
        let some = |secure, host: &str, port, path: &str| Some((secure, host.to_owned(), port, path.to_owned()));
        assert_eq!(parsed("http://127.0.0.1:9/alarms?x=1"), some(false, "127.0.0.1", 9, "/alarms?x=1"));
        assert_eq!(parsed("http://am.example"), some(false, "am.example", 80, "/"));
        assert_eq!(parsed("https://am.example/x"), some(true, "am.example", 443, "/x"));
        assert_eq!(parsed("https://[2001:db8::1]:8443/"), some(true, "2001:db8::1", 8443, "/"));
        assert_eq!(parsed("https://[2001:db8::1]/"), some(true, "2001:db8::1", 443, "/"));
        for bad in [
            "a:1",
            "http://",
            "http:///x",
            "http://:80/",
            "http://a b/",
            "http://a/\r\nX: 1",
            "https://u:p@h/",
            "https://u@h/",
            "http://a:0/",
            "http://a:99999/",
            "ftp://a/",
        ] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }

    /// Serves one connection and returns what it received.
    async fn serve_one(listener: TcpListener, tls: Option<TlsAcceptor>, status: &str) -> String {
        async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, status: &str) -> String {
            let mut request = vec![0; 4096];
            let mut length = 0;
            while !request[..length].ends_with(b"body") {
                match stream.read(&mut request[length..]).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => length += count,
                }
            }
            let _ = stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
            let _ = stream.shutdown().await;
            String::from_utf8_lossy(&request[..length]).into_owned()
        }
        let (stream, _) = listener.accept().await.expect("a connection");
        match tls {
            None => serve(stream, status).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => serve(stream, status).await,
                Err(error) => format!("handshake: {error}"),
            },
        }
    }

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    #[tokio::test]
    async fn body_is_posted_and_status_judged() {
        for (status, is_sent) in [("204 No Content", true), ("500 Oops", false)] {
            let (listener, address) = listen().await;
            let url = HttpUrl::parse(&format!("http://{address}/x")).expect("a URL");
            let client = HttpPost::new(url, None).expect("a client");
            let (received, sent) = tokio::join!(serve_one(listener, None, status), client.send("a/b", b"a body"));
            assert_eq!(sent.is_ok(), is_sent, "{sent:?}");
            assert!(
                received.starts_with("POST /x HTTP/1.1\r\n") && received.contains("Content-Type: a/b"),
                "{received}"
            );
            assert!(received.ends_with("Content-Length: 6\r\nConnection: close\r\n\r\na body"), "{received}");
        }
    }

    #[tokio::test]
    async fn https_server_must_be_of_the_authorities() {
        let directory = tempfile::tempdir().expect("a directory");
        let (ca, other) = (directory.path().join("ca.pem"), directory.path().join("other.pem"));
        let [authority, stranger] = [(); 2].map(|()| Authority::new().expect("an authority"));
        let issued = authority.sign("receiver", &["localhost", "127.0.0.1"], 1).expect("a certificate");
        std::fs::write(&ca, authority.certificate()).expect("written");
        std::fs::write(&other, stranger.certificate()).expect("written");
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(certificates.expect("certificates"), key)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        for (file, is_sent) in [(&ca, true), (&other, false)] {
            let (listener, address) = listen().await;
            let url = HttpUrl::parse(&format!("https://{address}/")).expect("a URL");
            let client = HttpPost::new(url, Some(file)).expect("a client");
            let server = serve_one(listener, Some(acceptor.clone()), "200 OK");
            let (received, sent) = tokio::join!(server, client.send("a/b", b"body"));
            assert_eq!(sent.is_ok(), is_sent, "{sent:?} {received}");
            assert_eq!(received.starts_with("POST / "), is_sent, "{received}");
        }
        let url = HttpUrl::parse("https://localhost/").expect("a URL");
        let error = HttpPost::new(url, Some(&directory.path().join("none"))).expect_err("no file");
        assert!(matches!(error, HttpPostError::Authorities { .. }), "{error}");
    }
}
