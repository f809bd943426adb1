//! Sources of sealing keys: a file readable only by its owner, or the environment.

use crate::SealingKey;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Maximum bytes of a key file: 64 digits and some white space.
const MAX_KEY_FILE_BYTES: u64 = 256;

/// Sources of a sealing key: the environment first, then the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySource {
    /// Environment variable with 64 hexadecimal digits.
    pub variable: &'static str,
    /// Path of a file with 64 hexadecimal digits.
    pub file: PathBuf,
}

/// Reason that there is no sealing key. Each message includes the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The required key file does not exist.
    #[error("the key file {} is missing; put it back, or set {variable} to its 64 hexadecimal digits", path.display())]
    Missing {
        path: PathBuf,
        /// Environment variable that can replace the file.
        variable: &'static str,
    },
    /// Other users can read the file.
    #[error("the key file {} can be read by other users (mode {mode:03o}); run chmod 600 on it", path.display())]
    Exposed {
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file or variable does not contain a key.
    #[error("{origin} does not hold a key of 64 hexadecimal digits; restore it from a copy")]
    Malformed {
        /// Path of the file, or name of the variable.
        origin: String,
    },
    /// The file exists already.
    #[error("the key file {} is there already; remove it if nothing is sealed with it", path.display())]
    Exists {
        /// Path of the existing file.
        path: PathBuf,
    },
    /// The operating system returned an error.
    #[error("the key file {}: {source}; check the path and its permissions", path.display())]
    Io {
        path: PathBuf,
        /// Error of the failed file operation.
        source: io::Error,
    },
}

impl KeySource {
    /// Loads the key, which must exist.
    ///
    /// # Errors
    ///
    /// Returns a [`KeyFileError`] if there is no valid key.
    pub fn load(&self) -> Result<SealingKey, KeyFileError> {
        match self.find()? {
            Some(key) => Ok(key),
            None => Err(KeyFileError::Missing { path: self.file.clone(), variable: self.variable }),
        }
    }

    /// Loads the key, or creates a file with a random key if there is none.
    ///
    /// # Errors
    ///
    /// Returns a [`KeyFileError`] if the key is invalid or the file cannot be created.
    pub fn load_or_create(&self) -> Result<SealingKey, KeyFileError> {
        if let Some(key) = self.find()? {
            return Ok(key);
        }
        let key = SealingKey::generate();
        match create_key_file(&self.file, &key) {
            Ok(()) => Ok(key),
            // Another process has created it meanwhile.
            Err(KeyFileError::Exists { .. }) => self.load(),
            Err(error) => Err(error),
        }
    }

    /// Loads the key if there is one.
    ///
    /// # Errors
    ///
    /// Returns a [`KeyFileError`] other than [`KeyFileError::Missing`] if the key is invalid.
    pub fn find(&self) -> Result<Option<SealingKey>, KeyFileError> {
        match std::env::var(self.variable) {
            Ok(text) => {
                let text = Zeroizing::new(text);
                parse(&text).map(Some).ok_or_else(|| KeyFileError::Malformed { origin: self.variable.to_owned() })
            }
            Err(std::env::VarError::NotPresent) => read(&self.file),
            Err(_) => Err(KeyFileError::Malformed { origin: self.variable.to_owned() }),
        }
    }

    /// Returns true if the key comes from the environment, so that no file is created or replaced.
    pub fn is_variable(&self) -> bool {
        std::env::var_os(self.variable).is_some()
    }
}

fn parse(text: &str) -> Option<SealingKey> {
    let mut octets = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim(), &mut *octets).ok()?;
    Some(SealingKey::new(*octets))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    |source| KeyFileError::Io { path: path.to_owned(), source }
}

fn read(path: &Path) -> Result<Option<SealingKey>, KeyFileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(path)(error)),
    };
    let mode = file.metadata().map_err(io_error(path))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    let malformed = || KeyFileError::Malformed { origin: path.display().to_string() };
    file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text).map_err(|_| malformed())?;
    parse(&text).map(Some).ok_or_else(malformed)
}

/// Creates a key file of mode 0600.
///
/// The file is on disk when the function returns. So bytes sealed with the key afterwards cannot
/// outlive it.
///
/// # Errors
///
/// Returns [`KeyFileError::Exists`] if the file exists, or [`KeyFileError::Io`].
pub fn create_key_file(path: &Path, key: &SealingKey) -> Result<(), KeyFileError> {
    // A linked file is always complete. Linking does not replace an existing file.
    let draft = sibling(path, &format!("new-{}", std::process::id()));
    let written = write(&draft, key).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(KeyFileError::Exists { path: path.to_owned() })
        }
        written => written.and(removed).and_then(|()| sync_directory(path)).map_err(io_error(path)),
    }
}

/// Writes a key file of mode 0600, replacing an existing one atomically.
///
/// # Errors
///
/// Returns [`KeyFileError::Io`] if the file cannot be written.
pub fn write_key_file(path: &Path, key: &SealingKey) -> Result<(), KeyFileError> {
    let draft = sibling(path, &format!("new-{}", std::process::id()));
    let renamed = write(&draft, key).and_then(|()| fs::rename(&draft, path));
    renamed.and_then(|()| sync_directory(path)).map_err(io_error(path))
}

fn write(path: &Path, key: &SealingKey) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let text = Zeroizing::new(hex::encode(key.octets()));
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn source(directory: &tempfile::TempDir) -> KeySource {
        KeySource { variable: "VIREO_TEST_NO_SUCH_KEY", file: directory.path().join("x.key") }
    }

    #[test]
    fn key_file_is_made_once_for_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let source = source(&directory);
        assert!(matches!(source.load(), Err(KeyFileError::Missing { .. })));
        let key = source.load_or_create().unwrap();
        assert_eq!(fs::metadata(&source.file).unwrap().mode() & 0o777, 0o600);
        assert_eq!((source.load().unwrap(), source.load_or_create().unwrap()), (SealingKey::new(*key.octets()), key));
        assert!(matches!(create_key_file(&source.file, &SealingKey::generate()), Err(KeyFileError::Exists { .. })));
        let next = SealingKey::generate();
        write_key_file(&source.file, &next).unwrap();
        assert_eq!(source.load().unwrap(), next);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no drafts are left");
    }

    #[test]
    fn exposed_and_malformed_key_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let source = source(&directory);
        source.load_or_create().unwrap();
        fs::set_permissions(&source.file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(source.load(), Err(KeyFileError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&source.file, fs::Permissions::from_mode(0o600)).unwrap();
        for bad in ["", "ab", &"g".repeat(64), &"a".repeat(63), &"a".repeat(1000)] {
            fs::write(&source.file, bad).unwrap();
            assert!(matches!(source.load(), Err(KeyFileError::Malformed { .. })), "{bad:?}");
        }
        let missing = KeySource { file: directory.path().join("none/x.key"), ..source };
        assert!(matches!(missing.load_or_create(), Err(KeyFileError::Io { .. })));
    }
}
