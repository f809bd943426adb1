//! Tests of records that the SMF also commits to: the test plays the SMF.

use super::*;
use vireo_core::config::{StateFormat, StateScope};
use vireo_ops::shared_record::{self, AmfPartHeader, DelegatedCommit};
use vireo_store::records::{Change, Format, RecordPart};

fn config(owner: u64) -> ContextDatabaseConfig {
    let mut config = super::config(owner);
    (config.records.scope, config.records.format) = (StateScope::AmfSmf, StateFormat::Json);
    config
}

/// Returns an AMF over shared records.
fn amf(owner: u64, records: &MemoryRecords) -> Amf {
    let mut amf = Amf::new(owner, records);
    let database = Box::new(ContextDatabase::over(config(owner), records));
    amf.contexts.location = ContextLocation::Database { database, in_procedure: None };
    amf
}

impl Amf {
    /// Runs a step with this path of commit.
    fn run_step(&mut self, slot: Slot, input: u64, path: CommitPath) -> Result<CommitHandle, StepError> {
        let found = self.contexts.load(&self.region, &mut self.worker, slot)?;
        self.contexts.fresh(&self.region, slot, found);
        let mut loaded = self.contexts.take().expect("a context");
        loaded.ue.connections += 1;
        loaded.set_path(path);
        self.contexts.commit_alone(&mut self.worker, loaded, false, CommitTerms::from_input(input), &[input as u8])
    }

    /// Returns the database operations since the last call.
    fn operations(&mut self) -> Vec<StateOperation> {
        self.contexts.operations().map(|(operation, _)| operation).collect()
    }

    /// Returns the commit that the request of the last step delegates.
    fn delegated_commit(&self, slot: Slot) -> DelegatedCommit {
        let mut seen = Snapshot::default();
        assert!(self.region.read(slot, &mut seen));
        let part = DatabaseRef::part(&seen.context).map(<[u8]>::to_vec);
        DelegatedCommit { record: DatabaseRef::decode(&seen.context).unwrap().id, part }
    }

    /// Returns the number of steps of the UE, as seen by this AMF.
    fn steps(&mut self, slot: Slot) -> Result<u64, StepError> {
        self.contexts.load(&self.region, &mut self.worker, slot)?;
        Ok(self.contexts.take().expect("a context").ue.connections.into())
    }
}

/// Commits as the SMF: the delegated part and an SM context.
fn smf(records: &MemoryRecords, delegated_commit: &DelegatedCommit, octets: &[u8]) -> bool {
    let mut records = records.clone();
    let name = shared_record::name(delegated_commit.record);
    let there = records.load(&[name]).unwrap().remove(0).unwrap();
    let before = AmfPartHeader::from_record(Format::Json, &there).unwrap();
    let own = AmfPartHeader::decode(delegated_commit.part.as_ref().unwrap()).unwrap();
    let kept = vireo_ops::ue_record::stored_part(Format::Json, delegated_commit.part.as_ref().unwrap()).unwrap();
    let (sm, amf) = (shared_record::sm_context_part_name(5), RecordPart { name: shared_record::AMF, octets: &kept });
    let parts = [RecordPart { name: &sm, octets }, amf];
    let parts = if own.follows(before) { &parts[..] } else { &parts[..1] };
    let change = Change::Update { expected: there.version, parts };
    own.owner == before.owner && records.change(&[(name, change)]).remove(0).is_ok()
}

/// Claims the UEs of dead AMFs. Returns the only record and its number of steps.
fn claim(records: &MemoryRecords, owner: u64) -> (u64, u64) {
    let taker = config(owner);
    let mut claim = BucketClaim::new(&taker);
    claim.run(&mut records.clone(), |_| true).unwrap();
    let [claimed] = &claim.claimed[..] else { panic!("{:?}", claim.claimed) };
    (claimed.id, context::decode(&claimed.stored.context).unwrap().connections.into())
}

