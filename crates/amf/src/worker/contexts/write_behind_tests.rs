//! Tests of write-behind contexts in a database.

use super::tests::database_ref;
use super::*;
use crate::worker::context_database::{BucketClaim, ContextDatabaseConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vireo_core::config::StateWrite;
use vireo_ops::state::RecordsConfig;
use vireo_store::records::{Change, LIFE, MemoryRecords, Name, Operations, RecordError, RecordStore};
use vireo_store::region::RegionConfig;
use vireo_types::Ltmsi;

/// Records that write nothing while the gate is shut.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) records: MemoryRecords,
    is_shut: Arc<AtomicBool>,
    /// Number of read operations.
    questions: Arc<AtomicU32>,
}

impl Gate {
    pub(super) fn before(records: &MemoryRecords) -> Self {
        Gate { records: records.clone(), is_shut: Arc::default(), questions: Arc::default() }
    }

    pub(super) fn shut(&self, shut: bool) {
        self.is_shut.store(shut, Ordering::SeqCst);
    }
}

impl RecordStore for Gate {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<vireo_store::records::StoredRecord>>, RecordError> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        self.records.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        if self.is_shut.load(Ordering::SeqCst) {
            return changes.iter().map(|_| Err(RecordError::Down("it is shut".into()))).collect();
        }
        self.records.change(changes)
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.records.list_ids(collection)
    }

    fn operations(&self) -> Operations {
        self.records.operations()
    }
}

/// A worker of an AMF whose writers have their own gate before the database.
struct Nf {
    gate: Gate,
    worker: Worker,
    contexts: Contexts,
}

impl Nf {
    fn new(region: &Region, number: u8, records: &MemoryRecords) -> Self {
        let gate = Gate::before(records);
        let mut records = RecordsConfig::for_redis("redis://127.0.0.1:1");
        records.write = StateWrite::NonBlocking;
        let config = ContextDatabaseConfig { records, owner: 5, shared: false };
        let mut contexts = Contexts::new(Location::Region);
        contexts.location =
            ContextLocation::Database { database: Box::new(ContextDatabase::over(config, &gate)), in_procedure: None };
        Nf { gate, worker: region.join(number).unwrap(), contexts }
    }

    fn load(&mut self, region: &Region, slot: Slot) -> Result<LoadResult, StepError> {
        self.contexts.load(region, &mut self.worker, slot)
    }

    /// Runs a step over a UE by an input with this number.
    fn step(&mut self, region: &Region, slot: Slot, input: u64) -> Result<LoadResult, StepError> {
        let found = self.load(region, slot)?;
        self.contexts.fresh(region, slot, found);
        let mut loaded = self.contexts.take().expect("a context");
        loaded.ue.connections += 1;
        self.contexts.commit_alone(&mut self.worker, loaded, false, CommitTerms::from_input(input), b"outbox")?;
        Ok(found)
    }

    /// Runs a step; retries until the awaited write is done.
    fn step_at_last(&mut self, region: &Region, slot: Slot, input: u64) -> LoadResult {
        loop {
            match self.step(region, slot, input) {
                Ok(found) => return found,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    }

    /// Waits until all commits of a UE are written.
    fn written(&mut self, region: &Region, slot: Slot) {
        while let Err(error) = self.load(region, slot) {
            assert!(error.is_retryable(), "{error}");
        }
    }

    fn config(&self) -> ContextDatabaseConfig {
        let ContextLocation::Database { database, .. } = &self.contexts.location else { panic!("elsewhere") };
        database.config().clone()
    }

    /// Returns the number of steps of a UE that the database has.
    fn in_database(&self, region: &Region, slot: Slot) -> Option<u32> {
        let id = database_ref(region, slot).id;
        let (_, stored) = ContextDatabase::over(self.config(), &self.gate.records).read(id).unwrap()?;
        Some(context::decode(&stored.context).unwrap().connections.into())
    }

    fn connections(&self) -> Option<u32> {
        self.contexts.current().map(|ue| ue.connections.into())
    }
}

/// Any worker that loads a UE reads the last commit.
#[test]
fn next_load_waits_for_pending_write() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    one.gate.shut(true);
    assert!(matches!(one.step(&region, slot, 1), Ok(LoadResult::Nothing)), "it goes on at once");
    assert_eq!(region.consumed_of(slot), 1, "what it wants done leaves");
    assert_eq!(records.clone().list_ids("amf"), Ok(Vec::new()), "nothing is written yet");
    let error = one.load(&region, slot).expect_err("it has it loaded");
    assert!(error.is_retryable(), "{error}");
    let opens = std::thread::spawn({
        let gate = one.gate.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.shut(false);
        }
    });
    let found = two.step_at_last(&region, slot, 2);
    assert!(matches!(found, LoadResult::Context { consumed: 1, .. }), "{found:?}");
    opens.join().unwrap();
    let found = one.step_at_last(&region, slot, 3);
    assert!(matches!(found, LoadResult::Context { consumed: 2, .. }), "{found:?}");
    let found = one.step_at_last(&region, slot, 4);
    assert!(matches!(found, LoadResult::Context { consumed: 3, .. }), "{found:?}");
    one.written(&region, slot);
    two.load(&region, slot).unwrap();
    assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(4), Some(4)), "no step is missing");
    // A slow writer is not waited for indefinitely: the region has its unwritten commits.
    one.gate.shut(true);
    one.step(&region, slot, 5).unwrap();
    two.load(&region, slot).unwrap();
    assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(5), Some(4)));
}

