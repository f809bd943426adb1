//! Restart of a core whose processes were all killed (`state.keep`).
//!
//! Its UEs stay registered.
//!
//! The emulator's UEs and gNBs verify this. A UE accepts no downlink message with a used NAS COUNT,
//! and packets must arrive.

mod space;

use serde_json::Value;
use space::{Child, Space, VIREO};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
const UES: u64 = 6;
const WITHIN: Duration = Duration::from_secs(90);
/// Disables load shedding: on a busy machine an unoptimised core may be congested for a moment, and
/// a UE that it rejects waits for longer than the tests do.
const UNSHED: &str = "[overload]\nstart = 1.0\nregistrations = 1.0\nothers = 1.0\n";
const API: &str = "http://127.0.0.1:9091";

/// RAN, core and data network.
struct World {
    ran: Space,
    core: Space,
    dn: Space,
    /// In memory; the core's working directory.
    directory: tempfile::TempDir,
}

impl World {
    /// Creates the namespaces; `None` if root privileges are missing.
    fn new(tables: &str) -> Option<Self> {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let world = World { ran: Space::new()?, core: Space::new()?, dn: Space::new()?, directory };
        let World { ran, core, dn, directory } = &world;
        core.join("n2", "192.168.127.1/24", ran, "ran0", "192.168.127.2/24");
        core.join("n6", "192.168.128.1/24", dn, "dn0", "192.168.128.2/24");
        dn.run("ip route add 10.45.0.0/16 via 192.168.128.1");
        core.run("sysctl -q -w net.ipv4.ip_forward=1");
        let path = directory.path();
        let text = format!(
            "[core]\nplmns = [\"99970\"]\ntacs = [1]\n[n2]\naddresses = [\"192.168.127.1\"]\n[slice.default]\nsnssai = {{ sst = 1 }}\n\
             [dnn.internet]\nipv4-pool = \"10.45.0.0/16\"\n[subscribers]\ndatabase = \"{0}/subscribers.db\"\n\
             [pools]\nkey = \"wildcard\"\nworkers = 1\nidle = 0\n{UNSHED}[api]\nlisten = \"127.0.0.1:9091\"\n\
             [state]\nues = 1000\nkeep-directory = \"{0}\"\nkey-file = \"{0}/state.key\"\n{tables}",
            path.display()
        );
        fs::write(path.join("vireo.toml"), text).unwrap();
        let mut add = Command::new(VIREO);
        add.args(["subscriber", "--database"]).arg(path.join("subscribers.db"));
        add.args(["add", "--imsi", "999700000000001", "--k", K, "--opc", OPC, "--count", &UES.to_string()]);
        let added = add.output().unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        Some(world)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Changes the configuration so that the host runs the steps itself.
    fn run_inline(&self) {
        let path = self.path().join("vireo.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("workers = 1\n", "worker-model = \"inline\"\n")).unwrap();
    }

    fn has_workers(&self) -> bool {
        !fs::read_to_string(self.path().join("vireo.toml")).unwrap().contains("inline")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(VIREO);
        command.args(["run", "--config"]).arg(self.path().join("vireo.toml"));
        command
    }

    /// Runs a core that does not start. Returns its last output.
    fn refused(&self) -> String {
        let output = self.core.output(&mut self.command());
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{words}");
        words.lines().last().unwrap_or_default().to_owned()
    }

