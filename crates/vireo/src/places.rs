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
fn of_service(variable: &str) -> Option<PathBuf> {
    let named = env::var_os(variable)?;
    env::split_paths(&named).next().filter(|path| path.is_absolute())
}

/// Returns the subdirectory of a directory that the user's session names.
fn of_user(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()).map(|path| path.join(OWN))
}

fn state_of_user() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    of_user("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state").join(OWN)))
}

/// Returns the directory of the process's sockets, or `None` if the user has none.
pub(crate) fn runtime() -> Option<PathBuf> {
    let usual = || if is_root() { Some(RUNTIME.into()) } else { of_user("XDG_RUNTIME_DIR") };
    of_service("RUNTIME_DIRECTORY").or_else(usual)
}

/// Returns the path of the API token file.
pub(crate) fn token() -> PathBuf {
    let usual = || if is_root() { None } else { state_of_user() };
    of_service("STATE_DIRECTORY").or_else(usual).unwrap_or_else(|| STATE.into()).join(TOKEN)
}

/// Returns directories that may hold a running process's sockets, this user's first.
pub(crate) fn runtimes() -> impl Iterator<Item = PathBuf> {
    of_user("XDG_RUNTIME_DIR").into_iter().chain([RUNTIME.into()])
}

/// Returns files that may hold a running process's token, this user's first.
pub(crate) fn tokens() -> impl Iterator<Item = PathBuf> {
    state_of_user().into_iter().chain([Path::new(STATE).to_owned()]).map(|directory| directory.join(TOKEN))
}
