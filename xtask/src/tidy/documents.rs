//! Documents under `docs/security`, and `docs/abnormal.md`, prove what they say by tests: each test
//! that a table names is there, by its whole path.

use super::finding::Finding;
use super::test_paths::Paths;
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

/// Checks one document against the functions and modules of the tree.
pub(super) fn check(file: &Path, text: &str, paths: &Paths) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut in_table, mut names_tests) = (false, false);
    for (number, line) in text.lines().enumerate() {
        if !in_table {
            names_tests = last_cell(line).is_some_and(|cell| cell.trim() == "test");
        }
        in_table = line.starts_with('|');
        for path in if names_tests { tests_of(line) } else { Vec::new() } {
            if !paths.has_function(&path) && !paths.has_module(&path) {
                findings.push(Finding {
                    file: file.to_path_buf(),
                    line: number + 1,
                    message: format!("no test or module is called {path}: name the one that proves this, by its path"),
                });
            }
        }
    }
    findings
}

fn last_cell(line: &str) -> Option<&str> {
    let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    cells.rsplit_once('|').map(|(_, last)| last)
}

/// Returns the paths of tests and modules that the last cell of a table's row names.
///
/// `a::{b,c}` names two tests, `a::*` the module `a`. `::b` is in the module of the test before it.
fn tests_of(line: &str) -> Vec<String> {
    let Some(last) = last_cell(line) else { return Vec::new() };
    let is_path = |span: &&str| span.chars().all(|c| c.is_ascii_alphanumeric() || "_:{},*/.".contains(c));
    let (mut tests, mut module) = (Vec::new(), String::new());
    for span in last.split('`').skip(1).step_by(2).filter(is_path) {
        let Some((prefix, name)) = span.rsplit_once("::") else {
            // A test's name is a sentence; keys and files are not.
            if span.matches('_').count() > 1 && !span.contains(['.', '/', '*']) {
                tests.push(span.to_owned());
            }
            continue;
        };
        if !prefix.is_empty() {
            module = prefix.to_owned();
        }
        if name == "*" {
            tests.push(module.clone());
            continue;
        }
        let names = name.strip_prefix('{').and_then(|names| names.strip_suffix('}')).unwrap_or(name);
        tests.extend(names.split(',').map(|name| format!("{module}::{name}")));
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::super::test_paths;
    use super::*;

    #[test]
    fn names_are_those_of_the_last_cell() {
        let row =
            "| 1 | `not_this_one` | says so | `a::tests::one_is_there`, `::two_is_there`, `a::{b,c}`, `a::b::*` |";
        assert_eq!(tests_of(row), ["a::tests::one_is_there", "a::tests::two_is_there", "a::b", "a::c", "a::b"]);
        assert_eq!(tests_of("no row: `some_name_or_other`"), [""; 0]);
        assert_eq!(
            tests_of(
                "| n2 | `tests/upf` (scapy), `make x_y_z now`, `crates/a.rs::four_is_there`, `a_bare_name`, `key_a` |"
            ),
            ["crates/a.rs::four_is_there", "a_bare_name"]
        );
    }

    #[test]
    fn test_is_found_by_its_whole_path() {
        let root = syn::parse_file("mod tests { fn one_is_there() {} }").unwrap();
        let files = [(PathBuf::from("crates/n4/src/lib.rs"), test_paths::read(&root))];
        let paths = Paths::new(&files.into());
        let check = |text: &str| check(Path::new("docs/security/n2.md"), text, &paths).len();
        let row = |test: &str| format!("| n | test |\n|---|---|\n| a | `{test}` |");
        for test in ["vireo_n4::tests::one_is_there", "vireo_n4::tests", "vireo_n4::tests::*"] {
            assert_eq!(check(&row(test)), 0, "{test}");
        }
        for test in ["vireo_n4::one_is_there", "one_is_there", "crates/n4/src/lib.rs::one_is_there", "vireo_n4::*::a"] {
            assert_eq!(check(&row(test)), 1, "{test}");
        }
        assert_eq!(check("| n | made |\n|---|---|\n| a | `x::one_is_there` |"), 0, "another table");
    }
}
