//! Named bearer tokens with roles, stored as hashes in a file.
//!
//! `vireo token` changes the file; a running process reads it again when it has changed. A token
//! has 256 random bits, so a plain SHA-256 is enough: there is nothing to guess.

use super::token::{FORBIDDEN, TokenError};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// Random bytes of a token.
const OCTETS: usize = 32;
/// Maximum of named tokens.
const TOKENS: usize = 256;
/// Maximum size of the file in bytes.
const FILE_OCTETS: u64 = 128 << 10;
/// Allowed length of a token's name.
const NAME: std::ops::RangeInclusive<usize> = 1..=64;

/// Rights of the holder of a token. Each role has the rights of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything but keys; SUPIs are masked.
    Read,
    /// Sees SUPIs, and changes the state of UEs and hosts.
    Operate,
    /// Changes subscribers and the configuration.
    Admin,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

    /// Returns the name of the role.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

/// Sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the token, or of the way in.
    pub name: String,
    pub role: Role,
}

/// A named token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedToken {
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token in hexadecimal.
    sha256: String,
    /// Unix time in seconds.
    pub created_at: u64,
}

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Tokens {
    tokens: Vec<NamedToken>,
}

/// Reasons why the named tokens are not changed.
#[derive(Debug, thiserror::Error)]
pub enum NamedTokenError {
    /// The file cannot be read or written.
    #[error("api.tokens: {} is not usable ({error}); set api.tokens to a file that this user may write", path.display())]
    Io { path: PathBuf, error: io::Error },
    /// The permissions of the file are too wide.
    #[error(transparent)]
    Open(#[from] TokenError),
    /// The content of the file is not valid.
    #[error("api.tokens: {} holds no list of tokens; remove the file, and create the tokens again", path.display())]
    Content { path: PathBuf },
    /// The name is not allowed.
    #[error("token name {0:?}: 1 to 64 letters, digits, dots, dashes and underscores are allowed")]
    Name(String),
    /// The name is in use.
    #[error("token {0}: the name is in use; revoke that token first, or choose another name")]
    Exists(String),
    /// There is no token of this name.
    #[error("token {0}: there is no such token; `vireo token list` shows them")]
    Unknown(String),
    /// There are too many tokens.
    #[error("tokens: there are {TOKENS} already; revoke those that are not in use")]
    TooMany,
}

/// The file of the named tokens. It need not exist.
#[derive(Debug)]
pub struct NamedTokens {
    path: PathBuf,
    loaded: Mutex<Loaded>,
}

/// Content of the file when it was last read.
#[derive(Debug, Default)]
struct Loaded {
    /// Device, inode, size and time of the last change in nanoseconds; `None` = no file.
    version: Option<[u64; 4]>,
    tokens: Vec<NamedToken>,
}

impl NamedTokens {
    /// Uses a file, which need not exist.
    pub fn new(path: &Path) -> Self {
        NamedTokens { path: path.to_owned(), loaded: Mutex::default() }
    }

    /// Returns all tokens, without their secrets.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not readable or not valid.
    pub fn list(&self) -> Result<Vec<NamedToken>, NamedTokenError> {
        Ok(self.read()?.tokens)
    }

    /// Creates a token and returns it. It is stored as hash only.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is not allowed or in use, or the file cannot be written.
    pub fn create(&self, name: &str, role: Role) -> Result<String, NamedTokenError> {
        let plain = |octet: u8| octet.is_ascii_alphanumeric() || b".-_".contains(&octet);
        if !NAME.contains(&name.len()) || !name.bytes().all(plain) {
            return Err(NamedTokenError::Name(name.to_owned()));
        }
        let mut octets = [0; OCTETS];
        getrandom::fill(&mut octets).map_err(|error| self.failed(io::Error::other(error)))?;
        let token = hex::encode(octets);
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == name) {
                return Err(NamedTokenError::Exists(name.to_owned()));
            }
            if tokens.len() >= TOKENS {
                return Err(NamedTokenError::TooMany);
            }
            let created_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            tokens.push(NamedToken { name: name.to_owned(), role, sha256: hash(token.as_bytes()), created_at });
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes a token.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such token, or the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), NamedTokenError> {
        self.change(|tokens| {
            let position = tokens.iter().position(|token| token.name == name);
            tokens.remove(position.ok_or_else(|| NamedTokenError::Unknown(name.to_owned()))?);
            Ok(())
        })
    }

    /// Returns the holder of the token in the value of an `Authorization` header.
    pub(super) fn holder(&self, shown: &[u8]) -> Option<Identity> {
        let shown = shown.trim_ascii();
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.version();
        if loaded.version != version {
            let tokens = match version {
                None => Vec::new(),
                Some(_) => match self.read() {
                    Ok(read) => read.tokens,
                    Err(error) => {
                        // An unusable file grants nothing.
                        tracing::error!(%error, "named tokens of the API are not usable");
                        Vec::new()
                    }
                },
            };
            *loaded = Loaded { version, tokens };
        }
        let hash = hash(shown);
        let held = |token: &&NamedToken| bool::from(token.sha256.as_bytes().ct_eq(hash.as_bytes()));
        loaded.tokens.iter().find(held).map(|token| Identity { name: token.name.clone(), role: token.role })
    }

