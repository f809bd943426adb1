//! Servers to which a process posts: URL and authorities.

use crate::problems::Problems;
use std::path::PathBuf;
use vireo_ops::http_post::HttpUrl;

/// A server to which this process posts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) url: HttpUrl,
    /// File with the authorities of the server's certificate; `None` = those of this machine.
    pub(crate) authorities: Option<PathBuf>,
}

/// Returns the receiver of a URL and a file of authorities, unless the URL is empty.
pub(super) fn receiver((key, url): (&str, &str), authorities: &str, problems: &mut Problems) -> Option<Receiver> {
    let parsed = HttpUrl::parse(url);
    let allowed =
        "an http:// or https:// URL without user and password is allowed, as in \"http://127.0.0.1:4318/path\"";
    problems.check(url.is_empty() || parsed.is_some(), key, allowed);
    let authorities = (!authorities.is_empty()).then(|| authorities.into());
    parsed.map(|url| Receiver { url, authorities })
}
