//! What a record of a UE looks like (`state.format`, `state.change`): octets, or a document of named fields in JSON or protocol buffers
//! by the [`Codec`] of the SMF's records. A document has what is known beside the context, by the names of [`UeDocument`], and the
//! context's fields by theirs; where the record is [shared](crate::shared_record), all of it is one part, in which the context is a field.
//!
//! An octet string is what the region has and what travels to the SMF, whatever the format: whoever commits makes the document of it.
//! It is what a binary record is, too, which is written whole in every manner. A record that is a whole was written in that form, by
//! this format or by a release before documents, and is read as that: documents of an own record are always in parts.
//!
//! By [`Manner::Update`] a commit writes the fields that are not what they were when the record was loaded; the version that was loaded
//! has to be there, so the others are what they were. [`Manner::DeleteCreate`] is the SMF's alone: who dies between its two steps
//! leaves no record, and the AMF's is all that there is of a UE.

use super::{ContextDatabaseConfig, ContextDatabaseError, PendingOutbox, PendingSmfRequest, RecoveryLog, UeRecord};
use crate::shared_record;
use serde::{Deserialize, Serialize};
use vireo_core::context::{self, UeContext};
use vireo_core::sba::N1N2TransferResult;
use vireo_store::Version;
use vireo_store::records::{Change, Codec, Encoded, Format, RecordBase, RecordPart, StoredRecord, UpdateMode};
use vireo_types::Instant;

/// Which fields a document has: it grows with what is beside a context, and with the context's layout.
pub(crate) const LAYOUT: u16 = 1 << 8 | context::LAYOUT_VERSION as u16;

/// What a document has beside the context's fields, which are other ones.
#[derive(Debug, Serialize, Deserialize)]
struct UeDocument {
    /// These three come first ([`shared_record::AmfPartHeader`]).
    owner: u64,
    step: u64,
    gone: bool,
    /// [`LAYOUT`].
    layout: u16,
    consumed: u64,
    deadline: Option<Instant>,
    pin: u64,
    /// What the last steps want done ([`RecoveryLog`]).
    outboxes: Vec<PendingOutbox>,
    asked: Vec<PendingSmfRequest>,
    taken: Vec<(u64, N1N2TransferResult)>,
    /// Of the NAS security context: what is not among the fields of a context, whose stored form has it by other means.
    derives_keys: bool,
    /// Where all of it is one part: the context, unless that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<Box<UeContext>>,
}

impl UeDocument {
    /// A UE's, and its context.
    fn of(stored: &UeRecord) -> Result<(Self, Option<UeContext>), ContextDatabaseError> {
        let ue = match &stored.context[..] {
            [] => None,
            octets => Some(context::decode(octets).map_err(|_| ContextDatabaseError::Stranger)?),
        };
        let &UeRecord { owner, step, consumed, deadline, pin, .. } = stored;
        let RecoveryLog { wanted, asked, taken } = stored.course.clone();
        let derives_keys = ue.as_ref().and_then(|ue| ue.security.as_ref()).is_some_and(|keys| keys.derives_keys);
        let document = UeDocument {
            owner,
            step,
            gone: ue.is_none(),
            layout: LAYOUT,
            consumed,
            deadline,
            pin,
            outboxes: wanted,
            asked,
            taken,
            derives_keys,
            context: None,
        };
        Ok((document, ue))
    }

    /// The UE of this context.
    fn stored(self, ue: Option<UeContext>) -> Result<UeRecord, ContextDatabaseError> {
        if self.layout != LAYOUT || self.gone != ue.is_none() {
            return Err(ContextDatabaseError::Stranger);
        }
        let mut octets = Vec::new();
        if let Some(mut ue) = ue {
            ue.security.iter_mut().for_each(|keys| keys.derives_keys = self.derives_keys);
            octets = context::encode(&ue, octets).map_err(|_| ContextDatabaseError::Stranger)?;
        }
        let UeDocument { owner, step, gone, consumed, deadline, pin, outboxes: wanted, asked, taken, .. } = self;
        let course = RecoveryLog { wanted, asked, taken };
        Ok(UeRecord {
            owner,
            step,
            gone,
            consumed,
            deadline,
            pin,
            course,
            context: octets,
            known: RecordBase::default(),
        })
    }
}

/// How the AMF's records are kept.
fn codec(config: &ContextDatabaseConfig) -> Codec {
    let Codec { format, manner } = config.records.codec();
    let manner = if manner == UpdateMode::DeleteCreate { UpdateMode::Update } else { manner };
    Codec { format, manner }
}

