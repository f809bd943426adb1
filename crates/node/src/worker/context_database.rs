//! Contexts in a database (`state.location` "redis" or "mongodb"): transactional statelessness of seed 3, and the central store of seed 1
//! (section 7.1). Each step reads its UE's context from there and commits it there, by compare-and-swap, before its effects
//! leave; nothing is kept in between.
//!
//! The region says of each UE which record is its own and which input was carried out last, and holds what that wants done. A
//! worker that dies between the two commits is found out by the next one: the database is ahead of the region, and what is
//! stored there is what has to be done.
//!
//! With [`StateWrite::NonBlocking`] a step goes on when its commit is handed to writers, threads of the worker. The region says which
//! input was carried out last and by whom, and has the context as well: who loads it next waits until the database has that,
//! whichever worker it is, and goes on from the region's where the writers have died with their worker. What they had in hand is lost
//! with the region alone: to another host of a cluster the UE is what it was before, with other COUNTs than those that may have
//! been used.
//!
//! With [`StatePersist::Procedure`] that is at the first and the last step of a procedure, and the worker keeps the context in
//! between: if it dies then, the procedure is lost with it, and the UE goes on from what it was before, or begins anew.
//!
//! In a cluster a record has what a copy at another host would have, and more: what the last steps wanted done, the questions
//! that the SMF has not answered, the transfers that were taken. Who gets the buckets of a host that is gone [claims](Claim) its
//! records. A record has its owner's name, so that a host that was only stopped, and wakes, finds that the UE is another's
//! now: its commit meets another version, or its read another owner, its step is void, and nothing leaves. A record is called
//! by the first number that its UE had: that one's bucket is in the column of all numbers that the UE gets later, and so always
//! at the same host as they are.
//!
//! A record may be [shared](crate::shared_record) with the SMF, which commits in the AMF's place what a step has left that has a question
//! to it and nothing else. Until then, and of answers that nothing follows from, the region alone has it: who is given the UE
//! by the record, where the question is open, asks it again by its name, and gets the same answer.

mod batch;
mod record;
mod resumed;
mod writers;

pub(crate) use record::{LAYOUT, kept};
pub(crate) use resumed::{Becomes, Resumption};
pub(super) use writers::LatestUe;
pub(crate) use writers::Writer;

use crate::shared_record;
use crate::state::RecordsConfig;
use batch::Prefetched;
use record::{EncodedUeRecord, stored};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use vireo_core::config::{StatePersist, StateWrite};
use vireo_core::sba::{N1N2TransferResult, PiggybackedSmContext, SessionNumber, SmfRequest};
use vireo_core::{context, replica};
use vireo_store::Version;
use vireo_store::records::{Change, LIFE, Name, RecordBase, RecordError, RecordStore, StoredRecord, Writers};
use vireo_types::{Bucket, Instant, Ltmsi};
use writers::behind;

/// Whose records these are.
const COLLECTION: &str = "amf";
/// How long it is known what a UE that is gone has wanted done.
const GONE: Duration = Duration::from_secs(60);
/// Records in one go.
const BATCH: usize = 256;
/// Steps of which it is known what they wanted done, and transfers that are known to be taken, at the most.
const REMEMBERED: usize = 16;
/// Questions that are known to be unanswered. Beyond, every answer is taken.
const ASKED: usize = 256;

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextDatabaseConfig {
    /// The database, and how records are kept there.
    pub(crate) records: RecordsConfig,
    /// What this host is called in records of its UEs: in each of its lives another number.
    pub(crate) owner: u64,
    /// Whether other hosts go on with what this one leaves there.
    pub(crate) shared: bool,
}

/// What the region has in the place of a context that is in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseRef {
    /// The number of its record.
    pub(crate) id: u64,
    /// The input up to which all was carried out when another host left it.
    pub(crate) base: u64,
    /// Who has committed it last, if that may still be about to be written.
    pub(crate) writer: Writer,
}

/// What that begins with: no context does.
const MARK: u8 = 0xff;

