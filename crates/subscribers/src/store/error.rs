use vireo_sealing::{KeyFileError, KeyId};
use vireo_types::Supi;

/// Why the subscriber database did not do what was asked: one sentence with the remedy, for a person.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no file and it was not to be made.
    #[error("there is no subscriber database at {path}: add a subscriber first (vireo subscriber add)")]
    Missing { path: String },
    /// The file cannot be opened or made.
    #[error("the subscriber database {path} cannot be opened: {cause}; check the path and its permissions")]
    Open { path: String, cause: String },
    /// The file is no SQLite database, or is damaged.
    #[error("{path} is no subscriber database or is damaged ({cause}): restore it from a copy, or move it away")]
    Corrupt { path: String, cause: String },
    /// A later release wrote it.
    #[error("the subscriber database {path} was written by a newer Vireo (schema {version}): use that release")]
    NewerSchema { path: String, version: i64 },
    /// Its schema is not one that any release wrote.
    #[error("the subscriber database {path} has a schema that is not Vireo's ({cause}): restore it from a copy")]
    ForeignSchema { path: String, cause: String },
    /// Another process holds it for longer than the patience of five seconds.
    #[error("the subscriber database {path} is locked by another process: wait until that ends, or end it")]
    Locked { path: String },
    /// The disk is full, the file is read-only, or the like.
    #[error("the subscriber database {path} failed: {cause}")]
    Failed { path: String, cause: String },
    /// An IMSI that is there already.
    #[error("{} is there already: remove it first, or import with --replace", .0.reveal())]
    Exists(Supi),
    /// The key that seals K and OPc.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// It is sealed with another key than the one that was found.
    #[error(
        "the subscriber database {path} is sealed with key {sealed}, and {origin} holds key {ours}; \
         set subscribers.key-file to the file with the right one"
    )]
    OtherKey { path: String, origin: String, sealed: KeyId, ours: KeyId },
    /// A row that no release wrote.
    #[error("the record of {imsi} cannot be read ({cause}): remove it and add it again")]
    BadRecord { imsi: String, cause: String },
    /// A database that Vireo cannot use.
    #[error("{0:?} is no subscriber database: give a file name, or sqlite: and a file name")]
    Location(String),
}

impl StoreError {
    /// Names what SQLite reported.
    pub(super) fn from_sqlx(path: &str, error: sqlx::Error) -> Self {
        let path = path.to_owned();
        let code = error.as_database_error().and_then(|e| e.code()).and_then(|c| c.parse::<u32>().ok());
        let cause = error.to_string();
        // The low octet of an extended result code is the primary one (sqlite.org/rescode.html).
        match code.map(|c| c & 0xff) {
            Some(5 | 6) => StoreError::Locked { path },
            Some(11 | 26) => StoreError::Corrupt { path, cause },
            Some(14) => StoreError::Open { path, cause },
            _ => StoreError::Failed { path, cause },
        }
    }

    /// Names what the schema check found.
    pub(super) fn from_migration(path: &str, error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError as M;
        let path = path.to_owned();
        match error {
            M::VersionMissing(version) | M::VersionTooNew(version, _) => StoreError::NewerSchema { path, version },
            M::Execute(e) | M::ExecuteMigration(e, _) => match Self::from_sqlx(&path, e) {
                StoreError::Failed { path, cause } => StoreError::ForeignSchema { path, cause },
                named => named,
            },
            other => StoreError::ForeignSchema { path, cause: other.to_string() },
        }
    }
}
