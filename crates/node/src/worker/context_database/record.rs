//! Format of UE records (`state.format`, `state.change`).
//!
//! A record is binary, or a document of named fields in JSON or protocol buffers by the [`Codec`]
//! of the SMF's records. A document has the fields of [`UeDocument`] and those of the context. In a
//! [shared](vireo_ops::shared_record) record all of it is one part, with the context as a field.
//!
//! The region and requests to the SMF use the binary form in every format. The committing NF
//! converts it to a document. A binary record is always written as a whole. A record that is a
//! whole was written in binary form, by this format or by a release before documents, and is read
//! as such: documents of unshared records always have parts.
//!
//! With [`UpdateMode::Update`] a commit writes the fields that changed since the record was loaded.
//! The loaded version is the precondition, so the other fields are unchanged. Only the SMF uses
//! [`UpdateMode::DeleteCreate`]: a crash between its two operations leaves no record, and the AMF's
//! record is the only copy of a UE.

use super::{ContextDatabaseConfig, ContextDatabaseError, PendingOutbox, PendingSmfRequest, RecoveryLog, UeRecord};
use serde::{Deserialize, Serialize};
use vireo_core::amf::context::{self, UeContext};
use vireo_core::sba::N1N2TransferResult;
use vireo_ops::shared_record;
use vireo_store::Version;
use vireo_store::records::{Change, Codec, Encoded, Format, RecordBase, RecordPart, StoredRecord, UpdateMode};
use vireo_types::Instant;

/// Version of the fields: grows with those beside the context and with the context's layout.
pub(crate) const LAYOUT: u16 = 1 << 8 | context::LAYOUT_VERSION as u16;

/// Fields of a document beside those of the context. Their names differ from the context's.
#[derive(Debug, Serialize, Deserialize)]
struct UeDocument {
    /// These three fields come first ([`shared_record::AmfPartHeader`]).
    owner: u64,
    step: u64,
    removed: bool,
    /// [`LAYOUT`] of the writer.
    layout: u16,
    consumed: u64,
    deadline: Option<Instant>,
    pin: u64,
    /// Outboxes of the last steps ([`RecoveryLog`]).
    outboxes: Vec<PendingOutbox>,
    asked: Vec<PendingSmfRequest>,
    taken: Vec<(u64, N1N2TransferResult)>,
    /// Field of the NAS security context that is no field of a context's document. The binary form
    /// encodes it differently.
    derives_keys: bool,
    /// Only in a document of one part: the context, unless it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<Box<UeContext>>,
}

