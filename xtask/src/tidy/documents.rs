//! Documents under `docs/security`, and `docs/abnormal.md`, prove what they say by tests: each test
//! that a table names is there.

use super::finding::Finding;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGES: [&str; 2] = ["docs/security.md", "docs/abnormal.md"];
const FOLDER: &str = "docs/security";

/// The documents and their texts; none in a tree without them.
pub(super) fn read(root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let mut files: Vec<_> = PAGES.into_iter().map(PathBuf::from).collect();
    if let Ok(entries) = std::fs::read_dir(root.join(FOLDER)) {
        files.extend(entries.flatten().map(|entry| Path::new(FOLDER).join(entry.file_name())));
    }
    files.retain(|file| root.join(file).is_file());
    let text = |file: &Path| std::fs::read_to_string(root.join(file)).map_err(|e| format!("{}: {e}", file.display()));
    files.into_iter().map(|file| text(&file).map(|text| (file, text))).collect()
}

/// Checks one document; `functions` are the names of all functions of the tree.
pub(super) fn check(file: &Path, text: &str, functions: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut in_table, mut names_tests) = (false, false);
    for (number, line) in text.lines().enumerate() {
        if !in_table {
            names_tests = last_cell(line).is_some_and(|cell| cell.trim() == "test");
        }
        in_table = line.starts_with('|');
        for name in if names_tests { tests_of(line) } else { Vec::new() } {
            if !functions.contains(name) {
                findings.push(Finding {
                    file: file.to_path_buf(),
                    line: number + 1,
                    message: format!("no test is called {name}: name the one that proves this"),
                });
            }
        }
    }
    findings
}

/// The names of the functions that a Rust source defines.
pub(super) fn functions(text: &str) -> impl Iterator<Item = String> {
    text.match_indices("fn ").filter_map(|(at, _)| {
        let name: String = text[at + 3..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        (!name.is_empty()).then_some(name)
    })
}

fn last_cell(line: &str) -> Option<&str> {
    let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    cells.rsplit_once('|').map(|(_, last)| last)
}

/// The tests that the last cell of a table's row names. `a::{b,c}` names two, `a::*` no single one.
fn tests_of(line: &str) -> Vec<&str> {
    let Some(last) = last_cell(line) else { return Vec::new() };
    let spans = last.split('`').skip(1).step_by(2);
    let paths = spans.filter(|span| span.chars().all(|c| c.is_ascii_alphanumeric() || "_:{},*/.".contains(c)));
    let names = paths.flat_map(|path| {
        let last = path.rsplit_once("::").map_or(path, |(_, last)| last);
        // A path in braces has its `::` in front of them.
        let last = path.rsplit_once("::{").map_or(last, |(_, within)| within);
        last.trim_end_matches('}').split(',')
    });
    // A test's name is a sentence; modules, keys and files are not.
    names.filter(|name| name.matches('_').count() > 1 && !name.contains(['.', '/', '*'])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_last_cell() {
        let row = "| 1 | `not_this_one` | says so | `a::tests::one_is_there`, `a::{two_is_there,three_is_there}`, `a::tests::*` |";
        assert_eq!(tests_of(row), ["one_is_there", "two_is_there", "three_is_there"]);
        assert_eq!(tests_of("no row: `some_name_or_other`"), [""; 0]);
        assert_eq!(
            tests_of("| n2 | `tests/upf` (scapy), `make x_y_z now`, `crates/a.rs::four_is_there` |"),
            ["four_is_there"]
        );
    }

    #[test]
    fn missing_test_is_found() {
        let functions = functions("#[test]\nfn one_is_there() {}\npub(crate) fn other<T>() {}").collect();
        let check = |text| check(Path::new("docs/security/n2.md"), text, &functions).len();
        assert_eq!(check("| n | test |\n|---|---|\n| a | `x::one_is_there` |"), 0);
        assert_eq!(check("| n | test |\n|---|---|\n| a | `x::one_is_gone_now` |"), 1);
        assert_eq!(check("| n | made |\n|---|---|\n| a | `x::one_is_gone_now` |"), 0, "another table");
    }
}
