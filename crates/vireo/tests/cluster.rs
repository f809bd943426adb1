//! Clusters of a controller, two balancers and two hosts, each a separate process.
//!
//! * First cluster, with certificates, and subscribers in PostgreSQL over mutual TLS: the
//!   controller dies and returns, a host joins and another is drained, a balancer and a host die.
//!   The others serve the UEs.
//! * The same cluster, whose database gets a certificate of another authority for a time.
//! * With a UPF: sessions and PFCP requests survive the death of the balancer that owns N4.
//! * Second cluster: its slice has no copies.
//! * Third cluster: one balancer is isolated from all other members, but not from RAN nodes.
//! * Fourth cluster: its only balancer is also the controller, and is killed and restarted.

mod database;
mod ports;
mod ran;
mod space;

use database::{Database, sign};
use ports::{free_address, free_port};
use ran::{NG_SETUP_FAILURE, NG_SETUP_RESPONSE, RanNode, golden};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use space::{Space, VIREO};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use vireo_pki::Authority;
use vireo_subscribers::testing::{PASSWORD, URL_PASSWORD};

const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
/// Label of procedures that have succeeded.
const SUCCESS: &str = "result=\"success\"";
/// IMSI of the first subscriber.
const FIRST: u64 = 999_700_000_000_001;
/// Number of UEs of each emulator run; every run uses other UEs.
const UES: u64 = 4;
const WITHIN: Duration = Duration::from_secs(30);
/// PFCP port. In a separate namespace each address can have a UPF on this port.
const PFCP_PORT: u16 = 8805;
const UPF: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 1);

