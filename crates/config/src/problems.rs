//! Problems of a configuration file, and checks that several sections share.

use crate::values::LocalAddress;
use std::net::IpAddr;

/// Problems of a file, each with its key.
#[derive(Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    /// Returns `value`, or all problems if there are any.
    pub(super) fn none_or<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }

    /// Adds a problem of a key.
    pub(super) fn add(&mut self, key: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.0.push(format!("{key}: {what}"));
    }

    /// Adds a problem of a key unless `good`.
    pub(super) fn check(&mut self, good: bool, key: &str, what: impl std::fmt::Display) {
        if !good {
            self.add(key, what);
        }
    }
}

/// Returns true if no element occurs twice.
pub(super) fn unique<T: PartialEq>(all: &[T]) -> bool {
    all.iter().enumerate().all(|(n, a)| !all[..n].contains(a))
}

/// Returns true if the text is a domain name.
pub(super) fn is_domain(name: &str) -> bool {
    // The last label of a domain name is never a number; such text is a mistyped address.
    let last = name.rsplit('.').next().unwrap_or_default();
    let known = name.bytes().all(|octet| octet.is_ascii_alphanumeric() || b".-".contains(&octet));
    known && name.len() <= 253 && !last.bytes().all(|octet| octet.is_ascii_digit())
}

/// Resolves addresses of this machine.
pub(super) fn addresses(key: &str, addresses: &[LocalAddress], problems: &mut Problems) -> Vec<IpAddr> {
    problems.check((1..=8).contains(&addresses.len()), key, "1 to 8 addresses of this machine are allowed");
    let resolve = |a: &LocalAddress| a.resolve().map_err(|what| problems.add(key, what)).ok();
    addresses.iter().filter_map(resolve).collect()
}
