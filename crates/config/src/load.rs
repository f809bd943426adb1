//! Loading of the configuration file under the environment.

use crate::config::{Config, ConfigError};
use crate::file::File;
use crate::{Failure, check, unsupported};
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Format, Toml};
use std::fmt;
use std::path::{Path, PathBuf};

/// Default configuration file.
const DEFAULT_FILE: &str = "vireo.toml";

/// Text of a configuration file with its name. A process passes it to its children, which thereby
/// have the same configuration when the file has changed.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    pub name: String,
    /// Contents of the file, which may include keys.
    pub text: String,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Source {
    /// Reads a file. Without a path, reads [`DEFAULT_FILE`] if it exists.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub fn read(path: Option<&Path>) -> Result<Self, ConfigError> {
        let named = path.map(Path::to_path_buf);
        let path_or_default = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let fail = |problem: String| ConfigError { source: name(path), problems: vec![problem] };
        let text = match std::fs::read_to_string(&path_or_default) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && named.is_none() => String::new(),
            Err(e) => return Err(fail(format!("the file cannot be read: {e}"))),
        };
        Ok(Source { name: name(path), text })
    }

    /// Parses the unchecked file under the environment, with defaults.
    fn parse(&self) -> Result<File, ConfigError> {
        parse(&self.text, environment()).map_err(|problems| ConfigError { source: self.name.clone(), problems })
    }
}

impl Config {
    /// Loads the configuration of a file under the environment. Without a path, loads
    /// [`DEFAULT_FILE`] if it exists.
    ///
    /// # Errors
    ///
    /// Returns all problems of the file.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Config::from_source(&Source::read(path)?)
    }

    /// Checks the configuration of a text under the environment.
    ///
    /// # Errors
    ///
    /// Returns all problems of the text.
    pub fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let file = source.parse()?;
        check::config(&file).map_err(|problems| ConfigError { source: source.name.clone(), problems })
    }
}

fn name(path: Option<&Path>) -> String {
    path.map_or_else(|| DEFAULT_FILE.to_owned(), |p| p.display().to_string())
}

/// Returns the configuration of a file with all defaults as TOML, without secrets.
///
/// # Errors
///
/// Returns an error if the file is not readable or not valid.
pub fn shown(path: Option<&Path>) -> Result<String, Failure> {
    let mut file = Source::read(path)?.parse()?;
    (file.slice, file.dnn) = (file.slices(), file.dnns());
    for database in [Some(&mut file.subscribers.database), file.state.database.as_mut()].into_iter().flatten() {
        *database = vireo_subscribers::shown_location(database);
    }
    Ok(toml::to_string(&file)?)
}

/// Returns the environment variables with a double underscore. No other use of the prefix has one.
pub(crate) fn environment() -> Env {
    Env::prefixed("VIREO_")
        .filter(|key| key.as_str().contains("__"))
        .map(|key| key.as_str().to_ascii_lowercase().replace("__", ".").replace('_', "-").into())
}

/// Parses a text under an environment.
pub(crate) fn parse(text: &str, environment: Env) -> Result<File, Vec<String>> {
    let figment = Figment::new().merge(Toml::string(text)).merge(environment);
    let value = figment.extract().map_err(|e| e.into_iter().map(|e| describe(&e)).collect::<Vec<_>>())?;
    let not_yet = unsupported::unsupported_values(&value);
    if !not_yet.is_empty() {
        return Err(not_yet);
    }
    figment.extract().map_err(|e| e.into_iter().map(|e| describe(&e)).collect())
}

/// Returns an error of the parser as text: first the key, then the permitted values.
fn describe(error: &figment::Error) -> String {
    let place = |key: Option<&str>| {
        let path = error.path.iter().map(String::as_str).chain(key).collect::<Vec<_>>().join(".");
        if path.is_empty() { "the file".to_owned() } else { path }
    };
    match &error.kind {
        Kind::UnknownField(key, allowed) => {
            let known = allowed.join(", ");
            let mut path = error.path.clone();
            // Depending on the level, the path already contains the unknown key.
            if path.last().is_none_or(|last| last != key) {
                path.push(key.clone());
            }
            format!("{}: there is no such key; allowed here: {known}", path.join("."))
        }
        Kind::MissingField(key) => format!("{}: the key is missing", place(Some(key))),
        Kind::InvalidType(found, expected) => format!("{}: found {found}, expected {expected}", place(None)),
        Kind::UnknownVariant(found, allowed) => {
            format!("{}: {found:?} is not allowed; allowed: {}", place(None), allowed.join(", "))
        }
        Kind::InvalidValue(found, expected) => format!("{}: found {found}, expected {expected}", place(None)),
        Kind::Message(text) => format!("{}: {}", place(None), in_one_line(text)),
        other => format!("{}: {other}", place(None)),
    }
}

/// Returns position and problem, without the excerpt of the file that the TOML parser inserts
/// between them.
fn in_one_line(text: &str) -> String {
    let mut lines = text.lines();
    match (lines.next(), lines.next_back()) {
        (Some(first), Some(last)) => format!("{first}: {last}"),
        _ => text.to_owned(),
    }
}
