use crate::msisdn::MsisdnError;
use vireo_sealing::{KeyFileError, KeyId, OpenError};
use vireo_types::{Supi, SupiError};

/// Errors of the subscriber database, each as one sentence with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file does not exist and must not be created.
    #[error("there is no subscriber database at {path}: add a subscriber first (vireo subscriber add)")]
    Missing { path: String },
    /// The file cannot be opened or created.
    #[error("the subscriber database {path} cannot be opened: {cause}; check the path and its permissions")]
    Open { path: String, cause: String },
    /// The file is damaged or not a SQLite database.
    #[error("{path} is no subscriber database or is damaged ({cause}): restore it from a copy, or move it away")]
    Corrupt { path: String, cause: String },
    /// A later release has written the database.
    #[error("the subscriber database {path} was written by a newer Vireo (schema {version}): use that release")]
    NewerSchema { path: String, version: i64 },
    /// No release has written this schema.
    #[error("the subscriber database {path} has a schema that is not Vireo's ({cause}): restore it from a copy")]
    ForeignSchema { path: String, cause: String },
    /// Another process has held the lock longer than the timeout of 5 seconds.
    #[error("the subscriber database {path} is locked by another process: wait until that ends, or end it")]
    Locked { path: String },
    /// PostgreSQL does not answer.
    #[error(
        "the subscriber database {path} does not answer: {cause}; start PostgreSQL there, \
         or check subscribers.database"
    )]
    Unreachable { path: String, cause: String },
    /// PostgreSQL has no TLS, or a certificate that is not accepted.
    #[error(
        "the connection to the subscriber database {path} is not secure: {cause}; check sslmode and sslrootcert in \
         subscribers.database, and that the certificate of PostgreSQL names its host"
    )]
    Insecure { path: String, cause: String },
    /// PostgreSQL refuses the user, the password or the name of the database.
    #[error(
        "the subscriber database {path} refuses this user: {cause}; check subscribers.database, and the password in \
         PGPASSWORD or in the file of PGPASSFILE"
    )]
    Denied { path: String, cause: String },
    /// The user of PostgreSQL lacks a right.
    #[error("the subscriber database {path} permits too little: {cause}; make its user the owner of the database")]
    NoRight { path: String, cause: String },
    /// A running core uses the database.
    #[error("the subscriber database {path} is used by a running core: stop all cores and hosts that use it")]
    InUse { path: String },
    /// A restore has the database for itself.
    #[error("the subscriber database {path} is being restored from a backup: start again when that has ended")]
    Restoring { path: String },
    /// An operation failed, for example because the disk is full or the file is read-only.
    #[error("the subscriber database {path} failed: {cause}")]
    Failed { path: String, cause: String },
    /// The IMSI already exists.
    #[error("{} is there already: remove it first, or import with --replace", .0.reveal())]
    Exists(Supi),
    /// Another subscriber has the MSISDN.
    #[error("the MSISDN of {} belongs to another subscriber: change that one first, or give another MSISDN", .0.reveal())]
    MsisdnTaken(Supi),
    /// The key for sealing K and OPc is unusable.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The database is sealed with another key than the one found.
    #[error(
        "the subscriber database {path} is sealed with key {sealed}, and {origin} holds key {ours}; \
         set subscribers.key-file to the file with the right one"
    )]
    OtherKey { path: String, origin: String, sealed: KeyId, ours: KeyId },
    /// A record does not have the format of any release.
    #[error("the record of {imsi} cannot be read ({cause}): remove it and add it again")]
    BadRecord { imsi: String, cause: RecordFault },
    /// The location is not a supported database.
    #[error("{0:?} is no subscriber database: give a file name, or a URL postgres://USER@HOST/DATABASE")]
    Location(String),
}

/// Reason why a stored record cannot be read. No text contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum RecordFault {
    /// A column of text or a number is missing or has another type.
    #[error("{}", column_text(.0))]
    Column(sqlx::Error),
    /// A column of octets is missing or has another type.
    #[error("{name}: {}", column_text(.error))]
    Octets { name: &'static str, error: sqlx::Error },
    /// K and OPc are not sealed for this record with this key.
    #[error("secret: {0}")]
    Secret(OpenError),
    /// The opened secret is not K and OPc.
    #[error("secret: not 32 octets")]
    SecretLength,
    /// A change of the sealing key cannot open K and OPc with the old key.
    #[error(transparent)]
    Rekey(OpenError),
    #[error(transparent)]
    Imsi(SupiError),
    #[error(transparent)]
    Msisdn(MsisdnError),
    #[error("amf has not 2 octets")]
    Amf,
    #[error("{0:?} is no IPv4 address")]
    StaticIpv4(String),
    #[error("subscription: {0}")]
    Subscription(serde_json::Error),
}

/// Describes an error without the name of the library.
fn cause_text(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Tls(error) => error.to_string(),
        sqlx::Error::Database(error) => error.message().to_owned(),
        other => other.to_string(),
    }
}

/// Describes a column error without the name of the library.
fn column_text(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::ColumnDecode { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

impl StoreError {
    /// Converts an error of the database.
    pub(super) fn from_sqlx(path: &str, error: sqlx::Error) -> Self {
        let path = path.to_owned();
        if let Some(error) = Self::from_postgres(&path, &error) {
            return error;
        }
        let code = error.as_database_error().and_then(|e| e.code()).and_then(|c| c.parse::<u32>().ok());
        let cause = error.to_string();
        // The low byte of an extended result code is the primary code (sqlite.org/rescode.html).
        match code.map(|c| c & 0xff) {
            Some(5 | 6) => StoreError::Locked { path },
            Some(11 | 26) => StoreError::Corrupt { path, cause },
            Some(14) => StoreError::Open { path, cause },
            _ => StoreError::Failed { path, cause },
        }
    }

    /// Converts an error of PostgreSQL. Its codes have five characters, those of SQLite have fewer.
    fn from_postgres(path: &str, error: &sqlx::Error) -> Option<Self> {
        let (path, cause) = (path.to_owned(), cause_text(error));
        // rustls reports a failed handshake as invalid data.
        let is_insecure = match error {
            sqlx::Error::Tls(_) => true,
            sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
            _ => false,
        };
        if is_insecure {
            return Some(StoreError::Insecure { path, cause });
        }
        if matches!(error, sqlx::Error::Io(_) | sqlx::Error::Protocol(_)) {
            return Some(StoreError::Unreachable { path, cause });
        }
        let code = error.as_database_error()?.code().filter(|code| code.len() == 5)?;
        Some(match &*code {
            // PostgreSQL, appendix A.
            "55P03" => StoreError::Locked { path },
            "42501" => StoreError::NoRight { path, cause },
            "28000" | "28P01" | "3D000" => StoreError::Denied { path, cause },
            "53300" | "25006" | "25P02" => StoreError::Unreachable { path, cause },
            code if code.starts_with("57P") || code.starts_with("08") => StoreError::Unreachable { path, cause },
            _ => StoreError::Failed { path, cause },
        })
    }

    /// Converts an error of the schema check.
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
