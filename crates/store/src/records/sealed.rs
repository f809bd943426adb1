//! Records whose content is sealed before it leaves the process, whatever the place, the format and the manner of change.
//!
//! Whole records and each part are sealed for themselves, so parts are still changed one by one. Names, versions and the
//! names of parts stay in clear. A record that was replaced is not told from its successor by sealing: versions do that.

use super::{Change, Name, Operations, RecordError, RecordPart, RecordStore, StoredRecord};
use crate::Version;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::Arc;
use vireo_sealing::{OpenError, SealingKey};

/// What shows whether two processes have the same key.
const PROOF: Name = Name { collection: "sealing", id: 0 };
const PROVED: &[u8] = b"the key of these records";

/// A sealing key that functions and their workers have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsKey(Arc<SealingKey>);

impl From<SealingKey> for RecordsKey {
    fn from(key: SealingKey) -> Self {
        RecordsKey(Arc::new(key))
    }
}

impl RecordsKey {
    /// Seals octets for a place and appends them.
    pub(super) fn seal_into(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) {
        self.0.seal_into(place, plain, out);
    }

    /// Opens what was sealed for a place.
    pub(super) fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        self.0.open(place, sealed).map(|mut octets| std::mem::take(&mut *octets))
    }
}

/// To worker processes, which share their host's memory: never to a disk or a network.
impl Serialize for RecordsKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.octets().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RecordsKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(SealingKey::new(<[u8; 32]>::deserialize(deserializer)?).into())
    }
}

/// A place of records, sealed.
pub struct Sealed<R> {
    inner: R,
    key: RecordsKey,
    /// The place has JSON alone: sealed octets are a string of hexadecimal digits.
    is_json: bool,
    /// Buffer for the associated data.
    of: String,
}

impl<R: std::fmt::Debug> std::fmt::Debug for Sealed<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("inner", &self.inner).field("key", &self.key).finish_non_exhaustive()
    }
}

impl<R: Clone> Clone for Sealed<R> {
    fn clone(&self) -> Self {
        Sealed { inner: self.inner.clone(), key: self.key.clone(), is_json: self.is_json, of: String::new() }
    }
}

impl<R: RecordStore> Sealed<R> {
    /// The records of `inner`, sealed with `key`; as JSON strings if it keeps nothing else.
    pub fn new(inner: R, key: RecordsKey, is_json: bool) -> Self {
        Sealed { inner, key, is_json, of: String::new() }
    }

    /// Checks that what is there was sealed with this key; the first process of a place leaves what others check.
    ///
    /// # Errors
    ///
    /// [`RecordError::OtherKey`], and what the place refuses.
    pub fn prove(&mut self) -> Result<(), RecordError> {
        loop {
            let found = self.load(&[PROOF])?.pop().flatten();
            let expected = match found {
                Some(found) if found.octets == PROVED => return Ok(()),
                Some(_) => return Err(RecordError::NotARecord),
                None => 0,
            };
            let change = Change::Commit { expected, octets: PROVED };
            match self.change(&[(PROOF, change)]).remove(0) {
                // Another process was first.
                Err(RecordError::Conflict) => {}
                done => return done.map(drop),
            }
        }
    }

    /// The records beneath.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// The associated data of a record, or of a part of it: sealed octets open in their place alone.
    fn place(&mut self, name: Name, part: &str) {
        self.of.clear();
        // Writing to a string does not fail.
        let _ = write!(self.of, "records/{}/{}/{part}", name.collection, name.id);
    }

    fn seal(&mut self, name: Name, part: &str, octets: &[u8]) -> Vec<u8> {
        self.place(name, part);
        let sealed = self.key.0.seal(self.of.as_bytes(), octets);
        if self.is_json { format!("\"{}\"", hex::encode(sealed)).into_bytes() } else { sealed }
    }

    fn open(&mut self, name: Name, part: &str, sealed: &[u8]) -> Result<Vec<u8>, RecordError> {
        self.place(name, part);
        let digits;
        let sealed = match sealed {
            [b'"', text @ .., b'"'] if self.is_json => {
                digits = hex::decode(text).map_err(|_| RecordError::NotARecord)?;
                &digits
            }
            sealed => sealed,
        };
        match self.key.0.open(self.of.as_bytes(), sealed) {
            Ok(mut octets) => Ok(std::mem::take(&mut *octets)),
            Err(OpenError::OtherKey { .. }) => Err(RecordError::OtherKey),
            Err(OpenError::NotSealed) => Err(RecordError::NotSealed),
            Err(OpenError::Damaged) => Err(RecordError::NotARecord),
        }
    }