/// A procedure of an AMF that shares a UE's record. The AMF commits its own results and the SMF
/// those with a request. Results of its responses need no commit.
#[test]
fn delegated_part_is_committed_by_smf() {
    use StateOperation::{Read, Write};
    let records = MemoryRecords::new(LIFE);
    let mut amf = amf(1, &records);
    let slot = amf.host.insert(Ltmsi::from_raw(7)).unwrap();
    amf.run_step(slot, 1, CommitPath::BySmf).unwrap();
    assert_eq!(amf.operations(), [Write], "the first step makes the record");
    assert_eq!(amf.delegated_commit(slot).part, None);
    amf.run_step(slot, 2, CommitPath::BySmf).unwrap();
    assert_eq!(amf.operations(), [Read], "n-1 writes are saved");
    let delegated_commit = amf.delegated_commit(slot);
    assert!(smf(&records, &delegated_commit, b"{}"));
    amf.run_step(slot, 3, CommitPath::Deferred).unwrap();
    assert_eq!(amf.operations(), [Read]);
    // The next message loads the UE. Its commit includes all earlier results.
    assert_eq!(amf.steps(slot).unwrap(), 3);
    amf.operations();
    amf.run_step(slot, 4, CommitPath::Committed).unwrap();
    assert_eq!(amf.operations(), [Read, Write]);
    let there = records.clone().load(&[shared_record::name(delegated_commit.record)]).unwrap().remove(0).unwrap();
    assert_eq!(
        (there.part(&shared_record::sm_context_part_name(5)), there.parts.len()),
        (Some(&b"{}"[..]), 2),
        "the SMF's part stays"
    );
    assert_eq!(claim(&records, 2), (delegated_commit.record, 4));
}

/// The AMF dies at each moment of a request: before the SMF receives it, before its commit, and
/// after it. The new owner continues from the last commit, and nothing is done twice.
#[test]
fn next_amf_continues_from_smf_commit() {
    for committed in [false, true] {
        let records = MemoryRecords::new(LIFE);
        let (mut first, mut second) = (amf(1, &records), amf(2, &records));
        let slot = first.host.insert(Ltmsi::from_raw(7)).unwrap();
        first.run_step(slot, 1, CommitPath::Committed).unwrap();
        first.run_step(slot, 2, CommitPath::BySmf).unwrap();
        let delegated_commit = first.delegated_commit(slot);
        if committed {
            assert!(smf(&records, &delegated_commit, b"{}"));
        }
        let (id, steps) = claim(&records, 2);
        assert_eq!(steps, if committed { 2 } else { 1 });
        // The dead AMF's request comes too late: it is not the owner.
        assert!(!smf(&records, &delegated_commit, b"{}"));
        let there = second.enter(id, 40);
        assert_eq!(second.steps(there).unwrap(), steps);
        let names = second.contexts.take();
        assert!(names.is_none());
        second.run_step(there, 41, CommitPath::BySmf).unwrap();
        assert!(smf(&records, &second.delegated_commit(there), b"{}"));
        assert_eq!(second.steps(there).unwrap(), steps + 1);
        // The first AMF wakes up and finds that another one owns the UE.
        let woken = first.run_step(slot, 3, CommitPath::Deferred);
        assert!(matches!(woken, Err(StepError::Database(ContextDatabaseError::Foreign))), "{woken:?}");
    }
}

