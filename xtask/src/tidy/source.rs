//! Rules about what the code of a file names: the layer's forbidden words, unsafe code, long
//! functions, crate roots.

use super::finding::Finding;
use super::rules::{
    FORBID_UNSAFE, FUNCTION_LINES, IMPURE_MACROS, IMPURE_PATHS, IMPURE_WORDS, PURE, PURE_EXCEPTIONS, UNSAFE_ALLOWED,
};
use proc_macro2::{Span, TokenStream, TokenTree};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Checks the code of one file.
pub(super) fn check(file: &Path, tree: &syn::File) -> Vec<Finding> {
    let mut visitor = Visitor {
        file,
        pure: krate(file).is_some_and(|k| PURE.contains(&k)) && in_src(file),
        unsafe_allowed: unsafe_allowed(file),
        in_tests: false,
        findings: Vec::new(),
    };
    visitor.visit_file(tree);
    check_root(file, tree, &mut visitor.findings);
    visitor.findings
}

/// The folder below `crates/` that the file lies in.
fn krate(file: &Path) -> Option<&str> {
    let mut parts = file.iter().map(|p| p.to_str().unwrap_or_default());
    (parts.next() == Some("crates")).then(|| parts.next()).flatten()
}

fn in_src(file: &Path) -> bool {
    file.iter().nth(2).is_some_and(|p| p == "src")
}

fn unsafe_allowed(file: &Path) -> bool {
    let file = file.to_string_lossy();
    UNSAFE_ALLOWED.iter().any(|a| if a.ends_with('/') { file.starts_with(a) } else { file == *a })
}

/// A crate's root says what the crate is and, where the layer asks for it, forbids unsafe code.
fn check_root(file: &Path, tree: &syn::File, findings: &mut Vec<Finding>) {
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let root = file.parent().is_some_and(|p| p.ends_with("src")) && matches!(name, "lib.rs" | "main.rs");
    if !root {
        return;
    }
    let mut add = |message: &str| findings.push(Finding { file: file.into(), line: 1, message: message.into() });
    if !tree.attrs.iter().any(|a| a.path().is_ident("doc")) {
        add("a crate's root begins with a module doc (`//!`): what it knows and what it deliberately does not");
    }
    let forbids = tree.attrs.iter().any(|a| {
        a.path().is_ident("forbid") && a.meta.require_list().is_ok_and(|l| l.tokens.to_string().contains("unsafe_code"))
    });
    if krate(file).is_some_and(|k| FORBID_UNSAFE.contains(&k)) && !forbids {
        add("this layer has `#![forbid(unsafe_code)]` in its root");
    }
}

struct Visitor<'a> {
    file: &'a Path,
    pure: bool,
    unsafe_allowed: bool,
    in_tests: bool,
    findings: Vec<Finding>,
}

impl Visitor<'_> {
    fn add(&mut self, span: Span, message: String) {
        self.findings.push(Finding { file: self.file.to_path_buf(), line: span.start().line, message });
    }

    fn no_unsafe(&mut self, span: Span) {
        if !self.unsafe_allowed {
            self.add(span, "unsafe code is for the few modules named in xtask/src/tidy/rules.rs".into());
        }
    }

    fn length(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        if lines > FUNCTION_LINES {
            let message = format!("fn {} has {lines} lines, {FUNCTION_LINES} are the most", signature.ident);
            self.add(signature.span(), message);
        }
        if signature.unsafety.is_some() {
            self.no_unsafe(signature.span());
        }
    }

    /// A path as it is written or imported. Tests of a pure crate may do what they like.
    fn path(&mut self, span: Span, path: &str) {
        if self.pure && !self.in_tests && impure(path) {
            self.add(
                span,
                format!("'{path}' has no place in a pure crate: no I/O, threads, clock or shared state; take it as an argument"),
            );
        }
    }

    fn macro_call(&mut self, span: Span, name: &str) {
        if self.pure && !self.in_tests && (IMPURE_MACROS.contains(&name) || name == "lazy_static") {
            self.add(span, format!("'{name}!' has no place in a pure crate"));
        }
    }

    fn use_tree(&mut self, tree: &syn::UseTree, prefix: &str) {
        match tree {
            syn::UseTree::Path(p) => self.use_tree(&p.tree, &format!("{prefix}{}::", p.ident)),
            syn::UseTree::Name(n) => self.path(n.span(), &format!("{prefix}{}", n.ident)),
            syn::UseTree::Rename(r) => self.path(r.span(), &format!("{prefix}{}", r.ident)),
            syn::UseTree::Glob(g) => self.path(g.span(), prefix.trim_end_matches(':')),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.use_tree(t, prefix)),
        }
    }

    /// What a macro is given is not parsed as Rust by the compiler's front end, so words are looked
    /// for one by one.
    fn macro_tokens(&mut self, tokens: TokenStream) {
        let mut path = String::new();
        let mut start = Span::call_site();
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if !path.ends_with("::") {
                        self.path(start, &path);
                        path.clear();
                        start = word.span();
                    }
                    if word == "unsafe" {
                        self.no_unsafe(word.span());
                    }
                    path.push_str(&word.to_string());
                }
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() => path.push(':'),
                TokenTree::Punct(p) if p.as_char() == '!' => self.macro_call(p.span(), &std::mem::take(&mut path)),
                TokenTree::Group(group) => {
                    self.path(start, &std::mem::take(&mut path));
                    self.macro_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.path(start, &std::mem::take(&mut path)),
            }
        }
        self.path(start, &path);
    }
}

/// Whether a pure crate must not name the path.
fn impure(path: &str) -> bool {
    let path = path.trim_start_matches(':').trim_end_matches(':');
    let below = |p: &str| path.strip_prefix(p).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    if PURE_EXCEPTIONS.iter().any(|p| below(p)) {
        return false;
    }
    IMPURE_PATHS.iter().any(|p| below(p)) || path.split("::").any(|word| IMPURE_WORDS.contains(&word))
}

/// Returns true if only tests compile the item with these attributes.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || (a.path().is_ident("cfg")
                && a.meta
                    .require_list()
                    .is_ok_and(|l| l.tokens.to_string().split([' ', '(', ',', ')']).any(|w| w == "test")))
    })
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let outer = self.in_tests;
        self.in_tests |= is_test(&item.attrs);
        visit::visit_item_mod(self, item);
        self.in_tests = outer;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let outer = self.in_tests;
        self.in_tests |= is_test(&item.attrs);
        self.length(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
        self.in_tests = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.length(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.length(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_unsafe(&mut self, e: &'ast syn::ExprUnsafe) {
        self.no_unsafe(e.unsafe_token.span());
        visit::visit_expr_unsafe(self, e);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = item.unsafety {
            self.no_unsafe(token.span());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.no_unsafe(item.abi.span());
        visit::visit_item_foreign_mod(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if let syn::StaticMutability::Mut(token) = item.mutability {
            self.add(token.span(), "no `static mut`: pass it as an argument".into());
        }
        visit::visit_item_static(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, "");
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.path(path.span(), &words.join("::"));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(last) = call.path.segments.last() {
            self.macro_call(call.path.span(), &last.ident.to_string());
        }
        self.macro_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests;
