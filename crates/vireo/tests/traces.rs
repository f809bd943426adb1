//! Traces of a cluster of processes, as a collector of OTLP over HTTP receives them.

mod members;
mod ports;
mod space;

use members::Members;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use prost::Message;
use space::Space;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A span with the process and the part that recorded it.
#[derive(Clone, Debug)]
struct Received {
    process: String,
    part: String,
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    start: u64,
    end: u64,
}

/// A collector that keeps all spans.
struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    /// Listens in the network of the calling thread.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let spans = Arc::new(Mutex::new(Vec::new()));
        let all = spans.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| receive(stream, &all)));
        Collector { address, spans }
    }

    fn spans(&self) -> Vec<Received> {
        self.spans.lock().expect("no panic").clone()
    }
}

/// Receives a request and stores its spans.
fn receive(stream: TcpStream, all: &Mutex<Vec<Received>>) {
    let mut reader = BufReader::new(&stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).expect("a request");
    assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse().expect("a number"),
            Some(("Content-Type", value)) => assert_eq!(value, "application/x-protobuf"),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let request = ExportTraceServiceRequest::decode(&body[..]).expect("a message of OTLP");
    for resource in request.resource_spans {
        let attributes = resource.resource.expect("a resource").attributes;
        let process = attributes.into_iter().find(|attribute| attribute.key == "service.instance.id");
        let process = process.and_then(|attribute| attribute.value?.value);
        let Some(any_value::Value::StringValue(process)) = process else { panic!("no process") };
        for scope in resource.scope_spans {
            let part = scope.scope.expect("a scope").name;
            let spans = scope.spans.into_iter().map(|span| Received {
                process: process.clone(),
                part: part.clone(),
                trace: span.trace_id,
                id: span.span_id,
                parent: span.parent_span_id,
                name: span.name,
                start: span.start_time_unix_nano,
                end: span.end_time_unix_nano,
            });
            all.lock().expect("no panic").extend(spans);
        }
    }
    (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("answered");
}

/// Returns true if a trace goes from a step of a host by a request of the balancer to the UPF.
fn is_whole(spans: &[Received], upf: &Received) -> bool {
    let find = |id: &[u8], part: &str| spans.iter().find(|span| span.id == id && span.part == part);
    let request = find(&upf.parent, "vireo.balancer");
    let step = request.and_then(|request| find(&request.parent, "vireo.host"));
    let Some((request, step)) = request.zip(step) else { return false };
    let processes = BTreeSet::from([&upf.process, &request.process, &step.process]);
    let procedure = |span: &&Received| span.name == "session_establishment" && span.trace == upf.trace;
    processes.len() == 3
        && [request, step].iter().all(|span| span.trace == upf.trace)
        && request.start <= upf.start
        && upf.end <= request.end
        && spans.iter().any(|span| procedure(&span) && span.start <= request.start && request.end <= span.end)
}

#[test]
fn procedure_is_one_trace_of_three_processes() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.enter();
    let collector = Collector::start();
    let traces = format!("[traces]\ncollector = \"http://{}/v1/traces\"\nsample-ratio = 1.0\n", collector.address);
    let members = Members::start(&traces);
    let mut emulator = members.emulate("session", (0, 4), &[]);
    let status = emulator.wait().expect("it ends");
    assert!(status.success(), "{}\n{}", members.output("session", 0), members.logs());
    members.upf.wait_for("a trace of three processes", |_| {
        let spans = collector.spans();
        let is_session = |span: &&Received| span.part == "vireo.upf" && span.name == "PFCP session establishment";
        let sessions: Vec<_> = spans.iter().filter(is_session).collect();
        // A UE in a hundred or so crosses the end of its minute.
        let whole = sessions.iter().filter(|upf| is_whole(&spans, upf)).count();
        (sessions.len() >= 4 && whole >= 3).then_some(())
    });
    let spans = collector.spans();
    let ids: BTreeSet<_> = spans.iter().map(|span| (&span.trace, &span.id)).collect();
    assert_eq!(ids.len(), spans.len(), "each span has an ID of its own");
    assert!(spans.iter().all(|span| span.trace.len() == 16 && span.id.len() == 8 && span.start <= span.end));
    for name in ["registration", "step", "message from RAN node", "message to RAN node"] {
        assert!(spans.iter().any(|span| span.name == name), "{name}");
    }
    let metrics = members.upf.request("GET", "/metrics").expect("it answers").1;
    assert!(metrics.contains("vireo_trace_spans_total{result=\"dropped\"} 0\n"), "{metrics}");
}
