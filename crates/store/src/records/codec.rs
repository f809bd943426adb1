//! Values of serde as records: what a function loads and commits, by the axes *format* and *change*.

use super::{Change, Format, FormatError, Name, Parts, RecordError, RecordPart, RecordStore, StoredRecord, UpdateMode};
use crate::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// How long a record that was taken out is tried to be put in again.
const PUT_BACK: Duration = Duration::from_secs(5);
/// How long in between.
const PAUSE: Duration = Duration::from_millis(20);

/// How values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// What a value's fields are encoded as.
    pub format: Format,
    /// How a record is changed.
    pub manner: UpdateMode,
}

/// A value as it is kept: octets, or in parts where these are changed one by one or can be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// Octets.
    Whole(Vec<u8>),
    /// Each field's.
    Parts(Parts),
}

/// A record as this function knows it: nothing, before it is committed for the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBase {
    /// Its version.
    pub version: Version,
    /// Its parts, where only what has changed is written.
    parts: Vec<(String, Vec<u8>)>,
    /// It has none, or they are not known: all of it is written.
    whole: bool,
}

/// Why a value was not loaded or committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The place.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The value, or what is there in its place.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// By delete and create: it was taken out and could not be put in again. Only who was about to commit it has it.
    #[error("the record was taken out and could not be put in again: {0}")]
    Torn(RecordError),
}

impl RecordBase {
    /// A record of that version (0: none), of which nothing else is known: all of it is written.
    pub fn at(version: Version) -> Self {
        RecordBase { version, parts: Vec::new(), whole: true }
    }
}

impl Codec {
    /// A value, and what is to be given back with its next commit.
    ///
    /// # Errors
    ///
    /// [`CodecError`].
    pub fn load<T: Serialize + DeserializeOwned>(
        self,
        place: &mut dyn RecordStore,
        name: Name,
    ) -> Result<Option<(T, RecordBase)>, CodecError> {
        match place.load(&[name])?.into_iter().next().flatten() {
            Some(found) => self.found(found).map(Some).map_err(CodecError::Format),
            None => Ok(None),
        }
    }

    /// A value as it is kept.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`].
    pub fn encode<T: Serialize + ?Sized>(self, value: &T) -> Result<Encoded, FormatError> {
        match (self.manner, self.format) {
            (UpdateMode::Replace, Format::Binary | Format::Protobuf) => self.format.encode(value).map(Encoded::Whole),
            _ => self.format.split(value).map(Encoded::Parts),
        }
    }

    /// What is to be written of a value in the place of the one that is known: its parts, of which [`Codec::change`] makes the change.
    pub fn parts<'a>(self, known: &RecordBase, value: &'a Encoded) -> Vec<RecordPart<'a>> {
        match value {
            Encoded::Whole(_) => Vec::new(),
            Encoded::Parts(parts) if self.manner == UpdateMode::Update => parts.changed(&known.parts),
            Encoded::Parts(parts) => parts.all(),
        }
    }

    /// The change that commits a value in the place of the one that is known, for who commits many in one go. By delete and create
    /// one that is there is taken out first, and put in when that is done (`taken_out`).
    pub fn change<'a>(
        self,
        known: &RecordBase,
        value: &'a Encoded,
        parts: &'a [RecordPart<'a>],
        taken_out: bool,
    ) -> Change<'a> {
        let expected = known.version;
        match (value, self.manner) {
            (Encoded::Whole(octets), _) => Change::Commit { expected, octets },
            (Encoded::Parts(_), UpdateMode::Update) if !known.whole => Change::Update { expected, parts },
            (Encoded::Parts(_), UpdateMode::DeleteCreate) if taken_out => Change::Create { before: expected, parts },
            (Encoded::Parts(_), UpdateMode::DeleteCreate) if expected != 0 => Change::Remove { expected },
            (Encoded::Parts(_), _) => Change::Replace { expected, parts },
        }
    }

    /// The value of a record that was loaded.
    ///
    /// # Errors
    ///
    /// [`FormatError`].
    pub fn found<T: Serialize + DeserializeOwned>(self, found: StoredRecord) -> Result<(T, RecordBase), FormatError> {
        if found.parts.is_empty() {
            let value = self.format.decode(&found.octets)?;
            return Ok((value, RecordBase { version: found.version, parts: Vec::new(), whole: true }));
        }
        let value: T = self.format.join(&found)?;
        let parts = match (self.manner, self.format) {
            (UpdateMode::Replace | UpdateMode::DeleteCreate, _) => Vec::new(),
            // What was BSON in between may have its fields in another order.
            (UpdateMode::Update, Format::Json) => self.format.split(&value)?.owned(),
            (UpdateMode::Update, _) => found.parts,
        };
        Ok((value, RecordBase { version: found.version, parts, whole: false }))
    }

    /// Commits a value in the place of the one that is known, which is the new one then.
    ///
    /// # Errors
    ///
    /// [`CodecError`]; what is known is the same then.
    pub fn commit<T: Serialize + ?Sized>(
        self,
        place: &mut dyn RecordStore,
        name: Name,
        known: &mut RecordBase,
        value: &T,
    ) -> Result<(), CodecError> {
        let value = self.encode(value)?;
        let parts = self.parts(known, &value);
        let first = self.change(known, &value, &parts, false);
        let mut version = change(place, name, first)?;
        if first.removes() {
            version = put_back(place, name, known.version, &parts).map_err(CodecError::Torn)?;
        }
        (known.version, known.whole) = (version, false);
        if let (UpdateMode::Update, Encoded::Parts(parts)) = (self.manner, value) {
            known.parts = parts.owned();
        }
        Ok(())
    }
}

