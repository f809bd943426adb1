//! Contexts in a database: `state.location` "redis" or "mongodb".
//!
//! This is the transactional statelessness of "The Cost of Stateless Network Functions in 5G", and
//! the central store of MMLite (section 7.1). Each step reads its UE's context from the database
//! and commits it there by compare-and-swap before its effects are sent. Workers cache nothing
//! between steps.
//!
//! The region stores for each UE its record number, the last processed input and the outbox. If a
//! worker dies between the two commits, the next worker finds the database ahead of the region. It
//! then executes the outbox stored in the database.
//!
//! With [`StateWrite::NonBlocking`] a step continues when its commit is handed to writers, which
//! are threads of the worker. The region then also has the context, the last processed input and
//! its worker. The next load, in any worker, waits until the database has this commit. If the
//! writers died with their worker, the load continues from the region. A commit in flight is lost
//! only together with the region. A new owner in a cluster then has the UE's previous state, with
//! COUNTs beyond those that may have been used.
//!
//! With [`StatePersist::Procedure`] a commit reaches the database only at the first and the last
//! step of a procedure. The worker keeps the context in between. If it dies then, the procedure is
//! lost: the UE returns to its previous state, or starts again.
//!
//! In a cluster a record has the content of a replica entry. It also has the outboxes of the last
//! steps, the SMF requests without response, and the results of N1N2 transfers. The new owner of a
//! dead host's buckets [claims](BucketClaim) its records. A record names its owner. A host that was
//! only stopped finds another version when it commits, or another owner when it reads: its step is
//! void, and no effect is sent. The key of a record is the first LTMSI of its UE. Its bucket is in
//! the same column as all later LTMSIs of the UE, and thus always at the same host.
//!
//! A record may be [shared](vireo_ops::shared_record) with the SMF. The SMF then commits the result
//! of a step whose only effect is a request to it. Until then only the region has that result, and
//! the results of responses without effects. A new owner finds the request open in the record,
//! repeats it with the same key and gets the same response.

mod batch;
mod config;
mod record;
mod resumed;
mod writers;

pub(super) use batch::PrefetchedRecord;
pub(crate) use config::{ContextDatabaseConfig, ContextDatabaseError};
pub(crate) use resumed::{ResumeDecision, Resumption};
pub(crate) use writers::Writer;
pub(super) use writers::{LatestUe, pending_content};

use batch::PrefetchedRecords;
use record::{EncodedUeRecord, stored};
use std::time::Duration;
use vireo_cluster::ClaimedUe;
use vireo_core::amf::context;
use vireo_core::config::{StatePersist, StateWrite};
use vireo_core::placement::replica;
use vireo_ops::shared_record;
use vireo_ops::state::RecordsConfig;
use vireo_ops::ue_record::UeRecord;
use vireo_store::Version;
use vireo_store::records::{Change, LIFE, Name, RecordBase, RecordError, RecordStore, StoredRecord, Writers};
use vireo_types::{Bucket, Ltmsi};
use writers::behind;

/// Collection of the AMF's records.
const COLLECTION: &str = "amf";
/// Lifetime of the record of a removed UE, which keeps its last outbox.
const REMOVED_RECORD_LIFETIME: Duration = Duration::from_secs(60);
/// Number of records per database operation.
const BATCH: usize = 256;

/// Content of the region in place of a context that is in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseRef {
    /// Number of the record in its collection.
    pub(crate) id: u64,
    /// Last processed input when another host released the UE.
    pub(crate) base: u64,
    /// Worker of the last commit, if the write may be pending.
    pub(crate) writer: Writer,
}

/// First octet of an encoded reference. No encoded context begins with it.
const MARK: u8 = 0xff;

impl DatabaseRef {
    /// Returns the encoding, followed by the content that the database is to have later.
    fn before(self, part: &[u8]) -> Vec<u8> {
        [&self.octets()[..], part].concat()
    }

    /// Returns the content that the database is to have later, if an encoding has any.
    pub(crate) fn part(octets: &[u8]) -> Option<&[u8]> {
        octets.strip_prefix(&[MARK])?.get(24..).filter(|part| !part.is_empty())
    }

