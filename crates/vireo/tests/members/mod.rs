//! A small cluster of processes in the network of the calling thread: a controller, a balancer, two
//! hosts and a UPF.
#![allow(dead_code, reason = "no test needs all of it")]

use crate::ports::{free_address, free_port};
use crate::space::{Child, VIREO};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const WITHIN: Duration = Duration::from_secs(30);
pub(crate) const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
pub(crate) const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
/// IMSI of the first subscriber of 100.
pub(crate) const IMSI: u64 = 999_700_000_000_001;
/// Address of the UPF, in the namespace of the test.
const UPF: &str = "127.0.2.1";

/// A process of the cluster. It is killed on drop.
pub(crate) struct Member {
    pub(crate) process: Child,
    pub(crate) api: SocketAddr,
    log: PathBuf,
    /// File of the API token, which all processes share.
    token: PathBuf,
}

impl Member {
    fn start(directory: &Path, (name, role): (&str, &str), variables: &[(&str, String)]) -> Self {
        let (api, log, token) = (free_address(), directory.join(name), directory.join("api.token"));
        let file = File::options().create(true).append(true).open(&log).expect("a log");
        let process = Command::new(VIREO)
            .args([role, "--config"])
            .arg(directory.join("vireo.toml"))
            .envs(variables.iter().map(|(name, value)| (*name, value)))
            .env("VIREO_API__LISTEN", api.to_string())
            .env("VIREO_API__SOCKET", "off")
            .env("VIREO_API__TOKEN_FILE", &token)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a descriptor"))
            .stderr(file)
            .spawn()
            .expect("it starts");
        let member = Member { process: Child::new(process), api, log, token };
        member.wait_for("the API", |member| TcpStream::connect(member.api).ok());
        member
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the status code and the body of a request with the token of the cluster.
    pub(crate) fn request(&self, method: &str, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.api).ok()?;
        let (host, token) = (self.api, fs::read_to_string(&self.token).unwrap_or_default());
        let token = token.trim();
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Returns the answer of a request that does not end, with the token of the cluster.
    pub(crate) fn stream(&self, path: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.api).expect("a connection");
        stream.set_read_timeout(Some(WITHIN)).expect("a time limit");
        let (host, token) = (self.api, fs::read_to_string(&self.token).unwrap_or_default());
        let token = token.trim();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n").expect("sent");
        BufReader::new(stream)
    }

    /// Returns the body of a successful request as JSON.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let (status, body) = self.request("GET", path)?;
        (status == 200).then(|| serde_json::from_str(&body).ok())?
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.process.id() as i32).expect("a process");
        kill_process(id, signal).expect("it is ours");
    }

    /// Waits for a value.
    pub(crate) fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + WITHIN;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processes of a cluster.
pub(crate) struct Members {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) controller: Member,
    pub(crate) balancer: Member,
    pub(crate) hosts: Vec<Member>,
    pub(crate) upf: Member,
    /// UDP port of SCTP at the balancer.
    udp: u16,
}

impl Members {
    /// Starts a cluster and waits until it serves. `more` is appended to the configuration.
    pub(crate) fn start(more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, database) = (directory.path(), directory.path().join("subscribers.db"));
        let (controller, udp) = (free_address(), free_port());
        let config = format!(
            "[n2]\ndriver = \"userspace-udp\"\nudp-port = {udp}\n[n4]\nlisten = \"127.0.1.1:8805\"\n\
             [upf]\nenabled = false\nn4 = \"{UPF}:8805\"\nn3 = [\"{UPF}\"]\nnat = false\nmax-sessions = 1000\n\
             [[external-upf]]\nname = \"edge\"\nn4 = \"{UPF}:8805\"\n\
             [cluster]\ncontroller = \"{controller}\"\nbalancer = \"{}\"\nhosts = 2\nmisses = 20\n\
             [replication]\nmode = \"hot\"\n[pools]\nkey = \"wildcard\"\nworkers = 1\nidle = 0\n\
             [subscribers]\ndatabase = \"{}\"\n[slice.default]\nsnssai = {{ sst = 1 }}\n{more}",
            free_address(),
            database.display(),
        );
        fs::write(path.join("vireo.toml"), config).expect("a configuration");
        let added = Command::new(VIREO)
            .args(["subscriber", "--database"])
            .arg(&database)
            .args(["add", "--imsi", &IMSI.to_string(), "--k", K, "--opc", OPC, "--count", "100"])
            .output()
            .expect("vireo subscriber runs");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let start = |name: &str, role: &str, variables: &[(&str, String)]| Member::start(path, (name, role), variables);
        let controller = start("controller", "controller", &[]);
        let balancer = start("balancer", "balancer", &[]);
        let upf = start("upf", "upf", &[("VIREO_UPF__ENABLED", "true".into())]);
        let hosts = (0..2).map(|n| start(&format!("host-{n}"), "host", &[])).collect();
        let members = Members { controller, balancer, hosts, upf, udp, directory };
        members.wait_for_hosts(2);
        members.upf.wait_for("an association", |upf| {
            let status = upf.get("/status?limit=0")?;
            (status["upfs"][0]["associated"] == true).then_some(())
        });
        members
    }

    /// Starts another host.
    pub(crate) fn add_host(&mut self, variables: &[(&str, String)]) {
        let name = format!("host-{}", self.hosts.len());
        self.hosts.push(Member::start(self.directory.path(), (&name, "host"), variables));
    }

    /// Waits until the cluster map has so many hosts with buckets.
    pub(crate) fn wait_for_hosts(&self, count: usize) {
        self.balancer.wait_for("hosts", |balancer| {
            let status = balancer.get("/status?limit=0")?;
            let hosts = status["hosts"].as_array()?.iter().filter(|host| host["buckets"].as_u64() > Some(0)).count();
            (hosts == count).then_some(())
        });
    }

    /// Starts an emulator of `ues` UEs from the subscriber `first` on.
    pub(crate) fn emulate(&self, scenario: &str, (first, ues): (u64, u64), words: &[&str]) -> Child {
        let log = File::create(self.directory.path().join(format!("{scenario}-{first}.emulator"))).expect("a file");
        let (udp, first, ues) = (self.udp.to_string(), (IMSI + first).to_string(), ues.to_string());
        let mut command = Command::new(VIREO);
        command.args(["emulate", "--core", "127.0.0.1", "--sctp", "userspace-udp", "--sctp-udp-peer-port", &udp]);
        command.args(["--scenario", scenario, "--ues", &ues, "--imsi", &first, "--k", K, "--opc", OPC]).args(words);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        Child::new(command.spawn().expect("vireo emulate runs"))
    }

    /// Returns the output of an emulator.
    pub(crate) fn output(&self, scenario: &str, first: u64) -> String {
        fs::read_to_string(self.directory.path().join(format!("{scenario}-{first}.emulator"))).unwrap_or_default()
    }

    pub(crate) fn logs(&self) -> String {
        let all = [&self.controller, &self.balancer, &self.upf].into_iter().chain(&self.hosts);
        all.map(|member| format!("-- {}\n{}", member.log.display(), member.log())).collect()
    }
}
