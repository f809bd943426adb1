//! Client side of the API: address, token and single requests.
//!
//! 1. `--api PATH` or `unix:PATH` is a unix socket, `--api URL` a TCP address. Without `--api`, the
//!    client uses the socket of port 9090 in the runtime directories if a process of this network
//!    namespace listens there, else `http://127.0.0.1:9090`.
//!    With `https://`, the server's certificate must be signed by an authority of `--authorities`,
//!    or of this machine without it.
//! 2. The token is that of `--token-file`, `VIREO_API_TOKEN` or `VIREO_API_TOKEN_FILE`. Without
//!    these, the client tries the token files of this user and of root when the API requests a
//!    token. It sends that token only to a unix socket or a loopback address, and only if the
//!    listening process belongs to this user or root. Other users and other machines therefore
//!    never receive a token.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vireo_config::{Failure, default_paths};
use vireo_ops::api::{ApiSocket, Token};
use vireo_ops::http_post::{HttpUrl, client_config};

const TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of a response in bytes: 1,000 UEs with 15 sessions each fit.
const ANSWER_MAX: u64 = 16 << 20;
/// Default address of the API.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// API options of every command that uses the API.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ApiArgs {
    /// Use the API at URL or SOCKET [default: local socket or 127.0.0.1:9090]
    #[arg(long, global = true, value_name = "URL", env = "VIREO_API")]
    api: Option<String>,
    /// Read the API token from FILE [default: VIREO_API_TOKEN or the core's]
    #[arg(long, global = true, value_name = "FILE", env = "VIREO_API_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Trust the authorities in the PEM FILE for https [default: this machine's]
    #[arg(long, global = true, value_name = "FILE", env = "VIREO_API_AUTHORITIES")]
    authorities: Option<PathBuf>,
}

/// Environment variable that holds a token.
const TOKEN: &str = "VIREO_API_TOKEN";

impl ApiArgs {
    /// Returns the API that the options select.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is invalid, or if a named token is not readable.
    pub fn find(&self) -> Result<Api, Failure> {
        let token = match (&self.token_file, std::env::var(TOKEN)) {
            (Some(file), _) => {
                TokenSource::Token(Token::read(file).map_err(|error| Failure(name_token_option(&error.to_string())))?)
            }
            (None, Ok(text)) => TokenSource::Token(
                Token::parse(&text)
                    .ok_or_else(|| Failure(format!("{TOKEN}: no token; 16 to 512 visible characters are allowed")))?,
            ),
            (None, Err(_)) => TokenSource::Files(default_paths::tokens().collect()),
        };
        let Some(api) = &self.api else { return Ok(usual(default_paths::runtimes(), token)) };
        let tls = Tls::for_url(api, self.authorities.as_deref())?;
        Ok(Api { name: api.clone(), endpoint: Endpoint::parse(api)?, tls, token })
    }
}

/// TLS towards an API.
#[derive(Clone, Debug)]
struct Tls {
    /// Name or address that the certificate must have.
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl Tls {
    /// Returns the TLS of a URL; `None` if its scheme is not `https`.
    fn for_url(url: &str, authorities: Option<&Path>) -> Result<Option<Self>, Failure> {
        if !url.starts_with("https://") {
            return Ok(None);
        }
        let name = HttpUrl::parse(url).and_then(|url| ServerName::try_from(url.host().to_owned()).ok());
        let name = name.ok_or_else(|| no_address(url))?;
        let config = client_config(authorities).map_err(|error| Failure(format!("--authorities: {error}")))?;
        Ok(Some(Tls { name, config }))
    }

    fn over(&self, stream: TcpStream) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        Ok(StreamOwned::new(connection, stream))
    }
}

fn no_address(text: &str) -> Failure {
    Failure(format!("{text} is no API address: it looks like http://127.0.0.1:9090"))
}

/// Replaces `api.token-file` by `--token-file` in an error text.
fn name_token_option(text: &str) -> String {
    text.replace("api.token-file", "--token-file")
}

/// Returns the default API: the first usable socket, else [`DEFAULT_ADDRESS`].
fn usual(directories: impl Iterator<Item = PathBuf>, token: TokenSource) -> Api {
    let name = ApiSocket::name(DEFAULT_ADDRESS.port());
    let mut sockets = directories.map(|directory| directory.join(&name));
    match sockets.find(|path| UnixStream::connect(path).is_ok_and(|stream| is_near(&stream))) {
        Some(path) => Api { name: path.display().to_string(), endpoint: Endpoint::Unix(path), tls: None, token },
        None => Api {
            name: format!("http://{DEFAULT_ADDRESS}"),
            endpoint: Endpoint::Tcp(DEFAULT_ADDRESS),
            tls: None,
            token,
        },
    }
}

