//! `vireo demo` as a user runs it: that it succeeds, with and without root, and that it leaves nothing behind.

#[path = "../src/pki/authority.rs"]
mod authority;

use authority::{Authority, Files, NAME};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");

/// Whether the system refuses what every demo needs; then there is nothing to be tested here.
fn refused(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    let refused = text.contains("vireo: this needs ");
    if refused {
        eprintln!("skipped: {}", text.trim());
    }
    refused
}

/// Runs a demo of so many UEs, all in a second, with these arguments and checks it; its report, `None` where nothing can be tested.
fn report_of(ues: u64, arguments: &[&str]) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let number = ues.to_string();
    let mut command = Command::new(VIREO);
    command.args(["demo", "--ues", &number, "--rate", &number]).args(arguments);
    let output = command.arg("--json").arg(&json).output().unwrap();
    if refused(&output.stderr) {
        return None;
    }
    check(&output, &json, ues);
    Some(serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap())
}

fn check(output: &Output, json: &Path, ues: u64) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for name in ["ues", "registered", "sessions", "echo_ok", "deregistered"] {
        assert_eq!(report[name], ues, "{name} in {report}");
    }
    assert_eq!(report["failures"], 0);
    for name in ["registration_us", "session_us"] {
        let (p50, p99) = (report[name]["p50"].as_u64().unwrap(), report[name]["p99"].as_u64().unwrap());
        assert!(0 < p50 && p50 <= p99, "{name} in {report}");
    }
    for name in ["core_cpu_us_per_ue", "emulator_cpu_us_per_ue"] {
        assert!(report[name].as_f64().unwrap() > 1.0, "{name} in {report}");
    }
    // Each UE sends three echoes before it goes idle and three after it comes back.
    assert!(report["n6_packets_kernel"].as_u64().unwrap() >= 6 * ues, "{report}");
    assert!(report["n6_answers_kernel"].as_u64().unwrap() >= 6 * ues, "{report}");
}

#[test]
fn every_ue_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let output = Command::new(VIREO).args(["demo", "--ues", "10", "--json"]).arg(&json).output().unwrap();
    if !refused(&output.stderr) {
        check(&output, &json, 10);
    }
}

