//! Edges between the files of a crate: which file declares the names that another file uses.
//!
//! - `mod child;` is no edge.
//! - A name that a module imports with a visibility (`pub use`) is passed on: users of the name
//!   depend on the file that declares it, and the module itself only if its own code uses the name.
//! - An import of a module is no edge; the paths that begin with it are.
//! - A path to an ancestor is an edge to the ancestor's file only if that file declares the name.
//! - Method calls and fields have no path, and are no edges.

use super::source::{Child, Import, Scope};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Scopes of each source file, by path in the workspace.
pub(crate) type Sources = BTreeMap<PathBuf, Vec<Scope>>;

/// Declared names by which one file depends on another, with the lines of their uses.
pub(super) type Reasons = BTreeSet<(String, usize)>;

/// Edges between files.
pub(super) type Edges = BTreeMap<PathBuf, BTreeMap<PathBuf, Reasons>>;

/// Modules and the declarations of one module are followed through at most this many imports.
const DEPTH: usize = 16;

/// Adds the edges of the crate whose root module is the file `root`.
pub(super) fn add_edges(sources: &Sources, root: &Path, edges: &mut Edges) {
    let mut tree = Tree { modules: Vec::new(), by_path: BTreeMap::new() };
    tree.add_file(sources, root, &[]);
    for module in &tree.modules {
        for import in module.scope.imports.iter().filter(|import| !import.is_public && import.name.is_some()) {
            if let Some(Target::Item(at, name)) = tree.target(module, &import.path, true, DEPTH) {
                tree.add_edge(module, at, name, import.line, edges);
            }
        }
        for used in &module.scope.uses {
            if let Some(Target::Item(at, name)) = tree.target(module, &used.path, false, DEPTH) {
                tree.add_edge(module, at, name, used.line, edges);
            }
        }
    }
}

struct Module<'a> {
    path: Vec<String>,
    file: &'a Path,
    scope: &'a Scope,
}

/// Meaning of a path: a module of the crate, or an item of that name declared by a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target<'a> {
    Module(usize),
    Item(usize, &'a str),
}

struct Tree<'a> {
    modules: Vec<Module<'a>>,
    by_path: BTreeMap<Vec<String>, usize>,
}

impl<'a> Tree<'a> {
    fn add_file(&mut self, sources: &'a Sources, file: &Path, file_path: &[String]) {
        let Some((file, scopes)) = sources.get_key_value(file) else { return };
        for scope in scopes {
            let path = [file_path, scope.path.as_slice()].concat();
            self.by_path.insert(path.clone(), self.modules.len());
            self.modules.push(Module { path: path.clone(), file, scope });
            for child in &scope.children {
                let candidates = files_of(file, file_path.is_empty(), &scope.path, child);
                if let Some(file) = candidates.iter().find(|candidate| sources.contains_key(*candidate)) {
                    self.add_file(sources, file, &[path.as_slice(), std::slice::from_ref(&child.name)].concat());
                }
            }
        }
    }

    fn add_edge(&self, from: &Module<'_>, target: usize, name: &str, line: usize, edges: &mut Edges) {
        let to = self.modules[target].file;
        if from.file != to {
            let reasons = edges.entry(from.file.to_path_buf()).or_default().entry(to.to_path_buf()).or_default();
            reasons.insert((name.to_owned(), line));
        }
    }

    /// Resolves `path` as written in `module`. `in_use` is true for the paths of `use` items, in
    /// which the imports of `module` have a name of their own and must not answer for themselves.
    fn target(&self, module: &Module<'_>, path: &'a [String], in_use: bool, depth: usize) -> Option<Target<'a>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(0, rest, depth),
            "self" => self.walk(*self.by_path.get(&module.path)?, rest, depth),
            "super" => {
                let ups = path.iter().take_while(|word| *word == "super").count();
                let base = module.path.len().checked_sub(ups)?;
                self.walk(*self.by_path.get(&module.path[..base])?, &path[ups..], depth)
            }
            _ => {
                let at = *self.by_path.get(&module.path)?;
                let own = in_use.then(|| module.scope.imports.iter().find(|import| import.path == path)).flatten();
                let target = self.declared(at, first, rest.is_empty(), own, depth)?;
                self.follow(target, rest, depth)
            }
        }
    }

    /// Resolves `path` from within the module `at`. An unknown name is taken for one that a macro
    /// of `at` declares.
    fn walk(&self, at: usize, path: &'a [String], depth: usize) -> Option<Target<'a>> {
        let Some((first, rest)) = path.split_first() else { return Some(Target::Module(at)) };
        if first == "self" || first == "super" {
            return self.target(&self.modules[at], path, false, depth);
        }
        match self.declared(at, first, rest.is_empty(), None, depth) {
            Some(target) => self.follow(target, rest, depth),
            None if self.passes_on(at, first) => None,
            None => Some(Target::Item(at, first)),
        }
    }

    fn follow(&self, target: Target<'a>, rest: &'a [String], depth: usize) -> Option<Target<'a>> {
        match target {
            Target::Module(at) => self.walk(at, rest, depth),
            item @ Target::Item(..) => Some(item),
        }
    }

    /// Returns true if `at` imports `name`, from another crate if it could not be resolved.
    fn passes_on(&self, at: usize, name: &str) -> bool {
        self.modules[at].scope.imports.iter().any(|import| import.name.as_deref() == Some(name))
    }

    /// Looks `name` up among the declarations and imports of the module `at`. The last word of a
    /// path is an item rather than a module of the same name, the others the reverse.
    fn declared(
        &self,
        at: usize,
        name: &'a str,
        is_last: bool,
        own: Option<&Import>,
        depth: usize,
    ) -> Option<Target<'a>> {
        let module = &self.modules[at];
        let item = module.scope.items.contains(name).then_some(Target::Item(at, name));
        let child = || {
            let path = [module.path.as_slice(), &[name.to_owned()]].concat();
            self.by_path.get(&path).map(|child| Target::Module(*child))
        };
        let found = if is_last { item.or_else(child) } else { child().or(item) };
        if found.is_some() || depth == 0 {
            return found;
        }
        let others = || module.scope.imports.iter().filter(|import| own.is_none_or(|own| !std::ptr::eq(own, *import)));
        let named: Vec<Target<'a>> = others()
            .filter(|import| import.name.as_deref() == Some(name))
            .filter_map(|import| self.target(module, &import.path, true, depth - 1))
            .collect();
        let is_better = |target: &&Target<'_>| matches!(target, Target::Item(..)) == is_last;
        if let Some(target) = named.iter().find(is_better).or(named.first()) {
            return Some(*target);
        }
        others().filter(|import| import.name.is_none()).find_map(|import| {
            match self.target(module, &import.path, true, depth - 1)? {
                Target::Module(source) if source != at => self.declared(source, name, is_last, None, depth - 1),
                Target::Module(_) | Target::Item(..) => None,
            }
        })
    }
}

/// Files in which `mod child;` may lie, declared in `file` within the inline modules `inline`. The
/// file of a crate's root module and a `mod.rs` share their folder with their children.
pub(crate) fn files_of(file: &Path, is_root: bool, inline: &[String], child: &Child) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    if let (Some(path), []) = (&child.file, inline) {
        return vec![folder.join(path)];
    }
    let shares_folder = is_root || file.file_stem().is_some_and(|stem| stem == "mod");
    let mut folder = if shares_folder { folder.to_path_buf() } else { file.with_extension("") };
    folder.extend(inline);
    vec![folder.join(&child.name).with_extension("rs"), folder.join(&child.name).join("mod.rs")]
}
