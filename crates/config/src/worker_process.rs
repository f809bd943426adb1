//! Worker processes: hidden commands that run them, and log settings that their parent passes.

use crate::{LogConfig, LogFormat};
use vireo_ops::supervisor::Program;
use vireo_upf::UpfConfig;

/// Name of the hidden command that runs an NF worker process.
pub const NF_WORKER: &str = "nf-worker";
/// Name of the hidden command that runs a data worker process.
pub const DATA_WORKER: &str = "data-worker";

/// Name of the hidden command that runs a shard.
pub const SHARD: &str = "shard";

/// Environment variable of a worker process: its log level or directives.
const WORKER_LOG: &str = "VIREO_WORKER_LOG";
/// Environment variable of a worker process: log unmasked SUPIs.
const WORKER_REVEALS: &str = "VIREO_WORKER_REVEALS";
/// Environment variable of a worker process: log lines above the rate limit.
const WORKER_LOGS_ALL: &str = "VIREO_WORKER_LOGS_ALL";

/// Environment variable of a worker process: write log lines as JSON.
const WORKER_LOGS_JSON: &str = "VIREO_WORKER_LOGS_JSON";

/// Returns the program that starts worker processes, with the log settings of this process.
pub fn program(log: &LogConfig) -> Program {
    let mut program = Program::this([NF_WORKER]);
    pass_log(&mut program, log);
    program
}

/// Returns the program that starts shards. They take their log settings from the configuration.
pub fn shard_program() -> Program {
    Program::this([SHARD])
}

/// Passes the log settings of this process to data worker processes, if configured.
pub fn log_of_data_workers(upf: Option<&mut UpfConfig>, log: &LogConfig) {
    if let Some(program) = upf.and_then(|upf| upf.processes.as_mut()) {
        pass_log(program, log);
    }
}

/// Passes the log settings of this process to a worker process.
fn pass_log(program: &mut Program, log: &LogConfig) {
    program.env.push((WORKER_LOG.into(), log.level.clone().into()));
    if log.reveal_supi {
        program.env.push((WORKER_REVEALS.into(), "1".into()));
    }
    if log.format == LogFormat::Json {
        program.env.push((WORKER_LOGS_JSON.into(), "1".into()));
    }
    if !log.limit {
        program.env.push((WORKER_LOGS_ALL.into(), "1".into()));
    }
}

/// Returns the log settings that the parent of this worker process passed. The worker writes to its
/// inherited standard error: with a log file, that is the parent's pipe to it.
pub fn log_of_parent() -> LogConfig {
    let level = std::env::var(WORKER_LOG).unwrap_or_else(|_| "info".into());
    let is_set = |name| std::env::var_os(name).is_some();
    LogConfig {
        level,
        format: if is_set(WORKER_LOGS_JSON) { LogFormat::Json } else { LogFormat::Text },
        file: None,
        reveal_supi: is_set(WORKER_REVEALS),
        limit: !is_set(WORKER_LOGS_ALL),
    }
}
