//! Serde values as records, by format and update mode.
//!
//! These are the settings `state.format` and `state.change`.

use super::{Change, Format, FormatError, Name, Parts, RecordError, RecordPart, RecordStore, StoredRecord, UpdateMode};
use crate::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// Time limit for creating a removed record again.
const RECREATE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Encoding and update mode of the values of an NF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// Encoding of the fields of a value.
    pub format: Format,
    /// Kind of change that a commit makes.
    pub update_mode: UpdateMode,
}

/// An encoded value: one byte string, or one for each field where fields are updated or inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// The encoded value as one byte string.
    Whole(Vec<u8>),
    /// The encoded fields, each with its name.
    Parts(Parts),
}

/// The stored record that the next commit of an NF is based on; empty before the first commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBase {
    /// Version of the record; 0 = none.
    pub version: Version,
    /// Fields of the record in the binary format, if only changed parts are written.
    parts: Vec<(String, Vec<u8>)>,
    /// True if the record has no parts or they are unknown: the next commit writes everything.
    whole: bool,
}

/// Reason that a value was not loaded or committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The record store failed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The value has no encoding, or the stored record does not decode.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// *Delete and create* removed the record and could not create it again. Only the committer has
    /// the value.
    #[error("the record was taken out and could not be put in again: {0}")]
    Torn(RecordError),
}

impl RecordBase {
    /// Returns the base of a record of that version (0: none) whose parts are unknown.
    ///
    /// The next commit writes everything.
    pub fn at(version: Version) -> Self {
        RecordBase { version, parts: Vec::new(), whole: true }
    }

    /// Returns the base without the contents of the parts, for [`Codec::change`].
    #[must_use]
    pub fn without_parts(&self) -> Self {
        RecordBase { version: self.version, parts: Vec::new(), whole: self.whole }
    }
}

impl Codec {
    /// Loads a value, and the base for its next commit.
    ///
    /// # Errors
    ///
    /// Returns a [`CodecError`] if the store fails or the record does not decode.
    pub fn load<T: Serialize + DeserializeOwned>(
        self,
        store: &mut dyn RecordStore,
        name: Name,
    ) -> Result<Option<(T, RecordBase)>, CodecError> {
        match store.load(&[name])?.into_iter().next().flatten() {
            Some(found) => self.decode_stored(found).map(Some).map_err(CodecError::Format),
            None => Ok(None),
        }
    }

    /// Encodes what a commit based on `known` writes of a value.
    ///
    /// # Errors
    ///
    /// Returns [`FormatError::Value`] if the value has no encoding.
    pub fn encode<T: Serialize + ?Sized>(self, known: &RecordBase, value: &T) -> Result<Encoded, FormatError> {
        match (self.update_mode, self.format) {
            (UpdateMode::Replace, Format::Binary | Format::Protobuf) => self.format.encode(value).map(Encoded::Whole),
            _ => self.encode_fields(known, value),
        }
    }

    /// Encodes what a commit based on `known` writes of a value, each field by itself.
    ///
    /// # Errors
    ///
    /// Returns [`FormatError::Value`] if the value has no encoding.
    pub fn encode_fields<T: Serialize + ?Sized>(self, known: &RecordBase, value: &T) -> Result<Encoded, FormatError> {
        let base = if self.update_mode == UpdateMode::Update { &known.parts[..] } else { &[] };
        self.format.split_over(base, value).map(Encoded::Parts)
    }

