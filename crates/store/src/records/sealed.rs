//! Records whose contents are sealed (encrypted) before they leave the process.
//!
//! Sealing works with every store, format and update mode. Each whole record and each part is
//! sealed separately, so parts can still be updated one by one. Names of records and parts, and
//! versions, stay in clear. Sealing does not detect the replacement of a record by an older
//! version; versions do.

use super::{Change, Name, Operations, RecordError, RecordPart, RecordStore, StoredRecord};
use crate::Version;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::Arc;
use vireo_sealing::{OpenError, SealingKey};

/// Record that proves whether two processes have the same key.
const PROOF: Name = Name { collection: "sealing", id: 0 };
const PROVED: &[u8] = b"the key of these records";

/// A sealing key that NFs and their workers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsKey(Arc<SealingKey>);

impl From<SealingKey> for RecordsKey {
    fn from(key: SealingKey) -> Self {
        RecordsKey(Arc::new(key))
    }
}

impl RecordsKey {
    /// Seals bytes for a place and appends them to `out`.
    pub(super) fn seal_into(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) {
        self.0.seal_into(place, plain, out);
    }

    /// Opens bytes that were sealed for a place.
    pub(super) fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        self.0.open(place, sealed).map(|mut octets| std::mem::take(&mut *octets))
    }
}

/// For worker processes, which share the memory of their host. Must not be written to a disk or a
/// network.
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

/// A record store with sealed contents.
pub struct Sealed<R> {
    inner: R,
    key: RecordsKey,
    /// True if the store accepts only JSON: sealed bytes become a string of hexadecimal digits.
    is_json: bool,
    /// Buffer for the associated data.
    associated_data: String,
}

impl<R: std::fmt::Debug> std::fmt::Debug for Sealed<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("inner", &self.inner).field("key", &self.key).finish_non_exhaustive()
    }
}

impl<R: Clone> Clone for Sealed<R> {
    fn clone(&self) -> Self {
        Sealed {
            inner: self.inner.clone(),
            key: self.key.clone(),
            is_json: self.is_json,
            associated_data: String::new(),
        }
    }
}

impl<R: RecordStore> Sealed<R> {
    /// Seals the records of `inner` with `key`, as JSON strings if `is_json`.
    pub fn new(inner: R, key: RecordsKey, is_json: bool) -> Self {
        Sealed { inner, key, is_json, associated_data: String::new() }
    }

    /// Checks that the store was sealed with this key.
    ///
    /// The first process of a store writes the record that later processes check.
    ///
    /// # Errors
    ///
    /// Returns [`RecordError::OtherKey`] for another key, or the error of the store.
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
                // Another process wrote it first.
                Err(RecordError::Conflict) => {}
                done => return done.map(drop),
            }
        }
    }

    /// Returns the underlying store.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// Builds the associated data of a record or part: sealed bytes open only in their place.
    fn set_associated_data(&mut self, name: Name, part: &str) {
        self.associated_data.clear();
        // Writing to a string does not fail.
        let _ = write!(self.associated_data, "records/{}/{}/{part}", name.collection, name.id);
    }

    fn seal(&mut self, name: Name, part: &str, octets: &[u8]) -> Vec<u8> {
        self.set_associated_data(name, part);
        let sealed = self.key.0.seal(self.associated_data.as_bytes(), octets);
        if self.is_json { format!("\"{}\"", hex::encode(sealed)).into_bytes() } else { sealed }
    }

    fn open(&mut self, name: Name, part: &str, sealed: &[u8]) -> Result<Vec<u8>, RecordError> {
        self.set_associated_data(name, part);
        let digits;
        let sealed = match sealed {
            [b'"', text @ .., b'"'] if self.is_json => {
                digits = hex::decode(text).map_err(|_| RecordError::NotARecord)?;
                &digits
            }
            sealed => sealed,
        };
        match self.key.0.open(self.associated_data.as_bytes(), sealed) {
            Ok(mut octets) => Ok(std::mem::take(&mut *octets)),
            Err(OpenError::OtherKey { .. }) => Err(RecordError::OtherKey),
            Err(OpenError::NotSealed) => Err(RecordError::NotSealed),
            Err(OpenError::Damaged) => Err(RecordError::NotARecord),
        }
    }

    fn opened(&mut self, name: Name, found: StoredRecord) -> Result<StoredRecord, RecordError> {
        let StoredRecord { version, octets, parts } = found;
        // A record is either whole or in parts.
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
        // Contents that are moved to another record or part do not open there.
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
