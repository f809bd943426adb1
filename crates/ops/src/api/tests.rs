use super::*;
use crate::metrics::Procedure;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Instant;

/// Offset for which [`Source`] has no status.
const SILENT: usize = 999;

/// Source that records each filter it receives and returns it in its answer.
#[derive(Default)]
pub(super) struct Source(Mutex<Vec<StatusFilter>>);

impl StatusSource for Source {
    fn deregister(
        &self,
        supi: vireo_types::Supi,
        again: bool,
        cause: Option<vireo_types::DeregistrationCause>,
    ) -> Option<bool> {
        let is_complete = again || cause.map(u8::from) == Some(7);
        (!supi.reveal().ends_with('9')).then(|| is_complete && supi.reveal() == "999700000000001")
    }

    fn status(&self, filter: &StatusFilter) -> Option<Status> {
        self.0.lock().unwrap().push(filter.clone());
        let status = Status {
            version: "1".into(),
            counts: Counts { ues: 2, ..Counts::default() },
            ues: vec![UeStatus { supi: "imsi-99970**********".into(), ..UeStatus::default() }],
            ..Status::default()
        };
        (filter.offset != SILENT).then_some(status)
    }
}

/// A server, and the directory of its token and unix socket.
struct Running {
    server: Server,
    directory: tempfile::TempDir,
}

const PAGE: &str = "Origin: http://example.org\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(super) fn config(directory: &std::path::Path) -> ApiConfig {
    ApiConfig {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        socket: ApiSocket::At(directory.join("api.sock")),
        ..ApiConfig::loopback(directory.join("api.token"))
    }
}

fn run(config: &ApiConfig, source: Arc<Source>, metrics: Arc<Metrics>) -> Server {
    let prepared = Prepared::new(config).unwrap();
    prepared.start_with(source, metrics, Some(Box::new(Router::new))).unwrap().unwrap()
}

fn start() -> (Running, Arc<Source>, Arc<Metrics>) {
    let (source, metrics) = (Arc::new(Source::default()), Arc::new(Metrics::new()));
    let directory = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::options();
    let mut file = file.write(true).create_new(true).mode(0o600).open(directory.path().join("api.token")).unwrap();
    writeln!(file, "{TOKEN}").unwrap();
    let server = run(&config(directory.path()), source.clone(), metrics.clone());
    (Running { server, directory }, source, metrics)
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.server.address().unwrap()
    }

    fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address()).unwrap()
    }

    fn unix(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("api.sock")).unwrap()
    }
}

/// Returns status line and body of `GET path` without a token.
fn fetch(server: &Running, path: &str) -> (String, String) {
    send_request(server, "GET", path, "")
}

/// Returns status line and body of a request with the token.
fn request(server: &Running, method: &str, path: &str) -> (String, String) {
    send_request(server, method, path, &format!("Authorization: Bearer {TOKEN}\r\n"))
}

fn send_request(server: &Running, method: &str, path: &str, header: &str) -> (String, String) {
    exchange(server.tcp(), method, path, &format!("Host: 127.0.0.1\r\n{header}"))
}

