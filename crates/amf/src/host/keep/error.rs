//! Errors of contexts that are kept in a database.

use vireo_store::records::RecordError;

/// Error that prevents keeping contexts in a database.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// An operation of the database failed.
    #[error("state.keep: {0}")]
    Database(#[from] RecordError),
    /// Another core keeps its contexts under the same key.
    #[error(
        "state.keep: another core keeps its contexts in this database under the same state.key; give each core one"
    )]
    InUse,
    /// The record of the previous holder cannot be read.
    #[error(
        "state.keep: the record of the last core in this database cannot be read; use the state.encrypt and \
         state.key-file of that core, or another state.key"
    )]
    Unreadable,
    /// The database may lose commits undetected.
    #[error(
        "state.keep: this database does not show whether it has lost commits; allow INFO (Redis), or add \
         w=majority&journal=true to state.database (MongoDB), or set state.keep = false"
    )]
    Unknown,
    /// The database was restarted while this core started.
    #[error("state.keep: the database has been restarted while contexts were read from there; start the core again")]
    Restarted,
    /// The renewal thread does not start.
    #[error("state.keep: {0}")]
    Thread(std::io::Error),
}
