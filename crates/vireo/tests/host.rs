//! Hosts from a user's view, in every configuration of workers and state.
//!
//! Every UE is served, also while worker processes are killed and stopped.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");

/// Result of a demo.
struct Demo {
    success: bool,
    /// `None` if the system refuses a prerequisite of every demo; then there is nothing to test.
    report: Option<Value>,
    text: String,
    core: String,
}

/// Runs a demo with these arguments and its core with these variables. Calls `meanwhile` repeatedly
/// until the demo ends.
fn demo(arguments: &[&str], configuration: &[(&str, &str)], mut meanwhile: impl FnMut(&Child)) -> Demo {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let log = std::fs::File::create(path("log")).unwrap();
    let mut command = Command::new(VIREO);
    command.arg("demo").args(arguments).arg("--json").arg(path("json")).arg("--core-log").arg(path("core"));
    command.envs(configuration.iter().copied()).stdin(Stdio::null());
    let mut child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        meanwhile(&child);
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let (log, core) = (read(&path("log")), read(&path("core")));
    if log.contains("vireo: this needs ") {
        eprintln!("skipped: {}", log.trim());
        return Demo { success: true, report: None, text: log, core };
    }
    let report = serde_json::from_str(&read(&path("json"))).unwrap_or_default();
    let last: Vec<&str> = core.lines().rev().take(40).collect();
    let text = format!("{log}\n{}", last.join("\n"));
    Demo { success: status.success(), report: Some(report), text, core }
}

/// Checks that every UE completed its steps. Returns the number of workers that the demo killed.
fn check(demo: &Demo, ues: u64) -> Option<u64> {
    let report = demo.report.as_ref()?;
    assert!(demo.success, "{}", demo.text);
    for name in ["ues", "registered", "sessions", "echo_ok", "deregistered"] {
        assert_eq!(report[name], ues, "{name} in {report}");
    }
    assert_eq!((&report["lost"], &report["failures"]), (&Value::from(0), &Value::from(0)), "{report}");
    report["kills"].as_u64()
}

#[test]
fn no_ue_is_lost_with_its_worker() {
    let demo = demo(&["--ues", "50", "--rate", "25", "--kill-nf", "5/s"], &[], |_| {});
    assert!(check(&demo, 50).is_none_or(|kills| kills > 5), "{}", demo.text);
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

/// Returns the workers of a demo's core.
fn workers(demo: u32) -> Vec<u32> {
    workers_of(demo, b"nf-worker")
}

/// Returns the workers whose command line has this word.
fn workers_of(demo: u32, kind: &[u8]) -> Vec<u32> {
    let is_worker = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|octet| *octet == 0).any(|word| word == kind)
    };
    // Threads of the core start them, and the kernel lists children by thread.
    let tasks = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(move |task| {
            std::fs::read_to_string(format!("/proc/{pid}/task/{}/children", task.file_name().to_str()?)).ok()
        })
    };
    let of = |core: u32| {
        let texts: Vec<String> = tasks(core).collect();
        texts.iter().flat_map(|t| t.split_whitespace()).filter_map(|n| n.parse().ok()).collect::<Vec<u32>>()
    };
    children(demo).into_iter().flat_map(of).filter(is_worker).collect()
}

#[test]
fn no_ue_is_lost_when_its_worker_is_stopped() {
    const EVERY: Duration = Duration::from_millis(300);
    let (mut due, mut stopped, mut gone) = (None, Vec::new(), 0);
    let demo = demo(&["--ues", "50", "--rate", "25"], &[], |demo| {
        let all = workers(demo.id());
        let before = stopped.len();
        stopped.retain(|pid| all.contains(pid));
        gone += before - stopped.len();
        // Not before the first workers are up.
        let due = due.get_or_insert_with(|| Instant::now() + Duration::from_secs(1));
        if let Some(pid) = all.iter().find(|pid| !stopped.contains(*pid)).filter(|_| Instant::now() > *due) {
            *due += EVERY;
            // The process may have ended meanwhile.
            if Command::new("kill")
                .args(["-s", "STOP", &pid.to_string()])
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
            {
                stopped.push(*pid);
            }
        }
    });
    if check(&demo, 50).is_some() {
        assert!(gone > 2, "{gone} stopped workers were killed, {} still there: {}", stopped.len(), demo.text);
    }
}

