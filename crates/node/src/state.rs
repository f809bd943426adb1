//! Where functions keep the state of UEs, if a configuration has it outlive them: a database, one for AMF, SMF and UPF, which place of
//! records it is and how values are kept there; or shared memory, where SMF and UPF have a file each.

use crate::config::{StateChange, StateConfig, StateFormat, StateLocation, StatePersist, StateScope, StateWrite};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use vireo_store::records::{
    self, Codec, DatabaseTls, Format, LIFE, RecordError, RecordStore, RecordsKey, Sealed, ShmError, ShmRecords,
    StoreUrl, UpdateMode,
};

/// How long an answer is waited for, before it is taken for lost.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Whether this program can keep records in MongoDB.
pub const HAS_MONGODB: bool = cfg!(feature = "mongodb");

/// What a process has to be told to have the records of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsConfig {
    /// A URL.
    pub database: String,
    /// What keys begin with; of MongoDB the name of the database.
    pub key: String,
    /// Seals what is kept there; `None`: it is kept in clear.
    pub sealing: Option<RecordsKey>,
    /// Of a Redis Cluster: how many replicas have a commit before it counts.
    pub confirm: u16,
    /// When records are loaded and committed.
    pub persist: StatePersist,
    /// How they are changed.
    pub change: StateChange,
    /// What they are.
    pub format: StateFormat,
    /// Who shares them.
    pub scope: StateScope,
    /// What commits wait for, but an SMF's.
    pub write: StateWrite,
    /// TLS of the connections to the database, if its URL says that they have it.
    pub tls: DatabaseTls,
}

impl RecordsConfig {
    /// The records of a configuration; `None`: state is not in a database.
    pub fn of(state: &StateConfig) -> Option<Self> {
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

    /// Those of a test, at this URL.
    #[cfg(test)]
    pub(crate) fn at(database: &str) -> Self {
        let (location, database, key) = (crate::config::StateLocation::Redis, database.to_owned(), "test".to_owned());
        RecordsConfig::of(&StateConfig { location, database, key, ..StateConfig::default() }).expect("a database")
    }

    /// A way to the place, for one thread. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// [`RecordError::Down`] for a database that this program does not know.
    pub fn open(&self) -> Result<Box<dyn RecordStore>, RecordError> {
        self.open_for(LIFE)
    }

    /// The same, for records that live so long.
    ///
    /// # Errors
    ///
    /// As [`RecordsConfig::open`].
    pub fn open_for(&self, life: Duration) -> Result<Box<dyn RecordStore>, RecordError> {
        let (url, prefix, confirm) = (self.database.clone(), self.key.clone(), self.confirm);
        let (tls, format) = (self.tls.clone(), self.codec().format);
        let records = records::open(&StoreUrl { url, prefix, life, patience: PATIENCE, format, confirm, tls })?;
        Ok(match &self.sealing {
            Some(key) => Box::new(Sealed::new(records, key.clone(), self.of_octets() == Format::Json)),
            None => records,
        })
    }

    /// Checks that records are sealed with the key of this configuration, before any is read or written.
    ///
    /// # Errors
    ///
    /// [`RecordError::OtherKey`], and what the database refuses.
    pub(crate) fn prove_key(&self) -> Result<(), RecordError> {
        let Some(key) = &self.sealing else { return Ok(()) };
        let plain = RecordsConfig { sealing: None, ..self.clone() };
        Sealed::new(plain.open()?, key.clone(), self.of_octets() == Format::Json).prove()
    }

    /// What octets are kept as in records that functions share: a document of MongoDB whose fields are JSON has none.
    pub(crate) fn of_octets(&self) -> Format {
        let json = StateLocation::of_url(&self.database) == Some(StateLocation::Mongodb);
        if json { self.codec().format } else { Format::Binary }
    }

    /// How values are kept there.
    pub const fn codec(&self) -> Codec {
        let format = match self.format {
            StateFormat::Binary => Format::Binary,
            StateFormat::Json => Format::Json,
            StateFormat::Protobuf => Format::Protobuf,
        };
        let manner = match self.change {
            StateChange::Replace => UpdateMode::Replace,
            StateChange::Update => UpdateMode::Update,
            StateChange::DeleteCreate => UpdateMode::DeleteCreate,
        };
        Codec { format, manner }
    }
}

/// What a function has to be told to have its records in memory that outlives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedConfig {
    /// A directory of a memory file system.
    pub directory: PathBuf,
    /// What the names of files begin with.
    pub key: String,
    /// Seals what is kept there; `None`: it is kept in clear.
    pub sealing: Option<RecordsKey>,
    /// Records at most, where that is not said by something else.
    pub records: u32,
}

