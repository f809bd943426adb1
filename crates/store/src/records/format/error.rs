//! Reason that encoding or decoding failed.

/// Reason that encoding or decoding failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The value is not a struct with named fields, or contains a type that the format does not
    /// support.
    #[error("the value has no encoding as a record: {0}")]
    Value(String),
    /// The bytes were written by another release, or are damaged.
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