/// A worker dies with unwritten commits. The region has them, and the next worker continues from
/// them. Late writes change nothing.
#[test]
fn unwritten_commit_of_dead_worker_is_continued() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let [slot, other] = [7, 8].map(|number| host.insert(Ltmsi::from_raw(number)).unwrap());
    one.step(&region, slot, 1).unwrap();
    one.step_at_last(&region, slot, 2);
    one.written(&region, slot);
    one.gate.shut(true);
    one.step(&region, slot, 3).unwrap();
    one.step(&region, other, 1).unwrap();
    let Nf { gate, worker, contexts } = one;
    drop(worker);
    let found = two.load(&region, slot).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 3, unsent: Some(_) }), "{found:?}");
    let Some(loaded) = two.contexts.loaded.as_deref() else { panic!("a context") };
    assert_eq!((loaded.ue.connections, loaded.ue.sequence), (3, 0), "nothing is lost, and no name or COUNT skipped");
    let wanted: Vec<&[u8]> = loaded.stored.recovery.outboxes.iter().map(|wanted| &wanted.outbox[..]).collect();
    assert_eq!(wanted, [b"outbox"], "the last one, as the region knows what was done");
    // A UE that was never written.
    let found = two.load(&region, other).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 1, .. }), "{found:?}");
    two.step(&region, other, 2).unwrap();
    // Late writes of the dead worker come before the next commit, and after it.
    let found = two.load(&region, slot).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 3, .. }), "{found:?}");
    let loaded = two.contexts.take().unwrap();
    gate.shut(false);
    drop(contexts);
    let late =
        two.contexts.commit_alone(&mut two.worker, loaded, false, CommitTerms::from_input(4), b"outbox").unwrap_err();
    assert!(late.is_retryable(), "{late}");
    two.step_at_last(&region, slot, 4);
    for (slot, steps) in [(slot, 4), (other, 2)] {
        two.written(&region, slot);
        assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(steps), Some(steps)));
    }
}

/// A worker dies after it passes a commit to the writers and before it commits to the region.
/// Another worker processes the event again with another result. That result counts, even if the
/// dead worker's is written first.
#[test]
fn sent_effects_outrank_late_write() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    one.step(&region, slot, 1).unwrap();
    one.written(&region, slot);
    [&one, &two].into_iter().for_each(|nf| nf.gate.shut(true));
    let ContextLocation::Database { database, .. } = &mut one.contexts.location else { panic!("elsewhere") };
    let id = one.contexts.loaded.as_deref().and_then(|loaded| loaded.stored.reference).expect("a record").id;
    let (version, mut stored) = database.read(id).unwrap().expect("written");
    let mut ue = context::decode(&stored.context).unwrap();
    ue.connections = 77;
    (stored.step, stored.consumed, stored.context) = (2, 2, context::encode(&ue, Vec::new()).unwrap());
    database.commit((id, version), stored).unwrap();
    drop(one.worker);
    let found = two.step(&region, slot, 2).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 1, .. }), "{found:?}");
    one.gate.shut(false);
    drop(one.contexts);
    assert_eq!(two.in_database(&region, slot), Some(77));
    two.gate.shut(false);
    let found = two.step_at_last(&region, slot, 3);
    assert!(matches!(found, LoadResult::Context { consumed: 2, .. }), "{found:?}");
    two.written(&region, slot);
    assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(3), Some(3)));
}