    /// Returns the encoding.
    pub(crate) fn octets(self) -> [u8; 25] {
        let mut octets = [MARK; 25];
        let words = [self.id, self.base, self.writer.0];
        octets[1..].chunks_exact_mut(8).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_be_bytes()));
        octets
    }

    /// Decodes a reference.
    pub(crate) fn decode(octets: &[u8]) -> Option<Self> {
        let (id, rest) = octets.strip_prefix(&[MARK])?.split_first_chunk()?;
        let (base, rest) = rest.split_first_chunk()?;
        let (writer, _) = rest.split_first_chunk()?;
        let [id, base, writer] = [id, base, writer].map(|word| u64::from_be_bytes(*word));
        Some(DatabaseRef { id, base, writer: Writer(writer) })
    }

    /// Creates the reference of a new UE. The same input results in the same record, and no input
    /// of another host or run does.
    pub(super) fn fresh(ltmsi: Ltmsi, owner: u64, input: u64) -> Self {
        let within = (owner as u32).wrapping_add(input as u32);
        DatabaseRef { id: u64::from(ltmsi.get()) << 32 | u64::from(within), ..DatabaseRef::default() }
    }
}

/// Returns the bucket of a record.
fn bucket_of(id: u64) -> Bucket {
    Ltmsi::from_raw((id >> 32) as u32).bucket()
}

/// Returns the collection of the records.
fn collection(config: &ContextDatabaseConfig) -> &'static str {
    if config.records.is_shared() { shared_record::COLLECTION } else { COLLECTION }
}

fn name(config: &ContextDatabaseConfig, id: u64) -> Name {
    Name { collection: collection(config), id }
}

/// Returns the region's content while the database is behind; `None` if it is too long.
pub(super) fn content_ahead(stored: &UeRecord, elsewhere: DatabaseRef) -> Option<Vec<u8>> {
    let octets = stored.encode().ok().filter(|octets| octets.len() <= shared_record::PART_OCTETS)?;
    Some(elsewhere.before(&octets))
}

/// Handle of the records, or the error that prevents one.
type RecordsHandle = Result<Box<dyn RecordStore>, RecordError>;

fn store_of(handle: &mut RecordsHandle) -> Result<&mut dyn RecordStore, RecordError> {
    match handle {
        Ok(records) => Ok(&mut **records),
        Err(error) => Err(error.clone()),
    }
}

/// A worker's access to the database.
pub(super) struct ContextDatabase {
    config: ContextDatabaseConfig,
    records: RecordsHandle,
    /// The same with a short lifetime, for removed UEs.
    brief: RecordsHandle,
    /// Writer threads, if steps do not wait for their commits.
    writers: Option<Writers>,
    prefetched: PrefetchedRecords,
}

impl std::fmt::Debug for ContextDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Central").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Checks that the database answers.
pub(crate) fn check(config: &ContextDatabaseConfig) -> Result<(), ContextDatabaseError> {
    config.records.prove_key()?;
    store_of(&mut config.records.open())?.load(&[name(config, 0)])?;
    Ok(())
}

/// Removes the contexts of this host, which no other host takes over.
pub(crate) fn clear(config: &ContextDatabaseConfig) -> Result<(), ContextDatabaseError> {
    let mut handle = config.records.open();
    let records = store_of(&mut handle)?;
    let names: Vec<Name> = records.list_ids(collection(config))?.into_iter().map(|id| name(config, id)).collect();
    // A shared record may belong to another AMF, and to the SMF while it has an SM context there.
    let own = |found: &StoredRecord| {
        let alone = found.parts.iter().all(|(name, _)| name == shared_record::AMF);
        let head = || shared_record::AmfPartHeader::from_record(config.records.codec().format, found);
        !config.records.is_shared() || alone && head().is_some_and(|head| head.owner == config.owner)
    };
    for part in names.chunks(BATCH) {
        let found = records.load(part)?;
        let there = part.iter().zip(&found);
        let there = there.filter_map(|(name, found)| Some((*name, found.as_ref().filter(|found| own(found))?.version)));
        let removals: Vec<_> = there.map(|(name, expected)| (name, Change::Remove { expected })).collect();
        // A record that changed meanwhile expires.
        records.change(&removals);
    }
    Ok(())
}

impl ContextDatabase {
    pub(super) fn new(config: ContextDatabaseConfig) -> Self {
        let (mut records, brief) = (config.records.open_for(LIFE), config.records.open_for(REMOVED_RECORD_LIFETIME));
        let mut writers = None;
        if config.records.write == StateWrite::NonBlocking {
            let open = || config.records.open_for(LIFE);
            records = records.and_then(|records| behind(records, open, &mut writers));
        }
        ContextDatabase { records, brief, writers, prefetched: PrefetchedRecords::default(), config }
    }