/// Users go from slice to slice of the user plane while they are busy, and no packet of theirs is lost. The demo itself
/// fails where a slice had nothing to do.
#[test]
fn users_move_between_slices() {
    if !is_root() {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    for datapath in ["sockets", "af-packet", "xdp"] {
        let Some(report) = report_of(40, &["--migrate", "100/s", "--datapath", datapath]) else { return };
        assert_eq!(report["lost_packets"], 0, "{report}");
        // how many there are, the machine's other work decides
        assert!(report["migrations"].as_u64().unwrap() > 20, "{report}");
    }
}

/// gNBs lose the tunnels of connected UEs: the core has them released and sets others up, by one process and by a chain. The
/// emulator waits for both (TS 23.527 5.3.2).
#[test]
fn lost_tunnels_are_replaced() {
    for chain in [&[][..], &["--chain", "sba"]] {
        let arguments = [&["--scenario", "lost-tunnel"], chain].concat();
        let Some(report) = report_of(10, &arguments) else { return };
        assert_eq!(report["lost_packets"], 0, "{report}");
    }
}

/// Sessions go from one UPF to another and back while their UEs are busy, by N2 and by the kernel's routes, and no packet is
/// lost.
#[test]
fn users_move_between_upfs() {
    let Some(report) = report_of(40, &["--migrate", "100/s", "--upfs", "2"]) else { return };
    assert_eq!(report["lost_packets"], 0, "{report}");
    assert!(report["migrations"].as_u64().unwrap() > 40, "{report}");
    assert_eq!(report["echoes"], 40 * 2 * 400, "moves in the middle of packets");
}

/// Data workers are killed again and again while the UEs are busy; the demo itself fails where one is not taken over from.
#[test]
fn every_ue_succeeds_while_data_workers_are_killed() {
    if !is_root() {
        eprintln!("skipped: a driver on frames is root's alone");
        return;
    }
    for datapath in ["sockets", "af-packet"] {
        let Some(report) = report_of(40, &["--kill-data", "10/s", "--datapath", datapath]) else { return };
        let number = |name: &str| report[name].as_u64().unwrap();
        let kills = number("data_kills");
        assert!(kills >= 10 && number("data_takeovers") >= kills, "{report}");
        assert!(number("packets_died") <= 32 * kills, "{report}");
    }
}

/// Slices whose workers are processes, between which users move while the workers are killed.
#[test]
fn users_move_between_processes_that_are_killed() {
    if !is_root() {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    let Some(report) = report_of(40, &["--migrate", "50/s", "--kill-data", "5/s"]) else { return };
    let number = |name: &str| report[name].as_u64().unwrap();
    assert!(number("migrations") > 20 && number("data_takeovers") >= number("data_kills"), "{report}");
    assert!(number("lost_packets") <= number("packets_died"), "{report}");
}

/// A balancer and three hosts, of which the one with the most UEs dies, or is stopped or cut off until others have its UEs:
/// nobody notices. The demo itself fails where a host has never had a UE. No UE waits for a message to be sent again (6 s).
#[test]
fn every_ue_succeeds_while_a_host_fails() {
    // In the midst of registrations, and while UEs come back from idle.
    for (fate, after) in [("kill", "500ms"), ("stop", "1700ms"), ("cut", "500ms")] {
        let arguments = ["--hosts", "3", "--fail-host", fate, "--fail-after", after];
        let Some(report) = report_of(90, &arguments) else { return };
        assert!(report["rss_bytes_per_ue"].is_null(), "nobody watches the memory of several hosts: {report}");
        assert_eq!((&report["failed_hosts"], &report["lost"]), (&Value::from(1), &Value::from(0)), "{report}");
        assert!(report["registration_us"]["p99"].as_u64().unwrap() < 5_000_000, "{report}");
    }
}

/// A balancer and two hosts, of which one leaves when a third one has joined: both without a UE's noticing, and with no message
/// sent again. The demo itself fails where a host, also the one that joined, has never had a UE, and where one that leaves
/// does not end in good order.
#[test]
fn every_ue_succeeds_while_a_host_joins_and_one_leaves() {
    let arguments = ["--hosts", "2", "--join-after", "300ms", "--leave-after", "1500ms"];
    let Some(report) = report_of(90, &arguments) else { return };
    assert_eq!((report["hosts"].as_array().map(Vec::len), &report["lost"]), (Some(3), &Value::from(0)), "{report}");
    assert!(report["registration_us"]["p99"].as_u64().unwrap() < 5_000_000, "{report}");
}

/// A cluster with etcd, a controller and two balancers, whose controller is killed and comes back, which loses a balancer, and
/// in which two hosts do not reach each other. `make cluster-demo` does far more.
#[test]
fn no_ue_is_lost_while_a_cluster_has_no_controller_or_loses_a_balancer_or_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let mut command = Command::new(VIREO);
    command
        .args(["demo", "--cluster", "--ues", "60", "--rate", "60", "--events", "controller,balancer,link", "--json"])
        .arg(&json);
    let output = command.output().unwrap();
    if refused(&output.stderr) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.trim_end().ends_with("lost: 0"), "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["events"].as_array().map(Vec::len), Some(3), "{report}");
    // UEs would say again after 15 s (T3517) what the balancer has swallowed.
    assert!(report["events"][1]["worst_ms"].as_f64().unwrap() < 10_000.0, "{report}");
}

/// Hosts join a cluster under traffic, and after each of them one is killed. `make cluster-churn` does far more.
#[test]
fn no_ue_is_lost_while_hosts_join_and_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let mut command = Command::new(VIREO);
    command.args(["demo", "--churn", "2", "--ues", "40", "--json"]).arg(&json);
    let output = command.output().unwrap();
    if refused(&output.stderr) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.trim_end().ends_with("lost: 0"), "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!((report["events"].as_array().map(Vec::len), &report["echoes_lost"]), (Some(4), &0.into()), "{report}");
    let gap_ms = report["longest_gap_ms"].as_f64().unwrap();
    assert!(gap_ms > 0.0 && gap_ms < 10_000.0, "{report}");
}

