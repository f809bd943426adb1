//! SM contexts in the formats of the two previous releases.
//!
//! Both lack N2 handovers. The older one also lacks path switches.

use super::{
    FORMAT, Implied, N1N2Content, PendingAnswer, PendingPfcpRequest, PendingTransfer, ResponseState, Session,
    SmContext, Supi, UpCnxState,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vireo_store::records::{Codec, Format, FormatError, RecordBase, StoredRecord};

/// Version of the older format.
const NO_SWITCH: u8 = 4;
/// Version of the previous format.
const BEFORE: u8 = 5;

/// First field of all formats.
#[derive(Debug, Deserialize)]
struct Head {
    format: u8,
}

/// [`Session`] in the older formats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SessionV2<P> {
    format: u8,
    sm: SmContext,
    supi: Supi,
    status_uri: String,
    made_by: Option<String>,
    pending: Option<P>,
    answered: Option<(String, N1N2Content, Option<UpCnxState>)>,
    calling: bool,
    let_go: bool,
    ended: bool,
    last: u32,
    to_upf: Vec<PendingPfcpRequest>,
    to_amf: Vec<PendingTransfer>,
    record: Option<u64>,
    carried: bool,
    creating: bool,
    implied: Option<Implied>,
}

/// [`PendingAnswer`] in the previous format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingV2 {
    key: Option<String>,
    told: N1N2Content,
    state: Option<UpCnxState>,
    switches: bool,
}

/// [`PendingAnswer`] in the older format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingV1 {
    key: Option<String>,
    told: N1N2Content,
    state: Option<UpCnxState>,
}

fn says(state: Option<UpCnxState>) -> ResponseState {
    ResponseState { state, handover: None }
}

impl From<PendingV2> for PendingAnswer {
    fn from(PendingV2 { key, told, state, switches }: PendingV2) -> Self {
        PendingAnswer { key, told, says: says(state), switches }
    }
}

impl From<PendingV1> for PendingAnswer {
    fn from(PendingV1 { key, told, state }: PendingV1) -> Self {
        PendingAnswer { key, told, says: says(state), switches: false }
    }
}

impl<P: Into<PendingAnswer>> From<SessionV2<P>> for Session {
    fn from(before: SessionV2<P>) -> Self {
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

type Before = Box<SessionV2<PendingV2>>;
type NoSwitch = Box<SessionV2<PendingV1>>;

/// Decodes a stored record of this or the two previous formats.
pub(super) fn found(codec: Codec, found: StoredRecord) -> Option<(Box<Session>, RecordBase)> {
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

/// Decodes an SM context of this or the two previous formats.
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

fn now<P: Into<PendingAnswer>>(before: SessionV2<P>) -> Box<Session> {
    Box::new(before.into())
}

#[cfg(test)]
impl Session {
    /// Converts to the previous format.
    pub(in crate::sbi::smf) fn before(&self) -> impl Serialize + Clone + use<> {
        self.as_of(BEFORE, |PendingAnswer { key, told, says, switches }| PendingV2 {
            key,
            told,
            state: says.state,
            switches,
        })
    }

    /// Converts to the older format.
    pub(in crate::sbi::smf) fn before_switches(&self) -> impl Serialize + Clone + use<> {
        self.as_of(NO_SWITCH, |PendingAnswer { key, told, says, .. }| PendingV1 { key, told, state: says.state })
    }

    fn as_of<P>(&self, format: u8, pending: fn(PendingAnswer) -> P) -> SessionV2<P> {
        let now = self.clone();
        SessionV2 {
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
