//! `[log]`: selection of log lines.

use crate::problems::Problems;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Log {
    level: String,
    format: LogFormat,
    /// Empty = standard error.
    file: String,
    max_file_bytes: u64,
    max_files: u32,
    pub(super) reveal_supi: bool,
    limit: bool,
}

impl Default for Log {
    fn default() -> Self {
        Log {
            level: "info".into(),
            format: LogFormat::Text,
            file: String::new(),
            max_file_bytes: 64 << 20,
            max_files: 5,
            reveal_supi: false,
            limit: true,
        }
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object for each line.
    Json,
}

/// Words that are a level.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Parses a level or directives into a filter.
///
/// # Errors
///
/// Returns an error if the text is neither.
pub fn directives(text: &str) -> Result<EnvFilter, LevelError> {
    // The filter takes a word that is no level for the name of a module, at level trace.
    let is_level = |word: &str| word.is_empty() || LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    let word = text.split(',').find(|word| !word.contains(['=', '[']) && !is_level(word));
    match word {
        Some(word) => Err(LevelError::NoLevel(word.to_owned())),
        None => Ok(EnvFilter::builder().parse(text)?),
    }
}

/// Reason why a text is no log level.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    #[error("{0:?} is no level")]
    NoLevel(String),
    #[error(transparent)]
    Directive(#[from] ParseError),
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Level, or directives as in `RUST_LOG`, which overrides this value.
    pub level: String,
    pub format: LogFormat,
    /// File in place of standard error.
    pub file: Option<LogFileConfig>,
    /// Shows complete SUPIs in log lines.
    pub reveal_supi: bool,
    /// Suppresses and counts lines above the rate limit of their kind or peer.
    pub limit: bool,
}

/// A log file with rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFileConfig {
    pub path: PathBuf,
    /// Maximum bytes of a file.
    pub max_bytes: u64,
    /// Maximum number of files, the current one included.
    pub max_files: u32,
}

pub(super) fn log(log: &Log, problems: &mut Problems) -> LogConfig {
    if let Err(reason) = directives(&log.level) {
        let allowed =
            "\"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\" or directives like \"info,vireo_amf=debug\"";
        problems.add("log.level", format_args!("{:?} is not allowed ({reason}); allowed: {allowed}", log.level));
    }
    problems.check(log.max_file_bytes >= 1 << 20, "log.max-file-bytes", "at least 1048576 (1 MiB) is allowed");
    problems.check((2..=1000).contains(&log.max_files), "log.max-files", "2 to 1000 is allowed");
    let file =
        || LogFileConfig { path: PathBuf::from(&log.file), max_bytes: log.max_file_bytes, max_files: log.max_files };
    LogConfig {
        level: log.level.clone(),
        format: log.format,
        file: (!log.file.is_empty()).then(file),
        reveal_supi: log.reveal_supi,
        limit: log.limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use figment::providers::Env;

    fn load(text: &str) -> Result<Config, Vec<String>> {
        let file = crate::load::parse(text, Env::prefixed("NO_VARIABLE_BEGINS_SO_"))?;
        crate::check::config(&file)
    }

    #[test]
    fn lines_go_to_standard_error_unless_configured() {
        let log = load("").unwrap().log;
        let expected =
            LogConfig { level: "info".into(), format: LogFormat::Text, file: None, reveal_supi: false, limit: true };
        assert_eq!(log, expected);
        let log = load("log = { format = 'json', file = 'logs/a', max-files = 2, level = 'Warn,vireo_amf=DEBUG' }");
        let log = log.unwrap().log;
        let file = LogFileConfig { path: "logs/a".into(), max_bytes: 64 << 20, max_files: 2 };
        assert_eq!((log.format, log.file), (LogFormat::Json, Some(file)));
    }

    #[test]
    fn wrong_values_are_refused() {
        for (text, expected) in [
            ("level = 'loud=x=y'", "log.level: \"loud=x=y\" is not allowed (error parsing level filter"),
            (
                "level = 'nonsense'",
                "log.level: \"nonsense\" is not allowed (\"nonsense\" is no level); allowed: \"off\"",
            ),
            ("level = 'info,vireo_amf'", "log.level: \"info,vireo_amf\" is not allowed (\"vireo_amf\" is no level)"),
            ("level = 'vireo_amf=loud'", "log.level: \"vireo_amf=loud\" is not allowed"),
            ("format = 'xml'", "log.format: \"xml\" is not allowed; allowed: text, json"),
            ("max-file-bytes = 1000", "log.max-file-bytes: at least 1048576"),
            ("max-files = 1", "log.max-files: 2 to 1000 is allowed"),
        ] {
            let problems = load(&format!("[log]\n{text}")).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text}: {problems:?}");
        }
    }
}
