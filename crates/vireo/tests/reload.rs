//! SIGHUP to a running core.
//!
//! Changeable settings change, the log names the others, and an invalid file changes nothing.

mod ports;
mod ran;

use ran::{Core, RanNode, WITHIN};
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until the log has a line with all these parts.
fn wait_for_line(log: &Path, parts: &[&str]) {
    let deadline = Instant::now() + WITHIN;
    loop {
        let text = fs::read_to_string(log).expect("a log");
        if text.lines().any(|line| parts.iter().all(|part| line.contains(part))) {
            return;
        }
        assert!(Instant::now() < deadline, "no line with {parts:?}: {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn hangup_reloads_live_keys_and_names_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let (log, file) = (directory.path().join("log"), directory.path().join("vireo.toml"));
    let mut core = Core::start(directory.path(), ("", "level = \"info\""), File::create(&log).expect("a log"));
    core.wait();
    let _before = RanNode::set_up(1, core.n2);
    let first = fs::read_to_string(&file).expect("its configuration");

    let wrong = first.replace("[state]", "[state]\nroom = 3");
    fs::write(&file, wrong).expect("written");
    core.reload();
    wait_for_line(&log, &["nothing is changed", "state.room: there is no such key"]);

    let changed = first.replace("ues = 1000", "ues = 2000").replace("\"info\"", "\"debug\"")
        + "[[n2.allow]]\naddresses = \"127.0.0.77\"\n[dnn.internet]\nipv4-pool = \"10.45.0.0/16\"\n\
           ipv6-pool = \"fd45:45::/48\"\ndns = [\"9.9.9.9\"]\nmtu = 1300\n";
    fs::write(&file, changed).expect("written");
    core.reload();
    wait_for_line(&log, &["read again", "dnn.internet.dns, dnn.internet.mtu, log.level, n2.allow"]);
    wait_for_line(&log, &["need a restart", "\"state.ues\""]);
    // Log line of the worker process at its new level.
    wait_for_line(&log, &["DEBUG vireo_amf::worker", "9.9.9.9", "mtu=1300"]);
    let _refused = RanNode::connect(2, core.n2);
    core.wait_for("vireo_n2_refused_total{reason=\"address\"}", 1.0);
    assert_eq!(core.metric("vireo_ran_nodes"), Some(1.0), "a node that is up stays");
    assert_eq!(core.end().code(), Some(0));
}
