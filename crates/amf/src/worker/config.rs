//! Configuration of workers, published in the state region.

use super::context_database::ContextDatabaseConfig;
use super::region_layout;
use serde::{Deserialize, Serialize};
use vireo_core::config::CoreConfig;
use vireo_store::region::{PublishError, Region};

/// Configuration that a worker reads at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerConfig {
    /// Configuration of the steps.
    pub(crate) core: CoreConfig,
    /// Maximum number of NFs per worker.
    pub(crate) nfs: u8,
    /// Key of the 5G-TMSIs.
    pub(crate) tmsi_key: [u8; 16],
    /// Pool partition of this host, and the number of partitions.
    pub(crate) part: (u16, u16),
    /// Location of the contexts.
    pub(crate) location: Location,
    /// New log level; `None`: that of the start.
    pub(crate) log_level: Option<String>,
    /// CPU time in microseconds that each step takes in addition.
    pub(crate) added_step_us: u64,
}

/// Reason why the configuration of the workers is not published.
#[derive(Debug, thiserror::Error)]
pub enum WorkerConfigError {
    /// The configuration does not encode.
    #[error(transparent)]
    Encoding(#[from] postcard::Error),
    /// The region has no room for it.
    #[error(transparent)]
    Region(#[from] PublishError),
}

impl WorkerConfig {
    /// Publishes the configuration to running workers and to those that start later.
    pub(crate) fn publish(&self, region: &Region) -> Result<(), WorkerConfigError> {
        Ok(region.publish(region_layout::BULLETIN_CONFIG, &self.octets()?)?)
    }

    /// Returns the encoded configuration.
    pub(crate) fn octets(&self) -> Result<Vec<u8>, WorkerConfigError> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// Returns the published configuration and its version.
    pub(super) fn read(region: &Region) -> Option<(Self, u64)> {
        let mut octets = Vec::new();
        let version = region.read_published(region_layout::BULLETIN_CONFIG, &mut octets);
        Some((postcard::from_bytes(&octets).ok()?, version))
    }
}

/// Location of a worker's contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Location {
    /// State region.
    Region,
    /// Private memory of the worker (a stateful core, for comparison).
    Worker,
    /// Database (`state.location` "redis" or "mongodb").
    Database(ContextDatabaseConfig),
}
