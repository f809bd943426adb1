//! Default paths of a process's files, and search paths of the command line.

use std::env;
use std::path::{Path, PathBuf};

/// Runtime directory of root's processes and systemd services.
const RUNTIME: &str = "/run/vireo";
const STATE: &str = "/var/lib/vireo";
/// Name of the API token file in the state directory.
const TOKEN: &str = "api.token";
/// Subdirectory of a user's directories.
const OWN: &str = "vireo";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the directory in a systemd variable, the first one of several.
fn service_directory(variable: &str) -> Option<PathBuf> {
    let named = env::var_os(variable)?;
    env::split_paths(&named).next().filter(|path| path.is_absolute())
}

/// Returns the subdirectory of a directory that the user's session names.
fn user_directory(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()).map(|path| path.join(OWN))
}

fn user_state_directory() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    user_directory("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state").join(OWN)))
}

/// Returns the directory of the process's sockets, or `None` if the user has none.
pub fn runtime() -> Option<PathBuf> {
    let usual = || if is_root() { Some(RUNTIME.into()) } else { user_directory("XDG_RUNTIME_DIR") };
    service_directory("RUNTIME_DIRECTORY").or_else(usual)
}

/// Returns the path of the API token file.
pub fn token() -> PathBuf {
    let usual = || if is_root() { None } else { user_state_directory() };
    service_directory("STATE_DIRECTORY").or_else(usual).unwrap_or_else(|| STATE.into()).join(TOKEN)
}

/// Returns directories that may hold a running process's sockets, this user's first.
pub fn runtimes() -> impl Iterator<Item = PathBuf> {
    user_directory("XDG_RUNTIME_DIR").into_iter().chain([RUNTIME.into()])
}

/// Returns files that may hold a running process's token, this user's first.
pub fn tokens() -> impl Iterator<Item = PathBuf> {
    user_state_directory().into_iter().chain([Path::new(STATE).to_owned()]).map(|directory| directory.join(TOKEN))
}
