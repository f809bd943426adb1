//! Storage of UE state that outlives the network functions.
//!
//! The storage is a database for AMF, SMF and UPF, with a format and an update mode. Alternatively
//! SMF and UPF have one shared-memory file each.

use crate::config::{StateChange, StateConfig, StateFormat, StateLocation, StatePersist, StateScope, StateWrite};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use vireo_store::records::{
    self, Codec, DatabaseTls, Format, LIFE, RecordError, RecordStore, RecordsKey, Sealed, ShmError, ShmRecords,
    StoreUrl, UpdateMode,
};

/// Time after which a response of the database counts as lost.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// True if this program is built with MongoDB support.
pub const HAS_MONGODB: bool = cfg!(feature = "mongodb");

/// Location and format of a network function's records in a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsConfig {
    /// URL of the database.
    pub database: String,
    /// Prefix of the keys; for MongoDB the name of the database.
    pub key: String,
    /// Key that seals the records; `None`: they are stored in clear.
    pub sealing: Option<RecordsKey>,
    /// Redis Cluster: number of replicas that must have a commit.
    pub confirm: u16,
    /// Steps at which records are loaded and committed.
    pub persist: StatePersist,
    /// Update mode of the records.
    pub change: StateChange,
    /// Format of the records.
    pub format: StateFormat,
    /// Network functions that share a record.
    pub scope: StateScope,
    /// Condition for the completion of a commit, except for an SMF's.
    pub write: StateWrite,
    /// TLS of the connections to the database, if its URL requires it.
    pub tls: DatabaseTls,
}

impl RecordsConfig {
    /// Returns the records of a configuration; `None` if no database has the state.
    pub fn from_state(state: &StateConfig) -> Option<Self> {
        let &StateConfig { persist, change, format, scope, write, confirm, .. } = state;
        state.location.is_database().then(|| RecordsConfig {
            database: state.database.clone(),
            key: state.key.clone(),
            sealing: state.sealing.clone(),
            confirm,
            persist,
            change,
            format,
            scope,
            write,
            tls: state.tls.clone(),
        })
    }

    /// Returns the default configuration with the records in the Redis database at this URL.
    pub fn for_redis(url: &str) -> Self {
        let state = StateConfig { location: StateLocation::Redis, database: url.to_owned(), ..StateConfig::default() };
        RecordsConfig::from_state(&state).expect("Redis is a database")
    }

    /// Returns a handle of the records for one thread. It sends no request yet.
    ///
    /// # Errors
    ///
    /// Returns [`RecordError::Down`] for a database that this program does not support.
    pub fn open(&self) -> Result<Box<dyn RecordStore>, RecordError> {
        self.open_for(LIFE)
    }

    /// Returns a handle like [`RecordsConfig::open`], for records with this lifetime.
    ///
    /// # Errors
    ///
    /// Returns an error as [`RecordsConfig::open`] does.
    pub fn open_for(&self, life: Duration) -> Result<Box<dyn RecordStore>, RecordError> {
        let (url, prefix, confirm) = (self.database.clone(), self.key.clone(), self.confirm);
        let (tls, format) = (self.tls.clone(), self.codec().format);
        let records = records::open(&StoreUrl { url, prefix, life, timeout: RESPONSE_TIMEOUT, format, confirm, tls })?;
        Ok(match &self.sealing {
            Some(key) => Box::new(Sealed::new(records, key.clone(), self.octets_format() == Format::Json)),
            None => records,
        })
    }

    /// Checks that records are sealed with the key of this configuration, before any is read or
    /// written.
    ///
    /// # Errors
    ///
    /// Returns [`RecordError::OtherKey`], or the error of the database.
    pub fn prove_key(&self) -> Result<(), RecordError> {
        let Some(key) = &self.sealing else { return Ok(()) };
        let plain = RecordsConfig { sealing: None, ..self.clone() };
        Sealed::new(plain.open()?, key.clone(), self.octets_format() == Format::Json).prove()
    }

    /// Returns the format of octet strings in shared records: MongoDB documents with JSON fields
    /// have no binary ones.
    pub fn octets_format(&self) -> Format {
        let json = StateLocation::from_url(&self.database) == Some(StateLocation::Mongodb);
        if json { self.codec().format } else { Format::Binary }
    }

    /// Returns the codec of the records.
    pub const fn codec(&self) -> Codec {
        let format = match self.format {
            StateFormat::Binary => Format::Binary,
            StateFormat::Json => Format::Json,
            StateFormat::Protobuf => Format::Protobuf,
        };
        let update_mode = match self.change {
            StateChange::Replace => UpdateMode::Replace,
            StateChange::Update => UpdateMode::Update,
            StateChange::DeleteCreate => UpdateMode::DeleteCreate,
        };
        Codec { format, update_mode }
    }
}

/// Location of a network function's records in a shared-memory file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedConfig {
    /// A directory of a memory file system.
    pub directory: PathBuf,
    /// Prefix of the file names.
    pub key: String,
    /// Key that seals the records; `None`: they are stored in clear.
    pub sealing: Option<RecordsKey>,
    /// Maximum number of records, unless another setting determines it.
    pub records: u32,
}