/// The region dies with its host, and another host continues from the database. Only commits in
/// flight are lost. Such a UE has its previous state with unused identifiers and COUNTs. A UE of
/// which nothing was written does not exist.
#[test]
fn other_host_continues_from_last_write() {
    let region = Region::create(RegionConfig::new(4, 2, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let mut nf = Nf::new(&region, 1, &records);
    let slots = [7, 8, 9].map(|number| host.insert(Ltmsi::from_raw(number)).unwrap());
    for input in [1, 2] {
        for slot in &slots[..2] {
            nf.step_at_last(&region, *slot, input);
        }
    }
    nf.step_at_last(&region, slots[0], 3);
    slots[..2].iter().for_each(|slot| nf.written(&region, *slot));
    nf.gate.shut(true);
    nf.step(&region, slots[1], 3).unwrap();
    nf.step(&region, slots[2], 1).unwrap();
    let mut config = nf.config();
    config.owner = 6;
    let mut claim = BucketClaim::new(&config);
    claim.run(&mut records.clone(), |_| true).unwrap();
    let mut there = Vec::new();
    for claimed in &claim.claimed {
        let (_, stored) = ContextDatabase::over(config.clone(), &records).read(claimed.id).unwrap().expect("a record");
        let ue = context::decode(&stored.context).unwrap();
        there.push((ue.ltmsi.get(), u32::from(ue.connections), ue.sequence));
    }
    there.sort_unstable();
    assert_eq!(there, [(7, 3, replica::SKIPPED_STEPS), (8, 2, replica::SKIPPED_STEPS)]);
    // The previous host is only slow: its writes are refused, and its next step is void.
    nf.gate.shut(false);
    let woken = nf.load(&region, slots[1]);
    assert!(matches!(woken, Err(StepError::Database(ContextDatabaseError::Foreign))), "{woken:?}");
    assert_eq!(
        ContextDatabase::over(config.clone(), &records).read(claim.claimed[0].id).unwrap().expect("a record").1.owner,
        6
    );
}

/// A removed record is not restored from the region.
#[test]
fn removed_record_is_not_restored_from_region() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    one.step(&region, slot, 1).unwrap();
    one.written(&region, slot);
    one.gate.shut(true);
    one.step(&region, slot, 2).unwrap();
    drop(one.worker);
    let id = database_ref(&region, slot).id;
    let removal = (Name { collection: "amf", id }, Change::Remove { expected: 1 });
    records.clone().change(&[removal]).remove(0).unwrap();
    let lost = two.load(&region, slot);
    assert!(matches!(lost, Err(StepError::Database(ContextDatabaseError::Lost))), "{lost:?}");
}

impl Nf {
    /// Runs steps over UEs that were read in one operation, and returns their uncommitted results.
    fn begin_all(&mut self, region: &Region, slots: &[Slot], input: u64) -> Vec<PendingCommit> {
        self.contexts.operations().for_each(drop);
        self.contexts.prefetch(region, slots.iter().copied());
        let begin = |slot: &Slot| {
            let found = self.load(region, *slot).unwrap();
            assert!(matches!(found, LoadResult::Context { .. }), "{found:?}");
            let mut loaded = self.contexts.take().expect("a context");
            loaded.ue.connections += 1;
            match self
                .contexts
                .commit(&mut self.worker, loaded, false, CommitTerms::from_input(input), b"outbox")
                .unwrap()
            {
                StepOutcome::Pending(pending) => *pending,
                StepOutcome::Done(done) => panic!("nothing is handed over: {done:?}"),
            }
        };
        slots.iter().map(begin).collect()
    }

    fn store_all(&mut self, pending: Vec<PendingCommit>) -> Vec<Result<CommitHandle, StepError>> {
        self.contexts.store(&mut self.worker, pending)
    }
}

/// A batch of UEs continues when its results are handed to the writers. The next read waits for all
/// of them, and is one operation.
#[test]
fn grouped_ues_are_read_after_all_writes() {
    use StateOperation::{Read, Write};
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let mut nf = Nf::new(&region, 1, &records);
    let slots = [7, 8, 9].map(|number| host.insert(Ltmsi::from_raw(number)).unwrap());
    for slot in slots {
        nf.step(&region, slot, 1).unwrap();
        nf.written(&region, slot);
    }
    let pending = nf.begin_all(&region, &slots, 2);
    nf.gate.shut(true);
    assert!(nf.store_all(pending).iter().all(Result::is_ok), "nobody waits for what is not written");
    assert_eq!(slots.map(|slot| region.consumed_of(slot)), [2; 3], "what they want done leaves");
    assert_eq!(slots.map(|slot| nf.in_database(&region, slot)), [Some(1); 3]);
    let asked: Vec<_> = nf.contexts.operations().map(|(operation, _)| operation).collect();
    assert_eq!(asked, [Read, Read, Read, Write, Write, Write], "a read and a write for each transaction");
    let opens = std::thread::spawn({
        let gate = nf.gate.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.shut(false);
        }
    });
    let before = nf.gate.questions.load(Ordering::SeqCst);
    let pending = nf.begin_all(&region, &slots, 3);
    opens.join().unwrap();
    assert_eq!(slots.map(|slot| nf.in_database(&region, slot)), [Some(2); 3], "the barrier");
    assert_eq!(nf.gate.questions.load(Ordering::SeqCst) - before, 1, "all were read in one question");
    assert!(nf.store_all(pending).iter().all(Result::is_ok));
    slots.iter().for_each(|slot| nf.written(&region, *slot));
    assert_eq!(slots.map(|slot| nf.in_database(&region, slot)), [Some(3); 3]);
}

