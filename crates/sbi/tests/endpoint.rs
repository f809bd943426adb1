//! Tests of two endpoints, with errors between them.

use bytes::Bytes;
use hyper::client::conn::http2::SendRequest;
use hyper::header::CONTENT_TYPE;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::smf::{Operation, SM_CONTEXTS, SmContextReleaseData};
use vireo_sbi::{
    Client, ClientError, Encoding, Endpoint, IncomingRequest, Message, Outgoing, PartContent, Reply, Settings, grpc,
};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn settings() -> Settings {
    settings_in(Encoding::Json)
}

fn settings_in(encoding: Encoding) -> Settings {
    let timeout = Duration::from_millis(400);
    Settings { listen: LOCAL, agent: "AMF".into(), timeout, attempts: 3, nonce: 7, encoding, tls: None }
}

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Grpc];

/// Returns a path and a message that both encodings support.
fn release() -> (String, Message) {
    (Operation::Release.uri(&format!("{SM_CONTEXTS}/x")), Message::new(SmContextReleaseData::default()))
}

fn request(client: &Client, uri: String, message: Message, lane: u64) -> Receiver<Result<Reply, ClientError>> {
    request_any(client, (uri, Vec::new()), message, lane)
}

fn request_any(
    client: &Client,
    (uri, fallbacks): (String, Vec<String>),
    message: Message,
    lane: u64,
) -> Receiver<Result<Reply, ClientError>> {
    let (sender, receiver) = sync_channel(1);
    let done = Box::new(move |result| drop(sender.send(result)));
    client.send(Outgoing { uri, fallbacks, message, key: None, lane, withdrawn: None, done });
    receiver
}

fn soon<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(5)).expect("an answer")
}

fn json() -> Message {
    Message::from_json(b"{}".to_vec())
}

#[test]
fn multipart_request_gets_multipart_response() {
    let server = Endpoint::start(settings(), |call: IncomingRequest| {
        let reply = Reply { status: 201, location: Some(call.path), message: call.message };
        call.reply.send(reply);
    });
    let server = server.unwrap();
    let client = Endpoint::start(settings(), |_| {}).unwrap().client();
    // The client's endpoint has stopped, so it sends no requests.
    assert_eq!(soon(&request(&client, "http://x/".into(), json(), 1)), Err(ClientError::Full));

    let endpoint = Endpoint::start(settings(), |_| {}).unwrap();
    let message = json().with("n1", PartContent::Nas, vec![0x2e, 0, 1]).with("n2", PartContent::Ngap, vec![0; 60_000]);
    let uri = format!("http://{}/a/b", server.address());
    let reply = soon(&request(&endpoint.client(), uri, message.clone(), 1)).unwrap();
    assert_eq!(reply, Reply { status: 201, location: Some("/a/b".into()), message });
    let bad = soon(&request(&endpoint.client(), "ftp://x/".into(), json(), 1));
    assert_eq!(bad, Err(ClientError::Address("ftp://x/".into())));
}

#[test]
fn unanswered_request_is_retried_and_done_once() {
    ENCODINGS.into_iter().for_each(retries_and_executes_once);
}

fn retries_and_executes_once(encoding: Encoding) {
    let (path, message) = release();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&calls);
    let patient = Settings { timeout: Duration::from_secs(5), ..settings_in(encoding) };
    let server = Endpoint::start(patient, move |call: IncomingRequest| {
        kept.lock().unwrap().push(call);
    });
    let server = server.unwrap();
    let client = Endpoint::start(settings_in(encoding), |_| {}).unwrap();
    let answer = request(&client.client(), format!("http://{}{path}", server.address()), message, 1);
    // Longer than the client's timeout: the client has repeated the request.
    std::thread::sleep(Duration::from_millis(600));
    let mut calls = std::mem::take(&mut *calls.lock().unwrap());
    assert_eq!(calls.len(), 1, "the repeat is known by its key");
    calls.pop().unwrap().reply.send(Reply::done());
    assert_eq!(soon(&answer), Ok(Reply::done()));
}