    /// Creates an instance over existing records.
    #[cfg(test)]
    pub(super) fn over<R: RecordStore + Clone + 'static>(config: ContextDatabaseConfig, records: &R) -> Self {
        let handle = || -> RecordsHandle { Ok(Box::new(records.clone())) };
        let (mut all, mut writers) = (handle(), None);
        if config.records.write == StateWrite::NonBlocking {
            all = all.and_then(|records| behind(records, handle, &mut writers));
        }
        ContextDatabase { records: all, brief: handle(), writers, prefetched: PrefetchedRecords::default(), config }
    }

    pub(super) fn config(&self) -> &ContextDatabaseConfig {
        &self.config
    }

    /// Loads the record of a UE.
    pub(super) fn read(&mut self, id: u64) -> Result<Option<(Version, UeRecord)>, ContextDatabaseError> {
        let found = store_of(&mut self.records)?.load(&[name(&self.config, id)])?.pop().flatten();
        found.map(|found| Ok((found.version, stored(&self.config, found)?))).transpose()
    }
}

/// Claim of the records of some buckets. Claimed records stay claimed when the rest is retried.
#[derive(Debug)]
pub(crate) struct BucketClaim<'a> {
    config: &'a ContextDatabaseConfig,
    /// Records to claim; `None` before they are listed.
    waiting: Option<Vec<Name>>,
    /// Records that were claimed so far.
    pub(crate) claimed: Vec<ClaimedUe>,
}

impl<'a> BucketClaim<'a> {
    /// Creates a claim without records.
    pub(crate) fn new(config: &'a ContextDatabaseConfig) -> Self {
        BucketClaim { config, waiting: None, claimed: Vec::new() }
    }

    /// Opens the records.
    ///
    /// # Errors
    ///
    /// Returns an error if the database cannot be opened.
    pub(crate) fn open_records(&self) -> Result<Box<dyn RecordStore>, RecordError> {
        self.config.records.open()
    }

    /// Claims all records of these buckets.
    ///
    /// # Errors
    ///
    /// Returns an error if a database operation fails. The call must then be repeated.
    pub(crate) fn run(
        &mut self,
        records: &mut dyn RecordStore,
        is_wanted: impl Fn(Bucket) -> bool,
    ) -> Result<(), RecordError> {
        let mut waiting = match self.waiting.take() {
            Some(waiting) => waiting,
            None => {
                let all = records.list_ids(collection(self.config))?.into_iter();
                all.filter(|id| is_wanted(bucket_of(*id))).map(|id| name(self.config, id)).collect()
            }
        };
        let mut result = Ok(());
        while result.is_ok() && !waiting.is_empty() {
            let mut part = waiting.split_off(waiting.len().saturating_sub(BATCH));
            result = self.take(records, &mut part);
            // Records that the previous owner committed meanwhile are retried. A claimed record is
            // safe from it.
            waiting.append(&mut part);
        }
        self.waiting = Some(waiting);
        result
    }

