//! `vireo demo` from a user's view: results and clean-up, with and without root.

mod scenarios;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use vireo_pki::{Authority, Files, NAME};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");

/// Returns true if the system refuses a prerequisite of every demo; then there is nothing to test.
fn refused(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    let refused = text.contains("vireo: this needs ");
    if refused {
        eprintln!("skipped: {}", text.trim());
    }
    refused
}

/// Times of a report: registration, and session.
const TIMES: [&str; 2] = ["registration_us", "session_us"];

/// Runs and checks a demo of this many UEs, all within a second, with these arguments. Returns its
/// report; `None` if nothing can be tested.
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
    // LTE UEs have their session with the attach.
    let is_eps = arguments.windows(2).any(|pair| pair == ["--rat", "eps"]);
    check(&output, &json, ues, if is_eps { &["registration_us"] } else { &TIMES });
    Some(serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap())
}

/// Checks a report, in which these times must be measured.
fn check(output: &Output, json: &Path, ues: u64, times: &[&str]) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    for name in ["ues", "registered", "sessions", "echo_ok", "deregistered"] {
        assert_eq!(report[name], ues, "{name} in {report}");
    }
    assert_eq!(report["failures"], 0);
    for name in times {
        let (p50, p99) = (report[name]["p50"].as_u64().unwrap(), report[name]["p99"].as_u64().unwrap());
        assert!(0 < p50 && p50 <= p99, "{name} in {report}");
    }
    for name in ["core_cpu_us_per_ue", "emulator_cpu_us_per_ue"] {
        assert!(report[name].as_f64().unwrap() > 1.0, "{name} in {report}");
    }
    // Each UE sends three echoes before it goes idle and three after it returns.
    assert!(report["n6_packets_kernel"].as_u64().unwrap() >= 6 * ues, "{report}");
    assert!(report["n6_answers_kernel"].as_u64().unwrap() >= 6 * ues, "{report}");
}

#[test]
fn every_ue_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let output = Command::new(VIREO).args(["demo", "--ues", "10", "--json"]).arg(&json).output().unwrap();
    if !refused(&output.stderr) {
        check(&output, &json, 10, &TIMES);
    }
}

