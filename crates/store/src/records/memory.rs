use super::{Change, Found, Name, Operations, RecordError, Records, next_version};
use crate::Version;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A record and when its life ends.
type Kept = (Found, Instant);

/// Records in the memory of this process: clones are ways to the same place.
#[derive(Clone, Debug)]
pub struct MemoryRecords {
    records: Arc<Mutex<FxHashMap<Name, Kept>>>,
    life: Duration,
    operations: Operations,
}

impl MemoryRecords {
    /// An empty place whose records live so long.
    pub fn new(life: Duration) -> Self {
        MemoryRecords { records: Arc::default(), life, operations: Operations::default() }
    }
}

impl Records for MemoryRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<Found>>, RecordError> {
        self.operations.reads += names.len() as u64;
        self.operations.round_trips += 1;
        let now = Instant::now();
        // What is done under the lock leaves it whole.
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
        let now = Instant::now();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let mut one = |name: Name, change: Change<'_>| {
            let there = records.get(&name).filter(|(_, end)| *end > now).map_or(0, |(found, _)| found.version);
            let (Change::Commit { expected, .. } | Change::Remove { expected }) = change;
            if there != expected || matches!(change, Change::Remove { expected: 0 }) {
                return Err(RecordError::Conflict);
            }
            match change {
                Change::Commit { octets, .. } => {
                    let found = Found { version: next_version(expected), octets: octets.to_vec() };
                    let version = found.version;
                    records.insert(name, (found, now + self.life));
                    Ok(version)
                }
                Change::Remove { .. } => {
                    records.remove(&name);
                    Ok(0)
                }
            }
        };
        let done = changes.iter().map(|(name, change)| one(*name, *change)).collect();
        let commits = changes.iter().filter(|(_, change)| matches!(change, Change::Commit { .. })).count() as u64;
        self.operations.writes += commits;
        self.operations.removals += changes.len() as u64 - commits;
        done
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_the_contract() {
        let store = MemoryRecords::new(Duration::from_secs(60));
        let (mut one, mut other) = (store.clone(), store);
        crate::conformance::records(&mut one, &mut other);
    }

    #[test]
    fn a_record_that_nobody_commits_any_more_ends() {
        let mut store = MemoryRecords::new(Duration::from_millis(100));
        crate::conformance::lives(&mut store, Duration::from_millis(100));
    }
}
