//! Database operations for several UEs in one round trip.
//!
//! The records are read before the steps, and the results are stored after them. Each record is
//! compared and swapped by itself; only the round trip is shared.

use super::record::{EncodedUeRecord, stored};
use super::{ContextDatabase, ContextDatabaseError, name, store_of};
use rustc_hash::FxHashMap;
use std::time::Duration;
use vireo_ops::ue_record::UeRecord;
use vireo_store::Version;
use vireo_store::records::{RecordError, StoredRecord};

/// Validity of prefetched records. A commit detects changes at any age.
const PREFETCH_LIFETIME: Duration = Duration::from_secs(2);
/// Number of attempts to write a part of a record that the SMF keeps changing, before a later
/// retry.
const MAX_ATTEMPTS: u32 = 16;

/// Records prefetched in one operation.
pub(super) struct PrefetchedRecords {
    at: std::time::Instant,
    /// Share of one record in the time of the operation.
    took: Duration,
    records: FxHashMap<u64, StoredRecord>,
}

impl Default for PrefetchedRecords {
    fn default() -> Self {
        PrefetchedRecords { at: std::time::Instant::now(), took: Duration::ZERO, records: FxHashMap::default() }
    }
}

/// A record that was prefetched.
#[derive(Debug)]
pub(in crate::worker) struct PrefetchedRecord {
    /// Share of this record in the time of the operation.
    pub(in crate::worker) took: Duration,
    pub(in crate::worker) version: Version,
    pub(in crate::worker) stored: UeRecord,
}

impl ContextDatabase {
    /// Prefetches records in one operation. Records that are missing are read when needed.
    pub(in crate::worker) fn prefetch(&mut self, ids: &[u64]) {
        self.prefetched = PrefetchedRecords::default();
        let names: Vec<_> = ids.iter().map(|id| name(&self.config, *id)).collect();
        let Ok(found) = store_of(&mut self.records).and_then(|records| records.load(&names)) else { return };
        self.prefetched.took = self.prefetched.at.elapsed() / (names.len() as u32).max(1);
        self.prefetched.records = ids.iter().zip(found).filter_map(|(id, found)| Some((*id, found?))).collect();
    }

    /// Returns a prefetched record if it has the last processed input.
    pub(in crate::worker) fn prefetched(&mut self, id: u64, consumed: u64) -> Option<PrefetchedRecord> {
        let found =
            self.prefetched.records.remove(&id).filter(|_| self.prefetched.at.elapsed() <= PREFETCH_LIFETIME)?;
        let version = found.version;
        let stored = stored(&self.config, found).ok().filter(|stored| stored.consumed == consumed)?;
        Some(PrefetchedRecord { took: self.prefetched.took, version, stored })
    }

    /// Commits a record over this version.
    fn write(&mut self, id: u64, expected: Version, stored: &UeRecord) -> Result<(), ContextDatabaseError> {
        let kept = EncodedUeRecord::new(&self.config, expected, stored)?;
        if stored.context.is_empty() && self.writes_behind() {
            // Earlier writes of the UE must complete first.
            store_of(&mut self.records)?.load(&[name(&self.config, id)])?;
        }
        let handle = if stored.context.is_empty() { &mut self.brief } else { &mut self.records };
        let parts = kept.parts();
        store_of(handle)?.change(&[(name(&self.config, id), kept.change(&parts))]).remove(0)?;
        Ok(())
    }

