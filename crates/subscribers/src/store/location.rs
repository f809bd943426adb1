//! Location of the database: its file name, and the file.

use super::StoreError;
use std::path::Path;

/// Returns the file name of a location.
pub(super) fn file_of(location: &str) -> Result<String, StoreError> {
    let path = location.strip_prefix("sqlite:").unwrap_or(location);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || location.starts_with("postgres") || path.contains("://") {
        return Err(StoreError::Location(location.to_owned()));
    }
    Ok(path.to_owned())
}

/// Creates the file if permitted, accessible only to its owner. SQLite gives its journals the same
/// permissions.
pub(super) fn prepare_file(path: &str, create: bool) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    if Path::new(path).exists() {
        return Ok(());
    }
    if !create {
        return Err(StoreError::Missing { path: path.to_owned() });
    }
    let made = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map(drop).map_err(|e| StoreError::Open { path: path.to_owned(), cause: e.to_string() })
}