    /// Claims these records. Leaves those in `part` that must be retried.
    fn take(&mut self, records: &mut dyn RecordStore, part: &mut Vec<Name>) -> Result<(), RecordError> {
        let mut taken = Vec::new();
        for (name, found) in part.iter().zip(load(records, part)?) {
            // The record may have expired meanwhile.
            let Some(found) = found else { continue };
            let alone = found.parts.iter().all(|(name, _)| name == shared_record::AMF);
            let (version, is_whole) = (found.version, !self.config.records.is_shared());
            let mine = stored(self.config, found).and_then(|stored| {
                let mine = EncodedUeRecord::new(self.config, version, &self.mine(&stored))?;
                Ok((UeRecord { known: RecordBase::default(), ..stored }, mine))
            });
            match mine {
                Ok((stored, mine)) => taken.push((*name, version, stored, mine, alone || is_whole)),
                Err(error) => tracing::error!(id = name.id, %error, "UE not taken over"),
            }
        }
        let parts: Vec<_> = taken.iter().map(|(_, _, _, mine, _)| mine.parts()).collect();
        let changes = taken.iter().zip(&parts).map(|((name, expected, stored, mine, alone), parts)| {
            match stored.context.is_empty() && *alone {
                true => (*name, Change::Remove { expected: *expected }),
                false => (*name, mine.change(parts)),
            }
        });
        let changes: Vec<(Name, Change<'_>)> = changes.collect();
        let done = if changes.is_empty() { Vec::new() } else { records.change(&changes) };
        let mut result = Ok(());
        part.clear();
        for ((name, _, stored, ..), done) in taken.into_iter().zip(done) {
            match done {
                Ok(_) => self.claimed.push(ClaimedUe { id: name.id, before: stored.owner, stored }),
                Err(error) => {
                    part.push(name);
                    if error != RecordError::Conflict {
                        result = Err(error);
                    }
                }
            }
        }
        result
    }

    /// Returns the record with this host as owner.
    fn mine(&self, stored: &UeRecord) -> UeRecord {
        let mut context = stored.context.clone();
        let RecordsConfig { persist, scope, write, .. } = self.config.records;
        let behind = write == StateWrite::NonBlocking;
        if (persist == StatePersist::Procedure || behind || scope.is_shared())
            && let Ok(mut ue) = context::decode(&context)
        {
            match persist {
                // A procedure or a write may have been pending: its messages used these identifiers
                // and COUNTs.
                StatePersist::Procedure => replica::skip(&mut ue),
                StatePersist::Transaction if behind => replica::skip(&mut ue),
                // The SMF may have a request that it has not committed. No other peer was sent
                // anything.
                StatePersist::Transaction => ue.sequence += replica::SKIPPED_STEPS,
            }
            context = context::encode(&ue, Vec::new()).unwrap_or(context);
        }
        let (owner, step) = (self.config.owner, stored.step + 1);
        let (recovery, known) = (stored.recovery.clone(), stored.known.clone());
        UeRecord { owner, step, consumed: 0, pin: 0, context, recovery, known, ..*stored }
    }
}

/// Loads records. One that is no valid record is skipped.
fn load(records: &mut dyn RecordStore, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
    let one = |records: &mut dyn RecordStore, name: &Name| match records.load(std::slice::from_ref(name)) {
        Ok(mut found) => Ok(found.pop().flatten()),
        Err(RecordError::NotARecord) => {
            tracing::error!(id = name.id, "record of a UE not valid; UE not taken over");
            Ok(None)
        }
        Err(error) => Err(error),
    };
    match records.load(names) {
        Err(RecordError::NotARecord) => names.iter().map(|name| one(records, name)).collect(),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::amf::context::UeContext;
    use vireo_store::records::{MemoryRecords, Operations};

    fn config(owner: u64) -> ContextDatabaseConfig {
        ContextDatabaseConfig { records: RecordsConfig::for_redis("redis://127.0.0.1:1"), owner, shared: true }
    }

    fn stored(owner: u64, ltmsi: Ltmsi) -> UeRecord {
        let context = context::encode(&UeContext::new(ltmsi), Vec::new()).unwrap();
        UeRecord { owner, consumed: 7, context, ..UeRecord::default() }
    }

    #[test]
    fn reference_in_region_names_the_record() {
        let ltmsi = Ltmsi::new(Bucket::new(77), 5);
        let one = DatabaseRef { base: 9, ..DatabaseRef::fresh(ltmsi, u64::MAX, 3) };
        assert_eq!(DatabaseRef::decode(&one.octets()), Some(one));
        assert_eq!(
            (bucket_of(one.id), DatabaseRef::decode(&[MARK]), DatabaseRef::decode(b"x")),
            (Bucket::new(77), None, None)
        );
        assert_ne!(one.id, DatabaseRef::fresh(ltmsi, u64::MAX, 4).id);
    }

    /// One host commits, another one claims, the first one wakes up.
    #[test]
    fn fenced_host_commits_nothing() {
        let records = MemoryRecords::new(LIFE);
        let (mut first, mut second) =
            (ContextDatabase::over(config(1), &records), ContextDatabase::over(config(2), &records));
        let (ltmsi, other) = (Ltmsi::new(Bucket::new(4), 1), Ltmsi::new(Bucket::new(5), 1));
        let [id, elsewhere] = [ltmsi, other].map(|ltmsi| DatabaseRef::fresh(ltmsi, 1, 7).id);
        first.commit((id, 0), stored(1, ltmsi)).unwrap();
        first.commit((elsewhere, 0), stored(1, other)).unwrap();
        let again = UeRecord { pin: 9, ..stored(1, ltmsi) };
        assert_eq!(first.commit((id, 0), again).unwrap().pin, 0, "the same step again: what it left before counts");
        let next = |owner| UeRecord { consumed: 8, ..stored(owner, ltmsi) };
        first.commit((id, 1), next(1)).unwrap();

        let taker = config(2);
        let mut claim = BucketClaim::new(&taker);
        claim.run(&mut records.clone(), |bucket| bucket == Bucket::new(4)).unwrap();
        assert_eq!(claim.claimed.len(), 1, "the other bucket is not its own");
        let ClaimedUe { id: of, before, stored: left } = &claim.claimed[0];
        assert_eq!((*of, *before, left.consumed), (id, 1, 8));
        let (version, mine) = second.read(id).unwrap().unwrap();
        assert_eq!((version, mine.owner, mine.consumed), (3, 2, 0));

        // The first host had read the record before it was stopped, or reads it now.
        let woken = UeRecord { consumed: 9, ..stored(1, ltmsi) };
        assert!(matches!(first.commit((id, 2), woken.clone()), Err(ContextDatabaseError::Foreign)));
        assert_eq!(second.read(id).unwrap().unwrap().1, mine, "nothing has changed");
        second.commit((id, 3), UeRecord { consumed: 1, ..stored(2, ltmsi) }).unwrap();
        assert!(matches!(first.commit((id, 3), woken), Err(ContextDatabaseError::Foreign)));
    }

    /// Records that lose responses, before or after the operation, and let another writer commit
    /// first.
    struct Failing {
        records: MemoryRecords,
        loses: u32,
        fails: u32,
        overtaken: Option<(Name, Vec<u8>)>,
    }

    impl RecordStore for Failing {
        fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
            let found = self.records.load(names);
            if let Some((name, octets)) = self.overtaken.take() {
                let expected = self.records.load(&[name])?[0].as_ref().map_or(0, |found| found.version);
                self.records.change(&[(name, Change::Commit { expected, octets: &octets })]).remove(0)?;
            }
            found
        }

        fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
            let silent = || changes.iter().map(|_| Err(RecordError::OutcomeUnknown("x".into()))).collect();
            if self.fails > 0 {
                self.fails -= 1;
                return silent();
            }
            let done = self.records.change(changes);
            if self.loses > 0 {
                self.loses -= 1;
                return silent();
            }
            done
        }

        fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
            self.records.list_ids(collection)
        }