    /// Commits records over their versions in one operation. Records of removed UEs, which live
    /// shorter, take a second operation.
    fn write_all(&mut self, all: &[((u64, Version), UeRecord)]) -> Vec<Result<(), ContextDatabaseError>> {
        let kept = all.iter().map(|((_, expected), stored)| EncodedUeRecord::new(&self.config, *expected, stored));
        let kept = match kept.collect::<Result<Vec<_>, _>>() {
            Ok(kept) if kept.len() > 1 && !self.writes_behind() => kept,
            _ => return all.iter().map(|((id, expected), stored)| self.write(*id, *expected, stored)).collect(),
        };
        let parts: Vec<_> = kept.iter().map(EncodedUeRecord::parts).collect();
        // The outcome of an operation without response is unknown.
        let silent = || RecordError::OutcomeUnknown("it has answered less than it was asked".into());
        let mut done: Vec<_> = all.iter().map(|_| Err(silent().into())).collect();
        for (handle, gone) in [(&mut self.records, false), (&mut self.brief, true)] {
            let places: Vec<_> = (0..all.len()).filter(|place| all[*place].1.context.is_empty() == gone).collect();
            let change = |place: &usize| (name(&self.config, all[*place].0.0), kept[*place].change(&parts[*place]));
            let changes: Vec<_> = places.iter().map(change).collect();
            let answers = match store_of(handle) {
                _ if changes.is_empty() => continue,
                Ok(records) => records.change(&changes),
                Err(error) => vec![Err(error); changes.len()],
            };
            let each = places.into_iter().zip(answers);
            each.for_each(|(place, answer)| done[place] = answer.map(|_| ()).map_err(ContextDatabaseError::from));
        }
        done
    }

    /// Commits the results of steps over their versions. Returns the content of each record
    /// afterwards: this result, or that of the same step by a dead worker or by a commit whose
    /// response was lost. Keeps changes of the SMF in a shared record.
    pub(in crate::worker) fn commit_all(
        &mut self,
        all: Vec<((u64, Version), UeRecord)>,
    ) -> Vec<Result<Box<UeRecord>, ContextDatabaseError>> {
        let (done, alone) = (self.write_all(&all), all.len() == 1);
        let each = all.into_iter().zip(done).map(|((place, stored), done)| match done {
            // The outcome is determined when the event is processed again, alone.
            Err(ContextDatabaseError::Database(error)) if error.is_retryable() && !alone => Err(error.into()),
            done => self.content_after_commit(place, stored, done),
        });
        each.collect()
    }

    /// Commits one record.
    #[cfg(test)]
    pub(in crate::worker) fn commit(
        &mut self,
        place: (u64, Version),
        stored: UeRecord,
    ) -> Result<Box<UeRecord>, ContextDatabaseError> {
        self.commit_all(vec![(place, stored)]).remove(0)
    }

    /// Returns the content of a record after an attempt to commit it.
    fn content_after_commit(
        &mut self,
        (id, mut expected): (u64, Version),
        stored: UeRecord,
        mut done: Result<(), ContextDatabaseError>,
    ) -> Result<Box<UeRecord>, ContextDatabaseError> {
        let is_shared = self.config.records.is_shared();
        for _ in 0..MAX_ATTEMPTS {
            let error = match done {
                Ok(()) => return Ok(Box::new(stored)),
                Err(ContextDatabaseError::Database(
                    error @ (RecordError::Conflict | RecordError::OutcomeUnknown(_)),
                )) => error,
                Err(error) => return Err(error),
            };
            let conflict = error == RecordError::Conflict;
            match self.read(id)? {
                Some((_, there)) if there.owner == stored.owner && there.consumed == stored.consumed => {
                    return Ok(Box::new(there));
                }
                Some((version, _)) if version == expected && !conflict => return Err(error.into()),
                None if expected == 0 && !conflict => return Err(error.into()),
                Some((version, there)) if is_shared && there.owner == stored.owner && there.step < stored.step => {
                    expected = version;
                }
                // Writers of a dead worker wrote after its death was detected.
                Some((_, there)) if self.writes_behind() && there.owner == stored.owner => {
                    return Err(RecordError::Down("something was written late".into()).into());
                }
                _ => return Err(ContextDatabaseError::Foreign),
            }
            done = self.write(id, expected, &stored);
        }
        Err(RecordError::Down("others commit to the same record all the time".into()).into())
    }
}
