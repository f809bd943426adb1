//! The house rules as one check over the tree.

mod documents;
mod files;
mod layers;
mod links;
mod procedures;
mod rules;
mod source;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// A broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the workspace's root.
    pub(crate) file: PathBuf,
    /// From 1.
    pub(crate) line: usize,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

/// What a check of the tree came to.
#[derive(Debug)]
pub(crate) struct Report {
    /// Source files read.
    pub(crate) files: usize,
    /// Rules broken, in order of file and line.
    pub(crate) findings: Vec<Finding>,
}

/// Checks the workspace at `root`. An error means that the check itself could not run.
pub(crate) fn check(root: &Path) -> Result<Report, String> {
    let mut findings = layers::check(root)?;
    let files = files::sources(root)?;
    let mut functions = BTreeSet::new();
    for file in &files {
        let text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{}: {e}", file.display()))?;
        findings.extend(check_file(file, &text));
        functions.extend(documents::functions(&text));
    }
    for (file, text) in documents::read(root)? {
        findings.extend(documents::check(&file, &text, &functions));
    }
    findings.extend(links::check(root)?);
    findings.sort();
    findings.dedup();
    Ok(Report { files: files.len(), findings })
}

/// Checks one file; `file` is its path in the workspace, which decides what rules it falls under.
fn check_file(file: &Path, text: &str) -> Vec<Finding> {
    let mut findings = files::check(file, text);
    if file.extension().is_some_and(|e| e == "rs") {
        match syn::parse_file(text) {
            Ok(tree) => {
                findings.extend(source::check(file, &tree));
                findings.extend(procedures::check(file, &tree));
            }
            Err(error) => findings.push(Finding {
                file: file.to_path_buf(),
                line: error.span().start().line,
                message: format!("does not parse: {error}"),
            }),
        }
    }
    findings
}