#[test]
fn requests_of_one_lane_are_sequential() {
    let (seen, calls) = sync_channel(8);
    let server = Endpoint::start(settings(), move |call| drop(seen.send(call))).unwrap();
    let client = Endpoint::start(settings(), |_| {}).unwrap();
    let uri = |path: &str| format!("http://{}/{path}", server.address());
    let answers = [("1", 1), ("2", 1), ("3", 2)].map(|(path, lane)| request(&client.client(), uri(path), json(), lane));
    let mut first = [soon(&calls), soon(&calls)];
    first.sort_by_key(|call| call.path.clone());
    assert_eq!(first.each_ref().map(|call| call.path.as_str()), ["/1", "/3"]);
    assert!(calls.recv_timeout(Duration::from_millis(50)).is_err(), "the second waits for the first");
    first.into_iter().for_each(|call| call.reply.send(Reply::done()));
    let second = soon(&calls);
    assert_eq!(second.path, "/2");
    second.reply.send(Reply::problem(&ProblemDetails::new(404, "CONTEXT_NOT_FOUND", "")));
    let [one, two, three] = answers.each_ref().map(soon);
    assert_eq!((one, three), (Ok(Reply::done()), Ok(Reply::done())));
    let problem: ProblemDetails = two.unwrap().message.value().unwrap();
    assert_eq!(problem.cause.as_deref(), Some("CONTEXT_NOT_FOUND"));
}

#[test]
fn late_peer_is_reached_and_absent_reported() {
    let client = Endpoint::start(settings(), |_| {}).unwrap();
    let address = TcpListener::bind(LOCAL).unwrap().local_addr().unwrap();
    let silent = request(&client.client(), format!("http://{address}/x"), json(), 1);
    assert!(matches!(soon(&silent), Err(ClientError::Silent(_))));
    let late = request(&client.client(), format!("http://{address}/x"), json(), 1);
    std::thread::sleep(Duration::from_millis(30));
    let settings = Settings { listen: address, ..settings() };
    let server = Endpoint::start(settings.clone(), |call| call.reply.send(Reply::done())).unwrap();
    assert_eq!(soon(&late), Ok(Reply::done()));
    // The server restarts: the client reconnects.
    drop(server);
    let _server = Endpoint::start(settings, |call| call.reply.send(Reply::done())).unwrap();
    assert_eq!(soon(&request(&client.client(), format!("http://{address}/x"), json(), 1)), Ok(Reply::done()));
}

#[test]
fn silent_connections_keep_no_peer_away() {
    let server = Endpoint::start(settings(), |call| call.reply.send(Reply::done())).unwrap();
    let (uri, client) = (format!("http://{}/x", server.address()), Endpoint::start(settings(), |_| {}).unwrap());
    assert_eq!(soon(&request(&client.client(), uri.clone(), json(), 1)), Ok(Reply::done()));
    // More than there may be.
    let silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let other = Endpoint::start(settings(), |_| {}).unwrap();
    assert_eq!(soon(&request(&other.client(), uri.clone(), json(), 1)), Ok(Reply::done()), "a new peer");
    assert_eq!(soon(&request(&client.client(), uri, json(), 1)), Ok(Reply::done()), "a known peer");
    drop(silent);
}

/// Body with one frame that does not end.
struct EndlessBody(Option<Bytes>);

impl hyper::body::Body for EndlessBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |octets| Poll::Ready(Some(Ok(hyper::body::Frame::data(octets)))))
    }
}

/// Sends `count` requests with endless bodies of `octets` octets on one connection. Returns their
/// HTTP and gRPC statuses.
fn endless_requests(address: SocketAddr, encoding: Encoding, count: usize, octets: usize) -> Vec<(u16, String)> {
    let media_type = if encoding == Encoding::Grpc { "application/grpc" } else { "application/json" };
    let path = if encoding == Encoding::Grpc { grpc::Method::ReleaseSmContext.path() } else { "/x" };
    let request = || {
        let request = hyper::Request::post(format!("http://{address}{path}")).header(CONTENT_TYPE, media_type);
        request.body(EndlessBody(Some(vec![0; octets].into()))).unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = TokioIo::new(tokio::net::TcpStream::connect(address).await.unwrap());
        let (sender, driver) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(driver);
        let answer = |mut sender: SendRequest<EndlessBody>, request| async move {
            let answer = sender.send_request(request).await.unwrap();
            let status = answer.headers().get("grpc-status").map_or("", |status| status.to_str().unwrap());
            (answer.status().as_u16(), status.to_owned())
        };
        let mut answers = tokio::task::JoinSet::new();
        (0..count).for_each(|_| drop(answers.spawn(answer(sender.clone(), request()))));
        tokio::time::timeout(Duration::from_secs(20), answers.join_all()).await.expect("answers")
    })
}

