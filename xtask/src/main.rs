//! Work on the repository itself. `cargo run -p xtask -- tidy` checks the house rules that no other tool knows:
//! which crate may use which, what each layer must not name, how long files and functions may be.
//!
//! Knows nothing of the running core; reads source text and `cargo metadata` only.
#![forbid(unsafe_code)]

mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("tidy"), None) => report(tidy::check(&root())),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy");
            ExitCode::from(2)
        }
    }
}

fn report(result: Result<tidy::Report, String>) -> ExitCode {
    match result {
        Ok(report) if report.findings.is_empty() => {
            println!("tidy: {} files keep the house rules", report.files);
            ExitCode::SUCCESS
        }
        Ok(report) => {
            for finding in &report.findings {
                eprintln!("{finding}");
            }
            eprintln!("tidy: {} findings in {} files", report.findings.len(), report.files);
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: the parent of this crate.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}
