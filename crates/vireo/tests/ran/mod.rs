//! A core without a UPF, and RAN nodes under the control of a test.
#![allow(dead_code, reason = "no test needs all of it")]

use crate::ports::{free_address, free_port};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use vireo_sctp::{Config, Driver, Endpoint, Event, SendError};
use vireo_types::AssocId;

pub(crate) const WITHIN: Duration = Duration::from_secs(60);
const VIREO: &str = env!("CARGO_BIN_EXE_vireo");
const PPID_NGAP: u32 = 60;

/// First octets of answers (TS 38.413 9.4.7).
pub(crate) const NG_SETUP_RESPONSE: [u8; 2] = [0x20, 21];
pub(crate) const NG_SETUP_FAILURE: [u8; 2] = [0x40, 21];
pub(crate) const UPDATE_ACKNOWLEDGE: [u8; 2] = [0x20, 35];
pub(crate) const UPDATE_FAILURE: [u8; 2] = [0x40, 35];

/// Returns pycrate's encoding of a message of gNB 0x102.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let golden = include_str!("../../../../tests/reference/golden.txt");
    let line = golden.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a golden");
    hex::decode(line).expect("octets")
}

/// Returns the message for another gNB.
pub(crate) fn with_gnb_id(name: &str, id: u8) -> Vec<u8> {
    let mut octets = golden(name);
    let own = [0x99, 0xf9, 0x07, 0x10, 0, 1];
    let at = octets.windows(own.len()).position(|window| window == own).expect("the gNB's identity");
    octets[at + own.len()] = id;
    octets
}