#[test]
fn endless_bodies_are_limited() {
    for encoding in ENCODINGS {
        // Longer than the bodies take to arrive on a loaded machine.
        let settings = Settings { timeout: Duration::from_secs(3), ..settings_in(encoding) };
        let server = Endpoint::start(settings, |call| call.reply.send(Reply::done())).unwrap();
        let answers = endless_requests(server.address(), encoding, 30, 190 * 1024);
        let count = |http, grpc: &str| answers.iter().filter(|answer| **answer == (http, grpc.to_owned())).count();
        // 21 bodies have less than 4 MiB.
        let counts = match encoding {
            Encoding::Json => (count(408, ""), count(503, "")),
            Encoding::Grpc => (count(200, "4"), count(200, "14")),
        };
        assert_eq!(counts, (21, 9), "{answers:?}");
        let client = Endpoint::start(settings_in(encoding), |_| {}).unwrap();
        let (path, message) = release();
        let uri = format!("http://{}{path}", server.address());
        assert_eq!(soon(&request(&client.client(), uri, message, 1)), Ok(Reply::done()));
    }
}

#[test]
fn unanswered_call_times_out() {
    use std::io::Write;
    let server = Endpoint::start(settings(), |call: IncomingRequest| match call.path.as_str() {
        "/drop" => drop(call),
        _ => call.reply.send(Reply::done()),
    });
    let server = server.unwrap();
    let mut stranger = TcpStream::connect(server.address()).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let client = Endpoint::start(settings(), |_| {}).unwrap();
    let of = |path: &str| format!("http://{}/{path}", server.address());
    let dropped = soon(&request(&client.client(), of("drop"), json(), 1)).unwrap();
    assert_eq!(dropped.status, 504);
    assert_eq!(soon(&request(&client.client(), of("x"), json(), 1)), Ok(Reply::done()));
}

/// Starts a peer that returns 404 to the first `times` requests.
fn forgetful(encoding: Encoding, times: u32) -> (Endpoint, Arc<Mutex<u32>>) {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let endpoint = Endpoint::start(settings_in(encoding), move |call: IncomingRequest| {
        let mut asked = count.lock().unwrap();
        *asked += 1;
        let unknown = Reply::problem(&ProblemDetails::new(404, "CONTEXT_NOT_FOUND", "x"));
        call.reply.send(if *asked > times { Reply::done() } else { unknown });
    });
    (endpoint.unwrap(), asked)
}

#[test]
fn peer_with_resource_is_found() {
    ENCODINGS.into_iter().for_each(the_one_is_found_that_knows_it);
}

fn the_one_is_found_that_knows_it(encoding: Encoding) {
    let (path, message) = release();
    let client = Endpoint::start(settings_in(encoding), |_| {}).unwrap();
    let forgetful = |times| forgetful(encoding, times);
    let root = |address: SocketAddr| format!("http://{address}");
    let ((one, asked_one), (other, asked_other)) = (forgetful(u32::MAX), forgetful(0));
    let of = (format!("{}{path}", root(one.address())), vec![root(other.address())]);
    assert_eq!(soon(&request_any(&client.client(), of, message.clone(), 1)), Ok(Reply::done()));
    assert_eq!((*asked_one.lock().unwrap(), *asked_other.lock().unwrap()), (1, 1));
    // All peers return 404.
    let ((one, _), (other, _)) = (forgetful(u32::MAX), forgetful(u32::MAX));
    let of = (format!("{}{path}", root(one.address())), vec![root(other.address())]);
    assert_eq!(soon(&request_any(&client.client(), of, message.clone(), 1)).unwrap().status, 404);

    // One peer is dead, and the other takes over its state during the test.
    let dead = TcpListener::bind(LOCAL).unwrap().local_addr().unwrap();
    let (heir, asked) = forgetful(2);
    let of = (format!("{}{path}", root(dead)), vec![root(heir.address())]);
    assert_eq!(soon(&request_any(&client.client(), of, message.clone(), 1)), Ok(Reply::done()));
    assert_eq!(*asked.lock().unwrap(), 3, "an answer that nothing was done is not kept for repeats");
}
