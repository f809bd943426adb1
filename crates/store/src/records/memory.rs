use super::{Change, Name, Operations, RecordError, RecordStore, StoredRecord};
use crate::Version;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A record and the end of its lifetime.
type ExpiringRecord = (StoredRecord, Instant);

/// Records in the memory of this process. Clones are handles of the same store.
#[derive(Clone, Debug)]
pub struct MemoryRecords {
    records: Arc<Mutex<FxHashMap<Name, ExpiringRecord>>>,
    life: Duration,
    operations: Operations,
}

impl MemoryRecords {
    /// Creates an empty store whose records have the lifetime `life`.
    pub fn new(life: Duration) -> Self {
        MemoryRecords { records: Arc::default(), life, operations: Operations::default() }
    }
}

impl RecordStore for MemoryRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.operations.reads += names.len() as u64;
        self.operations.round_trips += 1;
        let now = Instant::now();
        // Every section under the lock leaves the map consistent, so poisoning is harmless.
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let mut load = |name: &Name| {
            let expired = records.get(name).is_some_and(|(_, end)| *end <= now);
            if expired {
                records.remove(name);
            }
            records.get(name).map(|(found, _)| found.clone())
        };
        Ok(names.iter().map(&mut load).collect())
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.operations.round_trips += 1;
        self.operations.changed(changes);
        let now = Instant::now();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let mut one = |(name, change): &(Name, Change<'_>)| {
            let there = records.remove(name).filter(|(_, end)| *end > now);
            let version = there.as_ref().map_or(0, |(found, _)| found.version);
            if version != change.expected() || (change.removes() && version == 0) {
                records.extend(there.map(|there| (*name, there)));
                return Err(RecordError::Conflict);
            }
            if !change.removes() {
                let before = there.filter(|_| !change.is_whole()).map(|(found, _)| found);
                records.insert(*name, (changed(before.unwrap_or_default(), change), now + self.life));
            }
            Ok(change.result())
        };
        changes.iter().map(&mut one).collect()
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.operations.round_trips += 1;
        let now = Instant::now();
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let there = records.iter().filter(|(name, (_, end))| name.collection == collection && *end > now);
        Ok(there.map(|(name, _)| name.id).collect())
    }

    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        Ok(Some("memory".into()))
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}

/// Returns a record after a change.
fn changed(mut found: StoredRecord, change: &Change<'_>) -> StoredRecord {
    found.version = change.result();
    if let Some(octets) = change.octets() {
        found.octets = octets.to_vec();
    }
    for part in change.parts() {
        found.parts.retain(|(name, _)| name != part.name);
        found.parts.push((part.name.to_owned(), part.octets.to_vec()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_the_contract() {
        let store = MemoryRecords::new(Duration::from_secs(60));
        let (mut one, mut other) = (store.clone(), store);
        crate::conformance::records(&mut one, &mut other);
        crate::conformance::values(&mut one, &crate::conformance::FORMATS);
    }

    #[test]
    fn record_expires_without_commits() {
        let mut store = MemoryRecords::new(Duration::from_millis(100));
        crate::conformance::expiry_suite(&mut store, Duration::from_millis(100));
    }
}
