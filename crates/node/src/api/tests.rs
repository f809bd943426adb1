use super::*;
use crate::metrics::Procedure;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

/// Answers with what it was asked, so that a test sees both.
#[derive(Default)]
struct Source(Mutex<Vec<StatusFilter>>);

impl StatusSource for Source {
    fn deregister(&self, supi: vireo_types::Supi, again: bool) -> bool {
        again && supi.reveal() == "999700000000001"
    }

    fn status(&self, filter: &StatusFilter) -> Status {
        self.0.lock().unwrap().push(filter.clone());
        Status {
            version: "1".into(),
            counts: Counts { ues: 2, ..Counts::default() },
            ues: vec![UeStatus { supi: "imsi-99970**********".into(), ..UeStatus::default() }],
            ..Status::default()
        }
    }
}

fn start() -> (Server, Arc<Source>, Arc<Metrics>) {
    let (source, metrics) = (Arc::new(Source::default()), Arc::new(Metrics::new()));
    let server = Server::start("127.0.0.1:0".parse().unwrap(), source.clone(), metrics.clone()).unwrap();
    (server, source, metrics)
}

/// Status line and body of `GET path`, spoken by hand.
fn fetch(server: &Server, path: &str) -> (String, String) {
    ask(server, "GET", path)
}

fn ask(server: &Server, method: &str, path: &str) -> (String, String) {
    ask_with(server, method, path, "")
}