    /// Starts a Redis without persistence whose socket is in the directory; `None` if it is not
    /// installed.
    fn start_redis(&self) -> Option<Child> {
        let (socket, log) = (self.redis(), File::create(self.path().join("redis.log")).unwrap());
        Command::new("redis-server").arg("--version").output().ok()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
        let mut redis = self.core.start_logged(&mut command, log);
        let deadline = Instant::now() + WITHIN;
        while UnixStream::connect(&socket).is_err() {
            assert_eq!(redis.try_wait().unwrap(), None, "Redis ended");
            assert!(Instant::now() < deadline, "Redis does not come up");
            sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    /// Adds a line to `[state]`.
    fn state(&mut self, lines: &str) {
        let path = self.path().join("vireo.toml");
        let text = fs::read_to_string(&path).unwrap().replace("[state]\n", &format!("[state]\n{lines}\n"));
        fs::write(path, text).unwrap();
    }

    /// Sets another record key for the next core.
    fn key(&mut self, name: &str) {
        let path = self.path().join("vireo.toml");
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("state.key", name)).unwrap();
    }

    fn redis(&self) -> PathBuf {
        self.path().join("redis.sock")
    }

    /// Starts the core and waits until it answers.
    fn start(&self) -> Child {
        let log = OpenOptions::new().create(true).append(true).open(self.path().join("log")).unwrap();
        let mut core = self.core.start_logged(&mut self.command(), log);
        let deadline = Instant::now() + WITHIN;
        while self.status().is_none() {
            assert_eq!(core.try_wait().unwrap(), None, "the core ended\n{}", self.log());
            assert!(Instant::now() < deadline, "the core does not come up\n{}", self.log());
            sleep(Duration::from_millis(50));
        }
        core
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    fn status(&self) -> Option<Value> {
        let output = self.core.output(Command::new(VIREO).args(["status", "--json", "--api", API]));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Returns the metrics of the core that are not 0.
    fn counters(&self) -> String {
        let metrics = self.core.output(Command::new("curl").args(["-s", &format!("{API}/metrics")]));
        let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
        let is_counted = |line: &&str| !line.starts_with('#') && !line.ends_with(" 0");
        metrics.lines().filter(is_counted).collect::<Vec<_>>().join("\n")
    }

    /// Ends an emulator. Returns its report, which counts resent echoes and failed procedures.
    fn end_emulator(&self, emulator: &mut Child) -> String {
        let pid = rustix::process::Pid::from_raw(emulator.id().cast_signed()).unwrap();
        // It may have ended before.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + WITHIN;
        while emulator.try_wait().unwrap().is_none() && Instant::now() < deadline {
            sleep(Duration::from_millis(50));
        }
        fs::read_to_string(self.path().join("emulator")).unwrap_or_default()
    }

    /// Waits until the core has these numbers of registered UEs, connected UEs and sessions.
    fn wait_for_counts(&self, emulator: &mut Child, wanted: [u64; 3]) -> Value {
        let deadline = Instant::now() + WITHIN;
        loop {
            let status = self.status().unwrap_or_default();
            let counts = ["registered", "connected", "sessions"].map(|name| status["counts"][name].as_u64());
            if counts == wanted.map(Some) {
                return status;
            }
            let ended = emulator.try_wait().unwrap();
            if ended.is_some() || Instant::now() >= deadline {
                let metrics = self.counters();
                panic!("{counts:?}, {ended:?}\n{}\n{metrics}\n{}", self.log(), self.end_emulator(emulator));
            }
            sleep(Duration::from_millis(50));
        }
    }
}

/// Returns the processes of a tree, the root first.
fn tree(root: u32) -> Vec<u32> {
    let children = fs::read_dir(format!("/proc/{root}/task")).into_iter().flatten().flatten().flat_map(|thread| {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    });
    let descendants: Vec<u32> = children.flat_map(tree).collect();
    [vec![root], descendants].concat()
}

/// Kills all processes of a core at once.
fn kill(mut core: Child, has_workers: bool) {
    let all = tree(core.id());
    assert_eq!(all.len() > 1, has_workers, "worker processes");
    for pid in &all {
        let pid = rustix::process::Pid::from_raw(*pid as i32).unwrap();
        // A worker may have ended with its parent.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    assert!(!core.wait().unwrap().success());
}

/// Kills the core while its UEs are idle, and restarts it. gNBs notice by their heartbeats, within
/// about 12 s, or 22 s if the first one gets no answer. UEs return because of paging, or by
/// themselves after `idle`.
fn check_continuation(world: &World, calls: bool, idle: Duration) {
    let core = world.start();
    let line = format!(
        "emulate --core 192.168.127.1 --scenario full --ues {UES} --gnbs 2 --window {UES} --idle {} --timeout 60 \
         --echo-v4 192.168.128.2",
        idle.as_millis()
    );
    let report = File::create(world.path().join("emulator")).unwrap();
    let mut emulator = world.ran.start_logged(Command::new(VIREO).args(line.split(' ')), report);
    let status = world.wait_for_counts(&mut emulator, [UES, 0, UES]);
    let mut addresses: Vec<String> = addresses(&status);
    if world.redis().exists() {
        // The core does not list UEs in a database: they have the first addresses of the pool.
        addresses = (0..2 * UES).map(|last| format!("10.45.0.{last}")).collect();
    } else {
        assert_eq!(addresses.len() as u64, UES, "{status}");
    }
    kill(core, world.has_workers());
    let _core = world.start();
    world.wait_for_counts(&mut emulator, [UES, 0, UES]);
    let log = world.log();
    assert!(log.contains(&format!("contexts of the last run resumed ues={UES} sessions={UES}")), "{log}");
    let deadline = Instant::now() + WITHIN;
    while !world.log().contains("sessions of kept contexts established again") {
        assert!(Instant::now() < deadline, "{}", world.log());
        sleep(Duration::from_millis(20));
    }
    while world.status().is_none_or(|status| status["counts"]["gnbs"] != 2) {
        assert!(Instant::now() < deadline, "{}", world.log());
        sleep(Duration::from_millis(50));
    }
    // Packets from the data network page them.
    for address in addresses.iter().filter(|_| calls) {
        world.dn.run_words(&["bash", "-c", &format!("echo > /dev/udp/{address}/9")]);
    }
    world.wait_for_counts(&mut emulator, [0, 0, 0]);
    let output = || fs::read_to_string(world.path().join("emulator")).unwrap();
    assert!(emulator.wait().unwrap().success(), "{}\n{}", output(), world.log());
    let metrics = world.core.output(Command::new("curl").args(["-s", &format!("{API}/metrics")]));
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    let succeeded = |procedure: &str| {
        let of = |line: &&str| line.contains(&format!("\"{procedure}\"")) && line.contains("succ");
        let lines = metrics.lines().filter(|line| line.starts_with("vireo_procedures_completed_total")).filter(of);
        lines.filter_map(|line| line.split(' ').next_back()?.parse::<f64>().ok()).sum::<f64>() as u64
    };
    assert_eq!(succeeded("paging"), if calls { UES } else { 0 }, "{metrics}");
    assert_eq!((succeeded("service_request"), succeeded("registration")), (UES, 0), "{metrics}");
}

/// Checks that only its owner may access the state file.
fn file_is_private(world: &World) {
    let kept = fs::read_dir(world.path())
        .unwrap()
        .flatten()
        .find(|file| file.file_name().to_string_lossy().contains("-kept-"));
    assert_eq!(kept.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

fn addresses(status: &Value) -> Vec<String> {
    let text = status.to_string();
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.').filter(|word| word.starts_with("10.45."));
    words.map(str::to_owned).collect()
}

#[test]
fn killed_core_keeps_its_ues() {
    match World::new("[upf]\nn3 = [\"192.168.127.1\"]\n") {
        Some(world) => {
            check_continuation(&world, false, Duration::from_secs(45));
            file_is_private(&world);
        }
        None => eprintln!("skipped: only root may make network namespaces here"),
    }
}

#[test]
fn killed_inline_core_keeps_its_ues() {
    let Some(world) = World::new("[upf]\nn3 = [\"192.168.127.1\"]\n") else {
        return eprintln!("skipped: only root may make network namespaces here");
    };
    world.run_inline();
    check_continuation(&world, true, Duration::from_secs(120));
}

#[test]
fn killed_core_with_upf_keeps_its_ues() {
    let tables =
        "[n4]\nlisten = \"127.0.0.1:8805\"\n[upf]\nenabled = false\n[[external-upf]]\nn4 = \"127.0.0.2:8805\"\n";
    let Some(world) = World::new(tables) else {
        return eprintln!("skipped: only root may make network namespaces here");
    };
    let config = world.path().join("upf.toml");
    let upf =
        "[upf]\nn4 = \"127.0.0.2:8805\"\nn3 = [\"192.168.127.1\"]\n[dnn.internet]\nipv4-pool = \"10.45.0.0/16\"\n";
    fs::write(&config, upf).unwrap();
    let _upf = world.core.start_upf(&config);
    check_continuation(&world, true, Duration::from_secs(120));
}

/// The same with contexts in Redis. A core without the record key does not change them.
#[test]
fn killed_core_resumes_from_redis() {
    let Some(mut world) = World::new("[upf]\nn3 = [\"192.168.127.1\"]\n") else {
        return eprintln!("skipped: only root may make network namespaces here");
    };
    let Some(redis) = world.start_redis() else { return eprintln!("skipped: no redis-server here") };
    world.state(&format!("keep = true\nlocation = \"redis\"\ndatabase = \"redis+unix://{}\"", world.redis().display()));
    check_continuation(&world, true, Duration::from_secs(120));
    world.key("another.key");
    let words = world.refused();
    assert!(words.contains("state.keep: the records are sealed with another key"), "{words}");
    drop(redis);
    let words = world.refused();
    assert!(words.contains("state.keep: the database of records is not there"), "{words}");
}

/// Other keys and invalid files do not end the core.
#[test]
fn core_with_another_key_begins_without_ues() {
    let Some(world) = World::new("[upf]\nenabled = false\n[[external-upf]]\nn4 = \"127.0.0.2:8805\"\n") else {
        return eprintln!("skipped: only root may make network namespaces here");
    };
    let core = world.start();
    let line = "emulate --core 192.168.127.1 --scenario register --ues 2 --quiet";
    assert!(world.ran.output(Command::new(VIREO).args(line.split(' '))).status.success(), "{}", world.log());
    let deadline = Instant::now() + WITHIN;
    while world.status().is_none_or(|status| status["counts"]["connected"] != 0) {
        assert!(Instant::now() < deadline, "{}", world.log());
        sleep(Duration::from_millis(50));
    }
    kill(core, true);
    fs::remove_file(world.path().join("state.key")).unwrap();
    let core = world.start();
    assert_eq!(world.status().unwrap()["counts"]["ues"], 0);
    assert!(world.log().contains("kept contexts dropped") && world.log().contains("other_key=2"), "{}", world.log());
    kill(core, true);
}
