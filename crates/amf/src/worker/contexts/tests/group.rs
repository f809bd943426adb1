//! Tests of results that are stored in one operation.

use super::super::write_behind_tests::Gate;
use super::*;

impl Amf {
    /// Creates three UEs with one step each and an uncommitted second one.
    fn three(&mut self) -> ([Slot; 3], Vec<PendingCommit>) {
        let slots = [7, 8, 9].map(|number| self.host.insert(Ltmsi::from_raw(number)).unwrap());
        for slot in slots {
            self.step(slot, 1, b"one").unwrap();
        }
        self.contexts.operations().for_each(drop);
        self.contexts.prefetch(&self.region, slots.into_iter());
        let pending = slots.iter().map(|slot| self.begin(*slot, 2)).collect();
        (slots, pending)
    }

    fn begin(&mut self, slot: Slot, input: u64) -> PendingCommit {
        let found = self.contexts.load(&self.region, &mut self.worker, slot).unwrap();
        assert!(matches!(found, LoadResult::Context { .. }), "{found:?}");
        let mut loaded = self.contexts.take().expect("a context");
        loaded.ue.connections += 1;
        match self.contexts.commit(&mut self.worker, loaded, false, CommitTerms::from_input(input), b"two").unwrap() {
            StepOutcome::Pending(pending) => *pending,
            StepOutcome::Done(done) => panic!("nothing is stored: {done:?}"),
        }
    }

    fn consumed(&self, slots: [Slot; 3]) -> [u64; 3] {
        slots.map(|slot| self.region.consumed_of(slot))
    }
}

#[test]
fn grouped_ues_are_stored_independently() {
    use StateOperation::{Read, Write};
    let records = MemoryRecords::new(LIFE);
    let mut amf = Amf::new(1, &records);
    let (slots, pending) = amf.three();
    assert_eq!(amf.consumed(slots), [1; 3], "nothing has happened yet");
    // Another AMF owns one of them.
    let id = database_ref(&amf.region, slots[1]).id;
    let mut other = ContextDatabase::over(config(2), &records);
    let (version, stored) = other.read(id).unwrap().expect("stored");
    other.commit((id, version), UeRecord { owner: 2, ..stored }).unwrap();
    let done = amf.contexts.store(&mut amf.worker, pending);
    assert!(
        matches!(&done[..], [Ok(_), Err(StepError::Database(ContextDatabaseError::Foreign)), Ok(_)]),
        "one has harmed no other: {done:?}"
    );
    assert_eq!(amf.consumed(slots), [2, 1, 2]);
    let asked: Vec<_> = amf.contexts.operations().map(|(operation, _)| operation).collect();
    assert_eq!(asked, [Read, Read, Read, Write, Write, Write], "a read and a write for each transaction");
}

/// A worker dies after the database has the results of its steps and before the region does. The
/// next worker finds each of them processed.
#[test]
fn grouped_commits_of_dead_worker_are_continued() {
    let records = MemoryRecords::new(LIFE);
    let mut amf = Amf::new(1, &records);
    let (slots, pending) = amf.three();
    let all = pending.into_iter().map(|pending| ((pending.reference.id, pending.version), pending.stored));
    let stored = ContextDatabase::over(config(1), &records).commit_all(all.take(2).collect());
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    amf.contexts = Amf::new(1, &records).contexts;
    amf.contexts.prefetch(&amf.region, slots.into_iter());
    for (slot, consumed) in slots.into_iter().zip([2, 2, 1]) {
        let found = amf.contexts.load(&amf.region, &mut amf.worker, slot).unwrap();
        let LoadResult::Context { consumed: there, unsent } = found else { panic!("{found:?}") };
        assert_eq!((there, unsent.is_some()), (consumed, true));
        assert_eq!(amf.contexts.take_recovered().is_some(), consumed == 2, "its effects are to leave");
    }
    assert_eq!(amf.consumed(slots), [2, 2, 1]);
}

#[test]
fn steps_without_database_are_repeated() {
    let gate = Gate::before(&MemoryRecords::new(LIFE));
    let mut amf = Amf::new(1, &gate.records);
    let database = Box::new(ContextDatabase::over(config(1), &gate));
    amf.contexts.location = ContextLocation::Database { database, in_procedure: None };
    let (slots, pending) = amf.three();
    gate.shut(true);
    let done = amf.contexts.store(&mut amf.worker, pending);
    assert!(done.iter().all(|done| done.as_ref().is_err_and(StepError::is_retryable)), "{done:?}");
    assert_eq!(amf.consumed(slots), [1; 3]);
    gate.shut(false);
    let pending = slots.iter().map(|slot| amf.begin(*slot, 2)).collect();
    assert!(amf.contexts.store(&mut amf.worker, pending).iter().all(Result::is_ok));
    assert_eq!(amf.consumed(slots), [2; 3]);
}
