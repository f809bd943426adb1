//! Keys of the design that this release does not act on yet: refused by name, so that nobody believes they act.

use figment::value::{Dict, Value};

/// Sections and what this release does instead.
const SECTIONS: [(&str, &str); 4] = [
    ("pools", "one pool of workers runs every procedure"),
    ("state", "state is kept in the memory of the process"),
    ("replication", "there is one host"),
    ("steering", "there is one host"),
];

/// Keys of a slice.
const SLICE_KEYS: [&str; 3] = ["slo", "profile", "replicas"];

/// What of the configuration is not implemented yet.
pub(super) fn refused(root: &Dict) -> Vec<String> {
    let mut problems = Vec::new();
    for (section, instead) in SECTIONS {
        if root.contains_key(section) {
            problems.push(format!("{section}: not implemented in this release ({instead}): remove the section"));
        }
    }
    for (name, slice) in root.get("slice").and_then(Value::as_dict).into_iter().flatten() {
        for key in SLICE_KEYS {
            if slice.as_dict().is_some_and(|s| s.contains_key(key)) {
                let why = "not implemented in this release (all slices are served alike): remove the key";
                problems.push(format!("slice.{name}.{key}: {why}"));
            }
        }
    }
    let driver = root.get("datapath").and_then(Value::as_dict).and_then(|d| d.get("driver")).and_then(Value::as_str);
    if let Some(driver @ ("xdp" | "af-xdp" | "af-packet" | "memory")) = driver {
        problems.push(format!("datapath.driver: {driver:?} is not implemented in this release; allowed: \"sockets\""));
    }
    problems
}
