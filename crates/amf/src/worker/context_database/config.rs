//! Settings of the database of contexts, and its errors.

use serde::{Deserialize, Serialize};
use vireo_ops::state::RecordsConfig;
use vireo_ops::ue_record::UnknownUeRecord;
use vireo_store::records::RecordError;

/// Location and format of the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextDatabaseConfig {
    /// The database, and the format of its records.
    pub(crate) records: RecordsConfig,
    /// Owner number of this host in its records: another one after each start.
    pub(crate) owner: u64,
    /// True if other hosts may take over this host's records.
    pub(crate) shared: bool,
}

/// Error while loading or storing a context.
#[derive(Debug, thiserror::Error)]
pub enum ContextDatabaseError {
    /// The database failed.
    #[error("the database of contexts (state.database) does not answer: {0}")]
    Database(#[from] RecordError),
    /// The record is not a context.
    #[error(
        "the database of contexts (state.database) has a record that is no context; give other programs another \
         database or state.key"
    )]
    UnknownFormat,
    /// The record is missing although it was stored.
    #[error("the database of contexts (state.database) has lost a UE; check that it evicts no records")]
    Lost,
    /// Another host owns the UE.
    #[error("commit refused: another host owns the UE, because this host was declared dead; restart it")]
    Foreign,
}

impl From<UnknownUeRecord> for ContextDatabaseError {
    fn from(_: UnknownUeRecord) -> Self {
        ContextDatabaseError::UnknownFormat
    }
}
