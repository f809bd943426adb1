//! Audit log: one JSON line for each change by the API.
//!
//! Files are `audit.jsonl` in the state directory, and the older `audit.jsonl.1` and so on. Without
//! a directory, entries are in the log of the process only.

use crate::time::{now, rfc3339};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use utoipa::ToSchema;
use vireo_ops::api::Identity;

/// Size from which on a file is replaced.
const FILE_BYTES: u64 = if cfg!(test) { 4096 } else { 8 << 20 };
/// Older files that are kept.
const OLDER: usize = 4;
/// Maximum length of a text in an entry.
const TEXT: usize = 512;
/// Name of the current file.
const NAME: &str = "audit.jsonl";

/// A change, or the attempt of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditEntry {
    /// Number of the entry; it grows by one.
    pub(crate) id: u64,
    at: String,
    /// Name of the token; `local` on the unix socket without one.
    #[serde(rename = "who")]
    actor: String,
    role: String,
    /// Kind of the change, for example `ue.deregister`.
    action: String,
    /// For example a SUPI, or the number of a host.
    object: String,
    /// Outcome, `ok` or `failed`.
    result: String,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl AuditEntry {
    /// Creates an entry; its number comes with [`AuditLog::write`].
    pub(crate) fn new(identity: &Identity, action: &str, object: &str, failure: Option<String>) -> Self {
        AuditEntry {
            id: 0,
            at: rfc3339(now()),
            actor: identity.name.clone(),
            role: identity.role.name().to_owned(),
            action: action.to_owned(),
            object: cut(object),
            result: if failure.is_none() { "ok" } else { "failed" }.to_owned(),
            detail: failure.as_deref().map(cut),
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

/// The files of the log.
pub(crate) struct AuditLog {
    directory: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    /// Number of the next entry.
    next: u64,
    file: Option<File>,
}

impl AuditLog {
    /// Opens the log of a directory, which is created if it is missing.
    pub(crate) fn open(directory: Option<&Path>) -> Self {
        let log =
            AuditLog { directory: directory.map(Path::to_owned), state: Mutex::new(State { next: 1, file: None }) };
        let last = log.read(None, 1).first().map_or(0, |entry| entry.id);
        log.state.lock().unwrap_or_else(PoisonError::into_inner).next = last + 1;
        log
    }

    /// Appends an entry. A failure is logged: the change has happened.
    pub(crate) fn write(&self, mut entry: AuditEntry) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        entry.id = state.next;
        state.next += 1;
        let (actor, action, result) = (&entry.actor, &entry.action, &entry.result);
        tracing::info!(actor, action, result, "change by the API");
        let Some(directory) = &self.directory else { return };
        if let Err(error) = append(directory, &mut state.file, &entry) {
            tracing::error!(%error, "the audit log is not writable; check the state directory");
            state.file = None;
        }
    }

    /// Returns entries with numbers below `before`, the newest first.
    pub(crate) fn read(&self, before: Option<u64>, limit: usize) -> Vec<AuditEntry> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let mut found = Vec::new();
        for number in 0..=OLDER {
            let Ok(file) = File::open(path(directory, number)) else { continue };
            let mut last = VecDeque::new();
            // Lines that are damaged by a crash are skipped.
            for line in BufReader::new(file).lines().map_while(Result::ok) {
                let Ok(entry) = serde_json::from_str::<AuditEntry>(&line) else { continue };
                if before.is_none_or(|before| entry.id < before) {
                    last.push_front(entry);
                    last.truncate(limit - found.len());
                }
            }
            found.extend(last);
            if found.len() >= limit {
                break;
            }
        }
        found
    }
}

fn path(directory: &Path, number: usize) -> PathBuf {
    if number == 0 { directory.join(NAME) } else { directory.join(format!("{NAME}.{number}")) }
}

fn append(directory: &Path, file: &mut Option<File>, entry: &AuditEntry) -> io::Result<()> {
    if !directory.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let is_full = file.as_ref().map(File::metadata).transpose()?.is_some_and(|found| found.len() >= FILE_BYTES);
    if is_full {
        for number in (0..OLDER).rev() {
            match fs::rename(path(directory, number), path(directory, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        *file = None;
    }
    let open = || File::options().append(true).create(true).mode(0o600).open(path(directory, 0));
    let file = match file {
        Some(file) => file,
        None => file.insert(open()?),
    };
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    file.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::Role;

    fn entry(n: u64) -> AuditEntry {
        let identity = Identity { name: "ops".into(), role: Role::Operate };
        AuditEntry::new(&identity, "host.drain", &n.to_string(), n.is_multiple_of(2).then(|| "no such host".into()))
    }

    #[test]
    fn entries_survive_rotation_and_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let log = AuditLog::open(Some(&path));
        for n in 1..=60 {
            log.write(entry(n));
        }
        assert!(path.join("audit.jsonl.1").exists(), "a file is full");
        let log = AuditLog::open(Some(&path));
        log.write(entry(61));
        let newest = log.read(None, 30);
        assert_eq!(newest.iter().map(|entry| entry.id).collect::<Vec<_>>(), (32..=61).rev().collect::<Vec<_>>());
        let next = log.read(Some(32), 10);
        assert_eq!(next.iter().map(|entry| entry.id).collect::<Vec<_>>(), (22..32).rev().collect::<Vec<_>>());
        assert_eq!((next[0].object.as_str(), next[0].result.as_str()), ("31", "ok"));
        assert_eq!(next[1].detail.as_deref(), Some("no such host"));
    }

    #[test]
    fn size_of_all_files_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog::open(Some(directory.path()));
        for n in 0..400 {
            log.write(entry(n));
        }
        let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), OLDER + 1);
        let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes < (OLDER as u64 + 1) * (FILE_BYTES + 1024), "{bytes}");
    }

    #[test]
    fn text_of_an_entry_is_cut() {
        let identity = Identity { name: "x".into(), role: Role::Admin };
        let entry = AuditEntry::new(&identity, "a", &"ü".repeat(5000), Some("x".repeat(5000)));
        assert_eq!((entry.object.chars().count(), entry.detail.unwrap().len()), (TEXT, TEXT));
    }
}
