//! The log of a core whose standard error is full or closed, and under a flood of messages that each cause a line.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{PipeReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use vireo_sctp::{Config, Driver, Endpoint, Event, SendError};
use vireo_types::AssocId;

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");
const WITHIN: Duration = Duration::from_secs(60);
const PPID_NGAP: u32 = 60;
/// Unsolicited messages of each protocol.
const FLOOD: u64 = 50_000;

/// The octets that pycrate encodes of a message.
fn golden(name: &str) -> Vec<u8> {
    let golden = include_str!("../../../tests/witness/golden.txt");
    let line = golden.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a golden");
    hex::decode(line).expect("octets")
}

fn udp_port() -> u16 {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr()).expect("a port").port()
}

/// A core without a UPF. Dropped, it is killed.
struct Core {
    process: Child,
    api: SocketAddr,
    /// The UDP port that SCTP is in, and that of N4.
    n2: u16,
    n4: u16,
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Core {
    fn start(directory: &Path, log: &str, stderr: impl Into<Stdio>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a TCP port");
        let api = listener.local_addr().expect("an address");
        drop(listener);
        let (n2, n4) = (udp_port(), udp_port());
        let config = format!(
            "[n2]\ndriver = \"userspace-udp\"\nudp-port = {n2}\n[n4]\nlisten = \"127.0.0.1:{n4}\"\n[api]\nlisten = \"{api}\"\n\
             [upf]\nenabled = false\n[[external-upf]]\nn4 = \"127.0.0.1:{}\"\n[subscribers]\ndatabase = \"{}\"\n\
             [pools]\nkey = \"wildcard\"\nworkers = 1\nidle = 0\n[state]\nues = 1000\n[log]\n{log}\n",
            udp_port(),
            directory.join("subscribers.db").display(),
        );
        let path = directory.join("vireo.toml");
        fs::write(&path, config).expect("a configuration");
        let mut command = Command::new(VIREO);
        command.arg("run").arg("--config").arg(path).env_remove("RUST_LOG");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().expect("it starts");
        Core { process, api, n2, n4 }
    }

    fn metrics(&self) -> Option<String> {
        let mut stream = TcpStream::connect(self.api).ok()?;
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.api).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    fn metric(&self, name: &str) -> Option<f64> {
        self.metrics()?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Waits until a metric has at least this value.
    fn wait_for(&mut self, name: &str, least: f64) {
        let deadline = Instant::now() + WITHIN;
        loop {
            let value = self.metric(name);
            if value.is_some_and(|value| value >= least) {
                return;
            }
            assert_eq!(self.process.try_wait().expect("it is ours"), None, "the core has ended");
            assert!(Instant::now() < deadline, "{name} is {value:?}, not {least}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it in good order.
    fn end(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.process), Signal::TERM).expect("it is ours");
        let deadline = Instant::now() + WITHIN;
        loop {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A pipe that is full.
fn full() -> (PipeReader, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let writer = OwnedFd::from(writer);
    let flags = rustix::fs::fcntl_getfl(&writer).expect("its flags");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("non-blocking");
    while rustix::io::write(&writer, &[b'\n'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("blocking again");
    (reader, writer)
}

#[test]
fn full_standard_error_stops_no_core() {
    let directory = tempfile::tempdir().expect("a directory");
    let (reader, writer) = full();
    let mut core = Core::start(directory.path(), "level = \"trace\"\nlimit = false", writer);
    core.wait_for("process_cpu_seconds_total", 0.0);
    assert_eq!(core.end().code(), Some(0), "it ends though its last lines do not leave");
    drop(reader);
}

#[test]
fn closed_standard_error_is_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut core = Core::start(directory.path(), "limit = false", OwnedFd::from(writer));
    core.wait_for("vireo_log_lines_dropped_total{reason=\"output\"}", 1.0);
    assert_eq!(core.end().code(), Some(0));
}

/// A RAN node that has NG set up.
struct Node {
    endpoint: Box<dyn Endpoint>,
    assoc: AssocId,
}

impl Node {
    fn set_up(port: u16) -> Self {
        let driver = Driver::UserspaceUdp;
        let config = Config { driver, udp_local_port: 0, udp_remote_port: port, ..Config::default() };
        let mut endpoint = vireo_sctp::bind(&config).expect("an endpoint");
        let assoc = endpoint.connect((Ipv4Addr::LOCALHOST, 38412).into()).expect("an association");
        let mut node = Node { endpoint, assoc };
        node.until(|event| matches!(event, Event::Up { .. }));
        node.send(&golden("NGSetupRequest"));
        // NG SETUP RESPONSE.
        node.until(|event| matches!(event, Event::Message { data, .. } if data.starts_with(&[0x20, 21])));
        node
    }

    fn until(&mut self, is_it: impl Fn(&Event<'_>) -> bool) {
        let deadline = Instant::now() + WITHIN;
        let mut seen = false;
        while !seen {
            assert!(Instant::now() < deadline, "nothing comes");
            let poll = self.endpoint.poll(Some(Duration::from_millis(100)), &mut |event| seen |= is_it(&event));
            poll.expect("polled");
        }
    }

    fn send(&mut self, pdu: &[u8]) {
        while let Err(error) = self.endpoint.send(self.assoc, 0, PPID_NGAP, pdu) {
            assert!(matches!(error, SendError::Full), "{error}");
            self.endpoint.poll(Some(Duration::from_millis(10)), &mut |_| ()).expect("polled");
        }
    }
}

/// The number behind a field's name.
fn field(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(&format!(" {name}=")).expect("the field");
    rest.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn flood_of_messages_makes_few_lines_and_one_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let mut core = Core::start(directory.path(), "level = \"debug\"", File::create(&path).expect("a log"));
    core.wait_for("process_cpu_seconds_total", 0.0);
    let mut node = Node::set_up(core.n2);
    let began = Instant::now();
    let acknowledge = golden("AMFConfigurationUpdateAcknowledge");
    // An association setup response to nothing: version 1, type 6, length 4, sequence number 1.
    let (pfcp, response) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket"), [0x20, 6, 0, 4, 0, 0, 1, 0]);
    for _ in 0..FLOOD {
        node.send(&acknowledge);
        pfcp.send_to(&response, (Ipv4Addr::LOCALHOST, core.n4)).expect("sent");
    }
    let faults = |core: &Core| core.metric("vireo_faults_total{fault=\"ngap-semantic\"}").expect("it answers");
    while faults(&core) < FLOOD as f64 {
        node.endpoint.poll(Some(Duration::from_millis(10)), &mut |_| ()).expect("polled");
        assert!(began.elapsed() < WITHIN, "{} of {FLOOD}", faults(&core));
    }
    let suppressed = core.metric("vireo_log_lines_dropped_total{reason=\"rate\"}").expect("it answers");
    let periods = 1 + began.elapsed().as_secs() / 10;
    assert_eq!(core.end().code(), Some(0));
    let log = fs::read_to_string(&path).expect("a log");
    let lines = log.lines().count() as u64;
    assert!(lines < 200 * periods, "{lines} lines in {periods} periods: {}", &log[..log.len().min(4000)]);
    let of_node = log.lines().filter(|line| line.contains("a message was at fault"));
    let (counts, own): (Vec<&str>, Vec<&str>) = of_node.partition(|line| line.contains("log lines suppressed"));
    assert!(own.len() as u64 <= 5 * periods && counts.len() as u64 <= periods, "{own:#?}\n{counts:#?}");
    let counted: u64 = counts.iter().map(|line| field(line, "count")).sum();
    assert_eq!(counted + own.len() as u64, FLOOD, "every message is a line or counted\n{own:#?}\n{counts:#?}");
    assert!(suppressed >= counted as f64, "{suppressed}");
}
