//! `[alarms]`: where alarms are sent.

use crate::problems::Problems;
use crate::receiver::{Receiver, receiver};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Alarms {
    /// URL; empty = none.
    webhook: String,
    /// PEM file; empty = those of this machine.
    authorities: String,
}

/// Returns the receiver of alarms, if there is one.
pub(super) fn webhook(alarms: &Alarms, problems: &mut Problems) -> Option<Receiver> {
    receiver(("alarms.webhook", &alarms.webhook), &alarms.authorities, problems)
}