/// URL prefix of shared memory; an absolute path follows.
const SHARED: &str = "shm://";
/// Number of records besides those of sessions.
const FURTHER_RECORDS: u32 = 16;

impl SharedConfig {
    /// Returns the file of a configuration, with room for two sessions of each UE. Returns `None`
    /// if the state is stored elsewhere or not at all.
    pub fn from_state(state: &StateConfig) -> Option<Self> {
        let directory = state.database.strip_prefix(SHARED).filter(|_| state.location == StateLocation::Shm)?;
        let records = state.ues.saturating_mul(2);
        let (key, sealing) = (state.key.clone(), state.sealing.clone());
        Some(SharedConfig { directory: directory.into(), key, sealing, records })
    }

    /// Opens the file of a network function for exclusive use.
    ///
    /// # Errors
    ///
    /// Returns [`ShmError`] if the file cannot be opened.
    pub fn open(&self, function: &str) -> Result<ShmRecords, ShmError> {
        let path = self.directory.join(format!("{}-{function}", self.key));
        let records = ShmRecords::open(&path, self.records.saturating_add(FURTHER_RECORDS), LIFE)?;
        if let Some(less) = less_room(records.room().saturating_sub(FURTHER_RECORDS), self.records) {
            tracing::warn!("{}: {less}", path.display());
        }
        Ok(records)
    }

    /// Wraps these records in the configured sealing.
    ///
    /// # Errors
    ///
    /// Returns [`RecordError::OtherKey`] if they are sealed with another key.
    pub fn sealed(&self, records: ShmRecords) -> Result<Box<dyn RecordStore>, RecordError> {
        let Some(key) = &self.sealing else { return Ok(Box::new(records)) };
        let mut records = Sealed::new(records, key.clone(), false);
        records.prove()?;
        Ok(Box::new(records))
    }
}

/// Returns a warning if a file has less room than configured.
fn less_room(has: u32, wanted: u32) -> Option<String> {
    (has < wanted).then(|| {
        format!(
            "the file was made with room for {has} sessions, and {wanted} are configured: those beyond are refused. To make it larger \
             stop this function, remove the file (the sessions in it are lost), and start again"
        )
    })
}

/// Storage of SMF and UPF records that outlive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableRecords {
    /// A database.
    Database(RecordsConfig),
    /// A shared-memory file.
    Shared(SharedConfig),
}

impl DurableRecords {
    /// Returns the storage of a configuration; `None` if records do not outlive the process.
    pub fn from_state(state: &StateConfig) -> Option<Self> {
        let shared = || SharedConfig::from_state(state).map(DurableRecords::Shared);
        RecordsConfig::from_state(state).map(DurableRecords::Database).or_else(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_location_has_records() {
        assert_eq!(RecordsConfig::from_state(&StateConfig::default()), None);
        let state = StateConfig {
            location: StateLocation::Redis,
            change: StateChange::DeleteCreate,
            format: StateFormat::Json,
            ..StateConfig::default()
        };
        let records = RecordsConfig::from_state(&state).unwrap();
        assert_eq!(records.codec(), Codec { format: Format::Json, update_mode: UpdateMode::DeleteCreate });
        assert!(records.open().is_ok(), "nothing is asked yet");
        assert_eq!(records.octets_format(), Format::Binary);
        let mongodb = RecordsConfig { database: "mongodb://127.0.0.1".into(), ..records.clone() };
        assert_eq!(mongodb.octets_format(), Format::Json);
        let unknown = RecordsConfig { database: "postgres://127.0.0.1".into(), ..records };
        assert!(unknown.open().is_err());
    }

    #[test]
    fn file_with_less_room_than_configured_warns() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let config =
            |records| SharedConfig { directory: directory.path().into(), key: "x".into(), sealing: None, records };
        let room = |records| config(records).open("smf").unwrap().room().saturating_sub(FURTHER_RECORDS);
        assert_eq!((room(100), room(200), room(50)), (100, 100, 100), "it keeps its size");
        let warning = less_room(room(200), 200).expect("a warning");
        assert!(warning.contains("for 100 sessions, and 200") && warning.contains("remove the file"), "{warning}");
        assert_eq!((less_room(100, 100), less_room(100, 50)), (None, None));
    }

    #[test]
    fn shared_memory_is_named_by_its_directory() {
        let state = StateConfig { database: "shm:///dev/shm/x".into(), ues: 7, ..StateConfig::default() };
        let shared = SharedConfig { directory: "/dev/shm/x".into(), key: "vireo".into(), sealing: None, records: 14 };
        assert_eq!(DurableRecords::from_state(&state), Some(DurableRecords::Shared(shared)));
        let state = StateConfig { location: StateLocation::Memory, ..state };
        assert_eq!(DurableRecords::from_state(&state), None, "naming it is not choosing it");
    }
}
