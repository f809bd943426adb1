//! Keys of the design that this release does not implement.
//!
//! The check refuses them by name, so that no operator relies on them.

use figment::value::{Dict, Value};

/// Values without implementation: section, key, values, permitted values.
const VALUES: [(&str, &str, &[&str], &str); 2] = [
    ("datapath", "driver", &["memory"], "\"sockets\", \"xdp\", \"af-packet\", \"af-xdp\""),
    ("pools", "key", &["function"], "\"slice,procedure\", \"wildcard\""),
];

/// Returns the problems of values without implementation.
pub(super) fn unsupported_values(root: &Dict) -> Vec<String> {
    let mut problems = Vec::new();
    let section = |name: &str| root.get(name).and_then(Value::as_dict);
    for (name, key, values, allowed) in VALUES {
        let value = section(name).and_then(|s| s.get(key)).and_then(Value::as_str);
        if let Some(value) = value.filter(|v| values.contains(v)) {
            problems.push(format!("{name}.{key}: {value:?} is not implemented in this release; allowed: {allowed}"));
        }
    }
    problems
}