    fn version(&self) -> Option<[u64; 4]> {
        let found = fs::metadata(&self.path).ok()?;
        let changed = found.mtime() as u64 * 1_000_000_000 + found.mtime_nsec() as u64;
        Some([found.dev(), found.ino(), found.size(), changed])
    }

    fn failed(&self, error: io::Error) -> NamedTokenError {
        NamedTokenError::Io { path: self.path.clone(), error }
    }

    fn read(&self) -> Result<Tokens, NamedTokenError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tokens::default()),
            opened => opened.map_err(|error| self.failed(error))?,
        };
        let found = file.metadata().map_err(|error| self.failed(error))?;
        let (mode, owner) = (found.mode() & 0o7777, found.uid());
        let own = owner == 0 || owner == rustix::process::geteuid().as_raw();
        if mode & FORBIDDEN != 0 || !own {
            return Err(TokenError::Open { path: self.path.clone(), mode, owner }.into());
        }
        let mut text = String::new();
        file.take(FILE_OCTETS).read_to_string(&mut text).map_err(|error| self.failed(error))?;
        serde_json::from_str(&text).map_err(|_| NamedTokenError::Content { path: self.path.clone() })
    }

    /// Changes the file by a new one. A lock excludes other processes.
    fn change(
        &self,
        act: impl FnOnce(&mut Vec<NamedToken>) -> Result<(), NamedTokenError>,
    ) -> Result<(), NamedTokenError> {
        let failed = |error| self.failed(error);
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !directory.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        }
        let beside = |suffix: &str| {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(beside(".lock"));
        let lock = lock.map_err(failed)?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let mut tokens = self.read()?;
        act(&mut tokens.tokens)?;
        let next = beside(".new");
        let written = (|| {
            let _ = fs::remove_file(&next);
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&next)?;
            file.write_all(serde_json::to_string_pretty(&tokens)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&next, &self.path)
        })();
        written.map_err(failed)
    }
}

fn hash(token: &[u8]) -> String {
    hex::encode(digest(&SHA256, token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn token_is_known_until_it_is_revoked() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = NamedTokens::new(&directory.path().join("state/api.tokens"));
        assert_eq!(tokens.holder(b"x"), None, "there is no file");
        let secret = tokens.create("grafana", Role::Read).unwrap();
        let other = tokens.create("ops-1", Role::Operate).unwrap();
        assert_eq!(tokens.holder(secret.as_bytes()), Some(Identity { name: "grafana".into(), role: Role::Read }));
        assert_eq!(tokens.holder(other.as_bytes()).map(|holder| holder.role), Some(Role::Operate));
        assert_eq!(tokens.holder(&secret.as_bytes()[1..]), None);
        assert!(matches!(tokens.create("grafana", Role::Admin), Err(NamedTokenError::Exists(_))));
        assert!(matches!(tokens.create("a b", Role::Admin), Err(NamedTokenError::Name(_))));
        // Another process changes the file.
        NamedTokens::new(&tokens.path).revoke("grafana").unwrap();
        assert_eq!(tokens.holder(secret.as_bytes()), None);
        assert!(tokens.holder(other.as_bytes()).is_some());
        assert!(matches!(tokens.revoke("grafana"), Err(NamedTokenError::Unknown(_))));
        let text = fs::read_to_string(&tokens.path).unwrap();
        assert!(!text.contains(&other) && text.contains("ops-1"), "{text}");
        assert_eq!(fs::metadata(&tokens.path).unwrap().mode() & 0o777, 0o600);
        let [known] = &tokens.list().unwrap()[..] else { panic!() };
        assert_eq!((known.name.as_str(), known.role), ("ops-1", Role::Operate));
    }

    #[test]
    fn file_open_to_others_grants_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = NamedTokens::new(&directory.path().join("api.tokens"));
        let secret = tokens.create("one", Role::Admin).unwrap();
        fs::set_permissions(&tokens.path, fs::Permissions::from_mode(0o644)).unwrap();
        let again = NamedTokens::new(&tokens.path);
        assert_eq!(again.holder(secret.as_bytes()), None);
        assert!(matches!(again.list(), Err(NamedTokenError::Open(_))));
    }

    #[test]
    fn concurrent_creations_are_all_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.tokens");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let path = &path;
                scope.spawn(move || NamedTokens::new(path).create(&format!("t{n}"), Role::Read).unwrap());
            }
        });
        assert_eq!(NamedTokens::new(&path).list().unwrap().len(), 8);
    }
}