impl DatabaseRef {
    /// Its octets, and behind them what the database is to have later.
    fn before(self, part: &[u8]) -> Vec<u8> {
        [&self.octets()[..], part].concat()
    }

    /// What the database is to have later, of its octets, if that is so.
    pub(crate) fn part(octets: &[u8]) -> Option<&[u8]> {
        octets.strip_prefix(&[MARK])?.get(24..).filter(|part| !part.is_empty())
    }

    /// Its octets.
    pub(crate) fn octets(self) -> [u8; 25] {
        let mut octets = [MARK; 25];
        let words = [self.id, self.base, self.writer.0];
        octets[1..].chunks_exact_mut(8).zip(words).for_each(|(at, word)| at.copy_from_slice(&word.to_be_bytes()));
        octets
    }

    /// Of its octets.
    pub(crate) fn of(octets: &[u8]) -> Option<Self> {
        let (id, rest) = octets.strip_prefix(&[MARK])?.split_first_chunk()?;
        let (base, rest) = rest.split_first_chunk()?;
        let (writer, _) = rest.split_first_chunk()?;
        let [id, base, writer] = [id, base, writer].map(|word| u64::from_be_bytes(*word));
        Some(DatabaseRef { id, base, writer: Writer(writer) })
    }

    /// That of a UE that begins with this number and input. The same input makes the same record, and no other host's or life's does.
    pub(super) fn fresh(ltmsi: Ltmsi, owner: u64, input: u64) -> Self {
        let within = (owner as u32).wrapping_add(input as u32);
        DatabaseRef { id: u64::from(ltmsi.get()) << 32 | u64::from(within), ..DatabaseRef::default() }
    }
}

/// The bucket of a record.
fn bucket_of(id: u64) -> Bucket {
    Ltmsi::from_raw((id >> 32) as u32).bucket()
}

/// Where records are.
fn collection(config: &ContextDatabaseConfig) -> &'static str {
    if config.records.is_shared() { shared_record::COLLECTION } else { COLLECTION }
}

fn name(config: &ContextDatabaseConfig, id: u64) -> Name {
    Name { collection: collection(config), id }
}

/// What a step wants done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingOutbox {
    /// When it was.
    pub(crate) at: Instant,
    /// Its outbox.
    #[serde(with = "record::octets")]
    pub(crate) outbox: Vec<u8>,
}

/// A question that the SMF has not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingSmfRequest {
    /// By what the SMF knows it when it is asked again.
    pub(crate) key: u64,
    /// The session.
    pub(crate) number: SessionNumber,
    /// The question.
    pub(crate) ask: SmfRequest,
    /// The SM context that goes along, if it travels.
    pub(crate) carried: Option<PiggybackedSmContext>,
}

/// What is known of a UE besides its context, so that another host can go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecoveryLog {
    /// What the last steps want done, the last one's at the end. Several may have been before the first one's effects left.
    pub(crate) wanted: Vec<PendingOutbox>,
    /// The questions that are open.
    pub(crate) asked: Vec<PendingSmfRequest>,
    /// The last transfers, by their keys, and what became of them.
    taken: Vec<(u64, N1N2TransferResult)>,
}

impl RecoveryLog {
    /// A step wants this done. What was wanted long ago was done.
    pub(super) fn wants(&mut self, at: Instant, outbox: &[u8], shared: bool) {
        if shared {
            self.wanted.retain(|wanted| at.since(wanted.at) <= replica::DONE_AGAIN);
            let over = (self.wanted.len() + 1).saturating_sub(REMEMBERED);
            self.wanted.drain(..over);
        } else {
            self.wanted.clear();
        }
        self.wanted.push(PendingOutbox { at, outbox: outbox.to_vec() });
    }

    /// The SMF is asked.
    pub(super) fn asks(&mut self, asked: PendingSmfRequest) {
        if self.asked.len() < ASKED {
            self.asked.push(asked);
        }
    }

    /// The SMF has answered a question; whether that is so for the first time.
    pub(super) fn is_answered(&mut self, key: u64) -> bool {
        let before = self.asked.len();
        self.asked.retain(|asked| asked.key != key);
        self.asked.len() < before || before >= ASKED
    }

