//! Conversion of database errors to record errors.

use crate::records::RecordError;
use mongodb::error::{Error, ErrorKind, WriteFailure};

/// Reason that an operation failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A document with this id exists.
    Exists,
    /// The server does not support the command.
    Unknown,
    Record(RecordError),
}

impl Failure {
    pub(super) fn record(self) -> RecordError {
        match self {
            Failure::Exists => RecordError::Conflict,
            Failure::Unknown => RecordError::Down("it does not know what it was asked for".into()),
            Failure::Record(error) => error,
        }
    }
}

/// Converts the error of an operation that changes nothing.
pub(super) fn from_load(error: Error) -> Failure {
    match from_change(error) {
        Failure::Record(RecordError::OutcomeUnknown(text)) => Failure::Record(RecordError::Down(text)),
        failure => failure,
    }
}

/// Converts the error of a change.
pub(super) fn from_change(error: Error) -> Failure {
    let record = match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteError(write)) if write.code == DUPLICATE => return Failure::Exists,
        ErrorKind::Command(command) if command.code == DUPLICATE => return Failure::Exists,
        ErrorKind::Command(command) if command.code == NOT_IMPLEMENTED => return Failure::Unknown,
        ErrorKind::Write(WriteFailure::WriteError(write)) => from_code(write.code, &write.message),
        ErrorKind::Command(command) => from_code(command.code, &command.message),
        // The change was applied, but the required members have not acknowledged it.
        ErrorKind::Write(_) => RecordError::OutcomeUnknown(error.to_string()),
        ErrorKind::Io(_) => RecordError::OutcomeUnknown(error.to_string()),
        ErrorKind::BsonDeserialization(_) | ErrorKind::InvalidResponse { .. } => RecordError::NotARecord,
        // No server was found, or no connection to it: nothing was sent.
        _ => RecordError::Down(error.to_string()),
    };
    Failure::Record(record)
}

/// Duplicate key: a document with this key exists.
const DUPLICATE: i32 = 11_000;
/// Error code of FerretDB for options that it does not implement.
const NOT_IMPLEMENTED: i32 = 238;
/// Error codes OutOfDiskSpace and QuotaExceeded.
const FULL: [i32; 2] = [14_031, 12_501];
/// Error codes of servers that have done nothing: the server is not the primary, or refuses the
/// client or the command.
const NOT_DONE: [i32; 9] = [10_107, 10_058, 13_435, 13_436, 18, 13, 26, 59, 2];
/// Messages of PostgreSQL below FerretDB when it is out of space.
const NO_ROOM: [&str; 3] = ["No space left on device", "could not extend file", "53100"];

fn from_code(code: i32, message: &str) -> RecordError {
    if FULL.contains(&code) || NO_ROOM.iter().any(|text| message.contains(text)) {
        return RecordError::Full;
    }
    let text = format!("{message} (code {code})");
    if NOT_DONE.contains(&code) { RecordError::Down(text) } else { RecordError::OutcomeUnknown(text) }
}
