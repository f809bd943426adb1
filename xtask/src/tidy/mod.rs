//! House rules as one check over the tree.
//!
//! Some rules hold everywhere ([`Finding`]). The rules of [`Rule`] have violations today
//! ([`Debt`]); their counts are compared with a [`baseline`] that only falls.

pub(crate) mod baseline;
mod documents;
mod duplicates;
mod files;
mod finding;
mod layers;
mod links;
mod names;
mod procedures;
mod rules;
mod shapes;
mod source;
mod test_paths;
mod width;
mod words;

pub(crate) use finding::{Debt, Finding, Rule, crate_of};
pub(crate) use source::is_test;

use crate::modules;
use std::path::{Path, PathBuf};

/// Result of a check of the tree.
#[derive(Debug)]
pub(crate) struct Report {
    /// Count of source files that were read.
    pub(crate) files: usize,
    /// Violations of the rules without a baseline, in order of file and line.
    pub(crate) findings: Vec<Finding>,
    /// Violations of the rules with a baseline, in order of rule, crate, file and line.
    pub(crate) debts: Vec<Debt>,
    /// Declarations and imports of each file in the `src` folder of a crate.
    pub(crate) sources: modules::Sources,
}

/// Checks the workspace at `root`, without a comparison with the baseline.
///
/// # Errors
///
/// Returns a message if a file cannot be read or `cargo metadata` fails.
pub(crate) fn check(root: &Path) -> Result<Report, String> {
    let files = files::sources(root)?;
    let mut report = Report {
        files: files.len(),
        findings: layers::check(root)?,
        debts: Vec::new(),
        sources: modules::Sources::new(),
    };
    let mut declarations = std::collections::BTreeMap::new();
    let mut texts = Vec::new();
    for (file, checked) in check_files(root, &files)? {
        texts.push((file.clone(), checked.text));
        report.findings.extend(checked.findings);
        report.debts.extend(checked.debts);
        declarations.insert(file.clone(), checked.declarations);
        report.sources.insert(file.clone(), checked.scopes);
    }
    report.debts.extend(modules::check(&report.sources));
    report.debts.extend(duplicates::check(&texts));
    let paths = test_paths::Paths::new(&declarations);
    for (file, text) in documents::read(root)? {
        report.findings.extend(documents::check(&file, &text, &paths));
    }
    report.findings.extend(links::check(root)?);
    for (file, text) in width::documents(root)? {
        report.debts.extend(width::check_markdown(&file, &text));
    }
    report.findings.sort();
    report.findings.dedup();
    report.debts.sort();
    Ok(report)
}

/// Compares the debts of `report` with the baseline of the workspace at `root`.
///
/// # Errors
///
/// Returns a message if the baseline cannot be read.
pub(crate) fn compare(root: &Path, report: &Report) -> Result<Vec<Finding>, String> {
    Ok(baseline::compare(&baseline::count(&report.debts), &baseline::read(root)?))
}

/// Result of the check of one file.
#[derive(Default)]
struct Checked {
    text: String,
    findings: Vec<Finding>,
    debts: Vec<Debt>,
    declarations: test_paths::Declarations,
    scopes: Vec<modules::Scope>,
}

/// Checks `files` by as many threads as there are CPUs: most of the time goes into parsing.
fn check_files<'a>(root: &Path, files: &'a [PathBuf]) -> Result<Vec<(&'a PathBuf, Checked)>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let check_share = |thread: usize| -> Result<Vec<_>, String> {
        let share = files.iter().skip(thread).step_by(threads);
        share
            .map(|file| {
                let text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{}: {e}", file.display()))?;
                let checked = check_file(file, &text);
                Ok((file, Checked { text, ..checked }))
            })
            .collect()
    };
    std::thread::scope(|scope| {
        let check_share = &check_share;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || check_share(thread))).collect();
        let mut checked = Vec::new();
        for worker in workers {
            checked.extend(worker.join().map_err(|_| "bug: a thread of the check panicked")??);
        }
        Ok(checked)
    })
}

/// Checks one file. The path in the workspace decides which rules apply.
fn check_file(file: &Path, text: &str) -> Checked {
    let mut checked = Checked { findings: files::check(file, text), ..Checked::default() };
    if file.extension().is_some_and(|e| e == "rs") {
        match syn::parse_file(text) {
            Ok(tree) => {
                checked.findings.extend(source::check(file, &tree));
                checked.findings.extend(procedures::check(file, &tree));
                checked.debts.extend(shapes::check(file, &tree));
                checked.debts.extend(names::check(file, &tree));
                checked.debts.extend(width::check_comments(file, text, &tree));
                checked.scopes = modules::read(&tree);
                checked.declarations = test_paths::read(&tree);
            }
            Err(error) => checked.findings.push(Finding {
                file: file.to_path_buf(),
                line: error.span().start().line,
                message: format!("does not parse: {error}"),
            }),
        }
    }
    checked
}
