//! Encodings of records: serde values, split into one encoded part for each field.
//!
//! Each field is encoded separately, so that a commit need not write the fields that a step left
//! unchanged.

mod error;
mod fields;
mod protobuf;
#[cfg(test)]
mod tests;

use super::{RecordPart, StoredRecord};
pub use error::FormatError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encoding of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Postcard: no names, no tags.
    #[default]
    Binary,
    /// JSON; in MongoDB, BSON of the same structure.
    Json,
    /// Protocol buffers; fields are numbered by their positions (see [`protobuf`]).
    Protobuf,
}

/// Kind of change that a commit makes (`state.change`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpdateMode {
    /// The whole record is written.
    #[default]
    Replace,
    /// Only the changed parts are written.
    Update,
    /// The record is removed and created again, in two operations.
    ///
    /// A load in between finds no record. If the process dies in between, the record is lost. A
    /// process that knows a version of it can detect that.
    DeleteCreate,
}

impl Format {
    /// Encodes a value as one byte string.
    ///
    /// # Errors
    ///
    /// Returns [`FormatError::Value`] if the value has no encoding.
    pub fn encode<T: Serialize + ?Sized>(self, value: &T) -> Result<Vec<u8>, FormatError> {
        let error = |error: &dyn std::fmt::Display| FormatError::Value(error.to_string());
        match self {
            Format::Binary => postcard::to_stdvec(value).map_err(|e| error(&e)),
            Format::Json => serde_json::to_vec(value).map_err(|e| error(&e)),
            Format::Protobuf => protobuf::to_vec(value),
        }
    }

    /// Decodes the value of a byte string.
    ///
    /// # Errors
    ///
    /// Returns [`FormatError::Octets`] if the bytes do not decode.
    pub fn decode<T: DeserializeOwned>(self, octets: &[u8]) -> Result<T, FormatError> {
        let error = |error: &dyn std::fmt::Display| FormatError::Octets(error.to_string());
        match self {
            Format::Binary => postcard::from_bytes(octets).map_err(|e| error(&e)),
            Format::Json => serde_json::from_slice(octets).map_err(|e| error(&e)),
            Format::Protobuf => protobuf::from_slice(octets),
        }
    }

    /// Encodes each field of a struct separately.
    ///
    /// # Errors
    ///
    /// Returns [`FormatError::Value`] if a field has no encoding, or the value is not a struct with
    /// named fields.
    pub fn split<T: Serialize + ?Sized>(self, value: &T) -> Result<Parts, FormatError> {
        self.split_over(&[], value)
    }

    /// Encodes the fields that differ from a base: names and binary encodings of fields.
    pub(super) fn split_over<T: Serialize + ?Sized>(
        self,
        base: &[(String, Vec<u8>)],
        value: &T,
    ) -> Result<Parts, FormatError> {
        Ok(Parts(value.serialize(fields::Split { format: self, base })?))
    }

    /// Decodes a struct from the parts of a record.
    ///
    /// # Errors
    ///
    /// Returns [`FormatError::Octets`] if the parts do not decode.
    pub fn join<T: DeserializeOwned>(self, found: &StoredRecord) -> Result<T, FormatError> {
        T::deserialize(fields::Join { format: self, parts: &found.parts })
    }
}

/// Encoded fields of a struct, with their names. Equal values have equal parts, whatever their
/// format and base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(pub(super) Vec<Part>);

/// Encoded field.
#[derive(Clone, Debug)]
pub(super) struct Part {
    name: &'static str,
    binary: Vec<u8>,
    /// Encoding in another format; `None` in the binary format, and for an unchanged field.
    encoded: Option<Vec<u8>>,
    /// True if the field differs from that of the base.
    is_changed: bool,
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.binary) == (other.name, &other.binary)
    }
}

impl Eq for Part {}

impl Parts {
    /// Returns the fields that differ from those of the base.
    pub fn changed(&self) -> Vec<RecordPart<'_>> {
        let changed = self.0.iter().filter(|part| part.is_changed);
        changed.map(|part| RecordPart { name: part.name, octets: part.octets() }).collect()
    }

    /// Returns names and binary encodings of all fields, as a base of later values.
    pub(super) fn into_base(self) -> Vec<(String, Vec<u8>)> {
        self.0.into_iter().map(|part| (part.name.to_owned(), part.binary)).collect()
    }
}

impl Part {
    fn octets(&self) -> &[u8] {
        self.encoded.as_deref().unwrap_or(&self.binary)
    }
}