fn change(place: &mut dyn RecordStore, name: Name, change: Change<'_>) -> Result<Version, RecordError> {
    place.change(&[(name, change)]).remove(0)
}

/// Creates a record that was taken out a moment ago. If an answer was lost, what is there with its version is it.
fn put_back(
    place: &mut dyn RecordStore,
    name: Name,
    before: Version,
    parts: &[RecordPart<'_>],
) -> Result<Version, RecordError> {
    let until = Instant::now() + PUT_BACK;
    let create = Change::Create { before, parts };
    let mut lost = false;
    loop {
        let error = match change(place, name, create) {
            Err(RecordError::Conflict) if lost => {
                let there = place.load(&[name])?.remove(0).map(|found| found.version);
                return if there == Some(create.result()) { Ok(create.result()) } else { Err(RecordError::Conflict) };
            }
            Err(error) if error.is_retryable() => error,
            done => return done,
        };
        lost |= matches!(error, RecordError::OutcomeUnknown(_));
        if Instant::now() >= until {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
}

impl Parts {
    /// The parts for themselves.
    fn owned(self) -> Vec<(String, Vec<u8>)> {
        self.0.into_iter().map(|(name, octets)| (name.to_owned(), octets)).collect()
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

    /// A place that refuses creations with these errors, of which a silent one was carried out.
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
    fn what_was_taken_out_is_put_in_again_or_told() {
        let codec = Codec { format: Format::Binary, manner: UpdateMode::DeleteCreate };
        let down = || RecordError::Down(String::new());
        for (errors, done) in [
            (vec![down(), down()], true),
            (vec![RecordError::OutcomeUnknown(String::new())], true),
            (vec![down(), RecordError::NotARecord], false),
        ] {
            let mut place = Failing(MemoryRecords::new(Duration::from_secs(60)), errors);
            let (mut known, mut value) = (RecordBase::default(), Value { count: 1, name: "a".into() });
            codec.commit(&mut place, NAME, &mut known, &value).unwrap();
            value.count = 2;
            let result = codec.commit(&mut place, NAME, &mut known, &value);
            let there = codec.load::<Value>(&mut place, NAME).unwrap();
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
    fn who_changes_records_otherwise_reads_those_that_there_are() {
        let mut place = MemoryRecords::new(Duration::from_secs(60));
        let (mut known, mut value) = (RecordBase::default(), Value { count: 1, name: "a".into() });
        for (count, manner) in
            (2..).zip([UpdateMode::Replace, UpdateMode::Update, UpdateMode::DeleteCreate, UpdateMode::Replace])
        {
            let codec = Codec { format: Format::Binary, manner };
            value.count = count;
            codec.commit(&mut place, NAME, &mut known, &value).unwrap();
            let found = place.load(&[NAME]).unwrap().remove(0).unwrap();
            assert_eq!(found.parts.is_empty(), manner == UpdateMode::Replace, "a whole, or in parts");
            assert_eq!(found.octets.is_empty(), manner != UpdateMode::Replace, "never both");
            // The next one loads it in its own manner.
            for manner in [UpdateMode::DeleteCreate, UpdateMode::Replace, UpdateMode::Update] {
                let loaded = Codec { format: Format::Binary, manner }.load::<Value>(&mut place, NAME).unwrap().unwrap();
                assert_eq!(loaded.0, value);
                known = loaded.1;
            }
        }
    }

    #[test]
    fn an_update_writes_what_has_changed() {
        let codec = Codec { format: Format::Json, manner: UpdateMode::Update };
        let mut place = MemoryRecords::new(Duration::from_secs(60));
        let (mut known, mut value) = (RecordBase::default(), Value { count: 1, name: "a".into() });
        codec.commit(&mut place, NAME, &mut known, &value).unwrap();
        // Another function's part, which this one does not know of.
        let parts = [RecordPart { name: "theirs", octets: b"1" }];
        change(&mut place, NAME, Change::Update { expected: 1, parts: &parts }).unwrap();
        known.version = 2;
        value.count = 2;
        codec.commit(&mut place, NAME, &mut known, &value).unwrap();
        let found = place.load(&[NAME]).unwrap().remove(0).unwrap();
        assert_eq!((found.part("count"), found.part("theirs")), (Some(&b"2"[..]), Some(&b"1"[..])));
        assert!(matches!(codec.found::<Value>(found), Ok((there, _)) if there == value), "nor is it in the way");
    }
}
