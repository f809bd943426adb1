//! Each rule is broken once on purpose, and kept once where it would be easy to complain for
//! nothing.

use super::*;

const DOC: &str = "//! Doc.\n#![forbid(unsafe_code)]\n";

fn findings(file: &str, text: &str) -> Vec<(usize, String)> {
    let tree = syn::parse_file(text).unwrap();
    check(Path::new(file), &tree).into_iter().map(|f| (f.line, f.message)).collect()
}

/// The one finding in `text`, which must be on `line` and contain `word`.
fn one(file: &str, text: &str, line: usize, word: &str) {
    let found = findings(file, text);
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    assert_eq!(found[0].0, line, "{text}: {found:?}");
    assert!(found[0].1.contains(word), "{text}: {found:?}");
}

#[test]
fn pure_crates_name_nothing_impure() {
    let file = "crates/core/src/a.rs";
    one(file, "use std::collections::HashMap;\nuse std::time::Instant;", 2, "std::time::Instant");
    one(file, "use std::{fmt, time::{Duration, SystemTime}};", 1, "std::time::SystemTime");
    one(file, "fn a() {\n    std::thread::yield_now();\n}", 2, "std::thread");
    one(file, "use std::net::{IpAddr, UdpSocket};", 1, "UdpSocket");
    one(file, "use std::fs;", 1, "std::fs");
    one(file, "use tokio::sync::Notify;", 1, "tokio");
    one(file, "struct A(std::sync::atomic::AtomicU64);", 1, "AtomicU64");
    one(file, "struct A(Vec<parking::RwLock<u8>>);", 1, "RwLock");
    one(file, "fn a() {\n    println!(\"x\");\n}", 2, "println!");
    one(
        file,
        "fn a() {\n    assert!(true, \"{}\", {\n        std::thread::current();\n        1\n    });\n}",
        3,
        "std::thread",
    );
    one(file, "fn a() {\n    vec![\n        format!(\"{:?}\", dbg!(1))\n    ];\n}", 3, "dbg!");
    one(file, "static mut A: u8 = 0;", 1, "static mut");
}

#[test]
fn pure_crates_may_name_what_is_pure() {
    let text = "use std::net::{IpAddr, SocketAddr};\nuse std::sync::Arc;\nuse std::time::Duration;\n\
                use vireo_types::Instant;\nfn a() -> Instant {\n    assert_eq!(a.b(), core::mem::size_of::<u8>());\n}";
    assert_eq!(findings("crates/core/src/a.rs", text), []);
    let tests =
        "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n#[cfg(all(test, unix))]\nmod more {\n    use std::fs;\n}";
    assert_eq!(findings("crates/core/src/a.rs", tests), []);
    assert_eq!(findings("crates/core/tests/a.rs", "use std::fs;"), []);
    assert_eq!(findings("crates/node/src/a.rs", "use std::fs;\nuse std::sync::Mutex;"), []);
}

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    let text = "fn a() {\n    // SAFETY: a test.\n    unsafe { b() }\n}";
    one("crates/node/src/a.rs", text, 3, "unsafe");
    assert_eq!(findings("crates/datapath/src/tun.rs", text), []);
    one("crates/node/src/a.rs", "unsafe impl Send for A {}", 1, "unsafe");
    one("crates/node/src/a.rs", "unsafe extern \"C\" {\n    fn b();\n}", 1, "unsafe");
    one("crates/node/src/a.rs", "unsafe fn a() {}", 1, "unsafe");
    one("crates/node/src/a.rs", "m! { unsafe { b() } }", 1, "unsafe");
}

#[test]
fn functions_are_short() {
    let body = |lines: usize| format!("{{\n{}}}", "    b();\n".repeat(lines - 2));
    assert_eq!(findings("xtask/src/a.rs", &format!("fn a() {}", body(FUNCTION_LINES))), []);
    one("xtask/src/a.rs", &format!("\n/// Doc.\nfn a() {}", body(FUNCTION_LINES + 1)), 3, "fn a has 101 lines");
    one("xtask/src/a.rs", &format!("impl A {{\nfn a() {}\n}}", body(FUNCTION_LINES + 1)), 2, "fn a has 101 lines");
    one("xtask/src/a.rs", &format!("trait A {{\nfn a() {}\n}}", body(FUNCTION_LINES + 1)), 2, "fn a has 101 lines");
}

#[test]
fn roots_have_a_doc_and_forbid_unsafe_code() {
    assert_eq!(findings("crates/core/src/lib.rs", DOC), []);
    one("crates/core/src/lib.rs", "#![forbid(unsafe_code)]", 1, "module doc");
    one("crates/core/src/lib.rs", "//! Doc.", 1, "forbid(unsafe_code)");
    assert_eq!(findings("crates/sctp/src/lib.rs", "//! Doc."), []);
    assert_eq!(findings("crates/core/src/context/mod.rs", "fn a() {}"), []);
}