/// LTE UEs attach, exchange packets, become idle, come back and detach. In a cluster they do so
/// while a host with their contexts is killed, beside 5G UEs.
#[test]
fn lte_ues_are_served_beside_others() {
    let kill = ["--hosts", "3", "--fail-host", "kill"];
    for (ues, arguments) in [(20, ["--rat", "eps"].to_vec()), (40, [&["--rat", "both"], &kill[..]].concat())] {
        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("out.json");
        let mut command = Command::new(VIREO);
        command.args(["demo", "--ues", &ues.to_string(), "--rate", "40"]).args(&arguments).arg("--json").arg(&json);
        let output = command.output().unwrap();
        if refused(&output.stderr) {
            return;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        for name in ["registered", "echo_ok", "deregistered"] {
            assert_eq!(report[name], ues, "{name} in {report}");
        }
        assert_eq!((&report["failures"], &report["lost"]), (&0.into(), &0.into()), "{report}");
        assert!(report["n6_packets_kernel"].as_u64().unwrap() >= 6 * ues, "{report}");
        assert!(report["n6_answers_kernel"].as_u64().unwrap() >= 6 * ues, "{report}");
    }
}

/// Each UE runs the procedures of the scenario against the core.
fn scenario_succeeds(rat: &str, scenario: &str) {
    scenario_succeeds_with(rat, scenario, &[]);
}

/// As [`scenario_succeeds`], with these variables of the core's configuration.
fn scenario_succeeds_with(rat: &str, scenario: &str, variables: &[(&str, &str)]) {
    let line = ["demo", "--ues", "8", "--rate", "8", "--rat", rat, "--scenario", scenario];
    let output = Command::new(VIREO).args(line).envs(variables.iter().copied()).output().unwrap();
    if refused(&output.stderr) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{scenario}: {text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn lte_scenarios_run_to_their_end() {
    let procedures = ["paging", "periodic", "mobility", "tau", "guti", "ipv4v6", "restoration"];
    let handovers = ["handover", "handover-failures"];
    let connections = ["multi-session", "sessions", "lost-tunnel"];
    let failures = ["auth-failures", "wrong-mac", "resync-refused"];
    for scenario in procedures.iter().chain(&handovers).chain(&connections).chain(&failures) {
        scenario_succeeds("eps", scenario);
    }
}

/// ng-eNBs beside gNBs, RAN configuration transfer, tunnels at a secondary node, and sessions that
/// the node releases.
#[test]
fn node_scenarios_run_to_their_end() {
    scenario_succeeds("nr", "ng-enb");
    for scenario in ["configuration", "secondary-node", "dropped-session"] {
        scenario_succeeds("nr", scenario);
        scenario_succeeds("eps", scenario);
    }
}

/// TS 33.501 6.12.3. The next page reaches the UE under its new GUTI.
#[test]
fn paged_ues_get_other_gutis() {
    scenario_succeeds("nr", "guti-reallocation");
    scenario_succeeds("eps", "guti-reallocation");
}

/// `vireo subscriber import --replace` with other bit rates for all UEs, which send packets: all
/// sessions have them within 5 s, and the kernel has seen each packet and its answer.
#[test]
fn changed_subscribers_lose_no_packet() {
    for (rat, ues) in [("nr", "1000"), ("eps", "200")] {
        let line = ["demo", "--ues", ues, "--rat", rat, "--change-subscribers"];
        let output = Command::new(VIREO).args(line).output().unwrap();
        if refused(&output.stderr) {
            return;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{rat}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// UEs without PDN connection, and UEs whose packets are sent over NAS. The kernel counts these on
/// N6 in both directions, also while worker processes are killed.
#[test]
fn iot_ues_are_served_without_user_plane() {
    scenario_succeeds("eps", "without-pdn");
    for kill in [&[][..], &["--kill-nf", "5/s"]] {
        let arguments = [&["--rat", "eps", "--scenario", "over-nas"], kill].concat();
        let Some(report) = nas_report(&arguments) else { return };
        // Four times three echoes, and one for which the UE is paged.
        assert!(report["n6_packets_kernel"].as_u64().unwrap() >= 13 * 8, "{kill:?}: {report}");
        assert!(report["n6_answers_kernel"].as_u64().unwrap() >= 13 * 8, "{kill:?}: {report}");
    }
}

/// Runs a demo of 8 UEs with these arguments, without failures. Returns its report.
fn nas_report(arguments: &[&str]) -> Option<Value> {
    json_report(&[&["--ues", "8", "--rate", "8"], arguments].concat())
}

/// Runs a demo with these arguments, which must succeed. Returns its report.
fn json_report(arguments: &[&str]) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let mut command = Command::new(VIREO);
    command.arg("demo").args(arguments).arg("--json").arg(&json);
    let output = command.output().unwrap();
    if refused(&output.stderr) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap())
}

/// UEs request power saving mode, MICO mode and extended DRX. In the first two a packet for a
/// sleeping UE waits in the user plane, and no page is sent. Pages of the third have the cycle and
/// window that the UE was granted.
#[test]
fn power_saving_ues_get_waiting_packets() {
    let permitted = [("VIREO_CORE__POWER_SAVING__PSM", "true"), ("VIREO_CORE__POWER_SAVING__EXTENDED_DRX", "true")];
    for (rat, scenario) in
        [("eps", "power-saving"), ("nr", "power-saving"), ("eps", "extended-drx"), ("nr", "extended-drx")]
    {
        scenario_succeeds_with(rat, scenario, &permitted);
    }
}

/// The keys of UE and core, and of the RAN nodes, agree after each renewal.
#[test]
fn keys_of_ues_are_renewed() {
    for rat in ["nr", "eps"] {
        scenario_succeeds_with(rat, "key-renewal", &[("VIREO_CORE__SECURITY__KEY_LIFETIME", "1s")]);
    }
}

#[test]
fn emergency_ues_get_their_session() {
    scenario_succeeds_with("nr", "emergency", &[("VIREO_N2__EMERGENCY_DNN", "internet")]);
    scenario_succeeds_with("eps", "emergency", &[("VIREO_S1__EMERGENCY_DNN", "internet")]);
}

#[test]
fn all_ues_of_restarted_node_get_service() {
    for rat in ["nr", "eps"] {
        scenario_succeeds(rat, "storm");
    }
}

/// Messages are lost and repeated, nodes restart and NF workers are killed. Then the core has the
/// registrations, identities, sessions and addresses that the UEs have.
#[test]
fn ues_and_core_agree_after_chaos() {
    let arguments = ["--ues", "40", "--rat", "both", "--scenario", "chaos", "--seed", "6", "--kill-nf", "1/s"];
    let Some(reports) = json_report(&arguments) else { return };
    let report = &reports[0];
    for name in ["messages_lost", "messages_repeated", "restarts", "kills"] {
        assert!(report[name].as_u64().unwrap() > 0, "{name} in {report}");
    }
    assert!(report["completed"].as_u64().unwrap() > 200, "{report}");
    assert_eq!((&report["ues"], &report["unsettled"]), (&40.into(), &0.into()), "{report}");
    assert_eq!(report["differences"], serde_json::json!([]), "{report}");
}

#[test]
fn idle_ues_move_between_4g_and_5g() {
    scenario_succeeds("both", "idle-move");
}

#[test]
fn connected_ues_move_between_4g_and_5g() {
    for scenario in ["connected-move", "move-failures", "moves"] {
        scenario_succeeds("both", scenario);
    }
}

/// Packets that reach the source of a handover after the UE has left are forwarded, in order, by
/// every driver. The kernel counts the answers on N6, and the UEs those that arrive.
#[test]
fn handovers_lose_no_packet() {
    let drivers: &[&str] = if is_root() { &["sockets", "af-packet", "xdp"] } else { &["sockets"] };
    let mut forwarded = 0;
    for datapath in drivers {
        for (rat, scenario) in [("nr", "handover-echoes"), ("eps", "handover-echoes"), ("both", "connected-move")] {
            let arguments = ["--rat", rat, "--scenario", scenario, "--datapath", datapath];
            let Some(mut report) = report_of(40, &arguments) else { return };
            // A source forwards for a limited time, which other processes may take up.
            if report["packets_lost_at_moves"] != 0 {
                report = report_of(40, &arguments).expect("the first run had its privileges");
            }
            let number = |name: &str| report[name].as_u64().unwrap();
            assert_eq!(number("packets_lost_at_moves"), 0, "{rat} {datapath}: {report}");
            assert_eq!(number("packets_reordered_at_moves"), 0, "{rat} {datapath}: {report}");
            assert!(number("packets_at_moves") > 400, "{report}");
            assert!(number("n6_answers_kernel") >= number("packets_at_moves"), "{report}");
            forwarded += number("packets_forwarded_at_moves");
        }
    }
    assert!(forwarded > 0, "some packets are in transit at a handover");
}

/// UEs move between 4G and 5G, connected and idle, while they send packets: also while worker
/// processes are killed, and with a host that is killed in a cluster.
#[test]
fn moving_ues_survive_faults() {
    let kill = ["--hosts", "3", "--serve", "procedure", "--fail-host", "kill", "--fail-after", "1s"];
    for arguments in [&["--kill-nf", "5/s"][..], &kill] {
        let arguments = [&["--rat", "both"], arguments].concat();
        let Some(report) = report_of(40, &arguments) else { return };
        // Each UE moves four times.
        assert_eq!((&report["moves_connected"], &report["moves_idle"]), (&80.into(), &80.into()), "{report}");
        assert!(report["packets_at_moves"].as_u64().unwrap() > 40, "{report}");
        assert!(report["packets_lost_at_moves"].is_u64(), "{report}");
    }
}

/// Busy users migrate between slices of the user plane without packet loss. The demo itself fails
/// if a slice had no traffic.
#[test]
fn users_move_between_slices() {
    if !is_root() {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    for datapath in ["sockets", "af-packet", "xdp"] {
        let Some(report) = report_of(40, &["--migrate", "100/s", "--datapath", datapath]) else { return };
        assert_eq!(report["lost_packets"], 0, "{report}");
        // Other work of the machine decides the exact number.
        assert!(report["migrations"].as_u64().unwrap() > 20, "{report}");
    }
}

/// gNBs lose the tunnels of connected UEs. The core has them released and sets new ones up, in one
/// process and in SBA mode. The emulator waits for both (TS 23.527 5.3.2).
#[test]
fn lost_tunnels_are_replaced() {
    for chain in [&[][..], &["--chain", "sba"]] {
        let arguments = [&["--scenario", "lost-tunnel"], chain].concat();
        let Some(report) = report_of(10, &arguments) else { return };
        assert_eq!(report["lost_packets"], 0, "{report}");
    }
}

/// Sessions of busy UEs relocate between UPFs by N2 and by the kernel's routes, without packet
/// loss.
#[test]
fn users_move_between_upfs() {
    let Some(report) = report_of(40, &["--migrate", "100/s", "--upfs", "2"]) else { return };
    assert_eq!(report["lost_packets"], 0, "{report}");
    assert!(report["migrations"].as_u64().unwrap() > 40, "{report}");
    assert_eq!(report["echoes"], 40 * 2 * 400, "moves in the middle of packets");
}

/// Data workers are killed repeatedly while the UEs are busy. The demo itself fails if a data
/// worker has no takeover.
#[test]
fn killed_data_workers_fail_no_ue() {
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

/// Slices have worker processes. Users migrate between them while the workers are killed.
#[test]
fn users_migrate_between_killed_processes() {
    if !is_root() {
        eprintln!("skipped: BPF programs are loaded by root alone");
        return;
    }
    let Some(report) = report_of(40, &["--migrate", "50/s", "--kill-data", "5/s"]) else { return };
    let number = |name: &str| report[name].as_u64().unwrap();
    assert!(number("migrations") > 20 && number("data_takeovers") >= number("data_kills"), "{report}");
    assert!(number("lost_packets") <= number("packets_died"), "{report}");
}

/// A balancer and three hosts. The host with the most UEs dies, is stopped or isolated until other
/// hosts own its UEs: no UE is affected. The demo itself fails if a host never had a UE. No UE
/// waits for a retransmission (6 s).
#[test]
fn every_ue_succeeds_while_a_host_fails() {
    // During registrations, and while UEs return from idle.
    for (fate, after) in [("kill", "500ms"), ("stop", "1700ms"), ("cut", "500ms")] {
        let arguments = ["--hosts", "3", "--fail-host", fate, "--fail-after", after];
        let Some(report) = report_of(90, &arguments) else { return };
        assert!(report["rss_bytes_per_ue"].is_null(), "nobody watches the memory of several hosts: {report}");
        assert_eq!((&report["failed_hosts"], &report["lost"]), (&Value::from(1), &Value::from(0)), "{report}");
        assert!(report["registration_us"]["p99"].as_u64().unwrap() < 5_000_000, "{report}");
    }
}

/// The same with hosts that run the steps themselves.
#[test]
fn every_ue_succeeds_while_an_inline_host_fails() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let arguments = ["demo", "--ues", "90", "--hosts", "3", "--fail-host", "kill", "--fail-after", "500ms", "--json"];
    let mut command = Command::new(VIREO);
    let output = command.args(arguments).arg(&json).env("VIREO_POOLS__WORKER_MODEL", "inline").output().unwrap();
    if refused(&output.stderr) {
        return;
    }
    check(&output, &json, 90, &TIMES);
}

/// A balancer and two hosts; one host drains after a third one has joined. No UE is affected and no
/// message is retransmitted. The demo itself fails if any host, also the new one, never had a UE,
/// or if the drained host does not exit in order.
#[test]
fn joining_and_leaving_host_fail_no_ue() {
    let arguments = ["--hosts", "2", "--join-after", "300ms", "--leave-after", "1500ms"];
    let Some(report) = report_of(90, &arguments) else { return };
    assert_eq!((report["hosts"].as_array().map(Vec::len), &report["lost"]), (Some(3), &Value::from(0)), "{report}");
    assert!(report["registration_us"]["p99"].as_u64().unwrap() < 5_000_000, "{report}");
}

/// A cluster with etcd, a controller and two balancers. The controller is killed and restarted, a
/// balancer dies, and two hosts are partitioned. `make cluster-demo` does far more.
#[test]
fn cluster_faults_lose_no_ue() {
    let load = ["--cluster", "--ues", "60", "--rate", "60"];
    let Some(report) = cluster_report(&[&load[..], &["--events", "controller,balancer,link"]].concat()) else { return };
    assert_eq!(report["events"].as_array().map(Vec::len), Some(3), "{report}");
    // After 15 s (T3517) UEs would repeat the messages that the balancer has lost.
    assert!(report["events"][1]["worst_ms"].as_f64().unwrap() < 10_000.0, "{report}");
}

/// Each balancer is an MME of a pool. The UEs of the one that dies continue at the other, after
/// T3417 (5 s) if their eNB has sent their request to the dead one.
#[test]
fn dead_mme_of_pool_loses_no_ue() {
    let load = ["--cluster", "--rat", "eps", "--ues", "40", "--rate", "40"];
    let Some(report) = cluster_report(&[&load[..], &["--events", "balancer"]].concat()) else { return };
    assert!(report["events"][0]["worst_ms"].as_f64().unwrap() < 10_000.0, "{report}");
}

/// Returns the report of a demo of a cluster, which has lost no UE; `None` if this machine refuses
/// it.
fn cluster_report(args: &[&str]) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let output = Command::new(VIREO).arg("demo").args(args).arg("--json").arg(&json).output().unwrap();
    if refused(&output.stderr) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.trim_end().ends_with("lost: 0"), "{text}");
    Some(serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap())
}

/// Hosts join a cluster under traffic of both dialects, and after each of them one is killed. `make
/// cluster-churn` does far more.
#[test]
fn no_ue_is_lost_while_hosts_join_and_are_killed() {
    let Some(report) = cluster_report(&["--churn", "2", "--rat", "both", "--ues", "40"]) else { return };
    assert_eq!((report["events"].as_array().map(Vec::len), &report["echoes_lost"]), (Some(4), &0.into()), "{report}");
    let gap_ms = report["longest_gap_ms"].as_f64().unwrap();
    assert!(gap_ms > 0.0 && gap_ms < 10_000.0, "{report}");
}

/// The same with an XDP program in the core, in the network driver and in the kernel's stack. The
/// demo itself fails if the program passes most packets to the sockets.
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
            check(&output, &json, 10, &TIMES);
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
            check(&output, &json, 5, &TIMES);
        }
    }
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t0")
}