/// The AMF's part of a record that is shared, of what travels; `None`: it is of another release.
pub(crate) fn kept(format: Format, part: &[u8]) -> Option<Vec<u8>> {
    match format {
        Format::Binary => Some(part.to_vec()),
        Format::Json | Format::Protobuf => of_stored(format, &UeRecord::decode(part).ok()?).ok(),
    }
}

fn of_stored(format: Format, stored: &UeRecord) -> Result<Vec<u8>, ContextDatabaseError> {
    if format == Format::Binary {
        return stored.encode();
    }
    let (document, ue) = UeDocument::of(stored)?;
    let document = UeDocument { context: ue.map(Box::new), ..document };
    format.encode(&document).map_err(|_| ContextDatabaseError::Stranger)
}

fn of_part(format: Format, part: &[u8]) -> Result<UeRecord, ContextDatabaseError> {
    if format == Format::Binary {
        return UeRecord::decode(part);
    }
    let mut document: UeDocument = format.decode(part).map_err(|_| ContextDatabaseError::Stranger)?;
    let ue = document.context.take().map(|ue| *ue);
    document.stored(ue)
}

/// A UE as a record has it.
pub(super) fn stored(config: &ContextDatabaseConfig, found: StoredRecord) -> Result<UeRecord, ContextDatabaseError> {
    let codec = codec(config);
    if config.records.is_shared() {
        return of_part(codec.format, found.part(shared_record::AMF).ok_or(ContextDatabaseError::Stranger)?);
    }
    if found.parts.is_empty() {
        return Ok(UeRecord { known: RecordBase::at(found.version), ..UeRecord::decode(&found.octets)? });
    }
    let stranger = |_| ContextDatabaseError::Stranger;
    let gone = found.part("gone").filter(|_| codec.format != Format::Binary).ok_or(ContextDatabaseError::Stranger)?;
    let (stored, known) = if codec.format.decode::<bool>(gone).map_err(stranger)? {
        let (document, known) = codec.found::<UeDocument>(found).map_err(stranger)?;
        (document.stored(None)?, known)
    } else {
        let ((document, ue), known) = codec.found::<(UeDocument, UeContext)>(found).map_err(stranger)?;
        (document.stored(Some(ue))?, known)
    };
    Ok(UeRecord { known, ..stored })
}

/// A UE as it is put where a version is.
#[derive(Debug)]
pub(super) struct EncodedUeRecord {
    codec: Codec,
    /// What is known of that version.
    known: RecordBase,
    value: Encoded,
    /// It is a part of a record that is shared.
    is_part: bool,
}

impl EncodedUeRecord {
    /// A UE as a record of this place has it (0: of a new one).
    pub(super) fn new(
        config: &ContextDatabaseConfig,
        expected: Version,
        stored: &UeRecord,
    ) -> Result<Self, ContextDatabaseError> {
        let (codec, is_part) = (codec(config), config.records.is_shared());
        let value = match codec.format {
            format if is_part => Encoded::Whole(of_stored(format, stored)?),
            Format::Binary => Encoded::Whole(stored.encode()?),
            format => {
                let parts = match UeDocument::of(stored)? {
                    (document, Some(ue)) => format.split(&(document, ue)),
                    (document, None) => format.split(&document),
                };
                Encoded::Parts(parts.map_err(|_| ContextDatabaseError::Stranger)?)
            }
        };
        // Of a context that goes nothing stays.
        let goes_on = stored.known.version == expected && !stored.context.is_empty();
        let known = if goes_on { stored.known.clone() } else { RecordBase::at(expected) };
        Ok(EncodedUeRecord { codec, known, value, is_part })
    }

    /// What is written.
    pub(super) fn parts(&self) -> Vec<RecordPart<'_>> {
        match &self.value {
            Encoded::Whole(octets) if self.is_part => vec![RecordPart { name: shared_record::AMF, octets }],
            value => self.codec.parts(&self.known, value),
        }
    }

    /// The change that writes these.
    pub(super) fn change<'a>(&'a self, parts: &'a [RecordPart<'a>]) -> Change<'a> {
        match self.is_part {
            true => Change::Update { expected: self.known.version, parts },
            false => self.codec.change(&self.known, &self.value, parts, false),
        }
    }
}

/// An octet string, in hexadecimal digits where somebody reads.
pub(super) mod octets {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(octets: &[u8], s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.serialize_str(&hex::encode(octets)) } else { s.serialize_bytes(octets) }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        if d.is_human_readable() {
            let digits = String::deserialize(d)?;
            return hex::decode(&*digits).map_err(D::Error::custom);
        }
        serde_bytes::deserialize(d)
    }
}

#[cfg(test)]
mod tests;