    /// Whether a question is open.
    pub(super) fn has_asked(&self, key: u64) -> bool {
        self.asked.len() >= ASKED || self.asked.iter().any(|asked| asked.key == key)
    }

    /// What became of a transfer that was taken before.
    pub(super) fn result_of(&self, key: u64) -> Option<N1N2TransferResult> {
        self.taken.iter().find(|(taken, _)| *taken == key).map(|(_, result)| *result)
    }

    /// A transfer was taken.
    pub(super) fn takes(&mut self, key: u64, result: N1N2TransferResult) {
        let over = (self.taken.len() + 1).saturating_sub(REMEMBERED);
        self.taken.drain(..over);
        self.taken.push((key, result));
    }
}

/// A UE as the database has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UeRecord {
    /// The host whose it is.
    pub(crate) owner: u64,
    /// Which it is of those that the UE has had.
    pub(crate) step: u64,
    /// Whether the context is gone. These three come first ([`shared_record::AmfPartHeader`]).
    pub(crate) gone: bool,
    /// The input that was carried out last, as that host counts them; 0: none since it has taken the UE over.
    pub(crate) consumed: u64,
    pub(crate) deadline: Option<Instant>,
    pub(crate) pin: u64,
    pub(crate) course: RecoveryLog,
    /// Empty: the context is gone.
    #[serde(with = "serde_bytes")]
    pub(crate) context: Vec<u8>,
    /// What there is of it in its record, if it was loaded: what is the same is not written again.
    #[serde(skip)]
    pub(crate) known: RecordBase,
}

impl UeRecord {
    /// What the last step wants done.
    pub(super) fn outbox(&self) -> &[u8] {
        self.course.wanted.last().map_or(&[], |wanted| &wanted.outbox)
    }

    pub(crate) fn decode(octets: &[u8]) -> Result<Self, ContextDatabaseError> {
        postcard::from_bytes(octets).map_err(|_| ContextDatabaseError::Stranger)
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, ContextDatabaseError> {
        postcard::to_stdvec(self).map_err(|_| ContextDatabaseError::Stranger)
    }

    /// What the region has of it where the database is to have it later; `None`: it is too long for that.
    pub(super) fn ahead(&self, elsewhere: DatabaseRef) -> Option<Vec<u8>> {
        let octets = self.encode().ok().filter(|octets| octets.len() <= shared_record::PART_OCTETS)?;
        Some(elsewhere.before(&octets))
    }
}

/// Why a context is not to be had, or not stored.
#[derive(Debug, thiserror::Error)]
pub enum ContextDatabaseError {
    /// The database.
    #[error("the database of contexts (state.database) does not answer: {0}")]
    Database(#[from] RecordError),
    /// What it has.
    #[error(
        "the database of contexts (state.database) has something else than a context: is it another program's too?"
    )]
    Stranger,
    /// It has not what was stored.
    #[error(
        "the database of contexts (state.database) has lost a UE: was it emptied, or does it let go of what is old?"
    )]
    Lost,
    /// Somebody else goes on with it.
    #[error("the UE is another host's by now: this one was taken for dead")]
    Foreign,
}

/// A way to the records, or why there is none.
type RecordsHandle = Result<Box<dyn RecordStore>, RecordError>;

fn there(way: &mut RecordsHandle) -> Result<&mut dyn RecordStore, RecordError> {
    match way {
        Ok(records) => Ok(&mut **records),
        Err(error) => Err(error.clone()),
    }
}

/// A worker's way to the database.
pub(super) struct ContextDatabase {
    config: ContextDatabaseConfig,
    records: RecordsHandle,
    /// The same for what is to be forgotten soon.
    brief: RecordsHandle,
    /// Those who write what is committed there, if steps do not wait for that.
    writers: Option<Writers>,
    foreseen: Prefetched,
}

impl std::fmt::Debug for ContextDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Central").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Whether the database answers.
pub(crate) fn check(config: &ContextDatabaseConfig) -> Result<(), ContextDatabaseError> {
    config.records.prove_key()?;
    there(&mut config.records.open())?.load(&[name(config, 0)])?;
    Ok(())
}

