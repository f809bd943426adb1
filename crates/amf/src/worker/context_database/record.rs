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
//! With [`UpdateMode::Update`] a commit encodes and writes the fields that changed since the record
//! was loaded. The loaded version is the precondition, so the other fields are unchanged. The AMF
//! does not use [`UpdateMode::DeleteCreate`]: a crash between its two operations leaves no record,
//! and the AMF's record is the only copy of a UE.

use super::config::{ContextDatabaseConfig, ContextDatabaseError};
use vireo_core::amf::context::UeContext;
use vireo_ops::shared_record;
use vireo_ops::ue_record::{UeDocument, UeRecord};
use vireo_store::Version;
use vireo_store::records::{Change, Codec, Encoded, Format, RecordBase, RecordPart, StoredRecord, UpdateMode};

/// Returns the codec of the AMF's records.
fn codec(config: &ContextDatabaseConfig) -> Codec {
    let Codec { format, update_mode } = config.records.codec();
    let update_mode = if update_mode == UpdateMode::DeleteCreate { UpdateMode::Update } else { update_mode };
    Codec { format, update_mode }
}

/// Decodes the UE of a record.
pub(super) fn stored(config: &ContextDatabaseConfig, found: StoredRecord) -> Result<UeRecord, ContextDatabaseError> {
    let codec = codec(config);
    if config.records.is_shared() {
        let part = found.part(shared_record::AMF).ok_or(ContextDatabaseError::UnknownFormat)?;
        return Ok(UeRecord::from_part(codec.format, part)?);
    }
    if found.parts.is_empty() {
        return Ok(UeRecord { known: RecordBase::at(found.version), ..UeRecord::decode(&found.octets)? });
    }
    let unknown_format = |_| ContextDatabaseError::UnknownFormat;
    let removed =
        found.part("removed").filter(|_| codec.format != Format::Binary).ok_or(ContextDatabaseError::UnknownFormat)?;
    let (stored, known) = if codec.format.decode::<bool>(removed).map_err(unknown_format)? {
        let (document, known) = codec.decode_stored::<UeDocument>(found).map_err(unknown_format)?;
        (document.into_record(None)?, known)
    } else {
        let ((document, ue), known) = codec.decode_stored::<(UeDocument, UeContext)>(found).map_err(unknown_format)?;
        (document.into_record(Some(ue))?, known)
    };
    Ok(UeRecord { known, ..stored })
}

/// A UE encoded for a commit.
#[derive(Debug)]
pub(super) struct EncodedUeRecord {
    codec: Codec,
    /// Base of the commit, without its content.
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
        // The record of a removed context keeps no field.
        let goes_on = stored.known.version == expected && !stored.context.is_empty();
        let new = RecordBase::at(expected);
        let known = if goes_on { &stored.known } else { &new };
        let value = match codec.format {
            format if is_part => Encoded::Whole(stored.to_part(format)?),
            Format::Binary => Encoded::Whole(stored.encode()?),
            Format::Json | Format::Protobuf => {
                let fields = match UeDocument::from_record(stored)? {
                    (document, Some(ue)) => codec.encode_fields(known, &(document, ue)),
                    (document, None) => codec.encode_fields(known, &document),
                };
                fields.map_err(|_| ContextDatabaseError::UnknownFormat)?
            }
        };
        Ok(EncodedUeRecord { codec, known: known.without_parts(), value, is_part })
    }

    /// Returns the parts to write.
    pub(super) fn parts(&self) -> Vec<RecordPart<'_>> {
        match &self.value {
            Encoded::Whole(octets) if self.is_part => vec![RecordPart { name: shared_record::AMF, octets }],
            value => self.codec.parts(value),
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

#[cfg(test)]
mod tests;
