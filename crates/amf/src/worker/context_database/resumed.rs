//! Resumption or removal of the records of a host's previous run.

use super::record::{EncodedUeRecord, stored};
use super::{BATCH, ContextDatabaseConfig, collection, name};
use vireo_ops::ue_record::{RecoveryLog, UeRecord};
use vireo_store::Version;
use vireo_store::records::{Change, Name, RecordError, RecordPart, RecordStore, StoredRecord};
use vireo_types::Instant;

/// Maximum number of conflicts that are retried: a commit of the previous run may still be in
/// flight.
const MAX_RETRIES: usize = 1024;

/// Decision about a record.
#[derive(Debug)]
pub(crate) enum ResumeDecision<T> {
    /// The host keeps the record with this context.
    Resumed {
        /// Value for the caller.
        with: T,
        context: Vec<u8>,
        deadline: Option<Instant>,
    },
    /// The record is removed.
    Nothing,
}

/// Records of the host's previous run. A name leaves the list when its record is claimed or
/// removed.
#[derive(Debug)]
pub(crate) struct Resumption<'a> {
    config: &'a ContextDatabaseConfig,
    waiting: Vec<Name>,
    retries: usize,
    /// Number of removed records, without those of UEs that were removed before.
    pub(crate) removed: usize,
    /// Number of damaged records and of those in another format. Those with a version were removed.
    pub(crate) damaged: usize,
}

impl<'a> Resumption<'a> {
    /// Lists the records.
    ///
    /// # Errors
    ///
    /// Returns an error if the database does not answer.
    pub(crate) fn list(config: &ContextDatabaseConfig, records: &mut dyn RecordStore) -> Result<Vec<u64>, RecordError> {
        records.list_ids(collection(config))
    }

    /// Creates a list of records with these numbers.
    pub(crate) fn new(config: &'a ContextDatabaseConfig, numbers: Vec<u64>) -> Self {
        let waiting = numbers.into_iter().map(|id| name(config, id)).collect();
        Resumption { config, waiting, retries: 0, removed: 0, damaged: 0 }
    }

    /// Returns true if no record is left.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Processes some records. Returns those that this host has claimed, and an error if the rest
    /// must be retried.
    pub(crate) fn next<T>(
        &mut self,
        records: &mut dyn RecordStore,
        mut becomes: impl FnMut(&UeRecord) -> ResumeDecision<T>,
    ) -> (Vec<(u64, T)>, Result<(), RecordError>) {
        let part = self.waiting.split_off(self.waiting.len().saturating_sub(BATCH));
        let found = match load(records, &part) {
            Ok(found) => found,
            Err(error) => {
                self.waiting.extend(part);
                return (Vec::new(), Err(error));
            }
        };
        let mut wanted = Vec::with_capacity(part.len());
        for (name, found) in part.into_iter().zip(found) {
            let found = match found {
                LoadedRecord::Record(found) => found,
                LoadedRecord::Nothing => continue,
                LoadedRecord::Foreign => {
                    self.damaged += 1;
                    continue;
                }
            };
            let version = found.version;
            let stored = stored(self.config, found);
            self.damaged += usize::from(stored.is_err());
            let is_gone = stored.as_ref().is_ok_and(|stored| stored.context.is_empty());
            let resumed = stored.ok().and_then(|stored| match becomes(&stored) {
                ResumeDecision::Resumed { with, context, deadline } => {
                    let mine = self.mine(stored, context, deadline);
                    Some((with, EncodedUeRecord::new(self.config, version, &mine).ok()?))
                }
                ResumeDecision::Nothing => None,
            });
            wanted.push(Replacement { name, version, resumed, is_gone });
        }
        self.change(records, wanted)
    }

    /// Returns the UE as owned by this host, without a procedure in progress.
    fn mine(&self, stored: UeRecord, context: Vec<u8>, deadline: Option<Instant>) -> UeRecord {
        let (owner, step) = (self.config.owner, stored.step + 1);
        let recovery = RecoveryLog::default();
        UeRecord { owner, step, deadline, recovery, context, known: stored.known, ..UeRecord::default() }
    }

    fn change<T>(
        &mut self,
        records: &mut dyn RecordStore,
        wanted: Vec<Replacement<T>>,
    ) -> (Vec<(u64, T)>, Result<(), RecordError>) {
        let (mut taken, mut result) = (Vec::with_capacity(wanted.len()), Ok(()));
        let done = {
            let all: Vec<_> = wanted.iter().map(Replacement::parts).collect();
            let changes =
                wanted.iter().zip(&all).map(|(Replacement { name, version, resumed, .. }, parts)| match resumed {
                    Some((_, kept)) => (*name, kept.change(parts)),
                    None => (*name, Change::Remove { expected: *version }),
                });
            let changes: Vec<(Name, Change<'_>)> = changes.collect();
            if changes.is_empty() { Vec::new() } else { records.change(&changes) }
        };
        for (Replacement { name, resumed, is_gone, .. }, done) in wanted.into_iter().zip(done) {
            match (done, resumed) {
                (Ok(_), Some((with, _))) => taken.push((name.id, with)),
                (Ok(_), None) => self.removed += usize::from(!is_gone),
                (Err(RecordError::Conflict), _) if self.retries < MAX_RETRIES => {
                    self.retries += 1;
                    self.waiting.push(name);
                }
                (Err(error), _) => {
                    self.waiting.push(name);
                    result = Err(error);
                }
            }
        }
        (taken, result)
    }

    /// Removes the records.
    ///
    /// # Errors
    ///
    /// Returns an error if a database operation fails.
    pub(crate) fn remove(&mut self, records: &mut dyn RecordStore) -> Result<(), RecordError> {
        while !self.is_done() {
            self.next(records, |_| ResumeDecision::<()>::Nothing).1?;
        }
        Ok(())
    }
}

/// A record and its replacement; `None`: it is removed.
struct Replacement<T> {
    name: Name,
    version: Version,
    resumed: Option<(T, EncodedUeRecord)>,
    /// True if the UE was removed before.
    is_gone: bool,
}

impl<T> Replacement<T> {
    fn parts(&self) -> Vec<RecordPart<'_>> {
        self.resumed.as_ref().map_or_else(Vec::new, |(_, kept)| kept.parts())
    }
}

/// Result of loading a name.
enum LoadedRecord {
    Nothing,
    Record(StoredRecord),
    /// Not a record, or sealed for another name: it stays until it expires.
    Foreign,
}

/// Loads records, one by one if one of them is invalid.
fn load(records: &mut dyn RecordStore, names: &[Name]) -> Result<Vec<LoadedRecord>, RecordError> {
    let there = |found: Option<_>| found.map_or(LoadedRecord::Nothing, LoadedRecord::Record);
    if names.is_empty() {
        return Ok(Vec::new());
    }
    match records.load(names) {
        Ok(found) => return Ok(found.into_iter().map(there).collect()),
        Err(RecordError::NotARecord | RecordError::OtherKey | RecordError::NotSealed) => {}
        Err(error) => return Err(error),
    }
    let one = |name: &Name| match records.load(std::slice::from_ref(name)) {
        Ok(mut found) => Ok(there(found.pop().flatten())),
        Err(RecordError::NotARecord | RecordError::OtherKey | RecordError::NotSealed) => Ok(LoadedRecord::Foreign),
        Err(error) => Err(error),
    };
    names.iter().map(one).collect()
}
