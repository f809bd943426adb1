//! Procedures do not know each other: what two of them share is in `procedures/common/`.

use super::finding::Finding;
use proc_macro2::Span;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const SRC: &str = "crates/core/src/";
/// Path of the Rust module that has the procedures, from the crate's root.
const PROCEDURES: [&str; 2] = ["amf", "procedures"];
const COMMON: &str = "common";

/// Checks one file, if it is part of a procedure.
pub(super) fn check(file: &Path, tree: &syn::File) -> Vec<Finding> {
    let Ok(below) = file.strip_prefix(SRC) else { return Vec::new() };
    let mut module: Vec<String> = below.with_extension("").iter().map(|p| p.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|m| m == "mod") {
        module.pop();
    }
    // `procedures/mod.rs` itself knows them all, and so may its tests.
    let Some(own) = procedure_of(&module).filter(|own| own != "tests") else { return Vec::new() };
    let mut visitor = Visitor { file, own, module, findings: Vec::new() };
    visitor.visit_file(tree);
    visitor.findings
}

/// Returns the word after [`PROCEDURES`] in a path from the crate's root.
fn procedure_of(path: &[String]) -> Option<String> {
    let at = PROCEDURES.len();
    path.get(at).filter(|_| path[..at] == PROCEDURES).cloned()
}

struct Visitor<'a> {
    file: &'a Path,
    own: String,
    module: Vec<String>,
    findings: Vec<Finding>,
}

impl Visitor<'_> {
    fn path(&mut self, span: Span, words: &[String], glob: bool) {
        let Some(target) = resolve(&self.module, words) else { return };
        if !target.starts_with(&PROCEDURES.map(str::to_owned)) {
            return;
        }
        let message = match procedure_of(&target) {
            Some(other) if other != self.own && other != COMMON && other.starts_with(char::is_lowercase) => {
                format!(
                    "procedure {} must not name procedure {other}: move what they share to procedures/common",
                    self.own
                )
            }
            None if glob => format!("procedure {} must not import all procedures", self.own),
            _ => return,
        };
        self.findings.push(Finding { file: self.file.to_path_buf(), line: span.start().line, message });
    }

    fn use_tree(&mut self, tree: &syn::UseTree, prefix: &[String]) {
        let with = |word: &syn::Ident| [prefix, &[word.to_string()]].concat();
        match tree {
            syn::UseTree::Path(p) => self.use_tree(&p.tree, &with(&p.ident)),
            syn::UseTree::Name(n) => self.path(n.span(), &with(&n.ident), false),
            syn::UseTree::Rename(r) => self.path(r.span(), &with(&r.ident), false),
            syn::UseTree::Glob(g) => self.path(g.span(), prefix, true),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.use_tree(t, prefix)),
        }
    }
}

/// The path from the crate's root that `words` means in `module`; `None` for paths of other crates
/// and local names.
fn resolve(module: &[String], words: &[String]) -> Option<Vec<String>> {
    let (mut base, mut rest) = match words.first()?.as_str() {
        "crate" => (Vec::new(), &words[1..]),
        "self" => (module.to_vec(), &words[1..]),
        "super" => (module.to_vec(), words),
        _ => return None,
    };
    while let Some(("super", tail)) = rest.split_first().map(|(first, tail)| (first.as_str(), tail)) {
        base.pop()?;
        rest = tail;
    }
    base.extend_from_slice(rest);
    Some(base)
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.path(path.span(), &words, false);
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> Vec<String> {
        check(Path::new(file), &syn::parse_file(text).unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn no_procedure_names_another() {
        let file = "crates/core/src/amf/procedures/registration/nr.rs";
        for text in [
            "use crate::amf::procedures::deregistration::start;",
            "use super::super::deregistration;",
            "use crate::amf::{context, procedures::{common, deregistration}};",
            "fn a() { crate::amf::procedures::deregistration::start() }",
            "use crate::amf::procedures::*;",
            "mod tests { use super::super::super::deregistration; }",
        ] {
            let found = findings(file, text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(&format!("{file}:1: procedure registration must not")), "{found:?}");
        }
        let common = findings("crates/core/src/amf/procedures/common/mod.rs", "use super::registration::Step;");
        assert_eq!(common.len(), 1, "{common:?}");
    }

    #[test]
    fn shared_module_may_be_named() {
        let file = "crates/core/src/amf/procedures/registration/nr.rs";
        for text in [
            "use crate::amf::procedures::common::identity;",
            "use super::accept;",
            "use crate::amf::context::Ue;",
            "use crate::amf::procedures::Procedure;",
            "use super::super::common;",
            "fn a() { deregistration::b() }",
        ] {
            assert_eq!(findings(file, text), [""; 0], "{text}");
        }
        assert_eq!(
            findings("crates/core/src/amf/procedures/mod.rs", "use crate::amf::procedures::registration;"),
            [""; 0]
        );
        assert_eq!(findings("crates/core/src/smf/mod.rs", "use crate::amf::procedures::registration;"), [""; 0]);
    }
}