fn ask_with(server: &Server, method: &str, path: &str, header: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: vireo\r\n{header}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn status_is_json_and_the_filter_is_bounded() {
    let (server, source, _) = start();
    let (line, body) = fetch(&server, "/status?offset=5&limit=100000000&reveal_supi=true");
    assert_eq!(line, "HTTP/1.1 200 OK");
    let status: Status = serde_json::from_str(&body).unwrap();
    assert_eq!((status.counts.ues, status.ues.len()), (2, 1));
    assert_eq!(source.0.lock().unwrap()[0], StatusFilter { offset: 5, limit: 1000, reveal_supi: true });
    fetch(&server, "/status");
    assert_eq!(source.0.lock().unwrap()[1], StatusFilter { offset: 0, limit: 100, reveal_supi: false });
}

#[test]
fn bad_questions_are_refused() {
    let (server, source, _) = start();
    assert_eq!(fetch(&server, "/status?limit=many").0, "HTTP/1.1 400 Bad Request");
    assert_eq!(fetch(&server, "/status?who=me").0, "HTTP/1.1 400 Bad Request");
    assert_eq!(fetch(&server, "/nothing").0, "HTTP/1.1 404 Not Found");
    assert!(source.0.lock().unwrap().is_empty());
    assert_eq!(fetch(&server, "/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
}

#[test]
fn a_ue_is_deregistered_by_post_alone() {
    let (server, _, _) = start();
    let path = "/deregister?supi=imsi-999700000000001&again=true";
    assert_eq!(fetch(&server, path).0, "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(ask(&server, "POST", path).0, "HTTP/1.1 202 Accepted");
    assert_eq!(ask(&server, "POST", "/deregister?supi=999700000000002&again=true").0, "HTTP/1.1 404 Not Found");
    assert_eq!(ask(&server, "POST", "/deregister?supi=me").0, "HTTP/1.1 400 Bad Request");
    assert_eq!(ask(&server, "POST", "/deregister").0, "HTTP/1.1 400 Bad Request");
}

#[test]
fn metrics_are_prometheus_text() {
    let (server, _, metrics) = start();
    metrics.procedures.started(Procedure::NgSetup);
    let (line, body) = fetch(&server, "/metrics");
    assert_eq!(line, "HTTP/1.1 200 OK");
    assert!(body.lines().any(|l| l == r#"vireo_procedure_started_total{procedure="ng-setup"} 1"#), "{body}");
}

#[test]
fn an_address_in_use_is_said_in_one_sentence() {
    let (server, source, metrics) = start();
    let error = Server::start(server.address(), source.clone(), metrics.clone()).unwrap_err();
    assert!(matches!(error, ApiError::InUse(a) if a == server.address()), "{error}");
    let foreign = Server::start("192.0.2.1:0".parse().unwrap(), source, metrics).unwrap_err();
    assert!(matches!(foreign, ApiError::NotLocal(_)), "{foreign}");
}

/// Does what is possible at once, or when a child that another test has just forked has run its program: until then that has
/// copies of what was closed here.
fn soon<T, E: std::fmt::Debug>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let tried = std::iter::repeat_with(|| act().inspect_err(|_| std::thread::sleep(Duration::from_millis(20))));
    tried.take(100).find(Result::is_ok).expect("free again").expect("ok")
}

#[test]
fn dropping_ends_it_at_once() {
    let (server, _, _) = start();
    let address = server.address();
    let idle = TcpStream::connect(address).unwrap();
    let begun = std::time::Instant::now();
    drop(server);
    assert!(begun.elapsed() < Duration::from_secs(2));
    drop(idle);
    soon(|| TcpListener::bind(address));
}

#[test]
fn web_pages_change_nothing() {
    let (server, _, _) = start();
    let path = "/deregister?supi=imsi-999700000000001&again=true";
    assert_eq!(ask_with(&server, "POST", path, "Origin: http://example.org\r\n").0, "HTTP/1.1 403 Forbidden");
    assert_eq!(ask_with(&server, "POST", path, "").0, "HTTP/1.1 202 Accepted");
}

#[test]
fn users_are_moved_by_one_of_several_names_and_not_by_web_pages() {
    let (server, _, _) = start();
    let (line, body) = fetch(&server, "/slices");
    assert_eq!((line.as_str(), body.as_str()), ("HTTP/1.1 200 OK", r#"{"moved":0,"rebalanced":0,"slices":[]}"#));
    assert!(fetch(&server, "/slices?counts=maybe").0.contains("400"));
    for who in ["seid=7", "address=10.45.0.2", "address=10.45.0.2&last=10.45.0.9", "slice=phones&count=3"] {
        let (line, body) = ask(&server, "POST", &format!("/slices/move?{who}&to=meters&worker=0"));
        assert!(line.contains("404") && body.contains("data-workers"), "{who}: {line} {body}");
    }
    for bad in
        ["seid=7", "to=meters", "seid=7&slice=phones&to=x", "address=10.45.0.2&count=1&to=x", "last=10.45.0.2&to=x"]
    {
        assert!(ask(&server, "POST", &format!("/slices/move?{bad}")).0.contains("400"), "{bad}");
    }
    let path = "/slices/move?seid=7&to=meters";
    assert!(ask_with(&server, "POST", path, "Origin: http://example.org\r\n").0.contains("403"));
    assert!(ask(&server, "GET", path).0.contains("405"));
}

#[test]
fn hosts_leave_by_post_alone_and_not_for_web_pages() {
    let (server, _, _) = start();
    let (line, body) = ask(&server, "POST", "/cluster/drain?host=3");
    assert!(line.contains("404") && body.contains("the controller"), "{line} {body}");
    assert!(ask(&server, "POST", "/cluster/drain?host=x").0.contains("400"));
    assert!(ask(&server, "GET", "/cluster/drain?host=3").0.contains("405"));
    assert!(ask_with(&server, "POST", "/cluster/drain?host=3", "Origin: http://example.org\r\n").0.contains("403"));
}

#[test]
fn sessions_are_moved_between_upfs_by_post_alone_and_not_by_web_pages() {
    let (server, _, _) = start();
    let path = "/sessions/move?supi=imsi-999700000000001&to=edge";
    let (line, body) = ask(&server, "POST", path);
    assert!(line.contains("404") && body.contains("by the core that has them"), "{line} {body}");
    for bad in ["supi=me&to=edge", "supi=imsi-999700000000001", "to=edge", "supi=imsi-999700000000001&to=edge&x=1"] {
        assert!(ask(&server, "POST", &format!("/sessions/move?{bad}")).0.contains("400"), "{bad}");
    }
    assert!(ask_with(&server, "POST", path, "Origin: http://example.org\r\n").0.contains("403"));
    assert!(ask(&server, "GET", path).0.contains("405"));
}
