//! Width of comments and Markdown text.
//!
//! Lines that cannot wrap are exempt: a single word, tables, headings, link definitions and code
//! blocks.

use super::finding::{Debt, Rule};
use super::rules::{MARKDOWN_SKIPPED, WIDTH};
use proc_macro2::{TokenStream, TokenTree};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// Reads all Markdown files below `root`, sorted by path, with their texts.
///
/// # Errors
///
/// Returns a message if a folder or file cannot be read.
pub(super) fn documents(root: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let mut files = Vec::new();
    walk(root, Path::new(""), &mut files).map_err(|error| format!("Markdown files: {error}"))?;
    files.sort();
    let text =
        |file: &Path| std::fs::read_to_string(root.join(file)).map_err(|error| format!("{}: {error}", file.display()));
    files.into_iter().map(|file| text(&file).map(|text| (file, text))).collect()
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !MARKDOWN_SKIPPED.contains(&name.as_str()) {
                walk(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    Ok(())
}

/// Checks one Markdown file.
pub(super) fn check_markdown(file: &Path, text: &str) -> Vec<Debt> {
    let mut block = Block::default();
    let long = |line: &str| !line.trim_start().starts_with('#') && is_long(line, line);
    let lines = text.lines().enumerate().filter(|(_, line)| !block.holds(line) && long(line));
    lines.map(|(at, line)| debt(file, at + 1, line)).collect()
}

/// Checks the comment lines of one Rust file.
pub(super) fn check_comments(file: &Path, text: &str, tree: &syn::File) -> Vec<Debt> {
    // Parsing spans costs more than the rule: most files have no long comment.
    let mut block = Block::default();
    let mut long: Vec<(usize, &str)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let comment = line.trim_start();
        if !comment.starts_with("//") {
            block = Block::default();
            continue;
        }
        let content = comment.trim_start_matches('/').trim_start_matches('!');
        if !block.holds(content) && is_long(line, content) {
            long.push((at + 1, line));
        }
    }
    if long.is_empty() {
        return Vec::new();
    }
    let mut strings = Strings(Vec::new());
    strings.visit_file(tree);
    long.retain(|(line, _)| !strings.0.iter().any(|lines| lines.contains(line)));
    long.into_iter().map(|(line, text)| debt(file, line, text)).collect()
}

fn debt(file: &Path, line: usize, text: &str) -> Debt {
    let message = format!("{} columns, {WIDTH} are the most: wrap the text", text.chars().count());
    Debt::new(Rule::Width, file, line, message)
}

/// Returns true if `line` is over the limit and its text could wrap.
fn is_long(line: &str, content: &str) -> bool {
    let content = content.trim();
    let is_table = content.starts_with('|');
    let is_definition = content.starts_with('[') && content.contains("]: ") && content.split_whitespace().count() == 2;
    // A list item or a quotation of one word has its mark in front.
    let words = content.split_whitespace().filter(|word| !matches!(*word, "-" | "*" | ">")).count();
    line.chars().count() > WIDTH && !is_table && !is_definition && words > 1 && !is_link(content)
}

/// Returns true for a link alone on its line.
fn is_link(content: &str) -> bool {
    let content = content.trim_start_matches(['-', '*', '>', '!', ' ']).trim_end_matches('.');
    content.starts_with('[') && content.ends_with(')') && content.matches("](").count() == 1
}

/// Whether the line before was in a fenced code block.
#[derive(Default)]
struct Block(bool);

impl Block {
    /// Returns true for lines of a fenced block and the fences themselves.
    fn holds(&mut self, line: &str) -> bool {
        let is_fence = line.trim_start().starts_with("```");
        self.0 ^= is_fence;
        self.0 || is_fence
    }
}

/// Lines that begin within a string literal. `//` is no comment there.
struct Strings(Vec<RangeInclusive<usize>>);

impl Strings {
    fn literal(&mut self, span: proc_macro2::Span) {
        if span.end().line > span.start().line {
            self.0.push(span.start().line + 1..=span.end().line);
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Literal(literal) => self.literal(literal.span()),
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Strings {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_lit(&mut self, literal: &'ast syn::Lit) {
        self.literal(literal.span());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        "word ".repeat(count).trim_end().to_owned()
    }

    fn comments(text: &str) -> Vec<usize> {
        let tree = syn::parse_file(text).unwrap();
        check_comments(Path::new("crates/a/src/b.rs"), text, &tree).into_iter().map(|d| d.finding.line).collect()
    }

    fn markdown(text: &str) -> Vec<usize> {
        check_markdown(Path::new("docs/a.md"), text).into_iter().map(|d| d.finding.line).collect()
    }

    #[test]
    fn long_comment_is_found() {
        let long = words(20);
        assert_eq!(comments(&format!("//! {long}\n\n    // {long}\n/// {long}\nfn a() {{}}")), [1, 3, 4]);
        assert_eq!(comments(&format!("// {}\nfn a() {{}}", words(19))), [0; 0]);
        assert_eq!(comments(&format!("/// {}\nfn a() {{}}", "é".repeat(96))), [0; 0], "columns, not bytes");
    }

    #[test]
    fn comment_without_spaces_is_allowed() {
        let long = words(20);
        assert_eq!(comments(&format!("// https://example.org/{}\nfn a() {{}}", "a".repeat(100))), [0; 0]);
        assert_eq!(comments(&format!("//! | {long} |\nfn a() {{}}")), [0; 0], "table");
        assert_eq!(comments(&format!("/// ```\n/// {long}\n/// ```\nfn a() {{}}")), [0; 0], "example");
        assert_eq!(comments(&format!("const A: &str = \"\n// {long}\n\";")), [0; 0], "string");
        assert_eq!(comments(&format!("fn a() {{ b!(\"\n// {long}\n\"); }}")), [0; 0], "string in a macro");
        assert_eq!(comments(&format!("const A: &str = \"{long} {long}\";")), [0; 0], "code");
    }

    #[test]
    fn long_markdown_text_is_found() {
        let long = words(21);
        assert_eq!(markdown(&format!("{long}\n- {long}\n{}\n", words(20))), [1, 2]);
        for exempt in ["# ", "| ", "[a]: https://example.org/"] {
            let rest = if exempt.ends_with('/') { "a".repeat(100) } else { long.clone() };
            assert_eq!(markdown(&format!("{exempt}{rest}")), [0; 0], "{exempt}");
        }
        assert_eq!(markdown(&format!("```\n{long}\n```\n{long}\n")), [4]);
        assert_eq!(markdown(&format!("- [{long}](a.md)\n")), [0; 0]);
    }

    #[test]
    fn documents_skip_build_output() {
        let root = tempfile::tempdir().unwrap();
        for path in ["README.md", "docs/a.md", "target/b.md", ".venv/c.md", "docs/d.txt"] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let files: Vec<PathBuf> = documents(root.path()).unwrap().into_iter().map(|(file, _)| file).collect();
        assert_eq!(files, [Path::new("README.md"), Path::new("docs/a.md")]);
    }
}