fn exchange(mut stream: impl Read + Write, method: &str, path: &str, headers: &str) -> (String, String) {
    write!(stream, "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn status_is_json_and_the_filter_is_bounded() {
    let (server, source, _) = start();
    let (line, body) = request(&server, "GET", "/status?offset=5&limit=100000000&reveal_supi=true");
    assert_eq!(line, "HTTP/1.1 200 OK");
    let status: Status = serde_json::from_str(&body).unwrap();
    assert_eq!((status.counts.ues, status.ues.len()), (2, 1));
    assert_eq!(
        source.0.lock().unwrap()[0],
        StatusFilter { offset: 5, limit: 1000, reveal_supi: true, ..StatusFilter::default() }
    );
    fetch(&server, "/status");
    assert_eq!(source.0.lock().unwrap()[1], StatusFilter::default());
}

#[test]
fn silent_core_is_unavailable() {
    let (server, _, _) = start();
    assert_eq!(fetch(&server, &format!("/status?offset={SILENT}")).0, "HTTP/1.1 503 Service Unavailable");
    let silent = request(&server, "POST", "/deregister?supi=999700000000009");
    assert_eq!(silent.0, "HTTP/1.1 503 Service Unavailable");
}

#[test]
fn malformed_query_is_refused() {
    let (server, source, _) = start();
    assert_eq!(fetch(&server, "/status?limit=many").0, "HTTP/1.1 400 Bad Request");
    assert_eq!(fetch(&server, "/status?who=me").0, "HTTP/1.1 400 Bad Request");
    assert_eq!(fetch(&server, "/nothing").0, "HTTP/1.1 404 Not Found");
    assert!(source.0.lock().unwrap().is_empty());
    assert_eq!(fetch(&server, "/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
}

#[test]
fn deregistration_needs_post() {
    let (server, _, _) = start();
    let path = "/deregister?supi=imsi-999700000000001&again=true";
    assert_eq!(fetch(&server, path).0, "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(request(&server, "POST", path).0, "HTTP/1.1 202 Accepted");
    assert_eq!(request(&server, "POST", "/deregister?supi=999700000000002&again=true").0, "HTTP/1.1 404 Not Found");
    assert_eq!(request(&server, "POST", "/deregister?supi=me").0, "HTTP/1.1 400 Bad Request");
    let path = "/deregister?supi=imsi-999700000000001&cause";
    assert_eq!(request(&server, "POST", &format!("{path}=7")).0, "HTTP/1.1 202 Accepted");
    for refused in ["9", "256", "7&again=true"] {
        assert_eq!(request(&server, "POST", &format!("{path}={refused}")).0, "HTTP/1.1 400 Bad Request", "{refused}");
    }
    assert_eq!(request(&server, "POST", "/deregister").0, "HTTP/1.1 400 Bad Request");
}

#[test]
fn metrics_are_prometheus_text() {
    let (server, _, metrics) = start();
    metrics.procedures.started(Procedure::NgSetup);
    let (line, body) = fetch(&server, "/metrics");
    assert_eq!(line, "HTTP/1.1 200 OK");
    assert!(body.lines().any(|l| l == r#"vireo_procedures_started_total{procedure="ng_setup"} 1"#), "{body}");
}

#[test]
fn address_in_use_is_named_in_error() {
    let (server, source, metrics) = start();
    let at = |listen: SocketAddr| ApiConfig { listen: Some(listen), ..config(server.directory.path()) };
    let fails = |config: &ApiConfig| Server::start(config, source.clone(), metrics.clone()).unwrap_err();
    let error = fails(&at(server.address()));
    assert!(matches!(error, ApiError::InUse(a) if a == server.address()), "{error}");
    let foreign = fails(&at("192.0.2.1:0".parse().unwrap()));
    assert!(matches!(foreign, ApiError::NotLocal(_)), "{foreign}");
    // A unix socket in use is also an error, and no part stays running.
    let error = fails(&config(server.directory.path()));
    assert!(error.to_string().starts_with("api.socket: there can be no socket at "), "{error}");
}

/// Retries `act` for up to 2 seconds. A child that another test has just forked holds copies of the
/// closed descriptors until it executes its program.
fn soon<T, E: std::fmt::Debug>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let tried = std::iter::repeat_with(|| act().inspect_err(|_| std::thread::sleep(Duration::from_millis(20))));
    tried.take(100).find(Result::is_ok).expect("free again").expect("ok")
}

#[test]
fn dropped_server_stops_at_once() {
    let (Running { server, directory }, _, _) = start();
    let address = server.address().unwrap();
    let idle = TcpStream::connect(address).unwrap();
    let begun = Instant::now();
    drop(server);
    assert!(!directory.path().join("api.sock").exists());
    assert!(begun.elapsed() < Duration::from_secs(2));
    drop(idle);
    soon(|| TcpListener::bind(address));
}

#[test]
fn web_pages_change_nothing() {
    let (server, _, _) = start();
    let path = "/deregister?supi=imsi-999700000000001&again=true";
    let page = format!("Origin: http://example.org\r\nAuthorization: Bearer {TOKEN}\r\n");
    assert_eq!(send_request(&server, "POST", path, &page).0, "HTTP/1.1 403 Forbidden");
    assert_eq!(request(&server, "POST", path).0, "HTTP/1.1 202 Accepted");
}

#[test]
fn changes_and_supis_need_the_token() {
    let (server, source, metrics) = start();
    let changes = [
        ("POST", "/deregister?supi=imsi-999700000000001&again=true"),
        ("POST", "/slices/move?seid=7&to=meters"),
        ("POST", "/sessions/move?supi=imsi-999700000000001&to=edge"),
        ("POST", "/cluster/drain?host=3"),
        ("GET", "/status?reveal_supi=true"),
    ];
    for (method, path) in changes {
        for header in
            ["", "Authorization: Bearer 0123456789abcdef0123456789abcdee\r\n", "Authorization: Basic eDp5\r\n"]
        {
            let (line, body) = send_request(&server, method, path, header);
            assert!(line.contains("401") && body.contains("api.token-file"), "{method} {path}: {line} {body}");
        }
        assert!(!request(&server, method, path).0.contains("401"), "{method} {path}");
        // The same user needs no token on the unix socket.
        let (line, _) = exchange(server.unix(), method, path, "Host: x\r\n");
        assert!(!line.contains("401"), "{method} {path}: {line}");
    }
    assert_eq!(source.0.lock().unwrap().len(), 2, "who has the token has looked, and who has the socket");
    assert!(fetch(&server, "/status").0.contains("200"));
    let refused = r#"vireo_api_refused_requests_total{reason="token"} 15"#;
    assert!(metrics.render().lines().any(|line| line == refused), "{}", metrics.render());
}

#[test]
fn rebound_host_is_refused() {
    let (server, _, _) = start();
    let (line, body) = exchange(server.tcp(), "GET", "/status", "Host: evil.example:9090\r\n");
    assert!(line.contains("421") && body.contains("api.host-names"), "{line} {body}");
}

#[test]
fn open_address_needs_token_except_for_metrics() {
    let (source, metrics) = (Arc::new(Source::default()), Arc::new(Metrics::new()));
    let directory = tempfile::tempdir().unwrap();
    let at = |file: &str| ApiConfig {
        listen: Some("0.0.0.0:0".parse().unwrap()),
        ..ApiConfig::loopback(directory.path().join(file))
    };
    // The token's directory cannot be created, because its path is a file.
    std::fs::write(directory.path().join("file"), "").unwrap();
    let error = Server::start(&at("file/api.token"), source.clone(), metrics.clone()).unwrap_err().to_string();
    assert!(error.starts_with("api.token-file: ") && error.contains("set api.token-file"), "{error}");
    let loopback = ApiConfig { listen: Some("127.0.0.1:0".parse().unwrap()), ..at("file/api.token") };
    let closed =
        Running { server: run(&loopback, source.clone(), metrics.clone()), directory: tempfile::tempdir().unwrap() };
    let (line, body) = request(&closed, "POST", "/deregister?supi=imsi-999700000000001&again=true");
    assert!(line.contains("401") && body.contains("no token"), "{line} {body}");

    let server = run(&at("api.token"), source, metrics);
    let address = SocketAddr::from(([127, 0, 0, 1], server.address().unwrap().port()));
    let token = Token::read(&directory.path().join("api.token")).unwrap();
    let status_line = |path: &str, header: &str| {
        let stream = TcpStream::connect(address).unwrap();
        exchange(stream, "GET", path, &format!("Host: 127.0.0.1\r\n{header}")).0
    };
    for (path, open) in [("/metrics", true), ("/healthz", true), ("/status", false), ("/slices", false)] {
        assert_eq!(status_line(path, "").contains("200"), open, "{path}");
        assert!(status_line(path, &format!("Authorization: {}\r\n", token.header())).contains("200"), "{path}");
    }
}

#[test]
fn idle_connections_end_and_leave_room() {
    let (server, _, metrics) = start();
    // More connections than the limit: the oldest are closed.
    let mut idle: Vec<TcpStream> = (0..Limits::TCP.connections + 20).map(|_| server.tcp()).collect();
    let refused = || {
        let text = metrics.render();
        let count =
            text.lines().find_map(|l| l.strip_prefix(r#"vireo_api_refused_requests_total{reason="connections"} "#));
        count.unwrap().parse::<usize>().unwrap()
    };
    let until = Instant::now() + Duration::from_secs(5);
    while refused() < 20 {
        assert!(Instant::now() < until, "{} refused", refused());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Idle connections do not block new ones, and the unix socket has a limit of its own.
    assert!(fetch(&server, "/status").0.contains("200"));
    assert!(exchange(server.unix(), "GET", "/status", "Host: x\r\n").0.contains("200"));
    // One client sends its request one byte at a time.
    let begun = Instant::now();
    let slow = idle.last_mut().unwrap();
    while slow.write_all(b"G").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "a slow client is served for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The server has closed all of them.
    for stream in &mut idle {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let ended = stream.read(&mut [0; 256]);
        assert!(!ended.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "an idle client is kept");
    }
    assert!(fetch(&server, "/status").0.contains("200"));
}

#[test]
fn connection_ends_however_busy_it_is() {
    let (server, _, _) = start();
    let (mut stream, begun) = (server.tcp(), Instant::now());
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // A client that hardly reads and keeps sending requests.
    while stream.write_all(b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(8), "it lasts for ever");
        let _ = stream.read(&mut [0; 4096]);
    }
    assert!(begun.elapsed() > Duration::from_millis(300));
}

#[test]
fn user_move_needs_one_selector_and_post() {
    let (server, _, _) = start();
    let (line, body) = fetch(&server, "/slices");
    assert_eq!((line.as_str(), body.as_str()), ("HTTP/1.1 200 OK", r#"{"moved":0,"rebalanced":0,"slices":[]}"#));
    assert!(fetch(&server, "/slices?counts=maybe").0.contains("400"));
    for selector in ["seid=7", "address=10.45.0.2", "address=10.45.0.2&last=10.45.0.9", "slice=phones&count=3"] {
        let (line, body) = request(&server, "POST", &format!("/slices/move?{selector}&to=meters&worker=0"));
        assert!(line.contains("404") && body.contains("data-workers"), "{selector}: {line} {body}");
    }
    for bad in
        ["seid=7", "to=meters", "seid=7&slice=phones&to=x", "address=10.45.0.2&count=1&to=x", "last=10.45.0.2&to=x"]
    {
        assert!(request(&server, "POST", &format!("/slices/move?{bad}")).0.contains("400"), "{bad}");
    }
    let path = "/slices/move?seid=7&to=meters";
    assert!(send_request(&server, "POST", path, PAGE).0.contains("403"));
    assert!(request(&server, "GET", path).0.contains("405"));
}

#[test]
fn drain_needs_post_and_no_web_page() {
    let (server, _, _) = start();
    let (line, body) = request(&server, "POST", "/cluster/drain?host=3");
    assert!(line.contains("404") && body.contains("the controller"), "{line} {body}");
    assert!(request(&server, "POST", "/cluster/drain?host=x").0.contains("400"));
    assert!(request(&server, "GET", "/cluster/drain?host=3").0.contains("405"));
    assert!(send_request(&server, "POST", "/cluster/drain?host=3", PAGE).0.contains("403"));
}

#[test]
fn relocation_needs_post_and_no_web_page() {
    let (server, _, _) = start();
    let path = "/sessions/move?supi=imsi-999700000000001&to=edge";
    let (line, body) = request(&server, "POST", path);
    assert!(line.contains("404") && body.contains("a UPF without a core"), "{line} {body}");
    for bad in ["supi=me&to=edge", "supi=imsi-999700000000001", "to=edge", "supi=imsi-999700000000001&to=edge&x=1"] {
        assert!(request(&server, "POST", &format!("/sessions/move?{bad}")).0.contains("400"), "{bad}");
    }
    assert!(send_request(&server, "POST", path, PAGE).0.contains("403"));
    assert!(request(&server, "GET", path).0.contains("405"));
}

#[test]
fn page_is_public_and_has_its_policy() {
    let (server, _, metrics) = start();
    let get = |path: &str, host: &str| {
        let mut stream = server.tcp();
        let site = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n{site}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for (path, content_type) in [("/", "text/html"), ("/app.js", "text/javascript"), ("/app.css", "text/css")] {
        let answer = get(path, "127.0.0.1").to_lowercase();
        assert!(answer.starts_with("http/1.1 200 "), "{path}: {answer}");
        assert!(answer.contains(&format!("content-type: {content_type}")), "{path}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';";
        assert!(answer.contains(policy) && answer.contains("frame-ancestors 'none'"), "{path}");
        assert!(answer.contains("x-content-type-options: nosniff") && answer.contains("cache-control: no-cache"));
        assert!(!answer.contains("access-control-allow-origin"), "{path}");
    }
    assert!(get("/", "evil.example").starts_with("HTTP/1.1 421 "));
    assert!(metrics.render().contains("vireo_api_refused_requests_total{reason=\"host\"} 1"));
    // A link of another page leads to the page, and to nothing else.
    assert!(get("/status", "127.0.0.1").starts_with("HTTP/1.1 403 "));
}
