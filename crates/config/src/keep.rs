//! `[state] keep`: contexts that outlive `vireo run`.

use crate::keys::key_source_of;
use crate::problems::Problems;
use crate::state::State;
use crate::{Config, Failure};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use vireo_core::config::{StateLocation, StatePersist, StateWrite};
use vireo_ops::config::{KeepConfig, KeepFile, StateConfig};
use vireo_sealing::KeySource;

/// Storage of contexts for the next start of the core.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    /// `None` means: keep contexts if possible.
    choice: Option<bool>,
    directory: PathBuf,
    /// Source of the key that seals the contexts.
    source: KeySource,
}

/// Returns the reason why contexts in this state mode cannot outlive the core, if any.
fn cannot_keep(state: &StateConfig) -> Option<&'static str> {
    if state.location == StateLocation::Memory {
        return Some("contexts in the memory of workers end with them: remove the key, or set state.location");
    }
    if state.persist == StatePersist::Procedure {
        return Some(
            "a record of each procedure may be older than the NAS COUNTs that were used: set state.persist = \
             \"transaction\", or remove the key",
        );
    }
    if state.write == StateWrite::NonBlocking {
        return Some(
            "a record that nothing waits for may be older than the NAS COUNTs that were used: set state.write = \
             \"blocking\", or remove the key",
        );
    }
    None
}

/// Returns the settings of `[state]`, with problems for contradictions.
pub(super) fn keep(file: &State, state: &StateConfig, problems: &mut Problems) -> Keep {
    let refused = cannot_keep(state);
    if let Some(reason) = refused.filter(|_| file.keep == Some(true)) {
        problems.check(false, "state.keep", reason);
    }
    problems.check(
        !file.keep_directory.is_empty(),
        "state.keep-directory",
        "a directory is needed, such as \"/dev/shm\"",
    );
    Keep {
        choice: if refused.is_none() { file.keep } else { Some(false) },
        directory: PathBuf::from(&file.keep_directory),
        source: key_source_of(file),
    }
}

/// Returns the file name. It is the same at each start with the same key file, and differs from
/// those of other cores on the machine.
fn name(key: &str, key_file: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    std::path::absolute(key_file).unwrap_or_else(|_| key_file.to_owned()).hash(&mut hasher);
    format!("{key}-kept-{:016x}", hasher.finish())
}

impl Config {
    /// Keeps contexts in this directory, sealed with this key, instead of the configured ones.
    pub fn keep_contexts_in(&mut self, directory: &str, key_file: &str) -> Result<(), Failure> {
        self.keep.directory = PathBuf::from(directory);
        self.keep.source.file = PathBuf::from(key_file);
        self.keep_contexts()
    }

    /// Keeps the contexts for the next start, unless the configuration forbids it.
    pub fn keep_contexts(&mut self) -> Result<(), Failure> {
        let Keep { choice, directory, source } = &self.keep;
        if *choice == Some(false) {
            return Ok(());
        }
        let is_wanted = *choice == Some(true);
        if self.state.location.is_database() {
            self.state.keep = Some(KeepConfig::Database { is_wanted });
            return Ok(());
        }
        let path = directory.join(name(&self.state.key, &source.file));
        match source.load_or_create() {
            Ok(key) => self.state.keep = Some(KeepConfig::File(KeepFile { path, key: key.into(), is_wanted })),
            Err(error) if is_wanted => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "contexts not kept for the next start; see state.keep"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use figment::providers::Env;

    fn load(text: &str) -> Result<Config, Vec<String>> {
        let file = crate::load::parse(text, Env::prefixed("NO_VARIABLE_BEGINS_SO_"))?;
        crate::check::config(&file)
    }

    #[test]
    fn old_or_lost_contexts_are_not_kept() {
        let modes = [
            ("location = \"memory\"", "contexts in the memory of workers"),
            ("preset = \"procedural\"", "a record of each procedure may be older"),
            ("preset = \"non-blocking\"", "a record that nothing waits for may be older"),
        ];
        for (mode, reason) in modes {
            let wrong = load(&format!("[state]\nkeep = true\n{mode}\n")).unwrap_err();
            assert!(wrong[0].starts_with(&format!("state.keep: {reason}")), "{wrong:?}");
            let mut config = load(&format!("[state]\n{mode}\n")).unwrap();
            config.keep_contexts().unwrap();
            assert_eq!(config.state.keep, None, "{mode}");
        }
        let mut config = load("[state]\nkeep = false\n").unwrap();
        config.keep_contexts().unwrap();
        assert_eq!(config.state.keep, None);
    }

    #[test]
    fn contexts_in_a_database_are_kept_there() {
        for mode in ["location = \"redis\"", "preset = \"transactional\"", "preset = \"delete-create\""] {
            for (keep, is_wanted) in [("", false), ("keep = true", true)] {
                let mut config = load(&format!("[state]\n{mode}\n{keep}\n")).unwrap();
                config.keep_contexts().unwrap();
                assert_eq!(config.state.keep, Some(KeepConfig::Database { is_wanted }), "{mode} {keep}");
            }
        }
    }

    #[test]
    fn key_enables_kept_contexts_by_default() {
        let directory = tempfile::tempdir().unwrap();
        let key = |name: &str| format!("key-file = \"{}/{name}\"\n", directory.path().display());
        let mut config = load(&format!("[state]\n{}", key("state.key"))).unwrap();
        config.keep_contexts().unwrap();
        let Some(KeepConfig::File(kept)) = config.state.keep else { panic!("{:?}", config.state.keep) };
        assert!(kept.path.starts_with("/dev/shm") && !kept.is_wanted);
        let mut config = load(&format!("[state]\n{}", key("none/state.key"))).unwrap();
        config.keep_contexts().unwrap();
        assert_eq!(config.state.keep, None, "the core starts without");
        let mut config = load(&format!("[state]\nkeep = true\n{}", key("none/state.key"))).unwrap();
        let refused = config.keep_contexts().unwrap_err().to_string();
        assert!(refused.contains("state.key") && config.state.keep.is_none(), "{refused}");
    }

    #[test]
    fn each_key_file_has_a_file_of_contexts() {
        let of = |key, file| name(key, Path::new(file));
        assert_eq!(of("vireo", "/a/vireo-state.key"), of("vireo", "/a/vireo-state.key"));
        assert_ne!(of("vireo", "/a/vireo-state.key"), of("vireo", "/b/vireo-state.key"));
        assert_ne!(of("vireo", "/a/vireo-state.key"), of("other", "/a/vireo-state.key"));
    }
}