/// Running core; it is killed on drop.
pub(crate) struct Core {
    process: Child,
    api: SocketAddr,
    /// UDP port of SCTP, and that of N4.
    pub(crate) n2: u16,
    pub(crate) n4: u16,
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Core {
    /// Starts a core with these lines of `[n2]` and of `[log]`.
    pub(crate) fn start(directory: &Path, lines: (&str, &str), stderr: impl Into<Stdio>) -> Self {
        Core::start_with(directory, lines, stderr, &[])
    }

    /// Starts a core with these environment variables.
    pub(crate) fn start_with(
        directory: &Path,
        (n2_lines, log): (&str, &str),
        stderr: impl Into<Stdio>,
        environment: &[(&str, &str)],
    ) -> Self {
        let api = free_address();
        let (n2, n4) = (free_port(), free_port());
        let config = format!(
            "[n4]\nlisten = \"127.0.0.1:{n4}\"\n[api]\nlisten = \"{api}\"\n\
             [upf]\nenabled = false\n[[external-upf]]\nn4 = \"127.0.0.1:{}\"\n[subscribers]\ndatabase = \"{}\"\n\
             [pools]\nkey = \"wildcard\"\nworkers = 1\nidle = 0\n[state]\nues = 1000\n[log]\n{log}\n\
             [n2]\ndriver = \"userspace-udp\"\nudp-port = {n2}\n{n2_lines}\n",
            free_port(),
            directory.join("subscribers.db").display(),
        );
        let path = directory.join("vireo.toml");
        fs::write(&path, config).expect("a configuration");
        let mut command = Command::new(VIREO);
        command.arg("run").arg("--config").arg(path).env_remove("RUST_LOG").env("VIREO_STATE__KEEP", "false");
        command.envs(environment.iter().copied());
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

    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        self.metrics()?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Returns the number of refusals for a reason.
    pub(crate) fn refused(&self, reason: &str) -> f64 {
        self.metric(&format!("vireo_n2_refused_total{{reason=\"{reason}\"}}")).expect("it answers")
    }

    /// Waits until a metric has at least this value.
    pub(crate) fn wait_for(&mut self, name: &str, least: f64) {
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

    /// Waits until the core is up.
    pub(crate) fn wait(&mut self) {
        self.wait_for("process_cpu_seconds_total", 0.0);
    }

    /// Makes the core reload its configuration.
    pub(crate) fn reload(&self) {
        kill_process(Pid::from_child(&self.process), Signal::HUP).expect("it is ours");
    }

    /// Stops the core in order.
    pub(crate) fn end(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.process), Signal::TERM).expect("it is ours");
        self.exit_status()
    }

    /// Waits until the process has ended.
    pub(crate) fn exit_status(&mut self) -> ExitStatus {
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

/// RAN node with one association. A node that is not polled is silent, as if it were dead.
pub(crate) struct RanNode {
    endpoint: Box<dyn Endpoint>,
    assoc: AssocId,
    received: Vec<Vec<u8>>,
    is_up: bool,
    /// Reason for the end of its association, if it has ended.
    pub(crate) down: Option<&'static str>,
}

impl RanNode {
    /// Connects a node at 127.0.0.LAST to a core's UDP port. The node has no association if the
    /// core refuses it.
    pub(crate) fn connect(last: u8, core: u16) -> Self {
        let driver = Driver::UserspaceUdp;
        let addresses = vec![Ipv4Addr::new(127, 0, 0, last).into()];
        let config = Config { driver, addresses, udp_local_port: 0, udp_remote_port: core, ..Config::default() };
        let mut endpoint = vireo_sctp::bind(&config).expect("an endpoint");
        let assoc = endpoint.connect((Ipv4Addr::LOCALHOST, 38412).into()).expect("an association");
        let mut node = RanNode { endpoint, assoc, received: Vec::new(), is_up: false, down: None };
        node.wait_until("an association", |node| node.is_up || node.down.is_some());
        node
    }

    /// Connects a node and performs NG Setup.
    pub(crate) fn set_up(last: u8, core: u16) -> Self {
        let mut node = RanNode::connect(last, core);
        assert_eq!(node.request(&golden("NGSetupRequest")), NG_SETUP_RESPONSE);
        node
    }

    /// Connects a node and performs NG Setup as another gNB.
    pub(crate) fn set_up_as(last: u8, core: u16, id: u8) -> Self {
        let mut node = RanNode::connect(last, core);
        assert_eq!(node.request(&with_gnb_id("NGSetupRequest", id)), NG_SETUP_RESPONSE);
        node
    }

    /// Polls the node briefly. Returns the number of waiting messages of the core.
    pub(crate) fn poll_received(&mut self) -> usize {
        self.poll();
        self.received.len()
    }

    /// Polls the node briefly.
    pub(crate) fn poll(&mut self) {
        let (received, is_up, down) = (&mut self.received, &mut self.is_up, &mut self.down);
        let polled = self.endpoint.poll(Some(Duration::from_millis(5)), &mut |event| match event {
            Event::Up { .. } => *is_up = true,
            Event::Down { reason, .. } => *down = Some(reason),
            Event::Message { data, .. } => received.push(data.to_vec()),
            _ => {}
        });
        polled.expect("polled");
    }

    /// Polls the node until a condition is true.
    pub(crate) fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + WITHIN;
        while !condition(self) {
            assert!(Instant::now() < deadline, "not in time: {what}");
            self.poll();
        }
    }

    pub(crate) fn send(&mut self, pdu: &[u8]) {
        while let Err(error) = self.endpoint.send(self.assoc, 0, PPID_NGAP, pdu) {
            assert!(matches!(error, SendError::Full), "{error}");
            self.poll();
        }
    }

    /// Sends a message. Returns the first octets of the core's next message.
    pub(crate) fn request(&mut self, pdu: &[u8]) -> [u8; 2] {
        self.send(pdu);
        self.answer()
    }

    /// Returns the first octets of the core's next message.
    pub(crate) fn answer(&mut self) -> [u8; 2] {
        self.wait_until("an answer", |node| !node.received.is_empty() || node.down.is_some());
        assert!(!self.received.is_empty(), "no answer: {:?}", self.down);
        let pdu = self.received.remove(0);
        [pdu[0], pdu[1]]
    }
}