/// Runs a demo of 5 UEs with these arguments without any privilege. Every user may open
/// `/dev/net/tun`, as on Debian and Ubuntu; the result is `out.json`. Returns `None` if that is not
/// possible.
fn without_root(directory: &Path, arguments: &str) -> Option<Output> {
    if !is_root() {
        eprintln!("skipped: without root this is what every_ue_succeeds tests");
        return None;
    }
    std::fs::copy(VIREO, directory.join("vireo")).unwrap();
    // In a separate mount namespace; `$1` is the directory.
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
        check(&output, &directory.path().join("out.json"), 5, &TIMES);
    }
}

/// The demo does not fall back to another driver silently.
#[test]
fn xdp_without_root_is_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(output) = without_root(directory.path(), "--datapath xdp") {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("no permission to load the XDP program: run as root"), "{stderr}");
    }
}

/// Starts a long demo and returns when its UEs begin to register; `None` if that is not possible.
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
fn assert_ended(pids: &[u32]) {
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
fn interrupt_ends_demo_in_order() {
    let Some((mut demo, mut stderr)) = long_demo() else { return };
    let pids = children(demo.id());
    signal(demo.id(), "INT");
    let status = demo.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
    assert!(text.contains("vireo: interrupted"), "{text}");
    assert_ended(&pids);
}

#[test]
fn nothing_remains_after_it_is_killed() {
    let Some((mut demo, _stderr)) = long_demo() else { return };
    let pids = children(demo.id());
    let files = || std::fs::read_dir("/tmp").unwrap().filter(|e| e.as_ref().unwrap().file_name() == "vireo.db").count();
    let before = files();
    signal(demo.id(), "KILL");
    assert_eq!(demo.wait().unwrap().code(), None);
    assert_ended(&pids);
    // Namespaces and the private /tmp exist only through their processes; nothing remains outside.
    assert_eq!(files(), before);
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
    let links = String::from_utf8_lossy(&links.stdout);
    assert!(!links.contains("vireo0") && !links.contains(" n2") && !links.contains(" n6"), "{links}");
}

/// AMF, SMF and UPF as separate processes over the SBI with TLS, and PFCP. The demo itself fails if
/// the SMF has a session after all UEs have gone. The witnesses read plain text.
#[test]
fn every_ue_succeeds_in_sba_mode() {
    let Some(report) = report_of(40, &["--chain", "sba", "--tls"]) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// Xn handover to and fro: the SMFs of a UE's sessions switch the UPF's tunnel to the target gNB.
#[test]
fn sba_xn_handover_succeeds_for_every_ue() {
    let options =
        ["--chain", "sba", "--state", "redis", "--scope", "amf-smf", "--sbi", "grpc", "--scenario", "xn-handover"];
    let Some(report) = report_of(20, &options) else { return };
    assert_eq!((&report["lost"], &report["failures"]), (&0.into(), &0.into()), "{report}");
}

/// N2 handover to and fro while an SMF is killed. Its prepared state is stored, and the next SMF
/// receives the handover notification.
#[test]
fn sba_n2_handover_succeeds_for_every_ue() {
    let options = ["--chain", "sba", "--state", "redis", "--kill", "smf", "--scenario", "n2-handover"];
    let Some(report) = report_of(60, &options) else { return };
    assert_eq!((&report["lost"], &report["failures"]), (&0.into(), &0.into()), "{report}");
}

/// Network functions with certificates for another name connect to no peer, and log the reason.
/// Without a certificate none starts.
#[test]
fn sba_process_with_bad_certificate_fails() {
    // The lab has a private /tmp.
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
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("its certificate is of none of sbi.tls.authorities"), "{text}");
    // Only an SMF's certificate, with which an AMF does not start.
    let text = String::from_utf8_lossy(&run(&other.certificate, &other.key).stderr).into_owned();
    assert!(text.contains("is for smf in cluster") && text.contains("this process is amf"), "{text}");
    let output = run(&directory.path().join("nowhere"), &key);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("sbi.tls.certificate: "), "{text}");
}