    /// Returns the parts that a commit must write. [`Codec::change`] turns them into a change.
    pub fn parts(self, value: &Encoded) -> Vec<RecordPart<'_>> {
        match value {
            Encoded::Whole(_) => Vec::new(),
            Encoded::Parts(parts) => parts.changed(),
        }
    }

    /// Returns the change that commits a value, for a caller that commits several in one request.
    ///
    /// With *delete and create*, an existing record is removed first. After that, the caller
    /// requests the creation with `is_removed`.
    pub fn change<'a>(
        self,
        known: &RecordBase,
        value: &'a Encoded,
        parts: &'a [RecordPart<'a>],
        is_removed: bool,
    ) -> Change<'a> {
        let expected = known.version;
        match (value, self.update_mode) {
            (Encoded::Whole(octets), _) => Change::Commit { expected, octets },
            (Encoded::Parts(_), UpdateMode::Update) if !known.whole => Change::Update { expected, parts },
            (Encoded::Parts(_), UpdateMode::DeleteCreate) if is_removed => Change::Create { before: expected, parts },
            (Encoded::Parts(_), UpdateMode::DeleteCreate) if expected != 0 => Change::Remove { expected },
            (Encoded::Parts(_), _) => Change::Replace { expected, parts },
        }
    }

    /// Decodes the value of a loaded record.
    ///
    /// # Errors
    ///
    /// Returns a [`FormatError`] if the record does not decode.
    pub fn decode_stored<T: Serialize + DeserializeOwned>(
        self,
        found: StoredRecord,
    ) -> Result<(T, RecordBase), FormatError> {
        if found.parts.is_empty() {
            let value = self.format.decode(&found.octets)?;
            return Ok((value, RecordBase { version: found.version, parts: Vec::new(), whole: true }));
        }
        let value: T = self.format.join(&found)?;
        let parts = match (self.update_mode, self.format) {
            (UpdateMode::Replace | UpdateMode::DeleteCreate, _) => Vec::new(),
            (UpdateMode::Update, Format::Binary) => found.parts,
            (UpdateMode::Update, Format::Json | Format::Protobuf) => Format::Binary.split(&value)?.into_base(),
        };
        Ok((value, RecordBase { version: found.version, parts, whole: false }))
    }

    /// Commits a value based on `known`, which then describes the new record.
    ///
    /// # Errors
    ///
    /// Returns a [`CodecError`] if the commit failed; `known` is unchanged then.
    pub fn commit<T: Serialize + ?Sized>(
        self,
        store: &mut dyn RecordStore,
        name: Name,
        known: &mut RecordBase,
        value: &T,
    ) -> Result<(), CodecError> {
        let value = self.encode(known, value)?;
        let parts = self.parts(&value);
        let first = self.change(known, &value, &parts, false);
        let mut version = change(store, name, first)?;
        if first.removes() {
            version = put_back(store, name, known.version, &parts).map_err(CodecError::Torn)?;
        }
        (known.version, known.whole) = (version, false);
        if let (UpdateMode::Update, Encoded::Parts(parts)) = (self.update_mode, value) {
            known.parts = parts.into_base();
        }
        Ok(())
    }
}

fn change(store: &mut dyn RecordStore, name: Name, change: Change<'_>) -> Result<Version, RecordError> {
    store.change(&[(name, change)]).remove(0)
}