/// The host ends, and nobody goes on with its contexts: they go.
pub(crate) fn clear(config: &ContextDatabaseConfig) -> Result<(), ContextDatabaseError> {
    let mut way = config.records.open();
    let records = there(&mut way)?;
    let names: Vec<Name> = records.list_ids(collection(config))?.into_iter().map(|id| name(config, id)).collect();
    // What is shared may be another one's, and is the SMF's while that has an SM context there.
    let own = |found: &StoredRecord| {
        let alone = found.parts.iter().all(|(name, _)| name == shared_record::AMF);
        let head = || shared_record::AmfPartHeader::kept(config.records.codec().format, found);
        !config.records.is_shared() || alone && head().is_some_and(|head| head.owner == config.owner)
    };
    for part in names.chunks(BATCH) {
        let found = records.load(part)?;
        let there = part.iter().zip(&found);
        let there = there.filter_map(|(name, found)| Some((*name, found.as_ref().filter(|found| own(found))?.version)));
        let removals: Vec<_> = there.map(|(name, expected)| (name, Change::Remove { expected })).collect();
        // What has changed meanwhile ends its life there.
        records.change(&removals);
    }
    Ok(())
}

impl ContextDatabase {
    pub(super) fn new(config: ContextDatabaseConfig) -> Self {
        let (mut records, brief) = (config.records.open_for(LIFE), config.records.open_for(GONE));
        let mut writers = None;
        if config.records.write == StateWrite::NonBlocking {
            let open = || config.records.open_for(LIFE);
            records = records.and_then(|records| behind(records, open, &mut writers));
        }
        ContextDatabase { records, brief, writers, foreseen: Prefetched::default(), config }
    }

    /// The same over records that are there.
    #[cfg(test)]
    pub(super) fn over<R: RecordStore + Clone + 'static>(config: ContextDatabaseConfig, records: &R) -> Self {
        let way = || -> RecordsHandle { Ok(Box::new(records.clone())) };
        let (mut all, mut writers) = (way(), None);
        if config.records.write == StateWrite::NonBlocking {
            all = all.and_then(|records| behind(records, way, &mut writers));
        }
        ContextDatabase { records: all, brief: way(), writers, foreseen: Prefetched::default(), config }
    }

    pub(super) fn config(&self) -> &ContextDatabaseConfig {
        &self.config
    }

    /// What there is of a UE.
    pub(super) fn read(&mut self, id: u64) -> Result<Option<(Version, UeRecord)>, ContextDatabaseError> {
        let found = there(&mut self.records)?.load(&[name(&self.config, id)])?.pop().flatten();
        found.map(|found| Ok((found.version, stored(&self.config, found)?))).transpose()
    }
}

/// A UE of another host that is this one's now.
#[derive(Debug)]
pub(crate) struct ClaimedUe {
    /// Its record.
    pub(crate) id: u64,
    /// Whose it was.
    pub(crate) before: u64,
    /// What there was of it.
    pub(crate) stored: UeRecord,
}

/// Takes the records of buckets for a host. What has been taken stays so where the rest is tried again.
#[derive(Debug)]
pub(crate) struct BucketClaim<'a> {
    config: &'a ContextDatabaseConfig,
    /// `None`: it was not looked yet.
    waiting: Option<Vec<Name>>,
    /// What was taken.
    pub(crate) claimed: Vec<ClaimedUe>,
}

impl<'a> BucketClaim<'a> {
    /// Nothing yet.
    pub(crate) fn new(config: &'a ContextDatabaseConfig) -> Self {
        BucketClaim { config, waiting: None, claimed: Vec::new() }
    }

