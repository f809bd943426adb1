//! `vireo experiment` as a user runs it: that it measures a real core and leaves what it promises.

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use vireo_simulator::results::Summary;

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");
/// Experiments are measurements: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn an_experiment_leaves_its_results() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results");
    let output =
        Command::new(VIREO).args(["experiment", "service-load", "--quick", "--out"]).arg(&out).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("vireo: this needs ") {
        eprintln!("skipped: {}", errors.trim());
        return;
    }
    assert!(output.status.success(), "{errors}");
    let summary: Summary = serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!((summary.experiment.as_str(), summary.quick, summary.runs), ("service-load", true, 1));
    let rate = &summary.figures[0];
    assert!(rate.ours.median > 10.0 && rate.unit == "1/s", "{rate:?}");
    assert!(summary.machine.cpus > 0 && summary.configurations[0].toml.contains("sst = 1"));
    assert!(std::fs::read_to_string(out.join("latency.svg")).unwrap().contains("service requests per second"));
    assert_eq!(std::fs::read_to_string(out.join("points.csv")).unwrap().lines().count(), 1 + 2);
    assert!(String::from_utf8_lossy(&output.stdout).contains("service requests at saturation"));
}

#[test]
fn the_time_of_a_packet_is_told_by_driver() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results");
    let words = ["experiment", "cloud-breakdown", "--quick", "--out"];
    let output = Command::new(VIREO).args(words).arg(&out).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("vireo: this needs ") {
        eprintln!("skipped: {}", errors.trim());
        return;
    }
    if errors.contains("measure again on an idle machine") {
        // Other test programs may run beside this one; a figure that cannot be is refused, which is right.
        return assert!(!output.status.success() && !out.join("summary.json").exists(), "{errors}");
    }
    assert!(output.status.success(), "{errors}");
    let file = out.join("summary.json");
    let summary: Summary = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for driver in ["sockets", "af-packet", "af-xdp", "xdp"] {
        for part in ["T_c", "T_p"] {
            let name = format!("{driver}, {part}");
            let figure = summary.figures.iter().find(|figure| figure.name == name).unwrap();
            assert!(figure.unit == "ns" && figure.paper.is_some(), "{figure:?}");
        }
    }
    let total = summary.figures.iter().find(|figure| figure.name == "sockets, T_p").unwrap();
    assert!(total.ours.median > 100.0, "system calls for every packet: {total:?}");
    assert!(std::fs::read_to_string(out.join("times.svg")).unwrap().contains("af-packet"));
    assert_eq!(std::fs::read_to_string(out.join("times.csv")).unwrap().lines().count(), 1 + 4 * 2);
}

#[test]
fn migrations_lose_no_packet_and_no_count() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results");
    let output =
        Command::new(VIREO).args(["experiment", "pepc-migration", "--quick", "--out"]).arg(&out).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("vireo: this needs ") || errors.contains("no permission") {
        eprintln!("skipped: {}", errors.trim());
        return;
    }
    assert!(output.status.success(), "{errors}");
    let summary: Summary = serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    let of = |name: &str| summary.figures.iter().find(|figure| figure.name == name).unwrap().ours.median;
    assert_eq!((of("packets lost"), of("packets miscounted")), (0.0, 0.0), "{errors}");
    assert!(of("migrations") > 1000.0 && of("packets with migrations") > 1000.0, "{errors}");
}

#[test]
fn a_flood_is_measured_with_slices_and_without() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results");
    let output =
        Command::new(VIREO).args(["experiment", "pepc-isolation", "--quick", "--out"]).arg(&out).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("vireo: this needs ") || errors.contains("no permission") {
        eprintln!("skipped: {}", errors.trim());
        return;
    }
    assert!(output.status.success(), "{errors}");
    let summary: Summary = serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    for way in ["slices", "shared workers"] {
        let of = |what: &str| {
            let name = format!("{way}, {what}");
            summary.figures.iter().find(|figure| figure.name == name).unwrap().ours.median
        };
        assert!(of("flood that came through") > 1000.0, "{errors}");
        assert!(of("packets under a flood, of those without") > 0.0, "{errors}");
    }
}

#[test]
fn scale_out_is_measured_by_interfaces_and_by_queues() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results");
    let output =
        Command::new(VIREO).args(["experiment", "cloud-scaleout", "--quick", "--out"]).arg(&out).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("vireo: this needs ") || errors.contains("no permission") {
        eprintln!("skipped: {}", errors.trim());
        return;
    }
    assert!(output.status.success(), "{errors}");
    let summary: Summary = serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    for mode in ["separate interfaces", "fanout"] {
        let one = summary.figures.iter().find(|figure| figure.name == format!("{mode}, 1 module, packets each way"));
        assert!(one.unwrap().ours.median > 10_000.0, "{one:?}");
    }
    let several = summary.figures.iter().filter(|figure| figure.unit == "ratio").count();
    assert_eq!(several > 0, summary.machine.cpus > 1, "{summary}");
    assert!(summary.configurations.iter().any(|configuration| configuration.toml.contains("[[datapath.module]]")));
    assert!(std::fs::read_to_string(out.join("throughput.svg")).unwrap().contains("fanout"));
    assert!(std::fs::read_to_string(out.join("modules.csv")).unwrap().lines().count() > 2);
}

#[test]
fn what_there_is_not_is_told_before_anything_runs() {
    let output = Command::new(VIREO).args(["experiment", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("vireo experiment --list"));
    let output = Command::new(VIREO).args(["experiment", "--list"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for name in ["mmlite-fig2c", "mmlite-fig7-nf", "mmlite-fig9", "soak", "cloud-breakdown", "cloud-scaleout"] {
        assert!(text.contains(name), "{name} in {text}");
    }
}
