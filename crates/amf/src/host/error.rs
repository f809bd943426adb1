//! Errors that prevent the start of a host.

use super::keep::KeepError;
use crate::worker::WorkerConfigError;
use crate::worker::context_database::ContextDatabaseError;
use std::time::Duration;
use vireo_store::records::ShmError;
use vireo_store::region::{JoinError, RegionError};

/// Error that prevents the start of a host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The host cannot join its region.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The configuration of the workers is too long to be published.
    #[error("the configuration is too long for worker processes: {0}; shorten it")]
    Instructions(#[from] WorkerConfigError),
    /// The supervisor does not start.
    #[error("the supervisor of worker processes does not start: {0}")]
    Supervisor(std::io::Error),
    /// The slices need more worker processes than a host can have.
    #[error("the slices need more worker processes than a host has: raise pools.nfs-per-worker or lower pools.idle")]
    Workers,
    /// A worker exits during the start.
    #[error("worker process {worker} does not start: {error}")]
    Worker { worker: u8, error: String },
    /// The first workers are not ready in time.
    #[error("the worker processes are not ready after {0:?}; is the machine overloaded?")]
    StartTimeout(Duration),
    /// The file of contexts that outlive the core.
    #[error("state.keep: {0}")]
    Keep(#[from] ShmError),
    /// The database that keeps contexts.
    #[error(transparent)]
    KeepDatabase(#[from] KeepError),
    /// The database of contexts.
    #[error(transparent)]
    Database(#[from] ContextDatabaseError),
}
