//! `[alarms]`: where alarms are sent.

use crate::problems::Problems;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Alarms {
    /// URL; empty = none.
    webhook: String,
}

/// Returns the receiver of alarms, if there is one.
pub(super) fn webhook(alarms: &Alarms, problems: &mut Problems) -> Option<String> {
    let url = &alarms.webhook;
    let allowed = "an http:// URL without user and password is allowed, as in \"http://127.0.0.1:9099/alarms\"";
    let host = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
    let plain = url.bytes().all(|octet| octet.is_ascii_graphic());
    let good = url.is_empty()
        || plain && host.is_some_and(|host| !host.is_empty() && !host.starts_with(':') && !host.contains('@'));
    problems.check(good, "alarms.webhook", allowed);
    (!url.is_empty()).then(|| url.clone())
}
