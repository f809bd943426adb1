//! Violations of house rules, and the names of the rules with a baseline.

use std::fmt;
use std::path::{Path, PathBuf};

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the workspace's root.
    pub(crate) file: PathBuf,
    /// Counted from 1, as editors do.
    pub(crate) line: usize,
    /// Fault, offending value and remedy, as for error texts.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

/// A rule whose violations are counted for each crate and compared with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// No import cycle of more than [`CYCLE_FILES`](crate::modules::CYCLE_FILES) files; one
    /// violation per file.
    ModuleCycle,
    /// No struct of more than [`STRUCT_FIELDS`](super::rules::STRUCT_FIELDS) fields.
    StructFields,
    /// No tuple of more than [`TUPLE_ELEMENTS`](super::rules::TUPLE_ELEMENTS) elements in a
    /// signature.
    Tuple,
    /// No name that the glossary has replaced.
    BannedName,
    /// Comments and Markdown wrap at [`WIDTH`](super::rules::WIDTH) columns.
    Width,
    /// No field documentation of [`FIELD_DOC_WORDS`](super::rules::FIELD_DOC_WORDS) words or fewer.
    FieldDoc,
    /// Test names follow `subject_condition_result`.
    TestName,
    /// No run of [`DUPLICATE_LINES`](super::rules::DUPLICATE_LINES) equal lines in files of both
    /// dialects.
    DialectDuplicate,
}

impl Rule {
    /// All rules, in the order of the baseline file.
    pub(crate) const ALL: [Self; 8] = [
        Self::ModuleCycle,
        Self::StructFields,
        Self::Tuple,
        Self::BannedName,
        Self::Width,
        Self::FieldDoc,
        Self::TestName,
        Self::DialectDuplicate,
    ];

    /// The rule's name on the command line and in the baseline file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ModuleCycle => "module-cycle",
            Self::StructFields => "struct-fields",
            Self::Tuple => "tuple",
            Self::BannedName => "banned-name",
            Self::Width => "width",
            Self::FieldDoc => "field-doc",
            Self::TestName => "test-name",
            Self::DialectDuplicate => "dialect-duplicate",
        }
    }

    /// Returns the rule of that name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

/// One violation of a rule with a baseline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Debt {
    pub(crate) rule: Rule,
    /// Result of [`crate_of`] for the file of `finding`.
    pub(crate) krate: String,
    pub(crate) finding: Finding,
}

impl Debt {
    pub(crate) fn new(rule: Rule, file: &Path, line: usize, message: String) -> Self {
        Self { rule, krate: crate_of(file), finding: Finding { file: file.to_path_buf(), line, message } }
    }
}

/// Returns the folder below `crates/` that holds `file`, otherwise its first folder, `root` for
/// files at the top.
pub(crate) fn crate_of(file: &Path) -> String {
    let folders: Vec<&str> = file.parent().into_iter().flatten().filter_map(|part| part.to_str()).collect();
    match folders.as_slice() {
        ["crates", name, ..] | [name, ..] => (*name).to_owned(),
        [] => "root".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_of_names_folder() {
        let of = |path: &str| crate_of(Path::new(path));
        assert_eq!(of("crates/node/src/host/mod.rs"), "node");
        assert_eq!(of("xtask/src/main.rs"), "xtask");
        assert_eq!(of("docs/security/n2.md"), "docs");
        assert_eq!(of("README.md"), "root");
    }

    #[test]
    fn rule_names_are_unique() {
        for rule in Rule::ALL {
            assert_eq!(Rule::by_name(rule.name()), Some(rule));
        }
        assert_eq!(Rule::by_name("other"), None);
    }
}