    /// The way to the records.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn way(&self) -> Result<Box<dyn RecordStore>, RecordError> {
        self.config.records.open()
    }

    /// Takes what there is of these buckets.
    ///
    /// # Errors
    ///
    /// When the database does not do what it is asked: it is to be tried again.
    pub(crate) fn go(
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
            // What the one before has committed meanwhile is looked at once more: from here on it cannot.
            waiting.append(&mut part);
        }
        self.waiting = Some(waiting);
        result
    }

    /// Takes these; those that are left are to be tried again.
    fn take(&mut self, records: &mut dyn RecordStore, part: &mut Vec<Name>) -> Result<(), RecordError> {
        let mut taken = Vec::new();
        for (name, found) in part.iter().zip(load(records, part)?) {
            // One may have ended its life meanwhile.
            let Some(found) = found else { continue };
            let alone = found.parts.iter().all(|(name, _)| name == shared_record::AMF);
            let (version, is_whole) = (found.version, !self.config.records.is_shared());
            let mine = stored(self.config, found).and_then(|stored| {
                let mine = EncodedUeRecord::new(self.config, version, &self.mine(&stored))?;
                Ok((UeRecord { known: RecordBase::default(), ..stored }, mine))
            });
            match mine {
                Ok((stored, mine)) => taken.push((*name, version, stored, mine, alone || is_whole)),
                Err(error) => tracing::error!(id = name.id, %error, "a UE is not taken over"),
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

    /// A UE as it is this host's.
    fn mine(&self, stored: &UeRecord) -> UeRecord {
        let mut context = stored.context.clone();
        let RecordsConfig { persist, scope, write, .. } = self.config.records;
        let behind = write == StateWrite::NonBlocking;
        if (persist == StatePersist::Procedure || behind || scope.is_shared())
            && let Ok(mut ue) = context::decode(&context)
        {
            match persist {
                // A procedure may have been under way, or something not written yet: what was sent had these names and COUNTs.
                StatePersist::Procedure => replica::skip(&mut ue),
                StatePersist::Transaction if behind => replica::skip(&mut ue),
                // The SMF may have been asked what it has not committed, and nobody else was told anything.
                StatePersist::Transaction => ue.sequence += replica::SKIPPED_STEPS,
            }
            context = context::encode(&ue, Vec::new()).unwrap_or(context);
        }
        let (owner, step) = (self.config.owner, stored.step + 1);
        let (course, known) = (stored.course.clone(), stored.known.clone());
        UeRecord { owner, step, consumed: 0, pin: 0, context, course, known, ..*stored }
    }
}

/// These records; one that is none is nobody's.
fn load(records: &mut dyn RecordStore, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
    let one = |records: &mut dyn RecordStore, name: &Name| match records.load(std::slice::from_ref(name)) {
        Ok(mut found) => Ok(found.pop().flatten()),
        Err(RecordError::NotARecord) => {
            tracing::error!(id = name.id, "what the database has of a UE is no record: the UE is not taken over");
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
    use vireo_core::context::UeContext;
    use vireo_store::records::{MemoryRecords, Operations};

    fn config(owner: u64) -> ContextDatabaseConfig {
        ContextDatabaseConfig { records: RecordsConfig::at("redis://127.0.0.1:1"), owner, shared: true }
    }

    fn stored(owner: u64, ltmsi: Ltmsi) -> UeRecord {
        let context = context::encode(&UeContext::new(ltmsi), Vec::new()).unwrap();
        UeRecord { owner, consumed: 7, context, ..UeRecord::default() }
    }

    #[test]
    fn what_the_region_has_leads_to_the_record() {
        let ltmsi = Ltmsi::new(Bucket::new(77), 5);
        let one = DatabaseRef { base: 9, ..DatabaseRef::fresh(ltmsi, u64::MAX, 3) };
        assert_eq!(DatabaseRef::of(&one.octets()), Some(one));
        assert_eq!((bucket_of(one.id), DatabaseRef::of(&[MARK]), DatabaseRef::of(b"x")), (Bucket::new(77), None, None));
        assert_ne!(one.id, DatabaseRef::fresh(ltmsi, u64::MAX, 4).id);
    }

    #[test]
    fn a_course_knows_what_was_wanted_lately_and_what_is_open() {
        let mut course = RecoveryLog::default();
        for n in 0..2 * REMEMBERED as u64 {
            course.wants(Instant(n), &[n as u8], true);
        }
        assert_eq!((course.wanted.len(), course.wanted[0].outbox[0]), (REMEMBERED, REMEMBERED as u8));
        course.wants(Instant(10_000_000), b"late", true);
        assert_eq!(course.wanted.len(), 1, "the others were done long ago");
        course.wants(Instant(10_000_000), b"later", false);
        assert_eq!(course.wanted[0].outbox, b"later", "nobody else goes on: the region knows what was done");
        let ask = SmfRequest::Release { reference: "x".into() };
        course.asks(PendingSmfRequest { key: 3, number: 1, ask, carried: None });
        assert_eq!([3, 4].map(|key| course.has_asked(key)), [true, false]);
        assert_eq!([3, 3, 4].map(|key| course.is_answered(key)), [true, false, false]);
        assert!(!course.has_asked(3));
        course.takes(5, N1N2TransferResult::Initiated);
        assert_eq!((course.result_of(5), course.result_of(6)), (Some(N1N2TransferResult::Initiated), None));
        (0..100).for_each(|key| course.takes(100 + key, N1N2TransferResult::Initiated));
        assert_eq!((course.taken.len(), course.result_of(5)), (REMEMBERED, None));
    }

    /// One host commits, another one claims, the first one wakes.
    #[test]
    fn who_was_taken_over_from_commits_nothing_any_more() {
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
        claim.go(&mut records.clone(), |bucket| bucket == Bucket::new(4)).unwrap();
        assert_eq!(claim.claimed.len(), 1, "the other bucket is not its own");
        let ClaimedUe { id: of, before, stored: left } = &claim.claimed[0];
        assert_eq!((*of, *before, left.consumed), (id, 1, 8));
        let (version, mine) = second.read(id).unwrap().unwrap();
        assert_eq!((version, mine.owner, mine.consumed), (3, 2, 0));

        // The first one had read before it was stopped, or reads now.
        let woken = UeRecord { consumed: 9, ..stored(1, ltmsi) };
        assert!(matches!(first.commit((id, 2), woken.clone()), Err(ContextDatabaseError::Foreign)));
        assert_eq!(second.read(id).unwrap().unwrap().1, mine, "nothing has changed");
        second.commit((id, 3), UeRecord { consumed: 1, ..stored(2, ltmsi) }).unwrap();
        assert!(matches!(first.commit((id, 3), woken), Err(ContextDatabaseError::Foreign)));
    }

    /// A place whose answers are lost so often, after or before it has done what was asked, and where another commits first.
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
    fn an_answer_that_is_lost_is_found_out() {
        let records = MemoryRecords::new(LIFE);
        let ltmsi = Ltmsi::new(Bucket::new(4), 1);
        let id = DatabaseRef::fresh(ltmsi, 1, 7).id;
        let failing = |loses, fails| {
            let mut central = ContextDatabase::over(config(1), &records);
            let records = records.clone();
            central.records = Ok(Box::new(Failing { records, loses, fails, overtaken: None }));
            central
        };
        assert!(matches!(failing(0, 1).commit((id, 0), stored(1, ltmsi)), Err(ContextDatabaseError::Database(_))));
        assert!(failing(0, 0).read(id).unwrap().is_none(), "it was not done");
        assert!(failing(1, 0).commit((id, 0), stored(1, ltmsi)).is_ok(), "it was done");
        assert_eq!(failing(0, 0).read(id).unwrap().unwrap().0, 1, "once");
    }

    #[test]
    fn a_claim_goes_on_where_it_was_and_takes_what_was_committed_last() {
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
        assert!(claim.go(&mut failing, |_| true).is_err());
        failing.overtaken = overtaken;
        claim.go(&mut failing, |_| true).unwrap();
        let mut consumed: Vec<_> = claim.claimed.iter().map(|claimed| claimed.stored.consumed).collect();
        consumed.sort_unstable();
        assert_eq!(consumed, [7, 7, 7, 8]);
        let left = records.list_ids(COLLECTION).unwrap();
        assert_eq!(left.len(), 4, "one was gone, and nobody has to know of it any more; what is no UE stays: {left:?}");
    }
}
