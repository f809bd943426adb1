//! SM contexts as the two releases before have stored them: no handover by N2 was known, nor, in the older one, a path switch.

use super::{FORMAT, Implied, Pending, Says, Session, SmContext, Supi, ToAmf, ToUpf, Told, UpCnxState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vireo_store::records::{Codec, Format, FormatError, Found, Known};

/// What those of the older one begin with.
const NO_SWITCH: u8 = 4;
/// The same of the one before.
const BEFORE: u8 = 5;

/// What all begin with, whatever fields follow.
#[derive(Debug, Deserialize)]
struct Head {
    format: u8,
}

/// [`Session`] as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SessionBefore<P> {
    format: u8,
    sm: SmContext,
    supi: Supi,
    status_uri: String,
    made_by: Option<String>,
    pending: Option<P>,
    answered: Option<(String, Told, Option<UpCnxState>)>,
    calling: bool,
    let_go: bool,
    ended: bool,
    last: u32,
    to_upf: Vec<ToUpf>,
    to_amf: Vec<ToAmf>,
    record: Option<u64>,
    carried: bool,
    creating: bool,
    implied: Option<Implied>,
}

/// [`Pending`] as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingBefore {
    key: Option<String>,
    told: Told,
    state: Option<UpCnxState>,
    switches: bool,
}

/// The same in the older one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingNoSwitch {
    key: Option<String>,
    told: Told,
    state: Option<UpCnxState>,
}

fn says(state: Option<UpCnxState>) -> Says {
    Says { state, handover: None }
}

impl From<PendingBefore> for Pending {
    fn from(PendingBefore { key, told, state, switches }: PendingBefore) -> Self {
        Pending { key, told, says: says(state), switches }
    }
}

impl From<PendingNoSwitch> for Pending {
    fn from(PendingNoSwitch { key, told, state }: PendingNoSwitch) -> Self {
        Pending { key, told, says: says(state), switches: false }
    }
}

impl<P: Into<Pending>> From<SessionBefore<P>> for Session {
    fn from(before: SessionBefore<P>) -> Self {
        Session {
            format: FORMAT,
            sm: before.sm,
            supi: before.supi,
            status_uri: before.status_uri,
            made_by: before.made_by,
            pending: before.pending.map(Into::into),
            answered: before.answered.map(|(key, told, state)| (key, told, says(state))),
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
            completed: None,
        }
    }
}

type Before = Box<SessionBefore<PendingBefore>>;
type NoSwitch = Box<SessionBefore<PendingNoSwitch>>;

/// One that is stored, of this release or the two before.
pub(super) fn found(codec: Codec, found: Found) -> Option<(Box<Session>, Known)> {
    let head: Head = match found.parts.is_empty() {
        true => codec.format.decode(&found.octets),
        false => codec.format.join(&found),
    }
    .ok()?;
    match head.format {
        FORMAT => codec.found(found).ok(),
        BEFORE => codec.found::<Before>(found).ok().map(|(before, known)| (now(*before), known)),
        NO_SWITCH => codec.found::<NoSwitch>(found).ok().map(|(before, known)| (now(*before), known)),
        _ => None,
    }
}

/// The same of octets.
pub(super) fn decoded(format: Format, octets: &[u8]) -> Option<Box<Session>> {
    match format.decode::<Head>(octets).ok()?.format {
        FORMAT => read(format, octets).ok(),
        BEFORE => read::<Before>(format, octets).ok().map(|before| now(*before)),
        NO_SWITCH => read::<NoSwitch>(format, octets).ok().map(|before| now(*before)),
        _ => None,
    }
}

fn read<T: DeserializeOwned>(format: Format, octets: &[u8]) -> Result<T, FormatError> {
    format.decode(octets)
}

fn now<P: Into<Pending>>(before: SessionBefore<P>) -> Box<Session> {
    Box::new(before.into())
}

#[cfg(test)]
impl Session {
    /// As the release before would have stored it.
    pub(in crate::sbi::smf) fn before(&self) -> impl Serialize + Clone + use<> {
        self.as_of(BEFORE, |Pending { key, told, says, switches }| PendingBefore {
            key,
            told,
            state: says.state,
            switches,
        })
    }

    /// As the one before that would have.
    pub(in crate::sbi::smf) fn before_switches(&self) -> impl Serialize + Clone + use<> {
        self.as_of(NO_SWITCH, |Pending { key, told, says, .. }| PendingNoSwitch { key, told, state: says.state })
    }

    fn as_of<P>(&self, format: u8, pending: fn(Pending) -> P) -> SessionBefore<P> {
        let now = self.clone();
        SessionBefore {
            format,
            sm: now.sm,
            supi: now.supi,
            status_uri: now.status_uri,
            made_by: now.made_by,
            pending: now.pending.map(pending),
            answered: now.answered.map(|(key, told, says)| (key, told, says.state)),
            calling: now.calling,
            let_go: now.let_go,
            ended: now.ended,
            last: now.last,
            to_upf: now.to_upf,
            to_amf: now.to_amf,
            record: now.record,
            carried: now.carried,
            creating: now.creating,
            implied: now.implied,
        }
    }
}
