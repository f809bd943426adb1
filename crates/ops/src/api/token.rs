//! Bearer token of the API: a secret in a file that only its owner can read.
//!
//! The token is created once and never changed. To replace it, remove the file and restart the
//! processes that use it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Random bytes of a generated token. The file has them as hexadecimal digits.
const OCTETS: usize = 32;
/// Allowed length of a token that an operator writes, in characters.
const CHARACTERS: std::ops::RangeInclusive<usize> = 16..=512;
/// Permission bits that a token file must not have: group write, group execute, and all bits of
/// others.
pub(super) const FORBIDDEN: u32 = 0o137;

/// Reasons why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or created.
    #[error("api.token-file: {} is not readable ({error}); set api.token-file to a file that this user may write", path.display())]
    Io { path: PathBuf, error: io::Error },
    /// Other users may read the file, or another user owns it.
    #[error("api.token-file: {} has mode {mode:04o} and owner {owner}; only this user or root may own and read it: chmod 600", path.display())]
    Open {
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
        /// User ID of the file's owner.
        owner: u32,
    },
    /// The content is not a valid token.
    #[error("api.token-file: {} holds no token; one line of 16 to 512 visible characters is allowed, or remove the file", path.display())]
    Content { path: PathBuf },
}

/// A bearer token. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(not shown)")
    }
}

impl Token {
    /// Parses a token from a line of text. Returns `None` if the text is not a valid token.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let visible = text.bytes().all(|octet| octet.is_ascii_graphic());
        (visible && CHARACTERS.contains(&text.len())).then(|| Token(text.to_owned()))
    }

    /// Reads the token from a file without a check of its permissions. For clients.
    ///
    /// # Errors
    ///
    /// Returns [`TokenError::Io`] or [`TokenError::Content`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |error| TokenError::Io { path: path.to_owned(), error };
        content(path, File::open(path).map_err(failed)?)
    }

    /// Reads the token from a file, or creates the file with a new token and mode 0600. For
    /// servers.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is accessible to others, cannot be read or created, or has no
    /// valid token.
    pub(super) fn read_or_make(path: &Path) -> Result<Self, TokenError> {
        let failed = |error| TokenError::Io { path: path.to_owned(), error };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(failed)?;
                File::open(path).map_err(failed)?
            }
            opened => opened.map_err(failed)?,
        };
        let found = file.metadata().map_err(failed)?;
        let (mode, owner) = (found.mode() & 0o7777, found.uid());
        let own = owner == 0 || owner == rustix::process::geteuid().as_raw();
        if mode & FORBIDDEN != 0 || !own {
            return Err(TokenError::Open { path: path.to_owned(), mode, owner });
        }
        content(path, file)
    }

    /// Returns the value of an `Authorization` header with this token.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Returns true if the value of an `Authorization` header contains this token. The time depends
    /// only on the lengths.
    pub(super) fn is_shown_by(&self, header: &[u8]) -> bool {
        bearer(header).is_some_and(|shown| shown.trim_ascii().ct_eq(self.0.as_bytes()).into())
    }
}

/// Returns the token in the value of an `Authorization` header.
pub(super) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, shown) = header.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME.as_bytes()).then_some(shown)
}

/// Scheme of the `Authorization` header (RFC 6750 2.1), with the following space.
const SCHEME: &str = "Bearer ";

fn content(path: &Path, file: File) -> Result<Token, TokenError> {
    let mut text = String::new();
    let most = *CHARACTERS.end() as u64 + 2;
    let read = file.take(most).read_to_string(&mut text);
    match read {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => {
            Err(TokenError::Io { path: path.to_owned(), error })
        }
        _ => Token::parse(&text).ok_or_else(|| TokenError::Content { path: path.to_owned() }),
    }
}

/// Creates the token file atomically, unless another process has created it first.
fn make(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut octets = [0; OCTETS];
    getrandom::fill(&mut octets).map_err(io::Error::other)?;
    let own = directory.join(format!(".api-token-{}-{}", std::process::id(), hex::encode(&octets[..4])));
    getrandom::fill(&mut octets).map_err(io::Error::other)?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&own)?;
    let written = writeln!(file, "{}", hex::encode(octets)).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| fs::hard_link(&own, path));
    let removed = fs::remove_file(&own);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn token_is_made_once_with_mode_0600() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/api.token");
        let made: Vec<Token> = std::thread::scope(|scope| {
            let make = || scope.spawn(|| Token::read_or_make(&path).unwrap());
            let threads: Vec<_> = (0..8).map(|_| make()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|token| *token == made[0]), "racing processes have one token");
        assert_eq!(made[0].0.len(), 2 * OCTETS);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
        assert_eq!(Token::read(&path).unwrap(), made[0]);
    }

    #[test]
    fn token_file_open_to_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.token");
        let token = Token::read_or_make(&path).unwrap();
        for mode in [0o604, 0o644, 0o620, 0o666, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = Token::read_or_make(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("chmod 600"), "{error}");
        }
        // A mounted secret may be readable by the group.
        for mode in [0o600, 0o400, 0o640, 0o440] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(Token::read_or_make(&path).unwrap(), token);
        }
    }

    #[test]
    fn other_content_is_no_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.token");
        for text in ["", "short\n", "two words in it, too many\n", &"x".repeat(513), "\u{fe}".repeat(9).as_str()] {
            let _ = fs::remove_file(&path);
            File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            assert!(matches!(Token::read_or_make(&path), Err(TokenError::Content { .. })), "{text:?}");
        }
        assert!(matches!(Token::read_or_make(directory.path()), Err(TokenError::Open { .. } | TokenError::Io { .. })));
        assert_eq!(format!("{:?}", Token::parse(&"x".repeat(16))), "Some(Token(not shown))");
    }

    #[test]
    fn only_the_whole_token_is_shown() {
        let token = Token::parse("0123456789abcdef").unwrap();
        for good in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef "] {
            assert!(token.is_shown_by(good.as_bytes()), "{good}");
        }
        for bad in ["", "Bearer", "Bearer ", "0123456789abcdef", "Bearer 0123456789abcde", "Basic 0123456789abcdef"] {
            assert!(!token.is_shown_by(bad.as_bytes()), "{bad}");
        }
    }
}
