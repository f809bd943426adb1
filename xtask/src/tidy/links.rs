//! Links and table of contents of the Markdown documents.
//!
//! A relative link leads to a file of the repository and, with `#`, to one of its headings. Pages
//! of the book (`docs/`) link to pages of the book only, because a rendered book has no other
//! files. Each page of the book is in `docs/SUMMARY.md`.

use super::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Documents outside of the book; a tree may lack them.
const FRONT: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
const BOOK: &str = "docs";
const CONTENTS: &str = "docs/SUMMARY.md";

/// The lines of a document, told apart by whether they are in a fenced code block.
struct Prose<'a> {
    lines: Vec<Line<'a>>,
}

struct Line<'a> {
    source: &'a str,
    fenced: bool,
}

impl<'a> Prose<'a> {
    fn new(text: &'a str) -> Self {
        let mut fenced = false;
        let lines = text.lines().map(|source| {
            let fence = source.trim_start().starts_with("```");
            fenced ^= fence;
            Line { source, fenced: fenced || fence }
        });
        Prose { lines: lines.collect() }
    }

    /// Lines outside of fences, with their numbers from 1.
    fn outside(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.lines.iter().enumerate().filter(|(_, line)| !line.fenced).map(|(n, line)| (n + 1, line.source))
    }
}

/// Checks the documents of the tree at `root`.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut documents = BTreeMap::new();
    for file in FRONT.iter().map(PathBuf::from).filter(|file| root.join(file).is_file()) {
        documents.insert(file, String::new());
    }
    for file in pages(root, Path::new(BOOK))? {
        documents.insert(file, String::new());
    }
    for (file, text) in &mut documents {
        *text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let exists = |path: &Path| root.join(path).exists();
    Ok(check_documents(&documents, &exists))
}

/// The Markdown files under `folder`, relative to `root`.
fn pages(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else { return Ok(files) };
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", folder.display()))?;
        let path = folder.join(entry.file_name());
        if root.join(&path).is_dir() {
            files.extend(pages(root, &path)?);
        } else if path.extension().is_some_and(|e| e == "md") {
            files.push(path);
        }
    }
    Ok(files)
}

fn check_documents(documents: &BTreeMap<PathBuf, String>, exists: &dyn Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = BTreeSet::from([PathBuf::from(CONTENTS)]);
    for (file, text) in documents {
        let prose = Prose::new(text);
        for (line, source) in prose.outside() {
            let finding = |message| Finding { file: file.clone(), line, message };
            for link in links(source) {
                match target(file, link) {
                    Some((path, _)) if file.starts_with(BOOK) && !path.starts_with(BOOK) => {
                        findings.push(finding(format!("{link} leaves the book: name the file as code instead")));
                    }
                    Some((path, _)) if !exists(&path) => {
                        findings.push(finding(format!("{link} leads to no file: {} is missing", path.display())));
                    }
                    Some((path, anchor)) => {
                        if let (Some(anchor), Some(text)) = (anchor, documents.get(&path))
                            && !anchors(text).contains(anchor)
                        {
                            findings.push(finding(format!("{link}: {} has no such heading", path.display())));
                        }
                        if file == Path::new(CONTENTS) {
                            listed.insert(path);
                        }
                    }
                    None => {}
                }
            }
        }
    }
    let unlisted = documents.keys().filter(|file| file.starts_with(BOOK) && !listed.contains(*file));
    findings.extend(unlisted.map(|file| Finding {
        file: file.clone(),
        line: 1,
        message: format!("not in the table of contents: add it to {CONTENTS}"),
    }));
    findings
}

/// The targets of the links in a line, those in inline code left out.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut code = false;
    let mut rest = line;
    while let Some(at) = rest.find(['`', ']']) {
        let (mark, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = after;
        if mark == b'`' {
            code = !code;
        } else if let Some((link, _)) = after.strip_prefix('(').and_then(|after| after.split_once(')'))
            && !code
        {
            found.push(link);
        }
    }
    found
}

/// Returns the file, relative to the root, and the heading of a link in `file`; `None` for links to
/// other sites.
fn target<'a>(file: &Path, link: &'a str) -> Option<(PathBuf, Option<&'a str>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (link, None),
    };
    if path.is_empty() {
        return Some((file.to_path_buf(), anchor));
    }
    let mut resolved = file.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                // A link above the root leads to no file.
                if !resolved.pop() {
                    resolved.push("..");
                }
            }
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    Some((resolved, anchor))
}

/// The anchors of the headings, as forges and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in Prose::new(text).outside() {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = seen.entry(name.clone()).or_default();
        anchors.insert(if *count == 0 { name.clone() } else { format!("{name}-{count}") });
        *count += 1;
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(documents: &[(&str, &str)]) -> Vec<String> {
        let documents: BTreeMap<_, _> =
            documents.iter().map(|(file, text)| (PathBuf::from(file), (*text).to_owned())).collect();
        let exists = |path: &Path| documents.contains_key(path) || path == Path::new("LICENSE");
        check_documents(&documents, &exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_in_code_are_left_out() {
        assert_eq!(links("[a](b.md), `[c](d.md)` and [e\u{e9}](f.md#g) (h)"), ["b.md", "f.md#g"]);
        assert_eq!(links("a `]` b](c"), [""; 0]);
    }

    #[test]
    fn anchors_are_those_of_forges() {
        let text = "# A page\n## `vireo run`: what, why?\n```\n# no heading\n```\n## A page\n#5 of them\n";
        assert_eq!(anchors(text), ["a-page", "vireo-run-what-why", "a-page-1"].map(String::from).into());
    }

    #[test]
    fn broken_links_are_found() {
        let summary = ("docs/SUMMARY.md", "[a](a/b.md)\n[c](c.md)");
        let good = [
            summary,
            ("README.md", "[x](docs/c.md#title) [y](LICENSE) [z](https://example.org/q)"),
            ("docs/a/b.md", "[c](../c.md) [d](#here)\n\n# Here"),
            ("docs/c.md", "# Title\n```\n[no](link.md)\n```"),
        ];
        assert_eq!(findings(&good), [""; 0]);
        let broken = [
            summary,
            ("README.md", "[x](docs/c.md#titel)\n[y](docs/d.md)"),
            ("docs/a/b.md", "[license](../../LICENSE)"),
            ("docs/c.md", "# Title"),
            ("docs/e.md", ""),
        ];
        assert_eq!(
            findings(&broken),
            [
                "README.md:1: docs/c.md#titel: docs/c.md has no such heading",
                "README.md:2: docs/d.md leads to no file: docs/d.md is missing",
                "docs/a/b.md:1: ../../LICENSE leaves the book: name the file as code instead",
                "docs/e.md:1: not in the table of contents: add it to docs/SUMMARY.md",
            ]
        );
    }
}