/// Returns the kernel's status of a process (proc_pid_status(5), proc_pid_oom_score_adj(5)): its
/// privileges, if any.
fn privileges(pid: u32) -> Option<Vec<String>> {
    let read = |pid: u32, name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let status = read(pid, "status")?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let mut found: Vec<String> = sets
        .into_iter()
        .filter(|set| field(set).is_none_or(|set| !set.trim_matches('0').is_empty()))
        .map(|set| format!("{set} {:?}", field(set)))
        .collect();
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        found.extend((field(name) != Some(wanted)).then(|| format!("{name} {:?}", field(name))));
    }
    let score = |pid: u32| read(pid, "oom_score_adj")?.trim().parse::<i32>().ok();
    let (own, parent) = (score(pid)?, score(field("PPid")?.parse().ok()?)?);
    found.extend((own <= parent).then(|| format!("oom_score_adj {own} of {parent}")));
    // A thread has its own privileges.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    for task in tasks.filter_map(|task| task.file_name().to_str().map(String::from)) {
        let status = read(pid, &format!("task/{task}/status"))?;
        let is_bare =
            |line: &str| line.strip_prefix("CapPrm:").is_none_or(|set| set.trim().trim_matches('0').is_empty());
        let is_filtered = |line: &str| line.strip_prefix("Seccomp:").is_none_or(|mode| mode.trim() == "2");
        found.extend((!status.lines().all(is_bare)).then(|| format!("capabilities of thread {task}")));
        found.extend((!status.lines().all(is_filtered)).then(|| format!("no filter of thread {task}")));
    }
    Some(found)
}

/// Test of issue 25: a worker compromised by a message has no privileges.
#[test]
fn workers_run_without_privileges() {
    const KINDS: [&str; 2] = ["nf-worker", "data-worker"];
    let mut seen: BTreeMap<(&str, u32), (Instant, Duration, Vec<String>)> = BTreeMap::new();
    let demo = demo(&["--ues", "30", "--rate", "15", "--kill-data", "1/s"], &[], |demo| {
        for kind in KINDS {
            for pid in workers_of(demo.id(), kind.as_bytes()) {
                let since = seen.get(&(kind, pid)).map_or_else(Instant::now, |(since, ..)| *since);
                if let Some(left) = privileges(pid) {
                    seen.insert((kind, pid), (since, since.elapsed(), left));
                }
            }
        }
    });
    if check(&demo, 30).is_some() {
        // A process that was seen only briefly may not have dropped its privileges yet.
        let old = || seen.iter().filter(|(_, (_, age, _))| *age > Duration::from_millis(700));
        let has = |kind: &str| old().any(|((of, _), _)| *of == kind);
        assert!(KINDS.into_iter().all(has), "not all kinds of workers were seen: {}", demo.text);
        assert!(old().all(|(_, (.., left))| left.is_empty()), "privileges are left: {seen:?}");
        assert!(!demo.core.contains("seccomp filter refuses"), "{}", demo.core);
    }
}

#[test]
fn contexts_may_be_in_the_memory_of_workers() {
    check(&demo(&["--ues", "20", "--rate", "40"], &[("VIREO_STATE__LOCATION", "memory")], |_| {}), 20);
}

#[test]
fn one_nf_may_do_everything() {
    let configuration = [("VIREO_POOLS__KEY", "wildcard")];
    check(&demo(&["--ues", "20", "--rate", "40", "--kill-nf", "2/s"], &configuration, |_| {}), 20);
}

#[test]
fn each_nf_may_be_a_process() {
    let configuration = [("VIREO_POOLS__NFS_PER_WORKER", "1")];
    check(&demo(&["--ues", "20", "--rate", "40", "--kill-nf", "5/s"], &configuration, |_| {}), 20);
}

#[test]
fn host_may_run_the_steps_itself() {
    let configuration = [("VIREO_POOLS__WORKER_MODEL", "inline"), ("VIREO_SLICE__METERS__SNSSAI__SST", "3")];
    let demo = demo(&["--ues", "50", "--rate", "50"], &configuration, |demo| {
        assert!(workers(demo.id()).is_empty(), "no worker processes");
    });
    check(&demo, 50);
}

#[test]
fn there_may_be_several_slices() {
    let configuration = [("VIREO_SLICE__METERS__SNSSAI__SST", "3"), ("VIREO_SLICE__ALARMS__SNSSAI__SST", "4")];
    check(&demo(&["--ues", "20", "--rate", "40", "--kill-nf", "3/s"], &configuration, |_| {}), 20);
}

#[test]
fn rejected_ues_return_and_are_served() {
    let configuration = [
        // A message that waits for a millisecond is already too late.
        ("VIREO_OVERLOAD__WAIT", "10ms"),
        ("VIREO_OVERLOAD__REGISTRATIONS", "0.1"),
        ("VIREO_OVERLOAD__START", "0.1"),
        ("VIREO_OVERLOAD__STOP", "0.05"),
        ("VIREO_OVERLOAD__BACK_OFF", "2s"),
    ];
    let demo = demo(&["--ues", "300", "--rate", "10000"], &configuration, |_| {});
    if check(&demo, 300).is_some() {
        assert!(demo.core.contains("overload level changed"), "nobody was turned away: {}", demo.text);
    }
}
