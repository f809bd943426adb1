//! Location of the database: a file of SQLite, or a URL of PostgreSQL.

use super::StoreError;
use std::path::Path;

/// Schemes of a URL of PostgreSQL.
const POSTGRES: [&str; 2] = ["postgres://", "postgresql://"];

/// Where a database is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// A database in memory, which ends with its connection.
    Memory,
    /// A file of SQLite.
    File(String),
    /// A URL of PostgreSQL. It may contain a password: use [`shown`] for texts.
    Postgres(String),
}

/// Parses a location.
pub(super) fn parse(location: &str) -> Result<Location, StoreError> {
    if POSTGRES.iter().any(|scheme| location.starts_with(scheme)) {
        return Ok(Location::Postgres(location.to_owned()));
    }
    let path = location.strip_prefix("sqlite:").unwrap_or(location);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || location.starts_with("postgres") || path.contains("://") {
        return Err(StoreError::Location(shown(location)));
    }
    Ok(if path == ":memory:" { Location::Memory } else { Location::File(path.to_owned()) })
}

/// Returns an error if a text is no location of a subscriber database.
pub fn check_location(location: &str) -> Result<(), StoreError> {
    parse(location).map(drop)
}

/// Returns true if several machines can share the database at this location.
pub fn is_shared_location(location: &str) -> bool {
    matches!(parse(location), Ok(Location::Postgres(_)))
}

/// Returns a location without passwords, for messages and logs.
pub fn shown_location(location: &str) -> String {
    shown(location)
}

fn shown(location: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else { return location.to_owned() };
    let (rest, options) = rest.split_once('?').map_or((rest, ""), |(rest, options)| (rest, options));
    let open = |option: &&str| !option.split('=').next().is_some_and(|name| name.contains("password"));
    let options = options.split('&').filter(open).collect::<Vec<_>>().join("&");
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        None => authority.to_owned(),
    };
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{authority}{path}{mark}{options}")
}

impl Location {
    /// Returns the location for messages, without password.
    pub(super) fn shown(&self) -> String {
        match self {
            Location::Memory => ":memory:".to_owned(),
            Location::File(path) => path.clone(),
            Location::Postgres(url) => shown(url),
        }
    }

    /// Returns the URL for the driver.
    pub(super) fn url(&self) -> String {
        match self {
            Location::Memory => "sqlite::memory:".to_owned(),
            Location::File(path) => format!("sqlite://{}", percent_encode(path)),
            Location::Postgres(url) => url.clone(),
        }
    }
}

/// Percent-encodes all octets of a path that have a meaning in a URL.
fn percent_encode(path: &str) -> String {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"/._-".contains(&octet);
    path.bytes().fold(String::new(), |text, octet| match plain(octet) {
        true => text + &char::from(octet).to_string(),
        false => text + &format!("%{octet:02X}"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_location_has_no_password() {
        for (location, text) in [
            (
                "postgres://vireo:se@cret@db:5433/core?password=x&sslmode=require",
                "postgres://vireo@db:5433/core?sslmode=require",
            ),
            ("postgres:///core?host=/run/postgresql&user=u", "postgres:///core?host=/run/postgresql&user=u"),
            ("postgresql://db", "postgresql://db"),
            ("/var/lib/vireo/a@b.db", "/var/lib/vireo/a@b.db"),
        ] {
            assert_eq!(shown_location(location), text);
        }
        let refused = check_location("mysql://u:secret@h/db").expect_err("another database").to_string();
        assert!(refused.contains("\"mysql://u@h/db\"") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn octets_of_path_survive_url() {
        let location = Location::File("/tmp/a b?c#d%e/ü.db".into());
        assert_eq!(location.url(), "sqlite:///tmp/a%20b%3Fc%23d%25e/%C3%BC.db");
    }
}
