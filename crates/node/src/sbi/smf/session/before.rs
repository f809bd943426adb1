//! SM contexts as the release before has stored them: a path switch was not waited for.

use super::{FORMAT, Pending, Session, Told, UpCnxState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vireo_store::records::{Codec, Format, FormatError, Found, Known};

/// What that release's begin with.
const BEFORE: u8 = 4;

/// What all begin with, whatever fields follow.
#[derive(Debug, Deserialize)]
struct Head {
    format: u8,
}

/// [`Pending`] as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingBefore {
    key: Option<String>,
    told: Told,
    state: Option<UpCnxState>,
}

impl From<PendingBefore> for Pending {
    fn from(PendingBefore { key, told, state }: PendingBefore) -> Self {
        Pending { key, told, state, switches: false }
    }
}

impl From<Session<PendingBefore>> for Session {
    fn from(before: Session<PendingBefore>) -> Self {
        Session {
            format: FORMAT,
            sm: before.sm,
            supi: before.supi,
            status_uri: before.status_uri,
            made_by: before.made_by,
            pending: before.pending.map(Pending::from),
            answered: before.answered,
            calling: before.calling,
            let_go: before.let_go,
            ended: before.ended,
            last: before.last,
            to_upf: before.to_upf,
            to_amf: before.to_amf,
            record: before.record,
            carried: before.carried,
            creating: before.creating,
            implied: before.implied,
        }
    }
}

/// One that is stored, of this release or the one before.
pub(super) fn found(codec: Codec, found: Found) -> Option<(Box<Session>, Known)> {
    let head: Head = match found.parts.is_empty() {
        true => codec.format.decode(&found.octets),
        false => codec.format.join(&found),
    }
    .ok()?;
    match head.format {
        FORMAT => codec.found(found).ok(),
        BEFORE => codec.found::<Box<Session<PendingBefore>>>(found).ok().map(|(before, known)| (now(*before), known)),
        _ => None,
    }
}

/// The same of octets.
pub(super) fn decoded(format: Format, octets: &[u8]) -> Option<Box<Session>> {
    match format.decode::<Head>(octets).ok()?.format {
        FORMAT => read(format, octets).ok(),
        BEFORE => read::<Box<Session<PendingBefore>>>(format, octets).ok().map(|before| now(*before)),
        _ => None,
    }
}

fn read<T: DeserializeOwned>(format: Format, octets: &[u8]) -> Result<T, FormatError> {
    format.decode(octets)
}

fn now(before: Session<PendingBefore>) -> Box<Session> {
    Box::new(before.into())
}

#[cfg(test)]
impl Session {
    /// As the release before would have stored it.
    pub(in crate::sbi::smf) fn before(&self) -> impl Serialize + Clone + use<> {
        let Session { sm, supi, status_uri, made_by, pending, answered, calling, let_go, .. } = self.clone();
        let Session { ended, last, to_upf, to_amf, record, carried, creating, implied, .. } = self.clone();
        let pending = pending.map(|Pending { key, told, state, .. }| PendingBefore { key, told, state });
        Session {
            format: BEFORE,
            sm,
            supi,
            status_uri,
            made_by,
            pending,
            answered,
            calling,
            let_go,
            ended,
            last,
            to_upf,
            to_amf,
            record,
            carried,
            creating,
            implied,
        }
    }
}
