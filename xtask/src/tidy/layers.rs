//! Which crate may use which, from `cargo metadata`.

use super::finding::Finding;
use super::rules::{DEV_ONLY, LAYERS, USERS};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Checks the dependencies of every crate of the workspace.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    check_metadata(root, &metadata)
}

fn check_metadata(root: &Path, metadata: &Value) -> Result<Vec<Finding>, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = packages.iter().map(|p| text(&p["name"])).collect();
    let mut findings = Vec::new();
    for package in packages {
        let name = text(&package["name"]);
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let file = manifest.strip_prefix(root).unwrap_or(&manifest).to_path_buf();
        let manifest_text = std::fs::read_to_string(&manifest).unwrap_or_default();
        let mut add = |dependency: &str, message: String| {
            findings.push(Finding { file: file.clone(), line: line_of(&manifest_text, dependency), message });
        };
        let Some(allowed) = lookup(LAYERS, &name) else {
            add("name", format!("crate {name} has no layer: give it one in xtask/src/tidy/rules.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = text(&dependency["name"]);
            let dev = dependency["kind"] == "dev";
            if names.contains(&used) {
                let in_tests = dev && lookup(DEV_ONLY, &name).is_some_and(|l| l.contains(&used.as_str()));
                if !allowed.contains(&used.as_str()) && !in_tests && used != name {
                    add(
                        &used,
                        format!("{name} must not use {used}: dependencies point down only (see ARCHITECTURE.md)"),
                    );
                }
            } else if let Some(users) = lookup(USERS, &used)
                && !users.contains(&name.as_str())
                && !dev
            {
                add(&used, format!("{name} must not use {used}: only {} may", users.join(", ")));
            }
        }
    }
    Ok(findings)
}

fn lookup<'a>(table: &'a [(&str, &'a [&'a str])], key: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(name, _)| *name == key).map(|(_, list)| *list)
}

/// The line of a manifest that names the dependency first.
fn line_of(manifest: &str, dependency: &str) -> usize {
    manifest.lines().position(|line| line.trim_start().starts_with(dependency)).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn findings(name: &str, dependencies: Value) -> Vec<String> {
        let packages = json!({ "packages": [
            { "name": name, "manifest_path": "/w/crates/a/Cargo.toml", "dependencies": dependencies },
            { "name": "vireo-types", "manifest_path": "/w/crates/types/Cargo.toml", "dependencies": [] },
            { "name": "vireo-node", "manifest_path": "/w/crates/node/Cargo.toml", "dependencies": [] },
        ]});
        check_metadata(Path::new("/w"), &packages).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_point_down() {
        assert_eq!(findings("vireo-core", json!([{ "name": "vireo-types", "kind": null }])), [""; 0]);
        let up = findings("vireo-core", json!([{ "name": "vireo-node", "kind": null }]));
        assert_eq!(up.len(), 1);
        assert!(up[0].starts_with("crates/a/Cargo.toml:1: vireo-core must not use vireo-node"), "{}", up[0]);
        let in_tests = findings("vireo-core", json!([{ "name": "vireo-node", "kind": "dev" }]));
        assert_eq!(in_tests.len(), 1, "tests of a pure crate do not reach up either");
    }

    #[test]
    fn dependencies_from_outside_have_their_users() {
        assert_eq!(findings("vireo-sctp", json!([{ "name": "libc", "kind": null }])), [""; 0]);
        let pure = findings("vireo-core", json!([{ "name": "libc", "kind": null }]));
        assert_eq!(pure.len(), 1);
        assert!(pure[0].contains("vireo-core must not use libc: only vireo-sctp"), "{}", pure[0]);
    }

    #[test]
    fn new_crate_needs_layer() {
        let new = findings("vireo-new", json!([]));
        assert!(new.len() == 1 && new[0].contains("has no layer"), "{new:?}");
    }
}