    fn opened(&mut self, name: Name, found: StoredRecord) -> Result<StoredRecord, RecordError> {
        let StoredRecord { version, octets, parts } = found;
        // A record is a whole or in parts.
        let octets = if parts.is_empty() { self.open(name, "", &octets)? } else { octets };
        let mut opened = Vec::with_capacity(parts.len());
        for (part, octets) in parts {
            let octets = self.open(name, &part, &octets)?;
            opened.push((part, octets));
        }
        Ok(StoredRecord { version, octets, parts: opened })
    }
}

impl<R: RecordStore> RecordStore for Sealed<R> {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        let found = self.inner.load(names)?;
        let of = names.iter().zip(found);
        of.map(|(name, found)| found.map(|found| self.opened(*name, found)).transpose()).collect()
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        let mut sealed: Vec<(Vec<u8>, Vec<Vec<u8>>)> = Vec::with_capacity(changes.len());
        for (name, change) in changes {
            let whole = change.octets().map(|octets| self.seal(*name, "", octets)).unwrap_or_default();
            sealed.push((whole, change.parts().iter().map(|part| self.seal(*name, part.name, part.octets)).collect()));
        }
        let mut parts: Vec<Vec<RecordPart<'_>>> = Vec::with_capacity(changes.len());
        for ((_, change), (_, sealed)) in changes.iter().zip(&sealed) {
            let of = change.parts().iter().zip(sealed);
            parts.push(of.map(|(part, octets)| RecordPart { name: part.name, octets }).collect());
        }
        let changes: Vec<(Name, Change<'_>)> = (changes.iter().zip(sealed.iter().zip(&parts)))
            .map(|((name, change), ((octets, _), parts))| (*name, change.with(octets, parts)))
            .collect();
        self.inner.change(&changes)
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.inner.list_ids(collection)
    }

    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        self.inner.incarnation()
    }

    fn operations(&self) -> Operations {
        self.inner.operations()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::MemoryRecords;
    use std::time::Duration;

    const LIFE: Duration = Duration::from_secs(60);

    fn key(octet: u8) -> RecordsKey {
        SealingKey::new([octet; 32]).into()
    }

    #[test]
    fn sealed_records_keep_the_contract() {
        for is_json in [false, true] {
            let sealed = Sealed::new(MemoryRecords::new(LIFE), key(1), is_json);
            let (mut one, mut other) = (sealed.clone(), sealed);
            crate::conformance::records(&mut one, &mut other);
            crate::conformance::values(&mut one, &crate::conformance::FORMATS);
        }
    }

    #[test]
    fn sealed_content_does_not_reach_the_place() {
        let name = Name { collection: "amf", id: 3 };
        let mut place = MemoryRecords::new(LIFE);
        let mut sealed = Sealed::new(place.clone(), key(1), false);
        let parts = [RecordPart { name: "kamf", octets: b"very secret" }];
        sealed.change(&[(name, Change::Replace { expected: 0, parts: &parts })]).remove(0).unwrap();
        let there = place.load(&[name]).unwrap().remove(0).unwrap();
        assert!(!there.part("kamf").unwrap().windows(6).any(|window| window == b"secret"));
        assert_eq!(sealed.load(&[name]).unwrap()[0].as_ref().unwrap().part("kamf"), Some(&b"very secret"[..]));
        // What is moved to another record or part is not taken for its content.
        let moved = [RecordPart { name: "kamf", octets: there.part("kamf").unwrap() }];
        let other = Name { id: 4, ..name };
        place.change(&[(other, Change::Replace { expected: 0, parts: &moved })]).remove(0).unwrap();
        assert_eq!(sealed.load(&[other]), Err(RecordError::NotARecord));
        place
            .change(&[(Name { id: 5, ..name }, Change::Commit { expected: 0, octets: b"in clear" })])
            .remove(0)
            .unwrap();
        assert_eq!(sealed.load(&[Name { id: 5, ..name }]), Err(RecordError::NotSealed));
    }

    #[test]
    fn another_key_is_refused_by_name() {
        let place = MemoryRecords::new(LIFE);
        let sealed = |octet| Sealed::new(place.clone(), key(octet), false);
        assert_eq!((sealed(1).prove(), sealed(1).prove()), (Ok(()), Ok(())));
        assert_eq!(sealed(2).prove(), Err(RecordError::OtherKey));
    }
}