        fn operations(&self) -> Operations {
            self.records.operations()
        }
    }

    #[test]
    fn lost_response_is_resolved_by_reading() {
        let records = MemoryRecords::new(LIFE);
        let ltmsi = Ltmsi::new(Bucket::new(4), 1);
        let id = DatabaseRef::fresh(ltmsi, 1, 7).id;
        let failing = |loses, fails| {
            let mut database = ContextDatabase::over(config(1), &records);
            let records = records.clone();
            database.records = Ok(Box::new(Failing { records, loses, fails, overtaken: None }));
            database
        };
        assert!(matches!(failing(0, 1).commit((id, 0), stored(1, ltmsi)), Err(ContextDatabaseError::Database(_))));
        assert!(failing(0, 0).read(id).unwrap().is_none(), "it was not done");
        assert!(failing(1, 0).commit((id, 0), stored(1, ltmsi)).is_ok(), "it was done");
        assert_eq!(failing(0, 0).read(id).unwrap().unwrap().0, 1, "once");
    }

    #[test]
    fn repeated_claim_continues_with_last_commits() {
        let mut records = MemoryRecords::new(LIFE);
        let mut first = ContextDatabase::over(config(1), &records);
        let ltmsis: Vec<Ltmsi> = (0..4).map(|n| Ltmsi::new(Bucket::new(4), n)).collect();
        for ltmsi in &ltmsis {
            let gone = UeRecord { context: Vec::new(), ..stored(1, *ltmsi) };
            let stored = if ltmsi.number() == 3 { gone } else { stored(1, *ltmsi) };
            first.commit((DatabaseRef::fresh(*ltmsi, 1, 7).id, 0), stored).unwrap();
        }
        let stranger = name(&config(1), u64::from(ltmsis[0].get()) << 32 | 1);
        records.change(&[(stranger, Change::Commit { expected: 0, octets: b"x" })]).remove(0).unwrap();
        let late = UeRecord { consumed: 8, ..stored(1, ltmsis[1]) }.encode().unwrap();
        let overtaken = Some((name(&config(1), DatabaseRef::fresh(ltmsis[1], 1, 7).id), late));
        let taker = config(2);
        let mut claim = BucketClaim::new(&taker);
        let mut failing = Failing { records: records.clone(), loses: 0, fails: 1, overtaken: None };
        assert!(claim.run(&mut failing, |_| true).is_err());
        failing.overtaken = overtaken;
        claim.run(&mut failing, |_| true).unwrap();
        let mut consumed: Vec<_> = claim.claimed.iter().map(|claimed| claimed.stored.consumed).collect();
        consumed.sort_unstable();
        assert_eq!(consumed, [7, 7, 7, 8]);
        let left = records.list_ids(COLLECTION).unwrap();
        assert_eq!(left.len(), 4, "one was gone, and nobody has to know of it any more; what is no UE stays: {left:?}");
    }
}
