//! Rules about whole files: which there are, how long they may be, and words that say a thing is
//! not done.

use super::finding::Finding;
use super::rules::FILE_LINES;
use std::path::{Path, PathBuf};

/// Folders below which sources lie.
const FOLDERS: &[&str] = &["crates", "xtask", "tests", "fuzz", "bpf"];
const EXTENSIONS: &[&str] = &["rs", "c", "h", "py"];

/// Words that mark unfinished work. Put together here so that this file does not contain them.
const UNFINISHED: &[&str] = &[
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("TO", "DO"),
];

/// All sources below `root`, sorted, relative to it.
pub(super) fn sources(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        if root.join(folder).is_dir() {
            walk(root, Path::new(folder), &mut found).map_err(|e| format!("{folder}: {e}"))?;
        }
    }
    found.sort();
    Ok(found)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if entry.file_type()?.is_dir() {
            if !hidden && entry.file_name() != "target" && entry.file_name() != "__pycache__" {
                walk(root, &path, found)?;
            }
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| EXTENSIONS.contains(&e)) {
            found.push(path);
        }
    }
    Ok(())
}

/// Checks the text of one file.
pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES {
        findings.push(Finding {
            file: file.to_path_buf(),
            line: FILE_LINES + 1,
            message: format!("{lines} lines, {FILE_LINES} are the most: split it by what its parts do"),
        });
    }
    for (number, line) in text.lines().enumerate() {
        if let Some(word) = UNFINISHED.iter().find(|word| has_word(line, word)) {
            findings.push(Finding {
                file: file.to_path_buf(),
                line: number + 1,
                message: format!("'{word}': finish it, or open an issue and take the mark out"),
            });
        }
    }
    findings
}

/// Whether `line` has `word` with no letter, digit or underscore before or after it.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && (word.ends_with('!') || !after.is_some_and(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_not_finished() {
        for word in UNFINISHED {
            let line = format!("    // {word} later");
            let findings = check(Path::new("crates/a/src/b.rs"), &format!("fn a() {{}}\n{line}\n"));
            assert_eq!(findings.len(), 1, "{line}");
            assert_eq!(findings[0].line, 2);
        }
        assert_eq!(check(Path::new("a.rs"), "mkstemp of a name with six X: /tmp/vXXXXXX, not_\u{74}odo!()"), []);
    }

    #[test]
    fn limits_the_length() {
        assert_eq!(check(Path::new("a.rs"), &"\n".repeat(FILE_LINES)), []);
        let long = check(Path::new("a.rs"), &"\n".repeat(FILE_LINES + 1));
        assert_eq!(long.len(), 1);
        assert!(long[0].to_string().starts_with("a.rs:801: 801 lines"), "{}", long[0]);
    }

    #[test]
    fn walks_sources_only() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        for path in ["crates/b/src/lib.rs", "crates/a/x.py", "crates/a/target/y.rs", "docs/z.rs", "crates/a/note.md"] {
            write(path);
        }
        assert_eq!(sources(root.path()).unwrap(), [Path::new("crates/a/x.py"), Path::new("crates/b/src/lib.rs")]);
    }
}
