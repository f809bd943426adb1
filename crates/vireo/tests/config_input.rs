//! Damaged configuration files.
//!
//! Every file yields a readable verdict and never a panic.

use std::process::Command;

const REFERENCE: &str = include_str!("../../../examples/reference.toml");
/// Number of changed files to try.
const FILES: usize = 150;

/// Generator xorshift64.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

/// Values that are wrong almost everywhere, and a few unusual ones.
const VALUES: [&str; 12] = [
    "-1",
    "0",
    "99999999999999999999",
    "\"\"",
    "[]",
    "{}",
    "true",
    "\"10.0.0.0/33\"",
    "1.5",
    "\"1h\"",
    "nan",
    "\"\\u0000\"",
];

fn mutated(state: &mut u64) -> String {
    let mut lines: Vec<String> = REFERENCE.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect();
    for _ in 0..=next(state) % 3 {
        let at = next(state) % lines.len();
        match next(state) % 5 {
            0 => drop(lines.remove(at)),
            1 => {
                let again = lines[next(state) % lines.len()].clone();
                lines.insert(at, again);
            }
            2 => {
                let end = next(state) % (lines[at].len() + 1);
                let end = (0..=end).rev().find(|end| lines[at].is_char_boundary(*end)).unwrap_or(0);
                lines[at].truncate(end);
            }
            _ => {
                if let Some((key, _)) = lines[at].split_once('=') {
                    lines[at] = format!("{key}= {}", VALUES[next(state) % VALUES.len()]);
                }
            }
        }
    }
    lines.join("\n")
}

#[test]
fn no_configuration_makes_the_reader_panic() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("vireo.toml");
    let (mut state, mut refused) = (0x5649_5245_4f00_0004, 0);
    for _ in 0..FILES {
        let text = mutated(&mut state);
        std::fs::write(&file, &text).expect("a file");
        let check = Command::new(env!("CARGO_BIN_EXE_vireo")).args(["config", "check", "--config"]).arg(&file).output();
        let check = check.expect("vireo runs");
        let errors = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(matches!(check.status.code(), Some(0 | 1)), "{:?}: {errors}\n{text}", check.status);
        assert!(!errors.contains("panicked"), "{errors}\n{text}");
        if check.status.code() == Some(1) {
            refused += 1;
            assert!(errors.contains("vireo.toml"), "the error names no file: {errors}\n{text}");
        }
    }
    assert!(refused > FILES / 4 && refused < FILES, "{refused} of {FILES} files were refused");
}

#[test]
fn check_names_open_tunnel_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("vireo.toml");
    let open = "[upf]\nn3 = [\"192.0.2.1\"]\n";
    let cases = [
        (String::new(), false),
        (open.to_owned(), true),
        (format!("{open}tunnel-ends = [\"198.51.100.0/24\"]\n"), false),
    ];
    for (text, is_open) in cases {
        std::fs::write(&file, &text).expect("a file");
        let check = Command::new(env!("CARGO_BIN_EXE_vireo")).args(["config", "check", "--config"]).arg(&file).output();
        let check = check.expect("vireo runs");
        let errors = String::from_utf8_lossy(&check.stderr);
        assert!(check.status.success(), "{text}: {errors}");
        assert_eq!(errors.contains("upf.tunnel-ends"), is_open, "{text}: {errors}");
    }
}
