//! Configuration: `vireo.toml`, checked and converted into plain structures.
//!
//! * [`Config`]: the checked file
//! * [`roles`]: settings of the roles, from a configuration
//! * [`worker_process`]: start of worker processes with the log settings of their parent
//! * [`default_paths`]: files of a process for which the configuration names no path
//!
//! `examples/reference.toml` describes every key with its default. An environment variable
//! `VIREO_SECTION__KEY` overrides a key: `VIREO_CORE__TACS=[1,2]`, `VIREO_LOG__REVEAL_SUPI=true`.
//!
//! This crate knows no command and starts no control plane.

#![forbid(unsafe_code)]

mod access;
mod alarms;
mod check;
mod cluster;
mod config;
mod data_network;
pub mod default_paths;
mod failure;
mod file;
mod half_open;
mod home_network;
mod keep;
mod keys;
mod kubernetes;
mod load;
mod log;
mod management;
mod n2;
mod n4;
mod named_servers;
mod network;
mod paging;
mod problems;
mod receiver;
pub mod roles;
mod runtime;
mod s1;
mod shards;
mod slices;
mod state;
mod subscribers;
mod surfaces;
#[cfg(test)]
mod tests;
mod trace_start;
mod traces;
mod unsupported;
mod values;
pub mod worker_process;
mod written;

pub use config::{Config, ConfigError, SubscribersConfig};
pub use failure::Failure;
pub use keys::KeySource;
pub use load::{Source, shown};
pub use log::{LevelError, LogConfig, LogFileConfig, LogFormat, directives};
pub use written::Written;