/// Process of the cluster; it is killed on drop.
struct Part {
    process: Child,
    api: SocketAddr,
    log: PathBuf,
    /// Balancer: the UDP port of SCTP, and the address for hosts.
    udp: u16,
    fabric: Option<SocketAddr>,
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Part {
    /// Suspends the process (SIGSTOP).
    fn stop(&self) {
        kill_process(Pid::from_child(&self.process), Signal::STOP).expect("it is ours");
    }

    /// Waits until the process has exited with an error.
    fn wait_for_failure(&mut self) {
        let deadline = Instant::now() + WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                return assert_eq!(status.code(), Some(1), "{}", self.log());
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("it has not ended:\n{}", self.log());
    }

    fn kill(&mut self) {
        self.process.kill().expect("it is there");
        self.process.wait().expect("it ends");
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the logs of all processes of the cluster.
    fn all_logs(&self) -> String {
        let files = self.log.parent().and_then(|directory| fs::read_dir(directory).ok()).into_iter().flatten();
        let files = files.filter_map(|file| Some(file.ok()?.path()));
        let logs = files.filter(|file| file.extension().is_none() && file.is_file());
        logs.map(|file| format!("-- {}\n{}", file.display(), fs::read_to_string(&file).unwrap_or_default())).collect()
    }

    fn request(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.api).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.api).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.request("/status?limit=0")?).ok()
    }

    /// Returns the number of procedures of this host with a label (result or cause).
    fn procedures(&self, name: &str, end: &str) -> f64 {
        let metrics = self.request("/metrics").unwrap_or_default();
        let wanted = |line: &&str| {
            let has = |label: &str| line.contains(label);
            line.starts_with("vireo_procedures_completed_total") && has(&format!("procedure=\"{name}\"")) && has(end)
        };
        metrics.lines().filter(wanted).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Returns the bytes of copies sent to other hosts.
    fn copied_bytes(&self) -> f64 {
        let metrics = self.request("/metrics").expect("it answers");
        let copies = metrics.lines().filter(|line| line.starts_with("vireo_replication_sent_bytes_total"));
        copies.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Waits until a UPF's status satisfies a condition.
    fn wait_until(&self, expected: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + WITHIN;
        loop {
            let status = self.status().map(|status| status["upfs"][0].clone());
            if status.as_ref().is_some_and(&expected) {
                return;
            }
            assert!(Instant::now() < deadline, "{status:?}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of hosts and balancers, and the epoch of the cluster map.
    fn members(&self) -> Option<(usize, usize, u64)> {
        let status = self.status()?;
        let count = |name: &str| status[name].as_array().map_or(0, Vec::len);
        Some((count("hosts"), count("balancers"), status["hosts"][0]["epoch"].as_u64().unwrap_or(0)))
    }

    /// Waits until the controller knows the machines of two hosts.
    fn wait_for_machines(&self) {
        let deadline = Instant::now() + WITHIN;
        loop {
            let hosts = self.status().map(|status| status["hosts"].clone()).unwrap_or_default();
            let mut machines: Vec<_> =
                hosts.as_array().into_iter().flatten().map(|host| host["machine"].clone()).collect();
            machines.sort_by_key(Value::to_string);
            if machines == [machine(0), machine(1)] {
                return;
            }
            assert!(Instant::now() < deadline, "{hosts}\n{}", self.all_logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for these numbers of hosts and balancers. Returns the epoch.
    fn wait_for(&self, hosts: usize, balancers: usize) -> u64 {
        let deadline = Instant::now() + WITHIN;
        loop {
            let members = self.members();
            if let Some((_, _, epoch)) = members.filter(|(h, b, _)| (*h, *b) == (hosts, balancers)) {
                return epoch;
            }
            assert!(Instant::now() < deadline, "{members:?}, not {hosts} and {balancers}:\n{}", self.all_logs());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the machine label of a host.
fn machine(host: u8) -> String {
    format!("rack-{host}")
}

/// Kind of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Joining and leaving members, with TLS between them.
    Members,
    /// A UPF; the calling thread has a separate network.
    Upf,
    /// The first balancer is in another network. One link for N2 and one for the fabric join it to
    /// that of the calling thread.
    Apart,
}

/// Addresses of both ends of the links between two networks.
const N2: [&str; 2] = ["10.79.1.1", "10.79.1.2"];
const FABRIC: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];

/// Cluster with its processes.
struct Cluster {
    directory: tempfile::TempDir,
    /// Server of the subscribers; without it, they are in a file.
    database: Option<Database>,
    controller: Part,
    balancers: Vec<Part>,
    hosts: Vec<Part>,
    /// Number of emulator runs so far.
    runs: u64,
}

fn start(directory: &Path, name: &str, role: &str, variables: &[(&str, String)]) -> Part {
    let (api, log) = (free_address(), directory.join(name));
    let own = ["pem", "key"].map(|kind| directory.join(PKI).join(format!("{role}.{kind}")));
    let own = own.iter().zip(["CERTIFICATE", "KEY"]).filter(|(file, _)| file.exists());
    let own = own.map(|(file, key)| (format!("VIREO_CLUSTER__TLS__{key}"), file));
    let file = File::options().create(true).append(true).open(&log).expect("a log");
    let process = Command::new(VIREO)
        .args([role, "--config"])
        .arg(directory.join("vireo.toml"))
        .envs(own)
        .envs(variables.iter().map(|(name, value)| (*name, value)))
        .env("VIREO_API__LISTEN", api.to_string())
        .env("VIREO_API__SOCKET", "off")
        .env("VIREO_API__TOKEN_FILE", directory.join("api.token"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a descriptor"))
        .stderr(file)
        .spawn()
        .expect("it starts");
    Part { process, api, log, udp: 0, fabric: None }
}

/// Directory of the authority and the certificates of `vireo pki`.
const PKI: &str = "pki";

fn pki(directory: &Path, words: &[&str]) {
    let ran = Command::new(VIREO).arg("pki").args(words).arg("--directory").arg(directory).output();
    let ran = ran.expect("vireo pki runs");
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Creates an authority, and a certificate for each role, named after it.
fn issue_certificates(path: &Path) {
    let directory = path.join(PKI);
    pki(&directory, &["init"]);
    for role in ["controller", "balancer", "host", "smf"] {
        pki(&directory, &["issue", "--role", role, "--name", role]);
    }
}

/// Name of the file with the key of the subscribers.
const KEY: &str = "subscribers.key";

/// Adds 100 subscribers.
fn provision(database: &str, directory: &Path, first: u64) {
    let added = Command::new(VIREO)
        .args(["subscriber", "--database", database, "--key-file"])
        .arg(directory.join(KEY))
        .args(["add", "--imsi", &first.to_string(), "--k", K, "--opc", OPC, "--count", "100"])
        .output()
        .expect("vireo subscriber runs");
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
}

/// Returns the variables of a UPF in the calling thread's network.
fn upf_variables() -> [(&'static str, String); 5] {
    [
        ("VIREO_UPF__ENABLED", "true".to_owned()),
        ("VIREO_UPF__N4", format!("{UPF}:{PFCP_PORT}")),
        ("VIREO_UPF__N3", format!("[\"{UPF}\"]")),
        ("VIREO_UPF__NAT", "false".to_owned()),
        ("VIREO_UPF__MAX_SESSIONS", "1000".to_owned()),
    ]
}

impl Cluster {
    /// Starts a cluster. With [`Setting::Apart`] the first balancer is in another network.
    fn start(setting: Setting, apart: Option<&Space>) -> Self {
        let with_upf = setting == Setting::Upf;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let database = (setting == Setting::Members).then(|| Database::start(path));
        let location = match &database {
            Some(database) => database.url.clone(),
            None => path.join("subscribers.db").display().to_string(),
        };
        let upf: SocketAddr =
            if with_upf { (UPF, PFCP_PORT).into() } else { (Ipv4Addr::LOCALHOST, free_port()).into() };
        let tls = match setting {
            Setting::Upf => String::new(),
            // A separate network of the test.
            Setting::Apart => "insecure = true\n".to_owned(),
            Setting::Members => {
                issue_certificates(path);
                // For a host; the others get theirs later.
                let file = |name: &str| path.join(PKI).join(name);
                let [certificate, key, authorities] = ["host.pem", "host.key", "ca.pem"].map(file);
                format!("tls = {{ certificate = {certificate:?}, key = {key:?}, authorities = {authorities:?} }}\n")
            }
        };
        let mut controller = free_address();
        if setting == Setting::Apart {
            controller.set_ip(FABRIC[0].into());
        }
        let config = format!(
            "[n2]\ndriver = \"userspace-udp\"\n[n4]\nlisten = \"127.0.0.1:{}\"\n[upf]\nenabled = false\n\
             [[external-upf]]\nn4 = \"{upf}\"\n[cluster]\ncontroller = \"{controller}\"\nhosts = 2\n\
             misses = 20\n{tls}\
             [replication]\nmode = \"hot\"\n[pools]\nkey = \"wildcard\"\nworkers = 1\nidle = 0\n\
             [subscribers]\ndatabase = \"{location}\"\nkey-file = \"{}\"\n\
             [slice.default]\nsnssai = {{ sst = 1 }}\nreplicas = {}\n",
            free_port(),
            path.join(KEY).display(),
            // If no host dies, no replica is needed.
            if with_upf { 0 } else { 1 },
        );
        fs::write(path.join("vireo.toml"), config).expect("a configuration");
        provision(&location, path, FIRST);
        let controller = start(path, "controller", "controller", &[]);
        let udp = free_port();
        let balancers = (0..2).map(|n| {
            // Elsewhere a gNB finds both balancers at one port.
            let udp = if setting == Setting::Apart { udp } else { free_port() };
            let mut fabric = free_address();
            let isolated = apart.filter(|_| n == 0);
            if isolated.is_some() {
                fabric.set_ip(FABRIC[1].into());
            }
            let n4: SocketAddr = match with_upf {
                true => (Ipv4Addr::new(127, 0, 1, 1 + n), PFCP_PORT).into(),
                false => (Ipv4Addr::LOCALHOST, free_port()).into(),
            };
            let mut variables = vec![
                ("VIREO_N2__UDP_PORT", udp.to_string()),
                ("VIREO_N4__LISTEN", n4.to_string()),
                ("VIREO_CLUSTER__BALANCER", fabric.to_string()),
            ];
            if setting == Setting::Apart {
                let address = N2[if n == 0 { 1 } else { 0 }];
                variables.push(("VIREO_N2__ADDRESSES", format!("[\"{address}\"]")));
            }
            let start = || start(path, &format!("balancer-{n}"), "balancer", &variables);
            let mut part = match isolated {
                // Another thread enters its network.
                Some(space) => thread::scope(|scope| {
                    let started = scope.spawn(|| {
                        space.enter();
                        start()
                    });
                    started.join().expect("it starts")
                }),
                None => start(),
            };
            (part.udp, part.fabric) = (udp, Some(fabric));
            part
        });
        let balancers = balancers.collect();
        let host = |n: u8| start(path, &format!("host-{n}"), "host", &[("VIREO_CLUSTER__MACHINE", machine(n))]);
        let hosts = (0..2).map(host).collect();
        Cluster { directory, database, controller, balancers, hosts, runs: 0 }
    }

    /// Starts the UPF, which waits for a control plane.
    fn start_upf(&self) -> Part {
        start(self.directory.path(), "upf", "upf", &upf_variables())
    }

    /// Returns the balancer that owns N4.
    fn n4_balancer(&self) -> usize {
        let status = self.controller.status().expect("it answers");
        let holds = |balancer: &&Value| balancer["holds_n4"] == true;
        let n4_balancer = status["balancers"].as_array().and_then(|all| all.iter().find(holds)).expect("one does");
        let is_it = |part: &Part| part.fabric.is_some_and(|fabric| n4_balancer["address"] == fabric.to_string());
        self.balancers.iter().position(is_it).expect("it is one of ours")
    }

    /// Registers UEs through a balancer and deregisters them.
    fn assert_serves(&mut self, balancer: usize) {
        self.runs += 1;
        let (is_served, output) = self.register(balancer, self.runs - 1);
        assert!(is_served, "{output}\n{}", self.logs());
    }

    /// Has the UEs of a run register. Returns true if the core has served them, and the output.
    fn register(&self, balancer: usize, run: u64) -> (bool, String) {
        let emulated = self.emulator(balancer, run).output().expect("vireo emulate runs");
        let output = [emulated.stdout, emulated.stderr].concat();
        (emulated.status.success(), String::from_utf8_lossy(&output).into_owned())
    }

    fn emulator(&self, balancer: usize, run: u64) -> Command {
        let first = FIRST + run * UES;
        let udp = self.balancers[balancer].udp.to_string();
        let (ues, first) = (UES.to_string(), first.to_string());
        let mut command = Command::new(VIREO);
        command
            .args(["emulate", "--core", "127.0.0.1", "--sctp", "userspace-udp", "--sctp-udp-peer-port", &udp])
            .args(["--scenario", "register", "--ues", &ues, "--imsi", &first, "--k", K, "--opc", OPC]);
        command
    }

    /// Checks that a living RAN node keeps its identity at all balancers, and that a dead one loses
    /// it at all hosts.
    fn assert_identities_guarded(&self) {
        let [one, two] = [0, 1].map(|balancer: usize| self.balancers[balancer].udp);
        let mut first = RanNode::set_up(2, one);
        let mut second = RanNode::connect(3, two);
        second.send(&golden("NGSetupRequest"));
        while second.poll_received() == 0 {
            first.poll();
        }
        assert_eq!(second.answer(), NG_SETUP_FAILURE);
        self.wait_for_gnb_at("127.0.0.2");
        // From here on the node is silent.
        assert_eq!(second.request(&golden("NGSetupRequest")), NG_SETUP_RESPONSE, "{}", self.logs());
        self.wait_for_gnb_at("127.0.0.3");
        first.wait_until("its end", |node| node.down.is_some());
    }

    /// Waits until every host knows one gNB, at this address.
    fn wait_for_gnb_at(&self, address: &str) {
        let deadline = Instant::now() + WITHIN;
        let known = |host: &Part| {
            let gnbs = host.request("/status?limit=9")?;
            let gnbs = serde_json::from_str::<Value>(&gnbs).ok()?["gnbs"].clone();
            let [gnb] = &gnbs.as_array()?[..] else { return None };
            gnb["address"].as_str()?.starts_with(&format!("{address}:")).then_some(())
        };
        while !self.hosts.iter().all(|host| known(host).is_some()) {
            assert!(Instant::now() < deadline, "{address}\n{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that a host with a certificate of another authority or role, or with none, cannot
    /// join. A host without a key does not start.
    fn assert_strangers_refused(&self) {
        let path = self.directory.path();
        let other_authority = path.join("other-authority");
        pki(&other_authority, &["init"]);
        pki(&other_authority, &["issue", "--role", "host", "--name", "stranger"]);
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let with_files = |certificate: &Path, key: &Path| {
            let names = ["VIREO_CLUSTER__TLS__CERTIFICATE", "VIREO_CLUSTER__TLS__KEY"];
            [(names[0], text(certificate)), (names[1], text(key))]
        };
        let strange = with_files(&other_authority.join("stranger.pem"), &other_authority.join("stranger.key"));
        let stolen = with_files(&path.join(PKI).join("smf.pem"), &path.join(PKI).join("smf.key"));
        let plain = ["CERTIFICATE", "KEY", "AUTHORITIES"].map(|file| format!("VIREO_CLUSTER__TLS__{file}"));
        let plain = plain.each_ref().map(|name| (name.as_str(), String::new()));
        let keyless = [("VIREO_CLUSTER__TLS__KEY", text(&path.join("nothing.pem")))];
        let open = plain.iter().cloned().chain([("VIREO_CLUSTER__LISTEN", "0.0.0.0:0".to_owned())]);
        let open: Vec<(&str, String)> = open.collect();
        let hosts: [(&[(&str, String)], &str); 5] = [
            (&strange, "does not take this member's certificate"),
            (&stolen, "is for smf in cluster vireo, and this process is host"),
            (&plain, "set cluster.tls here as there"),
            (&open, "cluster.tls: other machines may reach 0.0.0.0:0, and nothing secures it"),
            (&keyless, "cluster.tls.key: "),
        ];
        for (variables, expected) in hosts {
            let mut host = start(path, "stranger", "host", variables);
            host.wait_for_failure();
            assert!(host.log().contains(expected), "{expected}\n{}", host.log());
        }
        let log = self.controller.log();
        assert_eq!(log.matches("fabric connection refused").count(), 1, "once for an address\n{log}");
        assert!(log.contains("none of cluster.tls.authorities"), "{log}");
    }

    /// Makes the controller drain a host, which then exits. The order of joining decides which
    /// process has the number.
    fn drain(&mut self, host: u16) {
        let api = format!("http://{}", self.controller.api);
        let drained = Command::new(VIREO)
            .args(["cluster", "--api", &api, "drain", &host.to_string(), "--token-file"])
            .arg(self.directory.path().join("api.token"))
            .output();
        let drained = drained.expect("vireo cluster runs");
        assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
        let deadline = Instant::now() + WITHIN;
        loop {
            let ended = self.hosts.iter_mut().position(|host| host.process.try_wait().expect("it is ours").is_some());
            if let Some(place) = ended {
                let status = self.hosts.remove(place).process.wait().expect("it has ended");
                return assert!(status.success(), "{status}\n{}", self.logs());
            }
            assert!(Instant::now() < deadline, "nobody has left:\n{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until each host has logged a text.
    fn wait_for_hosts_to_log(&self, text: &str) {
        let deadline = Instant::now() + WITHIN;
        while !self.hosts.iter().all(|host| host.log().contains(text)) {
            assert!(Instant::now() < deadline, "{text}\n{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn logs(&self) -> String {
        let parts = self.balancers.iter().chain(&self.hosts).chain([&self.controller]);
        parts.map(|part| format!("-- {}\n{}", part.log.display(), part.log())).collect()
    }
}

#[test]
fn ues_are_served_without_controller() {
    let mut cluster = Cluster::start(Setting::Members, None);
    let epoch = cluster.balancers.iter().map(|balancer| balancer.wait_for(2, 2)).max();
    cluster.controller.wait_for_machines();
    cluster.assert_serves(0);
    cluster.assert_serves(1);
    cluster.assert_identities_guarded();
    cluster.assert_strangers_refused();
    assert!(cluster.hosts.iter().map(Part::copied_bytes).sum::<f64>() > 0.0);

    cluster.controller.kill();
    cluster.assert_serves(0);
    cluster.assert_serves(1);
    cluster.controller = start(cluster.directory.path(), "controller", "controller", &[]);
    assert_eq!(Some(cluster.controller.wait_for(2, 2)), epoch, "it has learnt what there is, and nothing has changed");
    cluster.controller.wait_for_machines();

    // A host joins; a drained one migrates its UEs to the others and exits.
    cluster.hosts.push(start(cluster.directory.path(), "host-2", "host", &[]));
    cluster.balancers[1].wait_for(3, 2);
    cluster.assert_serves(0);
    cluster.drain(0);
    cluster.balancers[1].wait_for(2, 2);
    cluster.assert_serves(1);

    cluster.balancers[0].kill();
    cluster.balancers[1].wait_for(2, 1);
    cluster.assert_serves(1);

    cluster.hosts[0].kill();
    cluster.balancers[1].wait_for(1, 1);
    cluster.assert_serves(1);

    // All hosts have used one database: each has sequence numbers of its own there.
    let database = cluster.database.as_ref().expect("a server");
    let reserved = database.query("SELECT count(*) FROM sqn_reservations");
    assert!(reserved.parse().is_ok_and(|slots: u32| slots > 1), "{reserved}");
    // The server's own account of the connections.
    let connections = "SELECT DISTINCT version, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                       WHERE usename = 'vireo'";
    assert_eq!(database.query(connections), "TLSv1.3|/CN=database");
}

/// A database with the certificate of another authority is down: no host sends it anything.
/// Subscribers whose records are in memory are served.
#[test]
fn foreign_database_serves_no_subscriber() {
    let mut cluster = Cluster::start(Setting::Members, None);
    cluster.balancers[0].wait_for(2, 2);
    cluster.assert_serves(0);
    let foreign = sign(&Authority::new().expect("an authority"));
    cluster.database.as_mut().expect("a server").replace_certificate(&foreign);
    cluster.wait_for_hosts_to_log("is not secure: invalid peer certificate: UnknownIssuer; check sslmode");
    cluster.assert_serves(0);
    let new = 30;
    // The UEs would wait for T3346, and try again.
    let mut emulator = cluster.emulator(0, new).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let rejected = |host: &Part| host.procedures("registration", "cause=\"22\"");
    let deadline = Instant::now() + WITHIN;
    while cluster.hosts.iter().map(rejected).sum::<f64>() < UES as f64 {
        assert!(Instant::now() < deadline, "{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
    emulator.kill().expect("it is ours");
    emulator.wait().expect("it ends");
    let database = cluster.database.as_mut().expect("a server");
    assert_eq!(database.query("SELECT count(*) FROM pg_stat_activity WHERE usename = 'vireo'"), "0");

    let own = sign(&database.authority);
    database.replace_certificate(&own);
    cluster.wait_for_hosts_to_log("the subscriber database answers again");
    provision(&cluster.database.as_ref().expect("a server").url, cluster.directory.path(), FIRST + new * UES);
    let (is_served, output) = cluster.register(0, new);
    assert!(is_served, "{output}\n{}", cluster.logs());
    let logs = cluster.logs();
    assert!(!logs.contains(PASSWORD) && !logs.contains(URL_PASSWORD), "{logs}");
}

#[test]
fn sessions_survive_loss_of_n4_balancer() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.enter();
    let mut cluster = Cluster::start(Setting::Upf, None);
    let upf = cluster.start_upf();
    cluster.controller.wait_for(2, 2);
    upf.wait_until(|upf| upf["associated"] == true);
    let n4_balancer = cluster.n4_balancer();
    let other = &cluster.balancers[1 - n4_balancer];
    // UEs use the remaining balancer; throughout, their PFCP requests need the other one.
    let report = cluster.directory.path().join("report");
    let load = "emulate --core 127.0.0.1 --sctp userspace-udp --load service-request=1,session=1 --rate 100 --duration 2s \
                --retry never --timeout 3 --quiet";
    let mut emulator = Command::new(VIREO)
        .args(load.split_whitespace())
        .args(["--sctp-udp-peer-port", &other.udp.to_string(), "--ues", &UES.to_string(), "--json"])
        .arg(&report)
        .spawn()
        .expect("vireo emulate runs");
    upf.wait_until(|upf| upf["sessions"].as_u64() >= Some(UES));
    let requests = || cluster.hosts.iter().map(|host| host.procedures("service_request", SUCCESS)).sum::<f64>();
    let deadline = Instant::now() + WITHIN;
    while requests() < 20.0 {
        assert!(Instant::now() < deadline, "{}", cluster.logs());
        thread::sleep(Duration::from_millis(20));
    }
    // The stopped balancer neither forwards nor answers the last requests.
    cluster.balancers[n4_balancer].stop();
    thread::sleep(Duration::from_millis(100));
    cluster.balancers[n4_balancer].kill();
    let status = emulator.wait().expect("it is ours");
    let report = fs::read_to_string(&report).unwrap_or_default();
    assert!(status.success(), "{report}\n{}\n{}", upf.log(), cluster.logs());
    // No session exists twice, and sessions released after the takeover are gone.
    upf.wait_until(|upf| upf["sessions"] == UES);
    let log = cluster.balancers[1 - n4_balancer].log();
    assert!(log.contains("this balancer holds N4 takes_over=true"), "{log}");
    assert!(!log.contains("UPF restarted"), "{log}");
    assert!(cluster.hosts.iter().all(|host| host.copied_bytes() == 0.0), "the slice wants no copies");
    let resends_pfcp = |host: &Part| host.log().contains("resending unanswered PFCP requests");
    assert!(cluster.hosts.iter().any(resends_pfcp), "{}", cluster.logs());
}

#[test]
fn ues_continue_when_balancer_is_isolated() {
    let (Some(space), Some(apart)) = (Space::new(), Space::new()) else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.join("n2", &format!("{}/24", N2[0]), &apart, "n2", &format!("{}/24", N2[1]));
    space.join("fabric", &format!("{}/24", FABRIC[0]), &apart, "fabric", &format!("{}/24", FABRIC[1]));
    space.enter();
    let mut cluster = Cluster::start(Setting::Apart, Some(&apart));
    cluster.controller.wait_for(2, 2);
    // The gNB has an association with each balancer. UEs register over them and deregister after
    // some time.
    let report = cluster.directory.path().join("report");
    let load = "emulate --sctp userspace-udp --tnl-associations 2 --load registration=1 --dwell 3s \
                --rate 200 --duration 200ms --timeout 40 --quiet";
    let mut emulator = Command::new(VIREO)
        .args(load.split_whitespace())
        .args(["--core", N2[1], "--core", N2[0], "--sctp-udp-peer-port", &cluster.balancers[0].udp.to_string()])
        .args(["--ues", "40", "--k", K, "--opc", OPC, "--json"])
        .arg(&report)
        .spawn()
        .expect("vireo emulate runs");
    let registered =
        |host: &Part| host.status().and_then(|status| status["counts"]["registered"].as_u64()).unwrap_or(0);
    // On a slow machine some UEs may begin when the balancer is isolated, and have to retry.
    let deadline = Instant::now() + Duration::from_secs(2);
    while cluster.hosts.iter().map(registered).sum::<u64>() < 40 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    // RAN nodes still reach the first balancer.
    space.run("ip link set fabric down");
    let status = emulator.wait().expect("it is ours");
    let report = fs::read_to_string(&report).unwrap_or_default();
    assert!(status.success(), "{report}\n{}", cluster.logs());
    let log = cluster.balancers[0].log();
    assert!(log.contains("ending associations, other balancers continue"), "{log}");
    assert!(cluster.balancers[0].process.try_wait().expect("it is ours").is_none(), "it may be needed again:\n{log}");

    // When the balancer reaches the other members again, it learns that they have continued without
    // it.
    space.run("ip link set fabric up");
    cluster.balancers[0].wait_for_failure();
}

/// Cluster whose only balancer is also its controller.
struct Single {
    directory: tempfile::TempDir,
    udp: u16,
    balancer: Part,
    hosts: Vec<Part>,
    upf: Part,
}

impl Single {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, database) = (directory.path(), directory.path().join("subscribers.db"));
        let udp = free_port();
        let config = format!(
            "[n2]\ndriver = \"userspace-udp\"\nudp-port = {udp}\n[n4]\nlisten = \"127.0.1.1:{PFCP_PORT}\"\n\
             [upf]\nenabled = false\n[[external-upf]]\nn4 = \"{UPF}:{PFCP_PORT}\"\n\
             [cluster]\nbalancer = \"{}\"\nhosts = 2\nmisses = 20\n[replication]\nmode = \"hot\"\n\
             [pools]\nkey = \"wildcard\"\nworkers = 1\nidle = 0\n[subscribers]\ndatabase = \"{}\"\n\
             key-file = \"{}\"\n",
            free_address(),
            database.display(),
            path.join(KEY).display(),
        );
        fs::write(path.join("vireo.toml"), config).expect("a configuration");
        provision(&database.display().to_string(), path, FIRST);
        let balancer = start(path, "balancer", "balancer", &[]);
        let hosts = (0..2).map(|n| start(path, &format!("host-{n}"), "host", &[])).collect();
        let upf = start(path, "upf", "upf", &upf_variables());
        Single { directory, udp, balancer, hosts, upf }
    }

    fn logs(&self) -> String {
        let parts = self.hosts.iter().chain([&self.balancer, &self.upf]);
        parts.map(|part| format!("-- {}\n{}", part.log.display(), part.log())).collect()
    }

    /// Waits until the hosts together have completed this many procedures of a kind.
    fn wait_for(&self, procedure: &str, most: f64) {
        let deadline = Instant::now() + WITHIN;
        while self.hosts.iter().map(|host| host.procedures(procedure, SUCCESS)).sum::<f64>() < most {
            assert!(Instant::now() < deadline, "{procedure}: not {most}\n{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn registered(&self) -> u64 {
        let of = |host: &Part| host.status().and_then(|status| status["counts"]["registered"].as_u64()).unwrap_or(0);
        self.hosts.iter().map(of).sum()
    }
}

/// The successor has the same configuration and no stored state: it learns all state from the
/// hosts.
#[test]
fn only_balancer_killed_successor_keeps_contexts() {
    let (Some(space), Some(network)) = (Space::new(), Space::new()) else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    // The data network, whose packets page UEs.
    space.join("n6", "10.99.0.1/24", &network, "n6", "10.99.0.2/24");
    space.run("sysctl -q -w net.ipv4.ip_forward=1");
    network.run("ip route add 10.45.0.0/16 via 10.99.0.1");
    space.enter();
    let mut cluster = Single::start();
    let epoch = cluster.balancer.wait_for(2, 1);
    cluster.upf.wait_until(|upf| upf["associated"] == true);
    let mix = "[[profile]]\nname = \"idle\"\ndwell = \"100ms\"\nechoes = 1\n\
               procedures.service-request = { every = \"1s\" }\nprocedures.paging = { every = \"1s\" }\n";
    let (mix_file, report) = (cluster.directory.path().join("mix.toml"), cluster.directory.path().join("report"));
    fs::write(&mix_file, mix).expect("a mix");
    let load = "emulate --core 127.0.0.1 --sctp userspace-udp --echo-v4 10.99.0.2 --echo-tries 20 --retry 2s \
                --reattach 30s --duration 60s --timeout 30 --quiet";
    let mut emulator = Command::new(VIREO)
        .args(load.split_whitespace())
        .args(["--sctp-udp-peer-port", &cluster.udp.to_string(), "--ues", &UES.to_string(), "--json"])
        .args([report.as_path(), Path::new("--mix"), mix_file.as_path()])
        .spawn()
        .expect("vireo emulate runs");
    cluster.wait_for("service_request", 2.0 * UES as f64);
    cluster.wait_for("paging", UES as f64);

    cluster.balancer.kill();
    cluster.balancer = start(cluster.directory.path(), "balancer", "balancer", &[]);
    let next = cluster.balancer.wait_for(2, 1);
    assert!(next > epoch, "{next} is not after {epoch}");
    let done = |name| cluster.hosts.iter().map(|host| host.procedures(name, SUCCESS)).sum::<f64>();
    let [requests, pages] = ["service_request", "paging"].map(done);
    cluster.wait_for("service_request", requests + 3.0 * UES as f64);
    cluster.wait_for("paging", pages + 2.0 * UES as f64);
    for host in &cluster.hosts {
        let gnbs = host.request("/status?limit=9").and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let gnbs = gnbs.map(|status| status["gnbs"].clone()).unwrap_or_default();
        assert_eq!(gnbs.as_array().map(Vec::len), Some(1), "the gNB, which has set NG up anew: {gnbs}");
    }
    assert_eq!(cluster.registered(), UES);
    kill_process(Pid::from_child(&emulator), Signal::TERM).expect("it is ours");
    emulator.wait().expect("it is ours");
    let report = fs::read_to_string(&report).unwrap_or_default();
    let counts: Value = serde_json::from_str(&report).unwrap_or_default();
    let good = ["lost", "failed_procedures"].map(|name| counts[name] == 0) == [true; 2];
    assert!(good && counts["completed"] == counts["procedures"], "{report}\n{}", cluster.logs());
    assert!(cluster.hosts.iter_mut().all(|host| host.process.try_wait().expect("it is ours").is_none()));
}
