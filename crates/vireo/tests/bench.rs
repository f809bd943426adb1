//! `vireo bench` from a user's view.
//!
//! It measures a real core and prints the documented values.

use std::process::Command;

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");

/// Returns the JSON of a bench and its output; `None` if this machine refuses a prerequisite.
fn measured(words: &[&str]) -> Option<(serde_json::Value, String)> {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.json");
    let output = Command::new(VIREO).arg("bench").args(words).arg("--json").arg(&out).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("vireo: this needs ") {
        eprintln!("skipped: {}", errors.trim());
        return None;
    }
    assert!(output.status.success(), "{errors}");
    let json = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    Some((json, String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
#[ignore = "make test-experiments"]
fn host_is_measured_with_messages_in_memory() {
    let Some((json, printed)) = measured(&["host", "--quick", "--only", "messages", "--ues", "100"]) else { return };
    let median = |name: &str| {
        let figures = json["figures"].as_array().unwrap();
        let figure = figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name}"));
        assert!(figure["with_sctp"].is_null(), "only one view was asked for");
        figure["messages"]["ours"]["median"].as_f64().unwrap()
    };
    let alone = median("CPU per service request with its N4 exchange");
    let cycle = median("CPU per service request and release");
    // A registration has five times as many messages.
    let registration = median("CPU per registration + session, SUCI null");
    assert!(alone > 1.0 && cycle > 1.0 && registration > alone, "{alone} {cycle} {registration}");
    let parts = &json["parts"]["registration + session"];
    let cpu = |part: &str| parts[part].as_f64().unwrap();
    for part in ["host", "balancer", "workers", "emulator"] {
        assert!(cpu(part) > 0.0, "{part}: {parts}");
    }
    // Its thread is idle: the balancer's thread serves N4.
    assert!(cpu("upf") < cpu("balancer"), "{parts}");
    assert!(printed.contains("messages in memory"));
}

#[test]
#[ignore = "make test-experiments"]
fn host_is_measured_with_sctp() {
    let Some((json, printed)) = measured(&["host", "--quick", "--only", "sctp", "--ues", "100"]) else { return };
    for name in ["CPU per registration + session, SUCI null", "a worker process is ready after, worst"] {
        let figure = json["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == name);
        let median = &figure.unwrap_or_else(|| panic!("{name}: {printed}"))["with_sctp"]["ours"]["median"];
        assert!(median.as_f64().is_some_and(|median| median > 0.0), "{name}: {printed}");
    }
}

#[test]
#[ignore = "make test-experiments"]
fn user_plane_is_measured_by_every_driver() {
    let Some((json, _)) = measured(&["upf", "--quick"]) else { return };
    let figures = json["figures"].as_array().unwrap();
    let median = |name: String| {
        let figure = figures.iter().find(|figure| figure["name"] == *name).unwrap_or_else(|| panic!("{name}"));
        figure["ours"]["median"].as_f64().unwrap()
    };
    // The result depends on the machine, but every user plane reaches more than half the rate of
    // mere header copying.
    for way in ["uplink", "downlink"] {
        for driver in ["sockets", "af-packet", "af-xdp"] {
            let ratio = median(format!("{driver}, {way}, 2500 sessions, of the bare forwarder"));
            assert!(ratio > 0.5, "{driver} {way}: {ratio}");
        }
        assert!(median(format!("XDP, {way}, 2500 sessions, of the floor")) > 0.5, "{way}");
        assert!(median(format!("T_c, {way}, 2500 sessions")) > 1.0, "{way}");
    }
    assert!(median("PFCP, sessions set up, blocks of 2500".into()) > 100.0);
}

#[test]
fn balancer_message_is_measured_with_hosts() {
    let Some((json, _)) = measured(&["balancer", "--quick"]) else { return };
    let figures = json["figures"].as_array().unwrap();
    let of = |name: &str| {
        let figure = figures.iter().find(|figure| figure["name"].as_str().unwrap().starts_with(name));
        figure.unwrap_or_else(|| panic!("{name}"))["ours"]["median"].as_f64().unwrap()
    };
    // In microseconds and in nanoseconds: a message contains one or two decisions.
    assert!(of("CPU of an NGAP message") * 1000.0 > of("steering decision, 3 hosts"), "{figures:?}");
}

#[test]
#[ignore = "make test-experiments"]
fn cluster_cost_is_measured_by_serving_host() {
    let Some((json, printed)) = measured(&["cluster", "--quick"]) else { return };
    let figures = json["figures"].as_array().unwrap();
    let owner = figures.iter().find(|figure| figure["name"] == "CPU, served by the owner, 1 replica").unwrap();
    assert!(owner["ours"]["median"].as_f64().unwrap() > 1.0, "{printed}");
    let configurations = json["configurations"].as_array().unwrap().iter();
    let names: Vec<&str> = configurations.map(|configuration| configuration["name"].as_str().unwrap()).collect();
    assert!(["owner", "in turn", "1 shard", "2 shards"].iter().all(|name| names.contains(name)), "{names:?}");
}