/// What the URL of shared memory begins with; an absolute path follows.
const SHARED: &str = "shm://";
/// Records that are not sessions.
const BESIDES: u32 = 16;

impl SharedConfig {
    /// The records of a configuration; `None`: state is elsewhere, or ends with the function. Room is for two sessions of each UE.
    pub fn of(state: &StateConfig) -> Option<Self> {
        let directory = state.database.strip_prefix(SHARED).filter(|_| state.location == StateLocation::Shm)?;
        let records = state.ues.saturating_mul(2);
        let (key, sealing) = (state.key.clone(), state.sealing.clone());
        Some(SharedConfig { directory: directory.into(), key, sealing, records })
    }

    /// Those of a function. It has them for itself.
    ///
    /// # Errors
    ///
    /// [`SharedError`].
    pub fn open(&self, function: &str) -> Result<ShmRecords, ShmError> {
        let path = self.directory.join(format!("{}-{function}", self.key));
        let records = ShmRecords::open(&path, self.records.saturating_add(BESIDES), LIFE)?;
        if let Some(less) = less_room(records.room().saturating_sub(BESIDES), self.records) {
            tracing::warn!("{}: {less}", path.display());
        }
        Ok(records)
    }

    /// These records as functions use them.
    ///
    /// # Errors
    ///
    /// [`RecordError::OtherKey`] if they are sealed with another key.
    pub(crate) fn sealed(&self, records: ShmRecords) -> Result<Box<dyn RecordStore>, RecordError> {
        let Some(key) = &self.sealing else { return Ok(Box::new(records)) };
        let mut records = Sealed::new(records, key.clone(), false);
        records.prove()?;
        Ok(Box::new(records))
    }
}

/// What is to be said of a file of records that was made with less room than it would be now.
fn less_room(has: u32, wanted: u32) -> Option<String> {
    (has < wanted).then(|| {
        format!(
            "the file was made with room for {has} sessions, and {wanted} are configured: those beyond are refused. To make it larger \
             stop this function, remove the file (the sessions in it are lost), and start again"
        )
    })
}

/// Where SMF and UPF keep records that outlive them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableRecords {
    /// A database.
    Database(RecordsConfig),
    /// Shared memory.
    Shared(SharedConfig),
}

impl DurableRecords {
    /// Where a configuration has them; `None`: nowhere.
    pub fn of(state: &StateConfig) -> Option<Self> {
        let shared = || SharedConfig::of(state).map(DurableRecords::Shared);
        RecordsConfig::of(state).map(DurableRecords::Database).or_else(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_a_database_has_records() {
        assert_eq!(RecordsConfig::of(&StateConfig::default()), None);
        let state = StateConfig {
            location: StateLocation::Redis,
            change: StateChange::DeleteCreate,
            format: StateFormat::Json,
            ..StateConfig::default()
        };
        let records = RecordsConfig::of(&state).unwrap();
        assert_eq!(records.codec(), Codec { format: Format::Json, manner: UpdateMode::DeleteCreate });
        assert!(records.open().is_ok(), "nothing is asked yet");
        assert_eq!(records.of_octets(), Format::Binary);
        let mongodb = RecordsConfig { database: "mongodb://127.0.0.1".into(), ..records.clone() };
        assert_eq!(mongodb.of_octets(), Format::Json);
        let unknown = RecordsConfig { database: "postgres://127.0.0.1".into(), ..records };
        assert!(unknown.open().is_err());
    }

    #[test]
    fn a_file_with_less_room_than_configured_is_said() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let config =
            |records| SharedConfig { directory: directory.path().into(), key: "x".into(), sealing: None, records };
        let room = |records| config(records).open("smf").unwrap().room().saturating_sub(BESIDES);
        assert_eq!((room(100), room(200), room(50)), (100, 100, 100), "it keeps its size");
        let said = less_room(room(200), 200).expect("a warning");
        assert!(said.contains("for 100 sessions, and 200") && said.contains("remove the file"), "{said}");
        assert_eq!((less_room(100, 100), less_room(100, 50)), (None, None));
    }

    #[test]
    fn shared_memory_is_named_by_its_directory() {
        let state = StateConfig { database: "shm:///dev/shm/x".into(), ues: 7, ..StateConfig::default() };
        let shared = SharedConfig { directory: "/dev/shm/x".into(), key: "vireo".into(), sealing: None, records: 14 };
        assert_eq!(DurableRecords::of(&state), Some(DurableRecords::Shared(shared)));
        let state = StateConfig { location: StateLocation::Memory, ..state };
        assert_eq!(DurableRecords::of(&state), None, "naming it is not choosing it");
    }
}
