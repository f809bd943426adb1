//! Small crates with and without cycles.

use super::*;

/// Sources of a crate `a`: pairs of path below `src` and text.
fn sources(files: &[(&str, &str)]) -> Sources {
    let scopes = |text: &str| read(&syn::parse_file(text).unwrap());
    files.iter().map(|(path, text)| (Path::new("crates/a/src").join(path), scopes(text))).collect()
}

/// Edges as `from -> to`, by paths below `src`.
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let crates = crates(&sources(files));
    let edge = |from: &PathBuf, to: &PathBuf| format!("{} -> {}", below_src(from), below_src(to));
    crates["a"].iter().flat_map(|(from, to)| to.keys().map(move |to| edge(from, to))).collect()
}

#[test]
fn child_declaration_is_no_edge() {
    assert_eq!(edges(&[("lib.rs", "mod a; pub mod b;"), ("a.rs", "fn c() {}"), ("b.rs", "")]), [""; 0]);
}

#[test]
fn paths_are_edges_to_declaring_file() {
    let lib = ("lib.rs", "mod a; mod b;");
    let b = ("b/mod.rs", "pub mod c; pub struct D;");
    let c = ("b/c.rs", "pub fn e() {}");
    let of = |text: &str| edges(&[lib, ("a.rs", text), b, c]);
    assert_eq!(of("use crate::b::D;"), ["a.rs -> b/mod.rs"]);
    assert_eq!(of("use crate::b::c::e;"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("fn f() { super::b::c::e() }"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("use crate::b; fn f() { b::c::e() }"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("use crate::b::{self, c as g}; fn f() { println!(\"{}\", g::e()) }"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("use crate::b;"), [""; 0], "an import of a module");
    assert_eq!(of("use std::b::D; fn f() { tokio::spawn(); b::c::e() }"), [""; 0], "names of other crates");
    assert_eq!(of("use crate::b::Made;"), ["a.rs -> b/mod.rs"], "made by a macro");
}

#[test]
fn facade_passes_names_on() {
    let lib = ("lib.rs", "mod a; mod b;");
    let c = ("b/c.rs", "pub struct D; pub struct E;");
    let of = |facade: &str, text: &str| edges(&[lib, ("a.rs", text), ("b/mod.rs", facade), c]);
    assert_eq!(of("mod c; pub use c::D;", "use crate::b::D;"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("mod c; pub use c::*;", "use crate::b::D;"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("mod c; pub use self::c::D as F;", "use crate::b::F;"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("mod c; pub(crate) use c::D;", "use crate::b::*; fn f(g: D) {}"), ["a.rs -> b/c.rs"]);
    assert_eq!(of("mod c; pub use c::D; fn f() -> D { D }", ""), ["b/mod.rs -> b/c.rs"], "used by the facade");
    assert_eq!(of("mod c; use c::D;", ""), ["b/mod.rs -> b/c.rs"], "imported for its own use");
    assert_eq!(of("mod c; pub use std::fmt::D;", "use crate::b::D;"), [""; 0], "of another crate");
}

#[test]
fn ancestor_edge_needs_own_item() {
    let of = |text: &str| edges(&[("lib.rs", "mod a; mod b; pub use b::C; pub struct D;"), ("a.rs", text), B]);
    const B: (&str, &str) = ("b.rs", "pub struct C;");
    assert_eq!(of("use super::C;"), ["a.rs -> b.rs"]);
    assert_eq!(of("use super::D;"), ["a.rs -> lib.rs"]);
    assert_eq!(of("use super::*;"), [""; 0]);
    assert_eq!(of("use super::*; fn f(g: C) {}"), ["a.rs -> b.rs"]);
}

#[test]
fn module_files_are_found() {
    let inline = [("lib.rs", "mod a { pub mod b; } use a::b::C;"), ("a/b.rs", "pub struct C;")];
    assert_eq!(edges(&inline), ["lib.rs -> a/b.rs"]);
    let path = [("lib.rs", "#[path = \"x.rs\"] mod a; use a::C;"), ("x.rs", "pub struct C;")];
    assert_eq!(edges(&path), ["lib.rs -> x.rs"]);
    let nested = [("lib.rs", "mod a;"), ("a.rs", "mod b; use b::C;"), ("a/b.rs", "pub struct C;")];
    assert_eq!(edges(&nested), ["a.rs -> a/b.rs"]);
}

#[test]
fn import_loops_end() {
    let files =
        [("lib.rs", "mod a; mod b;"), ("a.rs", "pub use crate::b::*;"), ("b.rs", "pub use crate::a::*; use C;")];
    assert_eq!(edges(&files), [""; 0]);
}

/// Files `f0` to `fN` that each import from the next; the last imports from the first.
fn ring(count: usize) -> Vec<(String, String)> {
    let modules: Vec<String> = (0..count).map(|n| format!("mod f{n};")).collect();
    let file = |n: usize| (format!("f{n}.rs"), format!("use crate::f{}::A; pub struct A;", (n + 1) % count));
    std::iter::once(("lib.rs".to_owned(), modules.concat())).chain((0..count).map(file)).collect()
}

fn ring_sources(count: usize) -> Sources {
    let files = ring(count);
    sources(&files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect::<Vec<_>>())
}

#[test]
fn cycle_over_limit_is_found() {
    assert_eq!(check(&ring_sources(CYCLE_FILES)), []);
    let debts = check(&ring_sources(CYCLE_FILES + 1));
    assert_eq!(debts.len(), 4, "one for each file");
    assert_eq!(debts[0].krate, "a");
    assert!(debts[0].finding.to_string().starts_with("crates/a/src/f0.rs:1: in import cycle 1 of 4 files"));
}

#[test]
fn cycle_in_tests_is_ignored() {
    let tests = "pub struct A; #[cfg(test)] mod tests { use crate::b::A; use crate::c::A as B; use crate::d::A as C; }";
    let files: Vec<(&str, &str)> = [("lib.rs", "mod a; mod b; mod c; mod d;")]
        .into_iter()
        .chain(["a.rs", "b.rs", "c.rs", "d.rs"].map(|f| (f, tests)))
        .collect();
    assert_eq!(check(&sources(&files)), []);
}

#[test]
fn description_shows_cuts() {
    let text = describe(&ring_sources(4), Some("a")).unwrap();
    assert!(text.contains("a: 1 import cycles, 1 of more than 3 files"), "{text}");
    assert!(text.contains("cycle of 4 files: f0.rs, f1.rs, f2.rs, f3.rs"), "{text}");
    assert!(text.contains("f0.rs -> f1.rs (1: A)"), "{text}");
    assert!(text.contains("A of f0.rs (1 users): 0 files remain in large cycles"), "{text}");
    assert!(text.contains("now, without these 1 edges"), "{text}");
    assert!(text.contains("after these moves, without these 0 edges"), "{text}");
    assert_eq!(describe(&ring_sources(4), Some("b")).unwrap_err(), "no crate has this folder (b)");
}