/// 4n database messages for a chain of n network functions (stateless paper). At the SMF, n = 1: a
/// read and a write for each transaction. The creation of an SM context has nothing to read, and
/// its end removes the record. The AMF treats the SMF's first transfer of a session as its answer
/// and has no transaction for one.
#[test]
fn smf_transaction_is_one_read_and_one_write() {
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

/// SM contexts are piggybacked: the SMF queries no database, and loses nothing when it is killed.
/// gRPC also transports them.
#[test]
fn killed_smf_with_piggyback_fails_no_ue() {
    let options = ["--chain", "sba", "--state", "redis", "--piggyback", "--sbi", "grpc", "--kill", "smf"];
    let Some(report) = report_of(30, &options) else { return };
    assert_eq!(report["lost"], 0, "{report}");
    let operations = report["state_operations"].as_object().expect("operations");
    let of_smf = operations.keys().filter(|name| !name.starts_with("amf.") && !name.starts_with("upf.")).count();
    assert_eq!(of_smf, 0, "{report}");
}

/// A UPF is killed and restarted while UEs register, use the user plane and leave: all sessions
/// continue with their tunnels.
#[test]
fn killed_upf_with_database_fails_no_ue() {
    let Some(report) = report_of(20, &["--chain", "sba", "--state", "redis", "--kill", "upf"]) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// The same with an SMF and with a UPF whose sessions are in shared memory. No request reads the
/// store, and each transaction is a write.
#[test]
fn killed_process_with_shm_fails_no_ue() {
    for victim in ["smf", "upf"] {
        let Some(report) = report_of(20, &["--chain", "sba", "--state", "shm", "--kill", victim]) else { return };
        assert_eq!(report["lost"], 0, "{report}");
        let operations = report["state_operations"].as_object().expect("they are counted");
        assert!(operations.keys().any(|name| name.ends_with(".write")), "{report}");
        // Reports of the UPF bypass the answer that its record has.
        let reads = |name: &&String| name.ends_with(".read") && *name != "upf.other.read";
        assert_eq!(operations.keys().find(reads), None, "{report}");
    }
}

/// AMF and UPF do not wait for their writes. The SMF does, so that a killed SMF has lost nothing.
#[test]
fn killed_smf_with_non_blocking_fails_no_ue() {
    let options = ["--chain", "sba", "--state", "redis", "--write", "non-blocking", "--kill", "smf"];
    let Some(report) = report_of(20, &options) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// A Redis Cluster in which a replica acknowledges each commit. A master is killed while UEs
/// register.
#[test]
#[ignore = "make test-stores"]
fn stores_killed_redis_master_loses_no_ue() {
    let Some(report) = report_of(100, &["--chain", "sba", "--state", "redis-cluster", "--kill", "master"]) else {
        return;
    };
    assert_eq!(report["lost"], 0, "{report}");
    println!("no UE of 100 is lost; nobody was in the master's place for {} ms", report["failover_ms"]);
}

/// The same over MongoDB's protocol, with an SMF that is killed.
#[test]
#[ignore = "make test-stores"]
fn stores_no_ue_is_lost_over_mongodb() {
    for more in [&[][..], &["--kill", "smf"]] {
        let Some(report) = report_of(20, &[&["--chain", "sba", "--state", "mongodb"], more].concat()) else { return };
        assert_eq!(report["lost"], 0, "{report}");
    }
}

/// SBA mode with its state in a database. An SMF is killed and restarted while UEs register: all
/// sessions continue.
#[test]
fn killed_smf_with_database_fails_no_ue() {
    let Some(report) = report_of(60, &["--chain", "sba", "--state", "redis", "--kill", "smf"]) else { return };
    assert_eq!(report["lost"], 0, "{report}");
}

/// The same with one record of each UE for AMF and SMF, in which the SMF commits for both.
#[test]
fn killed_amf_with_smf_scope_fails_no_ue() {
    let options = ["--chain", "sba", "--state", "redis", "--scope", "amf-smf", "--kill", "amf"];
    let Some(report) = report_of(30, &options) else { return };
    assert_eq!((&report["lost"], &report["failed_hosts"]), (&0.into(), &1.into()), "{report}");
}

/// A UPF is killed while the SMF commits for it.
#[test]
fn killed_upf_with_smf_scope_fails_no_ue() {
    let options = ["--chain", "sba", "--state", "redis", "--scope", "all", "--kill", "upf"];
    let Some(report) = report_of(20, &options) else { return };
    assert_eq!(report["lost"], 0, "{report}");
    // n-1 writes are saved (stateless paper, section 3): the SMF writes the state of AMF and UPF.
    let count = |name: &str| report["state_operations"][name].as_u64().unwrap_or(0);
    assert!(count("create-sm-context.write") >= 20, "{report}");
    // Except if another event of the UE arrives before the SMF has answered.
    assert!(count("amf.create-sm-context.write") < 10, "{report}");
    assert!(count("amf.create-sm-context.read") > 0 && count("upf.pfcp-modification.read") > 0, "{report}");
    for transaction in ["pfcp-establishment", "pfcp-modification", "pfcp-deletion"] {
        assert_eq!(count(&format!("upf.{transaction}.write")), 0, "{report}");
    }
}

/// One of two AMFs is killed while UEs register. N2 stays in the balancer, and the other AMF
/// continues from the database.
#[test]
fn killed_amf_with_database_fails_no_ue() {
    let Some(report) = report_of(30, &["--chain", "sba", "--state", "redis", "--kill", "amf"]) else { return };
    assert_eq!((&report["lost"], &report["failed_hosts"]), (&0.into(), &1.into()), "{report}");
}
