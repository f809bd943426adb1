//! Paths of functions and modules, as `cargo test` prints them, with the crate in front.
//!
//! A function of `crates/core/src/a/b.rs` is `vireo_core::a::b::name`, one of
//! `crates/core/tests/steps/b.rs` is `vireo_core::steps::b::name`. A module that several tests of a
//! crate declare has a path in each of them.

use crate::modules::{Child, files_of};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What one file declares, by module path below the module of the file.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    /// Inline modules, the first one empty: the file's own.
    modules: Vec<Vec<String>>,
    functions: Vec<Vec<String>>,
    /// Modules in other files, each with the inline module that declares it.
    children: Vec<(Vec<String>, Child)>,
}

/// Reads the declarations of one file. Methods and functions in functions are left out.
pub(super) fn read(tree: &syn::File) -> Declarations {
    let mut declarations = Declarations::default();
    declarations.add_module(&[], &tree.items);
    declarations
}

impl Declarations {
    fn add_module(&mut self, module: &[String], items: &[syn::Item]) {
        self.modules.push(module.to_vec());
        for item in items {
            match item {
                syn::Item::Fn(function) => self.add_function(module, &function.sig.ident),
                syn::Item::Macro(call) => self.add_tokens(module, call.mac.tokens.clone()),
                syn::Item::Mod(child) => match &child.content {
                    Some((_, items)) => self.add_module(&joined(module, &child.ident.to_string()), items),
                    None => self.children.push((module.to_vec(), Child::new(child))),
                },
                _ => {}
            }
        }
    }

    fn add_function(&mut self, module: &[String], name: &proc_macro2::Ident) {
        self.functions.push(joined(module, &name.to_string()));
    }

    /// Adds the functions between the tokens of a macro call, such as those of `proptest!`.
    fn add_tokens(&mut self, module: &[String], tokens: TokenStream) {
        let mut is_function = false;
        for token in tokens {
            match token {
                TokenTree::Ident(word) if is_function => {
                    self.add_function(module, &word);
                    is_function = false;
                }
                TokenTree::Ident(word) => is_function = word == "fn",
                TokenTree::Group(group) => self.add_tokens(module, group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => is_function = false,
            }
        }
    }
}

/// All paths of a tree.
#[derive(Debug, Default)]
pub(super) struct Paths {
    functions: BTreeSet<String>,
    modules: BTreeSet<String>,
}

impl Paths {
    /// Follows the modules of each crate and test from their roots.
    pub(super) fn new(files: &BTreeMap<PathBuf, Declarations>) -> Self {
        let mut paths = Paths::default();
        for (file, path) in files.keys().filter_map(|file| Some((file, root_path(file)?))) {
            paths.add(files, file, &path, true);
        }
        paths
    }

    pub(super) fn has_function(&self, path: &str) -> bool {
        self.functions.contains(path)
    }

    pub(super) fn has_module(&self, path: &str) -> bool {
        self.modules.contains(path)
    }

    fn add(&mut self, files: &BTreeMap<PathBuf, Declarations>, file: &Path, path: &[String], is_root: bool) {
        let Some(Declarations { modules, functions, children }) = files.get(file) else { return };
        let whole = |below: &Vec<String>| [path, below].concat().join("::");
        self.modules.extend(modules.iter().map(whole));
        self.functions.extend(functions.iter().map(whole));
        for (inline, child) in children {
            let candidates = files_of(file, is_root, inline, child);
            if let Some(file) = candidates.iter().find(|candidate| files.contains_key(*candidate)) {
                self.add(files, file, &joined(&[path, inline].concat(), child.name()), false);
            }
        }
    }
}

/// Returns the path of the root module of a library, a program or an integration test.
fn root_path(file: &Path) -> Option<Vec<String>> {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    let (krate, below) = match parts.as_slice() {
        ["crates", "vireo", below @ ..] => ("vireo".to_owned(), below),
        ["crates", folder, below @ ..] => (format!("vireo_{folder}"), below),
        ["xtask", below @ ..] => ("xtask".to_owned(), below),
        _ => return None,
    };
    match below {
        ["src", "lib.rs" | "main.rs"] => Some(vec![krate]),
        ["tests", test, "main.rs"] => Some(vec![krate, (*test).to_owned()]),
        ["tests", test] => Some(vec![krate, test.strip_suffix(".rs")?.to_owned()]),
        _ => None,
    }
}

fn joined(module: &[String], name: &str) -> Vec<String> {
    [module, &[name.to_owned()]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(files: &[(&str, &str)]) -> Paths {
        let read = |text: &str| read(&syn::parse_file(text).unwrap());
        Paths::new(&files.iter().map(|(file, text)| (PathBuf::from(file), read(text))).collect())
    }

    #[test]
    fn functions_have_paths_of_their_modules() {
        let paths = paths(&[
            ("crates/core/src/lib.rs", "fn in_root() {} mod a; mod b { mod tests { fn inline() {} } mod c; }"),
            ("crates/core/src/a.rs", "#[cfg(test)] mod tests; proptest! { #[test] fn generated(x in 0..1) {} }"),
            ("crates/core/src/a/tests.rs", "#[test] fn a_test() { fn nested() {} }"),
            ("crates/core/src/b/c/mod.rs", "fn in_folder() {} impl A { fn method() {} }"),
            ("crates/core/src/orphan.rs", "fn undeclared() {}"),
        ]);
        let expected = ["a::generated", "a::tests::a_test", "b::c::in_folder", "b::tests::inline", "in_root"];
        assert_eq!(paths.functions, BTreeSet::from(expected.map(|path| format!("vireo_core::{path}"))));
        let modules = ["", "::a", "::a::tests", "::b", "::b::c", "::b::tests"];
        assert_eq!(paths.modules, BTreeSet::from(modules.map(|path| format!("vireo_core{path}"))));
    }

    #[test]
    fn integration_tests_have_names_of_their_files() {
        let paths = paths(&[
            ("crates/vireo/tests/demo.rs", "mod shared; fn short() {}"),
            ("crates/vireo/tests/host/main.rs", "mod part; #[path = \"../shared/mod.rs\"] mod shared;"),
            ("crates/vireo/tests/host/part.rs", "fn in_part() {}"),
            ("crates/vireo/tests/shared/mod.rs", "fn in_both() {}"),
            ("crates/vireo/src/main.rs", "fn main() {}"),
            ("xtask/src/main.rs", "fn main() {}"),
        ]);
        let functions = ["vireo::demo::shared::in_both", "vireo::demo::short", "vireo::host::part::in_part"];
        let functions: Vec<&str> = [&functions[..], &["vireo::main", "xtask::main"]].concat();
        assert_eq!(paths.functions.iter().map(String::as_str).collect::<Vec<_>>(), functions);
    }
}