/// The same with an XDP program in the core, in the network driver and in the kernel's stack. The demo itself fails
/// where the program leaves most packets to the sockets.
#[test]
fn every_ue_succeeds_over_xdp() {
    if !is_root() {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    for mode in ["native", "generic"] {
        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("out.json");
        let mut command = Command::new(VIREO);
        command.args(["demo", "--datapath", "xdp", "--ues", "10", "--json"]).arg(&json);
        let output = command.env("VIREO_DATAPATH__MODE", mode).output().unwrap();
        if !refused(&output.stderr) {
            check(&output, &json, 10);
        }
    }
}

/// The same on whole frames.
#[test]
fn every_ue_succeeds_over_frames() {
    if !is_root() {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    for driver in ["af-packet", "af-xdp"] {
        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("out.json");
        let mut command = Command::new(VIREO);
        command.args(["demo", "--datapath", driver, "--ues", "5", "--json"]).arg(&json);
        let output = command.output().unwrap();
        if !refused(&output.stderr) {
            check(&output, &json, 5);
        }
    }
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t0")
}

/// What a demo of 5 UEs with these arguments does for somebody without any privilege, on a system where everybody may
/// open `/dev/net/tun` (as Debian and Ubuntu have it); its result is `out.json`. `None` where that cannot be had.
fn without_root(directory: &Path, arguments: &str) -> Option<Output> {
    if !is_root() {
        eprintln!("skipped: without root this is what every_ue_succeeds tests");
        return None;
    }
    std::fs::copy(VIREO, directory.join("vireo")).unwrap();
    // In a mount namespace of its own; `$1` is the directory.
    let script = format!(
        "chmod 777 $1 && mknod $1/tun c 10 200 && chmod 666 $1/tun && mount --bind $1/tun /dev/net/tun || exit 77
        cd $1 && exec setpriv --reuid 65534 --regid 65534 --clear-groups \
            ./vireo demo --ues 5 --json out.json {arguments}"
    );
    let arguments = ["--mount", "sh", "-c", &script, "sh", directory.to_str().unwrap()];
    let output = Command::new("unshare").args(arguments).output().unwrap();
    if output.status.code() == Some(77) {
        eprintln!("skipped: no device can be made here: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    (!refused(&output.stderr)).then_some(output)
}

#[test]
fn root_is_not_needed() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(output) = without_root(directory.path(), "") {
        check(&output, &directory.path().join("out.json"), 5);
    }
}

/// There is no other driver instead without a word.
#[test]
fn xdp_without_root_is_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(output) = without_root(directory.path(), "--datapath xdp") {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("no permission to load the XDP program: run as root"), "{stderr}");
    }
}

/// A demo that would go on for long, at the moment when its UEs begin to register; `None` where there is none.
fn long_demo() -> Option<(Child, BufReader<std::process::ChildStderr>)> {
    let mut demo = Command::new(VIREO)
        .args(["demo", "--ues", "5000", "--rate", "20"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(demo.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("the core is ready") {
        if stderr.read_line(&mut text).unwrap() == 0 {
            assert!(refused(text.as_bytes()), "{text}");
            demo.wait().unwrap();
            return None;
        }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while children(demo.id()).len() < 2 {
        assert!(Instant::now() < deadline, "core and emulator run");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some((demo, stderr))
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|n| n.parse().unwrap()).collect()
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// Waits until none of the processes runs (a zombie does not).
fn gone(pids: &[u32]) {
    let runs = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with(['Z', 'X']))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while pids.iter().any(runs) {
        assert!(Instant::now() < deadline, "{pids:?} still run");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interrupt_ends_it_in_order() {
    let Some((mut demo, mut stderr)) = long_demo() else { return };
    let pids = children(demo.id());
    signal(demo.id(), "INT");
    let status = demo.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
    assert!(text.contains("vireo: interrupted"), "{text}");
    gone(&pids);
}

#[test]
fn nothing_remains_after_it_is_killed() {
    let Some((mut demo, _stderr)) = long_demo() else { return };
    let pids = children(demo.id());
    let files = || std::fs::read_dir("/tmp").unwrap().filter(|e| e.as_ref().unwrap().file_name() == "vireo.db").count();
    let before = files();
    signal(demo.id(), "KILL");
    assert_eq!(demo.wait().unwrap().code(), None);
    gone(&pids);
    // Namespaces and the private /tmp live by their processes alone; nothing of them is outside.
    assert_eq!(files(), before);
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
    let links = String::from_utf8_lossy(&links.stdout);
    assert!(!links.contains("vireo0") && !links.contains(" n2") && !links.contains(" n6"), "{links}");
}

/// AMF, SMF and UPF as processes of their own, which ask each other over the service-based interface, in TLS, and PFCP. The demo
/// itself fails where the SMF has a session left after all UEs have gone. What the witnesses read is in the clear.
#[test]
fn every_ue_succeeds_in_a_service_based_chain() {
    let Some(report) = report_of(40, &["--chain", "sba", "--tls"]) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// By Xn, to and fro: the SMFs of a UE's sessions have the UPF send to the gNB that it has come to.
#[test]
fn every_ue_goes_from_gnb_to_gnb_in_a_service_based_chain() {
    let options =
        ["--chain", "sba", "--state", "redis", "--scope", "amf-smf", "--sbi", "grpc", "--scenario", "xn-handover"];
    let Some(report) = report_of(20, &options) else { return };
    assert_eq!((&report["lost"], &report["failures"]), (&0.into(), &0.into()), "{report}");
}

/// The same by N2, amid which an SMF is killed: what it has prepared is stored, and the next one is told that the UE is there.
#[test]
fn every_ue_goes_from_gnb_to_gnb_by_n2_in_a_service_based_chain() {
    let options = ["--chain", "sba", "--state", "redis", "--kill", "smf", "--scenario", "n2-handover"];
    let Some(report) = report_of(60, &options) else { return };
    assert_eq!((&report["lost"], &report["failures"]), (&0.into(), &0.into()), "{report}");
}

/// Functions whose certificates are for another name than the one that is asked for talk to nobody, and say why; without a certificate
/// none begins.
#[test]
fn functions_whose_certificates_are_not_good_say_so() {
    // The lab has a /tmp of its own.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let [amf, smf] = ["amf", "smf"].map(|role| format!("vireo://{NAME}/{role}"));
    let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
    let Files { certificate, key, .. } = ours.member(directory.path(), "member", &[&amf, &smf]).unwrap();
    let other = theirs.member(directory.path(), "other", &[&smf]).unwrap();
    let log = directory.path().join("core");
    let run = |certificate: &Path, key: &Path| {
        let mut command = Command::new(VIREO);
        command.args(["demo", "--chain", "sba", "--ues", "1"]).arg("--core-log").arg(&log);
        command.env("VIREO_SBI__TLS__CERTIFICATE", certificate).env("VIREO_SBI__TLS__KEY", key);
        command.env("VIREO_SBI__TLS__AUTHORITIES", &other.authorities).env("VIREO_SBI__TLS__NAME", NAME);
        command.env("VIREO_SBI__TIMEOUT", "500ms").env("VIREO_SBI__ATTEMPTS", "1").output().unwrap()
    };
    let output = run(&certificate, &key);
    if refused(&output.stderr) {
        return;
    }
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("its certificate is of none of sbi.tls.authorities"), "{said}");
    // One of an SMF alone, which an AMF does not start with.
    let said = String::from_utf8_lossy(&run(&other.certificate, &other.key).stderr).into_owned();
    assert!(said.contains("is for smf in cluster") && said.contains("this process is amf"), "{said}");
    let output = run(&directory.path().join("nowhere"), &key);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("sbi.tls.certificate: "), "{said}");
}

/// 4n messages to the database for a chain of n functions (seed 3): at the SMF, n = 1, a read and a write for each transaction. What
/// makes an SM context has nothing to read, and what ends it takes the record out. The AMF takes the SMF's first transfer of a session
/// for its answer: it has no transaction for one.
#[test]
fn each_transaction_of_the_smf_is_a_read_and_a_write_in_its_database() {
    let Some(report) = report_of(30, &["--chain", "sba", "--state", "redis", "--implied"]) else { return };
    let count = |transaction: &str, operation: &str| {
        report["state_operations"][format!("{transaction}.{operation}")].as_u64().unwrap_or(0)
    };
    assert_eq!((count("create-sm-context", "read"), count("create-sm-context", "write")), (0, 30), "{report}");
    let others =
        ["update-sm-context", "release-sm-context", "n1n2-transfer", "pfcp-establishment", "pfcp-modification"];
    for transaction in others.into_iter().chain(["pfcp-deletion"]) {
        let (reads, changes) = (count(transaction, "read"), count(transaction, "write") + count(transaction, "remove"));
        assert_eq!(reads, changes, "{transaction} in {report}");
    }
    assert_eq!(count("pfcp-establishment", "write"), 30, "{report}");
    assert_eq!(count("pfcp-deletion", "remove"), 30, "{report}");
    let of_amf = |operation: &str| count("amf.create-sm-context", operation);
    assert_eq!((of_amf("read"), of_amf("write")), (0, 0), "{report}");
    assert!(count("amf.n1n2-transfer", "write") >= 30, "{report}");
}

/// SM contexts that travel: the SMF asks no database for anything, and has nothing to lose when it is killed. In gRPC they travel, too.
#[test]
fn no_ue_notices_an_smf_that_is_killed_with_its_state_at_the_amf() {
    let options = ["--chain", "sba", "--state", "redis", "--piggyback", "--sbi", "grpc", "--kill", "smf"];
    let Some(report) = report_of(30, &options) else { return };
    assert_eq!(report["lost"], 0, "{report}");
    let operations = report["state_operations"].as_object().expect("operations");
    let of_smf = operations.keys().filter(|name| !name.starts_with("amf.") && !name.starts_with("upf.")).count();
    assert_eq!(of_smf, 0, "{report}");
}

/// A UPF that is killed while UEs register, use the user plane and go, and started again: all sessions go on, with their tunnels.
#[test]
fn no_ue_notices_a_upf_that_is_killed_with_its_sessions_in_a_database() {
    let Some(report) = report_of(20, &["--chain", "sba", "--state", "redis", "--kill", "upf"]) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// The same with an SMF and with a UPF whose sessions are in shared memory: no request reads there, and each transaction is a write.
#[test]
fn no_ue_notices_a_function_that_is_killed_with_its_state_in_shared_memory() {
    for victim in ["smf", "upf"] {
        let Some(report) = report_of(20, &["--chain", "sba", "--state", "shm", "--kill", victim]) else { return };
        assert_eq!(report["lost"], 0, "{report}");
        let operations = report["state_operations"].as_object().expect("they are counted");
        assert!(operations.keys().any(|name| name.ends_with(".write")), "{report}");
        // What the UPF reports by itself goes beside the answer that its record has.
        let reads = |name: &&String| name.ends_with(".read") && *name != "upf.other.read";
        assert_eq!(operations.keys().find(reads), None, "{report}");
    }
}

/// AMF and UPF do not wait for what they write. The SMF does, so that an SMF that is killed has lost nothing.
#[test]
fn no_ue_notices_an_smf_that_is_killed_where_amf_and_upf_wait_for_no_write() {
    let options = ["--chain", "sba", "--state", "redis", "--write", "non-blocking", "--kill", "smf"];
    let Some(report) = report_of(20, &options) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// A Redis Cluster in which a replica confirms what is committed, and a master that is killed while UEs register.
#[test]
#[ignore = "make test-stores"]
fn stores_no_ue_is_lost_with_a_master_of_a_redis_cluster() {
    let Some(report) = report_of(100, &["--chain", "sba", "--state", "redis-cluster", "--kill", "master"]) else {
        return;
    };
    assert_eq!(report["lost"], 0, "{report}");
    println!("no UE of 100 is lost; nobody was in the master's place for {} ms", report["failover_ms"]);
}

/// MongoDB's protocol; the same with an SMF that is killed.
#[test]
#[ignore = "make test-stores"]
fn stores_no_ue_is_lost_over_mongodb() {
    for more in [&[][..], &["--kill", "smf"]] {
        let Some(report) = report_of(20, &[&["--chain", "sba", "--state", "mongodb"], more].concat()) else { return };
        assert_eq!(report["lost"], 0, "{report}");
    }
}

/// A chain with its state in a database, and an SMF that is killed while UEs register and started again: all sessions go on.
#[test]
fn no_ue_notices_an_smf_that_is_killed_with_its_state_in_a_database() {
    let Some(report) = report_of(60, &["--chain", "sba", "--state", "redis", "--kill", "smf"]) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// The same where AMF and SMF share a record of each UE, in which the SMF commits for both.
#[test]
fn no_ue_notices_an_amf_that_is_killed_while_the_smf_commits_for_it() {
    let options = ["--chain", "sba", "--state", "redis", "--scope", "amf-smf", "--kill", "amf"];
    let Some(report) = report_of(30, &options) else { return };
    assert_eq!((&report["lost"], &report["failed_hosts"]), (&0.into(), &1.into()), "{report}");
}

/// A UPF that is killed while the SMF commits for it.
#[test]
fn no_ue_notices_a_upf_that_is_killed_while_the_smf_commits_for_it() {
    let options = ["--chain", "sba", "--state", "redis", "--scope", "all", "--kill", "upf"];
    let Some(report) = report_of(20, &options) else { return };
    assert_eq!(report["lost"], 0, "{report}");
    // n-1 writes are saved (seed 3, section 3): what AMF and UPF have, the SMF writes.
    let count = |name: &str| report["state_operations"][name].as_u64().unwrap_or(0);
    assert!(count("create-sm-context.write") >= 20, "{report}");
    // But where something else comes for a UE before the SMF has answered.
    assert!(count("amf.create-sm-context.write") < 10, "{report}");
    assert!(count("amf.create-sm-context.read") > 0 && count("upf.pfcp-modification.read") > 0, "{report}");
    for transaction in ["pfcp-establishment", "pfcp-modification", "pfcp-deletion"] {
        assert_eq!(count(&format!("upf.{transaction}.write")), 0, "{report}");
    }
}

/// One of two AMFs is killed while UEs register; N2 stays in the balancer, and the other one goes on with what the database has.
#[test]
fn no_ue_notices_an_amf_that_is_killed_with_its_state_in_a_database() {
    let Some(report) = report_of(30, &["--chain", "sba", "--state", "redis", "--kill", "amf"]) else { return };
    assert_eq!((&report["lost"], &report["failed_hosts"]), (&0.into(), &1.into()), "{report}");
}
