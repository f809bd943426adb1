//! What the database's errors come to.

use crate::records::RecordError;
use mongodb::error::{Error, ErrorKind, WriteFailure};

/// Why an operation came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is a document of that name.
    Exists,
    /// The server does not know what it was asked for.
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

/// Of a question that changes nothing.
pub(super) fn of_load(error: Error) -> Failure {
    match of_change(error) {
        Failure::Record(RecordError::OutcomeUnknown(text)) => Failure::Record(RecordError::Down(text)),
        failure => failure,
    }
}

/// Of a change.
pub(super) fn of_change(error: Error) -> Failure {
    let record = match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteError(write)) if write.code == DUPLICATE => return Failure::Exists,
        ErrorKind::Command(command) if command.code == DUPLICATE => return Failure::Exists,
        ErrorKind::Command(command) if command.code == NOT_IMPLEMENTED => return Failure::Unknown,
        ErrorKind::Write(WriteFailure::WriteError(write)) => of_code(write.code, &write.message),
        ErrorKind::Command(command) => of_code(command.code, &command.message),
        // It was carried out, and those who should have it have not said so.
        ErrorKind::Write(_) => RecordError::OutcomeUnknown(error.to_string()),
        ErrorKind::Io(_) => RecordError::OutcomeUnknown(error.to_string()),
        ErrorKind::BsonDeserialization(_) | ErrorKind::InvalidResponse { .. } => RecordError::NotARecord,
        // No server was found, or no connection to it: nothing was asked.
        _ => RecordError::Down(error.to_string()),
    };
    Failure::Record(record)
}

/// A document of that key is there.
const DUPLICATE: i32 = 11_000;
/// What FerretDB says of options that it has not.
const NOT_IMPLEMENTED: i32 = 238;
/// OutOfDiskSpace, QuotaExceeded.
const FULL: [i32; 2] = [14_031, 12_501];
/// Errors of servers that have done nothing: they are no primary (any more), or refuse who asks, or what is asked.
const NOT_DONE: [i32; 9] = [10_107, 10_058, 13_435, 13_436, 18, 13, 26, 59, 2];
/// What PostgreSQL says below FerretDB when there is no room.
const NO_ROOM: [&str; 3] = ["No space left on device", "could not extend file", "53100"];

fn of_code(code: i32, message: &str) -> RecordError {
    if FULL.contains(&code) || NO_ROOM.iter().any(|text| message.contains(text)) {
        return RecordError::Full;
    }
    let text = format!("{message} (code {code})");
    if NOT_DONE.contains(&code) { RecordError::Down(text) } else { RecordError::OutcomeUnknown(text) }
}
