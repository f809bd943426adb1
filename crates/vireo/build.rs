//! Passes the Git commit of the source to the compiler, for the summaries of measurements.
//!
//! `VIREO_COMMIT` in the environment takes precedence, for builds of an archive. Changes that are
//! not committed do not show.

use std::env;
use std::path::Path;
use std::process::Command;

/// Path of this package in the repository.
const PREFIX: &str = "crates/vireo/";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=VIREO_COMMIT");
    let given = env::var("VIREO_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(head).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=VIREO_COMMIT={commit}");
}

/// Returns the commit of HEAD; `None` outside Vireo's repository, or without Git.
fn head() -> Option<String> {
    // A source archive may lie inside another repository.
    if git(&["rev-parse", "--show-prefix"])? != PREFIX {
        return None;
    }
    // The log of HEAD grows with each commit and checkout.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}
