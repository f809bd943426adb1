//! Where a process has its files by itself, and where the command line looks for those of a running one.

use std::env;
use std::path::{Path, PathBuf};

/// Of root's processes, and of systemd's services.
const RUNTIME: &str = "/run/vireo";
const STATE: &str = "/var/lib/vireo";
/// The API's token, in the directory of state.
const TOKEN: &str = "api.token";
/// In the directories of a user.
const OWN: &str = "vireo";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory that systemd names; the first of several.
fn of_service(variable: &str) -> Option<PathBuf> {
    let named = env::var_os(variable)?;
    env::split_paths(&named).next().filter(|path| path.is_absolute())
}

/// A directory in one that the user's session names.
fn of_user(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()).map(|path| path.join(OWN))
}

fn state_of_user() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    of_user("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state").join(OWN)))
}

/// The directory of a process's sockets; `None` where this user has none.
pub(crate) fn runtime() -> Option<PathBuf> {
    let usual = || if is_root() { Some(RUNTIME.into()) } else { of_user("XDG_RUNTIME_DIR") };
    of_service("RUNTIME_DIRECTORY").or_else(usual)
}

/// The file of the API's token.
pub(crate) fn token() -> PathBuf {
    let usual = || if is_root() { None } else { state_of_user() };
    of_service("STATE_DIRECTORY").or_else(usual).unwrap_or_else(|| STATE.into()).join(TOKEN)
}

/// Directories in which a running process may have its sockets, this user's own first.
pub(crate) fn runtimes() -> impl Iterator<Item = PathBuf> {
    of_user("XDG_RUNTIME_DIR").into_iter().chain([RUNTIME.into()])
}

/// Files that may have a running process's token, this user's own first.
pub(crate) fn tokens() -> impl Iterator<Item = PathBuf> {
    state_of_user().into_iter().chain([Path::new(STATE).to_owned()]).map(|directory| directory.join(TOKEN))
}
