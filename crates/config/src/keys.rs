//! Keys that seal state on disks and in databases.

use crate::state::State;
use crate::{Config, Failure, SubscribersConfig};
use std::path::PathBuf;
use vireo_ops::config::StateConfig;
use vireo_sealing::KeySource;
use vireo_subscribers::{Store, StoreError, key_source};

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
        Store::open(&self.database, self.key())
    }

    /// Opens an existing database.
    pub fn open_existing(&self) -> Result<Store, StoreError> {
        Store::open_existing(&self.database, self.key())
    }

    fn key(&self) -> KeySource {
        key_source(&self.database, self.key_file.as_deref())
    }
}
