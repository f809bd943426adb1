//! Server processes that end with their tests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed on drop.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a process; `None` if its program is not installed.
    pub(crate) fn start(command: &mut Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok().map(Process)
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Process {
    /// Waits until the process has ended by itself.
    #[cfg(feature = "mongodb")]
    pub(crate) fn wait(mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition, up to 60 s, so that a slow machine does not matter.
pub(crate) fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !there() {
        assert!(Instant::now() < end, "{what}: it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a free port. With `bus`, the port 10,000 above it is free too, as a node of a Redis
/// Cluster needs it.
pub(crate) fn free_port(bus: bool) -> u16 {
    let mut held = Vec::new();
    loop {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        if !bus || (port < 55_000 && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 10_000)).is_ok()) {
            return port;
        }
        held.push(socket);
        assert!(held.len() < 1000, "no port is free");
    }
}

/// A redis-server without persistence.
#[derive(Debug)]
pub(crate) struct Redis {
    process: Process,
    pub(crate) port: u16,
}

impl Redis {
    /// Starts a server; `None` if it is not installed.
    pub(crate) fn start(port: u16, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        let process = Process::start(command.args(arguments));
        let Some(process) = process else {
            eprintln!("skipped: redis-server does not start; install the package redis-server");
            return None;
        };
        let server = Redis { process, port };
        until("redis-server's answer", || server.query("PING").is_ok_and(|answer| answer.starts_with("+PONG")));
        Some(server)
    }

    /// Starts a node of a cluster, which stores its node id in a directory.
    pub(crate) fn node(port: u16, directory: &Path) -> Self {
        let directory = directory.to_str().unwrap();
        let file = format!("nodes-{port}.conf");
        let cluster = ["--dir", directory, "--cluster-enabled", "yes", "--cluster-config-file", &file];
        // Long enough for a loaded machine: no unnecessary election must start.
        let arguments = [&cluster[..], &["--cluster-node-timeout", "2000"]].concat();
        Redis::start(port, &arguments).expect("redis-server is needed: run `make test-stores`, which installs it")
    }

    /// Returns the immediately available part of the answer to a command.
    pub(crate) fn query(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut answer = vec![0; 65_536];
        let length = stream.read(&mut answer)?;
        answer.truncate(length);
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }
}
