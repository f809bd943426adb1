//! `[log]`: selection of log lines.

use crate::problems::Problems;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Log {
    level: String,
    pub(super) reveal_supi: bool,
    limit: bool,
}

impl Default for Log {
    fn default() -> Self {
        Log { level: "info".into(), reveal_supi: false, limit: true }
    }
}

/// Parses a level or directives into a filter.
///
/// # Errors
///
/// Returns an error if the text is neither.
pub fn directives(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(text)
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Level, or directives as in `RUST_LOG`, which overrides this value.
    pub level: String,
    /// Shows complete SUPIs in log lines.
    pub reveal_supi: bool,
    /// Suppresses and counts lines above the rate limit of their kind or peer.
    pub limit: bool,
}

pub(super) fn log(log: &Log, problems: &mut Problems) -> LogConfig {
    if let Err(why) = directives(&log.level) {
        let allowed =
            "\"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\" or directives like \"info,vireo_amf=debug\"";
        problems.add("log.level", format_args!("{:?} is not allowed ({why}); allowed: {allowed}", log.level));
    }
    LogConfig { level: log.level.clone(), reveal_supi: log.reveal_supi, limit: log.limit }
}
