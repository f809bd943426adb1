//! `[log]`: selection of log lines.

use super::check::Problems;
use serde::{Deserialize, Serialize};

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

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    /// Level, or directives as in `RUST_LOG`, which overrides this value.
    pub(crate) level: String,
    /// Shows complete SUPIs in log lines.
    pub(crate) reveal_supi: bool,
    /// Suppresses and counts lines above the rate limit of their kind or peer.
    pub(crate) limit: bool,
}

pub(super) fn log(log: &Log, problems: &mut Problems) -> LogConfig {
    if let Err(why) = crate::logging::directives(&log.level) {
        let allowed =
            "\"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\" or directives like \"info,vireo_node=debug\"";
        problems.add("log.level", format_args!("{:?} is not allowed ({why}); allowed: {allowed}", log.level));
    }
    LogConfig { level: log.level.clone(), reveal_supi: log.reveal_supi, limit: log.limit }
}
