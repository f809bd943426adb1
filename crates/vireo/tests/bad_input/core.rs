//! Core as a separate process: configured, started, watched and stopped.

use crate::ports::{free_address, free_port};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");
pub(crate) const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
pub(crate) const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
/// SCTP port of the core; it is inside UDP and thus does not collide.
pub(crate) const SCTP_PORT: u16 = 38412;

/// Running core. On drop it receives SIGTERM and must exit with 0 after any test.
pub(crate) struct Core {
    process: Child,
    directory: tempfile::TempDir,
    pub(crate) udp_port: u16,
    pub(crate) n4_port: u16,
    pub(crate) api: SocketAddr,
}

impl Core {
    /// Starts a core with an absent UPF and `subscribers` lab subscribers. SCTP over UDP needs no
    /// privileges. `more` has further lines of configuration.
    pub(crate) fn start(subscribers: u32, more: &str) -> Self {
        Core::start_with(subscribers, "", more)
    }

    /// As `start`, with further lines about N2.
    pub(crate) fn start_with(subscribers: u32, n2: &str, more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (udp_port, n4_port, upf_port) = (free_port(), free_port(), free_port());
        let api = free_address();
        let database = directory.path().join("subscribers.db");
        let config = format!(
            "[n2]\ndriver = \"userspace-udp\"\naddresses = [\"127.0.0.1\"]\nport = {SCTP_PORT}\nudp-port = {udp_port}\n{n2}\
             [n4]\nlisten = \"127.0.0.1:{n4_port}\"\n[upf]\nenabled = false\n[[external-upf]]\nn4 = \"127.0.0.1:{upf_port}\"\n[api]\nlisten = \"{api}\"\nsocket = \"off\"\ntoken-file = \"api.token\"\n\
             [subscribers]\ndatabase = \"{}\"\n[slice.default]\nsnssai = {{ sst = 1 }}\n{}{more}",
            database.display(),
            // Recordings for the witnesses are not ciphered.
            if std::env::var_os("VIREO_WITNESS_OUT").is_some() {
                "[core.security]\nciphering = [\"NEA0\"]\n"
            } else {
                ""
            },
        );
        let file = directory.path().join("vireo.toml");
        fs::write(&file, config).expect("a configuration file");
        provision(&database, subscribers);
        let log = fs::File::create(directory.path().join("log")).expect("a log file");
        let process = Command::new(VIREO)
            .args(["run", "--config"])
            .arg(&file)
            .current_dir(directory.path())
            .env("VIREO_STATE__KEEP", "false")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("the core starts");
        let mut core = Core { process, directory, udp_port, n4_port, api };
        core.wait_until_up();
        core
    }

    fn wait_until_up(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect_timeout(&self.api, Duration::from_millis(100)).is_err() {
            self.assert_alive();
            assert!(Instant::now() < deadline, "the core is not up after 30 s:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Fails with the log if the core has ended.
    pub(crate) fn assert_alive(&mut self) {
        let ended = self.process.try_wait().expect("the process can be asked");
        assert!(ended.is_none(), "the core has ended ({ended:?}):\n{}", self.log());
    }

    /// Returns the core's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Returns a number of the core's status.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let status = self.status();
        status["counts"][name].as_u64().unwrap_or_else(|| panic!("no count {name} in {status}"))
    }

    /// Returns the core's status.
    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.get("/status?limit=0")).expect("JSON")
    }

    /// Returns the value of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name} in {text}"))
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.api).expect("the API answers");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.api).expect("it can be asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        body.to_owned()
    }

    /// Waits until a number of the status is `wanted`.
    pub(crate) fn wait_for_count(&self, name: &str, wanted: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.count(name) != wanted {
            assert!(Instant::now() < deadline, "{name} is {} and not {wanted}", self.count(name));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the PID of the core.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the resident memory in bytes, from the kernel.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

fn provision(database: &Path, subscribers: u32) {
    let added = Command::new(VIREO)
        .args(["subscriber", "--database"])
        .arg(database)
        .args(["add", "--imsi", "999700000000001", "--k", K, "--opc", OPC, "--count", &subscribers.to_string()])
        .output()
        .expect("vireo subscriber runs");
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
}

impl Drop for Core {
    fn drop(&mut self) {
        // The child is not reaped yet, so the PID is still valid.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let deadline = Instant::now() + Duration::from_secs(10);
        let status = loop {
            match self.process.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                _ => break None,
            }
        };
        if status.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        if !std::thread::panicking() {
            assert!(status.is_some_and(|s| s.success()), "SIGTERM gave {status:?}:\n{}", self.log());
        } else {
            eprintln!("the core's log:\n{}", self.log());
        }
    }
}
