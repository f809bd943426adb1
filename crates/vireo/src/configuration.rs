//! The configuration file, as the API reads and changes it.
//!
//! A change is written to the file and applied by the main thread, as with SIGHUP. If that fails,
//! the text before is written and applied again.

use crate::reload::{Function, InForce, is_live};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use vireo_api::{Change, ConfigurationControl, Validation};
use vireo_config::{Config, Source, Written};
use vireo_subscribers::shown_location;

/// Configuration file that is used without `--config`.
const DEFAULT_FILE: &str = "vireo.toml";

/// Request to the main thread to read the file again. The answer is true if it was applied.
pub(crate) type ReloadRequest = oneshot::Sender<bool>;

/// The configuration file of this process.
pub(crate) struct ConfigurationFile {
    path: PathBuf,
    function: Function,
    in_force: InForce,
    requests: mpsc::Sender<ReloadRequest>,
}

impl ConfigurationFile {
    /// Returns the file of a process; `None` if it has none.
    pub(crate) fn open(
        path: Option<&Path>,
        function: Function,
        in_force: InForce,
        requests: mpsc::Sender<ReloadRequest>,
    ) -> Option<Arc<dyn ConfigurationControl>> {
        let path = path.unwrap_or(Path::new(DEFAULT_FILE));
        // The process may change its directory.
        let path = std::path::absolute(path).ok().filter(|path| path.is_file())?;
        Some(Arc::new(ConfigurationFile { path, function, in_force, requests }))
    }

    fn load(&self, text: &str) -> Result<Config, Vec<String>> {
        let source = Source { name: self.path.display().to_string(), text: text.to_owned() };
        Config::from_source(&source).map_err(|error| error.problems().to_vec())
    }

    fn changes(&self, next: &Written) -> Vec<Change> {
        let present = self.in_force.written();
        let change = |key: String| Change {
            old: present.value(&key).map(shown_location),
            new: next.value(&key).map(shown_location),
            is_live: is_live(self.function, &key),
            key,
        };
        present.changed_keys(next).into_iter().map(change).collect()
    }

    /// Writes the file at once or not at all, with the owner and permissions that it has.
    fn write(&self, text: &str) -> io::Result<()> {
        let found = fs::metadata(&self.path)?;
        let next = self.path.with_extension("toml.new");
        let _ = fs::remove_file(&next);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&next)?;
        let written = (|| {
            file.write_all(text.as_bytes())?;
            std::os::unix::fs::fchown(&file, Some(found.uid()), Some(found.gid()))?;
            file.set_permissions(found.permissions())?;
            file.sync_all()?;
            fs::rename(&next, &self.path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&next);
        }
        written
    }

    /// Lets the main thread read the file. Returns true if it was applied.
    fn reload(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        self.requests.blocking_send(reply).is_ok() && answer.blocking_recv().unwrap_or(false)
    }
}

impl ConfigurationControl for ConfigurationFile {
    fn read(&self) -> Result<String, String> {
        fs::read_to_string(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn validate(&self, text: &str) -> Validation {
        match self.load(text) {
            Ok(config) => Validation { errors: Vec::new(), changes: self.changes(&config.written) },
            Err(errors) => Validation { errors, changes: Vec::new() },
        }
    }

    fn apply(&self, text: &str) -> Result<Validation, String> {
        let before = self.read()?;
        let validation = self.validate(text);
        if let Some(error) = validation.errors.first() {
            return Err(error.clone());
        }
        let name = self.path.display();
        self.write(text)
            .map_err(|error| format!("{name} is not written: {error}; check the file and its directory"))?;
        if self.reload() {
            return Ok(validation);
        }
        let restored = self.write(&before);
        // What was in force is in force again, also if the first attempt has changed a part of it.
        let applied = restored.is_ok() && self.reload();
        tracing::error!(applied, "a configuration by the API is not applied; the file is as it was");
        match restored {
            Ok(()) => Err("the configuration could not be applied, and is as it was; see the log".into()),
            Err(error) => Err(format!("the configuration could not be applied, and {name} is not restored: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "[log]\nlevel = \"info\"\n";

    /// Applies a text with a main thread that gives these answers. Returns the result, the file
    /// after it, and the texts that the main thread has read.
    fn apply(text: &str, answers: &[bool]) -> (Result<Validation, String>, String, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        fs::write(&path, BEFORE).unwrap();
        let source = Source { name: "vireo.toml".into(), text: BEFORE.into() };
        let config = Config::from_source(&source).unwrap();
        let (requests, mut queue) = mpsc::channel::<ReloadRequest>(1);
        let (answers, read) = (answers.to_vec(), path.clone());
        let thread = std::thread::spawn(move || {
            let mut texts = Vec::new();
            for answer in answers {
                let Some(reply) = queue.blocking_recv() else { break };
                texts.push(fs::read_to_string(&read).unwrap());
                let _ = reply.send(answer);
            }
            texts
        });
        let file = ConfigurationFile {
            path: path.clone(),
            function: Function::Core,
            in_force: InForce::new(&config),
            requests,
        };
        let result = file.apply(text);
        drop(file);
        (result, fs::read_to_string(&path).unwrap(), thread.join().unwrap())
    }

    #[test]
    fn applied_file_names_its_changes() {
        let text = "[log]\nlevel = \"debug\"\n[n2]\nport = 38413\n";
        let (result, after, read) = apply(text, &[true]);
        let changes = result.unwrap().changes;
        let change = |n: usize| (changes[n].key.as_str(), changes[n].new.as_deref(), changes[n].is_live);
        assert_eq!(change(0), ("log.level", Some("\"debug\""), true));
        assert_eq!(change(1), ("n2.port", Some("38413"), false));
        assert_eq!((after.as_str(), read), (text, vec![text.to_owned()]));
    }

    #[test]
    fn failed_change_is_rolled_back() {
        let text = "[log]\nlevel = \"debug\"\n";
        let (result, after, read) = apply(text, &[false, true]);
        assert!(result.unwrap_err().contains("as it was"));
        assert_eq!((after.as_str(), read), (BEFORE, vec![text.to_owned(), BEFORE.to_owned()]));
    }

    #[test]
    fn wrong_file_is_not_written() {
        let (result, after, read) = apply("[log]\nlevle = 1\n", &[]);
        assert!(result.unwrap_err().contains("levle"));
        assert_eq!((after.as_str(), read.len()), (BEFORE, 0));
    }

    #[test]
    fn password_of_a_url_is_not_shown() {
        for password in ["hunter2", "hunt@r2"] {
            let url = format!("\"redis://vireo:{password}@10.0.0.1/0\"");
            assert_eq!(shown_location(&url), "\"redis://vireo@10.0.0.1/0\"");
        }
        assert_eq!(shown_location("\"redis://10.0.0.1/a@b\""), "\"redis://10.0.0.1/a@b\"");
    }
}