/// Returns true if the socket's process runs in this network namespace. Only then does its TCP
/// address refer to the same API.
fn is_near(stream: &UnixStream) -> bool {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else { return false };
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let (theirs, own) = (of(&peer.pid.as_raw_nonzero().to_string()), of("self"));
    // The namespace of another user's process is not readable; such a process is root's.
    theirs.is_none() || theirs == own
}

/// API of one process.
#[derive(Clone, Debug)]
pub struct Api {
    name: String,
    endpoint: Endpoint,
    /// TLS over TCP; `None` = none.
    tls: Option<Tls>,
    token: TokenSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Source of the token that authorises a request.
#[derive(Clone, Debug)]
enum TokenSource {
    Token(Token),
    /// The client uses the first readable file, if the API requests a token.
    Files(Vec<PathBuf>),
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, Failure> {
        if let Some(path) = text.strip_prefix("unix:").or(text.starts_with('/').then_some(text)) {
            return Ok(Endpoint::Unix(path.into()));
        }
        let rest = text.strip_prefix("http://").or(text.strip_prefix("https://"));
        let host = rest.unwrap_or(text).trim_end_matches('/');
        let address = host.to_socket_addrs().ok().and_then(|mut all| all.next());
        address.map(Endpoint::Tcp).ok_or_else(|| no_address(text))
    }

    /// Returns true if only processes of this user or root on this machine can answer at the
    /// address.
    fn is_own(&self) -> bool {
        match self {
            // The socket directory belongs to this user or root.
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(address) if address.ip().is_loopback() => {
                let own = rustix::process::geteuid().as_raw();
                let owners = owners(*address);
                !owners.is_empty() && owners.iter().all(|owner| *owner == own || *owner == 0)
            }
            Endpoint::Tcp(_) => false,
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Response of an API.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status code; 0 if the response is not HTTP.
    pub status: u16,
    /// First line of the response.
    pub line: String,
    pub body: String,
}

impl Api {
    /// Returns the API of a lab process at a URL such as `http://host:port`, with the token in a
    /// file.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not an address.
    pub fn at(url: &str, token: &Path) -> Result<Self, Failure> {
        let token = Token::read(token).map_or_else(|_| TokenSource::Files(Vec::new()), TokenSource::Token);
        Ok(Api { name: url.to_owned(), endpoint: Endpoint::parse(url)?, tls: None, token })
    }

    /// Returns the body of `GET path`.
    ///
    /// # Errors
    ///
    /// Returns an error if the API is unreachable or answers with a status other than 200.
    pub fn fetch(&self, path: &str) -> Result<String, Failure> {
        match self.request("GET", path)? {
            Answer { status: 200, body, .. } => Ok(body),
            Answer { line, body, .. } => Err(Failure(format!("{self} answers '{line}' {}", body.trim()))),
        }
    }

    /// Sends a request and returns the response.
    ///
    /// # Errors
    ///
    /// Returns an error if the API is unreachable.
    pub fn request(&self, method: &str, path: &str) -> Result<Answer, Failure> {
        let answer = match &self.token {
            TokenSource::Token(token) => self.exchange(method, path, Some(token))?,
            TokenSource::Files(_) => self.exchange(method, path, None)?,
        };
        match &self.token {
            TokenSource::Files(files) if answer.status == 401 && self.endpoint.is_own() => {
                match files.iter().find_map(|file| Token::read(file).ok()) {
                    Some(token) => self.exchange(method, path, Some(&token)),
                    None => Ok(answer),
                }
            }
            _ => Ok(answer),
        }
    }

    fn exchange(&self, method: &str, path: &str, token: Option<&Token>) -> Result<Answer, Failure> {
        let answer = match &self.endpoint {
            Endpoint::Tcp(address) => TcpStream::connect_timeout(address, TIMEOUT).and_then(|stream| {
                stream.set_read_timeout(Some(TIMEOUT))?;
                // The Host header carries the address: the server does not know host names of this
                // client.
                match &self.tls {
                    Some(tls) => exchange(tls.over(stream)?, &address.to_string(), (method, path), token),
                    None => exchange(stream, &address.to_string(), (method, path), token),
                }
            }),
            Endpoint::Unix(path_of) => UnixStream::connect(path_of).and_then(|stream| {
                stream.set_read_timeout(Some(TIMEOUT))?;
                exchange(stream, "localhost", (method, path), token)
            }),
        };
        answer.map_err(|e| {
            Failure(format!("no core answers at {self} ({e}): start one with `vireo run`, or name its API with --api"))
        })
    }
}

fn exchange(
    mut stream: impl Read + Write,
    host: &str,
    (method, path): (&str, &str),
    token: Option<&Token>,
) -> io::Result<Answer> {
    let token = token.map(|token| format!("Authorization: {}\r\n", token.header())).unwrap_or_default();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\n{token}\r\n")?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_MAX).read_to_end(&mut answer) {
        // The TLS server has ended the connection without a closing message.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && is_whole(&answer) => {}
        result => drop(result?),
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let line = head.lines().next().unwrap_or_default().to_owned();
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Answer { status, line, body: body.to_owned() })
}

/// Returns true if a response has as many bytes as it announces.
fn is_whole(answer: &[u8]) -> bool {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = answer.windows(END.len()).position(|part| part == END) else { return false };
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.trim().parse().ok());
    length.is_some_and(|length: usize| answer.len() - end - END.len() >= length)
}

/// Returns the users whose sockets receive data sent to a TCP address of this machine.
fn owners(address: SocketAddr) -> Vec<u32> {
    let files = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| fs::read_to_string(file).unwrap_or_default());
    files.iter().flat_map(|text| text.lines().skip(1)).filter_map(|line| owner(line, address)).collect()
}