impl UeDocument {
    /// Splits a UE into document and context.
    fn of(stored: &UeRecord) -> Result<(Self, Option<UeContext>), ContextDatabaseError> {
        let ue = match &stored.context[..] {
            [] => None,
            octets => Some(context::decode(octets).map_err(|_| ContextDatabaseError::UnknownFormat)?),
        };
        let &UeRecord { owner, step, consumed, deadline, pin, .. } = stored;
        let RecoveryLog { wanted, asked, taken } = stored.course.clone();
        let derives_keys = ue.as_ref().and_then(|ue| ue.security.as_ref()).is_some_and(|keys| keys.derives_keys);
        let document = UeDocument {
            owner,
            step,
            removed: ue.is_none(),
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

    /// Joins document and context to a UE.
    fn stored(self, ue: Option<UeContext>) -> Result<UeRecord, ContextDatabaseError> {
        if self.layout != LAYOUT || self.removed != ue.is_none() {
            return Err(ContextDatabaseError::UnknownFormat);
        }
        let mut octets = Vec::new();
        if let Some(mut ue) = ue {
            ue.security.iter_mut().for_each(|keys| keys.derives_keys = self.derives_keys);
            octets = context::encode(&ue, octets).map_err(|_| ContextDatabaseError::UnknownFormat)?;
        }
        let UeDocument { owner, step, removed, consumed, deadline, pin, outboxes: wanted, asked, taken, .. } = self;
        let course = RecoveryLog { wanted, asked, taken };
        Ok(UeRecord {
            owner,
            step,
            removed,
            consumed,
            deadline,
            pin,
            course,
            context: octets,
            known: RecordBase::default(),
        })
    }
}

/// Returns the codec of the AMF's records.
fn codec(config: &ContextDatabaseConfig) -> Codec {
    let Codec { format, manner } = config.records.codec();
    let manner = if manner == UpdateMode::DeleteCreate { UpdateMode::Update } else { manner };
    Codec { format, manner }
}

/// Returns the stored form of the AMF's part from its transfer form; `None` for another release.
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
    format.encode(&document).map_err(|_| ContextDatabaseError::UnknownFormat)
}

fn of_part(format: Format, part: &[u8]) -> Result<UeRecord, ContextDatabaseError> {
    if format == Format::Binary {
        return UeRecord::decode(part);
    }
    let mut document: UeDocument = format.decode(part).map_err(|_| ContextDatabaseError::UnknownFormat)?;
    let ue = document.context.take().map(|ue| *ue);
    document.stored(ue)
}

/// Decodes the UE of a record.
pub(super) fn stored(config: &ContextDatabaseConfig, found: StoredRecord) -> Result<UeRecord, ContextDatabaseError> {
    let codec = codec(config);
    if config.records.is_shared() {
        return of_part(codec.format, found.part(shared_record::AMF).ok_or(ContextDatabaseError::UnknownFormat)?);
    }
    if found.parts.is_empty() {
        return Ok(UeRecord { known: RecordBase::at(found.version), ..UeRecord::decode(&found.octets)? });
    }
    let unknown_format = |_| ContextDatabaseError::UnknownFormat;
    let removed =
        found.part("removed").filter(|_| codec.format != Format::Binary).ok_or(ContextDatabaseError::UnknownFormat)?;
    let (stored, known) = if codec.format.decode::<bool>(removed).map_err(unknown_format)? {
        let (document, known) = codec.found::<UeDocument>(found).map_err(unknown_format)?;
        (document.stored(None)?, known)
    } else {
        let ((document, ue), known) = codec.found::<(UeDocument, UeContext)>(found).map_err(unknown_format)?;
        (document.stored(Some(ue))?, known)
    };
    Ok(UeRecord { known, ..stored })
}

/// A UE encoded for a commit.
#[derive(Debug)]
pub(super) struct EncodedUeRecord {
    codec: Codec,
    /// Content of the version that the commit replaces.
    known: RecordBase,
    value: Encoded,
    /// True if it is a part of a shared record.
    is_part: bool,
}

impl EncodedUeRecord {
    /// Encodes a UE for a commit over this version (0: a new record).
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
                Encoded::Parts(parts.map_err(|_| ContextDatabaseError::UnknownFormat)?)
            }
        };
        // The record of a removed context keeps no field.
        let goes_on = stored.known.version == expected && !stored.context.is_empty();
        let known = if goes_on { stored.known.clone() } else { RecordBase::at(expected) };
        Ok(EncodedUeRecord { codec, known, value, is_part })
    }

    /// Returns the parts to write.
    pub(super) fn parts(&self) -> Vec<RecordPart<'_>> {
        match &self.value {
            Encoded::Whole(octets) if self.is_part => vec![RecordPart { name: shared_record::AMF, octets }],
            value => self.codec.parts(&self.known, value),
        }
    }

    /// Returns the change that writes these parts.
    pub(super) fn change<'a>(&'a self, parts: &'a [RecordPart<'a>]) -> Change<'a> {
        match self.is_part {
            true => Change::Update { expected: self.known.version, parts },
            false => self.codec.change(&self.known, &self.value, parts, false),
        }
    }
}

/// Serde module for octet strings: hexadecimal digits in human-readable formats.
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
