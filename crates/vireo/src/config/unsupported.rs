//! Keys of the design that this release does not act on yet: refused by name, so that nobody believes they act.

use figment::value::{Dict, Value};

/// Values that the design has and this release has not: section, key, values, what is allowed.
const VALUES: [(&str, &str, &[&str], &str); 2] = [
    ("datapath", "driver", &["memory"], "\"sockets\", \"xdp\", \"af-packet\", \"af-xdp\""),
    ("pools", "key", &["function"], "\"slice,procedure\", \"wildcard\""),
];

/// What of the configuration is not implemented yet.
pub(super) fn refused(root: &Dict) -> Vec<String> {
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