/// Returns the user in a line of `/proc/net/tcp` or `/proc/net/tcp6`, if the line describes a
/// listener at the address.
fn owner(line: &str, wanted: SocketAddr) -> Option<u32> {
    /// TCP state of a listening socket.
    const LISTEN: &str = "0A";
    let words: Vec<&str> = line.split_whitespace().collect();
    let (local, state, user) = (words.get(1)?, words.get(3)?, words.get(7)?);
    let (address, port) = local.split_once(':')?;
    // Words of 32 bits, each in the machine's byte order.
    let word = |n: usize| u32::from_str_radix(address.get(8 * n..8 * n + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut octets = [0; 16];
            for n in 0..4 {
                octets[4 * n..4 * n + 4].copy_from_slice(&word(n)?);
            }
            Ipv6Addr::from(octets).into()
        }
        _ => return None,
    };
    let meant = ip.to_canonical() == wanted.ip() || ip.is_unspecified();
    let here = *state == LISTEN && u16::from_str_radix(port, 16) == Ok(wanted.port()) && meant;
    if here { user.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn listener_owner_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(owners(address), [rustix::process::geteuid().as_raw()]);
        assert!(Endpoint::Tcp(address).is_own());
        let v6 =
            "  1: 00000000000000000000000001000000:2382 00000000000000000000000000000000:0000 0A 0:0 0:0 0 1000 0 1";
        assert_eq!(owner(v6, "[::1]:9090".parse().unwrap()), Some(1000));
        let mapped = "  1: 0000000000000000FFFF00000100007F:2382 0:0 0A 0:0 0:0 0 1000 0 1";
        assert_eq!(owner(mapped, DEFAULT_ADDRESS), Some(1000));
        let any = "  1: 00000000:2382 00000000:0000 0A 0:0 0:0 0 7 0 1";
        assert_eq!((owner(any, DEFAULT_ADDRESS), owner(any, "127.0.0.1:9091".parse().unwrap())), (Some(7), None));
        let connected = "  1: 0100007F:2382 0100007F:8888 01 0:0 0:0 0 7 0 1";
        assert_eq!(owner(connected, DEFAULT_ADDRESS), None);
        assert!(!Endpoint::Tcp("192.0.2.1:9090".parse().unwrap()).is_own(), "another machine's");
        drop(listener);
        assert!(!Endpoint::Tcp(address).is_own(), "nobody's");
    }

    #[test]
    fn socket_is_preferred_where_one_listens() {
        let directory = tempfile::tempdir().unwrap();
        let find = || usual([directory.path().to_owned()].into_iter(), TokenSource::Files(Vec::new())).endpoint;
        assert_eq!(find(), Endpoint::Tcp(DEFAULT_ADDRESS));
        let path = directory.path().join("api-9090.sock");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(find(), Endpoint::Unix(path));
        drop(listener);
        assert_eq!(find(), Endpoint::Tcp(DEFAULT_ADDRESS), "a killed process has left the file");
        assert_eq!(Endpoint::parse("unix:/run/a.sock").unwrap(), Endpoint::Unix("/run/a.sock".into()));
        assert_eq!(Endpoint::parse("/run/a.sock").unwrap(), Endpoint::Unix("/run/a.sock".into()));
        assert_eq!(Endpoint::parse("http://127.0.0.1:9090/").unwrap(), Endpoint::Tcp(DEFAULT_ADDRESS));
        assert_eq!(Endpoint::parse("https://127.0.0.1:9090/").unwrap(), Endpoint::Tcp(DEFAULT_ADDRESS));
        assert!(Endpoint::parse("http://nowhere").unwrap_err().0.contains("no API address"));
    }

    #[test]
    fn cut_response_is_not_whole() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert!(is_whole(whole));
        assert!((0..whole.len()).all(|length| !is_whole(&whole[..length])));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\nabc"), "no length");
    }

    #[test]
    fn missing_token_file_is_named() {
        let args = ApiArgs { api: None, authorities: None, token_file: Some("/nonexistent/token".into()) };
        let error = args.find().unwrap_err().0;
        assert!(error.starts_with("--token-file: /nonexistent/token"), "{error}");
    }
}