/// A worker dies during a batch: all commits were handed over, the database has some and the region
/// has some. Each UE behaves as if it were alone. Commits in the region count, those only in the
/// database are completed, and the others are processed again.
#[test]
fn worker_death_in_group_is_like_single_ue() {
    let region = Region::create(RegionConfig::new(5, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let slots = [7, 8, 9, 10].map(|number| host.insert(Ltmsi::from_raw(number)).unwrap());
    for slot in slots {
        one.step(&region, slot, 1).unwrap();
        one.written(&region, slot);
    }
    let mut pending = one.begin_all(&region, &slots, 2).into_iter();
    let handed_over = |pending: &PendingCommit| ((pending.reference.id, pending.version), pending.stored.clone());
    // In the database and the region; only in the database.
    let first = pending.next().expect("four");
    assert!(one.store_all(vec![first]).iter().all(Result::is_ok));
    one.written(&region, slots[0]);
    let second = pending.next().expect("four");
    let written = ContextDatabase::over(one.config(), &records).commit_all(vec![handed_over(&second)]);
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    // Only in the region; in neither.
    one.gate.shut(true);
    let third = pending.next().expect("four");
    assert!(one.store_all(vec![third]).iter().all(Result::is_ok));
    let ContextLocation::Database { database, .. } = &mut one.contexts.location else { panic!("elsewhere") };
    let fourth = database.commit_all(vec![handed_over(&pending.next().expect("four"))]);
    assert!(fourth.iter().all(Result::is_ok), "it is loaded: {fourth:?}");
    let Nf { gate, worker, contexts } = one;
    drop(worker);
    two.contexts.prefetch(&region, slots.into_iter());
    let mut seen = Vec::new();
    for slot in slots {
        let found = two.load(&region, slot).unwrap();
        let LoadResult::Context { consumed, unsent: Some(_) } = found else { panic!("{found:?}") };
        seen.push((consumed, two.connections(), two.contexts.take_recovered().is_some()));
    }
    let left = |found| (2, Some(2), found);
    assert_eq!(seen, [left(false), left(true), left(false), (1, Some(1), false)]);
    assert_eq!(slots.map(|slot| region.consumed_of(slot)), [2, 2, 2, 1]);
    // The later commit counts, although the dead worker's writers were only slow.
    let inputs = [3, 3, 3, 2];
    for (slot, input) in slots.into_iter().zip(inputs) {
        two.step_at_last(&region, slot, input);
        two.written(&region, slot);
    }
    gate.shut(false);
    drop(contexts);
    slots.iter().for_each(|slot| two.written(&region, *slot));
    let steps = [3, 3, 3, 2].map(Some);
    assert_eq!(slots.map(|slot| two.in_database(&region, slot)), steps);
    assert_eq!(slots.map(|slot| region.consumed_of(slot)), inputs);
}

/// Another host owns one UE of a batch: the writers find out when no step waits for them. The UE's
/// next step is void, and the others continue.
#[test]
fn refused_write_of_group_harms_no_other_ue() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let mut nf = Nf::new(&region, 1, &records);
    let slots = [7, 8, 9].map(|number| host.insert(Ltmsi::from_raw(number)).unwrap());
    for slot in slots {
        nf.step(&region, slot, 1).unwrap();
        nf.written(&region, slot);
    }
    let pending = nf.begin_all(&region, &slots, 2);
    let id = database_ref(&region, slots[1]).id;
    let mut other = ContextDatabase::over(ContextDatabaseConfig { owner: 6, ..nf.config() }, &records);
    let (version, stored) = other.read(id).unwrap().expect("stored");
    other.commit((id, version), UeRecord { owner: 6, ..stored }).unwrap();
    other.settle(id).unwrap();
    assert!(nf.store_all(pending).iter().all(Result::is_ok), "nobody knows yet");
    nf.contexts.prefetch(&region, slots.into_iter());
    let found = slots.map(|slot| nf.load(&region, slot));
    assert!(
        matches!(
            found,
            [
                Ok(LoadResult::Context { consumed: 2, .. }),
                Err(StepError::Database(ContextDatabaseError::Foreign)),
                Ok(LoadResult::Context { consumed: 2, .. })
            ]
        ),
        "{found:?}"
    );
}
