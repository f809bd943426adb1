//! Baseline file: violations that each rule still has in each crate.
//!
//! The rules are in [`rules`](super::rules) and apply in full. The baseline lists debts: a count
//! above it fails, and a count below it fails until the baseline is lowered, so that a debt which
//! was paid does not come back.

use super::finding::Finding;
use super::finding::{Debt, Rule};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Path of the file in the workspace.
pub(crate) const FILE: &str = "xtask/baseline.toml";

const HEADER: &str = "\
# Violations that each rule of `xtask tidy` still has in each crate. Counts only fall: fix violations, then run
# `cargo run -p xtask -- tidy --write-baseline`. `tidy --rule NAME [--crate NAME] --list` shows them.
";

/// Violations for each rule and crate; a count of 0 has no entry.
pub(crate) type Counts = BTreeMap<(Rule, String), usize>;

/// Counts `debts` by rule and crate.
pub(crate) fn count(debts: &[Debt]) -> Counts {
    let mut counts = Counts::new();
    for debt in debts {
        *counts.entry((debt.rule, debt.krate.clone())).or_default() += 1;
    }
    counts
}

/// Reads the baseline of the workspace at `root`; without a file it is empty.
///
/// # Errors
///
/// Returns a message if the file cannot be read, is not TOML, or names an unknown rule.
pub(super) fn read(root: &Path) -> Result<Counts, String> {
    match std::fs::read_to_string(root.join(FILE)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Counts::new()),
        Err(error) => Err(format!("{FILE}: {error}")),
    }
}

/// Writes `counts` as the baseline of the workspace at `root`.
///
/// # Errors
///
/// Returns a message if the file cannot be written.
pub(crate) fn write(root: &Path, counts: &Counts) -> Result<(), String> {
    std::fs::write(root.join(FILE), format(counts)).map_err(|error| format!("{FILE}: {error}"))
}

fn parse(text: &str) -> Result<Counts, String> {
    let table: toml::Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    let mut counts = Counts::new();
    for (name, crates) in &table {
        let rule = Rule::by_name(name).ok_or_else(|| format!("{FILE}: unknown rule ({name}); remove its table"))?;
        for (krate, count) in crates.as_table().ok_or_else(|| format!("{FILE}: {name} is not a table"))? {
            let count = count.as_integer().and_then(|count| usize::try_from(count).ok());
            let count = count.ok_or_else(|| format!("{FILE}: {name}.{krate} is not a count"))?;
            counts.insert((rule, krate.clone()), count);
        }
    }
    Ok(counts)
}

fn format(counts: &Counts) -> String {
    let mut text = HEADER.to_owned();
    let mut last = None;
    for ((rule, krate), count) in counts {
        if last != Some(*rule) {
            last = Some(*rule);
            let _ = write!(text, "\n[{}]\n", rule.name());
        }
        let _ = writeln!(text, "{krate} = {count}");
    }
    text
}

/// Compares the counts of the tree with the baseline: one finding for each difference.
pub(super) fn compare(counts: &Counts, baseline: &Counts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut keys: Vec<_> = counts.keys().chain(baseline.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let (rule, krate) = (key.0.name(), &key.1);
        let count = counts.get(key).copied().unwrap_or_default();
        let allowed = baseline.get(key).copied().unwrap_or_default();
        let remedy = match count.cmp(&allowed) {
            std::cmp::Ordering::Equal => continue,
            std::cmp::Ordering::Greater => {
                format!("fix the new ones; `tidy --rule {rule} --crate {krate} --list` shows all")
            }
            std::cmp::Ordering::Less => "lower the baseline by `tidy --write-baseline`".to_owned(),
        };
        let message = format!("{rule} in {krate}: {count} violations, baseline {allowed}; {remedy}");
        findings.push(Finding { file: FILE.into(), line: 1, message });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(entries: &[(Rule, &str, usize)]) -> Counts {
        entries.iter().map(|(rule, krate, count)| ((*rule, (*krate).to_owned()), *count)).collect()
    }

    #[test]
    fn baseline_round_trip_keeps_counts() {
        let counts = counts(&[(Rule::Tuple, "core", 3), (Rule::Tuple, "node", 12), (Rule::Width, "root", 1)]);
        assert_eq!(parse(&format(&counts)).unwrap(), counts);
        assert!(format(&counts).contains("\n[tuple]\ncore = 3\nnode = 12\n\n[width]\nroot = 1\n"));
    }

    #[test]
    fn baseline_unknown_rule_is_refused() {
        assert!(parse("[other]\nnode = 1").unwrap_err().contains("unknown rule (other)"));
        assert!(parse("[tuple]\nnode = -1").unwrap_err().contains("tuple.node is not a count"));
        assert!(parse("tuple = 1").unwrap_err().contains("not a table"));
    }

    #[test]
    fn baseline_difference_fails_both_ways() {
        let baseline = counts(&[(Rule::Tuple, "node", 3)]);
        let messages = |entries: &[(Rule, &str, usize)]| {
            compare(&counts(entries), &baseline).into_iter().map(|f| f.message).collect::<Vec<_>>()
        };
        assert_eq!(messages(&[(Rule::Tuple, "node", 3)]), [""; 0]);
        let above = messages(&[(Rule::Tuple, "node", 4)]);
        assert!(above.len() == 1 && above[0].starts_with("tuple in node: 4 violations, baseline 3; fix"), "{above:?}");
        let below = messages(&[]);
        assert!(below.len() == 1 && below[0].contains("0 violations, baseline 3; lower"), "{below:?}");
        let other = messages(&[(Rule::Tuple, "node", 3), (Rule::Tuple, "core", 1)]);
        assert!(other.len() == 1 && other[0].contains("core: 1 violations, baseline 0"), "{other:?}");
    }

    #[test]
    fn baseline_write_replaces_file() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("xtask")).unwrap();
        assert_eq!(read(root.path()).unwrap(), Counts::new());
        let counts = counts(&[(Rule::FieldDoc, "sbi", 7)]);
        write(root.path(), &counts).unwrap();
        assert_eq!(read(root.path()).unwrap(), counts);
    }
}
