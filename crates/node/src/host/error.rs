//! Why a host does not start.

use super::keep::KeepError;
use crate::worker::context_database::ContextDatabaseError;
use std::time::Duration;
use vireo_store::records::ShmError;
use vireo_store::region::{JoinError, RegionError};

/// Why a host does not start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The host's own place in it.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// What workers are told.
    #[error("the workers cannot be told the configuration: {0}; make it shorter")]
    Instructions(String),
    /// The supervisor.
    #[error("the worker processes cannot be watched: {0}")]
    Crew(std::io::Error),
    /// Too many are needed.
    #[error("the slices need more worker processes than a host has: raise pools.nfs-per-worker or lower pools.idle")]
    Workers,
    /// A worker.
    #[error("worker process {worker} does not start: {error}")]
    Worker {
        /// Which.
        worker: u8,
        /// Why.
        error: String,
    },
    /// All of them.
    #[error("the worker processes are not ready after {0:?}; is the machine overloaded?")]
    Late(Duration),
    /// The file of contexts that outlive the core.
    #[error("state.keep: {0}")]
    Keep(#[from] ShmError),
    /// The database that keeps contexts.
    #[error(transparent)]
    KeepDatabase(#[from] KeepError),
    /// The database of contexts.
    #[error(transparent)]
    Central(#[from] ContextDatabaseError),
}
