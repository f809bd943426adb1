//! What records are encoded as: a value of serde, whose fields are the record's parts, each encoded by itself so that what a step
//! leaves alone needs not to be written again.

mod fields;
mod protobuf;
#[cfg(test)]
mod tests;

use super::{RecordPart, StoredRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Postcard: no names, no tags.
    #[default]
    Binary,
    /// JSON; in MongoDB, BSON of the same shape.
    Json,
    /// Protocol buffers: fields are numbered by their positions ([`protobuf`] says how).
    Protobuf,
}

/// How a record is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpdateMode {
    /// All of it is written.
    #[default]
    Replace,
    /// Parts that have changed are written.
    Update,
    /// It is taken out and put in again, in two operations. Who loads it in between finds none; a process that dies in between leaves
    /// none, and whoever knows that there was a version finds by that out that it is lost.
    DeleteCreate,
}

/// Why a value has no encoding, or octets are none of such a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The value is no struct with named fields, or has what the format does not know.
    #[error("the value has no encoding as a record: {0}")]
    Value(String),
    /// The octets were written by another release, or are damaged.
    #[error("the record does not decode: {0}")]
    Octets(String),
}

impl serde::ser::Error for FormatError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        FormatError::Value(text.to_string())
    }
}

impl serde::de::Error for FormatError {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        FormatError::Octets(text.to_string())
    }
}

impl Format {
    /// A value's octets.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`].
    pub fn encode<T: Serialize + ?Sized>(self, value: &T) -> Result<Vec<u8>, FormatError> {
        let error = |error: &dyn std::fmt::Display| FormatError::Value(error.to_string());
        match self {
            Format::Binary => postcard::to_stdvec(value).map_err(|e| error(&e)),
            Format::Json => serde_json::to_vec(value).map_err(|e| error(&e)),
            Format::Protobuf => protobuf::to_vec(value),
        }
    }

    /// The value of octets.
    ///
    /// # Errors
    ///
    /// [`FormatError::Octets`].
    pub fn decode<T: DeserializeOwned>(self, octets: &[u8]) -> Result<T, FormatError> {
        let error = |error: &dyn std::fmt::Display| FormatError::Octets(error.to_string());
        match self {
            Format::Binary => postcard::from_bytes(octets).map_err(|e| error(&e)),
            Format::Json => serde_json::from_slice(octets).map_err(|e| error(&e)),
            Format::Protobuf => protobuf::from_slice(octets),
        }
    }

    /// The fields of a struct, each encoded by itself.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`], also of what is no struct with named fields.
    pub fn split<T: Serialize + ?Sized>(self, value: &T) -> Result<Parts, FormatError> {
        Ok(Parts(value.serialize(fields::Split(self))?))
    }

    /// The struct whose fields a record has.
    ///
    /// # Errors
    ///
    /// [`FormatError::Octets`].
    pub fn join<T: DeserializeOwned>(self, found: &StoredRecord) -> Result<T, FormatError> {
        T::deserialize(fields::Join { format: self, parts: &found.parts })
    }
}

/// The encoded fields of a struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(pub(super) Vec<(&'static str, Vec<u8>)>);

impl Parts {
    /// All of them.
    pub fn all(&self) -> Vec<RecordPart<'_>> {
        self.0.iter().map(|(name, octets)| RecordPart { name, octets }).collect()
    }

    /// Those that are not the same in `before`.
    pub fn changed(&self, before: &[(String, Vec<u8>)]) -> Vec<RecordPart<'_>> {
        let same =
            |(name, octets): &(&'static str, Vec<u8>)| before.iter().any(|(of, there)| of == name && there == octets);
        let changed = self.0.iter().filter(|part| !same(part));
        changed.map(|(name, octets)| RecordPart { name, octets }).collect()
    }

    /// Octets of all, without names.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(_, octets)| octets.len()).sum()
    }
}
