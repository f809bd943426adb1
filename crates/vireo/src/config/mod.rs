//! Configuration: `vireo.toml`, checked and converted into plain structures.
//!
//! [`file`] defines the layout of the file, [`check`] the permitted values.
//! `examples/reference.toml` describes every key with its default. An environment variable
//! `VIREO_SECTION__KEY` overrides a key: `VIREO_CORE__TACS=[1,2]`, `VIREO_LOG__REVEAL_SUPI=true`.

mod access;
mod check;
mod cluster;
mod command;
mod file;
mod half_open;
mod home_network;
mod keep;
mod keys;
mod log;
mod n2;
mod n4;
mod runtime;
mod slices;
mod state;
mod subscribers;
mod surfaces;
mod unsupported;
mod values;
mod written;

pub(crate) use command::{Args, run, shown};
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Format, Toml};
use file::File;
pub(crate) use keep::Keep;
pub(crate) use log::LogConfig;
use std::fmt;
use std::path::{Path, PathBuf};
use vireo_core::config::CoreConfig;
use vireo_node::cluster::ClusterConfig;
use vireo_ops::config::{ApiConfig, N2Config, N4Config, OverloadConfig, PoolsConfig, SliceRuntime, StateConfig};
use vireo_ops::sbi::SbiConfig;
use vireo_sealing::KeySource;
use vireo_subscribers::UdmConfig;
use vireo_upf::UpfConfig;
pub(crate) use written::Written;

/// Default configuration file.
pub(crate) const DEFAULT_FILE: &str = "vireo.toml";

/// Checked configuration of a running core.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) core: CoreConfig,
    pub(crate) n2: N2Config,
    pub(crate) n4: N4Config,
    pub(crate) api: ApiConfig,
    /// In the order of `core.slices`.
    pub(crate) slices: Vec<SliceRuntime>,
    pub(crate) pools: PoolsConfig,
    pub(crate) state: StateConfig,
    /// Key that seals state outside the region; `None` means unsealed.
    pub(crate) state_key: Option<KeySource>,
    /// Storage of contexts for the next start of the core.
    pub(crate) keep: Keep,
    pub(crate) overload: OverloadConfig,
    /// Configuration of SBA mode.
    pub(crate) sbi: SbiConfig,
    /// Configuration of balancers and hosts.
    pub(crate) cluster: ClusterConfig,
    /// Embedded UPF, if enabled.
    pub(crate) upf: Option<UpfConfig>,
    pub(crate) subscribers: SubscribersConfig,
    pub(crate) log: LogConfig,
    /// Values of the file, for later reloads.
    pub(crate) written: Written,
}

/// Subscriber database and subscriber service.
#[derive(Debug)]
pub(crate) struct SubscribersConfig {
    /// For `vireo_subscribers::Store::open`; relative to the working directory.
    pub(crate) database: String,
    /// File with the key of the database; `None` means the file beside the database.
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) udm: UdmConfig,
}

/// All problems of a configuration, one per line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    source: String,
    problems: Vec<String>,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [one] => write!(f, "{}: {one}", self.source),
            many => write!(f, "{} is wrong in {} places:\n  {}", self.source, many.len(), many.join("\n  ")),
        }
    }
}

impl Config {
    /// Loads the configuration of a file under the environment. Without a path, loads
    /// [`DEFAULT_FILE`] if it exists.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let file = read(path)?;
        check::config(&file).map_err(|problems| ConfigError { source: name(path), problems })
    }
}

/// Reads the unchecked file, with defaults.
fn read(path: Option<&Path>) -> Result<File, ConfigError> {
    let named = path.map(Path::to_path_buf);
    let path_or_default = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    let fail = |problem: String| ConfigError { source: name(path), problems: vec![problem] };
    let text = match std::fs::read_to_string(&path_or_default) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && named.is_none() => String::new(),
        Err(e) => return Err(fail(format!("the file cannot be read: {e}"))),
    };
    parse(&text, environment()).map_err(|problems| ConfigError { source: name(path), problems })
}

fn name(path: Option<&Path>) -> String {
    path.map_or_else(|| DEFAULT_FILE.to_owned(), |p| p.display().to_string())
}

/// Returns the environment variables with a double underscore. No other use of the prefix has one.
fn environment() -> Env {
    Env::prefixed("VIREO_")
        .filter(|key| key.as_str().contains("__"))
        .map(|key| key.as_str().to_ascii_lowercase().replace("__", ".").replace('_', "-").into())
}

/// Parses a text under an environment.
fn parse(text: &str, environment: Env) -> Result<File, Vec<String>> {
    let figment = Figment::new().merge(Toml::string(text)).merge(environment);
    let value = figment.extract().map_err(|e| e.into_iter().map(|e| said(&e)).collect::<Vec<_>>())?;
    let not_yet = unsupported::refused(&value);
    if !not_yet.is_empty() {
        return Err(not_yet);
    }
    figment.extract().map_err(|e| e.into_iter().map(|e| said(&e)).collect())
}

/// Returns an error of the parser as text: first the key, then the permitted values.
fn said(error: &figment::Error) -> String {
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

#[cfg(test)]
mod tests;
