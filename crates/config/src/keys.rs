//! Keys that seal state on disks and in databases.

use crate::state::State;
use crate::{Config, Failure, SubscribersConfig, home_network};
use std::path::PathBuf;
use vireo_ops::config::StateConfig;
pub use vireo_sealing::KeySource;
use vireo_subscribers::{Store, StoreError, UdmConfig, key_source};

/// Environment variable that holds the record key in place of the file.
const STATE_KEY: &str = "VIREO_STATE_KEY";

/// URL scheme of records in shared memory.
const SHARED: &str = "shm://";

/// Returns the source of the record key, if the configuration seals records.
pub(super) fn state_key(file: &State, state: &StateConfig) -> Option<KeySource> {
    let is_kept = state.location.is_database() || state.database.starts_with(SHARED);
    (file.encrypt && is_kept).then(|| key_source_of(file))
}

/// Returns the source of the key that seals contexts.
pub(super) fn key_source_of(file: &State) -> KeySource {
    KeySource { variable: STATE_KEY, file: PathBuf::from(&file.key_file) }
}

impl Config {
    /// Reads the home network keys that are in files, for the role that de-conceals SUCIs.
    pub fn read_home_network_keys(&mut self) -> Result<(), Failure> {
        let subscribers = &mut self.subscribers;
        for (place, entry) in &subscribers.key_files {
            let key = home_network::read(entry).map_err(|e| Failure(format!("{place}: {e}")))?;
            subscribers.udm.home_network_keys.push(key);
        }
        Ok(())
    }

    /// Loads the record key, or creates one if none exists.
    pub fn unlock_state(&mut self) -> Result<(), Failure> {
        if let Some(source) = &self.state_key {
            self.state.sealing = Some(source.load_or_create()?.into());
        }
        Ok(())
    }
}

impl SubscribersConfig {
    /// Opens the database, or creates it.
    pub fn open(&self) -> Result<Store, StoreError> {
        Store::open(&self.database, self.key_source())
    }

    /// Opens an existing database.
    pub fn open_existing(&self) -> Result<Store, StoreError> {
        Store::open_existing(&self.database, self.key_source())
    }

    /// Returns the settings of a database apart from a configuration.
    pub fn for_database(database: String, key_file: Option<PathBuf>) -> Self {
        SubscribersConfig { database, key_file, udm: UdmConfig::default(), key_files: Vec::new() }
    }

    /// Returns the source of the key that seals K and OPc.
    pub fn key_source(&self) -> KeySource {
        key_source(&self.database, self.key_file.as_deref())
    }

    /// Returns where the key that seals K and OPc comes from: a file, or an environment variable.
    pub fn key_origin(&self) -> String {
        let source = self.key_source();
        if source.is_variable() { source.variable.to_owned() } else { source.file.display().to_string() }
    }
}
