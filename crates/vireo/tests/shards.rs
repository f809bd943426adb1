//! A core with several shards (`pools.shards`), from an operator's view.
//!
//! No UE is lost with a shard, nothing of the core outlives it, and what is wrong is refused in one
//! sentence. The kernel tells which processes there are.

mod space;

use serde_json::Value;
use space::{Child, Space, VIREO};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);
const API: &str = "http://127.0.0.1:9090";
/// CAP_SYS_NICE, the only capability of a shard.
const SYS_NICE: u64 = 1 << 23;

/// A namespace with a configuration.
struct Core {
    space: Space,
    directory: tempfile::TempDir,
}

impl Core {
    /// `None` if root privileges are missing.
    fn new(more: &str) -> Option<Self> {
        let core = Core { space: Space::new()?, directory: tempfile::tempdir().unwrap() };
        let path = core.directory.path();
        let text = format!(
            "[subscribers]\ndatabase = \"{0}/subscribers.db\"\n[pools]\nworker-model = \"inline\"\nshards = 2\n\
             [state]\nues = 1000\nkey-file = \"{0}/state.key\"\n{more}",
            path.display()
        );
        fs::write(path.join("vireo.toml"), text).unwrap();
        Some(core)
    }

    fn config(&self) -> std::path::PathBuf {
        self.directory.path().join("vireo.toml")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(VIREO);
        command.args(["run", "--config"]).arg(self.config());
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Starts the core, and returns it when both shards serve.
    fn start(&self) -> Child {
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let mut child = self.space.start_logged(&mut self.command(), log);
        self.wait("two shards", &mut child, || self.serving().len() == 2);
        child
    }

    fn wait(&self, what: &str, child: &mut Child, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + WITHIN;
        while !is_so() {
            assert_eq!(child.try_wait().unwrap(), None, "the core ended: {}", self.log());
            assert!(Instant::now() < deadline, "{what}: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    fn status(&self) -> Option<Value> {
        let output = self.space.output(Command::new(VIREO).args(["status", "--json", "--api", API]));
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Returns the processes of shards that serve with all copies.
    fn serving(&self) -> Vec<u32> {
        let status = self.status().unwrap_or_default();
        let shards = status["shards"].as_array().cloned().unwrap_or_default();
        let serves = |shard: &&Value| shard["state"] == "serving" && shard["copied"] == true;
        shards.iter().filter(serves).filter_map(|shard| shard["pid"].as_u64()?.try_into().ok()).collect()
    }

    fn metrics(&self) -> String {
        let output = self.space.output(Command::new("curl").args(["-s", &format!("{API}/metrics")]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Returns true if a process exists and is no zombie.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn wait_for_ends(pids: &[u32]) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(Instant::now() < deadline, "a shard outlives its core: {pids:?}");
        sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// Returns the parent of shards: `nsenter` becomes the core itself.
fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap()
}

#[test]
fn no_shard_outlives_its_killed_core() {
    let Some(core) = Core::new("") else { return };
    let mut child = core.start();
    let shards = core.serving();
    assert!(shards.iter().all(|pid| parent(*pid) == child.id()), "they are its children");
    signal("KILL", child.id());
    child.wait().unwrap();
    wait_for_ends(&shards);
}

#[test]
fn sigterm_stops_all_shards() {
    let Some(core) = Core::new("") else { return };
    let mut child = core.start();
    let shards = core.serving();
    signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", core.log());
    wait_for_ends(&shards);
    assert!(!core.log().contains("ERROR"), "{}", core.log());
}

#[test]
fn ended_shard_is_replaced() {
    let Some(core) = Core::new("") else { return };
    let mut child = core.start();
    for name in ["KILL", "STOP", "TERM"] {
        let before = core.serving();
        signal(name, before[0]);
        core.wait(name, &mut child, || {
            let now = core.serving();
            now.len() == 2 && !now.contains(&before[0]) && now.contains(&before[1])
        });
        assert!(!is_alive(before[0]), "{name}: it was reaped");
    }
    let status = core.status().unwrap();
    let ends = status["shards"].as_array().unwrap().iter().filter_map(|shard| shard["ends"].as_u64()).sum::<u64>();
    assert_eq!(ends, 3, "{status}");
    let metrics = core.metrics();
    for series in
        ["vireo_shard_up{shard=\"1\"} 1", "vireo_ue_contexts{shard=\"0\"} 0", "vireo_shard_ends_total{shard=\"0\"}"]
    {
        assert!(metrics.contains(series), "{series}: {metrics}");
    }
    let text = core.space.output(Command::new(VIREO).args(["status", "--api", API]));
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("shard") && text.matches("serving").count() == 2, "{text}");
}

#[test]
fn hangup_reaches_all_shards() {
    let Some(core) = Core::new("[log]\nlevel = \"info\"\n") else { return };
    let mut child = core.start();
    let text = fs::read_to_string(core.config()).unwrap();
    fs::write(core.config(), format!("{text}[core]\ntacs = []\n")).unwrap();
    signal("HUP", child.id());
    core.wait("the refusal", &mut child, || core.log().contains("nothing is changed"));
    fs::write(core.config(), text.replace("\"info\"", "\"debug\"")).unwrap();
    signal("HUP", child.id());
    let applied = |shard: u8| {
        let line = |line: &&str| line.contains("the shard has applied") && line.ends_with(&format!("shard={shard}"));
        core.log().lines().filter(line).count()
    };
    core.wait("both shards", &mut child, || [0, 1].map(applied) == [1, 1]);
    // The file is wrong now. A new shard has the configuration that the others have.
    fs::write(core.config(), "wrong").unwrap();
    let first = core.status().unwrap()["shards"][0]["pid"].as_u64().unwrap();
    signal("KILL", first.try_into().unwrap());
    core.wait("the new shard", &mut child, || [0, 1].map(applied) == [2, 1]);
}

#[test]
fn shards_run_without_privileges() {
    let Some(core) = Core::new("") else { return };
    let _child = core.start();
    for pid in core.serving() {
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap();
            let field = |name: &str| {
                let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                value.unwrap_or_default().trim().to_owned()
            };
            let set = |name: &str| u64::from_str_radix(&field(name), 16).unwrap();
            assert_eq!(["CapInh", "CapBnd", "CapAmb"].map(set), [0; 3], "{status}");
            assert_eq!(set("CapEff") & !SYS_NICE, 0, "{status}");
            assert_eq!(set("CapPrm") & !SYS_NICE, 0, "{status}");
            assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"), "{status}");
        }
        let score =
            |pid: u32| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse::<i32>().unwrap();
        assert!(score(pid) > score(parent(pid)), "the core ends last");
    }
}

/// Checks that a command fails with one sentence, and leaves no process.
fn refused(output: &Output, expected: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(last.starts_with("vireo: ") && last.contains(expected), "{text}");
}

#[test]
fn port_in_use_leaves_nothing_started() {
    for (kind, port, expected) in [
        ("STREAM", 9090, "the API's address 127.0.0.1:9090 is in use"),
        ("DGRAM", 8805, "N4 does not start: 127.0.0.1:8805"),
    ] {
        let Some(core) = Core::new("") else { return };
        let bound = core.directory.path().join("bound");
        let code = format!(
            "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_{kind}); s.bind(('127.0.0.1', {port})); \
             s.listen() if '{kind}' == 'STREAM' else None; open('{}', 'w'); time.sleep(600)",
            bound.display()
        );
        let _holder = core.space.start(Command::new("python3").args(["-c", &code]));
        while !bound.exists() {
            sleep(Duration::from_millis(10));
        }
        refused(&core.space.output(&mut core.command()), expected);
        let shards = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let directory = core.space.directory();
            fs::read(process.path().join("cmdline")).is_ok_and(|line| line == b"vireo\0shard\0")
                && String::from_utf8_lossy(&environment).contains(&directory.display().to_string())
        });
        assert_eq!(shards.count(), 0, "no shard is left");
    }
}

#[test]
fn wrong_configuration_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let run = |role: &str, text: &str| {
        let path = directory.path().join("vireo.toml");
        fs::write(&path, text).unwrap();
        let mut command = Command::new(VIREO);
        command.args([role, "--config"]).arg(Path::new(&path)).output().unwrap()
    };
    let shards = "[pools]\nworker-model = \"inline\"\nshards = 2\n";
    refused(
        &run("run", &shards.replace("inline", "processes")),
        "write pools.worker-model = \"inline\", or shards = 1",
    );
    refused(&run("run", &shards.replace("= 2", "= 65")), "pools.shards: 1 to 64 is allowed");
    refused(&run("run", &format!("{shards}[cluster]\nhosts = 2\n")), "cluster.hosts: several shards");
    refused(&run("run", &format!("{shards}[state]\nkeep = true\n")), "state.keep: contexts of several shards");
    for role in ["host", "balancer", "controller", "amf", "smf"] {
        refused(&run(role, shards), "only `vireo run` starts shards");
    }
    let output = Command::new(VIREO).arg("shard").output().unwrap();
    refused(&output, "start the core with `vireo run`");
}

/// Runs a demo. Returns its report, or `None` if the system refuses a prerequisite.
fn demo(arguments: &[&str]) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let [json, log] = ["json", "log"].map(|name| directory.path().join(name));
    let mut command = Command::new(VIREO);
    command.arg("demo").args(arguments).arg("--json").arg(&json).arg("--core-log").arg(&log);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("vireo: this needs ") {
        eprintln!("skipped: {text}");
        return None;
    }
    let core = fs::read_to_string(log).unwrap_or_default();
    let last: Vec<&str> = core.lines().rev().take(60).collect();
    let all = format!("{}{text}{}", String::from_utf8_lossy(&output.stdout), last.join("\n"));
    assert!(output.status.success(), "{all}");
    Some(serde_json::from_slice(&fs::read(json).unwrap()).unwrap())
}

/// An unoptimised shard on a busy machine needs more than a second to start and to get the copies.
/// If the other one is killed before, both hosts of its UEs have failed.
#[test]
fn no_ue_is_lost_with_its_shard() {
    let kills = ["--kill-shard", "0.3/s"];
    let Some(report) = demo(&[&["--shards", "2", "--ues", "50", "--rate", "10"][..], &kills].concat()) else { return };
    for name in ["ues", "registered", "sessions", "echo_ok", "deregistered"] {
        assert_eq!(report[name], 50, "{name} in {report}");
    }
    assert_eq!((&report["lost"], &report["failures"]), (&Value::from(0), &Value::from(0)), "{report}");
    assert!(report["shard_kills"].as_u64().unwrap() > 0, "{report}");
}

/// Each shard is killed while it is at work, once its predecessor's UEs have all copies again.
/// `make crash-shards` kills far more.
#[test]
fn no_ue_is_lost_while_shards_are_killed() {
    let Some(report) = demo(&["--shards", "3", "--churn", "12", "--ues", "40"]) else { return };
    assert_eq!((report["events"].as_array().map(Vec::len), &report["lost"]), (Some(12), &0.into()), "{report}");
    assert_eq!((&report["echoes_lost"], &report["failed_procedures"]), (&0.into(), &0.into()), "{report}");
    assert!(report["shards_at_work"].as_u64().unwrap() > 0, "{report}");
}
