//! Code that both dialects have: each is written once, and the dialects have what differs.

use super::finding::{Debt, Rule};
use super::rules::{DIALECTS, DUPLICATE_LINES};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Files of one dialect: those below a folder, or whose path begins so, with this name of a file or
/// folder in the path (empty for all).
pub(super) type Side = [(&'static str, &'static str)];

/// A source file without comments and blank lines: numbers and trimmed texts of its lines.
struct Lines<'a> {
    file: &'a Path,
    lines: Vec<(usize, &'a str)>,
}

impl<'a> Lines<'a> {
    fn new(file: &'a Path, text: &'a str) -> Self {
        let numbered = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
        Lines { file, lines: numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with("//")).collect() }
    }

    /// Texts of a run of [`DUPLICATE_LINES`] lines.
    fn run(&self, at: usize) -> Option<Vec<&'a str>> {
        Some(self.lines.get(at..at + DUPLICATE_LINES)?.iter().map(|(_, line)| *line).collect())
    }

    /// Length of the run that is equal in both.
    fn equal(&self, at: usize, other: &Self, other_at: usize) -> usize {
        let pairs = self.lines[at..].iter().zip(&other.lines[other_at..]);
        pairs.take_while(|((_, line), (_, other))| line == other).count()
    }
}

/// Checks the files of all pairs of dialects. A violation is in the file of the second one.
pub(super) fn check(files: &[(PathBuf, String)]) -> Vec<Debt> {
    let mut debts = Vec::new();
    for (first, second) in DIALECTS {
        let of = |is_chosen: &dyn Fn(&Path) -> bool| -> Vec<Lines<'_>> {
            let chosen = files.iter().filter(|(file, _)| is_chosen(file));
            chosen.map(|(file, text)| Lines::new(file, text)).collect()
        };
        let first = of(&|file| has(first, file) && !has(second, file));
        for file in of(&|file| has(second, file)) {
            debts.extend(compare(&first, &file));
        }
    }
    debts
}

fn has(side: &Side, file: &Path) -> bool {
    let is_named = |name: &str| file.iter().any(|part| Path::new(part).file_stem().is_some_and(|stem| stem == name));
    let text = file.to_string_lossy();
    side.iter().any(|(start, name)| text.starts_with(start) && (name.is_empty() || is_named(name)))
}

/// Returns a violation for each run in `file` that one of `others` has, too.
fn compare(others: &[Lines<'_>], file: &Lines<'_>) -> Vec<Debt> {
    let mut runs = HashMap::new();
    for other in others {
        for at in 0..other.lines.len() {
            if let Some(run) = other.run(at) {
                runs.entry(run).or_insert((other, at));
            }
        }
    }
    let (mut debts, mut at) = (Vec::new(), 0);
    while let Some(run) = file.run(at) {
        let Some((other, other_at)) = runs.get(&run) else {
            at += 1;
            continue;
        };
        let length = file.equal(at, other, *other_at);
        let (line, other_line) = (file.lines[at].0, other.lines[*other_at].0);
        let message = format!(
            "{length} lines equal those at {}:{other_line}: move them to code that both dialects share",
            other.file.display()
        );
        debts.push(Debt::new(Rule::DialectDuplicate, file.file, line, message));
        at += length;
    }
    debts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: &str, second: &str, lines: usize) -> Vec<String> {
        let text: String = (0..lines).map(|n| format!("    // Says {n}.\n    line({n});\n\n")).collect();
        let files = [(first.into(), format!("fn a() {{\n{text}}}\n")), (second.into(), text)];
        check(&files).iter().map(|debt| debt.finding.to_string()).collect()
    }

    #[test]
    fn long_run_of_both_dialects_is_found_once() {
        for (first, second) in [
            ("crates/core/src/amf/procedures/paging/nr.rs", "crates/core/src/amf/procedures/paging/eps.rs"),
            ("crates/core/src/amf/n2/fault.rs", "crates/core/src/amf/s1/fault.rs"),
            ("crates/emulator/src/ue/mod.rs", "crates/emulator/src/ue/eps/nas.rs"),
        ] {
            let found = found(first, second, DUPLICATE_LINES + 3);
            assert_eq!(found.len(), 1, "{found:?}");
            let lines = DUPLICATE_LINES + 3;
            assert!(found[0].starts_with(&format!("{second}:2: {lines} lines equal those at {first}:3:")), "{found:?}");
        }
    }

    #[test]
    fn short_run_and_other_files_are_not_found() {
        let (nr, eps) = ("crates/core/src/amf/procedures/paging/nr.rs", "crates/core/src/amf/procedures/paging/eps.rs");
        assert_eq!(found(nr, eps, DUPLICATE_LINES - 1), [""; 0]);
        assert_eq!(found(nr, nr, DUPLICATE_LINES), [""; 0]);
        assert_eq!(found("crates/smf/src/lib.rs", "crates/amf/src/lib.rs", DUPLICATE_LINES), [""; 0]);
    }
}