/// Creates a record that was just removed.
///
/// If an answer was lost, a stored record with the intended version is the created one.
fn put_back(
    store: &mut dyn RecordStore,
    name: Name,
    before: Version,
    parts: &[RecordPart<'_>],
) -> Result<Version, RecordError> {
    let until = Instant::now() + RECREATE_TIMEOUT;
    let create = Change::Create { before, parts };
    let mut lost = false;
    loop {
        let error = match change(store, name, create) {
            Err(RecordError::Conflict) if lost => {
                let there = store.load(&[name])?.remove(0).map(|found| found.version);
                return if there == Some(create.result()) { Ok(create.result()) } else { Err(RecordError::Conflict) };
            }
            Err(error) if error.is_retryable() => error,
            done => return done,
        };
        lost |= matches!(error, RecordError::OutcomeUnknown(_));
        if Instant::now() >= until {
            return Err(error);
        }
        std::thread::sleep(RETRY_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{MemoryRecords, Operations};
    use serde::Deserialize;

    const NAME: Name = Name { collection: "amf", id: 9 };

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Value {
        count: u32,
        name: String,
    }

    /// A store that fails creations with these errors. A creation with an unknown outcome is
    /// applied.
    struct Failing(MemoryRecords, Vec<RecordError>);

    impl RecordStore for Failing {
        fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
            self.0.load(names)
        }

        fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
            if !matches!(changes[0].1, Change::Create { .. }) || self.1.is_empty() {
                return self.0.change(changes);
            }
            let error = self.1.remove(0);
            if matches!(error, RecordError::OutcomeUnknown(_)) {
                self.0.change(changes);
            }
            vec![Err(error)]
        }

        fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
            self.0.list_ids(collection)
        }

        fn operations(&self) -> Operations {
            self.0.operations()
        }
    }

    #[test]
    fn removed_record_is_recreated_or_torn() {
        let codec = Codec { format: Format::Binary, update_mode: UpdateMode::DeleteCreate };
        let down = || RecordError::Down(String::new());
        for (errors, done) in [
            (vec![down(), down()], true),
            (vec![RecordError::OutcomeUnknown(String::new())], true),
            (vec![down(), RecordError::NotARecord], false),
        ] {
            let mut store = Failing(MemoryRecords::new(Duration::from_secs(60)), errors);
            let (mut known, mut value) = (RecordBase::default(), Value { count: 1, name: "a".into() });
            codec.commit(&mut store, NAME, &mut known, &value).unwrap();
            value.count = 2;
            let result = codec.commit(&mut store, NAME, &mut known, &value);
            let there = codec.load::<Value>(&mut store, NAME).unwrap();
            if done {
                assert_eq!(
                    (result, there),
                    (Ok(()), Some((value, RecordBase { version: 2, ..RecordBase::default() })))
                );
            } else {
                assert_eq!((result, known.version), (Err(CodecError::Torn(RecordError::NotARecord)), 1));
                assert_eq!(there, None, "whoever knows version 1 knows by this that it is lost");
            }
        }
    }

    #[test]
    fn update_modes_read_each_others_records() {
        let mut store = MemoryRecords::new(Duration::from_secs(60));
        let (mut known, mut value) = (RecordBase::default(), Value { count: 1, name: "a".into() });
        for (count, update_mode) in
            (2..).zip([UpdateMode::Replace, UpdateMode::Update, UpdateMode::DeleteCreate, UpdateMode::Replace])
        {
            let codec = Codec { format: Format::Binary, update_mode };
            value.count = count;
            codec.commit(&mut store, NAME, &mut known, &value).unwrap();
            let found = store.load(&[NAME]).unwrap().remove(0).unwrap();
            assert_eq!(found.parts.is_empty(), update_mode == UpdateMode::Replace, "a whole, or in parts");
            assert_eq!(found.octets.is_empty(), update_mode != UpdateMode::Replace, "never both");
            // The next value loads it in its own update mode.
            for update_mode in [UpdateMode::DeleteCreate, UpdateMode::Replace, UpdateMode::Update] {
                let loaded =
                    Codec { format: Format::Binary, update_mode }.load::<Value>(&mut store, NAME).unwrap().unwrap();
                assert_eq!(loaded.0, value);
                known = loaded.1;
            }
        }
    }

    #[test]
    fn update_writes_what_has_changed() {
        let codec = Codec { format: Format::Json, update_mode: UpdateMode::Update };
        let mut store = MemoryRecords::new(Duration::from_secs(60));
        let (mut known, mut value) = (RecordBase::default(), Value { count: 1, name: "a".into() });
        codec.commit(&mut store, NAME, &mut known, &value).unwrap();
        // A part of another NF, which this NF does not know.
        let parts = [RecordPart { name: "theirs", octets: b"1" }];
        change(&mut store, NAME, Change::Update { expected: 1, parts: &parts }).unwrap();
        known.version = 2;
        value.count = 2;
        codec.commit(&mut store, NAME, &mut known, &value).unwrap();
        let found = store.load(&[NAME]).unwrap().remove(0).unwrap();
        assert_eq!((found.part("count"), found.part("theirs")), (Some(&b"2"[..]), Some(&b"1"[..])));
        assert!(
            matches!(codec.decode_stored::<Value>(found), Ok((there, _)) if there == value),
            "nor is it in the way"
        );
    }
}
