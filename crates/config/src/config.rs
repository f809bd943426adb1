//! Checked configuration, as plain structures.

use crate::keep::Keep;
use crate::log::LogConfig;
use crate::receiver::Receiver;
use crate::subscribers::HnKey;
use crate::written::Written;
use std::fmt;
use std::path::PathBuf;
use vireo_cluster::ClusterConfig;
use vireo_core::config::CoreConfig;
use vireo_ops::config::{ApiConfig, N2Config, N4Config, OverloadConfig, PoolsConfig, SliceRuntime, StateConfig};
use vireo_ops::sbi::SbiConfig;
use vireo_sealing::KeySource;
use vireo_subscribers::UdmConfig;
use vireo_upf::UpfConfig;

/// Checked configuration of a running core.
#[derive(Debug)]
pub struct Config {
    pub core: CoreConfig,
    pub n2: N2Config,
    pub n4: N4Config,
    pub api: ApiConfig,
    /// Server to which alarms are sent.
    pub(crate) webhook: Option<Receiver>,
    /// Collector of traces, and the sampled part of them.
    pub(crate) traces: Option<(Receiver, f64)>,
    /// In the order of `CoreConfig::slices`.
    pub slices: Vec<SliceRuntime>,
    pub pools: PoolsConfig,
    /// Host processes of `vireo run`; 1 means none besides its own.
    pub shards: u8,
    pub state: StateConfig,
    /// Key that seals state outside the region; `None` means unsealed.
    pub(crate) state_key: Option<KeySource>,
    /// Storage of contexts for the next start of the core.
    pub(crate) keep: Keep,
    pub overload: OverloadConfig,
    /// Configuration of SBA mode.
    pub sbi: SbiConfig,
    /// Configuration of balancers and hosts.
    pub cluster: ClusterConfig,
    /// Embedded UPF, if enabled.
    pub upf: Option<UpfConfig>,
    pub subscribers: SubscribersConfig,
    pub log: LogConfig,
    /// Values of the file, for later reloads.
    pub written: Written,
}

/// Subscriber database and subscriber service.
pub struct SubscribersConfig {
    /// For `vireo_subscribers::Store::open`; a file is relative to the working directory. A URL may
    /// contain a password.
    pub database: String,
    /// File with the key of the database; `None` means the file beside the database.
    pub key_file: Option<PathBuf>,
    pub udm: UdmConfig,
    /// Keys and entries of home network keys that are in files. Only the role that uses them reads
    /// these ([`Config::read_home_network_keys`]).
    pub(crate) key_files: Vec<(String, HnKey)>,
}

impl fmt::Debug for SubscribersConfig {
    /// Prints no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = vireo_subscribers::shown_location(&self.database);
        f.debug_struct("SubscribersConfig").field("database", &database).finish_non_exhaustive()
    }
}

/// All problems of a configuration, one per line.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub(crate) source: String,
    pub(crate) problems: Vec<String>,
}

impl ConfigError {
    /// Returns the problems, one sentence each.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [one] => write!(f, "{}: {one}", self.source),
            many => write!(f, "{} is wrong in {} places:\n  {}", self.source, many.len(), many.join("\n  ")),
        }
    }
}