/// A response without a commit is lost with the AMF. Its request is open in the record and is
/// repeated.
#[test]
fn uncommitted_response_is_requested_again() {
    let records = MemoryRecords::new(LIFE);
    let mut first = amf(1, &records);
    let slot = first.host.insert(Ltmsi::from_raw(7)).unwrap();
    first.run_step(slot, 1, CommitPath::Committed).unwrap();
    let add_request = |loaded: &mut LoadedContext| {
        let request = vireo_core::sba::SmfRequest::Release { reference: "x".into() };
        loaded.add_request(PendingSmfRequest { key: 3, number: 1, request, sm_context: None });
    };
    let found = first.contexts.load(&first.region, &mut first.worker, slot).unwrap();
    assert!(matches!(found, LoadResult::Context { .. }));
    let mut loaded = first.contexts.take().unwrap();
    add_request(&mut loaded);
    loaded.set_path(CommitPath::BySmf);
    first.contexts.commit_alone(&mut first.worker, loaded, false, CommitTerms::from_input(2), b"asks").unwrap();
    assert!(smf(&records, &first.delegated_commit(slot), b"{}"));
    first.contexts.load(&first.region, &mut first.worker, slot).unwrap();
    let mut loaded = first.contexts.take().unwrap();
    assert!(loaded.complete_request(3));
    loaded.set_path(CommitPath::Deferred);
    first.contexts.commit_alone(&mut first.worker, loaded, false, CommitTerms::from_input(3), b"").unwrap();
    // This AMF knows the response, the new owner does not.
    first.contexts.load(&first.region, &mut first.worker, slot).unwrap();
    assert!(!first.contexts.take().unwrap().complete_request(3));
    let (id, _) = claim(&records, 2);
    let mut database = ContextDatabase::over(config(2), &records);
    let (_, stored) = database.read(id).unwrap().unwrap();
    assert_eq!(stored.recovery.requests.len(), 1, "it is asked again");
}

/// If the SMF does not commit (it shares nothing, or refuses), the AMF commits with the response.
/// Events before the response continue from the region.
#[test]
fn undelegated_part_is_committed_by_amf() {
    use StateOperation::{Read, Write};
    let records = MemoryRecords::new(LIFE);
    let mut amf = amf(1, &records);
    let slot = amf.host.insert(Ltmsi::from_raw(7)).unwrap();
    amf.run_step(slot, 1, CommitPath::Committed).unwrap();
    amf.run_step(slot, 2, CommitPath::BySmf).unwrap();
    let late = amf.delegated_commit(slot);
    amf.operations();
    amf.run_step(slot, 3, CommitPath::Deferred).unwrap();
    assert_eq!(amf.operations(), [Read, Write]);
    assert_eq!(amf.steps(slot).unwrap(), 3);
    // The SMF commits late: only its own part, as the AMF's is newer.
    assert!(smf(&records, &late, b"{}"));
    assert_eq!(amf.steps(slot).unwrap(), 3);
    // Two requests: the second part includes the first, so both may be committed in any order.
    amf.run_step(slot, 4, CommitPath::BySmf).unwrap();
    let first = amf.delegated_commit(slot);
    amf.run_step(slot, 5, CommitPath::BySmf).unwrap();
    assert!(smf(&records, &amf.delegated_commit(slot), b"{}"));
    assert!(smf(&records, &first, b"{}"));
    assert_eq!(amf.steps(slot).unwrap(), 5);
}

/// The SMF commits repeatedly between the AMF's load and its commit.
#[test]
fn amf_commit_keeps_concurrent_smf_commit() {
    let records = MemoryRecords::new(LIFE);
    let mut amf = amf(1, &records);
    let slot = amf.host.insert(Ltmsi::from_raw(7)).unwrap();
    amf.run_step(slot, 1, CommitPath::Committed).unwrap();
    amf.run_step(slot, 2, CommitPath::BySmf).unwrap();
    let delegated_commit = amf.delegated_commit(slot);
    amf.contexts.load(&amf.region, &mut amf.worker, slot).unwrap();
    let mut loaded = amf.contexts.take().unwrap();
    loaded.ue.connections += 1;
    for octets in [b"1", b"2", b"3"] {
        assert!(smf(&records, &delegated_commit, octets));
    }
    amf.contexts.commit_alone(&mut amf.worker, loaded, false, CommitTerms::from_input(3), b"x").unwrap();
    assert_eq!(amf.steps(slot).unwrap(), 3);
    let there = records.clone().load(&[shared_record::name(delegated_commit.record)]).unwrap().remove(0).unwrap();
    assert_eq!(there.part(&shared_record::sm_context_part_name(5)), Some(&b"3"[..]));
}
